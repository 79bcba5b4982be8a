"""The PS-Tree: an ordered trie over boundary values, and the predicate spaces between them, in flat arrays.

A node is a row of `fanout` slots, one for each digit. What a slot holds, it says in its two lowest bits:

    LEAF      all values that begin like this lie in one predicate space, this leaf
    BOUNDARY  exactly one boundary begins like this; its other digits are in `keys`
    INNER     several boundaries begin like this: another node

So locating a value follows one slot for each element, and compares with one boundary at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAF, BOUNDARY, INNER = 0, 1, 2
PREVIOUS, NEXT = 0, 1

# Places in `counts`.
FREE_NODES, FREE_BOUNDARIES, FREE_LEAVES, USED_KEYS, LONGEST_KEY, USED_ITEMS, LAST_LEAF, NEXT_SPACE, N_EVENTS = range(9)
N_COUNTS = 9

_BLOCK = 64  # images located together
_FIRST_CAPACITY = 4  # of a subscription list


class Tree(NamedTuple):
    """All arrays of a PS-Tree; the header of indexes/ps_tree/tree.py says what they hold."""

    counts: NDArray[np.int64]
    slots: NDArray[np.uint32]
    free_nodes: NDArray[np.int32]
    images: NDArray[np.uint64]
    equals: NDArray[np.int32]
    users: NDArray[np.int32]
    key_starts: NDArray[np.int64]
    key_lengths: NDArray[np.int32]
    free_boundaries: NDArray[np.int32]
    neighbours: NDArray[np.int32]
    n_predicates: NDArray[np.int32]
    n_events: NDArray[np.int64]
    space_ids: NDArray[np.int64]
    list_starts: NDArray[np.int64]
    list_lengths: NDArray[np.int32]
    list_capacities: NDArray[np.int32]
    signatures: NDArray[np.uint64]
    free_leaves: NDArray[np.int32]
    keys: NDArray[np.uint8]
    items: NDArray[np.int32]


class Shape(NamedTuple):
    """How the values of the tree's type are cut into digits; `shifts` and `masks` are empty for strings."""

    fanout: int
    widths: NDArray[np.int64]
    shifts: NDArray[np.uint64]
    masks: NDArray[np.uint64]


@kernel
def digits_of_images(images: NDArray[np.uint64], shifts: NDArray[np.uint64], masks: NDArray[np.uint64]) -> Any:
    """Return the digits of all images, one after the other."""
    digits = np.empty(len(images) * len(shifts), dtype=np.uint8)
    n = 0
    for i in range(len(images)):
        for d in range(len(shifts)):
            digits[n] = (images[i] >> shifts[d]) & masks[d]
            n += 1
    return digits


# --- Locating ---------------------------------------------------------------------------------------------------------


@inline_kernel
def _beside(boundary: Any, side: Any, equals: Any, users: Any, neighbours: Any) -> Any:
    """Return the leaf just below (side 0) or above (side 1) a boundary: the paper's links l and g."""
    leaf = equals[boundary]
    return neighbours[leaf, side] if users[boundary, side] else leaf


@inline_kernel
def _slot_of_image(image: Any, slots: Any, shifts: Any, masks: Any) -> Any:
    """Return the slot, no inner node, that the digits of an image lead to."""
    slot = np.uint64(INNER)  # the root is node 0
    depth = np.uint64(0)
    while slot & np.uint64(3) == INNER:
        digit = (image >> shifts[depth]) & masks[depth]
        slot = np.uint64(slots[((slot >> np.uint64(2)) << np.uint64(4)) | digit])
        depth += np.uint64(1)
    return slot


@inline_kernel
def _leaf_of_slot(image: Any, slot: Any, images: Any, equals: Any, users: Any, neighbours: Any) -> Any:
    """Return the leaf that an image lies in, given the slot that its digits lead to."""
    found = np.int32(slot >> np.uint64(2))
    if slot & np.uint64(3) == LEAF:
        return found
    key = images[found]
    if image == key:
        return equals[found]
    return _beside(found, 1 if image > key else 0, equals, users, neighbours)


@kernel
def locate_image(
    image: int,
    slots: NDArray[np.uint32],
    images: NDArray[np.uint64],
    equals: NDArray[np.int32],
    users: NDArray[np.int32],
    neighbours: NDArray[np.int32],
    shifts: NDArray[np.uint64],
    masks: NDArray[np.uint64],
) -> Any:
    """Return the leaf that an image lies in (PS-Tree Alg. 3)."""
    slot = _slot_of_image(np.uint64(image), slots, shifts, masks)
    return _leaf_of_slot(np.uint64(image), slot, images, equals, users, neighbours)


