"""Which shards events must visit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def visits(
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    codes: NDArray[np.int32],
    null: int,
    shard_starts: NDArray[np.int64],
    shards: NDArray[np.int32],
    always: NDArray[np.int32],
    n_shards: int,
) -> Any:
    """Return (events, shards): each shard once for each event that has a value for one of its pivots.

    Attribute a is a pivot of shards[shard_starts[a] : shard_starts[a + 1]]. To `always` go all events.
    """
    n = len(starts) - 1
    room = max(16, 4 * n)
    found_events = np.empty(room, dtype=np.int64)
    found = np.empty(room, dtype=np.int32)
    last_event = np.full(n_shards, -1, dtype=np.int64)
    place = 0
    for event in range(n):
        if place + n_shards > room:
            room = 2 * room + n_shards
            larger_events, larger = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int32)
            larger_events[:place], larger[:place] = found_events[:place], found[:place]
            found_events, found = larger_events, larger
        first = place
        for k in range(len(always)):
            last_event[always[k]] = event
            found[place] = always[k]
            place += 1
        for leaf in range(starts[event], starts[event + 1]):
            if codes[leaf] == null:
                continue
            attribute = attributes[leaf]
            for k in range(shard_starts[attribute], shard_starts[attribute + 1]):
                shard = shards[k]
                if last_event[shard] != event:
                    last_event[shard] = event
                    found[place] = shard
                    place += 1
        found_events[first:place] = event
    return found_events[:place], found[:place]
