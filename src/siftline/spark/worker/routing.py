"""Routing: which shards an event has to visit, and the packing of events for the same shard.

The router only knows pivots and their partners, and finds the attributes of events with the parser that also encodes
them. It sets unreadable events aside, so that all shards agree on them. Between the two stages of the sharded plan
(`sharded.py`) the JVM moves a few large byte strings instead of a row for each visit: it neither reads them nor makes
an object for an event.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from siftline.encoding.domain import NULL
from siftline.encoding.domains import Domains
from siftline.encoding.events import EncodedEvents
from siftline.kernels.routing import visits
from siftline.operators.modules import load_modules
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.runtime.tasks import partition
from siftline.spark.sharding.pairs import filters_of
from siftline.spark.worker.events import JSON, Shape
from siftline.spark.worker.live import overlay_of
from siftline.spark.worker.loading import stamp_of
from siftline.spark.worker.matcher import COUNTS, LISTS
from siftline.spark.worker.reading import pieces, readable
from siftline.storage.snapshot import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from siftline.spark.directory.overlay import Overlay
    from siftline.spark.directory.state import State
    from siftline.spark.worker.dead_letters import TaskLetters
    from siftline.spark.worker.matcher import Matcher

# The column of the number that an event has in the job, by which its matches in several shards are joined.
EVENT_NUMBER: Final = "_siftline_event"
# The output of a router: the task, the shard, and some events packed together.
ROUTED: Final = "place int, shard int, content binary"
_ROUTED: Final = pa.schema([("place", pa.int32()), ("shard", pa.int32()), ("content", pa.binary())])
# As in `monotonically_increasing_id`: the partition in the upper bits, the position in the lower ones.
_POSITION_BITS: Final = 33
# The most bytes of events that a router collects, of all shards together, and of one shard.
_WAITING_BYTES: Final = 1 << 26
_PACKED_BYTES: Final = 1 << 20
# With compression a third of the bytes go through the JVM and over the network. This moves work from the JVM to the
# workers: on one machine there was no difference beyond the noise.
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")
# How many routes stay in memory: of the current state of an index, and of the one before.
_ROUTES_CAPACITY: Final = 2


class Routes:
    """The shards of each attribute; changes since the version are one more shard, which all events visit."""

    def __init__(self, directory: IndexDirectory, shape: Shape, changes: Overlay | None = None) -> None:
        self.n_shards = len(directory.shards) + (changes is not None)
        always = [number for number, shard in enumerate(directory.shards) if shard.is_always]
        self.always = np.array(always + [len(directory.shards)] * (changes is not None), dtype=np.int32)
        self.domains = Domains()
        owners: list[list[int]] = []
        for number, shard in enumerate(directory.shards):
            for path in shard.pivots if not shard.is_always else ():
                attribute = self.domains.intern(path)
                if attribute == len(owners):
                    owners.append([])
                owners[attribute].append(number)
        if shape.kind != JSON or any(shard.pairs is not None for shard in directory.shards):
            # Filters use the partners of pivots too. And in shapes other than JSON, an invalid value makes the event
            # unreadable, whatever attribute it belongs to.
            owners += [[] for _ in range(self._intern_all(directory, changes) - len(owners))]
        self.filters = filters_of(directory, self.domains.names, self.n_shards)
        self.starts = np.cumsum([0, *map(len, owners)], dtype=np.int64)
        self.shards = np.array([number for numbers in owners for number in numbers], dtype=np.int32)

    def _intern_all(self, directory: IndexDirectory, changes: Overlay | None) -> int:
        """Add all attributes of the index to the domains; return how many there are."""
        for name in changes.engine._state.domains.names if changes is not None else ():
            self.domains.intern(name)
        for number in range(len(directory.shards)):
            for name in read_table(directory.shard_path(number), "domains/names")["text"].to_pylist():
                self.domains.intern(name.decode("utf-8", "surrogatepass"))
        return len(self.domains)

    def encode(self, source: Any) -> EncodedEvents:
        """Find the attributes of events."""
        return EncodedEvents(source, self.domains)

    def visits(self, events: EncodedEvents) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return pairs of an event and a shard that it visits."""
        arrays = events.starts, events.attributes, events.codes
        found = visits(*arrays, NULL, self.starts, self.shards, self.always, self.n_shards, self.filters)
        return found[0], found[1]


_routes: OrderedDict[Any, Routes] = OrderedDict()


