"""Laying out constants: merging old and new constants of a line, assigning labels, tables for narrow integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.locate import (
    LINE_COLUMNS,
    NUMBERS,
    NUMBERS_END,
    STRINGS,
    STRINGS_END,
    TABLE,
    TABLE_END,
    TABLE_FIRST,
    compare_texts,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.locate import FlatDomains

# Below this, every integer is exactly a double.
_EXACT_INTEGERS = 2.0**53
# A table has at most this many entries for each constant, and at most this many in all.
_ENTRIES_PER_CONSTANT = 8
_LARGEST_TABLE = 65_536
# The distance between labels, as in `encoding.domain`.
_WIDEST_GAP, _NARROWEST_GAP = 1 << 20, 4


class NewNumbers(NamedTuple):
    """Number constants and their labels by attribute, those of attribute a at starts[a] : starts[a + 1]."""

    starts: NDArray[np.int64]
    numbers: NDArray[np.float64]
    residuals: NDArray[np.int64]  # empty if all are 0
    labels: NDArray[np.int32]
    is_dealt: NDArray[np.bool_]  # by attribute: its old constants are among these, with new labels


class NewTexts(NamedTuple):
    """String constants and their labels by attribute, those of attribute a at starts[a] : starts[a + 1]."""

    starts: NDArray[np.int64]
    heads: NDArray[np.uint64]
    text_starts: NDArray[np.int64]
    texts: NDArray[np.uint8]
    labels: NDArray[np.int32]
    is_dealt: NDArray[np.bool_]


@kernel
def merge_numbers(old: FlatDomains, new: NewNumbers) -> Any:
    """Merge the number constants of all attributes; of an attribute with `is_dealt`, only the new ones count.

    Empty residuals mean that all are 0. Returns the lines with the columns of numbers filled in, and the constants.
    """
    old_lines, old_numbers, old_residuals, old_labels = old.lines, old.numbers, old.residuals, old.number_labels
    new_starts, new_numbers, new_residuals, new_labels = new.starts, new.numbers, new.residuals, new.labels
    is_dealt = new.is_dealt
    n_attributes = len(new_starts) - 1
    n_most = len(old_numbers) + len(new_numbers)
    has_residuals = len(old_residuals) > 0 or len(new_residuals) > 0
    lines = np.zeros((n_attributes, LINE_COLUMNS), dtype=np.int64)
    numbers = np.empty(n_most, dtype=np.float64)
    residuals = np.zeros(n_most if has_residuals else 0, dtype=np.int64)
    labels = np.empty(n_most, dtype=np.int32)
    n = 0
    for a in range(n_attributes):
        i, i_end, j, j_end = 0, 0, new_starts[a], new_starts[a + 1]
        if a < len(old_lines) and not is_dealt[a]:
            i, i_end = old_lines[a, NUMBERS], old_lines[a, NUMBERS_END]
        lines[a, NUMBERS] = n
        while i < i_end or j < j_end:
            old_residual = old_residuals[i] if i < i_end and len(old_residuals) else 0
            new_residual = new_residuals[j] if j < j_end and len(new_residuals) else 0
            is_old = j == j_end or (
                i < i_end
                and (
                    old_numbers[i] < new_numbers[j]
                    or (old_numbers[i] == new_numbers[j] and old_residual < new_residual)
                )
            )
            if is_old:
                numbers[n], labels[n] = old_numbers[i], old_labels[i]
                i += 1
            else:
                numbers[n], labels[n] = new_numbers[j], new_labels[j]
                j += 1
            if has_residuals:
                residuals[n] = old_residual if is_old else new_residual
            n += 1
        lines[a, NUMBERS_END] = n
    return lines, numbers[:n].copy(), residuals[:n].copy(), labels[:n].copy()


@kernel
def merge_texts(lines: NDArray[np.int64], old: FlatDomains, new: NewTexts) -> Any:
    """Merge the string constants of all attributes, and fill in their columns of the lines."""
    old_lines, old_heads, old_labels = old.lines, old.heads, old.string_labels
    old_text_starts, old_texts = old.text_starts, old.texts
    new_starts, new_heads, new_labels, is_dealt = new.starts, new.heads, new.labels, new.is_dealt
    new_text_starts, new_texts = new.text_starts, new.texts
    n_most = len(old_heads) + len(new_heads)
    heads = np.empty(n_most, dtype=np.uint64)
    text_starts = np.zeros(n_most + 1, dtype=np.int64)
    texts = np.empty(len(old_texts) + len(new_texts), dtype=np.uint8)
    labels = np.empty(n_most, dtype=np.int32)
    n = 0
    for a in range(len(lines)):
        i, i_end, j, j_end = 0, 0, new_starts[a], new_starts[a + 1]
        if a < len(old_lines) and not is_dealt[a]:
            i, i_end = old_lines[a, STRINGS], old_lines[a, STRINGS_END]
        lines[a, STRINGS] = n
        while i < i_end or j < j_end:
            is_old = j == j_end
            if i < i_end and j < j_end:
                is_old = old_heads[i] < new_heads[j]
                if old_heads[i] == new_heads[j]:
                    starts = old_text_starts[i], new_text_starts[j]
                    ends = old_text_starts[i + 1], new_text_starts[j + 1]
                    is_old = compare_texts(old_texts, starts[0], ends[0], new_texts, starts[1], ends[1]) < 0
            if is_old:
                start, end, source = old_text_starts[i], old_text_starts[i + 1], old_texts
                heads[n], labels[n] = old_heads[i], old_labels[i]
                i += 1
            else:
                start, end, source = new_text_starts[j], new_text_starts[j + 1], new_texts
                heads[n], labels[n] = new_heads[j], new_labels[j]
                j += 1
            place = text_starts[n]
            for k in range(end - start):
                texts[place + k] = source[start + k]
            n += 1
            text_starts[n] = place + end - start
        lines[a, STRINGS_END] = n
    return heads[:n].copy(), text_starts[: n + 1].copy(), texts[: text_starts[n]].copy(), labels[:n].copy()


@kernel
def lay_tables(lines: NDArray[np.int64], numbers: NDArray[np.float64], labels: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the tables of attributes whose number constants are integers in a narrow span; fill in their columns."""
    n: Any = 0
    for a in range(len(lines)):
        lines[a, TABLE] = n
        first, end = lines[a, NUMBERS], lines[a, NUMBERS_END]
        if end > first:
            low, high = numbers[first], numbers[end - 1]
            most = min(_ENTRIES_PER_CONSTANT * (end - first), _LARGEST_TABLE)
            if max(-low, high) < _EXACT_INTEGERS and high - low < most:
                is_whole = True
                for i in range(first, end):
                    is_whole &= numbers[i] == np.floor(numbers[i])
                if is_whole:
                    n += np.int64(high - low) + 1
                    lines[a, TABLE_FIRST] = np.int64(low)
        lines[a, TABLE_END] = n
    tables = np.empty(n, dtype=np.int32)
    for a in range(len(lines)):
        place, end = lines[a, TABLE], lines[a, TABLE_END]
        i = lines[a, NUMBERS]
        while place < end:
            if numbers[i] == lines[a, TABLE_FIRST] + (place - lines[a, TABLE]):
                tables[place] = labels[i]
                i += 1
            else:
                tables[place] = -(labels[i - 1] + 1)
            place += 1
    return tables


