"""Matching 1,024 events at a time against a part of `sift`, with a few bitmap operations for each clause.

Each attribute has a bitmap for each of its elementary spaces: the events with a value in that space or below. So the
events in a range of spaces are those in the bitmap of its last space that are not in the bitmap before its first space.

    rows of one attribute      none   <= space 0   <= space 1   <= space 2         (none: always empty)
    `a` in spaces 1 .. 2       low ---------^                       ^--- high      events in high, not in low

Clauses with the same access literal are a group, groups on the same attribute a cluster. The bitmap of a group is
computed once. Each of its clauses narrows it by the *head*, three more literals, and the remaining events by the
*tail*, its other literals. In a tail, a range is (low, high), and a set is (row before its first space, 0, a mask of 64
spaces). Literals that a tail cannot hold (vetoes, sets over more spaces, literals beyond the eighth) are verified event
by event. So the *answer* of a clause is its slot, or, if literals remain, the number of the clause marked as OPEN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.indexes.sift.bitmaps import EVENTS, WORDS, both, chosen, joined, lowest, narrowed, widened
from siftline.kernels.codes import VETO
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.growing import with_room
from siftline.kernels.literals import spread_event
from siftline.kernels.spaces import space_of
from siftline.kernels.verify import clause_holds, clear_event

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.literals import Events, Literals

# Literals in the head of a clause, besides the access literal.
HEAD = 3
# Literals in head and tail together: nearly every event that satisfies so many satisfies the whole clause.
_LITERALS_MAX = 8
# Spaces that the mask of a set has room for.
_MASK = 64

# How many clauses are matched together, so that their bitmaps stay in the L1 cache.
_TOGETHER = 128

# The sign bit of an answer: the answer is not a slot, but a clause that must be verified.
OPEN = np.int32(-(2**31))
_CLAUSE = np.int32(0x7FFFFFFF)

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U2 = np.uint64(2)
_SIX = np.uint64(6)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Spaces(NamedTuple):
    """The first and the last space of every literal, and of every range of every set."""

    firsts: NDArray[np.int32]
    lasts: NDArray[np.int32]
    piece_firsts: NDArray[np.int32]
    piece_lasts: NDArray[np.int32]


class BitClauses(NamedTuple):
    """Clauses as numbers of bitmap rows; `heads` and `tails` have 16 bits if there are few rows, else 32."""

    heads: NDArray[Any]
    tail_starts: NDArray[np.int32]
    tails: NDArray[Any]
    answers: NDArray[np.int32]


@kernel
def piece_attributes(
    attributes: NDArray[np.int32], sets: NDArray[np.int32], set_starts: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return the attribute of every range of every set."""
    found = np.zeros(set_starts[len(set_starts) - 1], dtype=np.int32)
    for literal in range(len(sets)):
        s = sets[literal]
        if s >= 0:
            found[set_starts[s] : set_starts[s + 1]] = attributes[literal]
    return found


@kernel
def access_literals(
    access_attributes: NDArray[np.int32], is_usable: NDArray[np.bool_], order: NDArray[np.int64], literals: Literals
) -> Any:
    """Return the access literal of each clause; -1 if it has none, or its attribute has no bitmaps."""
    accesses = np.full(len(access_attributes), -1, dtype=np.int64)
    for c in range(len(access_attributes)):
        a = access_attributes[c]
        if a < 0 or not is_usable[a]:
            continue
        for i in range(literals.starts[c], literals.starts[c + 1]):
            if literals.attributes[order[i]] == a and literals.kinds[order[i]] < VETO:
                accesses[c] = order[i]
                break
    return accesses


@inline_kernel
def _mask_of(begin: int, end: int, spaces: Spaces) -> Any:
    """Return the spaces of the ranges begin .. end - 1 as a mask, counted from the first one."""
    mask = _U0
    for i in range(begin, end):
        for space in range(spaces.piece_firsts[i], spaces.piece_lasts[i] + 1):
            mask |= _U1 << np.uint64(space - spaces.piece_firsts[begin])
    return mask


