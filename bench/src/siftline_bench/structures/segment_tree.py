"""Segment tree: a binary tree over the elementary intervals; each interval stands in the lists of O(log n) nodes.

Paper: de Berg, van Kreveld, Overmars, Schwarzkopf, Computational Geometry, section 10.3; a baseline of the PS-Tree
paper (Ji and Jacobsen, PVLDB 12(3), 2018, section 7.5). It is built once from all intervals.

Idea: the ends of all intervals cut the line into elementary intervals, the ends themselves and the gaps between them.
They are the leaves of a binary tree. An interval is listed at the highest nodes that it covers whole. The intervals
that contain a point are those in the lists on the way from its leaf to the root.

Worked example, intervals 0: [0, 4], 1: [2, 4]

    ends                 0      2      4
    elementary   0: <0   1: 0   2   3: 2   4   5: 4   6: >4   7: -      leaves 8 .. 15 of a tree with root 1
    interval 0 covers 1 .. 5: leaf 9 (1), node 5 (2, 3), node 6 (4, 5)      interval 1 covers 3 .. 5: leaf 11, node 6
    query 3: elementary 4, leaf 12, then nodes 6 (0 and 1), 3, 1

Arrays
------
ends : int64 or float64[m]                   ascending, without repeats
starts : int64[2 * n_leaves + 1]             n_leaves is the power of two at or above 2 * m + 1
ids : int32[.]                               the list of node v is ids[starts[v] : starts[v + 1]]

Cost: O(n log n) to build and to store; a query O(log n + k); locating O(log n).

Departures
D1  The tree is implicit, node v above nodes 2 v and 2 v + 1, and padded to a power of two: no links to follow.
D2  A point finds its leaf by binary search among the ends, then goes up; that is the same number of comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline_bench.structures.interval_kernels import canonical_lists, count_in_nodes, locate_elementary, query_nodes
from siftline_bench.structures.intervals import checked_intervals, checked_points, starts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SegmentTree:
    """Closed intervals, numbered from 0; they do not change.

    Examples
    --------
    >>> tree = SegmentTree.build(np.array([0, 2]), np.array([4, 4]))
    >>> sorted(tree.query(3).tolist()), tree.locate(3)
    ([0, 1], 4)
    """

    def __init__(self, lows: NDArray[Any], highs: NDArray[Any]) -> None:
        lows, highs = checked_intervals(lows, highs)
        is_range = lows <= highs
        chosen = np.flatnonzero(is_range).astype(np.int32)
        lows, highs = lows[chosen], highs[chosen]
        self._n = len(is_range)
        self._ends = np.unique(np.concatenate([lows, highs]))
        self._n_leaves = 1 << (2 * len(self._ends)).bit_length()
        firsts, lasts = locate_elementary(lows, self._ends), locate_elementary(highs, self._ends)
        self._starts, places = canonical_lists(self._n_leaves, firsts, lasts)
        self._ids = chosen[places]

    @classmethod
    def build(cls, lows: NDArray[Any], highs: NDArray[Any]) -> SegmentTree:
        """Return the tree of the intervals 0, 1, ..."""
        return cls(lows, highs)

    def __len__(self) -> int:
        return self._n

    def locate(self, value: float) -> int:
        """Return the elementary interval that a value lies in."""
        return int(self.locate_many(np.array([value]))[0])

    def locate_many(self, values: NDArray[Any]) -> NDArray[np.int32]:
        """Return the elementary intervals that values lie in."""
        located: NDArray[np.int32] = locate_elementary(checked_points(values, self._ends.dtype), self._ends)
        return located

    def query(self, value: float) -> NDArray[np.int32]:
        """Return the ids of the intervals that contain a value."""
        return self.query_many(np.array([value]))[1]

    def query_many(self, values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return (starts, ids) of the intervals that contain each value."""
        located = self.locate_many(values)
        starts = starts_of(count_in_nodes(located, self._n_leaves, self._starts))
        return starts, query_nodes(located, starts, self._n_leaves, self._starts, self._ids)

    def count_many(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many intervals contain each value."""
        counts: NDArray[np.int64] = count_in_nodes(self.locate_many(values), self._n_leaves, self._starts)
        return counts

    def stats(self) -> dict[str, Any]:
        """Return the bytes of each array, and how many intervals and elementary intervals there are."""
        sizes = {"ends": self._ends.nbytes, "starts": self._starts.nbytes, "ids": self._ids.nbytes}
        return {"bytes": sizes, "intervals": self._n, "elementary": 2 * len(self._ends) + 1, "listed": len(self._ids)}

    def describe(self) -> str:
        """Draw the lists that are not empty, from the root down."""
        lines = [f"segment tree: {self._n:,} intervals, {2 * len(self._ends) + 1:,} elementary intervals"]
        for node in np.flatnonzero(np.diff(self._starts)).tolist():
            depth = node.bit_length() - 1
            width = self._n_leaves >> depth
            first = node * width - self._n_leaves
            ids = self._ids[self._starts[node] : self._starts[node + 1]].tolist()
            lines.append(f"  node {node} (elementary {first} to {first + width - 1}): {ids}")
        return "\n".join(lines)

    def _check(self) -> None:
        assert (self._ends[1:] > self._ends[:-1]).all()
        assert self._n_leaves >= 2 * len(self._ends) + 1
        assert len(self._starts) == 2 * self._n_leaves + 1
        assert self._starts[-1] == len(self._ids)
        covered: dict[int, list[int]] = {}
        for node in np.flatnonzero(np.diff(self._starts)).tolist():
            width = self._n_leaves >> (node.bit_length() - 1)
            first = node * width - self._n_leaves
            for id in self._ids[self._starts[node] : self._starts[node + 1]].tolist():
                covered.setdefault(id, []).extend(range(first, first + width))
        for places in covered.values():  # without gaps, each place once, from an end to an end
            first, last = min(places), max(places)
            assert sorted(places) == list(range(first, last + 1))
            assert first % 2 == 1
            assert last % 2 == 1
