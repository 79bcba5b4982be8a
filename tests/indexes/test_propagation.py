"""`propagation`: distinct predicates, access predicates and clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from siftline import Engine, Statistics
from siftline.errors import UnknownIndexError

if TYPE_CHECKING:
    from pathlib import Path

    from siftline.indexes.propagation.kernels import Layout


def filled(subscriptions: dict[int, str], statistics: Statistics | None = None) -> Engine:
    engine = Engine("propagation", statistics=statistics)
    engine.add_many(subscriptions.items())
    engine._check()
    return engine


def arrays_of(engine: Engine) -> Layout:
    (part,) = engine._state.index._parts  # type: ignore[attr-defined]
    arrays: Layout = part.arrays
    return arrays


def clusters(engine: Engine) -> dict[tuple[int, int], list[list[int]]]:
    """Return the rows of each cluster by (access predicate, width): predicates, then the clause."""
    arrays, found = arrays_of(engine), {}
    for access in range(len(arrays.predicate_clusters) - 1):
        for cluster in range(arrays.predicate_clusters[access], arrays.predicate_clusters[access + 1]):
            width = int(arrays.cluster_widths[cluster])
            block = arrays.blocks[arrays.block_starts[cluster] : arrays.block_starts[cluster + 1]]
            found[access, width] = block.reshape(width + 1, -1).T.tolist()
    return found


def test_the_worked_example() -> None:
    engine = filled(
        {
            0: "a = 1 and b < 5",
            1: "a = 1 and b < 5 and c > 2",
            2: "b = 3",
            3: "b < 5",
            4: "a = 1 and c > 2",
        }
    )
    # Predicates are numbered by attribute, equalities first; of the remaining ones, the rarest is the first column.
    assert clusters(engine) == {(0, 1): [[2, 0], [3, 4]], (0, 2): [[3, 2, 1]], (1, 0): [[2]], (2, 0): [[3]]}
    assert sorted(engine.match({"a": 1, "b": 4})) == [0, 3]
    assert engine.stats()["candidates_examined"] == 4
    assert sorted(engine.match({"a": 1, "b": 3, "c": 3})) == [0, 1, 2, 3, 4]


def test_a_predicate_is_stored_once() -> None:
    same = ["a = 1", "a in (1, 7)", "a != 4", "a between 2 and 5", "a >= 3", "a <= 3", "a is not null"]
    engine = filled({n: f"{same[n % 7]} and b = {n}" for n in range(70)})
    assert engine.stats()["distinct_predicates"] == 7 + 70
    assert engine.stats()["access_predicates"] == 70
    assert [len(engine.match({"a": 3, "b": n})) for n in range(7)] == [0, 0, 1, 1, 1, 1, 1]


def test_equalities_give_access_before_ranges() -> None:
    engine = filled({n: f"a > {n} and b = 1 and c = {n}" for n in range(50)})
    assert engine.stats()["access_predicates"] == 50
    engine.match({"a": 100, "b": 1, "d": 7})
    assert engine.stats()["candidates_examined"] == 0


def test_statistics_choose_among_equalities() -> None:
    seen = Statistics.from_events([{"a": n, "b": 1, "c": n % 3} for n in range(30)])
    engine = filled({n: f"c = 1 and b = 1 and a = {n}" for n in range(30)}, seen)
    assert engine.match({"a": 4, "b": 1, "c": 1}) == [4]
    assert engine.stats()["candidates_examined"] == 1


def test_only_ranges() -> None:
    engine = filled({1: "a > 3 and b between 2 and 8", 2: "a <= 3", 3: "a != 4", 4: "not (a < 2)"})
    assert sorted(engine.match({"a": 4, "b": 8})) == [1, 4]
    assert sorted(engine.match({"a": 3, "b": 8})) == [2, 3, 4]
    assert engine.match({"a": "x"}) == []
    assert engine.match({"a": None}) == []


def test_narrow_ranges_end_the_walk_early() -> None:
    engine = filled({n: f"a between {10 * n} and {10 * n + 5}" for n in range(1000)})
    assert engine.match({"a": 5003}) == [500]
    assert engine.stats()["predicates_evaluated"] == 1
    assert engine.match({"a": 5007}) == []
    assert engine.stats()["predicates_evaluated"] == 1


def test_kinds_do_not_mix() -> None:
    engine = filled({1: "a >= 3", 2: "a >= 'x'", 3: "a is not null", 4: "a <= 'z'", 5: "a = true", 6: "a < 9"})
    assert sorted(engine.match({"a": 4})) == [1, 3, 6]
    assert sorted(engine.match({"a": "y"})) == [2, 3, 4]
    assert sorted(engine.match({"a": True})) == [3, 5]
    assert sorted(engine.match({"a": [True, 10, "a"]})) == [1, 3, 4, 5]


def test_several_values_satisfy_a_predicate_once() -> None:
    engine = filled({1: "a >= 3 and b = 1", 2: "a in (4, 5)", 3: "a between 3 and 12"})
    assert sorted(engine.match({"a": [4, 5, 6], "b": [1, 1]})) == [1, 2, 3]
    assert sorted(engine.match({"a": [1, 100], "b": 1})) == [1]


def test_vetoes() -> None:
    engine = filled({1: "a = 1 and b is null", 2: "a = 1 and not (b = 2)", 3: "a = 1 and a = 1"})
    assert sorted(engine.match({"a": 1})) == [1, 3]
    assert sorted(engine.match({"a": 1, "b": 3})) == [2, 3]
    assert engine.match({"a": 1, "b": 2}) == [3]


def test_bits_across_words() -> None:
    engine = filled({n: f"a = {n} and b <= {n}" for n in range(200)})
    for n in (0, 63, 64, 127, 128, 199):
        assert engine.match({"a": n, "b": n}) == [n]
        assert engine.match({"a": n, "b": n + 1}) == []
    engine._check()


def test_clauses_with_many_predicates() -> None:
    engine = filled({1: " and ".join(f"a{n} = 1" for n in range(300)), 2: "a0 = 1"})
    event = {f"a{n}": 1 for n in range(300)}
    assert sorted(engine.match(event)) == [1, 2]
    assert engine.match({**event, "a299": 2}) == [2]


def test_adding_removing_and_saving(tmp_path: Path) -> None:
    engine = filled({n: f"a <= {n % 10} or (b = 1 and c = {n})" for n in range(300)})
    for n in range(300, 400):
        engine.add(f"a = {n % 10}", id=n)
    engine.remove_many(range(0, 300, 2))
    engine._check()
    engine.save(tmp_path / "saved")
    opened = Engine.open(tmp_path / "saved")
    opened._check()
    expected = [*(n for n in range(1, 300, 2) if n % 10 >= 3), *range(303, 400, 10)]
    assert sorted(engine.match({"a": 3, "b": 1})) == sorted(opened.match({"a": 3, "b": 1})) == expected


def test_it_has_no_options() -> None:
    with pytest.raises(UnknownIndexError, match="it takes none"):
        Engine("propagation", access=2)


def test_describe() -> None:
    text = filled({1: "a = 1", 2: "a = 1 and b > 2", 3: "a = 1 and b > 3"}).describe()
    assert "3 distinct predicates, 1 of them access predicates of 2 clusters" in text
    assert "1 clusters with 1 remaining predicates" in text


def test_the_arrays_are_sorted() -> None:
    arrays = arrays_of(filled({1: "a between 1 and 5", 2: "a between 1 and 9", 3: "a <= 3", 4: "a between 2 and 3"}))
    assert np.diff(arrays.list_starts).tolist() == [0, 4, 0]
    assert (np.diff(arrays.lows) >= 0).all()
