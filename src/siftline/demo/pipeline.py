"""Runs the demo: generates products and wish lists, profiles, compiles, matches and streams, and writes the report."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow.parquet as pq

import siftline
from siftline.demo.catalogue import draw_shop
from siftline.demo.figures import Figures
from siftline.demo.report import write_report
from siftline.demo.samples import explained, match_samples
from siftline.demo.stages import Stages
from siftline.demo.streaming import stream_with_changes
from siftline.errors import SiftlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from siftline.demo.catalogue import Shop

REPORT, FIGURES, DATA = "report.html", "figures.json", "data"
# A file that marks a data folder that the next run may delete.
_MARK: Final = "made-by-siftline-demo"
# The size of the sample of events that is profiled: it only has to tell common attributes from rare ones.
_PROFILED: Final = 50_000
_ROWS_IN_GROUP: Final = 10_000
_N_TOP: Final = 8
# Spark logs many warnings that do not matter here.
_LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
_WARM_UP: Final = "from siftline.spark.worker.daemon import warm_up; warm_up()"


class Sizes(NamedTuple):
    """The sizes of the generated data."""

    subscriptions: int = 200_000
    events: int = 200_000
    streamed: int = 20_000


QUICK: Final = Sizes(20_000, 20_000, 2_000)


def run_demo(
    output: Path,
    sizes: Sizes,
    tell: Callable[[str], None],
    *,
    seed: int = 1,
    cores: int | None = None,
    memory: str = "2g",
) -> Figures:
    """Run all stages, write the report into a folder, and return its figures.

    An active Spark session is used; otherwise one is started, and stopped at the end in any case.
    """
    figures = Figures(sizes.subscriptions, sizes.events, sizes.streamed, seed)
    stages = Stages(tell)
    data = _new_folder(output / DATA)
    with _kernels_in_background() as wait_for_kernels:
        n_drawn = sizes.events + sizes.streamed
        with stages.stage("draw", f"{sizes.subscriptions:,} wish lists, {n_drawn:,} products", n_drawn, "products"):
            shop = _drawn(data, sizes, seed)
        with _spark(stages, data, cores, memory, wait_for_kernels) as spark:
            figures.machine = _machine(spark)
            _Demo(spark, data, sizes, shop, figures, stages).run()
    figures.stages = stages.done
    figures.save(output / FIGURES)
    write_report(figures, output / REPORT)
    return figures


class _Demo:
    """The part that runs on Spark."""

    def __init__(self, spark: Any, data: Path, sizes: Sizes, shop: Shop, figures: Figures, stages: Stages) -> None:
        self._spark = spark
        self._data = data
        self._sizes = sizes
        self._shop = shop
        self._figures = figures
        self._stages = stages

    def run(self) -> None:
        """Profile, compile, match, stream, explain."""
        statistics = self._profile()
        self._compile(statistics)
        pairs = self._match()
        self._tally(*pairs)
        samples = explained(self._index, self._shop, match_samples(self._shop, *pairs))
        self._figures.samples = [*samples, *explained(self._index, self._shop, self._stream())]

    @property
    def _index(self) -> str:
        return str(self._data / "index")

    def _profile(self) -> siftline.Statistics:
        from siftline.spark import profile

        share = min(1.0, _PROFILED / self._sizes.events)
        with self._stages.stage("profile", "which attributes products have, of a sample", 0, "events") as stage:
            events = self._spark.read.parquet(str(self._data / "events.parquet"))
            statistics = profile(events if share == 1 else events.sample(share, seed=0))
            stage.amount = statistics.n_events
        shares = {name: statistics.frequency(name) for name in statistics.counts}
        self._figures.shares = sorted(shares.items(), key=lambda each: (-each[1], each[0]))
        return statistics

    def _compile(self, statistics: siftline.Statistics) -> None:
        from siftline.spark import compile

        n = self._sizes.subscriptions
        with self._stages.stage("compile", f"{n:,} subscriptions, from text to an index", n, "subscriptions"):
            table = self._spark.read.parquet(str(self._data / "subscriptions.parquet"))
            index = compile(table, self._index, statistics)
        self._figures.index_bytes = sum(shard.bytes for shard in index.shards)
        self._figures.refused = index.quarantined

    def _match(self) -> tuple[Any, Any]:
        """Return the events and subscriptions of all matches."""
        from siftline.spark import match

        n_events, target = self._sizes.events, str(self._data / "matches")
        with self._stages.stage("match", f"{n_events:,} events, Parquet to Parquet", n_events, "events"):
            events = self._spark.read.parquet(str(self._data / "events.parquet"))
            match(events, self._index).write.parquet(target)
        return read_pairs(target)

    def _tally(self, events: Any, subscriptions: Any) -> None:
        figures, n = self._figures, self._sizes.subscriptions
        with self._stages.stage("tally", f"{len(events):,} matches", len(events), "matches"):
            per_subscription = np.bincount(subscriptions, minlength=n)
            figures.matches = len(events)
            figures.events_told = int((np.bincount(events) > 0).sum())
            figures.subscriptions_told = int((per_subscription > 0).sum())
            figures.planted = int((self._shop.planted[events] == subscriptions).sum())
            figures.histogram = histogram(per_subscription)
            top = np.argsort(-per_subscription, kind="stable")[:_N_TOP].tolist()
            texts = self._shop.subscriptions["expression"]
            figures.top = [(id, texts[id].as_py(), int(per_subscription[id])) for id in top]
        self._stages.tell(
            f"       {figures.matches / figures.n_events:.1f} matches an event; "
            f"{figures.subscriptions_told:,} subscriptions have some; "
            f"{figures.planted:,} of {figures.n_events:,} planted matches were found"
        )

    def _stream(self) -> list[Any]:
        n = self._sizes.streamed
        with self._stages.stage("stream", f"{n:,} events, while subscriptions change", n, "events"):
            result = stream_with_changes(self._spark, self._data, self._index, self._shop, self._sizes.events)
        figures = self._figures
        figures.batches, figures.kinds, figures.compact_seconds = result.batches, result.kinds, result.compact_seconds
        followed = ", ".join(f"{kind.followed:,} of {kind.changes:,} {kind.name}" for kind in result.kinds)
        self._stages.tell(f"        changes that the next micro-batch followed: {followed}")
        return result.samples


def histogram(counts: Any) -> list[tuple[int, int, int]]:
    """Return how many subscriptions have 0, 1, 2 to 3, 4 to 7, ... matches, up to the largest number.

    >>> import numpy as np
    >>> histogram(np.array([0, 0, 1, 3, 2, 9]))
    [(0, 0, 2), (1, 1, 1), (2, 3, 2), (4, 7, 0), (8, 15, 1)]
    """
    classes = np.frexp(counts)[1]  # 0 for 0, 1 for 1, 2 for 2 to 3, ...
    numbers = np.bincount(classes).tolist()
    return [(2**each // 2, max(2**each - 1, 0), number) for each, number in enumerate(numbers)]


def read_pairs(path: str) -> tuple[Any, Any]:
    """Return the columns of a folder of matches."""
    table = pq.read_table(path)
    return table["id"].to_numpy(), table["subscription"].to_numpy()


# files, kernels and Spark


def _new_folder(path: Path) -> Path:
    """Return an empty folder, after deleting that of an earlier run."""
    if path.exists():
        if not (path / _MARK).exists():
            raise SiftlineError(f"{path} exists and is not from a demo: choose another --output")
        shutil.rmtree(path)
    path.mkdir(parents=True)
    (path / _MARK).touch()
    return path


def _drawn(data: Path, sizes: Sizes, seed: int) -> Shop:
    """Generate the data, and write the files of the batch jobs."""
    shop = draw_shop(sizes.subscriptions, sizes.events + sizes.streamed, seed)
    pq.write_table(shop.subscriptions, data / "subscriptions.parquet", row_group_size=_ROWS_IN_GROUP)
    pq.write_table(shop.events.slice(0, sizes.events), data / "events.parquet", row_group_size=_ROWS_IN_GROUP)
    return shop


@contextmanager
def _kernels_in_background() -> Iterator[Callable[[], int]]:
    """Compile the kernels in a background process; later runs on the same machine load them from a cache."""
    process = subprocess.Popen([sys.executable, "-c", _WARM_UP], stderr=subprocess.DEVNULL)
    try:
        yield process.wait
    finally:
        process.kill()
        process.wait()


@contextmanager
def _spark(
    stages: Stages, data: Path, cores: int | None, memory: str, wait_for_kernels: Callable[[], int]
) -> Iterator[Any]:
    """Yield a session, and stop it afterwards unless it was active before."""
    from pyspark.sql import SparkSession

    from siftline.spark import session

    is_ours = SparkSession.getActiveSession() is None
    if is_ours:
        _log_errors_only(data)
    spark = None
    try:
        with stages.stage("start", "Spark; the kernels, which are compiled if they are new to this machine"):
            spark = session(cores, memory=memory, name="siftline demo", short_lived=True)
            wait_for_kernels()
        yield spark
    finally:
        if is_ours and spark is not None:
            _stop(spark)


def _log_errors_only(data: Path) -> None:
    """Make JVMs that are started from now on log errors only."""
    file = data / "log4j2.properties"
    file.write_text(_LOGGING, encoding="utf-8")
    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-Dlog4j2.configurationFile={file.absolute().as_uri()} {given}".rstrip()


def _stop(spark: Any) -> None:
    """Stop Spark and its JVM, which would otherwise only end with this process."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _machine(spark: Any) -> dict[str, str]:
    java = spark.sparkContext._jvm.System.getProperty("java.runtime.version")
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "cores": f"{spark.sparkContext.defaultParallelism} of {os.cpu_count()}",
        "system": f"{platform.system()} {platform.machine()}",
        "Siftline": siftline.__version__,
        "Spark": spark.version,
        "Java": java,
        "Python": platform.python_version(),
    }
