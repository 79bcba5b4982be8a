"""Work off the event loop, which never waits for a lock, a disk or a long computation.

Python runs one thread at a time, and an event loop beside n threads that compute waits for up to n turns of 5 ms until
it runs again. So what computes has few threads, what waits for the disk or for a lock has more, and the lines before
both have an end: who comes later is told to try again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from siftline.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

_COMPUTING: Final = 2
_WAITING: Final = 40
# Requests that stand in line for a thread of either kind.
_MOST_IN_LINE: Final = 500


class Threads:
    """The threads of a server."""

    def __init__(self) -> None:
        self._computing, self._waiting = CapacityLimiter(_COMPUTING), CapacityLimiter(_WAITING)

    async def compute(self, function: Callable[..., Result], *args: Any, **options: Any) -> Result:
        """Run what takes processor time, and no locks."""
        return await _run(self._computing, partial(function, *args, **options))

    async def wait(self, function: Callable[..., Result], *args: Any, **options: Any) -> Result:
        """Run what waits for the disk or a lock."""
        return await _run(self._waiting, partial(function, *args, **options))


async def _run(limiter: CapacityLimiter, call: Callable[[], Result]) -> Result:
    if limiter.statistics().tasks_waiting >= _MOST_IN_LINE:
        raise BusyError(f"{_MOST_IN_LINE} requests are waiting already")
    return await anyio.to_thread.run_sync(call, limiter=limiter)
