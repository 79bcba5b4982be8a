"""The structures of table_one.py that hold intervals, and predicates as intervals."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right, insort
from typing import Any, Final, NamedTuple

# A number, and which side of it: -1 just below, 0 itself, 1 just above (D1).
Point = tuple[float, int]
_LOWEST: Final[Point] = (-math.inf, -1)
_HIGHEST: Final[Point] = (math.inf, 1)
# Entries of a node of the interval B+tree.
_FANOUT: Final = 16


class Predicate(NamedTuple):
    """An operator with its constant, or `between` with two."""

    op: str
    constant: float
    upper: float = math.nan

    def holds(self, value: float) -> bool:
        """Return whether a value satisfies it."""
        return any(low <= (value, 0) <= high for low, high in self.intervals())

    def intervals(self) -> list[tuple[Point, Point]]:
        """Return what satisfies it, as closed intervals of points."""
        at, below, above = (self.constant, 0), (self.constant, -1), (self.constant, 1)
        match self.op:
            case "=":
                return [(at, at)]
            case "<":
                return [(_LOWEST, below)]
            case "<=":
                return [(_LOWEST, at)]
            case ">":
                return [(above, _HIGHEST)]
            case ">=":
                return [(at, _HIGHEST)]
            case "!=":
                return [(_LOWEST, below), (above, _HIGHEST)]
        return [(at, (self.upper, 0))] if self.constant <= self.upper else []


class _Mark:
    """A node of the IBS-tree: an end of intervals, and the ids of those that cover all left of it, it, all right."""

    __slots__ = ("equal", "greater", "key", "left", "less", "priority", "right", "users")

    def __init__(self, key: Point, priority: float) -> None:
        self.key, self.priority, self.users = key, priority, 0
        self.less: set[int] = set()
        self.equal: set[int] = set()
        self.greater: set[int] = set()
        self.left: _Mark | None = None
        self.right: _Mark | None = None


class IbsTree:
    """The interval binary search tree ([12]): each interval marks O(log n) places, a search reads one path."""

    def __init__(self) -> None:
        self._root: _Mark | None = None
        self._random = random.Random(0)
        self._n_nodes = self._n_marks = 0
        self.steps = 0

    @property
    def n_entries(self) -> int:
        """Ends and marks."""
        return self._n_nodes + self._n_marks

    def insert(self, predicate: Predicate, id: int) -> None:
        """Add the intervals of a predicate."""
        for low, high in predicate.intervals():
            for end in (low, high):
                if end not in (_LOWEST, _HIGHEST):
                    self._root = self._use(self._root, end)
            self._mark(self._root, _LOWEST, _HIGHEST, low, high, id, 1)

    def delete(self, predicate: Predicate, id: int) -> None:
        """Remove the intervals of a predicate."""
        for low, high in predicate.intervals():
            self._mark(self._root, _LOWEST, _HIGHEST, low, high, id, -1)
            for end in (low, high):
                if end not in (_LOWEST, _HIGHEST):
                    self._root = self._leave(self._root, end)

    def search(self, value: float) -> set[int]:
        """Return the ids of all intervals that contain a value."""
        found: set[int] = set()
        node, point = self._root, (value, 0)
        while node is not None:
            self.steps += 1
            if point == node.key:
                found |= node.equal
                break
            is_left = point < node.key
            found |= node.less if is_left else node.greater
            node = node.left if is_left else node.right
        self.steps += len(found)
        return found

    def _mark(
        self, node: _Mark | None, above: Point, below: Point, low: Point, high: Point, id: int, change: int
    ) -> None:
        """Set or clear the marks of one interval in the subtree between two ends."""
        if node is None:
            return
        self.steps += 1
        key = node.key
        if low <= above and key <= high:
            self._set(node.less, id, change)
        elif low < key:
            self._mark(node.left, above, key, low, high, id, change)
        if low <= key <= high:
            self._set(node.equal, id, change)
        if low <= key and below <= high:
            self._set(node.greater, id, change)
        elif key < high:
            self._mark(node.right, key, below, low, high, id, change)

    def _set(self, ids: set[int], id: int, change: int) -> None:
        before = len(ids)
        ids.add(id) if change > 0 else ids.discard(id)
        self._n_marks += len(ids) - before

    def _use(self, node: _Mark | None, key: Point) -> _Mark:
        """Count one more interval that ends at a key; a new key becomes a leaf and rises."""
        self.steps += 1
        if node is None:
            node = _Mark(key, self._random.random())
            self._n_nodes += 1
        if key == node.key:
            node.users += 1
            return node
        if key < node.key:
            node.left = self._use(node.left, key)
            return self._rotated(node, is_right=True) if node.left.priority < node.priority else node
        node.right = self._use(node.right, key)
        return self._rotated(node, is_right=False) if node.right.priority < node.priority else node

    def _leave(self, node: _Mark | None, key: Point) -> _Mark | None:
        """Count one interval less; a key without any sinks and goes."""
        self.steps += 1
        assert node is not None
        if key < node.key:
            node.left = self._leave(node.left, key)
        elif key > node.key:
            node.right = self._leave(node.right, key)
        elif node.users > 1:
            node.users -= 1
        else:
            return self._sunk(node)
        return node

    def _sunk(self, node: _Mark) -> _Mark | None:
        """Rotate a node down until it is a leaf, which has no marks then, and drop it."""
        if node.left is None and node.right is None:
            assert not node.less | node.equal | node.greater
            self._n_nodes -= 1
            return None
        is_right = node.right is None or (node.left is not None and node.left.priority < node.right.priority)
        top = self._rotated(node, is_right=is_right)
        if is_right:
            top.right = self._sunk(node)
        else:
            top.left = self._sunk(node)
        return top

    def _rotated(self, node: _Mark, *, is_right: bool) -> _Mark:
        """Let a child take the place of its parent; marks go as high as they can (D3)."""
        child = node.left if is_right else node.right
        assert child is not None
        near, far = ("less", "greater") if is_right else ("greater", "less")
        sets = (node.less, node.equal, node.greater, child.less, child.equal, child.greater)
        n_before = sum(map(len, sets))
        self.steps += 1 + n_before
        covering = getattr(node, near)  # everything on the child's side
        between = getattr(child, far) | covering
        beyond = between & node.equal & getattr(node, far)
        setattr(child, near, getattr(child, near) | covering)
        child.equal |= covering
        setattr(child, far, beyond)
        setattr(node, near, between - beyond)
        node.equal -= beyond
        setattr(node, far, getattr(node, far) - beyond)
        after = (node.less, node.equal, node.greater, child.less, child.equal, child.greater)
        self._n_marks += sum(map(len, after)) - n_before
        if is_right:
            node.left, child.right = child.right, node
        else:
            node.right, child.left = child.left, node
        return child


class TimeIndex:
    """All points where something changes, each with everything that is valid from there on ([7])."""

    def __init__(self) -> None:
        self._points: list[Point] = [_LOWEST]
        self._valid: list[set[int]] = [set()]
        self._users: dict[Point, int] = {_LOWEST: 1}
        self._n_ids = 0
        self.steps = 0

    @property
    def n_entries(self) -> int:
        """Points and ids."""
        return len(self._points) + self._n_ids

    def insert(self, predicate: Predicate, id: int) -> None:
        """Add the intervals of a predicate."""
        for low, high in predicate.intervals():
            self._use(low)
            end = self._use(_after(high))
            first = self._place(low)
            for place in range(first, end):
                self._n_ids += id not in self._valid[place]
                self._valid[place].add(id)
                self.steps += 1

    def delete(self, predicate: Predicate, id: int) -> None:
        """Remove the intervals of a predicate."""
        for low, high in predicate.intervals():
            first, end = self._place(low), self._place(_after(high))
            for place in range(first, end):
                self._n_ids -= id in self._valid[place]
                self._valid[place].discard(id)
                self.steps += 1
            self._leave(low)
            self._leave(_after(high))

    def search(self, value: float) -> set[int]:
        """Return the ids that are valid at a value."""
        found = self._valid[self._place((value, 0))]
        self.steps += len(found)
        return set(found)

    def _place(self, point: Point | None) -> int:
        """Return the last point at or before a point."""
        self.steps += max(1, len(self._points).bit_length())
        return len(self._points) if point is None else bisect_right(self._points, point) - 1

    def _use(self, point: Point | None) -> int:
        """Let a point be there, with a copy of what is valid just before it; return its place."""
        if point is None:
            return len(self._points)
        place = self._place(point)
        self._users[point] = self._users.get(point, 0) + 1
        if self._points[place] != point:
            place += 1
            self._points.insert(place, point)
            self._valid.insert(place, set(self._valid[place - 1]))
            self._n_ids += len(self._valid[place])
            self.steps += len(self._valid[place])
        return place

    def _leave(self, point: Point | None) -> None:
        if point is None:
            return
        self._users[point] -= 1
        if not self._users[point]:
            del self._users[point]
            place = self._place(point)
            self._n_ids -= len(self._valid[place])
            del self._points[place], self._valid[place]


def _after(point: Point) -> Point | None:
    """Return the next point; None behind the last."""
    value, side = point
    if point == _HIGHEST:
        return None
    return (value, side + 1) if side < 1 else (math.nextafter(value, math.inf), -1)


class _Branch(NamedTuple):
    """A node of the interval B+tree: entries (low, high, id) of a leaf, or nodes; `reach` holds the largest high."""

    entries: list[Any]
    lows: list[tuple[Point, int]]
    reach: list[Point]
    is_leaf: bool


class IntervalBPlusTree:
    """A B+tree over the lows of intervals, with the largest high of each subtree ([3])."""

    def __init__(self) -> None:
        self._root = _Branch([], [], [_LOWEST], True)
        self.steps = 0
        self.n_entries = 0

    def insert(self, predicate: Predicate, id: int) -> None:
        """Add the intervals of a predicate."""
        for low, high in predicate.intervals():
            other = self._insert(self._root, low, high, id)
            if other is not None:
                self._root = _branch([self._root, other], is_leaf=False)
                self.n_entries += 2
            self.n_entries += 1

    def _insert(self, node: _Branch, low: Point, high: Point, id: int) -> _Branch | None:
        """Enter an interval below a node; return its new right half if it had to be split."""
        self.steps += 1
        node.reach[0] = max(node.reach[0], high)
        if node.is_leaf:
            insort(node.entries, (low, id, high))
        else:
            place = max(0, bisect_right(node.lows, (low, id)) - 1)
            other = self._insert(node.entries[place], low, high, id)
            node.lows[place] = min(node.lows[place], (low, id))
            if other is not None:
                node.entries.insert(place + 1, other)
                node.lows.insert(place + 1, _low(other))
                self.n_entries += 1
        if len(node.entries) <= _FANOUT:
            return None
        right = _branch(node.entries[_FANOUT // 2 :], is_leaf=node.is_leaf)
        del node.entries[_FANOUT // 2 :], node.lows[_FANOUT // 2 :]
        node.reach[0] = _reach(node)
        self.steps += _FANOUT
        return right

    def delete(self, predicate: Predicate, id: int) -> None:
        """Remove the intervals of a predicate."""
        for low, high in predicate.intervals():
            self._delete(self._root, low, high, id)
            self.n_entries -= 1
            while not self._root.is_leaf and len(self._root.entries) == 1:
                self._root = self._root.entries[0]
                self.n_entries -= 1

    def _delete(self, node: _Branch, low: Point, high: Point, id: int) -> None:
        self.steps += 1
        if node.is_leaf:
            del node.entries[bisect_left(node.entries, (low, id, high))]
        else:
            place = bisect_right(node.lows, (low, id)) - 1
            child = node.entries[place]
            self._delete(child, low, high, id)
            if not child.entries:
                del node.entries[place], node.lows[place]
                self.n_entries -= 1
            elif len(child.entries) < _FANOUT // 4:
                self._join(node, min(place, len(node.entries) - 2))
        if node.reach[0] == high:
            node.reach[0] = _reach(node)
            self.steps += len(node.entries)

    def _join(self, node: _Branch, place: int) -> None:
        """Merge two neighbours if they fit into one node."""
        if place < 0 or len(node.entries[place].entries) + len(node.entries[place + 1].entries) > _FANOUT:
            return
        left, right = node.entries[place : place + 2]
        node.entries[place : place + 2] = [_branch(left.entries + right.entries, is_leaf=left.is_leaf)]
        del node.lows[place + 1]
        self.n_entries -= 1
        self.steps += _FANOUT

    def search(self, value: float) -> set[int]:
        """Return the ids of all intervals that contain a value."""
        found: set[int] = set()
        pending, point = [self._root], (value, 0)
        while pending:
            node = pending.pop()
            self.steps += len(node.entries)
            if node.is_leaf:
                found.update(id for low, id, high in node.entries if low <= point <= high)
            else:
                end = bisect_right(node.lows, (point, math.inf))
                pending += [child for child in node.entries[:end] if child.reach[0] >= point]
        return found


def _branch(entries: list[Any], *, is_leaf: bool) -> _Branch:
    node = _Branch(entries, [] if is_leaf else [_low(entry) for entry in entries], [_LOWEST], is_leaf)
    node.reach[0] = _reach(node)
    return node


def _low(node: _Branch) -> tuple[Point, int]:
    return node.entries[0][:2] if node.is_leaf else node.lows[0]


def _reach(node: _Branch) -> Point:
    ends = (entry[2] for entry in node.entries) if node.is_leaf else (entry.reach[0] for entry in node.entries)
    return max(ends, default=_LOWEST)
