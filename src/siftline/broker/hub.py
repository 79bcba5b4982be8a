"""The hub hands events from the publisher to the streams, and never waits for a stream.

    publisher ──► hub ──► listener  [ · · · · ]  ──► a stream, at its own speed
                     ──► listener  [ full: forgotten, "behind" ]  ──► reads the log instead

Each listener has a queue that is bounded in items and in bytes; all queues together are bounded too. When a queue is
full it is emptied, and the listener is *behind*: its stream reads the log until it has caught up, and then the queue
again. If the log has dropped events meanwhile, it reports a gap.

The publisher does as little work as possible. All streams of an owner, and all streams of admins, share one message per
event, which becomes notifications only when a stream sends it. A stream is woken once for all events that were
published together. The subscriptions of an owner are one set, shared by all the owner's streams.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Final

from siftline.broker.notifications import LAST_PLACE, START, Everybody, Notification, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from siftline.broker.logged import LoggedEvent
    from siftline.ids import Id

# The bytes that a message takes in a queue besides its payload, and for each of its notifications.
_MESSAGE_BYTES: Final = 300
_PLACE_BYTES: Final = 50


class Load:
    """Counts the bytes in all queues together, and those that streams have taken and not yet sent."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._n = 0
        self._guard = threading.Lock()

    @property
    def is_short(self) -> bool:
        """Whether more than half of the room is in use."""
        return self._n > self._most // 2

    def take(self, n: int) -> bool:
        """Reserve bytes if there is room for them; return whether there was."""
        with self._guard:
            if self._n + n > self._most:
                return False
            self._n += n
            return True

    def change(self, n: int) -> None:
        """Add bytes without a check, or subtract them if the number is negative."""
        with self._guard:
            self._n += n


class Message:
    """The notifications of one event for some subscriptions; immutable, so listeners share it.

    Parameters
    ----------
    event : LoggedEvent
        The event.
    places : sequence of int
        In ascending order.
    ids : list of ids
        The subscription at each of the places.
    """

    __slots__ = ("_at", "_ids", "_payload", "_places", "n_bytes", "sequence")

    def __init__(self, event: LoggedEvent, places: Sequence[int], ids: list[Id]) -> None:
        self.sequence, self._at, self._payload = event.sequence, event.at, event.payload
        self._places, self._ids = places, ids
        self.n_bytes = len(event.payload) + _MESSAGE_BYTES + _PLACE_BYTES * len(ids)

    def after(self, position: Position) -> Iterator[Notification]:
        """Yield the notifications after a position."""
        first = 0
        if position.sequence >= self.sequence:
            is_past = position.sequence > self.sequence
            first = len(self._ids) if is_past else bisect_right(self._places, position.place)
        positions = map(Position, repeat(self.sequence), self._places[first:])
        return map(Notification, positions, self._ids[first:], repeat(self._at), repeat(self._payload))


