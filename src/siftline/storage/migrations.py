"""The tables of a store, as a list of migrations: step n makes version n + 1 of version n.

A new store runs through all steps, so each of them is tested. The versions added:

    1    subscriptions (id, dialect, text, weight, owner, created, expires)
    2    changes       all changes, in order, with numbers that are never reused; the content of a subscription is in
                       the change that set it, and `subscriptions` points there, so no content is stored twice
         facts         whether ids are integers or text; up to which number old changes were dropped
    3    readers       who follows the changes, and the last change that each has acknowledged
         checksums     of every change, so that a flipped bit is an error and never another subscription
    4    leases        the ticket of a subscription, as a salted hash, and its webhook
         keys          the API keys, as salted hashes too
    5    content       a renewal is a short change, which refers to the one that has the text
         superseded    changes that no subscription points to any more, so that compaction need not search for them: it
                       may drop them once all readers have `last`, the last change that refers to them

Times are microseconds since 1970, UTC. Ids and texts have no declared type: integers stay integers, and a text that
is not valid Unicode (half of a surrogate pair) is stored as bytes.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Final

from siftline.errors import StoreError
from siftline.storage.rows import checksum_of, set_fact
from siftline.storage.sqlite_files import transaction

if TYPE_CHECKING:
    from collections.abc import Callable

# "SIFT", which marks a SQLite file as a store.
APPLICATION_ID: Final = 0x53494654


def _make_subscriptions(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE subscriptions (id PRIMARY KEY NOT NULL, dialect TEXT NOT NULL, text NOT NULL,"
        " weight REAL NOT NULL, owner TEXT, created INTEGER NOT NULL, expires INTEGER)"
    )


def _make_changes(connection: sqlite3.Connection) -> None:
    execute = connection.execute
    # AUTOINCREMENT: a number is never used again, even if its row was deleted.
    execute(
        "CREATE TABLE changes (sequence INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, id NOT NULL,"
        " at INTEGER NOT NULL, dialect TEXT, text, weight REAL, owner TEXT, created INTEGER, expires INTEGER)"
    )
    execute(
        "INSERT INTO changes (kind, id, at, dialect, text, weight, owner, created, expires)"
        " SELECT 'added', id, created, dialect, text, weight, owner, created, expires"
        " FROM subscriptions ORDER BY created, rowid"
    )
    execute("DROP TABLE subscriptions")
    execute(
        "CREATE TABLE subscriptions (id PRIMARY KEY NOT NULL, sequence INTEGER NOT NULL, owner TEXT, expires INTEGER)"
        " WITHOUT ROWID"
    )
    execute("INSERT INTO subscriptions SELECT id, sequence, owner, expires FROM changes")
    execute("CREATE INDEX subscriptions_by_expires ON subscriptions (expires) WHERE expires IS NOT NULL")
    execute("CREATE INDEX subscriptions_by_owner ON subscriptions (owner) WHERE owner IS NOT NULL")
    execute("CREATE TABLE facts (name TEXT PRIMARY KEY NOT NULL, value, checksum INTEGER) WITHOUT ROWID")
    kind = execute("SELECT typeof(id) FROM changes LIMIT 1").fetchone()
    if kind is not None:
        set_fact(execute, "id_kind", kind[0])
    set_fact(execute, "compacted", 0)


def _make_readers(connection: sqlite3.Connection) -> None:
    execute = connection.execute
    execute("CREATE TABLE readers (name TEXT PRIMARY KEY NOT NULL, sequence INTEGER NOT NULL, at INTEGER NOT NULL)")
    execute("ALTER TABLE changes ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
    columns = "sequence, kind, id, at, dialect, text, weight, owner, created, expires"
    rows = execute(f"SELECT {columns} FROM changes").fetchall()
    connection.executemany(
        "UPDATE changes SET checksum = ? WHERE sequence = ?", ((checksum_of(row), row[0]) for row in rows)
    )


def _make_leases(connection: sqlite3.Connection) -> None:
    execute = connection.execute
    execute(
        "CREATE TABLE leases (id PRIMARY KEY NOT NULL, salt BLOB NOT NULL, digest BLOB NOT NULL, webhook TEXT,"
        " secret TEXT) WITHOUT ROWID"
    )
    execute("CREATE INDEX leases_with_webhooks ON leases (id) WHERE webhook IS NOT NULL")
    execute(
        "CREATE TABLE keys (id TEXT PRIMARY KEY NOT NULL, salt BLOB NOT NULL, digest BLOB NOT NULL, role TEXT NOT NULL,"
        " owner TEXT, created INTEGER NOT NULL) WITHOUT ROWID"
    )


def _make_superseded(connection: sqlite3.Connection) -> None:
    execute = connection.execute
    execute("ALTER TABLE changes ADD COLUMN content INTEGER")
    execute(
        "CREATE TABLE superseded (is_end INTEGER NOT NULL, last INTEGER NOT NULL, sequence INTEGER NOT NULL,"
        " PRIMARY KEY (is_end, last, sequence)) WITHOUT ROWID"
    )
    execute(
        "INSERT INTO superseded SELECT dialect IS NULL, sequence, sequence FROM changes"
        " WHERE sequence NOT IN (SELECT sequence FROM subscriptions)"
    )


_STEPS: Final[tuple[Callable[[sqlite3.Connection], None], ...]] = (
    _make_subscriptions,
    _make_changes,
    _make_readers,
    _make_leases,
    _make_superseded,
)

VERSION: Final = len(_STEPS)


def version_of(connection: sqlite3.Connection, path: str) -> int:
    """Return the version of a store, 0 for an empty file; raise if it is not a store, or newer than this program."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        (n_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application or version or n_tables:
            raise StoreError(f"{path} is a SQLite database, but not a store of subscriptions")
        return 0
    if version > VERSION:
        raise StoreError(
            f"{path} has version {version}, and this program knows versions up to {VERSION}: use a newer Siftline"
        )
    return int(version)


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring a store to the version of this program, in one transaction."""
    if version_of(connection, path) == VERSION:
        return
    with transaction(connection) as execute:
        for step in _STEPS[version_of(connection, path) :]:  # read again, because another process may have migrated it
            step(connection)
        execute(f"PRAGMA application_id = {APPLICATION_ID}")
        execute(f"PRAGMA user_version = {VERSION}")
    _enable_vacuum(connection)


def _enable_vacuum(connection: sqlite3.Connection) -> None:
    """Enable incremental vacuum for a file of an older version, which rewrites the file once; new files have it."""
    if connection.execute("PRAGMA auto_vacuum").fetchone() == (0,):
        with contextlib.suppress(sqlite3.OperationalError):  # not enough disk space; free pages are reused anyway
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
