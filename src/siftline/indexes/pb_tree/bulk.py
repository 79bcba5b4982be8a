"""Building a PB+tree from sorted predicates: pages are filled one after the other, then the levels above them."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from siftline.indexes.pb_tree.kernels import OFFSETS_AT, insert, recount
from siftline.indexes.pb_tree.nodes import (
    INNER,
    LEAF,
    Tree,
    child_value,
    key_at,
    link_behind,
    n_items,
    new_page,
    used_bytes,
)
from siftline.indexes.pb_tree.predicates import IN_LEAF, LISTS, LISTS_OF, leaf_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline.indexes.pb_tree.predicates import PredicateTree
    from siftline.storage.pages import PageFile


class _Chain:
    """Linked pages that are filled from left to right, to nine tenths, so that later items find room."""

    def __init__(self, pages: PageFile, kind: int) -> None:
        self._pages, self._kind = pages, kind
        self._room = (pages.page_bytes - OFFSETS_AT) * 9 // 10
        self.numbers: list[int] = []

    def append(self, key: bytes, value: bytes) -> int:
        """Append an item whose key is above all others; return the number of its page."""
        page = self._pages.write(self.numbers[-1]) if self.numbers else None
        if page is None or used_bytes(page) + 6 + len(key) + len(value) > self._room:
            # Neither this method nor its caller holds the array of a page here.
            self._pages.settle()
            number, fresh = new_page(self._pages, self._kind)
            if self.numbers and self._kind == LEAF:
                link_behind(self._pages, self.numbers[-1], self._pages.write(self.numbers[-1]), number, fresh)
            self.numbers.append(number)
            page = fresh
        insert(page, n_items(page), key, value)
        return self.numbers[-1]


def load_predicates(tree: PredicateTree, entries: Iterable[tuple[bytes, str, int]]) -> None:
    """Fill an empty tree with (key, operator, id), sorted by key."""
    pages = tree.pages
    leaves, lists = _Chain(pages, LEAF), {flag: _Chain(pages, LEAF) for flag in LISTS}
    for key, group in groupby(entries, key=itemgetter(0)):
        ids: dict[int, list[int]] = {}
        for _, op, posting in group:
            tree.n_predicates += 1
            if op in IN_LEAF:
                ids.setdefault(0, []).append(posting)
            if LISTS_OF[op]:
                ids.setdefault(LISTS_OF[op], []).append(posting)
        pointers = {
            flag: lists[flag].append(key, tree.with_ids(key, bytes(1), ids[flag])) for flag in LISTS if flag in ids
        }
        leaves.append(key, tree.with_ids(key, leaf_value(pointers), ids.get(0, [])))
    tree.set_heads({flag: chain.numbers[0] for flag, chain in lists.items() if chain.numbers})
    tree.tree.root = _root_above(pages, leaves.numbers, has_flags=True)


def load_tree(tree: Tree, items: Iterable[tuple[bytes, bytes]]) -> None:
    """Fill an empty plain tree with sorted items."""
    leaves = _Chain(tree.pages, LEAF)
    for key, value in items:
        leaves.append(key, value)
    tree.root = _root_above(tree.pages, leaves.numbers, has_flags=False)


def _root_above(pages: PageFile, numbers: list[int], *, has_flags: bool) -> int:
    """Build the levels above some nodes; return the root, 0 without nodes."""
    lows = {number: key_at(pages.read(number), 0) for number in numbers}
    while len(numbers) > 1:
        level = _Chain(pages, INNER)
        above: dict[int, bytes] = {}
        for number in numbers:
            flags = recount(pages.write(number)) if has_flags else 0
            is_first = number == numbers[0]
            parent = level.append(b"" if is_first else lows[number], child_value(flags, number))
            above.setdefault(parent, lows[number])
        numbers, lows = level.numbers, above
    if numbers and has_flags:
        recount(pages.write(numbers[0]))
    pages.settle()
    return numbers[0] if numbers else 0
