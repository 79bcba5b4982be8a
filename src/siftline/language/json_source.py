"""JSON as the front ends take it: a text or what was parsed from it, with errors that say where and what to write.

Objects are seen as members in order, because a key that is repeated in a text has a meaning in event patterns and is
an error elsewhere; a dict would have lost it.

>>> members_of(read_json('{"a": [1], "a": [2]}'))
(('a', [1]), ('a', [2]))
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from siftline.errors import SubscriptionError

_KINDS: Final = {bool: "a boolean", int: "a number", float: "a number", str: "a string", type(None): "null"}


class Members(tuple[tuple[str, Any], ...]):
    """A JSON object read from text: all its members in order, a repeated key included."""

    __slots__ = ()


def read_json(source: object) -> Any:
    """Return parsed JSON: text is parsed, anything else is taken as it is."""
    if isinstance(source, (bytes, bytearray)):
        try:
            source = source.decode()
        except UnicodeDecodeError as error:
            raise SubscriptionError(f"the JSON is not UTF-8: {error.reason} at byte {error.start}") from None
    return _parsed(source) if isinstance(source, str) else source


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=Members, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise SubscriptionError(f"invalid JSON: {reason}", text=text, position=error.pos) from None
    except RecursionError:
        raise SubscriptionError("the JSON nests too deeply") from None
    except SubscriptionError:
        raise
    except ValueError:  # Python reads integers of at most 4,300 digits
        raise SubscriptionError("invalid JSON: an integer has thousands of digits") from None


def _refuse_constant(name: str) -> None:
    raise SubscriptionError(f"invalid JSON: {name} is not a JSON number")


def members_of(value: object) -> Sequence[tuple[str, Any]] | None:
    """Return the members of a JSON object, None for anything else."""
    if isinstance(value, Members):
        return value
    return list(value.items()) if isinstance(value, Mapping) else None


def only_member(members: Sequence[tuple[str, Any]], where: str | None = None) -> tuple[str, Any]:
    """Return the one member that an object must have."""
    if len(members) != 1:
        raise SubscriptionError(f"expected an object with one key, found {len(members)} keys", path=where)
    return members[0]


def elements_of(value: object) -> Sequence[Any] | None:
    """Return the elements of a JSON array, None for anything else."""
    return value if isinstance(value, (list, tuple)) and not isinstance(value, Members) else None


def one_or_more(value: object) -> Sequence[Any]:
    """Return the elements of an array that must not be empty; anything else is its own only element."""
    values = elements_of(value)
    if values is None:
        return [value]
    if not values:
        raise SubscriptionError("an array must not be empty")
    return values


def place_of(key: object, where: str) -> str:
    """Return the place of a member in the object at `where`."""
    return f"{where}.{key}" if where else str(key)


def expected(what: str, found: object, where: str | None = None, hint: str | None = None) -> SubscriptionError:
    """Return the error for JSON of the wrong kind."""
    return SubscriptionError(f"expected {what}, found {_described(found)}", path=where, hint=hint)


def _described(value: object) -> str:
    if members_of(value) is not None:
        return "an object"
    if elements_of(value) is not None:
        return "an array"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def close_to(name: object, names: Iterable[str]) -> str:
    """Return a hint that names what was probably meant, or else all there is."""
    names = sorted(names)
    close = difflib.get_close_matches(str(name).lower(), names, n=1)
    return f"did you mean '{close[0]}'?" if close else "one of " + ", ".join(names)
