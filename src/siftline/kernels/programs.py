"""Programs: expressions over the values of an event, run without Python.

A *test* is a predicate, or another leaf of an expression. It is true, unknown or false of an event, as the model says.
A program asks tests one after the other, and jumps:

    a = 1 and not (b > 2 or c is null)      place   asks          of test     jumps if so    otherwise
                                              2     is true       a = 1            1          FAILS
                                              1     is false      b > 2            0          FAILS
                                              0     is not true   c is null      HOLDS        FAILS

The programs of all subscriptions share their tests. Each thread notes the truth of a test together with the number of
the event, so a test is evaluated once for an event at most. Some tests are *undecided* here, such as a regular
expression in a string that has the text which it needs. A program that asks such a test waits: the caller decides the
test, and runs the program again from where it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.json_leaves import FALSE, NULL, NUMBER, STRING, TRUE
from siftline.kernels.moments import read_instant
from siftline.kernels.pointers import arrays_at, part_of
from siftline.kernels.text_search import MARGIN, fold_text, is_like
from siftline.kernels.text_tests import (
    GRAM_SET_WORDS,
    compare_texts,
    contains,
    count_characters,
    enter_grams,
    may_contain,
    stands_at,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.leaves import LeafColumns

# Where a program ends, and what a subscription has that has no program yet.
HOLDS: Final = -1
FAILS: Final = -2
NOT_COMPILED: Final = -3

# Truths of tests. Bit n of what an instruction asks is set if truth n is what it asks for.
IS_FALSE: Final = 0
IS_UNKNOWN: Final = 1
IS_TRUE: Final = 2
UNDECIDED: Final = 3
# No truth: the table of folded characters is missing.
_NO_TABLE: Final = 4

# What a test asks of the values of its attribute.
EXISTS: Final = 0
IS_NULL: Final = 1
IS_NOT_NULL: Final = 2
IN: Final = 3  # the operand is a place in `bounds`
LESS: Final = 4
AT_MOST: Final = 5
GREATER: Final = 6
AT_LEAST: Final = 7
BETWEEN: Final = 8
STARTS: Final = 9
ENDS: Final = 10
CONTAINS: Final = 11
LIKE: Final = 12  # the constants are the pattern, and the longest text in it
NEEDS: Final = 13  # a regular expression that needs a text; undecided where the text is
OPEN: Final = 14  # undecided
# Tests of pairs of values of two attributes; the operand is a constant, the offset, or -1.
PAIR_EQUAL: Final = 16
PAIR_DIFFERENT: Final = 17
PAIR_LESS: Final = 18
PAIR_AT_MOST: Final = 19
PAIR_GREATER: Final = 20
PAIR_AT_LEAST: Final = 21

# Flags of a test: its negation is asked of each value; strings are folded; the length of each string is tested.
NEGATED: Final = 1
FOLDED: Final = 2
OF_LENGTH: Final = 4

# Kinds of constants beyond those of leaves: an instant, and an offset from now. `residuals` has the seconds,
# `text_starts` the nanoseconds.
INSTANT: Final = 5
FROM_NOW: Final = 6
# In `bounds`, where the constants of a list begin: booleans, numbers, strings, instants, offsets from now; and the end.
LIST_BOUNDS: Final = 6

# So many strings of one event, in one form, have sets of grams; others are searched without.
GRAM_SETS: Final = 32
# With more pairs of values, a comparison of two attributes is undecided.
_PAIRS_MAX: Final = 4096

_SECOND: Final = 1_000_000_000
_TRUTH_BITS: Final = 3
_TRUTH: Final = 7


class ProgramTable(NamedTuple):
    """All programs, their tests, and the constants of these."""

    # By place in the programs.
    asked_tests: NDArray[np.int32]
    asked_truths: NDArray[np.uint8]
    if_so: NDArray[np.int32]
    otherwise: NDArray[np.int32]
    # By test.
    tests: NDArray[np.uint8]
    flags: NDArray[np.uint8]
    attributes: NDArray[np.int32]
    others: NDArray[np.int32]  # of a comparison of two attributes, the second
    operands: NDArray[np.int32]  # the first constant, or a place in `bounds`
    bounds: NDArray[np.int32]
    # By constant.
    kinds: NDArray[np.uint8]
    numbers: NDArray[np.float64]
    residuals: NDArray[np.int64]
    text_starts: NDArray[np.int64]
    text_ends: NDArray[np.int64]
    texts: NDArray[np.uint8]


class ProgramScratch(NamedTuple):
    """What one thread keeps for running programs."""

    counts: NDArray[np.int64]  # the number of the event, which only grows; of its folded bytes; of its sets of grams
    truths: NDArray[np.int64]  # by test: the number of the event, and the truth in the lowest bits
    events: NDArray[np.int64]  # by attribute: the event that had a value last
    firsts: NDArray[np.int64]  # by attribute: its last leaf
    # By leaf of the event.
    nexts: NDArray[np.int64]  # the leaf of the same attribute before it, or -1
    folded_starts: NDArray[np.int64]  # -1: not folded yet
    folded_ends: NDArray[np.int64]
    gram_sets: NDArray[np.int64]  # two for each leaf, as it is and folded; -1: not entered yet
    folded_texts: NDArray[np.uint8]
    grams: NDArray[np.uint64]
    folded: NDArray[np.int32]  # by code point; empty until it is needed


class Pairs(NamedTuple):
    """Pairs of an event and a program, the events in order."""

    events: NDArray[np.int64]
    places: NDArray[np.int32]  # where the program goes on
    waits: NDArray[np.int32]  # the test that a program waits for, if it does


class Decided(NamedTuple):
    """Truths of tests that were undecided: those of event i are from starts[i] to starts[i + 1]."""

    starts: NDArray[np.int64]
    tests: NDArray[np.int32]
    truths: NDArray[np.uint8]


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

    `seconds` and `nanoseconds` are the time. The result is -1 if the table of folded characters is missing.
    """
    table, scratch = arrays_at(program_table, ProgramTable), arrays_at(thread_scratch, ProgramScratch)
    return _run(pairs, leaves, event_starts, decided, table, scratch, (seconds, nanoseconds))


