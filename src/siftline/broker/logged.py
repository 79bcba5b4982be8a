"""Events of the log, with the subscriptions that they matched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from siftline.broker.names import Names
    from siftline.ids import Id

# If the wanted subscriptions are fewer than the matched ones by this factor, each is searched for by itself.
_SEARCH_RATIO: Final = 16


class LoggedEvent(NamedTuple):
    """An event of the log with the subscriptions that it matched; `payload` is JSON on one line.

    The numbers stand for subscriptions in `names` until the next append to the log.
    """

    sequence: int
    at: int
    payload: bytes
    numbers: NDArray[np.uint32]
    names: Names

    def subscriptions(self) -> list[Id]:
        """Return all subscriptions, in the order of their places."""
        return self.names.ids(self.numbers.tolist())

    def among(self, ids: Collection[Id]) -> list[tuple[int, Id]]:
        """Return the subscriptions that are among some ids, with their places."""
        if len(ids) * _SEARCH_RATIO > len(self.numbers):
            return [(place, id) for place, id in enumerate(self.subscriptions()) if id in ids]
        numbered = [(self.names.number(id), id) for id in ids]
        return sorted(
            (place, id)
            for number, id in numbered
            if number is not None
            for place in np.flatnonzero(self.numbers == number).tolist()
        )
