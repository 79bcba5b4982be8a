"""Matching one event against a part of `sift`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.pointers import HEADER_SIZE, fetch, pointer
from siftline.kernels.sharing import ids_with_followers
from siftline.kernels.sift_layout import (
    CLAUSE,
    LINE,
    LOW1,
    LOW2,
    MORE,
    PLACE2,
    RECORD,
    ROW,
    SLOT,
    WIDTH1,
    WIDTH2,
    block_of,
    guide_of,
    guided_ordinal,
    leaf_of,
    mark_of,
    ordinal_at,
    records_at,
    signature,
    with_room,
)
from siftline.kernels.sift_lists import (
    CANDIDATES,
    EVENTS,
    LISTS,
    N_WAITING,
    TESTED,
    TOUCHED,
    collect_lists,
    copy_alone,
    find_rows,
    match_rows,
)
from siftline.kernels.sift_rows import is_inside, keep, try_row
from siftline.kernels.vectors import (
    HAS_SHUFFLES,
    N_COLUMNS,
    N_LANES,
    SIGNED,
    first_bit,
    is_marked,
    signed_of_32,
)
from siftline.kernels.verify import clause_holds, fetch_literals

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ABSENT = np.int32(-1)
_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U2 = np.uint64(2)
_SIX = np.uint64(6)
_LOW_SIX = np.uint64(63)
# Where the signature ALWAYS stands in the bits that an event has.
_LAST_WORD = np.uint64(1023)
_ALWAYS_BIT = np.uint64(1 << 63)
# Where an event notes the low and the high bytes of its signatures.
_SIGNED = np.uint64(SIGNED)
_SIGNED_HIGH = np.uint64(SIGNED + N_LANES)
_EIGHT = np.uint64(8)
_LOW_BYTE = np.uint64(255)
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_N_WAITING = np.uint64(N_WAITING)
# Values whose ordinals are found together: as many as there may be cache lines on their way, and some more.
_TOGETHER = np.uint64(64)
# Signatures on a cache line, and all but the first two of them, as bits.
_ON_LINE = np.uint64(32)
_NOT_FIRST_TWO = ~np.uint64(15)
# Words of a record in a block.
_LOW1, _WIDTH1, _PLACE2, _LOW2, _WIDTH2, _SLOT, _ROW, _CLAUSE = (
    np.uint64(word) for word in (LOW1, WIDTH1, PLACE2, LOW2, WIDTH2, SLOT, ROW, CLAUSE)
)

# Of the arguments of `_match` but for the event: an address and a length for each.
_TABLE_SIZE = 96

# What the kernel returns for an event with several values of one attribute, with too many values, or with too many ids:
# it needs the careful way.
SEVERAL = -1


@inline_kernel
def add_mark(lane: Any, mark: Any, marks: NDArray[np.uint8]) -> None:
    """Note in which part of its ordinals the event's value of an attribute is."""
    marks[np.uint64(lane) + np.uint64(N_LANES) * np.uint64(mark >> 3)] |= np.uint8(1 << (mark & 7))


@inline_kernel
def clear_marks(lane: Any, marks: NDArray[np.uint8]) -> None:
    """Forget the marks of a lane."""
    marks[np.uint64(lane)] = 0
    marks[np.uint64(lane) + np.uint64(N_LANES)] = 0


@inline_kernel
def sign(place: Any, seen: NDArray[np.uint64], marks: NDArray[np.uint8]) -> None:
    """Note the signature of an attribute that the event has."""
    bit = np.uint64(signature(place))
    seen[bit >> _SIX] |= _U1 << (bit & _LOW_SIX)
    marks[_SIGNED + (bit & _LOW_BYTE)] = 255
    marks[_SIGNED_HIGH + (bit >> _EIGHT)] = 255


