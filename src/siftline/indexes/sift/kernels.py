"""Matching one event against a part of `sift`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.indexes.sift.arrays import (
    Event,
    Findings,
    Layout,
    Scratch,
    Workspace,
)
from siftline.indexes.sift.layout_kernels import (
    CLAUSE,
    FLAGGED,
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
)
from siftline.indexes.sift.list_kernels import (
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
from siftline.indexes.sift.row_kernels import is_inside, keep, try_row
from siftline.indexes.sift.vectors import (
    HAS_SHUFFLES,
    N_COLUMNS,
    N_LANES,
    SIGNED,
    first_bit,
    is_marked,
    signed_of_32,
)
from siftline.kernels.codes import ABSENT
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.growing import with_room
from siftline.kernels.pointers import EventValues, arrays_at, fetch
from siftline.kernels.sharing import ids_with_duplicates
from siftline.kernels.verify import clause_holds, fetch_literals

if TYPE_CHECKING:
    from numpy.typing import NDArray


_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U2 = np.uint64(2)
_SIX = np.uint64(6)
_LOW_SIX = np.uint64(63)
# The word and the bit of the signature ALWAYS in `seen`.
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
# How many values are looked up together: a few more than the cache lines that a processor fetches at the same time.
_TOGETHER = np.uint64(64)
# Signatures on a cache line; and a mask of two bits for each of them but the first two.
_ON_LINE = np.uint64(32)
_NOT_FIRST_TWO = ~np.uint64(15)
# Words of a record in a block.
_LOW1, _WIDTH1, _PLACE2, _LOW2, _WIDTH2, _SLOT, _ROW, _CLAUSE = (
    np.uint64(word) for word in (LOW1, WIDTH1, PLACE2, LOW2, WIDTH2, SLOT, ROW, CLAUSE)
)

# What the kernel returns for an event with several values of one attribute, with too many values, or with too many ids:
# the caller must take a slower path.
SEVERAL = -1


@inline_kernel
def add_mark(lane: Any, mark: Any, marks: NDArray[np.uint8]) -> None:
    """Set the mark for the part of an attribute's ordinals that has the event's value."""
    marks[np.uint64(lane) + np.uint64(N_LANES) * np.uint64(mark >> 3)] |= np.uint8(1 << (mark & 7))


@inline_kernel
def clear_marks(lane: Any, marks: NDArray[np.uint8]) -> None:
    """Clear the marks of a lane."""
    marks[np.uint64(lane)] = 0
    marks[np.uint64(lane) + np.uint64(N_LANES)] = 0


@inline_kernel
def sign(place: Any, seen: NDArray[np.uint64], marks: NDArray[np.uint8]) -> None:
    """Set the signature of an attribute that the event has."""
    bit = np.uint64(signature(place))
    seen[bit >> _SIX] |= _U1 << (bit & _LOW_SIX)
    marks[_SIGNED + (bit & _LOW_BYTE)] = 255
    marks[_SIGNED_HIGH + (bit >> _EIGHT)] = 255


@inline_kernel
def clear_signature(place: Any, seen: NDArray[np.uint64], marks: NDArray[np.uint8]) -> None:
    """Clear the signature of an attribute, and all that share a word or a byte with it."""
    bit = np.uint64(signature(place))
    seen[bit >> _SIX] = 0
    marks[_SIGNED + (bit & _LOW_BYTE)] = 0
    marks[_SIGNED_HIGH + (bit >> _EIGHT)] = 0


@inline_kernel
def sign_always(seen: NDArray[np.uint64], marks: NDArray[np.uint8]) -> None:
    """Set the signature that every event has."""
    seen[_LAST_WORD] |= _ALWAYS_BIT
    marks[_SIGNED + _LOW_BYTE] = 255
    marks[_SIGNED_HIGH + _LOW_BYTE] = 255


@inline_kernel
def _append_of_lines(
    n_groups: Any, n_left: Any, event: Event, records: NDArray[np.int32], scratch: Scratch, layout: Layout
) -> Any:
    """Append (record, code) of each entry whose bit is set in a group; return how many there are now.

    A group is one cache line of a block: the position of the value in the event, how many signatures of its block come
    before the line, and the bits.
    """
    for g in range(n_groups):
        line, left = scratch.groups[_U2 * g], scratch.groups[_U2 * g + _U1]
        p, before = line >> _HALF, line & _LOW_HALF
        block = layout.blocks[np.uint64(event.attributes[p])]
        record = np.uint64(records_at(np.int64(block), np.int64(layout.flat[np.uint64(block)])))
        while left != _U0:
            # The number of entries takes the place of two signatures.
            k = before + (first_bit(left) >> _U1)
            left &= left - _U1
            bit = np.uint64(scratch.signatures[_U2 * np.uint64(block) + k])
            records[_U2 * n_left] = record + np.uint64(RECORD) * (k - _U2)
            records[_U2 * n_left + _U1] = event.codes[p]
            n_left += (scratch.seen[bit >> _SIX] >> (bit & _LOW_SIX)) & _U1
    return n_left


@inline_kernel
def _append_seen(event: Event, records: NDArray[np.int32], scratch: Scratch, layout: Layout) -> Any:
    """Write (record, code) of each entry in the event's blocks whose second attribute the event may have.

    Returns how many there are. A first loop finds, without a branch, the cache lines that may have such entries.
    """
    n_left = _U0
    n_groups = _U0
    for p in range(np.uint64(len(event.attributes))):
        a = event.attributes[p]
        block = block_of(a, layout.blocks)
        if block < 0:
            continue
        scratch.work[LISTS] += 1
        n = np.uint64(layout.flat[np.uint64(block)])
        if not HAS_SHUFFLES:
            record = np.uint64(records_at(np.int64(block), np.int64(n)))
            for k in range(n):
                bit = np.uint64(scratch.signatures[_U2 * (np.uint64(block) + _U1) + k])
                records[_U2 * n_left] = record + np.uint64(RECORD) * k
                records[_U2 * n_left + _U1] = event.codes[p]
                n_left += (scratch.seen[bit >> _SIX] >> (bit & _LOW_SIX)) & _U1
            continue
        address = np.int64(layout.flat.ctypes.data) + np.int64(4) * np.int64(block)
        end = n + _U2
        for j in range(_U0, end, _ON_LINE):
            left = signed_of_32(address + np.int64(j + j), np.int64(scratch.marks.ctypes.data))
            if j == _U0:
                left &= _NOT_FIRST_TWO
            if end - j < _ON_LINE:
                left &= (_U1 << (_U2 * (end - j))) - _U1
            scratch.groups[_U2 * n_groups] = (p << _HALF) | j
            scratch.groups[_U2 * n_groups + _U1] = left
            n_groups += np.uint64(left != _U0)
            if n_groups == _N_WAITING:
                n_left = _append_of_lines(n_groups, n_left, event, records, scratch, layout)
                n_groups = _U0
    return _append_of_lines(n_groups, n_left, event, records, scratch, layout)


@inline_kernel
def _match_records(
    n_left: Any,
    n_sure: Any,
    n_possible: Any,
    records: NDArray[np.int32],
    workspace: Workspace,
) -> Any:
    """Match the entries of blocks that are left; return how many slots there are now.

    Each step takes some hundred entries and prefetches what the next step reads, as `match_rows` does; most of those
    that are inside match, so their ids are prefetched together with their rows.
    """
    wanted, ids, _, scratch, literals, layout = workspace
    has_ids = len(ids.ids) > 0
    touched: Any = 0
    for k in range(n_left):
        touched += layout.flat[np.uint64(records[_U2 * k])]
    for first in range(_U0, n_left, _N_WAITING):
        left = _U2 * first  # from here on, the remaining records overwrite those that were read
        n_inside = _U0
        for k in range(first, min(first + _N_WAITING, n_left)):
            at = np.uint64(records[_U2 * k])
            holds = is_inside(records[_U2 * k + _U1], layout.flat[at + _LOW1], layout.flat[at + _WIDTH1])
            second = scratch.dense[np.uint64(layout.flat[at + _PLACE2])]
            holds &= is_inside(second, layout.flat[at + _LOW2], layout.flat[at + _WIDTH2])
            records[left + n_inside] = at
            n_inside += np.uint64(holds)
        for k in range(n_inside):
            at = np.uint64(records[left + k])
            row = layout.flat[at + _ROW]
            if row >= 0:
                fetch(layout.rows, np.uint64(row))
            if has_ids:
                fetch(ids.ids, np.uint64(layout.flat[at + _SLOT] & ~FLAGGED))
        n_passed = _U0
        n_more = _U0
        for k in range(n_inside):
            at = np.uint64(records[left + k])
            row = layout.flat[at + _ROW]
            n_tested = try_row(row, layout.rows, scratch) if row >= 0 else 0
            scratch.work[TESTED] += abs(n_tested)
            records[left + n_passed] = at
            if n_tested >= 0:
                n_passed += _U1
                if layout.flat[at + _SLOT] & MORE:
                    n_more += _U1
                    fetch(literals.starts, np.uint64(layout.flat[at + _CLAUSE]))
        for k in range(n_passed if n_more > _U0 else _U0):
            at = np.uint64(records[left + k])
            if layout.flat[at + _SLOT] & MORE:
                fetch_literals(layout.flat[at + _CLAUSE], literals)
        for k in range(n_passed):
            at = np.uint64(records[left + k])
            slot = layout.flat[at + _SLOT]
            if slot & MORE:
                clause = layout.flat[at + _CLAUSE]
                holds_whole, n_tested = clause_holds(clause, scratch.dense, scratch.dense, scratch.dense, literals)
                scratch.work[TESTED] += n_tested
                if not holds_whole:
                    continue
            n_sure, n_possible = keep(slot, n_sure, n_possible, scratch, wanted)
    scratch.work[CANDIDATES] += np.int64(n_left)
    scratch.work[TOUCHED] = touched
    return n_sure, n_possible


@inline_kernel
def touch_blocks(event: Event, scratch: Scratch, layout: Layout) -> None:
    """Read from the event's blocks, only to bring them into the cache.

    The reads are independent, so the processor fetches all blocks at the same time. With more work in the loop it would
    not get as far ahead.
    """
    if len(layout.flat) == 0:
        return
    touched: Any = 0
    for p in range(np.uint64(len(event.attributes))):
        block = block_of(event.attributes[p], layout.blocks)
        if block >= 0:
            touched += layout.flat[np.uint64(block)] + layout.flat[np.uint64(block) + np.uint64(LINE)]
    # The lengths of the blocks are known now: read their other lines.
    for p in range(np.uint64(len(event.attributes))):
        block = block_of(event.attributes[p], layout.blocks)
        if block >= 0:
            for word in range(2 * LINE, 1 + ((layout.flat[np.uint64(block)] + 1) >> 1), LINE):
                touched += layout.flat[np.uint64(block + word)]
    scratch.work[TOUCHED] = touched


@inline_kernel
def find_ordinals(event: Event, layout: Layout) -> None:
    """Write the ordinal of each value, -1 if its attribute has no cuts, and prefetch where its lists begin.

    Each value waits for memory three times: for its place in the guide, its cuts, and its leaf. So each step
    prefetches, for all values, what the next step reads.
    """
    n_known = len(layout.cut_starts) - 1
    n_values = np.uint64(len(event.attributes))
    for first in range(_U0, n_values, _TOGETHER):
        end = min(first + _TOGETHER, n_values)
        for p in range(first, end):
            a = event.attributes[p]
            guide = np.int64(-1)
            if a < n_known and layout.cut_starts[np.uint64(a) + _U1] > layout.cut_starts[np.uint64(a)]:
                guide = np.int64(guide_of(a, event.codes[p], layout))
                fetch(layout.guides, np.uint64(guide))
            event.ordinals[p] = guide
        for p in range(first, end):
            if event.ordinals[p] >= 0:
                n_before = layout.guides[np.uint64(event.ordinals[p])]
                fetch(layout.cuts, np.uint64(layout.cut_starts[np.uint64(event.attributes[p])] + n_before))
        for p in range(first, end):
            if event.ordinals[p] >= 0:
                a = np.uint64(event.attributes[p])
                ordinal = ordinal_at(event.ordinals[p], a, event.codes[p], layout)
                base = np.uint64(layout.node_bases[a])
                size = (np.uint64(layout.node_bases[a + _U1]) - base) >> _U1
                if size > _U0:
                    leaf = base + leaf_of(np.uint64(ordinal), size)
                    fetch(layout.node_starts, leaf)
                    fetch(layout.rises, leaf)
                event.ordinals[p] = ordinal


@inline_kernel
def spread_codes(event: Event, scratch: Scratch, layout: Layout) -> Any:
    """Write the values of an event by attribute; return how many, fewer than all if an attribute has several."""
    n_values = np.uint64(len(event.attributes))
    for p in range(n_values):
        a = event.attributes[p]
        if a < len(layout.blocks):
            place = np.uint64(a) + _U1
            if scratch.dense[place] != ABSENT:
                return p
            scratch.dense[place] = event.codes[p]
            if len(layout.cuts) > 0:
                # For an attribute with more ordinals than a word has bits, no row reads this.
                scratch.bits[place] = _U1 << (np.uint64(event.ordinals[p]) & _LOW_SIX)
    return n_values


@inline_kernel
def clear_codes(n_spread: Any, event: Event, scratch: Scratch, layout: Layout) -> None:
    """Undo `spread_codes`."""
    for p in range(n_spread):
        a = event.attributes[p]
        if a < len(layout.blocks):
            scratch.dense[np.uint64(a) + _U1] = ABSENT
            if len(layout.cuts) > 0:
                scratch.bits[np.uint64(a) + _U1] = 0


@inline_kernel
def find_entries(n_lists: Any, event: Event, findings: Findings, scratch: Scratch, layout: Layout) -> Any:
    """Write the entries whose second and third literals may hold: of blocks to `records`, rows of lists to `survivors`.

    Returns how many there are of both. No attribute may have several values. `collect_lists` has written the lists.
    """
    n_values = np.uint64(len(event.attributes))
    n_known = len(layout.blocks)
    has_blocks, has_trees = len(layout.flat) > 0, len(layout.cuts) > 0
    for p in range(n_values):
        a = event.attributes[p]
        if a < n_known:
            if has_blocks:
                sign(a + 1, scratch.seen, scratch.marks)
            if has_trees and event.ordinals[p] >= 0:
                n_ordinals = layout.cut_starts[np.uint64(a) + _U1] - layout.cut_starts[np.uint64(a)] + 1
                add_mark(layout.lanes[np.uint64(a)], mark_of(np.int64(event.ordinals[p]), n_ordinals), scratch.marks)
    n_records = _U0
    n_rows = _U0
    if has_blocks:
        n_records = _append_seen(event, findings.records, scratch, layout)
    if n_lists > _U0:
        n_rows = find_rows(n_lists, findings, scratch, layout)
    for p in range(n_values):
        a = event.attributes[p]
        if a < n_known:
            if has_blocks:
                clear_signature(a + 1, scratch.seen, scratch.marks)
            if has_trees and event.ordinals[p] >= 0:
                clear_marks(layout.lanes[np.uint64(a)], scratch.marks)
    if has_blocks:
        sign_always(scratch.seen, scratch.marks)
    return n_records, n_rows


@inline_kernel
def match_entries(
    n_records: Any,
    n_rows: Any,
    event: Event,
    findings: Findings,
    workspace: Workspace,
) -> Any:
    """Test the entries that `find_entries` left by codes; return n_sure + n_possible * 2**32."""
    wanted, _, _, scratch, literals, layout = workspace
    n_sure: Any = 0
    n_possible: Any = 0
    for p in range(np.uint64(len(event.attributes) if len(layout.alone_starts) > 0 else 0)):
        if event.ordinals[p] >= 0:
            a = np.uint64(event.attributes[p])
            base = np.uint64(layout.node_bases[a])
            size = (np.uint64(layout.node_bases[a + _U1]) - base) >> _U1
            if size > _U0:
                node = leaf_of(np.uint64(event.ordinals[p]), size)
                n_sure = copy_alone(base, node, n_sure, wanted, scratch, layout)
    if n_records > _U0:
        n_sure, n_possible = _match_records(n_records, n_sure, n_possible, findings.records, workspace)
    if n_rows > _U0:
        n_sure, n_possible = match_rows(n_rows, n_sure, n_possible, findings, scratch, wanted, literals, layout)
    return np.int64(n_sure) | (np.int64(n_possible) << 32)


@inline_kernel
def _match(event: Event, workspace: Workspace) -> Any:
    """Write the slots that match to `sure`, those to check to `possible`; return how many, or SEVERAL.

    The result is n_sure + n_possible * 2**32. If slots that are too light are omitted, the weights of the matches enter
    `heaviest`. Unless `ids` is empty, the ids of `sure` go to `ids.found`; unless `next_duplicates` is empty, together
    with the ids of their live duplicates, and n_sure counts all of them.
    """
    _, ids, findings, scratch, _, layout = workspace
    n_values = np.uint64(len(event.attributes))
    has_trees = len(layout.cuts) > 0
    if n_values > np.uint64(len(event.ordinals)):
        return np.int64(SEVERAL)
    touch_blocks(event, scratch, layout)
    if has_trees:
        find_ordinals(event, layout)
    n_spread = spread_codes(event, scratch, layout)
    counts = np.int64(SEVERAL)
    if n_spread == n_values:
        n_lists = collect_lists(event, findings.lists, scratch, layout) if has_trees else _U0
        n_records, n_rows = find_entries(n_lists, event, findings, scratch, layout)
        counts = match_entries(n_records, n_rows, event, findings, workspace)
    clear_codes(n_spread, event, scratch, layout)
    if counts == SEVERAL:
        return counts
    scratch.work[EVENTS] += 1
    n_sure = counts & np.int64(_LOW_HALF)
    if len(ids.next_duplicates) > 0:
        n_with_duplicates = ids_with_duplicates(
            scratch.sure, n_sure, ids.plain, ids.next_duplicates, ids.is_member, ids.ids, ids.found
        )
        if n_with_duplicates < 0:
            return np.int64(SEVERAL)
        counts += np.int64(n_with_duplicates) - n_sure
    elif len(ids.ids) > 0:
        # Here and not in Python, because here the cache misses overlap.
        for k in range(np.uint64(n_sure)):
            ids.found[k] = ids.ids[np.uint64(scratch.sure[k])]
    return counts


@kernel
def match_interpreted(event: Event, workspace: Workspace) -> Any:
    """Match one event as `match_at` does, with the arrays themselves instead of their addresses."""
    return _match(event, workspace)


@kernel
def match_at(event_at: int, workspace_at: int) -> Any:
    """Match one event. Both are addresses: of the event's header, and of the table of a `Workspace`."""
    event, workspace = arrays_at(event_at, EventValues), arrays_at(workspace_at, Workspace)
    return _match(Event(event.attributes, event.codes, workspace.scratch.ordinals), workspace)


