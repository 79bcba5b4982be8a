"""Versions are kept while jobs read them, and a job that comes too late gets an error."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from siftline.errors import SnapshotError
from siftline.spark import IndexDirectory, apply, compact, match
from siftline.spark.runtime.failures import own_error
from spark.directories import directory

if TYPE_CHECKING:
    from pathlib import Path

PLANS = ["replicated", "sharded"]
WAIT_SECONDS = 120


def index_at(path: Path) -> str:
    return directory(path, [(1, "a = 1")], [(2, "a >= 1")], pivots=[["a"], ["a"]])


def events(spark: Any, n_partitions: int = 4) -> Any:
    rows = spark.sparkContext.parallelize([(number, '{"a": 1}') for number in range(8)], n_partitions)
    return spark.createDataFrame(rows, "id bigint, event string")


def compact_often(index: str, **options: Any) -> None:
    for number in range(4):
        apply(index, [{"subscription": 10 + number, "expression": "a = 1"}, {"change": "remove", "subscription": 1}])
        compact(index, **options)


@pytest.mark.parametrize("plan", PLANS)
def test_compactions_before_a_job_runs(spark: Any, tmp_path: Path, plan: str) -> None:
    index = index_at(tmp_path / "index")
    first = match(events(spark), index, plan=plan)
    apply(index, [{"subscription": 3, "expression": "a = 1"}])
    changed = match(events(spark), index, plan=plan)
    compact_often(index)
    assert {row.subscription for row in first.collect()} == {1, 2}
    assert {row.subscription for row in changed.collect()} == {1, 2, 3}
    assert {row.subscription for row in match(events(spark), index, plan=plan).collect()} == {2, 3, 10, 11, 12, 13}


def test_compactions_while_a_job_runs(spark: Any, tmp_path: Path) -> None:
    """The first tasks wait until all is compacted; the others open the version only after that."""
    index = index_at(tmp_path / "index")
    apply(index, [{"subscription": 3, "expression": "a = 1"}])
    begun, compacted = tmp_path / "begun", tmp_path / "compacted"

    def wait(batches: Any) -> Any:
        begun.touch()
        end = time.monotonic() + WAIT_SECONDS
        while not compacted.exists() and time.monotonic() < end:
            time.sleep(0.02)
        yield from batches

    slow = events(spark).mapInArrow(wait, "id bigint, event string")
    found: list[Any] = []
    job = threading.Thread(target=lambda: found.extend(match(slow, index).collect()))
    job.start()
    while not begun.exists() and job.is_alive():
        time.sleep(0.02)
    compact_often(index)
    compacted.touch()
    job.join()
    assert sorted(map(tuple, found)) == [(event, id) for event in range(8) for id in (1, 2, 3)]


def test_an_opened_version_that_is_gone(spark: Any, tmp_path: Path) -> None:
    index = index_at(tmp_path / "index")
    opened = IndexDirectory.open(index)
    compact_often(index, keep=timedelta(0))
    with pytest.raises(SnapshotError, match="has no version 1 any more: version 5 is current"):
        match(events(spark), opened)


@pytest.mark.parametrize("plan", PLANS)
def test_a_job_older_than_the_kept_versions(spark: Any, tmp_path: Path, plan: str) -> None:
    index = index_at(tmp_path / "index")
    first = match(events(spark), index, plan=plan)
    apply(index, [{"subscription": 3, "expression": "a = 1"}])
    changed = match(events(spark), index, plan=plan)
    compact_often(index, keep=timedelta(0))
    for late in (first, changed):
        with pytest.raises(PySparkException) as error:
            late.collect()
        own = own_error(error.value)
        assert isinstance(own, SnapshotError)
        assert str(own).startswith(f"the index {index} has no version 1 any more: version 5 is current")
        assert "make this DataFrame again with `match`" in str(own)
