"""Consecutive spans: their positions, and two results joined. Kernels, because `np.repeat` would hold the GIL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def span_positions(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions start, start + 1, ... of all spans, one after the other."""
    positions = np.empty(lengths.sum(), dtype=np.int64)
    place = 0
    for span in range(len(starts)):
        for k in range(lengths[span]):
            positions[place] = starts[span] + k
            place += 1
    return positions


@kernel
def span_owners(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the span that each position belongs to; span i ends where span i + 1 starts."""
    owners = np.empty(starts[-1], dtype=np.int64)
    for span in range(len(starts) - 1):
        owners[starts[span] : starts[span + 1]] = span
    return owners


@kernel
def side_by_side(
    starts: NDArray[np.int64], slots: NDArray[np.int32], other_starts: NDArray[np.int64], other_slots: NDArray[np.int32]
) -> Any:
    """Return two flat results as one: (starts, slots), those of one event together."""
    joined_starts = starts + other_starts
    joined = np.empty(joined_starts[len(starts) - 1], dtype=np.int32)
    n = np.uint64(0)
    for i in range(len(starts) - 1):
        for k in range(np.uint64(starts[i]), np.uint64(starts[i + 1])):
            joined[n] = slots[k]
            n += np.uint64(1)
        for k in range(np.uint64(other_starts[i]), np.uint64(other_starts[i + 1])):
            joined[n] = other_slots[k]
            n += np.uint64(1)
    return joined_starts, joined
