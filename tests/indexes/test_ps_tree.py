"""The PS-Tree: the paper's examples, and every type of values against a list of predicates."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from siftline.errors import DuplicateIdError, TooLargeError, UnknownIdError
from siftline.indexes.ps_tree.tree import PsTree
from siftline.model.predicate import Predicate

COLOURS = ["red", "orange", "yellow", "green", "blue"]

# Some values of each type, with neighbours, ends of the type, and values that begin alike.
VALUES: dict[str, list[Any]] = {
    "byte": [-128, -127, -17, -16, -5, -1, 0, 1, 2, 5, 126, 127],
    "int32": [-(2**31), -257, -1, 0, 1, 2, 15, 16, 17, 256, 2**31 - 2, 2**31 - 1],
    "int64": [-(2**63), -1, 0, 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1],
    "float": [-1e300, -1.5, -5e-324, 0.0, 5e-324, 1.0, math.nextafter(1.0, 2.0), 2.0, 1e300],
    "string": ["", "\0", "a", "a\0", "ab", "abc", "b", "é", "日", "日本", "\U0010ffff", "\ud800"],
    "enumeration": COLOURS,
}
COMPARISONS = ["=", "!=", "<", "<=", ">", ">="]


def tree_of(kind: str, **options: Any) -> PsTree:
    return PsTree(kind, values=COLOURS if kind == "enumeration" else None, **options)


def predicates_on(kind: str) -> st.SearchStrategy[Predicate]:
    values = st.sampled_from(VALUES[kind])
    return st.one_of(
        st.builds(Predicate, st.just("x"), st.sampled_from(COMPARISONS), values),
        st.builds(Predicate, st.just("x"), st.sampled_from(["in", "not in"]), st.lists(values, max_size=4)),
        st.builds(Predicate, st.just("x"), st.sampled_from(["between", "not between"]), st.tuples(values, values)),
    )


def holds(predicate: Predicate, value: Any, kind: str) -> bool:
    """The meaning of a predicate, with nothing of the tree in it."""
    operand: Any = predicate.operand
    if kind == "enumeration":  # in the order of the declaration
        value = COLOURS.index(value)
        operand = [COLOURS.index(each) for each in operand] if type(operand) is tuple else COLOURS.index(operand)
    match predicate.op:
        case "=":
            return bool(value == operand)
        case "!=":
            return bool(value != operand)
        case "<":
            return bool(value < operand)
        case "<=":
            return bool(value <= operand)
        case ">":
            return bool(value > operand)
        case ">=":
            return bool(value >= operand)
        case "in" | "not in":
            return (value in operand) == (predicate.op == "in")
        case _:
            return bool(operand[0] <= value <= operand[1]) == (predicate.op == "between")


def texts(tree: PsTree) -> list[str]:
    return [space.text for space in tree.spaces()]


def between(low: Any, high: Any) -> Predicate:
    return Predicate("x", "between", (low, high))


def is_as_at_the_start(tree: PsTree) -> bool:
    stats = tree.stats()
    return (stats["nodes"], stats["boundaries"], stats["leaves"], stats["listed"], len(tree)) == (1, 0, 1, 0, 0)


# --- The paper's examples ---------------------------------------------------------------------------------------------


def test_figure_1() -> None:
    tree = PsTree("int32", domain=(0, 10))
    tree.insert(between(0, 4), 1)
    tree.insert(between(2, 4), 2)
    assert texts(tree) == ["[0, 2)", "[2, 4]", "(4, 10]"]
    assert tree.subscriptions(1).tolist() == [1]
    assert sorted(tree.subscriptions(4).tolist()) == [1, 2]
    assert tree.subscriptions(5).tolist() == []


def test_figure_2b() -> None:
    tree = PsTree("byte")
    tree.insert(between(-5, -1), 1)
    tree.insert(between(1, 5), 2)
    assert tree.elements(-5) == ("-", 7, 11)
    assert texts(tree) == ["[-128, -5)", "[-5, -1]", "(-1, 1)", "[1, 5]", "(5, 127]"]
    lists = [tree.subscriptions(value).tolist() for value in (-6, -5, 0, 2, 6)]
    assert lists == [[], [1], [], [2], []]
    assert "[1, 5]  1 predicates, 0 events, [2]" in tree.describe()


def test_the_age_example_and_the_deletion_of_s2() -> None:
    tree = PsTree("int32", domain=(1, 100))
    tree.insert(between(20, 60), 1)
    tree.insert(between(30, 80), 2)
    assert texts(tree) == ["[1, 20)", "[20, 30)", "[30, 60]", "(60, 80]", "(80, 100]"]
    assert tree.count_many([1, 20, 30, 61, 81]).tolist() == [0, 1, 2, 1, 0]
    tree.delete(2)
    assert texts(tree) == ["[1, 20)", "[20, 60]", "(60, 100]"]
    assert tree.count_many([1, 20, 61]).tolist() == [0, 1, 0]
    tree._check()


def test_equal_counters_are_no_reason_to_merge() -> None:
    tree = PsTree("int32")
    tree.insert(between(0, 9), 1)
    tree.insert(between(10, 19), 2)
    tree.insert(between(10, 19), 3)
    tree.delete(3)
    assert tree.subscriptions(9).tolist() == [1]
    assert tree.subscriptions(10).tolist() == [2]


def test_elements() -> None:
    assert len(PsTree("int32").elements(7)) == 9
    assert len(PsTree("int64").elements(7)) == 17
    assert PsTree("float").elements(1.0) == ("+", 3, 15, 15, *[0] * 13)
    assert PsTree("float").elements(-0.0) == PsTree("float").elements(0.0)
    assert PsTree("string").elements("añ日") == ("a", "ñ", "日")
    assert tree_of("enumeration").elements("green") == (3,)


# --- Against a list of predicates -------------------------------------------------------------------------------------


class Changes(RuleBasedStateMachine):
    """Inserts, deletes and matches; a dict of predicates says what is right."""

    kind = "byte"
    variant = "bloom"

    def __init__(self) -> None:
        super().__init__()
        self.tree = tree_of(self.kind, variant=self.variant)
        self.stored: dict[int, Predicate] = {}
        self.counted: list[Any] = []

    @rule(data=st.data(), id=st.integers(0, 40))
    def insert(self, data: st.DataObject, id: int) -> None:
        predicate = data.draw(predicates_on(self.kind))
        if id in self.stored:
            with pytest.raises(DuplicateIdError):
                self.tree.insert(predicate, id)
            return
        leaves = self.tree.insert(predicate, id)
        self.stored[id] = predicate
        inside = {self.tree.match(value) for value in VALUES[self.kind] if holds(predicate, value, self.kind)}
        assert inside <= set(leaves.tolist())
        assert len(set(leaves.tolist())) == len(leaves)

    @rule(data=st.data())
    def insert_many(self, data: st.DataObject) -> None:
        predicates = data.draw(st.lists(predicates_on(self.kind), max_size=5))
        ids = [id for id in range(50) if id not in self.stored][: len(predicates)]
        self.tree.insert_many(predicates[: len(ids)], ids)
        self.stored |= dict(zip(ids, predicates, strict=False))

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.stored)))
        self.tree.delete(id)
        del self.stored[id]

    @rule(data=st.data())
    def count(self, data: st.DataObject) -> None:
        value = data.draw(st.sampled_from(VALUES[self.kind]))
        assert self.tree.match(value) == self.tree.match(value, count=True)
        self.counted.append(value)

    @invariant()
    def finds_what_holds(self) -> None:
        values = VALUES[self.kind]
        self.tree._check()
        expected = [[id for id in sorted(self.stored) if holds(self.stored[id], value, self.kind)] for value in values]
        assert self.tree.count_many(values).tolist() == [len(ids) for ids in expected]
        assert self.tree.match_many(values).tolist() == [self.tree.match(value) for value in values]
        if self.variant == "bloom":
            starts, ids = self.tree.query_many(values)
            found = [sorted(ids[a:b].tolist()) for a, b in pairwise(starts)]
            assert found == expected
            assert [sorted(self.tree.subscriptions(value).tolist()) for value in values] == expected

    @invariant()
    def selectivity_is_an_upper_bound(self) -> None:
        for id, predicate in self.stored.items():
            n_true = sum(holds(predicate, value, self.kind) for value in self.counted)
            assert self.tree.selectivity(id) >= n_true

    def teardown(self) -> None:
        for id in self.stored:
            self.tree.delete(id)
        self.tree._check()
        assert is_as_at_the_start(self.tree)


def machine(kind: str, variant: str) -> type[RuleBasedStateMachine]:
    return type(f"{kind}_{variant}", (Changes,), {"kind": kind, "variant": variant})


@pytest.mark.parametrize("variant", ["bloom", "hash"])
@pytest.mark.parametrize("kind", VALUES)
def test_changes(kind: str, variant: str) -> None:
    rules = settings(max_examples=8, stateful_step_count=15)
    run_state_machine_as_test(machine(kind, variant), settings=rules)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["bloom", "hash"])
@pytest.mark.parametrize("kind", VALUES)
def test_many_changes(kind: str, variant: str) -> None:
    rules = settings(max_examples=150, stateful_step_count=30)
    run_state_machine_as_test(machine(kind, variant), settings=rules)


@pytest.mark.parametrize("kind", VALUES)
def test_bulk_makes_the_same_tree(kind: str) -> None:
    @settings(max_examples=25)
    @given(st.lists(predicates_on(kind), max_size=12), st.integers(0, 12))
    def check(predicates: list[Predicate], n_before: int) -> None:
        one_by_one, bulk = tree_of(kind), tree_of(kind)
        for id, predicate in enumerate(predicates):
            one_by_one.insert(predicate, id)
        for id, predicate in enumerate(predicates[:n_before]):
            bulk.insert(predicate, id)
        bulk.insert_many(predicates[n_before:], range(n_before, max(n_before, len(predicates))))
        bulk._check()
        assert bulk.describe() == one_by_one.describe()

    check()


@pytest.mark.parametrize("kind", ["int64", "float"])
def test_intervals_make_the_same_tree(kind: str) -> None:
    rng = np.random.default_rng(3)
    lows = rng.integers(-40, 40, 60)
    highs = lows + rng.integers(-3, 20, 60)
    values = lows / 2 if kind == "float" else lows, highs / 2 if kind == "float" else highs
    bulk, one_by_one = PsTree.build(*values), PsTree(kind)
    for id, (low, high) in enumerate(zip(*(side.tolist() for side in values), strict=True)):
        one_by_one.insert(between(low, high), id)
    bulk._check()
    assert bulk.describe() == one_by_one.describe()


@given(st.lists(st.text(), min_size=1, max_size=8), st.text())
@settings(max_examples=50)
def test_any_strings(bounds: list[str], value: str) -> None:
    tree = PsTree("string")
    for id, bound in enumerate(bounds):
        tree.insert(Predicate("x", "<=", bound), id)
    tree._check()
    expected = [id for id, bound in enumerate(bounds) if value <= bound]
    assert sorted(tree.subscriptions(value).tolist()) == expected


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8), st.floats(allow_nan=False))
@settings(max_examples=50)
def test_any_floats(bounds: list[float], value: float) -> None:
    tree = PsTree("float")
    for id, bound in enumerate(bounds):
        tree.insert(Predicate("x", ">", bound), id)
    tree._check()
    expected = [id for id, bound in enumerate(bounds) if value > bound]
    assert sorted(tree.subscriptions(value).tolist()) == expected


# --- Cuts and counters ------------------------------------------------------------------------------------------------


def test_neighbouring_integers_leave_no_empty_space() -> None:
    tree = PsTree("int32", domain=(0, 9))
    tree.insert(between(0, 4), 0)
    tree.insert(between(5, 9), 1)
    assert len(tree.spaces()) == 2
    tree.delete(0)  # the cut above 4 goes, the one below 5 stays
    assert texts(tree) == ["[0, 5)", "[5, 9]"]
    tree.insert(Predicate("x", "not in", (4, 5)), 2)
    tree._check()
    assert tree.subscriptions(6).tolist() == [1, 2]


def test_an_equality_cuts_on_both_sides() -> None:
    tree = PsTree("float", domain=(0.0, 1.0))
    tree.insert(Predicate("x", "=", 0.5), 0)
    assert texts(tree) == ["[0.0, 0.5)", "[0.5, 0.5]", "(0.5, 1.0]"]
    tree.insert(Predicate("x", ">", 0.5), 1)
    assert len(tree.spaces()) == 3
    tree.delete(0)
    assert texts(tree) == ["[0.0, 0.5]", "(0.5, 1.0]"]


def test_predicates_that_nothing_or_everything_satisfies() -> None:
    tree = PsTree("byte")
    for id, predicate in enumerate([between(5, 4), Predicate("x", "in", ()), Predicate("x", "<", -128)]):
        assert len(tree.insert(predicate, id)) == 0
    for id, predicate in enumerate([Predicate("x", "not between", (5, 4)), Predicate("x", "<=", 127)], 3):
        assert len(tree.insert(predicate, id)) == 1
    assert len(tree.spaces()) == 1
    assert sorted(tree.subscriptions(0).tolist()) == [3, 4]


def test_a_split_copies_both_counters() -> None:
    tree = PsTree("int32", domain=(0, 9))
    tree.insert(Predicate("x", "<=", 9), 0)
    tree.match_many([1, 2, 8], count=True)
    tree.insert(Predicate("x", ">=", 5), 1)
    assert tree.count_many([1, 8]).tolist() == [1, 2]
    assert [tree.selectivity(id) for id in (0, 1)] == [6, 3]
    tree.match(8, count=True)
    assert [tree.selectivity(id) for id in (0, 1)] == [7, 4]
    tree.delete(1)
    assert tree.selectivity(0) == 4  # no more than there were events


def test_selectivity_is_exact_without_later_splits() -> None:
    tree = PsTree("int32", domain=(0, 99))
    tree.insert(between(10, 19), 0)
    tree.insert(between(15, 39), 1)
    tree.match_many(np.arange(100), count=True)
    assert [tree.selectivity(id) for id in (0, 1)] == [10, 25]


def test_space_ids_are_never_used_again() -> None:
    tree = PsTree("int32", variant="hash")
    seen = {tree.space_id(tree.match(0))}
    for _ in range(5):
        leaf = int(tree.insert(Predicate("x", "=", 3), 0)[0])
        assert tree.space_id(leaf) not in seen
        seen.add(tree.space_id(leaf))
        tree.delete(0)
    assert "space 1" in tree.describe()


def test_signatures_forget() -> None:
    tree = PsTree("byte", signature_bits=64, n_hashes=3)
    for id in range(20):
        tree.insert(Predicate("x", ">", 0), id)
    leaf = tree.match(1)
    assert all(tree.may_list(leaf, id) for id in range(20))
    for id in range(19):
        tree.delete(id)
    assert tree.may_list(tree.match(1), 19)
    assert sum(tree.may_list(tree.match(1), id) for id in range(1000)) < 20
    assert not tree.may_list(tree.match(0), 19)


def test_an_enumeration_may_mix_types() -> None:
    tree = PsTree("enumeration", values=["low", 2, "high"])
    tree.insert(Predicate("x", ">=", 2), 0)
    assert texts(tree) == ["['low', 2)", "[2, 'high']"]
    assert tree.count_many(["low", 2, "high"]).tolist() == [0, 1, 1]


@pytest.mark.parametrize("kind", VALUES)
def test_no_values(kind: str) -> None:
    tree = tree_of(kind)
    tree.insert_many([], [])
    assert tree.match_many([]).tolist() == []
    assert tree.query_many([])[0].tolist() == [0]


# --- Memory and refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_memory_comes_back(kind: str) -> None:
    tree = PsTree(kind)
    empty = sum(tree.stats()["bytes"].values())
    values = [i * 7919 for i in range(400)] if kind == "int64" else [f"user/{i:05}" for i in range(400)]
    tree.insert_many([Predicate("x", "=", value) for value in values], range(400))
    full = sum(tree.stats()["bytes"].values())
    for id in range(0, 400, 2):
        tree.delete(id)
    tree._check()
    assert [tree.subscriptions(value).tolist() for value in values[:4]] == [[], [1], [], [3]]
    for id in range(1, 400, 2):
        tree.delete(id)
    tree._check()
    assert is_as_at_the_start(tree)
    assert sum(tree.stats()["bytes"].values()) < empty + full // 20


def test_lists_that_would_not_fit_are_refused_and_leave_nothing() -> None:
    lows = np.arange(3000)
    tree = PsTree("int64", memory_limit_mb=1)
    with pytest.raises(TooLargeError, match="subscription lists"):
        tree.insert_intervals(lows, lows + 10_000)
    tree._check()
    assert len(tree) == 0
    assert len(tree.spaces()) == 1
    PsTree.build(lows, lows + 10_000, variant="hash")


def test_refuses_bad_options() -> None:
    with pytest.raises(ValueError, match="unknown type"):
        PsTree("decimal")
    with pytest.raises(ValueError, match="variant"):
        PsTree("byte", variant="tree")
    with pytest.raises(ValueError, match="multiple of 64"):
        PsTree("byte", signature_bits=100)
    with pytest.raises(ValueError, match="n_hashes"):
        PsTree("byte", n_hashes=0)
    with pytest.raises(ValueError, match="list of values"):
        PsTree("enumeration")
    with pytest.raises(ValueError, match="only once"):
        PsTree("enumeration", values=["a", "a"])
    with pytest.raises(ValueError, match="takes no domain"):
        PsTree("string", domain=("a", "b"))
    with pytest.raises(ValueError, match="low <= high"):
        PsTree("int32", domain=(5, 4))


@pytest.mark.parametrize(
    ("kind", "value"),
    [("byte", 128), ("byte", 1.5), ("byte", True), ("float", "a"), ("float", 2**53 + 1), ("string", 1)],
)
def test_refuses_values_of_another_type(kind: str, value: Any) -> None:
    tree = PsTree(kind)
    with pytest.raises(ValueError, match=r"takes|outside|no double"):
        tree.match(value)
    with pytest.raises(ValueError, match=r"takes|outside|no double"):
        tree.insert(Predicate("x", "=", value), 0)
    assert len(tree) == 0


def test_refuses_what_it_does_not_have() -> None:
    tree = PsTree("int32", variant="hash")
    with pytest.raises(ValueError, match="no lists"):
        tree.subscriptions(1)
    with pytest.raises(UnknownIdError, match="no predicate has the id 3"):
        tree.delete(3)
    with pytest.raises(ValueError, match="does not take"):
        tree.insert(Predicate("x", "is null"), 0)
    with pytest.raises(ValueError, match="numbers from 0 on"):
        tree.insert(Predicate("x", "=", 1), -1)
    with pytest.raises(ValueError, match="2 predicates for 1 ids"):
        tree.insert_many([Predicate("x", "=", 1)] * 2, [0])
    with pytest.raises(DuplicateIdError, match="twice"):
        tree.insert_many([Predicate("x", "=", 1)] * 2, [0, 0])
    with pytest.raises(ValueError, match="none of the declared"):
        tree_of("enumeration").match("pink")
    with pytest.raises(ValueError, match="2 lows and 1 highs"):
        tree.insert_intervals(np.array([1, 2]), np.array([3]))
    with pytest.raises(ValueError, match="NaN"):
        PsTree("float").match_many([1.0, math.nan])
