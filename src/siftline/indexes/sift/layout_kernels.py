"""Laying out a part of `sift`: where each clause is posted, and what the posting contains.

`index.py` has the drawing. The row of a clause in trees is its slot and a few words for each literal; the row of a
clause in a block has no slot:

    place | LAST | VETO, low, width                          a range
    place | SET | LAST | VETO, n, low, width, low, width ... n ranges
    place | BITS | LAST | VETO, low half, high half          a set of ordinals, where an attribute has at most 64

A row gets no more literals once it fills two cache lines, because nearly every candidate that passes so many literals
matches. Then the slot has the flag MORE, and the number of the clause follows it: a candidate that passes the row is
tested by all literals of the clause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.indexes.sift.vectors import N_COLUMNS
from siftline.kernels.codes import VETO as IS_VETO
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.growing import with_room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.indexes.sift.arrays import Cuts
    from siftline.kernels.literals import Literals

LAST = np.int32(1 << 30)
SET = np.int32(1 << 29)
VETO = np.int32(1 << 28)
BITS = np.int32(1 << 27)
PLACE = np.int32((1 << 27) - 1)

# Flags of a slot: its clause needs the exact check; its row has no literals; its row lacks some literals.
INEXACT = np.int32(-(2**31))
BARE = np.int32(1 << 30)
MORE = np.int32(1 << 29)
FLAGGED = INEXACT | BARE | MORE
N_SLOTS = 1 << 29

# A row with this many words gets no more literals.
FULL_ROW = 30


# Words of an entry's record in a block.
RECORD = 8
LOW1, WIDTH1, PLACE2, LOW2, WIDTH2, SLOT, ROW, CLAUSE = range(RECORD)
# Words on a cache line.
LINE = 16

# Into how many parts marks divide the ordinals of an attribute.
N_MARKS = 16
# An attribute with at most this many ordinals has its sets as bits; with more, a set is a list of ranges.
MOST_BITS = 64

# The signature of an entry that has no second literal; every event has it.
ALWAYS = np.uint16(65_535)

# Words of a guide before its counts.
_GUIDE_HEAD = 2
# A gap between two cuts is wide if it is more than a fourth of what all cuts span; at most eight cuts at either end are
# left out for such a gap.
_FAR = 4
_N_FAR = 8

# Size of the hash table that filters repeated ranges, as a power of two.
_SEEN_BITS = 16
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Pieces(NamedTuple):
    """The ranges under which clauses are posted: a set has several."""

    clauses: NDArray[np.int32]
    attributes: NDArray[np.int32]
    lows: NDArray[np.int32]
    highs: NDArray[np.int32]


class Marks(NamedTuple):
    """What entries say about one literal of each clause."""

    lanes: NDArray[np.uint8]
    marks: NDArray[np.uint16]
    decides: NDArray[np.bool_]  # the marks alone decide the literal


class Shape(NamedTuple):
    """What decides which literals of a clause are in its row."""

    is_in_tree: NDArray[np.bool_]  # by clause
    is_few: NDArray[np.bool_]  # by attribute: it has at most MOST_BITS ordinals
    is_implied: NDArray[np.bool_]  # by clause: the place of the posting implies the access literal
    seconds: NDArray[np.int64]  # by clause: the literals in the posting, -1 for none
    thirds: NDArray[np.int64]
    is_second_decided: NDArray[np.bool_]  # by clause: the posting decides that literal
    is_third_decided: NDArray[np.bool_]
    order: NDArray[np.int64]  # the literals of each clause, rarest first


@inline_kernel
def records_at(block: Any, n: Any) -> Any:
    """Return where the records of a block of n entries start: after the signatures, two records to a cache line."""
    return (block + 1 + ((n + 1) >> 1) + RECORD - 1) // RECORD * RECORD


@inline_kernel
def block_of(attribute: Any, blocks: NDArray[np.int32]) -> Any:
    """Return where the block of an attribute starts, -1 if it has none."""
    return blocks[np.uint64(attribute)] if attribute < len(blocks) else np.int32(-1)


@inline_kernel
def signature(place: int) -> Any:
    """Return 16 bits, never ALWAYS, for an attribute's place."""
    return np.uint16((np.uint64(place) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) % np.uint64(65_535))