@inline_kernel
def clear_signature(place: Any, seen: NDArray[np.uint64], marks: NDArray[np.uint8]) -> None:
    """Forget the signature of an attribute, and others that share something with it."""
    bit = np.uint64(signature(place))
    seen[bit >> _SIX] = 0
    marks[_SIGNED + (bit & _LOW_BYTE)] = 0
    marks[_SIGNED_HIGH + (bit >> _EIGHT)] = 0


@inline_kernel
def sign_always(seen: NDArray[np.uint64], marks: NDArray[np.uint8]) -> None:
    """Note the signature that every event has."""
    seen[_LAST_WORD] |= _ALWAYS_BIT
    marks[_SIGNED + _LOW_BYTE] = 255
    marks[_SIGNED_HIGH + _LOW_BYTE] = 255


@inline_kernel
def _append_of_lines(
    n_groups: Any,
    n_left: Any,
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    seen: NDArray[np.uint64],
    groups: NDArray[np.uint64],
    records: NDArray[np.int32],
    blocks: NDArray[np.int32],
    flat: NDArray[np.int32],
    signatures: NDArray[np.uint16],
) -> Any:
    """Append (record, code) of each entry on lines of blocks whose bit is set; return how many there are now.

    A line is the place of a value in the event, and how many signatures of the value's block stand before it.
    """
    for g in range(n_groups):
        p, before, left = groups[_U2 * g] >> _HALF, groups[_U2 * g] & _LOW_HALF, groups[_U2 * g + _U1]
        block = blocks[np.uint64(event_attributes[p])]
        record = np.uint64(records_at(np.int64(block), np.int64(flat[np.uint64(block)])))
        while left != _U0:
            # The number of entries takes the place of two signatures.
            k = before + (first_bit(left) >> _U1)
            left &= left - _U1
            bit = np.uint64(signatures[_U2 * np.uint64(block) + k])
            records[_U2 * n_left] = record + np.uint64(RECORD) * (k - _U2)
            records[_U2 * n_left + _U1] = event_codes[p]
            n_left += (seen[bit >> _SIX] >> (bit & _LOW_SIX)) & _U1
    return n_left


@inline_kernel
def _append_seen(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    seen: NDArray[np.uint64],
    marks: NDArray[np.uint8],
    groups: NDArray[np.uint64],
    records: NDArray[np.int32],
    work: NDArray[np.int64],
    blocks: NDArray[np.int32],
    flat: NDArray[np.int32],
    signatures: NDArray[np.uint16],
) -> Any:
    """Write down (record, code) of each entry in the event's blocks whose second attribute may be there.

    Returns how many there are. First the lines on which there may be some, without a branch, then these.
    """
    n_left = _U0
    n_groups = _U0
    for p in range(np.uint64(len(event_attributes))):
        a = event_attributes[p]
        block = block_of(a, blocks)
        if block < 0:
            continue
        work[LISTS] += 1
        n = np.uint64(flat[np.uint64(block)])
        if not HAS_SHUFFLES:
            record = np.uint64(records_at(np.int64(block), np.int64(n)))
            for k in range(n):
                bit = np.uint64(signatures[_U2 * (np.uint64(block) + _U1) + k])
                records[_U2 * n_left] = record + np.uint64(RECORD) * k
                records[_U2 * n_left + _U1] = event_codes[p]
                n_left += (seen[bit >> _SIX] >> (bit & _LOW_SIX)) & _U1
            continue
        address = np.int64(flat.ctypes.data) + np.int64(4) * np.int64(block)
        end = n + _U2
        for j in range(_U0, end, _ON_LINE):
            left = signed_of_32(address + np.int64(j + j), np.int64(marks.ctypes.data))
            if j == _U0:
                left &= _NOT_FIRST_TWO
            if end - j < _ON_LINE:
                left &= (_U1 << (_U2 * (end - j))) - _U1
            groups[_U2 * n_groups] = (p << _HALF) | j
            groups[_U2 * n_groups + _U1] = left
            n_groups += np.uint64(left != _U0)
            if n_groups == _N_WAITING:
                n_left = _append_of_lines(
                    n_groups, n_left, event_attributes, event_codes, seen, groups, records, blocks, flat, signatures
                )
                n_groups = _U0
    return _append_of_lines(
        n_groups, n_left, event_attributes, event_codes, seen, groups, records, blocks, flat, signatures
    )


