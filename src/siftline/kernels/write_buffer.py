"""Scanning the write buffer of an engine for one event: a few hundred clauses without an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.codes import ABSENT, VETO
from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Columns of `heads`. The last three are a copy of the first literal; its attribute is -1 if the clause may hold without
# it.
SLOT = 0
START = 1
END = 2
EXACTNESS = 3
FIRST_ATTRIBUTE = 4
FIRST_LOW = 5
FIRST_HIGH = 6
N_HEAD_COLUMNS = 8

# Columns of `literals`.
ATTRIBUTE = 0
LOW = 1
HIGH = 2
KIND = 3
SET_START = 4
SET_END = 5
IS_ALTERNATIVE = 6
PATTERN = 7

# Values of EXACTNESS: the subscription is removed; needs the exact check; needs a check of its patterns only; needs no
# check.
DEAD = -1
INEXACT = 0
BY_PATTERNS = 1
EXACT = 2

_SMALLEST_TABLE = 64
_VETO = int(VETO)


@inline_kernel
def _place_of(attribute: Any, names: NDArray[np.int32]) -> Any:
    """Return where an attribute stands in a hash table, or would stand."""
    mask = len(names) - 1
    place = attribute & mask
    while names[place] != attribute and names[place] != ABSENT:
        place = (place + 1) & mask
    return place


@inline_kernel
def _hash_event(
    attributes: NDArray[np.int32], names: NDArray[np.int32], lasts: NDArray[np.int32], earlier: NDArray[np.int32]
) -> None:
    """Write the last value of each attribute, and for each value the previous value of its attribute, or -1."""
    for place in range(len(names)):
        names[place] = ABSENT
    for p in range(len(attributes)):
        place = _place_of(attributes[p], names)
        earlier[p] = ABSENT if names[place] == ABSENT else lasts[place]
        names[place] = attributes[p]
        lasts[place] = p


@inline_kernel
def _accepts(code: Any, i: int, literals: NDArray[np.int32], ranges: NDArray[np.int32]) -> Any:
    """Return whether a code lies in the ranges of literal i."""
    if code < literals[i, LOW] or code > literals[i, HIGH]:
        return False
    start, end = literals[i, SET_START], literals[i, SET_END]
    if start == end:
        return True
    while start < end:
        middle = (start + end) >> 1
        if ranges[middle, 1] < code:
            start = middle + 1
        else:
            end = middle
    return ranges[start, 0] <= code


@inline_kernel
def _holds(
    i: int,
    literals: NDArray[np.int32],
    codes: NDArray[np.int32],
    names: NDArray[np.int32],
    lasts: NDArray[np.int32],
    earlier: NDArray[np.int32],
    ranges: NDArray[np.int32],
) -> Any:
    """Return whether literal i holds for the event."""
    attribute = literals[i, ATTRIBUTE]
    place = _place_of(attribute, names)
    found = False
    if names[place] == attribute:
        p = lasts[place]
        while p >= 0 and not found:
            found = _accepts(codes[p], i, literals, ranges)
            p = earlier[p]
    return found != (literals[i, KIND] >= _VETO)


@inline_kernel
def _may_hold(
    c: int,
    codes: NDArray[np.int32],
    heads: NDArray[np.int32],
    names: NDArray[np.int32],
    lasts: NDArray[np.int32],
    earlier: NDArray[np.int32],
) -> Any:
    """Return whether the clause may still hold after a test of its first literal."""
    attribute = heads[c, FIRST_ATTRIBUTE]
    if attribute < 0:
        return True
    place = _place_of(attribute, names)
    if names[place] != attribute:
        return False
    p = lasts[place]
    code = codes[p]
    return earlier[p] != ABSENT or (heads[c, FIRST_LOW] <= code and code <= heads[c, FIRST_HIGH])


@kernel
def match_buffer(
    attributes: NDArray[np.int32],
    codes: NDArray[np.int32],
    heads: NDArray[np.int32],
    literals: NDArray[np.int32],
    ranges: NDArray[np.int32],
    n_clauses: int,
    found: NDArray[np.int32],
) -> Any:
    """Write the slots that match to the front of `found`, and the slots to check to its end, backwards.

    Returns n_sure + n_possible * 2**32. The clauses of a slot are consecutive, so each slot is written once.
    """
    size = _SMALLEST_TABLE
    while size < 4 * len(attributes):
        size *= 2
    names = np.empty(size, dtype=np.int32)
    lasts = np.empty(size, dtype=np.int32)
    earlier = np.empty(len(attributes), dtype=np.int32)
    _hash_event(attributes, names, lasts, earlier)
    n_sure = 0
    n_possible = 0
    n_found = len(found)
    for c in range(n_clauses):
        # This rejects most clauses before their literals are read.
        if not _may_hold(c, codes, heads, names, lasts, earlier):
            continue
        holds = True
        for i in range(heads[c, START], heads[c, END]):
            if literals[i, IS_ALTERNATIVE]:
                if holds:
                    continue
            elif not holds:
                break
            holds = _holds(i, literals, codes, names, lasts, earlier, ranges)
        exactness = heads[c, EXACTNESS]
        if not holds or exactness == DEAD:
            continue
        slot = heads[c, SLOT]
        if n_sure > 0 and found[n_sure - 1] == slot:
            continue
        was_possible = n_possible > 0 and found[n_found - n_possible] == slot
        if exactness == EXACT:
            n_possible -= was_possible
            found[n_sure] = slot
            n_sure += 1
        elif not was_possible:
            n_possible += 1
            found[n_found - n_possible] = slot
    return n_sure + (n_possible << 32)