@kernel
def _without_far(first: int, last: int, cuts: NDArray[np.int32]) -> Any:
    """Return the first and the last of some cuts, without the few at either end that are far from the rest."""
    is_changed = True
    while is_changed:
        is_changed = False
        span = np.int64(cuts[last]) - np.int64(cuts[first])
        for k in range(min(_N_FAR, last - first)):
            if _FAR * (np.int64(cuts[first + k + 1]) - np.int64(cuts[first + k])) > span:
                first += k + 1
                is_changed = True
                break
            if _FAR * (np.int64(cuts[last - k]) - np.int64(cuts[last - k - 1])) > span:
                last -= k + 1
                is_changed = True
                break
    return first, last


@kernel
def lay_guides(cut_starts: NDArray[np.int64], cuts: NDArray[np.int32]) -> Any:
    """Return (guide_bases, guides): how many cuts of an attribute lie below each of evenly spaced codes.

    A guide has the binary logarithm of the spacing, the first of the spaced codes, and the counts: 0, the number of
    cuts below each code, and the number of all cuts. It has about twice as many counts as there are cuts. Constants
    that were loaded together have evenly spaced codes, so few cuts are left to search. But a range without a lower or
    upper bound has a cut far away from all others. The spacing ignores a few such cuts; otherwise all others would lie
    below one code.
    """
    n_attributes = len(cut_starts) - 1
    guide_bases = np.zeros(n_attributes + 1, dtype=np.int64)
    firsts = np.zeros(n_attributes, dtype=np.int64)
    shifts = np.zeros(n_attributes, dtype=np.int32)
    for a in range(n_attributes):
        n = cut_starts[a + 1] - cut_starts[a]
        guide_bases[a + 1] = guide_bases[a]
        if n > 0:
            first, last = _without_far(cut_starts[a], cut_starts[a + 1] - 1, cuts)
            span = np.int64(cuts[last]) - np.int64(cuts[first])
            while (span >> shifts[a]) > 2 * n:
                shifts[a] += 1
            firsts[a] = first
            guide_bases[a + 1] += _GUIDE_HEAD + 3 + (span >> shifts[a])
    guides = np.empty(guide_bases[n_attributes], dtype=np.int32)
    for a in range(n_attributes):
        begin, end = cut_starts[a], cut_starts[a + 1]
        if begin == end:
            continue
        first_number = guide_bases[a] + _GUIDE_HEAD
        n_numbers = guide_bases[a + 1] - first_number
        origin = np.int64(cuts[firsts[a]])
        guides[guide_bases[a]] = shifts[a]
        guides[guide_bases[a] + 1] = origin
        guides[first_number] = 0
        n_below = np.int64(0)
        for bucket in range(n_numbers - 2):
            while begin + n_below < end and (np.int64(cuts[begin + n_below]) - origin) >> shifts[a] < bucket:
                n_below += 1
            guides[first_number + 1 + bucket] = n_below
        guides[first_number + n_numbers - 1] = end - begin
    return guide_bases, guides


@inline_kernel
def guide_of(attribute: Any, code: Any, cuts: Any) -> Any:
    """Return the place in the guide of an attribute where the count for a code is."""
    base = np.uint64(cuts.guide_bases[np.uint64(attribute)])
    n_places = np.int64(cuts.guide_bases[np.uint64(attribute) + np.uint64(1)]) - np.int64(base) - _GUIDE_HEAD - 1
    above = np.int64(code) - np.int64(cuts.guides[base + np.uint64(1)])
    place = np.uint64(min(max((above >> np.int64(cuts.guides[base])) + 1, np.int64(0)), n_places - 1))
    return base + np.uint64(_GUIDE_HEAD) + place