class Listener:
    """The queue of one stream in the hub.

    Parameters
    ----------
    wanted : set of ids, or Everybody
        The subscriptions whose notifications it gets.
    owner : str, optional
        The owner whose new subscriptions are included as well.
    most_items, most_bytes : int
        The bounds of the queue: events with notifications for it, and bytes.
    wake : callable
        Called from any thread when there is something to send.
    """

    def __init__(
        self,
        wanted: Collection[Id] | Everybody,
        *,
        owner: str | None,
        most_items: int,
        most_bytes: int,
        wake: Callable[[], None],
    ) -> None:
        self._wanted = wanted
        self._of_owner: _Owner | None = None
        self.owner = owner
        self._most_items, self._most_bytes = most_items, most_bytes
        self.wake = wake
        self._load = Load(most_bytes)  # replaced by the hub's when it joins
        self._queue: deque[Message] = deque()
        self._n_queued = self._n_held = 0
        self._passed = START
        self._guard = threading.Lock()
        self._has_left = False
        self.is_behind = True  # the log may have notifications for it
        self.is_ended = False

    @property
    def wanted(self) -> Collection[Id] | Everybody:
        """The subscriptions whose notifications it gets at this moment; the collection never changes."""
        return self._wanted if self._of_owner is None else self._of_owner.ids()

    def join(self, load: Load, of_owner: _Owner | None) -> None:
        """Count the queue in the hub's load, and share the subscriptions of an owner with the owner's other streams."""
        self._load = load
        if of_owner is not None:
            self._of_owner, self._wanted = of_owner, ()

    def put(self, message: Message) -> bool:
        """Queue the message of an event; return whether the listener has to be woken."""
        n_bytes = message.n_bytes
        with self._guard:
            if self.is_behind or self.is_ended:
                return False
            is_full = len(self._queue) >= self._most_items or self._n_queued + n_bytes > self._most_bytes
            if is_full or not self._load.take(n_bytes):
                first = self._queue[0].sequence if self._queue else message.sequence
                self._passed = Position(first - 1, LAST_PLACE)
                self._empty()
                self.is_behind = True
            else:
                self._queue.append(message)
                self._n_queued += n_bytes
        return True

    def _empty(self) -> None:
        self._queue.clear()
        self._load.change(-self._n_queued)
        self._n_queued = 0

    def take(self, most_items: int) -> list[Message]:
        """Return the next messages. They count in the load until the next call, so they must have been sent by then."""
        with self._guard:
            taken = [self._queue.popleft() for _ in range(min(most_items, len(self._queue)))]
            n_bytes = sum(message.n_bytes for message in taken)
            self._n_queued -= n_bytes
            self._load.change(-self._n_held)
            self._n_held = n_bytes
        return taken

    def hold(self, n_bytes: int) -> None:
        """Set how many bytes the stream has taken and not yet sent, until the next call of `hold` or `take`."""
        with self._guard:
            if not self._has_left:
                self._load.change(n_bytes - self._n_held)
                self._n_held = n_bytes

    @property
    def is_short(self) -> bool:
        """Whether more than half of the memory for all queues is in use."""
        return self._load.is_short

    def listen(self) -> Position:
        """Start to fill the queue: a stream that reads the log after this call misses nothing.

        Returns the position up to which everything was delivered: later events before it were for other listeners.
        """
        with self._guard:
            self.is_behind = self._has_left
            return self._passed

    def leave(self) -> None:
        """Empty the queue, and keep it empty."""
        with self._guard:
            self._empty()
            self._load.change(-self._n_held)
            self._n_held = 0
            self._has_left = self.is_behind = True

    def end(self) -> None:
        """Mark the stream as ended, and wake it."""
        self.is_ended = True
        self.wake()


