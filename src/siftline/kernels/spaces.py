"""Elementary spaces: the bounds of literals cut the codes of each attribute into spaces in which nothing changes.

    literals on one attribute    10 .. 19   and   15 .. 40
    cuts                         10    15    20    41          (every low, and every high + 1)
    spaces                       |10-14|15-19|20-40|41-...     numbered by their cut, over all attributes

A literal's range covers the spaces `first` .. `last`; an event's code lies in exactly one space, or below all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Size of the tables that filter repeats, as a power of two; they stay in the L2 cache.
_SEEN_BITS = 16


@kernel
def cut_attributes(
    n_attributes: int, attributes: NDArray[np.int32], lows: NDArray[np.int32], highs: NDArray[np.int32]
) -> Any:
    """Return (starts, cuts): the cuts of attribute a are cuts[starts[a] : starts[a + 1]], ascending."""
    n_seen = 1 << _SEEN_BITS
    seen = np.full(n_seen, np.int64(-1), dtype=np.int64)
    owners = np.empty(2 * len(attributes), dtype=np.int32)
    bounds = np.empty(2 * len(attributes), dtype=np.int32)
    starts = np.zeros(n_attributes + 1, dtype=np.int64)
    n = 0
    for i in range(len(attributes)):
        for side in range(2):
            bound = lows[i] if side == 0 else highs[i] + np.int32(1)
            pair = (np.int64(attributes[i]) << np.int64(32)) | np.int64(bound)
            place = (np.uint64(pair) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - _SEEN_BITS)
            if seen[place] != pair:  # drops most repeats, because sorting them all would be slow
                seen[place] = pair
                owners[n] = attributes[i]
                bounds[n] = bound
                n += 1
                starts[attributes[i] + 1] += 1
    for a in range(n_attributes):
        starts[a + 1] += starts[a]
    places = starts[:-1].copy()
    grouped = np.empty(n, dtype=np.int32)
    for i in range(n):
        grouped[places[owners[i]]] = bounds[i]
        places[owners[i]] += 1
    return distinct_in_groups(starts, grouped)


@kernel
def distinct_in_groups(starts: NDArray[np.int64], grouped: NDArray[Any]) -> Any:
    """Sort each group and drop repeats; return (starts, values). Overwrites `grouped`."""
    new_starts = np.zeros(len(starts), dtype=np.int64)
    n = 0
    for a in range(len(starts) - 1):
        if starts[a] < starts[a + 1]:
            group = np.sort(grouped[starts[a] : starts[a + 1]])
            for i in range(len(group)):
                if i == 0 or group[i] != group[i - 1]:
                    grouped[n] = group[i]  # n never passes the group's own first place
                    n += 1
        new_starts[a + 1] = n
    return new_starts, grouped[:n].copy()


@inline_kernel
def space_of(attribute: int, code: int, starts: NDArray[np.int64], cuts: NDArray[np.int32]) -> Any:
    """Return the space that a code lies in, -1 if it is below the first cut or the attribute is unknown."""
    if attribute >= len(starts) - 1:
        return np.int64(-1)
    first = starts[attribute]
    place, end = first, starts[attribute + 1]
    while place < end:  # the first cut above the code
        middle = (place + end) >> 1
        if cuts[middle] <= code:
            place = middle + 1
        else:
            end = middle
    return place - 1 if place > first else np.int64(-1)


@kernel
def spaces_of_ranges(
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    starts: NDArray[np.int64],
    cuts: NDArray[np.int32],
) -> Any:
    """Return the first and the last space that each range covers; all bounds must be among the cuts."""
    firsts = np.empty(len(attributes), dtype=np.int32)
    lasts = np.empty(len(attributes), dtype=np.int32)
    # Bounds repeat: where 100 attributes have 200 spaces each, remembering them is four times as fast as searching.
    seen = np.full(1 << _SEEN_BITS, np.int64(-1), dtype=np.int64)
    spaces = np.empty(1 << _SEEN_BITS, dtype=np.int32)
    for i in range(len(attributes)):
        for side in range(2):
            code = lows[i] if side == 0 else highs[i]
            pair = (np.int64(attributes[i]) << np.int64(32)) | np.int64(code)
            place = (np.uint64(pair) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - _SEEN_BITS)
            if seen[place] != pair:
                seen[place] = pair
                spaces[place] = space_of(attributes[i], code, starts, cuts)
            if side == 0:
                firsts[i] = spaces[place]
            else:
                lasts[i] = spaces[place]
    return firsts, lasts
