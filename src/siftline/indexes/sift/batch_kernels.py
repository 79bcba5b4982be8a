"""Matching many events against a part of `sift` in one call; the steps of consecutive events overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.indexes.sift.arrays import Event, Findings, Workspace
from siftline.indexes.sift.kernels import (
    clear_codes,
    find_entries,
    find_ordinals,
    match_entries,
    spread_codes,
    touch_blocks,
)
from siftline.indexes.sift.layout_kernels import LINE, block_of
from siftline.indexes.sift.list_kernels import EVENTS, collect_lists
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.growing import with_room
from siftline.kernels.literals import spread_event
from siftline.kernels.pointers import arrays_at, fetch, part_of
from siftline.kernels.verify import clause_holds, clear_event, distinct_slots

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.indexes.sift.arrays import Layout
    from siftline.kernels.literals import Events

_U0 = np.uint64(0)
_U2 = np.uint64(2)
_LOW_HALF = 0xFFFFFFFF
# Blocks are prefetched this many events before the lists of their event are collected.
_PREFETCHED_EVENTS = 2
# How many events are looked up together: few enough that what was prefetched for them is still in the cache.
_GROUP = 32
# The array of results grows to at most this many at once, or to twice what was found.
_MOST_EXPECTED = 1 << 24


class Rest(NamedTuple):
    """What completes the results of a part: clauses without postings, and what removes repeated slots."""

    others: NDArray[np.int32]
    dense: NDArray[np.int32]  # scratch for `spread_event`
    slots: NDArray[np.int32]
    is_exact: NDArray[np.bool_]
    is_live: NDArray[np.bool_]
    seen: NDArray[np.bool_]  # scratch, by slot; empty if no slot has several clauses


class Turns(NamedTuple):
    """The events of a batch, and the scratch of those whose steps overlap."""

    events: Events
    ordinals: NDArray[np.int32]  # of a group of events
    two: Findings  # one half each for events at even and at odd positions


@inline_kernel
def _fetch_blocks(begin: Any, end: Any, attributes: NDArray[np.int32], layout: Layout) -> None:
    """Prefetch the blocks of a later event."""
    for p in range(begin, end):
        block = block_of(attributes[np.uint64(p)], layout.blocks)
        if block >= 0:
            fetch(layout.flat, np.uint64(block))
            fetch(layout.flat, np.uint64(block) + np.uint64(LINE))


@inline_kernel
def _find_ordinals_of_group(begin: Any, end: Any, events: Events, ordinals: NDArray[np.int32], layout: Layout) -> None:
    """Find the ordinals of the values begin .. end - 1, of several events."""
    find_ordinals(Event(part_of(events.attributes, begin, end), part_of(events.codes, begin, end), ordinals), layout)


@inline_kernel
def _event_at(position: Any, origin: Any, turns: Turns) -> Any:
    """Return one event; `turns.ordinals` starts with the ordinal of value number `origin`."""
    events = turns.events
    begin, end = events.starts[position], events.starts[position + 1]
    return Event(
        part_of(events.attributes, begin, end),
        part_of(events.codes, begin, end),
        part_of(turns.ordinals, begin - origin, end - origin),
    )


@inline_kernel
def _findings_at(position: Any, turns: Turns) -> Any:
    """Return the half of the findings that belongs to an event; its neighbours use the other half."""
    two, turn = turns.two, position & 1
    n_lists, n_records, n_survivors = len(two.lists) >> 1, len(two.records) >> 1, len(two.survivors) >> 1
    return Findings(
        part_of(two.lists, turn * n_lists, (turn + 1) * n_lists),
        part_of(two.records, turn * n_records, (turn + 1) * n_records),
        part_of(two.survivors, turn * n_survivors, (turn + 1) * n_survivors),
    )


@inline_kernel
def _collect_in_turn(position: Any, origin: Any, turns: Turns, workspace: Workspace) -> Any:
    """Collect the lists of an event and prefetch them.

    Returns (whether every attribute has one value, the result of `collect_lists`). Codes are written only to detect an
    attribute with several values, and cleared at once, because other events use the same array next.
    """
    scratch, layout = workspace.scratch, workspace.layout
    event = _event_at(position, origin, turns)
    n_spread = spread_codes(event, scratch, layout)
    clear_codes(n_spread, event, scratch, layout)
    if n_spread < np.uint64(len(event.attributes)):
        return False, _U0
    if len(layout.cuts) == 0:
        return True, _U0
    return True, collect_lists(event, _findings_at(position, turns).lists, scratch, layout)


@inline_kernel
def _find_in_turn(n_lists: Any, position: Any, origin: Any, turns: Turns, workspace: Workspace) -> Any:
    """Find the entries that may match an event, and prefetch their records and rows; return as `find_entries` does."""
    scratch, layout = workspace.scratch, workspace.layout
    event, findings = _event_at(position, origin, turns), _findings_at(position, turns)
    touch_blocks(event, scratch, layout)
    n_records, n_rows = find_entries(n_lists, event, findings, scratch, layout)
    for k in range(n_records):
        fetch(layout.flat, np.uint64(findings.records[_U2 * k]))
    for k in range(n_rows):
        fetch(layout.rows, np.uint64(findings.survivors[k]))
    return n_records, n_rows


@inline_kernel
def _test_in_turn(n_records: Any, n_rows: Any, position: Any, origin: Any, turns: Turns, workspace: Workspace) -> Any:
    """Test the entries that `_find_in_turn` found for an event; return as `match_entries` does."""
    scratch, layout = workspace.scratch, workspace.layout
    event, findings = _event_at(position, origin, turns), _findings_at(position, turns)
    n_spread = spread_codes(event, scratch, layout)
    counts = match_entries(n_records, n_rows, event, findings, workspace)
    clear_codes(n_spread, event, scratch, layout)
    scratch.work[EVENTS] += 1
    return counts


@kernel
def match_events(first: int, end: int, events: Events, thread_workspace: NDArray[np.int64], rest: Rest) -> Any:
    """Match the events first .. end - 1; the workspace comes as a handle (see `kernels/pointers.py`).

    Returns (starts, sure, possible_starts, possible, several): flat results, and the positions of the events that were
    left out because an attribute has several values.

    The steps of `match_at` overlap here. The ordinals of a group of events are found together. Then one round of the
    loop collects the lists of an event, finds the entries of the previous event, and tests the entries of the one
    before that; each step prefetches what the next step of its event reads.
    """
    workspace = arrays_at(thread_workspace, Workspace)
    # Read from the tuples once: each access to a field counts references to all arrays of the tuple.
    starts, attributes, codes, layout = events.starts, events.attributes, events.codes, workspace.layout
    found_sure, found_possible = workspace.scratch.sure, workspace.scratch.possible
    is_incomplete = len(rest.others) > 0 or len(rest.seen) > 0
    n_events = end - first
    sure_starts = np.zeros(n_events + 1, dtype=np.int64)
    possible_starts = np.zeros(n_events + 1, dtype=np.int64)
    all_sure = np.empty(4 * n_events + 64, dtype=np.int32)
    all_possible = np.empty(64, dtype=np.int32)
    several = np.empty(n_events, dtype=np.int64)
    n_several = 0
    n_most = 0
    for group in range(first, end, _GROUP):
        n_most = max(n_most, starts[min(group + _GROUP, end)] - starts[group])
    ordinals = np.empty(n_most, dtype=np.int32)
    two = Findings(
        np.empty(2 * len(workspace.findings.lists), dtype=np.int32),
        np.empty(2 * len(workspace.findings.records), dtype=np.int32),
        np.empty(2 * len(workspace.findings.survivors), dtype=np.int32),
    )
    turns = Turns(events, ordinals, two)
    n_lists = n_next_lists = n_records = n_rows = n_next_records = n_next_rows = _U0
    is_single = is_found_single = is_collected_single = False
    for group in range(first, end, _GROUP):
        group_end = min(group + _GROUP, end)
        origin = starts[group]
        _find_ordinals_of_group(origin, starts[group_end], events, ordinals, layout)
        # Two more rounds than events, for the last steps of the last two events.
        for position in range(group, group_end + 2):
            if position < group_end:
                if position + _PREFETCHED_EVENTS < end:
                    ahead = position + _PREFETCHED_EVENTS
                    _fetch_blocks(starts[ahead], starts[ahead + 1], attributes, layout)
                is_collected_single, n_next_lists = _collect_in_turn(position, origin, turns, workspace)
            if group < position <= group_end and is_found_single:
                n_next_records, n_next_rows = _find_in_turn(n_lists, position - 1, origin, turns, workspace)
            if position > group + 1:
                counts = np.int64(0)
                if is_single:
                    counts = _test_in_turn(n_records, n_rows, position - 2, origin, turns, workspace)
                    if is_incomplete:
                        values = slice(starts[position - 2], starts[position - 1])
                        counts = _complete(counts, attributes[values], codes[values], workspace, rest)
                else:
                    several[n_several] = position - 2
                    n_several += 1
                i = position - 2 - first
                n_sure, n_possible = counts & _LOW_HALF, counts >> 32
                sure_starts[i + 1] = sure_starts[i] + n_sure
                possible_starts[i + 1] = possible_starts[i] + n_possible
                if sure_starts[i + 1] > len(all_sure):
                    # Allocate for all events, assuming that the others match as many, because new memory is expensive;
                    # but not for much more than was found, because a few events may match very many.
                    n_expected = sure_starts[i + 1] // (i + 1) * (n_events - i - 1)
                    n_expected = min(n_expected, max(sure_starts[i + 1], _MOST_EXPECTED))
                    all_sure = with_room(all_sure, sure_starts[i], n_sure + n_expected)
                if possible_starts[i + 1] > len(all_possible):
                    all_possible = with_room(all_possible, possible_starts[i], int(n_possible))
                for k in range(n_sure):
                    all_sure[np.uint64(sure_starts[i] + k)] = found_sure[np.uint64(k)]
                for k in range(n_possible):
                    all_possible[np.uint64(possible_starts[i] + k)] = found_possible[np.uint64(k)]
            n_lists, n_records, n_rows = n_next_lists, n_next_records, n_next_rows
            is_single, is_found_single = is_found_single, is_collected_single
    return (
        sure_starts,
        all_sure[: sure_starts[n_events]],
        possible_starts,
        all_possible[: possible_starts[n_events]],
        several[:n_several],
    )


@kernel
def _complete(
    counts: Any, attributes: NDArray[np.int32], codes: NDArray[np.int32], workspace: Workspace, rest: Rest
) -> Any:
    """Add the clauses without postings, and keep each slot once; return the new counts."""
    sure, possible = workspace.scratch.sure, workspace.scratch.possible
    n_sure, n_possible = counts & _LOW_HALF, counts >> 32
    if len(rest.others) > 0:
        following = np.empty(len(codes), dtype=np.int32)
        spread_event(attributes, codes, rest.dense, following)
        for k in range(len(rest.others)):
            clause = rest.others[k]
            if not rest.is_live[rest.slots[clause]]:
                continue
            holds, _ = clause_holds(clause, rest.dense, codes, following, workspace.literals)
            if holds and rest.is_exact[clause]:
                sure[n_sure] = rest.slots[clause]
                n_sure += 1
            elif holds:
                possible[n_possible] = rest.slots[clause]
                n_possible += 1
        clear_event(attributes, rest.dense)
    if len(rest.seen) > 0:
        n_sure, n_possible = distinct_slots(sure, n_sure, possible, n_possible, rest.seen)
    return np.int64(n_sure) | (np.int64(n_possible) << 32)


@kernel
def complete_event(
    counts: int,
    attributes: NDArray[np.int32],
    codes: NDArray[np.int32],
    thread_workspace: NDArray[np.int64],
    rest: NDArray[np.int64],
) -> Any:
    """Complete the results of `match_at` for one event; return the new counts. Workspace and rest come as handles."""
    return _complete(counts, attributes, codes, arrays_at(thread_workspace, Workspace), arrays_at(rest, Rest))


@kernel
def distinct_in_events(
    starts: NDArray[np.int64],
    sure: NDArray[np.int32],
    possible_starts: NDArray[np.int64],
    possible: NDArray[np.int32],
    seen: NDArray[np.bool_],
) -> Any:
    """Keep each slot of an event once, and none both in `sure` and in `possible`; `seen` is all False afterwards."""
    new_starts = np.zeros(len(starts), dtype=np.int64)
    new_possible_starts = np.zeros(len(starts), dtype=np.int64)
    for i in range(len(starts) - 1):
        of_event = sure[starts[i] : starts[i + 1]]
        others = possible[possible_starts[i] : possible_starts[i + 1]]
        n_sure, n_possible = distinct_slots(of_event, len(of_event), others, len(others), seen)
        new_starts[i + 1] = new_starts[i] + n_sure
        new_possible_starts[i + 1] = new_possible_starts[i] + n_possible
        # Slots only move to the front, so nothing that is still needed is overwritten.
        for k in range(n_sure):
            sure[new_starts[i] + k] = of_event[k]
        for k in range(n_possible):
            possible[new_possible_starts[i] + k] = others[k]
    return new_starts, sure[: new_starts[len(starts) - 1]], new_possible_starts, possible[: new_possible_starts[-1]]
