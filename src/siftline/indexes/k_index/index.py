"""`k-index`: posting lists by size, attribute and value; a clause that occurs as often as its size holds.

Paper: Whang et al., Indexing Boolean Expressions, PVLDB 2(1), 2009, as the baseline of Zhang, Chan, Tan, An Efficient
Publish/Subscribe Index for E-Commerce Databases (OpIndex), PVLDB 7(8), 2014, section 3 and Fig. 2; CNF: section 6.1.

Idea: clauses are partitioned by size, the number of attributes that a match needs. In a partition every literal is
rewritten to equalities, and each of these adds the clause to the list of (size, attribute, value). An event reads only
partitions that are not larger than itself, and in these only the lists of its own values: a clause of size k that is on
k of these lists holds. Our values are elementary spaces: the constants of the literals cut each attribute into
spaces in which nothing changes, and a range is posted once for every space that it covers.

Worked example (the literals cut the values of a into the spaces <2, 2 and >2)

    0: a = 2              size 1                        (1, a, 2): 0
    1: a <= 2 and b = 1   size 2      (2, a, <2): 1     (2, a, 2): 1 2     (2, b, 1): 1
    2: a >= 2 and b = 3   size 2      (2, a, >2): 2                        (2, b, 3): 2

    event {a: 2, b: 3}    size 1: list (1, a, 2), clause 0 has 1 of 1.
                          size 2: lists (2, a, 2) and (2, b, 3), clause 1 has 1 of 2, clause 2 has 2 of 2.
    event {a: 2}          size 1: clause 0.  Partition 2 is not read.

Arrays (an *id* is what stands in a list: a clause that is counted, or one group of a clause with alternatives)
------
cut_starts : int64[n_attributes + 1], cuts : int32[n_spaces]
    The spaces of attribute a begin at the codes cuts[cut_starts[a] : cut_starts[a + 1]], ascending.
space_lists : int32[n_spaces + 1]
    The lists of space s are space_lists[s] : space_lists[s + 1], one for each partition that has ids there.
list_partitions : uint16[n_lists], list_starts : int64[n_lists + 1]
    The ids of list l are postings[list_starts[l] : list_starts[l + 1]]; partitions ascend within a space.
postings : uint32[n_entries], ascending within a list, none twice on a list of counted clauses.
partition_sizes : uint8[n_partitions], partition_starts : int64[n_partitions + 1]
    Ascending sizes; of one size the counted clauses come first. Partition p has the ids partition_starts[p] : [p + 1].
owners : int32[n_ids], is_checked : bool[n_ids]
    The clause of an id, and whether codes must be compared once more when it is found.
bits, n_bits : uint8[n_ids]
    For a group its number in the clause, and how many the clause has, side by side; 0 and 0 for a counted clause.
widest : int64[2], the number of ids of the largest partition of counted clauses, and of groups.
n_literals : int64[1], how many literals were posted, as one entry or as many.

Cost: 4 bytes for every space that a literal covers, 10 a list; an event counts along one list for each of its
values and partitions: all that its values satisfy in the partitions that are small enough.

Departures
D1  Additions and removals by parts (see parts.py); the original is never changed.
D2  Lists are ordered by attribute and space first and by size second: a value is located once for all partitions.
D3  One counter a clause, as the OpIndex paper describes it, instead of merging sorted lists with skipping (Whang et
    al., Alg. 1). In a partition the counters are neighbours, and stay in the cache. Measured in us an event, counting
    and merging: 112 and 2,042 (dense, 100,000 subscriptions), 7 and 37 (all equalities), 3.3 and 2.5 (sparse, all
    equalities, 200,000 subscriptions): merging is a little faster where lists have one entry, and slower elsewhere.
D4  Of several literals on one attribute the narrowest is posted and the others are checked, so that the size is the
    number of attributes. Vetoes are not counted, but checked. If the event has several values of an attribute, all is.
D5  The bitmap of a clause with alternatives has a bit for each group without a veto; a set bit means matched, so that
    a cleared bitmap is all zero. Its size is a number of groups that share no attribute: the least number of attributes
    that a match needs is at least that. Groups with a veto need none, and are checked.
D6  At most 255 attributes are counted, and 64 groups have a bit; the check decides the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from siftline.encoding.clauses import spans
from siftline.indexes.k_index.kernels import Layout, choose_literals, count_event, cut_into_lists, post, posted_ranges
from siftline.indexes.parts import Context, Found, OneEvent, Part, PartedIndex, check_memory, checked_limit
from siftline.kernels.spaces import cut_attributes, spaces_of_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses

_ENTRY_BYTES: Final = 4
_LIST_BYTES: Final = 10


class KIndex(PartedIndex):
    """Posting lists by size, attribute and space.

    Parameters
    ----------
    memory_limit_mb : int
        A part whose posting lists would be larger is refused with TooLargeError.
    """

    name: ClassVar[str] = "k-index"
    takes_alternatives: ClassVar[bool] = True
    arrays_type: ClassVar[type] = Layout

    def __init__(self, *, memory_limit_mb: int = 8192) -> None:
        super().__init__()
        self._memory_limit_mb = checked_limit(memory_limit_mb)

    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> Layout:
        n_attributes = int(clauses.attributes.max(initial=-1)) + 1
        sizes, n_bits, is_checked, literal_bits = choose_literals(
            n_attributes,
            chosen,
            clauses.starts,
            clauses.attributes,
            clauses.lows,
            clauses.highs,
            clauses.kinds,
            clauses.is_alternative,
        )
        # Whang et al.: one partition for each size; clauses with bitmaps have their own (D5).
        keys = 2 * sizes.astype(np.uint16) + (n_bits > 0)
        order = np.argsort(keys, kind="stable")
        n_ids = np.maximum(n_bits, 1)[order].astype(np.int64)
        first_ids = np.cumsum(n_ids) - n_ids
        partition_keys = np.flatnonzero(np.bincount(keys))
        partition_starts = np.searchsorted(np.repeat(keys[order], n_ids), [*partition_keys, np.iinfo(np.uint16).max])
        ids, attributes, lows, highs = posted_ranges(
            chosen[order],
            first_ids,
            literal_bits,
            clauses.starts,
            clauses.attributes,
            clauses.lows,
            clauses.highs,
            clauses.sets,
            clauses.set_starts,
            clauses.set_lows,
            clauses.set_highs,
        )
        n_literals = int(np.count_nonzero(literal_bits >= 0))
        lists = self._posted(n_attributes, n_literals, partition_starts, ids, attributes, lows, highs)
        return Layout(
            **lists,
            partition_sizes=(partition_keys // 2).astype(np.uint8),
            partition_starts=partition_starts,
            owners=np.repeat(chosen[order], n_ids),
            is_checked=np.repeat(is_checked[order], n_ids),
            bits=spans(np.zeros(len(n_ids), dtype=np.int64), n_ids).astype(np.uint8),
            n_bits=np.repeat(n_bits[order], n_ids),
            widest=_widest(np.diff(partition_starts), partition_keys % 2),
            n_literals=np.array([n_literals]),
        )

    def _posted(
        self,
        n_attributes: int,
        n_literals: int,
        partition_starts: NDArray[np.int64],
        ids: NDArray[np.uint32],
        attributes: NDArray[np.int32],
        lows: NDArray[np.int32],
        highs: NDArray[np.int32],
    ) -> dict[str, NDArray[Any]]:
        """Return cuts, and for the spaces between them lists of the ranges that cover them."""
        cut_starts, cuts = cut_attributes(n_attributes, attributes, lows, highs)
        firsts, lasts = spaces_of_ranges(attributes, lows, highs, cut_starts, cuts)
        n_entries = int((lasts.astype(np.int64) - firsts + 1).sum())
        self._check_memory(n_literals, n_entries, len(cuts) * (len(partition_starts) - 1))
        # OpIndex, section 3: a range becomes one entry for each of its values, which here are spaces.
        space_starts, postings = post(ids, firsts, lasts, len(cuts))
        space_lists, list_partitions, list_starts = cut_into_lists(space_starts, postings, partition_starts)
        return {
            "cut_starts": cut_starts,
            "cuts": cuts,
            "space_lists": space_lists,
            "list_partitions": list_partitions,
            "list_starts": list_starts,
            "postings": postings,
        }

    def _check_memory(self, n_literals: int, n_entries: int, most_lists: int) -> None:
        why = (
            f"{n_entries:,} posting entries: {n_literals:,} predicates are rewritten to one entry for every space"
            " between constants that they cover, and wide ranges cover many"
        )
        n_bytes = _ENTRY_BYTES * n_entries + _LIST_BYTES * min(n_entries, most_lists)
        check_memory(self.name, n_bytes, self._memory_limit_mb, why)

    def _match_part(self, part: Part, event: OneEvent) -> Found:
        arrays = part.arrays
        n_counts, n_bitmaps = arrays.widest.tolist()
        counts = self._scratch.array("counts", n_counts, np.uint8)
        matched = self._scratch.array("matched", n_bitmaps, np.uint64)
        dense = self._dense()
        found, doubtful, n_met, n_counted, n_lists = count_event(
            event.attributes, event.codes, dense, counts, matched, part.handle(Layout)
        )
        if len(doubtful):  # D4, D5, D6
            held, n_tested = self._verified(part, doubtful, event)
            found, n_counted = np.concatenate([found, held]), n_counted + n_tested
        return Found(found, n_met, n_counted, n_lists)

    def _check_part(self, part: Part) -> None:
        arrays = part.arrays
        n_ids, n_lists = len(arrays.owners), len(arrays.list_partitions)
        assert arrays.space_lists[0] == 0
        assert arrays.space_lists[-1] == n_lists == len(arrays.list_starts) - 1
        assert len(arrays.space_lists) == len(arrays.cuts) + 1 == arrays.cut_starts[-1] + 1
        assert arrays.list_starts[0] == 0
        assert arrays.list_starts[-1] == len(arrays.postings)
        assert (np.diff(arrays.list_starts) > 0).all()
        assert arrays.partition_starts[0] == 0
        assert arrays.partition_starts[-1] == n_ids == len(arrays.bits) == len(arrays.n_bits) == len(arrays.is_checked)
        assert (np.diff(arrays.partition_sizes.astype(np.int64)) >= 0).all()
        assert sorted(set(arrays.owners.tolist())) == sorted(set(range(part.n_clauses)) - set(part.others.tolist()))
        partitions = np.repeat(arrays.list_partitions, np.diff(arrays.list_starts))
        assert (arrays.postings >= arrays.partition_starts[partitions]).all()
        assert (arrays.postings < arrays.partition_starts[partitions.astype(np.int64) + 1]).all()
        is_inside = np.diff(np.repeat(np.arange(n_lists), np.diff(arrays.list_starts))) == 0
        is_counted = arrays.n_bits[arrays.postings[1:]] == 0
        steps = np.diff(arrays.postings.astype(np.int64))[is_inside]
        assert (steps >= is_counted[is_inside]).all()

    def _describe_part(self, part: Part) -> list[str]:
        arrays = part.arrays
        lists = np.bincount(arrays.list_partitions, minlength=len(arrays.partition_sizes))
        is_bitmap = arrays.n_bits[arrays.partition_starts[:-1]] > 0
        kinds = np.where(is_bitmap, "groups of clauses with alternatives", "clauses")
        rows = zip(arrays.partition_sizes, np.diff(arrays.partition_starts), kinds, lists, strict=True)
        return [f"size {size}: {n:,} {kind} on {n_lists:,} lists" for size, n, kind, n_lists in rows]

    def _stats_of_part(self, part: Part) -> dict[str, int]:
        return {
            "rewritten_entries": len(part.arrays.postings),
            "entries_without_rewriting": int(part.arrays.n_literals[0]),
            "posting_lists": len(part.arrays.list_partitions),
        }


def _widest(n_ids: NDArray[np.int64], is_bitmap: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of ids of the largest partition of each kind."""
    return np.array([n_ids[is_bitmap == kind].max(initial=0) for kind in (0, 1)], dtype=np.int64)