@inline_kernel
def _run(
    pairs: Pairs,
    leaves: LeafColumns,
    event_starts: NDArray[np.int64],
    decided: Decided,
    table: ProgramTable,
    scratch: ProgramScratch,
    now: tuple[int, int],
) -> int:
    event, begin, n_waiting = -1, 0, 0
    for pair in range(len(pairs.places)):
        place = np.int64(pairs.places[pair])
        if place < 0:
            continue
        if pairs.events[pair] != event:
            event = pairs.events[pair]
            begin = event_starts[event]
            _begin_event(leaves, begin, event_starts[event + 1], scratch)
            if len(decided.tests):
                _take_decided(decided, event, scratch)
        truth = np.int64(IS_UNKNOWN)
        while place >= 0:
            test = np.int64(table.asked_tests[place])
            truth = _truth(table, test, leaves, begin, scratch, now)
            if truth >= UNDECIDED:
                pairs.waits[pair] = test
                n_waiting += 1
                break
            so = (table.asked_truths[place] >> truth) & 1
            place = np.int64(table.if_so[place] if so else table.otherwise[place])
        pairs.places[pair] = place
        if place >= 0 and truth == _NO_TABLE:
            return -1
    return n_waiting


@inline_kernel
def _begin_event(leaves: LeafColumns, begin: Any, end: Any, scratch: ProgramScratch) -> None:
    """Chain the leaves of an event by attribute."""
    scratch.counts[0] += 1
    scratch.counts[1] = 0
    scratch.counts[2] = 0
    event = scratch.counts[0]
    for leaf in range(begin, end):
        attribute, place = np.uint64(leaves.attributes[leaf]), leaf - begin
        is_first = scratch.events[attribute] != event
        scratch.nexts[place] = -1 if is_first else scratch.firsts[attribute]
        scratch.events[attribute] = event
        scratch.firsts[attribute] = leaf
        scratch.folded_starts[place] = -1
        scratch.gram_sets[2 * place] = -1
        scratch.gram_sets[2 * place + 1] = -1


