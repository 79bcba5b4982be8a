"""Laying out posting lists by size, attribute and space, and counting along those of one event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.codes import ABSENT, VETO
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.pointers import arrays_at
from siftline.kernels.spaces import space_of
from siftline.kernels.verify import clear_event

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PRESENT = np.int32(0)
# A counter is a byte, a bitmap is a word; clauses with more attributes or groups get the exact check (D6).
_MOST_COUNTED = 255
_MOST_GROUPS = 64
# With more than one entry for this many counters, clearing all counters is faster than walking the lists again.
_SPARSE = 16

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


class Layout(NamedTuple):
    """The arrays of one part; see `indexes/k_index/index.py`."""

    cut_starts: NDArray[np.int64]
    cuts: NDArray[np.int32]
    space_lists: NDArray[np.int32]
    list_partitions: NDArray[np.uint16]
    list_starts: NDArray[np.int64]
    postings: NDArray[np.uint32]
    partition_sizes: NDArray[np.uint8]
    partition_starts: NDArray[np.int64]
    owners: NDArray[np.int32]
    is_checked: NDArray[np.bool_]
    bits: NDArray[np.uint8]
    n_bits: NDArray[np.uint8]
    widest: NDArray[np.int64]
    n_literals: NDArray[np.int64]


@inline_kernel
def _end_of_group(i: int, end: int, is_alternative: NDArray[np.bool_]) -> Any:
    """Return where the group that starts with literal i ends."""
    i += 1
    while i < end and is_alternative[i]:
        i += 1
    return i


@inline_kernel
def _is_required(i: int, end: int, kinds: NDArray[np.uint8]) -> Any:
    """Return whether only a value of the event can satisfy a group: no alternative is a veto."""
    is_required = True
    for j in range(i, end):
        is_required &= kinds[j] < VETO
    return is_required


@inline_kernel
def _count_attributes(
    first: int,
    end: int,
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    is_alternative: NDArray[np.bool_],
    narrowest: NDArray[np.int64],
) -> Any:
    """Return how many attributes single literals require, if each has one literal only, and how many groups are wider.

    narrowest[a] becomes the narrowest of the clause's required single literals on attribute a.
    """
    size, n_groups, n_wide, is_simple = 0, 0, 0, True
    i = first
    while i < end:
        next_group = _end_of_group(i, end, is_alternative)
        if not _is_required(i, next_group, kinds):
            is_simple = False
        elif next_group > i + 1:
            n_wide += 1
            n_groups += 1
        else:
            n_groups += 1
            known = narrowest[attributes[i]]
            if known < first:
                size += 1
                narrowest[attributes[i]] = i
            else:
                is_simple = False
                if highs[i] - lows[i] < highs[known] - lows[known]:
                    narrowest[attributes[i]] = i
        i = next_group
    return size, n_groups, n_wide, is_simple


@inline_kernel
def _number_groups(
    first: int,
    end: int,
    attributes: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    is_alternative: NDArray[np.bool_],
    seen: NDArray[np.int64],
    bits: NDArray[np.int8],
) -> Any:
    """Give each required group a bit; return how many wide groups share no attribute with what was counted before."""
    size, bit = 0, 0
    i = first
    while i < end:
        next_group = _end_of_group(i, end, is_alternative)
        if _is_required(i, next_group, kinds) and bit < _MOST_GROUPS:
            is_apart = next_group > i + 1
            for j in range(i, next_group):
                bits[j] = bit
                is_apart &= seen[attributes[j]] < first
            bit += 1
            if is_apart:
                size += 1
                for j in range(i, next_group):
                    seen[attributes[j]] = i
        i = next_group
    return size


@kernel
def choose_literals(
    n_attributes: int,
    chosen: NDArray[np.int32],
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    is_alternative: NDArray[np.bool_],
) -> Any:
    """Return for each chosen clause its size, its number of bits (0: it is counted), and whether it needs the check.

    And for each literal the bit that it sets, 0 if its clause is counted, or -1 if it is not posted.
    """
    sizes = np.zeros(len(chosen), dtype=np.uint8)
    n_bits = np.zeros(len(chosen), dtype=np.uint8)
    is_checked = np.zeros(len(chosen), dtype=np.bool_)
    bits = np.full(len(attributes), np.int8(-1), dtype=np.int8)
    narrowest = np.full(n_attributes, np.int64(-1), dtype=np.int64)
    for k in range(len(chosen)):
        first, end = starts[chosen[k]], starts[chosen[k] + 1]
        size, n_groups, n_wide, is_simple = _count_attributes(
            first, end, attributes, lows, highs, kinds, is_alternative, narrowest
        )
        if n_wide:
            size += _number_groups(first, end, attributes, kinds, is_alternative, narrowest, bits)
            n_bits[k] = min(n_groups, _MOST_GROUPS)
            # D5: a repeated attribute does not trouble a bitmap, but a veto and a group without a bit do.
            is_checked[k] = n_groups > _MOST_GROUPS or not _is_required(first, end, kinds)
            sizes[k] = min(size, _MOST_COUNTED) if n_groups <= _MOST_GROUPS else 1
            continue
        is_checked[k] = not is_simple or size > _MOST_COUNTED  # D4
        sizes[k] = min(size, _MOST_COUNTED)
        n_posted = 0
        i = first
        while i < end:
            next_group = _end_of_group(i, end, is_alternative)
            if next_group == i + 1 and narrowest[attributes[i]] == i and n_posted < _MOST_COUNTED:
                bits[i] = 0
                n_posted += 1
            i = next_group
    return sizes, n_bits, is_checked, bits


@kernel
def posted_ranges(
    clauses: NDArray[np.int32],
    first_ids: NDArray[np.int64],
    bits: NDArray[np.int8],
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    sets: NDArray[np.int32],
    set_starts: NDArray[np.int64],
    set_lows: NDArray[np.int32],
    set_highs: NDArray[np.int32],
) -> Any:
    """Return (ids, attributes, lows, highs) of all ranges to post, by ascending id."""
    n = 0
    for i in range(len(bits)):
        if bits[i] >= 0:
            n += 1 if sets[i] < 0 else set_starts[sets[i] + 1] - set_starts[sets[i]]
    ids = np.empty(n, dtype=np.uint32)
    range_attributes = np.empty(n, dtype=np.int32)
    range_lows = np.empty(n, dtype=np.int32)
    range_highs = np.empty(n, dtype=np.int32)
    n = 0
    for k in range(len(clauses)):
        for i in range(starts[clauses[k]], starts[clauses[k] + 1]):
            if bits[i] < 0:
                continue
            n_ranges = 1 if sets[i] < 0 else set_starts[sets[i] + 1] - set_starts[sets[i]]
            for j in range(n_ranges):
                ids[n] = first_ids[k] + bits[i]
                range_attributes[n] = attributes[i]
                range_lows[n] = lows[i] if sets[i] < 0 else set_lows[set_starts[sets[i]] + j]
                range_highs[n] = highs[i] if sets[i] < 0 else set_highs[set_starts[sets[i]] + j]
                n += 1
    return ids, range_attributes, range_lows, range_highs


@kernel
def post(ids: NDArray[np.uint32], firsts: NDArray[np.int32], lasts: NDArray[np.int32], n_spaces: int) -> Any:
    """Return (starts, postings): the ids of the ranges that cover space s are postings[starts[s] : starts[s + 1]]."""
    starts = np.zeros(n_spaces + 2, dtype=np.int64)
    for i in range(len(ids)):  # how the number of ranges changes from space to space ...
        starts[firsts[i] + 1] += 1
        starts[lasts[i] + 2] -= 1
    for s in range(n_spaces):  # ... how many ranges cover each ...
        starts[s + 1] += starts[s]
    for s in range(n_spaces):  # ... and where their ids begin
        starts[s + 1] += starts[s]
    starts = starts[:-1].copy()
    free = starts[:-1].astype(np.uint64)
    postings = np.empty(starts[n_spaces], dtype=np.uint32)
    for i in range(len(ids)):
        for s in range(np.uint64(firsts[i]), np.uint64(lasts[i]) + _ONE):
            postings[free[s]] = ids[i]
            free[s] += _ONE
    return starts, postings


@inline_kernel
def _partition_of(posted: int, partition_starts: NDArray[np.int64]) -> Any:
    """Return the partition that an id belongs to."""
    return np.searchsorted(partition_starts, np.int64(posted), side="right") - 1


@inline_kernel
def _end_of_list(start: int, end: int, stop: int, postings: NDArray[np.uint32]) -> Any:
    """Return the first place in start .. end whose id is not below `stop`; ids ascend."""
    while start < end:
        middle = (start + end) >> 1
        if postings[middle] < stop:
            start = middle + 1
        else:
            end = middle
    return start


@kernel
def cut_into_lists(starts: NDArray[np.int64], postings: NDArray[np.uint32], partition_starts: NDArray[np.int64]) -> Any:
    """Cut the ids of each space, which ascend, into one list for each partition that they come from.

    Return (space_lists, list_partitions, list_starts): space s has the lists space_lists[s] : space_lists[s + 1].
    """
    n_spaces = len(starts) - 1
    space_lists = np.zeros(n_spaces + 1, dtype=np.int32)
    for s in range(n_spaces):
        n = space_lists[s]
        e, end = starts[s], starts[s + 1]
        while e < end:
            e = _end_of_list(e, end, partition_starts[_partition_of(postings[e], partition_starts) + 1], postings)
            n += 1
        space_lists[s + 1] = n
    list_partitions = np.empty(space_lists[n_spaces], dtype=np.uint16)
    list_starts = np.empty(space_lists[n_spaces] + 1, dtype=np.int64)
    list_starts[-1] = len(postings)
    for s in range(n_spaces):
        e = starts[s]
        for n in range(space_lists[s], space_lists[s + 1]):
            list_partitions[n] = _partition_of(postings[e], partition_starts)
            list_starts[n] = e
            e = _end_of_list(e, starts[s + 1], partition_starts[list_partitions[n] + 1], postings)
    return space_lists, list_partitions, list_starts


@inline_kernel
def _count_list(
    start: int,
    end: int,
    base: Any,
    size: int,
    postings: NDArray[np.uint32],
    counts: NDArray[np.uint8],
    candidates: NDArray[np.uint32],
    n: Any,
) -> Any:
    """Count along one list; append the ids whose count reaches the size; return their number, and that of new ids."""
    n_new = _ZERO
    for e in range(np.uint64(start), np.uint64(end)):
        place = np.uint64(postings[e]) - base
        count = np.uint8(counts[place] + np.uint8(1))
        counts[place] = count
        candidates[n] = postings[e]
        n += np.uint64(count == size)
        n_new += np.uint64(count == np.uint8(1))
    return n, n_new


@inline_kernel
def _mark_list(
    start: int,
    end: int,
    base: Any,
    layout: Layout,
    matched: NDArray[np.uint64],
    candidates: NDArray[np.uint32],
    n: Any,
) -> Any:
    """Set the bits of the groups on one list, and append the ids by which a bitmap becomes full; return the same."""
    postings, bits = layout.postings, layout.bits
    n_new = _ZERO
    for e in range(np.uint64(start), np.uint64(end)):
        posted = np.uint64(postings[e])
        place = posted - np.uint64(bits[posted]) - base
        before = matched[place]
        after = before | (_ONE << np.uint64(bits[posted]))
        matched[place] = after
        full = ~_ZERO >> np.uint64(_MOST_GROUPS - layout.n_bits[posted])
        candidates[n] = postings[e]
        n += np.uint64(after != before and after == full)
        n_new += np.uint64(before == _ZERO)
    return n, n_new


@inline_kernel
def _clear_counts(
    lists: NDArray[np.int64], n_entries: int, base: Any, n_ids: int, layout: Layout, counts: NDArray[np.uint8]
) -> None:
    """Undo `_count_list`."""
    list_starts = layout.list_starts
    if n_entries * _SPARSE > n_ids:
        counts[:n_ids] = 0
        return
    for q in range(len(lists)):
        for e in range(np.uint64(list_starts[lists[q]]), np.uint64(list_starts[lists[q] + 1])):
            counts[np.uint64(layout.postings[e]) - base] = 0


@inline_kernel
def _clear_bitmaps(lists: NDArray[np.int64], base: Any, layout: Layout, matched: NDArray[np.uint64]) -> None:
    """Undo `_mark_list`."""
    list_starts = layout.list_starts
    for q in range(len(lists)):
        for e in range(np.uint64(list_starts[lists[q]]), np.uint64(list_starts[lists[q] + 1])):
            posted = np.uint64(layout.postings[e])
            matched[posted - np.uint64(layout.bits[posted]) - base] = 0


@inline_kernel
def _locate(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    dense: NDArray[np.int32],
    layout: Layout,
    cursors: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Any:
    """Find the lists of every value's space: cursors[q] : ends[q].

    Return how many values have lists, how many entries these hold, and if an attribute has several values.
    """
    space_lists, list_starts = layout.space_lists, layout.list_starts
    n, n_entries, has_repeats = 0, 0, False
    for p in range(len(event_attributes)):
        attribute = event_attributes[p]
        if attribute + 1 < len(dense):
            has_repeats |= dense[attribute + 1] != ABSENT
            dense[attribute + 1] = _PRESENT
        space = space_of(attribute, event_codes[p], layout.cut_starts, layout.cuts)
        if space >= 0 and space_lists[space] < space_lists[space + 1]:
            cursors[n] = space_lists[space]
            ends[n] = space_lists[space + 1]
            n_entries += list_starts[ends[n]] - list_starts[cursors[n]]
            n += 1
    clear_event(event_attributes, dense)
    return n, n_entries, has_repeats


@inline_kernel
def _take_lists(
    partition: int,
    n_values: int,
    cursors: NDArray[np.int64],
    ends: NDArray[np.int64],
    layout: Layout,
    lists: NDArray[np.int64],
) -> Any:
    """Collect the lists of a partition, and advance the cursors past them; return how many lists and entries."""
    list_partitions, list_starts = layout.list_partitions, layout.list_starts
    n_lists, n_entries = 0, 0
    for q in range(n_values):
        cursor = cursors[q]
        if cursor < ends[q] and list_partitions[cursor] == partition:
            lists[n_lists] = cursor
            n_lists += 1
            n_entries += list_starts[cursor + 1] - list_starts[cursor]
            cursors[q] = cursor + 1
    return n_lists, n_entries


@kernel
def count_event(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    dense: NDArray[np.int32],
    counts: NDArray[np.uint8],
    matched: NDArray[np.uint64],
    part: NDArray[np.int64],
) -> Any:
    """Return (clauses that hold, clauses to check, and how many clauses, posting entries and lists were read).

    Restores `dense`, `counts` and `matched`. The part comes as the handle of a `Layout` (see
    `kernels/pointers.py`).
    """
    layout = arrays_at(part, Layout)
    list_starts, partition_sizes, partition_starts = layout.list_starts, layout.partition_sizes, layout.partition_starts
    cursors = np.empty(len(event_attributes), dtype=np.int64)
    ends = np.empty(len(event_attributes), dtype=np.int64)
    lists = np.empty(len(event_attributes), dtype=np.int64)
    n_values, most, has_repeats = _locate(event_attributes, event_codes, dense, layout, cursors, ends)
    candidates = np.empty(most + 1, dtype=np.uint32)
    n, n_met, n_counted, n_scanned = _ZERO, _ZERO, 0, 0
    for partition in range(len(partition_sizes)):
        size = partition_sizes[partition]
        # Whang et al.: what is larger than the event cannot match, nor can a partition with fewer lists than its size.
        if size > n_values:
            break
        n_lists, n_entries = _take_lists(partition, n_values, cursors, ends, layout, lists)
        if n_lists < size:
            continue
        n_counted += n_entries
        n_scanned += n_lists
        base = np.uint64(partition_starts[partition])
        n_ids = partition_starts[partition + 1] - partition_starts[partition]
        is_bitmap = layout.n_bits[base] > 0
        for q in range(n_lists):
            start, end = list_starts[lists[q]], list_starts[lists[q] + 1]
            if is_bitmap:
                n, n_new = _mark_list(start, end, base, layout, matched, candidates, n)
            else:
                n, n_new = _count_list(start, end, base, size, layout.postings, counts, candidates, n)
            n_met += n_new
        if is_bitmap:
            _clear_bitmaps(lists[:n_lists], base, layout, matched)
        else:
            _clear_counts(lists[:n_lists], n_entries, base, n_ids, layout, counts)
    found = np.empty(n, dtype=np.int32)
    doubtful = np.empty(n, dtype=np.int32)
    n_found, n_doubtful = 0, 0
    for k in range(n):
        if has_repeats or layout.is_checked[candidates[k]]:
            doubtful[n_doubtful] = layout.owners[candidates[k]]
            n_doubtful += 1
        else:
            found[n_found] = layout.owners[candidates[k]]
            n_found += 1
    return found[:n_found], doubtful[:n_doubtful], n_met, n_counted, n_scanned
