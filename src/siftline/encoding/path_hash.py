"""The table in which the JSON parser finds attribute paths, built once for a set of attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.kernels.json_path import EMPTY_SLOT, SLOT_WORDS, PathHash, fill_path_slots, fill_path_words
from siftline.kernels.pointers import handle_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Paths:
    """A table of paths, with what kernels take for it."""

    __slots__ = ("handle", "hash", "n_paths")

    def __init__(self, paths: Sequence[str]) -> None:
        self.n_paths = len(paths)
        self.hash = build_path_hash(paths)
        self.handle: Any = handle_of(self.hash)


def build_path_hash(paths: Sequence[str]) -> PathHash:
    """Build the table that maps each path to its position in `paths`.

    Raises
    ------
    ValueError
        If a path occurs twice.

    Examples
    --------
    >>> table = build_path_hash(["price", "product.name"])  # holds "product" as well
    >>> len(table.slots), len(table.words)
    (32, 3)
    """
    encoded = [path.encode("utf-8", "surrogatepass") for path in paths]
    data = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    starts = _offsets(lengths)
    word_starts = _offsets((lengths + 7) >> 3)
    words = np.zeros(int(word_starts[-1]), dtype=np.uint64)
    fill_path_words(data, starts, words, word_starts)
    path = np.zeros(int(lengths.max(initial=0)) // 8 + 1, dtype=np.uint64)
    # Every dot may or may not add an entry: the first table has room for all, the second for those that are there.
    slots = _empty_slots(len(paths) + int(np.count_nonzero(data == ord("."))))
    n_slots, repeated = fill_path_slots(data, starts, words, word_starts, slots, path)
    if repeated >= 0:
        raise ValueError(f"the path {paths[repeated]!r} occurs twice")
    tight = _empty_slots(n_slots)
    if tight.size < slots.size:
        slots = tight
        fill_path_slots(data, starts, words, word_starts, slots, path)
    # Read-only arrays are another type to the compiler: with one kind only, there is one parser to compile.
    slots.flags.writeable = False
    words.flags.writeable = False
    return PathHash(slots, words)


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _empty_slots(n_entries: int) -> NDArray[np.uint64]:
    """Return a table with room for `n_entries` that stays at most half full."""
    n_slots = max(4, 1 << (2 * n_entries - 1).bit_length()) if n_entries else 4
    return np.full(SLOT_WORDS * n_slots, EMPTY_SLOT, dtype=np.uint64)


NO_PATHS: Final = Paths([])
