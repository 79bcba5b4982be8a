"""Locating values: the codes of numbers and strings of events, by table if a domain is small, else by search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from siftline.kernels.codes import FALSE, FIRST_NUMBER, FIRST_STRING, NULL
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.pointers import arrays_at, fetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.leaves import LeafColumns

# The columns of `FlatDomains.lines`: where the number constants of an attribute start and end, its string constants,
# and its table, whose first entry is for the integer TABLE_FIRST. An attribute takes one cache line.
NUMBERS, NUMBERS_END, STRINGS, STRINGS_END, TABLE, TABLE_END, TABLE_FIRST, LINE_COLUMNS = 0, 1, 2, 3, 4, 5, 6, 8


class FlatDomains(NamedTuple):
    """The lines of all attributes, one after the other.

    A number is the pair (nearest double, exact value minus that double); pairs in lexicographic order are in exact
    order. A string constant has its first eight bytes, big-endian, as `head`: most comparisons end there.
    An attribute whose number constants are integers in a narrow span has a table with an entry for each integer of the
    span: its label, or minus the code of the space that it lies in.
    """

    lines: Annotated[NDArray[np.int64], LINE_COLUMNS]
    numbers: NDArray[np.float64]
    residuals: NDArray[np.int64]  # empty if all are 0
    number_labels: NDArray[np.int32]
    tables: NDArray[np.int32]
    heads: NDArray[np.uint64]
    text_starts: NDArray[np.int64]  # [n_strings + 1]
    texts: NDArray[np.uint8]
    string_labels: NDArray[np.int32]


class Values(NamedTuple):
    """Values of events from Python objects; the kinds are below."""

    owners: NDArray[np.int64]  # attributes; negative if the value is ignored
    kinds: NDArray[np.uint8]  # empty if all are integers or doubles
    numbers: NDArray[np.float64]
    residuals: NDArray[np.int64]  # empty if integers must be exact as doubles
    text_ends: NDArray[np.int64]  # of the values that are texts
    texts: NDArray[np.uint8]


_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
_EXACT_INTEGERS = 2.0**53

# The kinds of values. The kinds 0, 1 and 2 of JSON leaves (null, false, true) are codes themselves.
KIND_NUMBER, KIND_TEXT, KIND_INTEGER, KIND_BOOLEAN = 3, 4, 5, 6

# How many texts of a column are located together.
_N_LANES = 16

# How many leaves ahead the lines of JSON leaves are prefetched, and then their entries of tables.
_FAR, _NEAR = 24, 12

# What `locate_values` returns if some integers need residuals.
INEXACT = -1


@inline_kernel
def _search_number(value: float, residual: int, first: int, end: int, flat: FlatDomains) -> Any:
    """Return the code of a number among the constants first .. end - 1."""
    numbers, residuals, labels = flat.numbers, flat.residuals, flat.number_labels
    has_residuals = len(residuals) > 0
    low, high = np.uint64(first), np.uint64(end)
    while low < high:
        middle = (low + high) >> np.uint64(1)
        key = numbers[middle]
        if key < value or (key == value and (residuals[middle] if has_residuals else 0) < residual):
            low = middle + np.uint64(1)
        else:
            high = middle
    if low < np.uint64(end) and numbers[low] == value and (residuals[low] if has_residuals else 0) == residual:
        return labels[low]
    if low > np.uint64(first):
        return labels[low - np.uint64(1)] + np.int32(1)
    return FIRST_NUMBER


@inline_kernel
def locate_number(value: float, residual: int, line: Any, flat: FlatDomains) -> Any:
    """Return the code of a number, by table if its attribute has one and the number lies in its span."""
    lines = flat.lines
    n_entries, table_first = lines[line, TABLE_END] - lines[line, TABLE], lines[line, TABLE_FIRST]
    if n_entries > 0 and value >= table_first and value < table_first + n_entries:
        floor = np.int64(value)
        if floor > value:
            floor -= 1
        entry = flat.tables[np.uint64(lines[line, TABLE] + (floor - table_first))]
        if entry < 0:
            return -entry
        # All constants are integers, so a fraction right above a constant lies in the space after it.
        return entry if value == floor else entry + np.int32(1)
    return _search_number(value, residual, lines[line, NUMBERS], lines[line, NUMBERS_END], flat)


@inline_kernel
def _fetch_entry(value: float, line: Any, flat: FlatDomains) -> None:
    """Prefetch the entry of a number that `locate_number` will read soon."""
    lines = flat.lines
    n_entries, table_first = lines[line, TABLE_END] - lines[line, TABLE], lines[line, TABLE_FIRST]
    if n_entries > 0 and value >= table_first and value < table_first + n_entries:
        fetch(flat.tables, lines[line, TABLE] + (np.int64(value) - table_first))


@inline_kernel
def text_head(texts: NDArray[np.uint8], start: Any, end: Any) -> Any:
    """Return the first eight bytes of a text as a big-endian number, padded with zeros."""
    n = end - start
    if n <= 0:
        return np.uint64(0)
    if start + 8 <= len(texts):
        # Written out, because the compiler makes one load of it; bytes after a shorter text are masked.
        head = (
            (np.uint64(texts[np.uint64(start)]) << np.uint64(56))
            | (np.uint64(texts[np.uint64(start + 1)]) << np.uint64(48))
            | (np.uint64(texts[np.uint64(start + 2)]) << np.uint64(40))
            | (np.uint64(texts[np.uint64(start + 3)]) << np.uint64(32))
            | (np.uint64(texts[np.uint64(start + 4)]) << np.uint64(24))
            | (np.uint64(texts[np.uint64(start + 5)]) << np.uint64(16))
            | (np.uint64(texts[np.uint64(start + 6)]) << np.uint64(8))
            | np.uint64(texts[np.uint64(start + 7)])
        )
        return head & (_ALL_BITS << np.uint64(64 - 8 * min(n, 8)))
    head = np.uint64(0)
    for i in range(start, end):
        head = (head << np.uint64(8)) | np.uint64(texts[np.uint64(i)])
    return head << np.uint64(8 * (8 - n))


@inline_kernel
def compare_texts(
    left: NDArray[np.uint8], start: Any, end: Any, right: NDArray[np.uint8], right_start: Any, right_end: Any
) -> Any:
    """Compare two texts whose heads are equal; -1, 0 or 1."""
    n_left, n_right = end - start, right_end - right_start
    for offset in range(8, min(n_left, n_right), 8):
        a = text_head(left, start + offset, end)
        b = text_head(right, right_start + offset, right_end)
        if a != b:
            return -1 if a < b else 1
    # Equal up to the end of the shorter one, so the longer one starts with it.
    if n_left == n_right:
        return 0
    return -1 if n_left < n_right else 1


@inline_kernel
def _search_text(
    source: NDArray[np.uint8], start: Any, end: Any, head: Any, first: Any, low: Any, high: Any, flat: FlatDomains
) -> Any:
    """Return the code of a text whose place among the constants of its line, from `first` on, is in low .. high."""
    heads, text_starts, labels = flat.heads, flat.text_starts, flat.string_labels
    while low < high:
        middle = (low + high) >> 1
        key = heads[np.uint64(middle)]
        order = 0
        if key == head:
            order = compare_texts(
                flat.texts, text_starts[np.uint64(middle)], text_starts[np.uint64(middle + 1)], source, start, end
            )
            if order == 0:
                return labels[np.uint64(middle)]
        if key < head or order < 0:
            low = middle + 1
        else:
            high = middle
    if low > first:
        return labels[np.uint64(low - 1)] + np.int32(1)
    return FIRST_STRING


@inline_kernel
def locate_text(source: NDArray[np.uint8], start: Any, end: Any, line: Any, flat: FlatDomains) -> Any:
    """Return the code of the text source[start:end] among the constants of a line."""
    first, last = flat.lines[line, STRINGS], flat.lines[line, STRINGS_END]
    return _search_text(source, start, end, text_head(source, start, end), first, first, last, flat)


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
    domains: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Return the codes of a column of numbers; not-a-number and infinities are null.

    Here and below, `domains` is the handle of `FlatDomains` (see `kernels/pointers.py`).
    """
    flat = arrays_at(domains, FlatDomains)
    codes = np.empty(len(values), dtype=np.int32)
    line = np.uint64(attribute)
    for i in range(len(values)):
        if not np.isfinite(values[i]):
            codes[i] = NULL
            continue
        residual = residuals[i] if len(residuals) else 0
        codes[i] = locate_number(values[i], residual, line, flat)
    return codes