@inline_kernel
def ordinal_at(place: Any, attribute: Any, code: Any, cuts: Any) -> Any:
    """Return the number of cuts of an attribute that are not above the code; `place` is from `guide_of`."""
    begin = np.uint64(cuts.cut_starts[np.uint64(attribute)])
    low = np.uint64(cuts.guides[np.uint64(place)])
    high = np.uint64(cuts.guides[np.uint64(place) + np.uint64(1)])
    while low + np.uint64(2) < high:  # the first cut above the code
        middle = (low + high) >> np.uint64(1)
        if cuts.cuts[begin + middle] <= code:
            low = middle + np.uint64(1)
        else:
            high = middle
    # At most two cuts are left, nearly always from the start. No branch here: it could not be predicted.
    last = np.uint64(len(cuts.cuts)) - np.uint64(1)
    is_below = (low < high) & (cuts.cuts[min(begin + low, last)] <= code)
    is_next_below = (low + np.uint64(1) < high) & (cuts.cuts[min(begin + low + np.uint64(1), last)] <= code)
    return np.int64(low) + np.int64(is_below) + np.int64(is_next_below)


@inline_kernel
def guided_ordinal(attribute: Any, code: Any, cuts: Any) -> Any:
    """Return the number of cuts of an attribute that are not above the code; it must have some."""
    return ordinal_at(guide_of(attribute, code, cuts), attribute, code, cuts)


@kernel
def access_pieces(chosen: NDArray[np.int32], order: NDArray[np.int64], literals: Literals) -> Any:
    """Return (clause, attribute, low, high) of every range of the access literal of every chosen clause."""
    n = 0
    for k in range(len(chosen)):
        literal = order[literals.starts[chosen[k]]]
        n += (
            literals.set_starts[literals.sets[literal] + 1] - literals.set_starts[literals.sets[literal]]
            if literals.sets[literal] >= 0
            else 1
        )
    clauses = np.empty(n, dtype=np.int32)
    owners = np.empty(n, dtype=np.int32)
    first = np.empty(n, dtype=np.int32)
    last = np.empty(n, dtype=np.int32)
    n = 0
    for k in range(len(chosen)):
        literal = order[literals.starts[chosen[k]]]
        is_set = literals.sets[literal] >= 0
        begin = literals.set_starts[literals.sets[literal]] if is_set else np.int64(0)
        end = literals.set_starts[literals.sets[literal] + 1] if is_set else np.int64(1)
        for i in range(begin, end):
            clauses[n] = chosen[k]
            owners[n] = literals.attributes[literal]
            first[n] = literals.set_lows[i] if is_set else literals.lows[literal]
            last[n] = literals.set_highs[i] if is_set else literals.highs[literal]
            n += 1
    return clauses, owners, first, last


@inline_kernel
def mark_of(ordinal: Any, n_ordinals: Any) -> Any:
    """Return in which of the 16 parts of its attribute's ordinals an ordinal is; up to 16 ordinals have one each."""
    if n_ordinals <= N_MARKS:
        return np.uint32(ordinal)
    return np.uint32(ordinal) * np.uint32(N_MARKS) // np.uint32(n_ordinals)


@kernel
def beside_access(
    chosen: NDArray[np.int32],
    is_in_tree: NDArray[np.bool_],
    is_implied: NDArray[np.bool_],
    order: NDArray[np.int64],
    literals: Literals,
) -> Any:
    """Return (seconds, thirds): for each clause the literals in the posting, or -1.

    These are the first two literals that the place of the posting does not imply; a place in a tree implies the access
    literal, a pool implies nothing. Only clauses in trees have a third literal.
    """
    n_clauses = len(literals.starts) - 1
    seconds = np.full(n_clauses, -1, dtype=np.int64)
    thirds = np.full(n_clauses, -1, dtype=np.int64)
    for k in range(len(chosen)):
        c = chosen[k]
        first = literals.starts[c] + is_implied[c]
        n = literals.starts[c + 1] - first
        if n > 0 and literals.kinds[order[first]] < IS_VETO:
            seconds[c] = order[first]
            if is_in_tree[c] and n > 1 and literals.kinds[order[first + 1]] < IS_VETO:
                thirds[c] = order[first + 1]
    return seconds, thirds