@inline_kernel
def _match_records(
    n_left: Any,
    n_sure: Any,
    n_possible: Any,
    records: NDArray[np.int32],
    dense: NDArray[np.int32],
    bits: NDArray[np.uint64],
    work: NDArray[np.int64],
    rows: NDArray[np.int32],
    flat: NDArray[np.int32],
    literals: Any,
    sure: NDArray[np.int32],
    possible: NDArray[np.int32],
    is_live: NDArray[np.bool_],
    weights: NDArray[np.float64],
    heaviest: NDArray[np.float64],
) -> Any:
    """Match the entries of blocks that are left; return how many slots there are now.

    Step by step for some hundred of them, as rows of lists: each step asks for what the next one needs.
    """
    touched: Any = 0
    for k in range(n_left):
        touched += flat[np.uint64(records[_U2 * k])]
    for first in range(_U0, n_left, _N_WAITING):
        left = _U2 * first  # here on, the records that are left are written over those that were read
        n_inside = _U0
        for k in range(first, min(first + _N_WAITING, n_left)):
            at = np.uint64(records[_U2 * k])
            holds = is_inside(records[_U2 * k + _U1], flat[at + _LOW1], flat[at + _WIDTH1])
            holds &= is_inside(dense[np.uint64(flat[at + _PLACE2])], flat[at + _LOW2], flat[at + _WIDTH2])
            records[left + n_inside] = at
            n_inside += np.uint64(holds)
        for k in range(n_inside):
            row = flat[np.uint64(records[left + k]) + _ROW]
            if row >= 0:
                fetch(rows, np.uint64(row))
        n_passed = _U0
        n_more = _U0
        for k in range(n_inside):
            at = np.uint64(records[left + k])
            row = flat[at + _ROW]
            n_tested = try_row(row, rows, dense, bits) if row >= 0 else 0
            work[TESTED] += abs(n_tested)
            records[left + n_passed] = at
            if n_tested >= 0:
                n_passed += _U1
                if flat[at + _SLOT] & MORE:
                    n_more += _U1
                    fetch(literals[0], np.uint64(flat[at + _CLAUSE]))
        for k in range(n_passed if n_more > _U0 else _U0):
            at = np.uint64(records[left + k])
            if flat[at + _SLOT] & MORE:
                fetch_literals(flat[at + _CLAUSE], literals)
        for k in range(n_passed):
            at = np.uint64(records[left + k])
            slot = flat[at + _SLOT]
            if slot & MORE:
                holds_whole, n_tested = clause_holds(flat[at + _CLAUSE], dense, dense, dense, *literals)
                work[TESTED] += n_tested
                if not holds_whole:
                    continue
            n_sure, n_possible = keep(slot, n_sure, n_possible, sure, possible, is_live, weights, heaviest)
    work[CANDIDATES] += np.int64(n_left)
    work[TOUCHED] = touched
    return n_sure, n_possible


@inline_kernel
def touch_blocks(
    event_attributes: NDArray[np.int32], work: NDArray[np.int64], blocks: NDArray[np.int32], flat: NDArray[np.int32]
) -> None:
    """Read from the event's blocks, only to fetch them.

    All come from memory at the same time, not one after the other. In a loop with more in it the processor would not
    get as far ahead.
    """
    if len(flat) == 0:
        return
    touched: Any = 0
    for p in range(np.uint64(len(event_attributes))):
        block = block_of(event_attributes[p], blocks)
        if block >= 0:
            touched += flat[np.uint64(block)] + flat[np.uint64(block) + np.uint64(LINE)]
    # The other lines, now that it is known how many there are.
    for p in range(np.uint64(len(event_attributes))):
        block = block_of(event_attributes[p], blocks)
        if block >= 0:
            for word in range(2 * LINE, 1 + ((flat[np.uint64(block)] + 1) >> 1), LINE):
                touched += flat[np.uint64(block + word)]
    work[TOUCHED] = touched


