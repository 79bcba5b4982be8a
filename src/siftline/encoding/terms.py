"""Clauses over values: what an index is asked that keeps the constants themselves, as bytes in order.

Codes are labels that move when a domain grows; what outlives the process cannot be built on them. Here a literal
becomes *terms*: an attribute, a kind, one of the operators = != < <= > >=, and a key whose order as bytes is the order
of the values. Terms with the same number are alternatives, and of them a single value satisfies at most one:

    price between 3 and 9 and color in ('red', 'blue') and name contains 'x'

    number   0             1             2                              3
    terms    price >= 3    price <= 9    color = 'blue', color = 'red'  name is a string       needed: 4

A clause whose terms have all been satisfied by an event with one value for each attribute holds, unless it is marked as
not exact (here: `contains` is still to be checked). With several values, terms are necessary, not sufficient.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.encoding.domain import after_prefix
from siftline.encoding.moments import derived_comparison, has_moments
from siftline.encoding.ranges import simplified
from siftline.language.normal_form import Asked, parts_of
from siftline.model import Predicate, instant_of_text, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from siftline.language.normal_form import Clause, Cover
    from siftline.model import Leaf

# The kinds of keys; each has a tree of its own.
NUMBER: Final = "number"
STRING: Final = "string"
BOOLEAN: Final = "boolean"
PRESENCE: Final = "presence"
EVERY: Final = "every"
# Numbers again, of strings that are times (see `moments.py`).
INSTANT: Final = "instant"
AGE: Final = "age"

# Keys of PRESENCE: what a value is.
_PRESENT: Final = b"present"
_NOT_NULL: Final = b"not null"
_IS: Final = {NUMBER: b"number", STRING: b"string", BOOLEAN: b"boolean", INSTANT: b"time", AGE: b"time"}

# A clause has at most this many numbers; what is beyond is left to the exact check.
MOST_NUMBERS: Final = 32767
# `not in` with more constants becomes a test of kind.
_LISTED_CONSTANTS_MAX: Final = 16

_NEGATED: Final = {
    "=": "!=", "<": ">=", "<=": ">", "in": "not in", "between": "not between", "starts with": "not starts with"
}  # fmt: skip
_OPPOSITE: Final = _NEGATED | {negative: positive for positive, negative in _NEGATED.items()}

_EXACT_INTEGERS: Final = 2**53
_MOST_MISSING: Final = 2**15 - 1


class Term(NamedTuple):
    """One predicate of the papers' kind."""

    number: int
    attribute: str
    kind: str
    op: str
    key: bytes


class Terms(NamedTuple):
    """One clause: as many numbers as are needed, each by one of its terms."""

    terms: list[Term]
    needed: int
    is_exact: bool


# Of one literal: for each number the alternatives (kind, op, key); None if no value can satisfy it.
_Groups = list[list[tuple[str, str, bytes]]]


def terms_of(cover: Cover, longest_key: int) -> list[Terms]:
    """Return the clauses of a subscription; keys longer than `longest_key` are cut, and the clause marked."""
    found = (_terms_of_clause(clause, cover.is_exact, longest_key) for clause in cover.clauses)
    return [terms for terms in found if terms is not None]


def _terms_of_clause(clause: Clause, is_exact: bool, longest_key: int) -> Terms | None:
    terms: list[Term] = []
    needed = 0
    for literal in clause:
        leaf, asked = parts_of(literal)
        if not isinstance(leaf, Predicate) or leaf.attribute is None:
            is_exact = False
            continue
        groups, is_tight = _groups(simplified(leaf), asked)
        if groups is None:
            return None
        if needed + len(groups) > MOST_NUMBERS:
            groups, is_tight = [], False
        for group in groups:
            cut = [_cut(*term, longest_key) for term in group]
            is_exact = is_exact and all(whole for _, whole in cut)
            # Different values may have become one key.
            distinct = sorted({term for term, _ in cut})
            terms += [Term(needed, leaf.attribute, *term) for term in distinct]
            needed += 1
        is_exact = is_exact and is_tight
    if not terms:
        return Terms([Term(0, "", EVERY, "=", b"")], 1, is_exact)
    return Terms(terms, needed, is_exact)


def _groups(predicate: Predicate, asked: Asked) -> tuple[_Groups | None, bool]:
    """Return what a literal asks of a single value, and whether that is all it asks."""
    op = predicate.op
    if op in ("exists", "is null", "is not null"):
        is_wanted = (op != "is null") is (asked in (Asked.TRUE, Asked.NOT_FALSE))
        key = _PRESENT if op == "exists" else _NOT_NULL
        return ([[(PRESENCE, "=", key)]], True) if is_wanted else ([], False)
    if asked in (Asked.NOT_TRUE, Asked.NOT_FALSE):
        return [], False
    if has_moments(predicate):
        return _moment_groups(predicate, asked)
    if asked is Asked.FALSE:
        if op not in _OPPOSITE:
            return [[_is_a(STRING)]], False
        op = _OPPOSITE[op]
    return _asked_true(op, predicate)


def _moment_groups(predicate: Predicate, asked: Asked) -> tuple[_Groups | None, bool]:
    """Return the same for timestamps: comparisons of numbers, of another kind."""
    derived = derived_comparison(predicate)
    if derived is None:
        kinds = {STRING if kind == "timestamp" else kind for kind in map(kind_of, predicate.constants())}
        return [[_is_a(kind) for kind in sorted(kinds)]], False
    of, comparison = derived
    op = _OPPOSITE[comparison.op] if asked is Asked.FALSE else comparison.op
    groups, is_tight = _asked_true(op, comparison)
    if groups is None:
        return None, is_tight
    return [[_as_kind(of.op, *term) for term in group] for group in groups], is_tight


