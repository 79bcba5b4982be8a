"""What stands for an object or an array in an event though it is no dict and no list, and what to send otherwise.

A dataclass, a pydantic model and an attrs class are objects of their fields; a set is an array in no particular order.
None of the packages is imported: their classes are known by what they have.
"""

from __future__ import annotations

import dataclasses
import datetime
import fractions
import ipaddress
import pathlib
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from siftline.errors import EventError

# Objects and arrays in an event may nest this deep.
MAX_EVENT_DEPTH: Final = 100

_ADDRESSES: Final = (
    *(ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network),
    *(ipaddress.IPv4Interface, ipaddress.IPv6Interface),
)
# What to send instead of a value that could mean several things, or nothing.
_HINTS: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((datetime.time,), "send value.isoformat(), which compares as text"),
    ((datetime.timedelta,), "send value.total_seconds()"),
    ((bytes, bytearray, memoryview), "send value.decode() if it is text"),
    ((pathlib.PurePath, *_ADDRESSES), "send str(value)"),
    ((fractions.Fraction,), "send float(value)"),
    ((Mapping,), "send dict(value)"),
)


class NotPlainError(EventError):
    """A value that stands for an object or an array: `plain_tree` opens it."""


def opened(value: Any) -> Mapping[str, Any] | list[Any] | None:
    """Return what a value holds if it stands for an object or an array; None if it does not, or is one already.

    >>> opened({1, 2}), opened((1, 2))
    ([1, 2], None)
    """
    if isinstance(value, (set, frozenset)):
        return list(value)
    kind = type(value)
    if hasattr(kind, "model_dump"):  # of pydantic
        return _fields_of(value.model_dump())
    if hasattr(kind, "__dataclass_fields__"):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(kind, "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in kind.__attrs_attrs__}
    return None


def _fields_of(dumped: Any) -> Mapping[str, Any] | list[Any] | None:
    """Return what a model gave; one with a single root value may have given anything."""
    if isinstance(dumped, (Mapping, list)):
        return dumped
    return list(dumped) if isinstance(dumped, (tuple, set, frozenset)) else None


def plain_tree(value: Any, depth: int = 0) -> Any:
    """Return an event, or a part of one, with everything opened that stands for an object or an array.

    >>> plain_tree({"tags": {"a"}, "n": 1})
    {'tags': ['a'], 'n': 1}
    """
    if depth > MAX_EVENT_DEPTH:
        raise EventError(f"the event nests deeper than {MAX_EVENT_DEPTH} levels")
    found = opened(value)
    if found is None:
        found = value
    if isinstance(found, Mapping):
        return {key: plain_tree(child, depth + 1) for key, child in found.items()}
    if isinstance(found, (list, tuple)):
        return [plain_tree(element, depth + 1) for element in found]
    return found


def refusal(value: Any, path: str) -> EventError:
    """Return the error for a value that is no leaf, with what to send instead."""
    where = f"attribute {path!r}: " if path else ""
    reason = f"{where}a value of type {type(value).__name__} has no meaning in an event"
    if opened(value) is not None:
        return NotPlainError(f"{reason} as a value: it is an object or an array")
    hint = _hint(value)
    return EventError(f"{reason}; {hint}" if hint else reason)


def _hint(value: Any) -> str | None:
    for kinds, hint in _HINTS:
        if isinstance(value, kinds):
            return hint
    if hasattr(value, "tolist"):  # of NumPy
        return "send value.tolist()"
    if isinstance(value, Iterable):
        return "send list(value)"
    return "send vars(value), or a dict of what counts" if hasattr(value, "__dict__") and not callable(value) else None


def text_of(value: object) -> str | None:
    """Return the text that a value is known by, None if it has none: that of a UUID."""
    return str(value) if isinstance(value, uuid.UUID) else None
