"""Elements: what a PS-Tree cuts the values of one type into, so that comparing them one by one compares the values.

    byte     -5 = 1111 1011 in two's complement    elements  -, 7, 11        (sign, 3 bits, 4 bits)
    int32    sign, 3 bits, 7 times 4 bits          nine elements; int64 and float have 17
    float    sign, exponent (3 + 4 + 4 bits), mantissa (13 times 4 bits)
    string   'ab' < 'abc' < 'b'                    characters; the end of a string comes before every character

A tree stores elements as digits below `fanout`. A value of fixed width has an *image*, an unsigned integer in the order
of the values: its digits are bits of the image. A character of a string is stored as its UTF-8 bytes, two digits of
four bits each, plus one: digit 0 is the end of the string. So no value's digits are the beginning of another's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from siftline.indexes.ps_tree.kernels import digits_of_images

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from siftline.model.predicate import Predicate

BELOW, ABOVE = 0, 1

# A place between values: below or above one of them.
Cut = tuple[Any, int]


class Keys(NamedTuple):
    """Values as a tree stores them; the digits of value i are digits[starts[i] : starts[i + 1]]."""

    images: NDArray[np.uint64]  # zeros for strings
    starts: NDArray[np.int64]
    digits: NDArray[np.uint8]


class ValueType(Protocol):
    """How a tree sees the values of one type; `shifts` and `masks` cut an image into digits, none for strings."""

    name: str
    fanout: int
    widths: NDArray[np.int64]  # how many digits there are at each depth; the last one holds for all deeper ones
    shifts: NDArray[np.uint64]
    masks: NDArray[np.uint64]
    first: Any  # the position below all values
    end: Any  # the position above all values

    def check(self, value: object) -> None:
        """Raise ValueError if the value does not belong to the type and its domain."""

    def position(self, cut: Cut) -> Any:
        """Return where a cut stands; positions compare, and two are equal if no value lies between them."""

    def keys(self, values: Sequence[Any]) -> Keys:
        """Return checked values as a tree stores them."""

    def sorted_keys(self, values: Sequence[Any] | NDArray[Any]) -> tuple[NDArray[np.int64], Keys]:
        """Return (order, keys): the keys of values[order[0]], values[order[1]], ..., which ascend."""

    def value(self, image: int, digits: NDArray[np.uint8]) -> Any:
        """Return the value that has this key."""

    def elements(self, value: Any) -> tuple[Any, ...]:
        """Return the elements of a value as the paper writes them."""

    def bounds(self) -> tuple[str, str]:
        """Return both ends of the domain, with their brackets."""


class FixedWidth:
    """Values with an image of `n_bits` bits: integers by default."""

    fanout = 16

    def __init__(self, name: str, n_bits: int, domain: tuple[Any, Any], digit_bits: list[int]) -> None:
        self.name = name
        self.n_bits = n_bits
        self.domain = domain
        self.shifts = (n_bits - np.cumsum(digit_bits)).astype(np.uint64)
        self.masks = np.array([(1 << bits) - 1 for bits in digit_bits], dtype=np.uint64)
        self.widths = self.masks.astype(np.int64) + 1
        self.first, last = self.images(np.array(domain)).tolist()
        self.end = last + 1
        if self.first > last:
            raise ValueError(f"the domain of a PS-Tree needs low <= high, not {domain!r}")

    def images(self, values: NDArray[Any]) -> NDArray[np.uint64]:
        """Return the images of checked values."""
        images: NDArray[np.uint64] = values.astype(np.int64).view(np.uint64) + np.uint64(1 << (self.n_bits - 1))
        return images if self.n_bits == 64 else images & np.uint64((1 << self.n_bits) - 1)

    def check(self, value: object) -> None:
        """Raise ValueError if the value is no integer of the domain."""
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise ValueError(f"a PS-Tree of type {self.name} takes integers, not {value!r}")
        self.check_domain(value)

    def check_domain(self, value: Any) -> None:
        """Raise ValueError if the value lies outside the domain."""
        low, high = self.domain
        if not low <= value <= high:
            raise ValueError(f"{value!r} lies outside the domain [{low}, {high}]")

    def checked_images(self, values: Sequence[Any] | NDArray[Any]) -> NDArray[np.uint64]:
        """Return the images of many values, all at once."""
        if not len(values):
            return np.empty(0, dtype=np.uint64)
        values = np.asarray(values)
        if not np.can_cast(values.dtype, np.float64 if self.name == "float" else np.int64):
            raise ValueError(f"a PS-Tree of type {self.name} cannot take an array of {values.dtype}")
        self.check_domain(values.min())
        self.check_domain(values.max())
        return self.images(values)

    def position(self, cut: Cut) -> int:
        """Return the image of the first value above the cut."""
        return self.image(cut[0]) + cut[1]

    def image(self, value: Any) -> int:
        """Return the image of one checked value."""
        return int(value) + (1 << (self.n_bits - 1))

    def keys(self, values: Sequence[Any]) -> Keys:
        """Return images and their digits."""
        return self._keys(np.array([self.image(value) for value in values], dtype=np.uint64))

    def sorted_keys(self, values: Sequence[Any] | NDArray[Any]) -> tuple[NDArray[np.int64], Keys]:
        """Return the order of the images, and the keys in that order."""
        if isinstance(values, np.ndarray):
            images = self.checked_images(values)
        else:
            images = np.array([self.image(value) for value in values], dtype=np.uint64)
        order = np.argsort(images)
        return order, self._keys(images[order])

    def _keys(self, images: NDArray[np.uint64]) -> Keys:
        starts = np.arange(len(images) + 1) * len(self.shifts)
        return Keys(images, starts, digits_of_images(images, self.shifts, self.masks))

    def value(self, image: int, digits: NDArray[np.uint8]) -> Any:
        """Return the integer of an image."""
        return image - (1 << (self.n_bits - 1))

    def elements(self, value: Any) -> tuple[Any, ...]:
        """Return the sign and the digits."""
        self.check(value)
        digits = self.keys([value]).digits.tolist()
        return ("-+"[digits[0]], *digits[1:])

    def bounds(self) -> tuple[str, str]:
        """Return both ends of the domain."""
        return f"[{self.domain[0]}", f"{self.domain[1]}]"


class Floats(FixedWidth):
    """Doubles without NaN; -0.0 is 0.0."""

    def images(self, values: NDArray[Any]) -> NDArray[np.uint64]:
        """Return the bits, in two's complement where the sign is set: then 0.0 and -0.0 have one image."""
        bits = values.astype(np.float64).view(np.uint64)
        sign = np.uint64(1 << 63)
        return np.where(bits & sign, ~bits + np.uint64(1), bits | sign)

    def check(self, value: object) -> None:
        """Raise ValueError if the value is no number that a double can hold exactly, or outside the domain."""
        if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
            raise ValueError(f"a PS-Tree of type float takes numbers, not {value!r}")
        try:
            is_exact = float(value) == value
        except OverflowError:
            is_exact = False
        if not is_exact:
            raise ValueError(f"{value!r} is no double")
        self.check_domain(value)

    def check_domain(self, value: Any) -> None:
        """Raise ValueError for NaN, and for what lies outside the domain."""
        if math.isnan(value):
            raise ValueError("NaN lies in no predicate space")
        super().check_domain(value)

    def image(self, value: Any) -> int:
        """Return the image of one checked value."""
        return int(self.images(np.array([value], dtype=np.float64))[0])

    def value(self, image: int, digits: NDArray[np.uint8]) -> Any:
        """Return the double of an image."""
        bits = image - (1 << 63) if image >= 1 << 63 else (1 << 64) - image
        return float(np.array([bits], dtype=np.uint64).view(np.float64)[0])


