"""Interval tree, segment tree and scan over closed intervals: which of them contain a point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

NONE = -1

# A treap of 2**31 nodes is about 80 deep; that one is ever this deep is less likely than a broken machine.
_DEEPEST = 512


# --- Interval tree: a treap over (low, id), each node with the largest high below it ----------------------------------


@inline_kernel
def _priority(node: Any) -> Any:
    """Return well-mixed bits of a node's number: the node with more of them stands higher."""
    mixed = np.uint64(node + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(27))


@inline_kernel
def _update(node: Any, highs: Any, children: Any, max_highs: Any) -> None:
    largest = highs[node]
    for side in range(2):
        child = children[node, side]
        if child != NONE and max_highs[child] > largest:
            largest = max_highs[child]
    max_highs[node] = largest


@inline_kernel
def _is_before(node: Any, other: Any, lows: Any) -> Any:
    return lows[node] < lows[other] or (lows[node] == lows[other] and node < other)


@kernel
def plant(order: NDArray[np.int64], highs: NDArray[Any], children: NDArray[np.int32], max_highs: NDArray[Any]) -> Any:
    """Link nodes, given in the order of their lows, into a treap; return its root."""
    spine = np.empty(len(order), dtype=np.int32)  # the way down the right side
    n = 0
    for i in range(len(order)):
        node = np.int32(order[i])
        left = np.int32(NONE)
        while n > 0 and _priority(spine[n - 1]) < _priority(node):
            n -= 1
            left = spine[n]
            _update(left, highs, children, max_highs)
        children[node, 0] = left
        children[node, 1] = NONE
        if n > 0:
            children[spine[n - 1], 1] = node
        spine[n] = node
        n += 1
    for i in range(n - 1, -1, -1):
        _update(spine[i], highs, children, max_highs)
    return np.int64(spine[0]) if n else np.int64(NONE)


@kernel
def insert_node(
    node: int,
    root: Any,
    lows: NDArray[Any],
    highs: NDArray[Any],
    children: NDArray[np.int32],
    max_highs: NDArray[Any],
) -> Any:
    """Insert a node into the treap; return the root."""
    parent: Any = NONE
    side = 0
    place = root
    while place != NONE and _priority(place) > _priority(node):
        max_highs[place] = max(max_highs[place], highs[node])
        parent, side = place, 1 if _is_before(place, node, lows) else 0
        place = np.int64(children[place, side])
    # What stood there is split into what comes before the node and what comes after it.
    path = np.empty(_DEEPEST, dtype=np.int64)
    tails = np.full(2, node, dtype=np.int64)
    n = 0
    while place != NONE:
        path[n] = place
        n += 1
        half = 0 if _is_before(place, node, lows) else 1
        children[tails[half], half if tails[half] == node else 1 - half] = place
        tails[half] = place
        place = np.int64(children[place, 1 - half])
    for half in range(2):
        children[tails[half], half if tails[half] == node else 1 - half] = NONE
    for i in range(n - 1, -1, -1):
        _update(path[i], highs, children, max_highs)
    _update(node, highs, children, max_highs)
    if parent == NONE:
        return np.int64(node)
    children[parent, side] = node
    return np.int64(root)


@kernel
def delete_node(
    node: int,
    root: Any,
    lows: NDArray[Any],
    highs: NDArray[Any],
    children: NDArray[np.int32],
    max_highs: NDArray[Any],
) -> Any:
    """Take a node out of the treap; return the root."""
    path = np.empty(_DEEPEST, dtype=np.int64)
    n = 0
    parent: Any = NONE
    side = 0
    place = root
    while place != node:
        path[n] = place
        n += 1
        parent, side = place, 1 if _is_before(place, node, lows) else 0
        place = np.int64(children[place, side])
    left, right = np.int64(children[node, 0]), np.int64(children[node, 1])
    while left != NONE or right != NONE:
        is_left = right == NONE or (left != NONE and _priority(left) > _priority(right))
        upper = left if is_left else right
        if parent == NONE:
            root = upper
        else:
            children[parent, side] = upper
        path[n] = upper
        n += 1
        parent, side = upper, 1 if is_left else 0
        if left == NONE or right == NONE:  # nothing to merge with: the rest stays as it is
            side = 2
            break
        if is_left:
            left = np.int64(children[left, 1])
        else:
            right = np.int64(children[right, 0])
    if side != 2:
        if parent == NONE:
            root = np.int64(NONE)
        else:
            children[parent, side] = NONE
    for i in range(n - 1, -1, -1):
        _update(path[i], highs, children, max_highs)
    return np.int64(root)


@inline_kernel
def _stab_tree(
    value: Any, root: Any, lows: Any, highs: Any, children: Any, max_highs: Any, stack: Any, found: Any, n: Any
) -> Any:
    """Write the intervals that contain a value to found[n:], if there is room for any; return n plus their number."""
    top = 0
    if root != NONE and max_highs[root] >= value:
        stack[0] = root
        top = 1
    while top > 0:
        top -= 1
        node = stack[top]
        if lows[node] <= value:
            if highs[node] >= value:
                if len(found):
                    found[n] = node
                n += 1
            right = children[node, 1]
            if right != NONE and max_highs[right] >= value:
                stack[top] = right
                top += 1
        left = children[node, 0]
        if left != NONE and max_highs[left] >= value:
            stack[top] = left
            top += 1
    return n


