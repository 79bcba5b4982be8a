"""Splits JSON texts without changing the parts, so that they can be passed on exactly as they were sent.

Parsing and printing them would lose information: in Python `1e400` is infinite, `1.10` is `1.1`, and of members with
the same name only the last is kept.

>>> raw_members('{"id": "1-0", "data": {"price": 1.10, "far": 1e400}}')["data"]
'{"price": 1.10, "far": 1e400}'
>>> raw_elements('[1.10, {"a": [2]}]')
['1.10', '{"a": [2]}']
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from siftline.errors import EventError
from siftline.model import json_value

_SPACE: Final = re.compile(r"[ \t\n\r]*")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _nothing(found: Any) -> None:
    return None


# Finds the end of a value; the value itself is not needed.
_DECODER: Final = json.JSONDecoder(
    parse_float=_nothing, parse_int=_nothing, parse_constant=_refuse, object_pairs_hook=_nothing
)


def json_text(event: Any) -> bytes:
    """Return an event that is a dict as JSON."""
    try:
        return json.dumps(event, allow_nan=False, default=json_value).encode()
    except EventError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(f"not a JSON object: {error}") from None


def raw_members(text: str) -> dict[str, str]:
    """Return the texts of the members of an object; raise ValueError if the text is not an object."""
    members: dict[str, str] = {}
    place = _opened(text, "{", "}")
    while place is not None:
        if text[place : place + 1] != '"':
            raise ValueError(f"a name was expected at {place}")
        name, place = _DECODER.raw_decode(text, place)
        place = _expected(text, place, ":")
        members[name], place = _value(text, place, "}")
    return members


def raw_elements(text: str) -> list[str]:
    """Return the texts of the elements of an array; raise ValueError if the text is not an array."""
    elements: list[str] = []
    place = _opened(text, "[", "]")
    while place is not None:
        element, place = _value(text, place, "]")
        elements.append(element)
    return elements


def _opened(text: str, first: str, last: str) -> int | None:
    """Return the start of the first part, None if there is none."""
    place = _expected(text, _after_space(text, 0), first)
    if text[place : place + 1] == last:
        _check_end(text, place + 1)
        return None
    return place


def _value(text: str, place: int, last: str) -> tuple[str, int | None]:
    """Return the text of a value, and the start of the next part, None if this was the last one."""
    _, end = _DECODER.raw_decode(text, place)
    after = _after_space(text, end)
    if text[after : after + 1] == last:
        _check_end(text, after + 1)
        return text[place:end], None
    return text[place:end], _expected(text, after, ",")


def _expected(text: str, place: int, character: str) -> int:
    place = _after_space(text, place)
    if text[place : place + 1] != character:
        raise ValueError(f"{character!r} was expected at {place}")
    return _after_space(text, place + 1)


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


def _check_end(text: str, place: int) -> None:
    if _after_space(text, place) != len(text):
        raise ValueError(f"nothing more was expected at {place}")
