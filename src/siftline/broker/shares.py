"""What owners share: nobody takes more than a part of what is free, so there is room for others whatever some hold.

    256 places    ann alone gets 64, and leaves 192
                  of four such owners each gets 36, and they leave 112; of 32 each gets 7, and they leave 32

These are the dynamic thresholds by which switches share their buffers (Choudhury and Hahne, 1998).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

# An owner may have one of this many parts of what is free.
_PARTS: Final = 3


class Shares:
    """Places, or bytes, and who holds how many; each owner may have one in any case, as long as one is free.

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
        """Return whether an owner may take more; what he takes then may be larger than his part."""
        free = self._most - self._total
        return free > 0 and self._held[owner] < max(1, free // _PARTS)

    @property
    def free(self) -> int:
        """What nobody holds."""
        return max(0, self._most - self._total)

    def held(self, owner: str) -> int:
        """Return how much an owner holds."""
        return self._held[owner]

    def take(self, owner: str, n: int = 1) -> None:
        """Let an owner hold more."""
        self._held[owner] += n
        self._total += n

    def give_back(self, owner: str, n: int = 1) -> None:
        """Let an owner hold less."""
        self._total -= n
        self._held[owner] -= n
        if not self._held[owner]:
            del self._held[owner]

    def copy(self) -> Shares:
        """Return the same shares, to try on."""
        other = Shares(self._most)
        other._total, other._held = self._total, self._held.copy()
        return other
