"""The numbers of JSON: integers exactly, decimals as their nearest double, exactly as Python's `float()` reads them.

Papers: W. D. Clinger, "How to Read Floating Point Numbers Accurately", PLDI 1990: up to 2**53 times or divided by up to
10**22 is one correctly rounded operation. D. Lemire, "Number Parsing at a Gigabyte per Second", Software: Practice and
Experience 51(8), 2021 (the Eisel-Lemire algorithm): otherwise multiply by a power of five kept to 128 bits and round.

Departures: D1 where the paper falls back to arithmetic of any precision, the result is a `slow` failure and Python
decides. D2 digits after the nineteenth are dropped; if the value and its successor round to two different doubles,
that is a `slow` failure as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.kernels.compiler import inline_kernel
from siftline.kernels.json_words import (
    FOUR,
    HIGH_BITS,
    LAST_BYTE,
    ONE,
    THREE,
    TWO,
    ZERO,
    bad,
    byte_at,
    byte_of,
    first_byte,
    load_word,
    slow,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

NULL: Final = 0
NUMBER: Final = 3

_MINUS: Final = 0x2D
_PLUS: Final = 0x2B
_DIGIT_0: Final = 0x30
_DIGIT_9: Final = 0x39
_POINT: Final = 0x2E
_LOWER_E: Final = 0x65
_UPPER_I: Final = 0x49

# Nineteen digits always fit in 64 bits.
_MAX_DIGITS: Final = 19
# Python may refuse integers of more digits than this, but never of fewer (sys.set_int_max_str_digits).
_MAX_PLAIN_DIGITS: Final = 640
# Larger exponents have the same effect as this one, however many digits come before them.
_MAX_EXPONENT: Final = 1 << 50

_ZEROS: Final = np.uint64(0x3030303030303030)
_BEYOND_NINE: Final = np.uint64(0x7676767676767676)
_SMALL_POWERS: Final = np.array([10**k for k in range(9)], dtype=np.uint64)
_EXACT_POWERS: Final = np.array([10.0**k for k in range(23)], dtype=np.float64)
_LARGEST_EXACT: Final = np.uint64(1 << 53)
_LARGEST_INT64: Final = np.uint64((1 << 63) - 1)

_LEAST_POWER: Final = -342
_GREATEST_POWER: Final = 308
_ALL_BITS: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
_HALF: Final = np.uint64(32)
_LOW_HALF: Final = np.uint64(0xFFFFFFFF)
_FIRST_BIT: Final = np.uint64(63)
_UNCERTAIN_BITS: Final = np.uint64(0x1FF)
_HIDDEN_BIT: Final = np.uint64(1 << 52)
_FRACTION_BITS: Final = np.uint64(52)
_INFINITY_EXPONENT: Final = 0x7FF


def powers_of_five() -> NDArray[np.uint64]:
    """Return 5**q for q from -342 to 308 to 128 bits, high word and low word in turn, read-only.

    The first bit of each is set; positive powers are rounded down, negative ones up (Lemire, section 5).
    """
    powers: list[int] = []
    for q in range(_LEAST_POWER, _GREATEST_POWER + 1):
        five = 5 ** abs(q)
        width = five.bit_length()
        scaled = five << 128 >> width if q >= 0 else (1 << (width + 127)) // five + 1
        powers += [scaled >> 64, scaled & 0xFFFFFFFFFFFFFFFF]
    table = np.array(powers, dtype=np.uint64)
    table.flags.writeable = False
    return table


@inline_kernel
def parse_number(
    data: NDArray[np.uint8], position: int, end: int, powers: NDArray[np.uint64]
) -> tuple[int, int, Any, Any]:
    """Read the number, or the `-Infinity`, that begins with a digit or a minus at `position`.

    Returns
    -------
    tuple[int, int, float, int]
        The position after it or a failure, its kind (NULL if it is not finite), the double, and for integers the
        difference to the exact value.
    """
    is_negative = byte_at(data, position, end) == _MINUS
    first = position + 1 if is_negative else position
    word = load_word(data, first, end)
    n_digits = first_byte(_digit_stops(word))
    if 0 < n_digits < 8:  # nearly all integers end here
        behind = byte_of(word, n_digits)
        has_leading_zero = n_digits > 1 and byte_of(word, 0) == _DIGIT_0
        if behind != _POINT and (behind | 0x20) != _LOWER_E and not has_leading_zero:
            value = np.int64(_value_of_digits(word, n_digits))
            return first + n_digits, NUMBER, np.float64(-value if is_negative else value), np.int64(0)
    return _parse_any_number(data, first, end, is_negative, powers)


@inline_kernel
def _parse_any_number(
    data: NDArray[np.uint8], first: int, end: int, is_negative: bool, powers: NDArray[np.uint64]
) -> tuple[int, int, Any, Any]:
    """Read a number as `parse_number` does, from after the sign on."""
    zero = np.int64(0)
    if is_negative and byte_at(data, first, end) == _UPPER_I:
        return skip_infinity(data, first, end), NULL, np.float64(0.0), zero
    point = scan_digits(data, first, end)
    if point == first or (point > first + 1 and byte_at(data, first, end) == _DIGIT_0):
        return bad(first), NULL, np.float64(0.0), zero
    behind = skip_fraction(data, point, end)
    stop = skip_exponent(data, behind, end)
    if stop == point:
        if point - first > _MAX_DIGITS:
            return slow(first), NULL, np.float64(0.0), zero
        return _exact_integer(_accumulate(data, first, point, ZERO), stop, first, is_negative)
    mantissa, power, is_truncated = _mantissa(data, first, point, behind)
    power += _exponent(data, behind, stop)
    number = nearest_double(mantissa, power, powers)
    if is_truncated and number != nearest_double(mantissa + ONE, power, powers):
        number = np.float64(np.nan)
    if np.isnan(number):
        return slow(first), NULL, np.float64(0.0), zero
    if np.isinf(number):
        return stop, NULL, np.float64(0.0), zero
    # Not the sign of zero: -0.0 is 0.0.
    return stop, NUMBER, (-number if is_negative and number != 0.0 else number), zero


@inline_kernel
def skip_number(data: NDArray[np.uint8], position: int, end: int) -> int:
    """Return the position after the number, or the `-Infinity`, at `position`, or a failure."""
    is_negative = byte_at(data, position, end) == _MINUS
    first = position + 1 if is_negative else position
    if is_negative and byte_at(data, first, end) == _UPPER_I:
        return skip_infinity(data, first, end)
    point = scan_digits(data, first, end)
    if point == first or (point > first + 1 and byte_at(data, first, end) == _DIGIT_0):
        return bad(first)
    stop = skip_exponent(data, skip_fraction(data, point, end), end)
    if stop == point and point - first > _MAX_PLAIN_DIGITS:
        return slow(first)
    return stop


@inline_kernel
def skip_infinity(data: NDArray[np.uint8], position: int, end: int) -> int:
    """Return the position after `Infinity`, which Python's json accepts, or a failure."""
    if load_word(data, position, end) == np.uint64(0x7974696E69666E49):
        return position + 8
    return bad(position)


