r"""Interval tree: a balanced search tree over the lows of intervals, each node with the largest high below it.

Paper: Cormen, Leiserson, Rivest, Stein, Introduction to Algorithms, section 14.3; a baseline of the PS-Tree paper
(Ji and Jacobsen, PVLDB 12(3), 2018, section 7.5). It changes in place and belongs to one thread.

Idea: a point can lie only in intervals that begin at or before it, and in none of a subtree whose largest high is below
it. So a query goes down the tree, leaves out such subtrees, and reports what is left.

Worked example, intervals 0: [0, 4], 1: [2, 4], 2: [6, 9], 3: [7, 7]

             2: [6, 9] max 9                query 3: at 2, max 9: go left; low 6 > 3: neither 2 nor its right side
            /               \                at 0: [0, 4] contains 3; at 1: [2, 4] contains 3
    0: [0, 4] max 4     3: [7, 7] max 7
            \
        1: [2, 4] max 4

Arrays (node = id of the interval)
------
lows, highs : int64 or float64[n_ids]
children : int32[n_ids, 2]                  left and right, -1 for none; left < node < right by (low, id)
max_highs : like highs                      of the node and all below it
is_stored : bool[n_ids]

Cost: a query visits O(min(n, k log n)) nodes for k reported; insert and delete O(log n), expected.

Departures
D1  A treap with hashed ids as priorities instead of the red-black tree: rotations become one split or one merge.
D2  All intervals that contain a point are reported, not one that overlaps an interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.errors import DuplicateIdError, UnknownIdError
from siftline_bench.structures.interval_kernels import (
    NONE,
    count_in_tree,
    delete_node,
    insert_node,
    plant,
    query_tree,
)
from siftline_bench.structures.intervals import checked_intervals, checked_points, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


class IntervalTree:
    """Closed intervals under small numbers. Changes in place; for one thread.

    Parameters
    ----------
    dtype : type
        np.int64 or np.float64, the type of the ends.

    Examples
    --------
    >>> tree = IntervalTree.build(np.array([0, 2]), np.array([4, 4]))
    >>> tree.insert(3, 9, id=7)
    >>> sorted(tree.query(4).tolist())
    [0, 1, 7]
    """

    def __init__(self, dtype: Any = np.int64) -> None:
        if np.dtype(dtype) not in (np.dtype(np.int64), np.dtype(np.float64)):
            raise ValueError(f"the ends of intervals are int64 or float64, not {np.dtype(dtype)}")
        self._root = NONE
        self._n = 0
        self._allocate(np.empty(0, dtype=dtype), np.empty(0, dtype=dtype))

    @classmethod
    def build(cls, lows: NDArray[Any], highs: NDArray[Any]) -> IntervalTree:
        """Return a tree of the intervals 0, 1, ...: sorted once, then linked in linear time."""
        lows, highs = checked_intervals(lows, highs)
        tree = cls(lows.dtype)
        tree._allocate(lows.copy(), highs.copy())
        tree._is_stored[:] = True
        tree._n = len(lows)
        tree._root = int(plant(np.argsort(lows, kind="stable"), highs, tree._children, tree._max_highs))
        return tree

    def _allocate(self, lows: NDArray[Any], highs: NDArray[Any]) -> None:
        self._lows, self._highs = lows, highs
        self._max_highs = highs.copy()
        self._children = np.full((len(lows), 2), NONE, dtype=np.int32)
        self._is_stored = np.zeros(len(lows), dtype=np.bool_)

    def __len__(self) -> int:
        return self._n

    def insert(self, low: float, high: float, id: int) -> None:
        """Insert an interval under a small number that is not in use."""
        if not 0 <= id < 2**31 - 1:
            raise ValueError(f"the id of an interval is a number from 0 on that fits into 32 bits, not {id!r}")
        if id < len(self._is_stored) and self._is_stored[id]:
            raise DuplicateIdError(f"the id {id} is already in use")
        ends = checked_intervals(np.array([low]), np.array([high]))
        low, high = (checked_points(end, self._lows.dtype)[0] for end in ends)
        if id >= len(self._is_stored):
            self._resize(id + 1 + id // 2)
        self._lows[id], self._highs[id] = low, high
        self._is_stored[id] = True
        self._n += 1
        self._root = int(insert_node(id, self._root, self._lows, self._highs, self._children, self._max_highs))

    def delete(self, id: int) -> None:
        """Delete an interval."""
        if not 0 <= id < len(self._is_stored) or not self._is_stored[id]:
            raise UnknownIdError(f"no interval has the id {id}")
        self._root = int(delete_node(id, self._root, self._lows, self._highs, self._children, self._max_highs))
        self._is_stored[id] = False
        self._n -= 1
        n_ids = len(self._is_stored)
        if self._n == 0:
            self._resize(0)
        elif id >= n_ids // 2 and 4 * self._n < n_ids and not self._is_stored[n_ids // 2 :].any():
            self._resize(n_ids // 2)

    def _resize(self, n: int) -> None:
        """Let the arrays have `n` rows; rows that are cut off are not in use."""
        for name in ("_lows", "_highs", "_max_highs", "_children", "_is_stored"):
            old = getattr(self, name)
            new = np.zeros((n, *old.shape[1:]), dtype=old.dtype)
            new[: len(old)] = old[:n]
            setattr(self, name, new)

    def query(self, value: float) -> NDArray[np.int32]:
        """Return the ids of the intervals that contain a value."""
        return self.query_many(np.array([value]))[1]

    def query_many(self, values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return (starts, ids) of the intervals that contain each value."""
        values = checked_points(values, self._lows.dtype)
        starts = starts_of(self._counted(values))
        found: NDArray[np.int32] = query_tree(
            values, starts, self._root, self._lows, self._highs, self._children, self._max_highs
        )
        return starts, found

    def count_many(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many intervals contain each value."""
        return self._counted(checked_points(values, self._lows.dtype))

    def _counted(self, values: NDArray[Any]) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = count_in_tree(
            values, self._root, self._lows, self._highs, self._children, self._max_highs
        )
        return counts

    def stats(self) -> dict[str, Any]:
        """Return the bytes of each array, and how many intervals there are."""
        names = ("lows", "highs", "max_highs", "children", "is_stored")
        return {"bytes": {name: getattr(self, f"_{name}").nbytes for name in names}, "intervals": self._n}

    def describe(self) -> str:
        """Draw the tree on its side, the smallest low first."""
        lines = [f"interval tree: {self._n:,} intervals"]
        for node, depth in self._in_order():
            span = f"[{self._lows[node]}, {self._highs[node]}]"
            lines.append(f"{'  ' * (depth + 1)}{node}: {span} max {self._max_highs[node]}")
        return "\n".join(lines)

    def _in_order(self) -> Iterator[tuple[int, int]]:
        """Yield (node, depth), by (low, id)."""
        pending = [(self._root, 0, False)]
        while pending:
            node, depth, is_open = pending.pop()
            if node == NONE:
                continue
            if is_open:
                yield node, depth
                continue
            left, right = self._children[node].tolist()
            pending += [(right, depth + 1, False), (node, depth, True), (left, depth + 1, False)]

    def _check(self) -> None:
        nodes = [node for node, _ in self._in_order()]
        assert sorted(nodes) == np.flatnonzero(self._is_stored).tolist()
        assert len(nodes) == self._n
        assert nodes == sorted(nodes, key=lambda node: (self._lows[node], node))
        for node in nodes:
            below = [child for child in self._children[node].tolist() if child != NONE]
            assert self._max_highs[node] == max([self._highs[node], *self._max_highs[below]])
