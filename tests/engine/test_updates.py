"""Changes while others match: the tail, merges in the background, forks."""

from __future__ import annotations

import os
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

from siftline import Engine
from siftline.encoding.domains import Merging
from siftline.errors import SiftlineError
from siftline.indexes.parts import Merge
from siftline.indexes.sift.index import Sift

if TYPE_CHECKING:
    from collections.abc import Iterator

N = 6000  # more clauses than are merged at once


def rows(first: int, n: int) -> Iterator[tuple[int, str]]:
    """Return subscriptions that are all different, because the same would be shared."""
    tests = "a = {} and b >= {} and a < {} and b < {}"
    return ((i, tests.format(i % 50, i % 7, 50 + i % 89, 50 + i % 97)) for i in range(first, first + n))


def expected(n: int, event: dict[str, int]) -> list[int]:
    return [i for i in range(n) if i % 50 == event["a"] and i % 7 <= event["b"]]


@pytest.fixture
def engine() -> Engine:
    engine = Engine("sift")
    engine.add_many(rows(0, N))
    return engine


def n_parts(engine: Engine) -> int:
    return len(engine._state.index._parts)  # type: ignore[attr-defined]


def test_the_tail_goes_to_the_index_when_it_is_full(engine: Engine) -> None:
    event = {"a": 3, "b": 4}
    for i, text in rows(N, 1500):
        engine.add(text, id=i)
    engine._state.compactor.join()
    assert engine._state.buffer.n_clauses < engine._state.buffer_capacity
    engine._check()
    assert sorted(engine.match(event)) == expected(N + 1500, event)
    for i in range(N, N + 1500, 2):
        engine.remove(i)
    found = [i for i in expected(N + 1500, event) if i < N or i % 2]
    assert sorted(engine.match(event)) == found
    engine.settle()
    engine._check()
    assert sorted(engine.match(event)) == found


def test_what_does_not_fit_into_the_tail(engine: Engine) -> None:
    engine.add(" or ".join(f"x{n} = {n} and y = {n}" for n in range(600)), id=N)
    assert engine._state.buffer.n_clauses == 0
    assert engine.match({"x599": 599, "y": 599}) == [N]
    engine.add("a = 3 or b = 99 or a contains 'x'", id=N + 1)
    engine.add("a in (3, 70, 80) and b != 2 and c is null", id=N + 2)
    assert engine._state.buffer.n_clauses == 4
    assert sorted(engine.match({"a": 70, "b": 99})) == [N + 1, N + 2]
    assert engine.match({"a": ["y", "axe"], "b": 98, "c": 1}) == [N + 1]


def test_a_replacement_that_does_not_fit_into_the_tail() -> None:
    engine = Engine("sift")
    engine.add("x = 5", id=1)
    engine.replace(1, " or ".join(f"y{n} = {n}" for n in range(70)))
    assert engine.match({"x": 5}) == []
    assert engine.match({"y3": 3}) == [1]
    engine._check()


def test_values_between_constants_whose_labels_were_dealt_out_again() -> None:
    engine = Engine("sift")
    engine.add_many((i, f"a > {i} and s > '{i:04}'") for i in range(20))
    engine._state.domains.merge()
    engine.add_many((i, f"a > {i} and s > '{i:04}'") for i in range(20, 120))
    event = {"a": 10.5, "s": "0010x"}
    assert sorted(engine.match(event)) == list(range(11))
    assert sorted(engine.match_batch([event])["subscription"].to_pylist()) == list(range(11))


