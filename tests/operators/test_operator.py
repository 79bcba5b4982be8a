"""Making, finding and calling operators: what is refused, what fails, what takes too long."""

from __future__ import annotations

import logging
import os
import threading
import time
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import siftline
from siftline.engine import Engine
from siftline.errors import OperatorError, SubscriptionError
from siftline.model import Call, Variable
from siftline.operators import registry
from siftline.operators.operator import operator
from siftline.operators.predicates import predicate_of
from siftline.operators.schedules import schedules

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def kept_registry() -> Iterator[None]:
    """Take away what a test registers."""
    before = dict(registry._operators)
    yield
    registry._operators.clear()
    registry._operators.update(before)


def refused(text: str) -> SubscriptionError:
    with pytest.raises(SubscriptionError) as error:
        Engine().add(text)
    return error.value


# making


def test_signatures_are_checked() -> None:
    @operator("near", binds=["metres"])
    def near(event: Any, place: str, limit: float = 10.0) -> Any:
        return 5.0

    assert near.signature() == "near(place, [limit], ?metres)"
    engine = Engine()
    for text in ("near('A', ?d)", "near('A', 2, ?d)", "near('A', 2.5, 5)"):
        engine.add(text)
    assert refused("near(?d)").hint == "write near(place, [limit], ?metres)"
    assert "does not take 4 arguments" in str(refused("near('A', 1, 2, ?d)"))
    assert "takes a string, not 7" in str(refused("near(7, ?d)"))
    assert "takes a number, not 'x'" in str(refused("near('A', 'x', ?d)"))
    assert "needs a constant there" in str(refused("near(?p, ?d)"))


def test_integers_are_told_from_numbers_with_a_point() -> None:
    operator("nth")(lambda event, n: True)

    @operator("counted")
    def counted(event: Any, n: int | None = None, flag: bool = False) -> bool:
        return True

    engine = Engine()
    engine.add("counted() and counted(3) and counted(3, true) and nth('anything')")
    assert "takes an integer, not 1.5" in str(refused("counted(1.5)"))
    assert "takes an integer, not True" in str(refused("counted(true)"))