def _as_kind(kind: str, found: str, op: str, key: bytes) -> tuple[str, str, bytes]:
    """Return a term about numbers as one about moments."""
    return _is_a(kind) if found == PRESENCE else (kind, op, key)


def _asked_true(op: str, predicate: Predicate) -> tuple[_Groups | None, bool]:
    constants = list(predicate.constants())
    match op:
        case "=" | "!=" | "<" | "<=" | ">" | ">=":
            return [[_term(op, constants[0])]], True
        case "in":
            return ([[_term("=", constant) for constant in constants]], True) if constants else (None, True)
        case "not in":
            return _not_in(constants)
        case "between" | "not between":
            return _between(op, *constants)
        case "starts with":
            return _prefix(str(constants[0]))
        case "not starts with":
            return _no_prefix(str(constants[0]))
    return [[_is_a(STRING)]], False


def _not_in(constants: list[Any]) -> tuple[_Groups | None, bool]:
    kinds = sorted({kind_of(constant) for constant in constants})
    if not kinds:
        return None, True
    terms = {_term("!=", constant) for constant in constants}
    if len(kinds) > 1 or len(terms) > _LISTED_CONSTANTS_MAX:
        return [[_is_a(kind) for kind in kinds]], False
    return [[term] for term in sorted(terms)], True


def _between(op: str, low: Any, high: Any) -> tuple[_Groups | None, bool]:
    if op == "between":
        return ([[_term(">=", low)], [_term("<=", high)]], True) if low <= high else (None, True)
    return ([[_term("<", low), _term(">", high)]] if low <= high else [[_is_a(kind_of(low))]]), True


def _prefix(prefix: str) -> tuple[_Groups | None, bool]:
    if not prefix:
        return [[_is_a(STRING)]], True
    end = after_prefix(prefix)
    return [[_term(">=", prefix)], *([] if end is None else [[_term("<", end)]])], True


def _no_prefix(prefix: str) -> tuple[_Groups | None, bool]:
    if not prefix:
        return None, True
    end = after_prefix(prefix)
    return [[_term("<", prefix), *([] if end is None else [_term(">=", end)])]], True


def _is_a(kind: str) -> tuple[str, str, bytes]:
    return PRESENCE, "=", _IS[kind]


def _term(op: str, constant: Any) -> tuple[str, str, bytes]:
    kind, key = key_of(constant)
    return kind, op, key


def _cut(kind: str, op: str, key: bytes, longest: int) -> tuple[tuple[str, str, bytes], bool]:
    """Return a term whose key is short enough, satisfied by all that satisfy the term; and whether it is the same."""
    if kind != STRING or len(key) <= longest:
        return (kind, op, key), True
    if op in (">", ">="):
        return (kind, ">=", key[:longest]), False
    return _is_a(STRING), False


def key_of(value: Any) -> tuple[str, bytes]:
    """Return the kind and the key of a value that is not null.

    >>> key_of(-1)[1] < key_of(0.5)[1] < key_of(2**53)[1] < key_of(2**53 + 1)[1] < key_of(10**400)[1]
    True
    >>> key_of(1) == key_of(1.0), key_of(0.0) == key_of(-0.0), key_of("b")
    (True, True, ('string', b'b'))
    """
    if isinstance(value, str):
        return STRING, value.encode("utf-8", "surrogatepass")
    if isinstance(value, bool):
        return BOOLEAN, b"\1" if value else b"\0"
    return NUMBER, _number_key(value)


def _number_key(value: int | float) -> bytes:
    """Return the nearest double so that its bytes are in order, and what is missing to the value itself."""
    try:
        nearest = float(value) + 0.0  # there is one zero
    except OverflowError:
        nearest = math.inf if value > 0 else -math.inf
    missing = 0
    if abs(nearest) >= _EXACT_INTEGERS and isinstance(value, int) and math.isfinite(nearest):
        # Constants are integers below 2**68 or doubles, so that a larger difference compares as this one does.
        missing = max(-_MOST_MISSING, min(_MOST_MISSING, value - int(nearest)))
    (bits,) = struct.unpack(">Q", struct.pack(">d", nearest))
    bits = bits ^ 0xFFFFFFFFFFFFFFFF if bits >> 63 else bits | 1 << 63
    return struct.pack(">QH", bits, missing + 2**15)


def probes(leaves: Sequence[Leaf], now: int) -> Iterable[tuple[str, bytes]]:
    """Yield what to look for in the trees of an attribute: kind and key, for each of its values and what they are."""
    seen: set[tuple[str, bytes]] = set()
    for leaf in leaves:
        seen.add((PRESENCE, _PRESENT))
        if leaf is not None:
            kind, key = key_of(leaf)
            seen |= {(kind, key), (PRESENCE, _NOT_NULL), (PRESENCE, _IS[kind])}
        instant = instant_of_text(leaf) if isinstance(leaf, str) else None
        if instant is not None:
            seen |= {(INSTANT, key_of(instant)[1]), (AGE, key_of(now - instant)[1]), (PRESENCE, _IS[INSTANT])}
    return seen
