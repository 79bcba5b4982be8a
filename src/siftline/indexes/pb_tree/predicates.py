"""The PB+tree itself: all predicates of one kind on one attribute. `index.py` has the idea and an example."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from siftline.indexes.pb_tree.kernels import (
    GT,
    LT,
    NEQ,
    TREE,
    collect,
    collect_keys,
    find,
    flagged,
    insert,
    move,
    remove,
)
from siftline.indexes.pb_tree.nodes import (
    LEAF,
    Tree,
    chain_of,
    child_at,
    fit_together,
    flags_at,
    is_leaf,
    is_sparse,
    key_at,
    largest_item,
    links,
    n_items,
    new_page,
    split_page,
    unlink,
    value_at,
    value_place,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from siftline.indexes.pb_tree.nodes import Place
    from siftline.storage.pages import Page, PageFile

# Which lists a predicate with this operator enters, and whether its id is also in the id set of the leaf item.
LISTS_OF: Final = {"=": 0, "<": LT, "<=": LT, ">": GT, ">=": GT, "!=": NEQ}
IN_LEAF: Final = frozenset({"=", "<=", ">="})

# The lists in the order of their entry pointers.
LISTS: Final = (GT, LT, NEQ)
_POINTER_AT: Final = {GT: 1, LT: 5, NEQ: 9}
_POINTER: Final = struct.Struct("<I")
# Of a leaf item: flags and three entry pointers, then ids. Of a list node: flags, then ids.
LEAF_SKIP: Final = 13
LIST_SKIP: Final = 1
_NO_POINTERS: Final = bytes(LEAF_SKIP)

_ID: Final = struct.Struct("<Q")
_ID_TREE: Final = struct.Struct("<II")


def leaf_value(pointers: dict[int, int]) -> bytes:
    """Return a leaf item without ids that points to pages of lists."""
    value = bytearray(_NO_POINTERS)
    for flag, number in pointers.items():
        value[0] |= flag
        _POINTER.pack_into(value, _POINTER_AT[flag], number)
    return bytes(value)


class Entry(NamedTuple):
    """Where a search path ends: EntryNode and EntryItem, and the BranchNode where it left the equality path, or 0."""

    branch: int
    node: int
    position: int


class PredicateTree:
    """A B+tree over the constants, and three lists of pages below its leaves.

    Parameters
    ----------
    state : list of int
        Root, heads of the three lists, number of predicates; as `state` gave it.
    """

    def __init__(self, pages: PageFile, state: list[int] | None = None) -> None:
        root, *heads, self.n_predicates = state or [0, 0, 0, 0, 0]
        self.pages = pages
        self.tree = Tree(pages, root, has_flags=True)
        self._heads = dict(zip(LISTS, heads, strict=True))
        self._largest = largest_item(pages.page_bytes)

    @property
    def state(self) -> list[int]:
        """The numbers that open the tree again."""
        return [self.tree.root, *self._heads.values(), self.n_predicates]

    def set_heads(self, heads: dict[int, int]) -> None:
        """Take over lists that were built beside the tree."""
        self._heads |= heads

    # search

    def search(self, key: bytes) -> Iterator[NDArray[np.uint64]]:
        """Yield the ids of all predicates that a value satisfies, a page at a time (PB+tree Fig. 8)."""
        if not self.tree.root:
            return
        place = self.tree.place(key)
        if place.is_found:
            yield from self._ids(self.pages.read(place.number), place.position, place.position + 1, LEAF_SKIP)
        yield from self._unequal(key)
        yield from self._above(key, place)
        yield from self._below(key, place)

    def _unequal(self, key: bytes) -> Iterator[NDArray[np.uint64]]:
        """Yield the whole inequality list, without the node of the key itself (Fig. 10)."""
        for page in chain_of(self.pages, self._heads[NEQ]):
            position, is_found = find(page, key)
            if is_found:
                yield from self._ids(page, 0, position, LIST_SKIP)
                position += 1
            yield from self._ids(page, position if is_found else 0, n_items(page), LIST_SKIP)

    def _above(self, key: bytes, place: Place) -> Iterator[NDArray[np.uint64]]:
        """Yield the GT list from its head to the entry point: constants below the value (Fig. 11)."""
        entry = self.entry(place, GT)
        if entry is None:
            return
        last = self._pointer(self.pages.read(entry.node), entry.position, GT)
        number = self._heads[GT]
        while number != last:
            page = self.pages.read(number)
            yield from self._ids(page, 0, n_items(page), LIST_SKIP)
            number = links(page)[1]
        page = self.pages.read(last)
        yield from self._ids(page, 0, find(page, key)[0], LIST_SKIP)

    def _below(self, key: bytes, place: Place) -> Iterator[NDArray[np.uint64]]:
        """Yield the LT list from the entry point to its end: constants above the value."""
        entry = self.entry(place, LT)
        if entry is None:
            return
        for page in chain_of(self.pages, self._pointer(self.pages.read(entry.node), entry.position, LT)):
            position, is_found = find(page, key)
            yield from self._ids(page, position + is_found, n_items(page), LIST_SKIP)

    def entry(self, place: Place, flag: int) -> Entry | None:
        """Return the entry item of one list for a value that was located in the leaves; None if the list is empty.

        It is the nearest flagged item, on either side of the value; the list itself has the items beyond it.
        """
        for number, position in place.path:
            page = self.pages.read(number)
            if not flags_at(page, position) & flag:
                return self._entry_below(number, page, position, flag)
        page = self.pages.read(place.number)
        position = flagged(page, place.position, flag, 1)
        if position < 0:
            position = flagged(page, place.position - 1, flag, -1)
        return None if position < 0 else Entry(0, place.number, position)

    def _entry_below(self, branch: int, page: Page, position: int, flag: int) -> Entry | None:
        """Go down from the branch node by flagged pointers only (GetGTEntryNode, Fig. 13)."""
        found = flagged(page, position - 1, flag, -1)
        step = -1 if found >= 0 else 1
        if found < 0:
            found = flagged(page, position + 1, flag, 1)
            if found < 0:
                return None
        while True:
            number = child_at(page, found)
            page = self.pages.read(number)
            # Everything here is on one side of the value: the last or the first flagged pointer of the head.
            found = flagged(page, n_items(page) - 1 if step < 0 else 0, flag, step)
            if is_leaf(page):
                return Entry(branch, number, found)

    def _pointer(self, page: Page, position: int, flag: int) -> int:
        """Return the page of a list that an item points to."""
        return int(_POINTER.unpack_from(page, value_place(page, position)[0] + _POINTER_AT[flag])[0])

    def _ids(self, page: Page, first: int, end: int, skip: int) -> Iterator[NDArray[np.uint64]]:
        """Yield the ids of some items of a page."""
        if first >= end:
            return
        ids, trees = np.empty(len(page) // 8, dtype=np.uint64), np.empty(end - first, dtype=np.int64)
        n, n_trees = collect(page, first, end, skip, ids, trees)
        if n:
            yield ids[:n]
        for position in trees[:n_trees].tolist():
            root = _ID_TREE.unpack_from(page, value_place(page, position)[0] + skip)[0]
            for leaf in Tree(self.pages, root).leaves():
                ids = np.empty(n_items(leaf), dtype=np.uint64)
                collect_keys(leaf, ids)
                yield ids

    # insertion (4.4)

    def add(self, key: bytes, op: str, posting: int) -> None:
        """Add a predicate."""
        place = self.tree.place_for(key)
        value = value_at(self.pages.read(place.number), place.position) if place.is_found else _NO_POINTERS
        if op in IN_LEAF:
            value = self._with_id(key, value, LEAF_SKIP, posting)
        if op in IN_LEAF or not place.is_found:
            self.tree.put_at(place, key, value)
        if LISTS_OF[op]:
            self._add_to_list(key, LISTS_OF[op], posting)
        self.n_predicates += 1

    def _add_to_list(self, key: bytes, flag: int, posting: int) -> None:
        """Insert an id into a list, after the entry point of a search for its key (step 2)."""
        place = self.tree.place(key)
        leaf = self.pages.read(place.number)
        if flags_at(leaf, place.position) & flag:
            number = self._pointer(leaf, place.position, flag)
            page = self.pages.write(number)
            position, _ = find(page, key)
            old = value_at(page, position)
            new = self._with_id(key, old, LIST_SKIP, posting)
            remove(page, position)
        else:
            entry = self.entry(place, flag)
            if entry is not None:
                number = self._pointer(self.pages.read(entry.node), entry.position, flag)
                page = self.pages.write(number)
            else:
                self._heads[flag], page = new_page(self.pages, LEAF)
                number = self._heads[flag]
            position, _ = find(page, key)
            new = self._with_id(key, bytes(LIST_SKIP), LIST_SKIP, posting)
            self._point(place, key, flag, number)
        if not insert(page, position, key, new):
            self._split(flag, number, page, position, key, new)

    def _split(self, flag: int, number: int, page: Page, position: int, key: bytes, value: bytes) -> None:
        """Split a page of a list, and let the items of all keys that moved point to the new page."""
        right_number, right = split_page(self.pages, number, page, position, key, value)
        self._point_all(right, flag, right_number)

    def _point_all(self, page: Page, flag: int, number: int) -> None:
        """Let the leaf items of all keys of a page of a list point to it; their flags stay."""
        leaf: Page = None
        for position in range(n_items(page)):
            key = key_at(page, position)
            place, is_found = find(leaf, key) if leaf is not None else (0, False)
            if not is_found:
                _, leaf_number, place, is_found = self.tree.place(key)
                leaf = self.pages.write(leaf_number)
                assert is_found
            _POINTER.pack_into(leaf, value_place(leaf, place)[0] + _POINTER_AT[flag], number)

    def _point(self, place: Place, key: bytes, flag: int, number: int) -> None:
        """Let a leaf item point to a page of a list, 0 for none, and set its flag accordingly."""
        value = bytearray(value_at(self.pages.read(place.number), place.position))
        value[0] = value[0] | flag if number else value[0] & ~flag
        _POINTER.pack_into(value, _POINTER_AT[flag], number)
        self.tree.put_at(place, key, bytes(value))

    # deletion (4.5)

    def remove(self, key: bytes, op: str, posting: int) -> None:
        """Remove a predicate that is there, and its item if nothing is left in it."""
        flag = LISTS_OF[op]
        if flag:
            self._remove_from_list(key, flag, posting)
        value = self.tree.get(key)
        assert value is not None
        if op in IN_LEAF:
            value = self._without_id(value, LEAF_SKIP, posting)
            self.tree.put(key, value)
        if value == _NO_POINTERS:
            self.tree.delete(key)
        self.n_predicates -= 1

    def _remove_from_list(self, key: bytes, flag: int, posting: int) -> None:
        place = self.tree.place(key)
        number = self._pointer(self.pages.read(place.number), place.position, flag)
        page = self.pages.write(number)
        position, is_found = find(page, key)
        assert is_found
        value = self._without_id(value_at(page, position), LIST_SKIP, posting)
        remove(page, position)
        if len(value) > LIST_SKIP:
            if not insert(page, position, key, value):
                self._split(flag, number, page, position, key, value)
            return
        self._point(place, key, flag, 0)
        if n_items(page) == 0:
            self._drop(flag, number, page)
        elif is_sparse(page):
            self._merge(flag, number, page)

    def _drop(self, flag: int, number: int, page: Page) -> None:
        """Free an empty page of a list."""
        if self._heads[flag] == number:
            self._heads[flag] = links(page)[1]
        unlink(self.pages, page)
        self.pages.free(number)

    def _merge(self, flag: int, number: int, page: Page) -> None:
        """Join a page of a list with a neighbour if they fit together."""
        for left, right in pairwise((links(page)[0], number, links(page)[1])):
            if left and right and fit_together(self.pages.read(left), self.pages.read(right)):
                target, source = self.pages.write(left), self.pages.write(right)
                self._point_all(source, flag, left)
                move(source, 0, target)
                self._drop(flag, right, source)
                return

    # sets of ids

    def _with_id(self, key: bytes, value: bytes, skip: int, posting: int) -> bytes:
        """Return an item with one id more; if it has too many, they move to a tree."""
        if value[0] & TREE:
            root, n = _ID_TREE.unpack_from(value, skip)
            tree = Tree(self.pages, root)
            tree.put(_ID.pack(posting), b"")
            return value[:skip] + _ID_TREE.pack(tree.root, n + 1)
        if 4 + len(key) + len(value) + _ID.size <= self._largest:
            return value + _ID.pack(posting)
        ids = [value[start : start + _ID.size] for start in range(skip, len(value), _ID.size)]
        return self._with_tree(value[:skip], [*ids, _ID.pack(posting)])

    def _with_tree(self, value: bytes, ids: list[bytes]) -> bytes:
        tree = Tree(self.pages)
        for id in sorted(ids):
            tree.put(id, b"")
        return bytes([value[0] | TREE]) + value[1:] + _ID_TREE.pack(tree.root, len(ids))

    def with_ids(self, key: bytes, value: bytes, postings: list[int]) -> bytes:
        """Return an item without ids with these ids."""
        if 4 + len(key) + len(value) + _ID.size * len(postings) <= self._largest:
            return value + b"".join(map(_ID.pack, postings))
        return self._with_tree(value, list(map(_ID.pack, postings)))

    def _without_id(self, value: bytes, skip: int, posting: int) -> bytes:
        """Return an item without an id; if few are left in a tree, they move back into the item."""
        gone = _ID.pack(posting)
        if not value[0] & TREE:
            ids = [value[start : start + _ID.size] for start in range(skip, len(value), _ID.size)]
            ids.remove(gone)
            return value[:skip] + b"".join(ids)
        root, n = _ID_TREE.unpack_from(value, skip)
        tree = Tree(self.pages, root)
        tree.delete(gone)
        if n - 1 > self._largest // _ID.size // 4:
            return value[:skip] + _ID_TREE.pack(tree.root, n - 1)
        ids = [key for key, _ in tree.items()]
        tree.clear()
        return bytes([value[0] & ~TREE]) + value[1:skip] + b"".join(ids)

    # looking in

    def nodes_per_page(self) -> float:
        """Return how many nodes a page of the lists holds, on average."""
        counts = [n_items(page) for number in self._heads.values() for page in chain_of(self.pages, number)]
        return sum(counts) / max(1, len(counts))

    # invariants

    def check(self) -> None:
        """Assert every invariant of tree, lists and entry pointers."""
        self.tree.check()
        n_ids = 0
        in_lists: dict[int, dict[bytes, int]] = {}
        for flag in LISTS:
            in_lists[flag], n = self._check_list(flag)
            n_ids += n
        for page in self.tree.leaves():
            for position in range(n_items(page)):
                flags = flags_at(page, position)
                key = key_at(page, position)
                for flag in LISTS:
                    pointer = self._pointer(page, position, flag)
                    assert bool(flags & flag) == bool(pointer)
                    assert in_lists[flag].pop(key, 0) == pointer
                assert value_at(page, position) != _NO_POINTERS
                n_ids += sum(map(len, self._ids(page, position, position + 1, LEAF_SKIP)))
        assert not any(in_lists.values())
        # `<=` and `>=` are in a list and in a leaf.
        assert self.n_predicates <= n_ids <= 2 * self.n_predicates

    def _check_list(self, flag: int) -> tuple[dict[bytes, int], int]:
        """Assert the order of a list; return the page of each key, and how many ids there are."""
        places: dict[bytes, int] = {}
        n, previous, number = 0, 0, self._heads[flag]
        while number:
            page = self.pages.read(number)
            assert n_items(page)
            assert links(page)[0] == previous
            places |= {key_at(page, position): number for position in range(n_items(page))}
            n += sum(map(len, self._ids(page, 0, n_items(page), LIST_SKIP)))
            previous, number = number, links(page)[1]
        assert list(places) == sorted(places)
        return places, n