@kernel
def ranges_in_trees(
    n_attributes: int,
    chosen: NDArray[np.int32],
    is_in_tree: NDArray[np.bool_],
    is_implied: NDArray[np.bool_],
    order: NDArray[np.int64],
    seconds: NDArray[np.int64],
    thirds: NDArray[np.int64],
    literals: Literals,
) -> Any:
    """Return (tests of each attribute, attributes, lows, highs) of the ranges that clauses in trees test by ordinal.

    These are the second and third literals and all sets, without implied access literals; most repeats are dropped.
    """
    counts = np.zeros(n_attributes, dtype=np.int64)
    owners = np.empty(1024, dtype=np.int32)
    first = np.empty(1024, dtype=np.int32)
    last = np.empty(1024, dtype=np.int32)
    seen_firsts = np.full(1 << _SEEN_BITS, np.int64(-1), dtype=np.int64)
    seen_lasts = np.full(1 << _SEEN_BITS, np.int32(-1), dtype=np.int32)
    n = 0
    for k in range(len(chosen)):
        c = chosen[k]
        if not is_in_tree[c]:
            continue
        for i in range(literals.starts[c] + is_implied[c], literals.starts[c + 1]):
            literal = order[i]
            s = literals.sets[literal]
            if s < 0 and literal != seconds[c] and literal != thirds[c]:
                continue
            begin = literals.set_starts[s] if s >= 0 else np.int64(0)
            end = literals.set_starts[s + 1] if s >= 0 else np.int64(1)
            counts[literals.attributes[literal]] += end - begin
            for j in range(begin, end):
                low = literals.set_lows[j] if s >= 0 else literals.lows[literal]
                high = literals.set_highs[j] if s >= 0 else literals.highs[literal]
                key = (np.int64(literals.attributes[literal]) << np.int64(32)) | np.int64(np.uint32(low))
                place = (np.uint64(key ^ (np.int64(high) << np.int64(20))) * _MIX) >> np.uint64(64 - _SEEN_BITS)
                if seen_firsts[place] == key and seen_lasts[place] == high:
                    continue
                seen_firsts[place] = key
                seen_lasts[place] = high
                if n == len(owners):
                    owners, first, last = with_room(owners, n, n), with_room(first, n, n), with_room(last, n, n)
                owners[n], first[n], last[n] = literals.attributes[literal], low, high
                n += 1
    return counts, owners[:n], first[:n], last[:n]


@kernel
def mark_literals(
    asked: NDArray[np.int64], lanes: NDArray[np.uint8], is_own: NDArray[np.bool_], literals: Literals, cuts: Cuts
) -> Any:
    """Return (lanes, marks, decides) for one literal of each clause; `decides` tells whether the marks decide it.

    A clause without the literal gets lane 0 with all marks, which every event has. `is_own` tells which attributes do
    not share their lane.
    """
    chosen = np.zeros(len(asked), dtype=np.uint8)
    marks = np.full(len(asked), 65_535, dtype=np.uint16)
    decides = np.ones(len(asked), dtype=np.bool_)
    for c in range(len(asked)):
        literal = asked[c]
        if literal < 0:
            continue
        a = literals.attributes[literal]
        s = literals.sets[literal]
        n_ordinals = cuts.cut_starts[a + 1] - cuts.cut_starts[a] + 1
        chosen[c] = lanes[a]
        decides[c] = is_own[a]
        mark = np.uint32(0)
        for j in range(literals.set_starts[s] if s >= 0 else 0, literals.set_starts[s + 1] if s >= 0 else 1):
            low = guided_ordinal(a, literals.set_lows[j] if s >= 0 else literals.lows[literal], cuts)
            high = guided_ordinal(a, literals.set_highs[j] if s >= 0 else literals.highs[literal], cuts)
            first, last = mark_of(low, n_ordinals), mark_of(high, n_ordinals)
            mark |= (np.uint32(2) << last) - (np.uint32(1) << first)
            if low > 0 and mark_of(low - 1, n_ordinals) == first:
                decides[c] = False
            if high + 1 < n_ordinals and mark_of(high + 1, n_ordinals) == last:
                decides[c] = False
        marks[c] = mark
    return chosen, marks, decides


