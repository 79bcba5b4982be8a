"""Locating values: from numbers and strings of events to codes, by table where a domain is small, else by search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FlatDomains(NamedTuple):
    """The lines of all attributes, one after the other.

    A number is the pair (nearest double, exact value minus that double); pairs in lexicographic order are in exact
    order. A string constant has its first eight bytes, big-endian, as `head`: most comparisons end there.
    An attribute whose number constants are integers in a narrow span has a table with an entry for each integer of the
    span: its label, or minus the code of the space that it lies in.
    """

    number_starts: NDArray[np.int64]  # [n_attributes + 1]
    numbers: NDArray[np.float64]
    residuals: NDArray[np.int64]
    number_labels: NDArray[np.int32]
    string_starts: NDArray[np.int64]  # [n_attributes + 1]
    heads: NDArray[np.uint64]
    text_starts: NDArray[np.int64]  # [n_strings + 1]
    texts: NDArray[np.uint8]
    string_labels: NDArray[np.int32]
    table_starts: NDArray[np.int64]  # [n_attributes + 1]; an empty span: no table
    table_firsts: NDArray[np.int64]  # [n_attributes]
    tables: NDArray[np.int32]


_NULL = np.int32(0)
_FIRST_NUMBER = np.int32(3)
_FIRST_STRING = np.int32(2**30)


@inline_kernel
def _search_number(
    value: float,
    residual: int,
    first: int,
    end: int,
    numbers: NDArray[np.float64],
    residuals: NDArray[np.int64],
    labels: NDArray[np.int32],
) -> Any:
    """Return the code of a number among the constants first .. end - 1."""
    low, high = first, end
    while low < high:
        middle = (low + high) >> 1
        key = numbers[middle]
        if key < value or (key == value and residuals[middle] < residual):
            low = middle + 1
        else:
            high = middle
    if low < end and numbers[low] == value and residuals[low] == residual:
        return labels[low]
    if low > first:
        return labels[low - 1] + np.int32(1)
    return _FIRST_NUMBER


@inline_kernel
def locate_number(
    value: float,
    residual: int,
    first: int,
    end: int,
    numbers: NDArray[np.float64],
    residuals: NDArray[np.int64],
    labels: NDArray[np.int32],
    table_start: int,
    table_end: int,
    table_first: int,
    tables: NDArray[np.int32],
) -> Any:
    """Return the code of a number, by table if its attribute has one and the number lies in its span."""
    if table_end > table_start and value >= table_first and value < table_first + (table_end - table_start):
        floor = np.int64(value)
        if floor > value:
            floor -= 1
        entry = tables[table_start + (floor - table_first)]
        if entry < 0:
            return -entry
        # All constants are integers, so a fraction right above a constant lies in the space after it.
        return entry if value == floor else entry + np.int32(1)
    return _search_number(value, residual, first, end, numbers, residuals, labels)


@inline_kernel
def text_head(texts: NDArray[np.uint8], start: int, end: int) -> Any:
    """Return the first eight bytes of a text as a big-endian number, padded with zeros."""
    head = np.uint64(0)
    stop = min(end, start + 8)
    for i in range(start, stop):
        head = (head << np.uint64(8)) | np.uint64(texts[i])
    missing = 8 - (stop - start)
    if missing == 8:
        return np.uint64(0)
    return head << np.uint64(8 * missing)


@inline_kernel
def _compare_rest(
    left: NDArray[np.uint8], start: int, end: int, right: NDArray[np.uint8], right_start: int, right_end: int
) -> Any:
    """Compare two texts whose heads are equal; -1, 0 or 1."""
    length = min(end - start, right_end - right_start)
    for i in range(min(8, length), length):
        a, b = left[start + i], right[right_start + i]
        if a != b:
            return -1 if a < b else 1
    if end - start == right_end - right_start:
        return 0
    return -1 if end - start < right_end - right_start else 1


@inline_kernel
def locate_text(
    source: NDArray[np.uint8],
    start: int,
    end: int,
    first: int,
    last: int,
    heads: NDArray[np.uint64],
    text_starts: NDArray[np.int64],
    texts: NDArray[np.uint8],
    labels: NDArray[np.int32],
) -> Any:
    """Return the code of the text source[start:end] among the constants first .. last - 1."""
    head = text_head(source, start, end)
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        key = heads[middle]
        order = 0
        if key == head:
            order = _compare_rest(texts, text_starts[middle], text_starts[middle + 1], source, start, end)
            if order == 0:
                return labels[middle]
        if key < head or order < 0:
            low = middle + 1
        else:
            high = middle
    if low > first:
        return labels[low - 1] + np.int32(1)
    return _FIRST_STRING


@kernel
def text_heads(texts: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the heads of all texts."""
    heads = np.empty(len(starts) - 1, dtype=np.uint64)
    for i in range(len(heads)):
        heads[i] = text_head(texts, starts[i], starts[i + 1])
    return heads


