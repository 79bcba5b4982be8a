"""PSTHash: clauses by the spaces of several access predicates at once, and matching one event by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.indexes.pst.bloom_kernels import verify_found
from siftline.kernels.codes import ABSENT, VETO
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.literals import Literals, spread_event
from siftline.kernels.pointers import arrays_at
from siftline.kernels.spaces import space_of
from siftline.kernels.verify import clear_event

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What an entry holds: the clause; attribute + 1, low and width of its next literal; attribute + 1 of two more. Where
# there are fewer: entry 0 of the event, which every event has with code 0.
N_FIELDS = 6
# How many keys are looked up before their entries are read, so that the directory's cache misses overlap.
_N_PENDING = 256
_LINE = 16  # numbers in a cache line

_NEVER = np.int64(-(2**63))
_GRAIN = np.int64(63)  # the low bits of a cell place: the logarithm of the spaces in a cell
_SEED = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_SIX = np.uint64(6)
_LOW_BITS = np.uint64(63)


@inline_kernel
def _folded(hashed: Any, number: int) -> Any:
    """Return the hash of a sequence with one more number at its end."""
    mixed = (hashed ^ np.uint64(number)) * _FACTOR
    return (mixed ^ (mixed >> _HALF)) * _FACTOR


@kernel
def wide_grains(
    n_attributes: int,
    attributes: NDArray[np.int32],
    piece_starts: NDArray[np.int64],
    firsts: NDArray[np.int32],
    lasts: NDArray[np.int32],
    cells_per_predicate: float,
) -> Any:
    """Return for each attribute the logarithm of the spaces in a cell: a typical predicate then covers a few cells.

    Typical means the geometric mean: a few wide ranges do not make cells coarse that many equalities need fine.
    """
    sums = np.zeros(n_attributes, dtype=np.float64)
    counts = np.zeros(n_attributes, dtype=np.int64)
    for i in range(len(attributes)):
        n_covered = 0
        for p in range(piece_starts[i], piece_starts[i + 1]):
            n_covered += lasts[p] - firsts[p] + 1
        if n_covered:
            sums[attributes[i]] += np.log2(n_covered)
            counts[attributes[i]] += 1
    grains = np.zeros(n_attributes, dtype=np.int64)
    for a in range(n_attributes):
        if counts[a]:
            grain = np.ceil(sums[a] / counts[a] - np.log2(cells_per_predicate))
            grains[a] = np.int64(grain) if grain > 0 else 0
    return grains


class Table(NamedTuple):
    """What matching needs of the hash table of a part; see `indexes/pst/hash.py`."""

    leaf_starts: NDArray[np.int64]
    cuts: NDArray[np.int32]
    cell_places: NDArray[np.int64]
    filter_words: NDArray[np.uint64]
    bucket_starts: NDArray[np.uint32]
    stream: NDArray[np.int32]


class Covered(NamedTuple):
    """Which leaves of its attribute's tree a literal covers, and where the cells of an attribute begin."""

    attributes: NDArray[np.int32]
    piece_starts: NDArray[np.int64]
    firsts: NDArray[np.int32]
    lasts: NDArray[np.int32]
    leaf_starts: NDArray[np.int64]
    cell_places: NDArray[np.int64]


@inline_kernel
def _cells_of(literal: int, covered: Covered, cells: NDArray[np.int32]) -> Any:
    """Write the cells that a literal covers, as many as there is room for; return how many there are."""
    n = 0
    first_leaf = covered.leaf_starts[covered.attributes[literal]]
    grain = covered.cell_places[covered.attributes[literal]] & _GRAIN
    first_cell = covered.cell_places[covered.attributes[literal]] >> 6
    following = first_cell
    for p in range(
        covered.piece_starts[literal], covered.piece_starts[literal + 1]
    ):  # pieces ascend; two may share a cell
        low = max(following, first_cell + ((covered.firsts[p] - first_leaf) >> grain))
        following = first_cell + ((covered.lasts[p] - first_leaf) >> grain) + 1
        for cell in range(low, min(following, low + len(cells) - n)):
            cells[n + cell - low] = cell
        n += following - low
        if n > len(cells):
            return n
    return n


