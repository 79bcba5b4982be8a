"""Remembered publishes: a client that repeats one gets the first answer, and nobody is notified twice.

    scope, name  ──hash──►  key      the client's name for what it publishes, within its API key
    events       ──hash──►  digest   the same name with other events is an error
    answer                           the number of events, and the number of the last event in the log

A publish has one name, its idempotency key, or each of its events has one (the `source` and `id` of a CloudEvent). The
names are written in the transaction that writes the notifications, so neither exists without the other.

A name is remembered at least as long as the log has the last of its events that matched, and counts with that event in
the bytes of the log. Of the other names, the newest are remembered, up to a bound.
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

# The bytes of a name: a row in the file, and an entry in the index by keys.
PUBLISH_NAME_BYTES: Final = 150
_HASH_BYTES: Final = 16
_MOST_CHARACTERS: Final = 255
_MOST_OVER: Final = 1000
_CALL, _EVENT = b"call", b"event"


class Name(NamedTuple):
    """The hash of the name of a publish, and the hash of its events."""

    key: bytes
    digest: bytes


class Answer(NamedTuple):
    """The answer to a name: the hash of its events, their number, and the number of the last event in the log."""

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
        The last of them that matched, counted from 1 among the events that are written together; 0 if none matched.
    """

    name: Name
    events: int
    logged: int


def call_name(scope: str, name: str, events: Sequence[bytes]) -> Name:
    """Return the name of a publish.

    >>> call_name("key_1", "order 7", [b"{}"]) == call_name("key_2", "order 7", [b"{}"])
    False
    """
    if not 1 <= len(name) <= _MOST_CHARACTERS:
        raise LimitError(f"an idempotency key is a text of 1 to {_MOST_CHARACTERS} characters")
    return Name(_hash(_CALL, _encoded(scope), _encoded(name)), _hash(*events))


def named_event(scope: str, name: str, event: bytes) -> Name:
    """Return the name of one event."""
    return Name(_hash(_EVENT, _encoded(scope), _encoded(name)), _hash(event))


def event_name(source: str, id: str) -> str:
    """Return the name of a CloudEvent, which consists of its source and its id.

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
    """The names in the file of the log; one thread adds names.

    Parameters
    ----------
    connection : sqlite3.Connection
        For reading; used by nobody else.
    most : int
        How many names are kept, besides those whose notifications the log has.
    """

    def __init__(self, connection: sqlite3.Connection, most: int) -> None:
        self._connection, self._most = connection, most
        for table in TABLES:
            connection.execute(table)
        self._guard = threading.Lock()  # protects the count
        self._n: int = connection.execute("SELECT count(*) FROM remembered").fetchone()[0]

    def __len__(self) -> int:
        return self._n

    def find(self, keys: Iterable[bytes]) -> dict[bytes, Answer]:
        """Return the answers to the names that are remembered."""
        query = "SELECT digest, events, sequence, checksum FROM remembered WHERE key = ?"
        found: dict[bytes, Answer] = {}
        for key in keys:
            row = self._connection.execute(query, (key,)).fetchone()
            if row is not None and row[3] == _checksum(key, *row[:3]):  # a damaged row is ignored
                found[key] = Answer(*row[:3])
        return found

    def add(self, executemany: Callable[..., Any], done: Iterable[Done], before: int, sequence: int) -> None:
        """Write names in an open transaction; call `added` when it is committed.

        The events that are written with them have the numbers after `before` up to `sequence`.
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
        """Return the number of names of each event that has any."""
        query = "SELECT logged, count(*) FROM remembered WHERE logged > 0 GROUP BY logged"
        return dict(self._connection.execute(query).fetchall())

    def added(self, n: int) -> None:
        """Add to the count the names that were written, or subtract those that were forgotten."""
        with self._guard:
            self._n += n

    def n_over(self, n_logged: int) -> int:
        """Return how many names exceed the bound, without those of events that the log has."""
        return max(0, self._n - n_logged - self._most)

    def is_far_over(self, n_logged: int) -> bool:
        """Return whether so many names exceed the bound that they have to be forgotten at once."""
        return self.n_over(n_logged) > max(self._most, _MOST_OVER)

    def trim(self, execute: Callable[..., sqlite3.Cursor], first: int, n_logged: int) -> int:
        """Forget the oldest names beyond the bound, but none of events from `first` on; return how many.

        Call `added` when the transaction is committed.
        """
        query = (
            "DELETE FROM remembered WHERE number IN"
            " (SELECT number FROM remembered WHERE logged < ? ORDER BY number LIMIT ?)"
        )
        return execute(query, (first, self.n_over(n_logged))).rowcount


def is_whole(row: tuple[Any, ...]) -> bool:
    """Return whether the checksum of a row is right."""
    _, key, digest, events, sequence, _, checksum = row
    return bool(checksum == _checksum(key, digest, events, sequence))


def _checksum(key: bytes, digest: bytes, events: int, sequence: int) -> int:
    return zlib.crc32(b"%b %b %d %d" % (key, digest, events, sequence))
