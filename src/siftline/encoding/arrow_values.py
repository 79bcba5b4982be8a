"""Arrow arrays of plain values: which types have a meaning in an event, and how their values become codes.

    type                                 leaf
    null                                 null
    bool                                 boolean
    int8 ... uint64                      number, exact
    float16, float32, float64            number; NaN and infinities are null
    decimal32 ... decimal256             number: of scale 0 an integer, exact; otherwise the nearest double
    string, large_string, string_view    string
    date32, date64                       string, YYYY-MM-DD
    timestamp, any unit and time zone    string, YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ in UTC

A reader takes an array and says what its values are, before it is known which attribute they belong to; values are then
located in the lines of one attribute (a column) or of an attribute each (a map).
"""

from __future__ import annotations

import datetime
import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyarrow import types

from siftline.encoding.domain import FALSE, FIRST_STRING, NULL
from siftline.encoding.flat_domains import EXACT_INTEGERS, binary_buffers, read_only
from siftline.encoding.json_leaves import NUMBER, STRING, powers
from siftline.kernels.arrange import DATE_BYTES, MOMENT_BYTES, date_texts, locate_column, moment_texts
from siftline.kernels.decimals import nearest_doubles
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.locate import (
    NUMBERS,
    NUMBERS_END,
    STRINGS,
    STRINGS_END,
    TABLE,
    TABLE_END,
    locate_numbers,
    locate_texts,
)
from siftline.model import iso_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from siftline.encoding.flat_domains import Base

    # Which values count: not null, and not under a null. None: all of them.
    Mask = NDArray[np.bool_] | None

_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_SECONDS: Final = 86_400
_EPOCH: Final = datetime.date(1970, 1, 1)
# Days since 1970 of the first and the last date of years 1 to 9999.
_FIRST_DAY: Final = (datetime.date.min - _EPOCH).days
_LAST_DAY: Final = (datetime.date.max - _EPOCH).days

TEXTS: Final = (types.is_string, types.is_large_string, types.is_string_view)
LIST_VIEWS: Final = (types.is_list_view, types.is_large_list_view)
LISTS: Final = (types.is_list, types.is_large_list, types.is_fixed_size_list, *LIST_VIEWS)

_FIRST_NOT_ASCII: Final = 0x80
_NO_RESIDUALS: Final = read_only(np.zeros(0, dtype=np.int64))
_NO_TEXTS: Final = read_only(np.zeros(0, dtype=np.uint8))


class ValueFaultError(Exception):
    """A value at `index` of an array that has no meaning in an event."""

    def __init__(self, index: int, reason: str) -> None:
        self.index = index
        self.reason = reason


