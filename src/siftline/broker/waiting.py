"""Which webhooks wait for deliveries: how many each, and when the oldest is due, so that nobody looks through all."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from siftline.subscriptions import Id


class Waiting:
    """Counts of what the log has for webhooks, in memory; any threads may use it.

    >>> waiting = Waiting({"ann": 2})
    >>> waiting.added(["bob"])
    >>> waiting.postponed("ann", due=500)
    >>> waiting.ready(now=100, busy=())
    ['bob']
    >>> waiting.settled("bob")
    >>> waiting.ready(now=500, busy=()), len(waiting), waiting.crowded(most=1)
    (['ann'], 2, [('ann', 2)])
    """

    def __init__(self, counts: dict[Id, int]) -> None:
        self._counts = counts
        self._due: dict[Id, int] = {}
        self._guard = threading.Lock()

    def __len__(self) -> int:
        with self._guard:
            return sum(self._counts.values())

    def added(self, ids: Iterable[Id]) -> None:
        """One more delivery waits for each."""
        with self._guard:
            for id in ids:
                self._counts[id] = self._counts.get(id, 0) + 1

    def settled(self, id: Id) -> None:
        """One delivery was taken or given up; whose turn it was comes last."""
        with self._guard:
            self._due.pop(id, None)
            n = self._counts.pop(id, 0) - 1
            if n > 0:
                self._counts[id] = n

    def postponed(self, id: Id, due: int) -> None:
        """Let the oldest delivery of a subscription, and so all, wait."""
        with self._guard:
            self._due[id] = due

    def forgotten(self, id: Id) -> None:
        """Nothing waits any more."""
        with self._guard:
            self._counts.pop(id, None)
            self._due.pop(id, None)

    def crowded(self, most: int) -> list[tuple[Id, int]]:
        """Return for whom more than so many wait, and how many."""
        with self._guard:
            return [(id, n) for id, n in self._counts.items() if n > most]

    def ready(self, now: int, busy: Collection[Id]) -> list[Id]:
        """Return whose deliveries may be due, as far as is known, those first who have waited longest for a turn."""
        with self._guard:
            return [id for id in self._counts if id not in busy and self._due.get(id, 0) <= now]
