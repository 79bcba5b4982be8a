"""From the publisher to those who listen, without ever waiting for them.

    publisher ──► hub ──► listener  [ · · · · ]  ──► a stream, at its own speed
                     ──► listener  [ full: forgotten, "behind" ]  ──► reads the log instead

A listener has a queue of bounded length. If it is full, the queue is given up and the listener is *behind*: its stream
goes back to the log, where everything still is, and comes to the queue again when it has caught up.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from siftline.broker.notifications import START, Everybody, Notification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from siftline.broker.notifications import LoggedEvent
    from siftline.subscriptions import Id


class Listener:
    """One stream's end of the hub.

    Parameters
    ----------
    wanted : set of ids, or Everybody
        Whose notifications it gets.
    owner : str, optional
        Whose new subscriptions it gets as well.
    capacity : int
        The length of the queue.
    wake : callable
        Called, from any thread, when there is something to do.
    """

    def __init__(
        self, wanted: set[Id] | Everybody, *, owner: str | None, capacity: int, wake: Callable[[], None]
    ) -> None:
        self.wanted = wanted
        self.owner = owner
        self._capacity = capacity
        self._wake = wake
        self._queue: deque[Notification] = deque()
        self._guard = threading.Lock()
        self.is_behind = True  # at first there may be something in the log
        self.is_ended = False

    def put(self, event: LoggedEvent) -> None:
        """Take what an event has for this listener."""
        with self._guard:
            if self.is_behind or self.is_ended:
                return
            self._queue.extend(event.for_some(self.wanted, START))
            if len(self._queue) > self._capacity:
                self._queue.clear()
                self.is_behind = True
        self._wake()

    def take(self) -> list[Notification]:
        """Return everything in the queue, and empty it."""
        with self._guard:
            taken = list(self._queue)
            self._queue.clear()
            return taken

    def listen(self) -> None:
        """Fill the queue from now on: who reads the log after this misses nothing."""
        with self._guard:
            self.is_behind = False

    def end(self) -> None:
        """There will be nothing more."""
        self.is_ended = True
        self._wake()


class Hub:
    """All listeners, by whose notifications they get."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._by_id: dict[Id, set[Listener]] = {}
        self._by_owner: dict[str, set[Listener]] = {}
        self._of_all: set[Listener] = set()

    def __len__(self) -> int:
        with self._guard:
            return len(self._everyone())

    def _everyone(self) -> set[Listener]:
        return self._of_all.union(*self._by_id.values(), *self._by_owner.values())

    def join(self, listener: Listener) -> None:
        """Let a listener hear of events."""
        with self._guard:
            if isinstance(listener.wanted, Everybody):
                self._of_all.add(listener)
                return
            for id in listener.wanted:
                self._by_id.setdefault(id, set()).add(listener)
            if listener.owner is not None:
                self._by_owner.setdefault(listener.owner, set()).add(listener)

    def leave(self, listener: Listener) -> None:
        """Let it hear no more."""
        with self._guard:
            self._of_all.discard(listener)
            if not isinstance(listener.wanted, Everybody):
                for id in listener.wanted:
                    _discard(self._by_id, id, listener)
            if listener.owner is not None:
                _discard(self._by_owner, listener.owner, listener)

    def added(self, id: Id, owner: str | None) -> None:
        """Let those who listen for an owner hear of a new subscription of his."""
        with self._guard:
            for listener in self._by_owner.get(owner, ()) if owner is not None else ():
                if isinstance(listener.wanted, set):
                    listener.wanted = listener.wanted | {id}
                    self._by_id.setdefault(id, set()).add(listener)

    def removed(self, ids: Iterable[Id]) -> None:
        """End the streams of subscriptions that are gone; those of owners go on."""
        with self._guard:
            gone: dict[Listener, set[Id]] = {}
            for id in ids:
                for listener in self._by_id.pop(id, ()):
                    gone.setdefault(listener, set()).add(id)
        for listener, theirs in gone.items():
            if listener.owner is None:
                listener.end()
            elif isinstance(listener.wanted, set):
                listener.wanted = listener.wanted - theirs

    def tell(self, events: Iterable[LoggedEvent]) -> None:
        """Give events to all who want them."""
        with self._guard:
            if not (self._by_id or self._of_all):
                return
            told = [(event, self._listeners(event)) for event in events]
        for event, listeners in told:
            for listener in listeners:
                listener.put(event)

    def _listeners(self, event: LoggedEvent) -> set[Listener]:
        found = set(self._of_all)
        for id in event.subscriptions if self._by_id else ():
            found.update(self._by_id.get(id, ()))
        return found

    def end(self) -> None:
        """End all streams."""
        with self._guard:
            everyone = self._everyone()
        for listener in everyone:
            listener.end()


def _discard(listeners: dict[Any, set[Listener]], key: Any, listener: Listener) -> None:
    known = listeners.get(key)
    if known is not None:
        known.discard(listener)
        if not known:
            del listeners[key]
