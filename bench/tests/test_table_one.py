"""The structures of the PB+tree paper's Table 1, against brute force."""

from __future__ import annotations

import random
from typing import Any

import pytest
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st

from siftline_bench.structures.table_one import OF_INTERVALS, STRUCTURES, RedBlackTree
from siftline_bench.structures.table_one_intervals import IbsTree, Predicate, TimeIndex

SINGLE = ["=", "!=", "<", "<=", ">", ">="]
# Figure 7 of the paper, as far as its text tells it; the tree itself is in test_pb_tree.py.
FIGURE_7 = {1: ("=", 1), 2: ("<", 2), 4: ("!=", 4), 5: (">=", 5), 6: (">", 6), 8: ("<", 8), 9: ("=", 9)}

constants = st.integers(0, 6)
single_predicates = st.builds(Predicate, st.sampled_from(SINGLE), constants)
intervals = st.builds(Predicate, st.just("between"), constants, constants)


def expected(live: dict[int, Predicate], value: float) -> set[int]:
    return {id for id, predicate in live.items() if predicate.holds(value)}


@pytest.mark.parametrize("name", STRUCTURES)
def test_against_brute_force(name: str) -> None:
    predicates = st.one_of(single_predicates, intervals) if name in OF_INTERVALS else single_predicates

    @settings(max_examples=min(N_EXAMPLES, 150))
    @given(st.lists(st.tuples(predicates, st.integers(0, 3)), max_size=40))
    def check(changes: list[tuple[Predicate, int]]) -> None:
        structure, live = STRUCTURES[name](), dict[int, Predicate]()
        for id, (predicate, choice) in enumerate(changes):
            if live and choice == 0:
                gone = sorted(live)[id % len(live)]
                structure.delete(live.pop(gone), gone)
            structure.insert(predicate, id)
            live[id] = predicate
            for value in (-1, 0, 2.5, 3, 6, 7):
                assert structure.search(value) == expected(live, value)
        empty = STRUCTURES[name]().n_entries
        for id, predicate in live.items():
            structure.delete(predicate, id)
        assert structure.n_entries == empty
        assert structure.search(3) == set()

    check()


@pytest.mark.parametrize("name", STRUCTURES)
def test_many(name: str) -> None:
    rng = random.Random(7)
    structure, live = STRUCTURES[name](), dict[int, Predicate]()
    for id in range(600):
        op = rng.choice(["between", *SINGLE] if name in OF_INTERVALS else SINGLE)
        low = rng.uniform(0, 100)
        live[id] = Predicate(op, low, low + rng.uniform(0, 10))
        structure.insert(live[id], id)
    for id in rng.sample(range(600), 300):
        structure.delete(live.pop(id), id)
    for _ in range(50):
        value = rng.choice([rng.uniform(-1, 101), rng.choice(list(live.values())).constant])
        assert structure.search(value) == expected(live, value)


@pytest.mark.parametrize("name", STRUCTURES)
def test_figure_7(name: str) -> None:
    structure = STRUCTURES[name]()
    predicates = {id: Predicate(*row) for id, row in FIGURE_7.items()}
    for id, predicate in predicates.items():
        structure.insert(predicate, id)
    assert structure.search(5) == {4, 5, 8}
    for value in range(11):
        assert structure.search(value) == expected(predicates, value)


def steps(structure: Any, value: float) -> int:
    before = structure.steps
    structure.search(value)
    return int(structure.steps - before)


def test_a_red_black_tree_looks_at_every_node() -> None:
    tree = RedBlackTree()
    for id in range(500):
        tree.insert(Predicate("=", id), id)
    assert steps(tree, 250) >= 500


def test_marks_stand_as_high_as_they_can() -> None:
    tree = IbsTree()
    tree.insert(Predicate("between", 2, 6), 0)
    tree.insert(Predicate("<=", 4), 1)
    assert [tree.search(value) for value in (1, 2, 3, 4, 5, 6, 7)] == [{1}, {0, 1}, {0, 1}, {0, 1}, {0}, {0}, set()]


def test_a_time_index_holds_whole_sets() -> None:
    index = TimeIndex()
    for id in range(100):
        index.insert(Predicate("<=", id), id)
    assert index.n_entries > 100 * 100 // 2
