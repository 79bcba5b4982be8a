"""What a change does to the tables of a store; every method runs inside a transaction that somebody else commits."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.errors import DuplicateIdError, StoreError, SubscriptionError, UnknownIdError
from siftline.storage.rows import (
    ADDED,
    EXPIRED,
    LIVE,
    LIVE_COLUMNS,
    REMOVED,
    REPLACED,
    checksum_of,
    fact,
    live_change,
    microseconds,
    set_fact,
    stored_text,
)

if TYPE_CHECKING:
    from siftline.storage.rows import StoredSubscription
    from siftline.storage.written import Written
    from siftline.subscriptions import Id

# For a replacement: the time stays what it was.
KEPT: Final = "kept"

_INSERT: Final = f"INSERT INTO changes VALUES ({', '.join('?' * 11)})"
_KINDS: Final = {"integer": "an integer", "text": "a string"}


class Content(NamedTuple):
    """A subscription but for its id, times as they are stored."""

    written: Written
    weight: float | None
    owner: str | None
    created: int | None
    expires: int | str | None


class Transaction:
    """Adds, replaces and removes rows, and writes down each change under the next number."""

    def __init__(self, connection: sqlite3.Connection, path: str, now: int) -> None:
        self.connection = connection
        self._execute = connection.execute
        self._path = path
        self._now = now
        self.sequence = last_sequence(connection)

    def add(self, id: Id, content: Content) -> None:
        """Add a subscription under a new id, or under one whose subscription has expired."""
        expires = self._expires(id)
        if expires is not None and not self._is_over(expires[0]):
            raise DuplicateIdError(f"the store already has a subscription with the id {id!r}")
        if expires is not None:
            self._end(id)
        self._check_kind(id)
        created = self._now if content.created is None else content.created
        self._put(ADDED, id, content._replace(created=created))

    def add_many(self, rows: list[tuple[Id, Content]]) -> None:
        """Add many subscriptions; all their ids are taken for new first, and looked up only if that goes wrong."""
        self._execute("SAVEPOINT many")
        sequence = self.sequence
        try:
            self._insert(rows)
        except sqlite3.IntegrityError:
            self._execute("ROLLBACK TO many")
            self.sequence = sequence
            for id, content in rows:
                self.add(id, content)
        self._execute("RELEASE many")

    def _insert(self, rows: list[tuple[Id, Content]]) -> None:
        changes, subscriptions = [], []
        for sequence, (id, content) in enumerate(rows, self.sequence + 1):
            (dialect, text), weight, owner, created, expires = content
            created = self._now if created is None else created
            change = (sequence, ADDED, id, self._now, dialect, stored_text(text), weight, owner, created, expires)
            changes.append((*change, checksum_of(change)))
            subscriptions.append((id, sequence, owner, expires))
        for kind in {type(id) for id, _ in rows}:
            self._check_kind(next(id for id, _ in rows if type(id) is kind))
        self.connection.executemany("INSERT INTO subscriptions VALUES (?, ?, ?, ?)", subscriptions)
        self.connection.executemany(_INSERT, changes)
        self.sequence += len(rows)

    def replace(self, id: Id, content: Content) -> None:
        """Give a subscription another expression; what is not given stays."""
        self._known(id)
        old = self._content(id)
        self._put(
            REPLACED,
            id,
            content._replace(
                weight=old.weight if content.weight is None else content.weight,
                owner=old.owner,
                created=old.created,
                expires=old.expires if content.expires == KEPT else content.expires,
            ),
        )

    def renew(self, id: Id, expires: int | None) -> None:
        """Let a subscription end at another time."""
        self._known(id)
        self._put(REPLACED, id, self._content(id)._replace(expires=expires))

    def remove(self, id: Id) -> None:
        """Remove a subscription."""
        self._known(id)
        self._forget(id, REMOVED)

    def expire(self, most: int = -1) -> int:
        """Remove all subscriptions whose time is over, or so many; return how many."""
        query = "SELECT id FROM subscriptions WHERE expires <= ? ORDER BY expires, id LIMIT ?"
        over = self._execute(query, (self._now, most))
        ids = [id for (id,) in over.fetchall()]
        for id in ids:
            self._end(id)
        return len(ids)

    def acknowledge(self, reader: str, sequence: int) -> None:
        """Note how far a reader has come."""
        first = compacted(self._execute, self._path)
        if not first <= sequence <= self.sequence:
            raise StoreError(f"{self._path}: a reader can be at changes {first} to {self.sequence}, not at {sequence}")
        self._execute("INSERT OR REPLACE INTO readers VALUES (?, ?, ?)", (reader, sequence, self._now))

    def forget_reader(self, reader: str) -> None:
        """Keep nothing for a reader any more."""
        if not self._execute("DELETE FROM readers WHERE name = ?", (reader,)).rowcount:
            raise UnknownIdError(f"there is no reader {reader!r}")

    def compact(self) -> int:
        """Drop changes that all readers have seen and that no subscription stands in; return how many."""
        (slowest,) = self._execute("SELECT min(sequence) FROM readers").fetchone()
        end = self.sequence if slowest is None else slowest
        dropped = self._execute(
            "DELETE FROM changes WHERE sequence <= ? AND sequence NOT IN (SELECT sequence FROM subscriptions)", (end,)
        )
        set_fact(self._execute, "compacted", max(end, compacted(self._execute, self._path)))
        return dropped.rowcount

    # rows

    def _expires(self, id: Id) -> tuple[int | None] | None:
        """Return when a subscription ends, in a tuple; None if there is none."""
        row: tuple[int | None] | None
        row = self._execute("SELECT expires FROM subscriptions WHERE id = ?", (id,)).fetchone()
        return row

    def _is_over(self, expires: int | None) -> bool:
        return expires is not None and expires <= self._now

    def _known(self, id: Id) -> None:
        expires = self._expires(id)
        if expires is None or self._is_over(expires[0]):
            raise UnknownIdError(f"the store has no subscription with the id {id!r}")

    def _end(self, id: Id) -> None:
        """Remove a subscription whose time is over, if the change that it stands in says so too."""
        self._content(id)
        self._forget(id, EXPIRED)

    def find(self, id: Id) -> StoredSubscription | None:
        """Return a subscription as it is in this transaction, None if there is none."""
        row = self._execute(f"SELECT {LIVE_COLUMNS} FROM {LIVE} WHERE s.id = ?", (id,)).fetchone()
        return None if row is None else live_change(row, self._path).subscription

    def _content(self, id: Id) -> Content:
        subscription = self.find(id)
        assert subscription is not None
        return Content(
            subscription.written,
            subscription.weight,
            subscription.owner,
            microseconds(subscription.created),
            microseconds(subscription.expires),
        )

    def _check_kind(self, id: Id) -> None:
        """Refuse an integer among strings and the other way round, for ever: an engine has one kind of ids."""
        kind = "text" if isinstance(id, str) else "integer"
        found = fact(self._execute, "id_kind", self._path)
        if found is None:
            set_fact(self._execute, "id_kind", kind)
        elif found != kind:
            raise SubscriptionError(f"the id {id!r} is {_KINDS[kind]}, but the first one of this store was not")

    def _put(self, kind: str, id: Id, content: Content) -> None:
        (dialect, text), weight, owner, created, expires = content
        self._record((kind, id, self._now, dialect, stored_text(text), weight, owner, created, expires))
        row = (id, self.sequence, owner, expires)
        self._execute("INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?, ?)", row)

    def _forget(self, id: Id, kind: str) -> None:
        self._execute("DELETE FROM subscriptions WHERE id = ?", (id,))
        self._execute("DELETE FROM leases WHERE id = ?", (id,))  # its ticket must not fit who has the id next
        self._record((kind, id, self._now, None, None, None, None, None, None))

    def _record(self, columns: tuple[Any, ...]) -> None:
        self.sequence += 1
        row = (self.sequence, *columns)
        self._execute(_INSERT, (*row, checksum_of(row)))


def last_sequence(connection: sqlite3.Connection) -> int:
    """Return the number of the last change, 0 before the first."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    return 0 if row is None else int(row[0])


def compacted(execute: Any, path: str) -> int:
    """Return up to which change some may have been dropped."""
    mark = fact(execute, "compacted", path)
    if not isinstance(mark, int):
        raise StoreError(f"{path} is damaged: it does not say which changes were dropped")
    return mark
