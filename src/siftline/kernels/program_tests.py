"""The tests of programs: of one value, and of a pair of values of two attributes.

A value is compared with constants of its kind only: numbers exactly, strings by their bytes, and strings that are times
as instants. What a string is compared with it may have to be folded for, or its length taken, before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.kernels.compiler import inline_kernel
from siftline.kernels.json_leaves import FALSE, NULL, NUMBER, STRING, TRUE
from siftline.kernels.moments import read_instant
from siftline.kernels.pointers import part_of
from siftline.kernels.program_table import (
    AT_LEAST,
    AT_MOST,
    BETWEEN,
    CONTAINS,
    END_OF_LEAVES,
    ENDS,
    EVENT,
    FIRST_LEAF,
    FOLDED,
    FROM_NOW,
    GRAM_SETS,
    HAS_GRAMS,
    IN,
    INSTANT,
    IS_FALSE,
    IS_TRUE,
    IS_UNKNOWN,
    LIKE,
    N_FOLDED,
    N_GRAM_SETS,
    NEEDS,
    NEGATED,
    NO_FOLDING,
    OF_ANY_STRING,
    OF_LENGTH,
    PAIR_AT_MOST,
    PAIR_DIFFERENT,
    PAIR_EQUAL,
    PAIR_GREATER,
    PAIR_LESS,
    PAIRS_MAX,
    STARTS,
    UNDECIDED,
)
from siftline.kernels.text_search import MARGIN, Raw, fold_text, is_like, is_matched
from siftline.kernels.text_tests import (
    GRAM_BYTES,
    GRAM_SET_BITS,
    LARGE_SET_BITS,
    clear_grams,
    compare_texts,
    contains,
    count_characters,
    enter_grams,
    may_contain,
    set_words,
    stands_at,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.leaves import LeafColumns
    from siftline.kernels.program_table import ProgramScratch, ProgramTable

_SECOND: Final = 1_000_000_000
_UNORDERED: Final = 2


@inline_kernel
def truth_of_value(
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
    number, residual = np.float64(0.0), np.int64(0)
    if kind == NUMBER:
        number, residual = leaves.numbers[leaf], leaves.residuals[leaf]
    text, start, end = leaves.texts, leaves.text_starts[leaf], leaves.text_ends[leaf]
    if kind == NULL:
        return np.int64(IS_UNKNOWN)
    if flags & OF_LENGTH:
        if kind != STRING:
            return np.int64(IS_UNKNOWN)
        kind = np.int64(NUMBER)
        number = np.float64(count_characters(text, start, end))
    elif flags & FOLDED and kind == STRING:
        if not fold_leaf(leaves, leaf, begin, scratch):
            return np.int64(NO_FOLDING)
        text, start, end = scratch.folded_texts, scratch.folded_starts[leaf - begin], scratch.folded_ends[leaf - begin]
    if asks == NEEDS:
        truth = _truth_of_regex(table, test, leaves, leaf, begin, scratch)
    elif asks == IN:
        truth = _truth_of_list(table, test, kind, number, residual, text, start, end, now)
    elif asks <= BETWEEN:
        truth = _truth_of_range(table, test, kind, number, residual, text, start, end, now)
    elif kind != STRING:
        truth = np.int64(IS_UNKNOWN)
    else:
        truth = _truth_of_text(table, test, text, start, end, leaf - begin, scratch)
    return np.int64(IS_TRUE) - truth if flags & NEGATED and truth <= IS_TRUE else truth


@inline_kernel
def fold_leaf(leaves: LeafColumns, leaf: Any, begin: Any, scratch: ProgramScratch) -> Any:
    """Fold a string unless that was done; return whether it could be."""
    place = leaf - begin
    if scratch.folded_starts[place] >= 0:
        return True
    to, at = scratch.folded_texts, scratch.counts[N_FOLDED]
    n = np.int64(
        fold_text(
            leaves.texts, leaves.text_starts[leaf], leaves.text_ends[leaf], part_of(to, at, len(to)), scratch.folded
        )
    )
    if n < 0:
        return False
    scratch.folded_starts[place] = at
    scratch.folded_ends[place] = at + n
    scratch.counts[N_FOLDED] = at + n + MARGIN
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
    begin, behind = table.text_starts[needed], table.text_ends[needed]
    # Of all strings the grams were asked already, and those of each are not worth the time; a short text has none.
    if not table.flags[test] & OF_ANY_STRING and behind - begin >= GRAM_BYTES:
        grams = _grams_of(text, start, end, 2 * place + form, scratch)
        if grams >= 0 and not may_contain(scratch.grams, grams, GRAM_SET_BITS, table.texts, begin, behind):
            return np.int64(IS_FALSE)
    if not contains(text, start, end, table.texts, begin, behind):
        return np.int64(IS_FALSE)
    if asks == LIKE:
        fits = is_like(table.texts, first, last, part_of(text, start, end), end - start)
        return np.int64(IS_TRUE if fits else IS_FALSE)
    return np.int64(IS_TRUE)


@inline_kernel
def _truth_of_regex(
    table: ProgramTable, test: Any, leaves: LeafColumns, leaf: Any, begin: Any, scratch: ProgramScratch
) -> Any:
    """Return whether a regular expression matches in a string; undecided if only RE2 can tell."""
    if leaves.kinds[leaf] != STRING:
        return np.int64(IS_UNKNOWN)
    start, end, automaton = leaves.text_starts[leaf], leaves.text_ends[leaf], np.int64(table.others[test])
    if end - start < -1 - automaton:
        return np.int64(IS_FALSE)
    at = np.int64(table.operands[test])
    first, last = np.int64(table.bounds[at]), np.int64(table.bounds[at + 1])
    if first < last:
        if not fold_leaf(leaves, leaf, begin, scratch):
            return np.int64(NO_FOLDING)
        if not _has_some(table, first, last, leaf - begin, scratch):
            return np.int64(IS_FALSE)
    if automaton < 0:
        return np.int64(UNDECIDED)
    return np.int64(IS_TRUE if is_matched(table.automata, automaton, Raw(leaves.texts, start, end)) else IS_FALSE)


@inline_kernel
def _has_some(table: ProgramTable, first: Any, last: Any, place: Any, scratch: ProgramScratch) -> Any:
    """Return whether a string, which is folded, has one of some texts."""
    text, start, end = scratch.folded_texts, scratch.folded_starts[place], scratch.folded_ends[place]
    grams = _grams_of(text, start, end, 2 * place + 1, scratch)
    for constant in range(first, last):
        begin, behind = table.text_starts[constant], table.text_ends[constant]
        may = grams < 0 or may_contain(scratch.grams, grams, GRAM_SET_BITS, table.texts, begin, behind)
        if may and contains(text, start, end, table.texts, begin, behind):
            return True
    return False


@inline_kernel
def _grams_of(text: NDArray[np.uint8], start: Any, end: Any, place: Any, scratch: ProgramScratch) -> Any:
    """Return where the set of the grams of a string is, entered if need be; -1 if there is no room for it."""
    at = scratch.gram_sets[place]
    if at >= 0:
        return at
    if scratch.counts[N_GRAM_SETS] >= GRAM_SETS:
        return np.int64(-1)
    at = scratch.counts[N_GRAM_SETS] * set_words(GRAM_SET_BITS)
    scratch.counts[N_GRAM_SETS] += 1
    clear_grams(scratch.grams, at, GRAM_SET_BITS)
    enter_grams(text, start, end, scratch.grams, at, GRAM_SET_BITS)
    scratch.gram_sets[place] = at
    return at


# all strings


@inline_kernel
def some_may_contain(table: ProgramTable, test: Any, leaves: LeafColumns, scratch: ProgramScratch) -> Any:
    """Return 1 if some string of the event may have the text that a test needs, 0 if surely none has.

    The result is NO_FOLDING if the table of folded characters is missing.
    """
    asks, form = np.int64(table.tests[test]), np.int64(1 if table.flags[test] & FOLDED else 0)
    if not CONTAINS <= asks <= LIKE:
        return np.int64(1)
    first, begin = form * set_words(LARGE_SET_BITS), scratch.counts[FIRST_LEAF]
    if not scratch.counts[HAS_GRAMS + form]:
        clear_grams(scratch.all_grams, first, LARGE_SET_BITS)
        for leaf in range(begin, scratch.counts[END_OF_LEAVES]):
            if leaves.kinds[leaf] != STRING:
                continue
            text, start, end = leaves.texts, leaves.text_starts[leaf], leaves.text_ends[leaf]
            if form:
                if not fold_leaf(leaves, leaf, begin, scratch):
                    return np.int64(NO_FOLDING)
                place = leaf - begin
                text, start, end = scratch.folded_texts, scratch.folded_starts[place], scratch.folded_ends[place]
            enter_grams(text, start, end, scratch.all_grams, first, LARGE_SET_BITS)
        scratch.counts[HAS_GRAMS + form] = 1
    needed = np.int64(table.operands[test]) + (1 if asks == LIKE else 0)
    start, end = table.text_starts[needed], table.text_ends[needed]
    return np.int64(1 if may_contain(scratch.all_grams, first, LARGE_SET_BITS, table.texts, start, end) else 0)


# two attributes


@inline_kernel
def first_leaf(attribute: Any, scratch: ProgramScratch) -> Any:
    """Return a leaf of an attribute, -1 if there is none; `nexts` has the others."""
    if attribute < 0 or scratch.events[attribute] != scratch.counts[EVENT]:
        return np.int64(-1)
    return scratch.firsts[attribute]


@inline_kernel
def truth_of_pairs(table: ProgramTable, test: Any, leaves: LeafColumns, begin: Any, scratch: ProgramScratch) -> Any:
    """Return whether some pair of values of two attributes, of one kind, compares as asked; unknown without a pair."""
    asks, offset = np.int64(table.tests[test]), np.int64(table.operands[test])
    first = first_leaf(np.int64(table.others[test]), scratch)
    left = first_leaf(np.int64(table.attributes[test]), scratch)
    truth, n_pairs = np.int64(IS_UNKNOWN), 0
    while left >= 0:
        right = first
        while right >= 0:
            n_pairs += 1
            found = _truth_of_pair(table, asks, offset, leaves, left, right)
            if found in (IS_TRUE, UNDECIDED) or n_pairs > PAIRS_MAX:
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