@kernel
def locate_images(
    values: NDArray[np.uint64],
    slots: NDArray[np.uint32],
    images: NDArray[np.uint64],
    equals: NDArray[np.int32],
    users: NDArray[np.int32],
    neighbours: NDArray[np.int32],
    shifts: NDArray[np.uint64],
    masks: NDArray[np.uint64],
) -> Any:
    """Return the leaves that images lie in.

    A block of images goes down together, so that the memory serves many at once: up to twice as fast as one by one.
    """
    leaves = np.empty(len(values), dtype=np.int32)
    places = np.empty(_BLOCK, dtype=np.uint64)
    for first in range(0, len(values), _BLOCK):
        n = min(_BLOCK, len(values) - first)
        places[:] = np.uint64(INNER)
        for depth in range(len(shifts)):
            n_inner = 0
            for i in range(n):
                slot = places[i]
                is_inner = slot & np.uint64(3) == INNER
                digit = (values[first + i] >> shifts[depth]) & masks[depth]
                below = np.uint64(slots[((slot >> np.uint64(2)) << np.uint64(4)) | digit if is_inner else np.uint64(0)])
                places[i] = below if is_inner else slot
                n_inner += is_inner
            if n_inner == 0:
                break
        for i in range(n):
            leaves[first + i] = _leaf_of_slot(values[first + i], places[i], images, equals, users, neighbours)
    return leaves


@inline_kernel
def _leaf_of_digits(digits: Any, start: Any, fanout: Any, tree: Tree) -> Any:
    """Return the leaf that a value lies in (PS-Tree Alg. 3), whatever its type."""
    slot = np.int64(INNER)
    place = start
    while slot & 3 == INNER:
        slot = np.int64(tree.slots[(slot >> 2) * fanout + digits[place]])
        place += 1
    found = slot >> 2
    if slot & 3 == LEAF:
        return np.int32(found)
    key = tree.key_starts[found] + place - start
    end = tree.key_starts[found] + tree.key_lengths[found]
    while key < end and tree.keys[key] == digits[place]:
        key += 1
        place += 1
    if key == end:
        return tree.equals[found]
    side = 1 if digits[place] > tree.keys[key] else 0
    return _beside(found, side, tree.equals, tree.users, tree.neighbours)


@kernel
def locate_digits(starts: NDArray[np.int64], digits: NDArray[np.uint8], fanout: int, tree: Tree) -> Any:
    """Return the leaves that values lie in."""
    leaves = np.empty(len(starts) - 1, dtype=np.int32)
    for i in range(len(leaves)):
        leaves[i] = _leaf_of_digits(digits, starts[i], fanout, tree)
    return leaves


# --- Boundaries -------------------------------------------------------------------------------------------------------


@inline_kernel
def _pop(free: Any, which: Any, counts: Any) -> Any:
    counts[which] -= 1
    return free[counts[which]]


@inline_kernel
def _push(freed: Any, free: Any, which: Any, counts: Any) -> None:
    free[counts[which]] = freed
    counts[which] += 1


@inline_kernel
def _has_key(boundary: Any, depth: Any, digits: Any, start: Any, tree: Tree) -> Any:
    """Tell whether the digits of a boundary from `depth` on are these; no key is the beginning of another."""
    key, length = tree.key_starts[boundary], tree.key_lengths[boundary]
    while depth < length and tree.keys[key + depth] == digits[start + depth]:
        depth += 1
    return depth == length


@inline_kernel
def _expand(boundary: Any, depth: Any, fanout: Any, tree: Tree) -> Any:
    """Return a new node for a boundary that no longer stands alone, with nothing else in it (CreateInnerNode)."""
    node = _pop(tree.free_nodes, FREE_NODES, tree.counts)
    digit = tree.keys[tree.key_starts[boundary] + depth]
    below = _beside(boundary, 0, tree.equals, tree.users, tree.neighbours)
    above = _beside(boundary, 1, tree.equals, tree.users, tree.neighbours)
    for d in range(fanout):
        tree.slots[node * fanout + d] = (below if d < digit else above) << 2 | LEAF
    tree.slots[node * fanout + digit] = boundary << 2 | BOUNDARY
    return node


