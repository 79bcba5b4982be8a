"""Attribute paths as words: hashed while the keys of a JSON text are read, found in a table of known paths.

A path is cut into eight-byte words, the last one incomplete and filled with zeros:

    "product.price"  ->  "product."  "price..." (zeros)     length 13

While it grows, its state is (hash of the complete words, the incomplete word `tail`, length in bytes). Words are cut
where the *path* reaches a multiple of eight, not where keys begin: so {"a": {"b": 1}} and {"a.b": 1} give the same
state, and what is nested continues from the state of the object around it.

Table: `slots` has four words for each slot, probed linearly, at most half full:
    hash | length << 32 | attribute | where the words of the path begin in `words` | unused
Besides the known paths it has, without an attribute, each prefix of them that ends before a dot. So a key that is not
in the table is no prefix of a known path, and everything below it can be skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.json_words import ONE, THREE, TWO, ZERO, low_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOT_WORDS: Final = 4
EMPTY_SLOT: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
HASH_SEED: Final = np.uint64(0x9E3779B97F4A7C15)
DOT: Final = np.uint64(0x2E)
NO_ATTRIBUTE: Final = -1

_MULTIPLIER: Final = np.uint64(0xFF51AFD7ED558CCD)
_LENGTH_MULTIPLIER: Final = np.uint64(0xC4CEB9FE1A85EC53)
_HALF: Final = np.uint64(32)
_LOW_HALF: Final = np.uint64(0xFFFFFFFF)
_SIXTY_THREE: Final = np.uint64(63)


class PathHash(NamedTuple):
    """Known attribute paths and their prefixes; see above.

    Attributes
    ----------
    slots : uint64[4 * n_slots]
        An open-addressing hash table; n_slots is a power of two.
    words : uint64[n_words]
        The bytes of the paths, each padded with zeros to a multiple of eight.
    """

    slots: NDArray[np.uint64]
    words: NDArray[np.uint64]


@inline_kernel
def extend_path(
    path: NDArray[np.uint64], state: np.uint64, tail: np.uint64, length: int, word: np.uint64, n_bytes: int
) -> tuple[Any, Any, int]:
    """Append the first `n_bytes` (0 to 8) bytes of a word, the others being zero; a completed word goes to `path`."""
    used = np.uint64(8 * (length & 7))
    tail |= word << used
    if (length & 7) + n_bytes >= 8:
        path[np.uint64(length >> 3)] = tail
        state = (state ^ tail) * _MULTIPLIER
        state ^= state >> _HALF
        tail = (word >> ONE) >> (_SIXTY_THREE - used)  # a shift by 64 is undefined
    return state, tail, length + n_bytes


@inline_kernel
def finish_hash(state: np.uint64, tail: np.uint64, length: int) -> Any:
    """Return the hash of a path; for one state and one length, different tails give different hashes."""
    mixed = (state ^ tail ^ (np.uint64(length) * _LENGTH_MULTIPLIER)) * _MULTIPLIER
    return mixed ^ (mixed >> _HALF)


@inline_kernel
def find_path(
    slots: NDArray[np.uint64],
    words: NDArray[np.uint64],
    path: NDArray[np.uint64],
    state: np.uint64,
    tail: np.uint64,
    length: int,
) -> Any:
    """Return the slot of a path, -1 if the table does not have it."""
    last = np.uint64((slots.size >> 2) - 1)
    hashed = finish_hash(state, tail, length)
    slot = hashed & last
    while True:
        entry = slots[(slot << TWO) + ONE]
        if entry == EMPTY_SLOT:
            return np.int64(-1)
        # Below eight bytes, equal length and hash mean equal bytes: see finish_hash.
        if (
            slots[slot << TWO] == hashed
            and entry >> _HALF == np.uint64(length)
            and (length < 8 or _is_same_path(words, np.int64(slots[(slot << TWO) + TWO]), path, tail, length))
        ):
            return np.int64(slot)
        slot = (slot + ONE) & last


@inline_kernel
def _is_same_path(
    words: NDArray[np.uint64], first_word: Any, path: NDArray[np.uint64], tail: np.uint64, length: int
) -> bool:
    for k in range(length >> 3):
        if words[np.uint64(first_word + k)] != path[np.uint64(k)]:
            return False
    if (length & 7) == 0:
        return True
    return bool(low_bytes(words[np.uint64(first_word + (length >> 3))], length & 7) == tail)


@inline_kernel
def attribute_of(slots: NDArray[np.uint64], slot: int) -> Any:
    """Return the attribute of a slot, NO_ATTRIBUTE if it is only a prefix."""
    return np.int32(slots[(np.uint64(slot) << TWO) + ONE] & _LOW_HALF)


@inline_kernel
def _insert_path(
    slots: NDArray[np.uint64], hashed: np.uint64, length: int, attribute: np.uint64, first_word: int
) -> None:
    last = np.uint64((slots.size >> 2) - 1)
    slot = hashed & last
    while slots[(slot << TWO) + ONE] != EMPTY_SLOT:
        slot = (slot + ONE) & last
    slots[slot << TWO] = hashed
    slots[(slot << TWO) + ONE] = (np.uint64(length) << _HALF) | attribute
    slots[(slot << TWO) + TWO] = np.uint64(first_word)
    slots[(slot << TWO) + THREE] = ZERO


@kernel
def fill_path_words(
    data: NDArray[np.uint8], starts: NDArray[np.int64], words: NDArray[np.uint64], word_starts: NDArray[np.int64]
) -> None:
    """Write the words of each path `data[starts[i] : starts[i + 1]]` from `words[word_starts[i]]` on."""
    for i in range(starts.size - 1):
        for place in range(starts[i], starts[i + 1]):
            offset = place - starts[i]
            word = np.uint64(word_starts[i] + (offset >> 3))
            words[word] |= np.uint64(data[np.uint64(place)]) << np.uint64(8 * (offset & 7))


@kernel
def fill_path_slots(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    words: NDArray[np.uint64],
    word_starts: NDArray[np.int64],
    slots: NDArray[np.uint64],
    path: NDArray[np.uint64],
) -> tuple[int, int]:
    """Fill an empty table with the known paths, then with their prefixes.

    Returns
    -------
    tuple[int, int]
        The number of slots in use, and the first path that is a repeat, -1 if there is none.
    """
    n_slots = 0
    for stage in range(2):
        for i in range(starts.size - 1):
            state = HASH_SEED
            tail = ZERO
            length = 0
            for place in range(starts[i], starts[i + 1]):
                byte = np.uint64(data[np.uint64(place)])
                if stage == 1 and byte == DOT and find_path(slots, words, path, state, tail, length) < 0:
                    _insert_path(slots, finish_hash(state, tail, length), length, _LOW_HALF, word_starts[i])
                    n_slots += 1
                state, tail, length = extend_path(path, state, tail, length, byte, 1)
            if stage == 0:
                if find_path(slots, words, path, state, tail, length) >= 0:
                    return n_slots, i
                _insert_path(slots, finish_hash(state, tail, length), length, np.uint64(i), word_starts[i])
                n_slots += 1
    return n_slots, -1