@inline_kernel
def find_ordinals(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    ordinals: NDArray[np.int32],
    cut_starts: NDArray[np.int64],
    cuts: NDArray[np.int32],
    guide_bases: NDArray[np.int64],
    guides: NDArray[np.int32],
    node_bases: NDArray[np.int64],
    node_starts: NDArray[np.int32],
    rises: NDArray[np.uint8],
) -> None:
    """Write down the ordinal of each value, -1 if its attribute has no cuts, and fetch where its lists begin.

    A value waits for memory three times: for its place in the guide, its cuts, and its leaf. So each step asks for what
    the next one needs, of all values: what waits waits together.
    """
    n_known = len(cut_starts) - 1
    n_values = np.uint64(len(event_attributes))
    for first in range(_U0, n_values, _TOGETHER):
        end = min(first + _TOGETHER, n_values)
        for p in range(first, end):
            a = event_attributes[p]
            guide = np.int64(-1)
            if a < n_known and cut_starts[np.uint64(a) + _U1] > cut_starts[np.uint64(a)]:
                guide = np.int64(guide_of(a, event_codes[p], guide_bases, guides))
                fetch(guides, np.uint64(guide))
            ordinals[p] = guide
        for p in range(first, end):
            if ordinals[p] >= 0:
                n_before = guides[np.uint64(ordinals[p])]
                fetch(cuts, np.uint64(cut_starts[np.uint64(event_attributes[p])] + n_before))
        for p in range(first, end):
            if ordinals[p] >= 0:
                a = np.uint64(event_attributes[p])
                ordinal = ordinal_at(ordinals[p], a, event_codes[p], cut_starts, cuts, guides)
                base = np.uint64(node_bases[a])
                size = (np.uint64(node_bases[a + _U1]) - base) >> _U1
                if size > _U0:
                    leaf = base + leaf_of(np.uint64(ordinal), size)
                    fetch(node_starts, leaf)
                    fetch(rises, leaf)
                ordinals[p] = ordinal


@inline_kernel
def spread_codes(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    ordinals: NDArray[np.int32],
    dense: NDArray[np.int32],
    bits: NDArray[np.uint64],
    n_known: Any,
    has_trees: Any,
) -> Any:
    """Note the values of an event by attribute; return how many, all unless some attribute has several."""
    n_values = np.uint64(len(event_attributes))
    for p in range(n_values):
        a = event_attributes[p]
        if a < n_known:
            place = np.uint64(a) + _U1
            if dense[place] != _ABSENT:
                return p
            dense[place] = event_codes[p]
            if has_trees:
                # Where an attribute has more ordinals than a word has bits, nobody asks.
                bits[place] = _U1 << (np.uint64(ordinals[p]) & _LOW_SIX)
    return n_values


@inline_kernel
def clear_codes(
    n_spread: Any,
    event_attributes: NDArray[np.int32],
    dense: NDArray[np.int32],
    bits: NDArray[np.uint64],
    n_known: Any,
    has_trees: Any,
) -> None:
    """Forget what `spread_codes` noted."""
    for p in range(n_spread):
        a = event_attributes[p]
        if a < n_known:
            dense[np.uint64(a) + _U1] = _ABSENT
            if has_trees:
                bits[np.uint64(a) + _U1] = 0


