"""The elements of a JSON array, found without parsing them: strings are skipped, and brackets counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_QUOTE, _BACKSLASH, _COMMA = np.uint8(ord('"')), np.uint8(ord("\\")), np.uint8(ord(","))
_OPEN, _CLOSE = np.uint8(ord("[")), np.uint8(ord("]"))
_OPEN_OBJECT, _CLOSE_OBJECT = np.uint8(ord("{")), np.uint8(ord("}"))
_SPACE, _TAB, _LINE_FEED, _RETURN = np.uint8(32), np.uint8(9), np.uint8(10), np.uint8(13)

# Results for texts that cannot be split.
NO_ARRAY, NO_END, NO_VALUE, MORE_AFTER, TOO_MANY = -1, -2, -3, -4, -5


@kernel
def split_array(data: NDArray[np.uint8], spans: NDArray[np.int64]) -> tuple[int, int]:
    """Write start and end of each element into `spans`; return how many there are, and where the last byte was read.

    A negative number tells why the text cannot be split. Elements are separated at the commas between the outermost
    brackets; the caller checks whether each is valid JSON with matching brackets.
    """
    n_bytes = len(data)
    position = 0
    while position < n_bytes and _is_space(data[position]):
        position += 1
    if position == n_bytes or data[position] != _OPEN:
        return NO_ARRAY, position
    start = position + 1
    first = last = -1  # the first and the last byte of the element that are no space
    n_elements, depth, is_in_string = 0, 1, False
    while depth > 0:
        position += 1
        if position >= n_bytes:
            return NO_END, n_bytes
        byte = data[position]
        if is_in_string:
            if byte == _BACKSLASH:
                position += 1
            elif byte == _QUOTE:
                is_in_string = False
                last = position
            continue
        if _is_space(byte):
            continue
        if depth == 1 and byte in (_COMMA, _CLOSE):
            if first < 0:
                if byte == _CLOSE and n_elements == 0:
                    depth = 0
                    continue
                return NO_VALUE, position
            if n_elements == len(spans):
                return TOO_MANY, start
            spans[n_elements, 0], spans[n_elements, 1] = first, last + 1
            n_elements += 1
            first = last = -1
            start = position + 1
            depth -= byte == _CLOSE
            continue
        if first < 0:
            first = position
        last = position
        if byte == _QUOTE:
            is_in_string = True
        elif byte in (_OPEN, _OPEN_OBJECT):
            depth += 1
        elif byte in (_CLOSE, _CLOSE_OBJECT):
            depth -= 1
            if depth == 0:  # a brace where the array should end
                return NO_END, position
    position += 1
    while position < n_bytes and _is_space(data[position]):
        position += 1
    return (n_elements, position) if position == n_bytes else (MORE_AFTER, position)


@inline_kernel
def _is_space(byte: np.uint8) -> bool:
    return byte in (_SPACE, _TAB, _LINE_FEED, _RETURN)
