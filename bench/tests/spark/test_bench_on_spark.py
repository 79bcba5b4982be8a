"""The kind `on-spark` of the papers' figures: one workload, compiled and matched by the pipeline, ids checked."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from siftline.engine import Engine
from siftline_bench.errors import WrongIdsError
from siftline_bench.figures.figure import Run, Settings
from siftline_bench.figures.kinds import kind, on_spark
from siftline_bench.figures.measures import measure
from siftline_bench.figures.speed import steadied
from siftline_bench.figures.worker import OUT_OF_DISK, TIMED_OUT, Worker
from siftline_bench.runner import Choice
from siftline_bench.workloads import Drawing, make_parameters, recipe

_SIZES = {"n_subscriptions": 500, "n_events": 40, "n_attributes": 20, "event_size": 10, "matching_share": 0.05}
_ON_SPARK = kind("on-spark")


def a_run(**changes: Any) -> Run:
    parameters = asdict(make_parameters("be-gen", **{**_SIZES, **changes}))
    settings = Settings(passes=2)
    return Run("pstree-0", "sift on Spark", 500, "on-spark", "be-gen", parameters, 1, 3, Choice("sift"), settings)


@pytest.fixture(autouse=True)
def _small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several chunks and shards, of few subscriptions each; all files below one folder."""
    monkeypatch.setattr(on_spark, "Drawing", partial(Drawing, chunk=200))
    monkeypatch.setattr(on_spark, "_PER_SHARD", 200)
    monkeypatch.setattr(on_spark, "_PER_TASK", 100)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def ground(spark: Any) -> on_spark.Ground:
    return on_spark.prepare(a_run(), None)  # never closed: other tests need the session


def test_a_row_has_what_rows_of_one_engine_have(ground: on_spark.Ground) -> None:
    before = ground.spark.conf.get("spark.sql.shuffle.partitions")
    _ON_SPARK.use_once(ground, a_run())
    row = _ON_SPARK.measure(ground, a_run())
    names = ("match_ms", "match_us", "index_s", "build_s", "memory_mb", "matches")
    assert all((measure(name).of(row) or 0) > 0 for name in names)
    assert (row["n_shards"], row["plan"], row["cores"], row["n_checked"]) == (3, "sharded", 2, 20)
    assert len(row["passes"]) == 2
    assert row["n_matches"] == sum(map(len, _expected(range(40))))
    assert steadied({"a": [{**row, "ground": "b"}]})["a"][0]["speed"] == 1.0
    assert ground.spark.conf.get("spark.sql.shuffle.partitions") == before
    assert not (ground.folder / "index").exists()


def _expected(numbers: Any) -> list[frozenset[Any]]:
    """Return the ids of events by an engine of all chunks together."""
    workload = recipe("be-gen").generate(make_parameters("be-gen", **_SIZES), 3, 200)
    engine = Engine()
    engine.add_many(workload.predicates)
    return [frozenset(engine.match(workload.dicts[number])) for number in numbers]


def test_scans_of_chunks_are_a_scan_of_all(ground: on_spark.Ground) -> None:
    numbers, ids = ground.checked.result
    assert (numbers[0], numbers[-1], len(numbers)) == (0, 39, 20)
    assert ids == _expected(numbers)
    assert any(ids)


def test_one_shard_is_replicated(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_spark, "_PER_SHARD", 1_000)
    row = _ON_SPARK.measure(on_spark.prepare(a_run(), None), a_run())
    assert (row["n_shards"], row["plan"], row["status"]) == (1, "replicated", "ok")


def test_wrong_ids_are_no_row(ground: on_spark.Ground) -> None:
    checked = ground.checked.result
    wrong = checked._replace(ids=[frozenset({*checked.ids[0], -1}), *checked.ids[1:]])
    ground.checked = replace(ground.checked, result=wrong)
    with pytest.raises(WrongIdsError, match="the pipeline and fast-scan disagree on event 0"):
        _ON_SPARK.measure(ground, a_run())
    assert not (ground.folder / "index").exists()
    with pytest.raises(WrongIdsError, match="a pass counts 0 matches of event 0"):
        on_spark.check_counts(ground, [0] * 40)


def test_a_drawn_workload_stays_in_the_cache(spark: Any, tmp_path: Path) -> None:
    drawing = Drawing("be-gen", make_parameters("be-gen", **_SIZES), 3, 200)
    path = drawing.cached_by_spark(spark, tmp_path)
    first = path / "predicates.parquet" / "part-00000.parquet"
    written = first.stat().st_mtime_ns
    assert drawing.cached_by_spark(spark, tmp_path) == path
    assert first.stat().st_mtime_ns == written
    (path / "values.parquet" / "part-00001.parquet").unlink()
    assert drawing.cached_by_spark(spark, tmp_path) == path
    assert len(list(path.rglob("part-*.parquet"))) == 6


def test_another_index_is_refused() -> None:
    with pytest.raises(ValueError, match="the pipeline compiles sift, not counting"):
        on_spark.prepare(replace(a_run(), choice=Choice("counting")), None)


# in another process, with a session of its own


def test_a_full_disk_is_a_row() -> None:
    with Worker() as worker:
        row = worker.measure(a_run(n_subscriptions=10**12))
    assert row["status"] == OUT_OF_DISK
    assert "GB of disk are wanted" in row["reason"]


def test_a_worker_that_ends_leaves_nothing(tmp_path: Path) -> None:
    late = replace(a_run(), settings=Settings(passes=2, limit_s=0.0))
    with Worker() as worker:
        assert worker.measure(a_run())["status"] == "ok"
        assert _processes_in(tmp_path)
        assert worker.measure(late)["status"] == TIMED_OUT
    end = time.monotonic() + 10
    while _processes_in(tmp_path) and time.monotonic() < end:
        time.sleep(0.1)
    assert not _processes_in(tmp_path)
    assert list(tmp_path.iterdir()) == []


def _processes_in(folder: Path) -> list[str]:
    """Return the processes whose arguments name a folder: Java is told where its files go."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            found.append(file.read_text(encoding="utf-8", errors="replace"))
    return [arguments for arguments in found if str(folder) in arguments]
