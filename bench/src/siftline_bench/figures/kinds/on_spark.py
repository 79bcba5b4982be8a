"""Building and matching by the pipeline on Spark: `sift` at the papers' sizes that do not fit into one engine.

    drawn in chunks → predicates.parquet → compile → index directory → match(how="counts"), all events in one job
                                         ↘ fast-scan of each chunk, some events → the ids that the pipeline must give

The columns are those of one engine, so that both are lines of one figure. Here they mean:

index_s, build_s  wall seconds of `compile` on all cores, from rows of predicates in Parquet to files to be mapped; of
                  one engine, `index_s` begins with encoded clauses in memory, and `build_s` is nearer to this
index_bytes       the files of the index; they are mapped, and need not be in memory together
match_us          wall time of a job, times cores, by events: what an event takes of the machine, not how long it waits
passes            the same for each pass, behind one that does not count
job_s             what the job takes for one event, nearly all of it Spark: a part of each pass

As with one engine, ids are found in memory and thrown away, here by counting them (how="counts"). Other than there, the
time has in it reading Parquet, parsing JSON, sending events to shards, and Spark; and events are matched in batches.
Spark's part would be most of it with the few hundred events of one engine: figures ask for some ten thousand here.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.engine import Engine
from siftline_bench.checks import Found, check_same
from siftline_bench.errors import WrongIdsError
from siftline_bench.measure import Passes
from siftline_bench.runner import REFERENCE, Choice
from siftline_bench.spark_data import event_texts
from siftline_bench.spark_processes import Spent, spent
from siftline_bench.workloads import Drawing, make_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from siftline.spark import IndexDirectory
    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row

# What the pipeline compiles.
_INDEX: Final = Choice("sift")
# Of the JVM: all that is large is in mapped files and in Python workers.
_JVM_MEMORY: Final = "3g"
# Subscriptions of a shard, half of what `compile` would choose: as many workers as there are cores build one each, with
# 1.2 gigabytes a million. And those of a task that parses, which holds all of its rows.
_PER_SHARD: Final = 2_000_000
_PER_TASK: Final = 500_000
# What the disk holds at most, for each subscription. `be-gen` took 800 bytes and `many-attributes` 910, of which 500
# are the index, and the others drawn rows, two shuffles, and parsed rows.
_DISK_BYTES: Final = 1_000
# Events whose ids are checked; and files of events, so that there are tasks for all cores.
_N_CHECKED: Final = 20
_N_FILES: Final = 8
# Rows by which compiling and matching are tried before they are measured.
_FIRST_ROWS: Final = 64


class Checked(NamedTuple):
    """Some events by number, and the ids that they must get."""

    numbers: list[int]
    ids: Found


@dataclass
class Ground:
    """A workload on disk, a session, and what the ids of some events are.

    Attributes
    ----------
    folder : Path
        Has the events, indexes, and files of Spark; it goes when the ground is closed.
    drawn : Spent
        The path of the workload, in the folder or in a cache.
    checked : Spent
        `Checked`.
    """

    spark: Any
    folder: Path
    n_subscriptions: int
    n_events: int
    drawn: Spent
    checked: Spent

    @property
    def cores(self) -> int:
        """How many tasks run at a time."""
        return int(self.spark.sparkContext.defaultParallelism)

    @property
    def predicates(self) -> Any:
        """The subscriptions, a row for each predicate."""
        return self.spark.read.parquet(str(_predicates(self.drawn.result)))

    @property
    def events(self) -> Any:
        """All events as JSON texts, with their numbers."""
        return self.spark.read.parquet(str(self.folder / "events"))

    def close(self) -> None:
        """Stop Spark, which would take memory from the next run, and remove the files."""
        self.spark.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


# what runs of a ground share


def prepare(run: Run, cache: Path | None) -> Ground:
    """Draw the workload on Spark, and find the ids of some events with `fast-scan`, chunk by chunk."""
    if run.choice != _INDEX:
        raise ValueError(f"the pipeline compiles {_INDEX.label}, not {run.choice.label}")
    drawing = Drawing(run.workload, make_parameters(run.workload, **run.parameters), run.seed)
    n_subscriptions, n_events = drawing.parameters.n_subscriptions, drawing.parameters.n_events
    check_disk(Path(tempfile.gettempdir()), n_subscriptions)
    folder = Path(tempfile.mkdtemp(prefix="siftline-on-spark-"))
    spark = _session(folder)
    drawn = spent(lambda: drawing.cached_by_spark(spark, folder if cache is None else cache))
    texts = _write_events(drawn.result, n_events, folder / "events")
    numbers = np.unique(np.linspace(0, n_events - 1, _N_CHECKED).astype(int)).tolist()
    checked = spent(lambda: Checked(numbers, _scanned(spark, drawn.result, [texts[each].as_py() for each in numbers])))
    return Ground(spark, folder, n_subscriptions, n_events, drawn, checked)


def check_disk(folder: Path, n_subscriptions: int) -> None:
    """Raise unless there is room for everything: a disk that is full harms others, too."""
    free, wanted = shutil.disk_usage(folder).free, n_subscriptions * _DISK_BYTES
    if free < wanted:
        text = f"{wanted / 1e9:,.1f} GB of disk are wanted for temporary files, and {free / 1e9:,.1f} GB are free"
        raise OSError(errno.ENOSPC, text)


def _session(folder: Path) -> Any:
    """Start Spark on the cores that this process may use, with all its files in the folder."""
    from siftline.spark import session

    settings = {"spark.local.dir": folder / "spark", "spark.sql.warehouse.dir": folder / "warehouse"}
    spark = session(len(os.sched_getaffinity(0)), memory=_JVM_MEMORY, settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _predicates(drawn: Path) -> Path:
    return drawn / "predicates.parquet"


def _write_events(drawn: Path, n_events: int, target: Path) -> Any:
    """Write all events as JSON texts into a few files; return the texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = event_texts(pq.read_table(drawn / "values.parquet"), n_events)
    table = pa.table({"id": np.arange(n_events), "event": texts})
    target.mkdir()
    n = -(-n_events // _N_FILES)
    for first in range(0, n_events, n):
        pq.write_table(table.slice(first, n), target / f"part-{first // n}.parquet")
    return texts


def _scanned(spark: Any, drawn: Path, texts: Sequence[str]) -> Found:
    """Return the ids of some events, found by engines of a chunk each: a worker holds one of them at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    events = [json.loads(text) for text in texts]

    def scan(batches: Iterator[Any]) -> Iterator[Any]:
        for part in (part for batch in batches for part in batch.column(0).to_pylist()):
            engine = Engine(index=REFERENCE)
            engine.add_many(pq.read_table(part, use_threads=False))
            for number, event in enumerate(events):
                ids = pa.array(engine.match(event), pa.int64())
                owners = pa.array(np.full(len(ids), number))
                yield pa.RecordBatch.from_arrays([owners, ids], names=["event", "subscription"])

    parts = [(str(part),) for part in sorted(_predicates(drawn).glob("part-*.parquet"))]
    tasks = spark.sparkContext.parallelize(parts, len(parts)).toDF("part string")
    pairs = tasks.mapInArrow(scan, "event bigint, subscription bigint").toArrow()
    return _found(pairs, range(len(texts)))


def _found(pairs: Any, events: Sequence[int]) -> Found:
    """Return the ids of some events from a table of events and subscriptions."""
    owners, ids = (column.to_numpy() for column in pairs.columns)
    return [frozenset(ids[owners == event].tolist()) for event in events]


# one run


def use_once(ground: Ground, run: Run) -> None:
    """Compile a few subscriptions and match an event, so that neither Java nor workers do it for the first time."""
    index = _compile(ground, ground.predicates.limit(_FIRST_ROWS), "first", _FIRST_ROWS)
    _counts(ground, index, ground.events.limit(1))


def measure(ground: Ground, run: Run) -> Row:
    """Compile, check the ids of some events, and match all of them some times."""
    made = spent(lambda: _compile(ground, ground.predicates, "index", ground.n_subscriptions))
    index, events = made.result, ground.events
    try:
        check_ids(ground, index)
        warm_up, *passes = (spent(lambda: _counts(ground, index, events)) for _ in range(1 + run.settings.passes))
        for each in passes:
            check_counts(ground, each.result)
        job = spent(lambda: _counts(ground, index, events.limit(1)))
    finally:
        shutil.rmtree(index.path, ignore_errors=True)
    return {**_columns(ground, made, passes), "job_s": job.seconds, "warm_up_s": warm_up.seconds}


def _compile(ground: Ground, predicates: Any, name: str, n_subscriptions: int) -> IndexDirectory:
    from siftline.spark import compile

    with _partitions(ground, -(-n_subscriptions // _PER_TASK)):
        return compile(predicates, ground.folder / name, shards=-(-n_subscriptions // _PER_SHARD))


@contextmanager
def _partitions(ground: Ground, n: int) -> Iterator[None]:
    """Have shuffles make so many partitions for a while, or one for each core; later on they mean cores to `match`."""
    name = "spark.sql.shuffle.partitions"
    before = ground.spark.conf.get(name)
    ground.spark.conf.set(name, max(n, ground.cores))
    try:
        yield
    finally:
        ground.spark.conf.set(name, before)


def _matched(index: IndexDirectory, events: Any, how: str) -> Any:
    """Match; of several shards one at a time, because an event may have more matches than all fit into a worker."""
    from siftline.spark import match

    return match(events, index, how=how, plan=_plan(index)).toArrow()


def _plan(index: IndexDirectory) -> str:
    return "sharded" if len(index.shards) > 1 else "replicated"


def _counts(ground: Ground, index: IndexDirectory, events: Any) -> Any:
    """Return how many subscriptions each event matches, by number of the event."""
    counts = np.zeros(ground.n_events, dtype=np.int64)
    numbers, matches = (column.to_numpy() for column in _matched(index, events, "counts").columns)
    counts[numbers] = matches
    return counts


def check_ids(ground: Ground, index: IndexDirectory) -> None:
    """Raise unless the pipeline finds what `fast-scan` found."""
    numbers, ids = ground.checked.result
    events = ground.events.where(f"id in ({', '.join(map(str, numbers))})")
    check_same("the pipeline", _found(_matched(index, events, "pairs"), numbers), ids, REFERENCE)


def check_counts(ground: Ground, counts: Any) -> None:
    """Raise unless a pass found as many ids as `fast-scan`."""
    numbers, ids = ground.checked.result
    for number, wanted in zip(numbers, map(len, ids), strict=True):
        if counts[number] != wanted:
            raise WrongIdsError(f"a pass counts {counts[number]} matches of event {number}, {REFERENCE} {wanted}")


def _columns(ground: Ground, made: Spent, passes: Sequence[Spent]) -> Row:
    """Return what a row says."""
    index: IndexDirectory = made.result
    cores, n_matches = ground.cores, int(passes[0].result.sum())
    times = np.array([[1e9 * each.seconds * cores / ground.n_events] for each in passes]).astype(np.int64)
    share = sum(each.processor_seconds for each in passes) / sum(each.seconds * cores for each in passes)
    timed = Passes(times, round(share, 3))
    return {
        "mode": "counts on Spark",
        "status": "ok",
        "unit": "us",
        "n_events": ground.n_events,
        "n_matches": n_matches,
        "matches_each": n_matches / max(1, ground.n_events),
        "n_checked": len(ground.checked.result.numbers),
        "cores": cores,
        "plan": _plan(index),
        "n_shards": len(index.shards),
        "draw_s": ground.drawn.seconds,
        "check_s": ground.checked.seconds,
        "index_s": made.seconds,
        "build_s": made.seconds,
        "index_processor_s": made.processor_seconds,
        "match_us": timed.per_event_us().as_dict(),
        "all_us": timed.all_us().as_dict(),
        "passes": timed.pass_medians_us(),
        "processor_share": timed.processor_share,
        "index_bytes": sum(shard.bytes for shard in index.shards),
    }
