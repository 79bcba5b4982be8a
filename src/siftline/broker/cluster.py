"""Matching elsewhere: what was published waits here for a cluster, and the matches that it finds come back.

    publish ──► published events, numbered ──► cluster: matches them against its own index
                                                  │
    hub, webhooks ◄── log of notifications ◄── deliver (event 417: ann, bob)

A match is named by the number of its event and its subscription. Those that came before are left out, in the
transaction that writes the others; so a cluster may send the same ones again, whatever has failed.

Both are bounded: events as the log of notifications is, and what is known of matches as long as their events are there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.broker.log_file import connect, insert, row
from siftline.broker.matching import matched_ids
from siftline.broker.recent import event_cost
from siftline.engine import Engine
from siftline.errors import EventError, LimitError
from siftline.storage.sqlite_files import plain_errors, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from siftline.broker.limits import Limits
    from siftline.broker.log import NotificationLog
    from siftline.broker.logged import LoggedEvent
    from siftline.broker.remembered import Done
    from siftline.subscriptions import Id

# Events that are dropped at a time if they take too many bytes.
_STEP: Final = 100
# What it costs to know of a match, in the table and its index.
_MATCHED_BYTES: Final = 80


class _Kept(NamedTuple):
    """What is kept: from which event on, how many bytes they have, how many matches are known of them."""

    first: int
    n_bytes: int
    n_matched: int


class PublishedEvent(NamedTuple):
    """An event that waits for a cluster; `payload` is JSON on one line."""

    sequence: int
    at: int
    payload: bytes


class Delivered(NamedTuple):
    """What became of matches: new notifications, those that were known, those of no subscription or event here."""

    delivered: int
    repeated: int
    unknown: int


class Cluster:
    """The published events, and the matches that came back; any threads may use it.

    Parameters
    ----------
    log : NotificationLog
        Where notifications go; events are in the same file.
    limits : Limits
        How much of the past is kept.
    """

    def __init__(self, log: NotificationLog, limits: Limits) -> None:
        self._log, self._limits = log, limits
        self._guard = threading.Lock()
        with plain_errors(log.path):
            self._connection = connect(log.path)
            self._n_bytes = self._cost("true")
            (first,) = self._connection.execute("SELECT coalesce(min(sequence), 0) FROM published").fetchone()
            (self._n_matched,) = self._connection.execute("SELECT count(*) FROM matched").fetchone()
            row = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'published'").fetchone()
        self.last = 0 if row is None else int(row[0])
        self.first = first or self.last + 1

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def publish(self, events: list[bytes], at: int, done: Collection[Done] = ()) -> int:
        """Keep events and the names they were published under; return the number of the last one once it is durable."""
        with self._guard, plain_errors(self._log.path):
            last = self.last + len(events)
            with transaction(self._connection):
                self._connection.executemany(
                    insert("published", 3),
                    (row(sequence, at, event) for sequence, event in enumerate(events, self.last + 1)),
                )
                self._log.remembered.add(self._connection.executemany, done, last)
                n_bytes = self._n_bytes + sum(event_cost(len(event), 0) for event in events)
                kept = self._room(_Kept(self.first, n_bytes, self._n_matched), last)
            self._log.remembered.added(len(done))
            self.last = last
            self.first, self._n_bytes, self._n_matched = kept
            return self.last

    def _room(self, kept: _Kept, last: int) -> _Kept:
        """Drop the oldest events if there are too many, or they or what is known of their matches take too much."""
        first = max(kept.first, last - self._limits.log_events + 1)
        if first > kept.first:
            kept = self._dropped(kept, first)
        while kept.n_bytes + _MATCHED_BYTES * kept.n_matched > self._limits.log_bytes and kept.first < last:
            kept = self._dropped(kept, min(last, kept.first + _STEP))
        return kept

    def _dropped(self, kept: _Kept, first: int) -> _Kept:
        """Drop what is older than an event."""
        execute = self._connection.execute
        n_bytes = self._cost("sequence < ?", first)
        execute("DELETE FROM published WHERE sequence < ?", (first,))
        n_matched = execute("DELETE FROM matched WHERE event < ?", (first,)).rowcount
        return _Kept(first, kept.n_bytes - n_bytes, kept.n_matched - n_matched)

    def _cost(self, condition: str, *arguments: int) -> int:
        """Return what some of the events count, as they did when they were published."""
        rows = self._connection.execute(f"SELECT length(payload) FROM published WHERE {condition}", arguments)
        return sum(event_cost(n_bytes, 0) for (n_bytes,) in rows)

    def read(self, after: int, limit: int) -> list[PublishedEvent]:
        """Return events after a number, oldest first; raise if some of them are no longer kept."""
        with self._guard, plain_errors(self._log.path):
            if not self.first - 1 <= after <= self.last:
                raise LimitError(f"events {self.first} to {self.last} are kept, and those after {after} were asked for")
            query = "SELECT sequence, at, payload FROM published WHERE sequence > ? ORDER BY sequence LIMIT ?"
            return [PublishedEvent(*row) for row in self._connection.execute(query, (after, limit))]

    def deliver(
        self,
        matches: Iterable[tuple[int, list[Id]]],
        at: int,
        is_known: Callable[[Id], bool],
        with_webhooks: Collection[Id],
        tell: Callable[[list[LoggedEvent]], None],
    ) -> Delivered:
        """Write the matches that are new, tell of them once they are durable, and return what became of all.

        Parameters
        ----------
        matches : iterable of (int, list of ids)
            Numbers of events, and the subscriptions that they match.
        at : int
            The time, in microseconds.
        is_known : callable
            Whether there is a subscription.
        with_webhooks : collection of ids
            Those of them that have a webhook.
        tell : callable
            Takes the new ones.
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
            self._n_matched += len(names)
        return Delivered(len(names), n_repeated, n_unknown)

    def _seen(self, event: int) -> tuple[bytes | None, set[Id]]:
        """Return an event, and the subscriptions that were told of it."""
        with plain_errors(self._log.path):
            execute = self._connection.execute
            row = execute("SELECT payload FROM published WHERE sequence = ?", (event,)).fetchone()
            rows = execute("SELECT subscription FROM matched WHERE event = ?", (event,)).fetchall()
        return (None if row is None else row[0]), {id for (id,) in rows}


def _by_event(matches: Iterable[tuple[int, list[Id]]]) -> dict[int, dict[Id, None]]:
    """Return all subscriptions of each event, each once."""
    found: dict[int, dict[Id, None]] = {}
    for event, ids in matches:
        found.setdefault(event, {}).update(dict.fromkeys(ids))
    return found


def checked(events: list[bytes]) -> Iterator[list[Id] | EventError]:
    """Yield what is wrong with each event; the empty list if it is one, which nobody here matches."""
    return matched_ids(Engine(), events)