@kernel
def choose_access(
    n_access: int,
    most_keys: int,
    chosen: NDArray[np.int32],
    starts: NDArray[np.int64],
    order: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    covered: Covered,
) -> Any:
    """Return for each chosen clause its access literals, by ascending attribute, and its number of keys.

    In order of selectivity, a literal is taken if its attribute is new and the keys stay few enough; a clause that does
    not get enough of them has 0 keys. See PS-Tree Alg. 6, l. 1.
    """
    access = np.empty((len(chosen), n_access), dtype=np.int64)
    n_keys = np.zeros(len(chosen), dtype=np.int64)
    cells = np.empty(most_keys, dtype=np.int32)
    for k in range(len(chosen)):
        n_taken = 0
        product = 1
        for place in range(starts[chosen[k]], starts[chosen[k] + 1]):
            i = order[place]
            if n_taken == n_access or kinds[i] >= VETO:
                break
            n = _cells_of(i, covered, cells)
            position = n_taken
            while position > 0 and covered.attributes[access[k, position - 1]] > covered.attributes[i]:
                position -= 1
            is_new = position == 0 or covered.attributes[access[k, position - 1]] != covered.attributes[i]
            if not is_new or n * product > most_keys:
                continue
            for j in range(n_taken, position, -1):
                access[k, j] = access[k, j - 1]
            access[k, position] = i
            n_taken += 1
            product *= n
        if n_taken == n_access:
            n_keys[k] = product
    return access, n_keys


@kernel
def make_keys(
    access: NDArray[np.int64],
    n_keys: NDArray[np.int64],
    most_keys: int,
    covered: Covered,
    filter_words: NDArray[np.uint64],
    log2_buckets: int,
    keys: NDArray[np.int32],
    owners: NDArray[np.int32],
    buckets: NDArray[np.uint32],
    bucket_starts: NDArray[np.int64],
) -> None:
    """Write keys, their owners, their buckets and where buckets start; enter the attributes of keys into the filter."""
    n_access = access.shape[1]
    bucket_starts[:] = 0
    shift = np.uint64(64 - log2_buckets)
    cells = np.empty((n_access, most_keys), dtype=np.int32)
    counts = np.empty(n_access, dtype=np.int64)
    key = 0
    for k in range(len(access)):
        if n_keys[k] == 0:
            continue
        hashed = _SEED
        for j in range(n_access):
            i = access[k, j]
            hashed = _folded(hashed, covered.attributes[i])
            _enter(filter_words, hashed)
            counts[j] = _cells_of(i, covered, cells[j])
        for combination in range(n_keys[k]):  # PS-Tree Alg. 6, l. 7-9
            rest = combination
            for j in range(n_access):
                keys[key, j] = cells[j, rest % counts[j]]
                rest //= counts[j]
            hashed = _SEED
            for j in range(n_access):
                hashed = _folded(hashed, keys[key, j])
            owners[key] = k
            buckets[key] = hashed >> shift
            bucket_starts[np.uint64(buckets[key]) + _ONE] += 1
            key += 1
    for b in range(1 << log2_buckets):
        bucket_starts[b + 1] += bucket_starts[b]


@inline_kernel
def _enter(filter_words: NDArray[np.uint64], hashed: Any) -> None:
    """Set the bit of a hash."""
    bit = hashed >> _HALF & np.uint64(len(filter_words) * 64 - 1)
    filter_words[bit >> _SIX] |= _ONE << (bit & _LOW_BITS)


@inline_kernel
def _is_entered(filter_words: NDArray[np.uint64], hashed: Any) -> Any:
    """Return whether the bit of a hash is set."""
    bit = hashed >> _HALF & np.uint64(len(filter_words) * 64 - 1)
    return (filter_words[bit >> _SIX] >> (bit & _LOW_BITS)) & _ONE != 0


@inline_kernel
def _are_same(keys: NDArray[np.int32], one: int, other: int) -> Any:
    """Return whether two keys are equal."""
    is_same = True
    for j in range(keys.shape[1]):
        is_same &= keys[one, j] == keys[other, j]
    return is_same


@kernel
def group_keys(
    keys: NDArray[np.int32], buckets: NDArray[np.uint32], bucket_starts: NDArray[np.int64], order: NDArray[np.uint32]
) -> Any:
    """Write the order of keys by bucket, equal ones side by side; return how many different ones there are."""
    places = bucket_starts[:-1].copy()
    for key in range(len(keys)):
        order[places[buckets[key]]] = key
        places[buckets[key]] += 1
    n_different = 0
    for b in range(len(bucket_starts) - 1):
        place, end = bucket_starts[b], bucket_starts[b + 1]
        while place < end:  # a bucket has few different keys
            first = order[place]
            place += 1
            for p in range(place, end):
                other = order[p]
                if _are_same(keys, first, other):
                    order[p] = order[place]
                    order[place] = other
                    place += 1
            n_different += 1
    return n_different


