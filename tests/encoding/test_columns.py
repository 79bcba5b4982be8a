"""Columnar subscriptions mean what the same expressions mean."""

from __future__ import annotations

import datetime
import decimal
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, predicates

import siftline
from siftline import Engine, SubscriptionError
from siftline.errors import DuplicateIdError, TableError
from siftline.model import And, Expression, Now, Or, Predicate, Timestamp, text_of_instant

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema(
    [
        ("subscription", pa.int64()),
        ("clause", pa.int32()),
        ("attribute", pa.string()),
        ("op", pa.string()),
        ("number", pa.float64()),
        ("upper", pa.float64()),
        ("text", pa.string()),
        ("upper_text", pa.string()),
        ("flag", pa.bool_()),
        ("numbers", pa.list_(pa.float64())),
        ("texts", pa.list_(pa.string())),
        ("timestamp", pa.string()),
        ("upper_timestamp", pa.string()),
        ("timestamps", pa.list_(pa.string())),
    ]
)


def fits(expression: Expression) -> bool:
    """Return whether a predicate can stand in a row.

    Arrow has no lone surrogates, lists hold no booleans, timestamps stand alone, and nothing moves.
    """
    assert isinstance(expression, Predicate)
    constants = list(expression.constants())
    moments = [isinstance(value, Timestamp) for value in constants]
    if any(isinstance(value, Now) for value in constants) or any(moments) is not all(moments or [False]):
        return False
    if any(isinstance(value, str) and value.encode("utf-8", "replace").decode() != value for value in constants):
        return False
    if any(type(value) is int and float(value) != value for value in constants):
        return False
    return not (expression.op.endswith("in") and any(type(value) is bool for value in constants))


def row(subscription: int, clause: int, predicate: Predicate) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "subscription": subscription,
        "clause": clause,
        "attribute": predicate.attribute,
        "op": predicate.op,
    }
    operand = predicate.operand
    if any(isinstance(constant, Timestamp) for constant in predicate.constants()):
        cells |= moment_cells(predicate)
    elif predicate.op.removesuffix(" ignoring case") in ("in", "not in"):
        constants = list(predicate.constants())
        cells["numbers"] = [float(value) for value in constants if isinstance(value, (int, float))]
        cells["texts"] = [value for value in constants if isinstance(value, str)] or None
    elif isinstance(operand, tuple):
        names = ("text", "upper_text") if isinstance(operand[0], str) else ("number", "upper")
        cells |= dict(zip(names, map(as_cell, operand), strict=True))
    elif operand is not None:
        cells[{str: "text", bool: "flag"}.get(type(operand), "number")] = as_cell(operand)
    return cells


def moment_cells(predicate: Predicate) -> dict[str, Any]:
    texts = [text_of_instant(constant.instant) for constant in predicate.constants() if isinstance(constant, Timestamp)]
    if predicate.op in ("in", "not in"):
        return {"timestamps": texts}
    return dict(zip(("timestamp", "upper_timestamp"), texts, strict=False))


def as_cell(constant: Any) -> Any:
    return float(constant) if type(constant) is int else constant


rows_of_subscriptions = st.lists(
    st.lists(st.lists(predicates.filter(fits), min_size=1, max_size=3), min_size=1, max_size=2), min_size=1, max_size=8
)


@settings(max_examples=min(60, N_EXAMPLES))
@given(clauses=rows_of_subscriptions, trees=st.lists(events, min_size=1, max_size=3), seed=st.integers(0, 99))
def test_columns_match_as_expressions(clauses: list[list[list[Any]]], trees: list[dict[str, Any]], seed: int) -> None:
    oracle = Engine("scan")
    rows = []
    for subscription, groups in enumerate(clauses):
        oracle.add(Or([And(group) for group in groups]), id=subscription)
        rows += [row(subscription, number, predicate) for number, group in enumerate(groups) for predicate in group]
    random.Random(seed).shuffle(rows)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    for index in siftline.indexes():
        engine = Engine(index)
        engine.add("a = 17 or b > 'x'", id=1000)  # constants and labels that were there before
        assert engine.add_many(table) == len(clauses)
        engine.remove(1000)
        engine._check()
        for tree in trees:
            assert sorted(engine.match(tree)) == sorted(oracle.match(tree))


def small(**changes: Any) -> pa.Table:
    columns: dict[str, Any] = {"subscription": [1, 1, 2], "attribute": ["a", "b", "a"], "op": ["=", "<", ">="]}
    return pa.table({**columns, "number": [1.0, 2.0, 3.0], **changes})


def test_an_expression_is_put_together_again() -> None:
    engine = Engine()
    engine.add_many(small(clause=[0, 1, 0], weight=[2.0, 2.0, None]))
    assert siftline.to_text(engine.expression(1)) == "a = 1.0 or b < 2.0"
    assert engine.match({"a": 4, "b": 0}, top=2) == [1, 2]
    assert engine.explain({"a": 1}, 1).matched


