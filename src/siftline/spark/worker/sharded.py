"""The sharded plan: each shard is matched by tasks of its own, and an event goes only where it may match.

    events → route: which shards own two of its attributes as a pair? → (shard, some thousand events packed together)
           → repartitionById: the events of a shard to its tasks      → match against that shard alone → matches
           → for arrays, counts and top-k: united by event

The router knows pivots and their partners alone, and finds the attributes of events with the same parser that encodes
them; it also puts aside what cannot be read, so that shards agree on it. Between the two stages the JVM moves a few
large byte strings instead of a row for each visit: it neither looks into them nor makes an object for an event.
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
from siftline.spark.match import function_of
from siftline.spark.session import tasks_at_a_time
from siftline.spark.sharding.pairs import filters_of
from siftline.spark.worker.events import JSON, Shape, quoted
from siftline.spark.worker.learning import partition
from siftline.spark.worker.live import engine_of_shard, overlay_of
from siftline.spark.worker.matcher import COUNTS, LISTS, PAIRS, TOP, stamp_of
from siftline.spark.worker.reading import are_whole, joined, pieces, readable
from siftline.storage.snapshot import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from siftline.spark.worker.dead_letters import TaskLetters
    from siftline.spark.worker.learning import TaskLearning
    from siftline.spark.worker.live import Overlay, State
    from siftline.spark.worker.matcher import Matcher

# The number of an event in the job, by which its matches in several shards are united.
_NUMBER: Final = "_siftline_event"
ROUTED: Final = "place int, shard int, content binary"
_ROUTED: Final = pa.schema([("place", pa.int32()), ("shard", pa.int32()), ("content", pa.binary())])
# As in `monotonically_increasing_id`: partitions above, positions below.
_POSITION_BITS: Final = 33
# Bytes of events that a router collects, of all shards together, and of one shard at most.
_WAITING_BYTES: Final = 1 << 26
_PACKED_BYTES: Final = 1 << 20
# A third of the bytes go through the JVM and over the network. It takes time from the JVM and gives it to the workers:
# on one machine no difference in all was seen beyond the noise.
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")
# Tasks for each core, so that those that have more to do do not hold up the job.
_TASKS_PER_CORE: Final = 2


class Routes:
    """Which attribute leads to which shards; what changed since the version is one more shard, which all visit."""

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
            # Partners of pivots are looked at too, and of other shapes a value without a meaning makes the event
            # unreadable wherever it is used.
            owners += [[] for _ in range(self._intern_all(directory, changes) - len(owners))]
        self.filters = filters_of(directory, self.domains.names, self.n_shards)
        self.starts = np.cumsum([0, *map(len, owners)], dtype=np.int64)
        self.shards = np.array([number for numbers in owners for number in numbers], dtype=np.int32)

    def _intern_all(self, directory: IndexDirectory, changes: Overlay | None) -> int:
        """Take in all attributes of the index; return how many there are."""
        for name in changes.engine._domains.names if changes is not None else ():
            self.domains.intern(name)
        for number in range(len(directory.shards)):
            for name in read_table(directory.shard_path(number), "domains/names")["text"].to_pylist():
                self.domains.intern(name.decode("utf-8", "surrogatepass"))
        return len(self.domains)

    def encode(self, source: Any) -> EncodedEvents:
        """Find the pivots of events."""
        return EncodedEvents(source, self.domains)

    def visits(self, events: EncodedEvents) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return which event visits which shard."""
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
        directory, changes = overlay_of(path, state)
        known = Routes(directory, shape, changes if is_changed else None)
    _routes[key] = known
    while len(_routes) > 2:
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
        Whether there are changes beside the version.
    matcher : Matcher
        What comes after; says what is wanted.
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
                    yield from packing.add(good.append_column(_NUMBER, numbers), events, shards)
            yield from packing.rest()

    def _routed(self, piece: Any, routes: Routes, letters: TaskLetters) -> tuple[Any, Any, Any]:
        good, encoded = readable(piece, self.matcher.shape, letters, routes.encode)
        events, shards = routes.visits(encoded)
        if self.matcher.how in (LISTS, COUNTS):
            # Events that match nothing are in these results too; so they visit some shard.
            lonely = np.setdiff1d(np.arange(good.num_rows), events)
            events = np.concatenate([events, lonely])
            shards = np.concatenate([shards, np.zeros(len(lonely), dtype=np.int32)])
        return good, events, shards