@kernel
def make_entries(
    chosen: NDArray[np.int32],
    access: NDArray[np.int64],
    order: NDArray[np.int64],
    literals: Literals,
    n_keys: NDArray[np.int64],
) -> Any:
    """Return the entry of each chosen clause."""
    starts, attributes, kinds = literals.starts, literals.attributes, literals.kinds
    lows, highs = literals.lows, literals.highs
    entries = np.zeros((len(chosen), N_FIELDS), dtype=np.int32)
    for k in range(len(chosen)):
        if n_keys[k] == 0:
            continue
        entries[k, 0] = chosen[k]
        n_next = 0
        for place in range(starts[chosen[k]], starts[chosen[k] + 1]):
            i = order[place]
            is_access = False
            for j in range(access.shape[1]):
                is_access |= access[k, j] == i
            if is_access or kinds[i] >= VETO or n_next == 3:
                continue
            if n_next == 0:
                entries[k, 1] = attributes[i] + 1
                entries[k, 2] = lows[i]
                entries[k, 3] = highs[i] - lows[i]
            else:
                entries[k, 3 + n_next] = attributes[i] + 1
            n_next += 1
    return entries


@kernel
def fill_stream(
    keys: NDArray[np.int32],
    owners: NDArray[np.int32],
    order: NDArray[np.uint32],
    key_starts: NDArray[np.int64],
    entries: NDArray[np.int32],
    stream: NDArray[np.int32],
    bucket_starts: NDArray[np.uint32],
) -> None:
    """Write bucket by bucket each key, the number of its entries, and these; see PS-Tree Alg. 6, l. 10."""
    n_access = keys.shape[1]
    at = 0
    counter = 0
    for b in range(len(key_starts) - 1):
        bucket_starts[b] = at
        for place in range(key_starts[b], key_starts[b + 1]):
            key = order[place]
            if place == key_starts[b] or not _are_same(keys, order[place - 1], key):
                for j in range(n_access):
                    stream[at + j] = keys[key, j]
                counter = at + n_access
                stream[counter] = 0
                at = counter + 1
            stream[counter] += 1
            for j in range(N_FIELDS):
                stream[at + j] = entries[owners[key], j]
            at += N_FIELDS
    bucket_starts[len(key_starts) - 1] = at


@inline_kernel
def _locate_cells(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    table: Table,
    located: NDArray[np.int64],
) -> Any:
    """Write attribute and cell of each value, attributes ascending and none twice; return how many."""
    n = 0
    for p in range(len(event_attributes)):
        a = np.int64(event_attributes[p])
        leaf = space_of(event_attributes[p], event_codes[p], table.leaf_starts, table.cuts)
        if leaf < 0:
            continue
        place = table.cell_places[a]
        cell = (place >> 6) + ((leaf - table.leaf_starts[a]) >> (place & _GRAIN))
        both = a << 32 | cell
        position = n
        while position > 0 and located[position - 1] > both:
            position -= 1
        if position > 0 and located[position - 1] == both:
            continue
        for q in range(n, position, -1):
            located[q] = located[q - 1]
        located[position] = both
        n += 1
    return n


@inline_kernel
def _next_key(
    depth: int,
    n_located: int,
    located: NDArray[np.int64],
    at: NDArray[np.int64],
    filter_words: NDArray[np.uint64],
    attribute_hashes: NDArray[np.uint64],
    key_hashes: NDArray[np.uint64],
) -> Any:
    """Go on to the next combination whose attributes may be those of keys; return its depth, -1 if there is none.

    Values are added one by one, and a beginning that no key has is abandoned at once. The combination is at[:], its
    hash the last of key_hashes.
    """
    last = len(at) - 1
    while depth >= 0:
        i = at[depth]
        if i >= n_located:
            depth -= 1
            if depth >= 0:
                at[depth] += 1
            continue
        attribute = located[i] >> 32
        hashed = _folded(attribute_hashes[depth], attribute)
        is_repeated = depth > 0 and located[at[depth - 1]] >> 32 == attribute
        if is_repeated or not _is_entered(filter_words, hashed):
            at[depth] += 1
            continue
        attribute_hashes[depth + 1] = hashed
        key_hashes[depth + 1] = _folded(key_hashes[depth], located[i] & 0xFFFFFFFF)
        if depth == last:
            return depth
        depth += 1
        at[depth] = i + 1
    return depth


