"""PS-Tree: the predicates on one attribute cut its values into predicate spaces, and a value is located in one of them.

Paper: Ji and Jacobsen, PS-Tree-Based Efficient Boolean Expression Matching for High-Dimensional and Dense Workloads,
PVLDB 12(3), 2018, section 4. This is the structure itself, over one attribute: it is no index of the registry. It
changes in place and belongs to one thread.

Idea: each constant of a predicate is a boundary that cuts below it, above it, or on both sides, as its operator asks.
Between two neighbouring cuts lies a predicate space, a leaf: there, the same predicates hold for all values. Boundaries
stand in a trie over the elements of their values (`elements.py`), so a value finds its leaf in as many steps as
it has elements, however many predicates there are. A boundary side counts its users: when it has none, the leaves on
both sides of it become one.

Worked example (the paper's Fig. 2(b)): type byte, S1 between -5 and -1, S2 between 1 and 5

    boundary       -5           -1            1            5        elements of -5: -, 7, 11
    cuts         below        above        below        above
    leaves   [-128, -5)   [-5, -1]   (-1, 1)   [1, 5]   (5, 127]
    lists         -          S1         -        S2         -

    root  -  node  0-6 leaf [-128, -5)
                   7   node  0-10 leaf [-128, -5)   11 boundary -5   12-14 leaf [-5, -1]   15 boundary -1
          +  node  0   node  0 leaf (-1, 1)   1 boundary 1   2-4 leaf [1, 5]   5 boundary 5   6-15 leaf (5, 127]
                   1-7 leaf (5, 127]
    locate 2: elements +, 0, 2: root, node, node, leaf [1, 5]: S2

Arrays (kernels.ps_tree.Tree); nodes, boundaries and leaves live in pools, each with a stack of free ids
------
slots : uint32[n_nodes * fanout]           what begins with a digit: (id << 2) + LEAF, BOUNDARY or INNER; node 0 is the
                                           root; below every other node there are at least two boundaries
images : uint64[n_boundaries]              the value, if it has an image (else 0); its digits are
keys : uint8[], key_starts : int64[n_boundaries], key_lengths : int32[n_boundaries]
equals : int32[n_boundaries]               the paper's link e: the leaf that holds the boundary value
users : int32[n_boundaries, 2]             how many predicates cut below it and above it; not both are 0
neighbours : int32[n_leaves, 2]            the leaves before and after a leaf, -1 at the ends; leaf 0 is the first
n_predicates : int32[n_leaves], n_events : int64[n_leaves]     the two counters
space_ids : int64[n_leaves]                unique for all time, in order of creation
items : int32[], list_starts : int64[n_leaves], list_lengths, list_capacities : int32[n_leaves]
signatures : uint64[n_leaves, n_words]     the bits of the ids in the list of each leaf; n_words is 0 in PS-Tree_H
range_starts : int64[n_ids], range_counts : int32[n_ids]       the ranges of a predicate; count -1: no such predicate
ranges : int32[., 2]                       from cut to cut, each 2 * boundary + side, -1 for an end of the domain

Cost: locating reads one slot an element, and one boundary at most. A cut changes at most two paths of slots. Inserting
and deleting visit all leaves that the predicate covers: O(elements + leaves). A list per leaf takes up to
O(predicates^2) memory, which is why `variant="hash"` has none, and why memory is limited.

Departures
D1  A slot with only one boundary in it holds the boundary, not a chain of nodes down to its last element; and a slot
    without boundaries holds its leaf, so that locating needs no GetRNode and GetLNode: changes do that walk.
D2  l and g of a boundary are not stored: they are e, or its neighbour, if the boundary cuts on that side. Leaves are
    therefore linked both ways.
D3  Leaves are merged when the last user of the cut between them goes, not when a counter is zero: equal counters do
    not mean equal predicates. A merged event counter is the sum, at most all events counted.
D4  Neighbouring values of fixed width cut only once between them (4 above is 5 below), so no space is empty. Strings
    may have an empty space between s and s followed by a zero character; nothing is ever located there.
D5  A character of a string is stored as its UTF-8 bytes in digits of four bits; the paper's array of links would be as
    long as the alphabet.
D6  Signatures are recomputed when an id is removed. By default they have 256 bits, 2 of them set for an id: 1 % false
    positives with 14 ids in a list. The paper gives no size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.errors import DuplicateIdError, UnknownIdError
from siftline.indexes.parts import check_memory
from siftline.indexes.ps_tree import kernels
from siftline.indexes.ps_tree.elements import ABOVE, BELOW, FixedWidth, ranges_of, value_type
from siftline.indexes.ps_tree.kernels import Shape, Tree
from siftline.indexes.ps_tree.pools import (
    BOUNDARIES,
    ITEMS,
    KEYS,
    LEAVES,
    NODES,
    POOLS,
    Rows,
    grown,
    n_live,
    packed,
    renumbered,
    repacked,
    resized,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from siftline.indexes.ps_tree.elements import Keys
    from siftline.model.predicate import Predicate

_SHRINKING_MIN: Final = 32  # smaller pools do not shrink, and rows are not packed after fewer deletions
_ABSENT: Final = -1


class Space(NamedTuple):
    """A leaf and the values in it, as `[low, high)`."""

    leaf: int
    text: str


class PsTree:
    """The predicate spaces of one attribute. Changes in place; for one thread.

    Parameters
    ----------
    kind : str
        The type of the values: byte, int32, int64, float, string or enumeration.
    variant : str
        "bloom" (PS-Tree_B: a list of subscriptions and a signature a leaf) or "hash" (PS-Tree_H: no lists).
    values : sequence, optional
        The values of an enumeration, in their order.
    domain : (low, high), optional
        The values that there are, of numbers; all of the type by default. Others are refused.
    signature_bits, n_hashes : int
        The size of a signature, a multiple of 64, and how many bits of it an id sets.
    memory_limit_mb : int
        How large the lists may become.

    Examples
    --------
    >>> from siftline.model.predicate import Predicate
    >>> tree = PsTree("byte")
    >>> leaves = tree.insert(Predicate("x", "between", (-5, -1)), 1)
    >>> leaves = tree.insert(Predicate("x", "between", (1, 5)), 2)
    >>> [space.text for space in tree.spaces()]
    ['[-128, -5)', '[-5, -1]', '(-1, 1)', '[1, 5]', '(5, 127]']
    >>> tree.subscriptions(2)
    array([2], dtype=int32)
    """

    def __init__(
        self,
        kind: str,
        *,
        variant: str = "bloom",
        values: Sequence[Any] | None = None,
        domain: tuple[Any, Any] | None = None,
        signature_bits: int = 256,
        n_hashes: int = 2,
        memory_limit_mb: int = 4096,
    ) -> None:
        if variant not in ("bloom", "hash"):
            raise ValueError(f"the variant of a PS-Tree is 'bloom' or 'hash', not {variant!r}")
        if signature_bits < 64 or signature_bits % 64:
            raise ValueError("signature_bits must be a positive multiple of 64")
        if n_hashes < 1:
            raise ValueError("n_hashes must be at least 1")
        self._values = value_type(kind, values, domain)
        self._has_lists = variant == "bloom"
        self._n_words = signature_bits // 64 if self._has_lists else 0
        self._n_hashes = n_hashes
        self._memory_limit_mb = memory_limit_mb
        self._shape = Shape(self._values.fanout, self._values.widths, self._values.shifts, self._values.masks)
        self._n = 0
        self._range_starts = np.zeros(0, dtype=np.int64)
        self._range_counts = np.zeros(0, dtype=np.int32)
        self._ranges = np.zeros((0, 2), dtype=np.int32)
        self._n_ranges = 0
        self._n_deleted = 0  # since the rows were last packed
        self._tree = self._empty_tree()

    @classmethod
    def build(cls, lows: NDArray[Any], highs: NDArray[Any], **options: Any) -> PsTree:
        """Return a tree of closed intervals of int64 or float64 values, numbered from 0."""
        tree = cls("float" if np.asarray(lows).dtype.kind == "f" else "int64", **options)
        tree.insert_intervals(np.asarray(lows), np.asarray(highs))
        return tree

    def _empty_tree(self) -> Tree:
        """Return a root without children and one leaf that holds all values."""
        words = np.zeros((1, self._n_words), dtype=np.uint64)
        fields: dict[str, Any] = {
            "counts": np.zeros(kernels.N_COUNTS, dtype=np.int64),
            "slots": np.zeros(self._values.fanout, dtype=np.uint32),
            "images": np.zeros(0, dtype=np.uint64),
            "users": np.zeros((0, 2), dtype=np.int32),
            "key_starts": np.zeros(0, dtype=np.int64),
            "neighbours": np.full((1, 2), -1, dtype=np.int32),
            "n_events": np.zeros(1, dtype=np.int64),
            "space_ids": np.ones(1, dtype=np.int64),
            "list_starts": np.zeros(1, dtype=np.int64),
            "signatures": words,
            "keys": np.zeros(0, dtype=np.uint8),
            "items": np.zeros(0, dtype=np.int32),
        }
        n_rows = {"equals": 0, "key_lengths": 0, "free_boundaries": 0}
        for name in Tree._fields:
            if name not in fields:
                fields[name] = np.zeros(n_rows.get(name, 1), dtype=np.int32)
        fields["counts"][kernels.NEXT_SPACE] = 2
        return Tree(**fields)

    def __len__(self) -> int:
        return self._n

    # --- Locating -----------------------------------------------------------------------------------------------------

    def match(self, value: Any, *, count: bool = False) -> int:
        """Return the leaf that a value lies in; with `count`, the value is an event and counts in its leaf."""
        self._values.check(value)
        tree = self._tree
        keys = self._values.keys([value])
        if isinstance(self._values, FixedWidth):
            shifts, masks = self._shape.shifts, self._shape.masks
            image, slots, images, neighbours = keys.images[0], tree.slots, tree.images, tree.neighbours
            leaf = int(kernels.locate_image(image, slots, images, tree.equals, tree.users, neighbours, shifts, masks))
        else:
            leaf = int(kernels.locate_digits(keys.starts, keys.digits, self._shape.fanout, tree)[0])
        if count:
            tree.n_events[leaf] += 1
            tree.counts[kernels.N_EVENTS] += 1
        return leaf

    def match_many(self, values: NDArray[Any] | Sequence[Any], *, count: bool = False) -> NDArray[np.int32]:
        """Return the leaves that many values lie in."""
        leaves: NDArray[np.int32]
        if isinstance(self._values, FixedWidth):
            tree, shape = self._tree, self._shape
            leaves = kernels.locate_images(
                self._values.checked_images(values),
                tree.slots,
                tree.images,
                tree.equals,
                tree.users,
                tree.neighbours,
                shape.shifts,
                shape.masks,
            )
        else:
            for value in values:
                self._values.check(value)
            keys = self._values.keys(list(values))
            leaves = kernels.locate_digits(keys.starts, keys.digits, self._shape.fanout, self._tree)
        if count:
            self._tree.n_events[:] += np.bincount(leaves, minlength=len(self._tree.n_events))
            self._tree.counts[kernels.N_EVENTS] += len(leaves)
        return leaves

    def subscriptions(self, value: Any) -> NDArray[np.int32]:
        """Return the ids of the predicates that a value satisfies, in no promised order (variant "bloom")."""
        self._need_lists()
        return self._list(self.match(value)).copy()

    def query_many(self, values: NDArray[Any] | Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return (starts, ids): the predicates that value i satisfies are ids[starts[i] : starts[i + 1]]."""
        self._need_lists()
        tree = self._tree
        starts, ids = kernels.list_of_leaves(self.match_many(values), tree.list_starts, tree.list_lengths, tree.items)
        return starts, ids

    # The interface of interval structures, which the interval tree and the segment tree have, too.
    query = subscriptions
    locate = match
    locate_many = match_many

    def count_many(self, values: NDArray[Any] | Sequence[Any]) -> NDArray[np.int32]:
        """Return how many predicates each value satisfies."""
        counts: NDArray[np.int32] = self._tree.n_predicates[self.match_many(values)]
        return counts

    def may_list(self, leaf: int, id: int) -> bool:
        """Tell whether the signature of a leaf holds an id: never wrong if it says no (variant "bloom")."""
        self._need_lists()
        return bool(kernels.may_hold(leaf, id, self._n_hashes, self._tree.signatures))

    def space_id(self, leaf: int) -> int:
        """Return the id of a predicate space, which no other space of this tree ever had or will have."""
        return int(self._tree.space_ids[leaf])

    def selectivity(self, id: int) -> int:
        """Return how many counted events satisfied a predicate, at most: a split gives its events to both leaves."""
        return int(self._tree.n_events[self.leaves(id)].sum())

    def leaves(self, id: int) -> NDArray[np.int32]:
        """Return the leaves that a predicate covers; they are good until the next change of the tree."""
        leaves: NDArray[np.int32] = kernels.covered_leaves(self._ranges_of(id), self._tree)
        return leaves

    def elements(self, value: Any) -> tuple[Any, ...]:
        """Return the elements of a value, as the paper writes them.

        >>> PsTree("byte").elements(-5)
        ('-', 7, 11)
        """
        return self._values.elements(value)

    def _list(self, leaf: int) -> NDArray[np.int32]:
        start = self._tree.list_starts[leaf]
        return self._tree.items[start : start + self._tree.list_lengths[leaf]]

    def _need_lists(self) -> None:
        if not self._has_lists:
            raise ValueError("a PS-Tree of variant 'hash' has no lists of subscriptions")

    # --- Inserting ----------------------------------------------------------------------------------------------------

    def insert(self, predicate: Predicate, id: int) -> NDArray[np.int32]:
        """Insert a predicate under a small number that is not in use; return the leaves that it covers.

        PS-Tree Alg. 1. The attribute of the predicate does not matter here.
        """
        self._check_ids(np.array([id]))
        ranges = ranges_of(predicate, self._values)
        places, values, sides = _numbered(ranges)
        cuts = self._add_cuts(self._values.keys(values), np.array(sides, dtype=np.uint8))
        self._keep_ranges(np.array([id]), np.array([len(ranges)]), cuts[places])
        leaves = self.leaves(id)
        if self._has_lists:
            try:
                self._make_room(ITEMS, int(kernels.room_for(leaves, self._tree)))
            except Exception:
                self._forget_ranges(id)
                raise
            kernels.append_id(leaves, id, self._n_hashes, self._tree)
        self._tree.n_predicates[leaves] += 1
        return leaves

    def insert_many(self, predicates: Iterable[Predicate], ids: Iterable[int]) -> None:
        """Insert many predicates: the same spaces and lists as one by one, but all cuts first, then all lists."""
        ids = np.array(list(ids) or np.empty(0, dtype=np.int64))
        self._check_ids(ids)
        ranges = [ranges_of(predicate, self._values) for predicate in predicates]
        if len(ranges) != len(ids):
            raise ValueError(f"{len(ranges)} predicates for {len(ids)} ids")
        places, values, sides = _numbered([each for of_one in ranges for each in of_one])
        counts = np.fromiter(map(len, ranges), np.int64, len(ranges))
        self._insert_ranges(ids, counts, places, values, np.array(sides, dtype=np.uint8))

    def insert_intervals(self, lows: NDArray[Any], highs: NDArray[Any], ids: NDArray[Any] | None = None) -> None:
        """Insert many closed intervals of numbers, numbered from 0 without ids; one with low > high is empty."""
        if not isinstance(self._values, FixedWidth):
            raise ValueError("intervals are of numbers")
        ids = np.arange(len(lows)) if ids is None else np.asarray(ids)
        if not len(lows) == len(highs) == len(ids):
            raise ValueError(f"{len(lows)} lows and {len(highs)} highs for {len(ids)} ids")
        self._check_ids(ids)
        values = np.concatenate([lows, highs])
        n = len(lows)
        images = self._values.checked_images(values)
        is_range = images[:n] <= images[n:]
        is_cut = np.concatenate([is_range, is_range])
        is_cut[:n] &= images[:n] > self._values.first
        is_cut[n:] &= images[n:] < self._values.end - 1
        places = np.where(is_cut, np.cumsum(is_cut) - 1, -1).reshape(2, n).T[is_range]
        sides = np.repeat(np.array([BELOW, ABOVE], dtype=np.uint8), n)[is_cut]
        self._insert_ranges(ids, is_range.astype(np.int64), places, values[is_cut], sides)

    def _insert_ranges(
        self, ids: NDArray[Any], counts: NDArray[Any], places: NDArray[Any], values: Any, sides: NDArray[np.uint8]
    ) -> None:
        """Insert predicates: `counts` ranges each, whose ends are `places` among the values to cut at."""
        order, keys = self._values.sorted_keys(values)  # the next cut finds in the cache what the last one left there
        self._reserve(keys)
        cuts = self._add_cuts(keys, sides[order])
        cuts[order] = cuts[:-1].copy()
        self._keep_ranges(ids, counts, cuts[places])
        starts = self._n_ranges - counts.sum() + np.concatenate([[0], np.cumsum(counts)])
        covers = kernels.count_covers(starts, self._ranges, self._tree)
        if self._has_lists:
            lengths = self._tree.list_lengths + covers
            try:
                self._check_memory(int(lengths.sum()))
            except Exception:
                for id in ids.tolist():
                    self._forget_ranges(id)
                raise
            list_starts = np.concatenate([[0], np.cumsum(lengths)])
            items = np.empty(list_starts[-1], dtype=np.int32)
            kernels.append_many(
                ids.astype(np.int32), starts, self._ranges, self._n_hashes, self._tree, items, list_starts[:-1]
            )
            self._tree.list_capacities[:] = lengths
            self._tree.counts[kernels.USED_ITEMS] = len(items)
            self._tree = self._tree._replace(items=items)
        self._tree.n_predicates[:] += covers.astype(np.int32)

    def _add_cuts(self, keys: Keys, sides: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Return the cuts of keys, each with one user more; the last element is -1, for the ends of the domain."""
        cuts = np.full(len(sides) + 1, -1, dtype=np.int32)
        images, starts, digits = keys.images, keys.starts, keys.digits
        done = 0
        while True:
            done = kernels.add_cuts(done, sides, images, starts, digits, self._shape, self._tree, cuts)
            if done == len(sides):
                return cuts
            try:
                self._make_room_for_cut(digits[starts[done] : starts[done + 1]])
            except Exception:
                kernels.remove_cuts(cuts[:done], self._shape, self._tree)
                raise

    def _reserve(self, keys: Keys) -> None:
        """Make room at once for what many cuts need, as far as that is known."""
        is_new = np.ones(len(keys.images), dtype=np.bool_)
        if len(self._shape.shifts):
            is_new[1:] = keys.images[1:] != keys.images[:-1]
        n_new = int(is_new.sum())
        for pool in (BOUNDARIES, LEAVES):
            self._tree = grown(self._tree, pool, n_new, self._shape.fanout)
        self._make_room(KEYS, int(np.diff(keys.starts)[is_new].sum()))

    def _make_room_for_cut(self, digits: NDArray[np.uint8]) -> None:
        """Enlarge what is full."""
        for pool, n_needed in ((NODES, len(digits)), (BOUNDARIES, 1), (LEAVES, 1)):
            self._tree = grown(self._tree, pool, n_needed, self._shape.fanout)
        self._make_room(KEYS, len(digits))
        leaf = kernels.locate_digits(np.array([0, len(digits)]), digits, self._shape.fanout, self._tree)[0]
        self._make_room(ITEMS, int(self._tree.list_lengths[leaf]))

    def _check_ids(self, ids: NDArray[Any]) -> None:
        if ids.dtype.kind not in "iu" or not 0 <= ids.min(initial=0) <= ids.max(initial=0) < 2**31 - 1:
            raise ValueError("the ids of predicates in a PS-Tree are numbers from 0 on that fit into 32 bits")
        ascending = np.sort(ids)
        if (ascending[1:] == ascending[:-1]).any():
            raise DuplicateIdError("an id is given twice")
        known = ids[ids < len(self._range_counts)]
        used = known[self._range_counts[known] != _ABSENT]
        if len(used):
            raise DuplicateIdError(f"the id {used[0]} is already in use")

    def _keep_ranges(self, ids: NDArray[Any], counts: NDArray[Any], ranges: NDArray[np.int32]) -> None:
        """Remember the ranges of new predicates."""
        n_ids = max(len(self._range_counts), int(ids.max(initial=-1)) + 1)
        if n_ids > len(self._range_counts):
            room = n_ids if len(ids) > 1 else n_ids + n_ids // 2
            self._range_starts = resized(self._range_starts, room)
            n_old = len(self._range_counts)
            self._range_counts = resized(self._range_counts, room)
            self._range_counts[n_old:] = _ABSENT
        end = self._n_ranges + len(ranges)
        if end > len(self._ranges):
            self._ranges = resized(self._ranges, end if len(ids) > 1 else end + end // 2)
        self._ranges[self._n_ranges : end] = ranges
        self._range_starts[ids] = self._n_ranges + np.cumsum(counts) - counts
        self._range_counts[ids] = counts
        self._n_ranges = end
        self._n += len(ids)

    def _ranges_of(self, id: int) -> NDArray[np.int32]:
        if not 0 <= id < len(self._range_counts) or self._range_counts[id] == _ABSENT:
            raise UnknownIdError(f"no predicate has the id {id}")
        start = self._range_starts[id]
        return self._ranges[start : start + self._range_counts[id]]

    # --- Deleting -----------------------------------------------------------------------------------------------------

    def delete(self, id: int) -> None:
        """Delete a predicate, and every boundary, node and space that only it needed."""
        leaves = self.leaves(id)
        self._tree.n_predicates[leaves] -= 1
        if self._has_lists:
            kernels.remove_id(leaves, id, self._n_hashes, self._tree)
        self._forget_ranges(id)
        self._shrink()

    def _forget_ranges(self, id: int) -> None:
        ranges = self._ranges_of(id)
        kernels.remove_cuts(ranges[ranges >= 0], self._shape, self._tree)
        self._range_counts[id] = _ABSENT
        self._n -= 1

    # --- Memory -------------------------------------------------------------------------------------------------------

    def _make_room(self, rows: Rows, n_needed: int) -> None:
        """Make room for `n_needed` more elements after the rows; if they do not fit, drop rows that are not in use."""
        if self._tree.counts[rows.used_at] + n_needed <= len(getattr(self._tree, rows.items)):
            return
        n_needed += int(getattr(self._tree, rows.sizes).sum())
        if rows is ITEMS:
            self._check_memory(n_needed)
        self._tree = repacked(self._tree, rows, n_needed + n_needed // 2)

    def _check_memory(self, n_items: int) -> None:
        check_memory("ps-tree", 4 * n_items, self._memory_limit_mb, "the subscription lists of its leaves")

    def _shrink(self) -> None:
        """Give memory back when less than a quarter of a pool is in use."""
        for pool in POOLS.values():
            n = size_of(self._tree, pool)
            if n > _SHRINKING_MIN and 4 * n_live(self._tree, pool) < n:
                self._tree, new_ids = renumbered(self._tree, pool, self._shape.fanout)
                if pool is BOUNDARIES:
                    ranges = self._ranges
                    renamed = 2 * new_ids[np.minimum(ranges >> 1, n - 1)] + (ranges & 1)
                    self._ranges = np.where(ranges < 0, -1, renamed).astype(np.int32)
        self._n_deleted += 1
        if self._n == 0 or self._n_deleted > max(_SHRINKING_MIN, len(self._range_counts) // 2):
            self._n_deleted = 0
            self._shrink_rows()

    def _shrink_rows(self) -> None:
        """Reclaim the rows of deleted entries; this reads all rows, so it is done rarely."""
        for rows in (KEYS, ITEMS):
            n_used = int(getattr(self._tree, rows.sizes).sum())
            if 4 * n_used < len(getattr(self._tree, rows.items)):
                self._tree = repacked(self._tree, rows, n_used)
        counts = np.maximum(self._range_counts, 0)
        self._range_starts, self._ranges = packed(self._range_starts, counts, self._ranges)
        self._n_ranges = len(self._ranges)
        n_ids = int(np.flatnonzero(self._range_counts != _ABSENT).max(initial=-1)) + 1
        self._range_starts = self._range_starts[:n_ids].copy()
        self._range_counts = self._range_counts[:n_ids].copy()
        self._tree.counts[kernels.LONGEST_KEY] = self._tree.key_lengths.max(initial=0)

    # --- Looking inside -----------------------------------------------------------------------------------------------

    def spaces(self) -> list[Space]:
        """Return all leaves in ascending order, with the values in them."""
        low, last = self._values.bounds()
        spaces = []
        leaf = 0
        for value, side in self._cuts_in_order():
            spaces.append(Space(leaf, f"{low}, {value!r}{')' if side == BELOW else ']'}"))
            low = f"{'[' if side == BELOW else '('}{value!r}"
            leaf = int(self._tree.neighbours[leaf, kernels.NEXT])
        return [*spaces, Space(leaf, f"{low}, {last}")]

    def _cuts_in_order(self) -> Iterator[tuple[Any, int]]:
        """Yield (value, side) of every cut, ascending; two at the same place (D4) come once."""
        previous: int | None = None
        for boundary in self._boundaries_in_order():
            image = int(self._tree.images[boundary])
            value = self._value_of(boundary)
            for side in (BELOW, ABOVE):
                is_repeat = side == BELOW and len(self._shape.shifts) > 0 and previous == image
                if self._tree.users[boundary, side] and not is_repeat:
                    yield value, side
            previous = image + 1 if self._tree.users[boundary, ABOVE] else None

    def _boundaries_in_order(self) -> Iterator[int]:
        return (id for kind, id in self._walk() if kind == kernels.BOUNDARY)

    def _walk(self) -> Iterator[tuple[int, int]]:
        """Yield (kind, id) of every slot in ascending order; an inner node comes before its slots."""
        widths = self._shape.widths
        pending = [(0, kernels.INNER)]
        while pending:
            depth, slot = pending.pop()
            yield slot & 3, slot >> 2
            if slot & 3 == kernels.INNER:
                first = (slot >> 2) * self._shape.fanout
                width = int(widths[min(depth, len(widths) - 1)])
                slots = self._tree.slots[first : first + width].tolist()
                pending += [(depth + 1, below) for below in reversed(slots)]

    def _value_of(self, boundary: int) -> Any:
        start = self._tree.key_starts[boundary]
        key = self._tree.keys[start : start + self._tree.key_lengths[boundary]]
        return self._values.value(int(self._tree.images[boundary]), key)

    def stats(self) -> dict[str, Any]:
        """Return the bytes of each array, and how much of everything there is."""
        arrays = {name: array for name, array in self._tree._asdict().items() if name != "counts"}
        arrays |= {
            "range_starts": self._range_starts,
            "range_counts": self._range_counts,
            "ranges": self._ranges,
        }
        live = {name: n_live(self._tree, pool) for name, pool in POOLS.items()}
        return {
            "bytes": {name: int(array.nbytes) for name, array in arrays.items()},
            "predicates": self._n,
            **live,
            "listed": int(self._tree.list_lengths.sum()),
            "events": int(self._tree.counts[kernels.N_EVENTS]),
        }

    def describe(self) -> str:
        """Draw the leaves, with their spaces, counters and lists."""
        stats = self.stats()
        variant = "PS-Tree_B" if self._has_lists else "PS-Tree_H"
        lines = [
            f"{variant} of type {self._values.name}: {stats['predicates']:,} predicates,"
            f" {stats['boundaries']:,} boundaries, {stats['nodes']:,} inner nodes, {stats['leaves']:,} leaves"
        ]
        for leaf, text in self.spaces():
            counters = f"{self._tree.n_predicates[leaf]} predicates, {self._tree.n_events[leaf]} events"
            label = str(sorted(self._list(leaf).tolist())) if self._has_lists else f"space {self.space_id(leaf)}"
            lines.append(f"  {text}  {counters}, {label}")
        return "\n".join(lines)

    def _check(self) -> None:
        self._check_trie()
        self._check_leaves()
        self._check_users()

    def _check_trie(self) -> None:
        """Assert that slots and boundaries refer to the leaves in their order, and that all of them are needed."""
        tree = self._tree
        cuts = list(self._cuts_in_order())
        positions = [self._values.position(cut) for cut in cuts]
        assert positions == sorted(set(positions))
        cut_positions = set(positions)
        leaf = 0
        live = {kernels.LEAF: {0}, kernels.BOUNDARY: set(), kernels.INNER: set()}
        passed: set[Any] = set()
        for kind, id in self._walk():
            if kind == kernels.LEAF:
                assert id == leaf
            live[kind].add(id)
            if kind == kernels.BOUNDARY:
                assert tree.users[id].sum() > 0
                for side in (BELOW, ABOVE):
                    position = self._values.position((self._value_of(id), side))
                    if position in cut_positions and position not in passed:
                        passed.add(position)
                        leaf = int(tree.neighbours[leaf, kernels.NEXT])
                    if side == BELOW:
                        assert tree.equals[id] == leaf
        live[kernels.LEAF] = {space.leaf for space in self.spaces()}
        assert len(live[kernels.LEAF]) == len(cuts) + 1
        assert leaf == tree.counts[kernels.LAST_LEAF]
        for pool in POOLS.values():
            free = getattr(tree, pool.free)[: tree.counts[pool.n_free_at]].tolist()
            assert sorted([*free, *live[pool.kind]]) == list(range(size_of(tree, pool)))
        self._check_nodes()

    def _check_nodes(self) -> None:
        """Assert that below every node but the root are two boundaries or more, and that keys lead to boundaries."""
        tree, fanout = self._tree, self._shape.fanout
        slots = tree.slots.reshape(-1, fanout)
        for kind, id in self._walk():
            if kind == kernels.INNER and id > 0:
                others = slots[id][(slots[id] & 3) != kernels.LEAF]
                assert len(others) > 1 or (others & 3 == kernels.INNER).all()
                assert len(others) > 0
            if kind == kernels.BOUNDARY:
                node = 0
                for digit in tree.keys[tree.key_starts[id] :].tolist():
                    slot = int(slots[node, digit])
                    node = slot >> 2
                    if slot & 3 != kernels.INNER:
                        break
                assert slot == id << 2 | kernels.BOUNDARY

    def _check_leaves(self) -> None:
        """Assert that counters and lists are of exactly the predicates that cover a leaf."""
        tree = self._tree
        leaves = [space.leaf for space in self.spaces()]
        covering: dict[int, list[int]] = {leaf: [] for leaf in leaves}
        for id in np.flatnonzero(self._range_counts != _ABSENT).tolist():
            for leaf in self.leaves(id).tolist():
                covering[leaf].append(id)
        before = -1
        for leaf in leaves:
            assert tree.neighbours[leaf, kernels.PREVIOUS] == before
            assert tree.n_predicates[leaf] == len(covering[leaf])
            assert 0 <= tree.n_events[leaf] <= tree.counts[kernels.N_EVENTS]
            before = leaf
            if self._has_lists:
                assert sorted(self._list(leaf).tolist()) == covering[leaf]
                assert tree.list_lengths[leaf] <= tree.list_capacities[leaf]
                self._check_signature(leaf)
        assert tree.neighbours[before, kernels.NEXT] == -1
        space_ids = tree.space_ids[leaves]
        assert len(set(space_ids.tolist())) == len(leaves)
        assert (space_ids < tree.counts[kernels.NEXT_SPACE]).all()

    def _check_signature(self, leaf: int) -> None:
        """Assert that a signature has the bits of the listed ids, and no others."""
        bits = int(np.bitwise_count(self._tree.signatures[leaf]).sum())
        ids = self._list(leaf).tolist()
        assert all(self.may_list(leaf, id) for id in ids)
        assert bits <= self._n_hashes * len(ids)

    def _check_users(self) -> None:
        """Assert that boundaries count the ends of the ranges that stand on them."""
        users = np.zeros_like(self._tree.users)
        n = 0
        for id in np.flatnonzero(self._range_counts != _ABSENT).tolist():
            cuts = self._ranges_of(id).ravel()
            np.add.at(users.reshape(-1), cuts[cuts >= 0], 1)
            n += 1
        live = list(self._boundaries_in_order())
        assert (users[live] == self._tree.users[live]).all()
        assert n == self._n


def _numbered(ranges: Sequence[tuple[Any, Any]]) -> tuple[NDArray[np.int64], list[Any], list[int]]:
    """Return (places, values, sides): the values to cut at, and for each end of a range its place among them or -1."""
    cuts = [cut for pair in ranges for cut in pair if cut is not None]
    is_cut = np.array([cut is not None for pair in ranges for cut in pair], dtype=np.bool_)
    places = np.where(is_cut, np.cumsum(is_cut) - 1, -1).reshape(-1, 2)
    return places, [value for value, _ in cuts], [side for _, side in cuts]
