"""The file of a store: its owner, its checks, the connections for reading, and the one for writing.

The contents of the file are handled by `store.py`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from siftline.errors import StoreError
from siftline.storage.group_commit import GroupCommit
from siftline.storage.mark import Mark
from siftline.storage.migrations import VERSION, migrate, version_of
from siftline.storage.owner import Owner
from siftline.storage.rows import microseconds
from siftline.storage.soundness import damage
from siftline.storage.sqlite_files import has_log, open_sqlite, plain_errors, refuse_unusable
from siftline.storage.transaction import Transaction, last_sequence

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime


class StoreFile:
    """A file that one process owns at a time; the parameters are described in `Store`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        is_read_only: bool = False,
        is_guest: bool = False,
        wait_seconds: float = 5.0,
        is_checked: bool = True,
    ) -> None:
        self.path = str(path)
        self._is_read_only, self._is_guest = is_read_only, is_guest
        self._wait_seconds = wait_seconds
        self._idle: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._is_closed = False
        self._process = os.getpid()
        self._mark = Mark(self.path)
        self._writer: GroupCommit | None = None
        self._owner: Owner | None = None
        try:
            with plain_errors(self.path):
                self._own()
                self._check_file(is_checked)
                if not is_read_only:
                    self._writer = self._opened_writer()
        except BaseException:
            self._disown()
            raise

    def _own(self) -> None:
        """Become the owner, unless the file is opened read-only or as a guest."""
        refuse_unusable(self.path, is_read_only=self._is_read_only)
        if self._is_read_only or self._is_guest:
            return
        if os.path.exists(self.path):
            self._version_and_last(is_checked=False)  # no file is made beside a file that is not a store
        self._owner = Owner(self.path)

    def _disown(self) -> None:
        if self._owner is not None:
            self._owner.close()

    def _open(self) -> sqlite3.Connection:
        return open_sqlite(self.path, is_read_only=self._is_read_only, wait_seconds=self._wait_seconds)

    def _check_file(self, is_checked: bool) -> None:
        """Raise if the file is damaged, lacks acknowledged changes, or has a version that cannot be read."""
        marked = self._mark.read()  # read first, because others may be writing
        version = last = 0
        if self._is_read_only or os.path.exists(self.path):
            version, last = self._version_and_last(is_checked)
        if last < marked:
            raise StoreError(
                f"{self.path} ends with change {last:,}, but change {marked:,} was acknowledged: its log or the file "
                f"itself is damaged, gone, or an older copy; put it back, or remove {self._mark.path} to go on without"
            )
        if self._is_read_only and not version:
            raise StoreError(f"{self.path} is empty: there is no store in it yet")
        if self._is_read_only and version < VERSION:
            raise StoreError(f"{self.path} is of an older version: open it once for writing")

    def _version_and_last(self, is_checked: bool) -> tuple[int, int]:
        """Return the version of an intact file, and the number of its last change."""
        # A file with a log is opened read-only: otherwise SQLite would remove the log, even a damaged one.
        is_read_only = self._is_read_only or has_log(self.path)
        connection = open_sqlite(self.path, is_read_only=is_read_only, wait_seconds=self._wait_seconds)
        with contextlib.closing(connection):
            problems = damage(connection, "quick_check") if is_checked else []
            if problems:
                raise StoreError(f"{self.path} is damaged: {problems[0]}")
            version = version_of(connection, self.path)
            return version, last_sequence(connection) if version > 1 else 0  # version 1 had no changes

    def _opened_writer(self) -> GroupCommit:
        connection = self._open()
        try:
            self._migrate(connection)
            self._mark.open()
            self._mark.advance(last_sequence(connection))
        except BaseException:
            connection.close()
            raise
        return GroupCommit(connection, self._mark, self.path)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Migrate the file; only its owner may do that, and the present owner may be an older program."""
        if version_of(connection, self.path) == VERSION:
            return
        with contextlib.closing(Owner(self.path)) if self._is_guest else contextlib.nullcontext():
            migrate(connection, self.path)

    def close(self) -> None:
        """Finish the queued writes, and close the file; in a forked child, do nothing."""
        if os.getpid() != self._process:
            return
        with self._guard:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        if self._writer is not None:
            self._writer.close()  # closed last, because the last connection moves the log into the file
        self._disown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # transactions and queries

    def transact(self, work: Callable[[Transaction, sqlite3.Connection], Any], now: datetime | None = None) -> Any:
        """Run work in one durable transaction and return its result; for the broker, which has its own tables.

        Parameters
        ----------
        work : callable
            Called with the transaction and its connection; an exception rolls it back.
        now : datetime, optional
            The time that decides what has expired.
        """
        return self._run(lambda transaction: work(transaction, transaction.connection), now)

    def select(self, query: str, arguments: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; for the broker as well."""
        with self._reading() as connection:
            return connection.execute(query, tuple(arguments)).fetchall()

    def _run(self, work: Callable[[Transaction], Any], now: datetime | None = None) -> Any:
        if self._writer is None:
            raise StoreError(f"{self.path} was opened read-only")
        moment = moment_or_now(now)
        return self._writer.run(lambda connection: work(Transaction(connection, self.path, moment)))

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection with a read transaction, which sees the state of one moment."""
        with plain_errors(self.path):
            connection = self._borrowed()
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                self._give_back(connection)

    def _borrowed(self) -> sqlite3.Connection:
        if os.getpid() != self._process:
            raise StoreError(f"{self.path} was opened before this process was forked: open it again here")
        with self._guard:
            if self._is_closed:
                raise StoreError(f"{self.path} is closed")
            if self._idle:
                return self._idle.pop()
        return self._open()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if os.getpid() != self._process:  # a generator that a forked child has inherited
            return
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        with self._guard:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()


def moment_or_now(now: datetime | None = None) -> int:
    """Return a time in microseconds, the current one if none is given."""
    moment = microseconds(now)
    return time.time_ns() // 1000 if moment is None else moment
