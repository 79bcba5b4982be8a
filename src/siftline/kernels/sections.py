"""The sections of codes, which `encoding.domain` defines: null, booleans, numbers, strings."""

from __future__ import annotations

from typing import Any, Final

from siftline.kernels import codes
from siftline.kernels.compiler import inline_kernel

_NULL: Final = int(codes.NULL)
_FALSE, _TRUE = int(codes.FALSE), int(codes.TRUE)
_FIRST_NUMBER, _LAST_NUMBER = int(codes.FIRST_NUMBER), int(codes.LAST_NUMBER)
_FIRST_STRING, _LAST_STRING = int(codes.FIRST_STRING), int(codes.LAST_STRING)


@inline_kernel
def section_first(code: int) -> Any:
    """Return the first code of the section that a code lies in."""
    if code >= _FIRST_STRING:
        return _FIRST_STRING
    if code >= _FIRST_NUMBER:
        return _FIRST_NUMBER
    return _FALSE if code >= _FALSE else _NULL


@inline_kernel
def section_last(code: int) -> Any:
    """Return the last code of the section that a code lies in."""
    if code >= _FIRST_STRING:
        return _LAST_STRING
    if code >= _FIRST_NUMBER:
        return _LAST_NUMBER
    return _TRUE if code >= _FALSE else _NULL


@inline_kernel
def is_between(low: int, high: int) -> Any:
    """Return whether a range ends inside its section on both sides, so that it takes both `>=` and `<=`."""
    first, last = section_first(low), section_last(low)
    return low != high and low > first and high < last
