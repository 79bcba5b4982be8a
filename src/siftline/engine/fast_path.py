"""The shortest way from an event to the ids that match it, remembered until something changes.

Where few subscriptions match, the kernel takes one or two microseconds, and looking up in Python what it works on took
as long. So each thread keeps that from its second match on, and looks at nothing but whether the event was encoded for
it, and whether the generation moved on meanwhile. Every change of what matches throws away all shortcuts.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from siftline.indexes.protocol import MOST_FOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from siftline.encoding.domains import Domains
    from siftline.encoding.events import EncodedEvents
    from siftline.indexes.protocol import Finder
    from siftline.subscriptions import Id, SubscriptionTable
    from siftline.tail import Tail


_CLOSED: Final[Mapping[int, Any]] = MappingProxyType({})


class Shortcuts:
    """The shortcuts of an engine, by thread. Who changes what matches does it `with` these, under the writers' lock.

    Meanwhile there are none, and nobody can keep one. A thread that makes one puts it into the dict that was there when
    it began: if something changed since, nobody looks there any more. An interrupt that comes at a bad moment leaves
    the engine without shortcuts until the next change, and never with old ones.
    """

    def __init__(self) -> None:
        self.ways: Mapping[int, Shortcut | None] = {}
        _watched.add(self)

    def __enter__(self) -> None:
        self.ways = _CLOSED

    def __exit__(self, *_: object) -> None:
        self.ways = {}

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Shortcuts, ()  # they have addresses of what is here


def _nothing(event_at: int, table_at: int) -> int:
    """Find nothing, as an index without parts."""
    return 0


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
    """

    __slots__ = (
        "_finders",
        "_n_tail",
        "_table",
        "_tail",
        "call",
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


# For an engine that has none: no event was encoded for it.
NO_SHORTCUT: Final = Shortcut(0, cast("Any", None), -1, [], cast("Any", None), cast("Any", None), 0)


def put_shortcut(ways: dict[int, Shortcut | None], shortcut: Shortcut | None) -> None:
    """Remember a shortcut for this thread, or that it had none, and forget those of threads that have ended."""
    if len(ways) > 1 or threading.get_ident() not in ways:
        for ended in ways.keys() - sys._current_frames().keys():
            ways.pop(ended, None)
    ways[threading.get_ident()] = shortcut


def _after_fork() -> None:
    """Forget all: a thread may get the number of one that was in the middle of a match in the parent process."""
    for shortcuts in list(_watched):
        shortcuts.ways = {}


_watched: Final[weakref.WeakSet[Shortcuts]] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
