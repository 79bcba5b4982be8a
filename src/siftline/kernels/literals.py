"""The literals of clauses and the values of events, as arrays with names, and the test of a literal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.codes import ABSENT, VETO
from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Clauses of up to 12 literals are sorted by insertion, of up to 64 by counting smaller keys, longer ones by np.argsort.
_INSERTION_SORT_MAX, _COUNTING_SORT_MAX = 12, 64


class Literals(NamedTuple):
    """The literals of clause c are starts[c] : starts[c + 1]; see `encoding/clauses.py` for the drawing."""

    starts: NDArray[np.int64]
    attributes: NDArray[np.int32]
    lows: NDArray[np.int32]
    highs: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    sets: NDArray[np.int32]  # -1: no set
    is_alternative: NDArray[np.bool_]
    set_starts: NDArray[np.int64]
    set_lows: NDArray[np.int32]
    set_highs: NDArray[np.int32]


class Events(NamedTuple):
    """The values of event i are starts[i] : starts[i + 1]."""

    starts: NDArray[np.int64]
    attributes: NDArray[np.int32]
    codes: NDArray[np.int32]


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
        following[p] = ABSENT
        if place >= len(dense):
            continue  # an attribute that no subscription of this index uses yet
        entry = dense[place]
        if entry == ABSENT:
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
    if entry >= ABSENT:
        found = _accepts(entry, low, high, set_id, literals)
    else:
        p = -(entry + 2)
        while p >= 0 and not found:
            found = _accepts(codes[p], low, high, set_id, literals)
            p = following[p]
    return found != (kind >= VETO)


@kernel
def order_literals(starts: NDArray[np.int64], shares: NDArray[np.float64], kinds: NDArray[np.uint8]) -> Any:
    """Return the literals of each clause, rarest first, vetoes last."""
    order = np.empty(len(shares), dtype=np.int64)
    keys = np.where(kinds >= VETO, shares + 2.0, shares)
    for c in range(len(starts) - 1):
        first, end = starts[c], starts[c + 1]
        if end - first > _COUNTING_SORT_MAX:
            order[first:end] = first + np.argsort(keys[first:end])
            continue
        if end - first > _INSERTION_SORT_MAX:
            part = keys[first:end]
            for i in range(np.uint64(end - first)):  # its place, by comparisons without branches, several at a time
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
