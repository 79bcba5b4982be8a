"""Constants without end: labels run out, single changes never wait for new ones, and every match stays exact."""

from __future__ import annotations

import os
import pickle
import random
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from test_against_scan import INDEXES, run_machine

from siftline import Engine, parse
from siftline.encoding.domains import Merging
from siftline.engine.flushing import Flush
from siftline.engine.relabelling import Renewal
from siftline.engine.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

N = 1500  # more subscriptions than are laid out again at once


@pytest.fixture
def no_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let labels stand so close that hardly any constant fits between two others."""
    for name, value in (("_WIDEST_GAP", 4), ("_STEP_OF_RUN", 2), ("_FIRST_BEYOND", 0)):
        monkeypatch.setattr(f"siftline.encoding.domain.{name}", value)
    monkeypatch.setattr("siftline.engine.flushing.UNPLACED_IN_BUFFER_MAX", 3)


@pytest.mark.usefixtures("no_gaps")
@pytest.mark.parametrize("unplaced", [2, 10**9])
@pytest.mark.parametrize("index", INDEXES)
def test_state_machine_without_gaps(index: str, unplaced: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siftline.engine.updates.RELABEL_MIN_UNPLACED", unplaced)
    run_machine(index, 15, 30)


@pytest.mark.slow
@pytest.mark.usefixtures("no_gaps")
@pytest.mark.parametrize("unplaced", [1, 5, 10**9])
@pytest.mark.parametrize("index", INDEXES)
def test_state_machine_without_gaps_at_length(index: str, unplaced: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siftline.engine.updates.RELABEL_MIN_UNPLACED", unplaced)
    run_machine(index, 300, 60)


def halves() -> Iterator[float]:
    """Halve one gap again and again, and then the next."""
    for low in count(100):
        below, above = float(low), low + 1.0
        for turn in count():
            middle = (below + above) / 2
            if middle in (below, above):
                break
            below, above = (middle, above) if turn % 2 else (below, middle)
            yield middle


def halved_texts() -> Iterator[str]:
    """Write ever longer strings between two others."""
    for first in count():
        text = f"{first % 50:04}"
        for turn in range(60):
            text += "a" if turn % 2 else "z"
            yield text


def loaded() -> Engine:
    engine = Engine()
    engine.add_many((i, f"price > {i} and a = {i % 7}") for i in range(N))
    engine.add_many((N + i, f"name >= '{i:04}' and a = {i % 7}") for i in range(50))
    return engine


def oracle_of(engine: Engine) -> Engine:
    oracle = Engine("scan")
    oracle.add_many((id, engine.expression(id)) for id in engine.ids())
    return oracle


EVENTS: list[dict[str, Any]] = [
    *({"price": price, "a": 3} for price in (99, 100, 100.3, 100 + 2 / 3, 101, 102.65, 105.5, [1, 101.6], 2**70)),
    *({"name": name, "a": 4} for name in ("0003", "0003z", "0010zazaz", "0010zb", "9", "0004zazazazazazazazazazaz")),
    {"price": 100.6, "name": "0001za", "a": [3, 4]},
]


def check(engine: Engine) -> None:
    oracle, n = oracle_of(engine), len(EVENTS)
    expected = [sorted(oracle.match(event)) for event in EVENTS]
    assert [sorted(engine.match(event)) for event in EVENTS] == expected
    assert [sorted(engine.match(engine.encode(event))) for event in EVENTS] == expected
    batch = engine.match_batch(EVENTS * 20).to_pydict()  # so many that new constants are merged for it
    found = sorted(zip(batch["event"], batch["subscription"], strict=True))
    assert found == [(event, id) for event in range(20 * n) for id in expected[event % n]]


def adversary(seed: int = 0) -> Iterator[str]:
    """Yield conditions with ever new constants in the worst order."""
    rng, numbers, texts = random.Random(seed), halves(), halved_texts()
    while True:
        number, text = next(numbers), next(texts)
        yield f"price {rng.choice(['<', '<=', '>', '>=', '=', '!='])} {number!r} and a = {rng.randrange(7)}"
        yield f"name {rng.choice(['<', '>=', '=', 'starts with', '!='])} '{text}' and a = {rng.randrange(7)}"
        yield f"price not between {number!r} and {number + 1e-9!r} and not (name = '{text}x' or price in (3, 4.5))"


def test_one_change_never_lays_out_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = loaded()
    threads = []
    lay_out = Updates.laid_out

    def noted(self: Updates, *arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return lay_out(self, *arguments, **options)

    monkeypatch.setattr(Updates, "laid_out", noted)
    conditions = adversary()
    for i in range(900):
        engine.add(next(conditions), id=10_000 + i)
        if i % 5 == 0:
            engine.replace(i, next(conditions))
        if i % 100 == 0:
            engine.add_many((20_000 + i + k, next(conditions)) for k in range(60))
    engine.settle()
    assert set(threads) == {"siftline-compaction"}
    engine._check()
    check(engine)


def test_bulks_of_a_few_hundred_do_not_move_labels() -> None:
    engine = loaded()
    index, conditions = engine._state.index, adversary()
    engine.add_many((10_000 + i, next(conditions)) for i in range(300))
    assert engine._state.index is index
    assert engine._state.unplaced
    check(engine)


def test_what_is_unplaced_is_found_and_gets_labels() -> None:
    engine = loaded()
    conditions = adversary()
    for i in range(240):
        engine.add(next(conditions), id=10_000 + i)
    assert engine._state.unplaced
    engine._check()
    check(engine)
    engine.rebuild()
    assert not engine._state.unplaced
    assert engine._updates.joined_clauses().is_exact.all()
    engine._check()
    check(engine)


def test_snapshots_have_labels_for_all(tmp_path: Path) -> None:
    engine = loaded()
    conditions = adversary()
    for i in range(240):
        engine.add(next(conditions), id=10_000 + i)
    engine.save(tmp_path / "snapshot")
    for opened in (engine, Engine.open(tmp_path / "snapshot"), pickle.loads(pickle.dumps(engine))):
        assert not opened._state.unplaced
        for i in range(240):
            opened.add(next(conditions), id=20_000 + i)
        opened._check()
        check(opened)


class Held:
    """Holds a step of the background back until the test has done what it wants."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        owner: type,
        name: str,
        *,
        thread: str = "siftline-compaction",
        is_done_first: bool = False,
    ) -> None:
        self.has_come, self.may_go_on = threading.Event(), threading.Event()
        step, process = getattr(owner, name), os.getpid()

        def slow(*arguments: Any) -> Any:
            is_held = threading.current_thread().name == thread and not self.may_go_on.is_set()
            if process != os.getpid() or not is_held:
                return step(*arguments)
            result = step(*arguments) if is_done_first else None
            self.has_come.set()
            assert self.may_go_on.wait(60)
            return result if is_done_first else step(*arguments)

        monkeypatch.setattr(owner, name, slow)


