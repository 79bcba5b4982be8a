"""What an engine consists of: one object, which updates change and matches read.

Writers take turns (`writing`). What readers need at one moment, the encoding of an event and the index that goes with
it, changes under a second lock (`publishing`), which is held only for moments: what takes long is prepared before. The
generation is odd meanwhile, so that a reader without a lock sees afterwards whether what it read belongs together.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from siftline.encoding.clauses import encode_covers
from siftline.encoding.domains import Domains
from siftline.engine.compaction import Compactor
from siftline.engine.fast_path import FastPaths
from siftline.engine.subscriptions import SubscriptionTable
from siftline.engine.write_buffer import WriteBuffer
from siftline.indexes.registry import make_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.statistics import Statistics
    from siftline.engine.subsets import Tenant
    from siftline.indexes.protocol import Index

# How many clauses the write buffer holds: scanning them takes an event one or two microseconds.
WRITE_BUFFER_CAPACITY: Final = 512


class State:
    """The parts of an engine.

    Attributes
    ----------
    index, table, domains, clauses
        The index; ids, weights and expressions by slot; the codes of values; the clauses of indexed slots.
    buffer, n_indexed
        The newest subscriptions, which the index does not have yet; they begin with the slot `n_indexed`.
    unplaced : set of int
        Slots whose constants did not all get labels.
    entries : dict
        By the hash of an expression, a slot that may be shared; some may be gone. With the expressions themselves as
        keys, each would be one more object for the garbage collector.
    generation, n_added, n_replaced
        What changes whenever parts are exchanged, subscriptions are added to the index, or replaced.
    """

    def __init__(self, index: str, statistics: Statistics | None, schedule: str, options: dict[str, Any]) -> None:
        self.index_name = index
        self.schedule = schedule
        self.options = options
        self.statistics = statistics
        self.index: Index = make_index(index, options)
        self.table = SubscriptionTable()
        self.domains = Domains()
        self.clauses: list[Clauses] = [encode_covers([], 0, self.domains)]
        self.buffer_capacity = WRITE_BUFFER_CAPACITY
        self.buffer = WriteBuffer(WRITE_BUFFER_CAPACITY)
        self.n_indexed = 0
        self.unplaced: set[int] = set()
        self.entries: dict[int, int] = {}
        self.n_added = 0
        self.n_replaced = 0
        self.n_overtaken = 0  # how many relabellings in a row were overtaken by another exchange of index or domains
        self.generation = 0
        self.laid_out_s = 0.0  # what it took to lay out the whole index last
        self.tenants: dict[str, Tenant] = {}  # those that events were matched for
        self.compactor = Compactor()
        self.fast_paths = FastPaths()
        self.writing = threading.RLock()
        self.publishing = threading.Lock()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Let no reader look at the parts for a moment; readers without a lock see that the generation moved on."""
        with self.publishing, self.fast_paths:
            self.generation += 1
            try:
                yield
            finally:
                self.generation += 1

    def put(self, table: SubscriptionTable, domains: Domains, clauses: list[Clauses], index: Index) -> None:
        """Use other parts from now on; under both locks."""
        self.table, self.domains, self.clauses, self.index = table, domains, clauses, index
        self.buffer, self.n_indexed = WriteBuffer(self.buffer_capacity), table.n_slots

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in self.__dict__.items() if name not in ("writing", "publishing")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.writing = threading.RLock()
        self.publishing = threading.Lock()
        self.table.removed = None
        # Hashes of strings are others in every process.
        self.entries = {hash(self.table.expression(slot)): slot for slot in self.entries.values()}
