"""Testing the row of a clause that passed its posting, and adding its slot to the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.indexes.sift.layout_kernels import BITS, FLAGGED, INEXACT, LAST, PLACE, SET, VETO
from siftline.kernels.compiler import inline_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.indexes.sift.arrays import Scratch, Wanted

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U2 = np.uint64(2)


@inline_kernel
def is_inside(code: Any, low: Any, width: Any) -> Any:
    """Return whether low <= code <= low + width, by one unsigned comparison; never for an absent value."""
    return np.uint32(code - low) <= np.uint32(width)


@inline_kernel
def try_literal(p: Any, rows: NDArray[np.int32], scratch: Scratch) -> Any:
    """Test the literal at a place of a row; return (whether it passes, whether it is the last, the next place)."""
    word = rows[np.uint64(p)]
    place = np.uint64(word & PLACE)
    if word & SET:
        code = scratch.dense[place]
        holds = False
        n = rows[np.uint64(p + 1)]
        p += 2
        for k in range(n):
            holds |= is_inside(code, rows[np.uint64(p + 2 * k)], rows[np.uint64(p + 2 * k + 1)])
        p += 2 * n
    elif word & BITS:
        low = np.uint64(np.uint32(rows[np.uint64(p + 1)]))
        high = np.uint64(np.uint32(rows[np.uint64(p + 2)]))
        holds = (scratch.bits[place] & (low | (high << np.uint64(32)))) != _U0
        p += 3
    else:
        holds = is_inside(scratch.dense[place], rows[np.uint64(p + 1)], rows[np.uint64(p + 2)])
        p += 3
    return holds != ((word & VETO) != 0), (word & LAST) != 0, p


@inline_kernel
def try_row(p: Any, rows: NDArray[np.int32], scratch: Scratch) -> Any:
    """Return how many literals of a row were tested; negative if the last one tested fails."""
    n_tested = 0
    while True:
        n_tested += 1
        passes, is_last, p = try_literal(p, rows, scratch)
        if not passes:
            return -n_tested
        if is_last:
            return n_tested


@inline_kernel
def is_too_light(slot: Any, wanted: Wanted) -> Any:
    """Return whether a slot is lighter than all of the heaviest matches so far; never if all slots are wanted.

    Slots that were added after the weights were read have no weight, and are never too light.
    """
    place = np.uint64(slot & ~FLAGGED)
    has_weight = len(wanted.heaviest) > 0 and place < np.uint64(len(wanted.weights))
    return has_weight and wanted.weights[place] < wanted.heaviest[0]


@inline_kernel
def note_weight(weight: Any, heaviest: NDArray[np.float64]) -> None:
    """Replace the least of the heaviest weights, which are a heap with the least at the top."""
    place = _U0
    n = np.uint64(len(heaviest))
    while True:
        child = _U2 * place + _U1
        if child >= n:
            break
        if child + _U1 < n and heaviest[child + _U1] < heaviest[child]:
            child += _U1
        if heaviest[child] >= weight:
            break
        heaviest[place] = heaviest[child]
        place = child
    heaviest[place] = weight


@inline_kernel
def keep(slot: Any, n_sure: Any, n_possible: Any, scratch: Scratch, wanted: Wanted) -> Any:
    """Append a slot to one of the results, unless it is dead or too light; return both counts."""
    place = np.int32(slot & ~FLAGGED)
    if len(wanted.is_live) > 0 and not wanted.is_live[np.uint64(place)]:
        return n_sure, n_possible
    if is_too_light(place, wanted):
        return n_sure, n_possible
    if (slot & INEXACT) == 0:
        scratch.sure[np.uint64(n_sure)] = place
        if len(wanted.heaviest) > 0 and np.uint64(place) < np.uint64(len(wanted.weights)):
            note_weight(wanted.weights[np.uint64(place)], wanted.heaviest)
        return n_sure + 1, n_possible
    scratch.possible[np.uint64(n_possible)] = place
    return n_sure, n_possible + 1
