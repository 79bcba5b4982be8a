"""Pages of keys and values in order, and counting: what `pb-tree` does inside one page.

A page is an array of bytes (numbers are little-endian, keys compare byte by byte):

    0 checksum, 4 number (storage/pages.py)    8 kind    10 n    12 heap    14 live    16 previous    20 next
    24 items flagged GT, LT, NEQ               30 first and last flagged GT, 34 first and last flagged LT
    40 the offsets of the items, two bytes each, in key order | free | items, the last one ends where the page ends

An item is: length of the key, length of the value (two bytes each), key, value. `heap` is where the lowest item begins,
`live` how many bytes the items have that are still in use. The first byte of a value holds its flags: of an item in a
leaf, which lists it points to; of an item in an inner node, which the leaves below it do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

GT = 1
LT = 2
NEQ = 4
# One more flag: the ids of the item are in a separate tree.
TREE = 8

N_AT = 10
HEAP_AT = 12
LIVE_AT = 14
PREVIOUS_AT = 16
NEXT_AT = 20
COUNTS_AT = 24
ENDS_AT = 30
OFFSETS_AT = 40
NONE = 0xFFFF


@inline_kernel
def _get(page: Any, offset: Any) -> Any:
    return np.int64(page[offset]) | (np.int64(page[offset + 1]) << 8)


@inline_kernel
def _put(page: Any, offset: Any, number: Any) -> None:
    page[offset] = number & 0xFF
    page[offset + 1] = (number >> 8) & 0xFF


@inline_kernel
def _posting(page: Any, offset: Any) -> Any:
    total = np.uint64(0)
    for i in range(8):
        total |= np.uint64(page[offset + i]) << np.uint64(8 * i)
    return total


@inline_kernel
def _is_below(page: Any, offset: Any, length: Any, key: Any) -> Any:
    """Return -1, 0 or 1: whether the key in the page is below, equal to or above `key`."""
    n = min(length, len(key))
    for i in range(n):
        here, there = np.int64(page[offset + i]), np.int64(key[i])
        if here != there:
            return -1 if here < there else 1
    if length == len(key):
        return 0
    return -1 if length < len(key) else 1


@kernel
def clear(page: NDArray[np.uint8]) -> None:
    """Empty a page; its links stay."""
    _put(page, N_AT, 0)
    _put(page, HEAP_AT, len(page))
    _put(page, LIVE_AT, 0)
    for offset in range(COUNTS_AT, ENDS_AT):
        page[offset] = 0
    for offset in range(ENDS_AT, ENDS_AT + 8):
        page[offset] = 0xFF


@kernel
def find(page: NDArray[np.uint8], key: bytes) -> tuple[int, bool]:
    """Return the position of the first item whose key is not below `key`, and whether it is `key` itself."""
    low, high = 0, _get(page, N_AT)
    is_found = False
    while low < high:
        middle = (low + high) // 2
        offset = _get(page, OFFSETS_AT + 2 * middle)
        order = _is_below(page, offset + 4, _get(page, offset), key)
        if order < 0:
            low = middle + 1
        else:
            high = middle
            is_found = is_found or order == 0
    return low, is_found


@inline_kernel
def _size(page: Any, position: Any) -> Any:
    offset = _get(page, OFFSETS_AT + 2 * position)
    return 4 + _get(page, offset) + _get(page, offset + 2)


@kernel
def compact(page: NDArray[np.uint8]) -> None:
    """Bring all items together at the end of the page."""
    old = page.copy()
    end = len(page)
    for position in range(_get(page, N_AT)):
        offset = _get(old, OFFSETS_AT + 2 * position)
        size = 4 + _get(old, offset) + _get(old, offset + 2)
        end -= size
        page[end : end + size] = old[offset : offset + size]
        _put(page, OFFSETS_AT + 2 * position, end)
    _put(page, HEAP_AT, end)


@kernel
def remove(page: NDArray[np.uint8], position: int) -> None:
    """Take an item out."""
    n = _get(page, N_AT)
    _put(page, LIVE_AT, _get(page, LIVE_AT) - _size(page, position))
    for offset in range(OFFSETS_AT + 2 * position, OFFSETS_AT + 2 * (n - 1)):
        page[offset] = page[offset + 2]
    _put(page, N_AT, n - 1)


@kernel
def insert(page: NDArray[np.uint8], position: int, key: bytes, value: bytes) -> bool:
    """Put an item at a position; False if there is no room."""
    n, size = _get(page, N_AT), 4 + len(key) + len(value)
    end = OFFSETS_AT + 2 * n
    if end + 2 + size + _get(page, LIVE_AT) > len(page):
        return False
    if end + 2 + size > _get(page, HEAP_AT):
        compact(page)
    start = _get(page, HEAP_AT) - size
    _put(page, start, len(key))
    _put(page, start + 2, len(value))
    for i in range(len(key)):
        page[start + 4 + i] = key[i]
    for i in range(len(value)):
        page[start + 4 + len(key) + i] = value[i]
    for offset in range(end - 1, OFFSETS_AT + 2 * position - 1, -1):
        page[offset + 2] = page[offset]
    _put(page, OFFSETS_AT + 2 * position, start)
    _put(page, N_AT, n + 1)
    _put(page, HEAP_AT, start)
    _put(page, LIVE_AT, _get(page, LIVE_AT) + size)
    return True


@kernel
def middle(page: NDArray[np.uint8]) -> Any:
    """Return the position that divides the items into two halves of about the same size, none of them empty."""
    half, n, total = _get(page, LIVE_AT) // 2, _get(page, N_AT), 0
    for position in range(n - 1):
        total += _size(page, position)
        if total >= half:
            return position + 1
    return max(1, n - 1)


@kernel
def move(source: NDArray[np.uint8], first: int, target: NDArray[np.uint8]) -> None:
    """Append all items from a position on to another page, which has room for them."""
    n, n_target = _get(source, N_AT), _get(target, N_AT)
    total = 0
    for position in range(first, n):
        total += _size(source, position)
    if OFFSETS_AT + 2 * (n_target + n - first) + total > _get(target, HEAP_AT):
        compact(target)
    heap = _get(target, HEAP_AT)
    for position in range(first, n):
        offset, size = _get(source, OFFSETS_AT + 2 * position), _size(source, position)
        heap -= size
        target[heap : heap + size] = source[offset : offset + size]
        _put(target, OFFSETS_AT + 2 * (n_target + position - first), heap)
    _put(target, HEAP_AT, heap)
    _put(target, N_AT, n_target + n - first)
    _put(target, LIVE_AT, _get(target, LIVE_AT) + total)
    _put(source, N_AT, first)
    _put(source, LIVE_AT, _get(source, LIVE_AT) - total)


@inline_kernel
def _flags(page: Any, position: Any) -> Any:
    offset = _get(page, OFFSETS_AT + 2 * position)
    return np.int64(page[offset + 4 + _get(page, offset)])


@kernel
def recount(page: NDArray[np.uint8]) -> int:
    """Bring the head of a node up to date (PB+tree Fig. 3); return the flags that its own pointer must have."""
    n_gt = n_lt = n_neq = 0
    first_gt = last_gt = first_lt = last_lt = NONE
    for position in range(_get(page, N_AT)):
        flags = _flags(page, position)
        if flags & GT:
            n_gt += 1
            last_gt = position
            if first_gt == NONE:
                first_gt = position
        if flags & LT:
            n_lt += 1
            last_lt = position
            if first_lt == NONE:
                first_lt = position
        if flags & NEQ:
            n_neq += 1
    _put(page, COUNTS_AT, n_gt)
    _put(page, COUNTS_AT + 2, n_lt)
    _put(page, COUNTS_AT + 4, n_neq)
    _put(page, ENDS_AT, first_gt)
    _put(page, ENDS_AT + 2, last_gt)
    _put(page, ENDS_AT + 4, first_lt)
    _put(page, ENDS_AT + 6, last_lt)
    return (GT if n_gt else 0) + (LT if n_lt else 0) + (NEQ if n_neq else 0)


@kernel
def flagged(page: NDArray[np.uint8], position: int, flag: int, step: int) -> int:
    """Return the first flagged position from `position` on, upwards or downwards; -1 if there is none."""
    n = _get(page, N_AT)
    if flag != NEQ:
        # The head knows the first and the last: most often the answer is one of them.
        head = ENDS_AT if flag == GT else ENDS_AT + 4
        first, last = _get(page, head), _get(page, head + 2)
        if first == NONE:
            return -1
        position = max(position, first) if step > 0 else min(position, last)
    while 0 <= position < n:
        if _flags(page, position) & flag:
            return position
        position += step
    return -1


@kernel
def collect(
    page: NDArray[np.uint8], first: int, end: int, skip: int, postings: NDArray[np.uint64], trees: NDArray[np.int64]
) -> tuple[int, int]:
    """Copy the ids of some items; return how many, and for how many items `trees` has the tree of ids instead.

    The ids of an item begin `skip` bytes into its value.
    """
    n = n_trees = 0
    for position in range(first, end):
        offset = _get(page, OFFSETS_AT + 2 * position)
        start = offset + 4 + _get(page, offset)
        stop = start + _get(page, offset + 2)
        if np.int64(page[start]) & TREE:
            trees[n_trees] = position
            n_trees += 1
            continue
        for place in range(start + skip, stop, 8):
            postings[n] = _posting(page, place)
            n += 1
    return n, n_trees


@kernel
def collect_keys(page: NDArray[np.uint8], postings: NDArray[np.uint64]) -> Any:
    """Copy the ids of a leaf whose keys are ids."""
    n = _get(page, N_AT)
    for position in range(n):
        postings[position] = _posting(page, _get(page, OFFSETS_AT + 2 * position) + 4)
    return n


@kernel
def count(postings: NDArray[np.uint64], n: int, hits: NDArray[np.uint32], epoch: int, found: NDArray[np.uint64]) -> int:
    """Add a hit to the clause of each satisfied predicate; return how many clauses now have all hits that they need.

    A posting is: clause (32 bits), how many predicates it needs (15), whether they are exact (1), which predicate (16).
    The upper half of a clause's hits is the number of their event, so hits need not be cleared between events.
    """
    stamp, n_found = np.uint32(epoch << 16), 0
    for i in range(n):
        posting = postings[i]
        clause = np.int64(posting & np.uint64(0xFFFFFFFF))
        hit = hits[clause]
        hit = (hit if hit & np.uint32(0xFFFF0000) == stamp else stamp) + np.uint32(1)
        hits[clause] = hit
        if np.uint64(hit & np.uint32(0xFFFF)) == (posting >> np.uint64(32)) & np.uint64(0x7FFF):
            found[n_found] = posting
            n_found += 1
    return n_found
