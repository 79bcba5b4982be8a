"""Converts subscriptions and changes to rows of a store, and back."""

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
# The columns of the table; and the row of a change joined with the row that has its text, for changes without one.
COLUMNS: Final = ", ".join(_NAMES)
CHANGES: Final = "changes r LEFT JOIN changes c ON c.sequence = r.content"
CHANGE_COLUMNS: Final = ", ".join(f"{row}.{name}" for row in "rc" for name in _NAMES)
# Live subscriptions joined with the changes that they point to.
LIVE: Final = "subscriptions s LEFT JOIN changes r USING (sequence) LEFT JOIN changes c ON c.sequence = r.content"
LIVE_COLUMNS: Final = f"s.id, s.owner, s.expires, {CHANGE_COLUMNS}"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    """A subscription with all its fields in a store."""

    id: Id
    written: Written
    weight: float
    owner: str | None
    created: datetime
    expires: datetime | None

    def expression(self) -> Expression:
        """Return the parsed expression."""
        return self.written.expression()


class Change(NamedTuple):
    """One change: added, replaced, renewed, removed or expired; the last two have no subscription."""

    sequence: int
    kind: str
    id: Id
    at: datetime
    subscription: StoredSubscription | None


def microseconds(moment: datetime | None) -> int | None:
    """Return a time in the form that is stored."""
    if moment is None:
        return None
    if getattr(moment, "tzinfo", None) is None:
        raise SubscriptionError(f"a time must be a datetime with a time zone, not {moment!r}")
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(stored: int) -> datetime:
    """Return a stored time."""
    return _EPOCH + timedelta(microseconds=stored)


def stored_text(text: str) -> str | bytes:
    """Return a text in a form that SQLite accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def checksum_of(row: tuple[Any, ...]) -> int:
    """Return the checksum of some columns."""
    return zlib.crc32(repr(row).encode("utf-8", "surrogatepass"))


def row_checksum(row: tuple[Any, ...]) -> int:
    """Return the checksum of a row of `changes` without that column; `content` is left out if it is not set."""
    return checksum_of(row if row[-1] is not None else row[:-1])


def set_fact(execute: Any, name: str, value: int | str) -> None:
    """Write a fact about the whole store."""
    execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", (name, value, checksum_of((name, value))))


def fact(execute: Any, name: str, path: str) -> Any:
    """Return a fact about the whole store, None if it is not set."""
    row = execute("SELECT name, value, checksum FROM facts WHERE name = ?", (name,)).fetchone()
    if row is not None and checksum_of(row[:-1]) != row[-1]:
        raise StoreError(f"{path} is damaged: the fact {name!r} does not fit its checksum")
    return None if row is None else row[1]


def change_of(row: tuple[Any, ...], path: str) -> Change:
    """Return the change of a row with `CHANGE_COLUMNS`; raise if it is damaged."""
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
    """Return the change that a live subscription points to; `row` has the `LIVE_COLUMNS`."""
    id, owner, expires, *columns = row
    is_own = (columns[2], columns[7], columns[9]) == (id, owner, expires)
    if columns[1] not in (ADDED, REPLACED, RENEWED) or not is_own:
        raise StoreError(f"{path} is damaged: the subscription {id!r} points to a change that is not its own")
    return change_of(tuple(columns), path)
