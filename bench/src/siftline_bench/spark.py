"""The figures of the pipeline on Spark, with their targets: `siftline bench spark`.

Each group of figures is a function of a `Stage`, and can be run alone: `siftline bench spark --only sharded`. Processor
seconds are those of all processes together (this one, the JVM, the workers), and rates by core are divided by them.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline_bench.readings import Reading
from siftline_bench.results import circumstances
from siftline_bench.spark_data import Data
from siftline_bench.spark_processes import JAVA, PYTHON, Spent, mapped_bytes, resident_bytes, spent
from siftline_bench.targets import Target, Verdict
from siftline_bench.workloads import cached, make_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from siftline.spark import IndexDirectory
    from siftline_bench.results import Row

    Say = Callable[[str], None]

SUBJECT: Final = "spark"
_CORES: Final = 2
_N_SHARDS: Final = 8
# Events that statistics are made of.
_PROFILED: Final = 10_000
# Events of a micro-batch.
_MICRO_BATCH: Final = 100

# What the figures are called.
OF_SPARK, OF_DUCKDB = "x best Spark plan, by core", "x best DuckDB plan, by core"
BY_CORE: Final = "events/s and core"
IN_FILES: Final = ", from file to file"
_COMPILE, _OPEN = "s to compile texts", "ms to open in a warm worker"
_SHARDED, _LARGEST = "x as much processor time, sharded", "largest shard / mean"
_VISITS, _BUSIEST = "shards that an event visits", "most visited shard / mean"
_FLOOR, _LIVE = "x bare micro-batch", "micro-batches until a change is live"
COST: Final = "us an event"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured.

    Attributes
    ----------
    n_subscriptions : int
        Of all groups but two.
    n_compared, n_baseline, n_slow, n_compared_copies : int
        Subscriptions beside the baselines; events for those that are quick, and for the slow ones; how often the dense
        events are matched by us.
    n_sparse, n_dense, n_products : int
        Events that are drawn.
    n_copies, n_dense_copies, n_product_copies : int
        How often they are matched, under new ids.
    n_batches, n_changes : int
        Micro-batches of a query, and changes while one runs.
    growth : tuple of int
        Numbers of subscriptions to see how the cost grows.
    n_passes : int
        After a first one, which does not count.
    memory : str
        Of the JVM.
    """

    n_subscriptions: int = 1_000_000
    n_compared: int = 100_000
    n_baseline: int = 10_000
    n_slow: int = 200
    n_compared_copies: int = 10
    n_sparse: int = 100_000
    n_copies: int = 10
    n_dense: int = 20_000
    n_dense_copies: int = 5
    n_products: int = 100_000
    n_product_copies: int = 4
    n_batches: int = 25
    n_changes: int = 10
    growth: tuple[int, ...] = (10_000, 100_000, 1_000_000, 2_000_000)
    n_passes: int = 3
    memory: str = "3g"


QUICK: Final = Sizes(
    n_subscriptions=2_000,
    n_compared=500,
    n_baseline=200,
    n_slow=50,
    n_compared_copies=1,
    n_sparse=500,
    n_copies=2,
    n_dense=300,
    n_dense_copies=1,
    n_products=500,
    n_product_copies=1,
    n_batches=8,
    n_changes=2,
    growth=(1_000, 2_000),
    n_passes=1,
    memory="1g",
)

TARGETS: Final = (
    Target("dense", SUBJECT, OF_SPARK, at_least=100),
    Target("dense", SUBJECT, OF_DUCKDB, at_least=25),
    *(Target("sparse", SUBJECT, BY_CORE + how, at_least=100_000) for how in ("", IN_FILES)),
    *(Target("dense", SUBJECT, BY_CORE + how, at_least=5_000) for how in ("", IN_FILES)),
    Target("sparse", SUBJECT, _COMPILE, at_most=90),
    Target("sparse", SUBJECT, _OPEN, at_most=50),
    Target("products", SUBJECT, _SHARDED, at_most=3),
    Target("products", SUBJECT, _LARGEST, at_most=1.5),
    Target("sparse", SUBJECT, _FLOOR, at_most=1.3),
    Target("sparse", SUBJECT, _LIVE, at_most=1),
)


