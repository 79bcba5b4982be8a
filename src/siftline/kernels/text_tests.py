"""Tests of one string in UTF-8 by another: order, whether it stands in it, and its length in code points.

The order of the bytes is the order of the code points, lone surrogates included.

Before a text is searched for, the *grams* of the string, all that stands in three bytes behind each other, are asked
whether it can be there at all. They are bits of a hash, entered once for a string however many texts are searched for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.kernels.compiler import inline_kernel
from siftline.kernels.json_words import HIGH_BITS, LOW_BITS, ZERO, first_byte, load_word, low_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Sets of grams have two to the power of so many bits. For one string: one of 200 bytes sets a bit in forty. For all
# strings of an event: 2,500 bytes set one in thirteen.
GRAM_SET_BITS: Final = 13
LARGE_SET_BITS: Final = 15

GRAM_BYTES: Final = 3
# Bits of a screen beside the two hashes: the text is folded; there is a screen.
SCREEN_FOLDED: Final = 2 * LARGE_SET_BITS
IS_SCREEN: Final = SCREEN_FOLDED + 1

_SCREEN_BITS: Final = np.uint64((1 << LARGE_SET_BITS) - 1)
_SCREEN_SHIFT: Final = np.uint64(LARGE_SET_BITS)
_WORD_BYTES: Final = 8
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_HASH_BITS: Final = 64
_WORD_SHIFT: Final = np.uint64(6)
_WORD_BITS: Final = np.uint64(63)
_ONE: Final = np.uint64(1)
_CONTINUATION: Final = 0x80
_CONTINUATION_BITS: Final = 0xC0


@inline_kernel
def compare_texts(
    left: NDArray[np.uint8], start: Any, end: Any, right: NDArray[np.uint8], right_start: Any, right_end: Any
) -> int:
    """Return -1, 0 or 1 if left[start:end] comes before right[right_start:right_end], is the same, or comes behind."""
    n = min(end - start, right_end - right_start)
    k = 0
    while k + _WORD_BYTES <= n and load_word(left, start + k, end) == load_word(right, right_start + k, right_end):
        k += _WORD_BYTES
    while k < n:
        here, there = left[np.uint64(start + k)], right[np.uint64(right_start + k)]
        if here != there:
            return -1 if here < there else 1
        k += 1
    if end - start == right_end - right_start:
        return 0
    return -1 if end - start < right_end - right_start else 1


@inline_kernel
def stands_at(text: NDArray[np.uint8], start: Any, part: NDArray[np.uint8], part_start: Any, part_end: Any) -> bool:
    """Return whether part[part_start:part_end] stands in a text from `start` on; there must be room for it."""
    n = part_end - part_start
    if n < _WORD_BYTES:
        here, there = load_word(text, start, len(text)), load_word(part, part_start, len(part))
        return bool(low_bytes(here ^ there, n) == ZERO)
    for k in range(0, n - _WORD_BYTES, _WORD_BYTES):
        if load_word(text, start + k, len(text)) != load_word(part, part_start + k, len(part)):
            return False
    last = n - _WORD_BYTES
    return bool(load_word(text, start + last, len(text)) == load_word(part, part_start + last, len(part)))


@inline_kernel
def contains(
    text: NDArray[np.uint8], start: Any, end: Any, part: NDArray[np.uint8], part_start: Any, part_end: Any
) -> bool:
    """Return whether part[part_start:part_end] stands somewhere in text[start:end]."""
    n = part_end - part_start
    if n == 0:
        return True
    if n > end - start:
        return False
    room = len(text)
    first = np.uint64(part[np.uint64(part_start)]) * LOW_BITS
    last = np.uint64(part[np.uint64(part_end - 1)]) * LOW_BITS
    # Eight places at a time: where the first byte stands, and the last one so many bytes behind it.
    for position in range(start, end - n + 1, _WORD_BYTES):
        differs = (load_word(text, position, room) ^ first) | (load_word(text, position + n - 1, room) ^ last)
        here = ~(((differs & ~HIGH_BITS) + ~HIGH_BITS) | differs) & HIGH_BITS
        while here != ZERO:
            place = position + first_byte(here)
            if place + n > end:
                return False
            if stands_at(text, place, part, part_start, part_end):
                return True
            here &= here - _ONE
    return False


@inline_kernel
def count_characters(text: NDArray[np.uint8], start: Any, end: Any) -> int:
    """Return the number of code points: of the bytes that do not continue one."""
    n = 0
    for position in range(start, end):
        n += text[np.uint64(position)] & _CONTINUATION_BITS != _CONTINUATION
    return n


@inline_kernel
def _gram_hash(text: NDArray[np.uint8], position: Any, n_bits: int) -> Any:
    gram = (
        np.uint64(text[np.uint64(position)])
        | np.uint64(text[np.uint64(position + 1)]) << np.uint64(8)
        | np.uint64(text[np.uint64(position + 2)]) << np.uint64(16)
    )
    return (gram * _MIX) >> np.uint64(_HASH_BITS - n_bits)


@inline_kernel
def set_words(n_bits: int) -> int:
    """Return how many words a set of grams has."""
    return 1 << (n_bits - 6)


@inline_kernel
def clear_grams(grams: NDArray[np.uint64], first: Any, n_bits: int) -> None:
    """Make the set whose words begin at grams[first] empty."""
    for word in range(first, first + set_words(n_bits)):
        grams[np.uint64(word)] = 0


@inline_kernel
def enter_grams(
    text: NDArray[np.uint8], start: Any, end: Any, grams: NDArray[np.uint64], first: Any, n_bits: int
) -> None:
    """Enter the grams of text[start:end] into the set whose words begin at grams[first]."""
    for position in range(start, end - GRAM_BYTES + 1):
        mixed = _gram_hash(text, position, n_bits)
        grams[np.uint64(first) + (mixed >> _WORD_SHIFT)] |= _ONE << (mixed & _WORD_BITS)


@inline_kernel
def _has_gram(grams: NDArray[np.uint64], first: Any, n_bits: int, part: NDArray[np.uint8], position: Any) -> bool:
    mixed = _gram_hash(part, position, n_bits)
    return bool((grams[np.uint64(first) + (mixed >> _WORD_SHIFT)] >> (mixed & _WORD_BITS)) & _ONE)


@inline_kernel
def may_contain(
    grams: NDArray[np.uint64], first: Any, n_bits: int, part: NDArray[np.uint8], part_start: Any, part_end: Any
) -> bool:
    """Return False if a text with these grams surely does not have part[part_start:part_end]."""
    if part_end - part_start < GRAM_BYTES:
        return True
    position = part_start
    while position + GRAM_BYTES <= part_end:
        if not _has_gram(grams, first, n_bits, part, position):
            return False
        position += GRAM_BYTES
    return _has_gram(grams, first, n_bits, part, part_end - GRAM_BYTES)


def screen_of(text: bytes, *, is_folded: bool) -> int:
    """Return the hashes of the first and the last gram of a text, for `has_screen`; 0 if it is too short."""
    if len(text) < GRAM_BYTES:
        return 0
    first, last = (
        (int.from_bytes(gram, "little") * int(_MIX) & 0xFFFFFFFFFFFFFFFF) >> (_HASH_BITS - LARGE_SET_BITS)
        for gram in (text[:GRAM_BYTES], text[-GRAM_BYTES:])
    )
    return first | last << LARGE_SET_BITS | is_folded << SCREEN_FOLDED | 1 << IS_SCREEN


@inline_kernel
def has_screen(grams: NDArray[np.uint64], first: Any, screen: Any) -> bool:
    """Return whether a large set, whose words begin at grams[first], has both grams of a screen."""
    mixed, other = screen & _SCREEN_BITS, (screen >> _SCREEN_SHIFT) & _SCREEN_BITS
    here = grams[np.uint64(first) + (mixed >> _WORD_SHIFT)] >> (mixed & _WORD_BITS)
    there = grams[np.uint64(first) + (other >> _WORD_SHIFT)] >> (other & _WORD_BITS)
    return bool(here & there & _ONE)