def test_a_thread_that_ends_does_not_hide_the_next_one(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    compactor, next_thread = engine._state.compactor, threading.Thread()

    def end_late(self: Any, _: Any) -> bool:
        self._thread = next_thread  # a writer comes between the last look and the end
        return False

    monkeypatch.setattr("siftline.engine.compaction.Compactor._compact_once", end_late)
    thread = threading.Thread(target=compactor._repeat, args=(compactor._compact_once, engine._updates))
    thread.start()
    thread.join()
    assert compactor._thread is next_thread


def test_merges_run_in_the_background(engine: Engine) -> None:
    event = engine.encode({"a": 3, "b": 4})
    for first in range(N, 3 * N, 1000):
        engine.add_many(rows(first, 1000))
        assert sorted(engine.match(event)) == expected(first + 1000, {"a": 3, "b": 4})
    engine.remove_many(range(2 * N))
    engine.settle()
    engine._check()
    assert n_parts(engine) == 1
    assert sorted(engine.match(event)) == [i for i in expected(3 * N, {"a": 3, "b": 4}) if i >= 2 * N]


@pytest.mark.parametrize(("thread", "quick_clauses"), [("siftline-flush", 1 << 20), ("siftline-compaction", 0)])
def test_a_merge_that_was_overtaken(
    thread: str, quick_clauses: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_laying_out, may_go_on = threading.Event(), threading.Event()
    lay_out = Sift._lay_out

    def slow(self: Sift, *arguments: Any) -> Any:
        if threading.current_thread().name == thread:
            is_laying_out.set()
            may_go_on.wait(10)
        return lay_out(self, *arguments)

    monkeypatch.setattr(Sift, "_lay_out", slow)
    monkeypatch.setattr("siftline.engine.compaction._QUICK_CLAUSES", quick_clauses)
    engine.add_many(rows(N, 2000))
    assert is_laying_out.wait(10)
    # What happens while the merge is under way is in its result, or behind it.
    engine.remove_many(range(0, N, 2))
    engine.add_many(rows(N + 2000, 1000))
    engine.add("a = 3 and z = 1", id=-1)
    copy = pickle.loads(pickle.dumps(engine))
    child = os.fork()
    if child == 0:
        monkeypatch.undo()
        engine.add("a = 3 and z = 2", id=-2)
        engine.settle()
        os._exit(0 if len(engine.match({"a": 3, "b": 0, "z": 2})) > 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    may_go_on.set()
    engine.settle()
    for each in (engine, copy):
        each._check()
        found = [i for i in expected(N + 3000, {"a": 3, "b": 4}) if i >= N or i % 2]
        assert sorted(each.match({"a": 3, "b": 4, "z": 1})) == [-1, *found]


def test_a_merge_of_what_was_removed_meanwhile(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    is_running, may_go_on = threading.Event(), threading.Event()
    run = Merge.run

    def slow(self: Merge) -> None:
        is_running.set()
        may_go_on.wait(10)
        run(self)

    with monkeypatch.context() as patch:
        patch.setattr(Merge, "run", slow)
        engine.add_many(rows(N, 2000))
        assert is_running.wait(10)
        engine.remove_many(range(N, N + 2000))
        engine.remove(0)
        may_go_on.set()
        engine.settle()
    engine._check()
    assert sorted(engine.match({"a": 3, "b": 4})) == expected(N, {"a": 3, "b": 4})


def test_errors_in_the_background_are_shown(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)

    def fail(*_: Any) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        engine.add_many(rows(N, 700))
        engine.settle()
        patch.setattr("siftline.indexes.parts.Merge.run", fail)
        engine.add_many(rows(N + 700, 1000))
        with pytest.raises(SiftlineError, match="no room"):
            engine.settle()
    assert shown
    engine.settle()
    engine._check()
    assert n_parts(engine) == 1
    assert sorted(engine.match({"a": 3, "b": 4})) == expected(N + 1700, {"a": 3, "b": 4})


def test_a_merge_of_constants_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    engine = Engine("sift")
    engine.add_many((i, f"a > {i}") for i in range(1200))

    def fail(_: Merging) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Merging, "run", fail)
        for i in range(1200, 2400):
            engine.add(f"a > {i}", id=i)
        with pytest.raises(SiftlineError, match="no room"):
            engine.settle()
        assert engine._state.domains._placed is None
    engine.add("a > 2400", id=2400)
    engine.settle()
    engine._check()
    assert len(engine.match({"a": 1750.5})) == 1751


def test_every_match_sees_one_state(engine: Engine) -> None:
    """One id comes and goes in turns, another one is replaced: the first is never there twice, the second always."""
    engine.add("a = 3", id=-1)
    engine.add("a = 3", id=-2)
    encoded, is_over = engine.encode({"a": 3, "b": -1}), threading.Event()
    problems: list[list[int]] = []

    def watch() -> None:
        while not is_over.is_set():
            found = sorted(engine.match(encoded))
            if found not in ([-2], [-2, -1]):
                problems.append(found)  # type: ignore[arg-type]

    threads = [threading.Thread(target=watch) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for i in range(1500):
            engine.remove(-1)
            engine.add("a = 3" if i % 3 else f"a = 3 and b < {i}", id=-1)
            if i % 10 == 0:
                engine.replace(-2, "a = 3 and b < 1000" if i % 20 else "a = 3")
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert problems == []