class Enumeration(FixedWidth):
    """A declared list of values, in their order; the image is the position in the list."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = list(values)
        self._places = {value: place for place, value in enumerate(self._values)}
        if not self._values or len(self._places) != len(self._values):
            raise ValueError("an enumeration needs at least one value, and each only once")
        n_digits = max(1, math.ceil((len(self._values) - 1).bit_length() / 4))
        super().__init__("enumeration", 4 * n_digits, (self._values[0], self._values[-1]), [4] * n_digits)

    def images(self, values: NDArray[Any]) -> NDArray[np.uint64]:
        """Return the positions in the list."""
        return np.array([self._places[value] for value in values.tolist()], dtype=np.uint64)

    def check(self, value: object) -> None:
        """Raise ValueError if the value was not declared."""
        try:
            is_declared = value in self._places
        except TypeError:
            is_declared = False
        if not is_declared:
            raise ValueError(f"{value!r} is none of the declared values")

    def checked_images(self, values: Sequence[Any] | NDArray[Any]) -> NDArray[np.uint64]:
        """Return the positions of many values, which may be of several types."""
        for value in values:
            self.check(value)
        return np.array([self._places[value] for value in values], dtype=np.uint64)

    def image(self, value: Any) -> int:
        """Return the position in the list."""
        return self._places[value]

    def value(self, image: int, digits: NDArray[np.uint8]) -> Any:
        """Return the value at a position."""
        return self._values[image]

    def elements(self, value: Any) -> tuple[Any, ...]:
        """Return the digits of the position."""
        self.check(value)
        return tuple(self.keys([value]).digits.tolist())

    def bounds(self) -> tuple[str, str]:
        """Return the first and the last value."""
        return f"[{self.domain[0]!r}", f"{self.domain[1]!r}]"


class Texts:
    """Strings in the order of their code points."""

    name = "string"
    fanout = 17
    widths = np.array([17])
    shifts = np.empty(0, dtype=np.uint64)
    masks = np.empty(0, dtype=np.uint64)
    first = (0, "", BELOW)
    end = (1, "", BELOW)

    def check(self, value: object) -> None:
        """Raise ValueError if the value is no string."""
        if not isinstance(value, str):
            raise ValueError(f"a PS-Tree of type string takes strings, not {value!r}")

    def position(self, cut: Cut) -> tuple[int, str, int]:
        """Return the text and the side; `end` is above them all."""
        return 0, *cut

    def keys(self, values: Sequence[Any]) -> Keys:
        """Return the digits of the UTF-8 bytes, which have the order of the code points."""
        encoded = [value.encode("utf-8", "surrogatepass") for value in values]
        lengths = np.fromiter((2 * len(text) + 1 for text in encoded), np.int64, len(encoded))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        digits = np.zeros(starts[-1], dtype=np.uint8)
        is_digit = np.ones(starts[-1], dtype=np.bool_)
        is_digit[starts[1:] - 1] = False
        texts = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        digits[is_digit] = np.column_stack([texts >> 4, texts & 15]).ravel() + 1
        return Keys(np.zeros(len(encoded), dtype=np.uint64), starts, digits)

    def sorted_keys(self, values: Sequence[Any] | NDArray[Any]) -> tuple[NDArray[np.int64], Keys]:
        """Return the order of the strings, and the keys in that order."""
        order = sorted(range(len(values)), key=values.__getitem__)
        return np.array(order, dtype=np.int64), self.keys([values[place] for place in order])

    def value(self, image: int, digits: NDArray[np.uint8]) -> Any:
        """Return the string of digits."""
        halves = digits[:-1] - 1
        return (halves[::2] << 4 | halves[1::2]).tobytes().decode("utf-8", "surrogatepass")

    def elements(self, value: Any) -> tuple[Any, ...]:
        """Return the characters."""
        self.check(value)
        return tuple(value)

    def bounds(self) -> tuple[str, str]:
        """Return the empty string, and that there is no last one."""
        return "[''", "∞)"


def value_type(kind: str, values: Sequence[Any] | None = None, domain: tuple[Any, Any] | None = None) -> ValueType:
    """Return the type called `kind`: byte, int32, int64, float, string or enumeration (of `values`)."""
    if (kind == "enumeration") != (values is not None):
        raise ValueError("an enumeration, and nothing else, needs its list of values")
    if domain is not None and kind in ("string", "enumeration"):
        raise ValueError(f"a PS-Tree of type {kind} takes no domain")
    if kind == "string":
        return Texts()
    if kind == "enumeration":
        return Enumeration(values or [])
    if kind not in ("byte", "int32", "int64", "float"):
        raise ValueError(f"unknown type {kind!r}; there are byte, int32, int64, float, string and enumeration")
    n_bits = {"byte": 8, "int32": 32}.get(kind, 64)
    digit_bits = [1, 3] + [4] * (n_bits // 4 - 1)
    if kind == "float":
        return Floats(kind, n_bits, domain or (-math.inf, math.inf), digit_bits)
    return FixedWidth(kind, n_bits, domain or (-(1 << (n_bits - 1)), (1 << (n_bits - 1)) - 1), digit_bits)


def ranges_of(predicate: Predicate, values: ValueType) -> list[tuple[Cut | None, Cut | None]]:
    """Return the disjoint ranges, ascending and none of them empty, of the values that satisfy a predicate.

    A range reaches from one cut to another; None is the end of the domain on that side.
    """
    operator, operand = predicate.op, cast("Any", predicate.operand)
    for constant in predicate.constants():
        values.check(constant)
    ranges: list[tuple[Cut | None, Cut | None]]
    match operator:
        case "=" | "!=":
            ranges = [((operand, BELOW), (operand, ABOVE))]
        case "in" | "not in":
            distinct = sorted(set(operand), key=lambda value: values.position((value, BELOW)))
            ranges = [((value, BELOW), (value, ABOVE)) for value in distinct]
        case "between" | "not between":
            ranges = [((operand[0], BELOW), (operand[1], ABOVE))]
        case "<" | "<=":
            ranges = [(None, (operand, ABOVE if operator == "<=" else BELOW))]
        case ">" | ">=":
            ranges = [((operand, BELOW if operator == ">=" else ABOVE), None)]
        case _:
            raise ValueError(f"a PS-Tree does not take '{operator}'")
    ranges = _not_empty(ranges, values)
    if operator in ("!=", "not in", "not between"):
        ends = [None, *(cut for pair in ranges for cut in pair), None]
        is_open = (bool(ranges) and ranges[0][0] is None, bool(ranges) and ranges[-1][1] is None)
        gaps = list(zip(ends[::2], ends[1::2], strict=True))
        ranges = _not_empty(gaps[is_open[0] : len(gaps) - is_open[1]], values)
    return ranges


def _not_empty(
    ranges: Sequence[tuple[Cut | None, Cut | None]], values: ValueType
) -> list[tuple[Cut | None, Cut | None]]:
    """Return the ranges that hold a value; a cut at an end of the domain becomes None."""
    kept: list[tuple[Cut | None, Cut | None]] = []
    for low, high in ranges:
        start = values.first if low is None else values.position(low)
        end = values.end if high is None else values.position(high)
        if start < end:
            kept.append((None if start == values.first else low, None if end == values.end else high))
    return kept
