"""match_files: the same matches as match, from files to files, or nothing at all."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from siftline.errors import SparkError, TableError
from siftline.spark import Counts, match, match_files
from siftline.spark.files import Written, _mounted
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
        _mounted("hdfs://cluster/matches", "matches")
    with pytest.raises(SparkError, match="exists already"):
        match_files(events, index, tmp_path / "matches")
    (tmp_path / "events" / "one file.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(Exception, match=r"(?i)parquet"):
        match_files(events, index, tmp_path / "others")
    assert not (tmp_path / "others").exists()
    assert not list(tmp_path.glob(".others*"))


def test_what_killed_drivers_left_goes_away(spark: Any, index: str, tmp_path: Path) -> None:
    events = written(tmp_path / "events", ["{}", "{}"])
    names = [f".matches-{'0' * 32}", f".matches-{'1' * 32}", ".matches-kept"]
    for name in names:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, None if "1" in name else (0, 0))
    match_files(events, index, tmp_path / "matches")
    assert [(tmp_path / name).exists() for name in names] == [False, True, True]


def test_columns_that_only_folders_have(spark: Any, index: str, tmp_path: Path) -> None:
    written(tmp_path / "events", ['{"a": 1}'] * 2)
    (tmp_path / "all").mkdir()
    (tmp_path / "events").rename(tmp_path / "all" / "day=1")
    with pytest.raises(TableError, match="has no column 'day'"):
        match_files(str(tmp_path / "all"), index, tmp_path / "matches", key=["id", "day"])