def test_any_number_of_constants_and_of_variables() -> None:
    @operator("all_of")
    def all_of(event: Any, *words: str) -> bool:
        return all(word in event["text"] for word in words)

    @operator("facts", binds=...)
    def facts(event: Any, relation: str) -> Any:
        return [tuple(fact) for fact in event[relation]]

    engine = Engine()
    engine.add("all_of('a', 'b') and all_of()", id=1)
    engine.add("facts('edge', ?x, ?y) and facts('edge', ?y, ?x)", id=2)
    engine.add("facts('edge', ?x, 3)", id=3)
    engine.add("facts('edge', ?x)", id=4)
    assert sorted(engine.match({"text": "ab", "edge": [[1, 2], [2, 1], [7]]})) == [1, 2, 4]
    assert engine.match({"text": "a", "edge": [(2, 3)]}) == [3]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cost": 0}, "cost"),
        ({"cost": True}, "cost"),
        ({"timeout": -1}, "timeout"),
        ({"binds": ["a", "a"]}, "different names"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        operator("bad", **options)(lambda event: True)


def test_bad_functions_are_refused() -> None:
    with pytest.raises(OperatorError, match="first parameter"):
        operator("bad")(lambda: True)
    with pytest.raises(OperatorError, match="must be bool, int, float or str"):

        @operator("bad")
        def bad(event: Any, where: list[int]) -> bool:
            return True

    with pytest.raises(OperatorError, match="no position"):

        @operator("worse")
        def worse(event: Any, *, where: str) -> bool:
            return True


def test_a_name_is_needed() -> None:
    def lonely(event: Any) -> bool:
        return True

    with pytest.raises(OperatorError, match=r"write @siftline.operator\('lonely'\)"):
        operator(lonely)  # type: ignore[arg-type]


def test_a_name_is_taken_once() -> None:
    operator("once")(lambda event: True)
    with pytest.raises(OperatorError, match="already an operator 'once'"):

        @operator("once")
        def once(event: Any) -> bool:
            return True

    @operator("once", replace=True)
    def other(event: Any) -> bool:
        return False

    assert registry.get("once") is other


# finding


def test_unknown_operators_get_a_hint() -> None:
    operator("swarm_pattern", binds=["people"])(lambda event: 5)
    assert refused("swarm_patern(?x)").hint == "did you mean 'swarm_pattern'?"
    assert refused("zzzzzzz()").hint == "make one with @siftline.operator"


def test_entry_points(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    points = [
        EntryPoint("tide_at", "operators.operator_package:tide_at", registry.GROUP),
        EntryPoint("broken", "operators.operator_package:not_there", registry.GROUP),
    ]

    def found(group: str, name: str | None = None) -> list[EntryPoint]:
        return [point for point in points if name in (None, point.name)]

    monkeypatch.setattr(registry, "entry_points", found)
    assert {"tide_at", "broken"} <= set(registry.operators())
    engine = Engine()
    engine.add("tide_at('Brest', ?t) and ?t > 3", id=1)
    assert engine.match({}) == [1]
    assert "there is no operator 'broken'" in str(refused("broken()"))
    assert "cannot be loaded" in caplog.text


# the same call


def test_calls_are_the_same_if_variables_unify() -> None:
    operator("p", binds=["a", "b"])(lambda event, c: (1, 2))
    x, y, u, v = (Variable(name) for name in "xyuv")

    def same(one: list[Any], two: list[Any]) -> bool:
        return predicate_of(Call("p", one)) == predicate_of(Call("p", two))

    assert same([1, x, y], [1, u, v])
    assert same([1, x, x], [1, v, v])
    assert not same([1, x, y], [1, x, x])
    assert not same([1, x, y], [2, x, y])
    assert not same([1, x, y], [True, x, y])
    assert not same([1, x, 5], [1, x, y])


def test_a_shared_call_is_made_once() -> None:
    made: list[str] = []

    @operator("seen", binds=["a", "b"])
    def seen(event: Any, what: str) -> Any:
        made.append(what)
        return [(1, 1), (1, 2)]

    for schedule in ("naive", "sequential", "sub-order", "adaptive"):
        engine = Engine(schedule=schedule)
        engine.add("seen('x', ?a, ?b) and ?b > ?a", id=1)
        engine.add("seen('x', ?u, ?v) and seen('x', ?v, ?w)", id=2)
        engine.add("seen('x', ?a, ?a)", id=3)
        engine.add("seen('x', 7, ?a)", id=4)
        made.clear()
        assert sorted(engine.match({})) == [1, 2, 3]
        assert made == ["x"]
        assert engine.stats()["operators"]["calls"] == 1


# calling


def test_failures_are_counted_and_stop_nobody(caplog: pytest.LogCaptureFixture) -> None:
    operator("fails")(lambda event: 1 / 0)
    operator("works")(lambda event: True)
    operator("odd")(lambda event: "yes")
    operator("infinite", binds=["x"])(lambda event: [1.0, float("inf")])
    operator("short", binds=["x", "y"])(lambda event: [(1,)])
    engine = Engine()
    engine.add_many(
        [
            (1, "fails() or works()"),
            (2, "fails()"),
            (3, "not fails()"),
            (4, "odd()"),
            (5, "infinite(?x)"),
            (6, "short(?x, ?y)"),
        ]
    )
    with caplog.at_level(logging.WARNING):
        assert sorted(engine.match({})) == [1]
    operators = engine.stats()["operators"]["operators"]
    assert {name: counts["failures"] for name, counts in operators.items()} == {
        "fails": 1,
        "works": 0,
        "odd": 1,
        "infinite": 1,
        "short": 1,
    }
    assert "the operator 'fails' failed: ZeroDivisionError" in caplog.text


def test_an_operator_that_is_gone_counts_as_failed() -> None:
    operator("leaves")(lambda event: True)
    engine = Engine()
    engine.add("leaves()", id=1)
    assert engine.match({}) == [1]
    registry.unregister("leaves")
    assert engine.match({}) == []
    with pytest.raises(OperatorError, match="no operator 'leaves'"):
        registry.unregister("leaves")


# Conditions that call an operator which gives nothing, and whether they are true all the same.
FAILED_CALLS = {
    "gives_nothing(?x)": False,
    "not gives_nothing(?x)": False,
    "gives_nothing(1)": False,
    "not gives_nothing(1)": False,
    "gives_nothing(?x) or succeeds()": True,
    "not (gives_nothing(?x) and succeeds())": False,
    "not (gives_nothing(?x) and not succeeds())": True,
    "not (gives_nothing(?x) and ?x > 5)": False,
    "succeeds() and not (gives_nothing(?x) and ?x > 5)": False,
    "not not gives_nothing(?x)": False,
    "(gives_nothing(1)) is true": False,
    "(gives_nothing(1)) is not true": True,
    "not (gives_nothing(1) or n = 1)": False,
    "not (gives_nothing(1) and n = 2)": True,
}


@pytest.mark.parametrize("how", ["raises", "hangs", "is gone", "fails for a batch"])
@pytest.mark.parametrize("schedule", schedules())
def test_calls_that_give_nothing_are_unknown(schedule: str, how: str) -> None:
    gate = threading.Event()

    def gives_nothing(event: Any) -> Any:
        if how == "hangs":
            gate.wait(10)
        return 1 / 0

    operator("gives_nothing", binds=["x"], timeout=0.05 if how == "hangs" else None, batch="batch" in how)(
        gives_nothing
    )
    operator("succeeds")(lambda event: True)
    engine = Engine(schedule=schedule)
    engine.add_many(enumerate(FAILED_CALLS))
    if how == "is gone":
        registry.unregister("gives_nothing")
    expected = [number for number, is_true in enumerate(FAILED_CALLS.values()) if is_true]
    assert sorted(engine.match({"n": 1})) == expected
    assert sorted(engine.match_batch([{"n": 1}, {"n": 1}])["subscription"].to_pylist()) == sorted(expected * 2)
    shown = str(engine.explain({"n": 1}, 1))
    assert shown.startswith("no match")
    assert ("took too long, " if how == "hangs" else "failed") in shown
    gate.set()
    if how == "is gone":
        engine.rebuild()  # sweeps conditions whose operator is not there
        engine.remove(0)
        engine.rebuild()
        assert sorted(engine.match({"n": 1})) == expected


def test_timeouts() -> None:
    gate = threading.Event()

    @operator("slow", timeout=0.05)
    def slow(event: Any, n: int) -> bool:
        if event["hang"]:
            gate.wait(10)
        return True

    engine = Engine()
    engine.add("slow(1)", id=1)
    engine.add("a = 1 or slow(2)", id=2)
    assert sorted(engine.match({"hang": False})) == [1, 2]
    start = time.monotonic()
    assert engine.match({"hang": True, "a": 1}) == [2]
    assert time.monotonic() - start < 5
    counts = engine.stats()["operators"]["operators"]["slow"]
    assert counts["timeouts"] >= 1
    for _ in range(12):  # those beyond the limit are not even started
        engine.match({"hang": True})
    gate.set()
    while any(registry_hanging()):
        time.sleep(0.01)
    assert sorted(engine.match({"hang": False})) == [1, 2]


def registry_hanging() -> list[int]:
    from siftline.operators.calling import _hanging

    return list(_hanging.values())


def test_errors_in_time_limited_calls_are_the_same(caplog: pytest.LogCaptureFixture) -> None:
    @operator("limited", timeout=5, binds=["x"])
    def limited(event: Any) -> Any:
        yield 1
        if event.get("bad"):
            raise ValueError("half way")

    engine = Engine()
    engine.add("limited(?x)", id=1)
    assert engine.match({}) == [1]
    assert engine.match({"bad": True}) == []
    assert "half way" in caplog.text


def test_batch_operators_see_a_table_once() -> None:
    sizes: list[int] = []

    @operator("scored", batch=True, binds=["score"])
    def scored(events: Any, times: int) -> Any:
        assert isinstance(events, pa.Table)
        sizes.append(len(events))
        return pa.compute.multiply(events["n"], times)

    engine = Engine()
    engine.add("kind = 'a' and scored(10, ?s) and ?s > 15", id=1)
    engine.add("kind = 'a' and scored(10, ?s) and ?s > 25", id=2)
    events = [{"kind": "a", "n": 1}, {"kind": "b", "n": 9}, {"kind": "a", "n": 2}, {"kind": "a", "n": 3}]
    table = engine.match_batch(events, threads=1)
    assert sorted(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True)) == [
        (2, 1),
        (3, 1),
        (3, 2),
    ]
    assert sizes == [3]  # events that no condition is left for are not among them
    assert sorted(engine.match({"kind": "a", "n": 3})) == [1, 2]
    assert engine.stats()["operators"]["operators"]["scored"]["calls"] == 2


def test_batch_operators_see_large_batches_whole() -> None:
    sizes: list[int] = []

    @operator("sized", batch=True, replace=True)
    def sized(events: Any) -> list[bool]:
        sizes.append(len(events))
        return [n % 2 == 0 for n in events["n"].to_pylist()]

    engine = Engine()
    engine.add("sized() and n < 3000", id=1)
    found = engine.match_batch([{"n": n} for n in range(5_000)])["event"].to_pylist()
    assert found == list(range(0, 3_000, 2))
    assert sizes == [3_000]


def test_batch_operators_that_fail_are_unknown() -> None:
    operator("uneven", batch=True)(lambda events: [True])
    engine = Engine()
    engine.add("uneven()", id=1)
    engine.add("not uneven()", id=2)
    assert engine.match_batch([{}, {}]).num_rows == 0
    assert engine.match({}) == [1]


def test_batches_of_events_without_keys() -> None:
    operator("rows", batch=True)(lambda events: [True] * len(events))
    engine = Engine()
    engine.add("rows()", id=1)
    assert engine.match({}) == [1]
    assert engine.match_batch([{}, {}])["event"].to_pylist() == [0, 1]


def test_batches_whose_candidates_ask_for_no_call() -> None:
    operator("unasked")(lambda event: True)
    engine = Engine()
    engine.add("kind = 'a' and unasked()", id=1)
    wide = " and ".join(f"(kind = 'c' or n = {i} or m = {i})" for i in range(12))  # too many clauses for the index
    engine.add(wide, id=2)
    assert engine.match_batch([{"kind": "c", "n": 2}])["subscription"].to_pylist() == [2]


def test_a_forked_child_starts_its_own_threads() -> None:
    operator("forked", timeout=5)(lambda event: True)
    engine = Engine()
    engine.add("forked()", id=1)
    assert engine.match({}) == [1]
    child = os.fork()
    if child == 0:
        os._exit(0 if engine.match({}) == [1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_solutions_are_told_apart_by_type() -> None:
    operator("mixed", binds=["x"])(lambda event: [1, True, 1])
    engine = Engine()
    engine.add("mixed(?x) and ?x = true", id=1)
    engine.add("mixed(?x) and ?x = 1", id=2)
    assert sorted(engine.match({})) == [1, 2]


def test_ordinary_predicates_come_first() -> None:
    made: list[str] = []

    @operator("costly")
    def costly(event: Any, what: str) -> bool:
        made.append(what)
        return True

    engine = Engine()
    engine.add_many((n, f"kind = 'k{n}' and costly('c{n}')") for n in range(100))
    assert engine.match({"kind": "k7"}) == [7]
    assert made == ["c7"]


def test_the_front_door() -> None:
    @siftline.operator("hotter_than")
    def hotter_than(event: Any, degrees: float) -> bool:
        return bool(event["temperature"] > degrees)

    assert hotter_than({"temperature": 30}, 25)
    engine = siftline.Engine(schedule="sequential")
    engine.add("hotter_than(25)", id=1)
    assert engine.match({"temperature": 30}, top=1) == [1]
    with pytest.raises(OperatorError, match="did you mean"):
        siftline.Engine(schedule="sequental")
