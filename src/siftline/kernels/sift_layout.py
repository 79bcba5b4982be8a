"""Laying out a part of `sift`: where each clause is posted, and what stands beside the posting.

See `indexes/sift.py` for the drawing. Words of a row, one after the other for each literal:

    place | LAST | VETO, low, width                          a range
    place | SET | LAST | VETO, n, low, width, low, width ... n ranges
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.spaces import space_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAST = np.int32(1 << 30)
SET = np.int32(1 << 29)
VETO = np.int32(1 << 28)
PLACE = np.int32((1 << 28) - 1)

# The sign bit of a slot: its clause needs the exact check.
INEXACT = np.int32(-(2**31))

_IS_VETO = np.uint8(2)

# Columns of a flat block, each as long as the block has entries.
FLAT_COLUMNS = 8
LOW1, WIDTH1, PLACE2, LOW2, WIDTH2, SLOT, ROW, CLAUSE = range(FLAT_COLUMNS)
# Columns of `cold`.
COLD_COLUMNS = 4

# The signature of an entry that has no second literal; every event has it.
ALWAYS = np.uint16(65_535)


@inline_kernel
def signature(place: int) -> Any:
    """Return 16 bits, never ALWAYS, for an attribute's place."""
    return np.uint16((np.uint64(place) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) % np.uint64(65_535))


@inline_kernel
def ordinal_of(attribute: int, code: int, cut_starts: NDArray[np.int64], cuts: NDArray[np.int32]) -> Any:
    """Return the number of cuts of the attribute that are not above the code."""
    space = space_of(attribute, code, cut_starts, cuts)
    return space - cut_starts[attribute] + 1 if space >= 0 else np.int64(0)


@kernel
def access_pieces(
    chosen: NDArray[np.int32],
    starts: NDArray[np.int64],
    order: NDArray[np.int64],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    sets: NDArray[np.int32],
    set_starts: NDArray[np.int64],
    set_lows: NDArray[np.int32],
    set_highs: NDArray[np.int32],
) -> Any:
    """Return (clause, attribute, low, high) of every range of the access literal of every chosen clause."""
    n = 0
    for k in range(len(chosen)):
        literal = order[starts[chosen[k]]]
        n += set_starts[sets[literal] + 1] - set_starts[sets[literal]] if sets[literal] >= 0 else 1
    clauses = np.empty(n, dtype=np.int32)
    owners = np.empty(n, dtype=np.int32)
    first = np.empty(n, dtype=np.int32)
    last = np.empty(n, dtype=np.int32)
    n = 0
    for k in range(len(chosen)):
        literal = order[starts[chosen[k]]]
        is_set = sets[literal] >= 0
        begin = set_starts[sets[literal]] if is_set else np.int64(0)
        end = set_starts[sets[literal] + 1] if is_set else np.int64(1)
        for i in range(begin, end):
            clauses[n] = chosen[k]
            owners[n] = attributes[literal]
            first[n] = set_lows[i] if is_set else lows[literal]
            last[n] = set_highs[i] if is_set else highs[literal]
            n += 1
    return clauses, owners, first, last


@kernel
def beside_access(
    chosen: NDArray[np.int32],
    is_in_tree: NDArray[np.bool_],
    starts: NDArray[np.int64],
    order: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    sets: NDArray[np.int32],
    set_starts: NDArray[np.int64],
) -> Any:
    """Choose per clause the literals that stand in the posting itself, and how many words the others take.

    Returns (seconds, thirds, row_starts): literals, or -1. A third literal is only for clauses in trees.
    """
    n_clauses = len(starts) - 1
    seconds = np.full(n_clauses, -1, dtype=np.int64)
    thirds = np.full(n_clauses, -1, dtype=np.int64)
    row_starts = np.full(n_clauses + 1, -1, dtype=np.int32)
    n_words = 0
    for k in range(len(chosen)):
        c = chosen[k]
        rest = starts[c] + 1
        end = starts[c + 1]
        if rest < end and kinds[order[rest]] < _IS_VETO:
            seconds[c] = order[rest]
            if sets[order[rest]] < 0:
                rest += 1  # of a set only the hull stands there
                if is_in_tree[c] and rest < end and kinds[order[rest]] == 0:
                    thirds[c] = order[rest]
                    rest += 1
        if rest < end:
            row_starts[c] = n_words
            for i in range(rest, end):
                s = sets[order[i]]
                n_words += 2 + 2 * (set_starts[s + 1] - set_starts[s]) if s >= 0 else 3
    row_starts[n_clauses] = n_words
    return seconds, thirds, row_starts