@inline_kernel
def _filter_entries(
    pending: NDArray[np.int64],
    n_pending: int,
    n_access: int,
    stream: NDArray[np.int32],
    dense: NDArray[np.int32],
    left: NDArray[np.int32],
    n_left: int,
) -> Any:
    """Write the clauses under the pending keys whose next literals may hold; return how many candidates, and are left.

    There is no branch on an entry: many would be mispredicted.
    """
    n_candidates = 0
    for k in range(n_pending):  # PS-Tree Alg. 7, l. 6-8
        place, end = pending[k, 0], pending[k, 1]
        while place < end:
            is_same = True
            for j in range(n_access):
                is_same &= stream[np.uint64(place + j)] == pending[k, 2 + j]
            first = place + n_access + 1
            place = first + N_FIELDS * stream[np.uint64(first - 1)]
            if not is_same:
                continue
            n_candidates += (place - first) // N_FIELDS
            for e in range(first, place, N_FIELDS):
                entry = np.uint64(e)
                code = dense[stream[entry + np.uint64(1)]]
                distance = np.uint32(code - stream[entry + np.uint64(2)])
                may_hold = (distance <= np.uint32(stream[entry + np.uint64(3)])) | (code < ABSENT)
                may_hold &= dense[stream[entry + np.uint64(4)]] != ABSENT
                may_hold &= dense[stream[entry + np.uint64(5)]] != ABSENT
                left[n_left] = stream[entry]
                n_left += may_hold
            break
    return n_candidates, n_left


@kernel
def match_hash(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    dense: NDArray[np.int32],
    n_access: int,
    part_literals: NDArray[np.int64],
    part: NDArray[np.int64],
) -> Any:
    """Return (clauses that hold, keys looked up, candidates, those verified, literals tested).

    The part and its literals come as handles (see `kernels/pointers.py`).
    """
    literals, table = arrays_at(part_literals, Literals), arrays_at(part, Table)
    filter_words, bucket_starts, stream = table.filter_words, table.bucket_starts, table.stream
    following = np.empty(len(event_codes), dtype=np.int32)
    spread_event(event_attributes, event_codes, dense, following)
    dense[0] = 0
    located = np.empty(len(event_codes), dtype=np.int64)
    n_located = _locate_cells(event_attributes, event_codes, table, located)
    at = np.zeros(n_access, dtype=np.int64)
    attribute_hashes = np.full(n_access + 1, _SEED, dtype=np.uint64)
    key_hashes = np.full(n_access + 1, _SEED, dtype=np.uint64)
    log2_buckets = 0
    while 1 << log2_buckets < len(bucket_starts) - 1:
        log2_buckets += 1
    shift = np.uint64(64 - log2_buckets)
    pending = np.empty((_N_PENDING, 2 + n_access), dtype=np.int64)
    found = np.empty(_N_PENDING, dtype=np.int32)
    n_left, n_keys, n_candidates, depth, read = 0, 0, 0, 0, 0
    while depth >= 0:
        n_pending, n_entries = 0, 0
        while n_pending < _N_PENDING and depth >= 0:  # PS-Tree Alg. 7, l. 5
            depth = _next_key(depth, n_located, located, at, filter_words, attribute_hashes, key_hashes)
            if depth >= 0:
                bucket = key_hashes[n_access] >> shift
                pending[n_pending, 0] = bucket_starts[bucket]
                pending[n_pending, 1] = bucket_starts[bucket + _ONE]
                for j in range(n_access):
                    pending[n_pending, 2 + j] = located[at[j]] & 0xFFFFFFFF
                at[depth] += 1
                n_pending += 1
        for k in range(n_pending):
            n_entries += (pending[k, 1] - pending[k, 0]) // N_FIELDS
            # Read ahead, a number of each cache line: without a branch in between, the misses of all buckets overlap.
            for place in range(pending[k, 0], pending[k, 1], _LINE):
                read += stream[np.uint64(place)]
        if n_left + n_entries >= len(found):
            more = np.empty(2 * (n_left + n_entries), dtype=np.int32)
            more[:n_left] = found[:n_left]
            found = more
        n_more, n_left = _filter_entries(pending, n_pending, n_access, stream, dense, found, n_left)
        n_candidates += n_more
        n_keys += n_pending
    # PS-Tree Alg. 7, l. 9
    n_found, n_tested = verify_found(found, n_left, dense, event_codes, following, literals)
    dense[0] = ABSENT
    clear_event(event_attributes, dense)
    if read == _NEVER:  # never true; it keeps the compiler from dropping what was read ahead
        n_tested = 0
    return found[:n_found].copy(), n_keys, n_candidates, n_left, n_tested
