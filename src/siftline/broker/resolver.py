"""Resolves the host names of webhooks, so that a slow name server delays only the webhooks that depend on it.

    owner ann   slow.example  slow2.example   (two at a time; the others of ann wait)
    owner bob   fast.example                  does not wait for ann

A lookup is a system call that may take half a minute and cannot be stopped. So each runs in a daemon thread of its own,
and counts against its owner's limit until it returns. A lookup that takes longer than half a second frees its slot, and
for a minute its owner is limited to a smaller pool of slots, shared by all owners with slow names. So owners with quick
names never wait for long, however many others have slow ones. Results are cached for some seconds, and a request for a
name that is being looked up waits for that lookup.
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

# Concurrent lookups: of one owner, of all owners with quick names, and of all owners with slow names.
_LOOKUPS_PER_OWNER: Final = 2
_QUICK_LOOKUPS_MAX: Final = 64
_SLOW_LOOKUPS_MAX: Final = 32
# Threads in all: slow lookups have freed their slots, but their threads still run.
_MOST_THREADS: Final = 512
# After this time a lookup counts as slow, and for this long its owner counts as one with slow names.
_SLOW_SECONDS: Final = 0.5
_SLOW_OWNER_SECONDS: Final = 60.0
# How long, and of how many names, results are cached.
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
    """Resolves names to addresses; used by one event loop."""

    def __init__(self) -> None:
        self._kept: dict[_Key, tuple[float, list[str]]] = {}
        self._running: dict[_Key, _Lookup] = {}
        self._counts: Counter[str] = Counter()
        self._n_slow = 0
        self._slow_until: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def addresses(self, host: str, port: int, owner: str) -> list[str]:
        """Return the addresses of a host once its owner has a free slot; raise OSError if there are none."""
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
        if self._counts[owner] >= _LOOKUPS_PER_OWNER or len(self._running) >= _MOST_THREADS:
            return False
        if self._is_slow(owner):
            return self._n_slow < _SLOW_LOOKUPS_MAX
        return len(self._running) - self._n_slow < _QUICK_LOOKUPS_MAX

    def _is_slow(self, owner: str) -> bool:
        return time.monotonic() < self._slow_until.get(owner, 0.0)

    def _started(self, key: _Key, owner: str) -> asyncio.Future[list[str]]:
        """Start a lookup."""
        loop = asyncio.get_running_loop()
        lookup = _Lookup(key, owner, self._is_slow(owner), loop.create_future())
        lookup.answer.add_done_callback(lambda future: future.exception())  # nobody may wait any more
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
        except RuntimeError as error:  # the system has no more threads; the delivery is tried again later
            finish(OSError(str(error)))
        return lookup.answer

    def _late(self, lookup: _Lookup) -> None:
        """Mark a lookup as slow: it frees its slot, and its owner moves to the slow pool for a while."""
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
        """Wake all waiting requests, in the order in which they came."""
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
