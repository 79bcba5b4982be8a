"""The matchers of event patterns: each becomes a test of one value, which is `this`.

{"numeric": [">", 0, "<=", 5]}     this > 0 and this <= 5
{"anything-but": "x"}              exists this and (this = 'x') is not true

Errors here say what is wrong; the caller knows in which place of the pattern.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import SubscriptionError
from siftline.language.connectives import any_of
from siftline.language.json_source import close_to, elements_of, expected, members_of, one_or_more, only_member
from siftline.model import THIS, And, Expression, IsTrue, Not, Predicate
from siftline.model.wildcard import literal_like

if TYPE_CHECKING:
    from collections.abc import Callable

# The name of the matcher that is no object but a bare value.
BARE: Final = ""

# Inside `$or`, an object with one of these names is a matcher, so `$or` is no operator there but a field of that name.
RESERVED: Final = frozenset(
    {"exactly", "equals-ignore-case", "prefix", "suffix", "anything-but", "exists", "wildcard", "numeric", "cidr"}
    | {"=", "<", "<=", ">", ">=", "regex", "not-wildcard", "not-equals-ignore-case"}
    | {"date-after", "date-on-or-after", "date-before", "date-on-or-before", "in-date-range"}
    | {"ip-address-in-range", "ip-address-not-in-range"}
)

_WILDCARD_TOKEN: Final = re.compile(r"\\[*\\]|[*\\]|[^*\\]+")
_IPV4: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){3}")
_IPV6: Final = re.compile(r"[0-9a-fA-F:]*:[0-9a-fA-F:]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a service accepts: matchers, those that `anything-but` may negate, and the reach of `numeric`."""

    matchers: frozenset[str]
    negatable: frozenset[str]
    has_lists: bool  # anything-but: {"prefix": [...]}, prefix: {"equals-ignore-case": ...}
    existing: str  # what `exists: true` asks of a value
    max_number: int
    max_decimals: int


_IN_BOTH: Final = frozenset({"exists", "anything-but", "prefix", "suffix", "equals-ignore-case", "numeric", "cidr"})

DIALECTS: Final = {
    "eventbridge": Dialect(
        matchers=_IN_BOTH | {"exactly", "wildcard"},
        negatable=frozenset({"prefix", "suffix", "equals-ignore-case", "wildcard"}),
        has_lists=True,
        existing="exists",
        max_number=5_000_000_000,
        max_decimals=6,
    ),
    "sns": Dialect(
        matchers=_IN_BOTH,
        negatable=frozenset({"prefix"}),
        has_lists=False,
        existing="is not null",
        max_number=1_000_000_000,
        max_decimals=5,
    ),
}


def name_and_operand(matcher: Any) -> tuple[str, Any]:
    """Return the two parts of a matcher.

    >>> name_and_operand({"prefix": "x"}), name_and_operand("x")
    (('prefix', 'x'), ('', 'x'))
    """
    members = members_of(matcher)
    return (BARE, matcher) if members is None else only_member(members)


def value_test(name: str, operand: Any, dialect: Dialect) -> Expression:
    """Return what a matcher asks of a value; `exists: false`, which asks for none, is not for here.

    >>> value_test("wildcard", "x*", DIALECTS["eventbridge"])
    Predicate(None, 'starts with', 'x')
    """
    if name != BARE and name not in dialect.matchers:
        raise SubscriptionError(f"unknown matcher '{name}'", hint=close_to(name, dialect.matchers))
    return _TESTS[name](operand, dialect)


def wildcards_of(name: str, operand: Any) -> list[tuple[str, ...]]:
    """Return the wildcards of a matcher that has been found valid; a negated list counts as one."""
    if name == "wildcard":
        return [(operand,)]
    members = members_of(operand) if name == "anything-but" else None
    if members and members[0][0] == "wildcard":
        return [tuple(one_or_more(members[0][1]))]
    return []


# --- values ----------------------------------------------------------------------------------------------------------


