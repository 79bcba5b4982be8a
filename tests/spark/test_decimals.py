"""DECIMAL columns, such as prices, have the values of the same digits in JSON."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from siftline import Engine
from siftline.spark import IndexDirectory, apply, compile, match, match_files, profile
from spark.directories import directory
from spark.streaming import written

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    (1, "price = 10.10"),
    (2, "price = 9.99"),
    (3, "price = 10.25"),
    (4, "price between 9.99 and 10.1"),
    (5, "price < 10"),
]
PRICES = ["10.10", "9.99", "10.25", "10.00", "-0.01"]
KIND = "decimal(10,2)"
ENTRIES = f"id bigint, event array<struct<name: string, value: {KIND}>>"
SHAPES: dict[str, tuple[str, Any, Any]] = {
    "columns": (f"id bigint, price {KIND}", None, lambda price: (price,)),
    "struct": (f"id bigint, event struct<price: {KIND}>", "event", lambda price: ((price,),)),
    "map": (f"id bigint, event map<string, {KIND}>", "event", lambda price: ({"price": price},)),
    "entries": (ENTRIES, "event", lambda price: ([("price", price)],)),
    "arrays": (f"id bigint, n array<string>, v array<{KIND}>", ("n", "v"), lambda price: (["price"], [price])),
    "JSON": ("id bigint, event string", "event", lambda price: (f'{{"price": {price}}}',)),
}


def wanted() -> list[tuple[Any, ...]]:
    """What the scan finds in the same events as JSON."""
    engine = Engine("scan")
    engine.add_many(ROWS)
    return sorted((number, id) for number, price in enumerate(PRICES) for id in engine.match(f'{{"price": {price}}}'))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    groups = ROWS[:2], ROWS[2:]
    return directory(tmp_path_factory.mktemp("index") / "index", *groups, pivots=[["price"], ["price"]])


def events(spark: Any, shape: str) -> tuple[Any, Any]:
    schema, event, cells = SHAPES[shape]
    rows = [(number, *cells(Decimal(price))) for number, price in enumerate(PRICES)]
    return spark.createDataFrame(rows, schema), event


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(spark: Any, index: str, tmp_path: Path, shape: str) -> None:
    frame, event = events(spark, shape)
    assert len(wanted()) == 8
    for plan in ("replicated", "sharded"):
        assert rows_of(match(frame, index, event=event, plan=plan)) == wanted()
    frame.write.parquet(str(tmp_path / "events"))
    match_files(tmp_path / "events", index, tmp_path / "matches", event=event)
    assert rows_of(spark.read.parquet(str(tmp_path / "matches"))) == wanted()
    statistics = profile(frame, event=event)
    assert statistics.n_events == len(PRICES)
    assert set(statistics.samples["price"]) == {-0.01, 9.99, 10, 10.1, 10.25}


def test_a_stream(spark: Any, index: str, tmp_path: Path) -> None:
    from siftline.spark import stream

    frame, _ = events(spark, "columns")
    frame.write.parquet(str(tmp_path / "events"))
    arriving = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "events"))
    writer = stream(arriving, index).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "matches"), format="parquet").awaitTermination()
    assert written(spark, tmp_path) == wanted()


def test_decimals_in_tables_of_subscriptions(spark: Any, tmp_path: Path) -> None:
    """As constants of every column, as weights, in changes, and beside rows that are refused."""
    columns = f"number {KIND}, upper {KIND}, numbers array<{KIND}>, weight {KIND}"
    schema = f"subscription int, attribute string, op string, {columns}"
    price, upper = Decimal("10.10"), Decimal("10.20")
    rows = [
        (1, "price", "=", price, None, None, Decimal("0.10")),
        (2, "price", "between", price, upper, None, None),
        (3, "price", "in", None, None, [Decimal("9.99"), price], None),
        (4, "price", "in", None, None, [Decimal("9.99")], None),
    ]
    bad = (5, "price", "between", price, None, None, None)
    for name, table in (("good", rows), ("with a bad one", [*rows, bad])):
        made = compile(spark.createDataFrame(table, schema), tmp_path / name)
        assert (made.subscriptions, made.quarantined) == (4, len(table) - 4)
        (matches,) = Engine.open(made.shard_path(0)).match_batch(['{"price": 10.1}'], weights=True).to_batches()
        assert sorted(matches.to_pydict()["subscription"]) == [1, 2, 3]
        assert sorted(matches.to_pydict()["weight"]) == [0.1, 1.0, 1.0]
    whole = "subscription int, attribute string, op string, number decimal(20,0)"
    numbers = [(1, "a", "=", Decimal(2**53 + 1)), (2, "a", "=", Decimal(2**53)), (3, "a", "=", Decimal(10**19))]
    made = compile(spark.createDataFrame(numbers, whole), tmp_path / "whole")
    assert Engine.open(made.shard_path(0)).match({"a": 2**53 + 1}) == [1]
    assert (made.subscriptions, made.quarantined) == (2, 1)
    heavy = [(9, "a = 1", Decimal("2.50"))]
    changes = spark.createDataFrame(heavy, f"subscription int, expression string, weight {KIND}")
    delta = apply(tmp_path / "whole", changes)
    assert (delta.refused, delta.changes[0][3]) == ([], 2.5)
    assert IndexDirectory.open(tmp_path / "whole").version == 1
