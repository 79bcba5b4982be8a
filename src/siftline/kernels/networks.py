"""Internet addresses in strings, and the networks that they are in.

IPv4 addresses are read here, exactly as Python's `ipaddress` reads them: four decimal numbers up to 255 without leading
zeros, and nothing else. What has a colon may be an IPv6 address, and is left to the caller.

Networks with the same number of host bits are a *group*: their addresses without these bits, ascending.

    10.0.0.0/8, 11.0.0.0/8, 10.1.0.0/16      group of 24 host bits: 10, 11      group of 16 host bits: 10 * 256 + 1
    10.1.2.3                                 is looked for in each group, shifted by its host bits
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What `read_ipv4` returns instead of an address.
NO_ADDRESS: Final = -1
MAYBE_IPV6: Final = -2

# Columns of a group: how many host bits its networks have, and where they begin and end.
HOST_BITS: Final = 0
FIRST: Final = 1
END: Final = 2
GROUP_COLUMNS: Final = 3

# The longest texts of addresses; behind a `%`, an IPv6 address has the name of an interface of any length.
_LONGEST_IPV4: Final = 15
_LONGEST_IPV6: Final = 45
_DOT: Final = 0x2E
_COLON: Final = 0x3A
_DIGIT_0: Final = 0x30
_N_PARTS: Final = 4


class Networks(NamedTuple):
    """The networks of all attributes."""

    starts: NDArray[np.int32]  # one more than places: the groups of a place, which is an attribute plus one
    groups: Annotated[NDArray[np.int64], GROUP_COLUMNS]
    keys: NDArray[np.int64]  # ascending in each group
    targets: NDArray[np.int32]  # of each key
    has_ipv6: NDArray[np.bool_]  # by place: whether there are other networks
    ipv6_targets: NDArray[np.int32]  # by place: one of these, which stands for all of them


@inline_kernel
def read_ipv4(text: NDArray[np.uint8], start: Any, end: Any) -> Any:
    """Return the IPv4 address that a string is, NO_ADDRESS, or MAYBE_IPV6."""
    address, part, n_digits, n_dots = np.int64(0), np.int64(0), 0, 0
    for position in range(start, min(end, start + _LONGEST_IPV6)):
        byte = np.int64(text[np.uint64(position)])
        if byte == _COLON:
            return np.int64(MAYBE_IPV6)
        if byte == _DOT:
            if n_digits == 0:
                return _otherwise(text, position, end)
            address = (address << 8) | part
            part, n_digits, n_dots = np.int64(0), 0, n_dots + 1
            continue
        digit = byte - _DIGIT_0
        if digit < 0 or digit > 9 or (n_digits > 0 and part == 0):
            return _otherwise(text, position, end)
        part, n_digits = 10 * part + digit, n_digits + 1
        if part > 255 or n_dots >= _N_PARTS:
            return _otherwise(text, position, end)
    if n_dots != _N_PARTS - 1 or n_digits == 0 or end - start > _LONGEST_IPV4:
        return np.int64(NO_ADDRESS)
    return (address << 8) | part


@inline_kernel
def _otherwise(text: NDArray[np.uint8], start: Any, end: Any) -> Any:
    """Return MAYBE_IPV6 if there is a colon where an IPv6 address has one, NO_ADDRESS otherwise."""
    for position in range(start, min(end, start + _LONGEST_IPV6)):
        if text[np.uint64(position)] == _COLON:
            return np.int64(MAYBE_IPV6)
    return np.int64(NO_ADDRESS)


@inline_kernel
def first_key(keys: NDArray[np.int64], first: Any, end: Any, wanted: Any) -> Any:
    """Return the first of the ascending keys[first:end] that is not below the wanted one, `end` if there is none."""
    while first < end:
        middle = (first + end) >> 1
        if keys[np.uint64(middle)] < wanted:
            first = middle + 1
        else:
            end = middle
    return first
