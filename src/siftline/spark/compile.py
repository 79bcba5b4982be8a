"""compile: a table of subscriptions becomes a version of an index, built on the executors and committed by the driver.

    table → parse and check → packed rows → by shard → one engine for each shard, saved → commit
                            ↘ quarantine

Only ids are shuffled as rows, to find those that occur twice. Everything else moves as a few large byte strings.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from siftline.errors import SparkError
from siftline.operators.modules import module_names
from siftline.operators.schedules import check_schedule
from siftline.spark.directory.draft import DROP, KEEP, Draft
from siftline.spark.directory.remote import RemoteDraft
from siftline.spark.directory.retention import RETENTION_PERIOD
from siftline.spark.directory.versions import Shard
from siftline.spark.runtime.fail_above import check_fail_above, is_above
from siftline.spark.runtime.failures import own_errors
from siftline.spark.runtime.paths import is_remote, literal
from siftline.spark.runtime.sessions import is_connect, tasks_at_a_time
from siftline.spark.sharding.parsed import Collector
from siftline.spark.sharding.pivots import Line, Ranks
from siftline.spark.sharding.shards import (
    ATTRIBUTE_COUNTS,
    BUILT,
    CHUNKS,
    PIVOT_COUNTS,
    ROUTED,
    Calls,
    Plan,
    build,
    build_chunks,
    count_attributes,
    count_pivots,
    pivot_names,
    route,
)
from siftline.spark.worker.quarantine import COLUMNS
from siftline.spark.worker.subscriptions import PACKED, checker, form_of, parser, unpack_batches

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from siftline.encoding.statistics import Statistics
    from siftline.spark.directory.versions import IndexDirectory
    from siftline.spark.worker.subscriptions import Form

# A shard has at most this many subscriptions: about 1.5 gigabytes with five predicates each.
_SUBSCRIPTIONS_PER_SHARD: Final = 4_000_000
# Above this number, subscriptions in a few partitions are distributed over all cores before they are parsed.
_REPARTITION_ABOVE: Final = 20_000
_ID_TYPES: Final = {"bigint": pa.int64(), "string": pa.string()}
# How many of the subscriptions that were refused an error shows.
_SHOWN_REFUSALS: Final = 3
_REPEATED: Final = "another subscription has this id; of several, the first by expression, then by weight, is taken"


def compile(
    subscriptions: Any,
    path: str | os.PathLike[str],
    statistics: Statistics | None = None,
    shards: int | str = "auto",
    *,
    language: str | None = None,
    operators: Sequence[str] = (),
    schedule: str | None = None,
    changes: str | None = None,
    fail_above: int | float | None = None,
    keep: timedelta = RETENTION_PERIOD,
) -> IndexDirectory:
    """Compile a table of subscriptions into a new version of an index directory, which becomes current at the end.

    Parameters
    ----------
    subscriptions : DataFrame
        `subscription` (an integer or a string), `expression`, and optionally `weight`; or one row per predicate, in the
        columnar form (see docs/library.md). An expression is text (LANGUAGE.md), an event pattern, or CloudEvents
        filters; the last two begin with a bracket, by which they are recognised. Sigma rules, as YAML, stand in a
        column `sigma` instead, and need `siftline[sigma]` on all machines.
    path : str or path
        The index directory: a path or a `file:` URI that means the same on all machines, or a URI of any other file
        system that Spark knows (`hdfs://`, `s3a://`, ...), which machines then copy versions from.
    statistics : Statistics, optional
        Statistics of events (`profile`), which help to choose the predicates to check first, and the pivots.
    shards : int or "auto"
        How many parts; "auto" makes one for every four million subscriptions.
    language : {'text', 'eventbridge', 'sns', 'cloudevents', 'sigma', 'predicates'}, optional
        The language of the table, if it is not to be detected.
    operators : sequence of str
        Modules, or .py files, that define operators, besides those that packages offer by entry points. Workers load
        them by these names, so they must be installed on all machines.
    schedule : str, optional
        The order in which operators are called; see `Engine`.
    changes : {'keep', 'drop'}, optional
        What to do with changes that `apply` has made since the last compilation: `keep` applies those that are not
        compacted yet on top of the new version, `drop` discards all of them, because the table has everything. Without
        it, such changes are an error.
    fail_above : int or float, optional
        If more subscriptions than this number (an int), or a greater share of all than this (a float), are refused,
        nothing is changed, and SparkError is raised.
    keep : timedelta
        How long a replaced version is kept: jobs that began before still read it.

    Returns
    -------
    IndexDirectory
        The new version; its `quarantined` is the number of refused subscriptions. They are in the quarantine, a Parquet
        directory, with reason and position. Of several valid ones with the same id, the first by expression, then by
        weight, is used, and the others are refused.

    Raises
    ------
    SparkError
        If something else is being compiled into the same directory; if there are changes, and `changes` is not given;
        if too many subscriptions were refused.
    TableError
        If the table lacks a column.
    StorageError
        If something cannot be written.
    """
    check_fail_above(fail_above)
    if changes not in (None, KEEP, DROP):
        raise ValueError(f"changes must be {KEEP!r}, {DROP!r} or None, not {changes!r}")
    if shards != "auto" and (not isinstance(shards, int) or isinstance(shards, bool) or shards < 1):
        raise ValueError(f"shards must be a positive number or 'auto', not {shards!r}")
    form = form_of(subscriptions, language)
    if schedule is not None:
        check_schedule(schedule)
    calls = Calls(module_names(operators), schedule)
    spark = subscriptions.sparkSession
    draft = RemoteDraft(os.fspath(path), spark, keep) if is_remote(path) else Draft(path, keep)
    with draft, own_errors(os.fspath(path)):
        if isinstance(draft, Draft):  # a remote index has no changes, and nothing relies on the type of its ids
            draft.check_ids(form.id_type)
            draft.settle_changes(changes)
        return _Compilation(form, draft, statistics, shards, calls, fail_above).run()


class _Compilation:
    """One run of `compile`."""

    def __init__(
        self,
        form: Form,
        draft: Draft | RemoteDraft,
        statistics: Statistics | None,
        shards: int | str,
        calls: Calls,
        fail_above: int | float | None,
    ) -> None:
        self._form = form
        self._draft = draft
        self._statistics = statistics
        self._shards = shards
        self._calls = calls
        self._fail_above = fail_above

    def run(self) -> IndexDirectory:
        """Compile, and return the committed version."""
        from pyspark import StorageLevel

        table, repeated = self._without_repeated()
        packed = table.mapInArrow(parser(self._form, self._calls.operators), PACKED)
        packed = packed.persist(StorageLevel.DISK_ONLY)  # parsing takes longest, and its result is used several times
        try:
            counts = {row.is_good: row.n for row in packed.groupBy("is_good").sum("n").toDF("is_good", "n").collect()}
            n_bad = self._quarantined(packed.where("not is_good"), counts.get(False, 0), repeated)
            self._check(n_bad, counts.get(True, 0))
            shards = self._built(packed.where("is_good"), counts.get(True, 0))
        finally:
            packed.unpersist()
        return self._draft.commit(
            shards,
            id_type=self._form.id_type,
            quarantined=n_bad,
            statistics=self._statistics,
            **self._calls._asdict(),
        )

    def _without_repeated(self) -> tuple[Any, Any]:
        """Return the table with one valid row for each id, distributed over all cores, and the rows left out."""
        table = self._form.table
        if self._form.is_predicates:
            return table.repartition("subscription"), None  # all rows of a subscription in one partition
        counts = table.groupBy("subscription").count()
        total = counts.selectExpr("coalesce(sum(count), 0) as n", "max(count) as most").first()
        repeated = None
        if total.most is not None and total.most > 1:
            table, repeated = self._with_one_each(table, counts.where("count > 1").select("subscription"))
        n_tasks = tasks_at_a_time(table.sparkSession)
        # Spark Connect does not report the number of partitions.
        if total.n > _REPARTITION_ABOVE and (is_connect(table.sparkSession) or table.rdd.getNumPartitions() < n_tasks):
            table = table.repartition(n_tasks)
        return table, repeated

    def _with_one_each(self, table: Any, ids: Any) -> tuple[Any, Any]:
        """Return the table with one valid subscription of each of these ids, and the other valid ones."""
        from pyspark.sql import Window
        from pyspark.sql.functions import row_number

        several = table.join(ids, "subscription", "left_semi")
        checked = several.mapInArrow(checker(self._form, self._calls.operators), f"{_schema(table)}, is_good boolean")
        order = Window.partitionBy("subscription", "is_good").orderBy("expression", *_weight_of(table))
        placed = checked.withColumn("place", row_number().over(order))
        is_other = "is_good and place > 1"
        once = table.join(ids, "subscription", "left_anti")
        return once.unionByName(placed.where(f"not ({is_other})").select(table.columns)), placed.where(is_other)

    def _built(self, good: Any, n_subscriptions: int) -> list[Shard]:
        """Build all shards on the executors."""
        n_shards = -(-n_subscriptions // _SUBSCRIPTIONS_PER_SHARD) if self._shards == "auto" else int(self._shards)
        ranks, routed = None, good.selectExpr("0 as shard", "binary('') as pivots", "content")
        if not n_subscriptions:
            # An index has at least one shard, here one without subscriptions.
            nothing = Collector(_ID_TYPES[self._form.id_type]).parsed().packed()
            n_shards, routed = 1, good.sparkSession.createDataFrame([(0, bytearray(), bytearray(nothing))], ROUTED)
        elif n_shards > 1:
            ranks, routed = self._routed(good, n_shards)
        rows = self._saved(routed.repartitionById(n_shards, "shard"), ranks)
        return [self._shard(row, ranks) for row in sorted(rows, key=lambda row: int(row.shard))]

    def _saved(self, routed: Any, ranks: Ranks | None) -> list[Any]:
        """Let executors save the shards, into the folder of the draft or as chunks that Spark writes."""
        plan = Plan(self._statistics, ranks, self._calls)
        if isinstance(self._draft, RemoteDraft):
            return self._draft.written(routed.mapInArrow(build_chunks(plan), CHUNKS))
        built: list[Any] = routed.mapInArrow(build(self._draft.shards, plan), BUILT).collect()
        return built

    def _routed(self, good: Any, n_shards: int) -> tuple[Ranks, Any]:
        """Send subscriptions to shards by pivot."""
        counts = good.mapInArrow(count_attributes, ATTRIBUTE_COUNTS).groupBy("attribute").sum("n").collect()
        frequency = self._statistics.frequency if self._statistics is not None else None
        ranks = Ranks({name: n if frequency is None else frequency(name) for name, n in counts})
        loads = good.mapInArrow(count_pivots(ranks), PIVOT_COUNTS).groupBy("pivot").sum("n").collect()
        return ranks, good.mapInArrow(route(ranks, Line(dict(map(tuple, loads)), n_shards)), ROUTED)

    def _shard(self, row: Any, ranks: Ranks | None) -> Shard:
        names, is_always = pivot_names(bytes(row.pivots), ranks)
        path = self._draft.shards / getattr(row, "folder", str(row.shard))
        return Shard(str(row.shard), path, row.subscriptions, row.bytes, tuple(names), is_always, row.pairs)

    def _quarantined(self, bad: Any, n_bad: int, repeated: Any) -> int:
        """Write the refused subscriptions, and return how many there are."""
        from pyspark.sql.functions import lit

        schema = f"subscription {self._form.id_type}, {COLUMNS}"
        rows = bad.mapInArrow(unpack_batches, schema)
        if repeated is not None:
            others = repeated.select("subscription", "expression").withColumn("reason", lit(_REPEATED))
            rows = rows.unionByName(others, allowMissingColumns=True)
        elif not n_bad:
            return 0
        target = self._draft.quarantine_uri
        rows.write.parquet(target)
        return int(bad.sparkSession.read.parquet(literal(target)).count())

    def _check(self, n_bad: int, n_good: int) -> None:
        """Raise SparkError if too many were refused, with the reasons of some."""
        if not is_above(self._fail_above, n_bad, n_bad + n_good):
            return
        some = (
            self._form.table.sparkSession.read.parquet(literal(self._draft.quarantine_uri))
            .limit(_SHOWN_REFUSALS)
            .collect()
        )
        shown = "; ".join(f"{row.subscription}: {row.reason}" for row in some)
        raise SparkError(
            f"{n_bad:,} of {n_bad + n_good:,} subscriptions were refused, more than fail_above={self._fail_above} "
            f"allows; nothing was changed; some of them: {shown}"
        )


def _schema(table: Any) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in table.dtypes)


def _weight_of(table: Any) -> list[str]:
    return ["weight"] if "weight" in table.columns else []
