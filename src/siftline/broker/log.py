"""The durable, bounded log of notifications, in a SQLite file beside the store.

Only events that matched a subscription are written. One commit takes all events that are published together, and
returns when they are on the disk; so acknowledged events are delivered even after `kill -9`.

    append   names, events, idempotency keys    ──one transaction──►  file (`log_file.py`)
             the oldest events beyond the bound ──the same one──►     dropped, or dead letters (`deliveries.py`)
    read     memory has the numbers of the events (`recent.py`, `names.py`), the file has their payloads
             missing events are reported as gaps (`losses.py`)

The bound is in bytes and counts payloads, matches, names of subscriptions and idempotency keys. The index by
subscription is in memory only, and takes no more than the file: four bytes for each match.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.broker.deliveries import Deliveries
from siftline.broker.log_file import connect, open_log
from siftline.broker.log_rows import checksum, event_row, insert, row
from siftline.broker.logged import LoggedEvent
from siftline.broker.losses import Losses, Run
from siftline.broker.names import NAME_BYTES, Names
from siftline.broker.notifications import Everybody, Notification, Page, Position
from siftline.broker.recent import Found, Recent, event_cost
from siftline.broker.remembered import PUBLISH_NAME_BYTES, Remembered
from siftline.errors import StoreError
from siftline.storage.mark import Mark
from siftline.storage.sqlite_files import plain_errors, transaction

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from siftline.broker.letters import Lost
    from siftline.broker.limits import Limits
    from siftline.broker.recent import Snapshot
    from siftline.broker.remembered import Done
    from siftline.ids import Id

_log: Final = logging.getLogger("siftline.broker")

# A write-ahead log of more pages is restarted, even if writers have to wait for it.
_MOST_WAL_PAGES: Final = 8_192
# How long writers wait while the write-ahead log is restarted, and how long connections wait for each other otherwise.
_RESTART_MILLISECONDS: Final = 50
_WAIT_MILLISECONDS: Final = 5_000
# The bytes of payloads that are read at a time, and that a page may have; a single payload may exceed them.
_PAGE_BYTES: Final = 1 << 18
_MOST_PAGE_BYTES: Final = 16 << 20
# How many pages of the file are freed at a time, and how many may be unused before that.
_VACUUM_PAGES: Final = 1024
_UNUSED_PAGES: Final = 4096


class _Change(NamedTuple):
    """The effect of one transaction on the log.

    Attributes
    ----------
    at : int
        The time.
    logged : list of LoggedEvent
        The new events.
    n_names : list of int
        How many idempotency keys belong to each of them.
    dropped : list of arrays
        The matches of the oldest events, which are dropped.
    freed : list of int
        Numbers of subscriptions that no event refers to any more.
    lost : list of Lost
        The pending notifications of webhooks for the dropped events.
    told : dict
        How many new notifications each webhook gets.
    floor : Position or None
        The last notification that is dropped.
    """

    at: int
    logged: list[LoggedEvent]
    n_names: list[int]
    dropped: list[NDArray[np.uint32]]
    freed: list[int]
    lost: list[Lost]
    told: dict[Id, int]
    floor: Position | None


class NotificationLog:
    """The log; one thread appends, any number of threads read.

    Parameters
    ----------
    path : str
        The file; it is made if it does not exist.
    limits : Limits
        How many events and bytes are kept.
    now : int
        The time in microseconds, at which the numbers of events start.

    Attributes
    ----------
    last : int
        The number of the newest event; if there is none, the number before the first.
    began : int
        The first number since the start: the time of the start, or more if that number was used before.
    problems : list of str
        What was wrong with the file, as texts.
    """

    def __init__(self, path: str, limits: Limits, now: int) -> None:
        self.path, self._limits = path, limits
        self._guard, self._reading, self._appending = threading.Lock(), threading.Lock(), threading.Lock()
        self._recent, self._names = Recent(), Names()
        self._mark = Mark(path)
        self.last = 0
        self.problems = open_log(path, limits.log_bytes)
        with plain_errors(path):
            self._writer, self._reader, self._keeper = connect(path), connect(path), connect(path)
            self._rememberer = connect(path)
            self._keeper.execute("PRAGMA wal_autocheckpoint = 0")
            self.remembered = Remembered(self._rememberer, limits.publish_names)
            self.deliveries = Deliveries(path, self._next_of, self._fetched, limits.letter_bytes)
            self._load(now)
        self._mark.open()
        for problem in self.problems:
            _log.warning("%s", problem)

    def close(self) -> None:
        """Close the file."""
        self.deliveries.close()
        for connection in (self._reader, self._rememberer, self._keeper, self._writer):
            connection.close()
        self._mark.close()

    # at the start

    def _load(self, now: int) -> None:
        for number, id in self._reader.execute("SELECT number, id FROM names ORDER BY number"):
            self._names.put(number, id)
        known = self._names.known()
        n_names = self.remembered.by_event()
        (n_bytes,) = self._reader.execute("SELECT coalesce(sum(length(matches)), 0) FROM logged").fetchone()
        self._recent.reserve(n_bytes // 4)
        for sequence, n_bytes, matches in self._reader.execute(
            "SELECT sequence, length(payload), matches FROM logged ORDER BY sequence"
        ):
            numbers = np.frombuffer(matches, "<u4")
            if int(numbers.max(initial=0)) < len(known) and known[numbers].all():  # otherwise it counts as lost
                self._names.hold(numbers)
                n = n_names.get(sequence, 0)
                self._recent.add(sequence, _cost(n_bytes, len(numbers), n), numbers, n)
                self._names.seen(numbers, sequence)
        unused = self._names.unused()  # left by a killed broker, or by damaged events
        self._writer.executemany("DELETE FROM names WHERE number = ?", ((number,) for number in unused))
        self._names.settle(unused)
        self._begin_run(now)
        self._load_cursors()
        self.append([], now, ())  # the bounds may be smaller than at the last start

    def _begin_run(self, now: int) -> None:
        """Find the missing events, and start a run of numbers that were never used."""
        runs = [Run(*each) for each in self._reader.execute("SELECT first, last FROM runs ORDER BY first")]
        sequences = self._recent.sequences
        newest = max([marked(self._mark, self.problems), *sequences[-1:].tolist()])
        if runs and runs[-1].last < newest:
            runs[-1] = Run(runs[-1].first, newest)
        elif not runs and newest:
            runs = [Run(self._first(), newest)]
        first = max([now, newest + 1, *(run.last + 1 for run in runs[-1:])])
        floor = self._floor()
        runs = [run for run in runs if run.last >= floor.sequence and run.first < first]
        self._losses = Losses(floor, [*runs, Run(first, first - 1)])
        for run in runs:
            self._losses.miss(run, sequences)
        if len(self._losses):
            self.problems.append(f"{self.path}: notifications are missing; those who go on before them are told")
        self.last, self.began = first - 1, first
        with transaction(self._writer) as execute:
            execute("DELETE FROM runs")
            for run in self._losses.runs:
                execute(insert("runs", 2), row(*run))

    def _floor(self) -> Position:
        found = self._reader.execute("SELECT sequence, place FROM facts WHERE name = 'floor'").fetchone()
        if found is not None:
            return Position(*found)
        return Position(self._first() - 1, 0) if self.problems and len(self._recent) else Position(0, 0)

    def _load_cursors(self) -> None:
        """Count the pending notifications of webhooks, in one pass over the log."""
        cursors = [(self._names.number(each.id), each) for each in self.deliveries.cursors()]
        known = [(number, cursor) for number, cursor in cursors if number is not None]
        reached = np.full(self._names.capacity, np.iinfo(np.int64).max)
        counts = np.zeros(self._names.capacity, np.int64)
        for number, cursor in known:
            reached[number] = cursor.sequence
        for position in range(len(self._recent) if known else 0):
            sequence, _, numbers = self._recent.event(position)
            counts[numbers[reached[numbers] < sequence]] += 1
        waiting = [(cursor, int(counts[number])) for number, cursor in known if counts[number]]
        self.deliveries.load(waiting, self._losses.floor.sequence)

    # maintenance

    def tend(self) -> None:
        """Forget old idempotency keys, checkpoint the write-ahead log, free unused space; called every second."""
        with plain_errors(self.path):
            with self._guard:
                first, n_logged = self._first(), self._recent.n_names
            if self.remembered.n_over(n_logged):
                with transaction(self._keeper) as execute:
                    n_forgotten = self.remembered.trim(execute, first, n_logged)
                self.remembered.added(-n_forgotten)
            self._vacuum()
            _, n_pages, _ = self._keeper.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if n_pages > _MOST_WAL_PAGES:
                # There was never a moment without a writer. Now writers wait, but briefly: a backup may be reading.
                self._keeper.execute(f"PRAGMA busy_timeout = {_RESTART_MILLISECONDS}")
                try:
                    self._keeper.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
                finally:
                    self._keeper.execute(f"PRAGMA busy_timeout = {_WAIT_MILLISECONDS}")

    def _vacuum(self) -> None:
        (n_unused,) = self._keeper.execute("PRAGMA freelist_count").fetchone()
        (n_pages,) = self._keeper.execute("PRAGMA page_count").fetchone()
        if n_unused > max(_UNUSED_PAGES, n_pages // 4):
            self._keeper.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()

    def stats(self) -> dict[str, int]:
        """Return how much the log holds and has lost."""
        with self._guard:
            return {
                "log_events": len(self._recent),
                "log_matches": self._recent.n_matches,
                "log_bytes": self._n_bytes(),
                "log_losses": len(self._losses),
                "webhooks_waiting": self.deliveries.n_waiting(),
                "webhooks_given_up": self.deliveries.n_given_up,
                "publish_names": len(self.remembered),
            }

    def _n_bytes(self) -> int:
        return self._recent.n_bytes + NAME_BYTES * len(self._names)

    @property
    def first(self) -> int:
        """The number of the oldest event in the log; the next number if there is none."""
        with self._guard:
            return self._first()

    def _first(self) -> int:
        first = self._recent.first
        return self.last + 1 if first is None else first

    # writing

    def numbered(self, ids: Sequence[Id]) -> NDArray[np.uint32]:
        """Return the numbers of subscriptions, which are valid for the next call of `append` only."""
        with self._guard:
            return self._names.numbered(ids)

    def append(
        self,
        events: list[tuple[bytes, NDArray[np.uint32]]],
        at: int,
        with_webhooks: Collection[Id],
        matched: Collection[tuple[int, Id]] = (),
        done: Collection[Done] = (),
    ) -> list[LoggedEvent]:
        """Write events with the subscriptions that they match, and return them once they are durable.

        `matched` has (event, subscription) pairs if a cluster has found the matches, `done` has the idempotency keys.
        """
        logged = [
            LoggedEvent(self.last + n, at, payload, numbers, self._names)
            for n, (payload, numbers) in enumerate(events, 1)
        ]
        counts = Counter(each.logged for each in done)
        with self._appending:
            with self._guard:
                change = self._change(logged, [counts[n] for n in range(1, len(logged) + 1)], at, with_webhooks)
            n_forgotten = 0
            try:
                if logged or change.dropped or done:
                    n_forgotten = self._write(change, matched, done)
            except BaseException:
                with self._guard:
                    self._undo(change)
                raise
            self._settle(change)
        self.remembered.added(len(done) - n_forgotten)
        if logged:
            self._mark.advance(self.last)
        return logged

    def _change(self, logged: list[LoggedEvent], n_names: list[int], at: int, with_webhooks: Collection[Id]) -> _Change:
        """Return the change for new events: the oldest are dropped to make room for them."""
        for event in logged:
            self._names.hold(event.numbers)
        dropped: list[NDArray[np.uint32]] = []
        freed: list[int] = []
        lost: list[Lost] = []
        sequence = 0
        n_bytes = self._n_bytes() + sum(map(_cost_of, logged, n_names))
        n_events = len(self._recent) + len(logged)
        while len(dropped) < len(self._recent) and (
            n_bytes > self._limits.log_bytes or n_events > self._limits.log_events
        ):
            sequence, cost, numbers = self._recent.event(len(dropped))
            if len(self.deliveries.waiting):
                lost += self.deliveries.overtaken(sequence, self._names.ids(numbers.tolist()))
            free = self._names.release(numbers)
            dropped.append(numbers)
            freed += free
            n_bytes -= cost + NAME_BYTES * len(free)
            n_events -= 1
        floor = Position(sequence, len(dropped[-1]) - 1) if dropped else None
        return _Change(at, logged, n_names, dropped, freed, lost, _told(logged, with_webhooks), floor)

    def _write(self, change: _Change, matched: Collection[tuple[int, Id]], done: Collection[Done]) -> int:
        """Write a change with its matches and idempotency keys; return how many older keys were forgotten."""
        many = self._writer.executemany
        with plain_errors(self.path), transaction(self._writer) as execute:
            # Dropped events make room in the file for new ones; letters come first, because they copy the events.
            if change.lost:
                self.deliveries.write_letters(execute, change.lost, change.at)
            if change.floor is not None:
                execute("DELETE FROM logged WHERE sequence <= ?", (change.floor.sequence,))
                execute(insert("facts", 3, or_replace=True), row("floor", *change.floor))
                many("DELETE FROM names WHERE number = ?", ((number,) for number in change.freed))
            many(insert("names", 2), (row(*each) for each in self._names.fresh()))
            many("INSERT INTO logged VALUES (?, ?, ?, ?, ?, ?)", map(_row, change.logged))
            many(insert("matched", 2), (row(*each) for each in matched))
            self.deliveries.begin(execute, change.told, self.last + 1)
            if not done:
                return 0
            self.remembered.add(many, done, self.last, self.last + len(change.logged))
            if self.remembered.is_far_over(self._recent.n_names):  # `tend` fails, or is too slow
                return self.remembered.trim(execute, self._first(), self._recent.n_names)
            return 0

    def _undo(self, change: _Change) -> None:
        for numbers in change.dropped:
            self._names.hold(numbers)
        for event in change.logged:
            self._names.release(event.numbers)
        self._names.settle(self._names.unheld())

    def _settle(self, change: _Change) -> None:
        """Update the state in memory after a transaction."""
        first = self.last + 1
        with self._guard:
            if change.floor is not None:
                self._losses.dropped(change.floor)
                self._recent.forget(len(change.dropped))
            for event, n in zip(change.logged, change.n_names, strict=True):
                self._recent.add(event.sequence, _cost_of(event, n), event.numbers, n)
                self._names.seen(event.numbers, event.sequence)
            self._names.settle([*change.freed, *self._names.unheld()])
            self.last += len(change.logged)
            self._losses.advance(self.last)
        # Last: a thread that sees a pending notification reads it at once.
        self.deliveries.given_up(change.lost)
        self.deliveries.waiting.added(change.told, first)

    # reading

    def read(
        self, wanted: Collection[Id] | Everybody, after: Position, limit: int, most_bytes: int = _PAGE_BYTES
    ) -> Page:
        """Return the next notifications of some subscriptions after a position, or the gap at this position.

        After a gap, the reader goes on at `gap.resume`.
        """
        while True:
            with self._guard:
                gap = self._losses.at(after)
                if gap is not None:
                    return Page((), gap)
                ahead, snapshot = self._losses.ahead(after), self._recent.snapshot()
            found = self._found(snapshot, wanted, after, limit, None if ahead is None else ahead[0])
            with self._guard:
                if self._losses.at(after) is not None:
                    continue  # the next events were dropped meanwhile
                kept = self._kept(found)
                ids = self._names.ids(kept.numbers)
            if not found.sequences:
                return Page((), None if ahead is None else ahead[1])
            notifications = self._notifications(kept, ids, most_bytes)
            if notifications:
                return Page(notifications)

    def page(self, wanted: Collection[Id] | Everybody, after: Position, limit: int) -> Page:
        """Return the next notifications after a position, and the first gap before or between them."""
        found, gap = Page(()), None
        n_bytes = 0
        while len(found) < limit and n_bytes < _MOST_PAGE_BYTES:
            part = self.read(wanted, after, limit - len(found))
            if part.gap is not None:
                if gap is not None:
                    break  # the next page reports it
                gap, after = part.gap, part.gap.resume
                continue
            if not part:
                break
            found += part
            n_bytes += sum(len(each.payload) for each in part)
            after = part[-1].position
        return Page(found, gap)

    def _found(
        self,
        snapshot: Snapshot,
        wanted: Collection[Id] | Everybody,
        after: Position,
        limit: int,
        until: int | None = None,
    ) -> Found:
        """Return the next matches of some subscriptions, without holding the lock during the search.

        A number in the snapshot still stands for the same subscription, unless its events were dropped; `_kept` leaves
        those out.
        """
        chosen: Any = None
        if not isinstance(wanted, Everybody):
            numbers = [number for id in wanted if (number := self._names.number(id)) is not None]
            last = self._names.last(numbers)
            if not numbers or last < after.sequence:
                return Found([], [], [])
            until = last if until is None else min(until, last)
            chosen = numbers[0] if len(numbers) == 1 else self._names.mask(numbers)
        return snapshot.find(after, chosen, limit=limit, until=until)

    def _kept(self, found: Found) -> Found:
        """Return the matches whose events have not been dropped since the search."""
        n_dropped = bisect_left(found.sequences, self._first())
        return Found(*(each[n_dropped:] for each in found))

    def _notifications(self, found: Found, ids: list[Id], most_bytes: int) -> list[Notification]:
        """Return the notifications up to the first whose event is missing."""
        notifications: list[Notification] = []
        events: dict[int, tuple[int, bytes]] = {}
        n_bytes = 0
        for sequence, place, id in zip(found.sequences, found.places, ids, strict=True):
            if sequence not in events:
                if n_bytes > most_bytes:
                    break
                events = self._fetched([sequence])
                if not events:
                    break
                n_bytes += len(events[sequence][1])
            notifications.append(Notification(Position(sequence, place), id, *events[sequence]))
        return notifications

    def _fetched(self, sequences: Iterable[int]) -> dict[int, tuple[int, bytes]]:
        """Return the times and payloads of events; dropped and damaged ones are left out."""
        query = "SELECT at, payload, checksum FROM logged WHERE sequence = ?"
        found: dict[int, tuple[int, bytes]] = {}
        for sequence in sequences:
            with self._reading, plain_errors(self.path):
                try:
                    values = self._reader.execute(query, (sequence,)).fetchone()
                except sqlite3.DatabaseError as error:
                    if error.sqlite_errorname != "SQLITE_CORRUPT":
                        raise
                    values = (0, b"", None)
            if values is not None and checksum(sequence, *values[:2]) == values[2]:
                found[sequence] = values[:2]
            else:
                self._missed(sequence)
        return found

    def _missed(self, sequence: int) -> None:
        """Record that an event is lost, unless it was dropped."""
        with self._appending, self._guard:  # wait for an append that may be dropping it
            self._losses.add(sequence - 1, sequence)

    def _next_of(self, id: Id, after: Position, limit: int) -> list[Position]:
        """Return the next notifications of a subscription."""
        with self._guard:
            snapshot = self._recent.snapshot()
        found = self._found(snapshot, [id], after, limit)
        with self._guard:
            kept = self._kept(found)
        return [Position(*each) for each in zip(kept.sequences, kept.places, strict=True)]


def marked(mark: Mark, problems: list[str]) -> int:
    """Return the last number of a file by the mark beside it; if that is unreadable, add a problem and return 0."""
    try:
        return mark.read()
    except StoreError as error:
        problems.append(str(error))
        mark.path.unlink()
        return 0


def _told(logged: list[LoggedEvent], with_webhooks: Collection[Id]) -> dict[Id, int]:
    """Return how many notifications each webhook gets of new events."""
    heard = logged if with_webhooks else ()
    return Counter(id for event in heard for id in event.subscriptions() if id in with_webhooks)


def _cost(n_bytes: int, n_matches: int, n_names: int) -> int:
    return event_cost(n_bytes, n_matches) + PUBLISH_NAME_BYTES * n_names


def _cost_of(event: LoggedEvent, n_names: int) -> int:
    return _cost(len(event.payload), len(event.numbers), n_names)


def _row(event: LoggedEvent) -> tuple[Any, ...]:
    return event_row(event.sequence, event.at, event.payload, event.numbers.astype("<u4").tobytes())