@inline_kernel
def _take_decided(decided: Decided, event: Any, scratch: ProgramScratch) -> None:
    for k in range(decided.starts[event], decided.starts[event + 1]):
        truth = np.int64(decided.truths[k])
        scratch.truths[decided.tests[k]] = (scratch.counts[0] << _TRUTH_BITS) | truth


# one test


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
    if noted >> _TRUTH_BITS == scratch.counts[0]:
        return noted & _TRUTH
    truth = _evaluated(table, test, leaves, begin, scratch, now)
    if truth != _NO_TABLE:
        scratch.truths[test] = (scratch.counts[0] << _TRUTH_BITS) | truth
    return truth


@inline_kernel
def _first_leaf(attribute: Any, scratch: ProgramScratch) -> Any:
    """Return a leaf of an attribute, -1 if there is none; `nexts` has the others."""
    if attribute < 0 or scratch.events[attribute] != scratch.counts[0]:
        return np.int64(-1)
    return scratch.firsts[attribute]


@inline_kernel
def _evaluated(
    table: ProgramTable,
    test: Any,
    leaves: LeafColumns,
    begin: Any,
    scratch: ProgramScratch,
    now: tuple[int, int],
) -> Any:
    asks = np.int64(table.tests[test])
    if asks == OPEN:
        return np.int64(UNDECIDED)
    if asks >= PAIR_EQUAL:
        return _truth_of_pairs(table, test, leaves, begin, scratch)
    leaf = _first_leaf(np.int64(table.attributes[test]), scratch)
    if asks == EXISTS:
        return np.int64(IS_TRUE if leaf >= 0 else IS_FALSE)
    if asks <= IS_NOT_NULL:
        while leaf >= 0 and leaves.kinds[leaf] == NULL:
            leaf = scratch.nexts[leaf - begin]
        return np.int64(IS_TRUE if (leaf >= 0) == (asks == IS_NOT_NULL) else IS_FALSE)
    truth = np.int64(IS_UNKNOWN)
    is_undecided = False
    while leaf >= 0:
        found = _truth_of_value(table, test, leaves, leaf, begin, scratch, now)
        if found in (IS_TRUE, _NO_TABLE):
            return found
        if found == IS_FALSE:
            truth = np.int64(IS_FALSE)
        is_undecided |= found == UNDECIDED
        leaf = scratch.nexts[leaf - begin]
    return np.int64(UNDECIDED) if is_undecided else truth


@inline_kernel
def _truth_of_value(
    table: ProgramTable,
    test: Any,
    leaves: LeafColumns,
    leaf: Any,
    begin: Any,
    scratch: ProgramScratch,
    now: tuple[int, int],
) -> Any:
    """Return the truth of a test of one value."""
    asks, flags, kind = np.int64(table.tests[test]), np.int64(table.flags[test]), np.int64(leaves.kinds[leaf])
    number, residual = leaves.numbers[leaf], leaves.residuals[leaf]
    text, start, end = leaves.texts, leaves.text_starts[leaf], leaves.text_ends[leaf]
    if kind == NULL:
        return np.int64(IS_UNKNOWN)
    if flags & OF_LENGTH:
        if kind != STRING:
            return np.int64(IS_UNKNOWN)
        kind, residual = np.int64(NUMBER), np.int64(0)
        number = np.float64(count_characters(text, start, end))
    elif flags & FOLDED and kind == STRING:
        if not _fold(leaves, leaf, begin, scratch):
            return np.int64(_NO_TABLE)
        text, start, end = scratch.folded_texts, scratch.folded_starts[leaf - begin], scratch.folded_ends[leaf - begin]
    if asks == IN:
        truth = _truth_of_list(table, test, kind, number, residual, text, start, end, now)
    elif asks <= BETWEEN:
        truth = _truth_of_range(table, test, kind, number, residual, text, start, end, now)
    elif kind != STRING:
        truth = np.int64(IS_UNKNOWN)
    else:
        truth = _truth_of_text(table, test, text, start, end, leaf - begin, scratch)
    return np.int64(IS_TRUE) - truth if flags & NEGATED and truth <= IS_TRUE else truth


