"""`be-tree`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from siftline.encoding.selectivity import literal_shares
from siftline.indexes.parts import Found, PartedIndex
from siftline.kernels.be_tree import (
    ATTRIBUTE,
    FIRST_C_NODE,
    FIRST_P_NODE,
    N_C_COLUMNS,
    Ranked,
    Tree,
    Work,
    fill_leaves,
    grow_tree,
    levels_of,
    match_tree,
    rank_literals,
)
from siftline.kernels.scan import order_literals
from siftline.kernels.spaces import cut_attributes, spaces_of_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.indexes.parts import Context, OneEvent, Part

_LEAF_CAPACITY: Final = 5


class Arrays(NamedTuple):
    """One tree; see the head of this file."""

    roots: NDArray[np.int32]
    c_nodes: NDArray[np.int32]
    p_nodes: NDArray[np.int32]
    leaves: NDArray[np.uint64]


class BeTree(PartedIndex):
    """A tree that cuts the space by attribute and by value in turn.

    Parameters
    ----------
    leaf_capacity : int
        A leaf with more clauses is cut, if anything tells them apart.
    """

    name: ClassVar[str] = "be-tree"
    arrays_type: ClassVar[type] = Arrays

    def __init__(self, *, leaf_capacity: int = _LEAF_CAPACITY) -> None:
        super().__init__()
        if not isinstance(leaf_capacity, int) or isinstance(leaf_capacity, bool) or leaf_capacity < 1:
            raise ValueError(f"leaf_capacity must be an integer of at least 1, not {leaf_capacity!r}")
        self.leaf_capacity = leaf_capacity

    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> Arrays:
        shares = literal_shares(clauses, context.domains, context.statistics)
        order = order_literals(clauses.starts, shares, clauses.kinds)
        n_attributes = int(clauses.attributes.max()) + 1 if len(order) else 0
        bounds = clauses.attributes, clauses.lows, clauses.highs
        space_starts, cuts = cut_attributes(n_attributes, *bounds)
        spaces = spaces_of_ranges(*bounds, space_starts, cuts)
        ranked = Ranked(
            *rank_literals(order, clauses.starts, clauses.attributes, clauses.kinds, shares, *spaces, space_starts)
        )
        tree = _empty_tree(chosen, ranked, len(order))
        work = _empty_work(n_attributes, chosen, ranked)
        n_c_nodes, n_p_nodes = grow_tree(self.leaf_capacity, tree, work, ranked, space_starts, cuts)
        c_nodes = tree.c_nodes[: n_c_nodes + 1].copy()
        p_nodes = tree.p_nodes[: n_p_nodes + 1].copy()
        begins, ends = tree.begins[:n_c_nodes], tree.ends[:n_c_nodes]
        leaf_starts, in_leaves = in_order_of_nodes(begins, ends, tree.members)
        leaves = fill_leaves(
            leaf_starts, in_leaves, c_nodes, tree.is_proven, order, clauses.starts, *clauses[3:8]
        )
        roots = np.full(n_attributes, -1, dtype=np.int32)
        n_roots = int(c_nodes[1, FIRST_P_NODE])
        roots[p_nodes[:n_roots, ATTRIBUTE]] = np.arange(n_roots)
        return Arrays(roots, c_nodes, p_nodes, leaves)

    def _match_part(self, part: Part, event: OneEvent) -> Found:
        return Found(*match_tree(event.attributes, event.codes, self._dense(), *part.arrays, *part.literals[-3:]))

    def _check_part(self, part: Part) -> None:
        pass

    def _describe_part(self, part: Part) -> list[str]:
        return []


def in_order_of_nodes(begins, ends, members):
    lengths = ends - begins
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    places = np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lengths)
    return starts, members[places]


def _empty_tree(chosen: NDArray[np.int32], ranked: Ranked, n_literals: int) -> Tree:
    """Return a tree without nodes; every level of p-nodes above a clause takes one of its attributes."""
    most_p_nodes = len(ranked.attributes) + 1
    most_c_nodes = 2 * most_p_nodes + 1
    return Tree(
        c_nodes=np.empty((most_c_nodes, N_C_COLUMNS), dtype=np.int32),
        p_nodes=np.empty((most_p_nodes, 2), dtype=np.int32),
        begins=np.empty(most_c_nodes, dtype=np.int32),
        ends=np.empty(most_c_nodes, dtype=np.int32),
        p_node_above=np.empty(most_c_nodes, dtype=np.int32),
        c_node_above=np.empty(most_p_nodes, dtype=np.int32),
        members=chosen.copy(),
        is_proven=np.zeros(n_literals, dtype=np.bool_),
    )


def _empty_work(n_attributes: int, chosen: NDArray[np.int32], ranked: Ranked) -> Work:
    n, n_members = n_attributes + 1, len(chosen)
    return Work(
        used_at=np.full(n, -1, dtype=np.int32),
        seen_at=np.full(n, -1, dtype=np.int32),
        numbers=np.empty(n, dtype=np.int32),
        attributes=np.empty(n, dtype=np.int32),
        scores=np.empty(n, dtype=np.float64),
        keys=np.empty(n, dtype=np.float64),
        n_users=np.empty(n, dtype=np.int32),
        starts=np.empty(n, dtype=np.int64),
        heap=np.empty(n, dtype=np.int32),
        is_picked=np.empty(n, dtype=np.bool_),
        group_ends=np.empty(n, dtype=np.int32),
        users=np.empty(len(ranked.attributes), dtype=np.int32),
        groups=np.empty(n_members, dtype=np.int32),
        copies=np.empty(n_members, dtype=np.int32),
        sort_keys=np.empty(n_members, dtype=np.int64),
    )