@kernel
def lay_clauses(
    clauses: NDArray[np.int32],
    places: NDArray[np.int32],
    accesses: NDArray[np.int64],
    order: NDArray[np.int64],
    literals: Literals,
    spaces: Spaces,
    is_usable: NDArray[np.bool_],
    slots: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    bits: BitClauses,
) -> None:
    """Fill in heads, tails and answers, the k-th clause at places[k].

    If `tails` is empty, write the lengths of the tails instead, to `tail_starts` from its second place on. Clauses are
    read in the order in which they lie in memory, and written far apart; the reverse takes four times as long.

    Spaces are numbered over all attributes (`kernels.spaces`). Attribute a has two rows more than spaces, so the row of
    space s is s + 2 * a + 2, and the row before it s + 2 * a + 1.
    """
    is_filling = len(bits.tails) > 0
    n_bits = np.uint64(8 * bits.tails.itemsize)
    n_mask = _MASK // (8 * bits.tails.itemsize)
    for i in range(len(clauses)):
        c = clauses[i]
        k = places[i]
        access = accesses[c]
        is_open = not is_exact[c]
        n_head = 0
        n_used = 0
        begin = np.int64(bits.tail_starts[k]) if is_filling else np.int64(0)
        p = begin
        for j in range(literals.starts[c], literals.starts[c + 1]):
            literal = order[j]
            a = literals.attributes[literal]
            stands = literal == access
            if literals.kinds[literal] >= VETO or not is_usable[a] or (n_used == _LITERALS_MAX and not stands):
                is_open = True
                continue
            low = spaces.firsts[literal] + 2 * a + 1
            high = spaces.lasts[literal] + 2 * a + 2
            if not stands:
                n_used += 1
                if n_head < HEAD:
                    bits.heads[k, 2 * n_head] = low
                    bits.heads[k, 2 * n_head + 1] = high
                    n_head += 1
                    stands = True
            s = literals.sets[literal]
            if s >= 0 and high - low <= _MASK:
                if is_filling:
                    bits.tails[p] = low
                    bits.tails[p + 1] = 0
                    mask = _mask_of(literals.set_starts[s], literals.set_starts[s + 1], spaces)
                    for m in range(n_mask):
                        bits.tails[p + 2 + m] = (mask >> (n_bits * np.uint64(m))) & ((_U1 << n_bits) - _U1)
                p += 2 + n_mask
                continue
            is_open |= s >= 0
            if not stands:
                if is_filling:
                    bits.tails[p] = low
                    bits.tails[p + 1] = high
                p += 2
        for j in range(n_head, HEAD):  # a clause with fewer literals repeats its access literal
            bits.heads[k, 2 * j] = spaces.firsts[access] + 2 * literals.attributes[access] + 1
            bits.heads[k, 2 * j + 1] = spaces.lasts[access] + 2 * literals.attributes[access] + 2
        bits.answers[k] = c | OPEN if is_open else slots[c]
        if not is_filling:
            bits.tail_starts[k + 1] = p


@kernel
def cover_spaces(
    clauses: NDArray[np.int32],
    accesses: NDArray[np.int64],
    literals: Literals,
    spaces: Spaces,
    cut_starts: NDArray[np.int64],
) -> Any:
    """Return for every space how many clauses have an access literal that covers it."""
    covers = np.zeros(cut_starts[len(cut_starts) - 1] + 1, dtype=np.int32)
    for k in range(len(clauses)):
        literal = accesses[clauses[k]]
        s = literals.sets[literal]
        if s < 0:
            covers[spaces.firsts[literal]] += 1
            covers[spaces.lasts[literal] + 1] -= 1
            continue
        for i in range(literals.set_starts[s], literals.set_starts[s + 1]):
            covers[spaces.piece_firsts[i]] += 1
            covers[spaces.piece_lasts[i] + 1] -= 1
    for space in range(1, len(covers)):
        covers[space] += covers[space - 1]
    return covers


