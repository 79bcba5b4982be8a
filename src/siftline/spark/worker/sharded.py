"""The sharded plan: each shard is matched by its own tasks, and an event only visits shards where it may match.

events → route (`routing.py`): the shards that know a pair of its attributes → (shard, thousands of events packed)
→ repartitionById: the events of a shard to its tasks                 → match with that shard alone → matches
→ for arrays, counts and top-k: joined by event
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from siftline.operators.modules import load_modules
from siftline.spark.runtime.sessions import tasks_at_a_time
from siftline.spark.runtime.tasks import function_of
from siftline.spark.worker.events import quoted
from siftline.spark.worker.live import engine_of_shard
from siftline.spark.worker.matcher import COUNTS, LISTS, PAIRS, TOP
from siftline.spark.worker.reading import are_whole, joined, pieces
from siftline.spark.worker.routing import EVENT_NUMBER, ROUTED, Router

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from siftline.spark.directory.state import State
    from siftline.spark.directory.versions import IndexDirectory
    from siftline.spark.worker.dead_letters import TaskLetters
    from siftline.spark.worker.learning import TaskLearning
    from siftline.spark.worker.matcher import Matcher

# Several tasks for each core, so that a task with more work does not delay the job.
_TASKS_PER_CORE: Final = 2


@dataclass(frozen=True)
class ShardMatcher:
    """The second stage: packed events, each matched with its shard."""

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
        return result.append_column(EVENT_NUMBER, numbers)


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
    numbered = types.StructType([*schema.fields, types.StructField(EVENT_NUMBER, types.LongType())])
    return _united(routed.mapInArrow(matching, numbered), matcher, schema)


def in_order(rows: Any) -> Any:
    """Sort the rows of each partition by their content.

    If a machine is lost, Spark runs tasks of the first stage again, and after a shuffle their rows come in another
    order. The numbers of events, and which of them are packed together, must stay the same, because finished tasks of
    the second stage have used them.
    """
    from pyspark.sql import functions as f

    names = [(quoted(name), kind) for name, kind in rows.dtypes]
    content = [f.to_json(f.struct(name)) if "map<" in kind else f.col(name) for name, kind in names]
    return rows.sortWithinPartitions(f.xxhash64(*content))


def _united(found: Any, matcher: Matcher, schema: Any) -> Any:
    """Join the matches that several shards have for one event."""
    from pyspark.sql import functions as f

    names = [quoted(name) for name in schema.names]
    n_keys = len(matcher.shape.keys)
    keys = f.first(f.struct(*names[:n_keys])).alias("keys")
    values = found.groupBy(EVENT_NUMBER)
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
