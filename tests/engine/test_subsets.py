"""Matching among some subscriptions only, and getting only some of what matches."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import siftline
from siftline import Engine
from siftline.engine import pipeline
from siftline.errors import SubscriptionError

if TYPE_CHECKING:
    from pathlib import Path

N = 3000


@pytest.fixture(params=["scan", "fast-scan", "sift"])
def engine(request: pytest.FixtureRequest) -> Engine:
    engine = Engine(request.param)
    engine.add_many((i, f"a = {i % 3} and s contains '{'x' if i % 2 else ''}'", i % 5) for i in range(N))
    return engine


EVENT = {"a": 1, "s": "box"}
FOUND = [i for i in range(N) if i % 3 == 1]


@pytest.mark.parametrize("n", [0, 1, 10, 64, 65, 1024, 1025, N])
def test_within_few_and_many(engine: Engine, n: int) -> None:
    ids = range(0, N, N // n) if n else []
    expected = [i for i in ids if i % 3 == 1]
    for within in (ids, list(ids), set(ids), engine.subset(ids), iter(ids)):
        assert sorted(engine.match(EVENT, within=within)) == expected
    assert sorted(engine.match(engine.encode(EVENT), within=engine.subset(ids))) == expected
    batch = engine.match_batch([EVENT, {"a": 1}, EVENT], within=ids)
    assert sorted(batch["subscription"].to_pylist()) == sorted(expected * 2)
    best = sorted(expected, key=lambda i: (-(i % 5), i))[:3]
    assert engine.match(EVENT, within=ids, top=3) == best
    assert engine.match_batch([EVENT], within=ids, top=3)["subscription"].to_pylist() == best


def test_a_subset_follows_changes(engine: Engine) -> None:
    few, many = engine.subset([1, 4, N + 1]), engine.subset(range(N - 1))
    for chosen in (few, many):
        assert 1 in engine.match(EVENT, within=chosen)
    engine.remove(1)
    engine.add("a = 1", id=N + 1)
    engine.replace(4, "a = 2")
    engine.replace(5, "a = 1")
    assert sorted(engine.match(EVENT, within=few)) == [N + 1]
    assert sorted(engine.match(EVENT, within=many)) == sorted({*FOUND, 5} - {1, 4, N - 1})
    engine.add("a > 0.5 and a < 1.5", id=1)
    engine.rebuild()
    assert sorted(engine.match(EVENT, within=few)) == [1, N + 1]
    engine.remove_many(range(100, 2900))
    engine.settle()
    assert sorted(engine.match(EVENT, within=few)) == [1, N + 1]
    assert sorted(engine.match(EVENT, within=many)) == sorted(
        {i for i in {*FOUND, 5, 1} - {4, N - 1} if not 100 <= i < 2900}
    )


def test_tenants(engine: Engine, tmp_path: Path) -> None:
    assert engine.match(EVENT, tenant="acme") == []
    engine.add("a = 1", id=N, tenant="acme")
    engine.add_many([(N + 1, "a = 1"), (N + 2, "a = 2")], tenant="acme")
    engine.add_many([(N + 3, "a = 1"), (N + 4, "a > 0")], tenant="other")
    engine.add("a = 1", id=N + 5)
    engine.replace(N + 2, "a <= 1")
    engine.remove(N)
    engine.save(tmp_path / "saved")
    for each in (engine, pickle.loads(pickle.dumps(engine)), Engine.open(tmp_path / "saved")):
        assert sorted(each.match(EVENT, tenant="acme")) == [N + 1, N + 2]
        assert sorted(each.match(EVENT, tenant="other")) == [N + 3, N + 4]
        assert each.match(EVENT, tenant="nobody") == []
        assert each.match(EVENT, tenant="acme", first=True) in (N + 1, N + 2)
        assert sorted(each.match_batch([EVENT], tenant="other")["subscription"].to_pylist()) == [N + 3, N + 4]
        assert len(each.match(EVENT)) == len(FOUND) + 5


def test_first(engine: Engine) -> None:
    for event in (EVENT, engine.encode(EVENT)):
        assert engine.match(event, first=True) in FOUND
    assert engine.match({"a": 7}, first=True) is None
    assert engine.match(engine.encode({"a": 7}), first=True) is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"first": True, "top": 1}, ValueError),
        ({"first": True, "as_slots": True}, ValueError),
        ({"within": [1], "tenant": "acme"}, ValueError),
        ({"within": "ann"}, TypeError),
        ({"within": 5}, TypeError),
        ({"top": -1}, ValueError),
        ({"tenant": 5}, SubscriptionError),
        ({"tenant": ["acme"]}, SubscriptionError),
    ],
)
def test_what_makes_no_sense(options: dict[str, Any], error: type[Exception]) -> None:
    engine = Engine()
    engine.add("a = 1", id=1)
    for event in ({"a": 1}, engine.encode({"a": 1})):
        with pytest.raises(error):
            engine.match(event, **options)


def test_a_tenant_is_a_string() -> None:
    with pytest.raises(SubscriptionError, match="tenant"):
        siftline.Engine().add("a = 1", tenant=5)  # type: ignore[arg-type]


def test_a_subset_does_not_know_who_comes_while_it_is_matched() -> None:
    engine = Engine("sift")
    engine.add_many((i, f"a >= {i}") for i in range(2000))
    engine.add("a >= 7", id=2000)
    many = engine.subset(range(3000))
    moment = pipeline.moment_of(engine._updates, pipeline.source_for({"a": 7}, is_one=True), many)
    engine.add("a >= 7", id=2001)
    found = pipeline._found(engine._state, moment, 0, 1)
    assert sorted(found.table.ids(found.slots)) == [*range(8), 2000]
    assert sorted(engine.match({"a": 7}, within=many)) == [*range(8), 2000, 2001]


def test_a_sweep_lets_go_of_the_old_table() -> None:
    engine = Engine("sift")
    engine.add_many(((i, f"a = {i}") for i in range(10)), tenant="acme")
    assert engine.match({"a": 3}, tenant="acme") == [3]
    table = weakref.ref(engine._state.table)
    engine.remove(4)
    engine.rebuild()
    gc.collect()
    assert table() is None
    assert engine.match({"a": 3}, tenant="acme") == [3]