@inline_kernel
def is_in_row(literal: Any, c: Any, shape: Shape) -> Any:
    """Return whether a literal that is not implied must be tested in the row."""
    if literal == shape.seconds[c]:
        return not shape.is_second_decided[c]
    return literal != shape.thirds[c] or not shape.is_third_decided[c]


@inline_kernel
def flagged(slot: Any, is_exact: Any, is_bare: Any, has_more: Any) -> Any:
    """Return a slot with its flags."""
    if not is_exact:
        slot |= INEXACT
    if is_bare:
        slot |= BARE
    return slot | MORE if has_more else slot


@inline_kernel
def words_of(literal: Any, is_by_bits: Any, literals: Literals) -> Any:
    """Return how many words of a row a literal takes."""
    s = literals.sets[literal]
    return np.int64(3) if s < 0 or is_by_bits else 2 + 2 * (literals.set_starts[s + 1] - literals.set_starts[s])


@inline_kernel
def list_row(c: Any, found: NDArray[np.int64], shape: Shape, literals: Literals) -> Any:
    """Write the literals of a row to `found`, those of the posting last, because marks reject most failures.

    Returns (how many literals, how many words the row has, whether literals are left out).
    """
    n_found = np.int64(0)
    n_words = np.int64(shape.is_in_tree[c])
    first = literals.starts[c] + shape.is_implied[c]
    for is_beside in range(2):
        # The second and third literals are the first ones that are not implied.
        end = min(first + 2, literals.starts[c + 1]) if is_beside else literals.starts[c + 1]
        for i in range(first, end):
            literal = shape.order[np.uint64(i)]
            if (literal == shape.seconds[c] or literal == shape.thirds[c]) != (is_beside == 1):
                continue
            if not is_in_row(literal, c, shape):
                continue
            if n_words >= FULL_ROW:
                return n_found, n_words + shape.is_in_tree[c], True
            found[n_found] = literal
            n_found += 1
            n_words += words_of(literal, shape.is_in_tree[c] and shape.is_few[literals.attributes[literal]], literals)
    return n_found, n_words, False


@kernel
def measure_rows(ordered: NDArray[np.int32], n_clauses: int, shape: Shape, literals: Literals) -> Any:
    """Return where the row of each clause starts, -1 without a row, and last the number of all words.

    `ordered` has the clauses in the order of their rows. No row crosses more cache lines than it must.
    """
    sizes = np.zeros(n_clauses, dtype=np.int32)
    found = np.empty(FULL_ROW, dtype=np.int64)
    for c in range(n_clauses):
        _, sizes[c], _ = list_row(c, found, shape, literals)
    row_starts = np.full(n_clauses + 1, -1, dtype=np.int64)
    n_words = np.int64(0)
    for k in range(len(ordered)):
        n = sizes[ordered[k]]
        if n > 0:
            on_line = n_words % LINE
            if (on_line + n - 1) // LINE > (n - 1) // LINE:
                n_words += LINE - on_line
            row_starts[ordered[k]] = n_words
            n_words += n
    row_starts[n_clauses] = n_words
    return row_starts


