"""The decimals of Arrow: each as its nearest double, exactly what Python's `float()` returns for the same digits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.json_number import nearest_double
from siftline.kernels.json_words import ONE, ZERO

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A mantissa of at most nineteen digits, and the one above it, fit in 64 bits.
_END_OF_MANTISSA: Final = np.uint64(10**19)
_TEN: Final = np.uint64(10)
_HALF: Final = np.uint64(32)
_LOW_HALF: Final = np.uint64(0xFFFFFFFF)


@kernel
def nearest_doubles(
    limbs: NDArray[np.uint32], is_there: NDArray[np.bool_], scale: int, powers: NDArray[np.uint64]
) -> NDArray[np.float64]:
    """Return the double nearest to each integer divided by 10**scale; ties go to the even one.

    Parameters
    ----------
    limbs : uint32[n, n_limbs]
        The integers in two's complement, lowest limb first. They are overwritten.
    is_there : bool[n]
        Where there is an integer at all; elsewhere the result is 0.
    scale : int
        The power of ten to divide by; it may be negative.
    powers : uint64[n_words]
        See `powers_of_five`.

    Returns
    -------
    float64[n]
        Infinity if a decimal is too large; NaN where only arithmetic of any precision can tell, which is rare.
    """
    doubles = np.zeros(len(limbs), dtype=np.float64)
    for i in range(len(limbs)):
        if is_there[i]:
            doubles[i] = _nearest(limbs[i], scale, powers)
    return doubles


@inline_kernel
def _nearest(limbs: NDArray[np.uint32], scale: int, powers: NDArray[np.uint64]) -> Any:
    is_negative = limbs[len(limbs) - 1] >> np.uint32(31) != 0
    if is_negative:
        _negate(limbs)
    n_dropped, is_truncated = 0, False
    n_limbs = _used(limbs, len(limbs))
    while n_limbs > 2 or _lowest(limbs) >= _END_OF_MANTISSA:
        is_truncated = (_divide_by_ten(limbs, n_limbs) != ZERO) or is_truncated
        n_dropped += 1
        n_limbs = _used(limbs, n_limbs)
    mantissa, power = _lowest(limbs), n_dropped - scale
    number = nearest_double(mantissa, power, powers)
    if is_truncated and number != nearest_double(mantissa + ONE, power, powers):
        number = np.float64(np.nan)
    return -number if is_negative else number


@inline_kernel
def _negate(limbs: NDArray[np.uint32]) -> None:
    carry = ONE
    for i in range(len(limbs)):
        total = (np.uint64(limbs[i]) ^ _LOW_HALF) + carry
        limbs[i] = np.uint32(total & _LOW_HALF)
        carry = total >> _HALF


@inline_kernel
def _used(limbs: NDArray[np.uint32], n_limbs: int) -> int:
    """Return how many limbs there are up to the last that is not 0; at least two."""
    while n_limbs > 2 and limbs[n_limbs - 1] == 0:
        n_limbs -= 1
    return n_limbs


@inline_kernel
def _lowest(limbs: NDArray[np.uint32]) -> Any:
    return np.uint64(limbs[0]) | (np.uint64(limbs[1]) << _HALF)


@inline_kernel
def _divide_by_ten(limbs: NDArray[np.uint32], n_limbs: int) -> Any:
    """Divide by ten in place and return the remainder."""
    rest = ZERO
    for i in range(n_limbs - 1, -1, -1):
        part = (rest << _HALF) | np.uint64(limbs[i])
        limbs[i] = np.uint32(part // _TEN)
        rest = part % _TEN
    return rest
