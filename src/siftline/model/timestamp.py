"""Instants: which strings are times, the constants that stand for instants, and the one that moves, `now()`.

An instant is an integer: nanoseconds since 1970 in UTC, without leap seconds, in the years 1 to 9999.

>>> instant_of_text("2026-01-31T10:00:00Z") == instant_of_text("2026-01-31 11:00+01:00")
True
>>> print(Timestamp(instant_of_text("2026-01-31t10:00:00.500Z")), Now(-86_400 * SECOND), instant_of_text("tomorrow"))
timestamp '2026-01-31T10:00:00.5Z' now() - interval '1 day' None
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

SECOND: Final = 1_000_000_000
_DAY_SECONDS: Final = 86_400
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
# The years 1 to 9999.
FIRST_INSTANT: Final = (datetime.date.min.toordinal() - _EPOCH) * _DAY_SECONDS * SECOND
LAST_INSTANT: Final = (datetime.date.max.toordinal() + 1 - _EPOCH) * _DAY_SECONDS * SECOND - 1
# `now()` may be moved by so much: of longer times nobody knows the calendar, and keys of ages stay short.
MAX_OFFSET: Final = 1_000_000 * _DAY_SECONDS * SECOND

# Longer texts are read again each time: remembered, thousands of them might fill the memory.
_MOST_REMEMBERED: Final = 64

# In seconds; months and years are not among them, because they have no fixed length.
UNITS: Final = {"week": 604_800, "day": _DAY_SECONDS, "hour": 3_600, "minute": 60, "second": 1}

_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))?)?"
)


def instant_of_text(text: str) -> int | None:
    """Return the instant that a string means, None if it is no time.

    A time is a date, then `T`, `t` or a space, hours and minutes, and optionally seconds, a fraction, and `Z`, `z` or
    an offset. Without an offset it is in UTC, and a date alone is its midnight. Second 60 is the one behind second 59.
    What is finer than a nanosecond is dropped.
    """
    return _remembered(text) if len(text) <= _MOST_REMEMBERED else _read(text)


def _read(text: str) -> int | None:
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, offset_hours, offset_minutes = found.groups(default="0")
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60 or int(offset_hours) > 23 or int(offset_minutes) > 59:
        return None
    try:
        days = datetime.date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError:
        return None
    offset = (int(offset_hours) * 60 + int(offset_minutes)) * (-60 if sign == "-" else 60)
    seconds = days * _DAY_SECONDS + int(hour) * 3_600 + int(minute) * 60 + int(second) - offset
    instant = seconds * SECOND + int(fraction[:9].ljust(9, "0"))
    return instant if FIRST_INSTANT <= instant <= LAST_INSTANT else None


_remembered = lru_cache(maxsize=4096)(_read)


def text_of_instant(instant: int) -> str:
    """Return an instant in UTC, with as many decimals as it needs.

    >>> text_of_instant(0), text_of_instant(-1)
    ('1970-01-01T00:00:00Z', '1969-12-31T23:59:59.999999999Z')
    """
    seconds, nanosecond = divmod(instant, SECOND)
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    fraction = f".{nanosecond:09d}".rstrip("0") if nanosecond else ""
    return f"{moment.isoformat()}{fraction}Z"


def iso_text_of_instant(instant: int) -> str:
    """Return an instant as the string of fixed width that a timestamp of Python or Arrow is in an event.

    >>> iso_text_of_instant(0)
    '1970-01-01T00:00:00.000000000Z'
    """
    return f"{text_of_instant(instant)[:19]}.{instant % SECOND:09d}Z"


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A constant that is an instant: strings of events are read as times and compared with it.

    Attributes
    ----------
    instant : int
        Nanoseconds since 1970 in UTC, in the years 1 to 9999.
    """

    instant: int

    def at(self, now: int) -> int:
        """Return the instant, whatever the time is."""
        return self.instant

    def __str__(self) -> str:
        return f"timestamp '{text_of_instant(self.instant)}'"


@dataclass(frozen=True, slots=True, order=True)
class Now:
    """The instant at which an event is matched, moved by an offset.

    Attributes
    ----------
    offset : int
        Nanoseconds; negative for what has passed.

    Examples
    --------
    >>> Now() - datetime.timedelta(hours=36)
    Now(offset=-129600000000000)
    """

    offset: int = 0

    def at(self, now: int) -> int:
        """Return the instant that is meant at the time `now`."""
        return now + self.offset

    def __add__(self, interval: datetime.timedelta) -> Now:
        return Now(self.offset + _nanoseconds(interval))

    def __sub__(self, interval: datetime.timedelta) -> Now:
        return Now(self.offset - _nanoseconds(interval))

    def __str__(self) -> str:
        if not self.offset:
            return "now()"
        return f"now() {'-' if self.offset < 0 else '+'} interval '{_interval(abs(self.offset))}'"


def _nanoseconds(interval: Any) -> int:
    if not isinstance(interval, datetime.timedelta):
        raise TypeError(f"now() is moved by a timedelta, not by {type(interval).__name__}")
    whole = interval // datetime.timedelta(microseconds=1) * 1_000
    return whole + int(getattr(interval, "nanoseconds", 0))  # pandas.Timedelta has it


def _interval(nanoseconds: int) -> str:
    """Return a length of time in words, as the language reads it."""
    parts = []
    seconds, fraction = divmod(nanoseconds, SECOND)
    for unit in ("day", "hour", "minute"):
        count, seconds = divmod(seconds, UNITS[unit])
        if count:
            parts.append(f"{count} {unit}{'s' * (count != 1)}")
    if seconds or fraction:
        decimals = f".{fraction:09d}".rstrip("0") if fraction else ""
        parts.append(f"{seconds}{decimals} second{'s' * (decimals != '' or seconds != 1)}")
    return " ".join(parts)
