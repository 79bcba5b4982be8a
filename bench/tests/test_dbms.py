"""Matching by SQL: both databases, both plans, against the oracle; and what stands in the tables."""

from __future__ import annotations

import builtins
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, subscriptions

from siftline import Engine
from siftline.errors import SiftlineError, UnknownIndexError
from siftline_bench.dbms.predicates import EQ, LT, NE, NUMBER, STRING

if TYPE_CHECKING:
    from pathlib import Path

    from siftline.model import Expression

COMBINATIONS: list[dict[str, Any]] = [
    {"engine": engine, "plan": plan} for engine in ("duckdb", "sqlite") for plan in ("grouping", "sequential")
]
every_way = pytest.mark.parametrize("options", COMBINATIONS, ids=lambda options: "-".join(options.values()))


def tables(engine: Engine) -> dict[str, dict[str, list[Any]]]:
    return engine._state.index._database.dump()  # type: ignore[attr-defined,no-any-return]


@every_way
@settings(max_examples=30)
@given(expressions=st.lists(subscriptions, min_size=1, max_size=12), trees=st.lists(events, min_size=1, max_size=4))
def test_ids_equal_those_of_scan(
    options: dict[str, Any], expressions: list[Expression], trees: list[dict[str, Any]]
) -> None:
    oracle, engine = Engine("scan"), Engine("dbms", **options)
    half = len(expressions) // 2
    oracle.add_many(enumerate(expressions))
    engine.add_many(enumerate(expressions[:half]))
    engine.add_many(enumerate(expressions[half:], half))
    for tree in trees:
        assert sorted(engine.match(tree)) == sorted(oracle.match(tree))
    engine._check()
    copy = pickle.loads(pickle.dumps(engine))
    copy._check()
    assert sorted(copy.match(trees[0])) == sorted(oracle.match(trees[0]))


@every_way
def test_the_worked_example(options: dict[str, Any]) -> None:
    engine = Engine("dbms", **options)
    engine.add_many([(1, "price < 580 and brand = 'x'"), (2, "price < 580 and year in (2019, 2020)")])
    assert engine.match({"price": 550, "year": 2020}) == [2]
    assert engine.match({"price": [550, 1], "year": [2019, 2020]}) == [2]
    assert sorted(engine.match({"price": 579.5, "year": 2019, "brand": "x"})) == [1, 2]
    found = tables(engine)
    n_distinct = {"grouping": 4, "sequential": 5}[options["plan"]]
    rows = found["preds" if options["plan"] == "grouping" else "subs"]
    assert len(rows["pid"]) == n_distinct
    assert {
        (kind, op, number or text)
        for kind, op, number, text in zip(rows["kind"], rows["op"], rows["number"], rows["text"], strict=True)
    } == {(NUMBER, LT, 580.0), (STRING, EQ, b"x"), (NUMBER, EQ, 2019.0), (NUMBER, EQ, 2020.0)}
    if options["plan"] == "grouping":
        assert found["subs"] == {"sid": [0, 1], "cnt": [2, 2]}
        assert len(found["subs_preds"]["sid"]) == 4


def test_predicates_are_shared_between_batches() -> None:
    engine = Engine("dbms")
    for id in range(5):
        engine.add(f"a != 5 and b = {id}", id=id)
    found = tables(engine)
    assert found["preds"]["op"].count(NE) == 1
    assert len(found["preds"]["pid"]) == 6
    assert engine.stats()["distinct_predicates"] == 6
    assert "6 different predicates in 6 rows" in engine.describe()


@every_way
def test_numbers_and_strings_compare_exactly(options: dict[str, Any]) -> None:
    texts = [
        "a = 9007199254740993",
        "a > 9007199254740992",
        "a < 9007199254740993",
        "a between 9007199254740993 and 9007199254740995",
        "a != 9007199254740993",
        "a >= 1e300",
        "s > 'z'",
        "s = 'a\ud800'",
        "s starts with 'a\0'",
    ]
    engine, oracle = Engine("dbms", **options), Engine("scan")
    values: list[Any] = [2**53, 2**53 + 1, 2**53 + 2, 2.0**53, 10**400, -(10**400), 2**63, -0.0]
    values += ["a\ud800", "a\0b", "\U0001f600", "z", "zz"]
    for each in (engine, oracle):
        each.add_many(enumerate(texts))
    for value in [*values, values[:4], values]:
        for event in ({"a": value}, {"s": value}):
            assert sorted(engine.match(event)) == sorted(oracle.match(event)), event


@every_way
def test_vetoes_and_what_every_event_matches(options: dict[str, Any], tmp_path: Path) -> None:
    engine = Engine("dbms", **options)
    engine.add_many([(1, "a is null"), (2, "not (a = 1) and b > 0"), (3, "a is null or b = 5"), (4, "true")])
    assert sorted(engine.match({})) == [1, 3, 4]
    assert sorted(engine.match({"a": 1, "b": 1})) == [4]
    assert sorted(engine.match({"a": [2, 1], "b": 1})) == [4]
    assert sorted(engine.match({"a": 2, "b": 5})) == [2, 3, 4]
    engine.remove(4)
    engine.save(tmp_path / "saved")
    again = Engine.open(tmp_path / "saved")
    again._check()
    assert sorted(again.match({"a": 2, "b": 5})) == [2, 3]
    again.add("a = 2", id=9)
    assert sorted(again.match({"a": 2})) == [9]


@every_way
def test_threads(options: dict[str, Any]) -> None:
    engine = Engine("dbms", **options)
    engine.add_many((id, f"a < {id % 100} and b = {id % 3}") for id in range(300))
    expected = [id for id in range(300) if id % 100 > 50 and id % 3 == 1]
    problems = []

    def match() -> None:
        for _ in range(20):
            found = sorted(set(engine.match({"a": 50, "b": 1})) & set(range(300)))
            if found != expected:
                problems.append(found)

    threads = [threading.Thread(target=match) for _ in range(3)]
    for thread in threads:
        thread.start()
    for id in range(300, 320):
        engine.add(f"a < {id}", id=id)
    for thread in threads:
        thread.join()
    assert problems == []


@pytest.mark.parametrize(
    ("options", "reason"), [({"engine": "oracle"}, "engine must be"), ({"plan": "x"}, "plan must")]
)
def test_unknown_options(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnknownIndexError, match=reason):
        Engine("dbms", **options)


def test_without_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def refuse(name: str, *arguments: Any) -> Any:
        if name == "duckdb":
            raise ImportError(name)
        return plain(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SiftlineError, match=r"pip install duckdb"):
        Engine("dbms", engine="duckdb")
    assert len(Engine("dbms", engine="sqlite")) == 0
