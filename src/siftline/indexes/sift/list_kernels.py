"""The posting lists of an event in the trees of `sift`: which lists it reads, and which of their entries match.

Whether an entry passes a test is unpredictable, and a mispredicted branch costs more than several comparisons. So each
step goes through all entries that the previous step left, without a branch on the outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.indexes.sift.layout_kernels import BARE, MORE, leaf_of
from siftline.indexes.sift.row_kernels import is_too_light, keep, try_literal
from siftline.indexes.sift.vectors import (
    HAS_SHUFFLES,
    N_COLUMNS,
    WIDTH,
    count_bits,
    first_bit,
    is_marked,
    marked_of_64,
)
from siftline.kernels.compiler import inline_kernel
from siftline.kernels.pointers import fetch
from siftline.kernels.verify import clause_holds, fetch_literals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.indexes.sift.arrays import Event, Findings, Layout, Scratch, Wanted
    from siftline.kernels.literals import Literals

# Places of `work`.
N_WORKS = 5
EVENTS, CANDIDATES, TESTED, LISTS, TOUCHED = range(N_WORKS)

# Size of the batches in which matching proceeds, so that they stay in the L1 cache: groups of 64 candidates or lines of
# blocks, rows that are tested together, and values that climb their trees together.
N_WAITING = 256
# How many survivors of a group are written before they are counted; the array needs room for them at its end.
UNCOUNTED_SURVIVORS = 4

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U2 = np.uint64(2)
_N_COLUMNS = np.uint64(N_COLUMNS)
# Bytes on a cache line.
_LINE = np.uint64(64)
# Candidates that are tested together.
_WIDTH = np.uint64(WIDTH)
_UNCOUNTED_SURVIVORS = np.uint64(UNCOUNTED_SURVIVORS)
_N_WAITING = np.uint64(N_WAITING)
# How many entries of a list are prefetched before any is read; in longer lists the processor prefetches by itself.
_PREFETCHED_ENTRIES = np.uint64(256)


@inline_kernel
def collect_lists(event: Event, lists: NDArray[np.int32], scratch: Scratch, layout: Layout) -> Any:
    """Write first and end of every list with entries, on the paths of all values from leaf to root.

    Returns how many numbers were written. All values climb one step together: what the next step reads is prefetched,
    and no branch depends on the length of a path. Finally the lists themselves are prefetched.
    """
    n_values = np.uint64(len(event.attributes))
    n_lists = _U0
    for first in range(_U0, n_values, _N_WAITING):
        n_waiting = _U0
        for p in range(first, min(first + _N_WAITING, n_values)):
            if event.ordinals[p] >= 0:
                a = np.uint64(event.attributes[p])
                size = (np.uint64(layout.node_bases[a + _U1]) - np.uint64(layout.node_bases[a])) >> _U1
                scratch.waiting[_U2 * n_waiting] = layout.node_bases[a]
                scratch.waiting[_U2 * n_waiting + _U1] = leaf_of(np.uint64(event.ordinals[p]), size)
                n_waiting += np.uint64((size > _U0) & (not scratch.is_skipped[a]))
        while n_waiting > _U0:
            n_next = _U0
            for k in range(n_waiting):
                base, node = np.uint64(scratch.waiting[_U2 * k]), np.uint64(scratch.waiting[_U2 * k + _U1])
                begin, end = layout.node_starts[base + node], layout.node_starts[base + node + _U1]
                lists[n_lists] = begin
                lists[n_lists + _U1] = end
                n_lists += np.uint64(end > begin) << _U1
                node >>= np.uint64(layout.rises[base + node])
                fetch(layout.node_starts, base + node)
                fetch(layout.rises, base + node)
                scratch.waiting[_U2 * n_next] = base
                scratch.waiting[_U2 * n_next + _U1] = node
                n_next += np.uint64(node > _U0)
            n_waiting = n_next
    n_candidates = _U0
    for k in range(_U0, n_lists, _U2):
        begin, end = np.uint64(lists[k]), np.uint64(lists[k + _U1])
        n_candidates += end - begin
        # Up to the end of the last column, which is read 64 bytes at a time.
        for byte in range(_N_COLUMNS * begin, _N_COLUMNS * min(end, begin + _PREFETCHED_ENTRIES) + _LINE, _LINE):
            fetch(layout.marked, byte)
    scratch.work[CANDIDATES] += np.int64(n_candidates)
    scratch.work[LISTS] += np.int64(n_lists >> _U1)
    return n_lists


@inline_kernel
def copy_alone(base: Any, node: Any, n_sure: Any, wanted: Wanted, scratch: Scratch, layout: Layout) -> Any:
    """Append the slots of one-literal clauses on the path from a leaf to the root; return how many slots there are."""
    while node > _U0:
        begin = np.uint64(layout.alone_starts[base + node])
        end = np.uint64(layout.alone_starts[base + node + _U1])
        if len(wanted.is_live) == 0 and len(wanted.heaviest) == 0:
            for e in range(begin, end):
                scratch.sure[np.uint64(n_sure) + e - begin] = layout.alone_slots[e]
            n_sure += np.int64(end - begin)
        else:
            for e in range(begin, end):
                n_sure, _ = keep(layout.alone_slots[e], n_sure, 0, scratch, wanted)
        scratch.work[CANDIDATES] += np.int64(end - begin)
        node >>= np.uint64(layout.rises[base + node])
    return n_sure


@inline_kernel
def _append_of_groups(n_groups: Any, n_left: Any, groups: NDArray[np.uint64], survivors: NDArray[np.int32]) -> Any:
    """Append the entries of groups of 64 whose bits are set; return how many there are now."""
    for k in range(n_groups):
        begin, left = groups[_U2 * k], groups[_U2 * k + _U1]
        n = count_bits(left)
        for i in range(_UNCOUNTED_SURVIVORS):
            survivors[n_left + i] = begin + first_bit(left)
            left &= left - _U1
        for i in range(_UNCOUNTED_SURVIVORS, n):
            survivors[n_left + i] = begin + first_bit(left)
            left &= left - _U1
        n_left += n
    return n_left


@inline_kernel
def _append_marked(n_lists: Any, findings: Findings, scratch: Scratch, marked: NDArray[np.uint8]) -> Any:
    """Write the entries of lists whose second and third literals may hold; return how many there are."""
    n_left = _U0
    n_groups = _U0
    for k in range(_U0, n_lists, _U2):
        begin, end = np.uint64(findings.lists[k]), np.uint64(findings.lists[k + _U1])
        n = end - begin
        column = _N_COLUMNS * begin
        if not HAS_SHUFFLES:
            for i in range(n):
                findings.survivors[n_left] = begin + i
                n_left += np.uint64(is_marked(marked, column + i, n, scratch.marks))
            continue
        address = np.int64(marked.ctypes.data) + np.int64(column)
        for i in range(_U0, n, _WIDTH):
            left = marked_of_64(address + np.int64(i), np.int64(n), np.int64(scratch.marks.ctypes.data))
            if n - i < _WIDTH:
                left &= (_U1 << (n - i)) - _U1
            scratch.groups[_U2 * n_groups] = begin + i
            scratch.groups[_U2 * n_groups + _U1] = left
            n_groups += _U1
            if n_groups == _N_WAITING:
                n_left = _append_of_groups(n_groups, n_left, scratch.groups, findings.survivors)
                n_groups = _U0
    return _append_of_groups(n_groups, n_left, scratch.groups, findings.survivors)


@inline_kernel
def _try_rows(
    n_waiting: Any, n_passed: Any, passed: NDArray[np.int32], scratch: Scratch, rows: NDArray[np.int32]
) -> Any:
    """Append the rows whose literals all hold to `passed`; return how many, and how many literals were tested.

    `waiting` has each row and the place of its next literal. Each pass tests one literal of all rows.
    """
    n_tested = _U0
    while n_waiting > _U0:
        n_tested += n_waiting
        n_next = _U0
        for k in range(n_waiting):
            row, p = scratch.waiting[_U2 * k], scratch.waiting[_U2 * k + _U1]
            passes, is_last, p = try_literal(p, rows, scratch)
            passed[n_passed] = row
            n_passed += np.uint64(passes & is_last)
            scratch.waiting[_U2 * n_next] = row
            scratch.waiting[_U2 * n_next + _U1] = p
            n_next += np.uint64(passes & (not is_last))
        n_waiting = n_next
    return n_passed, n_tested


@inline_kernel
def find_rows(n_lists: Any, findings: Findings, scratch: Scratch, layout: Layout) -> Any:
    """Write the rows of list entries whose second and third literals may hold; return how many there are."""
    n_left = _append_marked(n_lists, findings, scratch, layout.marked)
    for k in range(n_left):
        findings.survivors[k] = layout.cold[np.uint64(findings.survivors[k])]
    return n_left


@inline_kernel
def match_rows(
    n_left: Any,
    n_sure: Any,
    n_possible: Any,
    findings: Findings,
    scratch: Scratch,
    wanted: Wanted,
    literals: Literals,
    layout: Layout,
) -> Any:
    """Test the rows that are left; return how many slots there are now.

    Each step runs for all rows before the next step: so the memory accesses of one step overlap.
    """
    touched: Any = 0
    n_tested = n_left
    for k in range(n_left):
        touched += layout.rows[np.uint64(findings.survivors[k])]  # most rows are on one cache line
    for first in range(_U0, n_left, _N_WAITING):
        n_passed = _U0
        n_waiting = _U0
        for k in range(first, min(first + _N_WAITING, n_left)):
            row = np.uint64(findings.survivors[k])
            slot = layout.rows[row]
            is_bare = (slot & BARE) != 0
            is_wanted = not is_too_light(slot, wanted)
            findings.survivors[n_passed] = row
            n_passed += np.uint64(is_bare & is_wanted)
            scratch.waiting[_U2 * n_waiting] = row
            scratch.waiting[_U2 * n_waiting + _U1] = row + _U1 + np.uint64((slot & MORE) != 0)
            n_waiting += np.uint64(is_wanted & (not is_bare))
        n_passed, n_in_rows = _try_rows(n_waiting, n_passed, findings.survivors, scratch, layout.rows)
        n_tested += n_in_rows
        n_more = _U0
        for k in range(n_passed):
            row = np.uint64(findings.survivors[k])
            if layout.rows[row] & MORE:
                n_more += _U1
                fetch(literals.starts, np.uint64(layout.rows[row + _U1]))
        for k in range(n_passed if n_more > _U0 else _U0):
            row = np.uint64(findings.survivors[k])
            if layout.rows[row] & MORE:
                fetch_literals(layout.rows[row + _U1], literals)
        for k in range(n_passed):
            row = np.uint64(findings.survivors[k])
            slot = layout.rows[row]
            if slot & MORE:
                # No attribute has several values here, so the arrays for these are not read: `dense` stands in.
                clause = layout.rows[row + _U1]
                holds, n_of_clause = clause_holds(clause, scratch.dense, scratch.dense, scratch.dense, literals)
                n_tested += np.uint64(n_of_clause)
                if not holds:
                    continue
            n_sure, n_possible = keep(slot, n_sure, n_possible, scratch, wanted)
    scratch.work[TESTED] += np.int64(n_tested)
    scratch.work[TOUCHED] = touched
    return n_sure, n_possible
