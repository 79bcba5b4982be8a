"""Interval tree and segment tree, against the scan; the PS-Tree answers the same questions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from siftline.errors import DuplicateIdError, UnknownIdError
from siftline.indexes.ps_tree.tree import PsTree
from siftline_bench.structures.interval_tree import IntervalTree
from siftline_bench.structures.intervals import IntervalScan
from siftline_bench.structures.segment_tree import SegmentTree

STRUCTURES: list[Any] = [IntervalTree, SegmentTree, PsTree]
POINTS = np.arange(-2, 14)


def rows(found: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]) -> list[list[int]]:
    starts, ids = found
    return [sorted(ids[a:b].tolist()) for a, b in pairwise(starts)]


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_finds_what_the_scan_finds(structure: Any, dtype: Any) -> None:
    @settings(max_examples=60)
    @given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=12))
    def check(intervals: list[tuple[int, int]]) -> None:
        lows, highs = np.array(intervals, dtype=dtype).reshape(-1, 2).T
        points = POINTS.astype(dtype) if dtype is np.int64 else np.arange(-2, 14, 0.5)
        expected = IntervalScan.build(lows, highs).query_many(points)
        built = structure.build(lows, highs)
        built._check()
        assert rows(built.query_many(points)) == rows(expected)
        assert built.count_many(points).tolist() == np.diff(expected[0]).tolist()
        assert sorted(built.query(points[3]).tolist()) == rows(expected)[3]

    check()


@pytest.mark.parametrize("structure", STRUCTURES)
def test_many_intervals(structure: Any) -> None:
    rng = np.random.default_rng(5)
    lows = rng.integers(-(2**40), 2**40, 2000)
    highs = lows + rng.integers(0, 2**36, 2000)
    points = np.concatenate([rng.integers(-(2**40), 2**40, 300), lows[:50], highs[:50] + 1])
    built = structure.build(lows, highs)
    assert rows(built.query_many(points)) == rows(IntervalScan.build(lows, highs).query_many(points))


def test_the_scan() -> None:
    scan = IntervalScan.build(np.array([0, 2, 5]), np.array([4, 4, 1]))
    assert rows(scan.query_many(np.array([-1, 0, 2, 4, 5]))) == [[], [0], [0, 1], [0, 1], []]
    assert scan.count_many(np.array([3])).tolist() == [2]
    assert scan.stats()["intervals"] == 3


class Changes(RuleBasedStateMachine):
    """Insertions into and deletions from an interval tree."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = IntervalTree()
        self.stored: dict[int, tuple[int, int]] = {}

    @rule(id=st.integers(0, 30), low=st.integers(0, 10), high=st.integers(0, 10))
    def insert(self, id: int, low: int, high: int) -> None:
        if id in self.stored:
            with pytest.raises(DuplicateIdError):
                self.tree.insert(low, high, id)
            return
        self.tree.insert(low, high, id)
        self.stored[id] = low, high

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.stored)))
        self.tree.delete(id)
        del self.stored[id]

    @invariant()
    def finds_what_contains(self) -> None:
        self.tree._check()
        expected = [
            [id for id in sorted(self.stored) if self.stored[id][0] <= point <= self.stored[id][1]]
            for point in POINTS.tolist()
        ]
        assert rows(self.tree.query_many(POINTS)) == expected


Changes.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestChanges = Changes.TestCase


def test_the_interval_tree_stays_flat_when_lows_ascend() -> None:
    tree = IntervalTree()
    for id in range(1000):
        tree.insert(id, id + 1, id)
    assert max(depth for _, depth in tree._in_order()) < 40
    for id in range(1000):
        tree.delete(id)
    assert len(tree) == 0
    assert sum(tree.stats()["bytes"].values()) < 100


def test_the_interval_tree_of_its_header() -> None:
    tree = IntervalTree.build(np.array([0, 2, 6, 7]), np.array([4, 4, 9, 7]))
    assert sorted(tree.query(3).tolist()) == [0, 1]
    assert "  2: [6, 9] max 9" in tree.describe().splitlines()


def test_the_segment_tree_of_its_header() -> None:
    tree = SegmentTree.build(np.array([0, 2]), np.array([4, 4]))
    assert [tree.locate(value) for value in (-1, 0, 1, 2, 3, 4, 5)] == list(range(7))
    assert "node 6 (elementary 4 to 5): [0, 1]" in tree.describe()
    assert len(tree) == 2
    assert tree.stats()["listed"] == 5


def test_refusals() -> None:
    with pytest.raises(ValueError, match="as many lows as highs"):
        SegmentTree.build(np.array([1]), np.array([1, 2]))
    with pytest.raises(ValueError, match="NaN"):
        IntervalTree.build(np.array([np.nan]), np.array([1.0]))
    with pytest.raises(ValueError, match="cannot be compared"):
        IntervalTree.build(np.array([1]), np.array([2])).query(1.5)
    with pytest.raises(ValueError, match="int64 or float64"):
        IntervalTree(np.int32)
    with pytest.raises(UnknownIdError, match="no interval has the id 3"):
        IntervalTree().delete(3)
    with pytest.raises(ValueError, match="from 0 on"):
        IntervalTree().insert(1, 2, -1)


def test_integers_that_a_double_cannot_hold_are_refused() -> None:
    tree = SegmentTree.build(np.array([0.0]), np.array([2.0**53]))
    with pytest.raises(ValueError, match="no float64"):
        tree.query(2**53 + 1)