class _Packing:
    """Events that wait for others that go to the same shard."""

    def __init__(self, n_shards: int, n_splits: int, partition: int) -> None:
        self._waiting: list[list[Any]] = [[] for _ in range(n_shards)]
        self._n_bytes = [0] * n_shards
        self._most_bytes = min(_PACKED_BYTES, _WAITING_BYTES // n_shards)
        self._n_splits = n_splits
        # Tasks begin at different splits, or the first one would get all that is left over.
        self._n_packed = partition

    def add(self, batch: Any, events: NDArray[np.int64], shards: NDArray[np.int32]) -> Iterator[Any]:
        """Take events of a batch; return rows of ROUTED for shards that have enough."""
        order = np.argsort(shards, kind="stable")
        cuts = np.searchsorted(shards[order], np.arange(len(self._waiting) + 1))
        for shard in np.flatnonzero(np.diff(cuts)).tolist():
            chosen = batch.take(pa.array(events[order[cuts[shard] : cuts[shard + 1]]]))
            self._waiting[shard].append(chosen)
            self._n_bytes[shard] += chosen.nbytes
            if self._n_bytes[shard] >= self._most_bytes:
                yield self._packed(shard)

    def rest(self) -> Iterator[Any]:
        """Return rows for everything that waits."""
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


@dataclass(frozen=True)
class ShardMatcher:
    """The second stage: packed events, each lot matched against its shard."""

    path: str
    state: State
    matcher: Matcher

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Match the events of one task."""
        matcher = self.matcher
        load_modules(matcher.operators)
        with matcher.dead_letters.task(matcher.shape, "shard") as letters, matcher.learning.task("shard") as learning:
            yield from joined(self._results(batches, letters, learning))

    def _results(self, batches: Iterable[Any], letters: TaskLetters, learning: TaskLearning) -> Iterator[Any]:
        for batch in batches:
            for shard, content in zip(batch.column(1).to_pylist(), batch.column(2), strict=True):
                engines = [engine_of_shard(self.path, self.state, shard)]
                learning.watch(engines)
                for packed in pa.ipc.open_stream(content.as_buffer()):
                    for piece in pieces(packed, whole=are_whole(engines)):
                        yield self._result(piece, engines, letters)

    def _result(self, piece: Any, engines: Sequence[Any], letters: TaskLetters) -> Any:
        matcher = self.matcher
        numbered = piece.column(piece.num_columns - 1)
        piece = piece.select(range(piece.num_columns - 1))
        good, found = matcher.matched(piece, letters, engines)
        letters.count(0, len(found.events))
        result = matcher.columns(good, found)
        if matcher.how == PAIRS:
            return result
        numbers = numbered.take(pa.array(found.events)) if matcher.how == TOP else numbered
        return result.append_column(_NUMBER, numbers)


def match_sharded(
    rows: Any, directory: IndexDirectory, state: State, matcher: Matcher, schema: Any, *, is_changed: bool
) -> Any:
    """Return the DataFrame of matches, by the plan above."""
    from pyspark.sql import types

    spark = rows.sparkSession
    path, n_shards = directory.reference, len(directory.shards) + is_changed
    n_splits = max(1, -(-_TASKS_PER_CORE * tasks_at_a_time(spark) // n_shards))
    router = Router(path, state, is_changed, matcher, n_splits)
    routed = in_order(rows).mapInArrow(function_of(router), ROUTED).repartitionById(n_shards * n_splits, "place")
    matching = function_of(ShardMatcher(path, state, matcher))
    if matcher.how == PAIRS:
        return routed.mapInArrow(matching, schema)
    numbered = types.StructType([*schema.fields, types.StructField(_NUMBER, types.LongType())])
    return _united(routed.mapInArrow(matching, numbered), matcher, schema)


def in_order(rows: Any) -> Any:
    """Sort the rows of each partition by what is in them.

    Spark computes tasks of the first stage again if a machine is lost, and behind a shuffle rows then come in another
    order. Numbers of events, and which of them go together, must be as before: tasks that are done have used them.
    """
    from pyspark.sql import functions as f

    names = [(quoted(name), kind) for name, kind in rows.dtypes]
    content = [f.to_json(f.struct(name)) if "map<" in kind else f.col(name) for name, kind in names]
    return rows.sortWithinPartitions(f.xxhash64(*content))


def _united(found: Any, matcher: Matcher, schema: Any) -> Any:
    """Put together what several shards have for one event."""
    from pyspark.sql import functions as f

    names = [quoted(name) for name in schema.names]
    n_keys = len(matcher.shape.keys)
    keys = f.first(f.struct(*names[:n_keys])).alias("keys")
    values = found.groupBy(_NUMBER)
    if matcher.how == COUNTS:
        united = values.agg(keys, f.sum(names[-1]).alias("value"))
    elif matcher.how == LISTS:
        united = values.agg(keys, f.flatten(f.collect_list(names[-1])).alias("value"))
    else:
        # Structs are ordered by their first field, then by the second: weight descending, id ascending.
        lightness, id = -f.col(names[-1]), f.col(names[-2])
        ranked = f.array_sort(f.collect_list(f.struct(lightness.alias("lightness"), id.alias("id"))))
        united = values.agg(keys, f.slice(ranked, 1, matcher.k).alias("best"))
        united = united.select("keys", f.inline("best"))
        columns = f.col("id").alias(schema.names[-2]), (-f.col("lightness")).alias(schema.names[-1])
        return united.select(*_keys(schema, n_keys), *columns)
    return united.select(*_keys(schema, n_keys), f.col("value").alias(schema.names[-1]))


def _keys(schema: Any, n_keys: int) -> list[Any]:
    from pyspark.sql import functions as f

    return [f.col("keys").getField(name).alias(name) for name in schema.names[:n_keys]]
