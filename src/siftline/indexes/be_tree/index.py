"""`be-tree`: a tree that cuts the space of events by attribute, then by value, and so on down.

Paper: M. Sadoghi, H.-A. Jacobsen: BE-Tree: an index structure to efficiently match Boolean expressions over
high-dimensional discrete space, SIGMOD 2011; as OpIndex (PVLDB 7(8), 2014) shows it in section 3 and Fig. 3, with the
leaf capacity of its section 7.2. See also PS-Tree (PVLDB 12(3), 2018), section 2.

Idea: a c-node has a leaf and a p-directory. A leaf with more clauses than `leaf_capacity` is cut: the clauses that
have the best attribute move to a p-node of that attribute, until the leaf can take the others (space partitioning).
A p-node halves the values of its attribute again and again, and each clause is stored at the smallest interval that
covers its predicate (space clustering). An interval has a c-node, which is cut in turn, by attributes that are not yet
on the path. An event goes down only where it has the attribute, with a value in the interval.

Worked example: OpIndex Table 1 with `leaf_capacity=2`, if events have B rarely, A less rarely, and C, D, E always:

    S1: A = 2 and B in (3, 6, 9)       S3: C = 6 and B <= 4 and E between 3 and 12     S5: D >= 12 and E <= 9
    S2: A <= 8 and C >= 2              S4: A = 2        S6: B in (3, 6) and C <= 4 and D >= 10 and E <= 7

    c-node 0   leaf {S5}
     +- p-node A    cuts 2 and 8 make the spaces  (..2) [2] (2..8] (8..)          numbered 0 1 2 3
     |    +- c-node 1  spaces 0-3  leaf {S2}            A <= 8 covers the spaces 0-2
     |       +- c-node 2  space 1  leaf {S4}
     +- p-node B    spaces  (..3) [3..4] (4..6] (6..9] (9..)                      numbered 0 1 2 3 4
          +- c-node 3  spaces 0-3  leaf {S1, S6}        hulls 3..9 and 3..6: spaces 1-3 and 1-2
             +- c-node 4  spaces 0-1  leaf {S3}         B <= 4

    event {B: 5, C: 1, D: 10, E: 7}: no A; 5 lies in c-node 3 and not in c-node 4. In the leaf {S1, S6}
    A = 2 fails for {S1}; B in (3, 6) fails for {S6}: none is left.

Arrays
------
c_nodes : int32[n_c_nodes + 1, 5], breadth first; c-node 0 is the root
    low, high: the codes of its interval. subtree_end: the first c-node that is not inside this interval; those inside
    follow it. leaf, first_p_node: its leaf is leaves[leaf : leaf of the next c-node], its p-directory
    p_nodes[first_p_node : first_p_node of the next]. Both are 0 long for an interval that only branches.
p_nodes : int32[n_p_nodes + 1, 2], of one directory by ascending attribute
    attribute, first_c_node: its c-directory is c_nodes[first_c_node : first_c_node of the next].
roots : int32[n_attributes]
    The root's p-node of each attribute, -1 if it has none.
leaves : uint64[...], leaf by leaf, each in words of up to 64 clauses
    A word: length of its predicates << 32 | number of clauses; the predicates; the clauses. A predicate: bitmap of the
    clauses that use it; (attribute + 1) << 32 | tag; low << 32 | high. The tag is 2 * (set + 1), + 1 for a veto.
    A range that equals an interval of the path is left out, because the path proves it.

Cost: building takes O(literals * depth) and a sort of each p-node. An event costs, in each c-node that it reaches, one
probe for each p-node of the directory (at the root, and where that is shorter, for each attribute of the event), about
two comparisons for each level of a c-directory, and in a leaf at least one predicate for each of its clauses. Against
OpIndex Fig. 7, the capacity matters little: with 1,000,000 subscriptions and 30,000 attributes, an event of 30 values
tests 224 clauses in leaves of up to 5, and 506 in leaves of up to 250, in as many leaves and in the same time. D3 is
the reason: values separate the clauses whatever the capacity, and reaching a leaf takes most of the time.

Departures from the papers
--------------------------
D1. Additions and removals by parts instead of in place (see parts.py). A tree is built as a whole, so there are no
    underflows, and no p-node that a later insertion would make useless.
D2. Intervals halve the attribute's elementary spaces, not its declared domain: strings and numbers alike, and no
    halving where no constant lies.
D3. Clauses are stored at intervals from the start, as in Fig. 3, and not when the leaf of an interval overflows
    (SIGMOD 2011). An interval without clauses is left out unless it branches.
D4. The score of an attribute is the expected number of the leaf's clauses that an event need not test because of it:
    the sum of 1 - share. The share of events that satisfy a predicate comes from Statistics or, without them, from the
    constants. SIGMOD 2011 weighs gain against loss, which it counts while events arrive.
D5. Once the attributes are picked, each clause goes to the one with its highest score, as a later insertion would.
D6. Leaves keep one bitmap for each distinct predicate, not for each value, so a range is one comparison. Predicates
    are ordered so that each clause in turn contributes its next one, and predicates whose clauses have all failed are
    skipped; so a leaf of few clauses is tested clause by clause. A leaf of several words keeps only the words of each
    bitmap that are not empty.
D7. Clauses that no attribute and no interval separates stay in one leaf, however many they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from siftline.encoding.clauses import RANGE, VETO, spans
from siftline.encoding.selectivity import literal_shares
from siftline.indexes.be_tree.kernels import (
    ATTRIBUTE,
    FIRST_C_NODE,
    FIRST_P_NODE,
    HIGH,
    LEAF,
    LOW,
    N_C_COLUMNS,
    N_P_COLUMNS,
    N_PACKED,
    WORD,
    Layout,
    Ranked,
    Tree,
    Work,
    fill_leaves,
    grow_tree,
    leaf_sizes,
    levels_of,
    match_tree,
    rank_literals,
)
from siftline.indexes.parts import Found, PartedIndex
from siftline.kernels.literals import Literals, order_literals
from siftline.kernels.spaces import cut_attributes, spaces_of_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.indexes.parts import Context, OneEvent, Part

# OpIndex, section 7.2, sets 5. Measured with 200,000 subscriptions: with 30,000 attributes, all capacities from 5 to
# 250 take the same time, but for noise; with 100 attributes, leaves of 5 take 18 % longer than those of 50, which take
# 14 % longer than those of 250.
_LEAF_CAPACITY: Final = 50
_MOST_CLAUSES: Final = 1_000_000


class BeTree(PartedIndex):
    """A tree that cuts the space by attribute and by value in turn.

    Parameters
    ----------
    leaf_capacity : int
        A leaf with more clauses is cut, if an attribute or an interval separates them.
    """

    name: ClassVar[str] = "be-tree"
    arrays_type: ClassVar[type] = Layout

    def __init__(self, *, leaf_capacity: int = _LEAF_CAPACITY) -> None:
        super().__init__()
        if type(leaf_capacity) is not int or not 1 <= leaf_capacity <= _MOST_CLAUSES:
            raise ValueError(f"leaf_capacity must be an integer from 1 to {_MOST_CLAUSES:,}, not {leaf_capacity!r}")
        self.leaf_capacity = leaf_capacity

    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> Layout:
        shares = literal_shares(clauses, context.domains, context.statistics)
        order = order_literals(clauses.starts, shares, clauses.kinds)
        n_attributes = int(clauses.attributes.max()) + 1 if len(order) else 0
        attributes, lows, highs = clauses.attributes, clauses.lows, clauses.highs
        space_starts, cuts = cut_attributes(n_attributes, attributes, lows, highs)
        firsts, lasts = spaces_of_ranges(attributes, lows, highs, space_starts, cuts)
        ranked = rank_literals(order, clauses.starts, attributes, clauses.kinds, shares, firsts, lasts, space_starts)
        tree = _empty_tree(chosen, ranked, len(order))
        work = _empty_work(n_attributes, chosen, ranked)
        n_c_nodes, n_p_nodes = grow_tree(self.leaf_capacity, tree, work, ranked, space_starts, cuts)
        c_nodes = tree.c_nodes[: n_c_nodes + 1].copy()
        p_nodes = tree.p_nodes[: n_p_nodes + 1].copy()
        lengths = (tree.ends - tree.begins)[:n_c_nodes].astype(np.int64)
        leaf_starts = np.concatenate([[0], np.cumsum(lengths)])
        in_leaves = tree.members[spans(tree.begins[:n_c_nodes].astype(np.int64), lengths)]
        leaves = fill_leaves(leaf_starts, in_leaves, c_nodes, tree.is_proven, order, clauses.literals)
        roots = np.full(n_attributes, -1, dtype=np.int32)
        n_roots = int(c_nodes[1, FIRST_P_NODE])
        roots[p_nodes[:n_roots, ATTRIBUTE]] = np.arange(n_roots)
        return Layout(roots, c_nodes, p_nodes, leaves)

    def _match_part(self, part: Part, event: OneEvent) -> Found:
        literals, layout = part.handle(Literals), part.handle(Layout)
        found, n_candidates, n_tested, n_lists = match_tree(
            event.attributes, event.codes, self._dense(), literals, layout
        )
        return Found(found, n_candidates, n_tested, n_lists)

    def stats(self) -> dict[str, Any]:
        """Return bytes by structure, numbers of nodes, and what matching has cost so far."""
        return {**super().stats(), "depth": max((_depth(part) for part in self._parts), default=0)}

    def _stats_of_part(self, part: Part) -> dict[str, int]:
        arrays = part.arrays
        n_leaves = int(np.count_nonzero(leaf_sizes(arrays.c_nodes, arrays.leaves)))
        return {"c_nodes": len(arrays.c_nodes) - 1, "p_nodes": len(arrays.p_nodes) - 1, "leaves": n_leaves}

    def _describe_part(self, part: Part) -> list[str]:
        numbers, sizes = self._stats_of_part(part), leaf_sizes(part.arrays.c_nodes, part.arrays.leaves)
        n_roots = int(part.arrays.c_nodes[1, FIRST_P_NODE])
        return [
            f"depth {_depth(part)}: {numbers['c_nodes']:,} c-nodes, {numbers['p_nodes']:,} p-nodes"
            f" ({n_roots:,} at the root), {numbers['leaves']:,} leaves of up to {self.leaf_capacity:,} clauses",
            f"leaves by clauses: {_histogram(sizes)}",
        ]

    def _check_part(self, part: Part) -> None:
        arrays, clauses = part.arrays, part.clauses
        roots, c_nodes, p_nodes, leaves = arrays.roots, arrays.c_nodes, arrays.p_nodes, arrays.leaves
        assert c_nodes[0].tolist()[:3] == [0, 2**31 - 1, 1]
        assert c_nodes[-1, FIRST_P_NODE] == len(p_nodes) - 1
        assert c_nodes[-1, LEAF] == len(leaves) - 1
        n_roots = int(c_nodes[1, FIRST_P_NODE])
        assert roots[p_nodes[:n_roots, ATTRIBUTE]].tolist() == list(range(n_roots))
        assert np.count_nonzero(roots >= 0) == n_roots
        space_starts, cuts = cut_attributes(len(roots), clauses.attributes, clauses.lows, clauses.highs)
        hung_on = _Intervals(clauses, space_starts, cuts)
        seen: list[int] = []
        for c, path in _paths(c_nodes, p_nodes):
            attributes = [attribute for attribute, _, _ in path]
            assert len(set(attributes)) == len(attributes)
            first, end = c_nodes[c : c + 2, FIRST_P_NODE]
            assert (np.diff(p_nodes[first:end, ATTRIBUTE]) > 0).all()
            members = []
            for word in words_of(c_nodes, leaves, c):
                members += word.clauses
                _check_word(clauses, path, word)
            for clause in members:
                assert not path or path[-1] in hung_on.smallest(clause, attributes[-1])
            _check_size(clauses, members, attributes, self.leaf_capacity, is_cut=bool(first < end))
            seen += members
        assert sorted(seen + part.others.tolist()) == list(range(part.n_clauses))


class Word(NamedTuple):
    """Up to 64 clauses of a leaf, and the predicates that they use."""

    clauses: list[int]
    predicates: list[tuple[int, int, int, int, int]]  # mask, attribute, tag, low, high


def words_of(c_nodes: NDArray[np.int32], leaves: NDArray[np.uint64], c: int) -> list[Word]:
    """Return the leaf of a c-node, unpacked."""
    found = []
    place, end = c_nodes[c : c + 2, LEAF].tolist()
    while place < end:
        length, size = divmod(int(leaves[place]), 2**32)
        after = place + 1 + length
        packed = leaves[place + 1 : after].reshape(-1, N_PACKED).tolist()
        predicates = [(mask, divmod(target, 2**32), divmod(bounds, 2**32)) for mask, target, bounds in packed]
        unpacked = [(mask, entry - 1, tag, low, high) for mask, (entry, tag), (low, high) in predicates]
        found.append(Word(leaves[after : after + size].tolist(), unpacked))
        place = after + size
    return found


# The p-nodes above a c-node: attribute, and the codes of the interval that was taken.
Path = list[tuple[int, int, int]]


def _paths(c_nodes: NDArray[np.int32], p_nodes: NDArray[np.int32]) -> Iterator[tuple[int, Path]]:
    """Yield each c-node with the path to it; assert that intervals lie inside each other as they say."""
    paths: dict[int, Path] = {0: []}
    for c in range(len(c_nodes) - 1):
        path = paths.pop(c)
        yield c, path
        for p in range(c_nodes[c, FIRST_P_NODE], c_nodes[c + 1, FIRST_P_NODE]):
            attribute, first = p_nodes[p].tolist()
            end = int(p_nodes[p + 1, FIRST_C_NODE])
            for child in range(first, end):
                low, high, subtree_end = c_nodes[child, :LEAF].tolist()
                paths[child] = [*path, (attribute, low, high)]
                inside, after = c_nodes[child + 1 : subtree_end], c_nodes[subtree_end:end]
                assert child < subtree_end <= end
                assert ((inside[:, LOW] >= low) & (inside[:, HIGH] <= high)).all()
                assert (after[:, LOW] > high).all()
    assert not paths


class _Intervals:
    """The intervals of a part, by halving, computed independently for the check of invariants."""

    def __init__(self, clauses: Clauses, starts: NDArray[np.int64], cuts: NDArray[np.int32]) -> None:
        self.clauses, self.starts, self.cuts = clauses, starts, cuts

    def smallest(self, clause: int, attribute: int) -> Path:
        """Return, for each literal of the clause that could hang below the attribute, its smallest interval."""
        clauses = self.clauses
        literals = range(clauses.starts[clause], clauses.starts[clause + 1])
        chosen = [i for i in literals if clauses.attributes[i] == attribute and clauses.kinds[i] < VETO]
        cuts = self.cuts[self.starts[attribute] : self.starts[attribute + 1]]
        found = []
        for i in chosen:
            first, last = (np.searchsorted(cuts, [clauses.lows[i], clauses.highs[i]], side="right") - 1).tolist()
            length = 1
            while first // length != last // length:
                length *= 2
            low = first // length * length
            high = int(cuts[low + length]) - 1 if low + length < len(cuts) else 2**31 - 1
            found.append((attribute, int(cuts[low]), high))
        return found


def _check_word(clauses: Clauses, path: Path, word: Word) -> None:
    """Assert that each clause uses its own literals, except those that the path proves."""
    assert 0 < len(word.clauses) <= WORD
    assert len({predicate[1:] for predicate in word.predicates}) == len(word.predicates)
    for bit, clause in enumerate(word.clauses):
        named = {tuple(rest) for mask, *rest in word.predicates if mask >> bit & 1}
        literals = range(clauses.starts[clause], clauses.starts[clause + 1])
        columns = clauses.attributes, clauses.lows, clauses.highs, clauses.kinds, clauses.sets
        own = set()
        for attribute, low, high, kind, set_id in (tuple(int(column[i]) for column in columns) for i in literals):
            literal = attribute, 2 * (set_id + 1) + (kind >= VETO), low, high
            own.add(literal)
            assert literal in named or (kind == RANGE and (attribute, low, high) in path)
        assert named <= own


def _check_size(clauses: Clauses, members: list[int], above: list[int], capacity: int, *, is_cut: bool) -> None:
    """Assert that a leaf does not exceed its capacity, unless nothing separates its clauses."""
    if len(members) <= capacity:
        return
    attributes = []
    for clause in members:
        literals = np.arange(clauses.starts[clause], clauses.starts[clause + 1])
        attributes.append(set(clauses.attributes[literals[clauses.kinds[literals] < VETO]].tolist()))
    if is_cut:
        assert all(names <= set(above) for names in attributes)
    else:
        assert all(names <= set(above) or names == attributes[0] for names in attributes)


def _depth(part: Part) -> int:
    """Return how many p-nodes are above the deepest c-node."""
    return int(levels_of(part.arrays.c_nodes, part.arrays.p_nodes).max())


def _histogram(sizes: NDArray[np.int32]) -> str:
    """Say how many leaves have 1, 2, 3-4, 5-8, ... clauses."""
    shown = []
    low, high = 1, 1
    while low <= sizes.max(initial=0):
        n = int(np.count_nonzero((sizes >= low) & (sizes <= high)))
        if n:
            shown.append(f"{low if low == high else f'{low}-{high}'}: {n:,}")
        low, high = high + 1, 2 * high
    return ", ".join(shown) or "none"


def _empty_tree(chosen: NDArray[np.int32], ranked: Ranked, n_literals: int) -> Tree:
    """Return a tree without nodes; every level of p-nodes above a clause takes one of its attributes."""
    most_p_nodes = len(ranked.attributes) + 1
    most_c_nodes = 2 * most_p_nodes + 1
    return Tree(
        c_nodes=np.empty((most_c_nodes, N_C_COLUMNS), dtype=np.int32),
        p_nodes=np.empty((most_p_nodes, N_P_COLUMNS), dtype=np.int32),
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