@inline_kernel
def find_entries(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    ordinals: NDArray[np.int32],
    n_lists: Any,
    lists: NDArray[np.int32],
    records: NDArray[np.int32],
    survivors: NDArray[np.int32],
    seen: NDArray[np.uint64],
    marks: NDArray[np.uint8],
    groups: NDArray[np.uint64],
    work: NDArray[np.int64],
    cut_starts: NDArray[np.int64],
    lanes: NDArray[np.uint8],
    marked: NDArray[np.uint8],
    cold: NDArray[np.int32],
    blocks: NDArray[np.int32],
    flat: NDArray[np.int32],
    signatures: NDArray[np.uint16],
    has_trees: Any,
) -> Any:
    """Write down the entries whose second and third literals may hold: `records` of blocks, rows to `survivors`.

    Returns how many there are of both. No attribute may have several values. `lists` are those of the trees.
    """
    n_values = np.uint64(len(event_attributes))
    n_known = len(blocks)
    has_blocks = len(flat) > 0
    for p in range(n_values):
        a = event_attributes[p]
        if a < n_known:
            if has_blocks:
                sign(a + 1, seen, marks)
            if has_trees and ordinals[p] >= 0:
                n_ordinals = cut_starts[np.uint64(a) + _U1] - cut_starts[np.uint64(a)] + 1
                add_mark(lanes[np.uint64(a)], mark_of(np.int64(ordinals[p]), n_ordinals), marks)
    n_records = _U0
    n_rows = _U0
    if has_blocks:
        n_records = _append_seen(
            event_attributes, event_codes, seen, marks, groups, records, work, blocks, flat, signatures
        )
    if n_lists > _U0:
        n_rows = find_rows(n_lists, marks, lists, groups, survivors, marked, cold)
    for p in range(n_values):
        a = event_attributes[p]
        if a < n_known:
            if has_blocks:
                clear_signature(a + 1, seen, marks)
            if has_trees and ordinals[p] >= 0:
                clear_marks(lanes[np.uint64(a)], marks)
    if has_blocks:
        sign_always(seen, marks)
    return n_records, n_rows


@inline_kernel
def match_entries(
    event_attributes: NDArray[np.int32],
    ordinals: NDArray[np.int32],
    n_records: Any,
    n_rows: Any,
    records: NDArray[np.int32],
    survivors: NDArray[np.int32],
    is_live: NDArray[np.bool_],
    weights: NDArray[np.float64],
    heaviest: NDArray[np.float64],
    dense: NDArray[np.int32],
    bits: NDArray[np.uint64],
    waiting: NDArray[np.int32],
    sure: NDArray[np.int32],
    possible: NDArray[np.int32],
    work: NDArray[np.int64],
    literals: Any,
    node_bases: NDArray[np.int64],
    rises: NDArray[np.uint8],
    rows: NDArray[np.int32],
    alone_starts: NDArray[np.int32],
    alone_slots: NDArray[np.int32],
    flat: NDArray[np.int32],
) -> Any:
    """Test what `find_entries` has left against the codes; return n_sure + n_possible * 2**32."""
    n_sure: Any = 0
    n_possible: Any = 0
    for p in range(np.uint64(len(event_attributes) if len(alone_starts) > 0 else 0)):
        if ordinals[p] >= 0:
            a = np.uint64(event_attributes[p])
            base = np.uint64(node_bases[a])
            size = (np.uint64(node_bases[a + _U1]) - base) >> _U1
            if size > _U0:
                node = leaf_of(np.uint64(ordinals[p]), size)
                n_sure = copy_alone(
                    base, node, n_sure, is_live, weights, heaviest, sure, work, rises, alone_starts, alone_slots
                )
    keeping: Any = (sure, possible, is_live, weights, heaviest)
    if n_records > _U0:
        n_sure, n_possible = _match_records(
            n_records, n_sure, n_possible, records, dense, bits, work, rows, flat, literals, *keeping
        )
    if n_rows > _U0:
        n_sure, n_possible = match_rows(
            n_rows, n_sure, n_possible, survivors, dense, bits, waiting, work, rows, literals, *keeping
        )
    return np.int64(n_sure) | (np.int64(n_possible) << 32)


