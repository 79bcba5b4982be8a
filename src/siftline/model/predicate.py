"""Predicates: one attribute, one operator, constants.

The operators are listed once, in `OPERATORS`; the language, the columns and the printer all spell them as here.
"""

from __future__ import annotations

import ipaddress
import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import re2

from siftline.errors import SubscriptionError
from siftline.model.expression import Expression
from siftline.model.timestamp import FIRST_INSTANT, LAST_INSTANT, MAX_OFFSET, Now, Timestamp
from siftline.model.wildcard import check_like

if TYPE_CHECKING:
    from collections.abc import Iterator

TYPE_NAMES: Final = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    Timestamp: "timestamp",
    Now: "timestamp",
}

# What an event can hold as well, and what stands for an instant.
Constant = bool | int | float | str
Moment = Timestamp | Now
Operand = Constant | Moment | tuple[Constant | Moment, ...] | None

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

COMPARISONS: Final = frozenset({"=", "!=", "<", "<=", ">", ">="})
SETS: Final = frozenset({"in", "not in"})
RANGES: Final = frozenset({"between", "not between"})
TEXTS: Final = frozenset(
    f"{negation}{word}"
    for negation in ("", "not ")
    for word in ("starts with", "ends with", "contains", "like", "ilike", "matches", "cidr")
)
PRESENCES: Final = frozenset({"is null", "is not null", "exists"})

# What stands behind the constants of an operator that folds case first, and behind its name in the model.
IGNORING_CASE: Final = " ignoring case"
CASELESS: Final = frozenset(
    f"{op}{IGNORING_CASE}" for op in ("=", "!=", *SETS, *TEXTS) if not op.endswith(("like", "matches", "cidr"))
)
OPERATORS: Final = COMPARISONS | SETS | RANGES | TEXTS | PRESENCES | CASELESS

# "Negative" operators ask for an element that does *not* satisfy the positive one.
POSITIVE_OF: Final = {"!=": "=", f"!={IGNORING_CASE}": f"={IGNORING_CASE}"} | {
    op: op.removeprefix("not ") for op in OPERATORS if op.startswith("not ")
}

# What booleans take; ordering booleans, or looking into them, is refused.
_BOOLEAN_OPERATORS: Final = frozenset({"=", "!=", "in", "not in"})

# A path whose attribute is the element itself, inside `any path ( ... )`.
THIS: Final = None


class Predicate(Expression):
    """A test of one attribute against constants.

    Parameters
    ----------
    attribute : str or None
        Dotted path; None (`THIS`) is the element itself inside `any`.
    op : str
        One of `OPERATORS`.
    operand : constant, tuple of constants, or None
        A constant; a tuple for ``in``; (low, high) for ``between``; None for ``is null`` and its like. Operators that
        end in ``ignoring case`` take strings only.

    Examples
    --------
    >>> Predicate("price", "between", (10, 20))
    Predicate('price', 'between', (10, 20))
    """

    __slots__ = ("attribute", "op", "operand")
    __match_args__ = ("attribute", "op", "operand")

    attribute: str | None
    op: str
    operand: Operand

    def __init__(self, attribute: str | None, op: str, operand: Operand = None) -> None:
        object.__setattr__(self, "attribute", attribute)
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "operand", checked_operand(op, operand))

    def _key(self) -> tuple[Any, ...]:
        # True == 1 in Python, but `a = true` is not `a = 1`.
        operand = self.operand
        if type(operand) is tuple:
            return self.attribute, self.op, operand, tuple(type(value) is bool for value in operand)
        return self.attribute, self.op, operand, type(operand) is bool

    def constants(self) -> Iterator[Constant | Moment]:
        """Yield the constants of this predicate."""
        yield from constants_of(self.operand)


def constants_of(operand: Operand) -> Iterator[Constant | Moment]:
    """Yield the constants of an operand."""
    if isinstance(operand, tuple):
        yield from operand
    elif operand is not None:
        yield operand


def kind_of(value: object) -> str:
    """Return 'boolean', 'number', 'string' or 'timestamp' for a constant or a leaf of an event."""
    return TYPE_NAMES[type(value)]


