"""Subscriptions with the same expression: finding them when many are loaded, and listing them when one is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NONE = np.int32(-1)
# Steps of the FNV-1a hash, with words instead of bytes.
_BASIS = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_SHIFT = np.uint64(29)


@kernel
def with_followers(slots: NDArray[np.int32], following: NDArray[np.int32], is_live: NDArray[np.bool_]) -> Any:
    """Return the live slots among some slots and all that follow them; newer ones than the arrays know are left out."""
    n_known = min(len(following), len(is_live))
    n = 0
    for k in range(len(slots)):
        slot = slots[k]
        while slot != _NONE and slot < n_known:
            n += is_live[slot]
            slot = following[slot]
    found = np.empty(n, dtype=np.int32)
    place = 0
    for k in range(len(slots)):
        slot = slots[k]
        while slot != _NONE and slot < n_known:
            # Others may remove or add in between: never more than was counted.
            if is_live[slot] and place < n:
                found[place] = slot
                place += 1
            slot = following[slot]
    return found[:place]


@inline_kernel
def ids_with_followers(
    slots: NDArray[np.int32],
    n_slots: Any,
    following: NDArray[np.int32],
    is_live: NDArray[np.bool_],
    ids: NDArray[np.int64],
    found: NDArray[np.int64],
) -> Any:
    """Write the ids of what `with_followers` gives for the first slots; return how many, or -1 if they have no room."""
    n_known = min(len(following), len(is_live), len(ids))
    n_room = len(found)
    n = 0
    for k in range(np.uint64(n_slots)):
        slot = slots[k]
        while slot != _NONE and slot < n_known and n < n_room:
            found[np.uint64(n)] = ids[np.uint64(slot)]
            n += is_live[np.uint64(slot)]
            slot = following[np.uint64(slot)]
    return n if n < n_room else -1


@kernel
def pairs_with_followers(
    events: NDArray[np.int64], slots: NDArray[np.int32], following: NDArray[np.int32], is_live: NDArray[np.bool_]
) -> Any:
    """Return pairs of events and slots: for each one all live slots that `with_followers` gives for it."""
    n_known = min(len(following), len(is_live))
    n = 0
    for k in range(len(slots)):
        slot = slots[k]
        while slot != _NONE and slot < n_known:
            n += is_live[np.uint64(slot)]
            slot = following[np.uint64(slot)]
    found_events = np.empty(n, dtype=np.int64)
    found = np.empty(n, dtype=np.int32)
    place = 0
    for k in range(len(slots)):
        slot = slots[k]
        while slot != _NONE and slot < n_known:
            # As above: never more than was counted.
            if is_live[np.uint64(slot)] and place < n:
                found_events[np.uint64(place)] = events[k]
                found[np.uint64(place)] = slot
                place += 1
            slot = following[np.uint64(slot)]
    return found_events[:place], found[:place]


@kernel
def chained(leaders: NDArray[np.int32]) -> Any:
    """Return, for each slot, the next one with the same leader, or -1."""
    following = np.full(len(leaders), _NONE, dtype=np.int32)
    lasts = np.full(len(leaders), _NONE, dtype=np.int32)
    for slot in range(len(leaders)):
        leader = leaders[slot]
        if leader != slot:
            following[lasts[leader] if lasts[leader] != _NONE else leader] = slot
            lasts[leader] = slot
    return following


@inline_kernel
def _mixed(state: Any, value: Any) -> Any:
    state = (state ^ np.uint64(value)) * _PRIME
    return state ^ (state >> _SHIFT)


@inline_kernel
def _hash(
    first: int,
    end: int,
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
) -> Any:
    """Return a hash of some clauses; sets count by their hulls, which tells most of them apart."""
    state = _BASIS
    for c in range(first, end):
        state = _mixed(state, starts[c + 1] - starts[c])
        for i in range(starts[c], starts[c + 1]):
            state = _mixed(state, attributes[i])
            state = _mixed(state, lows[i])
            state = _mixed(state, highs[i])
    return state


@inline_kernel
def _are_alike(
    first: int,
    end: int,
    other: int,
    other_end: int,
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    sets: NDArray[np.int32],
    is_alternative: NDArray[np.bool_],
    set_starts: NDArray[np.int64],
    set_lows: NDArray[np.int32],
    set_highs: NDArray[np.int32],
) -> Any:
    """Return whether the clauses first .. end - 1 say the same as as many others."""
    if end - first != other_end - other:
        return False
    for c in range(end - first):
        if starts[first + c + 1] - starts[first + c] != starts[other + c + 1] - starts[other + c]:
            return False
    n = starts[end] - starts[first]
    for k in range(n):
        i, j = starts[first] + k, starts[other] + k
        if attributes[i] != attributes[j] or lows[i] != lows[j] or highs[i] != highs[j]:
            return False
        if kinds[i] != kinds[j] or is_alternative[i] != is_alternative[j]:
            return False
        if sets[i] >= 0:
            a, b = set_starts[sets[i]], set_starts[sets[j]]
            m = set_starts[sets[i] + 1] - a
            if set_starts[sets[j] + 1] - b != m:
                return False
            for r in range(m):
                if set_lows[a + r] != set_lows[b + r] or set_highs[a + r] != set_highs[b + r]:
                    return False
    return True


@kernel
def first_alike(
    firsts: NDArray[np.int64],
    is_exact: NDArray[np.bool_],
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    sets: NDArray[np.int32],
    is_alternative: NDArray[np.bool_],
    set_starts: NDArray[np.int64],
    set_lows: NDArray[np.int32],
    set_highs: NDArray[np.int32],
) -> Any:
    """Return, for each subscription, the first one whose clauses say the same: itself, mostly.

    The clauses of subscription s are firsts[s] .. firsts[s + 1] - 1. One without clauses, or with a clause that codes
    do not decide, is like no other.
    """
    n = len(firsts) - 1
    leaders = np.arange(n).astype(np.int32)
    size = 16
    while size < 2 * n:
        size *= 2
    places = np.full(size, _NONE, dtype=np.int32)
    mask = np.uint64(size - 1)
    for s in range(n):
        first, end = firsts[s], firsts[s + 1]
        can_be_shared = end > first
        for c in range(first, end):
            can_be_shared &= is_exact[c]
        if not can_be_shared:
            continue
        place = _hash(first, end, starts, attributes, lows, highs) & mask
        while places[place] != _NONE:
            other = places[place]
            if _are_alike(
                first,
                end,
                firsts[other],
                firsts[other + 1],
                starts,
                attributes,
                lows,
                highs,
                kinds,
                sets,
                is_alternative,
                set_starts,
                set_lows,
                set_highs,
            ):
                leaders[s] = other
                break
            place = (place + np.uint64(1)) & mask
        else:
            places[place] = s
    return leaders