class Figure(NamedTuple):
    """Something that was measured on a workload; `head` says what of."""

    head: Row
    reading: Reading

    @property
    def row(self) -> Row:
        """The figure as a result row."""
        reading = self.reading
        figures = {"mode": reading.what, "unit": "", "is_rate": reading.is_rate}
        figures |= {"passes": list(reading.samples), "median": reading.value}
        return {**self.head, "index": SUBJECT, "options": {}, "status": "ok", **figures, **circumstances()}


@dataclass
class Stage:
    """A session, a folder for files, and the workloads in it; what several groups need is made once."""

    sizes: Sizes
    seed: int
    cache: Path | None
    folder: Path
    say: Say
    _data: dict[Any, Data] = field(default_factory=dict)
    _compiled: dict[Any, Spent] = field(default_factory=dict)

    @cached_property
    def spark(self) -> Any:
        """The session; one that runs already is taken as it is."""
        return self._session(_CORES)

    def _session(self, n_cores: int) -> Any:
        from siftline.spark import session

        settings = {"spark.local.dir": self.folder / "spark", "spark.sql.warehouse.dir": self.folder / "warehouse"}
        found = session(n_cores, memory=self.sizes.memory, settings=settings)
        found.sparkContext.setLogLevel("ERROR")
        return found

    def restarted(self, n_cores: int) -> None:
        """Stop the session and start another one."""
        self.spark.stop()
        self.spark = self._session(n_cores)

    def data(self, name: str, n_copies: int, **changes: Any) -> Data:
        """Return a workload, drawn and ready to be written."""
        parameters = make_parameters(name, **changes)
        key = name, parameters, n_copies
        if key not in self._data:
            self.say(f"drawing {name}, {parameters.n_subscriptions:,} subscriptions")
            folder = self.folder / f"{name}-{len(self._data)}"
            self._data[key] = Data(cached(name, parameters, self.seed, self.cache), folder, n_copies, self.say)
        return self._data[key]

    def sparse(self) -> Data:
        """Return the workload with few matches."""
        sizes = self.sizes
        return self.data("sparse", sizes.n_copies, n_subscriptions=sizes.n_subscriptions, n_events=sizes.n_sparse)

    def compiled(self, data: Data, shards: int = 1, *, is_text: bool = False, statistics: Any = None) -> Spent:
        """Compile the subscriptions of a workload; the result is an index directory."""
        from siftline.spark import compile

        key = str(data.folder), shards
        if key not in self._compiled:
            table = self.spark.read.parquet(data.subscriptions if is_text else data.predicates)
            self.say(f"{data.workload.name}: compiling into {shards} shards")
            target = data.folder / f"index-{shards}"
            self._compiled[key] = spent(lambda: compile(table, target, statistics, shards))
        return self._compiled[key]

    def matched(self, data: Data, index: IndexDirectory, **options: Any) -> list[Spent]:
        """Match all events, from Parquet to Parquet, some times; ids are checked."""
        from siftline.spark import match

        events, path = self.spark.read.parquet(data.events), str(index.path)
        self.say(f"{data.workload.name}: matching {data.n_events:,} events {options or ''}")
        return self._passes(data, lambda target: match(events, path, **options).write.parquet(target))

    def matched_files(self, data: Data, index: IndexDirectory) -> list[Spent]:
        """Do the same with workers that read and write files themselves."""
        from siftline.spark import match_files

        events, path = data.events, str(index.path)  # the files are written before the time begins
        _ = self.spark
        self.say(f"{data.workload.name}: matching {data.n_events:,} events from file to file")
        return self._passes(data, lambda target: match_files(events, path, target))

    def _passes(self, data: Data, work: Callable[[str], Any]) -> list[Spent]:
        """Do some work again and again, with a folder for the matches; the first time does not count."""
        target, found = str(data.folder / "matches"), []
        for number in range(1 + self.sizes.n_passes):
            shutil.rmtree(target, ignore_errors=True)
            found.append(spent(lambda: work(target)))
            if not number:
                data.check("match", target)
        return found[1:]

    def figure(self, data: Data, reading: Reading, **more: Any) -> Figure:
        """Return something measured, with what is needed to believe it."""
        return Figure({**data.workload.identity, "n_rows": data.n_events, **more}, reading)