@inline_kernel
def _fold(leaves: LeafColumns, leaf: Any, begin: Any, scratch: ProgramScratch) -> Any:
    """Fold a string unless that was done; return whether it could be."""
    place = leaf - begin
    if scratch.folded_starts[place] >= 0:
        return True
    to, at = scratch.folded_texts, scratch.counts[1]
    n = np.int64(
        fold_text(
            leaves.texts, leaves.text_starts[leaf], leaves.text_ends[leaf], part_of(to, at, len(to)), scratch.folded
        )
    )
    if n < 0:
        return False
    scratch.folded_starts[place] = at
    scratch.folded_ends[place] = at + n
    scratch.counts[1] = at + n + MARGIN
    return True


# constants


@inline_kernel
def _order_of_numbers(number: Any, residual: Any, other: Any, other_residual: Any) -> int:
    """Return -1, 0 or 1 if a number is smaller than another one, equal, or greater."""
    if number != other:
        return -1 if number < other else 1
    if residual != other_residual:
        return -1 if residual < other_residual else 1
    return 0


@inline_kernel
def _order_of_instants(table: ProgramTable, constant: Any, second: Any, nanosecond: Any, now: tuple[int, int]) -> int:
    """Return -1, 0 or 1 if an instant is before a constant, at it, or behind it."""
    wanted, wanted_nanosecond = table.residuals[constant], table.text_starts[constant]
    if table.kinds[constant] == FROM_NOW:
        wanted += now[0]
        wanted_nanosecond += now[1]
        if wanted_nanosecond >= _SECOND:
            wanted += 1
            wanted_nanosecond -= _SECOND
    if second != wanted:
        return -1 if second < wanted else 1
    if nanosecond != wanted_nanosecond:
        return -1 if nanosecond < wanted_nanosecond else 1
    return 0


@inline_kernel
def _order_of_texts(table: ProgramTable, constant: Any, text: NDArray[np.uint8], start: Any, end: Any) -> int:
    return compare_texts(text, start, end, table.texts, table.text_starts[constant], table.text_ends[constant])


@inline_kernel
def _truth_of_list(
    table: ProgramTable,
    test: Any,
    kind: Any,
    number: Any,
    residual: Any,
    text: NDArray[np.uint8],
    start: Any,
    end: Any,
    now: tuple[int, int],
) -> Any:
    """Return whether a value is in a list; unknown if no constant is of its kind."""
    bounds, at = table.bounds, np.int64(table.operands[test])
    if kind == NUMBER:
        low, high = np.int64(bounds[at + 1]), np.int64(bounds[at + 2])
        if low == high:
            return np.int64(IS_UNKNOWN)
        return np.int64(IS_TRUE if _has_number(table, low, high, number, residual) else IS_FALSE)
    if kind != STRING:
        low, high = np.int64(bounds[at]), np.int64(bounds[at + 1])
        truth = np.int64(IS_UNKNOWN)
        for constant in range(low, high):
            if table.kinds[constant] == kind:
                return np.int64(IS_TRUE)
            truth = np.int64(IS_FALSE)
        return truth
    low, high = np.int64(bounds[at + 2]), np.int64(bounds[at + 3])
    truth = np.int64(IS_UNKNOWN)
    if low < high:
        if _has_text(table, low, high, text, start, end):
            return np.int64(IS_TRUE)
        truth = np.int64(IS_FALSE)
    last = np.int64(bounds[at + 5])
    if high == last:
        return truth
    second, nanosecond, is_time = read_instant(text, start, end)
    if not is_time:
        return truth
    for constant in range(high, last):
        if _order_of_instants(table, constant, second, nanosecond, now) == 0:
            return np.int64(IS_TRUE)
    return np.int64(IS_FALSE)


@inline_kernel
def _has_number(table: ProgramTable, low: Any, high: Any, number: Any, residual: Any) -> bool:
    """Return whether a number is among ascending constants."""
    while low < high:
        middle = (low + high) >> 1
        order = _order_of_numbers(number, residual, table.numbers[middle], table.residuals[middle])
        if order == 0:
            return True
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return False