def test_text_tables_and_files(tmp_path: Path) -> None:
    table = pa.table({"subscription": ["x", "y"], "expression": ["a = 1", "a = 2"], "weight": [1, None]})
    pq.write_table(table, tmp_path / "subscriptions.parquet")
    for source in (table, table.to_batches()[0], table.to_pandas(), str(tmp_path / "subscriptions.parquet")):
        engine = Engine()
        assert engine.add_many(source) == 2
        assert engine.match({"a": 2}) == ["y"]


def test_polars_and_dictionary_columns() -> None:
    import polars

    table = small(attribute=pa.array(["a", "b", "a"]).dictionary_encode())
    for source in (table, polars.from_arrow(table)):
        engine = Engine()
        engine.add_many(source)
        assert sorted(engine.match({"a": 3, "b": 9})) == [2]


def test_integers_stay_exact() -> None:
    engine = Engine()
    engine.add_many(small(number=pa.array([2**53 + 1, 2, 2**53], pa.int64()), op=["=", "<", "="]))
    assert engine.match({"a": 2**53 + 1, "b": 1}) == [1]
    assert engine.match({"a": 2**53, "b": 1}) == [2]


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (small().drop(["op"]), TableError, "no column 'op'"),
        (pa.table({"expression": ["a = 1"]}), TableError, "no column 'subscription'"),
        (small(number=["1", "2", "3"]), TableError, "'number' must be a number, not string"),
        (small(attribute=["a", None, "b"]), TableError, "'attribute' has a null"),
        (small(op=["=", "<", "~"]), SubscriptionError, "unknown operator '~'"),
        (small(number=[1.0, None, 2.0]), SubscriptionError, "subscription 1, attribute 'b': '<' needs a constant"),
        (small(number=[1.0, float("nan"), 2.0]), SubscriptionError, "finite"),
        (small(upper=[1.0, None, None]), SubscriptionError, "'=' does not take the column 'upper'"),
        (small(op=["=", "<", "between"]), SubscriptionError, "upper bound"),
        (small(weight=[1.0, 2.0, 1.0]), SubscriptionError, "weight must be one finite number"),
        (small(subscription=[1.5, 1.5, 2.0]), TableError, "'subscription' must be an integer or a string"),
        (small(text=["x", None, None]), SubscriptionError, "one of the columns"),
    ],
)
def test_bad_tables_are_refused_as_a_whole(table: pa.Table, error: type[Exception], message: str) -> None:
    engine = Engine()
    engine.add("a = 1", id=9)
    with pytest.raises(error, match=message):
        engine.add_many(table)
    assert engine.ids() == [9]
    assert engine.match({"a": 1}) == [9]
    engine._check()


def test_duplicate_ids_are_refused() -> None:
    engine = Engine()
    engine.add("a = 1", id=2)
    with pytest.raises(DuplicateIdError, match="2"):
        engine.add_many(small())
    assert len(engine) == 1


