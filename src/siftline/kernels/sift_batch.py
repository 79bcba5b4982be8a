"""Matching many events against a part of `sift`, one after the other, without going back to Python in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.pointers import fetch, part_of
from siftline.kernels.scan import spread_event
from siftline.kernels.sift import clear_codes, find_entries, find_ordinals, match_entries, spread_codes, touch_blocks
from siftline.kernels.sift_layout import LINE, block_of, with_room
from siftline.kernels.sift_lists import EVENTS, collect_lists
from siftline.kernels.verify import clause_holds, clear_event, distinct_slots

if TYPE_CHECKING:
    from numpy.typing import NDArray

_U0 = np.uint64(0)
_U2 = np.uint64(2)
_LOW_HALF = 0xFFFFFFFF
# Blocks are fetched so many events before lists are collected; they are looked at one event later.
_AHEAD = 2
# Events whose ordinals are found together: many, but so few that what was fetched for them is still in the cache.
_GROUP = 32
# Results of a chunk for which there is room before anything like that was found.
_MOST_EXPECTED = 1 << 24


@inline_kernel
def _fetch_blocks(begin: Any, end: Any, attributes: NDArray[np.int32], arrays: Any) -> None:
    """Ask for the blocks of an event to come: they are on their way while others are matched."""
    blocks, flat = arrays[2][-4:-2]
    for p in range(begin, end):
        block = block_of(attributes[np.uint64(p)], blocks)
        if block >= 0:
            fetch(flat, np.uint64(block))
            fetch(flat, np.uint64(block) + np.uint64(LINE))


@inline_kernel
def _find_ordinals_of_group(
    begin: Any,
    end: Any,
    attributes: NDArray[np.int32],
    codes: NDArray[np.int32],
    ordinals: NDArray[np.int32],
    arrays: Any,
) -> None:
    """Find the ordinals of the values begin .. end - 1, of several events."""
    cut_starts, cuts, guide_bases, guides, _, node_bases, node_starts, rises = arrays[2][:8]
    placing = (cut_starts, cuts, guide_bases, guides, node_bases, node_starts, rises)
    find_ordinals(part_of(attributes, begin, end), part_of(codes, begin, end), ordinals, *placing)


@inline_kernel
def _event_at(
    position: Any,
    origin: Any,
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    codes: NDArray[np.int32],
    ordinals: NDArray[np.int32],
) -> Any:
    """Return attributes, codes and ordinals of an event; ordinals start with that of the value `origin`."""
    begin, end = starts[position], starts[position + 1]
    return (
        part_of(attributes, begin, end),
        part_of(codes, begin, end),
        part_of(ordinals, begin - origin, end - origin),
    )


@inline_kernel
def _collect_in_turn(
    position: Any,
    origin: Any,
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    codes: NDArray[np.int32],
    ordinals: NDArray[np.int32],
    two_lists: NDArray[np.int32],
    arrays: Any,
) -> Any:
    """Collect the lists of an event, and ask for them: they are on their way while others are looked at.

    Returns (whether it has no attribute twice, and what `collect_lists` does). Codes are noted only to see whether an
    attribute comes twice: other events need their place next.
    """
    dense, _, _, bits, _, lists, _, waiting, _, _, _, _, work = arrays[0]
    cuts = arrays[2][1]
    node_bases, node_starts, rises, marked = arrays[2][5:9]
    blocks, is_skipped = arrays[2][13], arrays[2][16]
    event: tuple[Any, Any, Any] = _event_at(position, origin, starts, attributes, codes, ordinals)
    spreading: Any = (dense, bits, len(blocks), len(cuts) > 0)
    n_spread = spread_codes(*event, *spreading)
    clear_codes(n_spread, event[0], *spreading)
    if n_spread < np.uint64(len(event[0])):
        return False, _U0
    if len(cuts) == 0:
        return True, _U0
    turn = position & 1
    lists = part_of(two_lists, turn * len(lists), (turn + 1) * len(lists))
    collecting: Any = (work, node_bases, node_starts, rises, marked, is_skipped)
    return True, collect_lists(event[0], event[2], waiting, lists, *collecting)


@inline_kernel
def _find_in_turn(
    position: Any,
    origin: Any,
    n_lists: Any,
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    codes: NDArray[np.int32],
    ordinals: NDArray[np.int32],
    two_lists: NDArray[np.int32],
    two_records: NDArray[np.int32],
    two_survivors: NDArray[np.int32],
    arrays: Any,
) -> Any:
    """Find what may match an event, and ask for it: it is on its way while the event before is tested.

    Returns what `find_entries` does.
    """
    _, seen, marks, _, _, lists, groups, _, records, survivors, _, _, work = arrays[0]
    cut_starts, cuts, _, _, lanes = arrays[2][:5]
    marked, cold, rows, _, _, blocks, flat, signatures, _ = arrays[2][8:]
    event: tuple[Any, Any, Any] = _event_at(position, origin, starts, attributes, codes, ordinals)
    turn = position & 1
    lists = part_of(two_lists, turn * len(lists), (turn + 1) * len(lists))
    records = part_of(two_records, turn * len(records), (turn + 1) * len(records))
    survivors = part_of(two_survivors, turn * len(survivors), (turn + 1) * len(survivors))
    touch_blocks(event[0], work, blocks, flat)
    finding: Any = (seen, marks, groups, work, cut_starts, lanes, marked, cold, blocks, flat, signatures, len(cuts) > 0)
    n_records, n_rows = find_entries(*event, n_lists, lists, records, survivors, *finding)
    for k in range(n_records):
        fetch(flat, np.uint64(records[_U2 * k]))
    for k in range(n_rows):
        fetch(rows, np.uint64(survivors[k]))
    return n_records, n_rows


@inline_kernel
def _test_in_turn(
    position: Any,
    origin: Any,
    n_records: Any,
    n_rows: Any,
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    codes: NDArray[np.int32],
    ordinals: NDArray[np.int32],
    two_records: NDArray[np.int32],
    two_survivors: NDArray[np.int32],
    living: NDArray[np.bool_],
    no_weights: NDArray[np.float64],
    arrays: Any,
) -> Any:
    """Test what `_find_in_turn` has found for an event; return what `match_entries` does."""
    dense, _, _, bits, _, _, _, waiting, records, survivors, sure, possible, work = arrays[0]
    literals = arrays[1]
    _, cuts, _, _, _, node_bases, _, rises = arrays[2][:8]
    _, _, rows, alone_starts, alone_slots, blocks, flat, _, _ = arrays[2][8:]
    event: tuple[Any, Any, Any] = _event_at(position, origin, starts, attributes, codes, ordinals)
    turn = position & 1
    records = part_of(two_records, turn * len(records), (turn + 1) * len(records))
    survivors = part_of(two_survivors, turn * len(survivors), (turn + 1) * len(survivors))
    keeping = (living, no_weights, no_weights, dense, bits, waiting, sure, possible, work)
    testing: Any = (*keeping, literals, node_bases, rises, rows, alone_starts, alone_slots, flat)
    spreading: Any = (dense, bits, len(blocks), len(cuts) > 0)
    n_spread = spread_codes(*event, *spreading)
    counts = match_entries(event[0], event[2], n_records, n_rows, records, survivors, *testing)
    clear_codes(n_spread, event[0], *spreading)
    work[EVENTS] += 1
    return counts


@kernel
def match_events(
    first: int,
    end: int,
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    codes: NDArray[np.int32],
    living: NDArray[np.bool_],
    no_weights: NDArray[np.float64],
    arrays: Any,
    is_incomplete: bool,
    completing: Any,
) -> Any:
    """Match the events first .. end - 1.

    `living` is the `is_live` of `_match`; `arrays` are its arguments from `dense` on: the scratch arrays, those of the
    literals, and the layout. `completing` are the arguments of `_complete`, for a part that needs it.

    Returns (starts, sure, possible_starts, possible, several): flat results, and the positions of events that have
    several values of an attribute and were left out.

    What `_match` does for one event goes by turns here. The ordinals of a group of events are found together; then the
    lists of an event are collected, the entries of the one before it are found, and those of the one before that are
    tested: each step asks memory for what the next one needs.
    """
    _, _, _, _, _, lists, _, _, records, survivors, sure, possible, _ = arrays[0]
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
    two_lists = np.empty(2 * len(lists), dtype=np.int32)
    two_records = np.empty(2 * len(records), dtype=np.int32)
    two_survivors = np.empty(2 * len(survivors), dtype=np.int32)
    n_lists = n_next_lists = n_records = n_rows = n_next_records = n_next_rows = _U0
    is_single = is_found_single = is_collected_single = False
    for group in range(first, end, _GROUP):
        group_end = min(group + _GROUP, end)
        origin = starts[group]
        _find_ordinals_of_group(origin, starts[group_end], attributes, codes, ordinals, arrays)
        # Two more than there are: when the last one is tested, nothing is collected or found any more.
        for position in range(group, group_end + 2):
            if position < group_end:
                if position + _AHEAD < end:
                    _fetch_blocks(starts[position + _AHEAD], starts[position + _AHEAD + 1], attributes, arrays)
                is_collected_single, n_next_lists = _collect_in_turn(
                    position, origin, starts, attributes, codes, ordinals, two_lists, arrays
                )
            if group < position <= group_end and is_found_single:
                n_next_records, n_next_rows = _find_in_turn(
                    position - 1,
                    origin,
                    n_lists,
                    starts,
                    attributes,
                    codes,
                    ordinals,
                    two_lists,
                    two_records,
                    two_survivors,
                    arrays,
                )
            if position > group + 1:
                counts = np.int64(0)
                if is_single:
                    counts = _test_in_turn(
                        position - 2,
                        origin,
                        n_records,
                        n_rows,
                        starts,
                        attributes,
                        codes,
                        ordinals,
                        two_records,
                        two_survivors,
                        living,
                        no_weights,
                        arrays,
                    )
                    if is_incomplete:
                        values = slice(starts[position - 2], starts[position - 1])
                        counts = _complete(counts, attributes[values], codes[values], sure, possible, *completing)
                else:
                    several[n_several] = position - 2
                    n_several += 1
                i = position - 2 - first
                n_sure, n_possible = counts & _LOW_HALF, counts >> 32
                sure_starts[i + 1] = sure_starts[i] + n_sure
                possible_starts[i + 1] = possible_starts[i] + n_possible
                if sure_starts[i + 1] > len(all_sure):
                    # For all events at once, if the others have as many: new memory costs more than what is written
                    # there. But not for much more than there is, because a few events may have very many.
                    n_expected = sure_starts[i + 1] // (i + 1) * (n_events - i - 1)
                    n_expected = min(n_expected, max(sure_starts[i + 1], _MOST_EXPECTED))
                    all_sure = with_room(all_sure, sure_starts[i], n_sure + n_expected)
                if possible_starts[i + 1] > len(all_possible):
                    all_possible = with_room(all_possible, possible_starts[i], int(n_possible))
                for k in range(n_sure):
                    all_sure[np.uint64(sure_starts[i] + k)] = sure[np.uint64(k)]
                for k in range(n_possible):
                    all_possible[np.uint64(possible_starts[i] + k)] = possible[np.uint64(k)]
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
