"""PSTHash: keys of several access predicates, and the paper's own example."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from siftline import Engine, Statistics
from siftline.errors import TooLargeError, UnknownIndexError

if TYPE_CHECKING:
    from pathlib import Path

# Fig. 4 of the paper.
FIGURE_4 = [
    (1, "attr1 = 1 and attr2 = -1 and attr3 < 0"),
    (2, "attr1 = 1 and attr2 = -1 and attr3 > 0"),
    (3, "attr1 = 1 and attr2 < -1 and attr3 = 0"),
    (4, "attr1 < 1 and attr2 = -1 and attr3 = 0"),
]


def filled(subscriptions: list[tuple[int, str]], **options: Any) -> Engine:
    engine = Engine("pst-hash", **options)
    engine.add_many(subscriptions)
    engine._check()
    return engine


def work(engine: Engine, event: dict[str, Any]) -> tuple[list[Any], int, int]:
    """Return what an event matches, its candidates and the keys that it looked up."""
    before = engine.stats()
    found = sorted(engine.match(event))
    after = engine.stats()
    return found, *(after[name] - before[name] for name in ("candidates_examined", "keys_looked_up"))


def test_figure_4() -> None:
    engine = filled(FIGURE_4)
    assert (engine.stats()["hashed_clauses"], engine.stats()["entries"]) == (4, 4)
    # Candidates S1 and S2 under one of three keys; S2 is left.
    assert work(engine, {"attr1": 1, "attr2": -1, "attr3": 2}) == ([2], 2, 3)
    assert work(engine, {"attr1": 1, "attr2": -1, "attr3": -2}) == ([1], 2, 3)
    assert work(engine, {"attr1": 1, "attr2": -2, "attr3": 0}) == ([3], 1, 3)
    assert work(engine, {"attr1": 0, "attr2": -1, "attr3": 0}) == ([4], 1, 3)
    assert work(engine, {"attr1": 1, "attr2": -1, "attr3": 0}) == ([], 4, 3)
    stats = engine.stats()
    assert (stats["candidates_examined"], stats["rejected_by_next"], stats["verified"]) == (10, 6, 4)


def random_subscriptions(n: int, seed: int, least: int = 1) -> list[tuple[int, str]]:
    chance = random.Random(seed)
    operators = ["=", "<", ">=", "!="]
    return [
        (
            number,
            " and ".join(
                f"a{attribute} {chance.choice(operators)} {chance.randrange(12)}"
                for attribute in chance.sample(range(8), chance.randint(least, 6))
            ),
        )
        for number in range(n)
    ]


def random_events(seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    sizes = [0, 1, 2, 3, 5, 8, 8, 8]
    plain = [{f"a{a}": chance.randrange(13) for a in chance.sample(range(8), size)} for size in sizes]
    return plain + [{path: [value, chance.randrange(13)] for path, value in event.items()} for event in plain]


@pytest.mark.parametrize("n_access", [1, 2, 3, 5])
@pytest.mark.parametrize("most_keys", [1, 7, 256])
def test_ids_equal_those_of_scan(n_access: int, most_keys: int) -> None:
    subscriptions = random_subscriptions(600, n_access)
    oracle = Engine("scan")
    oracle.add_many(subscriptions)
    engine = filled(subscriptions, n_access=n_access, most_keys=most_keys)
    for event in random_events(most_keys):
        assert sorted(engine.match(event)) == sorted(oracle.match(event))


@pytest.mark.parametrize("cells", [0.01, 1000])
def test_coarse_and_fine_cells(cells: float) -> None:
    subscriptions = random_subscriptions(600, 9)
    oracle = Engine("scan")
    oracle.add_many(subscriptions)
    engine = filled(subscriptions, cells_per_predicate=cells)
    for event in random_events(9):
        assert sorted(engine.match(event)) == sorted(oracle.match(event))


def test_small_subscriptions_and_small_events() -> None:
    engine = filled([(1, "a = 1"), (2, "a = 1 and b = 2"), (3, "a > 0 and a < 2"), (4, "a = 1 and b = 2 and c = 3")])
    stats = engine.stats()
    assert (stats["hashed_clauses"], stats["bloom_clauses"]) == (2, 2)
    assert engine.match({}) == []
    assert sorted(engine.match({"a": 1})) == [1, 3]
    assert sorted(engine.match({"a": 1, "b": 2})) == [1, 2, 3]
    assert "2 clauses by 2 access predicates" in engine.describe()
    assert "2 other clauses" in engine.describe()


def test_few_keys_or_less_selective_predicates() -> None:
    values = ", ".join(str(3 * n) for n in range(20))
    others = [(n, f"a = {n} and b = {n}") for n in range(2, 60)]
    # The 20 values of `in` make 20 keys with b = 1; with fewer allowed, the wider but coarser c comes in.
    wide = (1, f"a in ({values}) and b = 1 and c > 5")
    assert filled([wide, *others], most_keys=20).stats()["entries"] == 20 + len(others)
    assert filled([wide, *others], most_keys=19).stats()["entries"] == 1 + len(others)
    engine = filled([(1, f"a in ({values}) and b = 1"), *others], most_keys=19)
    assert engine.stats()["bloom_clauses"] == 1
    assert engine.match({"a": 6, "b": 1}) == [1]


def test_statistics_change_the_access_predicates() -> None:
    subscriptions = [(1, "common = 1 and often = 1 and rare > 2 and seldom > 2")]
    events = [{"common": 1, "often": 1}] * 99 + [{"rare": 5, "seldom": 5}]
    common, rare = {"common": 1, "often": 1}, {"rare": 5, "seldom": 5}
    engine = filled(subscriptions)
    assert [work(engine, event)[1] for event in (common, rare)] == [1, 0]
    engine = filled(subscriptions, statistics=Statistics.from_events(events))
    assert [work(engine, event)[1] for event in (common, rare)] == [0, 1]
    assert engine.match({**common, **rare}) == [1]


def test_beginnings_that_no_key_has_are_left() -> None:
    engine = filled([(1, "a0 = 1 and a1 = 1"), (2, "a2 = 1 and a3 = 1")])
    assert work(engine, {f"a{n}": 1 for n in range(4)}) == ([1, 2], 2, 2)
    assert work(engine, {"a0": 1, "a2": 1, **{f"x{n}": 1 for n in range(100)}}) == ([], 0, 0)


def test_add_remove_merge_and_save(tmp_path: Path) -> None:
    engine = filled(random_subscriptions(300, 3), n_access=3)
    for number, expression in random_subscriptions(150, 4):
        engine.add(expression, id=1000 + number)
    for number in range(0, 300, 2):
        engine.remove(number)
    engine._check()
    oracle = Engine("scan")
    oracle.add_many([row for row in random_subscriptions(300, 3) if row[0] % 2])
    oracle.add_many([(1000 + number, expression) for number, expression in random_subscriptions(150, 4)])
    event = {f"a{n}": n for n in range(8)}
    assert sorted(engine.match(event)) == sorted(oracle.match(event)) != []
    engine.save(tmp_path / "saved")
    opened = Engine.open(tmp_path / "saved")
    opened._check()
    assert sorted(opened.match(event)) == sorted(oracle.match(event))


def test_a_table_that_would_be_too_large_is_refused() -> None:
    subscriptions = [(n, f"a >= {n % 100} and b <= {n % 100} and c < {n % 100}") for n in range(2000)]
    with pytest.raises(TooLargeError, match=r"pst-hash would take .* [MG]B for [\d,]+ entries .*memory_limit_mb"):
        filled(subscriptions, memory_limit_mb=1, cells_per_predicate=50, most_keys=10_000)


@pytest.mark.parametrize(
    "options",
    [{"n_access": 0}, {"n_access": 1.5}, {"most_keys": 0}, {"cells_per_predicate": 0}, {"memory_limit_mb": "8"}],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Engine("pst-hash", **options)
    with pytest.raises(UnknownIndexError):
        Engine("pst-hash", table="cuckoo")
