"""The fast path from an event to ids is discarded by whatever may change it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest

from siftline import Engine
from siftline.engine.fast_path import NO_PATH, FastPath
from siftline.kernels.pointers import IS_COMPILED

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="interpreted kernels take no addresses")

EVENT = {"a": 1, "b": 2}


def engine_of(n: int) -> Engine:
    engine = Engine()
    engine.add_many((i, f"a = {i % 3} and b <= {i}") for i in range(n))
    engine.rebuild()  # few would stay in the tail
    return engine


def fast_paths(engine: Engine) -> Any:
    return engine._state.fast_paths.by_thread


def path_of(engine: Engine, event: Any) -> FastPath:
    """Match twice: the first match after a change leaves no fast path behind."""
    assert sorted(engine.match(event)) == sorted(engine.match(event))
    path = fast_paths(engine)[threading.get_ident()]
    assert isinstance(path, FastPath)
    return path


def test_a_match_keeps_it_and_the_next_one_takes_it() -> None:
    engine = engine_of(100)
    event = engine.encode(EVENT)
    assert sorted(engine.match(event)) == [i for i in range(2, 100) if i % 3 == 1]
    kept = path_of(engine, event)
    assert kept is not NO_PATH
    assert path_of(engine, event) is kept
    assert sorted(engine.match(event)) == [i for i in range(2, 100) if i % 3 == 1]


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
    path_of(engine, event)
    change(engine)
    assert fast_paths(engine) == {}
    for _ in range(4):
        assert set(engine.match(event)) == set(engine.match(EVENT)) == expected


def test_one_that_was_made_during_a_change_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(10)
    event = engine.encode(EVENT)
    finders = engine._state.index.finders

    def slow_finders(*arguments: Any) -> Any:
        found = finders(*arguments)
        engine.remove(4)
        return found

    engine.match(event)
    with monkeypatch.context() as patched:
        patched.setattr(engine._state.index, "finders", slow_finders)
        assert set(engine.match(event)) <= {4, 7}  # began before the removal had ended
    assert fast_paths(engine) == {}
    assert set(engine.match(event)) == {7}


def test_those_of_ended_threads_are_forgotten() -> None:
    engine = engine_of(10)
    event = engine.encode(EVENT)
    thread = threading.Thread(target=path_of, args=(engine, event))
    thread.start()
    thread.join()
    assert list(fast_paths(engine)) == [thread.ident]
    engine.match(event)
    assert list(fast_paths(engine)) == [threading.get_ident()]


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


def test_nobody_keeps_one_during_a_change() -> None:
    engine = engine_of(10)
    event = engine.encode(EVENT)
    path_of(engine, event)
    with engine._state.writing, engine._state.fast_paths:
        assert set(engine.match(event)) == set(engine.match(event)) == {4, 7}
        assert fast_paths(engine) == {}
    assert path_of(engine, event) is not NO_PATH


def test_a_long_change_does_not_keep_others_from_making_a_new_one() -> None:
    engine = engine_of(10)
    event = engine.encode(EVENT)
    path_of(engine, event)
    with engine._state.writing:
        engine._updates.rebuild()
        assert path_of(engine, event).generation == engine._state.generation


def test_an_engine_that_has_none() -> None:
    by_text = Engine()
    by_text.add_many([("x", "a = 1"), ("y", "a = 2")])
    by_scan = Engine(index="fast-scan")
    by_scan.add_many([(1, "a = 1"), (2, "a = 2")])
    for engine, expected in ((by_text, ["x"]), (by_scan, [1])):
        event = engine.encode(EVENT)
        assert path_of(engine, event) is NO_PATH
        assert engine.match(event) == expected


def test_a_pickled_engine_and_a_pickled_event_take_no_addresses_along() -> None:
    engine = engine_of(10)
    event = engine.encode(EVENT)
    path_of(engine, event)
    assert event.address
    engine, event = pickle.loads(pickle.dumps((engine, event)))
    assert (fast_paths(engine), event.address) == ({}, 0)
    assert set(engine.match(event)) == set(engine.match(event)) == {4, 7}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_process_starts_over() -> None:
    """A thread of the child may get the number of one of the parent's that was in the middle of a match."""
    code = """
import os
from siftline import Engine
engine = Engine()
engine.add_many((i, f"a = {i % 3} and b <= {i}") for i in range(10))
engine.rebuild()
event = engine.encode({"a": 1, "b": 2})
before = sorted(engine.match(event)), sorted(engine.match(event))
part = engine._state.index._parts[0]
workspace, = part.workspaces.values()
assert engine._state.fast_paths.by_thread
child = os.fork()
if child == 0:
    assert not engine._state.fast_paths.by_thread
    assert (sorted(engine.match(event)), sorted(engine.match(event))) == before
    assert workspace not in part.workspaces.values()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)
