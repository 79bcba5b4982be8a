"""Dead letters: notifications that a webhook did not accept, and why; the newest are kept, within their own bounds.

The event of several letters is stored once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.broker.log_rows import checksum, insert, row
from siftline.broker.notifications import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from sqlite3 import Connection, Cursor

    from siftline.ids import Id

    Execute = Callable[..., Cursor]

# How many letters are kept, and the bytes of one besides its event.
MOST_LETTERS: Final = 10_000
_LETTER_BYTES: Final = 150
# The bytes of events that are read in one call; a single letter may exceed them.
_MOST_READ_BYTES: Final = 8 << 20


class DeadLetter(NamedTuple):
    """A notification that a webhook did not accept."""

    subscription: Id
    notification: str
    at: int
    attempts: int
    reason: str
    payload: bytes


class Lost(NamedTuple):
    """A notification that is about to become a dead letter."""

    subscription: Id
    position: Position
    attempts: int
    reason: str


class Letters:
    """The letters in the file of the log; not thread-safe.

    Parameters
    ----------
    connection : sqlite3.Connection
        Used only to read the last number.
    most_bytes : int
        The bound of all letters with their events.
    """

    def __init__(self, connection: Connection, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._next = 1 + (connection.execute("SELECT max(number) FROM letters").fetchone()[0] or 0)

    def write(self, execute: Execute, lost: list[Lost], now: int) -> None:
        """Write letters in an open transaction, in which the log still has their events."""
        newest = lost[-MOST_LETTERS:]
        for letter in newest:
            sequence, place = letter.position
            values = (self._next, letter.subscription, sequence, place, now, letter.attempts, letter.reason)
            execute(insert("letters", 7), row(*values))
            self._next += 1
        for sequence in sorted({letter.position.sequence for letter in newest}):
            found = execute("SELECT payload FROM logged WHERE sequence = ?", (sequence,)).fetchone()
            if found is not None:
                execute("INSERT OR IGNORE INTO letter_events VALUES (?, ?, ?)", row(sequence, found[0]))
        self._trim(execute)

    def _trim(self, execute: Execute) -> None:
        """Drop the oldest letters beyond the bounds, and the events that no letter refers to."""
        execute("DELETE FROM letters WHERE number <= ?", (self._next - 1 - MOST_LETTERS,))
        step = 1
        while True:
            execute("DELETE FROM letter_events WHERE sequence NOT IN (SELECT sequence FROM letters)")
            n_bytes, n, first = execute(
                "SELECT (SELECT coalesce(sum(length(payload)), 0) FROM letter_events), count(*), min(number)"
                " FROM letters"
            ).fetchone()
            if n == 0 or n_bytes + _LETTER_BYTES * n <= self._most_bytes:
                return
            execute("DELETE FROM letters WHERE number < ?", (first + step,))
            step *= 2

    @staticmethod
    def read(execute: Execute, limit: int) -> Iterable[DeadLetter]:
        """Yield the newest letters, newest first, until their events exceed a bound; damaged ones are left out."""
        query = "SELECT number, subscription, sequence, place, at, attempts, reason, checksum FROM letters"
        events: dict[int, bytes | None] = {}
        n_bytes = 0
        for *values, expected in execute(f"{query} ORDER BY number DESC LIMIT ?", (limit,)).fetchall():
            _, subscription, sequence, place, at, attempts, reason = values
            if sequence not in events:
                events[sequence] = _payload(execute, sequence)
            payload = events[sequence]
            if payload is None or checksum(*values) != expected:
                continue
            n_bytes += len(payload)
            yield DeadLetter(subscription, str(Position(sequence, place)), at, attempts, reason, payload)
            if n_bytes > _MOST_READ_BYTES:
                return


def _payload(execute: Execute, sequence: int) -> bytes | None:
    found = execute("SELECT payload, checksum FROM letter_events WHERE sequence = ?", (sequence,)).fetchone()
    return None if found is None or checksum(sequence, found[0]) != found[1] else found[0]