@kernel
def count_visits(
    first: int,
    end: int,
    step: int,
    events: Events,
    cut_starts: NDArray[np.int64],
    cuts: NDArray[np.int32],
    covers: NDArray[np.int32],
) -> Any:
    """Return by attribute how many clauses the sampled events (every step-th) visit."""
    starts, attributes, codes = events.starts, events.attributes, events.codes
    visits = np.zeros(len(cut_starts) - 1, dtype=np.int64)
    for i in range(first, end, step):
        for p in range(starts[i], starts[i + 1]):
            space = space_of(attributes[p], codes[p], cut_starts, cuts)
            if space >= 0:
                visits[attributes[p]] += covers[space]
    return visits


@kernel
def fill_bitmaps(
    first: int,
    end: int,
    is_left_out: NDArray[np.bool_],
    events: Events,
    cut_starts: NDArray[np.int64],
    cuts: NDArray[np.int32],
    bitmaps: NDArray[np.uint64],
) -> None:
    """Make the bitmaps of the events first .. end - 1."""
    starts, attributes, codes = events.starts, events.attributes, events.codes
    bitmaps[:] = _U0
    n_attributes = len(cut_starts) - 1
    for i in range(first, end):
        if is_left_out[i - first]:
            continue
        word = np.uint64(i - first) >> _SIX
        bit = _U1 << (np.uint64(i - first) & np.uint64(63))
        for p in range(np.uint64(starts[i]), np.uint64(starts[i + 1])):
            a = attributes[p]
            if a < n_attributes:
                space = space_of(a, codes[p], cut_starts, cuts)
                row = space + 2 * a + 2 if space >= 0 else cut_starts[a] + 2 * a + 1
                bitmaps[np.uint64(row), word] |= bit
    for a in range(n_attributes):
        for row in range(np.uint64(cut_starts[a] + 2 * a + 1), np.uint64(cut_starts[a + 1] + 2 * a + 2)):
            for w in range(WORDS):
                bitmaps[row, w] |= bitmaps[row - _U1, w]


@kernel
def _narrow_by_heads(
    g: Any,
    k: Any,
    end: Any,
    group_rows: NDArray[np.uint32],
    group_starts: NDArray[np.int32],
    heads: NDArray[Any],
    bitmaps: NDArray[np.uint64],
    here: NDArray[np.uint64],
    left: NDArray[np.uint64],
    places: NDArray[np.int32],
) -> Any:
    """Test two literals of each clause from the k-th on, in the groups g .. end - 1, until `left` may be full.

    Returns (g, k, n): where to continue, and for how many clauses some events are left; `places` has these clauses. The
    loop is a separate function, because other code around it would take registers from it, and it has no branch on what
    it finds, because that is unpredictable.
    """
    n = _U0
    room = np.uint64(len(left))
    while g < end:
        k = max(k, np.uint64(group_starts[g]))
        last = np.uint64(group_starts[g + _U1])
        if chosen(here, _U0, bitmaps, np.uint64(group_rows[g, 0]), np.uint64(group_rows[g, 1])) != _U0:
            stop = min(last, k + room - n)
            for i in range(k, stop):
                places[n] = i
                found = joined(
                    left,
                    n,
                    here,
                    bitmaps,
                    np.uint64(heads[i, 0]),
                    np.uint64(heads[i, 1]),
                    np.uint64(heads[i, 2]),
                    np.uint64(heads[i, 3]),
                )
                n += np.uint64(found != _U0)
            if stop < last:
                return g, stop, n
        g += _U1
    return g, k, n


