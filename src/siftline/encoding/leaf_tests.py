"""The leaves of expressions as tests that programs ask (see `kernels/programs.py`).

= and in                      a list of constants, sorted, by kind
< <= > >= between             one constant or two
starts with, ends with, contains, like, ilike     a text in UTF-8, or a wildcard pattern and the longest text in it
matches                       the texts of which the expression needs one, folded, and an automaton if there is a small
                              one; an expression that is nothing but text is a test of text
exists, is null, is not null  nothing
length(a) ...                 the same with the lengths of strings
a < b + 5                     the offset
cidr, any path (...)          nothing: such a test is open, and decided outside of the kernel
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.encoding.patterns import coded_pattern, longest_part
from siftline.encoding.regex_automata import automaton_of
from siftline.encoding.regex_literals import literal_of
from siftline.encoding.regex_needs import needs_of
from siftline.kernels.json_leaves import FALSE, NUMBER, STRING, TRUE
from siftline.kernels.program_table import (
    AT_LEAST,
    AT_MOST,
    BETWEEN,
    CONTAINS,
    ENDS,
    EXISTS,
    FOLDED,
    FROM_NOW,
    GREATER,
    IN,
    INSTANT,
    IS_NOT_NULL,
    IS_NULL,
    LESS,
    LIKE,
    LIST_BOUNDS,
    NEEDS,
    NEGATED,
    OF_ANY_STRING,
    OF_LENGTH,
    OPEN,
    PAIR_AT_LEAST,
    PAIR_AT_MOST,
    PAIR_DIFFERENT,
    PAIR_EQUAL,
    PAIR_GREATER,
    PAIR_LESS,
    STARTS,
)
from siftline.kernels.text_tests import screen_of
from siftline.model import AnyString, AttributeComparison, Length, Now, Predicate, Timestamp
from siftline.model.predicate import IGNORING_CASE, POSITIVE_OF
from siftline.model.wildcard import fold, parse_like

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.encoding.regex_automata import Automaton
    from siftline.model import Expression

_RANGES: Final = {"<": LESS, "<=": AT_MOST, ">": GREATER, ">=": AT_LEAST, "between": BETWEEN}
_PRESENCES: Final = {"exists": EXISTS, "is null": IS_NULL, "is not null": IS_NOT_NULL}
_TEXTS: Final = {"starts with": STARTS, "ends with": ENDS, "contains": CONTAINS}
_PAIRS: Final = {
    "=": PAIR_EQUAL,
    "!=": PAIR_DIFFERENT,
    "<": PAIR_LESS,
    "<=": PAIR_AT_MOST,
    ">": PAIR_GREATER,
    ">=": PAIR_AT_LEAST,
}

# What tests cost, about; only the order counts. Everything else costs what a search in a text does.
_COSTS: Final = {EXISTS: 1, IS_NULL: 1, IS_NOT_NULL: 1, IN: 2, STARTS: 4, ENDS: 4, NEEDS: 100, OPEN: 1000}
_COST_OF_RANGE: Final = 2
_COST_OF_SEARCH: Final = 10
_COST_OF_STRINGS: Final = 50
_COST_OF_AUTOMATON: Final = 30
# A string is not asked for more bytes than this.
_SHORTEST_MAX: Final = 1 << 20


class Constant(NamedTuple):
    """A constant as programs have it."""

    kind: int
    value: int | float = 0  # of a number; of an instant or an offset from now, nanoseconds
    text: bytes = b""


class LeafTest(NamedTuple):
    """What a program asks of the values of one attribute, or of two.

    Attributes
    ----------
    asks, flags : int
        See `kernels/programs.py`.
    attribute, other : str or None
        None if it has none, or asks about the element itself, which an event does not have.
    constants : sequence of Constant
        Those of a list in the order of their kinds.
    bounds : tuple of int
        Of a list, where in its constants each kind begins; of a regular expression, where its texts begin and end.
    automaton : Automaton or None
        Of a regular expression, what decides it.
    shortest : int
        How many bytes a string must have, at least, in which a regular expression without an automaton matches.
    """

    asks: int
    flags: int = 0
    attribute: str | None = None
    other: str | None = None
    constants: Sequence[Constant] = ()
    bounds: tuple[int, ...] = ()
    automaton: Automaton | None = None
    shortest: int = 0

    @property
    def cost(self) -> int:
        """What the test costs, about."""
        usual = _COST_OF_RANGE if LESS <= self.asks <= BETWEEN else _COST_OF_SEARCH
        is_unscreened = self.flags & OF_ANY_STRING and not self.screen
        cost = _COSTS.get(self.asks, usual) if self.automaton is None else _COST_OF_AUTOMATON
        return cost + (_COST_OF_STRINGS if is_unscreened else 0)

    @property
    def screen(self) -> int:
        """What tells quickly that no string of an event has the text that the test needs; 0 if nothing does."""
        if not self.flags & OF_ANY_STRING or self.flags & NEGATED or not CONTAINS <= self.asks <= LIKE:
            return 0
        return screen_of(self.constants[-1].text, is_folded=bool(self.flags & FOLDED))


_OPEN_TEST: Final = LeafTest(OPEN)


def leaf_test(leaf: Expression) -> LeafTest:
    """Return the test that asks what a leaf of an expression says.

    >>> test = leaf_test(Predicate("a", "!=", 5))
    >>> test.asks == IN, test.flags == NEGATED, test.constants
    (True, True, (Constant(kind=3, value=5, text=b''),))
    """
    match leaf:
        case Predicate(attribute, op, operand):
            return _of_values(attribute, op, operand, 0)
        case Length(attribute, op, operand):
            return _of_values(attribute, op, operand, OF_LENGTH)
        case AnyString(op, operand):
            return _of_values(None, op, operand, OF_ANY_STRING)
        case AttributeComparison(attribute, op, other, offset):
            constants = () if offset is None else (Constant(NUMBER, offset),)
            return LeafTest(_PAIRS[op], 0, attribute, other, constants)
    return _OPEN_TEST


def _of_values(attribute: str | None, op: str, operand: Any, flags: int) -> LeafTest:
    """Return the test of an operator and its constants."""
    if op in _PRESENCES:
        return LeafTest(_PRESENCES[op], flags, attribute)
    positive = POSITIVE_OF.get(op, op)
    if positive != op:
        flags |= NEGATED
    if positive.endswith(IGNORING_CASE):
        positive, flags = positive.removesuffix(IGNORING_CASE), flags | FOLDED
        operand = tuple(map(fold, operand)) if isinstance(operand, tuple) else fold(operand)
    if positive in ("=", "in"):
        constants, bounds = _listed(operand if isinstance(operand, tuple) else (operand,))
        return LeafTest(IN, flags, attribute, None, constants, bounds)
    if positive in _RANGES:
        several = operand if isinstance(operand, tuple) else (operand,)
        return LeafTest(_RANGES[positive], flags, attribute, None, tuple(map(_constant, several)))
    match positive:
        case "like":
            return _of_pattern(attribute, operand, flags)
        case "ilike":
            return _of_pattern(attribute, fold(operand), flags | FOLDED)
        case "matches":
            return _of_regex(attribute, operand, flags)
        case "cidr":
            return LeafTest(OPEN, flags, attribute)
    return LeafTest(_TEXTS[positive], flags, attribute, None, (_text(operand),))


def _of_pattern(attribute: str | None, pattern: str, flags: int) -> LeafTest:
    """Return the test of a wildcard pattern: of a text, if that says the same."""
    first, *others = parse_like(pattern)
    segments = [first, *filter(None, others[:-1]), *others[-1:]]
    texts = ["".join(character or "" for character in segment) for segment in segments]
    asks = LIKE
    if not any(None in segment for segment in segments):
        match texts:
            case [text]:
                return LeafTest(IN, flags, attribute, None, *_listed((text,)))
            case [text, ""]:
                asks = STARTS
            case ["", text]:
                asks = ENDS
            case ["", text, ""]:
                asks = CONTAINS
    constants: tuple[Constant, ...] = (_text(max(texts, key=len)),)
    if asks == LIKE:
        constants = Constant(STRING, 0, coded_pattern(segments)), _text(longest_part(segments))
    return LeafTest(asks, flags, attribute, None, constants)


def _of_regex(attribute: str | None, regex: str, flags: int) -> LeafTest:
    literal = literal_of(regex)
    if literal is None or not literal.is_all:
        needs, automaton = needs_of(regex), automaton_of(regex)
        texts = tuple(map(_text, needs.texts))
        shortest = 0 if automaton is not None else min(needs.shortest, _SHORTEST_MAX)
        return LeafTest(NEEDS, flags, attribute, None, texts, (0, len(texts)), automaton, shortest)
    if literal.is_at_start and literal.is_at_end:
        return LeafTest(IN, flags, attribute, None, *_listed((literal.text,)))
    asks = STARTS if literal.is_at_start else ENDS if literal.is_at_end else CONTAINS
    return LeafTest(asks, flags, attribute, None, (_text(literal.text),))


def _text(text: str) -> Constant:
    return Constant(STRING, 0, text.encode("utf-8", "surrogatepass"))


def _constant(value: Any) -> Constant:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Timestamp):
        return Constant(INSTANT, value.instant)
    if isinstance(value, Now):
        return Constant(FROM_NOW, value.offset)
    if isinstance(value, bool):
        return Constant(TRUE if value else FALSE)
    return Constant(NUMBER, value)


# Where the constants of each kind go in a list: booleans, numbers, strings, instants, offsets from now.
_FAMILIES: Final = {FALSE: 0, TRUE: 0, NUMBER: 1, STRING: 2, INSTANT: 3, FROM_NOW: 4}


def _listed(values: tuple[Any, ...]) -> tuple[tuple[Constant, ...], tuple[int, ...]]:
    """Return the constants of a list in the order in which they are searched, and where each kind begins."""
    constants = sorted(
        map(_constant, values), key=lambda each: (_FAMILIES[each.kind], each.value, len(each.text), each.text)
    )
    families = [_FAMILIES[each.kind] for each in constants]
    bounds = tuple(sum(family < bound for family in families) for bound in range(LIST_BOUNDS))
    return tuple(constants), bounds
