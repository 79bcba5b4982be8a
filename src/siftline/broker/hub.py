"""From the publisher to those who listen, without ever waiting for them.

    publisher ──► hub ──► listener  [ · · · · ]  ──► a stream, at its own speed
                     ──► listener  [ full: forgotten, "behind" ]  ──► reads the log instead

A listener has a queue that is bounded in items and in bytes; all queues together are bounded too. If one is full, it is
given up and the listener is *behind*: its stream goes back to the log, and comes to the queue again when it has caught
up. If the log has gone on without it meanwhile, the log says so.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from siftline.broker.notifications import LAST_PLACE, START, Everybody, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from siftline.broker.logged import LoggedEvent
    from siftline.broker.notifications import Notification
    from siftline.ids import Id

# What a notification takes in a queue beside its payload.
_ITEM_BYTES: Final = 300


class Load:
    """Bytes that wait in all queues together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._n = 0
        self._guard = threading.Lock()

    def take(self, n: int) -> bool:
        """Return whether there is room for so many bytes; then they count."""
        with self._guard:
            if n > 0 and self._n + n > self._most:
                return False
            self._n += n
            return True


class Listener:
    """One stream's end of the hub.

    Parameters
    ----------
    wanted : set of ids, or Everybody
        Whose notifications it gets.
    owner : str, optional
        Whose new subscriptions it gets as well.
    most_items, most_bytes : int
        The length of the queue.
    wake : callable
        Called, from any thread, when there is something to do.
    """

    def __init__(
        self,
        wanted: set[Id] | Everybody,
        *,
        owner: str | None,
        most_items: int,
        most_bytes: int,
        wake: Callable[[], None],
    ) -> None:
        self.wanted = wanted
        self.owner = owner
        self._most_items, self._most_bytes = most_items, most_bytes
        self._wake = wake
        self._load: Load | None = None
        self._queue: list[Notification] = []
        self._n_bytes = 0
        self._passed = START
        self._guard = threading.Lock()
        self.is_behind = True  # at first there may be something in the log
        self.is_ended = False

    def join(self, load: Load) -> None:
        """Let what waits here count."""
        self._load = load

    def put(self, event: LoggedEvent, items: list[tuple[int, Id]] | None) -> None:
        """Take what an event has for this listener: places and subscriptions, None for all."""
        n = len(event.numbers) if items is None else len(items)
        n_bytes = n * (len(event.payload) + _ITEM_BYTES)
        with self._guard:
            if self.is_behind or self.is_ended:
                return
            is_full = len(self._queue) + n > self._most_items or self._n_bytes + n_bytes > self._most_bytes
            if is_full or (self._load is not None and not self._load.take(n_bytes)):
                first = self._queue[0].position.sequence if self._queue else event.sequence
                self._passed = Position(first - 1, LAST_PLACE)
                self._empty()
                self.is_behind = True
            else:
                chosen = enumerate(event.subscriptions()) if items is None else items
                self._queue += [event.notification(place, id) for place, id in chosen]
                self._n_bytes += n_bytes
        self._wake()

    def _empty(self) -> list[Notification]:
        taken, self._queue = self._queue, []
        if self._load is not None:
            self._load.take(-self._n_bytes)
        self._n_bytes = 0
        return taken

    def take(self) -> list[Notification]:
        """Return everything in the queue, and empty it."""
        with self._guard:
            return self._empty()

    def listen(self) -> Position:
        """Fill the queue from now on: who reads the log after this misses nothing.

        Returns up to where it has got everything; what came after its last notification until then was for others.
        """
        with self._guard:
            self.is_behind = False
            return self._passed

    def leave(self) -> None:
        """Take nothing more."""
        with self._guard:
            self._empty()
            self.is_behind = True

    def end(self) -> None:
        """There will be nothing more."""
        self.is_ended = True
        self._wake()


class Hub:
    """All listeners, by whose notifications they get.

    Parameters
    ----------
    most_bytes : int
        What may wait in the queues of all.

    Attributes
    ----------
    told : int
        The number of the last event that everybody was told of.
    """

    def __init__(self, most_bytes: int) -> None:
        self.told = 0
        self._load = Load(most_bytes)
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
        listener.join(self._load)
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
        listener.leave()
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
                if isinstance(listener.wanted, set) and id not in listener.wanted:  # renewals come here, too
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

    def tell(self, events: Sequence[LoggedEvent]) -> None:
        """Give events to all who want them."""
        for event in events:
            with self._guard:
                told = self._listeners(event)
            for listener, items in told:
                listener.put(event, items)
            self.told = event.sequence

    def _listeners(self, event: LoggedEvent) -> list[tuple[Listener, list[tuple[int, Id]] | None]]:
        """Return who gets something of an event, and what."""
        found: dict[Listener, list[tuple[int, Id]]] = {}
        for place, id in event.among(self._by_id) if self._by_id else ():
            for listener in self._by_id[id]:
                found.setdefault(listener, []).append((place, id))
        return [*found.items(), *((listener, None) for listener in self._of_all)]

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
