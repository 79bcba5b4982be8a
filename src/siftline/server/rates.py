"""Rate limits: each client has a token bucket that fills at a constant rate; a request takes one token."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from siftline.server.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

# How many clients have a bucket; a client without one gets a full one.
_MOST_CLIENTS: Final = 10_000


class Rate:
    """Allows each client a number of requests per second, and twice as many at once.

    >>> rate = Rate(1.0, clock=lambda: 0.0)
    >>> rate.take("ann"), rate.take("ann")
    (None, None)
    >>> rate.take("ann")
    Traceback (most recent call last):
        ...
    siftline.server.problems.ProblemError: too many requests: at most 1 a second
    """

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, client: str) -> None:
        """Take a token; raise if there is none."""
        if self._per_second is None:
            return
        now, most = self._clock(), max(2 * self._per_second, 1.0)
        level, then = self._buckets.pop(client, (most, now))
        level = min(most, level + (now - then) * self._per_second)
        if level < 1:
            self._buckets[client] = level, now
            seconds = (1 - level) / self._per_second
            raise ProblemError(429, f"too many requests: at most {self._per_second:g} a second", retry_seconds=seconds)
        self._buckets[client] = level - 1, now
        if len(self._buckets) > _MOST_CLIENTS:
            del self._buckets[next(iter(self._buckets))]

    def forget(self, client: str) -> None:
        """Drop the bucket of a client; may be called from any thread."""
        self._buckets.pop(client, None)