class Fixed(NamedTuple):
    """Nulls and booleans, whose codes are the same for every attribute."""

    codes: NDArray[np.int32]

    def located(self, base: Base, attribute: int) -> NDArray[np.int32]:
        """Return the codes."""
        return self.codes

    def located_each(self, base: Base, attributes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the codes."""
        return self.codes


class Numbers(NamedTuple):
    """Numbers as doubles and what is missing to their exact values; no residuals: all are exact."""

    numbers: NDArray[np.float64]
    residuals: NDArray[np.int64]
    mask: Mask

    def located(self, base: Base, attribute: int) -> NDArray[np.int32]:
        """Return the codes in the line of an attribute."""
        numbers, residuals = read_only(self.numbers), read_only(self.residuals)
        flat, line = base.flat, base.flat.lines[attribute]
        if line[TABLE_END] > line[TABLE]:
            codes = locate_numbers(numbers, residuals, attribute, base.handle)
        else:
            own = slice(line[NUMBERS], line[NUMBERS_END])
            codes = locate_column(numbers, residuals, flat.numbers[own], flat.residuals[own], flat.number_labels[own])
        return _without(codes, self.mask)

    def located_each(self, base: Base, attributes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the codes in the lines of an attribute each."""
        known = np.isfinite(self.numbers)
        if self.mask is not None:
            known &= self.mask
        residuals = self.residuals if self.residuals.size else np.zeros(len(known), dtype=np.int64)
        nowhere = np.zeros(len(known), dtype=np.int64)
        columns = LeafColumns(
            attributes=attributes,
            kinds=np.where(known, NUMBER, NULL).astype(np.uint8),
            numbers=self.numbers,
            residuals=residuals,
            text_starts=nowhere,
            text_ends=nowhere,
            texts=_NO_TEXTS,
        )
        return base.located(columns)


class Texts(NamedTuple):
    """Strings in UTF-8: the i-th is source[starts[i] : starts[i + 1]]."""

    starts: NDArray[np.int64]
    source: NDArray[np.uint8]
    mask: Mask

    def located(self, base: Base, attribute: int) -> NDArray[np.int32]:
        """Return the codes in the line of an attribute."""
        source, starts = read_only(self.source), read_only(self.starts)
        codes = locate_texts(source, starts, attribute, base.handle)
        return _without(codes, self.mask)

    def located_each(self, base: Base, attributes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the codes in the lines of an attribute each."""
        n = len(attributes)
        kinds = np.full(n, STRING, dtype=np.uint8)
        if self.mask is not None:
            kinds[~self.mask] = NULL
        columns = LeafColumns(
            attributes=attributes,
            kinds=kinds,
            numbers=np.zeros(n),
            residuals=np.zeros(n, dtype=np.int64),
            text_starts=self.starts[:-1],
            text_ends=self.starts[1:],
            texts=self.source,
        )
        return base.located(columns)

    def distinct(self, chosen: Mask = None) -> tuple[Texts, NDArray[np.int64], NDArray[np.int64]]:
        """Return the different strings among the (chosen) values, which values are strings, and which of them each is.

        >>> column = Texts(np.array([0, 1, 2, 3]), np.frombuffer(b"bab", dtype=np.uint8), None)
        >>> texts, places, numbers = column.distinct()
        >>> texts.strings(), places, numbers
        (['b', 'a'], array([0, 1, 2]), array([0, 1, 0]))
        """
        places, binaries = self.places(chosen), self._binaries()
        coded = (binaries if len(places) == len(binaries) else binaries.take(pa.array(places))).dictionary_encode()
        return Texts(*binary_buffers(coded.dictionary), None), places, coded.indices.to_numpy().astype(np.int64)

    def well_formed(self) -> Texts:
        """Return the values with U+FFFD for what is not UTF-8: Arrow does not check what it is given."""
        own = self.source[int(self.starts[0]) : int(self.starts[-1])]
        if not len(own) or own.max() < _FIRST_NOT_ASCII:
            return self
        try:
            self._binaries().view(pa.large_string()).validate(full=True)
        except pa.ArrowInvalid:
            encoded = [text.encode() for text in _decoded(self._binaries())]
            starts = np.cumsum([0, *map(len, encoded)])
            return Texts(starts, np.frombuffer(b"".join(encoded), dtype=np.uint8), self.mask)
        return self

    def places(self, chosen: Mask = None) -> NDArray[np.int64]:
        """Return which of the (chosen) values are strings."""
        there = np.ones(len(self.starts) - 1, dtype=np.bool_) if self.mask is None else self.mask
        return np.flatnonzero(there if chosen is None else there & chosen)

    def strings(self) -> list[str | None]:
        """Return all values."""
        texts: list[str | None] = [*_decoded(self._binaries())]
        if self.mask is not None:
            for i in np.flatnonzero(~self.mask).tolist():
                texts[i] = None
        return texts

    def _binaries(self) -> Any:
        buffers = pa.py_buffer(np.ascontiguousarray(self.starts)), pa.py_buffer(np.ascontiguousarray(self.source))
        return pa.Array.from_buffers(pa.large_binary(), len(self.starts) - 1, [None, *buffers])


class Times:
    """Dates and timestamps: strings that are only written out where somebody asks for them as strings.

    Attributes
    ----------
    seconds, nanoseconds : int64[n]
        Since 1970, and on top.
    mask : bool[n] or None
        Which values count.
    """

    __slots__ = ("_texts", "_write", "mask", "nanoseconds", "seconds")

    def __init__(
        self,
        seconds: NDArray[np.int64],
        nanoseconds: NDArray[np.int64],
        mask: Mask,
        write: Callable[[], tuple[NDArray[np.uint8], int]],
    ) -> None:
        self.seconds, self.nanoseconds, self.mask = seconds, nanoseconds, mask
        self._write = write  # returns all texts, and how long each is
        self._texts: Texts | None = None

    def texts(self) -> Texts:
        """Return the same as strings."""
        if self._texts is None:
            source, length = self._write()
            self._texts = Texts(np.arange(len(self.seconds) + 1, dtype=np.int64) * length, source, self.mask)
        return self._texts

    def places(self, chosen: Mask = None) -> NDArray[np.int64]:
        """Return which of the (chosen) values count."""
        there = np.ones(len(self.seconds), dtype=np.bool_) if self.mask is None else self.mask
        return np.flatnonzero(there if chosen is None else there & chosen)

    def located(self, base: Base, attribute: int) -> NDArray[np.int32]:
        """Return the codes in the line of an attribute."""
        line = base.flat.lines[attribute]
        if line[STRINGS_END] > line[STRINGS]:
            return self.texts().located(base, attribute)
        return _without(np.full(len(self.seconds), FIRST_STRING, dtype=np.int32), self.mask)

    def located_each(self, base: Base, attributes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the codes in the lines of an attribute each."""
        return self.texts().located_each(base, attributes)


def _decoded(binaries: Any) -> list[str]:
    # Arrow does not check that what it is given is UTF-8.
    return [text.decode("utf-8", "replace") for text in binaries.to_pylist()]


Values = Fixed | Numbers | Texts | Times


def texts_of(values: Values) -> Texts | None:
    """Return values as strings, None if they are none."""
    if isinstance(values, Times):
        return values.texts()
    return values if isinstance(values, Texts) else None


def _without(codes: NDArray[np.int32], mask: Mask) -> NDArray[np.int32]:
    if mask is not None:
        codes[~mask] = NULL
    return codes


def is_any(type_: Any, tests: Iterable[Callable[[Any], bool]]) -> bool:
    """Tell whether a type is one of several."""
    return any(test(type_) for test in tests)


@functools.lru_cache(maxsize=256)
def reader_of(type_: Any) -> Callable[[Any, Mask], Values] | None:
    """Return how to read arrays of a type of plain values; None if the type has no meaning, or is nested."""
    for is_type, reader in _READERS:
        if is_type(type_):
            return reader
    return None


def validity(array: Any) -> Mask:
    """Return which values of an array are not null, None if all are."""
    if array.null_count == 0:
        return None
    if types.is_null(array.type):
        return np.zeros(len(array), dtype=np.bool_)
    return _bits(array, 0)


def _bits(array: Any, i: int) -> NDArray[np.bool_]:
    """Return the bits of the i-th buffer of an array."""
    first_byte, first_bit = divmod(array.offset, 8)
    n_bits = first_bit + len(array)
    octets = np.frombuffer(array.buffers()[i], dtype=np.uint8, count=(n_bits + 7) // 8, offset=first_byte)
    return np.unpackbits(octets, count=n_bits, bitorder="little")[first_bit:].view(np.bool_)


def _items(array: Any, dtype: Any) -> NDArray[Any]:
    """Return the items of an array of fixed width; what stands at nulls is undefined."""
    size = np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype=dtype, count=len(array), offset=array.offset * size)


def _read_nulls(array: Any, mask: Mask) -> Values:
    return Fixed(np.full(len(array), NULL, dtype=np.int32))


def _read_booleans(array: Any, mask: Mask) -> Values:
    return Fixed(_without(_bits(array, 1).astype(np.int32) + np.int32(FALSE), mask))


def _read_integers(array: Any, mask: Mask) -> Values:
    return _numbers(_items(array, array.type.to_pandas_dtype()), mask)


def _numbers(integers: NDArray[Any], mask: Mask) -> Numbers:
    numbers = integers.astype(np.float64)
    if integers.dtype.itemsize < 8 or max(-int(integers.min()), int(integers.max())) <= EXACT_INTEGERS:
        return Numbers(numbers, _NO_RESIDUALS, mask)
    # 2**63 (2**64 if unsigned) does not fit: its place takes the integer that is equal to it modulo 2**64.
    limit = np.iinfo(integers.dtype).max
    wrapped = np.where(numbers < float(limit), numbers, float(np.iinfo(integers.dtype).min)).astype(integers.dtype)
    return Numbers(numbers, (integers - wrapped).view(np.int64), mask)


def _read_floats(array: Any, mask: Mask) -> Values:
    items = _items(array, array.type.to_pandas_dtype())
    return Numbers(items.astype(np.float64, copy=False), _NO_RESIDUALS, mask)


def _read_strings(array: Any, mask: Mask) -> Values:
    if not types.is_string(array.type):
        return Texts(*binary_buffers(array.cast(pa.large_string())), mask)
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32, count=len(array) + 1, offset=4 * array.offset)
    source = np.frombuffer(data, dtype=np.uint8) if data is not None else _NO_TEXTS
    return Texts(starts.astype(np.int64), source, mask)


def _read_dates(array: Any, mask: Mask) -> Values:
    if types.is_date32(array.type):
        days = _items(array, np.int32).astype(np.int64)
    else:
        days = _items(array, np.int64) // (1_000 * _DAY_SECONDS)
    days = _checked_moments(days, mask, 1)
    return Times(days * _DAY_SECONDS, np.zeros_like(days), mask, lambda: (date_texts(read_only(days)), DATE_BYTES))


def _read_timestamps(array: Any, mask: Mask) -> Values:
    per_second = _PER_SECOND[array.type.unit]
    moments = _checked_moments(_items(array, np.int64), mask, per_second * _DAY_SECONDS)
    seconds = moments // per_second
    nanoseconds = (moments - seconds * per_second) * (_PER_SECOND["ns"] // per_second)
    return Times(seconds, nanoseconds, mask, lambda: (moment_texts(read_only(moments), per_second), MOMENT_BYTES))


def _checked_moments(moments: NDArray[np.int64], mask: Mask, per_day: int) -> NDArray[np.int64]:
    """Return moments with 0 where they do not count; all that count must lie in the years 1 to 9999."""
    if mask is not None:
        moments = np.where(mask, moments, 0)
    first, end = _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day
    if int(moments.min()) < first or int(moments.max()) >= end:
        # Bounds beyond int64 hold for every value; as Python integers NumPy would refuse them.
        outside = (moments < max(first, -(2**63))) | (moments > min(end - 1, 2**63 - 1))
        raise ValueFaultError(int(np.argmax(outside)), "a date outside the years 1 to 9999")
    return moments


def _read_decimals(array: Any, mask: Mask) -> Values:
    if not types.is_decimal256(array.type) and not types.is_decimal128(array.type):
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    limbs = _limbs(array)
    is_there = np.ones(len(array), dtype=np.bool_) if mask is None else mask
    read = _whole_decimals if array.type.scale == 0 else _broken_decimals
    return Numbers(*read(array, limbs, is_there), mask)


def _limbs(array: Any) -> NDArray[np.uint32]:
    """Return decimals as integers without the decimal point, in limbs of 32 bits, lowest first."""
    n_limbs = array.type.bit_width // 32
    start = 4 * n_limbs * array.offset
    limbs = np.frombuffer(array.buffers()[1], dtype="<u4", count=n_limbs * len(array), offset=start)
    return limbs.reshape(-1, n_limbs)


def _broken_decimals(
    array: Any, limbs: NDArray[np.uint32], is_there: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the doubles nearest to decimals."""
    numbers = nearest_doubles(limbs.copy(), read_only(is_there), array.type.scale, powers())
    for i in np.flatnonzero(np.isnan(numbers)).tolist():  # few, if any
        numbers[i] = float(array[i].as_py())
    return numbers, _NO_RESIDUALS


def _whole_decimals(
    array: Any, limbs: NDArray[np.uint32], is_there: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return integers as doubles, and what is missing to their exact values."""
    words = limbs.view("<i8")
    low, above = words[:, 0], words[:, 1:]
    is_long = is_there & (above != (low >> 63)[:, np.newaxis]).any(axis=1)
    numbers, residuals, _ = _numbers(np.where(is_there & ~is_long, low, 0), None)
    if is_long.any() and not residuals.size:
        residuals = np.zeros(len(array), dtype=np.int64)
    for i in np.flatnonzero(is_long).tolist():
        integer = int(array[i].as_py())
        numbers[i] = integer
        # Beyond int64 constants are doubles, so that the sign of the residual is all that counts.
        residuals[i] = max(-(2**63), min(integer - int(numbers[i]), 2**63 - 1))
    return numbers, residuals


def _is_uuid(type_: Any) -> bool:
    return str(type_) == "extension<arrow.uuid>"


def _read_uuids(array: Any, mask: Mask) -> Values:
    """Read UUIDs as their texts, which pandas and others keep as sixteen bytes each."""
    texts = [None if each is None else str(UUID(bytes=each)) for each in array.storage.to_pylist()]
    return _read_strings(pa.array(texts, pa.large_string()), mask)


_READERS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any, Mask], Values]], ...]] = (
    (types.is_null, _read_nulls),
    (types.is_boolean, _read_booleans),
    (types.is_integer, _read_integers),
    (types.is_floating, _read_floats),
    (types.is_string, _read_strings),
    (types.is_large_string, _read_strings),
    (types.is_string_view, _read_strings),
    (types.is_date, _read_dates),
    (types.is_timestamp, _read_timestamps),
    (types.is_decimal, _read_decimals),
    (_is_uuid, _read_uuids),
)


