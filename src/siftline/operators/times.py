"""Operators on the times of events.

    within_hours(attribute, first, last, [zone])      between two times of day, 'HH:MM'; over midnight if last < first
    day_of_week(attribute, day, ...)                  on one of these days, 'monday' or 'mon'

Times are ISO 8601 texts, or seconds since 1970; without a zone they are UTC.

>>> within_hours({"at": "2026-01-31T23:30:00Z"}, "at", "22:00", "06:00")
True
>>> day_of_week({"at": "2026-01-31"}, "at", "sat", "sun")
True
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from siftline.operators.events import values_of
from siftline.operators.operator import operator

if TYPE_CHECKING:
    from siftline.model import Leaf

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@operator("within_hours", cost=0.01)
def within_hours(event: Any, attribute: str, first: str, last: str, zone: str = "UTC") -> bool | None:
    """Return whether a time of the attribute is in a window of the day, including both ends."""
    times = [moment.astimezone(_zone(zone)).time() for moment in _moments(event, attribute)]
    start, end = _time(first), _time(last)
    if not times:
        return None
    if start <= end:
        return any(start <= time <= end for time in times)
    return any(time >= start or time <= end for time in times)


@operator("day_of_week", cost=0.01)
def day_of_week(event: Any, attribute: str, *days: str) -> bool | None:
    """Return whether a time of the attribute is on one of these days, in UTC."""
    wanted = {_day(day) for day in days}
    moments = _moments(event, attribute)
    return any(moment.weekday() in wanted for moment in moments) if moments else None


def _moments(event: Any, attribute: str) -> list[datetime.datetime]:
    return [moment for value in values_of(event, attribute) if (moment := _moment(value)) is not None]


def _moment(value: Leaf) -> datetime.datetime | None:
    """Return a moment in UTC, None for a value that is no time."""
    try:
        if isinstance(value, str):
            moment = datetime.datetime.fromisoformat(value)
            aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
            return aware.astimezone(datetime.UTC)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.datetime.fromtimestamp(value, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@lru_cache(maxsize=1024)
def _time(text: str) -> datetime.time:
    return datetime.time.fromisoformat(text)


def _day(text: str) -> int:
    found = [i for i, day in enumerate(_DAYS) if day.startswith(text.casefold()) and len(text) >= 3]
    if not found:
        raise ValueError(f"{text!r} is no day of the week")
    return found[0]
