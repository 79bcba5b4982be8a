"""Every schedule and every index gives the ids of the oracle, which makes all calls and tries all substitutions."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

import siftline
from siftline.engine import Engine
from siftline.errors import SubscriptionError
from siftline.indexes.registry import indexes
from siftline.model import And, Arithmetic, Call, Constraint, Expression, IsTrue, Not, Or, Predicate, Variable
from siftline.operators.acceptance import accepted
from siftline.operators.schedules import schedules

SCHEDULES = [name for name in schedules() if name != "everything"]


@siftline.operator("t_flag", cost=0.5)
def t_flag(event: Any, name: str) -> Any:
    """True, false, unknown, or an error, as the event says."""
    value = event.get(name)
    if value == "fail":
        raise RuntimeError("asked to fail")
    return value if value is None else bool(value)


@siftline.operator("t_value", binds=["value"])
def t_value(event: Any, name: str) -> Any:
    """Return all values of an attribute, unknown if there is none; fail if the event says so."""
    found = event.get(f"{name}s")
    if found == "fail":
        raise RuntimeError("asked to fail")
    return found


@siftline.operator("t_pair", cost=4, binds=["left", "right"])
def t_pair(event: Any) -> Any:
    return [(a, b) for a in event.get("xs") or [] for b in event.get("ys") or []]


@siftline.operator("t_batch", batch=True)
def t_batch(events: Any, least: int) -> Any:
    return [(row.get("n") or 0) >= least for row in events.to_pylist()]


names = st.sampled_from(["x", "y"])
variables = st.sampled_from(["a", "b"]).map(Variable)
numbers = st.integers(0, 2)
calls: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Call, st.just("t_flag"), st.tuples(names)),
    st.builds(Call, st.just("t_value"), st.tuples(names, st.one_of(variables, variables, numbers))),
    st.builds(Call, st.just("t_pair"), st.tuples(st.one_of(variables, numbers), variables)),
    st.builds(Call, st.just("t_batch"), st.tuples(st.integers(0, 2))),
)
terms = st.one_of(variables, numbers, st.builds(Arithmetic, st.sampled_from("+-*/"), variables, numbers))
constraints = st.builds(Constraint, st.sampled_from(["=", "!=", "<", ">="]), variables, terms)
plain = st.builds(Predicate, st.just("n"), st.sampled_from(["=", ">", "!="]), numbers)


def _groups(children: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(children, min_size=2, max_size=3)
    return st.one_of(several.map(And), several.map(And), several.map(Or), children.map(Not), children.map(IsTrue))


def is_accepted(expression: Expression) -> bool:
    try:
        accepted(expression)
    except SubscriptionError:
        return False
    return True


conjunctions = st.lists(st.one_of(calls, constraints, plain), min_size=1, max_size=4).map(And)
nested = st.recursive(st.one_of(calls, calls, constraints, plain), _groups, max_leaves=6)
subscriptions = st.one_of(conjunctions, nested).filter(is_accepted)
values = st.lists(st.one_of(numbers, st.just("s"), st.just(True)), max_size=3)
events = st.fixed_dictionaries(
    {},
    optional={
        "x": st.sampled_from([True, False, None, "fail"]),
        "y": st.sampled_from([True, False]),
        "xs": st.one_of(values, st.just("fail")),
        "ys": values,
        "n": numbers,
    },
)


def pairs(table: Any) -> list[tuple[int, int]]:
    return sorted(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def check(engine: Engine, oracle: Engine, trees: list[dict[str, Any]]) -> None:
    for tree in trees:
        assert sorted(engine.match(tree)) == sorted(oracle.match(tree))
    assert pairs(engine.match_batch(trees)) == pairs(oracle.match_batch(trees))


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(expressions=st.lists(subscriptions, max_size=8), trees=st.lists(events, max_size=4))
def test_schedules(schedule: str, expressions: list[Expression], trees: list[dict[str, Any]]) -> None:
    oracle, engine = Engine("scan"), Engine(schedule=schedule)
    for engine_ in (oracle, engine):
        engine_.add_many(enumerate(expressions))
    check(engine, oracle, trees)


@pytest.mark.parametrize("index", indexes())
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(expressions=st.lists(subscriptions, max_size=6), trees=st.lists(events, max_size=3))
def test_indexes(index: str, expressions: list[Expression], trees: list[dict[str, Any]]) -> None:
    oracle, engine = Engine("scan"), Engine(index)
    for number, expression in enumerate(expressions):
        oracle.add(expression, id=number)
        engine.add(expression, id=number)
    check(engine, oracle, trees)


class AddRemoveMatch(RuleBasedStateMachine):
    schedule = "adaptive"
    ids: Bundle[int] = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.oracle, self.engine = Engine("scan"), Engine(schedule=self.schedule)
        self.n = 0

    @rule(target=ids, expression=subscriptions)
    def add(self, expression: Expression) -> int:
        self.n += 1
        for engine in (self.oracle, self.engine):
            engine.add(expression, id=self.n)
        return self.n

    @rule(expressions=st.lists(subscriptions, max_size=12))
    def add_many(self, expressions: list[Expression]) -> None:
        rows = [(self.n + i + 1, expression) for i, expression in enumerate(expressions)]
        self.n += len(rows)
        for engine in (self.oracle, self.engine):
            engine.add_many(rows)

    @rule(id=ids, expression=subscriptions)
    def replace(self, id: int, expression: Expression) -> None:
        for engine in (self.oracle, self.engine):
            engine.replace(id, expression)

    @rule(id=consumes(ids))
    def remove(self, id: int) -> None:
        for engine in (self.oracle, self.engine):
            engine.remove(id)

    @rule()
    def sweep(self) -> None:
        for engine in (self.oracle, self.engine):
            engine._updates.sweep_all()

    @rule()
    def pickle(self) -> None:
        self.engine = pickle.loads(pickle.dumps(self.engine))

    @rule(trees=st.lists(events, max_size=3))
    def match(self, trees: list[dict[str, Any]]) -> None:
        check(self.engine, self.oracle, trees)

    @invariant()
    def is_consistent(self) -> None:
        self.engine._check()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_state_machine(schedule: str) -> None:
    machine = type(f"Machine_{schedule}", (AddRemoveMatch,), {"schedule": schedule})
    profile = settings(max_examples=6, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=profile)


def test_snapshots_keep_schedule_and_calls(tmp_path: Any) -> None:
    engine = Engine(schedule="sub-order")
    engine.add_many([(1, "t_flag('x') and n > 1"), (2, "n > 1"), (3, "t_value('x', ?v) and ?v > 1")])
    engine.save(tmp_path / "saved")
    opened = Engine.open(tmp_path / "saved")
    assert sorted(opened.match({"x": True, "n": 2, "xs": [2]})) == [1, 2, 3]
    assert opened.stats()["operators"]["schedule"] == "sub-order"