def python_value(scalar: Any) -> Any:
    """Return a scalar as Python objects with the meaning that it has in an event."""
    type_ = scalar.type
    if not scalar.is_valid:
        return None
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return python_value(scalar.value)
    if types.is_struct(type_):
        return merged(python_pairs(scalar))
    if types.is_map(type_):
        pairs = python_pairs(scalar)
        tree = dict(pairs)
        return tree if len(tree) == len(pairs) else [{key: value} for key, value in pairs]
    if is_any(type_, LISTS):
        return [python_value(element) for element in scalar.values]
    return _moment(scalar) if types.is_temporal(type_) else _plain(scalar)


def python_pairs(scalar: Any) -> list[tuple[str, Any]]:
    """Return what a struct or a map holds, under names that may repeat."""
    if not scalar.is_valid:
        return []
    if types.is_struct(scalar.type):
        return [(field.name, python_value(scalar[i])) for i, field in enumerate(scalar.type)]
    entries = scalar.values
    return [
        (str(python_value(key)), python_value(item))
        for key, item in zip(entries.field(0), entries.field(1), strict=True)
    ]


def merged(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object in which a name that repeats has an array of all its values."""
    tree = dict(pairs)
    if len(tree) < len(pairs):
        for name in tree:
            values = [value for key, value in pairs if key == name]
            tree[name] = values if len(values) > 1 else values[0]
    return tree


def _plain(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:  # Arrow does not check what it is given
        return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")


def _moment(scalar: Any) -> str | None:
    """Return a date or timestamp as text, None outside the years 1 to 9999."""
    type_ = scalar.type
    if types.is_date32(type_):
        per_second, seconds = 1, scalar.value * _DAY_SECONDS
    else:
        per_second = _PER_SECOND["ms" if types.is_date64(type_) else type_.unit]
        seconds = scalar.value // per_second
    try:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return None
    if types.is_date(type_):
        return iso_text(moment.date())
    nanosecond = scalar.value % per_second * (10**9 // per_second)
    return f"{iso_text(moment)[:20]}{nanosecond:09d}Z"
