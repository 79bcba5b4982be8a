"""What memory knows of the events in the log: how large they are, and which subscriptions each has matched.

    event     7       8    9
    matches   x  y    x    y  z      one place each, in the order of the events
    earlier  -1 -1    0    1 -1      the place of the same subscription's match before, or -1
    newest    x: 2, y: 3, z: 4

Lists of numbers and ids, and no container for each event: the garbage collector, for which everybody has to wait, would
look at all of those again and again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from siftline.subscriptions import Id

_NONE: Final = -1
# Forgotten places are given back when there are so many, and more than those that are left.
_MANY: Final = 1024


# What an event costs beside its payload, and each of its matches; on the disk, and about as much in memory.
_EVENT_BYTES: Final = 64
_MATCH_BYTES: Final = 4


def event_cost(n_bytes: int, n_matches: int) -> int:
    """Return how many bytes of the log an event takes."""
    return _EVENT_BYTES + n_bytes + _MATCH_BYTES * n_matches


class Recent:
    """The newest events, by subscription too.

    Examples
    --------
    >>> recent = Recent()
    >>> for sequence, ids in ((7, ["x", "y"]), (8, ["x"]), (9, ["y", "z"])):
    ...     recent.add(sequence, 100, ids)
    >>> sorted(recent.sequences("x", after=0)), recent.sequences("y", after=8)
    ([7, 8], [9])
    >>> recent.forget_first()
    >>> recent.first, len(recent), recent.n_bytes, recent.sequences("x", after=0)
    (8, 2, 200, [8])
    """

    def __init__(self) -> None:
        self._events: deque[int] = deque()
        self._bytes: deque[int] = deque()
        self._counts: deque[int] = deque()
        self.n_bytes = 0
        self._newest: dict[Id, int] = {}
        # By place; the first place in these lists has this number, and the first so many are forgotten.
        self._sequences: list[int] = []
        self._ids: list[Id] = []
        self._earlier: list[int] = []
        self._base = self._n_forgotten = 0

    def __len__(self) -> int:
        return len(self._events)

    @property
    def first(self) -> int | None:
        """The oldest event."""
        return self._events[0] if self._events else None

    def oldest(self) -> Iterator[tuple[int, int]]:
        """Yield sequence and size of the events, oldest first."""
        return zip(self._events, self._bytes, strict=True)

    def add(self, sequence: int, n_bytes: int, ids: Sequence[Id]) -> None:
        """Remember the next event and whom it matched."""
        self._events.append(sequence)
        self._bytes.append(n_bytes)
        self._counts.append(len(ids))
        self.n_bytes += n_bytes
        for id in ids:
            self._earlier.append(self._newest.get(id, _NONE))
            self._newest[id] = self._base + len(self._ids)
            self._ids.append(id)
            self._sequences.append(sequence)

    def forget_first(self) -> None:
        """Forget the oldest event."""
        self._events.popleft()
        self.n_bytes -= self._bytes.popleft()
        for place in range(self._n_forgotten, self._n_forgotten + self._counts.popleft()):
            if self._newest[self._ids[place]] == self._base + place:
                del self._newest[self._ids[place]]
            self._n_forgotten += 1
        if self._n_forgotten > max(_MANY, len(self._ids) // 2):
            for column in (self._sequences, self._ids, self._earlier):
                del column[: self._n_forgotten]
            self._base += self._n_forgotten
            self._n_forgotten = 0

    def sequences(self, id: Id, after: int) -> list[int]:
        """Return the events from `after` on that a subscription matched, newest first."""
        found: list[int] = []
        place = self._newest.get(id, _NONE)
        while place >= self._base + self._n_forgotten:
            sequence = self._sequences[place - self._base]
            if sequence < after:
                break
            found.append(sequence)
            place = self._earlier[place - self._base]
        return found
