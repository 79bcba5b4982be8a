"""The open streams of a server: their limits by ticket and owner, and their end when a key is revoked."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from siftline.errors import BusyError, SiftlineError
from siftline.server.problems import ProblemError
from siftline.server.streams import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.broker.broker import Broker
    from siftline.broker.hub import Listener
    from siftline.broker.notifications import Position
    from siftline.ids import Id


class Right(NamedTuple):
    """The permission to read a stream.

    Attributes
    ----------
    join : callable
        Joins the hub; its argument wakes the stream.
    check : callable
        Raises if the permission is gone; called from any thread when keys were added or revoked.
    id : int, str or None
        The subscription, if the stream is for one subscription.
    owner : str or None
        The owner of the stream.
    """

    join: Callable[[Callable[[], None]], Listener]
    check: Callable[[], object]
    id: Id | None = None
    owner: str | None = None


class OpenStreams:
    """All open streams of a server; used on the event loop only, except for `_check_again`."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._limits = broker, broker.limits
        self._counts: Counter[tuple[str, Id]] = Counter()
        self._open: dict[Stream, Right] = {}
        broker.keys.observers.append(self._check_again)

    async def open(self, right: Right, after: Position | None) -> Stream:
        """Return a new stream, if there is room for one more."""
        self._take(right)
        try:
            stream = await Stream.opened(self._broker, right.join, after)
        except BaseException:
            self._give_back(right)
            raise
        self._open[stream] = right
        stream.on_close(lambda: self._closed(stream))
        if not _holds(right):  # the key was revoked while the stream was being opened
            stream.revoke()
        return stream

    def _closed(self, stream: Stream) -> None:
        right = self._open.pop(stream, None)
        if right is not None:
            self._give_back(right)

    def _take(self, right: Right) -> None:
        if right.id is not None and self._counts["id", right.id] >= self._limits.streams_per_ticket:
            raise BusyError(f"this subscription has {self._limits.streams_per_ticket:,} streams already")
        if right.owner is not None and self._counts["owner", right.owner] >= self._limits.streams_per_owner:
            raise BusyError(f"this owner has {self._limits.streams_per_owner:,} streams already")
        self._counts.update(_shares(right))

    def _give_back(self, right: Right) -> None:
        for share in _shares(right):
            self._counts[share] -= 1
            if not self._counts[share]:
                del self._counts[share]

    def _check_again(self) -> None:
        for stream, right in list(self._open.items()):
            if not _holds(right):
                stream.revoke()


def _shares(right: Right) -> list[tuple[str, Id]]:
    shares = (("id", right.id), ("owner", right.owner))
    return [(kind, name) for kind, name in shares if name is not None]


def _holds(right: Right) -> bool:
    try:
        right.check()
    except (ProblemError, SiftlineError):
        return False
    return True