@inline_kernel
def _narrow_by_tail(
    p: Any, end: Any, tails: NDArray[Any], bitmaps: NDArray[np.uint64], left: NDArray[np.uint64], at: Any, inside: Any
) -> Any:
    """Keep only the events that satisfy a tail; return which words are not empty."""
    n_bits = np.uint64(8 * tails.itemsize)
    n_mask = np.uint64(_MASK // (8 * tails.itemsize))
    found = _ALL
    while p < end and found != _U0:
        low = np.uint64(tails[p])
        high = np.uint64(tails[p + _U1])
        p += _U2
        if high != _U0:
            found = narrowed(left, at, bitmaps, low, high)
            continue
        for w in range(WORDS):
            inside[0, w] = _U0
        for m in range(n_mask):
            mask = np.uint64(tails[p + m])
            while mask != _U0:
                row = low + m * n_bits + np.uint64(lowest(mask))
                widened(inside, _U0, bitmaps, row, row + _U1)
                mask &= mask - _U1
        p += n_mask
        found = both(left, at, inside)
    return found


@kernel
def _narrow_by_the_rest(
    n: Any,
    heads: NDArray[Any],
    tail_starts: NDArray[np.int32],
    tails: NDArray[Any],
    bitmaps: NDArray[np.uint64],
    left: NDArray[np.uint64],
    places: NDArray[np.int32],
    inside: NDArray[np.uint64],
) -> Any:
    """Test the other literals of the first n clauses in `places`; return how many of them have events left.

    These clauses move to the front of `places`, and their bitmaps to the front of `left`.
    """
    n_left = _U0
    for at in range(n):
        k = np.uint64(places[at])
        found = narrowed(left, at, bitmaps, np.uint64(heads[k, 4]), np.uint64(heads[k, 5]))
        p = np.uint64(tail_starts[k])
        end = np.uint64(tail_starts[k + _U1])
        if found != _U0 and p < end:
            found = _narrow_by_tail(p, end, tails, bitmaps, left, at, inside)
        if found != _U0:
            places[n_left] = k
            for w in range(WORDS):
                left[n_left, w] = left[at, w]
            n_left += _U1
    return n_left


@kernel
def _append_pairs(
    n_clauses: Any,
    left: NDArray[np.uint64],
    places: NDArray[np.int32],
    answers: NDArray[np.int32],
    live_flags: NDArray[np.bool_],
    is_open: bool,
    n: Any,
    events: NDArray[np.uint16],
    found: NDArray[np.int32],
) -> Any:
    """Append a pair for each clause (OPEN or not, as asked) and each event left for it; return the number of pairs."""
    for at in range(n_clauses):
        answer = answers[np.uint64(places[at])]
        if (answer < 0) != is_open:
            continue
        if not is_open and len(live_flags) > 0 and not live_flags[np.uint64(answer)]:
            continue
        answer &= _CLAUSE
        for w in range(np.uint64(WORDS)):
            word = left[at, w]
            while word != _U0:
                events[n] = (w << _SIX) + np.uint64(lowest(word))
                found[n] = answer
                n += _U1
                word &= word - _U1
    return n


@kernel
def find_pairs(
    clusters: NDArray[np.int64],
    live_flags: NDArray[np.bool_],
    cluster_starts: NDArray[np.int32],
    group_rows: NDArray[np.uint32],
    group_starts: NDArray[np.int32],
    clauses: BitClauses,
    bitmaps: NDArray[np.uint64],
) -> Any:
    """Return (events, slots, open events, open clauses): pairs that match, and pairs to verify, clause by clause.

    `clusters` are attributes. `live_flags` is empty if all slots are live.
    """
    heads, tail_starts, tails, answers = clauses.heads, clauses.tail_starts, clauses.tails, clauses.answers
    # Each list always has room for all events of one round of clauses.
    n_most = _TOGETHER * EVENTS
    events = np.empty(2 * n_most, dtype=np.uint16)
    slots = np.empty(2 * n_most, dtype=np.int32)
    open_events = np.empty(2 * n_most, dtype=np.uint16)
    open_clauses = np.empty(2 * n_most, dtype=np.int32)
    here = np.empty((1, WORDS), dtype=np.uint64)
    inside = np.empty((1, WORDS), dtype=np.uint64)
    left = np.empty((_TOGETHER, WORDS), dtype=np.uint64)
    places = np.empty(_TOGETHER, dtype=np.int32)
    n = _U0
    n_open = _U0
    for cluster in clusters:
        g = np.uint64(cluster_starts[cluster])
        end = np.uint64(cluster_starts[cluster + 1])
        k = np.uint64(group_starts[g])
        while g < end:
            g, k, n_left = _narrow_by_heads(g, k, end, group_rows, group_starts, heads, bitmaps, here, left, places)
            n_left = _narrow_by_the_rest(n_left, heads, tail_starts, tails, bitmaps, left, places, inside)
            n = _append_pairs(n_left, left, places, answers, live_flags, False, n, events, slots)
            n_open = _append_pairs(n_left, left, places, answers, live_flags, True, n_open, open_events, open_clauses)
            events, slots = with_room(events, np.int64(n), n_most), with_room(slots, np.int64(n), n_most)
            open_events = with_room(open_events, np.int64(n_open), n_most)
            open_clauses = with_room(open_clauses, np.int64(n_open), n_most)
    return events[:n], slots[:n], open_events[:n_open], open_clauses[:n_open]


@kernel
def by_event(n_events: int, pair_events: NDArray[np.uint16], pair_answers: NDArray[np.int32]) -> Any:
    """Group pairs by event; return (starts, answers)."""
    starts = np.zeros(n_events + 1, dtype=np.int64)
    for k in range(len(pair_events)):
        starts[np.uint64(pair_events[k]) + _U1] += 1
    for i in range(n_events):
        starts[i + 1] += starts[i]
    places = starts[:-1].copy()
    answers = np.empty(len(pair_answers), dtype=np.int32)
    for k in range(len(pair_events)):
        event = np.uint64(pair_events[k])
        answers[np.uint64(places[event])] = pair_answers[k]
        places[event] += 1
    return starts, answers


@kernel
def verify_pairs(
    first: int,
    pair_starts: NDArray[np.int64],
    pair_clauses: NDArray[np.int32],
    events: Events,
    dense: NDArray[np.int32],
    literals: Literals,
    slots: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    is_live: NDArray[np.bool_],
) -> Any:
    """Return (starts, sure, possible_starts, possible): the live slots of the clauses that hold, by event."""
    n_events = len(pair_starts) - 1
    sure_starts = np.zeros(n_events + 1, dtype=np.int64)
    possible_starts = np.zeros(n_events + 1, dtype=np.int64)
    sure = np.empty(len(pair_clauses), dtype=np.int32)
    possible = np.empty(len(pair_clauses), dtype=np.int32)
    n_sure = 0
    n_possible = 0
    for i in range(n_events):
        begin, end = events.starts[first + i], events.starts[first + i + 1]
        if pair_starts[i] < pair_starts[i + 1]:
            following = np.empty(end - begin, dtype=np.int32)
            spread_event(events.attributes[begin:end], events.codes[begin:end], dense, following)
            for k in range(pair_starts[i], pair_starts[i + 1]):
                clause = pair_clauses[k]
                if not is_live[slots[clause]]:
                    continue
                holds, _ = clause_holds(clause, dense, events.codes[begin:end], following, literals)
                if holds and is_exact[clause]:
                    sure[n_sure] = slots[clause]
                    n_sure += 1
                elif holds:
                    possible[n_possible] = slots[clause]
                    n_possible += 1
            clear_event(events.attributes[begin:end], dense)
        sure_starts[i + 1] = n_sure
        possible_starts[i + 1] = n_possible
    return sure_starts, sure[:n_sure], possible_starts, possible[:n_possible]
