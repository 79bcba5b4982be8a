"""Looking up the names of webhooks, so that a slow name server delays nobody but those whose names it has.

    owner ann   slow.example  slow2.example   (two at a time; her others wait)
    owner bob   fast.example                  does not wait for ann

A lookup is a call of the system that may take half a minute and cannot be stopped. So each runs in a thread of its own,
which the end of the process does not wait for, and counts for its owner until it returns. One that takes longer than a
moment gives its place back, and for a while its owner shares a few places with others like him: however many owners
have slow names, those with quick ones wait for moments. What was found is used for some seconds, and who asks for a
name that is being looked up waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Lookups at the same time: of one owner, of all whose names are quick, and of all whose names are slow.
_AT_ONCE_OF_ONE: Final = 2
_AT_ONCE: Final = 64
_AT_ONCE_SLOW: Final = 32
# Threads: those that gave their place back are still there.
_MOST_THREADS: Final = 512
# After so long a lookup is a slow one, and so long its owner is one with slow names.
_SLOW_SECONDS: Final = 0.5
_SLOW_OWNER_SECONDS: Final = 60.0
_KEPT_SECONDS: Final = 10.0
_MOST_KEPT: Final = 1000

_Key = tuple[str, int]


@dataclass(slots=True)
class _Lookup:
    """A name that is being looked up."""

    key: _Key
    owner: str
    is_slow: bool
    answer: asyncio.Future[list[str]]


class Resolver:
    """Names to addresses; on one event loop."""

    def __init__(self) -> None:
        self._kept: dict[_Key, tuple[float, list[str]]] = {}
        self._running: dict[_Key, _Lookup] = {}
        self._counts: Counter[str] = Counter()
        self._n_slow = 0
        self._slow_until: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def addresses(self, host: str, port: int, owner: str) -> list[str]:
        """Return the addresses of a host, as soon as it is its owner's turn; OSError if there are none."""
        key = host, port
        while True:
            until, found = self._kept.get(key, (0.0, []))
            if time.monotonic() < until:
                return found
            if key in self._running:
                return await asyncio.shield(self._running[key].answer)
            if self._has_room(owner):
                return await asyncio.shield(self._started(key, owner))
            await self._changed.wait()

    def _has_room(self, owner: str) -> bool:
        if self._counts[owner] >= _AT_ONCE_OF_ONE or len(self._running) >= _MOST_THREADS:
            return False
        if self._is_slow(owner):
            return self._n_slow < _AT_ONCE_SLOW
        return len(self._running) - self._n_slow < _AT_ONCE

    def _is_slow(self, owner: str) -> bool:
        return time.monotonic() < self._slow_until.get(owner, 0.0)

    def _started(self, key: _Key, owner: str) -> asyncio.Future[list[str]]:
        """Begin a lookup."""
        loop = asyncio.get_running_loop()
        lookup = _Lookup(key, owner, self._is_slow(owner), loop.create_future())
        lookup.answer.add_done_callback(lambda future: future.exception())  # it is no fault that nobody waits any more
        self._running[key] = lookup
        self._counts[owner] += 1
        self._n_slow += lookup.is_slow
        timer = loop.call_later(_SLOW_SECONDS, self._late, lookup)

        def finish(found: list[str] | OSError) -> None:
            timer.cancel()
            self._finished(lookup, found)

        thread = threading.Thread(target=_look_up, args=(*key, loop, finish), name="siftline-names", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads: perhaps a little later
            finish(OSError(str(error)))
        return lookup.answer

    def _late(self, lookup: _Lookup) -> None:
        """Note that a lookup is slow: it gives its place back, and its owner gets no other one for a while."""
        now = time.monotonic()
        if len(self._slow_until) >= _MOST_KEPT:
            self._slow_until = {owner: until for owner, until in self._slow_until.items() if until > now}
        self._slow_until[lookup.owner] = now + _SLOW_OWNER_SECONDS
        self._n_slow += not lookup.is_slow
        lookup.is_slow = True
        self._notify()

    def _finished(self, lookup: _Lookup, found: list[str] | OSError) -> None:
        del self._running[lookup.key]
        self._n_slow -= lookup.is_slow
        self._counts[lookup.owner] -= 1
        if not self._counts[lookup.owner]:
            del self._counts[lookup.owner]
        if isinstance(found, OSError):
            lookup.answer.set_exception(found)
        else:
            lookup.answer.set_result(found)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[lookup.key] = time.monotonic() + _KEPT_SECONDS, found
        self._notify()

    def _notify(self) -> None:
        """Let those who wait look again, in the order in which they came."""
        self._changed.set()
        self._changed = asyncio.Event()


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
