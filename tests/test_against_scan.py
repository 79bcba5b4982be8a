"""Every index in the registry gives exactly the ids of `scan`: there is no opt-out."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from conftest import FULL_EXAMPLES, N_EXAMPLES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from strategies import NOW, events, large_disjunctions, subscriptions, sweep

import siftline
from siftline import Engine
from siftline.engine.paged import PagedEngine
from siftline.engine.write_buffer import WriteBuffer

if TYPE_CHECKING:
    from siftline.model import Expression

INDEXES = [name for name in siftline.indexes() if name != "scan"]

tenants = st.sampled_from([None, "one", "two"])
lists_of_subscriptions = st.lists(subscriptions, min_size=1, max_size=12)
lists_of_events = st.lists(events, min_size=1, max_size=4)


def filled(index: str, expressions: list[Expression]) -> Engine:
    engine = Engine(index)
    engine.add_many(enumerate(expressions))
    engine.rebuild()
    return engine


def with_short_tail(index: str) -> Engine:
    """Return an engine whose tail goes to the index after a few subscriptions."""
    engine = Engine(index)
    if not isinstance(engine, PagedEngine):  # which has no write buffer
        engine._state.buffer_capacity = 4
        engine._state.buffer = WriteBuffer(4)
    return engine


def pairs(table: Any) -> list[tuple[int, int]]:
    """Return the rows of what `match_batch` returned, those of each event in order."""
    return sorted(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def check_property(index: str, expressions: list[Expression], trees: list[dict[str, Any]]) -> None:
    oracle, engine = filled("scan", expressions), filled(index, expressions)
    one_by_one = with_short_tail(index)
    for number, expression in enumerate(expressions):
        one_by_one.add(expression, id=number)
        one_by_one._check()
    for tree in trees:
        expected = sorted(oracle.match(tree, now=NOW))
        assert sorted(engine.match(tree, now=NOW)) == expected
        assert sorted(one_by_one.match(tree, now=NOW)) == expected
        assert sorted(engine.match(engine.encode(tree), now=NOW)) == expected
    assert (
        pairs(engine.match_batch(trees, now=NOW))
        == pairs(one_by_one.match_batch(trees, now=NOW))
        == pairs(oracle.match_batch(trees, now=NOW))
    )
    engine._check()


@pytest.mark.parametrize("index", INDEXES)
@settings(max_examples=N_EXAMPLES)
@given(expressions=lists_of_subscriptions, trees=lists_of_events)
def test_ids_equal_those_of_scan(index: str, expressions: list[Expression], trees: list[dict[str, Any]]) -> None:
    check_property(index, expressions, trees)


@pytest.mark.parametrize("index", INDEXES)
@settings(max_examples=max(1, N_EXAMPLES // 2))
@given(expressions=st.lists(large_disjunctions | subscriptions, min_size=1, max_size=5), trees=lists_of_events)
def test_ids_of_large_disjunctions_equal_those_of_scan(
    index: str, expressions: list[Expression], trees: list[dict[str, Any]]
) -> None:
    check_property(index, expressions, trees)


@pytest.mark.slow
@pytest.mark.parametrize("index", INDEXES)
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expressions=lists_of_subscriptions, trees=lists_of_events)
def test_ids_equal_those_of_scan_at_length(
    index: str, expressions: list[Expression], trees: list[dict[str, Any]]
) -> None:
    check_property(index, expressions, trees)


class AddRemoveMatch(RuleBasedStateMachine):
    """Random adds, removes, replacements and matches, side by side with the oracle."""

    index = "fast-scan"
    ids: Bundle[int] = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.oracle, self.engine = Engine("scan"), with_short_tail(self.index)
        self.n = 0
        self.subset = self.engine.subset([1, 2, 3, 5, 8, 13, 21, 34, 55])
        self.encoded: list[tuple[dict[str, Any], Any]] = []

    def both(self) -> tuple[Engine, Engine]:
        return self.oracle, self.engine

    @rule(target=ids, expression=subscriptions, weight=st.integers(1, 3), tenant=tenants)
    def add(self, expression: Expression, weight: int, tenant: str | None) -> int:
        self.n += 1
        for engine in self.both():
            engine.add(expression, id=self.n, weight=weight, tenant=tenant)
        return self.n

    @rule(expressions=st.lists(subscriptions, max_size=30), tenant=tenants)
    def add_many(self, expressions: list[Expression], tenant: str | None) -> None:
        rows = [(self.n + i + 1, expression) for i, expression in enumerate(expressions)]
        self.n += len(rows)
        for engine in self.both():
            engine.add_many(rows, tenant=tenant)

    @rule(id=ids, expression=subscriptions)
    def replace(self, id: int, expression: Expression) -> None:
        for engine in self.both():
            engine.replace(id, expression)

    @rule(id=consumes(ids))
    def remove(self, id: int) -> None:
        for engine in self.both():
            engine.remove(id)

    @rule()
    def sweep(self) -> None:
        for engine in self.both():
            sweep(engine)

    @rule()
    def rebuild(self) -> None:
        self.engine.rebuild()

    @rule()
    def settle(self) -> None:
        self.engine.settle()

    @rule()
    def pickle(self) -> None:
        self.engine = pickle.loads(pickle.dumps(self.engine))

    @rule(tree=events)
    def match(self, tree: dict[str, Any]) -> None:
        assert sorted(self.engine.match(tree, now=NOW)) == sorted(self.oracle.match(tree, now=NOW))
        self.encoded = [*self.encoded[-2:], (tree, self.engine.encode(tree))]

    @rule(trees=lists_of_events)
    def match_batch(self, trees: list[dict[str, Any]]) -> None:
        assert pairs(self.engine.match_batch(trees, now=NOW)) == pairs(self.oracle.match_batch(trees, now=NOW))

    @rule(tree=events, chosen=st.sets(st.integers(1, 30)), top=st.integers(0, 5), tenant=tenants)
    def match_some(self, tree: dict[str, Any], chosen: set[int], top: int, tenant: str | None) -> None:
        everything = self.oracle.match(tree, now=NOW)
        inside = [id for id in everything if id in chosen]
        assert sorted(self.engine.match(tree, within=chosen, now=NOW)) == sorted(inside)
        assert sorted(self.engine.match(tree, within=self.subset, now=NOW)) == sorted(set(everything) & self.subset.ids)
        assert sorted(self.engine.match(tree, tenant=tenant, now=NOW)) == sorted(
            self.oracle.match(tree, tenant=tenant, now=NOW)
        )
        assert self.engine.match(tree, top=top, now=NOW) == self.oracle.match(tree, top=top, now=NOW)
        assert (
            self.engine.match(tree, top=top, within=chosen, now=NOW)
            == [id for id in self.oracle.match(tree, top=len(everything), now=NOW) if id in chosen][:top]
        )
        found = self.engine.match(tree, first=True, now=NOW)
        assert found in everything if everything else found is None
        found = self.engine.match(tree, first=True, within=chosen, now=NOW)
        assert found in inside if inside else found is None
        batch = self.engine.match_batch([tree, tree], within=self.subset, tenant=None, now=NOW)
        assert sorted(batch["subscription"].to_pylist()) == sorted([*(set(everything) & self.subset.ids)] * 2)

    @rule()
    def match_what_was_encoded_before(self) -> None:
        for tree, encoded in self.encoded:
            assert sorted(self.engine.match(encoded, now=NOW)) == sorted(self.oracle.match(tree, now=NOW))

    @invariant()
    def is_consistent(self) -> None:
        self.engine._check()
        assert sorted(self.engine.ids()) == sorted(self.oracle.ids())


def run_machine(index: str, n_examples: int, n_steps: int) -> None:
    """Run a state machine; where fewer examples are drawn, `n_examples` are as many fewer."""
    n_examples = max(2, n_examples * N_EXAMPLES // FULL_EXAMPLES)
    machine = type(f"Machine_{index}", (AddRemoveMatch,), {"index": index})
    profile = settings(
        max_examples=n_examples,
        stateful_step_count=n_steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=profile)


@pytest.mark.parametrize("index", INDEXES)
def test_state_machine(index: str) -> None:
    run_machine(index, 25, 30)


@pytest.mark.slow
@pytest.mark.parametrize("index", INDEXES)
def test_state_machine_at_length(index: str) -> None:
    run_machine(index, 500, 60)
