"""Which shards events must visit.

A shard may have a Bloom filter of pairs of attributes. Each clause of its subscriptions adds one pair: its pivot and
a second attribute that it needs (or the pivot twice, if it needs no other). An event with a pivot visits the shard only
if the filter has a pair of the pivot and some attribute of the event. The filter may have false positives, but never
false negatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.growing import with_room

if TYPE_CHECKING:
    from numpy.typing import NDArray

# How many bits a pair sets, and the least size of a filter in bits per pair: 1 of 3,000 is a false positive.
_N_PROBES: Final = 6
BITS_PER_PAIR: Final = 20
_WORD_BITS: Final = 6
_LOW: Final = np.uint64(63)
_ONE: Final = np.uint64(1)
_HALF: Final = np.uint64(32)
_SHIFT: Final = np.uint64(_WORD_BITS)
_FIRST: Final = np.uint64(0x9E3779B97F4A7C15)
_SECOND: Final = np.uint64(0xBF58476D1CE4E5B9)


class PairFilters(NamedTuple):
    """The filters of all shards.

    hashes   uint64 by attribute
    words    uint64, of all filters, one after the other
    starts   int64 by shard, of its words
    masks    uint64 by shard: the number of its bits, a power of two, minus one; 0 if it has no filter
    """

    hashes: NDArray[np.uint64]
    words: NDArray[np.uint64]
    starts: NDArray[np.int64]
    masks: NDArray[np.uint64]


def no_filters(n_attributes: int, n_shards: int) -> PairFilters:
    """Return empty filters, for shards without one."""
    nothing = np.zeros(0, dtype=np.uint64)
    masks = np.zeros(n_shards, dtype=np.uint64)
    return PairFilters(np.zeros(n_attributes, dtype=np.uint64), nothing, np.zeros(n_shards, dtype=np.int64), masks)


@inline_kernel
def _mixed(pivot: Any, partner: Any) -> Any:
    """Return a hash of an ordered pair of hashes."""
    mixed = pivot * _FIRST + partner
    mixed = (mixed ^ (mixed >> _HALF)) * _SECOND
    return mixed ^ (mixed >> _HALF)


@inline_kernel
def _is_in(mixed: Any, words: Any, start: Any, mask: Any) -> Any:
    step = (mixed >> _HALF) | _ONE
    for _ in range(_N_PROBES):
        place = mixed & mask
        if not (words[start + np.int64(place >> _SHIFT)] >> (place & _LOW)) & _ONE:
            return False
        mixed += step
    return True


@kernel
def pair_filter(pivots: NDArray[np.uint64], partners: NDArray[np.uint64], n_words: int) -> Any:
    """Return the words of a filter of pairs of hashes; `n_words` is a power of two."""
    words = np.zeros(n_words, dtype=np.uint64)
    mask = np.uint64(n_words * 64 - 1)
    for k in range(len(pivots)):
        mixed = _mixed(pivots[k], partners[k])
        step = (mixed >> _HALF) | _ONE
        for _ in range(_N_PROBES):
            place = mixed & mask
            words[np.int64(place >> _SHIFT)] |= _ONE << (place & _LOW)
            mixed += step
    return words


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
    filters: PairFilters,
) -> Any:
    """Return (events, shards): each shard once for each event that has a value for one of its pivots and the partner.

    Attribute a is a pivot of shards[shard_starts[a] : shard_starts[a + 1]]. All events visit the shards in `always`.
    """
    hashes, words, word_starts, masks = filters
    n = len(starts) - 1
    found_events = np.empty(max(16, 4 * n), dtype=np.int64)
    found = np.empty(max(16, 4 * n), dtype=np.int32)
    last_event = np.full(n_shards, -1, dtype=np.int64)
    place = 0
    for event in range(n):
        found_events, found = with_room(found_events, place, n_shards), with_room(found, place, n_shards)
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
                if last_event[shard] == event:
                    continue
                is_found = masks[shard] == 0
                if not is_found:
                    for other in range(starts[event], starts[event + 1]):
                        mixed = _mixed(hashes[attribute], hashes[attributes[other]])
                        if codes[other] != null and _is_in(mixed, words, word_starts[shard], masks[shard]):
                            is_found = True
                            break
                if is_found:
                    last_event[shard] = event
                    found[place] = shard
                    place += 1
        found_events[first:place] = event
    return found_events[:place], found[:place]