def checked_operand(op: str, operand: Operand) -> Operand:
    """Return the operand in its canonical form, or raise if `op` does not take it."""
    if op in COMPARISONS:
        check_constant(operand)
        _check_boolean(op, operand)
        return operand
    if op in SETS:
        values = _as_tuple(op, operand)
        for value in values:
            check_constant(value)
        return values
    if op in RANGES:
        return _checked_bounds(op, _as_tuple(op, operand))
    if op in TEXTS:
        return _checked_text(op, operand)
    if op in PRESENCES:
        if operand is not None:
            raise SubscriptionError(f"'{op}' takes no constant")
        return None
    if op in CASELESS:
        return _checked_caseless(op, operand)
    raise SubscriptionError(f"unknown operator {op!r}")


def _as_tuple(op: str, operand: object) -> tuple[Constant | Moment, ...]:
    if not isinstance(operand, (tuple, list)):
        raise SubscriptionError(f"'{op}' needs a list of constants, not {operand!r}")
    return tuple(operand)


def check_constant(value: object) -> None:
    """Raise if a value cannot be a constant."""
    if value is None:
        raise SubscriptionError("null cannot be compared", hint="write 'is null' or 'is not null'")
    kind = type(value)
    if kind not in TYPE_NAMES:
        raise SubscriptionError(f"a constant must be a boolean, a number, a string or a timestamp, not {kind.__name__}")
    if kind is int and not INT64_MIN <= value <= INT64_MAX:  # type: ignore[operator]
        raise SubscriptionError(f"the integer {_shortened(value)} does not fit into 64 bits")
    if kind is float and not math.isfinite(value):  # type: ignore[arg-type]
        raise SubscriptionError("a number must be finite")
    if isinstance(value, Timestamp) and not FIRST_INSTANT <= value.instant <= LAST_INSTANT:
        raise SubscriptionError("a timestamp lies outside the years 1 to 9999 in UTC")
    if isinstance(value, Now) and not -MAX_OFFSET <= value.offset <= MAX_OFFSET:
        raise SubscriptionError("now() is moved by more than 1,000,000 days")


def _shortened(value: object) -> str:
    # Python refuses to print integers of more than 4,300 digits: show the size instead.
    bits = value.bit_length() if isinstance(value, int) else 0
    return f"of {bits} bits" if bits > 200 else str(value)


def _check_boolean(op: str, operand: object) -> None:
    if type(operand) is bool and op not in _BOOLEAN_OPERATORS:
        raise SubscriptionError(f"a boolean cannot be compared with '{op}'", hint="booleans take =, != and in")


def _checked_bounds(op: str, bounds: tuple[Constant | Moment, ...]) -> tuple[Constant | Moment, ...]:
    if len(bounds) != 2:
        raise SubscriptionError(f"'{op}' needs two bounds, not {len(bounds)}")
    for bound in bounds:
        check_constant(bound)
        _check_boolean(op, bound)
    if kind_of(bounds[0]) != kind_of(bounds[1]):
        raise SubscriptionError(f"the bounds of '{op}' are of two kinds: {kind_of(bounds[0])} and {kind_of(bounds[1])}")
    return bounds


def _checked_caseless(op: str, operand: Operand) -> Operand:
    operand = checked_operand(op.removesuffix(IGNORING_CASE), operand)
    for constant in constants_of(operand):
        if not isinstance(constant, str):
            raise SubscriptionError(f"'ignoring case' is about strings, not about a {kind_of(constant)}")
    return operand


def _checked_text(op: str, operand: object) -> str:
    check_constant(operand)
    if not isinstance(operand, str):
        raise SubscriptionError(f"'{op}' needs a string, not a {kind_of(operand)}")
    if op.endswith("like"):
        check_like(operand)
    elif op.endswith("matches"):
        compile_regex(operand)
    elif op.endswith("cidr"):
        parse_network(operand)
    return operand


# Look-around, and references back by number or name.
_BEYOND_RE2: Final = re.compile(r"\(\?(?:<?[=!]|P=)|(?<!\\)(?:\\\\)*\\[1-9k]")


@lru_cache(maxsize=4096)
def compile_regex(pattern: str) -> Any:
    """Compile a regular expression with RE2, quietly."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise SubscriptionError(
            f"RE2 cannot run the regular expression {pattern!r}: {reason}",
            hint="RE2 has no look-around and no back-references" if _BEYOND_RE2.search(pattern) else None,
        ) from None


@lru_cache(maxsize=4096)
def parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Parse an IPv4 or IPv6 network such as 10.0.0.0/8; host bits are ignored."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise SubscriptionError(f"{text!r} is not a network", hint="write it as 10.0.0.0/8 or 2001:db8::/32") from None
