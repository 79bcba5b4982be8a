"""The file of the log of notifications: its tables, checksums, and what to do with an old or damaged one.

    logged        events that matched: sequence, time, payload, numbers of subscriptions     the newest are kept
    names         the subscriptions that the numbers stand for
    runs          the sequences that were in use, by start of the broker (`losses.py`)
    cursors       how far each webhook has come, how often the next one was tried, when it is due
    letters       what webhooks did not take, and why; the events of them are in `letter_events`, each once
    remembered    publishes that have names (`remembered.py`)
    published, matched    events for a cluster, and what it has matched (`cluster.py`)
    facts         the last notification that was dropped

Every row has a checksum. A file that is damaged is put aside, and what is whole is copied into a new one; so is a file
of version 0.1.0. What a copy lacks can be seen in the sequences, and streams are told of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import zlib
from typing import TYPE_CHECKING, Any, Final

from siftline.broker import remembered
from siftline.broker.recent import event_cost
from siftline.errors import StoreError
from siftline.storage.sqlite_files import open_sqlite, plain_errors, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSION: Final = 2
_WAIT_SECONDS: Final = 5.0
# The write-ahead log is moved into the file by a thread of the broker; if that cannot keep up, by whoever commits.
_MOST_WAL_PAGES: Final = 16_384
_MOST_WAL_BYTES: Final = 64 << 20
# Columns of each table: all are in the checksum, which comes last. The first is the key by which rows are copied.
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


def checksum(*values: Any) -> int:
    """Return the checksum of a row.

    >>> checksum(1, "ann") == checksum(1, "ann") != checksum(1, "anne")
    True
    """
    found = 0
    for value in values:
        part = value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogatepass")
        found = zlib.crc32(part, zlib.crc32(b"%d:" % len(part), found))
    return found


def insert(table: str, n_values: int, or_replace: bool = False) -> str:
    """Return the statement that writes a row of a table, with its checksum."""
    return f"INSERT {'OR REPLACE ' if or_replace else ''}INTO {table} VALUES ({', '.join('?' * n_values)}, ?)"


def row(*values: Any) -> tuple[Any, ...]:
    """Return a row with its checksum."""
    return (*values, checksum(*values))


def event_row(sequence: int, at: int, payload: bytes, matches: bytes) -> tuple[Any, ...]:
    """Return a row of `logged`: the payload has a checksum of its own, because it is read without the matches."""
    return sequence, at, payload, matches, checksum(sequence, matches), checksum(sequence, at, payload)


def _is_whole(table: str, values: tuple[Any, ...]) -> bool:
    *columns, expected = values
    if table == "remembered":
        return remembered.is_whole(values)
    if table != "logged":
        return bool(checksum(*columns) == expected)
    sequence, at, payload, matches, matches_checksum = columns
    return bool(matches_checksum == checksum(sequence, matches) and expected == checksum(sequence, at, payload))


def connect(path: str) -> sqlite3.Connection:
    """Open the file for any thread."""
    connection = open_sqlite(path, is_read_only=False, wait_seconds=_WAIT_SECONDS)
    connection.execute(f"PRAGMA wal_autocheckpoint = {_MOST_WAL_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {_MOST_WAL_BYTES}")
    return connection


def open_log(path: str, most_bytes: int) -> list[str]:
    """Make sure that there is a file of this version that is whole; return what was wrong with the one before."""
    if os.path.exists(f"{path}-whole"):
        _switch(path)  # which a kill has interrupted
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{path}-new{suffix}")  # a copy that was not finished
    if not os.path.exists(path):
        _make(path)
        return []
    problems: list[str] = []
    version = VERSION
    try:
        with plain_errors(path):
            version = _version(path)
    except StoreError as error:
        if not _is_damage(error):
            raise
        problems = [str(error)]
    if version > VERSION:
        raise StoreError(f"{path} is from a newer version of Siftline ({version}; this one knows {VERSION})")
    if version == VERSION and not problems:
        problems = _damage(path)
    if version == VERSION and not problems:
        return []
    return problems + _copied(path, version, most_bytes, has_problems=bool(problems))


def _damage(path: str) -> list[str]:
    """Return what is damaged; raise if the file cannot be looked at, by which nothing is said about it."""
    try:
        with plain_errors(path):
            return _problems(path)
    except StoreError as error:
        if not _is_damage(error):
            raise
        return [str(error)]


def _is_damage(error: StoreError) -> bool:
    """Return whether an error says that the file is damaged, and not that it cannot be reached."""
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
    return version


def _make(path: str) -> None:
    with plain_errors(path), contextlib.closing(connect(path)) as connection:
        _create(connection)
    os.chmod(path, 0o600)  # events may be private


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("VACUUM")  # only an empty file can be given another mode
    with transaction(connection) as execute:
        for table, columns in TABLES.items():
            execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns}, checksum INTEGER NOT NULL)")
        for statement in (*_INDEXES, *remembered.TABLES, f"PRAGMA user_version = {VERSION}"):
            execute(statement)


# what is whole


def verify(path: str) -> list[str]:
    """Return what is wrong with a log of notifications, in words; nothing is changed."""
    try:
        return _problems(path)
    except (sqlite3.Error, StoreError, UnicodeDecodeError) as error:
        return [f"{path}: {error}"]


def _problems(path: str) -> list[str]:
    with contextlib.closing(open_sqlite(path, is_read_only=True, wait_seconds=_WAIT_SECONDS)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version < VERSION:
            return []  # of 0.1.0, which had no checksums
        found = [text for (text,) in connection.execute("PRAGMA quick_check(10)") if text != "ok"]
        problems = [f"{path}: {text}" for text in found]
        try:
            for table in (*TABLES, "remembered"):
                n_bad = sum(not _is_whole(table, values) for values in connection.execute(f"SELECT * FROM {table}"))
                if n_bad:
                    problems.append(f"{path}: {n_bad:,} rows of {table} do not fit their checksums")
        except (TypeError, ValueError) as error:
            problems.append(f"{path}: {error}")
        return problems


def _copied(path: str, version: int, most_bytes: int, *, has_problems: bool) -> list[str]:
    """Put what is whole of a file into a new one in its place; return what was left behind.

    The old file stays as it is until the new one is complete, and aside if anything of it was left out.
    """
    new_path = f"{path}-new"
    with plain_errors(path), contextlib.closing(connect(new_path)) as new:
        _create(new)
        problems = _copy(path, new, _copy_first_version if version < VERSION else _copy_whole, most_bytes)
        new.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if has_problems or problems:
        aside = _put_aside(path)
        problems.append(f"{path} was damaged: what is whole of it is in a new file, and it is kept as {aside}")
    os.chmod(new_path, 0o600)
    os.replace(new_path, f"{path}-whole")  # from here on a start goes on with the new one
    _switch(path)
    return problems


def _copy(path: str, new: sqlite3.Connection, copy: Callable[..., list[str]], most_bytes: int) -> list[str]:
    """Copy the rows that can be read; raise if something else than damage prevents it, a full disk, say."""
    old: sqlite3.Connection | None = None
    try:
        with plain_errors(path):
            old = connect(path)
            return copy(old, new, most_bytes)
    except StoreError as error:
        if not _is_damage(error):
            raise
        return [f"{path}: nothing of it can be read ({error})"]
    except (TypeError, ValueError) as error:  # of rows without checksums
        return [f"{path}: nothing of it can be read ({error})"]
    finally:
        if old is not None:
            with contextlib.suppress(sqlite3.Error):
                old.close()


def _put_aside(path: str) -> str:
    """Keep a file under another name as well, and what was kept before under its own; return the name."""
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
    """Let the new file take the place of the old one. If that is interrupted, the next start does it again."""
    for suffix in ("-wal", "-shm"):  # first: SQLite would take them for those of the new file
        with contextlib.suppress(FileNotFoundError):
            os.remove(path + suffix)
    os.replace(f"{path}-whole", path)


def _copy_whole(old: sqlite3.Connection, new: sqlite3.Connection, most_bytes: int) -> list[str]:
    problems: list[str] = []
    for table in (*TABLES, "remembered"):
        n_columns = len(new.execute(f"PRAGMA table_info({table})").fetchall())
        n_whole = n_bad = 0
        with transaction(new) as execute:
            for values in _readable(old, table):
                try:
                    is_whole = len(values) == n_columns and _is_whole(table, values)
                except (TypeError, ValueError):
                    is_whole = False
                if is_whole:
                    execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * n_columns)})", values)
                n_whole, n_bad = n_whole + is_whole, n_bad + (not is_whole)
        if n_bad:
            problems.append(f"{n_bad:,} rows of {table} do not fit their checksums; {n_whole:,} do")
    return problems


def _readable(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that can be read: from the beginning up to a damaged page, then from the end back to one."""
    seen: set[Any] = set()
    for order in ("ASC", "DESC"):
        try:
            rows = connection.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid {order}")
            for number, *values in rows:
                if number in seen:
                    return
                seen.add(number)
                yield tuple(values)
            return
        except (sqlite3.Error, UnicodeDecodeError, OverflowError):
            continue


