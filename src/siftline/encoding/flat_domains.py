"""Domains as flat arrays: what kernels locate values in, what snapshots hold, and what most constants live in.

The arrays never change. New constants are kept beside them, in the lines of the attributes that have any, until they
are merged into new arrays.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.encoding.domain import NO_LABEL, NUMBERS, STRINGS, Domain, Line, SearchedKeys
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.lines import (
    NewNumbers,
    NewTexts,
    deal_labels,
    lay_tables,
    mark_labels,
    merge_numbers,
    merge_texts,
)
from siftline.kernels.locate import LINE_COLUMNS, FlatDomains, locate_leaves, text_heads
from siftline.kernels.locate import NUMBERS as NUMBER_COLUMN
from siftline.kernels.locate import STRINGS as STRING_COLUMN
from siftline.kernels.pointers import handle_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.domain import Keys

# Below this, every integer is a double of its own.
EXACT_INTEGERS: Final = 2**53
# Domains made from the arrays are remembered, so that one addition makes each of them once. With a thousand of them,
# the garbage collector takes four times as long as making them.
_MOST_REMEMBERED: Final = 64


class Base:
    """Flat domains, with what Python needs to look into them."""

    __slots__ = ("_bounds", "_labels", "_numbers", "_remembered", "flat", "handle", "n_attributes", "n_constants")

    def __init__(self, flat: FlatDomains) -> None:
        self.flat = FlatDomains._make(read_only(array) for array in flat)
        self.n_attributes = len(flat.lines)
        self.n_constants = len(flat.numbers) + len(flat.heads)
        self.handle: Any = handle_of(self.flat)  # what kernels take
        self._bounds = _view(self.flat.lines.reshape(-1))
        self._numbers = _view(self.flat.numbers)
        self._labels = _view(self.flat.number_labels), _view(self.flat.string_labels)
        self._remembered: dict[int, Domain] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Base, (FlatDomains._make(map(np.array, self.flat)),)

    def located(self, columns: LeafColumns) -> NDArray[np.int32]:
        """Return the codes of leaves."""
        codes: NDArray[np.int32] = locate_leaves(LeafColumns._make(read_only(array) for array in columns), self.handle)
        return codes

    def domain(self, attribute: int) -> Domain:
        """Return the domain of an attribute, which must not be changed."""
        domain = self._remembered.get(attribute)
        if domain is None:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered = {}
            domain = self._remembered[attribute] = self._made_domain(attribute)
        return domain

    def label(self, attribute: int, value: float | str) -> int:
        """Return the label of a constant, NO_LABEL if the value is none."""
        if attribute >= self.n_attributes:
            return NO_LABEL
        if isinstance(value, str) or len(self.flat.residuals):
            domain = self.domain(attribute)
            return (domain.strings if isinstance(value, str) else domain.numbers).label(value)
        place = LINE_COLUMNS * attribute
        end = self._bounds[place + 1]
        i = bisect_left(self._numbers, value, self._bounds[place], end)
        return self._labels[0][i] if i < end and self._numbers[i] == value else NO_LABEL

    def _made_domain(self, attribute: int) -> Domain:
        if attribute >= self.n_attributes:
            return Domain()
        place = LINE_COLUMNS * attribute
        number, number_end, text, text_end = self._bounds[place : place + 4]
        numbers = strings = None
        if number_end > number:
            keys = self._number_keys(number, number_end)
            numbers = Line(NUMBERS, keys, self._labels[0][number:number_end])
        if text_end > text:
            strings = Line(STRINGS, _TextKeys(self.flat, text, text_end), self._labels[1][text:text_end])
        return Domain(numbers, strings)

    def _number_keys(self, start: int, end: int) -> Keys:
        if len(self.flat.residuals) and self.flat.residuals[start:end].any():
            return _ExactKeys(self.flat, start, end)
        return self._numbers[start:end]


class _TextKeys(SearchedKeys):
    """String constants as a sequence of Python strings."""

    __slots__ = ("_end", "_heads", "_start", "_starts", "_texts")

    def __init__(self, flat: FlatDomains, start: int, end: int) -> None:
        self._starts, self._texts, self._heads = _view(flat.text_starts), _view(flat.texts), _view(flat.heads)
        self._start, self._end = start, end

    def place(self, text: str) -> int:
        """Do as `bisect_left`, by the first eight bytes, and by whole texts only where these are the same."""
        encoded = text.encode("utf-8", "surrogatepass")
        head = int.from_bytes(encoded[:8].ljust(8, b"\0"))
        low = bisect_left(self._heads, head, self._start, self._end)
        high = bisect_right(self._heads, head, low, self._end)
        return bisect_left(self, text, low - self._start, high - self._start)

    def __len__(self) -> int:
        return self._end - self._start

    def __getitem__(self, i: int) -> str:
        place = self._start + i
        if not self._start <= place < self._end:
            raise IndexError(i)
        return str(self._texts[self._starts[place] : self._starts[place + 1]], "utf-8", "surrogatepass")


class _ExactKeys:
    """Number constants some of which are integers that are no doubles."""

    __slots__ = ("_end", "_flat", "_start")

    def __init__(self, flat: FlatDomains, start: int, end: int) -> None:
        self._flat, self._start, self._end = flat, start, end

    def __len__(self) -> int:
        return self._end - self._start

    def __getitem__(self, i: int) -> int | float:
        place = self._start + i
        if not self._start <= place < self._end:
            raise IndexError(i)
        number, residual = self._flat.numbers.item(place), self._flat.residuals.item(place)
        return int(number) + residual if residual else number


def _view(array: Any) -> memoryview:
    # Memory views are quicker to index than arrays, and a binary search can run over them.
    return memoryview(array)


def base_of(arrays: Mapping[str, NDArray[Any]]) -> Base:
    """Return a base over the arrays of a snapshot."""
    return Base(FlatDomains(**arrays))


def empty_base() -> Base:
    """Return a base without attributes."""
    return _EMPTY


def fresh_numbers(starts: NDArray[np.int64], numbers: NDArray[np.float64]) -> NewNumbers:
    """Return numbers, ascending in each attribute, for attributes that have none yet."""
    return NewNumbers(
        starts=starts,
        numbers=numbers,
        residuals=np.zeros(0, dtype=np.int64),
        labels=deal_labels(starts, NUMBERS.first, NUMBERS.last),
        is_dealt=_none_dealt(starts),
    )


def fresh_texts(starts: NDArray[np.int64], text_starts: NDArray[np.int64], texts: NDArray[np.uint8]) -> NewTexts:
    """Return strings, ascending in each attribute, for attributes that have none yet."""
    return NewTexts(
        starts=starts,
        heads=text_heads(read_only(texts), read_only(text_starts)),
        text_starts=text_starts,
        texts=texts,
        labels=deal_labels(starts, STRINGS.first, STRINGS.last),
        is_dealt=_none_dealt(starts),
    )


def _none_dealt(starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.zeros(len(starts) - 1, dtype=np.bool_)


def merged(base: Base, n_attributes: int, changed: Mapping[int, Domain]) -> Base:
    """Return a base with the new constants of some domains."""
    chosen = sorted(changed)
    numbers = [changed[attribute].numbers for attribute in chosen]
    strings = [changed[attribute].strings for attribute in chosen]
    doubles, residuals = split_numbers(list(chain.from_iterable(line.unmerged[0] for line in numbers)))
    text_starts, texts = split_texts(list(chain.from_iterable(line.unmerged[0] for line in strings)))
    number_starts, number_labels, are_numbers_dealt = _labelled(n_attributes, chosen, numbers)
    string_starts, string_labels, are_strings_dealt = _labelled(n_attributes, chosen, strings)
    new_numbers = NewNumbers(
        starts=number_starts,
        numbers=doubles,
        residuals=residuals if residuals.any() else residuals[:0],
        labels=number_labels,
        is_dealt=are_numbers_dealt,
    )
    new_texts = NewTexts(
        starts=string_starts,
        heads=text_heads(read_only(texts), read_only(text_starts)),
        text_starts=text_starts,
        texts=texts,
        labels=string_labels,
        is_dealt=are_strings_dealt,
    )
    return merged_with(base, new_numbers, new_texts)


def _labelled(
    n_attributes: int, chosen: Sequence[int], lines: Sequence[Line]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
    """Return where the new constants of each attribute start, their labels, and which attributes were dealt anew."""
    counts = np.zeros(n_attributes + 1, dtype=np.int64)
    is_dealt = np.zeros(n_attributes, dtype=np.bool_)
    if chosen:
        counts[np.array(chosen) + 1] = [len(line.unmerged[0]) for line in lines]
        is_dealt[chosen] = [line.is_dealt for line in lines]
    labels = np.array(list(chain.from_iterable(line.unmerged[1] for line in lines)), dtype=np.int32)
    return np.cumsum(counts), labels, is_dealt


def merged_with(base: Base, numbers: NewNumbers, texts: NewTexts) -> Base:
    """Return a base with new numbers and new strings."""
    old = base.flat
    lines, new_numbers, residuals, number_labels = merge_numbers(
        old, NewNumbers._make(read_only(array) for array in numbers)
    )
    heads, text_starts, all_texts, string_labels = merge_texts(
        lines, old, NewTexts._make(read_only(array) for array in texts)
    )
    flat = FlatDomains(
        lines=lines,
        numbers=new_numbers,
        residuals=residuals,
        number_labels=number_labels,
        tables=lay_tables(lines, new_numbers, number_labels),
        heads=heads,
        text_starts=text_starts,
        texts=all_texts,
        string_labels=string_labels,
    )
    return Base(flat)


def kept(base: Base, attributes: NDArray[np.int64], ranges: Sequence[tuple[Any, Any, Any]]) -> Base:
    """Return a base of some attributes, numbered anew, with the constants on which some of the ranges begin or end.

    The ranges come as arrays of attributes, low codes and high codes. Labels stay as they are.
    """
    flat = base.flat
    are_used = np.zeros(len(flat.numbers), dtype=np.bool_), np.zeros(len(flat.heads), dtype=np.bool_)
    for owners, lows, highs in ranges:
        mark_labels(owners, lows, highs, flat.lines, NUMBER_COLUMN, flat.number_labels, are_used[0])
        mark_labels(owners, lows, highs, flat.lines, STRING_COLUMN, flat.string_labels, are_used[1])
    lines = flat.lines[attributes]
    numbers, strings = np.flatnonzero(are_used[0]), np.flatnonzero(are_used[1])
    residuals = flat.residuals[numbers] if len(flat.residuals) else flat.residuals
    text_starts, texts = taken_texts(flat.text_starts, flat.texts, strings)
    number_starts, string_starts = (
        np.concatenate([np.searchsorted(places, lines[:, column]), [len(places)]])
        for places, column in ((numbers, NUMBER_COLUMN), (strings, STRING_COLUMN))
    )
    none_dealt = np.zeros(len(attributes), dtype=np.bool_)
    return merged_with(
        _EMPTY,
        NewNumbers(number_starts, flat.numbers[numbers], residuals, flat.number_labels[numbers], none_dealt),
        NewTexts(string_starts, flat.heads[strings], text_starts, texts, flat.string_labels[strings], none_dealt),
    )


def taken_texts(
    starts: NDArray[np.int64], texts: NDArray[np.uint8], places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the starts and the bytes of the texts at some places."""
    if not len(places):
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    import pyarrow as pa

    buffers = [None, pa.py_buffer(np.ascontiguousarray(starts)), pa.py_buffer(np.ascontiguousarray(texts))]
    return binary_buffers(pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers).take(pa.array(places)))


