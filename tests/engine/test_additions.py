"""Adding many subscriptions: rows, tables and files, all or none, or everything that is good."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from siftline import Engine
from siftline.engine.additions import Added, Refused
from siftline.errors import DuplicateIdError, FileError, SubscriptionError, TableError

if TYPE_CHECKING:
    from pathlib import Path

INDEXES = ["sift", "pb-tree", "scan"]

GOOD = [(1, "a = 1"), (2, "a > 0"), (3, "b = 'x'")]
# id, expression, weight, tenant
BAD: list[tuple[Any, ...]] = [
    (1, "a = 1"),
    (2, "a == 2"),
    (3, "a = 3", float("nan")),
    (1, "a = 4"),
    ("four", "a = 4"),
    (5, 5),
    (True, "a = 6"),
    (7, "a = 7", 1.0, 7),
    (8,),
    (2**63, "a = 9"),
    (10, "a = 1", 2.0, "acme"),
]
GOOD_IDS = [1, 10]


def compressed(data: bytes, codec: str | None) -> bytes:
    if codec is None:
        return data
    if codec == "gz":
        return gzip.compress(data)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def csv_text(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


# collecting


@pytest.mark.parametrize("index", INDEXES)
def test_everything_good_is_added_and_everything_else_is_told(index: str) -> None:
    engine = Engine(index)
    added = engine.add_many(iter(BAD), on_error="collect")
    assert added == 2
    assert sorted(engine.ids()) == GOOD_IDS
    assert [refused.position for refused in added.refused] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [refused.id for refused in added.refused] == [2, 3, 1, "four", 5, True, 7, None, 2**63]
    reasons = [refused.reason for refused in added.refused]
    assert "column 3: expected an operator after 'a', found '=='" in reasons[0]
    assert added.refused[0].hint == "write ="
    assert reasons[2] == "the id 1 is already in use"
    assert "of another type" in reasons[3]
    assert "tenant" in reasons[6]
    assert "64 bits" in reasons[8]
    assert sorted(engine.match({"a": 1})) == GOOD_IDS
    assert engine.match({"a": 1}, tenant="acme") == [10]
    engine._check()


@pytest.mark.parametrize("index", INDEXES)
def test_what_the_engine_has_is_in_use(index: str) -> None:
    engine = Engine(index)
    engine.add("a = 1", id=2)
    added = engine.add_many(GOOD, on_error="collect")
    assert (added, [refused.id for refused in added.refused]) == (2, [2])
    text = engine.add_many([("ann", "a = 1")], on_error="collect")
    assert (text, len(text.refused)) == (0, 1)


def test_without_collecting_it_is_all_or_none() -> None:
    engine = Engine()
    with pytest.raises(SubscriptionError, match=r"subscription 2: expected an operator") as error:
        engine.add_many(BAD)
    assert error.value.hint == "write ="
    with pytest.raises(DuplicateIdError):
        engine.add_many([*GOOD, (1, "a = 9")])
    assert len(engine) == 0
    with pytest.raises(ValueError, match="'raise' or 'collect'"):
        engine.add_many(GOOD, on_error="ignore")  # type: ignore[arg-type]


def test_what_is_returned_is_a_number() -> None:
    added = Engine().add_many(GOOD)
    assert isinstance(added, int)
    assert (added, repr(added), str(added), added + 1, added.refused) == (3, "3", "3", 4, ())
    collected = Added(2, [Refused(0, "ann", "why")])
    assert repr(collected) == "<2 added, 1 refused>"
    copy = pickle.loads(pickle.dumps(collected))
    assert (copy, copy.refused) == (2, collected.refused)


# tables


TABLE: dict[str, list[Any]] = {
    "subscription": [1, 2, 3, 1],
    "expression": ["a = 1", "a ==", None, "a = 2"],
    "weight": [1.0, None, 2.0, 3.0],
    "tenant": ["acme", None, None, None],
}


@pytest.mark.parametrize("made", [pa.table, pd.DataFrame], ids=["arrow", "pandas"])
@pytest.mark.parametrize("id_name", ["subscription", "id"])
def test_tables_of_texts(made: Any, id_name: str) -> None:
    engine = Engine()
    table = made({id_name if name == "subscription" else name: column for name, column in TABLE.items()})
    added = engine.add_many(table, on_error="collect")
    assert (added, [(each.position, each.id) for each in added.refused]) == (1, [(1, 2), (2, 3), (3, 1)])
    assert engine.match({"a": 1}, tenant="acme") == [1]


PREDICATES: dict[str, list[Any]] = {
    "subscription": [7, 7, 8, 9, 9],
    "attribute": ["a", "b", "a", "a", "b"],
    "op": ["=", "=", "almost", "=", ">"],
    "number": [1.0, 2.0, 3.0, 1.0, 0.0],
    "tenant": ["acme", "acme", None, None, None],
}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("id_name", ["subscription", "id"])
@pytest.mark.parametrize("is_file", [False, True])
def test_tables_of_predicates(index: str, id_name: str, is_file: bool, tmp_path: Path) -> None:
    source: Any = pa.table({id_name if name == "subscription" else name: c for name, c in PREDICATES.items()})
    if is_file:
        pq.write_table(source, tmp_path / "rules.parquet")
        source = tmp_path / "rules.parquet"
    engine = Engine(index)
    engine.add("a = 5", id=9)
    with pytest.raises((SubscriptionError, DuplicateIdError)):
        engine.add_many(source)
    added = engine.add_many(source, on_error="collect", tenant="rest")
    assert (added, [(each.position, each.id) for each in added.refused]) == (1, [(2, 8), (3, 9)])
    assert engine.match({"a": 1, "b": 2}, tenant="acme") == [7]
    engine.remove(9)
    good = source if is_file else source.filter(pa.compute.not_equal(source["number"], 3.0))
    engine.remove(7)
    assert engine.add_many(good, tenant="rest", on_error="collect") == 2
    assert engine.match({"a": 1, "b": 2}, tenant="rest") == [9]


def test_tables_that_cannot_be_read_at_all() -> None:
    with pytest.raises(TableError, match="both 'subscription' and 'id'"):
        Engine().add_many(pa.table({"subscription": [1], "id": [1], "expression": ["a = 1"]}), on_error="collect")
    with pytest.raises(TableError, match=r"no column 'subscription' \(or 'id'\)"):
        Engine().add_many(pa.table({"name": [1], "expression": ["a = 1"]}))


def test_rows_may_be_mappings() -> None:
    engine = Engine()
    rows: list[Any] = [
        {"id": 1, "expression": "a = 1", "tenant": "acme"},
        {"subscription": np.int64(2), "pattern": {"a": [{"numeric": [">", 0]}]}, "weight": 2},
        {"id": 3, "filters": [{"exact": {"type": "x"}}]},
        {"id": 4, "expresion": "a = 1"},
        {"id": 5, "subscription": 5, "expression": "a = 1"},
    ]
    added = engine.add_many(rows, on_error="collect")
    assert (added, [each.position for each in added.refused]) == (3, [3, 4])
    assert "did you mean 'expression'" in added.refused[0].reason
    assert engine.match({"a": 1}, top=2) == [2, 1]
    assert engine.match({"type": "x"}) == [3]


def test_a_dict_from_ids_to_expressions() -> None:
    engine = Engine()
    assert engine.add_many({"ann": "a = 1", "bob": "a > 5"}) == 2
    assert engine.match({"a": 1}) == ["ann"]


@pytest.mark.parametrize(
    ("source", "error", "way"),
    [
        (["a = 1"], SubscriptionError, "add_many(enumerate(expressions))"),
        ("price < 5", FileError, "`add` takes one expression"),
        (pa.table({"id": [1], "rule": ["a = 1"]}), TableError, "it has id, rule"),
        ([(1, {"a": [1]})], SubscriptionError, "parse_pattern"),
        ([(1, [{"exact": {"a": "x"}}])], SubscriptionError, "parse_filters"),
        ([(1, b"a = 1")], SubscriptionError, "decode"),
    ],
    ids=str,
)
def test_mistakes_are_told_the_way_out(source: Any, error: type[Exception], way: str) -> None:
    with pytest.raises(error) as raised:
        Engine().add_many(source)
    assert way in str(raised.value)


def test_ids_that_stand_for_plain_ones() -> None:
    ann = UUID("550e8400-e29b-41d4-a716-446655440000")
    engine = Engine()
    assert engine.add_many([(ann, "a = 1"), (str(ann), "a = 2")], on_error="collect").refused[0].position == 1
    assert ann in engine


# files


ROWS = [{"id": f"n{i}", "expression": f"a = {i}", "weight": 2, "tenant": "acme" if i else ""} for i in range(3)]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("codec", [None, "gz", "zst"])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt", "parquet"])
def test_files(index: str, kind: str, codec: str | None, tmp_path: Path) -> None:
    path = tmp_path / (f"rules.{kind}.{codec}" if codec else f"rules.{kind}")
    if kind == "parquet":
        if codec:
            return
        pq.write_table(pa.table({name: [row[name] for row in ROWS] for name in ROWS[0]}), path)
    else:
        text = b"a = 0\n\n-- a remark\na = 1\na = 2\n"
        data = {"jsonl": json_lines(ROWS), "csv": csv_text(ROWS), "txt": text}[kind]
        path.write_bytes(compressed(data, codec))
    for source in (path, str(path)):
        engine = Engine(index)
        assert engine.add_many(source, tenant="rest") == 3
        found = engine.match({"a": 1})
        assert found == ([4] if kind == "txt" else ["n1"])
        assert engine.match({"a": 1}, tenant="rest" if kind == "txt" else "acme") == found
        assert engine.weight(found[0]) == (1.0 if kind == "txt" else 2.0)


def test_problems_of_a_file_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "rules.jsonl"
    path.write_bytes(b'{"id": 1, "expression": "a = 1"}\n\n{"id": 2, "expression": "a == 1"}\n{"id": 1}\nnonsense\n')
    engine = Engine()
    with pytest.raises(SubscriptionError, match=r"rules.jsonl:3:28: subscription 2: expected an operator") as error:
        engine.add_many(path)
    assert error.value.hint == "write ="
    assert len(engine) == 0
    added = engine.add_many(path, on_error="collect")
    assert (added, engine.ids()) == (1, [1])
    assert [(each.position, each.line, each.id) for each in added.refused] == [(1, 3, 2), (2, 4, None), (3, 5, None)]
    assert added.refused[0].hint == "write ="
    again = engine.add_many(path, on_error="collect")
    assert again.refused[0][:2] == (0, 1)
    assert again.refused[0].line == 1


def test_numbers_in_a_csv_file_are_text_where_ids_are(tmp_path: Path) -> None:
    path = tmp_path / "rules.csv"
    path.write_text("id,expression\n7,a = 1\n8,a = 2\n")
    for on_error in ("raise", "collect"):
        engine = Engine()
        engine.add("a = 1", id="ann")
        assert engine.add_many(path, on_error=on_error) == 2
        assert sorted(engine.ids()) == ["7", "8", "ann"]
    numbers = Engine()
    numbers.add_many(path)
    assert numbers.ids() == [7, 8]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("rules.xlsx", b"", "is not supported here"),
        ("rules.jsonl.gz", b'{"id": 1}\n', "not compressed"),
        ("rules.jsonl.gz", gzip.compress(json_lines(ROWS))[:-12], "cannot be unpacked"),
        ("rules.jsonl.zst", compressed(json_lines(ROWS) * 999, "zst")[:-12], "cannot be unpacked"),
        ("rules.parquet.gz", b"", "compressed inside"),
        ("rules.jsonl", b'[{"id": 1}]', "JSON array"),
        ("rules.csv", b"name,condition\n1,2\n", "expected the columns"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_that_cannot_be_read_at_all(name: str, data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    for on_error in ("raise", "collect"):
        with pytest.raises(FileError, match=reason) as error:
            Engine().add_many(tmp_path / name, on_error=on_error)
        assert name in str(error.value)
    with pytest.raises(FileNotFoundError):
        Engine().add_many(tmp_path / "missing.jsonl")