@inline_kernel
def _match(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    is_live: NDArray[np.bool_],
    weights: NDArray[np.float64],
    heaviest: NDArray[np.float64],
    ids: NDArray[np.int64],
    ids_found: NDArray[np.int64],
    plain: NDArray[np.uint64],
    following: NDArray[np.int32],
    is_member: NDArray[np.bool_],
    dense: NDArray[np.int32],
    seen: NDArray[np.uint64],
    marks: NDArray[np.uint8],
    bits: NDArray[np.uint64],
    ordinals: NDArray[np.int32],
    lists: NDArray[np.int32],
    groups: NDArray[np.uint64],
    waiting: NDArray[np.int32],
    records: NDArray[np.int32],
    survivors: NDArray[np.int32],
    sure: NDArray[np.int32],
    possible: NDArray[np.int32],
    work: NDArray[np.int64],
    literal_starts: NDArray[np.int64],
    literal_attributes: NDArray[np.int32],
    literal_lows: NDArray[np.int32],
    literal_highs: NDArray[np.int32],
    literal_kinds: NDArray[np.uint8],
    literal_sets: NDArray[np.int32],
    is_alternative: NDArray[np.bool_],
    set_starts: NDArray[np.int64],
    set_lows: NDArray[np.int32],
    set_highs: NDArray[np.int32],
    cut_starts: NDArray[np.int64],
    cuts: NDArray[np.int32],
    guide_bases: NDArray[np.int64],
    guides: NDArray[np.int32],
    lanes: NDArray[np.uint8],
    node_bases: NDArray[np.int64],
    node_starts: NDArray[np.int32],
    rises: NDArray[np.uint8],
    marked: NDArray[np.uint8],
    cold: NDArray[np.int32],
    rows: NDArray[np.int32],
    alone_starts: NDArray[np.int32],
    alone_slots: NDArray[np.int32],
    blocks: NDArray[np.int32],
    flat: NDArray[np.int32],
    signatures: NDArray[np.uint16],
    is_skipped: NDArray[np.bool_],
) -> Any:
    """Write the slots that match to `sure`, those to check to `possible`; return how many, or SEVERAL.

    The numbers come as n_sure + n_possible * 2**32. `dense`, `seen`, `marks` and `bits` are scratch and left as they
    were. `is_live` is empty if all slots are live. Unless `heaviest` is empty, slots that are lighter than all of it
    are left out, and it learns the weights of those that match. Unless `ids` is empty, the ids of `sure` go to
    `ids_found`; unless `following` is empty, with those of the live slots that follow them, and their number comes as
    n_sure. `work` counts events, candidates, literals tested, and lists. The entries in trees of attributes that
    `is_skipped` are left out.
    """
    literals = (
        literal_starts,
        literal_attributes,
        literal_lows,
        literal_highs,
        literal_kinds,
        literal_sets,
        is_alternative,
        set_starts,
        set_lows,
        set_highs,
    )
    n_values = np.uint64(len(event_attributes))
    n_known = len(blocks)
    has_trees = len(cuts) > 0
    if n_values > np.uint64(len(ordinals)):
        return np.int64(SEVERAL)
    placing: Any = (cut_starts, cuts, guide_bases, guides, node_bases, node_starts, rises)
    finding: Any = (seen, marks, groups, work, cut_starts, lanes, marked, cold, blocks, flat, signatures, has_trees)
    keeping = (is_live, weights, heaviest, dense, bits, waiting, sure, possible, work)
    testing: Any = (*keeping, literals, node_bases, rises, rows, alone_starts, alone_slots, flat)
    event = (event_attributes, event_codes, ordinals)
    touch_blocks(event_attributes, work, blocks, flat)
    if has_trees:
        find_ordinals(*event, *placing)
    n_spread = spread_codes(*event, dense, bits, n_known, has_trees)
    counts = np.int64(SEVERAL)
    if n_spread == n_values:
        n_lists = _U0
        if has_trees:
            collecting: Any = (work, node_bases, node_starts, rises, marked, is_skipped)
            n_lists = collect_lists(event_attributes, ordinals, waiting, lists, *collecting)
        n_records, n_rows = find_entries(*event, n_lists, lists, records, survivors, *finding)
        counts = match_entries(event_attributes, ordinals, n_records, n_rows, records, survivors, *testing)
    clear_codes(n_spread, event_attributes, dense, bits, n_known, has_trees)
    if counts == SEVERAL:
        return counts
    work[EVENTS] += 1
    n_sure = counts & np.int64(_LOW_HALF)
    if len(following) > 0:
        n_with_followers = ids_with_followers(sure, n_sure, plain, following, is_member, ids, ids_found)
        if n_with_followers < 0:
            return np.int64(SEVERAL)
        counts += np.int64(n_with_followers) - n_sure
    elif len(ids) > 0:
        # Here, and not one by one in Python: their cache misses overlap.
        for k in range(np.uint64(n_sure)):
            ids_found[k] = ids[np.uint64(sure[k])]
    return counts