def flatten(domains: Sequence[Domain]) -> Base:
    """Lay some domains into flat arrays of their own."""
    alone = {}
    for attribute, domain in enumerate(domains):
        alone[attribute] = copied = Domain()
        for line, source in ((copied.numbers, domain.numbers), (copied.strings, domain.strings)):
            line.new_keys, line.new_labels = source.keys, source.labels
    return merged(_EMPTY, len(alone), alone)


def split_numbers(values: Sequence[int | float]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return each number as its nearest double and what is missing to its exact value.

    >>> split_numbers([0.5, 2**53 + 1])
    (array([5.00000000e-01, 9.00719925e+15]), array([0, 1]))
    """
    numbers = np.array(values, dtype=np.float64)
    residuals = np.zeros(len(values), dtype=np.int64)
    for i in np.flatnonzero(np.abs(numbers) >= EXACT_INTEGERS).tolist():
        value = values[i]
        if isinstance(value, int):
            residuals[i] = value - int(numbers[i])
    return numbers, residuals


def split_texts(values: list[str]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the UTF-8 bytes of all strings and where each starts; lone surrogates keep their place in the order."""
    encoded = [value.encode("utf-8", "surrogatepass") for value in values]
    starts = np.cumsum([0, *map(len, encoded)])
    return starts, np.frombuffer(b"".join(encoded), dtype=np.uint8)


def binary_buffers(array: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the offsets and the bytes of a large_binary or large_string array."""
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    starts = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    return starts, np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view: to the compiler a writable array is another type, for which it compiles again."""
    view = array.view()
    view.flags.writeable = False
    return view


_EMPTY: Final = Base(
    FlatDomains(
        lines=np.zeros((0, LINE_COLUMNS), dtype=np.int64),
        numbers=np.zeros(0, dtype=np.float64),
        residuals=np.zeros(0, dtype=np.int64),
        number_labels=np.zeros(0, dtype=np.int32),
        tables=np.zeros(0, dtype=np.int32),
        heads=np.zeros(0, dtype=np.uint64),
        text_starts=np.zeros(1, dtype=np.int64),
        texts=np.zeros(0, dtype=np.uint8),
        string_labels=np.zeros(0, dtype=np.int32),
    )
)