@kernel
def count_in_tree(
    values: NDArray[Any],
    root: int,
    lows: NDArray[Any],
    highs: NDArray[Any],
    children: NDArray[np.int32],
    max_highs: NDArray[Any],
) -> Any:
    """Return how many intervals of the tree contain each value."""
    stack = np.empty(_DEEPEST, dtype=np.int32)
    nothing = np.empty(0, dtype=np.int32)
    counts = np.empty(len(values), dtype=np.int64)
    for i in range(len(values)):
        counts[i] = _stab_tree(values[i], root, lows, highs, children, max_highs, stack, nothing, 0)
    return counts


@kernel
def query_tree(
    values: NDArray[Any],
    starts: NDArray[np.int64],
    root: int,
    lows: NDArray[Any],
    highs: NDArray[Any],
    children: NDArray[np.int32],
    max_highs: NDArray[Any],
) -> Any:
    """Return the intervals of the tree that contain each value, from `starts` on."""
    stack = np.empty(_DEEPEST, dtype=np.int32)
    found = np.empty(starts[-1], dtype=np.int32)
    for i in range(len(values)):
        if starts[i] < starts[i + 1]:
            _stab_tree(values[i], root, lows, highs, children, max_highs, stack, found, starts[i])
    return found


# --- Segment tree: an implicit binary tree over elementary intervals, each node with a list ---------------------------


@inline_kernel
def _elementary(value: Any, ends: Any) -> Any:
    """Return the elementary interval of a value: 2 * i before end i, 2 * i + 1 at end i."""
    first, last = np.uint64(0), np.uint64(len(ends))
    while first < last:  # the first end that is not below the value
        middle = (first + last) >> np.uint64(1)
        if ends[middle] < value:
            first = middle + np.uint64(1)
        else:
            last = middle
    place = np.int64(first)
    return 2 * place + 1 if place < len(ends) and ends[place] == value else 2 * place


@kernel
def locate_elementary(values: NDArray[Any], ends: NDArray[Any]) -> Any:
    """Return the elementary intervals of values."""
    found = np.empty(len(values), dtype=np.int32)
    for i in range(len(values)):
        found[i] = _elementary(values[i], ends)
    return found


@kernel
def canonical_lists(n_leaves: int, firsts: NDArray[np.int32], lasts: NDArray[np.int32]) -> Any:
    """Return (starts, ids): the list of node v is ids[starts[v] : starts[v + 1]]; an interval is in O(log n) of them.

    Interval i covers the elementary intervals firsts[i] .. lasts[i]; node 1 is the root, below v are 2 v and 2 v + 1.
    """
    starts = np.zeros(2 * n_leaves + 2, dtype=np.int64)
    ids = np.empty(0, dtype=np.int32)
    for is_filling in range(2):
        for i in range(len(firsts)):
            low, high = firsts[i] + n_leaves, lasts[i] + n_leaves + 1
            while low < high:
                if low & 1:
                    if is_filling:
                        ids[starts[low + 1]] = i
                    starts[low + 1 if is_filling else low + 2] += 1
                    low += 1
                if high & 1:
                    high -= 1
                    if is_filling:
                        ids[starts[high + 1]] = i
                    starts[high + 1 if is_filling else high + 2] += 1
                low >>= 1
                high >>= 1
        if not is_filling:
            for v in range(2 * n_leaves + 1):
                starts[v + 1] += starts[v]
            ids = np.empty(starts[-1], dtype=np.int32)
    return starts[:-1].copy(), ids


@kernel
def count_in_nodes(located: NDArray[np.int32], n_leaves: int, starts: NDArray[np.int64]) -> Any:
    """Return how many intervals are in the lists above each elementary interval."""
    counts = np.zeros(len(located), dtype=np.int64)
    for i in range(len(located)):
        node = np.uint64(located[i] + n_leaves)
        while node > 0:
            counts[i] += starts[node + np.uint64(1)] - starts[node]
            node >>= np.uint64(1)
    return counts


@kernel
def query_nodes(
    located: NDArray[np.int32],
    found_starts: NDArray[np.int64],
    n_leaves: int,
    starts: NDArray[np.int64],
    ids: NDArray[np.int32],
) -> Any:
    """Return the intervals in the lists above each elementary interval, from `found_starts` on."""
    found = np.empty(found_starts[-1], dtype=np.int32)
    for i in range(len(located)):
        n = found_starts[i]
        node = np.uint64(located[i] + n_leaves)
        while node > 0:
            for j in range(starts[node], starts[node + np.uint64(1)]):
                found[n] = ids[j]
                n += 1
            node >>= np.uint64(1)
    return found


# --- Scan -------------------------------------------------------------------------------------------------------------


@kernel
def count_in_scan(values: NDArray[Any], lows: NDArray[Any], highs: NDArray[Any]) -> Any:
    """Return how many intervals contain each value."""
    counts = np.zeros(len(values), dtype=np.int64)
    for i in range(len(values)):
        for j in range(len(lows)):
            counts[i] += (lows[j] <= values[i]) & (values[i] <= highs[j])
    return counts


@kernel
def query_scan(values: NDArray[Any], starts: NDArray[np.int64], lows: NDArray[Any], highs: NDArray[Any]) -> Any:
    """Return the intervals that contain each value, from `starts` on."""
    found = np.empty(starts[-1], dtype=np.int32)
    for i in range(len(values)):
        n = starts[i]
        for j in range(len(lows)):
            if lows[j] <= values[i] <= highs[j]:
                found[n] = j
                n += 1
    return found
