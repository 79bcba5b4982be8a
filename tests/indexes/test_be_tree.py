"""The BE-Tree: the figure that shows it, how it cuts, and what its leaves hold."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from test_against_scan import check_property, lists_of_events, lists_of_subscriptions, run_machine

from siftline import Engine, Statistics
from siftline.indexes import registry
from siftline.indexes.be_tree.index import BeTree, words_of
from siftline.indexes.be_tree.kernels import ATTRIBUTE, FIRST_C_NODE, FIRST_P_NODE, SUBTREE_END

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from siftline.model import Expression


class CutOften(BeTree):
    """Cuts where it can: random examples are too few for the usual capacity."""

    def __init__(self) -> None:
        super().__init__(leaf_capacity=1)


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._INDEXES, "be-tree-1", (__name__, "CutOften"))
        yield


@given(expressions=lists_of_subscriptions, trees=lists_of_events)
def test_ids_equal_those_of_scan_if_cut_often(expressions: list[Expression], trees: list[dict[str, Any]]) -> None:
    check_property("be-tree-1", expressions, trees)


def test_state_machine_if_cut_often() -> None:
    run_machine("be-tree-1", 25, 30)


# OpIndex, Table 1.
TABLE_1 = {
    1: "A = 2 and B in (3, 6, 9)",
    2: "A <= 8 and C >= 2",
    3: "C = 6 and B <= 4 and E between 3 and 12",
    4: "A = 2",
    5: "D >= 12 and E <= 9",
    6: "B in (3, 6) and C <= 4 and D >= 10 and E <= 7",
}
# B is rarest, then A; C, D and E are in every event, with values that satisfy everything.
RARELY_B = [
    {"C": 6, "D": 12, "E": 7, **({"A": 2} if n % 4 == 0 else {}), **({"B": 3} if n == 1 else {})} for n in range(20)
]


def tree(engine: Engine) -> BeTree:
    index = engine._state.index
    assert isinstance(index, BeTree)
    return index


def leaf(engine: Engine, c: int) -> set[Any]:
    """Return the ids in the leaf of a c-node; the ids must be 1, 2, ... in the order of adding."""
    arrays = tree(engine)._parts[0].arrays
    return {clause + 1 for word in words_of(arrays.c_nodes, arrays.leaves, c) for clause in word.clauses}


def p_directory(engine: Engine, c: int) -> dict[str, range]:
    """Return the c-nodes below each attribute of a c-node's p-directory."""
    arrays, names = tree(engine)._parts[0].arrays, engine._state.domains.names
    first, end = arrays.c_nodes[c : c + 2, FIRST_P_NODE].tolist()
    starts = arrays.p_nodes[:, FIRST_C_NODE].tolist()
    return {names[arrays.p_nodes[p, ATTRIBUTE]]: range(starts[p], starts[p + 1]) for p in range(first, end)}


@pytest.fixture
def figure_3() -> Engine:
    engine = Engine("be-tree", leaf_capacity=2, statistics=Statistics.from_events(RARELY_B))
    engine.add_many(TABLE_1.items())
    engine._check()
    return engine


def test_figure_3(figure_3: Engine) -> None:
    """Which subscription hangs where is as drawn there.

    The intervals differ in name, because they halve the elementary spaces and not 1 .. 10: the [1, 5] of B ends where
    the text has it, at 4, and the [1, 5] of A holds the 2 alone.
    """
    assert leaf(figure_3, 0) == {5}
    directory = p_directory(figure_3, 0)
    assert [len(directory["A"]), len(directory["B"])] == [2, 2]
    whole, two = directory["A"]
    assert (leaf(figure_3, whole), leaf(figure_3, two)) == ({2}, {4})
    whole, up_to_4 = directory["B"]
    assert (leaf(figure_3, whole), leaf(figure_3, up_to_4)) == ({1, 6}, {3})
    c_nodes = tree(figure_3)._parts[0].arrays.c_nodes
    assert c_nodes[whole, SUBTREE_END] == up_to_4 + 1
    assert figure_3.stats()["depth"] == 1


def test_figure_3_matches(figure_3: Engine) -> None:
    assert sorted(figure_3.match({"A": 2, "B": 3, "C": 2, "D": 12, "E": 5})) == [1, 2, 4, 5, 6]
    assert figure_3.match({"B": 4, "C": 6, "E": 12}) == [3]
    assert figure_3.match({"B": 5, "C": 6, "E": 12}) == []


