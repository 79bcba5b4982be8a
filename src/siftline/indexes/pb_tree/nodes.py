"""A B+tree of byte strings over pages: keys in order, each with a value; the flags of values are passed up to the root.

    root            [ ""->2  "k"->3 ]              the first key of an inner node stands for everything below
    leaves          2: [a b f] <-> 3: [k m]        linked both ways

Pages split when an item does not fit and are merged with a neighbour under the same parent when they are a quarter
full and the two fit together. What a page looks like inside is in indexes/pb_tree/kernels.py.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.indexes.pb_tree.kernels import (
    HEAP_AT,
    LIVE_AT,
    N_AT,
    NEXT_AT,
    OFFSETS_AT,
    PREVIOUS_AT,
    clear,
    find,
    insert,
    middle,
    move,
    recount,
    remove,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siftline.storage.pages import Page, PageFile

_KIND_AT: Final = 8
INNER: Final = 1
LEAF: Final = 2

_SHORT: Final = struct.Struct("<H")
_LONG: Final = struct.Struct("<I")
_TWO: Final = struct.Struct("<HH")
# Of an item in an inner node: flags, and the page below.
_CHILD: Final = struct.Struct("<BI")


def largest_key(page_bytes: int) -> int:
    """Return how long a key may be."""
    return page_bytes // 12


def largest_item(page_bytes: int) -> int:
    """Return how long key and value may be together, so that half a page always has room for one."""
    return page_bytes // 5


# looking into a page


def n_items(page: Page) -> int:
    """Return the number of items."""
    return int(_SHORT.unpack_from(page, N_AT)[0])


def is_leaf(page: Page) -> bool:
    """Return whether a page is a leaf."""
    return bool(page[_KIND_AT] == LEAF)


def key_at(page: Page, position: int) -> bytes:
    """Return the key of an item."""
    offset = _SHORT.unpack_from(page, OFFSETS_AT + 2 * position)[0]
    length = _SHORT.unpack_from(page, offset)[0]
    return bytes(page[offset + 4 : offset + 4 + length])


def value_place(page: Page, position: int) -> tuple[int, int]:
    """Return where the value of an item begins and ends."""
    offset = _SHORT.unpack_from(page, OFFSETS_AT + 2 * position)[0]
    n_key, n_value = _TWO.unpack_from(page, offset)
    start = offset + 4 + n_key
    return start, start + n_value


def value_at(page: Page, position: int) -> bytes:
    """Return the value of an item."""
    start, end = value_place(page, position)
    return bytes(page[start:end])


def flags_at(page: Page, position: int) -> int:
    """Return the flags of an item."""
    return int(page[value_place(page, position)[0]])


def child_at(page: Page, position: int) -> int:
    """Return the page that an item of an inner node points to."""
    return int(_CHILD.unpack_from(page, value_place(page, position)[0])[1])


def child_value(flags: int, number: int) -> bytes:
    """Return the value of an item in an inner node."""
    return _CHILD.pack(flags, number)


def child_position(page: Page, key: bytes) -> int:
    """Return the item of an inner node to go down by."""
    position, is_found = find(page, key)
    return position if is_found else max(position - 1, 0)


def links(page: Page) -> tuple[int, int]:
    """Return the previous and the next page."""
    return _LONG.unpack_from(page, PREVIOUS_AT)[0], _LONG.unpack_from(page, NEXT_AT)[0]


def set_link(page: Page, at: int, number: int) -> None:
    """Let a page point to a neighbour."""
    _LONG.pack_into(page, at, number)


def used_bytes(page: Page) -> int:
    """Return how many bytes the items of a page take, without gaps."""
    return 2 * n_items(page) + int(_SHORT.unpack_from(page, LIVE_AT)[0])


# chains of pages


def new_page(pages: PageFile, kind: int) -> tuple[int, Page]:
    """Return an empty page."""
    number, page = pages.allocate()
    page[_KIND_AT] = kind
    clear(page)
    return number, page


def link_behind(pages: PageFile, number: int, page: Page, new_number: int, new: Page) -> None:
    """Link a new page after another one."""
    following = links(page)[1]
    set_link(new, PREVIOUS_AT, number)
    set_link(new, NEXT_AT, following)
    set_link(page, NEXT_AT, new_number)
    if following:
        set_link(pages.write(following), PREVIOUS_AT, new_number)


def split_page(pages: PageFile, number: int, page: Page, position: int, key: bytes, value: bytes) -> tuple[int, Page]:
    """Move items of a full page to a new page after it, and insert an item at its position; return the new page."""
    right_number, right = new_page(pages, int(page[_KIND_AT]))
    if is_leaf(page):
        link_behind(pages, number, page, right_number, right)
    # Keys that arrive in order fill pages completely; otherwise a page is divided in the middle.
    n = n_items(page)
    split = n if position == n and not (is_leaf(page) and links(right)[1]) else middle(page)
    move(page, split, right)
    is_left = position < split
    is_in = insert(page if is_left else right, position if is_left else position - split, key, value)
    assert is_in
    return right_number, right


def chain_of(pages: PageFile, number: int) -> Iterator[Page]:
    """Yield a page and all pages linked after it."""
    while number:
        page = pages.read(number)
        yield page
        number = links(page)[1]


def unlink(pages: PageFile, page: Page) -> None:
    """Take a page out of its chain."""
    previous, following = links(page)
    if previous:
        set_link(pages.write(previous), NEXT_AT, following)
    if following:
        set_link(pages.write(following), PREVIOUS_AT, previous)


def fit_together(left: Page, right: Page) -> bool:
    """Return whether two pages can become one, with some room left."""
    return used_bytes(left) + used_bytes(right) <= (len(left) - OFFSETS_AT) * 3 // 4


def is_sparse(page: Page) -> bool:
    """Return whether a page is worth merging."""
    return used_bytes(page) < (len(page) - OFFSETS_AT) // 4


class Place(NamedTuple):
    """A leaf and a position in it, with the path to it: pages and positions from the root on."""

    path: list[tuple[int, int]]
    number: int
    position: int
    is_found: bool


class Tree:
    """One B+tree; `root` is 0 while it is empty."""

    def __init__(self, pages: PageFile, root: int = 0, *, has_flags: bool = False) -> None:
        self.pages = pages
        self.root = root
        self._has_flags = has_flags

    # search

    def place(self, key: bytes) -> Place:
        """Go down to where a key is, or would be; the tree must have a root."""
        path: list[tuple[int, int]] = []
        number = self.root
        page = self.pages.read(number)
        while not is_leaf(page):
            position = child_position(page, key)
            path.append((number, position))
            number = child_at(page, position)
            page = self.pages.read(number)
        return Place(path, number, *find(page, key))

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        if not self.root:
            return None
        place = self.place(key)
        return value_at(self.pages.read(place.number), place.position) if place.is_found else None

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last item whose key is not above `key`."""
        if not self.root:
            return None
        place = self.place(key)
        page = self.pages.read(place.number)
        position = place.position if place.is_found else place.position - 1
        if position < 0:
            previous = links(page)[0]
            if not previous:
                return None
            page = self.pages.read(previous)
            position = n_items(page) - 1
        return key_at(page, position), value_at(page, position)

    def first(self) -> int:
        """Return the number of the first leaf, 0 if there is none."""
        number = self.root
        while number and not is_leaf(page := self.pages.read(number)):
            number = child_at(page, 0)
        return number

    def leaves(self) -> Iterator[Page]:
        """Yield all leaves in order."""
        yield from chain_of(self.pages, self.first())

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys and values in order."""
        for page in self.leaves():
            for position in range(n_items(page)):
                yield key_at(page, position), value_at(page, position)

    # insertion

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self.put_at(self.place_for(key), key, value)

    def place_for(self, key: bytes) -> Place:
        """Go down to where a key is or goes; an empty tree gets its first leaf."""
        if not self.root:
            self.root, _ = new_page(self.pages, LEAF)
        return self.place(key)

    def put_at(self, place: Place, key: bytes, value: bytes) -> None:
        """Set the value of a key that was located; places are invalid afterwards, unless the value keeps its length."""
        path, number, position, is_found = place
        if is_found:
            page = self.pages.write(number)
            start, end = value_place(page, position)
            if end - start == len(value):
                page[start:end] = memoryview(value)
                self._pass_up(path, number)
                return
            remove(page, position)
        self._insert(path, number, position, key, value)

    def _insert(self, path: list[tuple[int, int]], number: int, position: int, key: bytes, value: bytes) -> None:
        """Put a new item into a node, which is split if it is full."""
        page = self.pages.write(number)
        if insert(page, position, key, value):
            self._pass_up(path, number)
            return
        right_number, right = split_page(self.pages, number, page, position, key, value)
        self._add_child(path, number, right_number, key_at(right, 0))

    def _add_child(self, path: list[tuple[int, int]], left: int, right: int, key: bytes) -> None:
        """Add the new right half of a node to its parent; a root gets a new root above it."""
        left_flags, right_flags = self._flags(left), self._flags(right)
        if path:
            parent, position = path[-1]
            self._set_flags(parent, position, left_flags)
            self._insert(path[:-1], parent, position + 1, key, child_value(right_flags, right))
            return
        self.root, page = new_page(self.pages, INNER)
        insert(page, 0, b"", child_value(left_flags, left))
        insert(page, 1, key, child_value(right_flags, right))
        if self._has_flags:
            recount(page)

    # flags

    def _flags(self, number: int) -> int:
        return recount(self.pages.write(number)) if self._has_flags else 0

    def _set_flags(self, number: int, position: int, flags: int) -> bool:
        """Set the flags of a pointer; return whether they changed."""
        page = self.pages.read(number)
        start = value_place(page, position)[0]
        if page[start] == flags:
            return False
        self.pages.write(number)[start] = flags
        return True

    def _pass_up(self, path: list[tuple[int, int]], number: int) -> None:
        """Bring the heads of nodes and the flags of pointers up to date, from a changed node towards the root."""
        if not self._has_flags:
            return
        flags = self._flags(number)
        for parent, position in reversed(path):
            if not self._set_flags(parent, position, flags):
                return
            flags = self._flags(parent)

    # deletion

    def delete(self, key: bytes) -> None:
        """Remove a key that is there."""
        path, number, position, is_found = self.place(key)
        assert is_found
        remove(self.pages.write(number), position)
        self._after_removal(path, number)

    def _after_removal(self, path: list[tuple[int, int]], number: int) -> None:
        """Merge a node that lost an item, or drop it if it was the last."""
        page = self.pages.read(number)
        if not path:
            self._shorten(page)
        elif n_items(page) == 0:
            if is_leaf(page):
                unlink(self.pages, page)
            self._drop_child(path, number, path[-1][1])
        elif not (is_sparse(page) and self._merge(path)):
            self._pass_up(path, number)

    def _shorten(self, page: Page) -> None:
        """Remove the root if it has a single child, or no items."""
        root, n = self.root, n_items(page)
        if n == 0:
            self.root = 0
            self.pages.free(root)
        elif n == 1 and not is_leaf(page):
            self.root = child_at(page, 0)
            self.pages.free(root)
            self._shorten(self.pages.read(self.root))
        else:
            self._pass_up([], root)

    def _merge(self, path: list[tuple[int, int]]) -> bool:
        """Join the node at the end of a path with a neighbour under the same parent, if they fit together."""
        parent, position = path[-1]
        node = self.pages.read(parent)
        for left_position in (position, position - 1):
            if left_position < 0 or left_position + 1 >= n_items(node):
                continue
            left, right = child_at(node, left_position), child_at(node, left_position + 1)
            if fit_together(self.pages.read(left), self.pages.read(right)):
                self._join(left, right, key_at(node, left_position + 1))
                self._set_flags(parent, left_position, self._flags(left))
                self._drop_child(path, right, left_position + 1)
                return True
        return False

    def _join(self, left: int, right: int, key: bytes) -> None:
        """Move all items of a node into the one before it."""
        target, source = self.pages.write(left), self.pages.write(right)
        if is_leaf(target):
            unlink(self.pages, source)
        else:
            # The first key of an inner node may be lower than its items: the parent has the true bound.
            insert(target, n_items(target), key, value_at(source, 0))
            remove(source, 0)
        move(source, 0, target)

    def _drop_child(self, path: list[tuple[int, int]], number: int, position: int) -> None:
        parent = path[-1][0]
        remove(self.pages.write(parent), position)
        self.pages.free(number)
        self._after_removal(path[:-1], parent)

    def clear(self) -> None:
        """Free all pages."""
        pending, self.root = [self.root] if self.root else [], 0
        while pending:
            number = pending.pop()
            page = self.pages.read(number)
            if not is_leaf(page):
                pending += [child_at(page, position) for position in range(n_items(page))]
            self.pages.free(number)

    # invariants

    def check(self) -> int:
        """Assert every invariant; return the number of keys."""
        if not self.root:
            return 0
        leaves: list[int] = []
        n, flags = self._check_node(self.root, b"", None, leaves)
        for before, number, after in zip([0, *leaves], leaves, [*leaves[1:], 0], strict=False):
            assert links(self.pages.read(number)) == (before, after)
        assert not flags or self._has_flags
        return n

    def _check_node(self, number: int, low: bytes, high: bytes | None, leaves: list[int]) -> tuple[int, int]:
        page = self.pages.read(number).copy()
        keys = [key_at(page, position) for position in range(n_items(page))]
        assert keys == sorted(set(keys))
        assert keys
        assert OFFSETS_AT + 2 * len(keys) <= int(_SHORT.unpack_from(page, HEAP_AT)[0])
        before = page.copy()
        flags = recount(page) if self._has_flags else 0
        assert (before == page).all()
        if is_leaf(page):
            leaves.append(number)
            assert low <= keys[0]
            assert high is None or keys[-1] < high
            return len(keys), flags
        total = 0
        for position, (key, end) in enumerate(zip(keys, [*keys[1:], high], strict=True)):
            n, below = self._check_node(child_at(page, position), key if position else low, end, leaves)
            assert not self._has_flags or below == flags_at(page, position)
            total += n
        return total, flags
