"""Fair shares: an owner may hold only a part of what is free, so that there is always room for other owners.

    256 places    one owner gets 64, and 192 stay free
                  four such owners get 36 each, and 112 stay free; 32 owners get 7 each, and 32 stay free

Network switches share their buffers by such dynamic thresholds (Choudhury and Hahne, 1998).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

# An owner may hold at most the free places divided by this.
_PARTS: Final = 3


class Shares:
    """Places or bytes, and how many each owner holds; while one is free, every owner may hold at least one.

    >>> shares = Shares(256)
    >>> while shares.has_room("ann"):
    ...     shares.take("ann")
    >>> shares.held("ann"), shares.has_room("ann"), shares.has_room("bob")
    (64, False, True)
    """

    def __init__(self, most: int) -> None:
        self._most, self._total = most, 0
        self._held: Counter[str] = Counter()

    def has_room(self, owner: str) -> bool:
        """Return whether an owner may take more; the next take may exceed the owner's part."""
        free = self._most - self._total
        return free > 0 and self._held[owner] < max(1, free // _PARTS)

    @property
    def free(self) -> int:
        """How much is free."""
        return max(0, self._most - self._total)

    def held(self, owner: str) -> int:
        """Return how much an owner holds."""
        return self._held[owner]

    def take(self, owner: str, n: int = 1) -> None:
        """Add to what an owner holds."""
        self._held[owner] += n
        self._total += n

    def give_back(self, owner: str, n: int = 1) -> None:
        """Subtract from what an owner holds."""
        self._total -= n
        self._held[owner] -= n
        if not self._held[owner]:
            del self._held[owner]

    def copy(self) -> Shares:
        """Return a copy, for trying out decisions."""
        other = Shares(self._most)
        other._total, other._held = self._total, self._held.copy()
        return other
