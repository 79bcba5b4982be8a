"""The two stages of `counting`: which predicates an event satisfies, and which clauses have all of theirs satisfied.

Stage 1 sets bits in the predicate bit vector, and lists the words that it touched. Stage 2 takes the satisfied
predicates from these words, as runs of neighbours, and leaves all vectors empty again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.codes import FIRST_NUMBER, FIRST_STRING
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.pointers import arrays_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The lists of an attribute, in the order in which their predicates are numbered: `=`; for numbers at most, at least,
# `!=`; for strings the same; between; in; other sets.
N_LISTS: Final = 10
# Where a value stands in each list that can hold something for it: `=`, at most, at least, `!=`, between, in, other.
N_COLUMNS: Final = 7
# A row of a table: the first code that lies in it, and these places; half a cache line.
ROW: Final = N_COLUMNS + 1
# What `tables` holds of a table: first and last code, shift, first bucket.
TABLE_COLUMNS: Final = 4

_NUMBER_LISTS = 1
_STRING_LISTS = 4
_BETWEEN = 7

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_SIX = np.uint64(6)
_PLACE_IN_WORD = np.uint64(63)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_PAIRS = np.uint64(0x5555555555555555)
_NIBBLES = np.uint64(0x3333333333333333)
_BYTES = np.uint64(0x0F0F0F0F0F0F0F0F)
_LOW_BITS = np.uint64(0x0101010101010101)

# With at least one hit for this many clauses, comparing all clauses is faster than going over the hits again.
_CLAUSES_PER_HIT = 16


class Lists(NamedTuple):
    """The predicates of a part, as stage 1 finds them; see `indexes/counting/index.py`."""

    groups: NDArray[np.int32]
    heads: NDArray[np.uint32]
    operands: NDArray[np.int32]
    ends: NDArray[np.int32]
    entry_heads: NDArray[np.uint32]
    entry_lows: NDArray[np.int32]
    entry_highs: NDArray[np.int32]
    entry_predicates: NDArray[np.uint32]
    table_ids: NDArray[np.int32]
    tables: Annotated[NDArray[np.int64], TABLE_COLUMNS]
    bucket_rows: NDArray[np.uint32]
    rows: NDArray[np.uint32]


@inline_kernel
def _first_from(code: Any, first: Any, end: Any, keys: NDArray[np.int32]) -> Any:
    """Return the first place of first .. end - 1 whose key is not below the code, `end` if there is none."""
    place, size = np.uint64(first), np.uint64(end) - np.uint64(first)
    while size > _ZERO:
        half = size >> _ONE
        if keys[place + half] < code:
            place += half + _ONE
            size -= half + _ONE
        else:
            size = half
    return place


@inline_kernel
def locate_in_lists(
    code: Any,
    group: Any,
    heads: NDArray[np.uint32],
    operands: NDArray[np.int32],
    entry_heads: NDArray[np.uint32],
    entry_lows: NDArray[np.int32],
    places: NDArray[np.uint32],
    at: Any,
) -> None:
    """Search the lists of one attribute for a code; write where it stands in each to places[at : at + N_COLUMNS]."""
    above = np.int64(code) + 1
    head = group * N_LISTS
    lists = head + (_STRING_LISTS if code >= FIRST_STRING else _NUMBER_LISTS)
    places[at] = _first_from(code, heads[head], heads[head + 1], operands)
    places[at + 1] = _first_from(code, heads[lists], heads[lists + 1], operands)
    places[at + 2] = _first_from(above, heads[lists + 1], heads[lists + 2], operands)
    places[at + 3] = _first_from(code, heads[lists + 2], heads[lists + 3], operands)
    places[at + 4] = _first_from(above, heads[head + _BETWEEN], heads[head + _BETWEEN + 1], operands)
    places[at + 5] = _first_from(code, entry_heads[2 * group], entry_heads[2 * group + 1], entry_lows)
    places[at + 6] = _first_from(above, entry_heads[2 * group + 1], entry_heads[2 * group + 2], entry_lows)


@inline_kernel
def _add_to_word(word: Any, bits: Any, vector: NDArray[np.uint64], words: NDArray[np.uint32], n_words: Any) -> Any:
    """Set bits in one word of the predicate bit vector; return how many words are listed as touched now."""
    before = vector[word]
    vector[word] = before | bits
    if before == _ZERO and bits != _ZERO:
        words[n_words] = word
        return n_words + _ONE
    return n_words


@inline_kernel
def _add_run(first: Any, end: Any, vector: NDArray[np.uint64], words: NDArray[np.uint32], n_words: Any) -> Any:
    """Set the bits first .. end - 1."""
    place: Any = np.uint64(first)
    end = np.uint64(end)
    while place < end:
        word = place >> _SIX
        next_place: Any = min((word + _ONE) << _SIX, end)
        mask = (_ALL >> (_PLACE_IN_WORD + _ONE - (next_place - place))) << (place & _PLACE_IN_WORD)
        n_words = _add_to_word(word, mask, vector, words, n_words)
        place = next_place
    return n_words


@inline_kernel
def _add_ranges(
    code: Any,
    first: Any,
    end: Any,
    ends: NDArray[np.int32],
    vector: NDArray[np.uint64],
    words: NDArray[np.uint32],
    n_words: Any,
) -> Any:
    """Of the ranges first .. end - 1, which all begin at or below the code, set the bits of those that reach it."""
    place: Any = np.uint64(first)
    end = np.uint64(end)
    while place < end:
        word = place >> _SIX
        next_place: Any = min((word + _ONE) << _SIX, end)
        found = _ZERO
        for p in range(place, next_place):
            found |= np.uint64(ends[p] >= code) << (np.uint64(p) & _PLACE_IN_WORD)
        n_words = _add_to_word(word, found, vector, words, n_words)
        place = next_place
    return n_words


@inline_kernel
def _walk(
    code: Any,
    group: Any,
    places: NDArray[np.uint32],
    lists: Lists,
    vector: NDArray[np.uint64],
    words: NDArray[np.uint32],
    n_words: Any,
) -> Any:
    """Set the bits of all predicates that a value satisfies, from where it stands in each list.

    Returns how many words are touched now, and how many predicates were set or tested.
    """
    heads, operands, entry_heads = lists.heads, lists.operands, lists.entry_heads
    head = group * N_LISTS
    p = places[0]
    n_seen = np.int64(0)
    if p < heads[head + 1] and operands[p] == code:
        n_words = _add_run(p, p + 1, vector, words, n_words)
        n_seen += 1
    if code >= FIRST_NUMBER:
        own = head + (_STRING_LISTS if code >= FIRST_STRING else _NUMBER_LISTS)
        # ToPSS 3.2: less-than upwards, greater-than downwards. The one list ends where the other begins: one run.
        n_words = _add_run(places[1], places[2], vector, words, n_words)
        first, p, end = heads[own + 2], places[3], heads[own + 3]
        n_words = _add_run(first, p, vector, words, n_words)  # not equal: all but the one at the value
        p += p < end and operands[p] == code
        n_words = _add_run(p, end, vector, words, n_words)
        n_seen += np.int64(places[2]) - np.int64(places[1]) + np.int64(end) - np.int64(first)
    first, end = heads[head + _BETWEEN], places[4]
    n_words = _add_ranges(code, first, end, lists.ends, vector, words, n_words)
    n_seen += np.int64(end) - np.int64(first)
    p = places[5]
    while p < entry_heads[2 * group + 1] and lists.entry_lows[p] == code:
        predicate = lists.entry_predicates[p]
        n_words = _add_run(predicate, predicate + 1, vector, words, n_words)
        n_seen += 1
        p += 1
    for q in range(entry_heads[2 * group + 1], places[6]):
        n_seen += 1
        if lists.entry_highs[q] >= code:
            predicate = lists.entry_predicates[q]
            n_words = _add_run(predicate, predicate + 1, vector, words, n_words)
    return n_words, n_seen


@inline_kernel
def _row_of(code: Any, table: Any, lists: Lists) -> Any:
    """Return the row of a table that a code lies in, -1 if the table does not reach it."""
    tables = lists.tables
    if code < tables[table, 0] or code > tables[table, 1]:
        return np.int64(-1)
    bucket = tables[table, 3] + ((code - tables[table, 0]) >> tables[table, 2])
    row, last = np.int64(lists.bucket_rows[bucket]), np.int64(lists.bucket_rows[bucket + 1])
    while row < last:
        middle = (row + last + 1) >> 1
        if lists.rows[middle * ROW] <= code:
            row = middle
        else:
            last = middle - 1
    return row


@inline_kernel
def _find_predicates(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    lists: Lists,
    places: NDArray[np.uint32],
    vector: NDArray[np.uint64],
    words: NDArray[np.uint32],
) -> Any:
    """Set the bits of all satisfied predicates; `places` is scratch."""
    n_words = _ZERO
    n_seen = 0
    for v in range(len(event_codes)):
        attribute, code = event_attributes[v], event_codes[v]
        if attribute >= len(lists.groups) or lists.groups[attribute] < 0:
            continue
        group = np.int64(lists.groups[attribute])
        row = np.int64(-1)
        table = lists.table_ids[2 * group + (code >= FIRST_STRING)]
        if table >= 0:
            row = _row_of(code, table, lists)
        if row >= 0:
            for column in range(N_COLUMNS):
                places[column] = lists.rows[row * ROW + 1 + column]
        else:
            locate_in_lists(code, group, lists.heads, lists.operands, lists.entry_heads, lists.entry_lows, places, 0)
        n_words, n = _walk(code, group, places, lists, vector, words, n_words)
        n_seen += n
    return n_words, n_seen


@kernel
def find_predicates(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    lists: NDArray[np.int64],
    vector: NDArray[np.uint64],
    words: NDArray[np.uint32],
) -> Any:
    """Set the bits of all satisfied predicates; return how many words were touched and how many predicates seen.

    `lists` is the handle of `Lists` (see `kernels/pointers.py`).
    """
    places = np.empty(N_COLUMNS, dtype=np.uint32)
    return _find_predicates(event_attributes, event_codes, arrays_at(lists, Lists), places, vector, words)


@inline_kernel
def _count_ones(word: Any) -> Any:
    """Return how many bits are set; one instruction once compiled."""
    word -= (word >> _ONE) & _PAIRS
    word = (word & _NIBBLES) + ((word >> np.uint64(2)) & _NIBBLES)
    word = (word + (word >> np.uint64(4))) & _BYTES
    return (word * _LOW_BITS) >> np.uint64(56)


@inline_kernel
def _lowest_run(word: Any) -> Any:
    """Return (first, end, rest): the lowest run of ones, and the word without it."""
    lowest = word & (~word + _ONE)
    rest = word & (word + lowest)  # the carry goes through the run
    first = _count_ones(lowest - _ONE)
    return first, first + _count_ones(word ^ rest), rest


@inline_kernel
def _report(clause: Any, has_veto: NDArray[np.bool_], found: NDArray[np.int32], n_sure: Any, n_doubtful: Any) -> Any:
    """Write a clause with all hits to the front of `found`, or to its end if it has vetoes."""
    if has_veto[clause]:
        found[np.int64(len(found)) - 1 - n_doubtful] = clause
        return n_sure, n_doubtful + 1
    found[n_sure] = clause
    return n_sure + 1, n_doubtful


@inline_kernel
def _compare_all(
    hits: NDArray[np.uint64],
    needed: NDArray[np.uint64],
    lane_bits: Any,
    has_veto: NDArray[np.bool_],
    found: NDArray[np.int32],
) -> Any:
    """Report the clauses that have as many hits as they need, and clear all hits; a word of clauses at a time."""
    lane = _ALL >> (_PLACE_IN_WORD + _ONE - lane_bits)
    ones = _ALL // lane
    n_lanes = np.int64((_PLACE_IN_WORD + _ONE) // lane_bits)
    n_sure = 0
    n_doubtful = 0
    for w in range(np.uint64(len(needed))):
        difference = hits[w] ^ needed[w]
        hits[w] = _ZERO
        # Finds a word with a lane that is zero. Only the lowest such lane is certain, so all lanes are tested then.
        if ((difference - ones) & ~difference & (ones << (lane_bits - _ONE))) != _ZERO:
            for k in range(n_lanes):
                if (difference & lane) == _ZERO:
                    clause = np.int64(w) * n_lanes + k
                    n_sure, n_doubtful = _report(clause, has_veto, found, n_sure, n_doubtful)
                difference >>= lane_bits
    return n_sure, n_doubtful


@kernel
def count_by_lists(
    n_words: Any,
    vector: NDArray[np.uint64],
    words: NDArray[np.uint32],
    posting_starts: NDArray[np.uint32],
    postings: NDArray[np.uint32],
    needed: Any,
    has_veto: NDArray[np.bool_],
    hits: Any,
) -> Any:
    """Count hits through the list of clauses of each satisfied predicate.

    Returns the clauses that have all their predicates, those of them with vetoes apart, how many clauses were compared,
    and how many lists were walked.
    """
    n_hits = _ZERO
    n_lists = _ZERO
    for k in range(np.uint64(n_words)):
        word = vector[words[k]]
        base = np.uint64(words[k]) << _SIX
        while word != _ZERO:
            first, end, word = _lowest_run(word)
            start, stop = np.uint64(posting_starts[base + first]), np.uint64(posting_starts[base + end])
            for q in range(start, stop):  # the lists of consecutive predicates are adjacent
                hits[postings[q]] += 1
            n_hits += stop - start
            n_lists += end - first
    n_clauses = len(has_veto)
    n_compared = n_clauses
    found = np.empty(np.int64(min(np.uint64(n_clauses), n_hits)), dtype=np.int32)
    n_sure = 0
    n_doubtful = 0
    if n_hits * np.uint64(_CLAUSES_PER_HIT) > np.uint64(n_clauses):
        hit_words, needed_words = hits[: len(needed)].view(np.uint64), needed.view(np.uint64)
        lane_bits = np.uint64(8 * needed.itemsize)
        n_sure, n_doubtful = _compare_all(hit_words, needed_words, lane_bits, has_veto, found)
    else:
        n_compared = 0
        for k in range(np.uint64(n_words)):
            word = vector[words[k]]
            base = np.uint64(words[k]) << _SIX
            while word != _ZERO:
                first, end, word = _lowest_run(word)
                for q in range(np.uint64(posting_starts[base + first]), np.uint64(posting_starts[base + end])):
                    clause = postings[q]
                    n_compared += hits[clause] != 0
                    if hits[clause] == needed[clause]:
                        n_sure, n_doubtful = _report(np.int64(clause), has_veto, found, n_sure, n_doubtful)
                    hits[clause] = 0
    _clear(n_words, vector, words)
    return found[:n_sure].copy(), found[len(found) - n_doubtful :].copy(), n_compared, n_lists


@inline_kernel
def _clear(n_words: Any, vector: NDArray[np.uint64], words: NDArray[np.uint32]) -> None:
    """Leave the predicate bit vector and the list of its touched words empty."""
    for k in range(np.uint64(n_words)):
        vector[words[k]] = _ZERO
        words[k] = np.uint32(0)


@kernel
def count_by_bytes(
    n_words: Any,
    vector: NDArray[np.uint64],
    words: NDArray[np.uint32],
    rows: Any,
    needed: Any,
    has_veto: NDArray[np.bool_],
    hits: Any,
) -> Any:
    """Count hits by adding the row of bytes of each satisfied predicate; return what `count_by_lists` does."""
    n_rows = 0
    for k in range(np.uint64(n_words)):
        word = vector[words[k]]
        base = np.uint64(words[k]) << _SIX
        while word != _ZERO:
            first, end, word = _lowest_run(word)
            for p in range(base + first, base + end):
                for c in range(np.uint64(len(needed))):  # many clauses in one instruction
                    hits[c] += rows[p, c]
                n_rows += 1
    found = np.empty(len(has_veto), dtype=np.int32)
    hit_words, needed_words = hits[: len(needed)].view(np.uint64), needed.view(np.uint64)
    n_sure, n_doubtful = _compare_all(hit_words, needed_words, np.uint64(8 * needed.itemsize), has_veto, found)
    _clear(n_words, vector, words)
    return found[:n_sure].copy(), found[len(found) - n_doubtful :].copy(), len(has_veto), n_rows


@kernel
def count_by_bits(
    n_words: Any,
    vector: NDArray[np.uint64],
    words: NDArray[np.uint32],
    rows: Any,
    needed: Any,
    has_veto: NDArray[np.bool_],
    hits: Any,
) -> Any:
    """Count hits by the ones in the row of each satisfied predicate; return what `count_by_lists` does."""
    n_rows = 0
    for k in range(np.uint64(n_words)):
        word = vector[words[k]]
        base = np.uint64(words[k]) << _SIX
        while word != _ZERO:
            first, end, word = _lowest_run(word)
            for p in range(base + first, base + end):
                for w in range(np.uint64(rows.shape[1])):
                    left = rows[p, w]
                    while left != _ZERO:  # 64 clauses at a time, most of them zeros
                        rest = left & (left - _ONE)
                        hits[(np.uint64(w) << _SIX) + _count_ones((left ^ rest) - _ONE)] += 1
                        left = rest
                n_rows += 1
    found = np.empty(len(has_veto), dtype=np.int32)
    hit_words, needed_words = hits[: len(needed)].view(np.uint64), needed.view(np.uint64)
    n_sure, n_doubtful = _compare_all(hit_words, needed_words, np.uint64(8 * needed.itemsize), has_veto, found)
    _clear(n_words, vector, words)
    return found[:n_sure].copy(), found[len(found) - n_doubtful :].copy(), len(has_veto), n_rows
