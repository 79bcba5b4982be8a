"""Subscriptions with the same expression: finding them when many are loaded, and listing them when one is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.growing import with_room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.literals import Literals

_NONE = np.int32(-1)
# This many subscriptions of one literal are shared.
_SINGLE_LITERAL_SHARERS_MAX = 8
# Steps of the FNV-1a hash, with words instead of bytes.
_BASIS = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_SHIFT = np.uint64(29)
_U0, _U1, _SIX, _LOW_SIX = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)


@inline_kernel
def _append_followers(start: int, n: int, found: NDArray[Any], following: NDArray[np.int32], n_known: int) -> Any:
    """Append who follows found[start : n] directly, and so on; return how many there are in all, or -1 without room.

    First all that follow a leader directly, then who follows those: what one step reads from memory does not wait for
    what the step before has read.
    """
    end = np.uint64(n)
    n_room = np.uint64(len(found))
    i = np.uint64(start)
    while i < end < n_room:
        follower = following[np.uint64(found[i])]
        found[end] = follower
        end += np.uint64((follower != _NONE) & (follower < n_known))
        i += np.uint64(1)
    return np.int64(end) if end < n_room else np.int64(-1)


@inline_kernel
def _plain_first(
    first: int, end: int, n: int, slots: NDArray[np.int32], found: NDArray[Any], plain: NDArray[np.uint64], n_known: int
) -> Any:
    """Append the plain ones of slots[first : end] to `found`, behind them the others; return where both end.

    Newer ones are left out. `plain` is small enough for the cache, which cannot be said of what the others need. The
    others wait in `slots`, in the place of what was read from it.
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
    """Copy slots[first : end] behind found[:n]; return whether all of them are plain, so that nothing is left to do."""
    n_plain = _U0
    for k in range(np.uint64(end - first)):
        slot = slots[np.uint64(first) + k]
        is_known = slot < n_known
        place = np.uint64(slot if is_known else 0)
        n_plain += np.uint64(is_known) & (plain[place >> _SIX] >> (place & _LOW_SIX))
        found[np.uint64(n) + k] = slot
    return n_plain == np.uint64(end - first)


@inline_kernel
def ids_with_followers(
    slots: NDArray[np.int32],
    n_slots: Any,
    plain: NDArray[np.uint64],
    following: NDArray[np.int32],
    is_live: NDArray[np.bool_],
    ids: NDArray[np.int64],
    found: NDArray[np.int64],
) -> Any:
    """Write the ids of the live slots among the first slots and all that follow them; newer ones are left out.

    Returns how many there are, or -1 if they have no room. `slots` is scratch afterwards.
    """
    n_known = min(len(following), len(is_live), len(ids), 64 * len(plain))
    n_plain, n_leaders = _plain_first(0, n_slots if n_slots < len(found) else 0, 0, slots, found, plain, n_known)
    n_found = _append_followers(n_plain, n_leaders, found, following, n_known)
    for k in range(n_plain):
        found[np.uint64(k)] = ids[np.uint64(found[np.uint64(k)])]
    n_live = n_plain
    for k in range(n_plain, n_found):
        slot = np.uint64(found[np.uint64(k)])
        found[np.uint64(n_live)] = ids[slot]
        n_live += is_live[slot]
    return n_live if n_slots < len(found) and n_found >= 0 else -1


@kernel
def with_followers(
    starts: NDArray[np.int64],
    slots: NDArray[np.int32],
    plain: NDArray[np.uint64],
    following: NDArray[np.int32],
    is_live: NDArray[np.bool_],
) -> Any:
    """Return (starts, slots): of each event, the live slots and all that follow them; newer ones are left out.

    The slots of event e are slots[starts[e] : starts[e + 1]], before and after. The given slots are scratch afterwards.
    """
    n_known = min(len(following), len(is_live), 64 * len(plain))
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
        end = _append_followers(n, leaders, found, following, n_known)
        while end < 0:
            found = with_room(found, leaders, len(found) + 1)
            end = _append_followers(n, leaders, found, following, n_known)
        for k in range(n, end):
            slot = found[np.uint64(k)]
            found[np.uint64(n)] = slot
            n += is_live[np.uint64(slot)]
        new_starts[e + 1] = n
    return new_starts, found[:n]


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
def _hash(first: int, end: int, literals: Literals) -> Any:
    """Return a hash of some clauses; sets count by their hulls, which tells most of them apart."""
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
    """Return whether the clauses first .. end - 1 say the same as as many others."""
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
    """Let subscriptions of one literal stand alone where few are alike."""
    counts = np.zeros(len(leaders), dtype=np.int32)
    for leader in leaders:
        counts[leader] += 1
    for s in range(len(leaders)):
        is_single = starts[firsts[s + 1]] - starts[firsts[s]] == 1
        if is_single and counts[leaders[s]] < _SINGLE_LITERAL_SHARERS_MAX:
            leaders[s] = s


@kernel
def first_alike(firsts: NDArray[np.int64], is_exact: NDArray[np.bool_], literals: Literals) -> Any:
    """Return, for each subscription, the first one whose clauses say the same: itself, mostly.

    The clauses of subscription s are firsts[s] .. firsts[s + 1] - 1. One without clauses, or with a clause that codes
    do not decide, is like no other; nor is one of a single literal that only a few others say too: it takes four bytes
    in a list that is copied whole, and who finds it need not look for the others.
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
