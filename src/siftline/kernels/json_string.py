"""The strings of JSON: escapes decoded, UTF-8 validated, as `json.loads` does it.

Text comes out as UTF-8. A surrogate that stands alone as an escape becomes its three bytes (WTF-8), which is what
Python's 'surrogatepass' writes. Surrogates that are raw UTF-8 in the input are left to Python: `json.loads` accepts
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from siftline.kernels.compiler import inline_kernel
from siftline.kernels.json_words import bad, byte_at, first_byte, load_word, slow, store_word, string_stops

if TYPE_CHECKING:
    from numpy.typing import NDArray

_QUOTE: Final = 0x22
_SLASH: Final = 0x2F
_BACKSLASH: Final = 0x5C
_HIGH_SURROGATES: Final = 0xD800
_LOW_SURROGATES: Final = 0xDC00
_END_OF_SURROGATES: Final = 0xE000


@inline_kernel
def decode_string(
    data: NDArray[np.uint8], position: int, end: int, texts: NDArray[np.uint8], n_texts: int
) -> tuple[int, int]:
    """Write the string whose first byte after the quote is at `position` to `texts[n_texts:]`.

    The text is never longer than the JSON that it was decoded from, but up to eight bytes after it are overwritten.

    Returns
    -------
    tuple[int, int]
        The position after the closing quote, or a failure, and the end of the text.
    """
    while True:
        word = load_word(data, position, end)
        store_word(texts, n_texts, word)
        n_plain = first_byte(string_stops(word))
        position += n_plain
        n_texts += n_plain
        if n_plain == 8:
            continue
        byte = byte_at(data, position, end)
        if byte == _QUOTE:
            return position + 1, n_texts
        if byte == _BACKSLASH:
            position, n_texts = _decode_escape(data, position, end, texts, n_texts)
        elif byte >= 0x80:
            position, n_texts = _copy_sequence(data, position, end, texts, n_texts)
        else:
            return bad(position), n_texts
        if position < 0:
            return position, n_texts


@inline_kernel
def _decode_escape(
    data: NDArray[np.uint8], position: int, end: int, texts: NDArray[np.uint8], n_texts: int
) -> tuple[int, int]:
    byte = byte_at(data, position + 1, end)
    if byte == 0x75:  # u
        return _decode_unicode_escape(data, position, end, texts, n_texts)
    if byte in (_QUOTE, _BACKSLASH, _SLASH):
        code = byte
    elif byte == 0x6E:  # n
        code = 0x0A
    elif byte == 0x74:  # t
        code = 0x09
    elif byte == 0x72:  # r
        code = 0x0D
    elif byte == 0x62:  # b
        code = 0x08
    elif byte == 0x66:  # f
        code = 0x0C
    else:
        return bad(position), n_texts
    texts[np.uint64(n_texts)] = np.uint8(code)
    return position + 2, n_texts + 1


@inline_kernel
def _decode_unicode_escape(
    data: NDArray[np.uint8], position: int, end: int, texts: NDArray[np.uint8], n_texts: int
) -> tuple[int, int]:
    code = _hexadecimal(data, position + 2, end)
    if code < 0:
        return bad(position), n_texts
    position += 6
    if (
        _HIGH_SURROGATES <= code < _LOW_SURROGATES
        and byte_at(data, position, end) == _BACKSLASH
        and byte_at(data, position + 1, end) == 0x75
    ):
        low = _hexadecimal(data, position + 2, end)
        if _LOW_SURROGATES <= low < _END_OF_SURROGATES:
            code = 0x10000 + ((code - _HIGH_SURROGATES) << 10) + (low - _LOW_SURROGATES)
            position += 6
    return position, _put_code_point(texts, n_texts, code)


@inline_kernel
def _hexadecimal(data: NDArray[np.uint8], position: int, end: int) -> int:
    """Return the value of four hexadecimal digits, -1 if they are not."""
    value = 0
    for place in range(position, position + 4):
        byte = byte_at(data, place, end)
        if 0x30 <= byte <= 0x39:
            digit = byte - 0x30
        elif 0x61 <= byte <= 0x66:
            digit = byte - 0x57
        elif 0x41 <= byte <= 0x46:
            digit = byte - 0x37
        else:
            return -1
        value = value * 16 + digit
    return value


@inline_kernel
def _put_code_point(texts: NDArray[np.uint8], n_texts: int, code: int) -> int:
    """Write a code point, also a surrogate, as UTF-8; return the end of the text."""
    if code < 0x80:
        texts[np.uint64(n_texts)] = np.uint8(code)
        return n_texts + 1
    if code < 0x800:
        n_bytes = 2
        lead = 0xC0 | (code >> 6)
    elif code < 0x10000:
        n_bytes = 3
        lead = 0xE0 | (code >> 12)
    else:
        n_bytes = 4
        lead = 0xF0 | (code >> 18)
    texts[np.uint64(n_texts)] = np.uint8(lead)
    for k in range(1, n_bytes):
        texts[np.uint64(n_texts + k)] = np.uint8(0x80 | ((code >> (6 * (n_bytes - 1 - k))) & 0x3F))
    return n_texts + n_bytes


@inline_kernel
def _copy_sequence(
    data: NDArray[np.uint8], position: int, end: int, texts: NDArray[np.uint8], n_texts: int
) -> tuple[int, int]:
    """Copy one UTF-8 sequence of two to four bytes (The Unicode Standard, table 3-7)."""
    lead = byte_at(data, position, end)
    second = byte_at(data, position + 1, end)
    lowest = 0x80
    highest = 0xBF
    if 0xC2 <= lead <= 0xDF:
        n_bytes = 2
    elif 0xE0 <= lead <= 0xEF:
        n_bytes = 3
        lowest = 0xA0 if lead == 0xE0 else 0x80
    elif 0xF0 <= lead <= 0xF4:
        n_bytes = 4
        lowest = 0x90 if lead == 0xF0 else 0x80
        highest = 0x8F if lead == 0xF4 else 0xBF
    else:
        return bad(position), n_texts
    if second < lowest or second > highest:
        return bad(position), n_texts
    for k in range(n_bytes):
        byte = byte_at(data, position + k, end)
        if k > 1 and (byte & 0xC0) != 0x80:
            return bad(position), n_texts
        texts[np.uint64(n_texts + k)] = np.uint8(byte)
    if lead == 0xED and second >= 0xA0:
        return slow(position), n_texts
    return position + n_bytes, n_texts + n_bytes
