"""The pending notifications of each webhook: how many, after which event, and when the next one is due."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from siftline.ids import Id


class Waiting:
    """The cursors of webhooks in memory; thread-safe.

    A webhook gets its notifications in order, one at a time. So it is enough to know its cursor, the last event that it
    has accepted or that was given up, and how often the next one was tried.

    Examples
    --------
    >>> waiting = Waiting()
    >>> waiting.added({"ann": 2, "bob": 1}, 7)
    >>> waiting.postponed("ann", attempts=1, due=500)
    >>> waiting.ready(now=100, busy=()), waiting.cursor("ann"), waiting.attempts("ann")
    (['bob'], 6, 1)
    >>> waiting.moved("bob", 7)
    >>> waiting.ready(now=500, busy=()), len(waiting), waiting.crowded(most=1)
    (['ann'], 2, [('ann', 2)])
    """

    def __init__(self) -> None:
        self._cursors: dict[Id, int] = {}
        self._counts: dict[Id, int] = {}  # only of webhooks with pending notifications
        self._tries: dict[Id, tuple[int, int]] = {}  # attempts at the next notification, and when it is due
        self._n = 0
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return self._n

    def put(self, id: Id, cursor: int, n: int, attempts: int, due: int) -> None:
        """Set the state of a webhook from the file."""
        self._cursors[id], self._counts[id] = cursor, n
        self._n += n
        if attempts:
            self._tries[id] = attempts, due

    def unknown(self, ids: Iterable[Id]) -> list[Id]:
        """Return the webhooks without a cursor."""
        with self._guard:
            return [id for id in ids if id not in self._cursors]

    def added(self, counts: dict[Id, int], first: int) -> None:
        """Add pending notifications for each webhook, of events from a number on."""
        with self._guard:
            for id, n in counts.items():
                self._cursors.setdefault(id, first - 1)
                self._counts[id] = self._counts.get(id, 0) + n
                self._n += n

    def moved(self, id: Id, cursor: int) -> None:
        """Move a cursor after a delivery or a dead letter, and put the webhook last; a repeated call has no effect."""
        with self._guard:
            if cursor <= self._cursors.get(id, cursor):
                return
            self._cursors[id] = cursor
            self._tries.pop(id, None)
            left = self._counts.pop(id, 0)
            self._n -= min(1, left)
            if left > 1:
                self._counts[id] = left - 1

    def postponed(self, id: Id, attempts: int, due: int) -> None:
        """Set when the next notification is tried again."""
        with self._guard:
            if id in self._counts:
                self._tries[id] = attempts, due

    def emptied(self, id: Id, cursor: int | None, n: int) -> None:
        """Forget a webhook for which the log has nothing, unless its state has changed since it was read."""
        with self._guard:
            if (self._cursors.get(id), self._counts.get(id, 0)) == (cursor, n):
                self._forget(id)

    def known(self, id: Id) -> tuple[int | None, int]:
        """Return the cursor of a webhook and the number of its pending notifications."""
        with self._guard:
            return self._cursors.get(id), self._counts.get(id, 0)

    def forgotten(self, id: Id) -> None:
        """Forget a webhook."""
        with self._guard:
            self._forget(id)

    def _forget(self, id: Id) -> None:
        self._n -= self._counts.pop(id, 0)
        self._cursors.pop(id, None)
        self._tries.pop(id, None)

    def cursor(self, id: Id) -> int | None:
        """Return the cursor of a webhook, None if it has none."""
        with self._guard:
            return self._cursors.get(id)

    def attempts(self, id: Id) -> int:
        """Return how often the next notification was tried."""
        with self._guard:
            return self._tries.get(id, (0, 0))[0]

    def crowded(self, most: int) -> list[tuple[Id, int]]:
        """Return the webhooks with more pending notifications than a number, and how many."""
        with self._guard:
            return [(id, n) for id, n in self._counts.items() if n > most]

    def ready(self, now: int, busy: Collection[Id]) -> list[Id]:
        """Return the webhooks whose next notification is due, those first that have waited longest."""
        with self._guard:
            return [id for id in self._counts if id not in busy and self._tries.get(id, (0, 0))[1] <= now]
