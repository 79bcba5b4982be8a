"""What programs are made of (see `programs.py`), as numbers and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.kernels.text_search import Automata  # noqa: TC001 - the type of a field is looked up when the program runs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Where a program ends, and what a subscription has that has no program yet.
HOLDS: Final = -1
FAILS: Final = -2
NOT_COMPILED: Final = -3

# The result of a run that lacks the table of folded characters.
NEEDS_FOLDING: Final = -1

# Truths of tests. Bit n of what an instruction asks is set if truth n is what it asks for.
IS_FALSE: Final = 0
IS_UNKNOWN: Final = 1
IS_TRUE: Final = 2
UNDECIDED: Final = 3
# No truth: the table of folded characters is missing.
NO_FOLDING: Final = 4

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
NEEDS: Final = 13  # a regular expression; the operand is where in `bounds` the texts that it needs begin and end
OPEN: Final = 14  # undecided
# Tests of pairs of values of two attributes; the operand is a constant, the offset, or -1.
PAIR_EQUAL: Final = 16
PAIR_DIFFERENT: Final = 17
PAIR_LESS: Final = 18
PAIR_AT_MOST: Final = 19
PAIR_GREATER: Final = 20
PAIR_AT_LEAST: Final = 21

# Flags of a test: its negation is asked of each value; strings are folded; the length of each string is tested; the
# values are all strings of the event.
NEGATED: Final = 1
FOLDED: Final = 2
OF_LENGTH: Final = 4
OF_ANY_STRING: Final = 8

# Kinds of constants beyond those of leaves: an instant, and an offset from now. `residuals` has the seconds,
# `text_starts` the nanoseconds.
INSTANT: Final = 5
FROM_NOW: Final = 6
# In `bounds`, where the constants of a list begin: booleans, numbers, strings, instants, offsets from now; and the end.
LIST_BOUNDS: Final = 6

# Where in the counts of a thread something is.
EVENT: Final = 0  # the number of the event, which only grows
N_FOLDED: Final = 1  # bytes of the event's folded strings
N_GRAM_SETS: Final = 2
FIRST_LEAF: Final = 3  # of the event, and the end of its leaves
END_OF_LEAVES: Final = 4
HAS_GRAMS: Final = 5  # two: whether the grams of all its strings are entered, as they are and folded
N_COUNTS: Final = 7

# So many strings of one event, in one form, have sets of grams; others are searched without.
GRAM_SETS: Final = 32
# With more pairs of values, a comparison of two attributes is undecided.
PAIRS_MAX: Final = 4096


class ProgramTable(NamedTuple):
    """All programs, their tests, and the constants of these."""

    # By place in the programs.
    asked_tests: NDArray[np.int32]
    asked_truths: NDArray[np.uint8]
    screens: NDArray[np.uint32]  # see `screen_of`; 0: none
    if_so: NDArray[np.int32]
    otherwise: NDArray[np.int32]
    # By test.
    tests: NDArray[np.uint8]
    flags: NDArray[np.uint8]
    attributes: NDArray[np.int32]
    # Of a comparison of two attributes, the second; of a regular expression, its automaton, or -1 - n if it has none
    # and needs strings of n bytes.
    others: NDArray[np.int32]
    operands: NDArray[np.int32]  # the first constant, or a place in `bounds`
    bounds: NDArray[np.int32]
    # By constant.
    kinds: NDArray[np.uint8]
    numbers: NDArray[np.float64]
    residuals: NDArray[np.int64]
    text_starts: NDArray[np.int64]
    text_ends: NDArray[np.int64]
    texts: NDArray[np.uint8]
    automata: Automata


class ProgramScratch(NamedTuple):
    """What one thread keeps for running programs."""

    counts: NDArray[np.int64]  # see EVENT and those behind it
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
    all_grams: NDArray[np.uint64]  # of all strings of the event, as they are and folded
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