def _exact(value: Any, dialect: Dialect) -> Expression:
    if value is None:
        return And((Predicate(THIS, "exists"), Predicate(THIS, "is null")))
    if not isinstance(value, (str, bool, int, float)):
        raise expected("a string, number, boolean, null or matcher", value)
    if isinstance(value, str) and (address := _ipv6(value)):
        return Predicate(THIS, "cidr", f"{address}/128")  # however the event spells it, as the engine does
    return Predicate(THIS, "=", value)


def _ipv6(text: str) -> ipaddress.IPv6Address | None:
    try:
        return ipaddress.IPv6Address(text) if _IPV6.fullmatch(text) else None
    except ValueError:
        return None


def _exactly(value: Any, dialect: Dialect) -> Expression:
    return Predicate(THIS, "=", _text(value))


def _exists(value: Any, dialect: Dialect) -> Expression:
    if value is not True:
        raise expected("true or false", value)
    return Predicate(THIS, dialect.existing)


# --- strings ---------------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise expected("a string", value)
    return value


def _ignore_case(value: Any, dialect: Dialect) -> Expression:
    return Predicate(THIS, "ilike", literal_like(_text(value)))


def _prefix(value: Any, dialect: Dialect) -> Expression:
    if (text := _ignoring_case(value, dialect)) is not None:
        return Predicate(THIS, "ilike", literal_like(text) + "%")
    return Predicate(THIS, "starts with", _text(value))


def _suffix(value: Any, dialect: Dialect) -> Expression:
    if (text := _ignoring_case(value, dialect)) is not None:
        return Predicate(THIS, "ilike", "%" + literal_like(text))
    return Predicate(THIS, "ends with", _text(value))


def _ignoring_case(value: Any, dialect: Dialect) -> str | None:
    """Return the text of {"equals-ignore-case": text}, None if the operand is no object."""
    members = members_of(value)
    if members is None or not dialect.has_lists:
        return None
    name, operand = only_member(members)
    if name != "equals-ignore-case":
        raise SubscriptionError(f"unknown matcher '{name}' here", hint="only 'equals-ignore-case' is allowed")
    return _text(operand)


def _wildcard(value: Any, dialect: Dialect) -> Expression:
    match wildcard_pieces(_text(value)):
        case [text]:
            return Predicate(THIS, "=", text)
        case [text, ""]:
            return Predicate(THIS, "starts with", text)
        case ["", text]:
            return Predicate(THIS, "ends with", text)
        case ["", text, ""]:
            return Predicate(THIS, "contains", text)
        case pieces:
            return Predicate(THIS, "like", "%".join(map(literal_like, pieces)))


def wildcard_pieces(pattern: str) -> list[str]:
    r"""Split a wildcard at `*` into the texts between, without escapes.

    >>> wildcard_pieces(r"a*\*b*")
    ['a', '*b', '']
    """
    pieces: list[list[str]] = [[]]
    previous = ""
    for token in _WILDCARD_TOKEN.findall(pattern):
        if token == "*" == previous:
            raise SubscriptionError(f"the wildcard {pattern!r} has two '*' in a row")
        if token == "\\":
            raise SubscriptionError(f"the wildcard {pattern!r} has a '\\' that escapes nothing", hint=r"write \\ or \*")
        if token == "*":
            pieces.append([])
        else:
            pieces[-1].append(token[1] if token[0] == "\\" else token)
        previous = token
    return ["".join(piece) for piece in pieces]


def _cidr(value: Any, dialect: Dialect) -> Expression:
    address, _, bits = _text(value).partition("/")
    if not re.fullmatch(r"[0-9]{1,9}", bits):
        raise SubscriptionError(f"{value!r} is not a network", hint="write it as 10.0.0.0/8")
    if _IPV4.fullmatch(address):  # the engine reads 010 as 10, Python refuses it
        address = ".".join(str(int(part)) for part in address.split("."))
    elif not _IPV6.fullmatch(address):
        raise SubscriptionError(f"{address!r} is not an IP address")
    if int(bits) >= (128 if ":" in address else 32):
        raise SubscriptionError(
            f"the mask /{bits} is too long", hint="at most /31 and /127; write a single address as a value"
        )
    return Predicate(THIS, "cidr", f"{address}/{int(bits)}")