@inline_kernel
def _has_text(table: ProgramTable, low: Any, high: Any, text: NDArray[np.uint8], start: Any, end: Any) -> bool:
    """Return whether a string is among constants that ascend by the number of their bytes, then by the bytes."""
    n = end - start
    while low < high:
        middle = (low + high) >> 1
        wanted_n = table.text_ends[middle] - table.text_starts[middle]
        order = n - wanted_n
        if order == 0:
            order = np.int64(_order_of_texts(table, middle, text, start, end))
            if order == 0:
                return True
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return False


@inline_kernel
def _truth_of_range(
    table: ProgramTable,
    test: Any,
    kind: Any,
    number: Any,
    residual: Any,
    text: NDArray[np.uint8],
    start: Any,
    end: Any,
    now: tuple[int, int],
) -> Any:
    """Return how a value compares with a constant, or with both of `between`; unknown if they are of another kind."""
    asks, constant = np.int64(table.tests[test]), np.int64(table.operands[test])
    wanted = np.int64(table.kinds[constant])
    is_between = asks == BETWEEN
    upper = constant + 1 if is_between else constant
    if wanted == NUMBER and kind == NUMBER:
        order = _order_of_numbers(number, residual, table.numbers[constant], table.residuals[constant])
        upper_order = _order_of_numbers(number, residual, table.numbers[upper], table.residuals[upper])
    elif wanted == STRING and kind == STRING:
        order = _order_of_texts(table, constant, text, start, end)
        upper_order = _order_of_texts(table, upper, text, start, end) if is_between else order
    elif wanted >= INSTANT and kind == STRING:
        second, nanosecond, is_time = read_instant(text, start, end)
        if not is_time:
            return np.int64(IS_UNKNOWN)
        order = _order_of_instants(table, constant, second, nanosecond, now)
        upper_order = _order_of_instants(table, upper, second, nanosecond, now)
    else:
        return np.int64(IS_UNKNOWN)
    if is_between:
        return np.int64(IS_TRUE if order >= 0 and upper_order <= 0 else IS_FALSE)
    is_equal_enough = order == 0 and asks in (AT_MOST, AT_LEAST)
    is_on_side = order < 0 if asks <= AT_MOST else order > 0
    return np.int64(IS_TRUE if is_equal_enough or is_on_side else IS_FALSE)


# strings


@inline_kernel
def _truth_of_text(
    table: ProgramTable,
    test: Any,
    text: NDArray[np.uint8],
    start: Any,
    end: Any,
    place: Any,
    scratch: ProgramScratch,
) -> Any:
    """Return whether a string begins or ends with a text, has it, or fits a pattern."""
    asks, constant = np.int64(table.tests[test]), np.int64(table.operands[test])
    first, last = table.text_starts[constant], table.text_ends[constant]
    if asks in (STARTS, ENDS):
        n = last - first
        if n > end - start:
            return np.int64(IS_FALSE)
        at = start if asks == STARTS else end - n
        return np.int64(IS_TRUE if stands_at(text, at, table.texts, first, last) else IS_FALSE)
    # Of a pattern, its longest text is the next constant.
    needed = constant + 1 if asks == LIKE else constant
    form = np.int64(1 if table.flags[test] & FOLDED else 0)
    grams = _grams_of(text, start, end, 2 * place + form, scratch)
    if grams >= 0 and not may_contain(
        scratch.grams, grams, table.texts, table.text_starts[needed], table.text_ends[needed]
    ):
        return np.int64(IS_FALSE)
    if asks == LIKE:
        fits = is_like(table.texts, first, last, part_of(text, start, end), end - start)
        return np.int64(IS_TRUE if fits else IS_FALSE)
    if not contains(text, start, end, table.texts, first, last):
        return np.int64(IS_FALSE)
    return np.int64(UNDECIDED if asks == NEEDS else IS_TRUE)


