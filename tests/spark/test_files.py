"""match_files: the same matches as match, from files to files, or nothing at all."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from siftline.errors import EventError, SparkError, StorageError, TableError
from siftline.spark import Counts, apply, compact, compile, match, match_files
from siftline.spark.match import Written
from siftline.spark.worker.event_files import EventFiles, Group, mounted
from spark.directories import directory

if TYPE_CHECKING:
    from pathlib import Path

SUBSCRIPTIONS = [("one", "a = 1", 1.0), ("two", "a >= 1", 2.0), ("three", "b > 6 or a = 1", 3.0)]
EVENTS = [{"a": 1.0, "b": 5.0}, {"a": 2.0}, {}, {"b": 7.0}] * 25


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    return directory(tmp_path_factory.mktemp("index") / "index", SUBSCRIPTIONS)


def written(folder: Path, texts: list[str | None]) -> str:
    """Write events into two files of several row groups."""
    folder.mkdir()
    ids = pa.array(range(len(texts)), pa.int64())
    table = pa.table({"id": ids, "event": pa.array(texts, pa.string())})
    half = len(texts) // 2
    pq.write_table(table.slice(0, half), folder / "one file.parquet", row_group_size=7)
    pq.write_table(table.slice(half), folder / "other%20file.parquet")
    return str(folder)


def rows_of(spark: Any, path: Any) -> list[Any]:
    return sorted(tuple(map(str, row)) for row in spark.read.parquet(str(path)).collect())


@pytest.mark.parametrize("how", ["pairs", "arrays", "counts", "top-k"])
def test_the_same_as_match(spark: Any, index: str, tmp_path: Path, how: str) -> None:
    events = written(tmp_path / "events", [json.dumps(tree) for tree in EVENTS])
    found = match_files(events, index, tmp_path / "matches", how=how, k=2)
    match(spark.read.parquet(events), index, how=how, k=2).write.parquet(str(tmp_path / "other"))
    rows = rows_of(spark, tmp_path / "matches")
    assert rows == rows_of(spark, tmp_path / "other")
    assert found.rows == len(rows)
    assert found.files == len(list((tmp_path / "matches").glob("*.parquet"))) > 1


def test_columns_are_events_too(spark: Any, index: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"b": [7.0, None], "key": ["x", "y"], "a": [None, 2.0]}), tmp_path / "events.parquet")
    match_files([str(tmp_path / "events.parquet")], index, tmp_path / "matches", key="key")
    assert rows_of(spark, tmp_path / "matches") == [("x", "three"), ("y", "two")]


def test_times_as_spark_writes_them(spark: Any, tmp_path: Path) -> None:
    """INT96, which Arrow takes for nanoseconds; those end in 2262."""
    index = directory(tmp_path / "index", [(1, "at >= '2300'", 1.0), (2, "at < '2300'", 1.0)])
    times = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2500, 1, 1, tzinfo=UTC)]
    table = pa.table({"id": [0, 1], "key": pa.array(times, pa.timestamp("us", tz="UTC"))})
    table = table.append_column("at", table["key"])
    (tmp_path / "events").mkdir()
    pq.write_table(table, tmp_path / "events" / "0.parquet", use_deprecated_int96_timestamps=True)
    events = str(tmp_path / "events")
    match_files(events, index, tmp_path / "matches", key=["id", "key"])
    match(spark.read.parquet(events), index, key=["id", "key"]).write.parquet(str(tmp_path / "other"))
    rows = rows_of(spark, tmp_path / "matches")
    assert rows == rows_of(spark, tmp_path / "other")
    assert [row[::2] for row in rows] == [("0", "2"), ("1", "1")]


def test_keys_of_different_types(spark: Any, index: str, tmp_path: Path) -> None:
    """One task has the last file with wide keys and the first with narrow ones, and dead letters of both."""
    (tmp_path / "events").mkdir()
    texts = ["{", '{"a": 1}'] * 9
    for name, kind, rows in (("a", pa.int64(), slice(0, 2)), ("b", pa.int32(), slice(2, 18))):
        ids = pa.array(range(18)[rows], kind)
        table = pa.table({"id": ids, "event": texts[rows]})
        pq.write_table(table, tmp_path / "events" / f"{name}.parquet", row_group_size=2)
    events, dead = str(tmp_path / "events"), str(tmp_path / "dead")
    found = match_files(events, index, tmp_path / "matches", how="counts", dead_letters=dead)
    assert found.rows == 9
    assert rows_of(spark, tmp_path / "matches") == sorted((str(id), "3") for id in range(1, 18, 2))
    assert spark.read.parquet(dead).count() == 9


def test_no_match_is_an_empty_table(spark: Any, index: str, tmp_path: Path) -> None:
    events = written(tmp_path / "events", ["{}", "{}"])
    assert match_files(events, index, tmp_path / "matches") == Written(str(tmp_path / "matches"), 0, 0)
    assert spark.read.parquet(str(tmp_path / "matches")).dtypes == [("id", "bigint"), ("subscription", "string")]


def test_events_that_cannot_be_read(spark: Any, index: str, tmp_path: Path) -> None:
    events = written(tmp_path / "events", ['{"a": 1}', "{", None, '{"a": 2}'])
    counts = Counts(spark)
    match_files(events, index, tmp_path / "matches", dead_letters=str(tmp_path / "dead"), counts=counts)
    assert (counts.events, counts.matches, counts.dead_letters) == (2, 4, 2)
    assert spark.read.parquet(str(tmp_path / "dead")).count() == 2


def test_a_target_is_made_once_and_whole(spark: Any, index: str, tmp_path: Path) -> None:
    events = written(tmp_path / "events", ['{"a": 1}', '{"a": 2}'])
    (tmp_path / "matches").mkdir()
    with pytest.raises(SparkError, match="workers read and write matches themselves"):
        mounted("hdfs://cluster/matches", "matches")
    with pytest.raises(SparkError, match="exists already"):
        match_files(events, index, tmp_path / "matches")
    with pytest.raises(EventError, match="1 of 1 events cannot be read"):
        match_files(written(tmp_path / "bad", ["{", "{}"]), index, tmp_path / "others")
    assert not (tmp_path / "others").exists()
    assert not list(tmp_path.glob(".others*"))


def test_drafts_of_killed_drivers_are_removed(spark: Any, index: str, tmp_path: Path) -> None:
    events = written(tmp_path / "events", ["{}", "{}"])
    names = [f".matches-{'0' * 32}", f".matches-{'1' * 32}", ".matches-kept"]
    for name in names:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, None if "1" in name else (0, 0))
    match_files(events, index, tmp_path / "matches")
    assert [(tmp_path / name).exists() for name in names] == [False, True, True]


def test_columns_that_only_folders_have(spark: Any, index: str, tmp_path: Path) -> None:
    """Their types are those that Spark finds, as keys and as attributes."""
    days = ["2026-11-17", "2026-11-18", "__HIVE_DEFAULT_PARTITION__"]
    for number, day in enumerate(days):
        folder = tmp_path / "all" / f"day={day}" / "at=10%3A30 %23"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [number], "a": [1.0], "day": ["no"]}), folder / "0.parquet")
    chosen: dict[str, Any] = {"key": ["id", "day", "at"], "event": None}
    match_files(tmp_path / "all", index, tmp_path / "matches", **chosen)
    events = spark.read.parquet(str(tmp_path / "all"))
    match(events, index, **chosen).write.parquet(str(tmp_path / "other"))
    rows = rows_of(spark, tmp_path / "matches")
    assert rows == rows_of(spark, tmp_path / "other")
    assert {row[1:3] for row in rows} == {(day, "10:30 #") for day in (*days[:2], "None")}
    assert spark.read.parquet(str(tmp_path / "matches")).dtypes[1] == ("day", "date")
    daily = directory(tmp_path / "daily", [(1, "day = date '2026-11-18'", 1.0), (2, "a = 1 and at = '10:30 #'", 1.0)])
    assert match_files(tmp_path / "all", daily, tmp_path / "attributes", event=None).rows == 4
    assert match_files(tmp_path / "all" / f"day={days[0]}", index, tmp_path / "one", event=None).rows == 3


def test_files_whose_columns_differ(spark: Any, tmp_path: Path) -> None:
    """A column may lack, or have another type; a struct has the fields that it has anywhere."""
    rows = [
        ("a", "a = 1"),
        ("b", "b.x = 2"),
        ("no y", "exists b.y and b.y is null"),
        ("c", "c = 'x'"),
        ("big", f"a = {2**53 + 1}"),
    ]
    index = directory(tmp_path / "index", rows)
    (tmp_path / "events").mkdir()
    tables = [
        {"id": pa.array([0, 1], pa.int32()), "a": pa.array([1, 2], pa.int16()), "b": [{"x": 2}, None]},
        {"id": pa.array([2, 2**40]), "a": pa.array([2**53 + 1, None]), "b": [{"x": 2, "y": 1}, {"x": 1, "y": 2}]},
        {"id": pa.array([4], pa.int32()), "a": ["one"], "c": ["x"]},
        {"c": pa.array([], pa.string())},
    ]
    for number, columns in enumerate(tables):
        pq.write_table(pa.table(columns), tmp_path / "events" / f"{number}.parquet")
    found = match_files(tmp_path / "events", index, tmp_path / "matches")
    wanted = [("0", "a"), ("0", "b"), ("0", "no y"), ("2", "b"), ("2", "big"), ("4", "c")]
    assert rows_of(spark, tmp_path / "matches") == wanted
    assert found.rows == len(wanted)
    pq.write_table(pa.table({"id": ["x"], "a": [1]}), tmp_path / "events" / "4.parquet")
    with pytest.raises(TableError, match=r"column 'id' \(key\).*int32 in .*0.parquet.*string in .*4.parquet"):
        match_files(tmp_path / "events", index, tmp_path / "others")


def test_types_that_spark_does_not_write(spark: Any, index: str, tmp_path: Path) -> None:
    """Categories, unsigned integers, large strings, nanoseconds."""
    texts = pa.array(['{"a": 1}', '{"a": 2}', '{"a": 1}'])
    keys = {"id": pa.array([1, 2, 2**64 - 1], pa.uint64()), "at": pa.array([1, 2001, 3999], pa.timestamp("ns"))}
    for number, column in enumerate((texts.dictionary_encode(), texts.cast(pa.large_string()))):
        pq.write_table(pa.table({**keys, "event": column}), tmp_path / f"{number}.parquet")
        match_files(
            tmp_path / f"{number}.parquet", index, tmp_path / f"matches-{number}", key=["id", "at"], how="counts"
        )
        assert rows_of(spark, tmp_path / f"matches-{number}") == [
            ("1", "1970-01-01 00:00:00", "3"),
            ("18446744073709551615", "1970-01-01 00:00:00.000003", "3"),
            ("2", "1970-01-01 00:00:00.000002", "1"),
        ]
    found = match_files([tmp_path / "0.parquet", tmp_path / "1.parquet"], index, tmp_path / "both", how="counts")
    assert found.rows == 6


def test_nested_keys_and_names_with_dots(spark: Any, index: str, tmp_path: Path) -> None:
    table = pa.table({"the.id": [7], "meta": [{"id": 8, "at": {"day": 9}}], "a": [1.0]})
    pq.write_table(table, tmp_path / "events.parquet")
    options: dict[str, Any] = {"key": ["the.id", "meta.id", "meta.at.`day`"], "event": None}
    match_files(tmp_path / "events.parquet", index, tmp_path / "matches", **options)
    match(spark.read.parquet(str(tmp_path / "events.parquet")), index, **options).write.parquet(str(tmp_path / "other"))
    assert rows_of(spark, tmp_path / "matches") == rows_of(spark, tmp_path / "other")
    assert spark.read.parquet(str(tmp_path / "matches")).columns == ["the.id", "id", "day", "subscription"]
    assert rows_of(spark, tmp_path / "matches")[0] == ("7", "8", "9", "one")


def test_as_many_tasks_as_there_is_work(spark: Any, index: str, tmp_path: Path) -> None:
    """Whatever a shuffle would take; and a task of each core for little pieces, more where there is much to read."""
    pq.write_table(pa.table({"id": [1], "event": ['{"a": 1}']}), tmp_path / "one.parquet")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 200)
    group = f"tasks of {tmp_path}"
    spark.sparkContext.setJobGroup(group, "")
    try:
        match_files(tmp_path / "one.parquet", index, tmp_path / "matches")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    tracker = spark.sparkContext.statusTracker()
    stages = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup(group)
        for stage in tracker.getJobInfo(job).stageIds
    ]
    assert 1 <= max(stage.numTasks for stage in stages if stage) <= 2
    groups = [Group("a", number, 1, 1 << 24, ()) for number in range(1000)]
    assert EventFiles(None, [], {}, groups[:3]).n_tasks(2) == 3
    assert EventFiles(None, [], {}, groups[:100]).n_tasks(2) == 25
    assert EventFiles(None, [], {}, groups).n_tasks(100) == 400


@pytest.mark.parametrize(
    ("mark", "name"),
    [("_delta_log/0.json", "Delta Lake"), ("metadata/v1.metadata.json", "Iceberg"), (".hoodie/x", "Hudi")],
)
def test_tables_of_which_not_all_files_count(spark: Any, index: str, tmp_path: Path, mark: str, name: str) -> None:
    events = written(tmp_path / "events", ["{}", "{}"])
    (tmp_path / "events" / mark).parent.mkdir()
    (tmp_path / "events" / mark).write_text("{}")
    with pytest.raises(TableError, match=rf"{tmp_path}/events is a table of {name}.*`match`"):
        match_files(events, index, tmp_path / "matches")


@pytest.mark.parametrize("name", ["10:30 #1", "50%", "a%20b", "[1] {2}*", "run:7/x"])
def test_paths_of_any_characters(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """In absolute paths, relative ones and `file:` URIs: the index, events, matches, dead letters, counts."""
    monkeypatch.chdir(tmp_path)
    rows = [(1, "a = 1"), (2, "a >"), (3, "a > 1")]
    made = compile(spark.createDataFrame(rows, "subscription bigint, expression string"), f"{name}/index")
    assert made.quarantined == 1
    assert len(list((tmp_path / name / "index" / "versions" / "1" / "quarantine").glob("*.parquet"))) >= 1
    written(tmp_path / name / "events", ['{"a": 1}', "{", '{"a": 2}', "{}"])
    (tmp_path / name / "events" / "other%20file.parquet").rename(tmp_path / name / "events" / "11:30 #2%.parquet")
    for kind, root in (("relative", name), ("absolute", str(tmp_path / name)), ("uri", (tmp_path / name).as_uri())):
        counts = Counts(spark, f"{root}/counts-{kind}")
        options: dict[str, Any] = {"counts": counts, "dead_letters": f"{root}/dead-{kind}"}
        match_files(f"{root}/events", f"{root}/index", f"{root}/{kind}", **options)
        assert sorted(pq.read_table(tmp_path / name / kind).to_pydict()["subscription"]) == [1, 3]
        assert pq.read_table(tmp_path / name / f"dead-{kind}")["id"].to_pylist() == [1]
        assert (counts.events, counts.dead_letters) == (3, 1)
    apply(f"{name}/index", [{"subscription": 4, "expression": "a = 1"}])
    assert compact(f"{name}/index").subscriptions == 3


def test_unreadable_and_unwritable_paths_are_named(spark: Any, index: str, tmp_path: Path) -> None:
    events = written(tmp_path / "events", ['{"a": 1}', "{}"])
    with pytest.raises(SparkError, match=f"{tmp_path}/nowhere: there is no such file"):
        match_files(tmp_path / "nowhere", index, tmp_path / "matches")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match=f"no Parquet files at {tmp_path}/empty"):
        match_files(tmp_path / "empty", index, tmp_path / "matches")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=rf"{tmp_path}/file/.*cannot be written: Not a directory"):
        match_files(events, index, tmp_path / "file" / "matches")
    with pytest.raises(StorageError, match=rf"{tmp_path}/file/dead.* cannot be written"):
        match_files(
            written(tmp_path / "bad", ["{", "{"]), index, tmp_path / "m", dead_letters=tmp_path / "file" / "dead"
        )
    (tmp_path / "events" / "one file.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(StorageError, match=f"{tmp_path}/events/one file.parquet cannot be read as Parquet"):
        match_files(events, index, tmp_path / "matches")