@inline_kernel
def _new_boundary(leaf: Any, image: Any, digits: Any, start: Any, n_digits: Any, tree: Tree) -> Any:
    """Return a new boundary inside a leaf, without users yet."""
    boundary = _pop(tree.free_boundaries, FREE_BOUNDARIES, tree.counts)
    tree.images[boundary] = image
    tree.equals[boundary] = leaf
    tree.users[boundary, 0] = 0
    tree.users[boundary, 1] = 0
    key = tree.counts[USED_KEYS]
    tree.key_starts[boundary] = key
    tree.key_lengths[boundary] = n_digits
    for d in range(n_digits):
        tree.keys[key + d] = digits[start + d]
    tree.counts[USED_KEYS] += n_digits
    return boundary


@inline_kernel
def _reach(image: Any, digits: Any, start: Any, n_digits: Any, fanout: Any, tree: Tree, path: Any) -> Any:
    """Return (boundary, depth) of a value, and the nodes and digits on the way in `path`; make what is missing.

    PS-Tree Alg. 2, lines 1-6.
    """
    node = np.int64(0)
    depth = 0
    while True:
        digit = np.int64(digits[start + depth])
        path[0, depth] = node
        path[1, depth] = digit
        slot = np.int64(tree.slots[node * fanout + digit])
        kind, found = slot & 3, slot >> 2
        if kind == LEAF:
            boundary = np.int64(_new_boundary(found, image, digits, start, n_digits, tree))
            tree.slots[node * fanout + digit] = boundary << 2 | BOUNDARY
            return boundary, depth
        if kind == BOUNDARY:
            if _has_key(found, depth + 1, digits, start, tree):
                return found, depth
            found = np.int64(_expand(found, depth + 1, fanout, tree))
            tree.slots[node * fanout + digit] = found << 2 | INNER
        node = found
        depth += 1


@inline_kernel
def _relabel(depth: Any, old: Any, new: Any, shape: Shape, tree: Tree, path: Any) -> None:
    """Let leaf `new` have what leaf `old` has to the right of a boundary; the boundary is at the end of `path`.

    Goes over slots and boundaries in ascending order (GetRNode up, GetLNode down), up to the first of another leaf.
    """
    last_width = len(shape.widths) - 1
    while depth >= 0:
        path[1, depth] += 1
        if path[1, depth] == shape.widths[min(depth, last_width)]:
            depth -= 1
            continue
        place = path[0, depth] * shape.fanout + path[1, depth]
        slot = np.int64(tree.slots[place])
        kind, found = slot & 3, slot >> 2
        if kind == INNER:
            depth += 1
            path[0, depth] = found
            path[1, depth] = -1
        elif kind == LEAF:
            if found != old:
                return
            tree.slots[place] = new << 2 | LEAF
        else:
            if tree.equals[found] != old:
                return
            tree.equals[found] = new


@inline_kernel
def _is_cut_by_neighbour(boundary: Any, side: Any, shape: Shape, tree: Tree) -> Any:
    """Tell whether the next value on that side is a boundary, too, that cuts at the same place: 4 above, 5 below."""
    if len(shape.shifts) == 0:
        return False  # D4: between 'a' and 'a\0' an empty space may stand
    step = np.uint64(1) if side == 1 else np.uint64(0xFFFFFFFFFFFFFFFF)
    image = tree.images[boundary] + step
    if (image == 0) if side == 1 else (tree.images[boundary] == 0):
        return False
    slot = _slot_of_image(image, tree.slots, shape.shifts, shape.masks)
    found = slot >> np.uint64(2)
    return slot & np.uint64(3) == BOUNDARY and tree.images[found] == image and tree.users[found, 1 - side] > 0


# --- Leaves -----------------------------------------------------------------------------------------------------------


@inline_kernel
def _split(leaf: Any, tree: Tree) -> Any:
    """Return a new leaf after a leaf, with a copy of all but its space id (PartitionLeafNode)."""
    right = _pop(tree.free_leaves, FREE_LEAVES, tree.counts)
    after = tree.neighbours[leaf, NEXT]
    tree.neighbours[leaf, NEXT] = right
    tree.neighbours[right, PREVIOUS] = leaf
    tree.neighbours[right, NEXT] = after
    if after < 0:
        tree.counts[LAST_LEAF] = right
    else:
        tree.neighbours[after, PREVIOUS] = right
    tree.space_ids[right] = tree.counts[NEXT_SPACE]
    tree.counts[NEXT_SPACE] += 1
    tree.n_predicates[right] = tree.n_predicates[leaf]
    tree.n_events[right] = tree.n_events[leaf]
    for w in range(tree.signatures.shape[1]):
        tree.signatures[right, w] = tree.signatures[leaf, w]
    length = tree.list_lengths[leaf]
    copied, start = tree.list_starts[leaf], tree.counts[USED_ITEMS]
    for i in range(length):
        tree.items[start + i] = tree.items[copied + i]
    tree.counts[USED_ITEMS] += length
    tree.list_starts[right] = start
    tree.list_lengths[right] = length
    tree.list_capacities[right] = length
    return right


