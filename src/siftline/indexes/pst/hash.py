"""`pst-hash`: PSTHash, a hash table from the spaces of several access predicates to clauses.

Paper: S. Ji and H.-A. Jacobsen, "PS-Tree-Based Efficient Boolean Expression Matching for High-Dimensional and Dense
Workloads", PVLDB 12(3), 2018, sections 3.3 and 6.

Idea: where many clauses share each attribute, one access predicate leaves many candidates. So a clause gets N access
predicates on N attributes, and is entered under every combination of spaces that they cover: N-dimensional spaces. The
values of an event lie in one space each; every N of them make a key, and the clauses under it are candidates. Clauses
for which N access predicates do not exist, or would make too many keys, are left to a `pst-bloom` beside the table.

Worked example (Fig. 4 of the paper; `a` has the spaces a1 = ... 1), a2 = [1, 1], and so on; N = 2):

    S1: a = 1 and b = -1 and c < 0      S3: a = 1 and b < -1 and c = 0      key         entries
    S2: a = 1 and b = -1 and c > 0      S4: a < 1 and b = -1 and c = 0      a2 b2       S1 (c < 0), S2 (c > 0)
                                                                            a2 c2       S3 (b < -1)
    event {a: 1, b: -1, c: 2}: a2 b2, a2 c3, b2 c3                          b2 c2       S4 (a < 1)
    candidates S1 and S2; c = 2 leaves S2.

Arrays
------
counts : int64[3]
    N, the number of entries, and the number of different keys.
leaf_starts, cuts
    The trees, as in `pst-bloom`.
cell_places : int64[n_attributes]
    64 * (first cell of the attribute) + grain; leaf k of attribute a is in cell
    first + ((k - leaf_starts[a]) >> grain). Cells are numbered over all attributes, ascending.
filter_words : uint64[a power of two]
    A bit for the hash of the first 1, 2, ... N attributes of each key.
bucket_starts : uint32[n_buckets + 1]
    The hash table: bucket b is bucket_starts[b] : bucket_starts[b + 1] of the stream; n_buckets is a power of two.
stream : int32[n_keys * (N + 1) + n_entries * 6]
    For each key of a bucket: its N cells, ascending; the number of its entries; and these. An entry is the clause;
    attribute + 1, lowest code and width of its next literal (of a set: of its hull); attribute + 1 of two more. Where
    there are fewer: attribute + 1 is 0, code and width are 0.
bloom_leaf_starts, ... : the arrays of `pst-bloom` for the other clauses.

Cost: O(values * log leaves), then a few nanoseconds for each of C(values, N) combinations, a cache miss for each one
whose attributes are those of some key, and one more for the entries under it. Space: 24 bytes for each entry of a
clause, at most `most_keys` of them, and 4 * (N + 1) bytes for each key.

Departures
----------
D1  Additions and removals make new parts instead of changing trees in place (see `indexes.parts`).
D2  A tree is a sorted array of cuts, searched by halving, where the paper has a trie over digits. All predicates cut
    it, not only access predicates: the choice needs to know what they cover.
D3  A key is made of *cells* of 1, 2, 4, ... neighbouring spaces, so that a typical predicate covers few of them; where
    predicates are mostly equalities, a cell is one space. Two ranges that cover 50 of 200 spaces each would otherwise
    make 2,500 keys. A cell is coarser than a predicate, so the exact check tests access predicates too.
    With 1,000,000 subscriptions on 100 attributes a clause has 9 entries, and an event 5,040 candidates, where
    `pst-bloom` has 27,529.
D4  A clause whose N most selective predicates would make more than `most_keys` keys takes less selective ones, and
    goes to `pst-bloom` if there are none.
D5  Combinations are formed value by value, and abandoned as soon as no key begins with these attributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from siftline.indexes.parts import Context, Found, OneEvent, Part, PartedIndex, check_memory, checked_limit
from siftline.indexes.pst.access_predicates import by_selectivity, covers_of
from siftline.indexes.pst.bloom import (
    COUNTERS,
    check_bloom,
    check_trees,
    checked_bits,
    count_work,
    describe_bloom,
    lay_out_bloom,
    positive_ranges,
)
from siftline.indexes.pst.bloom_kernels import BloomArrays, match_bloom
from siftline.indexes.pst.hash_kernels import (
    N_FIELDS,
    Covered,
    Table,
    choose_access,
    fill_stream,
    group_keys,
    make_entries,
    make_keys,
    match_hash,
    wide_grains,
)
from siftline.kernels.literals import Literals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.indexes.pst.access_predicates import Covers

_ENTRIES_PER_BUCKET: Final = 8
_BITS_PER_BEGINNING: Final = 16
# The largest value of the options `n_access` and `most_keys`.
_OPTION_MAX: Final = 1_000_000
# Positions in the stream have 32 bits.
_MOST_MB: Final = 16_383


class HashArrays(NamedTuple):
    """The arrays of one part; see above."""

    counts: NDArray[np.int64]
    leaf_starts: NDArray[np.int64]
    cuts: NDArray[np.int32]
    cell_places: NDArray[np.int64]
    filter_words: NDArray[np.uint64]
    bucket_starts: NDArray[np.uint32]
    stream: NDArray[np.int32]
    bloom_leaf_starts: NDArray[np.int64]
    bloom_cuts: NDArray[np.int32]
    bloom_posting_starts: NDArray[np.int64]
    bloom_entries: NDArray[np.int32]
    bloom_signature_places: NDArray[np.int64]
    bloom_signatures: NDArray[np.uint64]

    @property
    def bloom(self) -> BloomArrays:
        """The arrays for the clauses that are not in the table."""
        return BloomArrays(*(getattr(self, f"bloom_{name}") for name in BloomArrays._fields))


class PstHash(PartedIndex):
    """Several access predicates a clause; a hash table of their spaces.

    Parameters
    ----------
    n_access : int
        Access predicates of a clause, each on its own attribute.
    most_keys : int
        The most entries of a clause.
    cells_per_predicate : float
        A typical predicate covers about this many cells (D3); more make finer cells and more keys.
    signature_bits_per_id : float
        For the clauses outside of the table: see `pst-bloom`.
    memory_limit_mb : int
        A part that would be larger is refused.
    """

    name: ClassVar[str] = "pst-hash"
    arrays_type: ClassVar[type] = HashArrays

    def __init__(
        self,
        *,
        n_access: int = 2,
        most_keys: int = 256,
        cells_per_predicate: float = 2,
        signature_bits_per_id: float = 4,
        memory_limit_mb: int = 8192,
    ) -> None:
        super().__init__()
        self._n_access = _checked_count("n_access", n_access)
        self._most_keys = _checked_count("most_keys", most_keys)
        self._cells_per_predicate = _checked_cells(cells_per_predicate)
        self._bits_per_id = checked_bits(signature_bits_per_id)
        self._memory_limit_mb = checked_limit(memory_limit_mb)
        self._counters |= dict.fromkeys((*COUNTERS, "rejected_by_next", "keys_looked_up"), 0)

    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> HashArrays:
        n_attributes = len(context.domains)
        covers = covers_of(clauses, chosen, n_attributes)
        order = by_selectivity(clauses, covers, context)
        grains = wide_grains(
            n_attributes,
            clauses.attributes,
            covers.piece_starts,
            covers.firsts,
            covers.lasts,
            self._cells_per_predicate,
        )
        covered = Covered(
            attributes=clauses.attributes,
            piece_starts=covers.piece_starts,
            firsts=covers.firsts,
            lasts=covers.lasts,
            leaf_starts=covers.leaf_starts,
            # A cell of 2**31 spaces is the whole of an attribute.
            cell_places=_cell_places(covers, np.minimum(31, grains)),
        )
        access, n_keys = choose_access(
            self._n_access, self._most_keys, chosen, clauses.starts, order, clauses.kinds, covered
        )
        counts, table = self._table(clauses, chosen, covers, order, covered, access, n_keys)
        rest = chosen[n_keys == 0]
        if len(rest) < len(chosen):
            covers = covers_of(clauses, rest, n_attributes)
            order = by_selectivity(clauses, covers, context)
        bloom = lay_out_bloom(self.name, clauses, rest, covers, order, self._bits_per_id, self._memory_limit_mb)
        bloom_arrays = {f"bloom_{name}": array for name, array in bloom._asdict().items()}
        return HashArrays(counts=counts, **table._asdict(), **bloom_arrays)

    def _table(
        self,
        clauses: Clauses,
        chosen: NDArray[np.int32],
        covers: Covers,
        order: NDArray[np.int64],
        covered: Covered,
        access: NDArray[np.int64],
        n_keys: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], Table]:
        """Return how many access predicates, entries and keys there are; the trees, the filter and the hash table."""
        n_entries, n_hashed = int(n_keys.sum()), int(np.count_nonzero(n_keys))
        log2_buckets = max(1, (n_entries // _ENTRIES_PER_BUCKET).bit_length())
        n_filter_words = _n_filter_words(n_hashed, len(covered.cell_places), self._n_access)
        # While it is made, the table needs the keys as well; as if all were different.
        n_bytes = 4 * n_entries * (2 * self._n_access + N_FIELDS + 4) + (12 << log2_buckets) + 8 * n_filter_words
        limit_mb = min(self._memory_limit_mb, _MOST_MB)
        check_memory(self.name, n_bytes, limit_mb, f"{n_entries:,} entries of access predicates")
        filter_words = np.zeros(n_filter_words, dtype=np.uint64)
        keys = np.empty((n_entries, self._n_access), dtype=np.int32)
        owners = np.empty(n_entries, dtype=np.int32)
        buckets = np.empty(n_entries, dtype=np.uint32)
        key_starts = np.empty((1 << log2_buckets) + 1, dtype=np.int64)
        make_keys(
            access, n_keys, self._most_keys, covered, filter_words, log2_buckets, keys, owners, buckets, key_starts
        )
        by_bucket = np.empty(n_entries, dtype=np.uint32)
        n_different = group_keys(keys, buckets, key_starts, by_bucket)
        entries = make_entries(chosen, access, order, clauses.literals, n_keys)
        stream = np.empty(n_entries * N_FIELDS + n_different * (self._n_access + 1), dtype=np.int32)
        bucket_starts = np.empty(len(key_starts), dtype=np.uint32)
        fill_stream(keys, owners, by_bucket, key_starts, entries, stream, bucket_starts)
        counts = np.array([self._n_access, n_entries, n_different])
        table = Table(covers.leaf_starts, covers.cuts, covered.cell_places, filter_words, bucket_starts, stream)
        return counts, table

    def _match_part(self, part: Part, event: OneEvent) -> Found:
        arrays: HashArrays = part.arrays
        n_access = int(arrays.counts[0])
        found, n_keys, n_candidates, n_verified, n_tested = match_hash(
            event.attributes, event.codes, self._dense(), n_access, part.handle(Literals), part.handle(Table)
        )
        counters = self._counters
        counters["keys_looked_up"] += n_keys
        counters["rejected_by_next"] += n_candidates - n_verified
        counters["verified"] += n_verified
        counters["matched"] += len(found)
        # The next literal of every candidate is tested where its entry stands.
        hashed = Found(found, n_candidates, n_candidates + n_tested, n_keys)
        if len(arrays.bloom_entries) == 0:
            return hashed
        places = self._scratch.array("places", len(arrays.bloom_leaf_starts), np.int64, -1)
        literals, bloom = part.handle(Literals), part.handle(BloomArrays, "bloom_")
        result = match_bloom(event.attributes, event.codes, self._dense(), places, literals, bloom)
        posted = count_work(counters, result, len(event.attributes))
        return Found(
            clauses=np.concatenate([hashed.clauses, posted.clauses]),
            n_candidates=hashed.n_candidates + posted.n_candidates,
            n_predicates=hashed.n_predicates + posted.n_predicates,
            n_lists=hashed.n_lists + posted.n_lists,
        )

    def _check_part(self, part: Part) -> None:
        arrays: HashArrays = part.arrays
        check_bloom(part, arrays.bloom)
        check_trees(arrays.leaf_starts, arrays.cuts)
        assert arrays.bucket_starts[-1] == len(arrays.stream)
        assert (np.diff(arrays.bucket_starts.astype(np.int64)) >= 0).all()
        entries = _entries_of(arrays)
        used = np.flatnonzero(np.diff(arrays.leaf_starts))
        for cells, clause in entries:
            assert cells == sorted(set(cells))
            _check_entry(part.clauses, cells, clause, arrays, used)
        assert len({(*cells, clause) for cells, clause in entries}) == len(entries) == arrays.counts[1]
        hashed, posted = {clause for _, clause in entries}, set(arrays.bloom_entries[::4].tolist())
        assert not hashed & posted
        assert len(hashed) + len(posted) + len(part.others) == part.n_clauses

    def _describe_part(self, part: Part) -> list[str]:
        arrays: HashArrays = part.arrays
        n_access = int(arrays.counts[0])
        stats = self._stats_of_part(part)
        lines = [
            f"{stats['hashed_clauses']:,} clauses by {n_access} access predicates: {stats['entries']:,} entries of"
            f" {stats['keys']:,} keys in {len(arrays.bucket_starts) - 1:,} buckets, {len(arrays.cuts):,} spaces",
        ]
        if len(arrays.bloom_entries):
            lines += [
                f"{stats['bloom_clauses']:,} other clauses:",
                *(f"  {line}" for line in describe_bloom(arrays.bloom)),
            ]
        return lines

    def _stats_of_part(self, part: Part) -> dict[str, int]:
        arrays: HashArrays = part.arrays
        n_posted = len(np.unique(arrays.bloom_entries[::4]))
        return {
            "hashed_clauses": part.n_clauses - len(part.others) - n_posted,
            "bloom_clauses": n_posted,
            "entries": int(arrays.counts[1]),
            "keys": int(arrays.counts[2]),
        }


def _checked_count(name: str, number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _OPTION_MAX:
        raise ValueError(f"{name} must be a whole number from 1 to {_OPTION_MAX:,}, not {number!r}")
    return number


def _checked_cells(cells: Any) -> float:
    if isinstance(cells, bool) or not isinstance(cells, int | float) or not 0 < cells < float("inf"):
        raise ValueError(f"cells_per_predicate must be a positive number, not {cells!r}")
    return float(cells)


def _cell_places(covers: Covers, grains: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first cell of each attribute together with its grain."""
    n_leaves = np.diff(covers.leaf_starts)
    n_cells = (n_leaves + (1 << grains) - 1) >> grains
    places: NDArray[np.int64] = (np.cumsum(n_cells) - n_cells) << 6 | grains
    return places


