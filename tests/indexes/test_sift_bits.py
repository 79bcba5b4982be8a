"""Batches of `sift` in bitmaps find what single events find, and are laid out and chosen when they pay."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import pytest
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, subscriptions

from siftline import Engine
from siftline.indexes.sift import index as sift
from siftline.indexes.sift.bitmaps import EVENTS, WORDS, both, chosen, empty_bitmaps, joined, lowest, narrowed, widened
from siftline.indexes.sift.bits import COSTS, Bits, Costs

if TYPE_CHECKING:
    from siftline.model import Expression

# With these, bitmaps are laid out by the first batch and take every cluster that an event visits.
FREE = Costs(clause=0, distant_clause=0, remote_clause=0, block=0, row=0, value=0, literal=0)


@pytest.fixture
def in_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Match everything that can be in bitmaps there: trees for all attributes, bitmaps from the second batch on."""
    monkeypatch.setattr(sift, "COSTS", FREE)
    monkeypatch.setattr("siftline.indexes.sift.bits._MEASURED_MIN", 1)
    monkeypatch.setattr("siftline.indexes.sift.bits._CHUNKS", 1)
    monkeypatch.setattr(sift, "_TREE_POSTINGS", 0)
    monkeypatch.setattr(Bits, "observe_with", lambda *measured: None)


