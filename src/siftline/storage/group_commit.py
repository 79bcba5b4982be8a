"""Group commit: the writes of several threads go to the disk together.

A commit that survives a power failure waits for the disk, which takes milliseconds. While one commit waits, new pieces
of work queue up, and the next transaction takes them all:

    thread A   work ──────────── durable
    thread B       work ─────────────────────────── durable
    thread C        work ────────────────────────── durable
    writer     [A ....... disk] [B, C ....... disk]

Each piece of work has its own savepoint, so a refused one is rolled back alone. A single thread that waits for each of
its writes gets only one write per commit; it should write batches.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import StoreError
from siftline.storage.sqlite_files import plain_error
from siftline.storage.transaction import last_sequence

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.storage.mark import Mark

    Work = Callable[[sqlite3.Connection], Any]

# The largest number of pieces of work in one transaction, so that none waits long for the others.
_TRANSACTION_MAX: Final = 1024


class GroupCommit:
    """Runs work on one connection, in the order of arrival, and answers when it is durable.

    Parameters
    ----------
    connection : sqlite3.Connection
        Owned by this object from now on.
    mark : Mark
        Advanced after each commit, before the answers; also owned by this object.
    path : str
        The path in error messages.
    """

    def __init__(self, connection: sqlite3.Connection, mark: Mark, path: str) -> None:
        self._connection = connection
        self._mark = mark
        self._path = path
        self._process = os.getpid()
        self._pending: list[tuple[Work, Future[Any]]] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.n_transactions = 0

    def run(self, work: Work) -> Any:
        """Run work in a transaction, and return its result when it is on the disk; raise what it raised."""
        if os.getpid() != self._process:
            raise StoreError(f"{self._path} was opened before this process was forked: open it again here")
        answer: Future[Any] = Future()
        with self._changed:
            if self._is_closed:
                raise StoreError(f"{self._path} is closed")
            self._pending.append((work, answer))
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="siftline-store", daemon=True)
                self._thread.start()
            self._changed.notify()
        return answer.result()

    def close(self) -> None:
        """Finish the queued work, and close the connection."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None and os.getpid() == self._process:
            self._thread.join()
        self._connection.close()
        self._mark.close()

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._is_closed:
                    self._changed.wait()
                group, self._pending = self._pending[:_TRANSACTION_MAX], self._pending[_TRANSACTION_MAX:]
            if not group:
                return
            self._commit(group)

    def _commit(self, group: list[tuple[Work, Future[Any]]]) -> None:
        """Run a group of work in one transaction, then set the results."""
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            results = [self._guarded(work) for work, _ in group]
            sequence = last_sequence(self._connection)
            execute("COMMIT")
        except BaseException as error:
            self._undo()
            shown = plain_error(error, self._path) if isinstance(error, sqlite3.Error) else error
            for _, answer in group:
                answer.set_exception(shown)
            return
        self.n_transactions += 1
        self._mark.advance(sequence)
        for (_, answer), (result, refusal) in zip(group, results, strict=True):
            if refusal is None:
                answer.set_result(result)
            else:
                answer.set_exception(refusal)

    def _guarded(self, work: Work) -> tuple[Any, Exception | None]:
        """Run one piece of work in a savepoint; return its result, or the error that it raised."""
        execute = self._connection.execute
        execute("SAVEPOINT work")
        try:
            result = work(self._connection)
        except sqlite3.Error:  # the database has failed, so the whole transaction is uncertain
            raise
        except Exception as error:
            execute("ROLLBACK TO work")
            execute("RELEASE work")
            return None, error
        execute("RELEASE work")
        return result, None

    def _undo(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # if the disk is gone, nothing was committed either
                self._connection.execute("ROLLBACK")
