"""Tokens of the text language: how a text splits, and what names, numbers, strings and dates mean.

One regular expression splits the whole text in one call. A token is a plain string, told apart by its first character;
where it stands is worked out again only when an error needs it. That makes the good case several times faster.

>>> split("price<=580 /* cheap */and x=1")
['price', '<=', '580', 'and', 'x', '=', '1', '', '']
"""

from __future__ import annotations

import datetime
import math
import re
from typing import Final

from siftline.errors import SubscriptionError
from siftline.model.event import iso_text
from siftline.model.predicate import INT64_MAX, INT64_MIN
from siftline.model.timestamp import SECOND, UNITS, Timestamp, instant_of_text

# A longer text is refused before anything else looks at it.
MAX_TEXT: Final = 262_144

# More digits of an interval are beyond every limit.
_MAX_AMOUNT_DIGITS: Final = 18

# Kinds of tokens.
NAME: Final = "name"
NUMBER: Final = "number"
STRING: Final = "string"
VARIABLE: Final = "variable"
SYMBOL: Final = "symbol"
END: Final = "end"

# These cannot be an attribute unless quoted: they may begin an operand, or end one.
RESERVED: Final = frozenset({"and", "any", "exists", "false", "not", "null", "or", "this", "true"})
# These stand after an attribute only, so they may be attributes; no operator call has such a name unless quoted.
OPERATOR_WORDS: Final = frozenset(
    {"between", "cidr", "contains", "ends", "ilike", "in", "is", "like", "matches", "starts", "with"}
)
KEYWORDS: Final = RESERVED | OPERATOR_WORDS | {"date", "length", "timestamp"}

# What other languages write for constants: moments, numbers that are none, and null.
MOMENTS: Final = frozenset({"current_date", "current_timestamp", "getdate", "now", "sysdate", "today"})
NOT_FINITE: Final = frozenset({"inf", "infinity", "nan"})
NULL_WORDS: Final = frozenset({"absent", "missing", "nil", "none", "undefined", "unset"})
# On the right of a comparison these are attributes only if they are quoted.
NOT_ON_THE_RIGHT: Final = (KEYWORDS - {"length"}) | MOMENTS | NOT_FINITE | NULL_WORDS

# The comparisons as they are written, and as the model names them.
COMPARISONS: Final = {op: op for op in ("=", "!=", "<", "<=", ">", ">=")} | {"<>": "!="}
# How tightly the operators of terms bind.
ARITHMETIC: Final = {"+": 1, "-": 1, "*": 2, "/": 2}

# `\w` lacks the combining marks that many scripts write vowels with, so their blocks, and the joiners, are added.
_LETTERS = r"\w\u0300-\u167f\u1681-\u1fff\u200c\u200d\u20d0-\u20ff\u3099\u309a"
_TAIL = rf"[{_LETTERS}]*+(?:-[{_LETTERS}]++)*+"
_FIRST = rf"(?:[^\W\d]|[@$](?=[{_LETTERS}])){_TAIL}"
_LATER = rf"[@$]?[{_LETTERS}]{_TAIL}"
_QUOTED = r'"[^"]*+(?:""[^"]*+)*+"'
_NUMBER = r"(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+(?![\w.])"
_VARIABLE = rf"[^\W\d][{_LETTERS}]*+"

