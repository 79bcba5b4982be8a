"""Bulk loading: constants sorted by attribute, and sets of codes, for millions of rows at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import kernel
from siftline.kernels.spaces import distinct_in_groups

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Size of the table that filters repeats before sorting, as a power of two: 1 MB, which stays in the L2 cache.
_SEEN_BITS = 16


@kernel
def without_repeats(attributes: NDArray[np.int32], values: NDArray[np.float64]) -> Any:
    """Drop most repeated pairs: millions of predicates share few constants, and sorting them all is slow."""
    n_seen = 1 << _SEEN_BITS
    seen_attributes = np.full(n_seen, -1, dtype=np.int32)
    seen_values = np.empty(n_seen, dtype=np.float64)
    bits = values.view(np.uint64)
    kept_attributes = np.empty(len(values), dtype=np.int32)
    kept_values = np.empty(len(values), dtype=np.float64)
    n = 0
    for i in range(len(values)):
        mixed = (bits[i] ^ (np.uint64(attributes[i]) << np.uint64(40))) * np.uint64(0x9E3779B97F4A7C15)
        place = mixed >> np.uint64(64 - _SEEN_BITS)
        if seen_attributes[place] == attributes[i] and seen_values[place] == values[i]:
            continue
        seen_attributes[place] = attributes[i]
        seen_values[place] = values[i]
        kept_attributes[n] = attributes[i]
        kept_values[n] = values[i]
        n += 1
    return kept_attributes[:n].copy(), kept_values[:n].copy()


@kernel
def distinct_by_attribute(attributes: NDArray[np.int32], values: NDArray[np.float64], n_attributes: int) -> Any:
    """Return the distinct values of each attribute, ascending: those of attribute a at starts[a] : starts[a + 1]."""
    ends = np.zeros(n_attributes + 1, dtype=np.int64)
    for i in range(len(attributes)):
        ends[attributes[i] + 1] += 1
    for a in range(n_attributes):
        ends[a + 1] += ends[a]
    # Counting sort: ends[a] runs from the first to the last place of attribute a.
    places = ends[:-1].copy()
    grouped = np.empty(len(values), dtype=np.float64)
    for i in range(len(attributes)):
        a = attributes[i]
        grouped[places[a]] = values[i]
        places[a] += 1
    return distinct_in_groups(ends, grouped)


@kernel
def point_sets(starts: NDArray[np.int64], codes: NDArray[np.int32]) -> Any:
    """Return the distinct codes of each row, ascending: those of row r at new_starts[r] : new_starts[r + 1]."""
    return distinct_in_groups(starts, codes.copy())