def test_events_go_where_they_have_the_attribute_and_the_value(figure_3: Engine) -> None:
    def examined(event: dict[str, Any]) -> int:
        before = int(figure_3.stats()["candidates_examined"])
        figure_3.match(event)
        return int(figure_3.stats()["candidates_examined"]) - before

    assert examined({}) == 1
    assert examined({"A": 3}) == 2
    assert examined({"A": 2}) == 3
    assert examined({"B": 5}) == 3
    assert examined({"B": 4}) == 4
    assert examined({"B": 40}) == 1
    assert examined({"B": [3, 4, 5]}) == 4


def test_intervals_of_strings() -> None:
    engine = Engine("be-tree", leaf_capacity=1)
    engine.add_many(
        enumerate(["s = 'ant'", "s = 'bee'", "s = 'cat'", "s < 'bee'", "s >= 'bee'", "s starts with 'ca'"], 1)
    )
    engine._check()
    assert len(p_directory(engine, 0)["s"]) >= 6
    assert sorted(engine.match({"s": "cat"})) == [3, 5, 6]
    assert sorted(engine.match({"s": "ant"})) == [1, 4]


def test_attributes_of_a_path_are_distinct() -> None:
    engine = Engine("be-tree", leaf_capacity=1)
    engine.add_many((n, f"a >= {n % 3} and b <= {n % 5} and c = {n % 2}") for n in range(60))
    engine._check()
    assert engine.stats()["depth"] == 3
    assert set(engine.match({"a": 0, "b": 0, "c": 0})) == {n for n in range(60) if n % 6 == 0}


def test_clauses_that_nothing_tells_apart_share_a_leaf() -> None:
    engine = Engine("be-tree", leaf_capacity=5)
    engine.add_many((n, "a = 1 and b > 2 and c in (1, 5)") for n in range(1000))
    engine._check()
    (word, *others) = words_of(tree(engine)._parts[0].arrays.c_nodes, tree(engine)._parts[0].arrays.leaves, 0)
    assert len(word.clauses) == 64
    assert len(others) == 15
    assert sorted(engine.match({"a": 1, "b": 3, "c": 5})) == list(range(1000))
    assert engine.match({"a": 1, "b": 3, "c": 3}) == []
    assert "513-1024: 1" in engine.describe()


def test_a_leaf_of_exhausted_attributes_overflows() -> None:
    engine = Engine("be-tree", leaf_capacity=2)
    engine.add_many((n, f"a > 1 and c is {'not ' if n % 2 else ''}null and b != {n}") for n in range(200))
    engine.add_many((n, "a > 1") for n in range(200, 400))
    engine._check()
    assert len(engine.match({"a": 2, "b": 8})) == 299


def test_what_the_path_proves_is_not_tested_again() -> None:
    engine = Engine("be-tree", leaf_capacity=1)
    engine.add_many((n, f"a = {n}") for n in range(100))
    assert engine.match({"a": 17}) == [17]
    stats = engine.stats()
    assert (stats["candidates_examined"], stats["predicates_evaluated"]) == (1, 0)


def test_equal_predicates_of_a_leaf_are_tested_once() -> None:
    engine = Engine("be-tree", leaf_capacity=100)
    engine.add_many((n, f"a between 1 and 9 and b = {n}") for n in range(50))
    assert engine.match({"a": 5}) == []
    assert engine.match({"b": 5, "a": 0}) == []
    assert engine.stats()["predicates_evaluated"] <= 50 + 50 + 1


def test_several_values_do_not_visit_a_subtree_twice() -> None:
    engine = Engine("be-tree", leaf_capacity=1)
    engine.add_many((n, f"a < {n} and b >= {n}") for n in range(1, 50))
    engine._check()
    engine.match({"a": list(range(50)), "b": 50})
    assert engine.stats()["candidates_examined"] == 49


def test_attributes_that_came_later_are_skipped() -> None:
    engine = Engine("be-tree", leaf_capacity=5)
    engine.add_many((n, f"a = {n}") for n in range(100))
    engine.add("zzz = 5", id=1000)
    assert sorted(engine.match({"a": 5, "zzz": 5, "nobody": 5})) == [5, 1000]


def random_subscription(chance: random.Random) -> str:
    attributes = chance.sample("abcdefgh", chance.randint(1, 4))
    return " and ".join(random_predicate(chance, attribute) for attribute in attributes)