# version 0.1.0


def _copy_first_version(old: sqlite3.Connection, new: sqlite3.Connection, most_bytes: int) -> list[str]:
    """Copy a log of version 0.1.0, the newest events as far as they are within the bound."""
    tables = {name for (name,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    with transaction(new) as execute:
        if "events" in tables:
            _copy_events(old, execute, most_bytes)
        if "deliveries" in tables:
            _copy_deliveries(old, execute)
        if "dead_letters" in tables:
            _copy_letters(old, execute)
        if "published" in tables:
            for values in old.execute("SELECT sequence, at, payload FROM published ORDER BY sequence"):
                execute(insert("published", 3), row(*values))
        if "matched" in tables:
            for values in old.execute("SELECT event, subscription FROM matched"):
                execute(insert("matched", 2), row(*values))
        if "remembered" in tables:
            for values in old.execute("SELECT * FROM remembered ORDER BY number"):
                execute(f"INSERT INTO remembered VALUES ({', '.join('?' * len(values))})", values)
    return []


def _copy_events(old: sqlite3.Connection, execute: Callable[..., Any], most_bytes: int) -> None:
    import numpy as np

    numbers: dict[Any, int] = {}
    before, n_places = _cut(old, most_bytes), 0
    floor, last = before, before
    query = "SELECT sequence, at, payload, subscriptions FROM events WHERE sequence > ? ORDER BY sequence"
    for sequence, at, payload, subscriptions in old.execute(query, (before,)):
        ids = json.loads(subscriptions)
        for id in ids:
            if id not in numbers:
                numbers[id] = len(numbers)
                execute(insert("names", 2), row(numbers[id], id))
        matches = np.array([numbers[id] for id in ids], "<u4").tobytes()
        execute("INSERT INTO logged VALUES (?, ?, ?, ?, ?, ?)", event_row(sequence, at, payload, matches))
        if sequence != last + 1:
            floor = sequence - 1  # what was before it is gone, but for events that webhooks still had to get
        last = sequence
    execute(insert("runs", 2), row(1, last))
    execute(insert("facts", 3), row("floor", floor, n_places))


def _cut(old: sqlite3.Connection, most_bytes: int) -> int:
    """Return the newest event that is too much."""
    query = "SELECT sequence, length(payload), length(subscriptions) FROM events ORDER BY sequence DESC"
    for sequence, n_bytes, n_characters in old.execute(query):
        most_bytes -= event_cost(n_bytes, n_characters // 4)
        if most_bytes < 0:
            return int(sequence)
    (first,) = old.execute("SELECT coalesce(min(sequence), 1) FROM events").fetchone()
    return int(first) - 1


def _copy_deliveries(old: sqlite3.Connection, execute: Callable[..., Any]) -> None:
    # SQLite takes the other columns from the row with the minimum.
    query = "SELECT subscription, min(sequence) - 1, attempts, due FROM deliveries GROUP BY subscription"
    for values in old.execute(query):
        execute(insert("cursors", 4), row(*values))


def _copy_letters(old: sqlite3.Connection, execute: Callable[..., Any]) -> None:
    query = "SELECT number, subscription, notification, at, attempts, reason, payload FROM dead_letters ORDER BY number"
    for number, subscription, notification, at, attempts, reason, payload in old.execute(query):
        sequence, _, place = notification.partition("-")
        execute(insert("letters", 7), row(number, subscription, int(sequence), int(place), at, attempts, reason))
        execute(insert("letter_events", 2, or_replace=True), row(int(sequence), payload))
