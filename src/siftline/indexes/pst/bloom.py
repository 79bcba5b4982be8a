"""`pst-bloom`: PSTBloom, one access predicate a clause and Bloom signatures for the others.

Paper: S. Ji and H.-A. Jacobsen, "PS-Tree-Based Efficient Boolean Expression Matching for High-Dimensional and Dense
Workloads", PVLDB 12(3), 2018, sections 3.3 and 5.

Idea: the bounds of all predicates cut each attribute into spaces, the leaves of its tree. A clause is posted in every
leaf that its most selective predicate, the access predicate, covers. Its other predicates put its id into the signature
of each leaf that they cover. A value of an event lies in one leaf; the clauses posted there are candidates. A candidate
is rejected if an attribute that it needs is absent, or if the signature of that attribute's leaf does not have its id.
The others are checked exactly.

Worked example (Fig. 3 of the paper), over the numbers themselves instead of their codes:

    S1: a < -5 and b between 1 and 5      S2: a between -5 and -1 and b < 1      S3: a between -5 and -1 and b > 5

    tree of a    |  ... -5)   | [-5 .. -1] | (-1 ...     tree of b    |  ... 1)    | [1 .. 5]   | (5 ...
    postings     |            | S2 S3      |             postings     |            | S1         |
    signature    | {S1}       | {}         | {}          signature    | {S2}       | {}         | {S3}

    event {a: -3, b: 0}: the leaf of a posts S2 and S3; both name b, which is there; its signature has S2, not S3.

Arrays
------
leaf_starts : int64[n_attributes + 1]
    The leaves of attribute a are leaf_starts[a] : leaf_starts[a + 1].
cuts : int32[n_leaves]
    The lowest code of each leaf, ascending in an attribute. A leaf ends before the next; below the first there is none.
posting_starts : int64[n_leaves + 1]
    The postings of leaf k are posting_starts[k] : posting_starts[k + 1].
entries : int32[n_postings * 4]
    Each posting: the clause, and attribute + 1 of its three most selective other predicates, 0 where there are fewer.
    The clauses of a leaf ascend.
signature_places : int64[n_attributes]
    64 * (first word of the attribute's signatures) + log2(bits of a signature); 0 if the attribute has none.
signatures : uint64[n_words]
    One after the other in the order of leaves, each a power of two of at least 64 bits; the bit of clause c is c modulo
    the size. Word 0 is full: it is what an attribute without signatures reads.

Cost: O(values * log leaves + 16 bytes streamed a candidate), then one cache miss for each signature that is asked.
Space: 16 bytes for each leaf that an access predicate covers, and `signature_bits_per_id` to twice as many bits for
each leaf that a signed predicate covers.

Departures
----------
D1  Additions and removals make new parts instead of changing trees in place (see `indexes.parts`); an id leaves a
    signature when its part is rebuilt.
D2  A tree is a sorted array of cuts, searched by halving, where the paper has a trie over digits: the spaces are the
    same, and one part needs no insertion.
D3  Only the three most selective other predicates are signed, and a posting names their attributes, so that a candidate
    is rejected by what is streamed. The remaining ones are left to the exact check, which few candidates reach: with
    1,000,000 subscriptions on 100 attributes, an event has 27,529 candidates: 26,351 are rejected because an attribute
    is absent and 828 by a signature; 350 are checked, of which 267 match.
D4  One hash function, and sizes by attribute: the smallest power of two with `signature_bits_per_id` bits for each id
    in an average leaf. The paper gives neither. With 4 to 8 bits, 12 to 22 % of those that should be rejected pass.
D5  An attribute whose signatures would take more than 256 bytes for each predicate in them at one bit an id gets none:
    with so many leaves under each predicate they would cost the square of their number.
D6  The exact check tests the access predicate too, because it is stored among the other literals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from siftline.indexes.parts import Context, Found, OneEvent, Part, PartedIndex, check_memory, checked_limit
from siftline.indexes.pst.access_predicates import by_selectivity, covers_of
from siftline.indexes.pst.bloom_kernels import (
    N_SIGNED,
    STRIDE,
    BloomArrays,
    Ordered,
    count_postings,
    count_signed,
    fill_postings,
    fill_signatures,
    group_signed,
    match_bloom,
)
from siftline.kernels.literals import Literals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.indexes.pst.access_predicates import Covers

# D5: with more bits than this for each range of an attribute, the attribute has no signatures.
_MOST_BITS_PER_PIECE: Final = 2048
_LEAST_SIZE: Final = 6
_MOST_SIZE: Final = 31

COUNTERS: Final = ("rejected_by_absence", "rejected_by_signature", "verified", "matched")


class PstBloom(PartedIndex):
    """One access predicate a clause; Bloom signatures for the others.

    Parameters
    ----------
    signature_bits_per_id : float
        Bits of a leaf's signature for each clause that has an average leaf of its attribute covered.
    memory_limit_mb : int
        A part that would be larger is refused.
    """

    name: ClassVar[str] = "pst-bloom"
    arrays_type: ClassVar[type] = BloomArrays

    def __init__(self, *, signature_bits_per_id: float = 4, memory_limit_mb: int = 8192) -> None:
        super().__init__()
        self._bits_per_id = checked_bits(signature_bits_per_id)
        self._memory_limit_mb = checked_limit(memory_limit_mb)
        self._counters |= dict.fromkeys(COUNTERS, 0)

    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> BloomArrays:
        covers = covers_of(clauses, chosen, len(context.domains))
        order = by_selectivity(clauses, covers, context)
        return lay_out_bloom(self.name, clauses, chosen, covers, order, self._bits_per_id, self._memory_limit_mb)

    def _match_part(self, part: Part, event: OneEvent) -> Found:
        places = self._scratch.array("places", len(part.arrays.leaf_starts), np.int64, -1)
        literals, arrays = part.handle(Literals), part.handle(BloomArrays)
        result = match_bloom(event.attributes, event.codes, self._dense(), places, literals, arrays)
        return count_work(self._counters, result, len(event.attributes))

    def _check_part(self, part: Part) -> None:
        check_bloom(part, part.arrays)

    def _describe_part(self, part: Part) -> list[str]:
        return describe_bloom(part.arrays)

    def _stats_of_part(self, part: Part) -> dict[str, int]:
        return stats_of_bloom(part.arrays)


def checked_bits(bits: Any) -> float:
    """Return the option `signature_bits_per_id`, or raise ValueError."""
    if isinstance(bits, bool) or not isinstance(bits, int | float) or not 0.5 <= bits <= 64:
        raise ValueError(f"signature_bits_per_id must be a number from 0.5 to 64, not {bits!r}")
    return float(bits)


def lay_out_bloom(
    name: str,
    clauses: Clauses,
    chosen: NDArray[np.int32],
    covers: Covers,
    order: NDArray[np.int64],
    bits_per_id: float,
    memory_limit_mb: int,
) -> BloomArrays:
    """Return the postings and signatures of the chosen clauses, whose literals are given in order of selectivity."""
    ordered = Ordered(
        starts=clauses.starts,
        order=order,
        attributes=clauses.attributes,
        kinds=clauses.kinds,
        piece_starts=covers.piece_starts,
        firsts=covers.firsts,
        lasts=covers.lasts,
    )
    leaf_starts, cuts = covers.leaf_starts, covers.cuts
    posting_starts = count_postings(chosen, ordered, len(cuts))
    n_pieces, n_covered = count_signed(chosen, ordered, len(leaf_starts) - 1)
    places, n_words = _signature_places(np.diff(leaf_starts), n_pieces, n_covered, bits_per_id)
    n_bytes = 4 * STRIDE * int(posting_starts[-1]) + 8 * n_words
    check_memory(name, n_bytes, memory_limit_mb, f"{int(posting_starts[-1]):,} postings of access predicates")
    # Large arrays are made here and not in kernels: NumPy requests huge pages, which saves TLB misses.
    entries = np.empty(STRIDE * posting_starts[-1], dtype=np.int32)
    fill_postings(chosen, ordered, posting_starts, entries)
    group_starts = np.concatenate([[0], np.cumsum(n_pieces)])
    grouped = np.empty((group_starts[-1], 3), dtype=np.int32)
    group_signed(chosen, ordered, group_starts, grouped)
    signatures = np.empty(n_words, dtype=np.uint64)
    fill_signatures(group_starts, grouped, leaf_starts, places, signatures)
    return BloomArrays(leaf_starts, cuts, posting_starts, entries, places, signatures)


def _signature_places(
    n_leaves: NDArray[np.int64], n_pieces: NDArray[np.int64], n_covered: NDArray[np.int64], bits_per_id: float
) -> tuple[NDArray[np.int64], int]:
    """Return where the signatures of each attribute start and how large each is, and the words of all (D4, D5)."""
    loads = n_covered / np.maximum(n_leaves, 1)  # ids in an average leaf
    wanted = np.ceil(np.log2(np.maximum(bits_per_id * loads, 1)))
    most = np.floor(np.log2(np.maximum(_MOST_BITS_PER_PIECE * n_pieces / np.maximum(n_leaves, 1), 1)))
    sizes = np.minimum(np.clip(wanted, _LEAST_SIZE, _MOST_SIZE), most).astype(np.int64)
    has_any = (sizes >= _LEAST_SIZE) & (loads <= 1 << sizes)
    n_words = np.where(has_any, n_leaves << np.maximum(sizes - 6, 0), 0)
    firsts = 1 + np.cumsum(n_words) - n_words
    return np.where(has_any, firsts << 6 | sizes, 0), 1 + int(n_words.sum())


def count_work(counters: dict[str, int], result: tuple[Any, ...], n_lists: int) -> Found:
    """Add what `match_bloom` has done to the counters of an index."""
    found, n_candidates, n_present, n_verified, n_tested = result
    counters["rejected_by_absence"] += n_candidates - n_present
    counters["rejected_by_signature"] += n_present - n_verified
    counters["verified"] += n_verified
    counters["matched"] += len(found)
    return Found(found, n_candidates, n_tested, n_lists)


def describe_bloom(arrays: BloomArrays) -> list[str]:
    """Return lines on trees, postings and signatures."""
    stats = stats_of_bloom(arrays)
    n_bits, n_set = stats["signature_bits"], stats["signature_bits_set"]
    return [
        f"{stats['trees']:,} trees with {stats['leaves']:,} leaves, {stats['postings']:,} postings",
        f"signatures of {n_bits:,} bits, {100 * n_set / max(n_bits, 1):.0f} % of them set:"
        " so many of the ids that a leaf does not have pass",
    ]


def stats_of_bloom(arrays: BloomArrays) -> dict[str, int]:
    """Return numbers on trees, postings and signatures."""
    return {
        "trees": int(np.count_nonzero(np.diff(arrays.leaf_starts))),
        "leaves": len(arrays.cuts),
        "postings": len(arrays.entries) // STRIDE,
        "signature_bits": 64 * (len(arrays.signatures) - 1),
        "signature_bits_set": int(np.bitwise_count(arrays.signatures[1:]).sum()),
    }


def check_bloom(part: Part, arrays: BloomArrays) -> None:
    """Assert the invariants of trees, postings and signatures."""
    leaf_starts, cuts, posting_starts, entries = arrays.leaf_starts, arrays.cuts, arrays.posting_starts, arrays.entries
    places, signatures = arrays.signature_places, arrays.signatures
    check_trees(leaf_starts, cuts)
    assert len(posting_starts) == len(cuts) + 1
    assert (np.diff(posting_starts) >= 0).all()
    assert len(entries) == STRIDE * posting_starts[-1]
    assert signatures[0] == np.iinfo(np.uint64).max
    n_words = np.diff(leaf_starts) << np.maximum((places & 63) - 6, 0)
    assert len(signatures) == 1 + n_words[places > 0].sum()
    rows = entries.reshape(-1, STRIDE)
    leaves = np.repeat(np.arange(len(cuts)), np.diff(posting_starts))
    order = np.argsort(rows[:, 0], kind="stable")
    clauses, firsts = np.unique(rows[order, 0], return_index=True)
    for clause, posted in zip(clauses.tolist(), np.split(order, firsts[1:])[: len(clauses)], strict=True):
        assert (rows[posted] == rows[posted[0]]).all()
        _check_clause(part.clauses, clause, leaves[posted].tolist(), rows[posted[0], 1:].tolist(), arrays)


def check_trees(leaf_starts: NDArray[np.int64], cuts: NDArray[np.int32]) -> None:
    """Assert that the cuts of every attribute ascend."""
    assert leaf_starts[0] == 0
    assert leaf_starts[-1] == len(cuts)
    assert (np.diff(leaf_starts) >= 0).all()
    is_first = np.zeros(len(cuts) + 1, dtype=np.bool_)
    is_first[leaf_starts] = True
    assert ((np.diff(cuts) > 0) | is_first[1:-1]).all()


def positive_ranges(clauses: Clauses, literal: int) -> list[tuple[int, int]]:
    """Return the ranges of a literal, none for a veto."""
    if clauses.kinds[literal] > 1:
        return []
    if clauses.sets[literal] < 0:
        return [(int(clauses.lows[literal]), int(clauses.highs[literal]))]
    start, end = clauses.set_starts[clauses.sets[literal] :][:2]
    return list(zip(clauses.set_lows[start:end].tolist(), clauses.set_highs[start:end].tolist(), strict=True))


def is_signed(arrays: BloomArrays, attribute: int, leaves: list[int], clause: int) -> list[bool]:
    """Return whether the signatures of leaves of an attribute may have a clause."""
    place = int(arrays.signature_places[attribute])
    if place == 0:
        return [True] * len(leaves)
    size = 1 << (place & 63)
    bits = (place >> 6 << 6) + (np.array(leaves) - arrays.leaf_starts[attribute]) * size + clause % size
    found: list[bool] = (arrays.signatures[bits >> 6] >> (bits & 63).astype(np.uint64) & np.uint64(1) == 1).tolist()
    return found


def _check_clause(clauses: Clauses, clause: int, posted: list[int], named: list[int], arrays: BloomArrays) -> None:
    """Assert that a clause is posted in the leaves of one literal, and signed in those of the others that it names."""
    literals = range(int(clauses.starts[clause]), int(clauses.starts[clause + 1]))
    covered = {i: _covered_leaves(clauses, i, arrays) for i in literals if positive_ranges(clauses, i)}
    assert posted in covered.values()
    assert sum(entry > 0 for entry in named) == min(N_SIGNED, len(covered) - 1)
    for attribute in {entry - 1 for entry in named if entry}:
        own = [leaves for i, leaves in covered.items() if clauses.attributes[i] == attribute]
        assert any(all(is_signed(arrays, attribute, leaves, clause)) for leaves in own)


def _covered_leaves(clauses: Clauses, literal: int, arrays: BloomArrays) -> list[int]:
    """Return the leaves whose codes satisfy a literal."""
    start, end = arrays.leaf_starts[clauses.attributes[literal] :][:2].tolist()
    leaves: list[int] = []
    for low, high in positive_ranges(clauses, literal):
        first, last = np.searchsorted(arrays.cuts[start:end], [low, high + 1]).tolist()
        leaves += range(start + first, start + last)
    return leaves
