"""The sections of codes, which `encoding.domain` lays down: null, booleans, numbers, strings."""

from __future__ import annotations

from typing import Any

from siftline.kernels.compiler import inline_kernel


@inline_kernel
def section_first(code: int) -> Any:
    """Return the first code of the section that a code lies in."""
    if code >= 2**30:
        return 2**30
    if code >= 3:
        return 3
    return 1 if code >= 1 else 0


@inline_kernel
def section_last(code: int) -> Any:
    """Return the last code of the section that a code lies in."""
    if code >= 2**30:
        return 2**31 - 2
    if code >= 3:
        return 2**30 - 1
    return 2 if code >= 1 else 0


@inline_kernel
def is_between(low: int, high: int) -> Any:
    """Return whether a range has two inner ends, and takes both `>=` and `<=`."""
    first, last = section_first(low), section_last(low)
    return low != high and low > first and high < last