@kernel
def locate_numbers(
    values: NDArray[np.float64],
    residuals: NDArray[np.int64],
    attribute: int,
    number_starts: NDArray[np.int64],
    numbers: NDArray[np.float64],
    number_residuals: NDArray[np.int64],
    labels: NDArray[np.int32],
    table_starts: NDArray[np.int64],
    table_firsts: NDArray[np.int64],
    tables: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Return the codes of a column of numbers; not-a-number and infinities are null."""
    codes = np.empty(len(values), dtype=np.int32)
    first, end = number_starts[attribute], number_starts[attribute + 1]
    table_start, table_end = table_starts[attribute], table_starts[attribute + 1]
    table_first = table_firsts[attribute]
    for i in range(len(values)):
        if not np.isfinite(values[i]):
            codes[i] = _NULL
            continue
        residual = residuals[i] if len(residuals) else 0
        codes[i] = locate_number(
            values[i],
            residual,
            first,
            end,
            numbers,
            number_residuals,
            labels,
            table_start,
            table_end,
            table_first,
            tables,
        )
    return codes


@kernel
def locate_texts(
    source: NDArray[np.uint8],
    starts: NDArray[np.int64],
    attribute: int,
    string_starts: NDArray[np.int64],
    heads: NDArray[np.uint64],
    text_starts: NDArray[np.int64],
    texts: NDArray[np.uint8],
    labels: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Return the codes of a column of texts, the i-th being source[starts[i] : starts[i + 1]]."""
    codes = np.empty(len(starts) - 1, dtype=np.int32)
    first, last = string_starts[attribute], string_starts[attribute + 1]
    for i in range(len(codes)):
        codes[i] = locate_text(source, starts[i], starts[i + 1], first, last, heads, text_starts, texts, labels)
    return codes


@kernel
def locate_leaves(
    attributes: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    values: NDArray[np.float64],
    value_residuals: NDArray[np.int64],
    value_starts: NDArray[np.int64],
    value_ends: NDArray[np.int64],
    source: NDArray[np.uint8],
    number_starts: NDArray[np.int64],
    numbers: NDArray[np.float64],
    residuals: NDArray[np.int64],
    number_labels: NDArray[np.int32],
    string_starts: NDArray[np.int64],
    heads: NDArray[np.uint64],
    text_starts: NDArray[np.int64],
    texts: NDArray[np.uint8],
    string_labels: NDArray[np.int32],
    table_starts: NDArray[np.int64],
    table_firsts: NDArray[np.int64],
    tables: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Return the codes of parsed JSON leaves: kinds 0, 1, 2 are codes themselves, 3 is a number, 4 a text."""
    codes = np.empty(len(attributes), dtype=np.int32)
    for i in range(len(attributes)):
        a = attributes[i]
        if kinds[i] < 3:
            codes[i] = kinds[i]
        elif kinds[i] == 3:
            codes[i] = locate_number(
                values[i],
                value_residuals[i],
                number_starts[a],
                number_starts[a + 1],
                numbers,
                residuals,
                number_labels,
                table_starts[a],
                table_starts[a + 1],
                table_firsts[a],
                tables,
            )
        else:
            codes[i] = locate_text(
                source,
                value_starts[i],
                value_ends[i],
                string_starts[a],
                string_starts[a + 1],
                heads,
                text_starts,
                texts,
                string_labels,
            )
    return codes
