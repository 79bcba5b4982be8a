r"""The structures that the PB+tree paper compares itself with (Table 1), over one attribute, in memory.

Paper: B. Wang, W. Zhang, M. Kitsuregawa, "Design of Secondary Storage Predicate Index for Publish/Subscribe System",
sections 3 and 5. They change in place, belong to one thread, and are plain Python: what is compared are *steps* (nodes,
entries and ids that were looked at or moved) and stored entries, not times.

    structure          one node or entry holds                         search for v
    GroupedFilter      four structures by operator: two trees, two     GT tree up to v, LT tree from v on, one look-up,
                       hash tables                                     the inequality table but for v
    RedBlackTree       a constant, five arrays of ids (< <= = >= >)    every node: each says which arrays count
    IbsTree            an end of intervals; ids of those that cover    one path; at each node the ids of the side
                       all to its left, itself, all to its right       that is taken
    TimeIndex          a point where the set of valid intervals        the last point at or before v: its ids
                       changes, with that whole set
    IntervalBPlusTree  intervals by their low, the largest high above  all subtrees that begin at or before v and
                       each subtree                                    reach it

All have insert(predicate, id), delete(predicate, id), search(value), n_entries and steps. The first two take single
operators as they are; the last three take intervals, so that `>= 5` is one without an upper end and `!= 5` is two.

Worked example, IbsTree with 0: [2, 6] and 1: x <= 4. Ends 2, 4, 6; a mark stands as high as it can:

              4   less {1}  equal {0, 1}  greater {}           search 3: at 4 go left, take less: 1
            /   \                                                        at 2 go right, take greater: 0
           2     6
    greater {0}   less {0}  equal {0}
    equal {0}

Departures
D1  A point is a number and a side (below it, itself, above it), so that open and closed ends are the same thing.
D2  The red-black trees are AA trees (red only to the right), which do the same with two rotations.
D3  The IBS-tree is balanced as a treap; a rotation moves marks between the two nodes by set operations.
D4  The B+tree of the time index is a sorted list, found by bisection and counted as such.
"""

from __future__ import annotations

import math
from typing import Any, Final, Protocol

from siftline_bench.structures.table_one_intervals import IbsTree, IntervalBPlusTree, Predicate, TimeIndex
from siftline_bench.structures.table_one_trees import KeyTree

_OPERATORS: Final = ("<", "<=", "=", ">=", ">")


class Structure(Protocol):
    """What the harness needs of a structure."""

    steps: int

    def insert(self, predicate: Predicate, id: int) -> None:
        """Add a predicate under an id."""

    def delete(self, predicate: Predicate, id: int) -> None:
        """Remove a predicate that was added under this id."""

    def search(self, value: float) -> set[int]:
        """Return the ids of all predicates that a value satisfies."""

    @property
    def n_entries(self) -> int:
        """The number of keys and ids that are stored, each as often as it is."""


class GroupedFilter:
    """Two trees and two hash tables, by operator (CACQ, [17]).

    Examples
    --------
    >>> filter = GroupedFilter()
    >>> filter.insert(Predicate(">", 3), id=1)
    >>> filter.search(3), filter.search(4)
    (set(), {1})
    """

    def __init__(self) -> None:
        self._above, self._below = KeyTree(2), KeyTree(2)  # strict, or not
        self._equal: dict[float, set[int]] = {}
        self._unequal: dict[float, set[int]] = {}
        self._own_steps = self._n_hashed = 0

    @property
    def steps(self) -> int:
        """Nodes, keys and ids looked at."""
        return self._own_steps + self._above.steps + self._below.steps

    @property
    def n_entries(self) -> int:
        """Keys and ids in all four."""
        return self._above.n_entries + self._below.n_entries + self._n_hashed

    def insert(self, predicate: Predicate, id: int) -> None:
        """Add a predicate under an id."""
        op, constant, _ = predicate
        if op in ("=", "!="):
            table = self._equal if op == "=" else self._unequal
            self._n_hashed += 1 + (constant not in table)
            table.setdefault(constant, set()).add(id)
            self._own_steps += 1
        else:
            (self._above if op[0] == ">" else self._below).add(constant, len(op) - 1, id)

    def delete(self, predicate: Predicate, id: int) -> None:
        """Remove a predicate that was added under this id."""
        op, constant, _ = predicate
        if op in ("=", "!="):
            table = self._equal if op == "=" else self._unequal
            table[constant].remove(id)
            if not table[constant]:
                del table[constant]
            self._n_hashed -= 1 + (constant not in table)
            self._own_steps += 1
        else:
            (self._above if op[0] == ">" else self._below).remove(constant, len(op) - 1, id)

    def search(self, value: float) -> set[int]:
        """Return the ids of all predicates that a value satisfies."""
        found = set(self._equal.get(value, ()))
        for constant, ids in self._unequal.items():
            self._own_steps += 1
            if constant != value:
                found |= ids
        for tree, low, high in ((self._above, -math.inf, value), (self._below, value, math.inf)):
            for node in tree.walk(low, high):
                found |= node.ids[1] if node.key == value else node.ids[0] | node.ids[1]
        self._own_steps += len(found)
        return found


class RedBlackTree:
    """One tree with five arrays of ids a node (PSoup, [4]); for `!=` both `<` and `>` stand in."""

    def __init__(self) -> None:
        self._tree = KeyTree(len(_OPERATORS))
        self._n_reported = 0

    @property
    def steps(self) -> int:
        """Nodes and ids looked at."""
        return self._tree.steps + self._n_reported

    @property
    def n_entries(self) -> int:
        """Keys and ids."""
        return self._tree.n_entries

    def insert(self, predicate: Predicate, id: int) -> None:
        """Add a predicate under an id."""
        for op in ("<", ">") if predicate.op == "!=" else (predicate.op,):
            self._tree.add(predicate.constant, _OPERATORS.index(op), id)

    def delete(self, predicate: Predicate, id: int) -> None:
        """Remove a predicate that was added under this id."""
        for op in ("<", ">") if predicate.op == "!=" else (predicate.op,):
            self._tree.remove(predicate.constant, _OPERATORS.index(op), id)

    def search(self, value: float) -> set[int]:
        """Return the ids of all predicates that a value satisfies: every node has a say."""
        found: set[int] = set()
        for node in self._tree.walk(-math.inf, math.inf):
            less, at_most, equal, at_least, greater = node.ids
            if value < node.key:
                found |= less | at_most
            elif value > node.key:
                found |= at_least | greater
            else:
                found |= at_most | equal | at_least
        self._n_reported += len(found)
        return found


STRUCTURES: Final[dict[str, type[Any]]] = {
    "grouped filter": GroupedFilter,
    "red-black tree": RedBlackTree,
    "IBS-tree": IbsTree,
    "time index": TimeIndex,
    "interval B+tree": IntervalBPlusTree,
}
# These take `between`; the others take only single operators.
OF_INTERVALS: Final = frozenset({"IBS-tree", "time index", "interval B+tree"})
