"""Durable subscriptions: a SQLite file from which an engine can be loaded, and kept up to date.

    store                                       engine
    ─────                                       ──────
    add, replace, renew, remove, expire
      changes   1 added ann                     load_into  ──►  everything, as of change 3
                2 added bob
                3 replaced ann
                4 removed bob                   follow(3)  ──►  the changes after change 3
                5 expired ann

When a method returns, its change is durable: the write-ahead log was flushed to the disk (`synchronous = FULL`). So it
survives a crash of the process at any moment, and a power failure if the disk keeps its promises. With `NORMAL` a
commit takes a tenth of the time or less (0.03 ms against 0.3 to 5 ms, depending on the load of the disk) and survives
`kill -9` as well, but a power failure could undo acknowledged changes; group commit makes `FULL` affordable instead.

SQLite checks the log by checksums, but takes a damaged end of it for an unfinished write. So the number of the last
acknowledged change is kept beside the file (`mark.py`), and a store that ends before it is not opened.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any, Final, Literal

from siftline.errors import GoneError, UnknownIdError
from siftline.ids import plain_ids
from siftline.storage.batch import Batch, checked_id
from siftline.storage.feed import catch_up, fill
from siftline.storage.rows import (
    CHANGE_COLUMNS,
    CHANGES,
    LIVE,
    LIVE_COLUMNS,
    Change,
    StoredSubscription,
    change_of,
    fact,
    microseconds,
    moment_of,
    set_fact,
)
from siftline.storage.soundness import live_subscription, problems_of
from siftline.storage.store_file import StoreFile, moment_or_now
from siftline.storage.transaction import KEPT, Transaction, compacted, last_sequence
from siftline.storage.written import TEXT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Generator, Iterable, Iterator
    from datetime import datetime

    from siftline.ids import AnyId, Id

# Earlier than all times.
_EVER: Final = -(2**62)
_IS_LIVE: Final = "(s.expires IS NULL OR s.expires > ?)"


class Store(StoreFile):
    """Subscriptions in a file, which one process owns at a time; thread-safe.

    Parameters
    ----------
    path : path
        The file; it is created if it does not exist.
    is_read_only : bool
        Read beside the owner, and never write, not even to migrate a file of an older version.
    is_guest : bool
        Write beside the owner, if there is one, for short administrative changes. Commits of both take turns, and the
        owner gets the changes from the feed.
    wait_seconds : float
        How long to wait while another process is writing.
    is_checked : bool
        Check the whole file for damage when it is opened.

    Raises
    ------
    StoreLockedError
        If another process, or another `Store` of this one, owns the file; it says who and since when.
    StoreError
        If it is damaged, not a store, of a newer version, or on a network file system.

    Examples
    --------
    >>> import tempfile, siftline
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = siftline.Store(folder.name + "/subscriptions.db")
    >>> store.add("model = 'iphone5s' and price <= 580", "ann")
    1
    >>> engine = siftline.Engine()
    >>> sequence = store.load_into(engine)
    >>> with store.batch() as batch:
    ...     batch.replace("ann", "price <= 600")
    ...     batch.add({"price": [{"numeric": ["<", 700]}]}, "bob", dialect="eventbridge")
    >>> sequence = store.follow(engine, sequence)
    >>> sequence, sorted(engine.match({"price": 590}))
    (3, ['ann', 'bob'])
    >>> store.close(); folder.cleanup()
    """

    def __repr__(self) -> str:
        return f"<siftline.Store: {self.path}>"

    # changes

    def add(
        self,
        expression: Any,
        id: AnyId,
        *,
        weight: float = 1.0,
        owner: str | None = None,
        expires: datetime | None = None,
        dialect: str = TEXT,
    ) -> int:
        """Add a subscription, and return the number of the change once it is durable.

        Parameters
        ----------
        expression
            Text, an Expression, or an event pattern, filter policy or filters, as JSON text or parsed.
        id : int, str or UUID
            The ids of one store are all integers or all strings; a UUID counts as its text.
        weight : float
            The rank in `match(..., top=k)`.
        owner : str, optional
            The owner of the subscription.
        expires : datetime, optional
            The time, with a time zone, from which on it no longer matches.
        dialect : {'text', 'eventbridge', 'sns', 'cloudevents'}
            The language of the expression.

        Raises
        ------
        SubscriptionError
            If the expression is invalid.
        DuplicateIdError
            If the id is in use.
        StoreError
            If the change cannot be made durable; then nothing has changed.
        """
        return self._change(
            lambda batch: batch.add(expression, id, weight=weight, owner=owner, expires=expires, dialect=dialect)
        )

    def replace(
        self,
        id: AnyId,
        expression: Any,
        *,
        weight: float | None = None,
        expires: datetime | Literal["kept"] | None = KEPT,
        dialect: str = TEXT,
    ) -> int:
        """Replace the expression of a subscription; arguments that are not given keep their values."""
        return self._change(
            lambda batch: batch.replace(id, expression, weight=weight, expires=expires, dialect=dialect)
        )

    def renew(self, id: AnyId, expires: datetime | None) -> int:
        """Change when a subscription expires; None means never."""
        return self._change(lambda batch: batch.renew(id, expires))

    def remove(self, id: AnyId) -> int:
        """Remove a subscription."""
        return self._change(lambda batch: batch.remove(id))

    def expire(self, now: datetime | None = None) -> int:
        """Remove all expired subscriptions; return how many.

        Before that they are only hidden. Engines that have them remove them by `follow`.
        """
        return int(self._run(lambda transaction: transaction.expire(), now))

    @contextlib.contextmanager
    def batch(self) -> Iterator[Batch]:
        """Collect changes, and make them durable together at the end of the block; an error in it discards all."""
        batch = Batch()
        yield batch
        if len(batch):
            self._apply(batch)

    def _change(self, change: Callable[[Batch], None]) -> int:
        batch = Batch()
        change(batch)
        return self._apply(batch)

    def _apply(self, batch: Batch) -> int:
        def work(transaction: Transaction) -> int:
            batch.apply(transaction)
            return transaction.sequence

        return int(self._run(work))

    # reading

    def __len__(self) -> int:
        with self._reading() as connection:
            query = f"SELECT count(*) FROM subscriptions s WHERE {_IS_LIVE}"
            return int(connection.execute(query, (moment_or_now(),)).fetchone()[0])

    def __contains__(self, id: AnyId) -> bool:
        with self._reading() as connection:
            query = f"SELECT 1 FROM subscriptions s WHERE id = ? AND {_IS_LIVE}"
            return connection.execute(query, (checked_id(id), moment_or_now())).fetchone() is not None

    def known(self, ids: Iterable[AnyId]) -> set[Id]:
        """Return those of many ids that are in use."""
        moment = moment_or_now()
        with self._reading() as connection:
            query = f"SELECT 1 FROM subscriptions s WHERE id = ? AND {_IS_LIVE}"
            plain = plain_ids(ids)
            return {id for id in plain if connection.execute(query, (id, moment)).fetchone() is not None}

    def get(self, id: AnyId, now: datetime | None = None) -> StoredSubscription:
        """Return one subscription; `now` decides whether it has expired."""
        with self._reading() as connection:
            query = f"SELECT {LIVE_COLUMNS} FROM {LIVE} WHERE s.id = ?"
            row = connection.execute(query, (checked_id(id),)).fetchone()
        subscription = None if row is None else live_subscription(row, self.path)
        if subscription is None or _is_over(subscription, moment_or_now(now)):
            raise UnknownIdError(f"the store has no subscription with the id {id!r}")
        return subscription

    def __iter__(self) -> Iterator[StoredSubscription]:
        return self.subscriptions()

    def subscriptions(self, *, owner: str | None = None, now: datetime | None = None) -> Generator[StoredSubscription]:
        """Yield all subscriptions, or those of one owner, in the order of their last change, as of one moment."""
        condition, arguments = ("true", ()) if owner is None else ("s.owner = ?", (owner,))
        with self._reading() as connection:
            yield from self._live(connection, now, condition, arguments)

    def ending(self, after: datetime, by: datetime) -> Generator[StoredSubscription]:
        """Yield the subscriptions that expire after one time, and by another."""
        condition, arguments = "s.expires > ? AND s.expires <= ?", (microseconds(after), microseconds(by))
        with self._reading() as connection:
            yield from self._live(connection, after, condition, arguments)

    def _live(
        self,
        connection: sqlite3.Connection,
        now: datetime | None,
        condition: str = "true",
        arguments: tuple[Any, ...] = (),
    ) -> Iterator[StoredSubscription]:
        query = f"SELECT {LIVE_COLUMNS} FROM {LIVE} WHERE {condition} ORDER BY s.sequence"
        moment = moment_or_now(now)
        for row in connection.execute(query, arguments):
            # Checked first: a damaged time must not hide a subscription.
            subscription = live_subscription(row, self.path)
            if not _is_over(subscription, moment):
                yield subscription

    @property
    def sequence(self) -> int:
        """The number of the last change."""
        with self._reading() as connection:
            return last_sequence(connection)

    def are_ids_text(self) -> bool | None:
        """Return whether ids are strings; None before the first id."""
        kind = self.fact("id_kind")
        return None if kind is None else kind == "text"

    def next_expiry(self, after: datetime | None = None) -> datetime | None:
        """Return when the next subscription expires, of all or of those that expire after a time."""
        query = "SELECT min(expires) FROM subscriptions WHERE expires > ?"
        with self._reading() as connection:
            (soonest,) = connection.execute(query, (_EVER if after is None else microseconds(after),)).fetchone()
        return None if soonest is None else moment_of(soonest)

    def identity(self) -> str:
        """Return a random text that identifies this store and its copies."""
        return str(self.fact("identity") or self._run(_identified))

    def fact(self, name: str) -> Any:
        """Return a fact about the whole store, None if it is not set."""
        with self._reading() as connection:
            return fact(connection.execute, name, self.path)

    # the feed

    def changes(self, since: int = 0) -> Generator[Change]:
        """Yield the changes after change `since`, oldest first, as of one moment.

        After `compact`, superseded changes may be missing from the beginning, so a reader can start at 0, or at any
        number that is not below what all readers have acknowledged.
        """
        with self._reading() as connection:
            first, last = compacted(connection.execute, self.path), last_sequence(connection)
            if since > last:
                reason = f"the last change is {last}, but its reader has seen {since}: changes were lost"
                raise GoneError(f"{self.path}: {reason}", first=first, last=last, public=reason)
            if 0 < since < first:
                reason = (
                    f"the changes before {first} were compacted, and a reader at {since} needs them: it has to load "
                    f"everything anew, from 0; from {first} on, nothing is missing"
                )
                raise GoneError(f"{self.path}: {reason}", first=first, last=last, public=reason)
            query = f"SELECT {CHANGE_COLUMNS} FROM {CHANGES} WHERE r.sequence > ? ORDER BY r.sequence"
            for row in connection.execute(query, (since,)):
                yield change_of(row, self.path)

    def load_into(
        self, engine: Any, *, by_owner: bool = False, now: datetime | None = None, skipped: set[Id] | None = None
    ) -> int:
        """Add all subscriptions to an engine, and return the number of the last change that is in it.

        Parameters
        ----------
        engine : Engine
            A new engine: all subscriptions are added at once.
        by_owner : bool
            Make the owner of a subscription its tenant, for `match(..., tenant=...)`.
        now : datetime, optional
            Subscriptions that have expired by then are left out.
        skipped : set of ids, optional
            Gets the ids of subscriptions that can no longer be parsed, for example because an operator is missing;
            without it, that is an error.
        """
        with self._reading() as connection:
            sequence = last_sequence(connection)
            fill(engine, self._live(connection, now), by_owner=by_owner, skipped=skipped)
            return sequence

    def follow(self, engine: Any, since: int, *, by_owner: bool = False, skipped: set[Id] | None = None) -> int:
        """Apply the changes after `since` to an engine, and return the number of the last one."""
        last = catch_up(engine, self.changes(since), by_owner=by_owner, skipped=skipped)
        return since if last is None else last

    def acknowledge(self, reader: str, sequence: int) -> None:
        """Record durably that a reader has all changes up to a number; `compact` keeps the later ones for it."""
        self._run(lambda transaction: transaction.acknowledge(reader, sequence))

    def readers(self) -> dict[str, int]:
        """Return the last change that each reader has acknowledged."""
        with self._reading() as connection:
            return dict(connection.execute("SELECT name, sequence FROM readers ORDER BY name").fetchall())

    def forget_reader(self, reader: str) -> None:
        """Remove a reader, so that no changes are kept for it."""
        self._run(lambda transaction: transaction.forget_reader(reader))

    def compact(self) -> int:
        """Drop superseded changes that every reader has acknowledged; return how many."""
        return int(self._run(lambda transaction: transaction.compact()))

    def compact_some(self, most: int, *, reader: str, seen: int, n_kept: int) -> int:
        """Drop up to `most` superseded changes, and free up to as many pages; for a running broker.

        Parameters
        ----------
        most : int
            A small number, so that other writers do not wait for long.
        reader : str
            The reader whose snapshot is beside the store; it only needs tombstones.
        seen : int
            The last change that the engine of the caller has.
        n_kept : int
            Among this many of the newest changes, tombstones are kept for followers that are not registered as readers.

        Returns
        -------
        int
            The number of changes or pages that were freed; if it is `most`, there may be more.
        """

        def work(transaction: Transaction) -> int:
            n_dropped = transaction.compact_some(most, reader=reader, seen=seen, n_kept=n_kept)
            return max(n_dropped, transaction.give_back(most))

        return int(self._run(work))

    # soundness

    def verify(self, advance: Callable[[int], None] = lambda n: None) -> list[str]:
        """Return the problems of the file, of its structure and of every change; an empty list if there are none."""
        with self._reading() as connection:
            return problems_of(connection, self.path, advance)


def _identified(transaction: Transaction) -> str:
    """Set the identity of a store, unless another process was faster."""
    execute = transaction.connection.execute
    known = fact(execute, "identity", "the store")
    if known is None:
        known = secrets.token_hex(8)
        set_fact(execute, "identity", known)
    return str(known)


def _is_over(subscription: StoredSubscription, moment: int) -> bool:
    expires = microseconds(subscription.expires)
    return expires is not None and expires <= moment
