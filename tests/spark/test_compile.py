"""Tables of subscriptions to index directories, by Spark."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from siftline import Engine, Statistics
from siftline.errors import SnapshotError, SparkError, StorageError, TableError
from siftline.model import Event
from siftline.spark import IndexDirectory, apply, compact, compile, match
from siftline.spark.directory.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Mapping

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "cases.json").read_text(encoding="utf-8"))
EXPECTED = {number for number, case in enumerate(CASES) if case["expected"]}


@lru_cache
def opened(path: Path) -> Engine:
    return Engine.open(path)


def found(index: IndexDirectory, event: Mapping[str, Any]) -> set[int | str]:
    """Match an event with the shards that it visits."""
    leaves = Event(event).leaves
    has_value = {path for path, values in leaves.items() if any(value is not None for value in values)}
    visited = [n for n, shard in enumerate(index.shards) if shard.is_always or has_value & set(shard.pivots)]
    results = [opened(index.shard_path(number)).match(event) for number in visited]
    ids = [id for result in results for id in result]
    assert len(set(ids)) == len(ids)
    return set(ids)


def quarantine(spark: Any, index: IndexDirectory) -> dict[Any, Any]:
    rows = spark.read.parquet(str(index.quarantine_path)).collect()
    assert len(rows) == index.quarantined
    return {row.subscription: row for row in rows}


@pytest.mark.parametrize("shards", [1, 3])
def test_the_cases(spark: Any, tmp_path: Path, shards: int) -> None:
    rows = [(number, case["subscription"]) for number, case in enumerate(CASES)]
    index = compile(spark.createDataFrame(rows, "subscription int, expression string"), tmp_path, shards=shards)
    assert (index.subscriptions, index.quarantined, len(index.shards)) == (len(CASES), 0, shards)
    matched = {number for number, case in enumerate(CASES) if number in found(index, case["event"])}
    assert [CASES[n]["name"] for n in sorted(matched)] == [CASES[n]["name"] for n in sorted(EXPECTED)]


def test_all_languages_in_one_table(spark: Any, tmp_path: Path) -> None:
    rows = [
        ("text", "a = 1", 3.0),
        ("pattern", ' {"a": [1, 2]}', None),
        ("filters", '[{"exact": {"b": "x"}}]', 2.0),
    ]
    table = spark.createDataFrame(rows, "subscription string, expression string, weight double")
    index = compile(table, tmp_path)
    assert index.id_type == "string"
    assert found(index, {"a": 1, "b": "x"}) == {"text", "pattern", "filters"}
    engine = Engine.open(index.shard_path(0))
    assert engine.match({"a": 1, "b": "x"}, top=2) == ["text", "filters"]


def test_the_column_or_the_option_names_the_language(spark: Any, tmp_path: Path) -> None:
    rows = [(1, '{"a": ["x"]}')]
    by_column = compile(spark.createDataFrame(rows, "id int, pattern string"), tmp_path / "column")
    by_option = compile(spark.createDataFrame(rows, "id int, expression string"), tmp_path / "option", language="sns")
    assert found(by_column, {"a": "x"}) == found(by_option, {"a": "x"}) == {1}


def test_sigma_rules_stand_in_a_column_of_their_own(spark: Any, tmp_path: Path) -> None:
    rule = "title: t\nlogsource: {{product: test}}\ndetection:\n  s: {{{}}}\n  condition: s\n"
    rows = [("good", rule.format("EventID: 5")), ("bad", rule.format("EventID|frobs: 5"))]
    index = compile(spark.createDataFrame(rows, "subscription string, sigma string"), tmp_path)
    assert found(index, {"EventID": 5}) == found(index, {"EventID": "5"}) == {"good"}
    refused = quarantine(spark, index)["bad"]
    assert (refused.reason, refused.line) == ("Unknown modifier 'frobs'", 4)


def test_bad_subscriptions_are_quarantined_with_reason_and_place(spark: Any, tmp_path: Path) -> None:
    rows = [
        (1, "a = 1", 1.0),
        (2, "a = 1 and\nb betwen 1 and 2", 1.0),
        (3, None, 1.0),
        (4, "a = 1", float("nan")),
        (None, "a = 1", 1.0),
        (5, '{"a": [{"prefixx": "x"}]}', 1.0),
        (6, "is_near('Bronx')", 1.0),
    ]
    table = spark.createDataFrame(rows, "subscription bigint, expression string, weight double")
    index = compile(table, tmp_path)
    assert (index.subscriptions, index.quarantined) == (1, 6)
    assert found(index, {"a": 1}) == {1}
    bad = quarantine(spark, index)
    assert set(bad) == {2, 3, 4, None, 5, 6}
    assert (bad[2].line, bad[2].column, bad[2].hint) == (2, 3, "did you mean 'between'?")
    assert bad[2].expression == rows[1][1]
    assert bad[2].reason.startswith("expected an operator")
    assert bad[5].path == "a[0]"
    assert (bad[3].reason, bad[None].reason) == ("the expression is null", "the id is null")


@pytest.mark.parametrize("shards", [1, 2])
def test_attributes_that_columns_cannot_hold(spark: Any, tmp_path: Path, shards: int) -> None:
    rows = [
        (1, r'{"\ud800": [1]}'),
        (2, r'{"\ud800": [{"exists": false}]}'),
        (3, r'{"a": {"\ud800": ["x", null]}}'),
        (4, r'{"\ud800": [{"prefixx": "x"}]}'),
        (5, r'{"a": ["\ud800"]}'),
        (6, r'{"\u00e4": [1]}'),
    ]
    index = compile(spark.createDataFrame(rows, "subscription int, expression string"), tmp_path, shards=shards)
    assert (index.subscriptions, index.quarantined) == (2, 4)
    assert found(index, {"a": "\ud800", "ä": 1}) == {5, 6}
    bad = quarantine(spark, index)
    assert all("surrogate" in bad[id].reason for id in (1, 2, 3))
    assert bad[4].path == r"\ud800[0]"


def test_of_several_with_one_id_the_first_good_one_by_expression_is_taken(spark: Any, tmp_path: Path) -> None:
    rows = [(1, "b = 1"), (2, "c = 1"), (1, "a = 1"), (1, "a = 1"), (1, "(((")]
    for number, order in enumerate((rows, rows[::-1])):
        table = spark.createDataFrame(order, "subscription bigint, expression string")
        index = compile(table, tmp_path / str(number))
        assert (index.subscriptions, index.quarantined) == (2, 3)
        assert found(index, {"a": 1, "b": 1, "c": 1}) == {1, 2}
        assert found(index, {"a": 1}) == {1}
        refused = spark.read.parquet(str(index.quarantine_path)).collect()
        assert sorted(row.expression for row in refused) == ["(((", "a = 1", "b = 1"]
        assert sum(row.reason.startswith("another subscription has this id") for row in refused) == 2


def test_rows_of_predicates(spark: Any, tmp_path: Path) -> None:
    schema = (
        "subscription int, clause int, attribute string, op string, number double, upper double, text string, "
        "texts array<string>, weight float"
    )
    rows = [
        (1, 0, "price", "<=", 580.0, None, None, None, 2.0),
        (2, 1, "price", "between", 5.0, 6.0, None, None, None),
        (1, 0, "brand", "=", None, None, "acme", None, 2.0),
        (2, 0, "brand", "in", None, None, None, ["x", "y"], None),
        (3, 0, "price", "between", 5.0, None, None, None, None),
        (4, 0, None, "=", 5.0, None, None, None, None),
        (5, 0, "price", "~", 5.0, None, None, None, None),
        (6, 0, "a", "=", 5.0, None, None, None, 1.0),
        (6, 0, "b", "=", 5.0, None, None, None, 2.0),
        (None, 0, "b", "=", 5.0, None, None, None, 2.0),
    ]
    index = compile(spark.createDataFrame(rows, schema), tmp_path, shards=2)
    assert (index.subscriptions, index.quarantined) == (2, 5)
    assert found(index, {"price": 5.5, "brand": "acme"}) == {1, 2}
    assert found(index, {"brand": "y"}) == {2}
    bad = quarantine(spark, index)
    assert set(bad) == {3, 4, 5, 6, None}
    assert bad[3].reason == "'between' needs its upper bound in the column 'upper'"
    assert bad[3].path == "price"
    assert bad[4].reason == "column 'attribute' is null"


def test_operators_of_predicates_may_be_spelled_freely(spark: Any, tmp_path: Path) -> None:
    rows = [(1, "a", "IS  NULL", None), (2, "b", "=", 1.0), (3, "c", "Exists", None)]
    table = spark.createDataFrame(rows, "subscription int, attribute string, op string, number double")
    index = compile(table, tmp_path, shards=3)
    assert found(index, {}) == {1}
    assert found(index, {"a": 1, "c": None}) == {3}


def test_statistics_choose_pivots_and_stay_with_the_index(spark: Any, tmp_path: Path) -> None:
    rows = [(number, f"common = 1 and rare = {number}") for number in range(50)]
    rows += [(number, "common = 1") for number in range(50, 100)]
    statistics = Statistics.from_events([{"common": 1}] * 9 + [{"common": 1, "rare": 1}])
    table = spark.createDataFrame(rows, "subscription int, expression string")
    index = compile(table, tmp_path, statistics, 2)
    assert [(shard.pivots, shard.subscriptions) for shard in index.shards] == [(("common",), 50), (("rare",), 50)]
    read = IndexDirectory.open(tmp_path).statistics
    assert read is not None
    assert read.counts == statistics.counts


def test_no_subscriptions(spark: Any, tmp_path: Path) -> None:
    index = compile(spark.createDataFrame([], "subscription int, expression string"), tmp_path)
    assert (index.subscriptions, index.quarantined) == (0, 0)
    assert found(index, {"a": 1}) == set()


def test_another_compilation_in_the_same_directory(spark: Any, tmp_path: Path) -> None:
    table = spark.createDataFrame([(1, "a = 1")], "subscription int, expression string")
    with Draft(tmp_path), pytest.raises(SparkError, match="something else is being compiled"):
        compile(table, tmp_path)
    assert compile(table, tmp_path).version == 1


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("name string, expression string", "no column 'subscription'"),
        ("subscription double, expression string", "must be an integer or a string, not double"),
        ("subscription int, expression int", "'expression' is int"),
        ("subscription int, value int", "neither 'expression' nor 'attribute'"),
        ("subscription int, expression string, weight string", "'weight' must be a number"),
        ("subscription int, attribute string, op string, number string", "'number' must hold numbers"),
    ],
)
def test_a_table_that_is_none_of_subscriptions(spark: Any, tmp_path: Path, schema: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        compile(spark.createDataFrame([], schema), tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_bad_options(spark: Any, tmp_path: Path) -> None:
    table = spark.createDataFrame([], "subscription int, expression string")
    with pytest.raises(ValueError, match="shards"):
        compile(table, tmp_path, shards=0)
    with pytest.raises(ValueError, match="unknown language"):
        compile(table, tmp_path, language="sql")


def test_changes_that_the_table_lacks(spark: Any, tmp_path: Path) -> None:
    """They are kept, or dropped, as the caller says; if he says nothing, nothing happens."""
    table = spark.createDataFrame([(1, "a = 1")], "subscription int, expression string")
    frame = spark.createDataFrame([(0, '{"a": 1}')], "id bigint, event string")

    def found() -> set[int]:
        return {row.subscription for row in match(frame, str(tmp_path)).collect()}

    compile(table, tmp_path)
    apply(tmp_path, [{"subscription": 2, "expression": "a = 1"}], source="shop", sequence=7)
    with pytest.raises(SparkError, match=r"deltas 1 to 1.*changes='keep'.*changes='drop'"):
        compile(table, tmp_path)
    assert IndexDirectory.open(tmp_path).version == 1
    assert compile(table, tmp_path, changes="keep").version == 2
    assert found() == {1, 2}
    assert apply(tmp_path, [{"subscription": 3, "expression": "a = 1"}], source="shop", sequence=7).changes == []
    apply(tmp_path, [{"subscription": 3, "expression": "a = 1"}])
    compact(tmp_path)
    for changes in (None, "keep"):
        with pytest.raises(SparkError, match=r"changes='drop'"):
            compile(table, tmp_path, changes=changes)
    assert found() == {1, 2, 3}
    compile(table, tmp_path, changes="drop")
    assert found() == {1}
    assert apply(tmp_path, [], source="shop", sequence=7).number == 2  # where its sources are is not forgotten
    apply(tmp_path, [], source="shop", sequence=8)  # a delta without changes
    assert compile(table, tmp_path).version == 5
    compact(tmp_path)
    compile(table, tmp_path)
    with pytest.raises(ValueError, match="changes must be"):
        compile(table, tmp_path, changes="merge")


def test_so_many_may_be_refused_and_no_more(spark: Any, tmp_path: Path) -> None:
    rows = [(1, "a = 1"), (2, "a ="), (3, "a = 3"), (3, "a = 4")]
    table = spark.createDataFrame(rows, "subscription int, expression string")
    for limit in (1, 0.49):
        with pytest.raises(SparkError, match=rf"2 of 4 .* were refused, more than fail_above={limit} .*: expected"):
            compile(table, tmp_path / "index", fail_above=limit)
    with pytest.raises(SnapshotError):
        IndexDirectory.open(tmp_path / "index")
    for version, limit in ((1, 2), (2, 0.5)):
        made = compile(table, tmp_path / "index", fail_above=limit)
        assert (made.version, made.quarantined) == (version, 2)


def test_an_index_that_cannot_be_written_is_named(spark: Any, tmp_path: Path) -> None:
    table = spark.createDataFrame([(1, "a = 1")], "subscription int, expression string")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=rf"{tmp_path}/file/index cannot be written: Not a directory"):
        compile(table, tmp_path / "file" / "index")