# the groups of figures


def baselines(stage: Stage) -> Iterator[Figure]:
    """Compare with what people write today, by processor time for an event."""
    from siftline_bench import spark_baselines as rivals

    sizes = stage.sizes
    n = rivals.N_PREDICATES
    changes = {"n_subscriptions": sizes.n_compared, "least_predicates": n, "most_predicates": n}
    data = stage.data("dense", sizes.n_compared_copies, n_events=sizes.n_dense, **changes)
    tables = rivals.Tables(data)
    costs: dict[str, float] = {}
    rows = rivals.spark_baselines(stage.spark, tables, sizes.n_baseline, sizes.n_slow)
    for each in [*rows, *rivals.duckdb_baselines(tables, sizes.n_baseline, sizes.n_slow, _CORES)]:
        stage.say(f"{each.name}: {each.n_events:,} events")
        passes = rivals.measured(each, tables, data, sizes.n_passes)
        reading = Reading(f"{each.name}: {COST}", [1e6 * s.processor_seconds / each.n_events for s in passes])
        costs[each.name] = reading.value
        yield stage.figure(data, reading, n_events=each.n_events)
    passes = stage.matched(data, stage.compiled(data).result)
    ours = Reading(f"siftline: {COST}", [1e6 * s.processor_seconds / data.n_events for s in passes])
    yield stage.figure(data, ours)
    for what, kind in ((OF_SPARK, "Spark"), (OF_DUCKDB, "DuckDB")):
        best = min(cost for name, cost in costs.items() if name.startswith(kind))
        yield stage.figure(data, Reading(what, [best / cost for cost in ours.samples], is_rate=True))


def matching(stage: Stage) -> Iterator[Figure]:
    """Measure events a second and core, from Parquet to Parquet, with few matches and with many."""
    sizes = stage.sizes
    dense = {"n_subscriptions": sizes.n_subscriptions, "n_events": sizes.n_dense}
    for data in (stage.sparse(), stage.data("dense", sizes.n_dense_copies, **dense)):
        index = stage.compiled(data, is_text=data.workload.name == "sparse").result
        for how, passes in (("", stage.matched(data, index)), (IN_FILES, stage.matched_files(data, index))):
            n = data.n_events
            yield stage.figure(data, Reading(BY_CORE + how, [n / s.processor_seconds for s in passes], is_rate=True))
            yield stage.figure(data, Reading(f"events/s{how}", [n / s.seconds for s in passes], is_rate=True))
            for kind in (JAVA, PYTHON):
                yield stage.figure(
                    data, Reading(f"{COST} in {kind}{how}", [1e6 * s.processor[kind] / n for s in passes])
                )


def compiling(stage: Stage) -> Iterator[Figure]:
    """Measure compiling from texts, opening in workers that run, and how they share memory."""
    data = stage.sparse()
    made = stage.compiled(data, is_text=True)
    directory: IndexDirectory = made.result
    yield stage.figure(data, Reading(_COMPILE, [made.seconds]))
    yield stage.figure(data, Reading("s of processor time to compile", [made.processor_seconds]))
    n = data.workload.n_subscriptions
    yield stage.figure(data, Reading("bytes a subscription", [sum(s.bytes for s in directory.shards) / n]))
    rows = _asked(stage, data, str(directory.shard_path(0)))
    yield stage.figure(data, Reading(_OPEN, [ms for row in rows for ms in row.opened_ms]))
    most = max(rows, key=lambda row: row.mapped)
    yield stage.figure(data, Reading("workers with the index open", [len({row.worker for row in rows})]))
    yield stage.figure(data, Reading("MB of the index resident in a worker", [most.mapped / 2**20]))
    yield stage.figure(data, Reading("MB of it, shared pages divided", [most.mapped_share / 2**20]))
    yield stage.figure(data, Reading("MB resident in a worker", [max(row.resident for row in rows) / 2**20]))
    yield stage.figure(data, Reading("MB of it, shared pages divided, in all", [max(r.share for r in rows) / 2**20]))


