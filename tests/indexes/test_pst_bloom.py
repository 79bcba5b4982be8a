"""PSTBloom: access predicates, postings and signatures, and the paper's own example."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from siftline import Engine, Statistics
from siftline.errors import TooLargeError, UnknownIndexError
from siftline.indexes.pst.bloom import is_signed

if TYPE_CHECKING:
    from pathlib import Path

# Fig. 3 of the paper.
FIGURE_3 = [
    (1, "attr1 < -5 and attr2 between 1 and 5"),
    (2, "attr1 between -5 and -1 and attr2 < 1"),
    (3, "attr1 between -5 and -1 and attr2 > 5"),
]


def filled(subscriptions: list[tuple[int, str]], **options: Any) -> Engine:
    engine = Engine("pst-bloom", **options)
    engine.add_many(subscriptions)
    if len(subscriptions) < 1000:
        engine._check()
    return engine


def part_of(engine: Engine) -> Any:
    return engine._state.index._parts[0]  # type: ignore[attr-defined]


def leaf_of(engine: Engine, path: str, value: float) -> tuple[int, int]:
    """Return the attribute and the leaf in which a value lies."""
    arrays = part_of(engine).arrays
    attribute = engine._state.domains.attribute_id(path)
    code = engine._state.domains.domains[attribute].code(value)
    start, end = arrays.leaf_starts[attribute : attribute + 2]
    return attribute, int(start + np.searchsorted(arrays.cuts[start:end], code, side="right") - 1)


def posted(engine: Engine, path: str, value: float) -> list[int]:
    """Return the ids that are posted in the leaf of a value."""
    _, leaf = leaf_of(engine, path, value)
    arrays = part_of(engine).arrays
    rows = arrays.entries.reshape(-1, 4)[arrays.posting_starts[leaf] : arrays.posting_starts[leaf + 1]]
    return [clause + 1 for clause in rows[:, 0].tolist()]


def signed(engine: Engine, path: str, value: float) -> list[int]:
    """Return the ids in the signature of the leaf of a value."""
    attribute, leaf = leaf_of(engine, path, value)
    part = part_of(engine)
    return [n + 1 for n in range(part.n_clauses) if is_signed(part.arrays, attribute, [leaf], n)[0]]


def test_figure_3() -> None:
    engine = filled(FIGURE_3)
    assert [posted(engine, "attr2", value) for value in (0, 1, 3, 5, 6)] == [[], [1], [1], [1], []]
    assert [posted(engine, "attr1", value) for value in (-6, -5, -1, 0)] == [[], [2, 3], [2, 3], []]
    assert [signed(engine, "attr1", value) for value in (-6, -5, -1, 0)] == [[1], [], [], []]
    assert [signed(engine, "attr2", value) for value in (0, 1, 5, 6)] == [[2], [], [], [3]]
    assert engine.match({"attr1": -3, "attr2": 0}) == [2]
    assert engine.match({"attr1": -3, "attr2": 6}) == [3]
    assert engine.match({"attr1": -7, "attr2": 5}) == [1]
    assert engine.match({"attr1": -3, "attr2": 3}) == []


def test_signatures_reject_before_predicates_are_tested() -> None:
    engine = filled(FIGURE_3)
    engine.match({"attr1": -3, "attr2": 0})
    engine.match({"attr1": -3})
    stats = engine.stats()
    assert stats["candidates_examined"] == 4
    assert stats["rejected_by_absence"] == 2
    assert stats["rejected_by_signature"] == stats["verified"] == stats["matched"] == 1
    assert stats["predicates_evaluated"] == 2
    assert "2 trees with" in engine.describe()


@pytest.mark.parametrize(
    ("expression", "access"),
    [
        ("a between 1 and 2 and b in (1, 5) and c = 3", "c"),
        ("a between 1 and 2 and b in (1, 5) and c < 3", "b"),
        ("a between 1 and 2 and b != 1 and c < 3", "a"),
        ("a is not null and b != 1 and c < 3", "c"),
        ("a is not null and b != 1", "b"),
        ("a between 1 and 9 and b between 1 and 3 and c > 3", "b"),
    ],
)
def test_access_predicates_without_statistics(expression: str, access: str) -> None:
    # Other subscriptions cut the attributes, so that the wider of two ranges covers more spaces.
    engine = filled([(1, expression), *((n, f"a = {n} and b = {n} and c = {n}") for n in range(2, 9))])
    value = {"a": 2, "b": 5 if "in" in expression.split("b ")[1][:2] else 2, "c": 3}
    found = [path for path in "abc" for number in (value[path], 1.5, 2, 3.5, 7.5) if 1 in posted(engine, path, number)]
    assert set(found) == {access}


def test_statistics_change_the_access_predicate() -> None:
    subscriptions = [(1, "common = 1 and rare > 2")]
    events = [{"common": 1}] * 99 + [{"rare": 5}]
    assert posted(filled(subscriptions), "common", 1) == [1]
    engine = filled(subscriptions, statistics=Statistics.from_events(events))
    assert posted(engine, "common", 1) == []
    assert posted(engine, "rare", 5) == [1]
    assert engine.match({"common": 1, "rare": 3}) == [1]


def random_subscriptions(n: int, seed: int) -> list[tuple[int, str]]:
    chance = random.Random(seed)
    operators = ["=", "<", ">=", "!="]
    return [
        (
            number,
            " and ".join(
                f"a{attribute} {chance.choice(operators)} {chance.randrange(12)}"
                for attribute in chance.sample(range(8), chance.randint(1, 6))
            ),
        )
        for number in range(n)
    ]


@pytest.mark.parametrize("bits", [0.5, 4, 64])
def test_false_positives_never_reach_the_result(bits: float) -> None:
    subscriptions = random_subscriptions(800, 1)
    oracle = Engine("scan")
    oracle.add_many(subscriptions)
    engine = filled(subscriptions, signature_bits_per_id=bits)
    chance = random.Random(2)
    for size in [0, 1, 2, 3, 5, 8, 8, 8]:
        event: dict[str, Any] = {f"a{attribute}": chance.randrange(13) for attribute in chance.sample(range(8), size)}
        assert sorted(engine.match(event)) == sorted(oracle.match(event))
        event = {path: [value, chance.randrange(13)] for path, value in event.items()}
        assert sorted(engine.match(event)) == sorted(oracle.match(event))
    stats = engine.stats()
    assert stats["verified"] >= stats["matched"]
    parts = ("rejected_by_absence", "rejected_by_signature", "verified")
    assert stats["candidates_examined"] == sum(stats[part] for part in parts)


def test_more_bits_reject_more() -> None:
    subscriptions = [(n, f"a = 1 and b {'<' if n % 2 else '>='} {n % 50}") for n in range(4000)]
    rejected = []
    for bits in (1, 16):
        engine = filled(subscriptions, signature_bits_per_id=bits)
        engine.match({"a": 1, "b": 25})
        rejected.append(engine.stats()["rejected_by_signature"])
    assert 0 < rejected[0] < rejected[1]


def test_attributes_with_too_many_leaves_have_no_signatures() -> None:
    # Each of 3,000 ranges covers about a third of 6,000 leaves.
    engine = filled([(n, f"a = {n % 7} and b between {n} and {n + 2000}") for n in range(3000)])
    places = part_of(engine).arrays.signature_places
    assert places[engine._state.domains.attribute_id("b")] == 0
    assert engine.match({"a": 3, "b": 11}) == [3, 10]
    assert engine.stats()["rejected_by_signature"] == 0


def test_add_remove_merge_and_save(tmp_path: Path) -> None:
    engine = filled(random_subscriptions(300, 3))
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


def test_repeated_and_contradicting_predicates() -> None:
    engine = filled([(1, "a > 1 and a < 5 and a != 3"), (2, "a = 2 and a = 2 and a = 2"), (3, "a = 1 and a = 2")])
    assert sorted(engine.match({"a": 2})) == [1, 2]
    assert engine.match({"a": 3}) == []
    assert sorted(engine.match({"a": [1, 2]})) == [1, 2, 3]


def test_a_part_that_would_be_too_large_is_refused() -> None:
    subscriptions = [(n, f"a between {n} and {n + 2000}") for n in range(2000)]
    with pytest.raises(TooLargeError, match=r"pst-bloom would take .* [MG]B for [\d,]+ postings .*memory_limit_mb"):
        filled(subscriptions, memory_limit_mb=16)
    engine = Engine("pst-bloom", memory_limit_mb=16)
    with pytest.raises(TooLargeError):
        engine.add_many(subscriptions)
    assert len(engine) == 0
    engine.add("a = 1", id=1)
    assert engine.match({"a": 1}) == [1]


@pytest.mark.parametrize(
    "options", [{"signature_bits_per_id": 0}, {"signature_bits_per_id": True}, {"memory_limit_mb": 0}]
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Engine("pst-bloom", **options)
    with pytest.raises(UnknownIndexError):
        Engine("pst-bloom", hashes=3)
