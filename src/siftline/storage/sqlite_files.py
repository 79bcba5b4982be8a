"""Opening SQLite files, and saying in plain words what is wrong with them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from siftline.errors import StoreError, StoreLockedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAGIC: Final = b"SQLite format 3\0"

# What SQLite calls an error, by the beginning of the name, and what that means to the owner of a store.
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


@contextlib.contextmanager
def plain_errors(path: str) -> Iterator[None]:
    """Turn what SQLite raises into StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        raise plain_error(error, path) from error
    except UnicodeDecodeError as error:  # of names in a damaged schema, or in the message about it
        raise StoreError(f"{path}: it is damaged (a name is not UTF-8)") from error


def plain_error(error: sqlite3.Error, path: str) -> StoreError:
    """Return the error that says what happened."""
    name = getattr(error, "sqlite_errorname", None) or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreLockedError(f"{path} is locked: another process is writing into it")
    meaning = next((meaning for prefix, meaning in _MEANINGS if name.startswith(prefix)), "")
    return StoreError(f"{path}: {meaning} ({error})" if meaning else f"{path}: {error}")


def open_sqlite(path: str, *, is_read_only: bool, wait_seconds: float) -> sqlite3.Connection:
    """Open a file for any thread, with transactions left to the caller."""
    _refuse_what_is_none(Path(path), is_read_only)
    uri = f"file:{quote(os.path.abspath(path))}?mode={'ro' if is_read_only else 'rwc'}"
    if is_read_only and not os.access(Path(path).resolve().parent, os.W_OK) and not has_log(path):
        uri += "&immutable=1"  # nobody can be writing, and SQLite need not make the files that writers share
    connection = sqlite3.connect(uri, wait_seconds, isolation_level=None, check_same_thread=False, uri=True)
    try:
        connection.execute("PRAGMA cache_size = -16384")
        if not is_read_only:
            _make_durable(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def has_log(path: str) -> bool:
    """Return whether something was committed that is in the log alone, or may be."""
    return os.path.exists(os.path.realpath(path) + "-wal")


def _refuse_what_is_none(path: Path, is_read_only: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a directory, not a store of subscriptions")
    if not path.exists():
        if is_read_only:
            raise StoreError(f"{path} does not exist")
        if not path.absolute().parent.is_dir():
            raise StoreError(f"{path} cannot be made: its directory does not exist")
        return
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    if head and head != _MAGIC:
        raise StoreError(f"{path} is not a store of subscriptions")


def _make_durable(connection: sqlite3.Connection, path: str) -> None:
    """Let readers and the writer not wait for each other, and let a commit return only when the disk has it."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"{path}: this file system cannot keep a write-ahead log ({mode})")
    connection.execute("PRAGMA synchronous = FULL")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[Callable[..., sqlite3.Cursor]]:
    """Commit what the block does, or undo it; give what executes statements."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection.execute
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
