"""Subscriptions and changes as they stand in the rows of a store, and back."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.errors import StoreError, SubscriptionError
from siftline.storage.written import Written

if TYPE_CHECKING:
    from siftline.model import Expression
    from siftline.subscriptions import Id

ADDED: Final = "added"
REPLACED: Final = "replaced"
REMOVED: Final = "removed"
EXPIRED: Final = "expired"

COLUMNS: Final = "sequence, kind, id, at, dialect, text, weight, owner, created, expires, checksum"
# Live subscriptions with the changes that they stand in, and what points there.
LIVE: Final = "subscriptions s LEFT JOIN changes c USING (sequence)"
LIVE_COLUMNS: Final = (
    "s.id, s.owner, s.expires, s.sequence, kind, c.id, at, dialect, text, weight, c.owner, created, c.expires, checksum"
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    """A subscription with everything that a store knows about it."""

    id: Id
    written: Written
    weight: float
    owner: str | None
    created: datetime
    expires: datetime | None

    def expression(self) -> Expression:
        """Return the expression, parsed."""
        return self.written.expression()


class Change(NamedTuple):
    """One thing that happened: `kind` is added, replaced, removed or expired; the last two have no subscription."""

    sequence: int
    kind: str
    id: Id
    at: datetime
    subscription: StoredSubscription | None


def microseconds(moment: datetime | None) -> int | None:
    """Return a time as it is stored."""
    if moment is None:
        return None
    if getattr(moment, "tzinfo", None) is None:
        raise SubscriptionError(f"a time must be a datetime with a time zone, not {moment!r}")
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(stored: int) -> datetime:
    """Return a stored time."""
    return _EPOCH + timedelta(microseconds=stored)


def stored_text(text: str) -> str | bytes:
    """Return text as SQLite takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def checksum_of(row: tuple[Any, ...]) -> int:
    """Return the checksum of a change: of all its columns but the checksum itself."""
    return zlib.crc32(repr(row).encode("utf-8", "surrogatepass"))


def set_fact(execute: Any, name: str, value: int | str) -> None:
    """Write down something about the whole store."""
    execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", (name, value, checksum_of((name, value))))


def fact(execute: Any, name: str, path: str) -> Any:
    """Return something about the whole store, None if it is not known."""
    row = execute("SELECT name, value, checksum FROM facts WHERE name = ?", (name,)).fetchone()
    if row is not None and checksum_of(row[:-1]) != row[-1]:
        raise StoreError(f"{path} is damaged: the fact {name!r} does not fit its checksum")
    return None if row is None else row[1]


def change_of(row: tuple[Any, ...], path: str) -> Change:
    """Return the change that a row holds; raise if the row is not what was written."""
    sequence, kind, id, at, dialect, text, weight, owner, created, expires, checksum = row
    if checksum_of(row[:-1]) != checksum:
        raise StoreError(f"{path} is damaged: change {sequence} does not fit its checksum")
    if dialect is None:
        return Change(sequence, kind, id, moment_of(at), None)
    shown = text.decode("utf-8", "surrogatepass") if isinstance(text, bytes) else text
    until = None if expires is None else moment_of(expires)
    subscription = StoredSubscription(id, Written(dialect, shown), weight, owner, moment_of(created), until)
    return Change(sequence, kind, id, moment_of(at), subscription)


def live_change(row: tuple[Any, ...], path: str) -> Change:
    """Return the change that a live subscription stands in; `row` has the `LIVE_COLUMNS`."""
    id, owner, expires, *columns = row
    if columns[1] not in (ADDED, REPLACED) or (columns[2], columns[7], columns[9]) != (id, owner, expires):
        raise StoreError(f"{path} is damaged: the subscription {id!r} points to a change that is not its own")
    return change_of(tuple(columns), path)
