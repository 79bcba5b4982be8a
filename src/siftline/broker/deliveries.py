"""What webhooks have yet to get, and what they did not take.

A webhook has a cursor: the last event that it has taken, or that was given up. What comes after it in the log waits.
So an event takes the same space whether it is for one webhook or for ten thousand, and a dead webhook keeps nothing:
when the log drops an event for which webhooks still wait, those notifications become dead letters.

Cursors are committed without waiting for the disk: losing one means a repeat, which receivers can tell.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.broker.letters import Letters, Lost
from siftline.broker.log_file import connect
from siftline.broker.log_rows import insert, row
from siftline.broker.notifications import LAST_PLACE, Notification, Position
from siftline.broker.waiting import Waiting
from siftline.storage.sqlite_files import plain_errors, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from sqlite3 import Cursor

    from siftline.broker.letters import DeadLetter
    from siftline.ids import Id

    # From a subscription, a position, and a number to this many of its next notifications.
    Find = Callable[[Id, Position, int], list[Position]]
    # From the numbers of events to their times and payloads; those that are no longer there are left out.
    Fetch = Callable[[Iterable[int]], dict[int, tuple[int, bytes]]]

# Notifications that may wait for one webhook.
MOST_WAITING: Final = 10_000
# Letters that are written when the log drops events; more are only counted.
_MOST_LETTERS: Final = 1000
_DROPPED: Final = "the log had to make room before it was delivered"


class Delivery(NamedTuple):
    """A notification that a webhook has yet to get."""

    notification: Notification
    attempts: int


class StoredCursor(NamedTuple):
    """How far a webhook has come, how often the next notification was tried, and when it is due."""

    id: Id
    sequence: int
    attempts: int
    due: int


class Deliveries:
    """The cursors and dead letters in the file of the log.

    Parameters
    ----------
    path : str
        The file.
    find, fetch : callable
        Ask the log for the next notifications of a subscription, and for events.
    most_letter_bytes : int
        Of all dead letters.
    """

    def __init__(self, path: str, find: Find, fetch: Fetch, most_letter_bytes: int) -> None:
        self._path, self._find, self._fetch = path, find, fetch
        self._guard = threading.Lock()
        self._connection = connect(path)
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._letters = Letters(self._connection, most_letter_bytes)
        self.waiting = Waiting()
        self.n_given_up = 0

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def cursors(self) -> list[StoredCursor]:
        """Return the cursors that are in the file."""
        query = "SELECT subscription, sequence, attempts, due FROM cursors"
        return [StoredCursor(*each) for each in self._connection.execute(query)]

    def load(self, waiting: list[tuple[StoredCursor, int]], floor: int) -> None:
        """Take the webhooks for which something waits, and how much; forget the others."""
        for cursor, n in waiting:
            attempts = cursor.attempts if cursor.sequence >= floor else 0  # what was tried is no longer there
            self.waiting.put(cursor.id, cursor.sequence, n, attempts, cursor.due)
        kept = {cursor.id for cursor, _ in waiting}
        with transaction(self._connection) as execute:
            for cursor in self.cursors():
                if cursor.id not in kept:
                    execute("DELETE FROM cursors WHERE subscription = ?", (cursor.id,))

    # what the log does

    def begin(self, execute: Callable[..., Cursor], ids: Iterable[Id], sequence: int) -> None:
        """Write the cursors of webhooks that never waited before, in a transaction that is open."""
        for id in self.waiting.unknown(ids):
            execute(insert("cursors", 4, or_replace=True), row(id, sequence - 1, 0, 0))

    def overtaken(self, sequence: int, ids: list[Id]) -> list[Lost]:
        """Return what webhooks still had to get of an event that is about to be dropped."""
        waiting = self.waiting
        return [
            Lost(id, Position(sequence, place), waiting.attempts(id), _DROPPED)
            for place, id in enumerate(ids)
            if (cursor := waiting.cursor(id)) is not None and cursor < sequence
        ]

    def write_letters(self, execute: Callable[..., Cursor], lost: list[Lost], now: int) -> None:
        """Write what is given up, in a transaction that is open and still has the events."""
        self._letters.write(execute, lost[-_MOST_LETTERS:], now)

    def given_up(self, lost: list[Lost]) -> None:
        """Take note of what was given up."""
        self.n_given_up += len(lost)
        for letter in lost:
            self.waiting.moved(letter.subscription, letter.position.sequence)

    # what webhooks do

    def due(
        self, now: int, limit: int, busy: Collection[Id], may: Callable[[Id], bool], most_bytes: int
    ) -> list[Delivery]:
        """Return deliveries whose time has come, of each subscription the next; none of busy ones.

        `may` says whether one more of a subscription may begin.
        """
        deliveries: list[Delivery] = []
        events: dict[int, tuple[int, bytes]] = {}
        for id in self.waiting.ready(now, busy):
            if len(deliveries) == limit or sum(len(payload) for _, payload in events.values()) > most_bytes:
                break
            position = self._next(id) if may(id) else None
            if position is None:
                continue
            if position.sequence not in events:
                events |= self._fetch([position.sequence])
            if position.sequence not in events:
                self.waiting.moved(id, position.sequence)  # damaged, and known as lost
                continue
            at, payload = events[position.sequence]
            deliveries.append(Delivery(Notification(position, id, at, payload), self.waiting.attempts(id)))
        return deliveries

    def _next(self, id: Id) -> Position | None:
        cursor, n = self.waiting.known(id)
        found = [] if cursor is None else self._find(id, Position(cursor, LAST_PLACE), 1)
        if found:
            return found[0]
        self.waiting.emptied(id, cursor, n)  # its cursor is written again with the next one
        return None

    def bury_overflow(self, now: int, most: int = MOST_WAITING) -> None:
        """Give up the oldest notifications of webhooks for which too many wait."""
        for id, n in self.waiting.crowded(most):
            cursor = self.waiting.cursor(id)
            if cursor is not None:
                found = self._find(id, Position(cursor, LAST_PLACE), n - most)
                reason, attempts = f"more than {most:,} notifications waited", self.waiting.attempts(id)
                self._bury([Lost(id, position, attempts, reason) for position in found], now)

    def n_waiting(self) -> int:
        """Return how many notifications webhooks still have to get."""
        return len(self.waiting)

    def delivered(self, notification: Notification) -> None:
        """Note that a webhook has taken a notification."""
        with self._guard, plain_errors(self._path):
            is_new = self._move(self._connection.execute, notification.subscription, notification.position.sequence)
        if is_new:
            self.waiting.moved(notification.subscription, notification.position.sequence)

    def _move(self, execute: Callable[..., Cursor], id: Id, sequence: int) -> bool:
        *_, checksum = values = row(id, sequence, 0, 0)
        query = "UPDATE cursors SET sequence = ?, attempts = 0, due = 0, checksum = ? WHERE subscription = ?"
        cursor = self.waiting.cursor(id)
        if cursor is None or cursor >= sequence:
            return False
        execute(query, (values[1], checksum, id))
        return True

    def postpone(self, notification: Notification, attempts: int, due: int) -> None:
        """Note that a delivery has failed and is to be tried again."""
        id, cursor = notification.subscription, self.waiting.cursor(notification.subscription)
        if cursor is None or cursor >= notification.position.sequence:
            return
        *_, checksum = row(id, cursor, attempts, due)
        query = "UPDATE cursors SET sequence = ?, attempts = ?, due = ?, checksum = ? WHERE subscription = ?"
        with self._guard, plain_errors(self._path):
            self._connection.execute(query, (cursor, attempts, due, checksum, id))
        self.waiting.postponed(id, attempts, due)

    def bury(self, notification: Notification, attempts: int, reason: str, now: int) -> None:
        """Give a delivery up: it becomes a dead letter."""
        self._bury([Lost(notification.subscription, notification.position, attempts, reason)], now)

    def _bury(self, lost: list[Lost], now: int) -> None:
        """Give up the next notifications of one webhook."""
        if not lost:
            return
        with self._guard, plain_errors(self._path), transaction(self._connection) as execute:
            is_new = self._move(execute, lost[-1].subscription, lost[-1].position.sequence)
            self._letters.write(execute, lost if is_new else [], now)
        if is_new:
            self.given_up(lost)

    def forget(self, id: Id) -> None:
        """Drop what a webhook that is gone would have got."""
        with self._guard, plain_errors(self._path):
            self._connection.execute("DELETE FROM cursors WHERE subscription = ?", (id,))
        self.waiting.forgotten(id)

    def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """Return what webhooks did not take, newest first."""
        with self._guard, plain_errors(self._path):
            return list(self._letters.read(self._connection.execute, limit))
