"""Copies logs of notifications of version 0.1.0, which had other tables and no checksums, into a new file.

The newest events are copied up to the bound. Of a damaged file, those rows are copied that can be read and have valid
values, as far as that can be told without checksums; streams report the events between them as a gap.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.broker.log_rows import event_row, insert, row
from siftline.broker.recent import event_cost
from siftline.broker.salvage import Salvage

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from siftline.ids import Id

    Execute = Callable[..., sqlite3.Cursor]

# If the end of a damaged file cannot be read, this many numbers after the last event count as used.
_TAIL: Final = 10**9
_TABLES: Final = {
    "published": "sequence, at, payload",
    "matched": "event, subscription",
    "dead_letters": "number, subscription, notification, at, attempts, reason, payload",
    "deliveries": "subscription, sequence, attempts, due",
    "remembered": "number, key, digest, events, sequence, logged, checksum",
    "events": "sequence, at, payload, subscriptions",
}


def copy_old_log(old: sqlite3.Connection, execute: Execute, most_bytes: int, *, is_damaged: bool) -> list[str]:
    """Copy a log in an open transaction; return which rows were left out."""
    there = {name for (name,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [
        problem
        for table, columns in _TABLES.items()
        if table in there
        for problem in _Copy(old, execute, table, columns, is_damaged).run(most_bytes)
    ]


class _Copy:
    """The copy of one table."""

    def __init__(self, old: sqlite3.Connection, execute: Execute, table: str, columns: str, is_damaged: bool) -> None:
        self._old, self._execute, self._table, self._is_damaged = old, execute, table, is_damaged
        self._rows = Salvage(old, table, columns)
        self._numbers: dict[Id, int] = {}
        self._cursors: dict[Id, tuple[int, int, int]] = {}
        self._sequences: list[int] = []
        self._before = 0

    def run(self, most_bytes: int) -> list[str]:
        """Copy the rows; return what was wrong with those left out."""
        if self._table == "events":
            self._before = self._cut(most_bytes)
        copy, n_bad = getattr(self, f"_{self._table}"), 0
        for values in self._rows:
            try:
                copy(*values)
            except (TypeError, ValueError, AttributeError, OverflowError, RecursionError):
                n_bad += 1
        self._finish()
        problems = [f"{n_bad:,} rows of {self._table} are no rows of a log"] if n_bad else []
        return problems + ([f"some rows of {self._table} cannot be read"] if self._rows.lost else [])

    def _published(self, sequence: int, at: int, payload: bytes) -> None:
        self._execute(_new("published", 3), row(_number(sequence), _number(at), self._event(payload)))

    def _matched(self, event: int, subscription: Id) -> None:
        self._execute(_new("matched", 2), row(_number(event), _id(subscription)))

    def _remembered(self, *values: Any) -> None:
        self._execute(f"INSERT OR IGNORE INTO remembered VALUES ({', '.join('?' * len(values))})", values)

    def _dead_letters(
        self, number: int, subscription: Id, notification: str, at: int, attempts: int, reason: str, payload: bytes
    ) -> None:
        sequence, _, place = notification.partition("-")
        values = _number(at), _number(attempts), reason
        event = row(int(sequence), self._event(payload))
        self._execute(_new("letters", 7), row(_number(number), _id(subscription), int(sequence), int(place), *values))
        self._execute(insert("letter_events", 2, or_replace=True), event)

    def _deliveries(self, subscription: Id, sequence: int, attempts: int, due: int) -> None:
        """Keep the first pending event of a webhook."""
        known = self._cursors.get(_id(subscription))
        if known is None or sequence < known[0]:
            self._cursors[subscription] = _number(sequence), _number(attempts), _number(due)

    def _events(self, sequence: int, at: int, payload: bytes, subscriptions: str) -> None:
        if _number(sequence) <= self._before:
            return
        ids = [_id(each) for each in json.loads(subscriptions)]
        event = self._event(payload)
        for id in ids:
            if id not in self._numbers:
                self._numbers[id] = len(self._numbers)
                self._execute(_new("names", 2), row(self._numbers[id], id))
        matches = np.array([self._numbers[id] for id in ids], "<u4").tobytes()
        self._execute(
            "INSERT OR IGNORE INTO logged VALUES (?, ?, ?, ?, ?, ?)", event_row(sequence, _number(at), event, matches)
        )
        self._sequences.append(sequence)

    def _event(self, payload: bytes) -> bytes:
        """Return the text of an event; raise if it is damaged, because it would break every stream that sends it."""
        if not isinstance(payload, bytes):
            raise TypeError("the payload of an event is bytes")
        if self._is_damaged:
            json.loads(payload, parse_int=str)
        return payload

    def _cut(self, most_bytes: int) -> int:
        """Return the newest event that exceeds the bound."""
        sizes = Salvage(self._old, "events", "sequence, length(payload), length(subscriptions)")
        known = sorted((each for each in sizes if all(type(value) is int for value in each)), reverse=True)
        for sequence, n_bytes, n_characters in known:
            most_bytes -= event_cost(n_bytes, n_characters // 4)
            if most_bytes < 0:
                return int(sequence)
        return int(known[-1][0]) - 1 if known else 0

    def _finish(self) -> None:
        for id, (sequence, attempts, due) in self._cursors.items():
            self._execute(insert("cursors", 4), row(id, sequence - 1, attempts, due))
        if self._table == "events" and (self._sequences or not self._is_damaged):
            self._note_losses()

    def _note_losses(self) -> None:
        """Write which numbers were in use, and up to which one events were dropped."""
        floor = last = self._before
        for sequence in sorted(self._sequences):
            if sequence > last + 1 and not self._is_damaged:
                floor = sequence - 1  # earlier events were dropped, except those that were pending for webhooks
            last = sequence
        is_end_lost = any(until > last for _, until in self._rows.lost)
        self._execute(insert("runs", 2), row(1, last + _TAIL if is_end_lost else last))
        self._execute(insert("facts", 3), row("floor", floor, 0))


def _new(table: str, n_values: int) -> str:
    return insert(table, n_values).replace("INSERT", "INSERT OR IGNORE", 1)


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("a number was expected")
    return value


def _id(value: Any) -> Id:
    if type(value) not in (int, str):
        raise TypeError("an id is an integer or a text")
    return value  # type: ignore[no-any-return]
