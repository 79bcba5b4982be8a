"""Killed drivers and workers, and executors that are separate processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from siftline import Engine
from siftline.spark import compact
from siftline.spark.directory.documents import read_document
from siftline.spark.directory.state import State
from spark.changing import Model, tree
from spark.directories import directory
from spark.run_kills import EVENTS, SUBSCRIPTIONS
from spark.streaming import put_events, written
from spark.test_deltas import first_rows
from spark.test_stream import expected

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parent.parent
Batches = list[list[dict[str, Any]]]


def prepared(folder: Path, n_batches: int, seed: int) -> tuple[Model, Batches]:
    """Make an index and events; return the model of its subscriptions and the events of each batch."""
    chance = random.Random(seed)
    rows = first_rows(chance)
    directory(folder / "index", rows[:8], rows[8:])
    batches = [[tree(chance) for _ in range(10)] for _ in range(n_batches)]
    for number, trees in enumerate(batches):
        put_events(folder / "events", number, trees, number * 10)
    return Model(rows, seed), batches


def started(folder: Path, *arguments: str, job: str = "run_stream.py") -> subprocess.Popen[bytes]:
    """Start a job, in a process group of its own: driver, JVM and workers."""
    paths = [str(TESTS), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(TESTS / "spark" / job), str(folder), *arguments]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, env=environment, start_new_session=True, stdout=log, stderr=log)


def kill_when(job: subprocess.Popen[bytes], is_time: Callable[[], bool]) -> None:
    """Kill all processes of a job at a moment."""
    while not is_time() and job.poll() is None:
        time.sleep(0.002)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def states(folder: Path) -> list[State]:
    (stream,) = (folder / "index" / "streams").iterdir()
    files = sorted(stream.glob("*.json"), key=lambda file: int(file.stem))
    return [State(*read_document(file)["state"]) for file in files]


def moments(folder: Path, batch: int) -> dict[str, Callable[[], bool]]:
    """Return the moments of a micro-batch at which it may be killed."""
    return {
        "the batch is planned": (folder / "checkpoint" / "offsets" / str(batch)).exists,
        "the state is claimed": lambda: any((folder / "index" / "streams").glob(f"*/{batch}.json")),
        "the files are there": lambda: has_files_since(folder, folder / "checkpoint" / "offsets" / str(batch)),
        "the sink has committed": (folder / "matches" / "_spark_metadata" / str(batch)).exists,
    }


def has_files_since(folder: Path, planned: Path) -> bool:
    """Whether tasks have written files since a batch was planned."""
    if not planned.exists():
        return False
    since = planned.stat().st_mtime_ns
    return any(file.stat().st_mtime_ns > since for file in (folder / "matches").glob("part-*"))


def check_kills(spark: Any, folder: Path, kills: list[tuple[int, str]]) -> None:
    # On a busy machine a moment is noticed late: there must be batches left to be killed before.
    model, batches = prepared(folder, kills[-1][0] + 8, seed=len(kills))
    for batch, moment in kills:
        kill_when(started(folder), moments(folder, batch)[moment])
        for _ in range(3):
            model.change(folder / "index", time.time_ns() // 1000)
        compact(folder / "index")
        model.change(folder / "index", time.time_ns() // 1000)
    job = started(folder)
    assert job.wait() == 0, (folder / "log").read_text()[-3000:]
    found = states(folder)
    assert len({state.delta for state in found}) > 1
    assert written(spark, folder) == expected(model, found, batches)


def test_a_driver_that_is_killed(spark: Any, tmp_path: Path) -> None:
    check_kills(spark, tmp_path, [(1, "the state is claimed")])


@pytest.mark.slow
def test_a_driver_that_is_killed_at_every_moment(spark: Any, tmp_path: Path) -> None:
    kills = [(2 * number, moment) for number, moment in enumerate(moments(tmp_path, 0))]
    check_kills(spark, tmp_path, kills)


def test_a_small_cluster_and_a_worker_that_is_killed(spark: Any, tmp_path: Path) -> None:
    """Executors are processes of their own, and a task whose worker was killed is repeated."""
    model, batches = prepared(tmp_path, 3, seed=1)
    model.change(tmp_path / "index", time.time_ns() // 1000)
    job = started(tmp_path, "local-cluster[2,1,1024]")
    assert job.wait() == 0, (tmp_path / "log").read_text()[-3000:]
    assert (tmp_path / "killed").exists()
    found = states(tmp_path)
    assert written(spark, tmp_path) == expected(model, found, batches)
    whole = spark.read.parquet(str(tmp_path / "batch")).collect()
    now = [State(1, 1, found[0].time)] * len(batches)
    assert sorted(tuple(row) for row in whole) == expected(model, now, batches)


def test_workers_and_an_executor_that_are_killed(spark: Any, tmp_path: Path) -> None:
    """In `compile` and `match_files` a worker, in the sharded plan the executor that has the routed events."""
    job = started(tmp_path, job="run_kills.py")
    assert job.wait() == 0, (tmp_path / "log").read_text()[-3000:]
    assert len(list(tmp_path.glob("* killed"))) == 4
    engine = Engine("scan")
    engine.add_many(SUBSCRIPTIONS)
    wanted = [(number, id) for number, event in enumerate(EVENTS) for id in sorted(engine.match(event))]
    for how in ("files", "pairs"):
        assert sorted(map(tuple, spark.read.parquet(str(tmp_path / how)).collect())) == wanted
    counts = Counter(number for number, _ in wanted)
    found = spark.read.parquet(str(tmp_path / "counts")).collect()
    assert sorted(map(tuple, found)) == [(number, counts[number]) for number in range(len(EVENTS))]
