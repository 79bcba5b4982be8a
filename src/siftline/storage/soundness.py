"""Verifies a store: the structure of its file, by SQLite, and the checksum of every change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from siftline.errors import StoreError, SubscriptionError
from siftline.storage.rows import (
    CHANGE_COLUMNS,
    CHANGES,
    LIVE,
    LIVE_COLUMNS,
    StoredSubscription,
    change_of,
    live_change,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable


def damage(connection: sqlite3.Connection, check: str) -> list[str]:
    """Return what SQLite finds wrong with the structure of a file."""
    found = [str(line) for (line,) in connection.execute(f"PRAGMA {check}")]
    return [] if found == ["ok"] else found


def problems_of(connection: sqlite3.Connection, path: str, advance: Callable[[int], None]) -> list[str]:
    """Return all problems of a store; `advance` is called for each row that was checked."""
    problems = damage(connection, "integrity_check")
    if problems:
        return problems
    for row in connection.execute(f"SELECT {CHANGE_COLUMNS} FROM {CHANGES} ORDER BY r.sequence"):
        problems += _refusal(lambda row=row: change_of(row, path))  # type: ignore[misc]
        advance(1)
    for row in connection.execute(f"SELECT {LIVE_COLUMNS} FROM {LIVE} ORDER BY s.sequence"):
        problems += _refusal(lambda row=row: live_subscription(row, path).expression())  # type: ignore[misc]
        advance(1)
    return problems


def live_subscription(row: tuple[Any, ...], path: str) -> StoredSubscription:
    """Return the subscription of a row with `LIVE_COLUMNS`; raise if it is damaged."""
    subscription = live_change(row, path).subscription
    if subscription is None:
        raise StoreError(f"{path} is damaged: the subscription {row[0]!r} has no content")
    return subscription


def _refusal(attempt: Callable[[], Any]) -> list[str]:
    try:
        attempt()
    except (StoreError, SubscriptionError) as error:
        return [str(error)]
    return []
