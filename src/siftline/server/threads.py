"""Threads for work that must not run on the event loop: waiting for a lock or the disk, and long computations.

Python runs one thread at a time, so an event loop beside n computing threads may wait for n turns of 5 ms until it runs
again. So there are few threads for computations, and more for waiting. The queues of both are bounded; beyond the
bound, requests are refused as busy.
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
# How many requests may wait for a thread of either kind.
_MOST_IN_LINE: Final = 500


class Threads:
    """The threads of a server."""

    def __init__(self) -> None:
        self._computing, self._waiting = CapacityLimiter(_COMPUTING), CapacityLimiter(_WAITING)

    async def compute(self, function: Callable[..., Result], *args: Any, **options: Any) -> Result:
        """Run a function that computes and takes no locks."""
        return await _run(self._computing, partial(function, *args, **options))

    async def wait(self, function: Callable[..., Result], *args: Any, **options: Any) -> Result:
        """Run a function that waits for the disk or a lock."""
        return await _run(self._waiting, partial(function, *args, **options))


async def _run(limiter: CapacityLimiter, call: Callable[[], Result]) -> Result:
    if limiter.statistics().tasks_waiting >= _MOST_IN_LINE:
        raise BusyError(f"{_MOST_IN_LINE} requests are waiting already")
    return await anyio.to_thread.run_sync(call, limiter=limiter)
