"""Looking up the names of webhooks, so that a slow name server delays nobody but those whose names it has.

    owner ann   slow.example  slow2.example   (two at a time; her others wait)
    owner bob   fast.example                  does not wait for ann

A lookup is a call of the system that may take half a minute and cannot be stopped. So each runs in a thread of its own,
which the end of the process does not wait for, and counts for its owner until it returns. What was found is used for
some seconds, and who asks for a name that is being looked up waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Lookups at the same time, in all and of one owner.
_AT_ONCE: Final = 64
_AT_ONCE_OF_ONE: Final = 2
_KEPT_SECONDS: Final = 10.0
_MOST_KEPT: Final = 1000


class Resolver:
    """Names to addresses; on one event loop."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], tuple[float, list[str]]] = {}
        self._asked: dict[tuple[str, int], asyncio.Future[list[str]]] = {}
        self._running: dict[str, int] = {}
        self._finishing: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()

    async def addresses(self, host: str, port: int, owner: str) -> list[str]:
        """Return the addresses of a host, as soon as it is its owner's turn; OSError if there are none."""
        key = host, port
        until, found = self._kept.get(key, (0.0, []))
        if time.monotonic() < until:
            return found
        if key not in self._asked:
            async with self._changed:
                await self._changed.wait_for(lambda: self._has_room(owner) or key in self._asked)
                if key not in self._asked:
                    self._start(key, owner)
        return await asyncio.shield(self._asked[key])

    def _has_room(self, owner: str) -> bool:
        return self._running.get(owner, 0) < _AT_ONCE_OF_ONE and sum(self._running.values()) < _AT_ONCE

    def _start(self, key: tuple[str, int], owner: str) -> None:
        loop = asyncio.get_running_loop()
        asked = self._asked[key] = loop.create_future()
        asked.add_done_callback(lambda future: future.exception())  # it is no fault that nobody waits any more
        self._running[owner] = self._running.get(owner, 0) + 1

        def finish(found: list[str] | OSError) -> None:
            task = loop.create_task(self._finished(key, owner, found))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)

        threading.Thread(target=_look_up, args=(*key, loop, finish), name="siftline-names", daemon=True).start()

    async def _finished(self, key: tuple[str, int], owner: str, found: list[str] | OSError) -> None:
        async with self._changed:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]
            asked = self._asked.pop(key)
            if isinstance(found, OSError):
                asked.set_exception(found)
            else:
                asked.set_result(found)
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[key] = time.monotonic() + _KEPT_SECONDS, found
            self._changed.notify_all()


def _look_up(
    host: str, port: int, loop: asyncio.AbstractEventLoop, finish: Callable[[list[str] | OSError], None]
) -> None:
    found: list[str] | OSError
    try:
        found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        found = error if isinstance(error, OSError) else OSError(str(error))
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(finish, found)
