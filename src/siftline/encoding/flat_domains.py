"""Domains as flat arrays, for the kernels that locate whole batches of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from siftline.kernels.locate import FlatDomains, text_heads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from siftline.encoding.domain import Line
    from siftline.encoding.domains import Domains

# Below this, every integer is a double of its own.
EXACT_INTEGERS: Final = 2**53
# A table may have this many entries per constant, and never more than that in all.
_TABLE_ENTRIES_PER_CONSTANT: Final = 8
_LARGEST_TABLE: Final = 65_536


def flatten(domains: Domains) -> FlatDomains:
    """Lay all lines of all attributes into flat arrays."""
    number_lines = [domain.numbers for domain in domains.domains]
    string_lines = [domain.strings for domain in domains.domains]
    numbers, residuals = split_numbers([key for line in number_lines for key in line.keys])
    text_starts, texts = split_texts([key for line in string_lines for key in line.keys])
    table_starts, table_firsts, tables = _tables(number_lines)
    return FlatDomains(
        number_starts=_starts([len(line.keys) for line in number_lines]),
        numbers=numbers,
        residuals=residuals,
        number_labels=_labels(number_lines),
        string_starts=_starts([len(line.keys) for line in string_lines]),
        heads=text_heads(texts, text_starts),
        text_starts=text_starts,
        texts=texts,
        string_labels=_labels(string_lines),
        table_starts=table_starts,
        table_firsts=table_firsts,
        tables=tables,
    )


def _starts(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _labels(lines: Sequence[Line]) -> NDArray[np.int32]:
    return np.array([label for line in lines for label in line.labels], dtype=np.int32)


def split_numbers(values: list[int | float]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
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
    encoded = pa.array([value.encode("utf-8", "surrogatepass") for value in values], pa.large_binary())
    return binary_buffers(encoded)


def binary_buffers(array: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the offsets and the bytes of a large_binary or large_string array."""
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    starts = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    return starts, np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)


def _tables(lines: Sequence[Line]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    tables = [_table(line) for line in lines]
    firsts = [int(line.keys[0]) if len(table) else 0 for line, table in zip(lines, tables, strict=True)]
    entries = np.concatenate([*tables, np.zeros(0, dtype=np.int32)]).astype(np.int32)
    return _starts([len(table) for table in tables]), np.array(firsts, dtype=np.int64), entries


def _table(line: Line) -> NDArray[np.int32]:
    """Return an entry for each integer from the least to the greatest constant; empty if that is not worth it."""
    keys = line.keys
    if not keys or any(key != int(key) for key in keys):
        return np.zeros(0, dtype=np.int32)
    span = int(keys[-1]) - int(keys[0]) + 1
    if span > min(_TABLE_ENTRIES_PER_CONSTANT * len(keys), _LARGEST_TABLE) or max(-keys[0], keys[-1]) >= EXACT_INTEGERS:
        return np.zeros(0, dtype=np.int32)
    places = np.array([int(key) - int(keys[0]) for key in keys], dtype=np.int64)
    labels = np.array(line.labels, dtype=np.int32)
    table: NDArray[np.int32] = -(np.repeat(labels, np.diff(places, append=span)) + 1).astype(np.int32)
    table[places] = labels
    return table
