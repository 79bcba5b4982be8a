"""`k-index`: sizes, posting lists, rewriting, alternatives, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from siftline import Engine
from siftline.errors import TooLargeError, UnknownIndexError

if TYPE_CHECKING:
    from pathlib import Path

    from siftline.indexes.k_index.kernels import Layout

# OpIndex, Table 1.
TABLE_1 = {
    1: "A = 2 and B in (3, 6, 9)",
    2: "A <= 8 and C >= 2",
    3: "C = 6 and B <= 4 and E between 3 and 12",
    4: "A = 2",
    5: "D >= 12 and E <= 9",
    6: "B in (3, 6) and C <= 4 and D >= 10 and E <= 7",
}


def filled(subscriptions: dict[int, str], **options: Any) -> Engine:
    engine = Engine("k-index", **options)
    engine.add_many(subscriptions.items())
    engine._check()
    return engine


def arrays_of(engine: Engine) -> Layout:
    (part,) = engine._state.index._parts  # type: ignore[attr-defined]
    arrays: Layout = part.arrays
    return arrays


def lists(engine: Engine, attribute: str, value: int) -> dict[int, list[int]]:
    """Return the posting lists that a value finds, by size, with the ids of subscriptions (of one clause each)."""
    arrays, event = arrays_of(engine), engine.encode({attribute: value})
    first, end = arrays.cut_starts[event.attributes[0] : event.attributes[0] + 2]
    space = first + np.searchsorted(arrays.cuts[first:end], event.codes[0], side="right") - 1
    found = {}
    for number in range(arrays.space_lists[space], arrays.space_lists[space + 1]):
        ids = arrays.postings[arrays.list_starts[number] : arrays.list_starts[number + 1]]
        size = int(arrays.partition_sizes[arrays.list_partitions[number]])
        found[size] = [list(engine.ids())[slot] for slot in arrays.owners[ids]]
    return found


def sizes(engine: Engine) -> list[int]:
    """Return the size of each clause, by clause."""
    arrays = arrays_of(engine)
    by_id = np.repeat(arrays.partition_sizes, np.diff(arrays.partition_starts))
    return [int(by_id[arrays.owners == clause][0]) for clause in np.unique(arrays.owners)]


def test_the_worked_example() -> None:
    engine = filled({0: "a = 2", 1: "a <= 2 and b = 1", 2: "a >= 2 and b = 3"})
    assert [lists(engine, "a", value) for value in (1, 2, 3)] == [{2: [1]}, {1: [0], 2: [1, 2]}, {2: [2]}]
    assert [lists(engine, "b", value) for value in (1, 2, 3)] == [{2: [1]}, {}, {2: [2]}]
    assert sorted(engine.match({"a": 2, "b": 3})) == [0, 2]
    assert engine.match({"a": 2}) == [0]


def test_figure_2() -> None:
    engine = filled(TABLE_1)
    assert sizes(engine) == [2, 2, 3, 1, 2, 4]
    assert lists(engine, "A", 2) == {1: [4], 2: [1, 2]}
    assert lists(engine, "A", 1) == lists(engine, "A", 8) == {2: [2]}
    assert lists(engine, "B", 3) == {2: [1], 3: [3], 4: [6]}
    assert lists(engine, "B", 9) == {2: [1]}
    assert lists(engine, "C", 3) == {2: [2], 4: [6]}
    assert lists(engine, "D", 12) == {2: [5], 4: [6]}
    assert sorted(engine.match({"A": 2, "B": 6, "C": 1})) == [1, 4]
    assert sorted(engine.match({"B": 3, "C": 4, "D": 12, "E": 7})) == [5, 6]


def test_a_range_is_posted_once_for_every_space() -> None:
    # Figure 2 has eight entries for A <= 8, because the domain is {1, 2, ...}. Our spaces come from the constants of
    # the subscriptions: with a cut below each of 2 .. 8, the values 1 .. 8 have a space each, and there are eight.
    others = {10 + value: f"A >= {value}" for value in range(2, 9)}
    engine = filled({2: TABLE_1[2], **others})
    assert [lists(engine, "A", value)[2] for value in range(1, 9)] == [[2]] * 8
    assert 2 not in lists(engine, "A", 9)
    stats = engine.stats()
    # A >= value covers the spaces of value .. 8 and the one above; C >= 2 is one space.
    assert stats["rewritten_entries"] == 8 + 1 + sum(8 - value + 2 for value in range(2, 9))
    assert stats["entries_without_rewriting"] == 2 + len(others)


def test_equalities_and_sets_cost_what_they_list() -> None:
    stats = filled({1: "a = 1 and b in (1, 2, 5)", 2: "a = 2"}).stats()
    assert (stats["rewritten_entries"], stats["entries_without_rewriting"]) == (5, 3)


def test_larger_partitions_are_not_looked_at() -> None:
    engine = filled({1: "a = 1", 2: "a = 1 and b = 1", 3: "a = 1 and b = 1 and c = 1"})
    assert engine.match({"a": 1}) == [1]
    assert (engine.stats()["lists_scanned"], engine.stats()["predicates_evaluated"]) == (1, 1)
    assert sorted(engine.match({"a": 1, "b": 1})) == [1, 2]
    assert (engine.stats()["lists_scanned"], engine.stats()["predicates_evaluated"]) == (4, 4)


def test_the_size_is_the_number_of_attributes() -> None:
    engine = filled({1: "a > 3 and a < 10 and b = 1", 2: "a > 3 and a != 5"})
    assert sizes(engine) == [2, 1]
    assert engine.match({"a": 4}) == [2]
    assert engine.match({"a": 5, "b": 1}) == [1]
    assert engine.match({"a": 10, "b": 1}) == [2]


def test_vetoes_do_not_count() -> None:
    engine = filled({1: "a = 1 and b is null", 2: "a = 1 and not (b = 2)"})
    assert sizes(engine) == [1, 2]
    assert engine.match({"a": 1}) == [1]
    assert engine.match({"a": 1, "b": 3}) == [2]
    assert engine.match({"a": 1, "b": 2}) == []


def test_several_values_do_not_count_twice() -> None:
    engine = filled({1: "a >= 3 and b = 1", 2: "a between 3 and 12"})
    assert engine.match({"a": [4, 5]}) == [2]
    assert engine.match({"a": [1, 100]}) == []
    assert sorted(engine.match({"a": [4, 5, 200], "b": 1})) == [1, 2]


@pytest.mark.parametrize(
    ("expression", "size"),
    [
        ("(a = 1 or b = 1) and (c = 1 or d = 1)", 2),
        ("(a = 1 or b = 1) and (a = 1 or c = 1)", 1),  # a alone may do
        ("a = 1 and (a = 2 or b = 1) and (c = 1 or d = 1)", 2),
        ("a = 1 and (b = 1 or c is null) and (d = 1 or e = 1)", 2),  # c may be absent
        ("(a = 1 or a = 2) and (a > 0 or b = 1) and a < 9", 1),
    ],
)
def test_the_size_of_alternatives_is_what_a_match_needs_at_least(expression: str, size: int) -> None:
    assert sizes(filled({1: expression})) == [size]


def test_alternatives() -> None:
    engine = filled(
        {1: "(a = 1 or b > 1) and (a = 1 or c = 1) and (d = 1 or e is null)", 2: "(a = 1 or b = 1) and c = 1"}
    )
    assert engine.stats()["clauses"] == 2
    assert engine.match({"a": 1}) == [1]
    assert engine.match({"a": 1, "e": 1}) == []
    assert sorted(engine.match({"a": 1, "b": 2, "c": 1, "d": 1, "e": 1})) == [1, 2]
    assert engine.match({"b": [1, 2], "c": [1, 2], "e": 1}) == [2]


def test_more_groups_than_bits() -> None:
    groups = [f"(a{n} = 1 or b{n} = 1)" for n in range(70)]
    engine = filled({1: " and ".join(groups)})
    assert arrays_of(engine).n_bits.max() == 64
    event = {f"{'ab'[n % 2]}{n}": 1 for n in range(70)}
    assert engine.match(event) == [1]
    for missing in (0, 63, 64, 69):
        assert engine.match({name: value for name, value in event.items() if name[1:] != str(missing)}) == []


def test_exactly_as_many_groups_as_bits() -> None:
    engine = filled({1: " and ".join(f"(a{n} = 1 or b{n} = 1)" for n in range(64))})
    event = {f"b{n}": 1 for n in range(64)}
    assert engine.match(event) == [1]
    assert engine.match({**event, "b63": 2}) == []


@pytest.mark.parametrize("n", [254, 255, 256, 300])
def test_more_attributes_than_a_counter_counts(n: int) -> None:
    engine = filled({1: " and ".join(f"a{i} = 1" for i in range(n))})
    event = {f"a{i}": 1 for i in range(n)}
    assert engine.match(event) == [1]
    assert engine.match({**event, f"a{n - 1}": 2}) == []
    assert engine.match({**event, "a0": 2}) == []


def test_many_values_of_one_attribute() -> None:
    engine = filled({1: "a >= 0 and b = 1", **{n: f"a = {n}" for n in range(2, 600)}})
    event = {"a": list(range(600))}
    assert sorted(engine.match(event)) == list(range(2, 600))
    assert sorted(engine.match({**event, "b": 1})) == list(range(1, 600))
    engine._check()


def test_what_would_be_too_large_is_refused_before_it_is_made() -> None:
    engine = filled({1: "a = 1"}, memory_limit_mb=1)
    with pytest.raises(TooLargeError, match=r"for 2,005,001 posting entries: 2,001 predicates .* wide ranges"):
        engine.add_many((n, f"a <= {n}") for n in range(2, 2002))
    engine._check()
    assert len(engine) == 1
    assert engine.match({"a": 1}) == [1]
    engine.add_many((n, f"a = {n}") for n in range(2, 2002))
    assert engine.match({"a": 70}) == [70]


def test_options() -> None:
    with pytest.raises(ValueError, match="memory_limit_mb must be a whole number of at least 1, not 0"):
        Engine("k-index", memory_limit_mb=0)
    with pytest.raises(UnknownIndexError, match="memory"):
        Engine("k-index", memory=1)


def test_adding_removing_and_saving(tmp_path: Path) -> None:
    engine = filled({n: f"a <= {n % 10} and (b = 1 or c = {n})" for n in range(300)})
    for n in range(300, 400):
        engine.add(f"a = {n % 10}", id=n)
    engine.remove_many(range(0, 300, 2))
    engine._check()
    engine.save(tmp_path / "saved")
    opened = Engine.open(tmp_path / "saved")
    opened._check()
    expected = [*(n for n in range(1, 300, 2) if n % 10 >= 3), *range(303, 400, 10)]
    assert sorted(engine.match({"a": 3, "b": 1})) == sorted(opened.match({"a": 3, "b": 1})) == expected


def test_describe() -> None:
    engine = filled({1: "a = 1", 2: "a = 1 and b = 2", 3: "a = 2 and (b = 1 or c = 1)"})
    text = engine.describe()
    assert "size 1: 1 clauses on 1 lists" in text
    assert "size 2: 2 groups of clauses with alternatives on 3 lists" in text