_ASKED: Final = (
    "worker bigint, opened_ms array<double>, mapped bigint, mapped_share bigint, resident bigint, share bigint"
)


def _asked(stage: Stage, data: Data, shard: str) -> list[Any]:
    """Let workers match, open the index again a few times, wait for each other, and tell what they have in memory."""
    from pyspark.sql.functions import spark_partition_id

    n_opened = 2 + stage.sizes.n_passes

    def ask(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        import pyarrow as pa

        from siftline.spark.runtime.checked import open_checked
        from siftline.spark.worker.loading import open_shards

        texts = [batch.column(1) for batch in batches]
        engine, times = open_shards((shard,))[0], []
        for text in texts:
            engine.match_batch(text, threads=1)
        for _ in range(n_opened):
            begin = time.perf_counter()
            open_checked(shard)
            times.append(1e3 * (time.perf_counter() - begin))
        time.sleep(2)  # the other one is there too, and keeps its pages
        numbers = [[each] for each in (*mapped_bytes(shard), *resident_bytes())]
        columns = [[os.getpid()], [times], *numbers]
        names = ["worker", "opened_ms", "mapped", "mapped_share", "resident", "share"]
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=names)

    events = stage.spark.read.parquet(data.events).limit(20_000).repartition(_CORES, spark_partition_id())
    return list(events.repartition(_CORES).mapInArrow(ask, _ASKED).collect())


def sharding(stage: Stage) -> Iterator[Figure]:
    """Compare the sharded plan with the replicated one, both with the statistics of some events."""
    from siftline.spark import profile

    sizes = stage.sizes
    changes = {"n_subscriptions": sizes.n_subscriptions, "n_events": sizes.n_products}
    data = stage.data("products", sizes.n_product_copies, **changes)
    statistics = profile(stage.spark.read.parquet(data.events).limit(_PROFILED))
    whole, parts = (stage.compiled(data, shards, statistics=statistics).result for shards in (1, _N_SHARDS))
    replicated = stage.matched(data, whole, plan="replicated")
    sharded = stage.matched(data, parts, plan="sharded")
    for plan, passes in (("replicated", replicated), ("sharded", sharded)):
        times = [1e6 * each.processor_seconds / data.n_events for each in passes]
        yield stage.figure(data, Reading(f"{COST}, {plan}", times))
    ratios = [a.processor_seconds / b.processor_seconds for a, b in zip(sharded, replicated, strict=True)]
    yield stage.figure(data, Reading(_SHARDED, ratios))
    counts = [shard.subscriptions for shard in parts.shards]
    yield stage.figure(data, Reading(_LARGEST, [max(counts) * len(counts) / sum(counts)]))
    visits = _visits(data, parts)
    yield stage.figure(data, Reading(_VISITS, [sum(visits) / data.workload.n_events]))
    yield stage.figure(data, Reading(_BUSIEST, [max(visits) * len(visits) / sum(visits)]))


def _visits(data: Data, directory: IndexDirectory) -> list[int]:
    """Return how many events visit each shard."""
    import numpy as np
    import pyarrow.parquet as pq

    from siftline.encoding.arrow_events import ArrowSource
    from siftline.spark.worker.events import JSON, Shape
    from siftline.spark.worker.routing import Routes

    routes = Routes(directory, Shape(JSON, ("id",), ("event",)))
    texts = pq.read_table(data.events)["event"].slice(0, data.workload.n_events).combine_chunks()
    _, shards = routes.visits(routes.encode(ArrowSource(texts)))
    return [int(n) for n in np.bincount(shards, minlength=len(directory.shards))]