@inline_kernel
def _merge(left: Any, right: Any, tree: Tree) -> None:
    """Remove a leaf whose left neighbour has the same predicates."""
    after = tree.neighbours[right, NEXT]
    tree.neighbours[left, NEXT] = after
    if after < 0:
        tree.counts[LAST_LEAF] = left
    else:
        tree.neighbours[after, PREVIOUS] = left
    # Both counters may hold the same events, copied by a split; there are no more than all.
    tree.n_events[left] = min(tree.n_events[left] + tree.n_events[right], tree.counts[N_EVENTS])
    tree.list_lengths[right] = 0
    tree.list_capacities[right] = 0
    _push(right, tree.free_leaves, FREE_LEAVES, tree.counts)


# --- Cuts: a boundary and a side of it --------------------------------------------------------------------------------


@inline_kernel
def _has_room(n_digits: Any, length: Any, tree: Tree) -> Any:
    """Tell whether one more cut surely fits into the arrays."""
    return (
        tree.counts[FREE_NODES] >= n_digits
        and tree.counts[FREE_BOUNDARIES] > 0
        and tree.counts[FREE_LEAVES] > 0
        and tree.counts[USED_KEYS] + n_digits <= len(tree.keys)
        and tree.counts[USED_ITEMS] + length <= len(tree.items)
    )


@kernel
def add_cuts(
    first: int,
    sides: NDArray[np.uint8],
    images: NDArray[np.uint64],
    starts: NDArray[np.int64],
    digits: NDArray[np.uint8],
    shape: Shape,
    tree: Tree,
    cuts: NDArray[np.int32],
) -> Any:
    """Cut below (side 0) or above (side 1) the values first, first + 1, ...; return how many are done.

    Ends early when an array is full: the caller enlarges it and calls again. Fills `cuts` with 2 * boundary + side.
    """
    for i in range(first, len(sides)):
        tree.counts[LONGEST_KEY] = max(tree.counts[LONGEST_KEY], starts[i + 1] - starts[i])
    path = np.empty((2, tree.counts[LONGEST_KEY]), dtype=np.int64)
    for i in range(first, len(sides)):
        n_digits, side = starts[i + 1] - starts[i], np.int64(sides[i])
        leaf = _leaf_of_digits(digits, starts[i], shape.fanout, tree)
        if not _has_room(n_digits, tree.list_lengths[leaf], tree):
            return i
        boundary, depth = _reach(images[i], digits, starts[i], n_digits, shape.fanout, tree, path)
        cuts[i] = 2 * boundary + side
        if tree.users[boundary, side] == 0 and not _is_cut_by_neighbour(boundary, side, shape, tree):
            right = _split(leaf, tree)
            if side == 0:
                tree.equals[boundary] = right
            if side == 1 or tree.users[boundary, 1] == 0:
                _relabel(depth, leaf, right, shape, tree, path)
        tree.users[boundary, side] += 1
    return len(sides)


@inline_kernel
def _trace(boundary: Any, fanout: Any, tree: Tree, path: Any) -> Any:
    """Return the depth of the slot of a boundary, and the way to it in `path`."""
    node = np.int64(0)
    depth = 0
    key = tree.key_starts[boundary]
    while True:
        path[0, depth] = node
        path[1, depth] = tree.keys[key + depth]
        slot = np.int64(tree.slots[node * fanout + path[1, depth]])
        if slot & 3 != INNER:
            return depth
        node = slot >> 2
        depth += 1


@inline_kernel
def _remove_boundary(boundary: Any, fanout: Any, tree: Tree, path: Any) -> None:
    """Take a boundary without users out of the tree, and the nodes that it alone needed."""
    depth = _trace(boundary, fanout, tree, path)
    tree.slots[path[0, depth] * fanout + path[1, depth]] = tree.equals[boundary] << 2 | LEAF
    while depth > 0:
        first = path[0, depth] * fanout
        n_others, only = 0, np.int64(0)
        for d in range(fanout):
            slot = np.int64(tree.slots[first + d])
            if slot & 3 != LEAF:
                n_others += 1
                only = slot
        if n_others != 1 or only & 3 != BOUNDARY:
            break
        tree.slots[path[0, depth - 1] * fanout + path[1, depth - 1]] = only
        _push(path[0, depth], tree.free_nodes, FREE_NODES, tree.counts)
        depth -= 1
    tree.key_lengths[boundary] = 0
    _push(boundary, tree.free_boundaries, FREE_BOUNDARIES, tree.counts)


