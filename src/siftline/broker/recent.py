"""The index of the log in memory: the size of each event, and the subscriptions that it has matched.

    sequences   7     8   9         one for each event
    ends        2     3   5         where its matches end
    numbers     0  1  0   1  2      the matches of all events; a subscription has a small number (`names.py`)

A request for the events of a subscription scans the numbers from a position on. That is a comparison of whole arrays,
millions of numbers in a few milliseconds; a list for each subscription would take many times the memory. The contents
of the arrays never change, so a reader takes a snapshot of them and scans it without a lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.broker.notifications import Position

# The bytes on the disk of an event besides its payload, and of each match; in memory they are fewer.
_EVENT_BYTES: Final = 64
_MATCH_BYTES: Final = 4
# SQLite continues longer rows on pages of their own.
_PAGE_BYTES: Final = 4096
# How many numbers are scanned at a time: few at first, because the wanted ones may come soon.
_FIRST_WINDOW: Final = 1 << 12
_MOST_WINDOW: Final = 1 << 20
_LEAST_CAPACITY: Final = 1 << 10


def event_cost(n_bytes: int, n_matches: int) -> int:
    """Return how many bytes an event takes in the log.

    >>> event_cost(100, 10), event_cost(10_000, 0)
    (204, 12288)
    """
    n_bytes += _EVENT_BYTES + _MATCH_BYTES * n_matches
    return n_bytes if n_bytes < _PAGE_BYTES else -(-n_bytes // _PAGE_BYTES) * _PAGE_BYTES


class Column:
    """A queue of numbers in one array: they are added at the end and removed at the beginning.

    A number is never moved within its array, only into another one. So a view never changes.
    """

    def __init__(self, dtype: Any) -> None:
        self._array: NDArray[Any] = np.empty(_LEAST_CAPACITY, dtype)
        self._start = self._end = 0

    @property
    def view(self) -> NDArray[Any]:
        """The numbers at this moment; it keeps the whole array alive, so it must not be held for long."""
        return self._array[self._start : self._end]

    def extend(self, values: Any) -> None:
        """Add numbers at the end."""
        n = len(values)
        self.reserve(n)
        self._array[self._end : self._end + n] = values
        self._end += n

    def reserve(self, n: int) -> None:
        """Make room for a number of additions."""
        if self._end + n > len(self._array):
            self._move(n)

    def drop(self, n: int) -> None:
        """Remove numbers at the beginning."""
        self._start += n
        if len(self._array) > _LEAST_CAPACITY and (self._end - self._start) * 8 < len(self._array):
            self._move(0)  # gives memory back

    def _move(self, n_more: int) -> None:
        """Copy the numbers into another array with room for more."""
        kept = self.view
        array = np.empty(max(_LEAST_CAPACITY, (len(kept) + n_more) * 5 // 4), self._array.dtype)
        array[: len(kept)] = kept
        self._array, self._start, self._end = array, 0, len(kept)


class Found(NamedTuple):
    """Matches: the number of each event, the place among its matches, and the number of the subscription."""

    sequences: list[int]
    places: list[int]
    numbers: list[int]


class Recent:
    """The events in the log, with an index by subscription.

    Examples
    --------
    >>> from siftline.broker.notifications import START, Position
    >>> recent = Recent()
    >>> for sequence, numbers in ((7, [0, 1]), (8, [0]), (9, [1, 2])):
    ...     recent.add(sequence, 100, np.array(numbers, np.uint32))
    >>> recent.snapshot().find(START, 0, limit=9)
    Found(sequences=[7, 8], places=[0, 0], numbers=[0, 0])
    >>> recent.snapshot().find(Position(7, 0), np.array([False, True, True]), limit=2)
    Found(sequences=[7, 9], places=[1, 0], numbers=[1, 1])
    >>> recent.forget(1)
    >>> recent.first, len(recent), recent.n_bytes, recent.snapshot().find(START, 0, limit=9).sequences
    (8, 2, 200, [8])
    """

    def __init__(self) -> None:
        self._sequences, self._costs, self._ends = Column(np.int64), Column(np.int64), Column(np.int64)
        self._numbers, self._names = Column(np.uint32), Column(np.int32)
        self._base = 0  # the start of the oldest event's matches; `_ends` also counts all matches dropped before
        self.n_bytes = self.n_names = 0

    def __len__(self) -> int:
        return len(self._sequences.view)

    @property
    def first(self) -> int | None:
        """The oldest event."""
        return int(self._sequences.view[0]) if len(self) else None

    @property
    def sequences(self) -> NDArray[np.int64]:
        """The numbers of all events."""
        return self._sequences.view.copy()

    @property
    def n_matches(self) -> int:
        """How many matches the events have."""
        return len(self._numbers.view)

    def reserve(self, n_matches: int) -> None:
        """Make room for a number of matches at once."""
        self._numbers.reserve(n_matches)

    def add(self, sequence: int, cost: int, numbers: NDArray[np.uint32], n_names: int = 0) -> None:
        """Add the next event with its matches and the number of its idempotency keys."""
        self._numbers.extend(numbers)
        self._sequences.extend([sequence])
        self._costs.extend([cost])
        self._names.extend([n_names])
        self._ends.extend([self._base + len(self._numbers.view)])
        self.n_bytes += cost
        self.n_names += n_names

    def event(self, position: int) -> tuple[int, int, NDArray[np.uint32]]:
        """Return sequence, cost and matches of an event; the oldest has position 0."""
        snapshot = self.snapshot()
        matches = snapshot.numbers[snapshot.start(position) : snapshot.start(position + 1)]
        return int(self._sequences.view[position]), int(self._costs.view[position]), matches.copy()

    def forget(self, n_events: int) -> None:
        """Forget the oldest events."""
        n_matches = self.snapshot().start(n_events)
        self.n_bytes -= int(self._costs.view[:n_events].sum())
        self.n_names -= int(self._names.view[:n_events].sum())
        for column in (self._sequences, self._costs, self._ends, self._names):
            column.drop(n_events)
        self._numbers.drop(n_matches)
        self._base += n_matches

    def snapshot(self) -> Snapshot:
        """Return the arrays as they are at this moment, without copying them."""
        return Snapshot(self._sequences.view, self._ends.view, self._numbers.view, self._base)


class Snapshot(NamedTuple):
    """The arrays of the events at one moment; it never changes, so it can be scanned while others publish.

    Attributes
    ----------
    sequences, ends, numbers : arrays
        The arrays drawn above.
    base : int
        The start of the first event's matches, as `ends` counts.
    """

    sequences: NDArray[np.int64]
    ends: NDArray[np.int64]
    numbers: NDArray[np.uint32]
    base: int

    def find(
        self, after: Position, wanted: int | NDArray[np.bool_] | None, *, limit: int, until: int | None = None
    ) -> Found:
        """Return the next matches after a position: of one subscription, of some, or of all (None).

        `until` is the last event to scan.
        """
        position = int(np.searchsorted(self.sequences, after.sequence))
        first = self.start(position)
        if position < len(self.sequences) and self.sequences[position] == after.sequence:
            first = min(first + after.place + 1, self.start(position + 1))
        n_events = len(self.sequences)
        end = self.start(n_events if until is None else int(np.searchsorted(self.sequences, until, "right")))
        return self._found(self._hits(first, end, wanted, limit))

    def start(self, position: int) -> int:
        """Return where in the numbers the matches of an event begin."""
        return int(self.ends[position - 1]) - self.base if position else 0

    def _hits(self, first: int, end: int, wanted: int | NDArray[np.bool_] | None, limit: int) -> NDArray[np.int64]:
        """Return the positions of the wanted numbers."""
        if wanted is None:
            return np.arange(first, max(first, min(end, first + limit)))
        found: list[NDArray[np.int64]] = []
        n_found, size = 0, _FIRST_WINDOW
        while first < end and n_found < limit:
            window = self.numbers[first : min(first + size, end)]
            hits = np.flatnonzero(window == wanted if isinstance(wanted, int) else wanted[window])
            found.append(hits[: limit - n_found] + first)
            n_found += len(found[-1])
            first += len(window)
            size = min(2 * size, _MOST_WINDOW)
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _found(self, hits: NDArray[np.int64]) -> Found:
        events = np.searchsorted(self.ends, hits + self.base, "right")
        starts = np.where(events > 0, self.ends[np.maximum(events, 1) - 1] - self.base, 0) if len(hits) else hits
        return Found(self.sequences[events].tolist(), (hits - starts).tolist(), self.numbers[hits].tolist())
