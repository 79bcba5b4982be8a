"""The pending deliveries of webhooks, and their dead letters.

A webhook has a cursor: the last event that it has accepted or that was given up. All its later events in the log are
pending. So an event takes the same space for one webhook as for ten thousand, and a dead webhook does not keep events
in the log: when the log drops an event, the deliveries of it that are still pending become dead letters.

Cursors are committed without waiting for the disk: a lost one means a repeated delivery, which receivers recognise.
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

    # From a subscription, a position and a limit to the next notifications of the subscription.
    Find = Callable[[Id, Position, int], list[Position]]
    # From the numbers of events to their times and payloads; missing events are left out.
    Fetch = Callable[[Iterable[int]], dict[int, tuple[int, bytes]]]

# How many notifications may be pending for one webhook.
MOST_WAITING: Final = 10_000
# How many letters are written when the log drops events; the rest is only counted.
_MOST_LETTERS: Final = 1000
_DROPPED: Final = "the log had to make room before it was delivered"


class Delivery(NamedTuple):
    """A pending notification for a webhook, and how often it was tried."""

    notification: Notification
    attempts: int


class StoredCursor(NamedTuple):
    """The last settled event of a webhook, how often the next notification was tried, and when it is due."""

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
        Return the next notifications of a subscription, and events, from the log.
    most_letter_bytes : int
        The largest size of all dead letters.
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
        """Return the cursors in the file."""
        query = "SELECT subscription, sequence, attempts, due FROM cursors"
        return [StoredCursor(*each) for each in self._connection.execute(query)]

    def load(self, waiting: list[tuple[StoredCursor, int]], floor: int) -> None:
        """Set the webhooks with pending notifications and their numbers; forget the others."""
        for cursor, n in waiting:
            attempts = cursor.attempts if cursor.sequence >= floor else 0  # the event that was tried has been dropped
            self.waiting.put(cursor.id, cursor.sequence, n, attempts, cursor.due)
        kept = {cursor.id for cursor, _ in waiting}
        with transaction(self._connection) as execute:
            for cursor in self.cursors():
                if cursor.id not in kept:
                    execute("DELETE FROM cursors WHERE subscription = ?", (cursor.id,))

    # called by the log

    def begin(self, execute: Callable[..., Cursor], ids: Iterable[Id], sequence: int) -> None:
        """Write the cursors of webhooks that have none yet, in an open transaction."""
        for id in self.waiting.unknown(ids):
            execute(insert("cursors", 4, or_replace=True), row(id, sequence - 1, 0, 0))

    def overtaken(self, sequence: int, ids: list[Id]) -> list[Lost]:
        """Return the pending notifications of an event that is about to be dropped."""
        waiting = self.waiting
        return [
            Lost(id, Position(sequence, place), waiting.attempts(id), _DROPPED)
            for place, id in enumerate(ids)
            if (cursor := waiting.cursor(id)) is not None and cursor < sequence
        ]

    def write_letters(self, execute: Callable[..., Cursor], lost: list[Lost], now: int) -> None:
        """Write dead letters in an open transaction, in which the log still has the events."""
        self._letters.write(execute, lost[-_MOST_LETTERS:], now)

    def given_up(self, lost: list[Lost]) -> None:
        """Count notifications that were given up, and move the cursors past them."""
        self.n_given_up += len(lost)
        for letter in lost:
            self.waiting.moved(letter.subscription, letter.position.sequence)

    # called by the webhooks

    def due(
        self, now: int, limit: int, busy: Collection[Id], may: Callable[[Id], bool], most_bytes: int
    ) -> list[Delivery]:
        """Return the next delivery of each subscription for which one is due, but of no busy subscription.

        `may` returns whether another delivery of a subscription may start.
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
                self.waiting.moved(id, position.sequence)  # it is damaged, and already recorded as lost
                continue
            at, payload = events[position.sequence]
            deliveries.append(Delivery(Notification(position, id, at, payload), self.waiting.attempts(id)))
        return deliveries

    def _next(self, id: Id) -> Position | None:
        cursor, n = self.waiting.known(id)
        found = [] if cursor is None else self._find(id, Position(cursor, LAST_PLACE), 1)
        if found:
            return found[0]
        self.waiting.emptied(id, cursor, n)  # its cursor is written again with its next event
        return None

    def bury_overflow(self, now: int, most: int = MOST_WAITING) -> None:
        """Give up the oldest notifications of webhooks that have too many pending ones."""
        for id, n in self.waiting.crowded(most):
            cursor = self.waiting.cursor(id)
            if cursor is not None:
                found = self._find(id, Position(cursor, LAST_PLACE), n - most)
                reason, attempts = f"more than {most:,} notifications waited", self.waiting.attempts(id)
                self._bury([Lost(id, position, attempts, reason) for position in found], now)

    def n_waiting(self) -> int:
        """Return how many notifications are pending for all webhooks."""
        return len(self.waiting)

    def delivered(self, notification: Notification) -> None:
        """Record that a webhook has accepted a notification."""
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
        """Record that a delivery has failed and when it is tried again."""
        id, cursor = notification.subscription, self.waiting.cursor(notification.subscription)
        if cursor is None or cursor >= notification.position.sequence:
            return
        *_, checksum = row(id, cursor, attempts, due)
        query = "UPDATE cursors SET sequence = ?, attempts = ?, due = ?, checksum = ? WHERE subscription = ?"
        with self._guard, plain_errors(self._path):
            self._connection.execute(query, (cursor, attempts, due, checksum, id))
        self.waiting.postponed(id, attempts, due)

    def bury(self, notification: Notification, attempts: int, reason: str, now: int) -> None:
        """Give up a delivery, which becomes a dead letter."""
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
        """Drop the cursor of a webhook that was removed."""
        with self._guard, plain_errors(self._path):
            self._connection.execute("DELETE FROM cursors WHERE subscription = ?", (id,))
        self.waiting.forgotten(id)

    def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """Return the dead letters, newest first."""
        with self._guard, plain_errors(self._path):
            return list(self._letters.read(self._connection.execute, limit))