@kernel
def lay_rows(
    chosen: NDArray[np.int32],
    seconds: NDArray[np.int64],
    thirds: NDArray[np.int64],
    row_starts: NDArray[np.int32],
    starts: NDArray[np.int64],
    order: NDArray[np.int64],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    sets: NDArray[np.int32],
    set_starts: NDArray[np.int64],
    set_lows: NDArray[np.int32],
    set_highs: NDArray[np.int32],
) -> Any:
    """Return the rows: the literals that stand neither in a posting nor are proved by it."""
    rows = np.empty(row_starts[len(row_starts) - 1], dtype=np.int32)
    for k in range(len(chosen)):
        c = chosen[k]
        p = row_starts[c]
        if p < 0:
            continue
        for i in range(starts[c] + 1, starts[c + 1]):
            literal = order[i]
            s = sets[literal]
            if (literal == seconds[c] and s < 0) or literal == thirds[c]:
                continue
            word = attributes[literal] + np.int32(1)
            if kinds[literal] >= _IS_VETO:
                word |= VETO
            if i == starts[c + 1] - 1:
                word |= LAST
            if s < 0:
                rows[p] = word
                rows[p + 1] = lows[literal]
                rows[p + 2] = highs[literal] - lows[literal]
                p += 3
                continue
            rows[p] = word | SET
            rows[p + 1] = set_starts[s + 1] - set_starts[s]
            p += 2
            for j in range(set_starts[s], set_starts[s + 1]):
                rows[p] = set_lows[j]
                rows[p + 1] = set_highs[j] - set_lows[j]
                p += 2
    return rows


@kernel
def lay_trees(
    piece_clauses: NDArray[np.int32],
    piece_attributes: NDArray[np.int32],
    piece_lows: NDArray[np.int32],
    piece_highs: NDArray[np.int32],
    is_tree: NDArray[np.bool_],
    cut_starts: NDArray[np.int64],
    cuts: NDArray[np.int32],
) -> Any:
    """Return (node_bases, node_starts, entry_clauses): a piece is posted at the fewest nodes that make it up.

    The tree of attribute a is a heap at node_bases[a], its leaves are the ordinals of the attribute.
    """
    n_attributes = len(is_tree)
    node_bases = np.zeros(n_attributes + 1, dtype=np.int64)
    for a in range(n_attributes):
        size = 0
        if is_tree[a]:
            size = 1
            while size < cut_starts[a + 1] - cut_starts[a] + 1:
                size *= 2
        node_bases[a + 1] = node_bases[a] + 2 * size
    node_starts = np.zeros(node_bases[n_attributes] + 2, dtype=np.int32)
    entry_clauses = np.empty(0, dtype=np.int32)
    # First the entries of each node are counted, two places behind; then they are filled in, which moves the starts.
    for is_filling in range(2):
        for i in range(len(piece_clauses)):
            a = piece_attributes[i]
            if not is_tree[a]:
                continue
            base = node_bases[a]
            size = (node_bases[a + 1] - base) >> 1
            low = ordinal_of(a, piece_lows[i], cut_starts, cuts) + size
            high = ordinal_of(a, piece_highs[i], cut_starts, cuts) + size + 1
            while low < high:
                for side in range(2):
                    if side == 0 and low & 1:
                        node = base + low
                        low += 1
                    elif side == 1 and high & 1:
                        high -= 1
                        node = base + high
                    else:
                        continue
                    if is_filling:
                        entry_clauses[node_starts[node + 1]] = piece_clauses[i]
                        node_starts[node + 1] += 1
                    else:
                        node_starts[node + 2] += 1
                low >>= 1
                high >>= 1
        if not is_filling:
            for node in range(1, len(node_starts)):
                node_starts[node] += node_starts[node - 1]
            entry_clauses = np.empty(node_starts[len(node_starts) - 1], dtype=np.int32)
    return node_bases, node_starts, entry_clauses