def pairs(table: Any) -> list[tuple[int, Any]]:
    return sorted(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def matched_twice(engine: Engine, trees: list[dict[str, Any]]) -> list[tuple[int, Any]]:
    """Return what a batch finds in bitmaps: the one before lays them out, and must find the same."""
    first = pairs(engine.match_batch(trees))
    found = pairs(engine.match_batch(trees))
    assert first == found
    return found


def one_by_one(engine: Engine, trees: list[dict[str, Any]]) -> list[tuple[int, Any]]:
    return sorted((position, id) for position, tree in enumerate(trees) for id in engine.match(tree))


def bits_of(engine: Engine) -> list[Bits]:
    return [part.batching for part in engine._state.index._parts]  # type: ignore[attr-defined]


@numba.njit  # type: ignore[untyped-decorator]
def _operate(bitmaps: Any, source: Any, target: Any, filled: Any) -> None:
    two, three, zero, one = np.uint64(2), np.uint64(3), np.uint64(0), np.uint64(1)
    filled[0] = chosen(target, zero, bitmaps, two, three)
    filled[1] = joined(target, one, source, bitmaps, zero, one, two, three)
    filled[2] = narrowed(target, two, bitmaps, two, three)
    filled[3] = widened(target, three, bitmaps, two, three)
    filled[4] = both(target, np.uint64(4), source)
    filled[5] = lowest(bitmaps[zero, zero])


def test_operations_on_bitmaps() -> None:
    random_bits = np.random.default_rng(5)
    bitmaps, target, source = empty_bitmaps(4), empty_bitmaps(5), empty_bitmaps(1)
    assert bitmaps.ctypes.data % 64 == 0
    for array in (bitmaps, target, source):
        array[:] = random_bits.integers(0, 2**63, array.shape, dtype=np.uint64)
        array[:, 3] = 0
    bitmaps[0, 0] = 1 << 40
    before = target.copy()
    filled = np.zeros(6, dtype=np.uint64)
    _operate(bitmaps, source, target, filled)
    late = bitmaps[3] & ~bitmaps[2]
    expected = [
        late,
        source[0] & late & bitmaps[1] & ~bitmaps[0],
        before[2] & late,
        before[3] | late,
        before[4] & source[0],
    ]
    assert np.array_equal(target, expected)
    assert filled[:5].tolist() == [sum(1 << w for w in range(WORDS) if row[w]) for row in expected]
    assert filled[5] == 40


@pytest.mark.usefixtures("in_bits")
@settings(max_examples=N_EXAMPLES)
@given(
    expressions=st.lists(subscriptions, min_size=1, max_size=12),
    trees=st.lists(events, min_size=1, max_size=4),
    dead=st.sets(st.integers(0, 11), max_size=3),
)
def test_bitmaps_find_what_single_events_find(
    expressions: list[Expression], trees: list[dict[str, Any]], dead: set[int]
) -> None:
    # Hypothesis runs all examples inside one use of the fixture, which is what is wanted.
    engine, oracle = Engine("sift"), Engine("scan")
    for each in (engine, oracle):
        each.add_many(enumerate(expressions))
        each.rebuild()  # into the index, all of them
        each.remove_many([id for id in sorted(dead) if id < len(expressions)])
    assert matched_twice(engine, trees) == one_by_one(oracle, trees)
    engine._check()


def drawn(n: int, n_events: int) -> tuple[list[str], list[dict[str, Any]]]:
    """Draw subscriptions of every kind that bitmaps treat differently, and events for them."""
    of = random.Random(7)
    kinds = [
        lambda: f"a{of.randrange(6)} = {of.randrange(20)}",
        lambda: f"a{of.randrange(6)} <= {of.randrange(20)}",
        lambda: f"a{of.randrange(6)} between {of.randrange(10)} and {of.randrange(10, 20)}",
        lambda: f"a{of.randrange(6)} in ({', '.join(str(of.randrange(20)) for _ in range(4))})",
        lambda: f"b in ({', '.join(str(of.randrange(400)) for _ in range(9))})",  # wider than a mask
        lambda: f"not (a{of.randrange(6)} = {of.randrange(20)} is true)",
        lambda: f"c contains '{of.choice('xyz')}'",
    ]
    expressions = [" and ".join(of.choice(kinds)() for _ in range(of.randrange(1, 13))) for _ in range(n)]
    expressions += [f"({one}) or ({other})" for one, other in zip(expressions[:50], expressions[50:100], strict=True)]

    def value() -> Any:
        return of.randrange(20) if of.random() < 0.98 else [of.randrange(20), of.randrange(20)]

    trees = [
        {**{f"a{i}": value() for i in range(6) if of.random() < 0.8}, "b": of.randrange(400), "c": of.choice("wxyz")}
        for _ in range(n_events)
    ]
    return expressions, trees


@pytest.mark.usefixtures("in_bits")
def test_several_blocks_parts_and_kinds_of_literals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siftline.indexes.parts._RATIO", 1)  # parts stay apart
    expressions, trees = drawn(2000, 2 * EVENTS + 100)
    engine = Engine("sift")
    engine.add_many(enumerate(expressions[:1500]))
    engine.add_many((1500 + i, each) for i, each in enumerate(expressions[1500:]))
    engine.remove_many(range(0, 2000, 7))
    assert len(bits_of(engine)) > 1
    found = matched_twice(engine, trees)
    assert all(bits.arrays is not None and len(bits.arrays.answers) for bits in bits_of(engine))
    expected = one_by_one(engine, trees[::7])
    assert [pair for pair in found if pair[0] % 7 == 0] == [(7 * position, id) for position, id in expected]
    assert engine.stats()["bytes"]["bits"] > 0
    copy = pickle.loads(pickle.dumps(engine))
    assert pairs(copy.match_batch(trees[:50])) == [pair for pair in found if pair[0] < 50]


def test_bitmaps_wait_until_they_pay() -> None:
    engine = Engine("sift")
    engine.add_many((i, f"a >= {i % 50} and b <= {i % 47}") for i in range(500))
    engine.rebuild()
    trees = [{"a": i % 60, "b": i % 40} for i in range(EVENTS)]
    expected = pairs(engine.match_batch(trees[:10]))
    assert bits_of(engine)[0].arrays is None
    assert "bits" not in engine.stats()["bytes"]
    for _ in range(6):
        engine.match_batch(trees)
    bits = bits_of(engine)[0]
    assert bits.arrays is not None
    encoded = engine.encode(trees)
    bits.event_ns = 2000.0
    assert len(bits.choose(bits.arrays, encoded, 0, EVENTS)) > 0
    assert len(bits.choose(bits.arrays, encoded, 0, 10)) == 0  # too few events for a whole block of bitmaps
    assert pairs(engine.match_batch(trees))[: len(expected)] == expected


def test_bitmaps_that_do_not_pay_are_let_go() -> None:
    engine = Engine("sift")
    engine.add_many((i, f"a >= {i % 50} and b <= {i % 47}") for i in range(500))
    engine.rebuild()
    trees = [{"a": i % 60, "b": i % 40} for i in range(EVENTS)]
    for _ in range(6):
        expected = engine.match_batch(trees)
    bits = bits_of(engine)[0]
    assert bits.arrays is not None
    bits.event_ns = 1.0
    for _ in range(4):
        bits.observe_with(EVENTS, 3000 * EVENTS)
    assert bits.arrays is None
    assert pairs(engine.match_batch(trees)) == pairs(expected)


@pytest.mark.usefixtures("in_bits")
def test_too_many_constants_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siftline.indexes.sift.bits._MOST_CUTS", 50)
    engine = Engine("sift")
    engine.add_many((i, f"a >= {i} and b = {i % 5}" if i % 2 else f"b = {i % 5} and c = 1") for i in range(300))
    engine.rebuild()
    trees = [{"a": i, "b": i % 5, "c": i % 2} for i in range(0, 300, 3)]
    assert matched_twice(engine, trees) == one_by_one(engine, trees)
    arrays = bits_of(engine)[0].arrays
    assert arrays is not None
    assert 0 < len(arrays.cuts) <= 100
    monkeypatch.setattr("siftline.indexes.sift.bits._MOST_ROWS", 10)
    engine.rebuild()
    assert matched_twice(engine, trees) == one_by_one(engine, trees)
    assert bits_of(engine)[0].arrays is None


def test_costs_grow_with_the_bitmaps() -> None:
    assert COSTS.of_clause(100) < COSTS.of_clause(20_000) < COSTS.of_clause(200_000)
