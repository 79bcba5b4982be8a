"""Rows of the log of notifications, each with a checksum."""

from __future__ import annotations

import zlib
from typing import Any


def checksum(*values: Any) -> int:
    """Return the checksum of a row.

    >>> checksum(1, "ann") == checksum(1, "ann") != checksum(1, "anne")
    True
    """
    found = 0
    for value in values:
        part = value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogatepass")
        found = zlib.crc32(part, zlib.crc32(b"%d:" % len(part), found))
    return found


def insert(table: str, n_values: int, or_replace: bool = False) -> str:
    """Return the statement that inserts a row with its checksum."""
    return f"INSERT {'OR REPLACE ' if or_replace else ''}INTO {table} VALUES ({', '.join('?' * n_values)}, ?)"


def row(*values: Any) -> tuple[Any, ...]:
    """Return a row with its checksum."""
    return (*values, checksum(*values))


def event_row(sequence: int, at: int, payload: bytes, matches: bytes) -> tuple[Any, ...]:
    """Return a row of `logged`: the payload has a checksum of its own, because it is read without the matches."""
    return sequence, at, payload, matches, checksum(sequence, matches), checksum(sequence, at, payload)
