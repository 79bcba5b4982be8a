"""Programs: expressions over the values of an event, run without Python.

A *test* is a predicate, or another leaf of an expression. It is true, unknown or false of an event, as the model says.
A program asks tests one after the other, and jumps:

    a = 1 and not (b > 2 or c is null)      place   asks          of test     jumps if so    otherwise
                                              2     is true       a = 1            1          FAILS
                                              1     is false      b > 2            0          FAILS
                                              0     is not true   c is null      HOLDS        FAILS

A test of all strings for a text has a *screen*, two of the grams of the text. Where the event has no string with them,
the test is false, and nothing else of it is looked at.

The programs of all subscriptions share their tests. Each thread notes the truth of a test together with the number of
the event, so a test is evaluated once for an event at most. Some tests are *undecided* here, such as a regular
expression in a string that has the text which it needs. A program that asks such a test waits: the caller decides the
test, and runs the program again from where it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.json_leaves import NULL, STRING
from siftline.kernels.pointers import arrays_at
from siftline.kernels.program_table import (
    END_OF_LEAVES,
    EVENT,
    EXISTS,
    FIRST_LEAF,
    HAS_GRAMS,
    IS_FALSE,
    IS_NOT_NULL,
    IS_TRUE,
    IS_UNKNOWN,
    N_COUNTS,
    NEEDS_FOLDING,
    NEGATED,
    NO_FOLDING,
    OF_ANY_STRING,
    OPEN,
    PAIR_EQUAL,
    UNDECIDED,
    ProgramScratch,
    ProgramTable,
)
from siftline.kernels.program_tests import first_leaf, some_may_contain, truth_of_pairs, truth_of_value
from siftline.kernels.text_tests import LARGE_SET_BITS, SCREEN_FOLDED, has_screen, set_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.leaves import LeafColumns
    from siftline.kernels.program_table import Decided, Pairs

_TRUTH_BITS: Final = 3
_TRUTH: Final = 7


@kernel
def run_programs(
    pairs: Pairs,
    leaves: LeafColumns,
    event_starts: NDArray[np.int64],
    decided: Decided,
    program_table: NDArray[np.int64],
    thread_scratch: NDArray[np.int64],
    seconds: int,
    nanoseconds: int,
) -> int:
    """Run programs from their places on until they end or wait; return how many wait.

    The leaves of event i are those from `event_starts[i]` on. If some test asks about all strings, those that no test
    asks about by their attribute are leaves as well. `seconds` and `nanoseconds` are the time. The result is
    NEEDS_FOLDING if the table of folded characters is missing.
    """
    table, scratch = arrays_at(program_table, ProgramTable), arrays_at(thread_scratch, ProgramScratch)
    now, event, n_waiting = (seconds, nanoseconds), -1, 0
    for pair in range(len(pairs.places)):
        place = np.int64(pairs.places[pair])
        if place < 0:
            continue
        if pairs.events[pair] != event:
            event = pairs.events[pair]
            _begin_event(leaves, event_starts, event, scratch)
            if len(decided.tests):
                _take_decided(decided, event, scratch)
        truth = np.int64(IS_UNKNOWN)
        while place >= 0:
            test = np.int64(table.asked_tests[place])
            if _is_screened(table.screens[place], scratch):
                truth = np.int64(IS_FALSE)
            else:
                truth = _truth(table, test, leaves, event_starts[event], scratch, now)
            if truth >= UNDECIDED:
                pairs.waits[pair] = test
                n_waiting += 1
                break
            so = (table.asked_truths[place] >> truth) & 1
            place = np.int64(table.if_so[place] if so else table.otherwise[place])
        pairs.places[pair] = place
        if truth == NO_FOLDING:
            return NEEDS_FOLDING
    return n_waiting


@inline_kernel
def _is_screened(screen: Any, scratch: ProgramScratch) -> bool:
    """Return whether the screen of a test tells that no string of the event has the text that it needs."""
    if screen == 0:
        return False
    folded = (np.int64(screen) >> SCREEN_FOLDED) & 1
    if not scratch.counts[HAS_GRAMS + folded]:
        return False
    return not has_screen(scratch.all_grams, folded * set_words(LARGE_SET_BITS), np.uint64(screen))


@inline_kernel
def _begin_event(leaves: LeafColumns, event_starts: NDArray[np.int64], event: Any, scratch: ProgramScratch) -> None:
    """Chain the leaves of an event by attribute, and forget what was made of those of another one."""
    begin, n_leaves = event_starts[event], event_starts[event + 1] - event_starts[event]
    number = scratch.counts[EVENT] + 1
    for k in range(N_COUNTS):
        scratch.counts[k] = 0
    scratch.counts[EVENT] = number
    scratch.counts[FIRST_LEAF], scratch.counts[END_OF_LEAVES] = begin, begin + n_leaves
    for place in range(n_leaves):
        attribute = np.uint64(leaves.attributes[begin + place])
        scratch.nexts[place] = scratch.firsts[attribute] if scratch.events[attribute] == number else -1
        scratch.events[attribute] = number
        scratch.firsts[attribute] = begin + place
        scratch.folded_starts[place] = -1
        scratch.gram_sets[2 * place] = -1
        scratch.gram_sets[2 * place + 1] = -1


@inline_kernel
def _take_decided(decided: Decided, event: Any, scratch: ProgramScratch) -> None:
    for k in range(decided.starts[event], decided.starts[event + 1]):
        truth = np.int64(decided.truths[k])
        scratch.truths[decided.tests[k]] = (scratch.counts[EVENT] << _TRUTH_BITS) | truth


@inline_kernel
def _truth(
    table: ProgramTable,
    test: Any,
    leaves: LeafColumns,
    begin: Any,
    scratch: ProgramScratch,
    now: tuple[int, int],
) -> Any:
    """Return the truth of a test of the event."""
    noted = scratch.truths[test]
    if noted >> _TRUTH_BITS == scratch.counts[EVENT]:
        return noted & _TRUTH
    asks = np.int64(table.tests[test])
    if asks == OPEN:
        truth = np.int64(UNDECIDED)
    elif asks >= PAIR_EQUAL:
        truth = truth_of_pairs(table, test, leaves, begin, scratch)
    elif table.flags[test] & OF_ANY_STRING:
        truth = _truth_of_strings(table, test, leaves, scratch, now)
    else:
        truth = _truth_of_attribute(table, test, leaves, begin, scratch, now)
    if truth != NO_FOLDING:
        scratch.truths[test] = (scratch.counts[EVENT] << _TRUTH_BITS) | truth
    return truth


@inline_kernel
def _truth_of_attribute(
    table: ProgramTable,
    test: Any,
    leaves: LeafColumns,
    begin: Any,
    scratch: ProgramScratch,
    now: tuple[int, int],
) -> Any:
    """Return the truth of a test of the values of an attribute."""
    asks, leaf = np.int64(table.tests[test]), first_leaf(np.int64(table.attributes[test]), scratch)
    if asks == EXISTS:
        return np.int64(IS_TRUE if leaf >= 0 else IS_FALSE)
    if asks <= IS_NOT_NULL:
        while leaf >= 0 and leaves.kinds[leaf] == NULL:
            leaf = scratch.nexts[leaf - begin]
        return np.int64(IS_TRUE if (leaf >= 0) == (asks == IS_NOT_NULL) else IS_FALSE)
    truth, is_undecided = np.int64(IS_UNKNOWN), False
    while leaf >= 0:
        found = truth_of_value(table, test, leaves, leaf, begin, scratch, now)
        if found in (IS_TRUE, NO_FOLDING):
            return found
        if found == IS_FALSE:
            truth = np.int64(IS_FALSE)
        is_undecided |= found == UNDECIDED
        leaf = scratch.nexts[leaf - begin]
    return np.int64(UNDECIDED) if is_undecided else truth


@inline_kernel
def _truth_of_strings(
    table: ProgramTable, test: Any, leaves: LeafColumns, scratch: ProgramScratch, now: tuple[int, int]
) -> Any:
    """Return the truth of a test of all strings of the event."""
    first, end = scratch.counts[FIRST_LEAF], scratch.counts[END_OF_LEAVES]
    truth, is_undecided = np.int64(IS_UNKNOWN), False
    while first < end and leaves.kinds[first] != STRING:
        first += 1
    if first == end:
        return truth
    may = some_may_contain(table, test, leaves, scratch)
    if may == NO_FOLDING:
        return may
    if not may:
        return np.int64(IS_TRUE if table.flags[test] & NEGATED else IS_FALSE)
    for leaf in range(first, end):
        if leaves.kinds[leaf] != STRING:
            continue
        found = truth_of_value(table, test, leaves, leaf, scratch.counts[FIRST_LEAF], scratch, now)
        if found in (IS_TRUE, NO_FOLDING):
            return found
        if found == IS_FALSE:
            truth = np.int64(IS_FALSE)
        is_undecided |= found == UNDECIDED
    return np.int64(UNDECIDED) if is_undecided else truth
