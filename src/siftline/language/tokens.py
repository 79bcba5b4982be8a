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

from siftline.errors import EventError, SubscriptionError
from siftline.model.event import iso_text
from siftline.model.predicate import INT64_MAX, INT64_MIN

# A longer text is refused before anything else looks at it.
MAX_TEXT: Final = 262_144

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
KEYWORDS: Final = RESERVED | OPERATOR_WORDS | {"date", "timestamp"}

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


_DATE = r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
_ONLY_DATE = re.compile(_DATE)
_TIMESTAMP = re.compile(
    rf"{_DATE}(?:[Tt ]([0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}})?)(?:(?<=:..:..)\.([0-9]+))?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?)?"
)


def read_moment(word: str, value: str) -> str:
    """Return a `date` or `timestamp` literal as the text that such a value has in an event.

    >>> read_moment("timestamp", "2026-01-31T10:00+01:00")
    '2026-01-31T09:00:00.000000000Z'
    """
    try:
        return _read_date(value) if word == "date" else _read_timestamp(value)
    except (ValueError, EventError) as error:
        if isinstance(error, SubscriptionError):
            raise
        raise SubscriptionError(f"{value!r} is not a {word}: {error}") from None


def _read_date(value: str) -> str:
    if not _ONLY_DATE.fullmatch(value):
        raise SubscriptionError(f"{value!r} is not a date", hint="write it as date '2026-01-31'")
    return iso_text(datetime.date.fromisoformat(value))


def _read_timestamp(value: str) -> str:
    found = _TIMESTAMP.fullmatch(value)
    if not found:
        raise SubscriptionError(f"{value!r} is not a timestamp", hint=_timestamp_hint(value))
    day, time, fraction, zone = found.groups()
    if fraction and len(fraction) > 9:
        raise SubscriptionError(f"{value!r} is finer than a nanosecond", hint="at most 9 digits may follow the point")
    moment = datetime.datetime.fromisoformat(f"{day}T{time or '00:00'}{(zone or 'Z').upper()}")
    # Python's datetime ends at microseconds, so the fraction joins the text of the whole second.
    return f"{iso_text(moment)[:20]}{(fraction or '').ljust(9, '0')}Z"


def _timestamp_hint(value: str) -> str:
    """Return how to write a timestamp that cannot be read."""
    compact = re.fullmatch(r"(.*[0-9]) ?([+-][0-9]{2})([0-9]{2})?", value)
    written = compact and f"{compact[1]}{compact[2]}:{compact[3] or '00'}"
    if written and _TIMESTAMP.fullmatch(written):
        return f"an offset has a colon: timestamp '{written}'"
    if re.fullmatch(r".*[0-9] ?[A-Za-z/_]{2,}", value):
        return "a zone is written as its offset: timestamp '2026-01-31T10:00:00+01:00'"
    return "write it as timestamp '2026-01-31T10:00:00Z'"


def shortened(token: str, width: int = 40) -> str:
    """Return a token for a message: long ones cut, unprintable characters escaped."""
    shown = token if len(token) <= width else token[: width - 3] + "..."
    return shown if shown.isprintable() else shown.encode("unicode_escape").decode()