@inline_kernel
def scan_digits(data: NDArray[np.uint8], position: int, end: int) -> int:
    """Return the first position from `position` on that has no digit."""
    while True:
        n_digits = first_byte(_digit_stops(load_word(data, position, end)))
        position += n_digits
        if n_digits < 8:
            return position


@inline_kernel
def skip_fraction(data: NDArray[np.uint8], position: int, end: int) -> int:
    """Return the position after a point and its digits; without digits there is no fraction, as in Python's json."""
    if byte_at(data, position, end) != _POINT:
        return position
    behind = scan_digits(data, position + 1, end)
    return behind if behind > position + 1 else position


@inline_kernel
def skip_exponent(data: NDArray[np.uint8], position: int, end: int) -> int:
    """Return the position after an exponent; without digits there is none, as in Python's json."""
    if (byte_at(data, position, end) | 0x20) != _LOWER_E:
        return position
    sign = byte_at(data, position + 1, end)
    first = position + 2 if sign in (_MINUS, _PLUS) else position + 1
    behind = scan_digits(data, first, end)
    return behind if behind > first else position


@inline_kernel
def _digit_stops(word: np.uint64) -> Any:
    """Mark the bytes that are no digits; only the lowest mark is exact."""
    digits = word ^ _ZEROS
    return ((digits + _BEYOND_NINE) | digits) & HIGH_BITS