def random_predicate(chance: random.Random, attribute: str) -> str:
    x, y = sorted(chance.choices(range(20), k=2))
    forms = ("= {x}", "!= {x}", "<= {x}", "> {y}", "between {x} and {y}", "in ({x}, {y})", "is not null", "is null")
    return f"{attribute} {chance.choice(forms).format(x=x, y=y)}"


def random_event(chance: random.Random) -> dict[str, Any]:
    attributes = chance.sample("abcdefghi", chance.randint(0, 6))
    return {
        name: chance.choices(range(20), k=2) if chance.random() < 0.1 else chance.randrange(20) for name in attributes
    }


@pytest.mark.parametrize("leaf_capacity", [1, 5, 50, 250, 1000])
def test_capacities(leaf_capacity: int) -> None:
    chance = random.Random(leaf_capacity)
    subscriptions = [(n, random_subscription(chance)) for n in range(400)]
    engine, oracle = Engine("be-tree", leaf_capacity=leaf_capacity), Engine("scan")
    for one in (engine, oracle):
        one.add_many(subscriptions)
        one.remove_many(range(0, 400, 7))
    engine._check()
    for event in (random_event(chance) for _ in range(60)):
        assert sorted(engine.match(event)) == sorted(oracle.match(event))


def test_a_directory_larger_than_the_event_is_searched() -> None:
    # `a` is in all and best, all its intervals are the same, and so the next cut has 300 p-nodes.
    statistics = Statistics.from_events([{f"x{n}": 1 for n in range(300)}])
    engine = Engine("be-tree", leaf_capacity=1, statistics=statistics)
    engine.add_many((n, f"a > 5 and x{n} = 1") for n in range(300))
    engine._check()
    assert engine.stats()["depth"] == 2
    assert engine.match({"a": 6, "x17": 1, "x18": [2, 3], "b": 1}) == [17]
    assert sorted(engine.match({"a": 6, "x17": 1, "x18": [2, 1]})) == [17, 18]


def test_added_and_removed() -> None:
    engine = Engine("be-tree", leaf_capacity=2)
    for n in range(200):
        engine.add(f"a = {n % 10} and b >= {n % 7}", id=n)
        engine._check()
    full = sum(engine.stats()["bytes"].values())
    for n in range(0, 200, 2):
        engine.remove(n)
    engine._check()
    assert sorted(engine.match({"a": 3, "b": 6})) == [n for n in range(200) if n % 10 == 3]
    assert engine.match({"a": 4, "b": 6}) == []
    engine.remove_many(range(1, 200, 2))
    assert engine.match({"a": 3, "b": 6}) == []
    assert sum(engine.stats()["bytes"].values()) < full / 4


def test_saved(figure_3: Engine, tmp_path: Path) -> None:
    figure_3.save(tmp_path / "saved")
    opened = Engine.open(tmp_path / "saved")
    opened._check()
    assert leaf(opened, 0) == {5}
    assert opened.match({"B": 4, "C": 6, "E": 12}) == [3]


def test_stats_and_description(figure_3: Engine) -> None:
    stats = figure_3.stats()
    assert (stats["c_nodes"], stats["p_nodes"], stats["leaves"], stats["depth"]) == (5, 2, 5, 1)
    assert set(stats["bytes"]) == {"is_live", "others", "roots", "c_nodes", "p_nodes", "leaves"}
    assert "depth 1: 5 c-nodes, 2 p-nodes (2 at the root), 5 leaves of up to 2 clauses" in figure_3.describe()
    assert "leaves by clauses: 1: 4, 2: 1" in figure_3.describe()


def test_only_vetoes() -> None:
    engine = Engine("be-tree")
    engine.add("a is null", id=1)
    engine._check()
    assert engine.match({}) == [1]
    assert "leaves by clauses: none" in engine.describe()


@pytest.mark.parametrize("leaf_capacity", [0, -1, 2.5, "5", True, None])
def test_capacities_that_are_refused(leaf_capacity: Any) -> None:
    with pytest.raises(ValueError, match="leaf_capacity must be an integer from 1 to 1,000,000, not"):
        Engine("be-tree", leaf_capacity=leaf_capacity)


def test_a_literal_on_the_first_space_tells_clauses_apart() -> None:
    engine = Engine("be-tree", leaf_capacity=1)
    engine.add_many([(1, "b is not null and a not starts with 'a'"), (2, "a not starts with 'a'")])
    engine._check()
    assert engine.match({"a": "b"}) == [2]
