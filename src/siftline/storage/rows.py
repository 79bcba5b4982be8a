"""Subscriptions and changes as they stand in the rows of a store, and back."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.errors import StoreError, SubscriptionError
from siftline.storage.written import Written

if TYPE_CHECKING:
    from siftline.ids import Id
    from siftline.model import Expression

ADDED: Final = "added"
REPLACED: Final = "replaced"
RENEWED: Final = "renewed"
REMOVED: Final = "removed"
EXPIRED: Final = "expired"

_NAMES: Final = (
    *("sequence", "kind", "id", "at", "dialect", "text", "weight", "owner", "created", "expires", "content"),
    "checksum",
)
# One row of the table, and a change: its row, and the one that it takes its text from if it has none of its own.
COLUMNS: Final = ", ".join(_NAMES)
CHANGES: Final = "changes r LEFT JOIN changes c ON c.sequence = r.content"
CHANGE_COLUMNS: Final = ", ".join(f"{row}.{name}" for row in "rc" for name in _NAMES)
# Live subscriptions with the changes that they stand in, and what points there.
LIVE: Final = "subscriptions s LEFT JOIN changes r USING (sequence) LEFT JOIN changes c ON c.sequence = r.content"
LIVE_COLUMNS: Final = f"s.id, s.owner, s.expires, {CHANGE_COLUMNS}"

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
    """One thing that happened: added, replaced, renewed, removed or expired; the last two have no subscription."""

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
    """Return the checksum of some columns."""
    return zlib.crc32(repr(row).encode("utf-8", "surrogatepass"))


def row_checksum(row: tuple[Any, ...]) -> int:
    """Return the checksum of a row of `changes`, given all its columns but that; most have no content elsewhere."""
    return checksum_of(row if row[-1] is not None else row[:-1])


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
    """Return the change that `CHANGE_COLUMNS` hold; raise if they are not what was written."""
    own, other = row[: len(_NAMES)], row[len(_NAMES) :]
    sequence, kind, id, at, dialect, text, weight, owner, created, expires, content, _ = own
    _check(own, path)
    if content is not None:
        _check(other, path)
        if other[2] != id or other[4] is None:
            raise StoreError(f"{path} is damaged: change {sequence} refers to a change that is not its own")
        dialect, text = other[4:6]
    if dialect is None:
        return Change(sequence, kind, id, moment_of(at), None)
    shown = text.decode("utf-8", "surrogatepass") if isinstance(text, bytes) else text
    until = None if expires is None else moment_of(expires)
    subscription = StoredSubscription(id, Written(dialect, shown), weight, owner, moment_of(created), until)
    return Change(sequence, kind, id, moment_of(at), subscription)


def _check(row: tuple[Any, ...], path: str) -> None:
    if row_checksum(row[:-1]) != row[-1]:
        raise StoreError(f"{path} is damaged: change {row[0]} does not fit its checksum")


def live_change(row: tuple[Any, ...], path: str) -> Change:
    """Return the change that a live subscription stands in; `row` has the `LIVE_COLUMNS`."""
    id, owner, expires, *columns = row
    is_own = (columns[2], columns[7], columns[9]) == (id, owner, expires)
    if columns[1] not in (ADDED, REPLACED, RENEWED) or not is_own:
        raise StoreError(f"{path} is damaged: the subscription {id!r} points to a change that is not its own")
    return change_of(tuple(columns), path)