def _n_filter_words(n_hashed: int, n_attributes: int, n_access: int) -> int:
    """Return the size of the filter: a power of two with room for every beginning of a key's attributes."""
    n_beginnings: int = min(n_hashed * n_access, 2 * n_attributes**n_access)
    return 1 << (n_beginnings * _BITS_PER_BEGINNING // 64).bit_length()


def _entries_of(arrays: HashArrays) -> list[tuple[list[int], int]]:
    """Return the cells and the clause of each entry, checking that keys and buckets fit together."""
    n_access, numbers = int(arrays.counts[0]), arrays.stream.tolist()
    found: list[tuple[list[int], int]] = []
    borders = {0, *arrays.bucket_starts.tolist()}
    at = 0
    while at < len(numbers):
        borders.discard(at)
        cells, n_entries = numbers[at : at + n_access], numbers[at + n_access]
        at += n_access + 1
        found += [(cells, numbers[at + N_FIELDS * k]) for k in range(n_entries)]
        at += N_FIELDS * n_entries
    assert borders <= {len(numbers)}
    return found


def _check_entry(clauses: Clauses, cells: list[int], clause: int, arrays: HashArrays, used: NDArray[Any]) -> None:
    """Assert that the clause of an entry has a literal that reaches into each cell of its key."""
    places, leaf_starts, cuts = arrays.cell_places, arrays.leaf_starts, arrays.cuts
    literals = range(int(clauses.starts[clause]), int(clauses.starts[clause + 1]))
    for cell in cells:
        attribute = int(used[np.searchsorted(places[used] >> 6, cell, side="right") - 1])
        grain = int(places[attribute]) & 63
        first = int(leaf_starts[attribute]) + ((cell - int(places[attribute] >> 6)) << grain)
        end = min(first + (1 << grain), int(leaf_starts[attribute + 1]))
        ranges = [pair for i in literals if clauses.attributes[i] == attribute for pair in positive_ranges(clauses, i)]
        assert any(low <= cuts[end - 1] and high >= cuts[first] for low, high in ranges)
