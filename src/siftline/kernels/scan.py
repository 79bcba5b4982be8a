"""Scanning all clauses for one event: first literals block by block, the rest only where the first one holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# How many first literals are tested before the survivors are looked at; their list stays in the L1 cache.
_BLOCK = 4096

# Clauses up to this many literals are sorted by insertion, and up to this many by counting what is smaller.
_SHORT, _LONG = 12, 64

_ABSENT = np.int32(-1)
_RANGE = np.uint8(0)
_VETO = np.uint8(2)


@inline_kernel
def spread_event(
    attributes: NDArray[np.int32], codes: NDArray[np.int32], dense: NDArray[np.int32], following: NDArray[np.int32]
) -> None:
    """Spread an event over `dense`, indexed by attribute + 1.

    An entry is -1 for an absent attribute, the code of a single value, or -(p + 2) for several values: their codes are
    at position p of the event, at following[p], and so on until -1.
    """
    for p in range(len(attributes)):
        place = attributes[p] + 1
        following[p] = _ABSENT
        if place >= len(dense):
            continue  # an attribute that no subscription of this index uses yet
        entry = dense[place]
        if entry == _ABSENT:
            dense[place] = codes[p]
            continue
        first = p - 1
        if entry >= 0:
            while attributes[first] != attributes[p]:
                first -= 1
        else:
            first = -(entry + 2)
        following[p] = first
        dense[place] = -(p + 2)


@inline_kernel
def _is_in_set(code: int, start: int, end: int, lows: NDArray[np.int32], highs: NDArray[np.int32]) -> Any:
    """Return whether a code lies in one of the ranges start .. end - 1, which ascend."""
    while start < end:
        middle = (start + end) >> 1
        if highs[middle] < code:
            start = middle + 1
        else:
            end = middle
    return start < len(lows) and lows[start] <= code and code <= highs[start]


@inline_kernel
def _accepts(code: int, low: int, high: int, set_id: int, literals: Any) -> Any:
    """Return whether one value's code lies in the ranges of a literal."""
    if code < low or code > high:
        return False
    if set_id < 0:
        return True
    end = literals.set_starts[set_id + 1]
    # The last range ends at `high`, so a code inside the hull always finds a range at or above it.
    return _is_in_set(code, literals.set_starts[set_id], end, literals.set_lows, literals.set_highs)


@inline_kernel
def literal_holds(
    entry: int,
    low: int,
    high: int,
    kind: Any,
    set_id: int,
    codes: NDArray[np.int32],
    following: NDArray[np.int32],
    literals: Any,
) -> Any:
    """Return whether a literal holds for the `dense` entry of its attribute; `literals` has the ranges of sets."""
    found = False
    if entry >= _ABSENT:
        found = _accepts(entry, low, high, set_id, literals)
    else:
        p = -(entry + 2)
        while p >= 0 and not found:
            found = _accepts(codes[p], low, high, set_id, literals)
            p = following[p]
    return found != (kind >= _VETO)


class Scanned(NamedTuple):
    """Clauses as the scan reads them: of each its first literal, and where the others are."""

    first_entries: NDArray[np.uint32]
    first_lows: NDArray[np.int32]
    first_widths: NDArray[np.uint32]
    rest_starts: NDArray[np.int64]
    attributes: NDArray[np.int32]  # of the others
    lows: NDArray[np.int32]
    highs: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    sets: NDArray[np.int32]
    set_starts: NDArray[np.int64]
    set_lows: NDArray[np.int32]
    set_highs: NDArray[np.int32]


@kernel
def scan_clauses(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    n_attributes: int,
    scanned: Scanned,
    slots: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    is_live: NDArray[np.bool_],
) -> Any:
    """Return (slots that match, slots to check, first literals that held, other literals tested)."""
    dense = np.full(n_attributes + 1, _ABSENT, dtype=np.int32)
    # Clauses without a literal that could come first ask for code 0 of this extra entry, which every event has.
    dense[0] = 0
    following = np.empty(len(event_codes), dtype=np.int32)
    spread_event(event_attributes, event_codes, dense, following)
    n_clauses = len(slots)
    survivors = np.empty(_BLOCK, dtype=np.int64)
    sure = np.empty(n_clauses, dtype=np.int32)
    possible = np.empty(n_clauses, dtype=np.int32)
    n_sure = 0
    n_possible = 0
    n_survivors = 0
    n_tested = 0
    for block in range(0, n_clauses, _BLOCK):
        n = 0
        for c in range(block, min(block + _BLOCK, n_clauses)):
            entry = dense[scanned.first_entries[c]]
            survivors[n] = c
            # One unsigned comparison for low <= entry <= high; no branch, because half of them would be mispredicted.
            n += (np.uint32(entry - scanned.first_lows[c]) <= scanned.first_widths[c]) | (entry < _ABSENT)
        n_survivors += n
        for s in range(n):
            c = survivors[s]
            entry = dense[scanned.first_entries[c]]
            holds = True
            if entry < _ABSENT:
                low = scanned.first_lows[c]
                high = low + scanned.first_widths[c]
                holds = literal_holds(entry, low, high, _RANGE, -1, event_codes, following, scanned)
            for i in range(scanned.rest_starts[c], scanned.rest_starts[c + 1] if holds else scanned.rest_starts[c]):
                n_tested += 1
                if not literal_holds(
                    dense[scanned.attributes[i] + 1],
                    scanned.lows[i],
                    scanned.highs[i],
                    scanned.kinds[i],
                    scanned.sets[i],
                    event_codes,
                    following,
                    scanned,
                ):
                    holds = False
                    break
            slot = slots[c]
            if not holds or not is_live[slot]:
                continue
            # The clauses of a subscription follow each other, so a repeated slot is the last one written.
            if n_sure > 0 and sure[n_sure - 1] == slot:
                continue
            if is_exact[c]:
                sure[n_sure] = slot
                n_sure += 1
            elif n_possible == 0 or possible[n_possible - 1] != slot:
                possible[n_possible] = slot
                n_possible += 1
    return sure[:n_sure].copy(), possible[:n_possible].copy(), n_survivors, n_tested


@kernel
def order_literals(starts: NDArray[np.int64], shares: NDArray[np.float64], kinds: NDArray[np.uint8]) -> Any:
    """Return the literals of each clause, rarest first, vetoes last."""
    order = np.empty(len(shares), dtype=np.int64)
    keys = np.where(kinds >= _VETO, shares + 2.0, shares)
    for c in range(len(starts) - 1):
        first, end = starts[c], starts[c + 1]
        if end - first > _LONG:
            order[first:end] = first + np.argsort(keys[first:end])
            continue
        if end - first > _SHORT:
            part = keys[first:end]
            for i in range(np.uint64(end - first)):  # where it belongs: comparisons without branches, several at a time
                key, place = part[i], first
                for j in range(np.uint64(end - first)):
                    place += np.int64(part[j] < key)
                for j in range(i):
                    place += np.int64(part[j] == key)
                order[place] = np.int64(i) + first
            continue
        for i in range(first, end):  # insertion sort
            j = i
            while j > first and keys[order[j - 1]] > keys[i]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = i
    return order
