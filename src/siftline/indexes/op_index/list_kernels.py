"""OpIndex: choosing pivots, writing predicates into lists, sorting and signing these (Alg. 1, all clauses at once)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.indexes.op_index.kernels import AT_LEAST, AT_MOST, EQUAL, N_OPERATORS, signature_bit
from siftline.kernels.codes import VETO
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.sections import is_between, section_first, section_last

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.literals import Literals

# The most counts that a counter holds, and the most disjunctions that a bitmap holds; the others are verified.
MOST_COUNTS = 255
MOST_GROUPS = 64

# The target of the second half of a range that has no separate count.
_NO_TARGET = 2**31

# Entries of string patterns have attributes from this number on.
FIRST_PATTERN = 2**30

# Segments up to this many entries are sorted by insertion.
_INSERTION_SORT_MAX = 24

_HALF = np.uint64(32)


class Pivoted(NamedTuple):
    """The pivots of all chosen clauses, and where those of each pivot stand."""

    firsts: NDArray[np.int64]  # by chosen clause: the first literal of its pivot group
    ends: NDArray[np.int64]  # the literal after it
    is_cnf: NDArray[np.bool_]
    pivots: NDArray[np.int32]  # by attribute: its number as a pivot, or -1
    counter_starts: NDArray[np.int64]  # by pivot
    bitmap_starts: NDArray[np.int64]


class Entries(NamedTuple):
    """The entries of all lists."""

    cells: NDArray[np.uint32]  # the segment that an entry is in, over all lists
    keys: NDArray[np.uint64]
    targets: NDArray[np.int32]


@inline_kernel
def group_of(i: int, end: int, kinds: NDArray[np.uint8], is_alternative: NDArray[np.bool_]) -> Any:
    """Return the literal after the group of alternatives that starts at i, and whether a veto is among them."""
    has_veto = kinds[i] >= VETO
    j = i + 1
    while j < end and is_alternative[j]:
        has_veto |= kinds[j] >= VETO
        j += 1
    return j, has_veto


@kernel
def choose_pivots(
    chosen: NDArray[np.int32],
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    is_alternative: NDArray[np.bool_],
    frequencies: NDArray[np.float64],
) -> Any:
    """Return, per chosen clause, the first literal of its pivot group and the literal after it; and if it is a CNF.

    The group with the fewest literals, then with the rarest attributes (OpIndex Eq. 1 and footnote 8), then with the
    lowest attribute. A group with a veto cannot be the pivot group: an event may satisfy it
    without any of its attributes.
    """
    firsts = np.empty(len(chosen), dtype=np.int64)
    ends = np.empty(len(chosen), dtype=np.int64)
    is_cnf = np.zeros(len(chosen), dtype=np.bool_)
    for k in range(len(chosen)):
        i, end = starts[chosen[k]], starts[chosen[k] + 1]
        fewest, rarest, lowest = end - i + 1, np.inf, np.int32(0)
        while i < end:
            j, has_veto = group_of(i, end, kinds, is_alternative)
            frequency = 0.0
            for g in range(i, j):
                frequency += frequencies[attributes[g]]
            is_cnf[k] |= j > i + 1
            is_rarer = frequency < rarest or (frequency == rarest and attributes[i] < lowest)
            if not has_veto and (j - i < fewest or (j - i == fewest and is_rarer)):
                fewest, rarest, lowest = j - i, frequency, attributes[i]
                firsts[k], ends[k] = i, j
            i = j
    return firsts, ends, is_cnf


@inline_kernel
def _is_first(i: int, first: int, attributes: NDArray[np.int32]) -> Any:
    """Return whether no literal first .. i - 1 has the attribute of literal i."""
    found = False
    for j in range(first, i):
        found |= attributes[j] == attributes[i]
    return not found


@kernel
def number_pivots(
    n_attributes: int,
    firsts: NDArray[np.int64],
    ends: NDArray[np.int64],
    is_cnf: NDArray[np.bool_],
    attributes: NDArray[np.int32],
) -> Any:
    """Return the number of each attribute as a pivot, or -1; and where the counters and bitmaps of each pivot start."""
    n_counters = np.zeros(n_attributes, dtype=np.int64)
    n_bitmaps = np.zeros(n_attributes, dtype=np.int64)
    for k in range(len(firsts)):
        for i in range(firsts[k], ends[k]):
            if not is_cnf[k]:
                n_counters[attributes[i]] += 1
            elif _is_first(i, firsts[k], attributes):
                n_bitmaps[attributes[i]] += 1
    pivots = np.full(n_attributes, -1, dtype=np.int32)
    n = 0
    for a in range(n_attributes):
        if n_counters[a] + n_bitmaps[a] > 0:
            pivots[a] = n
            n += 1
    counter_starts = np.zeros(n + 1, dtype=np.int64)
    bitmap_starts = np.zeros(n + 1, dtype=np.int64)
    for a in range(n_attributes):
        if pivots[a] >= 0:
            counter_starts[pivots[a] + 1] = counter_starts[pivots[a]] + n_counters[a]
            bitmap_starts[pivots[a] + 1] = bitmap_starts[pivots[a]] + n_bitmaps[a]
    return pivots, counter_starts, bitmap_starts


@kernel
def most_entries(
    chosen: NDArray[np.int32],
    firsts: NDArray[np.int64],
    ends: NDArray[np.int64],
    starts: NDArray[np.int64],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    sets: NDArray[np.int32],
    set_starts: NDArray[np.int64],
) -> Any:
    """Return a number of list entries that `write_entries` will not exceed."""
    n = 0
    for k in range(len(chosen)):
        n_of_clause = 0
        for i in range(starts[chosen[k]], starts[chosen[k] + 1]):
            if sets[i] >= 0:
                n_of_clause += 4 * (set_starts[sets[i] + 1] - set_starts[sets[i]])
            else:
                n_of_clause += 2 if highs[i] <= section_last(lows[i]) else 4
        n += n_of_clause * (ends[k] - firsts[k])
    return n


@inline_kernel
def _write_range(
    n: int,
    low: int,
    high: int,
    attribute: int,
    list_cell: int,
    n_segments: int,
    target: int,
    entries: Entries,
) -> Any:
    """Write one range of codes, section by section, as entries that share a count; return how many there are now.

    A single value fires at most one of them. Of a range with two inner ends only the `>=` half is written.
    """
    while low <= high:
        first, last = section_first(low), section_last(low)
        end = min(high, last)
        operator, operand = AT_LEAST, low
        if low == end:
            operator = EQUAL
        elif end < last and low == first:
            operator, operand = AT_MOST, end
        entries.cells[n] = list_cell + operator * n_segments + attribute % n_segments
        entries.keys[n] = (np.uint64(attribute) << _HALF) | np.uint64(operand)
        entries.targets[n] = target
        n += 1
        low = last + 1
    return n


@inline_kernel
def _write_set(
    n: int,
    i: int,
    list_cell: int,
    n_segments: int,
    target: int,
    literals: Literals,
    entries: Entries,
) -> Any:
    """Write disjoint ranges as entries that share a count; return how many entries there are now, and if that is exact.

    Ranges with two inner ends would fire by halves: the presence of a value of the kind gives the count then.
    """
    first, end = literals.set_starts[literals.sets[i]], literals.set_starts[literals.sets[i] + 1]
    is_exact = True
    for r in range(first, end):
        is_exact &= not is_between(literals.set_lows[r], literals.set_highs[r])
    written = -1
    for r in range(first, end):
        low, high = literals.set_lows[r], literals.set_highs[r]
        if not is_exact:
            low, high = section_first(low), section_last(high)
            low = max(low, written + 1)
            written = high
        n = _write_range(n, low, high, literals.attributes[i], list_cell, n_segments, target, entries)
    return n, is_exact


@inline_kernel
def _write_literal(
    n: int,
    i: int,
    pattern: int,
    list_cell: int,
    n_segments: int,
    target: int,
    other_target: int,
    literals: Literals,
    entries: Entries,
) -> Any:
    """Write one literal; return the number of entries, the counts that it takes, and whether they decide it.

    A range with two inner ends takes two counts, unless there is no other target for the second.
    """
    if pattern >= 0:
        n = _write_range(n, 0, 0, FIRST_PATTERN + pattern, list_cell, n_segments, target, entries)
        return n, 1, True
    if literals.sets[i] >= 0:
        n, is_exact = _write_set(n, i, list_cell, n_segments, target, literals, entries)
        return n, 1, is_exact
    attribute, low, high = literals.attributes[i], literals.lows[i], literals.highs[i]
    n = _write_range(n, low, high, attribute, list_cell, n_segments, target, entries)
    if not is_between(low, high):
        return n, 1, True
    if other_target == _NO_TARGET:
        return n, 1, False
    n = _write_range(n, section_first(low), high, attribute, list_cell, n_segments, other_target, entries)
    return n, 2, True


@kernel
def write_entries(
    n_most: int,
    n_segments: int,
    chosen: NDArray[np.int32],
    pivoted: Pivoted,
    is_verified: NDArray[np.bool_],
    patterns: NDArray[np.int32],
    literals: Literals,
) -> Any:
    """Insert all chosen clauses (OpIndex Alg. 1); return the entries, unsorted, and the counters and bitmaps.

    Sets `is_verified` for clauses that their counts do not decide.
    """
    firsts, ends, is_cnf, pivots = pivoted.firsts, pivoted.ends, pivoted.is_cnf, pivoted.pivots
    counter_starts, bitmap_starts = pivoted.counter_starts, pivoted.bitmap_starts
    starts, attributes = literals.starts, literals.attributes
    kinds, is_alternative = literals.kinds, literals.is_alternative
    cells = np.empty(n_most, dtype=np.uint32)
    keys = np.empty(n_most, dtype=np.uint64)
    targets = np.empty(n_most, dtype=np.int32)
    entries = Entries(cells, keys, targets)
    counter_clauses, needs = np.empty(counter_starts[-1], np.int32), np.empty(counter_starts[-1], np.uint8)
    bitmap_clauses, bitmaps = np.empty(bitmap_starts[-1], np.int32), np.empty(bitmap_starts[-1], np.uint64)
    next_counters, next_bitmaps = counter_starts.copy(), bitmap_starts.copy()
    n = 0
    for k in range(len(chosen)):
        clause = chosen[k]
        for p in range(firsts[k], ends[k]):
            if not _is_first(p, firsts[k], attributes):
                continue
            pivot = pivots[attributes[p]]
            place = (
                next_bitmaps[pivot] - bitmap_starts[pivot]
                if is_cnf[k]
                else next_counters[pivot] - counter_starts[pivot]
            )
            most_counts = MOST_GROUPS if is_cnf[k] else MOST_COUNTS
            n_counts = 0
            i, end = starts[clause], starts[clause + 1]
            while i < end:
                j, has_veto = group_of(i, end, kinds, is_alternative)
                is_counted = not has_veto and n_counts < most_counts
                is_verified[clause] |= not is_counted
                # In a disjunction, one half of a range must not count as the whole.
                is_split = j == i + 1 and n_counts + 1 < most_counts
                target = ~(place * MOST_GROUPS + n_counts) if is_cnf[k] else place
                other_target = target - is_cnf[k] if is_split else _NO_TARGET
                n_taken = 0
                for g in range(i, j if is_counted else i):
                    list_cell = pivot * N_OPERATORS * n_segments
                    n, n_taken, is_decided = _write_literal(
                        n, g, patterns[g], list_cell, n_segments, target, other_target, literals, entries
                    )
                    is_verified[clause] |= not is_decided
                n_counts += n_taken
                i = j
            if is_cnf[k]:
                bitmap_clauses[next_bitmaps[pivot]] = clause
                bitmaps[next_bitmaps[pivot]] = ~np.uint64(0) >> np.uint64(64 - n_counts)
                next_bitmaps[pivot] += 1
            else:
                counter_clauses[next_counters[pivot]] = clause
                needs[next_counters[pivot]] = n_counts
                next_counters[pivot] += 1
    return cells[:n], keys[:n], targets[:n], counter_clauses, needs, bitmap_clauses, bitmaps


@kernel
def sort_entries(n_cells: int, cells: NDArray[np.uint32], keys: NDArray[np.uint64], targets: NDArray[np.int32]) -> Any:
    """Return the directory, and the entries sorted by cell (pivot, operator, segment), attribute and operand."""
    directory = np.zeros(n_cells + 1, dtype=np.uint32)
    for e in range(len(cells)):
        directory[cells[e] + 1] += np.uint32(1)
    for c in range(n_cells):
        directory[c + 1] += directory[c]
    places = directory[:-1].copy()
    sorted_keys = np.empty(len(keys), dtype=np.uint64)
    sorted_targets = np.empty(len(keys), dtype=np.int32)
    for e in range(len(cells)):
        place = places[cells[e]]
        sorted_keys[place] = keys[e]
        sorted_targets[place] = targets[e]
        places[cells[e]] = place + np.uint32(1)
    for c in range(n_cells):
        start, end = directory[c], directory[c + 1]
        if end - start > _INSERTION_SORT_MAX:
            order = np.argsort(sorted_keys[start:end], kind="mergesort")
            sorted_keys[start:end] = sorted_keys[start:end][order]
            sorted_targets[start:end] = sorted_targets[start:end][order]
        else:
            _sort_few(int(start), int(end), sorted_keys, sorted_targets)
    return directory, sorted_keys, sorted_targets


@inline_kernel
def _sort_few(start: int, end: int, keys: NDArray[np.uint64], targets: NDArray[np.int32]) -> None:
    """Sort a few entries in place, by insertion."""
    for e in range(start + 1, end):
        key, target = keys[e], targets[e]
        place = e
        while place > start and keys[place - 1] > key:
            keys[place] = keys[place - 1]
            targets[place] = targets[place - 1]
            place -= 1
        keys[place] = key
        targets[place] = target


@kernel
def sign_segments(n_segments: int, n_bits: int, directory: NDArray[np.uint32], keys: NDArray[np.uint64]) -> Any:
    """Return the signature of each segment."""
    signatures = np.zeros(len(directory) - 1, dtype=np.uint64)
    for c in range(len(signatures)):
        operator = (c // n_segments) % N_OPERATORS
        for e in range(directory[c], directory[c + 1]):
            signatures[c] |= signature_bit(keys[e], operator, np.uint64(n_bits))
    return signatures