@inline_kernel
def _is_below(left: Any, right: Any) -> Any:
    """Return 1 if left < right, else 0, for two uint64: the borrow of their difference.

    The compiler turns a comparison into a branch, which is mispredicted every other time in a search.
    """
    return np.int64(((~left & right) | (~(left ^ right) & (left - right))) >> np.uint64(63))


@kernel
def locate_texts(
    source: NDArray[np.uint8],
    starts: NDArray[np.int64],
    attribute: int,
    domains: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Return the codes of a column of texts, the i-th being source[starts[i] : starts[i + 1]]."""
    flat = arrays_at(domains, FlatDomains)
    heads = flat.heads
    codes = np.empty(len(starts) - 1, dtype=np.int32)
    first, last = flat.lines[attribute, STRINGS], flat.lines[attribute, STRINGS_END]
    own_heads = np.zeros(_N_LANES, dtype=np.uint64)
    places = np.empty(_N_LANES, dtype=np.int64)
    for block in range(0, len(codes), _N_LANES):
        n_lanes = min(_N_LANES, len(codes) - block)
        for lane in range(n_lanes):
            own_heads[lane] = text_head(source, starts[block + lane], starts[block + lane + 1])
        places[:] = first
        # All texts take the same steps to the first constant whose head is not below, without a branch. Unused lanes at
        # the end take part too, because the compiler vectorizes them.
        size = last - first
        while size > 1:
            half = size >> 1
            for lane in range(np.uint64(_N_LANES)):
                head = heads[np.uint64(places[lane] + half - 1)]
                places[lane] += half * _is_below(head, own_heads[lane])
            size -= half
        for lane in range(n_lanes):
            low = places[lane]
            if low < last and heads[np.uint64(low)] < own_heads[lane]:
                low += 1
            high, step = low, 1
            while high < last and heads[np.uint64(high)] == own_heads[lane]:
                high, step = min(last, high + step), 2 * step
            text, text_end = starts[block + lane], starts[block + lane + 1]
            codes[block + lane] = _search_text(source, text, text_end, own_heads[lane], first, low, high, flat)
    return codes


@inline_kernel
def _locate_leaves(leaves: LeafColumns, flat: FlatDomains, codes: NDArray[np.int32]) -> None:
    """Write the codes of leaves, except of those whose attribute is below zero.

    An attribute without a line has no constants.
    """
    attributes, kinds, numbers = leaves.attributes, leaves.kinds, leaves.numbers
    n = len(attributes)
    for i in range(n):
        if i + _FAR < n:
            fetch(flat.lines, np.int64(attributes[i + _FAR]) * LINE_COLUMNS)
        near = attributes[i + _NEAR] if i + _NEAR < n else -1
        if 0 <= near < len(flat.lines) and kinds[i + _NEAR] == KIND_NUMBER:
            _fetch_entry(numbers[i + _NEAR], np.uint64(attributes[i + _NEAR]), flat)
        if attributes[i] < 0:
            continue
        line, is_there = np.uint64(attributes[i]), attributes[i] < len(flat.lines)
        if kinds[i] < KIND_NUMBER:
            codes[i] = kinds[i]
        elif kinds[i] == KIND_NUMBER:
            codes[i] = FIRST_NUMBER
            if is_there:
                codes[i] = locate_number(numbers[i], leaves.residuals[i], line, flat)
        else:
            codes[i] = FIRST_STRING
            if is_there:
                codes[i] = locate_text(leaves.texts, leaves.text_starts[i], leaves.text_ends[i], line, flat)


@kernel
def locate_leaves(leaves: LeafColumns, domains: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the codes of parsed JSON leaves: kinds 0, 1, 2 are codes themselves, 3 is a number, 4 a text."""
    codes = np.empty(len(leaves.attributes), dtype=np.int32)
    _locate_leaves(leaves, arrays_at(domains, FlatDomains), codes)
    return codes


@inline_kernel
def _locate_values(values: Values, starts: NDArray[np.int64], found: NDArray[np.int32], flat: FlatDomains) -> Any:
    """Locate the values of some events, those of event e at starts[e] : starts[e + 1].

    Values whose owner is negative are left out, and `starts` is changed accordingly. The rows of `found` get attributes
    and codes. Returns how many values are left; INEXACT if some integer may not be exact as a double and there are no
    residuals.
    """
    owners, kinds, numbers, residuals = values.owners, values.kinds, values.numbers, values.residuals
    if not len(residuals):
        for i in range(len(owners)):
            is_integer = not len(kinds) or kinds[i] == KIND_INTEGER
            if is_integer and owners[i] >= 0 and np.abs(numbers[i]) >= _EXACT_INTEGERS and np.isfinite(numbers[i]):
                return INEXACT
    n_found, n_texts, text_start, event = 0, 0, np.int64(0), 1
    for i in range(len(owners)):
        while event < len(starts) - 1 and starts[event] == i:
            starts[event] = n_found
            event += 1
        kind = np.int64(kinds[i]) if len(kinds) else KIND_INTEGER
        text_end = text_start
        if kind == KIND_TEXT:
            text_end = values.text_ends[n_texts]
            n_texts += 1
        if owners[i] >= 0:
            line = np.uint64(owners[i])
            is_there = owners[i] < len(flat.lines)
            code = NULL
            if kind == KIND_TEXT:
                code = FIRST_STRING
                if is_there:
                    code = locate_text(values.texts, text_start, text_end, line, flat)
            elif kind == KIND_BOOLEAN:
                code = FALSE + np.int32(numbers[i])
            elif kind >= KIND_NUMBER and np.isfinite(numbers[i]):
                residual = residuals[i] if len(residuals) else 0
                code = FIRST_NUMBER
                if is_there:
                    code = locate_number(numbers[i], residual, line, flat)
            found[0, n_found] = owners[i]
            found[1, n_found] = code
            n_found += 1
        text_start = text_end
    for i in range(event, len(starts)):
        starts[i] = n_found
    return n_found


@kernel
def locate_values(
    owners: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    numbers: NDArray[np.float64],
    residuals: NDArray[np.int64],
    text_ends: NDArray[np.int64],
    texts: NDArray[np.uint8],
    starts: NDArray[np.int64],
    found: NDArray[np.int32],
    domains: NDArray[np.int64],
) -> Any:
    """Locate the values of some events, whose arrays are those of `Values`; return as `_locate_values` does."""
    values = Values(owners, kinds, numbers, residuals, text_ends, texts)
    return _locate_values(values, starts, found, arrays_at(domains, FlatDomains))
