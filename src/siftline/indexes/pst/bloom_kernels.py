"""PSTBloom: postings and signatures of the leaves, and matching one event by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.codes import VETO
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.literals import Literals, spread_event
from siftline.kernels.pointers import arrays_at
from siftline.kernels.spaces import space_of
from siftline.kernels.verify import clause_holds, clear_event

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A posting: the clause, then attribute + 1 of its signed predicates; 0, which every event has, where there are fewer.
N_SIGNED = 3
STRIDE = 4
# How many postings are tested for absent attributes before the signatures of the survivors.
_BLOCK = 1024
# How many clauses are read ahead before they are verified.
_PREFETCHED_CLAUSES = 64
_LINE = 8  # words in a cache line

_ABSENT = np.int64(-1)
_ALWAYS = np.int64(0)
_NEVER = np.int64(-(2**63))
_SIZE = np.int64(63)  # the low bits of a signature's place: the logarithm of its size
_ONE = np.uint64(1)
_FULL = np.uint64(0xFFFFFFFFFFFFFFFF)


class BloomArrays(NamedTuple):
    """The arrays of one part; see `indexes/pst/bloom.py`."""

    leaf_starts: NDArray[np.int64]
    cuts: NDArray[np.int32]
    posting_starts: NDArray[np.int64]
    entries: NDArray[np.int32]
    signature_places: NDArray[np.int64]
    signatures: NDArray[np.uint64]


class Ordered(NamedTuple):
    """The literals of clauses, those of each in order of selectivity, and the leaves that each covers."""

    starts: NDArray[np.int64]  # by clause, in `order`
    order: NDArray[np.int64]
    attributes: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    piece_starts: NDArray[np.int64]  # by literal: the runs of leaves that it covers
    firsts: NDArray[np.int32]  # the first leaf of a run
    lasts: NDArray[np.int32]


@kernel
def count_postings(chosen: NDArray[np.int32], ordered: Ordered, n_leaves: int) -> Any:
    """Return where the postings of each leaf start: every clause is posted in all leaves of its first literal."""
    starts, order, piece_starts = ordered.starts, ordered.order, ordered.piece_starts
    firsts, lasts = ordered.firsts, ordered.lasts
    counts = np.zeros(n_leaves + 1, dtype=np.int64)  # first as differences from leaf to leaf
    for c in chosen:
        access = order[starts[c]]
        for p in range(piece_starts[access], piece_starts[access + 1]):
            counts[firsts[p]] += 1
            counts[lasts[p] + 1] -= 1
    n = 0
    total = 0
    for leaf in range(n_leaves + 1):
        n += counts[leaf]
        counts[leaf] = total
        total += n
    return counts


@kernel
def fill_postings(
    chosen: NDArray[np.int32],
    ordered: Ordered,
    posting_starts: NDArray[np.int64],
    entries: NDArray[np.int32],
) -> None:
    """Write the postings, leaf by leaf, clauses ascending."""
    starts, order, attributes, kinds = ordered.starts, ordered.order, ordered.attributes, ordered.kinds
    piece_starts, firsts, lasts = ordered.piece_starts, ordered.firsts, ordered.lasts
    places = posting_starts * STRIDE
    named = np.empty(N_SIGNED, dtype=np.int32)
    for c in chosen:
        access = order[starts[c]]
        for k in range(N_SIGNED):
            i = starts[c] + 1 + k
            is_signed = i < starts[c + 1] and kinds[order[i]] < VETO
            named[k] = attributes[order[i]] + 1 if is_signed else 0
        for p in range(piece_starts[access], piece_starts[access + 1]):
            for leaf in range(firsts[p], lasts[p] + 1):
                place = np.uint64(places[leaf])
                places[leaf] += STRIDE
                entries[place] = c
                for k in range(N_SIGNED):
                    entries[place + np.uint64(1 + k)] = named[k]


@kernel
def count_signed(
    chosen: NDArray[np.int32],
    ordered: Ordered,
    n_attributes: int,
) -> Any:
    """Return, per attribute, the pieces of signed literals and how many leaves they cover in all."""
    starts, order, attributes, kinds = ordered.starts, ordered.order, ordered.attributes, ordered.kinds
    piece_starts, firsts, lasts = ordered.piece_starts, ordered.firsts, ordered.lasts
    n_pieces = np.zeros(n_attributes, dtype=np.int64)
    n_covered = np.zeros(n_attributes, dtype=np.int64)
    for c in chosen:
        for place in range(starts[c] + 1, min(starts[c] + 1 + N_SIGNED, starts[c + 1])):
            i = order[place]
            if kinds[i] >= VETO:
                break
            for p in range(piece_starts[i], piece_starts[i + 1]):
                n_pieces[attributes[i]] += 1
                n_covered[attributes[i]] += lasts[p] - firsts[p] + 1
    return n_pieces, n_covered


@kernel
def group_signed(
    chosen: NDArray[np.int32],
    ordered: Ordered,
    group_starts: NDArray[np.int64],
    grouped: NDArray[np.int32],
) -> None:
    """Write the pieces of signed literals by attribute: clause, first leaf, last leaf."""
    starts, order, attributes, kinds = ordered.starts, ordered.order, ordered.attributes, ordered.kinds
    piece_starts, firsts, lasts = ordered.piece_starts, ordered.firsts, ordered.lasts
    places = group_starts.copy()
    for c in chosen:
        for place in range(starts[c] + 1, min(starts[c] + 1 + N_SIGNED, starts[c + 1])):
            i = order[place]
            if kinds[i] >= VETO:
                break
            for p in range(piece_starts[i], piece_starts[i + 1]):
                g = np.uint64(places[attributes[i]])
                places[attributes[i]] += 1
                grouped[g, 0] = c
                grouped[g, 1] = firsts[p]
                grouped[g, 2] = lasts[p]


@inline_kernel
def _set_run(rows: NDArray[np.uint64], row: int, first: int, last: int) -> None:
    """Set the bits first .. last of a row of words."""
    word = row + (first >> 6)
    end = row + (last >> 6)
    head = _FULL << np.uint64(first & 63)
    tail = _FULL >> np.uint64(63 - (last & 63))
    if word == end:
        rows[word] |= head & tail
        return
    rows[word] |= head
    for k in range(word + 1, end):
        rows[k] = _FULL
    rows[end] |= tail


@inline_kernel
def _transpose(block: NDArray[np.uint64]) -> None:
    """Transpose 64 x 64 bits: quadrants change places, then the quadrants inside of them, and so on."""
    width = 32
    mask = _FULL >> np.uint64(32)
    while width:
        shift = np.uint64(width)
        for base in range(0, 64, 2 * width):
            for k in range(base, base + width):
                swapped = ((block[k] >> shift) ^ block[k + width]) & mask
                block[k] ^= swapped << shift
                block[k + width] ^= swapped
        width >>= 1
        mask ^= mask << np.uint64(width)


@kernel
def fill_signatures(
    group_starts: NDArray[np.int64],
    grouped: NDArray[np.int32],
    leaf_starts: NDArray[np.int64],
    signature_places: NDArray[np.int64],
    signatures: NDArray[np.uint64],
) -> None:
    """Write the signatures of all leaves.

    A clause enters many neighbouring leaves at the same bit: a run, when the bits of all leaves stand side by side. So
    an attribute is filled that way and transposed in blocks afterwards.
    """
    signatures[0] = _FULL
    block = np.empty(64, dtype=np.uint64)
    lines = np.empty(64 * _LINE, dtype=np.uint64)
    rows = np.empty(0, dtype=np.uint64)
    for a in range(len(signature_places)):
        size = signature_places[a] & _SIZE
        if size == 0:
            continue
        first_leaf, n_leaves = leaf_starts[a], leaf_starts[a + 1] - leaf_starts[a]
        n_row_words = (n_leaves + 63) >> 6
        n_rows = 1 << size
        if len(rows) < n_rows * n_row_words:
            rows = np.empty(n_rows * n_row_words, dtype=np.uint64)
        rows[: n_rows * n_row_words] = 0
        for g in range(group_starts[a], group_starts[a + 1]):
            row = (grouped[g, 0] & (n_rows - 1)) * n_row_words
            _set_run(rows, row, grouped[g, 1] - first_leaf, grouped[g, 2] - first_leaf)
        _turn(rows, n_rows, n_row_words, n_leaves, block, lines, signatures, signature_places[a] >> 6)


@inline_kernel
def _turn(
    rows: NDArray[np.uint64],
    n_rows: int,
    n_row_words: int,
    n_leaves: int,
    block: NDArray[np.uint64],
    lines: NDArray[np.uint64],
    signatures: NDArray[np.uint64],
    start: int,
) -> None:
    """Turn rows of one bit a leaf into one signature after the other, a cache line of each signature at a time."""
    n_words = n_rows >> 6
    n_line_words = min(n_words, _LINE)
    for w in range(n_row_words):
        n = min(64, n_leaves - w * 64)
        for s in range(0, n_words, n_line_words):
            for t in range(n_line_words):
                for k in range(64):
                    block[k] = rows[np.uint64(((s + t) * 64 + k) * n_row_words + w)]
                _transpose(block)
                for k in range(n):
                    lines[np.uint64(k * n_line_words + t)] = block[k]
            for k in range(n):
                place = start + (w * 64 + k) * n_words + s
                for t in range(n_line_words):
                    signatures[np.uint64(place + t)] = lines[np.uint64(k * n_line_words + t)]


@inline_kernel
def _has_signed(signatures: NDArray[np.uint64], place: int, clause: Any) -> Any:
    """Return whether the signature at a place may contain a clause; without a signature (place 0) it may."""
    bit = clause & ((np.int64(1) << (place & _SIZE)) - 1)
    word = signatures[np.uint64((place >> 6) + (bit >> 6))]
    return (word >> np.uint64(bit & 63)) & _ONE != 0


@inline_kernel
def _locate(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    leaves: NDArray[np.int64],
    places: NDArray[np.int64],
    arrays: BloomArrays,
) -> Any:
    """Find the leaf of each value and the place of its signature; return how many candidates the leaves have."""
    leaf_starts, posting_starts = arrays.leaf_starts, arrays.posting_starts
    n_candidates = 0
    places[0] = _ALWAYS
    for p in range(len(event_attributes)):
        a = event_attributes[p]
        leaf = space_of(a, event_codes[p], leaf_starts, arrays.cuts)
        leaves[p] = leaf
        if leaf < 0:  # no predicate covers this value
            continue
        n_candidates += posting_starts[leaf + 1] - posting_starts[leaf]
        place = arrays.signature_places[a]
        if place != _ALWAYS:
            place += (leaf - leaf_starts[a]) << (place & _SIZE)
        # With several values, the signature of one of them would not be enough: the exact check decides.
        places[a + 1] = place if places[a + 1] == _ABSENT else _ALWAYS
    return n_candidates


@inline_kernel
def _filter_postings(
    leaves: NDArray[np.int64],
    places: NDArray[np.int64],
    arrays: BloomArrays,
    left: NDArray[np.int32],
) -> Any:
    """Write the candidates that have all named attributes and pass all signatures.

    Returns how many have the attributes, and how many are left. There is no branch on what is read: many would be
    mispredicted, and then cache misses would wait for each other.
    """
    posting_starts, entries, signatures = arrays.posting_starts, arrays.entries, arrays.signatures
    n_left, n_present = 0, 0
    for p in range(len(leaves)):
        if leaves[p] < 0:
            continue
        end = posting_starts[leaves[p] + 1]
        for block in range(posting_starts[leaves[p]], end, _BLOCK):
            # The postings with all attributes are kept where clauses are written later.
            n = 0
            for e in range(block, min(block + _BLOCK, end)):
                entry = np.uint64(e * STRIDE)
                # An absent attribute is negative.
                either = places[entries[entry + np.uint64(1)]] | places[entries[entry + np.uint64(2)]]
                either |= places[entries[entry + np.uint64(3)]]
                left[n_left + n] = e - block
                n += either >= 0
            n_present += n
            first = n_left
            for s in range(n):  # PS-Tree Alg. 5, l. 8-13
                entry = np.uint64((block + left[first + s]) * STRIDE)
                clause = np.int64(entries[entry])
                is_in = _has_signed(signatures, places[entries[entry + np.uint64(1)]], clause)
                is_in &= _has_signed(signatures, places[entries[entry + np.uint64(2)]], clause)
                is_in &= _has_signed(signatures, places[entries[entry + np.uint64(3)]], clause)
                left[n_left] = clause
                n_left += is_in
    return n_present, n_left


@inline_kernel
def verify_found(
    found: NDArray[np.int32],
    n: int,
    dense: NDArray[np.int32],
    codes: NDArray[np.int32],
    following: NDArray[np.int32],
    literals: Literals,
) -> Any:
    """Keep those of the first n clauses that hold; return how many, and how many literals were tested."""
    n_found, n_tested = 0, 0
    read = 0
    for block in range(0, n, _PREFETCHED_CLAUSES):
        end = min(block + _PREFETCHED_CLAUSES, n)
        # Read ahead: without a branch in between, the cache misses of all clauses overlap.
        for k in range(block, end):
            i = literals.starts[found[k]]
            read += (
                literals.attributes[i]
                + literals.lows[i]
                + literals.highs[i]
                + literals.kinds[i]
                + literals.sets[i]
                + literals.is_alternative[i]
            )
        for k in range(block, end):
            clause = found[k]
            holds, n_more = clause_holds(clause, dense, codes, following, literals)
            n_tested += n_more
            found[n_found] = clause
            n_found += holds
    # Never true; it keeps the compiler from dropping what was read ahead.
    return n_found, n_tested if read != _NEVER else 0


@kernel
def match_bloom(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    dense: NDArray[np.int32],
    places: NDArray[np.int64],
    part_literals: NDArray[np.int64],
    part: NDArray[np.int64],
) -> Any:
    """Return (clauses that hold, candidates, those with all named attributes, those verified, literals tested).

    The part and its literals come as handles (see `kernels/pointers.py`).
    """
    literals, arrays = arrays_at(part_literals, Literals), arrays_at(part, BloomArrays)
    n_values = len(event_attributes)
    following = np.empty(n_values, dtype=np.int32)
    leaves = np.empty(n_values, dtype=np.int64)
    spread_event(event_attributes, event_codes, dense, following)
    n_candidates = _locate(event_attributes, event_codes, leaves, places, arrays)  # PS-Tree Alg. 5, l. 1-4
    # One more, because a clause is written before its test.
    found = np.empty(n_candidates + 1, dtype=np.int32)
    n_present, n_left = _filter_postings(leaves, places, arrays, found)
    n_found, n_tested = verify_found(found, n_left, dense, event_codes, following, literals)
    places[0] = _ABSENT
    for p in range(n_values):
        if leaves[p] >= 0:
            places[event_attributes[p] + 1] = _ABSENT
    clear_event(event_attributes, dense)
    return found[:n_found].copy(), n_candidates, n_present, n_left, n_tested