@kernel
def deal_labels(starts: NDArray[np.int64], section_first: int, section_last: int) -> NDArray[np.int32]:
    """Return labels for new lines, as `encoding.domain.even_labels` does."""
    labels = np.empty(starts[-1], dtype=np.int32)
    room = section_last - section_first
    for a in range(len(starts) - 1):
        n = starts[a + 1] - starts[a]
        gap = max(_NARROWEST_GAP, min(_WIDEST_GAP, room // 2 // (n + 1)))
        label = section_first + room // 2 - (n * gap) // 2
        for i in range(starts[a], starts[a + 1]):
            labels[i] = label
            label += gap
    return labels


@kernel
def known_numbers(
    starts: NDArray[np.int64],
    values: NDArray[np.float64],
    lines: NDArray[np.int64],
    numbers: NDArray[np.float64],
    residuals: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return which values, ascending in each attribute, are number constants already."""
    is_known = np.zeros(len(values), dtype=np.bool_)
    for a in range(min(len(lines), len(starts) - 1)):
        i, end = lines[a, NUMBERS], lines[a, NUMBERS_END]
        for j in range(starts[a], starts[a + 1]):
            while i < end and (numbers[i] < values[j] or (numbers[i] == values[j] and len(residuals) and residuals[i])):
                i += 1
            is_known[j] = i < end and numbers[i] == values[j]
    return is_known


@kernel
def known_texts(
    starts: NDArray[np.int64],
    value_heads: NDArray[np.uint64],
    value_starts: NDArray[np.int64],
    values: NDArray[np.uint8],
    lines: NDArray[np.int64],
    heads: NDArray[np.uint64],
    text_starts: NDArray[np.int64],
    texts: NDArray[np.uint8],
) -> NDArray[np.bool_]:
    """Return which texts, ascending in each attribute, are string constants already."""
    is_known = np.zeros(len(value_heads), dtype=np.bool_)
    for a in range(min(len(lines), len(starts) - 1)):
        i, end = lines[a, STRINGS], lines[a, STRINGS_END]
        for j in range(starts[a], starts[a + 1]):
            order = -1
            while i < end and order < 0:
                order = -1 if heads[i] < value_heads[j] else 1
                if heads[i] == value_heads[j]:
                    own = text_starts[i], text_starts[i + 1]
                    order = compare_texts(texts, own[0], own[1], values, value_starts[j], value_starts[j + 1])
                if order < 0:
                    i += 1
            is_known[j] = order == 0
    return is_known


@inline_kernel
def _first_at(labels: NDArray[np.int32], first: int, end: int, code: int) -> Any:
    """Return the place of the first label that is not below a code."""
    low, high = np.uint64(first), np.uint64(end)
    while low < high:
        middle = (low + high) >> np.uint64(1)
        if labels[middle] < code:
            low = middle + np.uint64(1)
        else:
            high = middle
    return low


@kernel
def mark_labels(
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    lines: NDArray[np.int64],
    first_column: int,
    labels: NDArray[np.int32],
    is_used: NDArray[np.bool_],
) -> None:
    """Mark the labels of bounds: a low bound is a label or the code after it, a high bound one or the code before."""
    for i in range(len(attributes)):
        first, end = lines[attributes[i], first_column], lines[attributes[i], first_column + 1]
        below = _first_at(labels, first, end, lows[i] - 1)
        if below < np.uint64(end) and labels[below] <= lows[i]:
            is_used[below] = True
        above = _first_at(labels, first, end, highs[i])
        if above < np.uint64(end) and labels[above] <= highs[i] + 1:
            is_used[above] = True
