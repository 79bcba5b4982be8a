"""Reading eight bytes of JSON at a time, as one little-endian 64-bit word, and the failures of parser steps.

No function reads outside `data[:end]`: bytes after the end of an event read as zero, and a zero byte is an error at
every place of a JSON text. So the parser needs neither padding after its input nor a test for each byte.

The long spellings below are one instruction each once compiled: LLVM sees one load in `load_word`, one store in
`store_word`, and a count of trailing zeros in `first_byte`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.kernels.compiler import inline_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Mixing signed and unsigned 64-bit integers changes the type of the result, hence unsigned constants.
ZERO: Final = np.uint64(0)
ONE: Final = np.uint64(1)
TWO: Final = np.uint64(2)
THREE: Final = np.uint64(3)
FOUR: Final = np.uint64(4)
LAST_BYTE: Final = np.uint64(56)
BYTE: Final = np.uint64(0xFF)
LOW_BITS: Final = np.uint64(0x0101010101010101)
HIGH_BITS: Final = np.uint64(0x8080808080808080)

_PAIRS: Final = np.uint64(0x5555555555555555)
_NIBBLES: Final = np.uint64(0x3333333333333333)
_BYTES: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
_QUOTES: Final = np.uint64(0x2222222222222222)
_BACKSLASHES: Final = np.uint64(0x5C5C5C5C5C5C5C5C)
_SPACES: Final = np.uint64(0x2020202020202020)

_SPACE: Final = 0x20
_TAB: Final = 0x09
_NEWLINE: Final = 0x0A
_RETURN: Final = 0x0D


@inline_kernel
def bad(position: int) -> int:
    """Return the negative result of a step that met invalid JSON at `position`."""
    return -2 * position - 2


@inline_kernel
def slow(position: int) -> int:
    """Return the negative result of a step that met a case at `position` which only Python handles exactly."""
    return -2 * position - 1


@inline_kernel
def is_bad(failure: int) -> bool:
    """Tell the results of `bad` from those of `slow`."""
    return (-failure & 1) == 0


@inline_kernel
def failed_at(failure: int) -> int:
    """Return the position that was given to `bad` or `slow`."""
    return (-failure - 1) >> 1


@inline_kernel
def byte_at(data: NDArray[np.uint8], position: int, end: int) -> Any:
    """Return one byte, zero at and after the end of the event."""
    if position < end:
        return np.int64(data[np.uint64(position)])
    return np.int64(0)


@inline_kernel
def skip_space(data: NDArray[np.uint8], position: int, end: int) -> int:
    """Return the first position from `position` on that is not JSON white space."""
    while position < end:
        byte = data[np.uint64(position)]
        if byte > _SPACE:
            break
        if byte != _SPACE and byte != _NEWLINE and byte != _RETURN and byte != _TAB:
            break
        position += 1
    return position


@inline_kernel
def load_word(data: NDArray[np.uint8], position: int, end: int) -> np.uint64:
    """Return the eight bytes from `position` on, the first one in the low bits; zeros after the end."""
    if position + 8 > end:
        return _load_last_word(data, position, end)
    return (
        np.uint64(data[np.uint64(position)])
        | np.uint64(data[np.uint64(position + 1)]) << np.uint64(8)
        | np.uint64(data[np.uint64(position + 2)]) << np.uint64(16)
        | np.uint64(data[np.uint64(position + 3)]) << np.uint64(24)
        | np.uint64(data[np.uint64(position + 4)]) << np.uint64(32)
        | np.uint64(data[np.uint64(position + 5)]) << np.uint64(40)
        | np.uint64(data[np.uint64(position + 6)]) << np.uint64(48)
        | np.uint64(data[np.uint64(position + 7)]) << np.uint64(56)
    )


@inline_kernel
def _load_last_word(data: NDArray[np.uint8], position: int, end: int) -> np.uint64:
    word = ZERO
    for place in range(end - 1, position - 1, -1):
        word = (word << np.uint64(8)) | np.uint64(data[np.uint64(place)])
    return word


@inline_kernel
def store_word(texts: NDArray[np.uint8], position: int, word: np.uint64) -> None:
    """Write eight bytes at `position`; the caller makes sure that they fit."""
    for k in range(8):
        texts[np.uint64(position + k)] = np.uint8((word >> np.uint64(8 * k)) & BYTE)


@inline_kernel
def first_byte(stops: np.uint64) -> Any:
    """Return the number of the lowest byte with a bit set, 8 if there is none."""
    below = ~stops & (stops - ONE)
    below -= (below >> ONE) & _PAIRS
    below = (below & _NIBBLES) + ((below >> TWO) & _NIBBLES)
    below = (below + (below >> FOUR)) & _BYTES
    return np.int64((below * LOW_BITS) >> (LAST_BYTE + THREE))


@inline_kernel
def low_bytes(word: np.uint64, n_bytes: int) -> Any:
    """Return the first `n_bytes` (0 to 7) bytes of a word, the others zero."""
    return word & ((ONE << np.uint64(8 * n_bytes)) - ONE)


@inline_kernel
def byte_of(word: np.uint64, number: int) -> Any:
    """Return byte `number` (0 to 7) of a word."""
    return np.int64((word >> np.uint64(8 * number)) & BYTE)


@inline_kernel
def string_stops(word: np.uint64) -> Any:
    """Mark the bytes that end a run of plain string bytes: quotes, backslashes, control characters, non-ASCII.

    Only the lowest mark is exact: the subtractions may borrow from the bytes above it.
    """
    quotes = word ^ _QUOTES
    backslashes = word ^ _BACKSLASHES
    marks = ((quotes - LOW_BITS) & ~quotes) | ((backslashes - LOW_BITS) & ~backslashes)
    return (marks | ((word - _SPACES) & ~word) | word) & HIGH_BITS
