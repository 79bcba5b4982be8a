"""OpIndex: searching the lists of an event's pivots, and counting down (Alg. 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.literals import spread_event
from siftline.kernels.pointers import arrays_at
from siftline.kernels.sections import section_first, section_last
from siftline.kernels.verify import clear_event

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The operators that have lists, in their order.
EQUAL = 0
AT_MOST = 1
AT_LEAST = 2
N_OPERATORS = 3

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


class Layout(NamedTuple):
    """The arrays of one part; see `indexes/op_index/index.py`."""

    pivots: NDArray[np.int32]
    directory: NDArray[np.uint32]
    signatures: NDArray[np.uint64]
    keys: NDArray[np.uint64]
    targets: NDArray[np.int32]
    counter_starts: NDArray[np.int64]
    counter_clauses: NDArray[np.int32]
    needs: NDArray[np.uint8]
    bitmap_starts: NDArray[np.int64]
    bitmap_clauses: NDArray[np.int32]
    bitmaps: NDArray[np.uint64]  # with all bits set
    is_verified: NDArray[np.bool_]
    is_exact: NDArray[np.bool_]
    patterns: NDArray[np.int32]
    sizes: NDArray[np.int64]


@inline_kernel
def signature_bit(key: Any, operator: int, n_bits: Any) -> Any:
    """Return h(attribute, operator, operand): the operand counts for `=` only (OpIndex 4.2)."""
    hashed = key if operator == EQUAL else key >> _HALF
    return _ONE << ((((hashed * _MULTIPLIER) >> _HALF) * n_bits) >> _HALF)


@inline_kernel
def _place_of(key: Any, start: Any, end: Any, keys: NDArray[np.uint64]) -> Any:
    """Return the first place in start .. end whose key is not below the given one."""
    while start < end:
        middle = (start + end) >> _ONE
        if keys[middle] < key:
            start = middle + _ONE
        else:
            end = middle
    return start


@inline_kernel
def _write_scans(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    n_segments: int,
    n_bits: int,
    segments: NDArray[np.uint64],
    bits: NDArray[np.uint64],
    lows: NDArray[np.uint64],
    highs: NDArray[np.uint64],
) -> None:
    """Write, per operator and value, which keys to scan for and which bit of the signature must be set (4.2).

    A value satisfies `<=` with operands from itself to the end of its section, `>=` from the beginning up to itself.
    """
    for q in range(len(event_attributes)):
        key = np.uint64(event_attributes[q]) << _HALF
        code = event_codes[q]
        segments[q] = event_attributes[q] % n_segments
        for operator in range(N_OPERATORS):
            first = section_first(code) if operator == AT_LEAST else code
            last = section_last(code) if operator == AT_MOST else code
            lows[operator, q] = key | np.uint64(first)
            highs[operator, q] = key | np.uint64(last)
            bits[operator, q] = signature_bit(lows[operator, q], operator, np.uint64(n_bits))


@inline_kernel
def _count_down(
    start: Any,
    end: Any,
    layout: Layout,
    counters: NDArray[np.uint8],
    first_counter: int,
    bitmaps: NDArray[np.uint64],
    first_bitmap: int,
    found: NDArray[np.int32],
    n_found: int,
) -> Any:
    """Count down the counters and bitmaps of matching entries; return how many clauses have reached zero.

    A counter stops at zero: several values of one attribute may fire more often than it counts.
    """
    for e in range(start, end):  # OpIndex Alg. 2, l. 9
        target = np.int64(layout.targets[e])
        if target >= 0:
            place = np.uint64(target)
            left = counters[place]
            counters[place] = left - np.uint8(left > 0)  # l. 10
            if left == 1:  # l. 11-12
                found[n_found] = layout.counter_clauses[first_counter + target]
                n_found += 1
        else:  # OpIndex 6.1
            place = np.uint64(~target) >> np.uint64(6)
            unmatched = bitmaps[place]
            bitmaps[place] = unmatched & ~(_ONE << (np.uint64(~target) & np.uint64(63)))
            if unmatched != 0 and bitmaps[place] == 0:
                found[n_found] = layout.bitmap_clauses[first_bitmap + np.int64(place)]
                n_found += 1
    return n_found


@inline_kernel
def _pivots_of(
    attributes: NDArray[np.int32], following: NDArray[np.int32], pivots: NDArray[np.int32], found: NDArray[np.int64]
) -> Any:
    """Write the pivots among the attributes of an event; return their number, and if all attributes have one value."""
    n_found, is_single = 0, True
    for q in range(len(attributes)):
        a = attributes[q]
        if following[q] >= 0:
            is_single = False
        elif a < len(pivots) and pivots[a] >= 0:
            found[n_found] = pivots[a]
            n_found += 1
    return n_found, is_single


@kernel
def match_event(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    n_segments: int,
    n_bits: int,
    dense: NDArray[np.int32],
    counters: NDArray[np.uint8],
    bitmaps: NDArray[np.uint64],
    part: NDArray[np.int64],
) -> Any:
    """Match one event (OpIndex Alg. 2); the part comes as the handle of a `Layout` (see `kernels/pointers.py`).

    Returns the clauses with nothing left to match, whether all attributes have one value, and the numbers of pivots,
    candidates, pruned segments, entries whose attributes the event has in the others, and entries that matched.
    """
    layout = arrays_at(part, Layout)
    directory, signatures, keys = layout.directory, layout.signatures, layout.keys
    counter_starts, bitmap_starts = layout.counter_starts, layout.bitmap_starts
    m = len(event_attributes)
    following = np.empty(m, dtype=np.int32)
    spread_event(event_attributes, event_codes, dense, following)
    clear_event(event_attributes, dense)
    present = np.empty(m, dtype=np.int64)
    n_pivots, is_single = _pivots_of(event_attributes, following, layout.pivots, present)  # l. 3-4
    segments = np.empty(m, dtype=np.uint64)
    bits = np.empty((N_OPERATORS, m), dtype=np.uint64)
    lows = np.empty((N_OPERATORS, m), dtype=np.uint64)
    highs = np.empty((N_OPERATORS, m), dtype=np.uint64)
    _write_scans(event_attributes, event_codes, n_segments, n_bits, segments, bits, lows, highs)
    n_candidates, n_counters, n_bitmaps = 0, 0, 0
    for v in range(n_pivots):
        p = present[v]
        n_candidates += counter_starts[p + 1] - counter_starts[p] + bitmap_starts[p + 1] - bitmap_starts[p]
        n_counters = max(n_counters, counter_starts[p + 1] - counter_starts[p])
        n_bitmaps = max(n_bitmaps, bitmap_starts[p + 1] - bitmap_starts[p])
    found = np.empty(n_candidates, dtype=np.int32)
    n_found, n_pruned, n_reached, n_matched = 0, 0, 0, 0
    for v in range(n_pivots):
        p = present[v]
        first_counter, first_bitmap = counter_starts[p], bitmap_starts[p]
        for k in range(first_counter, counter_starts[p + 1]):  # l. 2
            counters[k - first_counter] = layout.needs[k]
        for k in range(first_bitmap, bitmap_starts[p + 1]):
            bitmaps[k - first_bitmap] = layout.bitmaps[k]
        for operator in range(N_OPERATORS):  # l. 6
            first_cell = np.uint64((p * N_OPERATORS + operator) * n_segments)
            for q in range(m):  # l. 5
                cell = first_cell + segments[q]  # l. 7
                if len(signatures) > 0 and signatures[cell] & bits[operator, q] == 0:  # l. 8
                    n_pruned += 1
                    continue
                low, high = lows[operator, q], highs[operator, q]
                start, end = np.uint64(directory[cell]), np.uint64(directory[cell + _ONE])
                start = _place_of(low & ~_LOW_HALF, start, end, keys)
                end = _place_of(high | _LOW_HALF, start, end, keys)
                n_reached += int(end - start)
                start = _place_of(low, start, end, keys)
                end = _place_of(high + _ONE, start, end, keys)
                n_matched += int(end - start)
                n_found = _count_down(
                    start, end, layout, counters, first_counter, bitmaps, first_bitmap, found, n_found
                )
    counters[:n_counters] = 0
    bitmaps[:n_bitmaps] = 0
    return found[:n_found].copy(), is_single, n_pivots, n_candidates, n_pruned, n_reached, n_matched


@kernel
def sort_out(
    found: NDArray[np.int32],
    is_single: bool,
    is_verified: NDArray[np.bool_],
    is_reported: NDArray[np.bool_],
) -> Any:
    """Return the clauses, each once: those that hold, and those to be verified. Leaves `is_reported` all False.

    A CNF comes once from each of its pivots that the event has.
    """
    sure = np.empty(len(found), dtype=np.int32)
    unsure = np.empty(len(found), dtype=np.int32)
    n_sure, n_unsure = 0, 0
    for k in range(len(found)):
        clause = found[k]
        if is_reported[clause]:
            continue
        is_reported[clause] = True
        if is_single and not is_verified[clause]:
            sure[n_sure] = clause
            n_sure += 1
        else:
            unsure[n_unsure] = clause
            n_unsure += 1
    for k in range(len(found)):
        is_reported[found[k]] = False
    return sure[:n_sure].copy(), unsure[:n_unsure].copy()
