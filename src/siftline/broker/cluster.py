"""Matching by a cluster: published events wait here for it, and it sends the matches that it finds back.

    publish ──► published events, numbered ──► cluster: matches them against its own index
                                                  │
    hub, webhooks ◄── log of notifications ◄── deliver (event 417: ann, bob)

A match is identified by the number of its event and its subscription. Repeated matches are left out, in the transaction
that writes the new ones; so a cluster may send matches again after any failure.

Both tables are bounded: events like the log of notifications, and matches are kept as long as their events are.

The number of an event is never used again, even if the file is lost or replaced by an older copy: numbers start at the
current time, and they start there again unless a mark beside the file proves that the file is the one written last. A
reader at an unknown position, or before a lost event, gets an error (`losses.py`).
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from siftline.broker.log import marked
from siftline.broker.log_file import connect
from siftline.broker.log_rows import checksum, insert, row
from siftline.broker.losses import Losses, Run
from siftline.broker.matching import matched_ids
from siftline.broker.notifications import LAST_PLACE, Delivered, Position
from siftline.broker.recent import event_cost
from siftline.engine import Engine
from siftline.errors import EventError, LimitError, StoreError
from siftline.storage.mark import Mark
from siftline.storage.sqlite_files import plain_errors, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from numpy.typing import NDArray

    from siftline.broker.limits import Limits
    from siftline.broker.log import NotificationLog
    from siftline.broker.logged import LoggedEvent
    from siftline.broker.remembered import Done
    from siftline.ids import Id

# How many events are dropped at a time while the events take too many bytes.
_STEP: Final = 100
# The bytes of a match in the table and its index.
_MATCHED_BYTES: Final = 80
# Numbers start at the time in units of this many microseconds: they stay below 10**15, the largest that `GET /events`
# accepts, and above all earlier ones as long as a broker takes fewer than 100,000 events a second on average.
_UNIT_MICROSECONDS: Final = 10
# A mark whose time differs from that of the last event by more than this was not written with it.
_MOST_APART_MICROSECONDS: Final = 5_000_000
# Names in the table `facts`: the last event that was dropped, and the runs of numbers.
_FLOOR: Final = "published floor"
_RUN: Final = "published run "


class _Kept(NamedTuple):
    """The last event that was dropped, and of the events since then: their number, their bytes, their known matches."""

    floor: int
    n_events: int
    n_bytes: int
    n_matched: int


class PublishedEvent(NamedTuple):
    """An event that waits for a cluster; `payload` is JSON on one line."""

    sequence: int
    at: int
    payload: bytes


class Cluster:
    """The published events and the matches of the cluster; thread-safe.

    Parameters
    ----------
    log : NotificationLog
        Where notifications go; events are in the same file.
    limits : Limits
        How many events and bytes are kept.

    Attributes
    ----------
    first : int
        The number of the oldest event that is kept; of the next one if there is none.
    last : int
        The number of the newest event; before there is one, the number before the first.
    """

    def __init__(self, log: NotificationLog, limits: Limits) -> None:
        self._log, self._limits = log, limits
        self._guard = threading.Lock()
        self._mark = Mark(f"{log.path}-published")
        with plain_errors(log.path):
            self._connection = connect(log.path)
            self._load()
        self._mark.open()

    def close(self) -> None:
        """Close the files."""
        self._connection.close()
        self._mark.close()

    def _load(self) -> None:
        execute = self._connection.execute
        sizes = execute("SELECT sequence, length(payload) FROM published ORDER BY sequence").fetchall()
        sequences = np.array([sequence for sequence, _ in sizes], np.int64)
        (n_matched,) = execute("SELECT count(*) FROM matched").fetchone()
        floor, runs = self._numbers(sequences)
        self._losses = Losses(Position(floor, LAST_PLACE), runs)
        for run in runs:
            self._losses.miss(run, sequences)
        self.last = self._losses.runs[-1].last
        self._kept = _Kept(floor, len(sizes), sum(event_cost(n_bytes, 0) for _, n_bytes in sizes), n_matched)
        self.first = int(sequences[0]) if len(sequences) else self.last + 1
        with transaction(self._connection) as change:
            change("DELETE FROM facts WHERE name >= ? AND name < ?", (_RUN, _RUN + "~"))
            for run in self._losses.runs:
                change(insert("facts", 3), row(f"{_RUN}{run.first}", *run))
            change(insert("facts", 3, or_replace=True), row(_FLOOR, floor, 0))

    def _numbers(self, sequences: NDArray[np.int64]) -> tuple[int, list[Run]]:
        """Return the last event that was dropped, and the runs of numbers; new events continue the last run."""
        execute = self._connection.execute
        runs = [Run(*each) for each in execute("SELECT sequence, place FROM facts WHERE name LIKE ?", (f"{_RUN}%",))]
        runs.sort()
        found = execute("SELECT sequence FROM facts WHERE name = ?", (_FLOOR,)).fetchone()
        counted = execute("SELECT seq FROM sqlite_sequence WHERE name = 'published'").fetchone()
        written = max([0 if counted is None else int(counted[0]), *sequences[-1:].tolist()])
        mark = marked(self._mark, self._log.problems)
        newest = max(written, mark)
        # A file without the fact `floor` is new, or of an earlier version, which kept the newest events.
        before = int(sequences[0]) - 1 if len(sequences) else written
        floor = before if found is None else int(found[0])
        if runs:
            runs[-1] = Run(runs[-1].first, max(runs[-1].last, newest))
        elif newest > floor:
            runs = [Run(floor + 1, newest)]
        if not (runs and found is not None and mark == written and self._is_in_place(written)):
            begin = max([self._log.began // _UNIT_MICROSECONDS, newest + 1, *(run.last + 1 for run in runs)])
            runs = [*(run for run in runs if run.last > floor), Run(begin, begin - 1)]
        return floor, runs

    def _is_in_place(self, written: int) -> bool:
        """Return whether the mark was written with the last event, and not restored with a copy of the file.

        No program can set the change time of a file, so the mark of a restored copy has the time of the restoration.
        """
        found = self._connection.execute("SELECT at FROM published WHERE sequence = ?", (written,)).fetchone()
        if found is None:
            return False
        changed = self._mark.path.stat().st_ctime_ns // 1000
        return bool(abs(changed - int(found[0])) < _MOST_APART_MICROSECONDS)

    def publish(self, events: list[bytes], at: int, done: Collection[Done] = ()) -> int:
        """Write events with their idempotency keys; return the number of the last one once they are durable."""
        with self._guard, plain_errors(self._log.path):
            last = self.last + len(events)
            with transaction(self._connection):
                self._connection.executemany(
                    insert("published", 3),
                    (row(sequence, at, event) for sequence, event in enumerate(events, self.last + 1)),
                )
                self._log.remembered.add(self._connection.executemany, done, self.last, last)
                n_bytes = self._kept.n_bytes + sum(event_cost(len(event), 0) for event in events)
                kept = self._room(self._kept._replace(n_events=self._kept.n_events + len(events), n_bytes=n_bytes))
            self._log.remembered.added(len(done))
            self.last = last
            self._losses.advance(last)
            self._settle(kept)
            if events:
                self._mark.advance(last)
            return last

    def _room(self, kept: _Kept) -> _Kept:
        """Drop the oldest events while there are too many, or while they and their matches take too many bytes."""
        if kept.n_events > self._limits.log_events:
            kept = self._dropped(kept, kept.n_events - self._limits.log_events)
        while self._is_large(kept) and kept.n_events > 1:
            kept = self._dropped(kept, min(kept.n_events - 1, _STEP))
        return kept

    def _is_large(self, kept: _Kept) -> bool:
        return kept.n_bytes + _MATCHED_BYTES * kept.n_matched > self._limits.log_bytes

    def _dropped(self, kept: _Kept, n_events: int) -> _Kept:
        """Drop the oldest events."""
        execute = self._connection.execute
        query = "SELECT sequence, length(payload) FROM published ORDER BY sequence LIMIT ?"
        dropped = execute(query, (n_events,)).fetchall()
        floor = int(dropped[-1][0])
        execute("DELETE FROM published WHERE sequence <= ?", (floor,))
        n_matched = execute("DELETE FROM matched WHERE event <= ?", (floor,)).rowcount
        execute(insert("facts", 3, or_replace=True), row(_FLOOR, floor, 0))
        n_bytes = sum(event_cost(n_bytes, 0) for _, n_bytes in dropped)
        return _Kept(floor, kept.n_events - len(dropped), kept.n_bytes - n_bytes, kept.n_matched - n_matched)

    def _settle(self, kept: _Kept) -> None:
        """Update the state in memory after a transaction."""
        if kept.floor != self._kept.floor:
            self._losses.dropped(Position(kept.floor, LAST_PLACE))
        self._kept = kept
        (first,) = self._connection.execute("SELECT min(sequence) FROM published").fetchone()
        self.first = self.last + 1 if first is None else int(first)

    def read(self, after: int, limit: int) -> list[PublishedEvent]:
        """Return events after a number, oldest first; raise if the next ones are lost or were dropped.

        The number 0 stands for the beginning.
        """
        with self._guard, plain_errors(self._log.path):
            position = Position(after, LAST_PLACE)
            lost = self._losses.ahead(position)
            is_gone = after == 0 and (self._kept.floor > 0 or lost is not None)
            if is_gone or self._losses.at(position) is not None:
                raise self._gap(after)
            events = self._whole(after, self.last if lost is None else lost[0], limit)
            if not events and self._losses.ahead(position) is not None:
                raise self._gap(after)
            return events

    def _whole(self, after: int, until: int, limit: int) -> list[PublishedEvent]:
        """Return events after one number up to another, or up to the first damaged event."""
        query = (
            "SELECT sequence, at, payload, checksum FROM published WHERE sequence > ? AND sequence <= ?"
            " ORDER BY sequence LIMIT ?"
        )
        events: list[PublishedEvent] = []
        for *values, expected in self._connection.execute(query, (after, until, limit)):
            event = PublishedEvent(*values)
            if checksum(*event) != expected:
                self._losses.add(event.sequence - 1, event.sequence)
                break
            events.append(event)
        return events

    def _gap(self, after: int) -> LimitError:
        """Return the error for a reader whose next events are lost or were dropped."""
        lost = self._losses.ahead(Position(after, LAST_PLACE))
        reason = "" if lost is None else f"; up to {lost[1].resume.sequence} some are lost"
        return LimitError(
            f"events {self.first} to {self.last} are kept, and those after {after} were asked for{reason}"
        )

    def deliver(
        self,
        matches: Iterable[tuple[int, list[Id]]],
        at: int,
        is_known: Callable[[Id], bool],
        with_webhooks: Collection[Id],
        tell: Callable[[list[LoggedEvent]], None],
    ) -> Delivered:
        """Write the new matches, pass them to `tell` once they are durable, and return how many were new.

        Parameters
        ----------
        matches : iterable of (int, list of ids)
            Numbers of events, each with the subscriptions that it matches.
        at : int
            The time, in microseconds.
        is_known : callable
            Returns whether a subscription exists.
        with_webhooks : collection of ids
            The subscriptions that have a webhook.
        tell : callable
            Called with the new events of the log.
        """
        with self._guard:
            pairs: list[tuple[bytes, NDArray[np.uint32]]] = []
            names: list[tuple[int, Id]] = []
            n_repeated = n_unknown = 0
            for event, ids in _by_event(matches).items():
                wanted = [id for id in ids if is_known(id)]
                payload, earlier = self._seen(event)
                new = [id for id in wanted if id not in earlier] if payload is not None else []
                n_repeated += len(wanted) - len(new) if payload is not None else 0
                n_unknown += len(ids) - len(wanted) if payload is not None else len(ids)
                if payload is not None and new:
                    pairs.append((payload, self._log.numbered(new)))
                    names += [(event, id) for id in new]
            tell(self._log.append(pairs, at, with_webhooks, names))
            self._kept = self._kept._replace(n_matched=self._kept.n_matched + len(names))
            if self._is_large(self._kept):
                with contextlib.suppress(StoreError):  # the matches are durable; the next publish makes room
                    self._make_room()
        return Delivered(len(names), n_repeated, n_unknown)

    def _make_room(self) -> None:
        with plain_errors(self._log.path):
            with transaction(self._connection):
                kept = self._room(self._kept)
            self._settle(kept)

    def _seen(self, event: int) -> tuple[bytes | None, set[Id]]:
        """Return an event, and the subscriptions that have been notified of it."""
        with plain_errors(self._log.path):
            execute = self._connection.execute
            row = execute("SELECT payload FROM published WHERE sequence = ?", (event,)).fetchone()
            rows = execute("SELECT subscription FROM matched WHERE event = ?", (event,)).fetchall()
        return (None if row is None else row[0]), {id for (id,) in rows}


def _by_event(matches: Iterable[tuple[int, list[Id]]]) -> dict[int, dict[Id, None]]:
    """Return the subscriptions of each event, without duplicates."""
    found: dict[int, dict[Id, None]] = {}
    for event, ids in matches:
        found.setdefault(event, {}).update(dict.fromkeys(ids))
    return found


def checked(events: list[bytes]) -> Iterator[list[Id] | EventError]:
    """Yield an error for each invalid event, and an empty list for each valid one: nothing is matched here."""
    return matched_ids(Engine(), events)