@kernel
def lay_rows(
    row_starts: NDArray[np.int32],
    slots: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    rows: NDArray[np.int32],
    shape: Shape,
    literals: Literals,
    cuts: Cuts,
) -> NDArray[np.bool_]:
    """Write the rows, with the literals that postings do not decide; return which clauses have all of them there."""
    has_all = np.ones(len(slots), dtype=np.bool_)
    found = np.empty(FULL_ROW, dtype=np.int64)
    for c in range(len(slots)):
        p = np.int64(row_starts[c])
        if p < 0:
            continue
        n_found, _, has_more = list_row(c, found, shape, literals)
        if shape.is_in_tree[c]:
            rows[p] = flagged(slots[c], is_exact[c], n_found == 0, has_more)
            p += 1
            if has_more:
                rows[p] = c
                p += 1
        last = p
        for k in range(n_found):
            last = p
            literal = np.uint64(found[k])
            s = literals.sets[literal]
            a = literals.attributes[literal]
            word = a + np.int32(1)
            if literals.kinds[literal] >= IS_VETO:
                word |= VETO
            if s < 0:
                rows[np.uint64(p)] = word
                rows[np.uint64(p + 1)] = literals.lows[literal]
                rows[np.uint64(p + 2)] = literals.highs[literal] - literals.lows[literal]
                p += 3
            elif shape.is_in_tree[c] and shape.is_few[a]:
                bits = np.uint64(0)
                for j in range(literals.set_starts[s], literals.set_starts[s + 1]):
                    first = np.uint64(guided_ordinal(a, literals.set_lows[j], cuts))
                    final = np.uint64(guided_ordinal(a, literals.set_highs[j], cuts))
                    bits |= (np.uint64(2) << final) - (np.uint64(1) << first)
                rows[p] = word | BITS
                rows[p + 1] = np.int32(np.uint32(bits & np.uint64(0xFFFFFFFF)))
                rows[p + 2] = np.int32(np.uint32(bits >> np.uint64(32)))
                p += 3
            else:
                rows[p] = word | SET
                rows[p + 1] = literals.set_starts[s + 1] - literals.set_starts[s]
                p += 2
                for j in range(literals.set_starts[s], literals.set_starts[s + 1]):
                    rows[p] = literals.set_lows[j]
                    rows[p + 1] = literals.set_highs[j] - literals.set_lows[j]
                    p += 2
        has_all[c] = not has_more
        if n_found > 0:
            rows[last] |= LAST
    return has_all


@kernel
def lay_nodes(is_tree: NDArray[np.bool_], is_pool: NDArray[np.bool_], cut_starts: NDArray[np.int64]) -> Any:
    """Return where the tree of each attribute starts: a heap whose leaves are the ordinals of the attribute.

    The heap of a pool has one node.
    """
    n_attributes = len(is_tree)
    node_bases = np.zeros(n_attributes + 1, dtype=np.int64)
    for a in range(n_attributes):
        size = 0
        if is_tree[a]:
            size = 1
            while not is_pool[a] and size < cut_starts[a + 1] - cut_starts[a] + 1:
                size *= 2
        node_bases[a + 1] = node_bases[a] + 2 * size
    return node_bases


@inline_kernel
def leaf_of(ordinal: Any, size: Any) -> Any:
    """Return the leaf of an ordinal in a heap with this many leaves; a pool has one leaf for all."""
    return ordinal + size if ordinal < size else size


@kernel
def lay_trees(pieces: Pieces, node_bases: NDArray[np.int64], cuts: Cuts) -> Any:
    """Return (node_starts, entry_clauses): a piece is posted at the fewest nodes that cover it exactly."""
    node_starts = np.zeros(node_bases[len(node_bases) - 1] + 2, dtype=np.int32)
    entry_clauses = np.empty(0, dtype=np.int32)
    # The first pass counts the entries of each node, two places further on; the second writes them, which moves the
    # starts.
    for is_filling in range(2):
        for i in range(len(pieces.clauses)):
            a = pieces.attributes[i]
            base = node_bases[a]
            size = (node_bases[a + 1] - base) >> 1
            low = leaf_of(guided_ordinal(a, pieces.lows[i], cuts), size)
            high = leaf_of(guided_ordinal(a, pieces.highs[i], cuts), size) + 1
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
                        entry_clauses[node_starts[node + 1]] = pieces.clauses[i]
                        node_starts[node + 1] += 1
                    else:
                        node_starts[node + 2] += 1
                low >>= 1
                high >>= 1
        if not is_filling:
            for node in range(1, len(node_starts)):
                node_starts[node] += node_starts[node - 1]
            entry_clauses = np.empty(node_starts[len(node_starts) - 1], dtype=np.int32)
    return node_starts, entry_clauses


@kernel
def by_entry(entries: NDArray[np.int32], chosen: NDArray[np.int32], n_clauses: int) -> NDArray[np.int32]:
    """Return the chosen clauses in the order of their first entries in trees, then those without entries.

    With rows in this order, the rows of one list are on few pages of memory.
    """
    ordered = np.empty(len(chosen), dtype=np.int32)
    is_placed = np.zeros(n_clauses, dtype=np.bool_)
    n = 0
    for each in (entries, chosen):
        for k in range(len(each)):
            if not is_placed[each[k]]:
                is_placed[each[k]] = True
                ordered[n] = each[k]
                n += 1
    return ordered


