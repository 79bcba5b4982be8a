"""Small numbers for subscriptions, so that a match takes four bytes in the log and in memory instead of an id.

A subscription gets a number when it first matches, and keeps it as long as an event in the log refers to it. Then the
number is free for another subscription; so numbers stay small, and can index arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from siftline.ids import Id

# The bytes of a name: a row in the file, an entry in a dict, the id itself.
NAME_BYTES: Final = 100


class Names:
    """The numbers of the subscriptions that events in the log have matched.

    Examples
    --------
    >>> names = Names()
    >>> names.numbered(["ann", "bob"]), names.numbered(["eve", "ann"])
    (array([0, 1], dtype=uint32), array([2, 0], dtype=uint32))
    >>> names.hold(names.numbered(["ann", "bob"])); names.hold(names.numbered(["ann"]))
    >>> names.fresh(), names.unheld()
    ([(0, 'ann'), (1, 'bob')], [2])
    >>> names.settle([2])
    >>> names.release(names.numbered(["ann", "bob"]))
    [1]
    >>> names.ids([0]), names.number("bob"), names.number("eve"), len(names)
    (['ann'], 1, None, 2)
    """

    def __init__(self) -> None:
        self._numbers: dict[Id, int] = {}
        self._ids: list[Id | None] = []
        self._counts = np.zeros(1024, np.int32)  # how many events refer to each number
        self._last = np.zeros(1024, np.int64)  # the newest of them
        self._free: list[int] = []
        self._fresh: list[int] = []  # assigned since the last `settle`, and so not yet in the file

    def __len__(self) -> int:
        return len(self._numbers)

    def numbered(self, ids: Sequence[Id]) -> NDArray[np.uint32]:
        """Return the numbers of subscriptions; a subscription without one gets one."""
        known = self._numbers
        try:
            return np.array([known[id] for id in ids], np.uint32)
        except KeyError:
            return np.array([self._given(id) if (n := known.get(id)) is None else n for id in ids], np.uint32)

    def _given(self, id: Id) -> int:
        if self._free:
            number = self._free.pop()
            self._ids[number] = id
        else:
            number = len(self._ids)
            self._ids.append(id)
            self._grow(number)
        self._numbers[id] = number
        self._fresh.append(number)
        return number

    def put(self, number: int, id: Id) -> None:
        """Set a number from the file; numbers come in ascending order."""
        self._free += range(len(self._ids), number)
        self._ids += [None] * (number - len(self._ids))
        self._ids.append(id)
        self._grow(number)
        self._numbers[id] = number

    def _grow(self, number: int) -> None:
        if number >= len(self._counts):
            n = len(self._counts)
            counts, last = np.zeros(max(number + 1, 2 * n), np.int32), np.zeros(max(number + 1, 2 * n), np.int64)
            counts[:n], last[:n] = self._counts, self._last
            self._last, self._counts = last, counts

    def number(self, id: Id) -> int | None:
        """Return the number of a subscription, None if it has none."""
        return self._numbers.get(id)

    def ids(self, numbers: Iterable[int]) -> list[Id]:
        """Return the subscriptions of numbers."""
        return [self._ids[number] for number in numbers]  # type: ignore[misc]

    def known(self) -> NDArray[np.bool_]:
        """Return an array that says of each number whether it is in use."""
        known = np.zeros(self.capacity, np.bool_)
        known[: len(self._ids)] = [id is not None for id in self._ids]
        return known

    def mask(self, numbers: list[int]) -> NDArray[np.bool_]:
        """Return an array that says of each number whether it is one of these."""
        mask = np.zeros(self.capacity, np.bool_)
        mask[numbers] = True
        return mask

    @property
    def capacity(self) -> int:
        """All numbers are less than this."""
        return len(self._counts)

    def seen(self, numbers: NDArray[np.uint32], sequence: int) -> None:
        """Record that an event, newer than all others, has matched these numbers."""
        self._last[numbers] = sequence

    def last(self, numbers: list[int]) -> int:
        """Return the newest event that has matched one of these numbers."""
        return int(self._last[numbers].max(initial=0))

    # reference counts

    def hold(self, numbers: NDArray[np.uint32]) -> None:
        """Count one more event that refers to these numbers."""
        self._counts[numbers] += 1

    def release(self, numbers: NDArray[np.uint32]) -> list[int]:
        """Count one event less for these numbers; return those that no event refers to any more."""
        self._counts[numbers] -= 1
        free: list[int] = numbers[self._counts[numbers] == 0].tolist()
        return free

    def fresh(self) -> list[tuple[int, Id]]:
        """Return the new numbers that events refer to, with their subscriptions."""
        return [(number, self._ids[number]) for number in self._fresh if self._counts[number]]  # type: ignore[misc]

    def unheld(self) -> list[int]:
        """Return the new numbers that no event refers to, because the publish was refused."""
        return [number for number in self._fresh if not self._counts[number]]

    def unused(self) -> list[int]:
        """Return all numbers that no event refers to."""
        return [n for n, id in enumerate(self._ids) if id is not None and not self._counts[n]]

    def settle(self, freed: Iterable[int]) -> None:
        """Record that the new numbers are in the file, and free those of `freed` that no event refers to."""
        self._fresh = []
        for number in freed:
            id = self._ids[number]
            if id is not None and not self._counts[number]:
                del self._numbers[id]
                self._ids[number] = None
                self._free.append(number)