@kernel
def fill_entries(
    entry_clauses: NDArray[np.int32],
    seconds: NDArray[np.int64],
    thirds: NDArray[np.int64],
    row_starts: NDArray[np.int32],
    slots: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    cut_starts: NDArray[np.int64],
    cuts: NDArray[np.int32],
    hot: NDArray[Any],
    cold: NDArray[np.int32],
) -> None:
    """Fill in what the entries of the trees carry."""
    for e in range(len(entry_clauses)):
        c = entry_clauses[e]
        hot[e, 0] = 0
        hot[e, 1] = 0
        hot[e, 2] = 0
        hot[e, 3] = 0
        cold[e, 0] = 0
        cold[e, 1] = 0
        second = seconds[c]
        if second >= 0:
            a = attributes[second]
            low = ordinal_of(a, lows[second], cut_starts, cuts)
            hot[e, 0] = a + 1
            hot[e, 1] = low
            hot[e, 2] = ordinal_of(a, highs[second], cut_starts, cuts) - low
        third = thirds[c]
        if third >= 0:
            hot[e, 3] = attributes[third] + 1
            cold[e, 0] = lows[third]
            cold[e, 1] = highs[third] - lows[third]
        cold[e, 2] = slots[c] if is_exact[c] else slots[c] | INEXACT
        cold[e, 3] = row_starts[c]


@kernel
def lay_blocks(
    piece_clauses: NDArray[np.int32],
    piece_attributes: NDArray[np.int32],
    piece_lows: NDArray[np.int32],
    piece_highs: NDArray[np.int32],
    is_tree: NDArray[np.bool_],
    n_pieces: NDArray[np.int64],
    seconds: NDArray[np.int64],
    row_starts: NDArray[np.int32],
    slots: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
) -> Any:
    """Return (blocks, flat): where the block of each attribute starts, and all blocks, each on a cache line of its own.

    A block is its number of entries, a signature for each, and the columns, each contiguous.
    """
    n_attributes = len(is_tree)
    blocks = np.full(n_attributes, -1, dtype=np.int32)
    n_words = 0
    for a in range(n_attributes):
        if n_pieces[a] > 0 and not is_tree[a]:
            blocks[a] = n_words
            n_words += 1 + (n_pieces[a] + 1) // 2 + FLAT_COLUMNS * n_pieces[a]
            n_words = (n_words + 15) // 16 * 16
    flat = np.zeros(n_words, dtype=np.int32)
    signatures = flat.view(np.uint16)
    for i in range(len(piece_clauses)):
        a = piece_attributes[i]
        if is_tree[a]:
            continue
        c = piece_clauses[i]
        n = n_pieces[a]
        block = blocks[a]
        k = flat[block]
        flat[block] += 1
        column = block + 1 + (n + 1) // 2 + k
        second = seconds[c]
        signatures[2 * (block + 1) + k] = ALWAYS if second < 0 else signature(attributes[second] + 1)
        flat[column + LOW1 * n] = piece_lows[i]
        flat[column + WIDTH1 * n] = piece_highs[i] - piece_lows[i]
        if second >= 0:
            flat[column + PLACE2 * n] = attributes[second] + 1
            flat[column + LOW2 * n] = lows[second]
            flat[column + WIDTH2 * n] = highs[second] - lows[second]
        flat[column + SLOT * n] = slots[c] if is_exact[c] else slots[c] | INEXACT
        flat[column + ROW * n] = row_starts[c]
        flat[column + CLAUSE * n] = c
    return blocks, flat