def routes_of(path: str, state: State, shape: Shape, *, is_changed: bool) -> Routes:
    """Return the routes of an index, made once in this process."""
    folder = str(IndexDirectory.folder_of(path, state.version))
    key = folder, stamp_of(folder), shape.kind == JSON, state.delta if is_changed else None
    known = _routes.pop(key, None)
    if known is None:
        overlay = overlay_of(path, state)
        known = Routes(overlay.directory, shape, overlay if is_changed else None)
    _routes[key] = known
    while len(_routes) > _ROUTES_CAPACITY:
        _routes.popitem(last=False)
    return known


@dataclass(frozen=True)
class Router:
    """The first stage: events of a task, packed by shard.

    Attributes
    ----------
    path, state : str, State
        The index.
    is_changed : bool
        Whether there are changes on top of the version.
    matcher : Matcher
        The stage after this one.
    n_splits : int
        How many tasks share the events of one shard.
    """

    path: str
    state: State
    is_changed: bool
    matcher: Matcher
    n_splits: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Route the events of one task."""
        shape = self.matcher.shape
        load_modules(self.matcher.operators)
        routes = routes_of(self.path, self.state, shape, is_changed=self.is_changed)
        place = partition()
        packing = _Packing(routes.n_shards, self.n_splits, place)
        n_events = place << _POSITION_BITS
        with self.matcher.dead_letters.task(shape) as letters:
            for batch in batches:
                for piece in pieces(batch):
                    good, events, shards = self._routed(piece, routes, letters)
                    numbers = pa.array(np.arange(n_events, n_events + good.num_rows))
                    n_events += good.num_rows
                    letters.count(good.num_rows, 0)
                    yield from packing.add(good.append_column(EVENT_NUMBER, numbers), events, shards)
            yield from packing.rest()

    def _routed(self, piece: Any, routes: Routes, letters: TaskLetters) -> tuple[Any, Any, Any]:
        good, encoded = readable(piece, self.matcher.shape, letters, routes.encode)
        events, shards = routes.visits(encoded)
        if self.matcher.how in (LISTS, COUNTS):
            # These results include events without matches, which therefore visit the first shard.
            lonely = np.setdiff1d(np.arange(good.num_rows), events)
            events = np.concatenate([events, lonely])
            shards = np.concatenate([shards, np.zeros(len(lonely), dtype=np.int32)])
        return good, events, shards


class _Packing:
    """Collects events for the same shard."""

    def __init__(self, n_shards: int, n_splits: int, partition: int) -> None:
        self._waiting: list[list[Any]] = [[] for _ in range(n_shards)]
        self._n_bytes = [0] * n_shards
        self._most_bytes = min(_PACKED_BYTES, _WAITING_BYTES // n_shards)
        self._n_splits = n_splits
        # Tasks start at different splits; otherwise the first split would get the remainder of every task.
        self._n_packed = partition

    def add(self, batch: Any, events: NDArray[np.int64], shards: NDArray[np.int32]) -> Iterator[Any]:
        """Add events of a batch; return rows of ROUTED for the shards that have enough."""
        order = np.argsort(shards, kind="stable")
        cuts = np.searchsorted(shards[order], np.arange(len(self._waiting) + 1))
        for shard in np.flatnonzero(np.diff(cuts)).tolist():
            chosen = batch.take(pa.array(events[order[cuts[shard] : cuts[shard + 1]]]))
            self._waiting[shard].append(chosen)
            self._n_bytes[shard] += chosen.nbytes
            if self._n_bytes[shard] >= self._most_bytes:
                yield self._packed(shard)

    def rest(self) -> Iterator[Any]:
        """Return rows for the remaining events."""
        yield from (self._packed(shard) for shard, waiting in enumerate(self._waiting) if waiting)

    def _packed(self, shard: int) -> Any:
        waiting = self._waiting[shard]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, waiting[0].schema, options=_COMPRESSED) as stream:
            stream.write_batch(pa.concat_batches(waiting))
        self._waiting[shard], self._n_bytes[shard] = [], 0
        self._n_packed += 1
        place = shard * self._n_splits + self._n_packed % self._n_splits
        columns = [[place], [shard], [sink.getvalue().to_pybytes()]]
        return pa.RecordBatch.from_arrays(
            [pa.array(c, t) for c, t in zip(columns, _ROUTED.types, strict=True)], schema=_ROUTED
        )