@kernel
def match_interpreted(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    is_live: NDArray[np.bool_],
    weights: NDArray[np.float64],
    heaviest: NDArray[np.float64],
    no_ids: NDArray[np.int64],
    not_shared: Any,
    arrays: Any,
) -> Any:
    """Do as `match_at_desk`, with the arrays themselves instead of their addresses."""
    return _match(event_attributes, event_codes, is_live, weights, heaviest, no_ids, no_ids, *not_shared, *arrays)


@kernel
def match_at_desk(event_at: int, table_at: int) -> Any:
    """Match one event. Both are addresses: of its header, and of a table of the other arguments of `_match`."""
    header = carray(pointer(event_at), HEADER_SIZE, np.int64)
    table = carray(pointer(table_at), _TABLE_SIZE, np.int64)
    return _match(
        carray(pointer(header[0]), header[2], np.int32),
        carray(pointer(header[1]), header[2], np.int32),
        carray(pointer(table[0]), table[1], np.bool_),
        carray(pointer(table[2]), table[3], np.float64),
        carray(pointer(table[4]), table[5], np.float64),
        carray(pointer(table[6]), table[7], np.int64),
        carray(pointer(table[8]), table[9], np.int64),
        carray(pointer(table[10]), table[11], np.uint64),
        carray(pointer(table[12]), table[13], np.int32),
        carray(pointer(table[14]), table[15], np.bool_),
        carray(pointer(table[16]), table[17], np.int32),
        carray(pointer(table[18]), table[19], np.uint64),
        carray(pointer(table[20]), table[21], np.uint8),
        carray(pointer(table[22]), table[23], np.uint64),
        carray(pointer(table[24]), table[25], np.int32),
        carray(pointer(table[26]), table[27], np.int32),
        carray(pointer(table[28]), table[29], np.uint64),
        carray(pointer(table[30]), table[31], np.int32),
        carray(pointer(table[32]), table[33], np.int32),
        carray(pointer(table[34]), table[35], np.int32),
        carray(pointer(table[36]), table[37], np.int32),
        carray(pointer(table[38]), table[39], np.int32),
        carray(pointer(table[40]), table[41], np.int64),
        carray(pointer(table[42]), table[43], np.int64),
        carray(pointer(table[44]), table[45], np.int32),
        carray(pointer(table[46]), table[47], np.int32),
        carray(pointer(table[48]), table[49], np.int32),
        carray(pointer(table[50]), table[51], np.uint8),
        carray(pointer(table[52]), table[53], np.int32),
        carray(pointer(table[54]), table[55], np.bool_),
        carray(pointer(table[56]), table[57], np.int64),
        carray(pointer(table[58]), table[59], np.int32),
        carray(pointer(table[60]), table[61], np.int32),
        carray(pointer(table[62]), table[63], np.int64),
        carray(pointer(table[64]), table[65], np.int32),
        carray(pointer(table[66]), table[67], np.int64),
        carray(pointer(table[68]), table[69], np.int32),
        carray(pointer(table[70]), table[71], np.uint8),
        carray(pointer(table[72]), table[73], np.int64),
        carray(pointer(table[74]), table[75], np.int32),
        carray(pointer(table[76]), table[77], np.uint8),
        carray(pointer(table[78]), table[79], np.uint8),
        carray(pointer(table[80]), table[81], np.int32),
        carray(pointer(table[82]), table[83], np.int32),
        carray(pointer(table[84]), table[85], np.int32),
        carray(pointer(table[86]), table[87], np.int32),
        carray(pointer(table[88]), table[89], np.int32),
        carray(pointer(table[90]), table[91], np.int32),
        carray(pointer(table[92]), table[93], np.uint16),
        carray(pointer(table[94]), table[95], np.bool_),
    )