def test_many_rows_by_columns_equal_the_scan() -> None:
    chance = np.random.default_rng(3)
    n = 2000
    table = pa.table(
        {
            "subscription": np.repeat(np.arange(n // 2), 2),
            "attribute": pa.array([f"a{i}" for i in chance.integers(0, 5, n)]),
            "op": pa.array(chance.choice(["=", "!=", "<", "<=", ">", ">=", "between", "in"], n)),
            "number": chance.integers(0, 9, n),
        }
    )
    ops = table["op"].to_pylist()
    uppers = [int(chance.integers(0, 9)) if op == "between" else None for op in ops]
    lists = [chance.integers(0, 9, 3).tolist() if op == "in" else None for op in ops]
    plain = [None if op == "in" else number for op, number in zip(ops, table["number"].to_pylist(), strict=True)]
    table = table.drop(["number"]).append_column("number", pa.array(plain, pa.int64()))
    table = table.append_column("upper", pa.array(uppers, pa.int64())).append_column("numbers", pa.array(lists))
    oracle, engine = Engine("scan"), Engine("fast-scan")
    oracle.add_many(table)
    engine.add_many(table)
    for _ in range(20):
        event = {f"a{i}": int(chance.integers(0, 9)) for i in range(5)}
        assert sorted(engine.match(event)) == sorted(oracle.match(event))
        assert engine.match(event)


def test_decimals_in_a_table_of_subscriptions() -> None:
    """A decimal constant is the double that the same digits are in text; of scale 0 it is an integer."""
    cents = pa.decimal128(10, 2)
    prices = pa.array([decimal.Decimal(text) for text in ("19.99", "0.07", "20.00")], cents)
    table = pa.table(
        {
            "subscription": [1, 2, 3, 4],
            "attribute": ["price"] * 4,
            "op": ["=", "between", ">=", "in"],
            "number": pa.array([*prices.to_pylist(), None], cents),
            "upper": pa.array([None, decimal.Decimal("0.29"), None, None], cents),
            "numbers": pa.array([None, None, None, prices.to_pylist()], pa.list_(cents)),
        }
    )
    engine = Engine()
    engine.add_many(table.slice(0, 3))
    engine.add_many(table.slice(3))
    assert engine.expression(4) == siftline.parse("price in (19.99, 0.07, 20.0)")
    found = {price: sorted(engine.match({"price": price})) for price in (19.99, 0.07, 0.29, 20, 20.01)}
    assert found == {19.99: [1, 4], 0.07: [2, 4], 0.29: [2], 20: [3, 4], 20.01: [3]}


def test_whole_decimals_in_a_table_of_subscriptions() -> None:
    table = pa.table({"subscription": [1], "attribute": ["n"], "op": ["="]})
    whole = pa.array([decimal.Decimal(2**53 + 1)], pa.decimal128(38, 0))
    engine = Engine()
    engine.add_many(table.append_column("number", whole))
    assert engine.match({"n": 2**53 + 1}) == [1]
    assert engine.match({"n": 2**53}) == []
    with pytest.raises(TableError, match="column 'number'"):
        engine.add_many(table.append_column("number", pa.array([decimal.Decimal(2**70)], pa.decimal128(38, 0))))


def test_timestamps_in_a_table_of_subscriptions(tmp_path: Path) -> None:
    """As Arrow timestamps of any unit and zone, or as text; kept in snapshots like everything else."""
    at = [datetime.datetime(2026, 1, day, 10) for day in (1, 2, 3)]
    columns = {
        "subscription": [1, 2, 3, 4],
        "attribute": ["at"] * 4,
        "op": ["=", "between", "in", "<"],
        "timestamp": pa.array([at[0], at[1], None, at[2]], pa.timestamp("us")),
        "upper_timestamp": pa.array([None, at[2], None, None], pa.timestamp("ms", "Asia/Tokyo")),
        "timestamps": pa.array([None, None, [at[0], at[2]], None], pa.list_(pa.timestamp("s"))),
    }
    engine = Engine()
    engine.add_many(pa.table(columns))
    engine.save(tmp_path / "saved")
    texts = [None if moment is None else f"{moment}+00:00" for moment in (at[0], at[1], None, at[2])]
    written = Engine()
    written.add_many(pa.table(columns | {"timestamp": texts}))
    parsed = Engine("scan")
    parsed.add_many(
        [
            (1, "at = timestamp '2026-01-01T10:00Z'"),
            (2, "at between timestamp '2026-01-02T10:00Z' and timestamp '2026-01-03T10:00Z'"),
            (3, "at in (timestamp '2026-01-01T10:00Z', timestamp '2026-01-03T10:00Z')"),
            (4, "at < timestamp '2026-01-03T10:00Z'"),
        ]
    )
    assert [engine.expression(id) for id in (1, 2, 3, 4)] == [parsed.expression(id) for id in (1, 2, 3, 4)]
    for day in range(1, 5):
        event = {"at": f"2026-01-0{day}T12:00:00+02:00"}
        for each in (engine, written, Engine.open(tmp_path / "saved")):
            assert sorted(each.match(event)) == sorted(parsed.match(event))


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"op": ["="], "timestamp": ["tomorrow"]}, "'tomorrow' is not a timestamp"),
        ({"op": ["like"], "timestamp": ["2026-01-31"]}, "'like' needs a string, not a timestamp"),
        ({"op": ["="], "timestamp": ["2026-01-31"], "number": [5]}, "in one of the columns"),
        ({"op": ["between"], "timestamp": ["2026-01-31"], "upper": [5]}, "'upper_timestamp'"),
        ({"op": ["in"], "timestamps": [["2026-01-31"]], "texts": [["x"]]}, "does not take the column 'texts'"),
        ({"op": ["in"], "timestamps": [["2026-01-31", None]]}, "null cannot be compared"),
    ],
)
def test_timestamps_that_are_refused(cells: dict[str, Any], reason: str) -> None:
    with pytest.raises(SubscriptionError, match=reason):
        Engine().add_many(pa.table({"subscription": [1], "attribute": ["at"], **cells}))


def test_timestamps_of_other_types_are_refused() -> None:
    table = pa.table({"subscription": [1], "attribute": ["at"], "op": ["="]})
    with pytest.raises(TableError, match="column 'timestamp' must be a timestamp, not int64"):
        Engine().add_many(table.append_column("timestamp", [[5]]))
    with pytest.raises(TableError, match="outside the years 1 to 9999"):
        Engine().add_many(table.append_column("timestamp", pa.array([2**62], pa.timestamp("us"))))
