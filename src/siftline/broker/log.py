"""The durable, bounded log of notifications, in a SQLite file beside the store.

    events        sequence, time, payload, the subscriptions that matched      the newest so many are kept
    deliveries    what webhooks still have to get, how often it was tried, when it is due
    dead_letters  what they did not take, and why                              the newest so many are kept
    matched       what a cluster has matched (`cluster.py`), so that it counts once

Only events that matched somebody are written. One commit takes all events that are published together, with their
deliveries, and returns when the disk has them; so what was acknowledged is delivered even after `kill -9`. Results of
deliveries are committed without waiting for the disk: losing one means a repeat, which receivers can tell.

By subscription the log is indexed in memory alone (`recent.py`), because the log is bounded and read once at the start;
so are the counts of deliveries.
"""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.broker.notifications import Everybody, LoggedEvent, Notification, Position
from siftline.broker.recent import Recent, event_cost
from siftline.broker.remembered import Remembered
from siftline.broker.waiting import Waiting
from siftline.errors import StoreError
from siftline.storage.sqlite_files import open_sqlite, plain_errors, transaction

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from siftline.broker.remembered import Done
    from siftline.subscriptions import Id

# Dead letters that are kept, and notifications that may wait for one webhook.
MOST_DEAD: Final = 10_000
MOST_WAITING: Final = 10_000
_MOST_WAL_PAGES: Final = 16_384

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS events (sequence INTEGER PRIMARY KEY, at INTEGER NOT NULL, payload BLOB NOT NULL,"
    " subscriptions TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS deliveries (subscription NOT NULL, sequence INTEGER NOT NULL, place INTEGER NOT NULL,"
    " attempts INTEGER NOT NULL, due INTEGER NOT NULL, PRIMARY KEY (subscription, sequence)) WITHOUT ROWID",
    "DROP INDEX IF EXISTS deliveries_by_due",
    "CREATE INDEX IF NOT EXISTS deliveries_by_sequence ON deliveries (sequence)",
    "CREATE TABLE IF NOT EXISTS dead_letters (number INTEGER PRIMARY KEY AUTOINCREMENT, subscription NOT NULL,"
    " notification TEXT NOT NULL, at INTEGER NOT NULL, attempts INTEGER NOT NULL, reason TEXT NOT NULL,"
    " payload BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS matched (event INTEGER NOT NULL, subscription NOT NULL,"
    " PRIMARY KEY (event, subscription)) WITHOUT ROWID",
)


class Delivery(NamedTuple):
    """A notification that a webhook has yet to get."""

    notification: Notification
    attempts: int


class DeadLetter(NamedTuple):
    """A notification that a webhook did not take."""

    subscription: Id
    notification: str
    at: int
    attempts: int
    reason: str
    payload: bytes


