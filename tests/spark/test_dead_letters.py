"""Unreadable events: they are never lost silently, and too many of them fail a job."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from siftline.errors import EventError
from siftline.spark import Counts, match, match_files, profile
from siftline.spark.runtime.failures import own_error
from siftline.spark.worker.dead_letters import DeadLetters
from spark.directories import directory
from spark.streaming import put_events, run_all

if TYPE_CHECKING:
    from pathlib import Path

SUBSCRIPTIONS = [("one", "a = 1", 1.0), ("two", "a >= 1", 2.0)]
PLANS = ["replicated", "sharded"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    groups = [[row] for row in SUBSCRIPTIONS]
    return directory(tmp_path_factory.mktemp("index") / "index", *groups, pivots=[["a"], ["a"]])


def events(spark: Any, n_good: int, n_bad: int, n_partitions: int = 4) -> Any:
    """Return good and bad events in partitions, those of the first bad ones first."""
    texts = ["{"] * n_bad + ['{"a": 1}'] * n_good
    rows = spark.sparkContext.parallelize(list(enumerate(texts)), n_partitions)
    return spark.createDataFrame(rows, "id bigint, event string")


def failure(frame: Any) -> EventError:
    with pytest.raises(PySparkException) as error:
        frame.collect()
    own = own_error(error.value)
    assert isinstance(own, EventError)
    return own


@pytest.mark.parametrize("plan", PLANS)
def test_a_null_key_is_a_key_like_any_other(spark: Any, index: str, plan: str) -> None:
    rows = [(1, "x", '{"a": 1}'), (None, "x", '{"a": 2}'), (None, None, '{"a": 1}'), (None, None, "{}")]
    frame = spark.createDataFrame(rows, "id bigint, shop string, event string")
    counts = Counts(spark)
    found = match(frame, index, key=["id", "shop"], plan=plan, counts=counts)
    wanted = [(1, "x", "one"), (1, "x", "two"), (None, "x", "two"), (None, None, "one"), (None, None, "two")]
    assert sorted(map(tuple, found.collect()), key=repr) == sorted(wanted, key=repr)
    assert (counts.events, counts.dead_letters) == (4, 0)
    totals = match(frame, index, key=["id", "shop"], how="counts", plan=plan).collect()
    assert sorted(row.matches for row in totals) == [0, 1, 2, 2]


def test_a_null_key_in_files_and_streams(spark: Any, index: str, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(None, '{"a": 1}'), (2, '{"a": 2}')], "id bigint, event string")
    frame.write.parquet(str(tmp_path / "events"))
    assert match_files(tmp_path / "events", index, tmp_path / "found").rows == 3
    (tmp_path / "events").rename(tmp_path / "files")
    put_events(tmp_path / "events", 0, [{"a": 1}], 7)
    (tmp_path / "events" / "1.json").write_text(json.dumps({"event": '{"a": 2}'}))
    run_all(spark, tmp_path, index, kind="json")
    rows = spark.read.schema("id bigint, subscription string").json(str(tmp_path / "matches")).collect()
    assert sorted(map(tuple, rows), key=repr) == [(7, "one"), (7, "two"), (None, "two")]


@pytest.mark.parametrize("plan", PLANS)
def test_without_a_place_for_them_the_job_fails(spark: Any, index: str, plan: str) -> None:
    message = str(failure(match(events(spark, 5, 3, 1), index, plan=plan)))
    assert re.match("3 of 8 events cannot be read; the first: id=[012]: not a JSON object:", message)
    assert "dead_letters='...'" in message
    assert "dead_letters='ignore'" in message
    counts = Counts(spark)
    found = match(events(spark, 5, 3), index, plan=plan, dead_letters="ignore", counts=counts)
    assert found.count() == 10
    assert (counts.events, counts.matches, counts.dead_letters) == (5, 10, 3)


def test_a_stream_ends_without_a_place_for_them(spark: Any, index: str, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    lines = [{"id": 1, "event": '{"a": 1}'}, {"id": 2, "event": "{"}]
    (tmp_path / "events" / "0.json").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(PySparkException) as error:
        run_all(spark, tmp_path, index, kind="json")
    assert "1 of 2 events cannot be read; the first: id=2" in str(own_error(error.value))
    counts = Counts(spark)
    run_all(spark, tmp_path, index, kind="json", dead_letters="ignore", counts=counts)
    assert (counts.events, counts.dead_letters) == (1, 1)
    (tmp_path / "events" / "1.json").write_text("\n".join(map(json.dumps, lines)))
    dead = tmp_path / "dead"
    for limit in (0, 0.4):
        with pytest.raises(PySparkException) as error:
            run_all(spark, tmp_path, index, kind="json", dead_letters=dead, fail_above=limit)
        assert f"events cannot be read, more than fail_above={limit}" in str(own_error(error.value))
    run_all(spark, tmp_path, index, kind="json", dead_letters=dead, fail_above=0.5)
    assert len(spark.read.schema("id bigint").json(str(tmp_path / "matches")).collect()) == 4
    assert spark.read.parquet(str(dead)).count() == 1


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("is_shuffled", [False, True])
def test_so_many_and_no_more(
    spark: Any, index: str, tmp_path: Path, request: pytest.FixtureRequest, plan: str, is_shuffled: bool
) -> None:
    """Bad events are all in the first partitions, and those with a share are judged by all events nevertheless."""
    frame = events(spark, 30, 10)
    if is_shuffled:
        frame = frame.groupBy("id").agg({"event": "first"}).toDF("id", "event")
        spark.conf.set(
            "spark.sql.adaptive.enabled", "true"
        )  # how many tasks there are is then only known when they run
        request.addfinalizer(lambda: spark.conf.set("spark.sql.adaptive.enabled", "false"))
    for limit, is_enough in ((9, False), (10, True), (0.24, False), (0.25, True), (0.0, False), (1.0, True)):
        dead = tmp_path / f"{limit}"
        found = match(frame, index, plan=plan, dead_letters=dead, fail_above=limit)
        if is_enough:
            assert found.count() == 60
        else:
            message = str(failure(found))
            assert f"events cannot be read, more than fail_above={limit} allows; they are in {dead}/run=" in message
            assert "one of them: id=" in message
            if isinstance(limit, float):
                assert message.startswith("10 of 40 events")
        assert spark.read.parquet(str(dead)).count() == 10 or not is_enough


def test_so_many_in_files(spark: Any, index: str, tmp_path: Path) -> None:
    events(spark, 30, 10).write.parquet(str(tmp_path / "events"))
    for limit, is_enough in ((9, False), (10, True), (0.24, False), (0.25, True)):
        options: dict[str, Any] = {"dead_letters": str(tmp_path / "dead"), "fail_above": limit}
        if is_enough:
            assert match_files(tmp_path / "events", index, tmp_path / f"m{limit}", **options).rows == 60
        else:
            with pytest.raises(EventError, match=f"more than fail_above={limit} allows"):
                match_files(tmp_path / "events", index, tmp_path / f"m{limit}", **options)
            assert not (tmp_path / f"m{limit}").exists()


@pytest.mark.parametrize("limit", [-1, 1.5, True, "1", float("nan")])
def test_wrong_limits(limit: Any) -> None:
    with pytest.raises(ValueError, match="fail_above must be a number"):
        DeadLetters("/tmp/x", fail_above=limit)


def test_a_limit_needs_a_folder() -> None:
    for place in (None, "ignore"):
        with pytest.raises(ValueError, match="fail_above needs a folder"):
            DeadLetters(place, fail_above=1)


def test_one_task_for_several_partitions_loses_none(spark: Any, index: str, tmp_path: Path) -> None:
    """After `coalesce` one task does the work of several, by workers that know nothing of each other."""
    for number in range(2):  # when it is computed again, nothing comes twice
        counts = Counts(spark, str(tmp_path / f"counts-{number}"))
        options: dict[str, Any] = {"dead_letters": str(tmp_path / "dead"), "counts": counts, "fail_above": 0.5}
        found = match(events(spark, 6, 6, 6), index, **options).coalesce(1)
        for _ in range(2):
            assert found.count() == 12
        assert (counts.events, counts.matches, counts.dead_letters) == (6, 12, 6)
        dead = spark.read.parquet(str(tmp_path / "dead"))
        assert dead.count() == 6 * (number + 1)  # a folder for each run
        assert {row.id for row in dead.collect()} == set(range(6))
    found = match(events(spark, 6, 6, 6), index, **{**options, "fail_above": 0.4}).coalesce(1)
    assert "6 of 12 events" in str(failure(found))


def test_profile_counts_unreadable_events(spark: Any) -> None:
    counts = Counts(spark)
    assert profile(events(spark, 5, 3), counts=counts).n_events == 5
    assert (counts.events, counts.dead_letters) == (5, 3)
