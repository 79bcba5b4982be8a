"""Sweeping in the background: what others change meanwhile is in the result, and nobody waits for it."""

from __future__ import annotations

import os
import pickle
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from test_crowded import Held

from siftline import Engine
from siftline.engine.sweeping import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable

N = 3000
EVENTS: list[dict[str, Any]] = [
    {"a": 3, "b": 40, "name": "x7", "at": "2026-01-31T10:00:00Z"},
    {"a": [5, 90.5], "name": "zzz", "c": 1},
    {"a": 12.5, "b": 0, "new": 17, "name": "needle-17"},
]


def condition(n: int, rng: random.Random) -> str:
    return rng.choice(
        [
            f"a > {n % 97}.5 and b = {n % 41}",
            f"a = {n % 13}",  # many share these
            f"name contains 'x{n % 200}' and a < {n}",
            f"name != 'zzz{n}' and a >= {n % 50}",
            f"at > now() - interval '{n} days' and a > {n % 7}",
            f"not any name (this starts with 'x{n % 100}')",
        ]
    )


def filled(index: str = "sift") -> Engine:
    engine, rng = Engine(index), random.Random(1)
    engine.add_many({"id": n, "expression": condition(n, rng), "tenant": f"t{n % 3}", "weight": n} for n in range(N))
    return engine


def check(engine: Engine) -> None:
    oracle = Engine("scan")
    ids = engine.ids()
    oracle.add_many((id, engine.expression(id), engine.weight(id)) for id in ids)
    for event in EVENTS:
        found = sorted(oracle.match(event, now="2027-01-01"))
        assert sorted(engine.match(event, now="2027-01-01")) == found
        assert engine.match(event, now="2027-01-01", top=9) == oracle.match(event, now="2027-01-01", top=9)
        for tenant in range(3):
            mine = [id for id in found if isinstance(id, int) and id < N and id % 3 == tenant]
            assert sorted(engine.match(event, now="2027-01-01", tenant=f"t{tenant}")) == mine


def change_much(engine: Engine) -> None:
    rng = random.Random(2)
    for n in range(0, N, 40):
        if n in engine:
            engine.remove(n)
            engine.add(condition(n, rng), id=n, weight=n, tenant=f"t{n % 3}")  # the same id again
    for n in range(700):
        engine.add(condition(N + n, rng), id=N + n)
        if n % 3 == 0:
            engine.remove(N + n)
        if n % 9 == 0:
            engine.add(f"new = {n}", id=N + n)
            engine.replace(N + n, f"new > {n}.25 and name like '%needle%'")
    engine.remove_many([n for n in range(N + 100, N + 200) if n in engine])


def change_nothing(engine: Engine) -> None:
    pass


def add_in_bulk(engine: Engine) -> None:
    engine.add_many((10_000 + n, f"bulk > {n} and new = {n % 50}") for n in range(4500))


def sweep_too(engine: Engine) -> None:
    engine._updates.sweep_all()


def tune(engine: Engine) -> None:
    engine.tune(EVENTS * 10)


def fork(engine: Engine) -> None:
    child = os.fork()
    if child == 0:
        try:
            assert engine._state.table.removed is None  # what the parent's thread was at is forgotten
            change_much(engine)
            engine.settle()
            check(engine)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("change", [change_nothing, change_much, add_in_bulk, sweep_too, tune, fork])
@pytest.mark.parametrize("step", ["build", "follow"])
@pytest.mark.parametrize("index", ["sift", "counting"])
def test_changes_while_a_sweep_is_under_way(
    index: str, step: str, change: Callable[[Engine], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = filled(index)
    held = Held(monkeypatch, Sweep, step)
    engine.remove_many([n for n in range(N) if n % 5])
    assert held.has_come.wait(60)
    event = engine.encode(EVENTS[0])
    before = sorted(engine.match(event))
    assert before == sorted(engine.match(EVENTS[0]))
    change(engine)  # while the thread stands still: no lock is held
    copy = pickle.loads(pickle.dumps(engine))
    check(engine)
    held.may_go_on.set()
    engine.settle()
    for each in (engine, copy):
        each._check()
        assert each._state.table.removed is None
        check(each)
    assert engine._state.table.n_slots - len(engine) < N // 4


def test_a_sweep_that_fails_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    engine = filled()

    def fail(_: Sweep) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Sweep, "build", fail)
        engine.remove_many([n for n in range(N) if n % 5])
        engine._state.compactor._thread.join()  # type: ignore[union-attr]
    assert engine._state.table.removed is None
    assert engine._state.table.n_slots == N
    check(engine)


def test_what_was_shared_before_a_sweep_is_shared_after_it() -> None:
    engine = filled()
    engine.remove_many([n for n in range(N) if n % 5])
    engine.settle()
    n_slots, n_shared = engine._state.table.n_slots, engine.stats()["shared"]
    engine.add(engine.expression(engine.ids()[0]), id=N)
    assert engine._state.table.n_slots == n_slots + 1
    assert engine.stats()["shared"] == n_shared + 1
    engine._check()
