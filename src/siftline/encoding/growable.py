"""Arrays that grow at the end, safely for readers in other threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import DTypeLike, NDArray

_ALL_SET: Final = 2**64 - 1


class Growable:
    """An array with room at the end.

    Views taken earlier stay valid and unchanged: growing writes behind them, or into a larger copy.

    Examples
    --------
    >>> numbers = Growable(np.array([1, 2]))
    >>> before = numbers.view
    >>> numbers.extend([3])
    >>> before, numbers.view
    (array([1, 2]), array([1, 2, 3]))

    Attributes
    ----------
    whole : array
        The elements so far, and room for more behind them; another array once that is used up.
    """

    __slots__ = ("_length", "whole")

    def __init__(self, values: NDArray[Any]) -> None:
        self.whole = values
        self._length = len(values)

    @classmethod
    def empty(cls, dtype: DTypeLike) -> Growable:
        """Return a growable array without elements."""
        return cls(np.empty(0, dtype=dtype))

    def __len__(self) -> int:
        return self._length

    @property
    def view(self) -> NDArray[Any]:
        """The elements so far."""
        return self.whole[: self._length]

    def taken(self, places: NDArray[Any]) -> NDArray[Any]:
        """Return the elements at some places, without making a view first."""
        return self.whole[places]  # type: ignore[no-any-return]

    @property
    def item(self) -> Callable[[int], Any]:
        """The function that returns the element at a place as a Python object."""
        return self.whole.item

    def extend(self, values: Any) -> None:
        """Append values."""
        if not len(values):
            return
        length = self._length + len(values)
        if length > len(self.whole):
            self._make_room(length)
        self.whole[self._length : length] = values
        self._length = length

    def append(self, value: Any) -> None:
        """Append one value."""
        length = self._length
        if length == len(self.whole):
            self._make_room(length + 1)
        self.whole[length] = value
        self._length = length + 1

    def set(self, place: int, value: Any) -> None:
        """Change one element, without making a view first."""
        self.whole[place] = value

    def _make_room(self, length: int) -> None:
        larger = np.empty(max(16, length + length // 2), dtype=self.whole.dtype)
        larger[: self._length] = self.view
        self.whole = larger


class GrowableBits:
    """Bits with room at the end; new ones are set, and can be cleared.

    Examples
    --------
    >>> bits = GrowableBits(np.array([True, False]))
    >>> bits.extend(2)
    >>> bits.clear([3])
    >>> bits.flags
    array([ True, False,  True, False])
    """

    __slots__ = ("_length", "words")

    def __init__(self, flags: NDArray[np.bool_]) -> None:
        self._length = len(flags)
        padded = np.zeros(-(-len(flags) // 64) * 64, dtype=np.bool_)
        padded[: len(flags)] = flags
        self.words = Growable(np.packbits(padded, bitorder="little").view(np.uint64))

    @property
    def flags(self) -> NDArray[np.bool_]:
        """The bits as an array."""
        return np.unpackbits(self.words.view.view(np.uint8), count=self._length, bitorder="little").astype(np.bool_)

    def extend(self, n: int) -> None:
        """Append bits that are set."""
        word, bit = divmod(self._length, 64)
        self._length += n
        n_first = min(n, 64 - bit) if bit else 0
        if n_first:
            self.words.set(word, self.words.item(word) | ((1 << n_first) - 1) << bit)
        n_whole, n_last = divmod(n - n_first, 64)
        if n_whole:
            self.words.extend(np.full(n_whole, _ALL_SET, dtype=np.uint64))
        if n_last:
            self.words.append((1 << n_last) - 1)

    def clear(self, places: Iterable[int]) -> None:
        """Clear some bits."""
        for place in places:
            word = place >> 6
            self.words.set(word, self.words.item(word) & ~(1 << (place & 63)))
