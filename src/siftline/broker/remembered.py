"""Publishes that have been answered: who repeats one gets the first answer, and nobody is notified twice.

    scope, name  ──hash──►  key      the client's name for what it publishes, within its API key
    events       ──hash──►  digest   the same name with other events is an error
    answer                           how many events there were, and the number of the last notification then

A publish has one name, or each of its events has one (the `source` and `id` of a CloudEvent). The rows are written in
the transaction that writes the notifications, so there is never one without the other.

A name is remembered at least as long as the log has the last of its events that matched, and counts with that event in
the bytes of the log. Beside those the newest of the other names are remembered, up to a number.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.errors import IdempotencyError, LimitError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Sequence

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS remembered (number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, digest BLOB NOT NULL,"
    " events INTEGER NOT NULL, sequence INTEGER NOT NULL, logged INTEGER NOT NULL, checksum INTEGER NOT NULL)",
)

# What a name costs: a row in the file, and its place in the index by keys.
PUBLISH_NAME_BYTES: Final = 150
_HASH_BYTES: Final = 16
_MOST_CHARACTERS: Final = 255
_MOST_OVER: Final = 1000
_CALL, _EVENT = b"call", b"event"


class Name(NamedTuple):
    """What a publish is known by, and what was published under it; both are hashes."""

    key: bytes
    digest: bytes


class Answer(NamedTuple):
    """What a name stands for: how many events, and the number of the last notification when they were published."""

    digest: bytes
    events: int
    sequence: int

    def check(self, name: Name) -> None:
        """Raise if other events were published under the name."""
        if self.digest != name.digest:
            raise IdempotencyError(
                "the idempotency key was used for other events before; a new publish needs a new key"
            )


class Done(NamedTuple):
    """A name to remember.

    Attributes
    ----------
    name : Name
        The name.
    events : int
        How many events it stands for.
    logged : int
        The last of them that matched, counted from 1 among those that are written to the log together; 0 if none did.
    """

    name: Name
    events: int
    logged: int


def call_name(scope: str, name: str, events: Sequence[bytes]) -> Name:
    """Return how a publish of several events is known.

    >>> call_name("key_1", "order 7", [b"{}"]) == call_name("key_2", "order 7", [b"{}"])
    False
    """
    if not 1 <= len(name) <= _MOST_CHARACTERS:
        raise LimitError(f"an idempotency key is a text of 1 to {_MOST_CHARACTERS} characters")
    return Name(_hash(_CALL, _encoded(scope), _encoded(name)), _hash(*events))


def named_event(scope: str, name: str, event: bytes) -> Name:
    """Return how one event is known."""
    return Name(_hash(_EVENT, _encoded(scope), _encoded(name)), _hash(event))


def event_name(source: str, id: str) -> str:
    """Return the name of a CloudEvent, which its source and its id make.

    >>> event_name("/a", "b/c") == event_name("/a/b", "c")
    False
    """
    return f"{len(source)}:{source}{id}"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hash(*parts: bytes) -> bytes:
    found = hashlib.blake2b(digest_size=_HASH_BYTES)
    for part in parts:
        found.update(b"%d:" % len(part))
        found.update(part)
    return found.digest()


class Remembered:
    """The names in the file of the log; one thread adds.

    Parameters
    ----------
    connection : sqlite3.Connection
        Reads; nobody else uses it.
    most : int
        Names that are kept, beside those whose notifications the log has.
    """

    def __init__(self, connection: sqlite3.Connection, most: int) -> None:
        self._connection, self._most = connection, most
        for table in TABLES:
            connection.execute(table)
        self._guard = threading.Lock()  # of the count
        self._n: int = connection.execute("SELECT count(*) FROM remembered").fetchone()[0]

    def __len__(self) -> int:
        return self._n

    def find(self, keys: Iterable[bytes]) -> dict[bytes, Answer]:
        """Return the answers to names that are known."""
        query = "SELECT digest, events, sequence, checksum FROM remembered WHERE key = ?"
        found: dict[bytes, Answer] = {}
        for key in keys:
            row = self._connection.execute(query, (key,)).fetchone()
            if row is not None and row[3] == _checksum(key, *row[:3]):  # a damaged one is as good as none
                found[key] = Answer(*row[:3])
        return found

    def add(self, executemany: Callable[..., Any], done: Iterable[Done], before: int, sequence: int) -> None:
        """Write names in a transaction that is open; call `added` when it is over.

        The events that are written with them have the numbers after `before`, up to `sequence`.
        """
        executemany(
            "INSERT OR REPLACE INTO remembered (key, digest, events, sequence, logged, checksum)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [
                (
                    name.key,
                    name.digest,
                    n_events,
                    sequence,
                    before + logged if logged else 0,
                    _checksum(name.key, name.digest, n_events, sequence),
                )
                for name, n_events, logged in done
            ],
        )

    def by_event(self) -> dict[int, int]:
        """Return how many names there are of each event that has any."""
        query = "SELECT logged, count(*) FROM remembered WHERE logged > 0 GROUP BY logged"
        return dict(self._connection.execute(query).fetchall())

    def added(self, n: int) -> None:
        """Count names that were written, or less than none if they were forgotten."""
        with self._guard:
            self._n += n

    def n_over(self, n_logged: int) -> int:
        """Return how many names there are beyond the bound, beside those of events that the log has."""
        return max(0, self._n - n_logged - self._most)

    def is_far_over(self, n_logged: int) -> bool:
        """Return whether there are so many that they cannot wait for being forgotten."""
        return self.n_over(n_logged) > max(self._most, _MOST_OVER)

    def trim(self, execute: Callable[..., sqlite3.Cursor], first: int, n_logged: int) -> int:
        """Forget the oldest names beyond the bound, but none of events from `first` on; return how many.

        Call `added` when the transaction is over.
        """
        query = (
            "DELETE FROM remembered WHERE number IN"
            " (SELECT number FROM remembered WHERE logged < ? ORDER BY number LIMIT ?)"
        )
        return execute(query, (first, self.n_over(n_logged))).rowcount


def is_whole(row: tuple[Any, ...]) -> bool:
    """Return whether a row of the table fits its checksum."""
    _, key, digest, events, sequence, _, checksum = row
    return bool(checksum == _checksum(key, digest, events, sequence))


def _checksum(key: bytes, digest: bytes, events: int, sequence: int) -> int:
    return zlib.crc32(b"%b %b %d %d" % (key, digest, events, sequence))
