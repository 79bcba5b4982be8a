"""The file of the log of notifications: its tables, its checksums, and the repair of an old or damaged file.

    logged        events that matched: sequence, time, payload, numbers of subscriptions; the newest are kept
    names         the subscriptions that the numbers stand for
    runs          the sequences that were in use, one run for each start of the broker (`losses.py`)
    cursors       the last settled event of each webhook, attempts at the next one, and when that is due
    letters       dead letters of webhooks, and why; their events are in `letter_events`, each once
    remembered    idempotency keys of publishes (`remembered.py`)
    published, matched    events for a cluster, and the matches that it has sent (`cluster.py`)
    facts         the last notification that was dropped

Every row has a checksum. The intact rows of a damaged file are copied into a new one, and the damaged file is kept
under another name; a file of version 0.1.0 is copied as well. The sequences show which events a copy lacks, and streams
report the gap.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import Any, Final

from siftline.broker import remembered
from siftline.broker.log_rows import checksum
from siftline.broker.old_log import copy_old_log
from siftline.broker.salvage import Salvage, open_damaged
from siftline.errors import StoreError
from siftline.storage.sqlite_files import open_sqlite, plain_errors, transaction

VERSION: Final = 2
_WAIT_SECONDS: Final = 5.0
# The broker's background thread checkpoints the write-ahead log. Beyond these bounds a commit does it as well.
_MOST_WAL_PAGES: Final = 16_384
_MOST_WAL_BYTES: Final = 64 << 20
# The columns of each table. The checksum, the last column, covers all of them.
TABLES: Final = {
    "logged": "sequence INTEGER PRIMARY KEY, at INTEGER NOT NULL, payload BLOB NOT NULL, matches BLOB NOT NULL,"
    " matches_checksum INTEGER NOT NULL",
    "names": "number INTEGER PRIMARY KEY, id NOT NULL",
    "runs": "first INTEGER PRIMARY KEY, last INTEGER NOT NULL",
    "cursors": "subscription PRIMARY KEY NOT NULL, sequence INTEGER NOT NULL, attempts INTEGER NOT NULL,"
    " due INTEGER NOT NULL",
    "letters": "number INTEGER PRIMARY KEY, subscription NOT NULL, sequence INTEGER NOT NULL,"
    " place INTEGER NOT NULL, at INTEGER NOT NULL, attempts INTEGER NOT NULL, reason TEXT NOT NULL",
    "letter_events": "sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL",
    "published": "sequence INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, payload BLOB NOT NULL",
    "matched": "event INTEGER NOT NULL, subscription NOT NULL",
    "facts": "name TEXT PRIMARY KEY NOT NULL, sequence INTEGER NOT NULL, place INTEGER NOT NULL",
}
_INDEXES: Final = (
    "CREATE INDEX IF NOT EXISTS letters_by_sequence ON letters (sequence)",
    "CREATE UNIQUE INDEX IF NOT EXISTS matched_by_event ON matched (event, subscription)",
)


def _is_whole(table: str, values: tuple[Any, ...]) -> bool:
    *columns, expected = values
    if table == "remembered":
        return remembered.is_whole(values)
    if table != "logged":
        return bool(checksum(*columns) == expected)
    sequence, at, payload, matches, matches_checksum = columns
    return bool(matches_checksum == checksum(sequence, matches) and expected == checksum(sequence, at, payload))


def connect(path: str) -> sqlite3.Connection:
    """Open the file for use by any thread."""
    connection = open_sqlite(path, is_read_only=False, wait_seconds=_WAIT_SECONDS)
    connection.execute(f"PRAGMA wal_autocheckpoint = {_MOST_WAL_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {_MOST_WAL_BYTES}")
    return connection


def open_log(path: str, most_bytes: int) -> list[str]:
    """Make sure that an intact file of this version exists; return what was wrong with the one before."""
    if os.path.exists(f"{path}-whole"):
        _switch(path)  # the last one was interrupted
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{path}-new{suffix}")  # an unfinished copy
    if not os.path.exists(path):
        _make(path)
        return []
    version, problems = VERSION, []
    try:
        with plain_errors(path):
            version = _version(path)
            problems = _problems(path)
    except StoreError as error:
        if not _is_damage(error):
            raise
        problems = [str(error)]
    if version == VERSION and not problems:
        return []
    return problems + _copied(path, most_bytes, is_damaged=bool(problems))


def _is_damage(error: StoreError) -> bool:
    """Return whether an error means that the file is damaged, and not that it cannot be read at the moment."""
    cause = error.__cause__
    if cause is None:
        return "is not a store" in str(error)
    name = getattr(cause, "sqlite_errorname", None) or ""
    return isinstance(cause, UnicodeDecodeError) or name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def _version(path: str) -> int:
    with contextlib.closing(connect(path)) as connection:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if version == 0 and not tables:
        _make(path)
        return VERSION
    if version > VERSION:
        raise StoreError(f"{path} is from a newer version of Siftline ({version}; this one knows {VERSION})")
    return version


def _make(path: str) -> None:
    with plain_errors(path), contextlib.closing(connect(path)) as connection:
        _create(connection)
    os.chmod(path, 0o600)  # events may be private


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("VACUUM")  # the mode of a file can only be changed while it is empty
    with transaction(connection) as execute:
        for table, columns in TABLES.items():
            execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns}, checksum INTEGER NOT NULL)")
        for statement in (*_INDEXES, *remembered.TABLES, f"PRAGMA user_version = {VERSION}"):
            execute(statement)


# checks and copies


def verify(path: str) -> list[str]:
    """Return what is wrong with a log of notifications, as texts, without changing it."""
    try:
        return _problems(path)
    except (sqlite3.Error, StoreError, UnicodeDecodeError) as error:
        return [f"{path}: {error}"]


def _problems(path: str) -> list[str]:
    with contextlib.closing(open_sqlite(path, is_read_only=True, wait_seconds=_WAIT_SECONDS)) as connection:
        found = [text for (text,) in connection.execute("PRAGMA quick_check(10)") if text != "ok"]
        problems = [f"{path}: {text}" for text in found]
        if connection.execute("PRAGMA user_version").fetchone()[0] < VERSION:
            return problems  # 0.1.0 had no checksums
        try:
            for table in (*TABLES, "remembered"):
                n_bad = sum(not _is_whole(table, values) for values in connection.execute(f"SELECT * FROM {table}"))
                if n_bad:
                    problems.append(f"{path}: {n_bad:,} rows of {table} do not fit their checksums")
        except (TypeError, ValueError) as error:
            problems.append(f"{path}: {error}")
        return problems


def _copied(path: str, most_bytes: int, *, is_damaged: bool) -> list[str]:
    """Replace a file by a new one with its intact rows; return which rows were left out.

    The old file stays in place until the new one is complete, and is kept under another name if a row was left out.
    """
    new_path = f"{path}-new"
    with plain_errors(path), contextlib.closing(connect(new_path)) as new:
        _create(new)
        problems = _copy(path, new, most_bytes, is_damaged=is_damaged)
        new.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if is_damaged or problems:
        aside = _put_aside(path)
        problems.append(f"{path} was damaged: what is whole of it is in a new file, and it is kept as {aside}")
    os.chmod(new_path, 0o600)
    os.replace(new_path, f"{path}-whole")  # from here on, a restart uses the new file
    _switch(path)
    return problems


def _copy(path: str, new: sqlite3.Connection, most_bytes: int, *, is_damaged: bool) -> list[str]:
    """Copy the readable rows; raise if something other than damage prevents it, such as a full disk."""
    old: sqlite3.Connection | None = None
    try:
        with plain_errors(path):
            old = open_damaged(path, _WAIT_SECONDS)
            tables = {name for (name,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "logged" in tables:
                return _copy_whole(old, new)
            with transaction(new) as execute:
                return copy_old_log(old, execute, most_bytes, is_damaged=is_damaged)
    except StoreError as error:
        if not _is_damage(error):
            raise
        return [f"{path}: nothing of it can be read ({error})"]
    finally:
        if old is not None:
            with contextlib.suppress(sqlite3.Error):
                old.close()


def _put_aside(path: str) -> str:
    """Link a damaged file under a name that is not in use, and return the name."""
    aside = f"{path}-damaged"
    n = 1
    while os.path.exists(aside):
        n += 1
        aside = f"{path}-damaged-{n}"
    for suffix in ("-wal", ""):
        if os.path.exists(path + suffix):
            os.link(path + suffix, aside + suffix)
    return aside


def _switch(path: str) -> None:
    """Replace the old file by the new one. If this is interrupted, the next start does it again."""
    for suffix in ("-wal", "-shm"):  # first, because SQLite would use them with the new file
        with contextlib.suppress(FileNotFoundError):
            os.remove(path + suffix)
    os.replace(f"{path}-whole", path)


def _copy_whole(old: sqlite3.Connection, new: sqlite3.Connection) -> list[str]:
    problems: list[str] = []
    for table in (*TABLES, "remembered"):
        n_columns = len(new.execute(f"PRAGMA table_info({table})").fetchall())
        n_whole = n_bad = 0
        with transaction(new) as execute:
            for values in (rows := Salvage(old, table)):
                try:
                    is_whole = len(values) == n_columns and _is_whole(table, values)
                except (TypeError, ValueError):
                    is_whole = False
                if is_whole:
                    execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * n_columns)})", values)
                n_whole, n_bad = n_whole + is_whole, n_bad + (not is_whole)
        if n_bad:
            problems.append(f"{n_bad:,} rows of {table} do not fit their checksums; {n_whole:,} do")
        if rows.lost:
            problems.append(f"some rows of {table} cannot be read; {n_whole:,} can")
    return problems
