"""Applies changes to the tables of a store, inside a transaction that the caller commits."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.errors import DuplicateIdError, StoreError, SubscriptionError, UnknownIdError
from siftline.storage.rows import (
    ADDED,
    COLUMNS,
    EXPIRED,
    LIVE,
    LIVE_COLUMNS,
    REMOVED,
    RENEWED,
    REPLACED,
    fact,
    live_change,
    microseconds,
    row_checksum,
    set_fact,
    stored_text,
)

if TYPE_CHECKING:
    from siftline.ids import Id
    from siftline.storage.rows import StoredSubscription
    from siftline.storage.written import Written

# The value of `expires` in a replacement that keeps the time.
KEPT: Final = "kept"

_INSERT: Final = f"INSERT INTO changes ({COLUMNS}) VALUES ({', '.join('?' * 12)})"
# How many free pages are kept for later rows.
_FREE_PAGES: Final = 1024
_KINDS: Final = {"integer": "an integer", "text": "a string"}


class Content(NamedTuple):
    """A subscription without its id, with times in the form that is stored."""

    written: Written
    weight: float | None
    owner: str | None
    created: int | None
    expires: int | str | None


class Transaction:
    """Adds, replaces and removes rows, and records each change with the next number."""

    def __init__(self, connection: sqlite3.Connection, path: str, now: int) -> None:
        self.connection = connection
        self._execute = connection.execute
        self._path = path
        self._now = now
        self.sequence = last_sequence(connection)

    def add(self, id: Id, content: Content) -> None:
        """Add a subscription with a new id, or with the id of an expired one."""
        expires = self._expires(id)
        if expires is not None and not self._is_over(expires[0]):
            raise DuplicateIdError(f"the store already has a subscription with the id {id!r}")
        if expires is not None:
            self._end(id)
        self._check_kind(id)
        created = self._now if content.created is None else content.created
        self._put(ADDED, id, content._replace(created=created))

    def add_many(self, rows: list[tuple[Id, Content]]) -> None:
        """Add many subscriptions; ids are assumed to be new, and looked up only if that fails."""
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
            change = (sequence, ADDED, id, self._now, dialect, stored_text(text), weight, owner, created, expires, None)
            changes.append((*change, row_checksum(change)))
            subscriptions.append((id, sequence, owner, expires))
        for kind in {type(id) for id, _ in rows}:
            self._check_kind(next(id for id, _ in rows if type(id) is kind))
        self.connection.executemany("INSERT INTO subscriptions VALUES (?, ?, ?, ?)", subscriptions)
        self.connection.executemany(_INSERT, changes)
        self.sequence += len(rows)

    def replace(self, id: Id, content: Content) -> None:
        """Replace the expression of a subscription; fields that are None or KEPT are not changed."""
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
        """Change when a subscription expires, by a short change that refers to the one that has the text."""
        self._known(id)
        _, weight, owner, created, _ = self._content(id)
        sequence, content = self._standing(id)
        if content is not None:
            self._supersede(sequence, sequence)
        elsewhere = sequence if content is None else content
        self._record((RENEWED, id, self._now, None, None, weight, owner, created, expires, elsewhere))
        self._point(id, owner, expires)

    def remove(self, id: Id) -> None:
        """Remove a subscription."""
        self._known(id)
        self._forget(id, REMOVED)

    def expire(self, most: int = -1) -> int:
        """Remove all expired subscriptions, or a number of them; return how many."""
        query = "SELECT id FROM subscriptions WHERE expires <= ? ORDER BY expires, id LIMIT ?"
        over = self._execute(query, (self._now, most))
        ids = [id for (id,) in over.fetchall()]
        for id in ids:
            self._end(id)
        return len(ids)

    def acknowledge(self, reader: str, sequence: int) -> None:
        """Record the last change that a reader has."""
        first = compacted(self._execute, self._path)
        if not first <= sequence <= self.sequence:
            raise StoreError(f"{self._path}: a reader can be at changes {first} to {self.sequence}, not at {sequence}")
        self._execute("INSERT OR REPLACE INTO readers VALUES (?, ?, ?)", (reader, sequence, self._now))

    def forget_reader(self, reader: str) -> None:
        """Remove a reader, so that no changes are kept for it."""
        if not self._execute("DELETE FROM readers WHERE name = ?", (reader,)).rowcount:
            raise UnknownIdError(f"there is no reader {reader!r}")

    def compact(self) -> int:
        """Drop superseded changes that all readers have; return how many."""
        end = self._slowest()
        n_dropped = self._drop("last <= ?", (end,))
        self._raise_floor(end)
        return n_dropped

    def compact_some(self, most: int, *, reader: str, seen: int, n_kept: int) -> int:
        """Drop up to `most` superseded changes; return how many.

        A change that set the content of a subscription may be dropped as soon as there is a later one of the same
        subscription, because every follower gets the later one. So the snapshot of `reader` does not need it. The
        tombstone of a subscription is kept for that snapshot, and while it is one of the last `n_kept` changes.
        """
        last = self._last_of(0, min(seen, self._slowest(but=reader)), most)
        n_dropped = 0 if last is None else self._drop("is_end = 0 AND last <= ?", (last,))
        last = self._last_of(1, min(seen, self._slowest(), self.sequence - n_kept), max(0, most - n_dropped))
        if last is not None:
            n_dropped += self._drop("is_end = 1 AND last <= ?", (last,))
            self._raise_floor(last)
        return n_dropped

    def _last_of(self, is_end: int, end: int, most: int) -> int | None:
        """Return the number up to which about `most` superseded changes exist; those with equal numbers go together."""
        query = (
            "SELECT max(last) FROM (SELECT last FROM superseded WHERE is_end = ? AND last <= ? ORDER BY last LIMIT ?)"
        )
        (last,) = self._execute(query, (is_end, end, most)).fetchone()
        return None if last is None else int(last)

    def _slowest(self, but: str | None = None) -> int:
        """Return the last change that all readers have, or all readers except one."""
        (slowest,) = self._execute("SELECT min(sequence) FROM readers WHERE name IS NOT ?", (but,)).fetchone()
        return self.sequence if slowest is None else int(slowest)

    def _drop(self, condition: str, arguments: tuple[int, ...]) -> int:
        """Drop superseded changes that satisfy a condition, but never one that a subscription points to."""
        rows = self._execute(f"SELECT is_end, last, sequence FROM superseded WHERE {condition}", arguments).fetchall()
        if not rows:
            return 0
        self.connection.executemany("DELETE FROM superseded WHERE is_end = ? AND last = ? AND sequence = ?", rows)
        n = self.connection.executemany(
            "DELETE FROM changes WHERE sequence = ? AND NOT EXISTS (SELECT 1 FROM subscriptions s JOIN changes r USING"
            " (sequence) WHERE s.id = changes.id AND changes.sequence IN (r.sequence, r.content))",
            [(sequence,) for _, _, sequence in rows],
        ).rowcount
        return int(n)

    def _raise_floor(self, sequence: int) -> None:
        set_fact(self._execute, "compacted", max(sequence, compacted(self._execute, self._path)))

    def give_back(self, most_pages: int) -> int:
        """Shrink the file if it has many free pages; return by how many."""
        (n_free,), (n_pages,) = (self._execute(f"PRAGMA {name}_count").fetchone() for name in ("freelist", "page"))
        n = min(most_pages, n_free - max(_FREE_PAGES, n_pages // 4))
        if n <= 0 or self._execute("PRAGMA auto_vacuum").fetchone() == (0,):
            return 0
        self._execute(f"PRAGMA incremental_vacuum({n})").fetchall()  # each fetched row frees one page
        return int(n)

    # rows

    def _expires(self, id: Id) -> tuple[int | None] | None:
        """Return when a subscription expires, in a tuple; None if there is no such subscription."""
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
        """Remove an expired subscription, after checking its change for damage."""
        self._content(id)
        self._forget(id, EXPIRED)

    def find(self, id: Id) -> StoredSubscription | None:
        """Return a subscription as of this transaction, None if there is none."""
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
        """Refuse an integer id in a store of string ids, and the reverse: an engine has one kind of ids."""
        kind = "text" if isinstance(id, str) else "integer"
        found = fact(self._execute, "id_kind", self._path)
        if found is None:
            set_fact(self._execute, "id_kind", kind)
        elif found != kind:
            raise SubscriptionError(f"the id {id!r} is {_KINDS[kind]}, but the first one of this store was not")

    def _put(self, kind: str, id: Id, content: Content) -> None:
        (dialect, text), weight, owner, created, expires = content
        if kind != ADDED:
            self._leave(id)
        self._record((kind, id, self._now, dialect, stored_text(text), weight, owner, created, expires, None))
        self._point(id, owner, expires)

    def _point(self, id: Id, owner: str | None, expires: int | str | None) -> None:
        """Let a subscription point to the last change."""
        row = (id, self.sequence, owner, expires)
        self._execute("INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?, ?)", row)

    def _forget(self, id: Id, kind: str) -> None:
        self._leave(id)
        self._execute("DELETE FROM subscriptions WHERE id = ?", (id,))
        self._execute("DELETE FROM leases WHERE id = ?", (id,))  # the next one with this id must not inherit the ticket
        self._record((kind, id, self._now, None, None, None, None, None, None, None))
        self._supersede(self.sequence, self.sequence, is_end=True)

    def _standing(self, id: Id) -> tuple[int, int | None]:
        """Return the change that a subscription points to, and the one that has its text, if it is another one."""
        query = "SELECT sequence, content FROM subscriptions s JOIN changes r USING (sequence) WHERE s.id = ?"
        sequence, content = self._execute(query, (id,)).fetchone()
        return sequence, content

    def _leave(self, id: Id) -> None:
        """Record that the changes that a subscription points to are superseded."""
        sequence, content = self._standing(id)
        self._supersede(sequence, sequence)
        if content is not None:
            self._supersede(content, sequence)

    def _supersede(self, sequence: int, last: int, *, is_end: bool = False) -> None:
        self._execute("INSERT INTO superseded VALUES (?, ?, ?)", (is_end, last, sequence))

    def _record(self, columns: tuple[Any, ...]) -> None:
        self.sequence += 1
        row = (self.sequence, *columns)
        self._execute(_INSERT, (*row, row_checksum(row)))


def last_sequence(connection: sqlite3.Connection) -> int:
    """Return the number of the last change, 0 before the first."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    return 0 if row is None else int(row[0])


def compacted(execute: Any, path: str) -> int:
    """Return the number up to which changes may have been dropped."""
    mark = fact(execute, "compacted", path)
    if not isinstance(mark, int):
        raise StoreError(f"{path} is damaged: it does not say which changes were dropped")
    return mark
