"""Subscriptions with the same expression are one entry of the index."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from siftline import Engine, parse

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [f"a = {i} and b >= {i % 3}" for i in range(10)] + ["s contains 'x' and a = 1", "a = 1 or b = 2", "a < 'x'"]


def n_entries(engine: Engine) -> int:
    engine.rebuild()
    return sum(part.n_clauses for part in engine._state.index._parts)  # type: ignore[attr-defined]


def test_many_users_of_few_expressions() -> None:
    engine = Engine("sift")
    engine.add_many((i, TEXTS[i % 10]) for i in range(5000))
    for i in range(5000, 6000):
        engine.add(parse(TEXTS[i % 10]), id=i)
    engine._check()
    assert engine.stats()["shared"] == 5990
    assert sorted(engine.match({"a": 3, "b": 5})) == list(range(3, 6000, 10))
    assert n_entries(engine) == 10
    assert sorted(engine.match(engine.encode({"a": 3, "b": 5}))) == list(range(3, 6000, 10))
    assert engine.match({"a": 3, "b": 5}, top=2) == [3, 13]
    assert sorted(engine.match({"a": 3, "b": 5}, within=[13, 14, 23])) == [13, 23]
    batch = engine.match_batch([{"a": 3, "b": 5}, {}, {"a": 4, "b": 5}])
    assert sorted(batch["subscription"].to_pylist()) == sorted([*range(3, 6000, 10), *range(4, 6000, 10)])


def test_columns_share_too() -> None:
    n = 3000
    columns = {
        "subscription": [i // 2 for i in range(2 * n)],
        "clause": [0] * (2 * n),
        "attribute": ["a", "b"] * n,
        "op": ["=", "in"] * n,
        "number": pa.array([i // 2 % 7 if i % 2 == 0 else None for i in range(2 * n)], pa.int64()),
        "numbers": pa.array([[1, 2 + i // 2 % 2] if i % 2 else None for i in range(2 * n)], pa.list_(pa.int64())),
    }
    engine = Engine("sift")
    engine.add_many(pa.table(columns))
    engine._check()
    assert sorted(engine.match({"a": 3, "b": 2})) == [i for i in range(n) if i % 7 == 3 and i % 2 == 0]
    assert n_entries(engine) == 14
    engine.remove_many(range(0, n, 3))
    engine._check()
    assert sorted(engine.match({"a": 3, "b": 1})) == [i for i in range(n) if i % 7 == 3 and i % 3]


def test_single_conditions_share_where_many_are_alike() -> None:
    """A few of them are copied from one list, which is quicker than to look for those that share an entry."""
    engine = Engine("sift")
    columns = {
        "subscription": list(range(1000)),
        "attribute": ["a"] * 100 + ["b"] * 900,
        "op": ["="] * 1000,
        "number": [1] * 100 + [i // 3 for i in range(100, 1000)],
    }
    engine.add_many(pa.table(columns))
    engine._check()
    assert engine.stats()["shared"] == 99
    assert sorted(engine.match({"a": 1, "b": 50})) == [*range(100), 150, 151, 152]
    engine.remove_many([0, 50, 151])
    engine.add("b = 50", id=2000)
    engine._check()
    expected = [*range(1, 50), *range(51, 100), 150, 152, 2000]
    assert sorted(engine.match({"a": 1, "b": 50})) == expected
    assert len(engine.match({"a": 1, "b": 50}, as_slots=True)) == len(expected)
    pairs = engine.match_batch([{}, {"a": 1, "b": 50}, {}, {"b": 50}])
    found = list(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True))
    assert sorted(found) == [*((1, id) for id in expected), (3, 150), (3, 152), (3, 2000)]


def test_the_first_may_leave(tmp_path: Path) -> None:
    engine = Engine("sift")
    for i in range(5):
        engine.add("a = 1", id=i, weight=i)
    engine.remove(0)
    engine.add("a = 2", id=0)
    engine._updates.sweep_all()
    engine._check()
    engine.save(tmp_path / "saved")
    opened = Engine.open(tmp_path / "saved")
    for each in (engine, pickle.loads(pickle.dumps(engine)), opened):
        each._check()
        assert each.match({"a": 1}, top=9) == [4, 3, 2, 1]
        assert each.match({"a": 2}) == [0]
        each.remove_many([1, 2, 3])
        assert each.match({"a": 1}) == [4]
        each.remove(4)
        assert each.match({"a": 1}) == []
        each.add("a = 1", id=9)
        each._check()
        assert each.match({"a": 1}) == [9]
        each.replace(9, "a = 1")
        assert each.match({"a": 1}) == [9]


def test_a_sweep_in_between() -> None:
    """Replacements leave slots behind; when they are swept out, entries move."""
    engine = Engine("sift")
    engine.add_many((i, f"a = {i}") for i in range(100))
    for i in range(3000):
        engine.replace(i % 50, f"a = {i % 50} and b = {i % 7}")
        engine.add(f"c = {i % 40} or d = {i % 40}", id=1000 + i)
        engine.remove(1000 + i)
        engine.add("c = 1 or d = 2", id=1000 + i)
        engine.remove(1000 + i)
    engine._check()
    engine.add("c = 1 or d = 2", id=-1)
    assert engine.match({"c": 1}) == [-1]
    assert engine.match({"a": 77}) == [77]
    assert engine.match({"a": 3, "b": 2953 % 7}) == [3]


@pytest.mark.parametrize("seed", range(5))
def test_against_scan(seed: int) -> None:
    random.seed(seed)
    engine, oracle = Engine("sift"), Engine("scan")
    events = [{"a": a, "b": b, "s": "box"} for a in range(4) for b in range(3)]
    live: list[int] = []
    for step in range(300):
        choice = random.random()
        if choice < 0.5 or not live:
            text, weight = random.choice(TEXTS), random.randrange(4)
            for each in (engine, oracle):
                each.add(text, id=step, weight=weight)
            live.append(step)
        elif choice < 0.8:
            gone = live.pop(random.randrange(len(live)))
            for each in (engine, oracle):
                each.remove(gone)
        elif choice < 0.9:
            id, text = random.choice(live), random.choice(TEXTS)
            for each in (engine, oracle):
                each.replace(id, text)
        elif choice < 0.95:
            engine._updates.sweep_all()
        else:
            engine.rebuild()
        event = random.choice(events)
        assert sorted(engine.match(event)) == sorted(oracle.match(event))
        assert engine.match(event, top=3) == oracle.match(event, top=3)
        if step % 20 == 0:
            engine._check()
