"""Matching many events against a part of `sift`, one after the other, without going back to Python in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.pointers import fetch
from siftline.kernels.scan import spread_event
from siftline.kernels.sift import SEVERAL, _match
from siftline.kernels.sift_layout import LINE, block_of, with_room
from siftline.kernels.verify import clause_holds, clear_event, distinct_slots

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOW_HALF = 0xFFFFFFFF
# Blocks are fetched so many events before they are looked at.
_AHEAD = 2
# Results of a chunk for which there is room before anything like that was found.
_MOST_EXPECTED = 1 << 24


@inline_kernel
def _fetch_blocks(event_attributes: NDArray[np.int32], blocks: NDArray[np.int32], flat: NDArray[np.int32]) -> None:
    """Ask for the blocks of an event to come: they are on their way while others are matched."""
    for p in range(len(event_attributes)):
        a = event_attributes[np.uint64(p)]
        block = block_of(a, blocks)
        if block >= 0:
            fetch(flat, np.uint64(block))
            fetch(flat, np.uint64(block) + np.uint64(LINE))


@kernel
def match_events(
    first: int,
    end: int,
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    codes: NDArray[np.int32],
    living: NDArray[np.bool_],
    no_weights: NDArray[np.float64],
    no_ids: NDArray[np.int64],
    not_shared: Any,
    arrays: Any,
    sure: NDArray[np.int32],
    possible: NDArray[np.int32],
    is_incomplete: bool,
    completing: Any,
) -> Any:
    """Match the events first .. end - 1.

    `arrays` are the other arguments of `_match`, which writes to `sure` and `possible`; `living` is its `is_live`.
    `completing` are the arguments of `_complete`, for a part that needs it.

    Returns (starts, sure, possible_starts, possible, several): flat results, and the positions of events that have
    several values of an attribute and were left out.
    """
    n_events = end - first
    sure_starts = np.zeros(n_events + 1, dtype=np.int64)
    possible_starts = np.zeros(n_events + 1, dtype=np.int64)
    all_sure = np.empty(4 * n_events + 64, dtype=np.int32)
    all_possible = np.empty(64, dtype=np.int32)
    several = np.empty(n_events, dtype=np.int64)
    n_several = 0
    for i in range(n_events):
        begin, stop = starts[first + i], starts[first + i + 1]
        event = (attributes[begin:stop], codes[begin:stop])
        if i + _AHEAD < n_events:
            later = first + i + _AHEAD
            _fetch_blocks(attributes[starts[later] : starts[later + 1]], *arrays[-4:-2])
        counts = _match(*event, living, no_weights, no_weights, no_ids, no_ids, *not_shared, *arrays)
        if counts == SEVERAL:
            several[n_several] = first + i
            n_several += 1
            counts = np.int64(0)
        elif is_incomplete:
            counts = _complete(counts, *event, sure, possible, *completing)
        n_sure, n_possible = counts & _LOW_HALF, counts >> 32
        sure_starts[i + 1] = sure_starts[i] + n_sure
        possible_starts[i + 1] = possible_starts[i] + n_possible
        if sure_starts[i + 1] > len(all_sure):
            # For all events at once, if the others have as many: new memory costs more than what is written there. But
            # not for much more than there is, because a few events may have very many.
            n_expected = sure_starts[i + 1] // (i + 1) * (n_events - i - 1)
            n_expected = min(n_expected, max(sure_starts[i + 1], _MOST_EXPECTED))
            all_sure = with_room(all_sure, sure_starts[i], n_sure + n_expected)
        all_possible = with_room(all_possible, possible_starts[i], n_possible)
        for k in range(n_sure):
            all_sure[np.uint64(sure_starts[i] + k)] = sure[np.uint64(k)]
        for k in range(n_possible):
            all_possible[np.uint64(possible_starts[i] + k)] = possible[np.uint64(k)]
    return (
        sure_starts,
        all_sure[: sure_starts[n_events]],
        possible_starts,
        all_possible[: possible_starts[n_events]],
        several[:n_several],
    )


@kernel
def _complete(
    counts: Any,
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    sure: NDArray[np.int32],
    possible: NDArray[np.int32],
    others: NDArray[np.int32],
    dense: NDArray[np.int32],
    literals: Any,
    slots: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    is_live: NDArray[np.bool_],
    has_repeated_slots: bool,
    seen: NDArray[np.bool_],
) -> Any:
    """Add the clauses that nothing finds, and leave each slot once; return the new counts."""
    n_sure, n_possible = counts & _LOW_HALF, counts >> 32
    if len(others) > 0:
        following = np.empty(len(event_codes), dtype=np.int32)
        spread_event(event_attributes, event_codes, dense, following)
        for k in range(len(others)):
            clause = others[k]
            if not is_live[slots[clause]]:
                continue
            holds, _ = clause_holds(clause, dense, event_codes, following, *literals)
            if holds and is_exact[clause]:
                sure[n_sure] = slots[clause]
                n_sure += 1
            elif holds:
                possible[n_possible] = slots[clause]
                n_possible += 1
        clear_event(event_attributes, dense)
    if has_repeated_slots:
        n_sure, n_possible = distinct_slots(sure, n_sure, possible, n_possible, seen)
    return np.int64(n_sure) | (np.int64(n_possible) << 32)


@kernel
def side_by_side(
    starts: NDArray[np.int64], slots: NDArray[np.int32], other_starts: NDArray[np.int64], other_slots: NDArray[np.int32]
) -> Any:
    """Return two flat results as one: (starts, slots), those of one event together."""
    joined_starts = starts + other_starts
    joined = np.empty(joined_starts[len(starts) - 1], dtype=np.int32)
    n = np.uint64(0)
    for i in range(len(starts) - 1):
        for k in range(np.uint64(starts[i]), np.uint64(starts[i + 1])):
            joined[n] = slots[k]
            n += np.uint64(1)
        for k in range(np.uint64(other_starts[i]), np.uint64(other_starts[i + 1])):
            joined[n] = other_slots[k]
            n += np.uint64(1)
    return joined_starts, joined


@kernel
def distinct_in_events(
    starts: NDArray[np.int64],
    sure: NDArray[np.int32],
    possible_starts: NDArray[np.int64],
    possible: NDArray[np.int32],
    seen: NDArray[np.bool_],
) -> Any:
    """Leave each slot of an event once, and none both in `sure` and in `possible`; `seen` is left all False."""
    new_starts = np.zeros(len(starts), dtype=np.int64)
    new_possible_starts = np.zeros(len(starts), dtype=np.int64)
    for i in range(len(starts) - 1):
        of_event = sure[starts[i] : starts[i + 1]]
        others = possible[possible_starts[i] : possible_starts[i + 1]]
        n_sure, n_possible = distinct_slots(of_event, len(of_event), others, len(others), seen)
        new_starts[i + 1] = new_starts[i] + n_sure
        new_possible_starts[i + 1] = new_possible_starts[i] + n_possible
        # What moves moves to the front: nothing that is still needed is overwritten.
        for k in range(n_sure):
            sure[new_starts[i] + k] = of_event[k]
        for k in range(n_possible):
            possible[new_possible_starts[i] + k] = others[k]
    return new_starts, sure[: new_starts[len(starts) - 1]], new_possible_starts, possible[: new_possible_starts[-1]]