def streaming(stage: Stage) -> Iterator[Figure]:
    """Compare micro-batches with those that do nothing, and see when changes are live."""
    from siftline_bench.spark_data import event_texts
    from siftline_bench.spark_streaming import BARE, OURS, PYTHON, Streams

    data = stage.sparse()
    index = stage.compiled(data, is_text=True).result
    texts = event_texts(data.workload.values, data.workload.n_events).slice(0, 10_000).to_pylist()
    streams = Streams(stage.spark, str(index.path), data.folder / "streams", texts, _MICRO_BATCH)
    stage.say("micro-batches")
    found = {
        kind: Reading(f"ms a micro-batch, {kind}", ms)
        for kind, ms in streams.times_ms(stage.sizes.n_batches, stage.sizes.n_passes).items()
    }
    for reading in found.values():
        yield stage.figure(data, reading)
    ours = found[OURS].value
    yield stage.figure(data, Reading(_FLOOR, [ours / found[BARE].value]))
    yield stage.figure(data, Reading("x one through a Python worker", [ours / found[PYTHON].value]))
    stage.say("changes while a stream runs")
    yield stage.figure(data, Reading(_LIVE, list(streams.batches_until_live(stage.sizes.n_changes))))


def scaling(stage: Stage) -> Iterator[Figure]:
    """Measure events a second with one core and with two, each in a session of its own."""
    data = stage.sparse()
    index = stage.compiled(data, is_text=True).result
    rates = []
    for n_cores in (1, _CORES):
        stage.restarted(n_cores)
        passes = stage.matched(data, index)
        rates.append(Reading(f"events/s, {n_cores} cores", [data.n_events / s.seconds for s in passes], is_rate=True))
        yield stage.figure(data, rates[-1])
    yield stage.figure(data, Reading("x one core, with two", [rates[1].value / rates[0].value], is_rate=True))


def growth(stage: Stage) -> Iterator[Figure]:
    """Measure the cost of an event against the number of subscriptions."""
    sizes = stage.sizes
    for name, n_events, n_copies in (("sparse", sizes.n_sparse, 5), ("dense", sizes.n_dense, 2)):
        for n in sizes.growth:
            data = stage.data(name, n_copies, n_subscriptions=n, n_events=n_events)
            made = stage.compiled(data)
            passes = stage.matched(data, made.result)
            times = [1e6 * each.processor_seconds / data.n_events for each in passes]
            yield stage.figure(data, Reading(f"{COST}, {n:,} subscriptions", times), n_subscriptions=n)
            n_bytes = sum(shard.bytes for shard in made.result.shards)
            yield stage.figure(data, Reading(f"bytes each, {n:,} subscriptions", [n_bytes / n]), n_subscriptions=n)


GROUPS: Final[dict[str, Callable[[Stage], Iterator[Figure]]]] = {
    "compile": compiling,
    "match": matching,
    "sharded": sharding,
    "baselines": baselines,
    "streaming": streaming,
    "growth": growth,
    "scale-up": scaling,
}


def measure(
    groups: Sequence[str], sizes: Sizes, seed: int, cache: Path | None, say: Say, folder: Path | None = None
) -> Iterator[Figure]:
    """Measure group after group."""
    from pyspark.sql import SparkSession

    is_ours = SparkSession.getActiveSession() is None
    with tempfile.TemporaryDirectory(dir=folder, prefix="siftline-bench-") as place:
        stage = Stage(sizes, seed, cache, Path(place), say)
        try:
            for name in (name for name in GROUPS if name in groups):
                say(f"measuring {name}")
                yield from GROUPS[name](stage)
        finally:
            if is_ours and "spark" in vars(stage):
                stage.spark.stop()


def verdicts(figures: Sequence[Figure]) -> list[Verdict]:
    """Compare what was measured with the targets; figures without a target are shown too."""
    wanted = {(target.workload, target.what): target for target in TARGETS}
    found = []
    for head, reading in figures:
        name = str(head["workload"])
        found.append(Verdict(wanted.get((name, reading.what), Target(name, SUBJECT, reading.what)), reading.value))
    return found
