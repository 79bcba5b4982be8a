"""Finds the column of a character of a string in a line of JSON."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]

# One character of a JSON string: a pair of surrogates, an escape, or the character itself.
_WRITTEN = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.S)


def column_in_json(line: str, key: str, value: str, position: int) -> int | None:
    r"""Return the 1-based column in `line` of character `position` of the string that is the value of `key`.

    >>> line = '{"id": 1, "expression": "a = \\"x\\" and b ! 1"}'
    >>> column = column_in_json(line, "expression", 'a = "x" and b ! 1', 14)
    >>> line[column - 1]
    '!'
    """
    # The key may also occur in nested objects; the right one has the value.
    for found in re.finditer(rf"{re.escape(json.dumps(key))}\s*:\s*\"", line):
        try:
            text, end = scanstring(line, found.end())
        except ValueError:
            continue
        if text == value:
            return _column(line, found.end(), end - 1, position)
    return None


def _column(line: str, start: int, end: int, position: int) -> int:
    """Return the column after `position` written characters from `start` on."""
    for n_passed, written in enumerate(_WRITTEN.finditer(line, start, end)):
        if n_passed == position:
            return written.start() + 1
    return end + 1
