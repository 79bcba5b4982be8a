"""Scanning all clauses for one event: first literals block by block, the rest only where the first one holds."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.codes import ABSENT, RANGE
from siftline.kernels.compiler import direct, kernel
from siftline.kernels.literals import literal_holds, spread_event
from siftline.kernels.pointers import arrays_at, describe, no_arrays

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

# How many first literals are tested before the other literals of the survivors; so their list stays in the L1 cache.
_BLOCK = 4096


class Scanned(NamedTuple):
    """Clauses as the scan reads them: the first literal of each, and where the others start."""

    first_entries: NDArray[np.uint32]
    first_lows: NDArray[np.int32]
    first_widths: NDArray[np.uint32]
    rest_starts: NDArray[np.int64]
    attributes: NDArray[np.int32]  # this and the next columns: of the other literals
    lows: NDArray[np.int32]
    highs: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    sets: NDArray[np.int32]
    set_starts: NDArray[np.int64]
    set_lows: NDArray[np.int32]
    set_highs: NDArray[np.int32]


@kernel
def describe_scanned(scanned: Scanned, handle: NDArray[np.int64]) -> None:
    """Write a handle."""
    describe(scanned, handle)


@functools.cache
def scanned_describer() -> Callable[[Scanned, NDArray[np.int64]], None]:
    """Return `describe_scanned` for callers whose arrays have the types that `Scanned` names."""
    return direct(describe_scanned, no_arrays(Scanned), np.empty(0, dtype=np.int64))


@kernel
def scan_clauses(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    n_attributes: int,
    columns: NDArray[np.int64],
    slots: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    is_live: NDArray[np.bool_],
) -> Any:
    """Return (slots that match, slots to check, first literals that held, other literals tested).

    `columns` is the handle of `Scanned` (see `kernels/pointers.py`).
    """
    scanned = arrays_at(columns, Scanned)
    dense = np.full(n_attributes + 1, ABSENT, dtype=np.int32)
    # Clauses without a first literal test for code 0 of this extra entry, which every event has.
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
            n += (np.uint32(entry - scanned.first_lows[c]) <= scanned.first_widths[c]) | (entry < ABSENT)
        n_survivors += n
        for s in range(n):
            c = survivors[s]
            entry = dense[scanned.first_entries[c]]
            holds = True
            if entry < ABSENT:
                low = scanned.first_lows[c]
                high = low + scanned.first_widths[c]
                holds = literal_holds(entry, low, high, RANGE, -1, event_codes, following, scanned)
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