@kernel
def remove_cuts(cuts: NDArray[np.int32], shape: Shape, tree: Tree) -> None:
    """Remove one use of each cut; merge the leaves beside a cut that is no longer used."""
    path = np.empty((2, tree.counts[LONGEST_KEY]), dtype=np.int64)
    for i in range(len(cuts)):
        boundary, side = np.int64(cuts[i] >> 1), cuts[i] & 1
        tree.users[boundary, side] -= 1
        if tree.users[boundary, side] > 0:
            continue
        if not _is_cut_by_neighbour(boundary, side, shape, tree):
            leaf = tree.equals[boundary]
            left = tree.neighbours[leaf, PREVIOUS] if side == 0 else leaf
            right = leaf if side == 0 else tree.neighbours[leaf, NEXT]
            tree.equals[boundary] = left
            if side == 1 or tree.users[boundary, 1] == 0:
                depth = _trace(boundary, shape.fanout, tree, path)
                _relabel(depth, right, left, shape, tree, path)
            _merge(left, right, tree)
        if tree.users[boundary, 1 - side] == 0:
            _remove_boundary(boundary, shape.fanout, tree, path)


@inline_kernel
def _leaf_after(cut: Any, tree: Tree) -> Any:
    """Return the leaf to the right of a cut; of -1, the first one, which is always leaf 0."""
    if cut < 0:
        return np.int32(0)
    leaf = tree.equals[cut >> 1]
    return tree.neighbours[leaf, NEXT] if cut & 1 else leaf


@inline_kernel
def _leaf_before(cut: Any, tree: Tree) -> Any:
    """Return the leaf to the left of a cut; of -1, the last one."""
    if cut < 0:
        return np.int32(tree.counts[LAST_LEAF])
    leaf = tree.equals[cut >> 1]
    return leaf if cut & 1 else tree.neighbours[leaf, PREVIOUS]


@kernel
def covered_leaves(ranges: NDArray[np.int32], tree: Tree) -> Any:
    """Return the leaves that ranges between two cuts cover (PS-Tree Alg. 1, lines 3-7)."""
    n = 0
    for r in range(len(ranges)):
        leaf, last = _leaf_after(ranges[r, 0], tree), _leaf_before(ranges[r, 1], tree)
        while leaf != last:
            leaf = tree.neighbours[leaf, NEXT]
            n += 1
        n += 1
    leaves = np.empty(n, dtype=np.int32)
    n = 0
    for r in range(len(ranges)):
        leaf, last = _leaf_after(ranges[r, 0], tree), _leaf_before(ranges[r, 1], tree)
        leaves[n] = leaf
        n += 1
        while leaf != last:
            leaf = tree.neighbours[leaf, NEXT]
            leaves[n] = leaf
            n += 1
    return leaves


# --- Subscription lists and signatures --------------------------------------------------------------------------------


@inline_kernel
def _hash(id: Any) -> Any:
    """Return 64 well-mixed bits of an id."""
    mixed = np.uint64(id) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


