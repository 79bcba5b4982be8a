"""Strings as instants, exactly as `model/timestamp.py` reads them, and instants as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The lengths of YYYY-MM-DD, and of the shortest time after it, THH:MM.
_DATE_BYTES: Final = 10
_MINUTE_BYTES: Final = 16
_SECOND_BYTES: Final = 19
_OFFSET_BYTES: Final = 6
_DAY_SECONDS: Final = 86_400
_PER_SECOND: Final = 1_000_000_000
# Seconds since 1970 of the first second of year 1, and of the last one of year 9999.
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799

_DASH: Final = ord("-")
_PLUS: Final = ord("+")
_COLON: Final = ord(":")
_POINT: Final = ord(".")
_SPACE: Final = ord(" ")
_LOWER_T: Final = ord("t")
_LOWER_Z: Final = ord("z")
_ZERO: Final = ord("0")

_NOT_A_NUMBER: Final = -(1 << 30)


@kernel
def read_instants(
    texts: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return seconds since 1970 and nanoseconds of the texts texts[starts[i]:ends[i]], and which of them are times."""
    seconds = np.zeros(len(starts), dtype=np.int64)
    nanoseconds = np.zeros(len(starts), dtype=np.int64)
    are_times = np.zeros(len(starts), dtype=np.bool_)
    for i in range(len(starts)):
        seconds[i], nanoseconds[i], are_times[i] = read_instant(texts, starts[i], ends[i])
    return seconds, nanoseconds, are_times


@inline_kernel
def read_instant(texts: NDArray[np.uint8], start: int, end: int) -> tuple[int, int, bool]:
    """Return seconds since 1970 and nanoseconds of texts[start:end], and whether it is a time; 0 and 0 if not."""
    if end - start < _DATE_BYTES:
        return 0, 0, False
    second = _read_date(texts, start)
    if second == _NOT_A_NUMBER:
        return 0, 0, False
    second *= _DAY_SECONDS
    nanosecond = 0
    if end - start > _DATE_BYTES:
        time, nanosecond = _read_time(texts, start, end)
        if time == _NOT_A_NUMBER:
            return 0, 0, False
        second += time
    if not _FIRST_SECOND <= second <= _LAST_SECOND:
        return 0, 0, False
    return second, nanosecond, True


@inline_kernel
def _read_date(texts: NDArray[np.uint8], start: int) -> Any:
    """Return the days since 1970 of YYYY-MM-DD."""
    if texts[start + 4] != _DASH or texts[start + 7] != _DASH:
        return _NOT_A_NUMBER
    year = 100 * _two_digits(texts, start) + _two_digits(texts, start + 2)
    month, day = _two_digits(texts, start + 5), _two_digits(texts, start + 8)
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= _days_of_month(year, month):
        return _NOT_A_NUMBER
    # Years begin with March, so that leap days come last.
    if month <= 2:
        year -= 1
        month += 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 + day - 719_469


@inline_kernel
def _days_of_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@inline_kernel
def _read_time(texts: NDArray[np.uint8], start: int, end: int) -> tuple[int, int]:
    """Return the seconds since midnight in UTC and the nanoseconds of what follows the date."""
    between = texts[start + _DATE_BYTES]
    if end - start < _MINUTE_BYTES or (between != _SPACE and between | 0x20 != _LOWER_T) or texts[start + 13] != _COLON:
        return _NOT_A_NUMBER, 0
    hour, minute, second = _two_digits(texts, start + 11), _two_digits(texts, start + 14), 0
    position, nanosecond = start + _MINUTE_BYTES, 0
    if position < end and texts[position] == _COLON:
        if end - start < _SECOND_BYTES:
            return _NOT_A_NUMBER, 0
        second = _two_digits(texts, position + 1)
        position, nanosecond = _read_fraction(texts, start + _SECOND_BYTES, end)
    offset = _read_offset(texts, position, end)
    is_time = 0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 60
    if not is_time or nanosecond < 0 or offset == _NOT_A_NUMBER:
        return _NOT_A_NUMBER, 0
    return 3_600 * hour + 60 * minute + second - offset, nanosecond


@inline_kernel
def _read_fraction(texts: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return the position after a point and its digits, and the nanoseconds; -1 if there are no digits."""
    if position >= end or texts[position] != _POINT:
        return position, 0
    position += 1
    nanosecond, unit, first = 0, _PER_SECOND // 10, position
    while position < end and _ZERO <= texts[position] <= _ZERO + 9:
        nanosecond += unit * (int(texts[position]) - _ZERO)
        unit //= 10
        position += 1
    return position, nanosecond if position > first else -1


@inline_kernel
def _read_offset(texts: NDArray[np.uint8], position: int, end: int) -> Any:
    """Return the seconds of what may follow a time: nothing, Z, or an offset."""
    if position == end or (position + 1 == end and texts[position] | 0x20 == _LOWER_Z):
        return 0
    if position + _OFFSET_BYTES != end or texts[position + 3] != _COLON:
        return _NOT_A_NUMBER
    sign = texts[position]
    hours, minutes = _two_digits(texts, position + 1), _two_digits(texts, position + 4)
    if (sign != _PLUS and sign != _DASH) or not 0 <= hours <= 23 or not 0 <= minutes <= 59:
        return _NOT_A_NUMBER
    offset = 3_600 * hours + 60 * minutes
    return -offset if sign == _DASH else offset


@inline_kernel
def _two_digits(texts: NDArray[np.uint8], position: int) -> Any:
    """Return the value of two digits, a large negative number if they are no digits."""
    tens, ones = np.int64(texts[position]) - _ZERO, np.int64(texts[position + 1]) - _ZERO
    if not 0 <= tens <= 9 or not 0 <= ones <= 9:
        return _NOT_A_NUMBER
    return 10 * tens + ones


@kernel
def split_nanoseconds(
    seconds: NDArray[np.int64], nanoseconds: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return times in nanoseconds as their nearest doubles, and the differences to their exact values.

    They may be beyond 64 bits, up to 2**69.
    """
    numbers = np.empty(len(seconds), dtype=np.float64)
    residuals = np.empty(len(seconds), dtype=np.int64)
    for i in range(len(seconds)):
        near = np.float64(seconds[i]) * 1e9
        # Computed modulo 2**64: the small difference between exact value and double is right all the same.
        missing = seconds[i] * np.int64(_PER_SECOND) + nanoseconds[i] - _modulo_word(near)
        # An exact sum, rounded once, is the nearest double.
        numbers[i] = near + np.float64(missing)
        residuals[i] = missing - np.int64(numbers[i] - near)
    return numbers, residuals


@inline_kernel
def _modulo_word(number: Any) -> Any:
    """Return a whole double modulo 2**64."""
    high = np.floor(number / 4294967296.0)
    return np.int64(high) * np.int64(4294967296) + np.int64(number - high * 4294967296.0)