_TOKEN = re.compile(
    rf"""
    (?: \s++ | --[^\n]*+ | /\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/ )*+
    (
      (?:{_FIRST}|{_QUOTED})(?:\.(?:{_LATER}|{_QUOTED}))*+
    | <=>|<>|<=|>=|!==|!=|===|==|=~|=<|=>|&&|\|\|
    | {_NUMBER}
    | \.?[0-9][\w.]*+                      # a malformed number, kept whole for the error
    | '[^']*+(?:''[^']*+)*+'
    | \?(?:{_VARIABLE}|{_QUOTED})
    | /\*.*+                               # a comment without end takes the rest: scanning on would be quadratic
    | .                                    # any symbol, and whatever has no place in the language
    | \Z
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_SEGMENT = re.compile(rf"\.?(?:({_QUOTED})|([^\".]+))")
_BARE_PATH = re.compile(rf"{_FIRST}(?:\.{_LATER})*+")
_BARE_VARIABLE = re.compile(_VARIABLE)
# A name that may be meant as a difference, a price or a placeholder: `b-5`, `$5`, `$limit`.
_DOUBTFUL = re.compile(r"-[0-9]|\A\$")

_ASCII_KINDS: Final = (
    dict.fromkeys("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", NAME)
    | dict.fromkeys("0123456789", NUMBER)
    | dict.fromkeys("()=<>!,*/+-&|;", SYMBOL)
    | {"'": STRING, "": END}
)


def split(text: str) -> list[str]:
    """Return the tokens of a text, and two empty ones for its end, so that a look-ahead needs no check.

    >>> split('"a b".c in (1,-2.5)')
    ['"a b".c', 'in', '(', '1', ',', '-', '2.5', ')', '', '']
    """
    tokens: list[str] = _TOKEN.findall(text)
    tokens.append("")  # after the one that the pattern itself finds
    return tokens


def position_of(text: str, index: int) -> int:
    """Return where the token number `index` starts; for the end, where the last token ends.

    >>> position_of("a = 1  ", 1), position_of("a = 1  ", 3)
    (2, 5)
    """
    end = 0
    for number, found in enumerate(_TOKEN.finditer(text)):
        if not found[1]:
            break
        if number == index:
            return found.start(1)
        end = found.end(1)
    return end


def kind(token: str) -> str:
    """Return what a token is: a name, a number, a string, a variable, a symbol, or the end.

    >>> kind("price"), kind("5"), kind("'x'"), kind("?x"), kind("<="), kind("@type")
    ('name', 'number', 'string', 'variable', 'symbol', 'name')
    """
    return _ASCII_KINDS.get(token[:1]) or _rare_kind(token)


def _rare_kind(token: str) -> str:
    first = token[0]
    if first in '"@$?':  # alone they begin nothing
        return SYMBOL if len(token) == 1 else VARIABLE if first == "?" else NAME
    if first == ".":
        return SYMBOL if len(token) == 1 else NUMBER
    return NAME if first.isalnum() and not first.isdecimal() else SYMBOL


def read_path(token: str) -> str:
    """Return the attribute that a name means: its segments without quotes, joined by dots.

    >>> read_path('"a b".c'), read_path('a."5"" disk"')
    ('a b.c', 'a.5" disk')
    """
    if '"' not in token:
        return token
    return ".".join(unquoted(quoted, '"') if quoted else bare for quoted, bare in _SEGMENT.findall(token))


def unquoted(token: str, quote: str) -> str:
    """Return what stands between the quotes of a token, doubled quotes made single."""
    return token[1:-1].replace(quote + quote, quote)


def quoted(value: str, quote: str) -> str:
    """Return a value in quotes, quotes inside doubled."""
    return quote + value.replace(quote, quote + quote) + quote


def write_path(path: str, taken: frozenset[str] = RESERVED) -> str:
    """Return an attribute as the language writes it, quoted where it must be.

    >>> write_path("detail-type"), write_path("a b"), write_path("not")
    ('detail-type', '"a b"', '"not"')
    """
    word = path.lower()
    is_bare = _BARE_PATH.fullmatch(path) and word not in taken and not word.startswith("this.")
    return path if is_bare else quoted(path, '"')


def write_right_path(path: str) -> str:
    """Return an attribute as it is written on the right of a comparison, where some names are quoted that need not be.

    >>> write_right_path("limit"), write_right_path("today"), write_right_path("b-5")
    ('limit', '"today"', '"b-5"')
    """
    return quoted(path, '"') if is_doubtful(path) else write_path(path, NOT_ON_THE_RIGHT)


def is_doubtful(token: str) -> bool:
    """Return whether a bare name on the right of a comparison may be meant as something else.

    >>> is_doubtful("b-5"), is_doubtful("$limit"), is_doubtful("detail-type"), is_doubtful('"b-5"')
    (True, True, False, False)
    """
    return '"' not in token and _DOUBTFUL.search(token) is not None


def write_variable(name: str) -> str:
    """Return a variable with its question mark, quoted where it must be."""
    return "?" + (name if _BARE_VARIABLE.fullmatch(name) else quoted(name, '"'))


def read_string(token: str) -> str:
    """Return the value of a string token."""
    if token == "'":
        raise SubscriptionError("this string has no closing quote", hint="a quote inside a string is doubled: 'it''s'")
    value = token[1:-1]
    return value.replace("''", "'") if "'" in value else value


def read_number(token: str, sign: int = 1) -> int | float:
    """Return the value of a number token: an int64, or the nearest double if it has a point or an exponent.

    >>> read_number("580"), read_number("1e3"), read_number(".5", -1)
    (580, 1000.0, -0.5)
    """
    if not token.isdecimal() or not token.isascii():
        return sign * _read_decimal(token)
    # Counting digits first keeps a number of 100,000 digits from being converted.
    value = sign * int(token) if len(token) < 20 or len(token.lstrip("0")) < 20 else INT64_MAX + 1
    if not INT64_MIN <= value <= INT64_MAX:
        raise SubscriptionError(
            f"the integer {shortened('-' * (sign < 0) + token)} does not fit into 64 bits",
            hint="with a decimal point it is the nearest double",
        )
    return value


def _read_decimal(token: str) -> float:
    try:
        # Python reads 1_000 and other scripts' digits too; the language does not.
        value = float(token) if token.isascii() and "_" not in token else None
    except ValueError:
        value = None
    if value is None:
        raise SubscriptionError(
            f"'{shortened(token)}' is neither a number nor a name",
            hint='a name that begins with a digit is quoted with "…"; numbers are written as 12, -0.5 or 1e3',
        )
    if math.isinf(value):
        raise SubscriptionError(f"the number {shortened(token)} is too large for a double")
    return value


_ONLY_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FINER = re.compile(r"\.[0-9]{10}")
AMOUNT = re.compile(r"([0-9]+)(?:\.([0-9]{1,9}))?")
_INTERVAL = re.compile(rf"\s*{AMOUNT.pattern}\s+([a-z]+)", re.IGNORECASE)


def read_date(value: str) -> str:
    """Return a `date` literal as the text that such a value has in an event."""
    if not _ONLY_DATE.fullmatch(value):
        raise SubscriptionError(f"{value!r} is not a date", hint="write it as date '2026-01-31'")
    try:
        return iso_text(datetime.date.fromisoformat(value))
    except ValueError as error:
        raise SubscriptionError(f"{value!r} is not a date: {error}") from None


def read_timestamp(value: str) -> Timestamp:
    """Return the instant that a `timestamp` literal means.

    >>> print(read_timestamp("2026-01-31T10:00+01:00"))
    timestamp '2026-01-31T09:00:00Z'
    """
    if _FINER.search(value):
        raise SubscriptionError(f"{value!r} is finer than a nanosecond", hint="at most 9 digits may follow the point")
    instant = instant_of_text(value)
    if instant is None:
        raise SubscriptionError(f"{value!r} is not a timestamp", hint=_timestamp_hint(value))
    return Timestamp(instant)


def read_interval(value: str) -> int:
    """Return the nanoseconds of an interval such as '1 day 2 hours'.

    >>> read_interval("1 week") == read_interval("7 days") == 24 * 7 * read_interval("1 hour")
    True
    """
    nanoseconds = position = 0
    while found := _INTERVAL.match(value, position):
        nanoseconds += _amount(found[1], found[2], found[3].lower())
        position = found.end()
    if not position or value[position:].strip():
        raise SubscriptionError(f"{value!r} is not an interval", hint="write it as interval '1 day 2 hours'")
    return nanoseconds


def _amount(whole: str, decimals: str | None, unit: str) -> int:
    """Return the nanoseconds of a number of units."""
    seconds = UNITS.get(unit.removesuffix("s"))
    if seconds is None:
        hint = "weeks, days, hours, minutes and seconds are the units"
        if unit.startswith(("month", "year", "quarter")):
            hint += ": months and years differ in length"
        raise SubscriptionError(f"{unit!r} is not a unit of an interval", hint=hint)
    if len(whole) > _MAX_AMOUNT_DIGITS:
        raise SubscriptionError(f"the interval of {shortened(whole)} {unit} is too long")
    fraction = (decimals or "").ljust(9, "0")
    return seconds * (int(whole) * SECOND + int(fraction))


def _timestamp_hint(value: str) -> str:
    """Return how to write a timestamp that cannot be read."""
    compact = re.fullmatch(r"(.*[0-9]) ?([+-][0-9]{2})([0-9]{2})?", value)
    written = compact and f"{compact[1]}{compact[2]}:{compact[3] or '00'}"
    if written and instant_of_text(written) is not None:
        return f"an offset has a colon: timestamp '{written}'"
    if re.fullmatch(r".*[0-9] ?[A-Za-z/_]{2,}", value):
        return "a zone is written as its offset: timestamp '2026-01-31T10:00:00+01:00'"
    return "write it as timestamp '2026-01-31T10:00:00Z'"


def shortened(token: str, width: int = 40) -> str:
    """Return a token for a message: long ones cut, unprintable characters escaped."""
    shown = token if len(token) <= width else token[: width - 3] + "..."
    return shown if shown.isprintable() else shown.encode("unicode_escape").decode()