@kernel
def candidates_of_several(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    dense: NDArray[np.int32],
    marks: NDArray[np.uint8],
    cut_starts: NDArray[np.int64],
    cuts: NDArray[np.int32],
    guide_bases: NDArray[np.int64],
    guides: NDArray[np.int32],
    lanes: NDArray[np.uint8],
    node_bases: NDArray[np.int64],
    node_starts: NDArray[np.int32],
    rises: NDArray[np.uint8],
    marked: NDArray[np.uint8],
    owners: NDArray[np.int32],
    alone_starts: NDArray[np.int32],
    alone_clauses: NDArray[np.int32],
    blocks: NDArray[np.int32],
    flat: NDArray[np.int32],
) -> Any:
    """Return (clauses, lists) for an event of any shape: clauses whose access literal holds, and perhaps the next two.

    `dense` and `marks` are scratch and left as they were.
    """
    n_known = len(blocks)
    for p in range(len(event_attributes)):
        a = event_attributes[p]
        n_ordinals = cut_starts[a + 1] - cut_starts[a] + 1 if a < n_known else 0
        if n_ordinals > 1:
            ordinal = guided_ordinal(a, event_codes[p], cut_starts, cuts, guide_bases, guides)
            add_mark(lanes[a], mark_of(ordinal, n_ordinals), marks)
    found = np.empty(1024, dtype=np.int32)
    n_found = 0
    n_lists = 0
    for p in range(len(event_attributes)):
        a = event_attributes[p]
        if a >= n_known:
            continue
        block = blocks[a]
        if block >= 0:
            n = flat[block]
            found = with_room(found, n_found, n)
            record = records_at(block, n)
            n_lists += 1
            for _ in range(n):
                found[n_found] = flat[record + CLAUSE]
                n_found += is_inside(event_codes[p], flat[record + LOW1], flat[record + WIDTH1])
                record += RECORD
        size = (node_bases[a + 1] - node_bases[a]) >> 1
        node = np.int64(0)
        if size > 0:
            node = leaf_of(guided_ordinal(a, event_codes[p], cut_starts, cuts, guide_bases, guides), size)
        if size == 1:  # a pool has the same entries for all values
            node = np.int64(dense[a + 1] == _ABSENT)
            dense[a + 1] = 0
        while node > 0:
            at = node_bases[a] + node
            begin, end = node_starts[at], node_starts[at + 1]
            found = with_room(found, n_found, end - begin)
            n_lists += 1
            for e in range(begin, end):
                found[n_found] = owners[e]
                column = np.uint64(N_COLUMNS * np.int64(begin) + e - begin)
                n_found += is_marked(marked, column, np.uint64(end - begin), marks)
            if len(alone_starts) > 0:
                begin, end = alone_starts[at], alone_starts[at + 1]
                found = with_room(found, n_found, end - begin)
                for e in range(begin, end):
                    found[n_found] = alone_clauses[e]
                    n_found += 1
            node >>= rises[at]
    for p in range(len(event_attributes)):
        a = event_attributes[p]
        if a < n_known:
            clear_marks(lanes[a], marks)
            dense[a + 1] = _ABSENT
    return found[:n_found].copy(), n_lists