@inline_kernel
def _grams_of(text: NDArray[np.uint8], start: Any, end: Any, place: Any, scratch: ProgramScratch) -> Any:
    """Return where the set of the grams of a string is, entered if need be; -1 if there is no room for it."""
    at = scratch.gram_sets[place]
    if at >= 0:
        return at
    if scratch.counts[2] >= GRAM_SETS:
        return np.int64(-1)
    at = scratch.counts[2] * GRAM_SET_WORDS
    scratch.counts[2] += 1
    enter_grams(text, start, end, scratch.grams, at)
    scratch.gram_sets[place] = at
    return at


# two attributes


@inline_kernel
def _truth_of_pairs(table: ProgramTable, test: Any, leaves: LeafColumns, begin: Any, scratch: ProgramScratch) -> Any:
    """Return whether some pair of values of two attributes, of one kind, compares as asked; unknown without a pair."""
    asks, offset = np.int64(table.tests[test]), np.int64(table.operands[test])
    first = _first_leaf(np.int64(table.others[test]), scratch)
    left = _first_leaf(np.int64(table.attributes[test]), scratch)
    truth, n_pairs = np.int64(IS_UNKNOWN), 0
    while left >= 0:
        right = first
        while right >= 0:
            n_pairs += 1
            found = _truth_of_pair(table, asks, offset, leaves, left, right)
            if found in (IS_TRUE, UNDECIDED) or n_pairs > _PAIRS_MAX:
                return np.int64(UNDECIDED) if found != IS_TRUE else found
            if found == IS_FALSE:
                truth = np.int64(IS_FALSE)
            right = scratch.nexts[right - begin]
        left = scratch.nexts[left - begin]
    return truth


@inline_kernel
def _truth_of_pair(table: ProgramTable, asks: Any, offset: Any, leaves: LeafColumns, left: Any, right: Any) -> Any:
    kind, other = np.int64(leaves.kinds[left]), np.int64(leaves.kinds[right])
    if kind == NUMBER and other == NUMBER:
        order = _order_with_offset(table, offset, leaves, left, right)
        if order == _UNORDERED:
            return np.int64(UNDECIDED)
    elif offset >= 0:
        return np.int64(IS_UNKNOWN)
    elif kind == STRING and other == STRING:
        start, end = leaves.text_starts[left], leaves.text_ends[left]
        order = compare_texts(
            leaves.texts, start, end, leaves.texts, leaves.text_starts[right], leaves.text_ends[right]
        )
    elif kind in (FALSE, TRUE) and other in (FALSE, TRUE) and asks <= PAIR_DIFFERENT:
        order = 0 if kind == other else 1
    else:
        return np.int64(IS_UNKNOWN)
    if asks == PAIR_EQUAL:
        holds = order == 0
    elif asks == PAIR_DIFFERENT:
        holds = order != 0
    elif asks == PAIR_LESS:
        holds = order < 0
    elif asks == PAIR_AT_MOST:
        holds = order <= 0
    elif asks == PAIR_GREATER:
        holds = order > 0
    else:
        holds = order >= 0
    return np.int64(IS_TRUE if holds else IS_FALSE)


_UNORDERED: Final = 2


@inline_kernel
def _order_with_offset(table: ProgramTable, offset: Any, leaves: LeafColumns, left: Any, right: Any) -> int:
    """Return how a number compares with the exact sum of another and an offset; _UNORDERED if doubles cannot tell."""
    number, residual = leaves.numbers[left], leaves.residuals[left]
    other, other_residual = leaves.numbers[right], leaves.residuals[right]
    if offset < 0:
        return _order_of_numbers(number, residual, other, other_residual)
    added = table.numbers[offset]
    if residual != 0 or other_residual != 0 or table.residuals[offset] != 0:
        return _UNORDERED
    # The exact sum is the rounded one and the error, also a double, of rounding (Knuth's TwoSum).
    total = other + added
    if not np.isfinite(total):
        return _UNORDERED
    rounded = total - other
    error = (other - (total - rounded)) + (added - rounded)
    if number != total:
        return -1 if number < total else 1
    if error != 0.0:
        return -1 if error > 0.0 else 1
    return 0
