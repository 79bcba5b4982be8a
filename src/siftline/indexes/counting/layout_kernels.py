"""Laying out `counting`: each predicate once, numbered so that what a value satisfies is a run of numbers.

Literals are grouped by attribute with one counting sort. All further steps work on one attribute at a time, whose
records and hash table fit into a near cache. This makes the build fast; nothing is sorted as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.indexes.counting.kernels import N_LISTS, ROW, TABLE_COLUMNS, locate_in_lists
from siftline.kernels.codes import FIRST_NUMBER, FIRST_STRING, LAST_NUMBER, LAST_STRING, VETO
from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The lists of an attribute, in the order in which their predicates are numbered; see the header of the index.
EQUAL: Final = 0
NUMBER_LISTS: Final = 1  # at most, at least, not equal
STRING_LISTS: Final = 4  # the same for strings
BETWEEN: Final = 7
IN: Final = 8
OTHER: Final = 9

# The key of a predicate: low and high code of a range, or this bit and the number of a set.
_IS_SET = np.uint64(1 << 63)
_HALF = np.uint64(32)
_HIGH = np.uint64(0xFFFFFFFF)

# A word to sort by: the list, the operand, and the place that the predicate had before.
_LIST_SHIFT = np.int64(60)
_OPERAND_SHIFT = np.int64(29)
_PLACE = np.int64((1 << 29) - 1)

_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@kernel
def same_sets(set_starts: NDArray[np.int64], lows: NDArray[np.int32], highs: NDArray[np.int32]) -> Any:
    """Return for each set the first one with the same ranges."""
    n = len(set_starts) - 1
    firsts = np.empty(n, dtype=np.int32)
    n_places = 2
    while n_places < 2 * n:
        n_places *= 2
    table = np.full(n_places, np.int32(-1), dtype=np.int32)
    mask = np.uint64(n_places - 1)
    for s in range(n):
        hashed = np.uint64(0)
        for i in range(set_starts[s], set_starts[s + 1]):
            hashed = (hashed ^ _range_key(lows[i], highs[i])) * _SPREAD
            hashed ^= hashed >> _HALF
        place = hashed & mask
        while table[place] >= 0 and not _are_equal(table[place], s, set_starts, lows, highs):
            place = (place + np.uint64(1)) & mask
        if table[place] < 0:
            table[place] = s
        firsts[s] = table[place]
    return firsts


@inline_kernel
def _are_equal(
    one: int, other: int, set_starts: NDArray[np.int64], lows: NDArray[np.int32], highs: NDArray[np.int32]
) -> bool:
    length = set_starts[one + 1] - set_starts[one]
    if length != set_starts[other + 1] - set_starts[other]:
        return False
    for k in range(length):
        i, j = set_starts[one] + k, set_starts[other] + k
        if lows[i] != lows[j] or highs[i] != highs[j]:
            return False
    return True


@inline_kernel
def _range_key(low: int, high: int) -> Any:
    return (np.uint64(low) << _HALF) | np.uint64(high)


@kernel
def group_literals(
    chosen: NDArray[np.int32],
    n_attributes: int,
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    sets: NDArray[np.int32],
    firsts: NDArray[np.int32],
) -> Any:
    """Group the literals that are no vetoes by attribute.

    Returns the place of each attribute among those in use (-1: not used), where the records of each begin, the key and
    the clause of each record in clause order, how many such literals each clause has, and which clauses have vetoes.
    """
    counts = np.zeros(n_attributes, dtype=np.int64)
    needed = np.zeros(len(starts) - 1, dtype=np.uint32)
    has_veto = np.zeros(len(starts) - 1, dtype=np.bool_)
    for k in range(len(chosen)):
        c = chosen[k]
        for i in range(starts[c], starts[c + 1]):
            if kinds[i] < VETO:
                counts[attributes[i]] += 1
                needed[c] += np.uint32(1)
            else:
                has_veto[c] = True
    places = np.full(n_attributes, np.int32(-1), dtype=np.int32)
    group_starts = np.zeros(np.count_nonzero(counts) + 1, dtype=np.int64)
    n_groups = 0
    n = 0
    for a in range(n_attributes):
        if counts[a] > 0:
            places[a] = n_groups
            n_groups += 1
            n += counts[a]
            counts[a] = n - counts[a]  # from now on: where its next record goes
            group_starts[n_groups] = n
    keys = np.empty(n, dtype=np.uint64)
    owners = np.empty(n, dtype=np.int32)
    for k in range(len(chosen)):
        c = chosen[k]
        for i in range(starts[c], starts[c + 1]):
            if kinds[i] < VETO:
                place = counts[attributes[i]]
                counts[attributes[i]] = place + 1
                if sets[i] >= 0:
                    keys[place] = _IS_SET | np.uint64(firsts[sets[i]])
                else:
                    keys[place] = _range_key(lows[i], highs[i])
                owners[place] = c
    return places, group_starts, keys, owners, needed, has_veto


@kernel
def distinct_predicates(
    group_starts: NDArray[np.int64], keys: NDArray[np.uint64], owners: NDArray[np.int32], needed: NDArray[np.uint32]
) -> Any:
    """Find the predicate of each record, -1 if its clause has that predicate already; it then needs one less.

    Returns the predicate of each record, the keys of the predicates, how many records each has, and where the
    predicates of each group begin.
    """
    n_groups = len(group_starts) - 1
    found = np.empty(len(keys), dtype=np.int32)
    predicate_keys = np.empty(len(keys), dtype=np.uint64)
    lengths = np.zeros(len(keys), dtype=np.uint32)
    last_owners = np.empty(len(keys), dtype=np.int32)
    predicate_starts = np.zeros(n_groups + 1, dtype=np.int64)
    largest = 1
    for g in range(n_groups):
        largest = max(largest, group_starts[g + 1] - group_starts[g])
    table = np.full(_power_of_two(2 * largest), np.int32(-1), dtype=np.int32)
    n = 0
    for g in range(n_groups):
        shift = np.uint64(64) - _log2(2 * (group_starts[g + 1] - group_starts[g]))
        mask = (np.uint64(1) << (np.uint64(64) - shift)) - np.uint64(1)
        first = n
        for r in range(group_starts[g], group_starts[g + 1]):
            key = keys[r]
            place = (key * _SPREAD) >> shift
            # Predicates of earlier groups, below `first`, do not occupy a place.
            while table[place] >= first and predicate_keys[table[place]] != key:
                place = (place + np.uint64(1)) & mask
            p = table[place]
            if p < first:
                p = np.int32(n)
                table[place] = p
                predicate_keys[p] = key
                last_owners[p] = -1
                n += 1
            if last_owners[p] == owners[r]:  # records are in clause order
                needed[owners[r]] -= np.uint32(1)
                found[r] = -1
            else:
                last_owners[p] = owners[r]
                lengths[p] += np.uint32(1)
                found[r] = p
        predicate_starts[g + 1] = n
    return found, predicate_keys[:n].copy(), lengths[:n].copy(), predicate_starts


@inline_kernel
def _log2(least: int) -> Any:
    """Return the exponent of the least power of two that is not below `least`."""
    exponent = np.uint64(1)
    while (np.int64(1) << np.int64(exponent)) < least:
        exponent += np.uint64(1)
    return exponent


@inline_kernel
def _power_of_two(least: int) -> Any:
    return np.int64(1) << np.int64(_log2(least))


@inline_kernel
def _list_of_range(low: Any, high: Any) -> Any:
    """Return the list that a range belongs to, and the operand by which that list is sorted."""
    if low == high:
        return EQUAL, low
    if low == FIRST_NUMBER and high <= LAST_NUMBER:
        return NUMBER_LISTS, high
    if low >= FIRST_NUMBER and high == LAST_NUMBER:
        return NUMBER_LISTS + 1, low
    if low == FIRST_STRING:
        return STRING_LISTS, high
    if low > FIRST_STRING and high == LAST_STRING:
        return STRING_LISTS + 1, low
    return BETWEEN, low


@inline_kernel
def _list_of_set(first: int, end: int, lows: NDArray[np.int32], highs: NDArray[np.int32]) -> Any:
    """Return the list that a set of the ranges first .. end - 1 belongs to, and its operand."""
    hole = np.int64(highs[first]) + 1
    if end - first == 2 and lows[first + 1] == hole + 1:  # all but one code
        if lows[first] == FIRST_NUMBER and highs[end - 1] == LAST_NUMBER:
            return NUMBER_LISTS + 2, hole
        if lows[first] == FIRST_STRING and highs[end - 1] == LAST_STRING:
            return STRING_LISTS + 2, hole
    for i in range(first, end):
        if lows[i] != highs[i]:
            return OTHER, np.int64(lows[first])
    return IN, np.int64(lows[first])


@kernel
def number_predicates(
    predicate_starts: NDArray[np.int64],
    keys: NDArray[np.uint64],
    set_starts: NDArray[np.int64],
    set_lows: NDArray[np.int32],
    set_highs: NDArray[np.int32],
) -> Any:
    """Give numbers to predicates by attribute, list and operand; to ranges with the same low code, by their end.

    Returns the number of each predicate, where the lists begin, and by number the operands, the ends of ranges and the
    sets (-1: none).
    """
    n_groups = len(predicate_starts) - 1
    numbers = np.empty(len(keys), dtype=np.int32)
    heads = np.zeros(n_groups * N_LISTS + 1, dtype=np.uint32)
    operands = np.empty(len(keys), dtype=np.int32)
    ends = np.empty(len(keys), dtype=np.int32)
    sets = np.full(len(keys), np.int32(-1), dtype=np.int32)
    for g in range(n_groups):
        first, n = predicate_starts[g], predicate_starts[g + 1] - predicate_starts[g]
        by_end = np.empty(n, dtype=np.int64)
        for k in range(n):
            by_end[k] = (np.int64(keys[first + k] & _HIGH) << np.int64(32)) | k
        by_end.sort()
        order = np.empty(n, dtype=np.int64)
        for place in range(n):
            key = keys[first + (by_end[place] & np.int64(_HIGH))]
            if key & _IS_SET:
                s = np.int64(key & _HIGH)
                of, operand = _list_of_set(set_starts[s], set_starts[s + 1], set_lows, set_highs)
            else:
                of, operand = _list_of_range(np.int64(key >> _HALF), np.int64(key & _HIGH))
            # The number of the list needs four bits and so the sign: moved down by half of them.
            order[place] = ((np.int64(of) - 8) << _LIST_SHIFT) | (operand << _OPERAND_SHIFT) | place
        order.sort()
        for k in range(n):
            old = first + (by_end[order[k] & _PLACE] & np.int64(_HIGH))
            key, new = keys[old], first + k
            numbers[old] = new
            heads[g * N_LISTS + (order[k] >> _LIST_SHIFT) + 8 + 1] += np.uint32(1)
            operands[new] = (order[k] >> _OPERAND_SHIFT) & np.int64(0x7FFFFFFF)
            ends[new] = operands[new] if key & _IS_SET else np.int64(key & _HIGH)
            if key & _IS_SET:
                sets[new] = np.int64(key & _HIGH)
    for h in range(1, len(heads)):
        heads[h] += heads[h - 1]
    return numbers, heads, operands, ends, sets


@kernel
def spread_sets(
    heads: NDArray[np.uint32],
    sets: NDArray[np.int32],
    set_starts: NDArray[np.int64],
    set_lows: NDArray[np.int32],
    set_highs: NDArray[np.int32],
) -> Any:
    """Spread the lists IN and OTHER of each attribute over the ranges of their sets, both sorted by low code.

    Returns where these lists begin, two for each attribute, and low code, high code and predicate of each entry.
    """
    n_groups = (len(heads) - 1) // N_LISTS
    entry_heads = np.zeros(2 * n_groups + 1, dtype=np.uint32)
    for g in range(n_groups):
        for k in range(2):
            head = g * N_LISTS + IN + k
            n = np.int64(0)
            for p in range(heads[head], heads[head + 1]):
                n += set_starts[sets[p] + 1] - set_starts[sets[p]]
            entry_heads[2 * g + k + 1] = entry_heads[2 * g + k] + n
    n = entry_heads[-1]
    lows = np.empty(n, dtype=np.int32)
    highs = np.empty(n, dtype=np.int32)
    predicates = np.empty(n, dtype=np.uint32)
    owners = np.empty(n, dtype=np.uint32)
    for h in range(2 * n_groups):
        first, end = np.int64(entry_heads[h]), np.int64(entry_heads[h + 1])
        if first == end:
            continue
        head = (h >> 1) * N_LISTS + IN + (h & 1)
        order = np.empty(end - first, dtype=np.int64)
        items = np.empty(end - first, dtype=np.int64)
        n = np.int64(0)
        for p in range(heads[head], heads[head + 1]):
            for i in range(set_starts[sets[p]], set_starts[sets[p] + 1]):
                items[n] = i
                owners[first + n] = p
                order[n] = (np.int64(set_lows[i]) << np.int64(32)) | n
                n += 1
        order.sort()
        for k in range(end - first):
            item = order[k] & np.int64(_HIGH)
            lows[first + k] = set_lows[items[item]]
            highs[first + k] = set_highs[items[item]]
            predicates[first + k] = owners[first + item]
    return entry_heads, lows, highs, predicates


@kernel
def list_clauses(
    found: NDArray[np.int32], owners: NDArray[np.int32], numbers: NDArray[np.int32], lengths: NDArray[np.uint32]
) -> Any:
    """Return the clauses of each predicate: where they begin, and all of them, ascending in each."""
    starts = np.zeros(len(numbers) + 1, dtype=np.uint32)
    for p in range(len(numbers)):
        starts[numbers[p] + 1] = lengths[p]
    for p in range(len(numbers)):
        starts[p + 1] += starts[p]
    places = np.empty(len(numbers), dtype=np.uint32)  # by old number: saves a look-up for every record
    for p in range(len(numbers)):
        places[p] = starts[numbers[p]]
    clauses = np.empty(starts[-1], dtype=np.uint32)
    for r in range(len(found)):
        if found[r] >= 0:
            clauses[places[found[r]]] = owners[r]
            places[found[r]] += np.uint32(1)
    return starts, clauses


@kernel
def fill_bytes(found: NDArray[np.int32], owners: NDArray[np.int32], numbers: NDArray[np.int32], rows: Any) -> None:
    """Write 1 where a predicate belongs to a clause; one row for each predicate."""
    for r in range(len(found)):
        if found[r] >= 0:
            rows[numbers[found[r]], owners[r]] = np.uint8(1)


@kernel
def fill_bits(found: NDArray[np.int32], owners: NDArray[np.int32], numbers: NDArray[np.int32], rows: Any) -> None:
    """Set a bit where a predicate belongs to a clause; one row of words for each predicate."""
    for r in range(len(found)):
        if found[r] >= 0:
            rows[numbers[found[r]], owners[r] >> 6] |= np.uint64(1) << np.uint64(owners[r] & 63)


@kernel
def lay_out_tables(
    covered: NDArray[np.int64],
    heads: NDArray[np.uint32],
    operands: NDArray[np.int32],
    entry_heads: NDArray[np.uint32],
    entry_lows: NDArray[np.int32],
) -> Any:
    """Make a table for each row of `covered`: place of the attribute, whether strings, first and last code.

    Returns which table each attribute has for numbers and for strings (-1: none), four numbers about each table (first
    code, last code, shift, first bucket), the row in which each bucket begins, and the rows.
    """
    table_ids = np.full(2 * ((len(heads) - 1) // N_LISTS), np.int32(-1), dtype=np.int32)
    tables = np.empty((len(covered), TABLE_COLUMNS), dtype=np.int64)
    most_rows = np.int64(0)
    for t in range(len(covered)):
        g = covered[t, 0]
        n_keys = np.int64(heads[(g + 1) * N_LISTS] - heads[g * N_LISTS])
        most_rows += 1 + 2 * (n_keys + np.int64(entry_heads[2 * g + 2] - entry_heads[2 * g]))
    row_codes = np.empty(most_rows, dtype=np.int32)
    bucket_rows = np.empty(4 * most_rows + 2 * len(covered), dtype=np.uint32)
    n_rows = 0
    n_buckets = 0
    for t in range(len(covered)):
        g, first, last = covered[t, 0], covered[t, 2], covered[t, 3]
        table_ids[2 * g + covered[t, 1]] = t
        own = _row_codes(g, first, last, heads, operands, entry_heads, entry_lows)
        row_codes[n_rows : n_rows + len(own)] = own
        shift = 0
        while ((last - first) >> shift) + 1 > 4 * len(own):
            shift += 1
        tables[t, 0], tables[t, 1], tables[t, 2], tables[t, 3] = first, last, shift, n_buckets
        row = n_rows
        for b in range(((last - first) >> shift) + 1):
            while row + 1 < n_rows + len(own) and row_codes[row + 1] <= first + (b << shift):
                row += 1
            bucket_rows[n_buckets] = row
            n_buckets += 1
        n_rows += len(own)
        bucket_rows[n_buckets] = n_rows - 1
        n_buckets += 1
    rows = np.empty(n_rows * ROW, dtype=np.uint32)
    for t in range(len(covered)):
        first_row = bucket_rows[tables[t, 3]]
        end_row = bucket_rows[tables[t + 1, 3]] if t + 1 < len(covered) else np.uint32(n_rows)
        for row in range(first_row, end_row):
            code, at = row_codes[row], row * ROW
            rows[at] = code
            locate_in_lists(code, covered[t, 0], heads, operands, entry_heads, entry_lows, rows, at + 1)
    return table_ids, tables, bucket_rows[:n_buckets].copy(), rows


@kernel
def _row_codes(
    g: int,
    first: int,
    last: int,
    heads: NDArray[np.uint32],
    operands: NDArray[np.int32],
    entry_heads: NDArray[np.uint32],
    entry_lows: NDArray[np.int32],
) -> Any:
    """Return the codes from `first` to `last` at which a row begins: inside a row all searches of lists end alike."""
    n = np.int64(heads[(g + 1) * N_LISTS] - heads[g * N_LISTS])
    n_entries = np.int64(entry_heads[2 * g + 2] - entry_heads[2 * g])
    codes = np.empty(1 + 2 * (n + n_entries), dtype=np.int32)
    codes[0] = first
    for k in range(n):
        codes[1 + 2 * k] = operands[heads[g * N_LISTS] + k]
        codes[2 + 2 * k] = operands[heads[g * N_LISTS] + k] + 1
    for k in range(n, n + n_entries):
        codes[1 + 2 * k] = entry_lows[entry_heads[2 * g] + k - n]
        codes[2 + 2 * k] = entry_lows[entry_heads[2 * g] + k - n] + 1
    codes.sort()
    n_distinct = 0
    for k in range(len(codes)):
        if first <= codes[k] <= last and (n_distinct == 0 or codes[k] != codes[n_distinct - 1]):
            codes[n_distinct] = codes[k]
            n_distinct += 1
    return codes[:n_distinct].copy()