@kernel
def lay_rises(
    node_bases: NDArray[np.int64], node_starts: NDArray[np.int32], alone_starts: NDArray[np.int32]
) -> NDArray[np.uint8]:
    """Return for every node how many levels above it the next node with entries is; past the root if none has."""
    rises = np.ones(len(node_starts), dtype=np.uint8)
    for a in range(len(node_bases) - 1):
        base = node_bases[a]
        for node in range(2, node_bases[a + 1] - base):
            parent = base + (node >> 1)
            has_entries = node_starts[parent + 1] > node_starts[parent]
            if len(alone_starts) > 0:
                has_entries |= alone_starts[parent + 1] > alone_starts[parent]
            if not has_entries:
                rises[base + node] = rises[parent] + 1
    return rises


@kernel
def lay_marked(
    node_starts: NDArray[np.int32], entries: NDArray[np.int32], second: Marks, third: Marks, marked: NDArray[np.uint8]
) -> None:
    """Write lanes and marks of all entries, as six columns for each list; see `vectors.py`."""
    for node in range(len(node_starts) - 1):
        begin = np.int64(node_starts[node])
        n = node_starts[node + 1] - begin
        for i in range(n):
            c = entries[begin + i]
            p = N_COLUMNS * begin + i
            marked[p] = second.lanes[c]
            marked[p + n] = second.marks[c] & 255
            marked[p + 2 * n] = second.marks[c] >> 8
            marked[p + 3 * n] = third.lanes[c]
            marked[p + 4 * n] = third.marks[c] & 255
            marked[p + 5 * n] = third.marks[c] >> 8


@kernel
def place_blocks(is_tree: NDArray[np.bool_], n_pieces: NDArray[np.int64]) -> Any:
    """Return where the block of each attribute starts, always on a new cache line, and the number of all words."""
    blocks = np.full(len(is_tree), -1, dtype=np.int32)
    n_words = 0
    for a in range(len(is_tree)):
        if n_pieces[a] > 0 and not is_tree[a]:
            blocks[a] = n_words
            n_words = records_at(n_words, n_pieces[a]) + RECORD * n_pieces[a]
            n_words = (n_words + LINE - 1) // LINE * LINE
    # A reader may fetch the second line of a block before it knows how long the block is.
    return blocks, n_words + LINE if n_words > 0 else 0


@kernel
def lay_blocks(
    pieces: Pieces,
    is_tree: NDArray[np.bool_],
    n_pieces: NDArray[np.int64],
    seconds: NDArray[np.int64],
    row_starts: NDArray[np.int32],
    has_all: NDArray[np.bool_],
    slots: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    literals: Literals,
    blocks: NDArray[np.int32],
    flat: NDArray[np.int32],
) -> None:
    """Fill in the blocks of rare attributes; `flat` must be all zeros before.

    A block has the number of its entries, then their signatures, then their records. An entry that its signature
    rejects costs two bytes; any other costs one more cache line.
    """
    signatures = flat.view(np.uint16)
    for i in range(len(pieces.clauses)):
        a = pieces.attributes[i]
        if is_tree[a]:
            continue
        c = pieces.clauses[i]
        block = blocks[a]
        k = flat[block]
        flat[block] += 1
        record = records_at(block, n_pieces[a]) + RECORD * k
        second = seconds[c]
        signatures[2 * (block + 1) + k] = ALWAYS if second < 0 else signature(literals.attributes[second] + 1)
        flat[record + LOW1] = pieces.lows[i]
        flat[record + WIDTH1] = pieces.highs[i] - pieces.lows[i]
        if second >= 0:
            flat[record + PLACE2] = literals.attributes[second] + 1
            flat[record + LOW2] = literals.lows[second]
            flat[record + WIDTH2] = literals.highs[second] - literals.lows[second]
        flat[record + SLOT] = flagged(slots[c], is_exact[c], False, not has_all[c])
        flat[record + ROW] = row_starts[c]
        flat[record + CLAUSE] = c
