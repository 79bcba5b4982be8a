"""Subscriptions with the same expression: finding them in bulk, and listing them when one of them matches.

The first of them is their *leader*, the only one that the index has; the others are its *duplicates*. They form a
chain: `next_duplicates` has the next one of each slot, or -1. `plain` has a bit for each live slot without duplicates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.growing import with_room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.literals import Literals

_NONE = np.int32(-1)
# Subscriptions of a single literal share an entry if at least this many are the same.
_SINGLE_LITERAL_SHARERS_MIN = 8
# Constants of the FNV-1a hash, here over words instead of bytes.
_BASIS = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_SHIFT = np.uint64(29)
_U0, _U1, _SIX, _LOW_SIX = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)


@inline_kernel
def _append_duplicates(
    start: int, n: int, found: NDArray[Any], next_duplicates: NDArray[np.int32], n_known: int
) -> Any:
    """Append the duplicates of found[start : n]; return how many slots there are in all, or -1 if they do not fit.

    All chains advance together: so the memory accesses of one step do not depend on each other.
    """
    end = np.uint64(n)
    n_room = np.uint64(len(found))
    i = np.uint64(start)
    while i < end < n_room:
        duplicate = next_duplicates[np.uint64(found[i])]
        found[end] = duplicate
        end += np.uint64((duplicate != _NONE) & (duplicate < n_known))
        i += np.uint64(1)
    return np.int64(end) if end < n_room else np.int64(-1)


@inline_kernel
def _plain_first(
    first: int, end: int, n: int, slots: NDArray[np.int32], found: NDArray[Any], plain: NDArray[np.uint64], n_known: int
) -> Any:
    """Append slots[first : end] to `found`, plain slots first; return where the plain ones end, and where all end.

    Slots from n_known on are left out. Only slots that are not plain need the chains; `plain` fits into the cache, the
    chains do not. Until all plain slots are written, the others wait in `slots`, where they overwrite what was read.
    """
    n_others = np.uint64(first)
    n_plain = np.uint64(n)
    for k in range(np.uint64(first), np.uint64(end)):
        slot = slots[k]
        is_known = slot < n_known
        place = np.uint64(slot if is_known else 0)
        is_plain = is_known & (((plain[place >> _SIX] >> (place & _LOW_SIX)) & _U1) != _U0)
        found[n_plain] = slot
        n_plain += np.uint64(is_plain)
        slots[n_others] = slot
        n_others += np.uint64(is_known & (not is_plain))
    n_found = n_plain
    for k in range(np.uint64(first), n_others):
        found[n_found] = slots[k]
        n_found += _U1
    return np.int64(n_plain), np.int64(n_found)


@inline_kernel
def _copy_if_plain(
    first: int, end: int, n: int, slots: NDArray[np.int32], found: NDArray[Any], plain: NDArray[np.uint64], n_known: int
) -> Any:
    """Copy slots[first : end] after found[:n]; return whether all are plain, so that there are no duplicates."""
    n_plain = _U0
    for k in range(np.uint64(end - first)):
        slot = slots[np.uint64(first) + k]
        is_known = slot < n_known
        place = np.uint64(slot if is_known else 0)
        n_plain += np.uint64(is_known) & (plain[place >> _SIX] >> (place & _LOW_SIX))
        found[np.uint64(n) + k] = slot
    return n_plain == np.uint64(end - first)


@inline_kernel
def ids_with_duplicates(
    slots: NDArray[np.int32],
    n_slots: Any,
    plain: NDArray[np.uint64],
    next_duplicates: NDArray[np.int32],
    is_live: NDArray[np.bool_],
    ids: NDArray[np.int64],
    found: NDArray[np.int64],
) -> Any:
    """Write the ids of the live ones among the first slots and their duplicates; slots that are too new are left out.

    Returns how many there are, or -1 if they do not fit. Overwrites `slots`.
    """
    n_known = min(len(next_duplicates), len(is_live), len(ids), 64 * len(plain))
    n_plain, n_leaders = _plain_first(0, n_slots if n_slots < len(found) else 0, 0, slots, found, plain, n_known)
    n_found = _append_duplicates(n_plain, n_leaders, found, next_duplicates, n_known)
    for k in range(n_plain):
        found[np.uint64(k)] = ids[np.uint64(found[np.uint64(k)])]
    n_live = n_plain
    for k in range(n_plain, n_found):
        slot = np.uint64(found[np.uint64(k)])
        found[np.uint64(n_live)] = ids[slot]
        n_live += is_live[slot]
    return n_live if n_slots < len(found) and n_found >= 0 else -1


@kernel
def with_duplicates(
    starts: NDArray[np.int64],
    slots: NDArray[np.int32],
    plain: NDArray[np.uint64],
    next_duplicates: NDArray[np.int32],
    is_live: NDArray[np.bool_],
) -> Any:
    """Return (starts, slots): the live slots of each event with their duplicates; slots that are too new are left out.

    The slots of event e are slots[starts[e] : starts[e + 1]], before and after. Overwrites the given slots.
    """
    n_known = min(len(next_duplicates), len(is_live), 64 * len(plain))
    new_starts = np.zeros(len(starts), dtype=np.int64)
    found = np.empty(len(slots) + len(slots) // 2 + 64, dtype=np.int32)
    n = 0
    for e in range(len(starts) - 1):
        found = with_room(found, n, starts[e + 1] - starts[e] + 1)
        if _copy_if_plain(starts[e], starts[e + 1], n, slots, found, plain, n_known):
            n += starts[e + 1] - starts[e]
            new_starts[e + 1] = n
            continue
        n, leaders = _plain_first(starts[e], starts[e + 1], n, slots, found, plain, n_known)
        end = _append_duplicates(n, leaders, found, next_duplicates, n_known)
        while end < 0:
            found = with_room(found, leaders, len(found) + 1)
            end = _append_duplicates(n, leaders, found, next_duplicates, n_known)
        for k in range(n, end):
            slot = found[np.uint64(k)]
            found[np.uint64(n)] = slot
            n += is_live[np.uint64(slot)]
        new_starts[e + 1] = n
    return new_starts, found[:n]


@kernel
def chained(leaders: NDArray[np.int32]) -> Any:
    """Return, for each slot, the next one with the same leader, or -1."""
    next_duplicates = np.full(len(leaders), _NONE, dtype=np.int32)
    lasts = np.full(len(leaders), _NONE, dtype=np.int32)
    for slot in range(len(leaders)):
        leader = leaders[slot]
        if leader != slot:
            next_duplicates[lasts[leader] if lasts[leader] != _NONE else leader] = slot
            lasts[leader] = slot
    return next_duplicates


@inline_kernel
def _mixed(state: Any, value: Any) -> Any:
    state = (state ^ np.uint64(value)) * _PRIME
    return state ^ (state >> _SHIFT)


@inline_kernel
def _hash(first: int, end: int, literals: Literals) -> Any:
    """Return a hash of some clauses; it uses the hulls of sets, which differ for most sets."""
    state = _BASIS
    for c in range(first, end):
        state = _mixed(state, literals.starts[c + 1] - literals.starts[c])
        for i in range(literals.starts[c], literals.starts[c + 1]):
            state = _mixed(state, literals.attributes[i])
            state = _mixed(state, literals.lows[i])
            state = _mixed(state, literals.highs[i])
    return state


@inline_kernel
def _are_alike(first: int, end: int, other: int, other_end: int, literals: Literals) -> Any:
    """Return whether the clauses first .. end - 1 equal the clauses other .. other_end - 1."""
    if end - first != other_end - other:
        return False
    for c in range(end - first):
        if (
            literals.starts[first + c + 1] - literals.starts[first + c]
            != literals.starts[other + c + 1] - literals.starts[other + c]
        ):
            return False
    n = literals.starts[end] - literals.starts[first]
    for k in range(n):
        i, j = literals.starts[first] + k, literals.starts[other] + k
        if (
            literals.attributes[i] != literals.attributes[j]
            or literals.lows[i] != literals.lows[j]
            or literals.highs[i] != literals.highs[j]
        ):
            return False
        if literals.kinds[i] != literals.kinds[j] or literals.is_alternative[i] != literals.is_alternative[j]:
            return False
        if literals.sets[i] >= 0:
            a, b = literals.set_starts[literals.sets[i]], literals.set_starts[literals.sets[j]]
            m = literals.set_starts[literals.sets[i] + 1] - a
            if literals.set_starts[literals.sets[j] + 1] - b != m:
                return False
            for r in range(m):
                if (
                    literals.set_lows[a + r] != literals.set_lows[b + r]
                    or literals.set_highs[a + r] != literals.set_highs[b + r]
                ):
                    return False
    return True


@kernel
def _leave_few(firsts: NDArray[np.int64], starts: NDArray[np.int64], leaders: NDArray[np.int32]) -> None:
    """Make subscriptions of a single literal their own leaders if few are the same."""
    counts = np.zeros(len(leaders), dtype=np.int32)
    for leader in leaders:
        counts[leader] += 1
    for s in range(len(leaders)):
        is_single = starts[firsts[s + 1]] - starts[firsts[s]] == 1
        if is_single and counts[leaders[s]] < _SINGLE_LITERAL_SHARERS_MIN:
            leaders[s] = s


@kernel
def first_alike(firsts: NDArray[np.int64], is_exact: NDArray[np.bool_], literals: Literals) -> Any:
    """Return, for each subscription, the first one with the same clauses; mostly itself.

    The clauses of subscription s are firsts[s] .. firsts[s + 1] - 1. A subscription is its own leader if it has no
    clauses, or a clause that codes do not decide. It also is if it has a single literal that few others share: such
    subscriptions take four bytes each in a list that matching copies as a whole, which is faster than following a
    chain.
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
        place = _hash(first, end, literals) & mask
        while places[place] != _NONE:
            other = places[place]
            if _are_alike(first, end, firsts[other], firsts[other + 1], literals):
                leaders[s] = other
                break
            place = (place + np.uint64(1)) & mask
        else:
            places[place] = s
    _leave_few(firsts, literals.starts, leaders)
    return leaders