@inline_kernel
def _value_of_digits(word: np.uint64, n_digits: int) -> Any:
    """Return the value of the first 1 to 8 bytes, which are digits: neighbours are joined three times."""
    digits = (word - _ZEROS) << np.uint64(64 - 8 * n_digits)  # missing digits are zeros in front
    digits = (digits * np.uint64(10)) + (digits >> np.uint64(8))
    low = (digits & np.uint64(0x000000FF000000FF)) * np.uint64(0x000F424000000064)
    high = ((digits >> np.uint64(16)) & np.uint64(0x000000FF000000FF)) * np.uint64(0x0000271000000001)
    return (low + high) >> _HALF


@inline_kernel
def _accumulate(data: NDArray[np.uint8], position: int, stop: int, value: np.uint64) -> Any:
    """Append the digits `data[position:stop]` to a value; beyond 64 bits it wraps around."""
    while position < stop:
        n_digits = min(8, stop - position)
        digits = _value_of_digits(load_word(data, position, stop), n_digits)
        value = value * _SMALL_POWERS[np.uint64(n_digits)] + digits
        position += n_digits
    return value


@inline_kernel
def _exact_integer(magnitude: np.uint64, stop: int, first: int, is_negative: bool) -> tuple[int, int, Any, Any]:
    if magnitude > _LARGEST_INT64 + (ONE if is_negative else ZERO):
        return slow(first), NULL, np.float64(0.0), np.int64(0)
    number = np.float64(magnitude)
    # Unsigned, because 2**63 - 1 rounds to 2**63.
    residual = np.int64(magnitude - np.uint64(number))
    if is_negative and magnitude != ZERO:
        return stop, NUMBER, -number, -residual
    return stop, NUMBER, number, residual


@inline_kernel
def _mantissa(data: NDArray[np.uint8], first: int, point: int, behind: int) -> tuple[Any, int, bool]:
    """Return the digits of a decimal as an integer, the power of ten that goes with it, and whether it is too small."""
    n_fraction = max(0, behind - point - 1)
    if point - first + n_fraction <= _MAX_DIGITS:
        mantissa = _accumulate(data, first, point, ZERO)
        return _accumulate(data, point + 1, behind, mantissa), -n_fraction, False
    mantissa = ZERO
    n_digits = 0
    power = 0
    is_truncated = False
    for position in range(first, behind):
        if position == point:
            continue
        digit = np.uint64(data[np.uint64(position)]) - np.uint64(_DIGIT_0)
        if n_digits < _MAX_DIGITS:
            mantissa = mantissa * np.uint64(10) + digit
            n_digits += 1 if mantissa != ZERO else 0  # zeros in front do not count
            power -= 1 if position > point else 0
        else:
            is_truncated = is_truncated or digit != ZERO
            power += 1 if position < point else 0
    return mantissa, power, is_truncated


@inline_kernel
def _exponent(data: NDArray[np.uint8], position: int, stop: int) -> int:
    """Return the value of an exponent, 0 if there is none."""
    if position == stop:
        return 0
    sign = byte_at(data, position + 1, stop)
    value = 0
    for place in range(position + 2 if sign in (_MINUS, _PLUS) else position + 1, stop):
        if value < _MAX_EXPONENT:
            value = value * 10 + (byte_at(data, place, stop) - _DIGIT_0)
    return -value if sign == _MINUS else value