class NotificationLog:
    """The log; one thread appends, any threads read.

    Parameters
    ----------
    path : str
        The file; it is made if it is not there.
    most_events, most_bytes : int
        What is older is dropped, unless a webhook still has to get it.
    most_names : int
        Names of publishes that are remembered, beside those whose notifications are there.
    """

    def __init__(self, path: str, *, most_events: int, most_bytes: int, most_names: int = 0) -> None:
        self.path = path
        self._most_events, self._most_bytes = most_events, most_bytes
        self._guard = threading.Lock()
        self._reading, self._settling = threading.Lock(), threading.Lock()
        self._recent = Recent()
        self.last = 0
        with plain_errors(path):
            self._writer = open_sqlite(path, is_read_only=False, wait_seconds=5.0)
            os.chmod(path, 0o600)  # events may be private
            for table in _TABLES:
                self._writer.execute(table)
            self._reader = open_sqlite(path, is_read_only=False, wait_seconds=5.0)
            self._settler = open_sqlite(path, is_read_only=False, wait_seconds=5.0)
            self._settler.execute("PRAGMA synchronous = NORMAL")
            self._keeper = open_sqlite(path, is_read_only=False, wait_seconds=5.0)
            self._rememberer = open_sqlite(path, is_read_only=False, wait_seconds=5.0)
            for connection in (self._writer, self._settler):  # it takes tens of milliseconds: `tend` does it instead
                connection.execute("PRAGMA wal_autocheckpoint = 0")
            self._load()
            self.remembered = Remembered(self._rememberer, most_names)

    def _load(self) -> None:
        for sequence, n_bytes, subscriptions in self._reader.execute(
            "SELECT sequence, length(payload), subscriptions FROM events ORDER BY sequence"
        ):
            ids = json.loads(subscriptions)
            self._recent.add(sequence, event_cost(n_bytes, len(ids)), ids)
            self.last = sequence
        self._waiting = Waiting(
            dict(self._reader.execute("SELECT subscription, count(*) FROM deliveries GROUP BY subscription").fetchall())
        )

    def close(self) -> None:
        """Close the file; what was appended is in it."""
        for connection in (self._reader, self._rememberer, self._keeper, self._settler, self._writer):
            connection.close()

    def tend(self) -> None:
        """Forget old names, and move what SQLite has in its write-ahead log into the file; to be called often."""
        with plain_errors(self.path):
            if self.remembered.n_over:
                with transaction(self._keeper) as execute:
                    self.remembered.trim(execute, self.first)
            _, n_pages, _ = self._keeper.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if n_pages > _MOST_WAL_PAGES:  # writers were never quiet for long enough: now they have to wait
                self._keeper.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    @property
    def first(self) -> int:
        """The oldest event that is still there; what comes next if there is none."""
        with self._guard:
            return self._first()

    def _first(self) -> int:
        return self.last + 1 if self._recent.first is None else self._recent.first

    # writing

    def append(
        self,
        events: list[tuple[bytes, list[Id]]],
        at: int,
        with_webhooks: Collection[Id],
        matched: Collection[tuple[int, Id]] = (),
        done: Collection[Done] = (),
    ) -> list[LoggedEvent]:
        """Write events with the subscriptions that they match, and return them once they are durable.

        `matched` has the names of the matches, if they come from a cluster, and `done` those of publishes.
        """
        logged = [LoggedEvent(self.last + n, at, payload, ids) for n, (payload, ids) in enumerate(events, 1)]
        if not logged and not done:
            return []
        told = [
            (id, event.sequence, place, event.at)
            for event in (logged if with_webhooks else ())
            for place, id in enumerate(event.subscriptions)
            if id in with_webhooks
        ]
        with plain_errors(self.path), transaction(self._writer) as execute:
            self._writer.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", map(_row, logged))
            if told:
                self._writer.executemany("INSERT INTO deliveries VALUES (?, ?, ?, 0, ?)", told)
            if matched:
                self._writer.executemany("INSERT INTO matched VALUES (?, ?)", matched)
            if done:
                self.remembered.add(self._writer.executemany, done, self.last + len(logged))
            dropped = self._overflow(logged)
            if dropped:
                execute(
                    "DELETE FROM events WHERE sequence <= ? AND sequence NOT IN (SELECT sequence FROM deliveries)",
                    (dropped[-1],),
                )
        self.last += len(logged)
        self.remembered.added(len(done))
        self._waiting.added(row[0] for row in told)
        with self._guard:
            for _ in dropped:
                self._recent.forget_first()
            for event in logged:
                self._recent.add(event.sequence, _cost(event), event.subscriptions)
        return logged

    def _overflow(self, logged: list[LoggedEvent]) -> list[int]:
        """Return the oldest events, which have to make room; the newest ones stay in any case."""
        n_over = len(self._recent) + len(logged) - self._most_events
        bytes_over = self._recent.n_bytes + sum(map(_cost, logged)) - self._most_bytes
        dropped: list[int] = []
        for sequence, n_bytes in self._recent.oldest():
            if n_over <= 0 and bytes_over <= 0:
                break
            dropped.append(sequence)
            n_over -= 1
            bytes_over -= n_bytes
        return dropped

    # reading

    def read(self, wanted: Collection[Id] | Everybody, after: Position, limit: int) -> list[Notification]:
        """Return the next notifications of some subscriptions after a position: those of at most `limit` events."""
        found: list[Notification] = []
        for event in self._fetched(self._sequences(wanted, after, limit)):
            found += event.for_some(wanted, after)
        return found

    def _sequences(self, wanted: Collection[Id] | Everybody, after: Position, limit: int) -> list[int]:
        """Return which events to look at; the event of the position itself too, which may be there for others."""
        with self._guard:
            if isinstance(wanted, Everybody):
                return list(range(max(after.sequence, self._first()), self.last + 1)[: limit + 1])
            chosen: set[int] = set()
            for id in wanted:
                chosen.update(self._recent.sequences(id, after.sequence))
        return sorted(chosen)[: limit + 1]

    def _fetched(self, sequences: Iterable[int]) -> Iterator[LoggedEvent]:
        query = "SELECT sequence, at, payload, subscriptions FROM events WHERE sequence = ?"
        with self._reading, plain_errors(self.path):
            rows = [self._reader.execute(query, (sequence,)).fetchone() for sequence in sequences]
        return (_event(row) for row in rows if row is not None)  # None: dropped since it was looked up

    # webhooks

    def due(self, now: int, limit: int, busy: Collection[Id]) -> list[Delivery]:
        """Return deliveries whose time has come, of each subscription the oldest; none of busy ones."""
        deliveries: list[Delivery] = []
        for id in self._waiting.ready(now, busy):
            if len(deliveries) == limit:
                break
            for sequence, place, attempts, due in self._oldest(id, 1):
                if due > now:
                    self._waiting.postponed(id, due)
                    continue
                deliveries += [Delivery(event.notification(place), attempts) for event in self._fetched([sequence])]
        return deliveries

    def _oldest(self, id: Id, n: int) -> list[tuple[int, int, int, int]]:
        """Return sequence, place, attempts and time of the first deliveries of a subscription."""
        query = "SELECT sequence, place, attempts, due FROM deliveries WHERE subscription = ? ORDER BY sequence LIMIT ?"
        with self._settling, plain_errors(self.path):
            return self._settler.execute(query, (id, n)).fetchall()

    def bury_overflow(self, now: int, most: int = MOST_WAITING) -> None:
        """Give up the oldest deliveries of subscriptions for which too many wait."""
        for id, n in self._waiting.crowded(most):
            for sequence, place, attempts, _ in self._oldest(id, n - most):
                for event in self._fetched([sequence]):
                    self.bury(event.notification(place), attempts, f"more than {most:,} notifications waited", now)

    def n_waiting(self) -> int:
        """Return how many deliveries webhooks still have to get."""
        return len(self._waiting)

    def delivered(self, notification: Notification) -> None:
        """Note that a webhook has taken a notification."""
        with self._settling, plain_errors(self.path):
            n = self._settler.execute(*_end_of(notification)).rowcount
        if n:
            self._waiting.settled(notification.subscription)

    def postpone(self, notification: Notification, attempts: int, due: int) -> None:
        """Note that a delivery has failed and is to be tried again."""
        with self._settling, plain_errors(self.path):
            self._settler.execute(
                "UPDATE deliveries SET attempts = ?, due = ? WHERE subscription = ? AND sequence = ?",
                (attempts, due, notification.subscription, notification.position.sequence),
            )
        self._waiting.postponed(notification.subscription, due)

    def bury(self, notification: Notification, attempts: int, reason: str, now: int) -> None:
        """Give a delivery up: it becomes a dead letter."""
        row = (notification.subscription, str(notification.position), now, attempts, reason, notification.payload)
        with self._settling, plain_errors(self.path), transaction(self._settler) as execute:
            n = execute(*_end_of(notification)).rowcount
            execute(
                "INSERT INTO dead_letters (subscription, notification, at, attempts, reason, payload)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                row,
            )
            execute("DELETE FROM dead_letters WHERE number <= (SELECT max(number) FROM dead_letters) - ?", (MOST_DEAD,))
        if n:
            self._waiting.settled(notification.subscription)

    def forget(self, id: Id) -> None:
        """Drop what a webhook that is gone would have got."""
        with self._settling, plain_errors(self.path):
            self._settler.execute("DELETE FROM deliveries WHERE subscription = ?", (id,))
        self._waiting.forgotten(id)

    def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """Return what webhooks did not take, newest first."""
        query = (
            "SELECT subscription, notification, at, attempts, reason, payload FROM dead_letters"
            " ORDER BY number DESC LIMIT ?"
        )
        with self._settling, plain_errors(self.path):
            return [DeadLetter(*row) for row in self._settler.execute(query, (limit,))]


def _end_of(notification: Notification) -> tuple[str, tuple[Id, int]]:
    return (
        "DELETE FROM deliveries WHERE subscription = ? AND sequence = ?",
        (notification.subscription, notification.position.sequence),
    )


def _cost(event: LoggedEvent) -> int:
    return event_cost(len(event.payload), len(event.subscriptions))


def _row(event: LoggedEvent) -> tuple[int, int, bytes, str]:
    return event.sequence, event.at, event.payload, json.dumps(event.subscriptions)


def _event(row: tuple[int, int, bytes, str]) -> LoggedEvent:
    sequence, at, payload, subscriptions = row
    try:
        return LoggedEvent(sequence, at, payload, json.loads(subscriptions))
    except ValueError:
        raise StoreError(f"event {sequence} of the log of notifications is damaged") from None