def change_much(engine: Engine, conditions: Iterator[str]) -> None:
    for i in range(700):
        engine.add(next(conditions), id=30_000 + i)
    for i in range(0, 200, 3):
        engine.remove(10_000 + i)
        engine.remove(i)
        engine.replace(10_001 + i, next(conditions))
    engine.add("brand = 'new' and price < 100.5", id=-1)
    engine.add("name contains 'zaza'", id=-2)


def sweep(engine: Engine, conditions: Iterator[str]) -> None:
    engine.remove_many(range(500, 1400))
    engine._updates.sweep_all()


def rebuild(engine: Engine, conditions: Iterator[str]) -> None:
    engine.rebuild()


def load_more(engine: Engine, conditions: Iterator[str]) -> None:
    engine.add_many((50_000 + i, f"price > {i / 7} and b = {i}") for i in range(5000))


def fork(engine: Engine, conditions: Iterator[str]) -> None:
    child = os.fork()
    if child == 0:
        try:
            for i in range(200):
                engine.add(next(conditions), id=60_000 + i)
            engine.settle()
            check(engine)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("change", [change_much, sweep, rebuild, load_more, fork])
@pytest.mark.parametrize("step", ["deal", "build", "follow"])
def test_changes_while_labels_are_dealt_out(
    step: str, change: Callable[[Engine, Iterator[str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, conditions = loaded(), adversary()
    held = Held(monkeypatch, Renewal, step)
    for i in count():
        engine.add(next(conditions), id=10_000 + i)
        if engine._state.compactor._thread is not None and held.has_come.wait(0.01 if i < 400 else 60):
            break
    while i < 210:
        i += 1
        engine.add(next(conditions), id=10_000 + i)
    change(engine, conditions)
    copy = pickle.loads(pickle.dumps(engine))
    held.may_go_on.set()
    for each in (engine, copy):
        each.settle()
        each._check()
        check(each)


def fill_buffer(engine: Engine, conditions: Iterator[str]) -> None:
    """Add until a flush is due: some with new constants, and then so many with known ones that none is relabelled."""
    for i in range(30):
        engine.add(next(conditions), id=10_000 + i)
    for i in range(30, 10_000):
        if engine._state.buffer.is_due:
            return
        engine.add(f"price > {i % N} and price < {(i * i) % N} and a = {i % 7}", id=10_000 + i)


@pytest.mark.parametrize("change", [change_much, sweep, rebuild, load_more, fork])
@pytest.mark.parametrize("is_done_first", [False, True])
def test_changes_while_the_write_buffer_is_flushed(
    is_done_first: bool, change: Callable[[Engine, Iterator[str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, conditions = loaded(), adversary()
    held = Held(monkeypatch, Flush, "run", thread="siftline-flush", is_done_first=is_done_first)
    fill_buffer(engine, conditions)
    assert held.has_come.wait(60)
    change(engine, conditions)
    check(engine)
    copy = pickle.loads(pickle.dumps(engine))
    held.may_go_on.set()
    for each in (engine, copy):
        each.settle()
        each._check()
        check(each)


def test_a_writer_that_the_flusher_cannot_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the buffer has no room left, the writer flushes it, and the flusher gives up what it was at."""
    engine, conditions = loaded(), adversary()
    held = Held(monkeypatch, Flush, "run", thread="siftline-flush")
    for i in range(20 * engine._state.buffer_capacity):
        engine.add(next(conditions), id=10_000 + i)
    assert held.has_come.is_set()
    held.may_go_on.set()
    engine.settle()
    engine._check()
    check(engine)


@pytest.mark.parametrize("index", INDEXES)
def test_state_machine_with_a_small_write_buffer(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every flush and every merge is left to the threads."""
    monkeypatch.setattr("siftline.engine.state.WRITE_BUFFER_CAPACITY", 2)
    monkeypatch.setattr("siftline.engine.compaction._FEW_SLOTS", 0)
    run_machine(index, 15, 30)


def test_additions_in_bulk_do_not_overtake_renewals_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = loaded()
    build, firsts = Renewal.build, count(100_000, 300)
    bulks: list[int] = []

    def overtaken(self: Renewal) -> None:
        """Let a bulk with new constants come whenever the thread has dealt out labels."""
        is_nested = len(bulks) % 2 == 1
        if threading.current_thread().name == "siftline-compaction" and not is_nested and len(bulks) < 20:
            bulks.append(first := next(firsts))
            engine.add_many((first + i, f"b{first} > {i} and a = {i % 7}") for i in range(300))
            bulks.append(first)
        build(self)

    monkeypatch.setattr(Renewal, "build", overtaken)
    conditions = adversary()
    for i in range(400):
        engine.add(next(conditions), id=10_000 + i)
    engine.settle()
    assert 4 <= len(bulks) <= 12
    assert not engine._updates.wants_renewal()
    engine._check()
    check(engine)


def test_constants_that_come_while_flat_arrays_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = loaded()
    monkeypatch.setattr("siftline.engine.compaction._AT_ONCE", 100)
    monkeypatch.setattr("siftline.engine.compaction._FEW_CONSTANTS", 2)
    held = Held(monkeypatch, Merging, "run")
    rng = random.Random(1)
    engine.settle()
    for i in range(1500):
        engine.add(f"price > {rng.random() * 4000!r} and x{i % 40} = {i}", id=10_000 + i)
        if i == 1400:
            assert held.has_come.wait(60)
    held.may_go_on.set()
    for i in range(300):
        engine.add(f"price > {rng.random() * 4000!r} and x{i % 40} = {i / 2}", id=20_000 + i)
    engine.settle()
    engine._check()
    assert len(engine._state.domains.lines[1]) < 50
    check(engine)
    held.has_come.clear()


def test_matching_while_labels_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there all the time is found all the time, and what is found holds."""
    monkeypatch.setattr("siftline.engine.updates.RELABEL_MIN_UNPLACED", 16)
    engine = loaded()
    oracle = oracle_of(engine)
    steady = {str(event): set(oracle.match(event)) for event in EVENTS}
    is_over, errors = threading.Event(), list[str]()

    def look() -> None:
        encoded = [engine.encode(event) for event in EVENTS]
        while not is_over.is_set():
            for event, again in zip(EVENTS, encoded, strict=True):
                for found in (engine.match(event), engine.match(again)):
                    if {id for id in found if int(id) < 10_000} != steady[str(event)] or len(set(found)) < len(found):
                        errors.append(str(event))

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for thread in lookers:
        thread.start()
    conditions = adversary()
    for i in range(1500):
        engine.add(next(conditions), id=10_000 + i)
        if i % 2:
            engine.remove(10_000 + i - 1)
    is_over.set()
    for thread in lookers:
        thread.join()
    assert not errors
    engine.settle()
    engine._check()
    check(engine)


def test_runs_have_room_again_after_their_labels_were_dealt_out() -> None:
    engine = loaded()
    texts = [f"price > {100 + i * 1e-6!r}" for i in range(4000)]
    for i, text in enumerate(texts[:2000]):
        engine.add(parse(text), id=10_000 + i)
    engine.rebuild()
    for i, text in enumerate(texts[2000:]):
        engine.add(parse(text), id=20_000 + i)
    assert not engine._state.unplaced
    check(engine)


def crowded(engine: Engine) -> tuple[list[Any], float]:
    """Halve a gap of `b` until a constant finds no room; return the ids and that constant."""
    ids: list[Any] = [engine.add("b = 0"), engine.add("b = 1")]
    for middle in halves():
        ids.append(engine.add(f"b = {middle - 100!r}"))
        if engine._state.domains.crowded:
            break
    [[constant]] = engine._state.domains.crowded.values()
    return ids, constant


@pytest.mark.parametrize("index", [name for name in INDEXES if name not in ("scan", "pb-tree")])  # they have no labels
def test_what_an_unplaced_subscription_names_survives_the_others(index: str, tmp_path: Path) -> None:
    engine = Engine(index)
    engine.add("a = 2", id=10**6)
    others, constant = crowded(engine)
    text = f"a = 1 and (b between {constant!r} and {constant + 1e-9!r}) is not true and any items (x = 1 and y = 2)"
    engine.add(text, id=5000)
    engine.remove_many(others)
    engine.save(tmp_path / "snapshot")
    engine.rebuild()
    for each in (engine, Engine.open(tmp_path / "snapshot")):
        each.add("c = 1", id=7)
        each._check()
        items = [{"x": 1, "y": 2}]
        events: list[dict[str, Any]] = [{"b": constant}, {"b": 2}, {}, {"c": 1}, {"b": constant, "c": 1}]
        for event in events:
            event |= {"a": 1, "items": items}
            assert sorted(each.match(event)) == sorted(oracle_of(each).match(event)), event


def test_a_tail_that_cannot_be_emptied() -> None:
    """Long conjunctions without labels stay in the tail until it is full of them."""
    engine = Engine()
    _, constant = crowded(engine)
    chance = random.Random(3)

    def long() -> str:
        bound = constant * (1 + chance.uniform(-1e-12, 1e-12))
        return f"b < {bound!r} and " + " and ".join(f"a{n} = {chance.randrange(5)}" for n in range(59))

    engine.add("q = 1", id=10**6)
    for n in range(60):
        engine.add(long(), id=20_000 + n)
        if n % 10 == 0:
            engine.replace(10**6, long() if n % 20 else "q = 1")
    engine._check()
    oracle = oracle_of(engine)
    assert len(engine) == len(oracle)
    for _ in range(50):
        event = {
            "b": constant * chance.uniform(0.99, 1.01),
            "q": 1,
            **{f"a{n}": chance.randrange(5) for n in range(59)},
        }
        assert sorted(engine.match(event)) == sorted(oracle.match(event))
