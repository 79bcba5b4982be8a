"""The shortest way from an event to ids is thrown away by whatever may change it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from siftline import Engine
from siftline.kernels.pointers import IS_COMPILED

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="interpreted kernels take no addresses")

EVENT = {"a": 1, "b": 2}


def engine_of(n: int) -> Engine:
    engine = Engine()
    engine.add_many((i, f"a = {i % 3} and b <= {i}") for i in range(n))
    return engine


def shortcuts(engine: Engine) -> dict[int, Any]:
    return engine._writing.shortcuts


def test_a_match_keeps_it_and_the_next_one_takes_it() -> None:
    engine = engine_of(100)
    event = engine.encode(EVENT)
    found = engine.match(event)
    kept = shortcuts(engine)[threading.get_ident()]
    assert sorted(engine.match(event)) == sorted(found) == [i for i in range(2, 100) if i % 3 == 1]
    assert shortcuts(engine)[threading.get_ident()] is kept


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda engine: engine.add("a = 1", id=1000), {4, 7, 1000}),
        (lambda engine: engine.add("a = 1 and b <= 4", id=1000), {4, 7, 1000}),  # shares an entry
        (lambda engine: engine.add("a = 1 and c = 1", id=1000), {4, 7}),  # a new attribute
        (lambda engine: engine.add_many((i, "a = 1") for i in range(1000, 1003)), {4, 7, 1000, 1001, 1002}),
        (lambda engine: engine.add_many((i, f"b = {i}") for i in range(1000, 3000)), {4, 7}),
        (lambda engine: engine.remove(4), {7}),
        (lambda engine: engine.remove_many([4, 7]), set()),
        (lambda engine: engine.replace(4, "a = 2"), {7}),
        (lambda engine: engine.rebuild(), {4, 7}),
    ],
)
def test_every_change_throws_it_away(change: Any, expected: set[int]) -> None:
    engine = engine_of(10)
    event = engine.encode(EVENT)
    assert set(engine.match(event)) == {4, 7}
    change(engine)
    assert shortcuts(engine) == {}
    for _ in range(3):  # encoded again, by the new shortcut, by the same
        assert set(engine.match(event)) == set(engine.match(EVENT)) == expected


def test_one_that_was_made_during_a_change_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(10)
    event = engine.encode(EVENT)
    finders = engine._index.finders

    def slow_finders(*arguments: Any) -> Any:
        found = finders(*arguments)
        engine.remove(4)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(engine._index, "finders", slow_finders)
        assert set(engine.match(event)) <= {4, 7}  # began before the removal had ended
    assert shortcuts(engine) == {}
    assert set(engine.match(event)) == {7}


def test_those_of_ended_threads_are_forgotten() -> None:
    engine = engine_of(10)
    event = engine.encode(EVENT)
    thread = threading.Thread(target=engine.match, args=(event,))
    thread.start()
    thread.join()
    assert list(shortcuts(engine)) == [thread.ident]
    engine.match(event)
    assert list(shortcuts(engine)) == [threading.get_ident()]


def test_an_event_that_several_threads_meet_first_at_the_same_time() -> None:
    engine = engine_of(1000)
    expected = sorted(engine.match(EVENT))
    for _ in range(50):
        event = engine.encode(EVENT)
        barrier = threading.Barrier(4)
        found: list[list[int]] = []

        def work(event: Any = event, barrier: Any = barrier, found: Any = found) -> None:
            barrier.wait()
            found.append(sorted(engine.match(event)))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [expected] * 4


def test_a_long_change_does_not_keep_others_from_making_a_new_one() -> None:
    engine = engine_of(10)
    event = engine.encode(EVENT)
    engine.match(event)
    with engine._writing:
        engine._rebuild()
        assert set(engine.match(event)) == {4, 7}
        assert shortcuts(engine)[threading.get_ident()].generation == engine._generation