class _Owner:
    """An owner with streams: one set of subscriptions for all of them."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self.audience = _Audience(frozenset(), self)  # shared by all subscriptions that have no streams of their own
        self._ids: set[Id] = set()
        self._seen: frozenset[Id] | None = None
        self._guard = threading.Lock()

    def ids(self) -> frozenset[Id]:
        """Return the subscriptions at this moment."""
        with self._guard:
            if self._seen is None:
                self._seen = frozenset(self._ids)
            return self._seen

    def add(self, ids: Iterable[Id]) -> list[Id]:
        """Add subscriptions, and return those that are new."""
        with self._guard:
            new = [id for id in ids if id not in self._ids]
            if new:
                self._ids.update(new)
                self._seen = None
            return new

    def discard(self, ids: Iterable[Id]) -> None:
        """Remove subscriptions."""
        with self._guard:
            self._ids.difference_update(ids)
            self._seen = None


class _Audience:
    """The listeners of a subscription: its own streams, and those of its owner."""

    __slots__ = ("of_owner", "own")

    def __init__(self, own: frozenset[Listener], of_owner: _Owner | None) -> None:
        self.own, self.of_owner = own, of_owner


class Hub:
    """All listeners, grouped by the subscriptions that they listen to.

    Parameters
    ----------
    most_bytes : int
        The bound of all queues together.

    Attributes
    ----------
    told : int
        The number of the last event that was handed to all its listeners.
    """

    def __init__(self, most_bytes: int) -> None:
        self.told = 0
        self._load = Load(most_bytes)
        self._guard = threading.Lock()
        self._listeners: set[Listener] = set()
        self._audiences: dict[Id, _Audience] = {}
        self._owners: dict[str, _Owner] = {}
        self._of_all: set[Listener] = set()

    def __len__(self) -> int:
        return len(self._listeners)

    def join(self, listener: Listener) -> None:
        """Add a listener."""
        with self._guard:
            wanted = listener.wanted
            self._listeners.add(listener)
            if isinstance(wanted, Everybody):
                listener.join(self._load, None)
                self._of_all.add(listener)
            elif listener.owner is None:
                listener.join(self._load, None)
                for id in wanted:
                    self._open_to(id, listener)
            else:
                owner = self._owners.setdefault(listener.owner, _Owner())
                owner.listeners.add(listener)
                listener.join(self._load, owner)
                self._share(owner, wanted)

    def _open_to(self, id: Id, listener: Listener) -> None:
        """Add a listener to the own streams of a subscription."""
        known = self._audiences.get(id)
        own, of_owner = (frozenset[Listener](), None) if known is None else (known.own, known.of_owner)
        self._audiences[id] = _Audience(own | {listener}, of_owner)

    def _share(self, owner: _Owner, ids: Iterable[Id]) -> None:
        """Add subscriptions to the streams of an owner."""
        for id in owner.add(ids):
            known = self._audiences.get(id)
            self._audiences[id] = owner.audience if known is None else _Audience(known.own, owner)

    def leave(self, listener: Listener) -> None:
        """Remove a listener."""
        listener.leave()
        with self._guard:
            if listener not in self._listeners:
                return
            self._listeners.discard(listener)
            self._of_all.discard(listener)
            if listener.owner is not None:
                self._leave_owner(listener, listener.owner)
            elif not isinstance(listener.wanted, Everybody):
                for id in listener.wanted:
                    known = self._audiences.get(id)
                    if known is not None:
                        self._set(id, known.own - {listener}, known.of_owner)

    def _leave_owner(self, listener: Listener, name: str) -> None:
        owner = self._owners[name]
        owner.listeners.discard(listener)
        if not owner.listeners:
            del self._owners[name]
            for id in owner.ids():
                self._set(id, self._audiences[id].own, None)

    def _set(self, id: Id, own: frozenset[Listener], of_owner: _Owner | None) -> None:
        if own:
            self._audiences[id] = _Audience(own, of_owner)
        elif of_owner is not None:
            self._audiences[id] = of_owner.audience
        else:
            del self._audiences[id]

    def added(self, id: Id, owner: str | None) -> None:
        """Add a new subscription to the streams of its owner; renewed ones, which are known, are passed as well."""
        with self._guard:
            known = None if owner is None else self._owners.get(owner)
            if known is not None:
                self._share(known, (id,))

    def removed(self, ids: Iterable[Id]) -> None:
        """End the own streams of subscriptions that were removed; the streams of owners go on."""
        ended: list[Listener] = []
        with self._guard:
            gone: dict[_Owner, list[Id]] = {}
            for id in ids if self._audiences else ():
                audience = self._audiences.pop(id, None)
                if audience is not None:
                    ended += audience.own
                    if audience.of_owner is not None:
                        gone.setdefault(audience.of_owner, []).append(id)
            for owner, theirs in gone.items():
                owner.discard(theirs)
        for listener in ended:
            listener.end()

    def tell(self, events: Sequence[LoggedEvent]) -> None:
        """Queue events for all their listeners, then wake these."""
        woken: dict[Listener, None] = {}
        for event in events:
            with self._guard:
                told = self._messages(event) if _is_heard(self._listeners) else []
            for message, listeners in told:
                for listener in listeners:
                    if listener.put(message):
                        woken[listener] = None
            self.told = event.sequence
        for listener in woken:
            listener.wake()

    def _messages(self, event: LoggedEvent) -> list[tuple[Message, Collection[Listener]]]:
        """Return the messages of an event, each with its listeners."""
        told: list[tuple[Message, Collection[Listener]]] = []
        of_owners: dict[_Owner, list[tuple[int, Id]]] = {
            owner: [] for owner in self._owners.values() if _is_heard(owner.listeners)
        }
        for place, id in event.among(self._audiences) if self._audiences else ():
            audience = self._audiences[id]
            if audience.own:
                told.append((Message(event, (place,), [id]), audience.own))
            if audience.of_owner in of_owners:
                of_owners[audience.of_owner].append((place, id))
        for owner, items in of_owners.items():
            if not items:
                continue
            message = Message(event, [place for place, _ in items], [id for _, id in items])
            told.append((message, tuple(owner.listeners)))
        if _is_heard(self._of_all):
            message = Message(event, range(len(event.numbers)), event.subscriptions())
            told.append((message, tuple(self._of_all)))
        return told

    def end(self) -> None:
        """End all streams."""
        with self._guard:
            everyone = list(self._listeners)
        for listener in everyone:
            listener.end()


def _is_heard(listeners: Iterable[Listener]) -> bool:
    """Return whether a listener reads its queue; those that are behind read the log."""
    return any(not listener.is_behind for listener in listeners)
