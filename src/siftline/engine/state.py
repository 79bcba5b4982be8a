"""The parts of an engine in one object, which updates change and matches read.

Writers take turns (`writing`). The parts that a reader must see together, such as the domains that encode an event and
the index, change under a second lock (`publishing`). It is held only briefly, because everything slow is prepared
before. The generation is odd meanwhile, so a reader without a lock can tell afterwards whether it read a consistent
state.
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

# A flush is due when the write buffer has this many clauses. Scanning them takes an event one or two microseconds.
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
        By the hash of an expression, a slot that may have it; the slot may be removed. Keys are hashes, because
        expressions as keys would be that many more objects for the garbage collector.
    generation, n_added, n_replaced
        Counters of replaced parts, of additions to the index, and of replaced subscriptions.
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
        self.n_overtaken = 0  # how many renewals in a row were dropped because another change replaced index or domains
        self.generation = 0
        self.laid_out_s = 0.0  # how long the last layout of the whole index took
        self.tenants: dict[str, Tenant] = {}  # tenants for which events were matched
        self.compactor = Compactor()
        self.fast_paths = FastPaths()
        self.writing = threading.RLock()
        self.publishing = threading.Lock()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep readers out while parts change; a reader without a lock sees that the generation has changed."""
        with self.publishing, self.fast_paths:
            self.generation += 1
            try:
                yield
            finally:
                self.generation += 1

    def put(self, table: SubscriptionTable, domains: Domains, clauses: list[Clauses], index: Index) -> None:
        """Replace the parts; under both locks."""
        self.table, self.domains, self.clauses, self.index = table, domains, clauses, index
        self.buffer, self.n_indexed = WriteBuffer(self.buffer_capacity), table.n_slots

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in self.__dict__.items() if name not in ("writing", "publishing")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.writing = threading.RLock()
        self.publishing = threading.Lock()
        self.table.removed = None
        # Hashes of strings differ between processes.
        self.entries = {hash(self.table.expression(slot)): slot for slot in self.entries.values()}