@inline_kernel
def _sign(leaf: Any, id: Any, n_hashes: Any, signatures: Any) -> None:
    """Set the bits of an id in the signature of a leaf."""
    n_bits = np.uint64(64 * signatures.shape[1])
    bits = _hash(id)
    for _ in range(n_hashes):
        bit = (bits >> np.uint64(32)) % n_bits
        signatures[leaf, bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
        bits = _hash(bits)


@kernel
def may_hold(leaf: int, id: int, n_hashes: int, signatures: NDArray[np.uint64]) -> Any:
    """Tell whether all bits of an id are set in the signature of a leaf."""
    n_bits = np.uint64(64 * signatures.shape[1])
    bits = _hash(id)
    for _ in range(n_hashes):
        bit = (bits >> np.uint64(32)) % n_bits
        if not (signatures[leaf, bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
            return False
        bits = _hash(bits)
    return True


@kernel
def room_for(leaves: NDArray[np.int32], tree: Tree) -> Any:
    """Return how many items must be free at the end to append one id to the lists of leaves."""
    n = 0
    for i in range(len(leaves)):
        if tree.list_lengths[leaves[i]] == tree.list_capacities[leaves[i]]:
            n += max(_FIRST_CAPACITY, 2 * tree.list_capacities[leaves[i]])
    return n


@kernel
def append_id(leaves: NDArray[np.int32], id: int, n_hashes: int, tree: Tree) -> None:
    """Append an id to the lists of leaves; full lists move to the end, with twice the room."""
    for i in range(len(leaves)):
        leaf = leaves[i]
        length = tree.list_lengths[leaf]
        if length == tree.list_capacities[leaf]:
            start, moved = tree.counts[USED_ITEMS], tree.list_starts[leaf]
            for j in range(length):
                tree.items[start + j] = tree.items[moved + j]
            tree.list_starts[leaf] = start
            tree.list_capacities[leaf] = max(_FIRST_CAPACITY, 2 * length)
            tree.counts[USED_ITEMS] += tree.list_capacities[leaf]
        tree.items[tree.list_starts[leaf] + length] = id
        tree.list_lengths[leaf] += 1
        _sign(leaf, id, n_hashes, tree.signatures)


@kernel
def remove_id(leaves: NDArray[np.int32], id: int, n_hashes: int, tree: Tree) -> None:
    """Remove an id from the lists of leaves, and compute their signatures again, because bits are shared by ids."""
    for i in range(len(leaves)):
        leaf = leaves[i]
        start, last = tree.list_starts[leaf], tree.list_starts[leaf] + tree.list_lengths[leaf] - 1
        tree.signatures[leaf] = np.uint64(0)
        place = start
        while tree.items[place] != id:
            place += 1
        tree.items[place] = tree.items[last]
        tree.list_lengths[leaf] -= 1
        for j in range(start, last):
            _sign(leaf, tree.items[j], n_hashes, tree.signatures)


@kernel
def count_covers(range_starts: NDArray[np.int64], ranges: NDArray[np.int32], tree: Tree) -> Any:
    """Return how many of many predicates cover each leaf, without visiting the leaves of each."""
    changes = np.zeros(len(tree.n_predicates), dtype=np.int64)
    for r in range(range_starts[0], range_starts[-1]):
        changes[_leaf_after(ranges[r, 0], tree)] += 1
        after = tree.neighbours[_leaf_before(ranges[r, 1], tree), NEXT]
        if after >= 0:
            changes[after] -= 1
    leaf = np.int32(0)
    n = 0
    while leaf >= 0:
        n += changes[leaf]
        changes[leaf] = n
        leaf = tree.neighbours[leaf, NEXT]
    return changes


@kernel
def append_many(
    ids: NDArray[np.int32],
    range_starts: NDArray[np.int64],
    ranges: NDArray[np.int32],
    n_hashes: int,
    tree: Tree,
    items: NDArray[np.int32],
    starts: NDArray[np.int64],
) -> None:
    """Fill new `items`, leaf after leaf from `starts` on: what the lists hold, and the ids of many predicates."""
    for leaf in range(len(starts)):
        old = tree.list_starts[leaf]
        for i in range(tree.list_lengths[leaf]):
            items[starts[leaf] + i] = tree.items[old + i]
        tree.list_starts[leaf] = starts[leaf]
    for p in range(len(ids)):
        for r in range(range_starts[p], range_starts[p + 1]):
            leaf, last = _leaf_after(ranges[r, 0], tree), _leaf_before(ranges[r, 1], tree)
            while True:
                items[starts[leaf] + tree.list_lengths[leaf]] = ids[p]
                tree.list_lengths[leaf] += 1
                _sign(leaf, ids[p], n_hashes, tree.signatures)
                if leaf == last:
                    break
                leaf = tree.neighbours[leaf, NEXT]


@kernel
def list_of_leaves(
    leaves: NDArray[np.int32], starts: NDArray[np.int64], lengths: NDArray[np.int32], items: NDArray[np.int32]
) -> Any:
    """Return (starts, ids): the lists of many leaves, one after the other."""
    found_starts = np.zeros(len(leaves) + 1, dtype=np.int64)
    for i in range(len(leaves)):
        found_starts[i + 1] = found_starts[i] + lengths[leaves[i]]
    found = np.empty(found_starts[-1], dtype=np.int32)
    for i in range(len(leaves)):
        start = starts[leaves[i]]
        found[found_starts[i] : found_starts[i + 1]] = items[start : start + lengths[leaves[i]]]
    return found_starts, found
