"""Opens SQLite files, and explains their errors.

Nothing in this process may open a database, its `-wal` or its `-shm` except through SQLite. When any descriptor of a
file is closed, the kernel drops all POSIX locks that the process has on it (https://sqlite.org/howtocorrupt.html,
section 2.2). SQLite knows that and delays closing. A plain `open` and `close` would drop locks that SQLite believes it
has; the next process that closes the database would take itself for the last one, and delete a log that is in use.

A connection belongs to the process that opened it. A forked child must not even close one: it would roll back the
parent's transaction in shared memory. So inherited connections are never closed in a child, nor garbage-collected.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from siftline.errors import StoreError, StoreLockedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A write-ahead log that has grown beyond this, because of a long read, is truncated when it restarts.
_MOST_LOG_BYTES: Final = 32 << 20

# Prefixes of SQLite's error names, and what they mean to the user of a store.
_MEANINGS: Final = (
    ("SQLITE_FULL", "the disk is full: nothing of this was written"),
    ("SQLITE_READONLY", "it cannot be written: the file or its directory is read-only"),
    ("SQLITE_PERM", "permission denied"),
    ("SQLITE_CANTOPEN", "it cannot be opened: the file or its directory cannot be read or written"),
    ("SQLITE_NOTADB", "it is damaged, or not a store of subscriptions at all"),
    ("SQLITE_CORRUPT", "it is damaged"),
    ("SQLITE_IOERR", "reading or writing failed; the disk may be full or broken, and nothing of this was written"),
    ("SQLITE_TOOBIG", "a text is too long for the store"),
)


# Objects that a forked child inherits, and must neither close nor free.
_INHERITED: Final[weakref.WeakSet[Connection | Cursor]] = weakref.WeakSet()


class Cursor(sqlite3.Cursor):
    """A cursor that no forked child resets: it would wait forever if a thread of the parent was inside SQLite."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        _INHERITED.add(self)


class Connection(sqlite3.Connection):
    """A connection that is closed only by the process that opened it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._process = os.getpid()
        super().__init__(*arguments, **options)
        _INHERITED.add(self)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement with a `Cursor` of this module."""
        return self.cursor(Cursor).execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement many times with a `Cursor` of this module."""
        return self.cursor(Cursor).executemany(*arguments)

    def close(self) -> None:
        """Close the connection; do nothing in a forked child."""
        if os.getpid() == self._process:
            super().close()


def _leave_to_parent() -> None:
    for inherited in _INHERITED:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))  # otherwise it is freed when the interpreter ends


os.register_at_fork(after_in_child=_leave_to_parent)


@contextlib.contextmanager
def plain_errors(path: str) -> Iterator[None]:
    """Turn errors of SQLite into StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        raise plain_error(error, path) from error
    except UnicodeDecodeError as error:  # in a name of a damaged schema, or in the message about it
        raise StoreError(f"{path}: it is damaged (a name is not UTF-8)", public="a file is damaged") from error


def plain_error(error: sqlite3.Error, path: str) -> StoreError:
    """Return the StoreError that explains an error of SQLite."""
    name = getattr(error, "sqlite_errorname", None) or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        public = "it is locked: another process is writing into it"
        return StoreLockedError(f"{path} is locked: another process is writing into it", public=public)
    meaning = next((meaning for prefix, meaning in _MEANINGS if name.startswith(prefix)), "")
    return StoreError(f"{path}: {meaning} ({error})" if meaning else f"{path}: {error}", public=meaning or None)


def open_sqlite(path: str, *, is_read_only: bool, wait_seconds: float, is_cut_off: bool = False) -> sqlite3.Connection:
    """Open a file for use by any thread, in autocommit mode.

    SQLite refuses a file that is shorter than its header says, unless `is_cut_off` is set.
    """
    refuse_unusable(path, is_read_only=is_read_only)
    uri = f"file:{quote(os.path.abspath(path))}?mode={'ro' if is_read_only else 'rwc'}"
    if is_read_only and not os.access(Path(path).resolve().parent, os.W_OK) and not has_log(path):
        uri += "&immutable=1"  # nobody can be writing, and SQLite cannot make its `-shm` file
    connection = sqlite3.connect(
        uri, wait_seconds, isolation_level=None, check_same_thread=False, uri=True, factory=Connection
    )
    try:
        if is_cut_off:
            connection.execute("PRAGMA writable_schema = ON")  # makes SQLite use the actual size of the file
        connection.execute("PRAGMA cache_size = -16384")
        if not is_read_only:
            _make_durable(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def has_log(path: str) -> bool:
    """Return whether there may be commits that are only in the write-ahead log."""
    return os.path.exists(os.path.realpath(path) + "-wal")


def refuse_unusable(path: str, *, is_read_only: bool) -> None:
    """Raise if there can be no database at a path; SQLite itself checks the contents of a file."""
    if os.path.isdir(path):
        raise StoreError(f"{path} is a directory, not a store of subscriptions")
    if os.path.exists(path):
        return
    if is_read_only:
        raise StoreError(f"{path} does not exist")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise StoreError(f"{path} cannot be made: its directory does not exist")


def _make_durable(connection: sqlite3.Connection, path: str) -> None:
    """Set the write-ahead log, so that readers and the writer do not wait for each other, and durable commits."""
    if connection.execute("PRAGMA page_count").fetchone() == (0,):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only possible in an empty file
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"{path}: this file system cannot keep a write-ahead log ({mode})")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {_MOST_LOG_BYTES}")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[Callable[..., sqlite3.Cursor]]:
    """Commit the statements of the block, or roll them back after an error; yields the function `execute`."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection.execute
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