@inline_kernel
def nearest_double(mantissa: np.uint64, power: int, powers: NDArray[np.uint64]) -> Any:
    """Return the double nearest to mantissa * 10**power, infinity if it is too large, NaN if that is undecided."""
    if mantissa == ZERO or power < _LEAST_POWER:
        return np.float64(0.0)
    if power > _GREATEST_POWER:
        return np.float64(np.inf)
    if mantissa <= _LARGEST_EXACT and -22 <= power <= 22:
        if power < 0:
            return np.float64(mantissa) / _EXACT_POWERS[np.uint64(-power)]
        return np.float64(mantissa) * _EXACT_POWERS[np.uint64(power)]
    return _eisel_lemire(mantissa, power, powers)


@inline_kernel
def _eisel_lemire(mantissa: np.uint64, power: int, powers: NDArray[np.uint64]) -> Any:
    """Return as `nearest_double` does, for a mantissa that is not 0 (Lemire, algorithm 1)."""
    n_zeros = _leading_zeros(mantissa)
    mantissa <<= np.uint64(n_zeros)
    entry = 2 * (power - _LEAST_POWER)
    high = multiply_high(mantissa, powers[np.uint64(entry)])
    low = mantissa * powers[np.uint64(entry)]
    if high & _UNCERTAIN_BITS == _UNCERTAIN_BITS:  # the second word may carry into the bits that decide
        carry = multiply_high(mantissa, powers[np.uint64(entry + 1)])
        low += carry
        high += ONE if low < carry else ZERO
    if low == _ALL_BITS and (power < -27 or power > 55):
        return np.float64(np.nan)  # D1
    first_bit = high >> _FIRST_BIT
    shift = first_bit + np.uint64(9)
    bits = high >> shift  # 54 bits: one more than a double has
    # floor(log2(10**power)) as a fraction, exact in this range; 1023 is the bias of a double.
    exponent = ((217706 * power) >> 16) + 63 + np.int64(first_bit) - n_zeros + 1023
    if exponent <= 0:
        return _subnormal(bits, exponent)
    # Exactly between two doubles, which only small powers can be: round to even.
    if low <= ONE and -4 <= power <= 23 and bits & THREE == ONE and bits << shift == high:
        bits -= ONE
    bits = (bits + (bits & ONE)) >> ONE
    if bits >= _HIDDEN_BIT << ONE:
        bits = _HIDDEN_BIT
        exponent += 1
    if exponent >= _INFINITY_EXPONENT:
        return np.float64(np.inf)
    return np.uint64((bits & ~_HIDDEN_BIT) | (np.uint64(exponent) << _FRACTION_BITS)).view(np.float64)


@inline_kernel
def _subnormal(bits: np.uint64, exponent: int) -> Any:
    """Round 54 bits to a double whose exponent is at its minimum."""
    if exponent <= -63:
        return np.float64(0.0)
    bits >>= np.uint64(1 - exponent)
    bits = (bits + (bits & ONE)) >> ONE
    # A carry into the hidden bit is the exponent 1 in the right place.
    return np.uint64(bits).view(np.float64)


@inline_kernel
def multiply_high(a: np.uint64, b: np.uint64) -> Any:
    """Return the upper word of a 128-bit product; compiled, it is one instruction."""
    low_product = (a & _LOW_HALF) * (b & _LOW_HALF)
    middle = (a >> _HALF) * (b & _LOW_HALF) + (low_product >> _HALF)
    other = (a & _LOW_HALF) * (b >> _HALF) + (middle & _LOW_HALF)
    return (a >> _HALF) * (b >> _HALF) + (middle >> _HALF) + (other >> _HALF)


@inline_kernel
def _leading_zeros(word: np.uint64) -> Any:
    """Return the number of zero bits in front of the first one."""
    word |= word >> ONE
    word |= word >> TWO
    word |= word >> FOUR
    word |= word >> np.uint64(8)
    word |= word >> np.uint64(16)
    word |= word >> _HALF
    # All bits from the first one down are set: what is left of it are the leading zeros, counted in parallel.
    rest = ~word
    rest -= (rest >> ONE) & np.uint64(0x5555555555555555)
    rest = (rest & np.uint64(0x3333333333333333)) + ((rest >> TWO) & np.uint64(0x3333333333333333))
    rest = (rest + (rest >> FOUR)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((rest * np.uint64(0x0101010101010101)) >> LAST_BYTE)