# --- numbers ---------------------------------------------------------------------------------------------------------


def _numeric(value: Any, dialect: Dialect) -> Expression:
    terms = elements_of(value)
    if terms is None or len(terms) not in (2, 4):
        raise SubscriptionError("'numeric' needs an operator and a number, or two of each")
    pairs = [(terms[i], _number(terms[i + 1], dialect)) for i in range(0, len(terms), 2)]
    allowed = [("=", "<", "<=", ">", ">=")] if len(pairs) == 1 else [(">", ">="), ("<", "<=")]
    for (op, _), ops in zip(pairs, allowed, strict=True):
        if op not in ops:
            raise SubscriptionError(
                f"{op!r} is not an operator of 'numeric' here",
                hint='one of = < <= > >=; a range has its lower bound first, such as [">", 0, "<=", 5]',
            )
    if len(pairs) == 1:
        return Predicate(THIS, *pairs[0])
    (low_op, low), (high_op, high) = pairs
    if not low < high:
        raise SubscriptionError("the lower bound of a range must be less than the upper one")
    if (low_op, high_op) == (">=", "<="):
        return Predicate(THIS, "between", (low, high))
    return And((Predicate(THIS, low_op, low), Predicate(THIS, high_op, high)))


def _number(value: Any, dialect: Dialect) -> int | float:
    """Return a number that the service can order, or raise."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise expected("a number", value)
    limit = dialect.max_number
    if not -limit <= value <= limit:  # nor is NaN
        raise SubscriptionError(f"the number lies outside -{limit:,} to {limit:,}")
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    if isinstance(exponent, int) and exponent < -dialect.max_decimals:
        raise SubscriptionError(f"the number {value} has more than {dialect.max_decimals} decimals")
    return value


# --- anything-but ----------------------------------------------------------------------------------------------------


def _anything_but(value: Any, dialect: Dialect) -> Expression:
    """Ask for a value, null and other kinds included, that is none of these."""
    members = members_of(value)
    excluded = _excluded_values(value, dialect) if members is None else _excluded_texts(*only_member(members), dialect)
    return And((Predicate(THIS, "exists"), Not(IsTrue(excluded))))


def _excluded_values(value: Any, dialect: Dialect) -> Expression:
    values = one_or_more(value)
    if not all(isinstance(one, str) for one in values):
        for one in values:
            _check_number(one, dialect)
    return Predicate(THIS, "=", values[0]) if len(values) == 1 else Predicate(THIS, "in", tuple(values))


def _check_number(value: Any, dialect: Dialect) -> None:
    """Refuse what cannot stand next to numbers in `anything-but`."""
    if isinstance(value, str):
        raise SubscriptionError("'anything-but' takes strings or numbers, not both")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise expected("strings or numbers", value)
    _number(value, dialect)


def _excluded_texts(name: str, operand: Any, dialect: Dialect) -> Expression:
    if name not in dialect.negatable:
        raise SubscriptionError(f"'anything-but' cannot negate '{name}'", hint=close_to(name, dialect.negatable))
    texts = [_text(text) for text in (one_or_more(operand) if dialect.has_lists else [operand])]
    return any_of(_excluded_text(name, text, dialect) for text in texts)


def _excluded_text(name: str, text: str, dialect: Dialect) -> Expression:
    if not text and name in ("prefix", "suffix"):
        raise SubscriptionError(f"the {name} must not be empty")
    return _TESTS[name](text, dialect)


_TESTS: Final[dict[str, Callable[[Any, Dialect], Expression]]] = {
    BARE: _exact,
    "exactly": _exactly,
    "exists": _exists,
    "prefix": _prefix,
    "suffix": _suffix,
    "equals-ignore-case": _ignore_case,
    "wildcard": _wildcard,
    "cidr": _cidr,
    "numeric": _numeric,
    "anything-but": _anything_but,
}
