"""The shortest way from an event to the ids that match it, remembered until something changes.

Where few subscriptions match, the kernel takes one or two microseconds, and looking up in Python what it works on took
as long. So each thread keeps that, and looks at nothing but the generation of the engine and the version of the event.
Every change to an engine runs under its writers' lock, and whoever gives the lock back throws away all shortcuts.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np

from siftline.indexes.protocol import MOST_FOUND
from siftline.kernels.compiler import direct
from siftline.kernels.pointers import HEADER_SIZE, describe_event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from siftline.encoding.domains import Domains
    from siftline.encoding.events import EncodedEvents
    from siftline.indexes.protocol import Finder
    from siftline.subscriptions import Id, SubscriptionTable
    from siftline.tail import Tail


class WritersLock:
    """The lock that writers take turns with, and the shortcuts of threads until one of them gives it back.

    A thread that makes a shortcut puts it into the dict that was there when it began: if something changed meanwhile,
    nobody looks there any more.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.shortcuts: dict[int, Shortcut] = {}

    def acquire(self) -> None:
        """Wait for other threads; the one that has it may take it again."""
        self._lock.acquire()

    def release(self) -> None:
        """Give it back: from now on everybody looks at what has changed."""
        self.forget()
        self._lock.release()

    def forget(self) -> None:
        """Throw away all shortcuts."""
        self.shortcuts = {}

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Shortcut:
    """What one thread needs to find the ids that match an event.

    Attributes
    ----------
    generation, domains, version
        Of the engine for which it holds, and of the events.
    call, table_at, ids_found
        See `Finder`: of the first part of the index.
    has_more : bool
        Whether there are other parts, or subscriptions in the tail: `with_more` finds these.
    describe
        What `EncodedEvents.described` takes.
    """

    __slots__ = (
        "_finders",
        "_n_tail",
        "_table",
        "_tail",
        "call",
        "describe",
        "domains",
        "generation",
        "has_more",
        "ids_found",
        "table_at",
        "version",
    )

    def __init__(
        self,
        generation: int,
        domains: Domains,
        version: int,
        finders: Sequence[Finder],
        table: SubscriptionTable,
        tail: Tail,
        n_tail: int,
    ) -> None:
        self.generation = generation
        self.domains = domains
        self.version = version
        self.describe: Callable[..., int] = _describe()
        self.call: Callable[[int, int], int] = _nothing
        self.table_at, self.ids_found = 0, memoryview(b"")
        if finders:
            self.call, self.table_at, self.ids_found, _ = finders[0]
        self.has_more = len(finders) > 1 or n_tail > 0
        self._finders = finders
        self._table, self._tail, self._n_tail = table, tail, n_tail

    def with_more(self, ids: list[Id], event: EncodedEvents) -> list[Id] | None:
        """Return the ids that the first part has found and those of the rest; None if this way is not enough."""
        for call, table_at, ids_found, _ in self._finders[1:]:
            n_found = call(event.address, table_at)
            if not 0 <= n_found <= MOST_FOUND:
                return None
            ids += ids_found[:n_found].tolist()
        if self._n_tail:
            slots, possible = self._tail.match(event.attributes, event.codes, self._n_tail)
            if len(possible):
                return None
            if self._table.sharing is not None:
                slots = self._table.with_followers(slots)
            ids += self._table.ids(slots)
        return ids


def put_shortcut(shortcuts: dict[int, Shortcut], shortcut: Shortcut) -> None:
    """Remember a shortcut for this thread, and forget those of threads that have ended."""
    for ended in shortcuts.keys() - sys._current_frames().keys():
        shortcuts.pop(ended, None)
    shortcuts[threading.get_ident()] = shortcut


@functools.cache
def _describe() -> Callable[..., int]:
    nothing = np.empty(0, dtype=np.int32)
    return direct(describe_event, nothing, nothing, np.empty(HEADER_SIZE, dtype=np.int64))


def _nothing(event_at: int, table_at: int) -> int:
    """Find nothing, as an index without parts."""
    return 0
