"""Distinct predicates in sorted lists, clusters of subscriptions under them, and propagating one event through both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.codes import LAST_NUMBER, LAST_STRING
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.pointers import arrays_at

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The three lists of an attribute.
_EQUAL = 0
_BOUNDED = 1
_OPEN = 2
_N_LISTS = 3

_NONE = np.int32(-1)
_ONE = np.uint64(1)
_WORD_SHIFT = np.uint64(6)
_WORD_MASK = np.uint64(63)


class Layout(NamedTuple):
    """One part; see `indexes/propagation/index.py`."""

    list_starts: NDArray[np.int64]
    lows: NDArray[np.int32]
    highs: NDArray[np.int32]
    reaches: NDArray[np.int32]
    predicates: NDArray[np.int32]
    predicate_clusters: NDArray[np.int32]
    cluster_widths: NDArray[np.int32]
    block_starts: NDArray[np.int64]
    blocks: NDArray[np.uint32]
    has_veto: NDArray[np.bool_]


@inline_kernel
def _hash_of_set(attribute: int, start: int, end: int, lows: NDArray[np.int32], highs: NDArray[np.int32]) -> Any:
    factor = np.uint64(0x9E3779B97F4A7C15)
    found = np.uint64(attribute) * factor
    for j in range(start, end):
        found = (found ^ (found >> np.uint64(29)) ^ np.uint64(lows[j])) * factor
        found = (found ^ (found >> np.uint64(29)) ^ np.uint64(highs[j])) * factor
    return found >> np.uint64(16)


@inline_kernel
def _are_equal_sets(
    one: int, other: int, set_starts: NDArray[np.int64], set_lows: NDArray[np.int32], set_highs: NDArray[np.int32]
) -> Any:
    start, other_start = set_starts[one], set_starts[other]
    n = set_starts[one + 1] - start
    if set_starts[other + 1] - other_start != n:
        return False
    for j in range(n):
        if set_lows[start + j] != set_lows[other_start + j] or set_highs[start + j] != set_highs[other_start + j]:
            return False
    return True


@kernel
def first_of_equal_sets(
    literals: NDArray[np.int64],
    attributes: NDArray[np.int32],
    sets: NDArray[np.int32],
    set_starts: NDArray[np.int64],
    set_lows: NDArray[np.int32],
    set_highs: NDArray[np.int32],
) -> Any:
    """Return for each of these literals, which have sets, the first one with the same attribute and set."""
    n_places = 16
    while n_places < 2 * len(literals):
        n_places *= 2
    table = np.full(n_places, np.int64(-1), dtype=np.int64)
    firsts = np.empty(len(literals), dtype=np.int64)
    for k in range(len(literals)):
        i = literals[k]
        found = _hash_of_set(attributes[i], set_starts[sets[i]], set_starts[sets[i] + 1], set_lows, set_highs)
        place = np.int64(found % np.uint64(n_places))
        while True:
            known = table[place]
            if known < 0:
                table[place] = i
                firsts[k] = i
                break
            if attributes[known] == attributes[i] and _are_equal_sets(
                sets[known], sets[i], set_starts, set_lows, set_highs
            ):
                firsts[k] = known
                break
            place = (place + 1) % n_places
    return firsts


@inline_kernel
def _list_of(attribute: int, low: int, high: int) -> Any:
    """Return the list that a range belongs to."""
    if low == high:
        return _N_LISTS * attribute + _EQUAL
    if high in (LAST_NUMBER, LAST_STRING):
        return _N_LISTS * attribute + _OPEN
    return _N_LISTS * attribute + _BOUNDED


@kernel
def sorted_ranges(
    n_attributes: int,
    literals: NDArray[np.int64],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
) -> Any:
    """Sort ranges into the lists of their attributes, there by low and then by falling high.

    Return (starts, literals, lows, highs).
    """
    n = len(literals)
    starts = np.zeros(_N_LISTS * n_attributes + 1, dtype=np.int64)
    for i in range(n):
        starts[_list_of(attributes[i], lows[i], highs[i]) + 1] += 1
    for a in range(len(starts) - 1):
        starts[a + 1] += starts[a]
    free = starts[:-1].copy()
    keys = np.empty(n, dtype=np.int64)
    grouped = np.empty(n, dtype=np.int64)
    for i in range(n):
        of_list = _list_of(attributes[i], lows[i], highs[i])
        place = free[of_list]
        free[of_list] = place + 1
        keys[place] = (np.int64(lows[i]) << 32) | (LAST_STRING - np.int64(highs[i]))
        grouped[place] = literals[i]
    for a in range(len(starts) - 1):
        start, end = starts[a], starts[a + 1]
        if end - start > 1:
            order = np.argsort(keys[start:end])
            keys[start:end] = keys[start:end][order]
            grouped[start:end] = grouped[start:end][order]
    sorted_lows = np.empty(n, dtype=np.int32)
    sorted_highs = np.empty(n, dtype=np.int32)
    for i in range(n):
        sorted_lows[i] = keys[i] >> 32
        sorted_highs[i] = LAST_STRING - (keys[i] & np.int64(0xFFFFFFFF))
    return starts, grouped, sorted_lows, sorted_highs


@kernel
def number_predicates(
    starts: NDArray[np.int64],
    literals: NDArray[np.int64],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    sets: NDArray[np.int32],
) -> Any:
    """Give numbers to distinct predicates in the order of the lists, and keep each of their ranges once.

    Return (starts, lows, highs, reaches, predicates) of the ranges that are kept, the predicate of each literal, and
    how many predicates there are. `reaches` is the highest high from the beginning of the list.
    """
    n = len(literals)
    new_starts = np.zeros(len(starts), dtype=np.int64)
    predicates = np.empty(n, dtype=np.int32)
    reaches = np.empty(n, dtype=np.int32)
    of_literals = np.full(len(sets), _NONE, dtype=np.int32)
    n_kept = 0
    n_predicates = 0
    for a in range(len(starts) - 1):
        plain = -1  # where the last range is that is a predicate of its own, not one of a set
        for i in range(starts[a], starts[a + 1]):
            literal = literals[i]
            is_plain = sets[literal] < 0
            if is_plain and plain >= 0 and lows[plain] == lows[i] and highs[plain] == highs[i]:
                of_literals[literal] = predicates[plain]
                continue
            if of_literals[literal] < 0:
                of_literals[literal] = n_predicates
                n_predicates += 1
            is_first = n_kept == new_starts[a]
            reaches[n_kept] = highs[i] if is_first else max(highs[i], reaches[n_kept - 1])
            lows[n_kept] = lows[i]  # n_kept never passes i
            highs[n_kept] = highs[i]
            predicates[n_kept] = of_literals[literal]
            if is_plain:
                plain = n_kept
            n_kept += 1
        new_starts[a + 1] = n_kept
    lows, highs = lows[:n_kept].copy(), highs[:n_kept].copy()
    return new_starts, lows, highs, reaches[:n_kept].copy(), predicates[:n_kept].copy(), of_literals, n_predicates


@kernel
def group_clauses(access: NDArray[np.int32], n_remaining: NDArray[np.int32], n_predicates: int) -> Any:
    """Return the order of clauses by access predicate, and under one by the number of remaining predicates."""
    most = 0
    for k in range(len(access)):
        most = max(most, n_remaining[k])
    order = np.arange(len(access))
    for keys, n_keys in ((n_remaining, most + 1), (access, n_predicates)):
        free = np.zeros(n_keys + 1, dtype=np.int64)
        for k in range(len(keys)):
            free[keys[k] + 1] += 1
        for key in range(n_keys):
            free[key + 1] += free[key]
        ordered = np.empty(len(access), dtype=np.int64)
        for k in range(len(order)):
            key = keys[order[k]]
            ordered[free[key]] = order[k]
            free[key] += 1
        order = ordered
    return order


@kernel
def cluster_clauses(
    clauses: NDArray[np.int32],
    access: NDArray[np.int32],
    n_remaining: NDArray[np.int32],
    n_predicates: int,
    literal_starts: NDArray[np.int64],
    literal_order: NDArray[np.int64],
    of_literals: NDArray[np.int32],
) -> Any:
    """Make clusters of clauses, which must be in the order of `group_clauses`.

    Return (predicate_clusters, cluster_widths, block_starts, blocks).
    """
    n = len(clauses)
    predicate_clusters = np.zeros(n_predicates + 1, dtype=np.int32)
    cluster_widths = np.empty(n, dtype=np.int32)
    block_starts = np.zeros(n + 1, dtype=np.int64)
    n_clusters = 0
    for k in range(n):
        if k == 0 or access[k] != access[k - 1] or n_remaining[k] != n_remaining[k - 1]:
            cluster_widths[n_clusters] = n_remaining[k]
            predicate_clusters[access[k] + 1] += 1
            block_starts[n_clusters + 1] = block_starts[n_clusters]
            n_clusters += 1
        block_starts[n_clusters] += n_remaining[k] + 1
    for p in range(n_predicates):
        predicate_clusters[p + 1] += predicate_clusters[p]
    blocks = np.empty(block_starts[n_clusters], dtype=np.uint32)
    k = 0
    for cluster in range(n_clusters):
        start, width = block_starts[cluster], cluster_widths[cluster]
        n_members = (block_starts[cluster + 1] - start) // (width + 1)
        for i in range(n_members):
            first = literal_starts[clauses[k]] + 1
            for j in range(width):
                blocks[start + j * n_members + i] = of_literals[literal_order[first + j]]
            blocks[start + width * n_members + i] = clauses[k]
            k += 1
    return predicate_clusters, cluster_widths[:n_clusters].copy(), block_starts[: n_clusters + 1].copy(), blocks


@inline_kernel
def _first_above(start: int, end: int, code: int, lows: NDArray[np.int32]) -> Any:
    """Return the first range in start .. end whose low is above the code."""
    while start < end:
        middle = (start + end) >> 1
        if lows[middle] <= code:
            start = middle + 1
        else:
            end = middle
    return start


@inline_kernel
def _locate(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    layout: Layout,
    ends: NDArray[np.int64],
) -> Any:
    """Find in each list of each value where the ranges end whose low is not above it; return how many may hold."""
    list_starts, lows = layout.list_starts, layout.lows
    most = 0
    for q in range(len(ends)):
        code = event_codes[q // _N_LISTS]
        of_list = _N_LISTS * event_attributes[q // _N_LISTS] + q % _N_LISTS
        ends[q] = -1
        if of_list < len(list_starts) - 1 and list_starts[of_list] < list_starts[of_list + 1]:
            start = list_starts[of_list]
            end = _first_above(start, list_starts[of_list + 1], code, lows)
            ends[q] = end
            if q % _N_LISTS == _EQUAL:
                while start < end and lows[end - 1] == code:
                    end -= 1
                start, end = end, ends[q]
            most += end - start
    return most


@inline_kernel
def _satisfy(
    start: int,
    end: int,
    code: int,
    layout: Layout,
    words: NDArray[np.uint64],
    satisfied: NDArray[np.int32],
    n: Any,
) -> Any:
    """Walk down the ranges end - 1 .. start while one of those that are left reaches the code.

    Set the bits of the predicates whose range does, and append them; return how many there are, and how far it went.
    """
    i = end
    while i > start and layout.reaches[i - 1] >= code:
        i -= 1
        # Without a branch: whether a bounded range reaches the code cannot be predicted.
        predicate = np.uint64(layout.predicates[i])
        shift = predicate & _WORD_MASK
        word = words[predicate >> _WORD_SHIFT]
        holds = np.uint64(layout.highs[i] >= code)
        words[predicate >> _WORD_SHIFT] = word | (holds << shift)
        satisfied[n] = layout.predicates[i]
        n += np.int64(holds & ~(word >> shift))
    return n, end - i


@inline_kernel
def _find_satisfied(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    ends: NDArray[np.int64],
    layout: Layout,
    words: NDArray[np.uint64],
    satisfied: NDArray[np.int32],
) -> Any:
    """Do stage 1; return how many predicates are satisfied, how many ranges were tested, and in how many lists."""
    n, n_tested, n_lists = 0, 0, 0
    for q in range(len(ends)):
        if ends[q] >= 0:
            start = layout.list_starts[_N_LISTS * event_attributes[q // _N_LISTS] + q % _N_LISTS]
            code = event_codes[q // _N_LISTS]
            n, n_walked = _satisfy(start, ends[q], code, layout, words, satisfied, n)
            n_tested += n_walked
            n_lists += 1
    return n, n_tested, n_lists


@inline_kernel
def _check_cluster(
    start: int,
    n_members: int,
    width: int,
    blocks: NDArray[np.uint32],
    words: NDArray[np.uint64],
    found: NDArray[np.int32],
    n: Any,
) -> Any:
    """Append the clauses of a cluster all of whose columns have their bits set; return the end, and the bits read."""
    n_read = 0
    step = np.uint64(n_members)
    for i in range(n_members):
        place = np.uint64(start + i)
        n_left = width
        while n_left > 0:
            predicate = np.uint64(blocks[place])
            n_read += 1
            if (words[predicate >> _WORD_SHIFT] >> (predicate & _WORD_MASK)) & _ONE == 0:
                break
            place += step
            n_left -= 1
        if n_left == 0:
            found[n] = blocks[place]
            n += 1
    return n, n_read


@inline_kernel
def _check_clusters(
    access: NDArray[np.int32], layout: Layout, words: NDArray[np.uint64], found: NDArray[np.int32]
) -> Any:
    """Do stage 2; return how many clauses were found, how many were candidates, bits read, and clusters."""
    predicate_clusters, block_starts = layout.predicate_clusters, layout.block_starts
    n, n_candidates, n_bits, n_clusters = 0, 0, 0, 0
    for q in range(len(access)):
        for cluster in range(predicate_clusters[access[q]], predicate_clusters[access[q] + 1]):
            start, width = block_starts[cluster], layout.cluster_widths[cluster]
            n_members = (block_starts[cluster + 1] - start) // (width + 1)
            n, n_read = _check_cluster(start, n_members, width, layout.blocks, words, found, n)
            n_candidates += n_members
            n_bits += n_read
            n_clusters += 1
    return n, n_candidates, n_bits, n_clusters


@kernel
def propagate_event(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    words: NDArray[np.uint64],
    part: NDArray[np.int64],
) -> Any:
    """Return clauses that hold, clauses whose vetoes must be checked, and how many candidates, predicates, lists.

    `words`, the predicate bit vector, is all zero, and is left so. The part comes as the handle of a `Layout` (see
    `kernels/pointers.py`).
    """
    layout = arrays_at(part, Layout)
    predicate_clusters, block_starts = layout.predicate_clusters, layout.block_starts
    ends = np.empty(_N_LISTS * len(event_attributes), dtype=np.int64)
    most = _locate(event_attributes, event_codes, layout, ends)
    satisfied = np.empty(most + 1, dtype=np.int32)  # one more, because each is written before its test
    n_satisfied, n_tested, n_lists = _find_satisfied(event_attributes, event_codes, ends, layout, words, satisfied)
    access = np.empty(n_satisfied, dtype=np.int32)
    n_access, most = 0, 0
    for q in range(n_satisfied):
        first, end = predicate_clusters[satisfied[q]], predicate_clusters[satisfied[q] + 1]
        if first < end:
            access[n_access] = satisfied[q]
            n_access += 1
            most += block_starts[end] - block_starts[first]
    found = np.empty(most, dtype=np.int32)
    n_found, n_candidates, n_bits, n_clusters = _check_clusters(access[:n_access], layout, words, found)
    for q in range(n_satisfied):  # D2
        words[np.uint64(satisfied[q]) >> _WORD_SHIFT] = 0
    doubtful = np.empty(n_found, dtype=np.int32)
    n_sure, n_doubtful = 0, 0
    for k in range(n_found):
        if layout.has_veto[found[k]]:
            doubtful[n_doubtful] = found[k]
            n_doubtful += 1
        else:
            found[n_sure] = found[k]
            n_sure += 1
    return found[:n_sure].copy(), doubtful[:n_doubtful], n_candidates, n_tested + n_bits, n_lists + n_clusters