@kernel
def candidates_of_several(
    attributes: NDArray[np.int32], codes: NDArray[np.int32], thread_workspace: NDArray[np.int64]
) -> Any:
    """Return (clauses, how many lists were read) for any event: the clauses whose access literal holds.

    Marks reject most clauses whose second or third literal fails. The workspace comes as a handle (see
    `kernels/pointers.py`).
    """
    workspace = arrays_at(thread_workspace, Workspace)
    scratch, layout = workspace.scratch, workspace.layout
    event = Event(attributes, codes, scratch.ordinals)
    n_known = len(layout.blocks)
    for p in range(len(event.attributes)):
        a = event.attributes[p]
        n_ordinals = layout.cut_starts[a + 1] - layout.cut_starts[a] + 1 if a < n_known else 0
        if n_ordinals > 1:
            ordinal = guided_ordinal(a, event.codes[p], layout)
            add_mark(layout.lanes[a], mark_of(ordinal, n_ordinals), scratch.marks)
    found = np.empty(1024, dtype=np.int32)
    n_found = 0
    n_lists = 0
    for p in range(len(event.attributes)):
        a = event.attributes[p]
        if a >= n_known:
            continue
        block = layout.blocks[a]
        if block >= 0:
            n = layout.flat[block]
            found = with_room(found, n_found, n)
            record = records_at(block, n)
            n_lists += 1
            for _ in range(n):
                found[n_found] = layout.flat[record + CLAUSE]
                n_found += is_inside(event.codes[p], layout.flat[record + LOW1], layout.flat[record + WIDTH1])
                record += RECORD
        size = (layout.node_bases[a + 1] - layout.node_bases[a]) >> 1
        node = np.int64(0)
        if size > 0:
            node = leaf_of(guided_ordinal(a, event.codes[p], layout), size)
        if size == 1:  # a pool has the same entries for all values
            node = np.int64(scratch.dense[a + 1] == ABSENT)
            scratch.dense[a + 1] = 0
        while node > 0:
            at = layout.node_bases[a] + node
            begin, end = layout.node_starts[at], layout.node_starts[at + 1]
            found = with_room(found, n_found, end - begin)
            n_lists += 1
            for e in range(begin, end):
                found[n_found] = layout.owners[e]
                column = np.uint64(N_COLUMNS * np.int64(begin) + e - begin)
                n_found += is_marked(layout.marked, column, np.uint64(end - begin), scratch.marks)
            if len(layout.alone_starts) > 0:
                begin, end = layout.alone_starts[at], layout.alone_starts[at + 1]
                found = with_room(found, n_found, end - begin)
                for e in range(begin, end):
                    found[n_found] = layout.alone_clauses[e]
                    n_found += 1
            node >>= layout.rises[at]
    for p in range(len(event.attributes)):
        a = event.attributes[p]
        if a < n_known:
            clear_marks(layout.lanes[a], scratch.marks)
            scratch.dense[a + 1] = ABSENT
    return found[:n_found].copy(), n_lists
