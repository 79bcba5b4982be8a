"""`propagation`: satisfied predicates set bits; each subscription is in a cluster under one of its predicates.

Paper: Fabret et al., Filtering Algorithms and Implementation for Very Fast Publish/Subscribe Systems, SIGMOD 2001, as
the baseline of Ji, Jacobsen, PS-Tree-based Efficient Boolean Expression Matching, PVLDB 12(3), 2018, section 2.

Idea: every distinct predicate is stored once and has a bit. A subscription is stored under one of its predicates, its
access predicate: the equality that fewest events satisfy, or any predicate if it has no equality. Those with the same
access predicate and the same number of remaining predicates form a cluster, a table with one column for each remaining
predicate. Stage 1 finds the predicates that an event satisfies and sets their bits; stage 2 goes through the clusters
of the satisfied ones, and reads the bits of the columns until one is not set.

Worked example

    0: a = 1 and b < 5                 predicates   p0: a = 1    p1: b = 3    p2: b < 5    p3: c > 2
    1: a = 1 and b < 5 and c > 2       clusters     p0, 1 remaining     column   p2        clauses  0 4
    2: b = 3                                                                     p3
    3: b < 5                                        p0, 2 remaining     columns  p3 p2     clauses  1
    4: a = 1 and c > 2                              p1, 0 remaining                        clauses  2
                                                    p2, 0 remaining                        clauses  3

    event {a: 1, b: 4}    stage 1: bits p0 and p2.  Stage 2, under p0: clause 0 (p2 is set), not 4, not 1;
                          under p2: clause 3.  Match: 0 and 3.

Arrays
------
list_starts : int64[3 * n_attributes + 1]
    Attribute a has three lists of ranges: 3a of single codes, 3a + 1 of bounded ranges, 3a + 2 of ranges up to the end
    of the numbers or strings. List l is at list_starts[l] : list_starts[l + 1] of the next four arrays.
lows, highs : int32[n_ranges], by ascending low and falling high; reaches : int32[n_ranges], the highest high so far.
predicates : int32[n_ranges], the predicate of a range; a set has several ranges.
predicate_clusters : int32[n_predicates + 1]
    The clusters under predicate p are predicate_clusters[p] : predicate_clusters[p + 1], by ascending width.
cluster_widths : int32[n_clusters], the number of remaining predicates.
block_starts : int64[n_clusters + 1], blocks : uint32[sum of members * (width + 1)]
    A cluster's block: its columns of predicates, the rarest first, one after the other, then its clauses.
has_veto : bool[n_clauses], whether codes must be compared when the clause is found.

Cost: 4 bytes a literal, 16 a distinct predicate and 16 a cluster; one bit a distinct predicate and thread. An event
walks the ranges of its attributes that begin below its values, as far as any reaches them, and the clusters of those
that hold.

Departures
D1  Additions and removals by parts (see parts.py): predicates are stored once in each part.
D2  After an event only the bits are cleared that it set. The PS-Tree paper's remark, that clearing all of them is what
    makes Propagation slow, thus does not hold here.
D3  Equalities are found by bisection in a sorted list, not by hashing: codes are ordered already.
D4  A cluster belongs to a single predicate. The paper's later variants also hash combinations of equalities.
D5  Without an equality the access predicate is the range or set that fewest events satisfy; in the paper equalities
    give access.
D6  Vetoes have no bits; a clause with some is checked once its other predicates hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from siftline.encoding.clauses import VETO, spans
from siftline.encoding.forms import EQUAL, forms
from siftline.encoding.selectivity import literal_shares
from siftline.indexes.parts import Context, Found, OneEvent, Part, PartedIndex
from siftline.indexes.propagation.kernels import (
    Layout,
    cluster_clauses,
    first_of_equal_sets,
    group_clauses,
    number_predicates,
    propagate_event,
    sorted_ranges,
)
from siftline.kernels.literals import order_literals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses


class Propagation(PartedIndex):
    """A predicate bit vector, and clusters under access predicates."""

    name: ClassVar[str] = "propagation"
    arrays_type: ClassVar[type] = Layout

    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> Layout:
        list_starts, lows, highs, reaches, predicates, of_literals, n_predicates = _predicates(clauses)
        # Equalities come first, then the others (D5); among both, the rarest.
        shares = literal_shares(clauses, context.domains, context.statistics) + (forms(clauses) != EQUAL)
        literal_order = order_literals(clauses.starts, shares, clauses.kinds)
        n_vetoes = _counts_in_clauses(clauses, clauses.kinds >= VETO)
        access = of_literals[literal_order[clauses.starts[chosen]]]
        n_remaining = (np.diff(clauses.starts) - n_vetoes - 1)[chosen].astype(np.int32)
        order = group_clauses(access, n_remaining, n_predicates)
        predicate_clusters, cluster_widths, block_starts, blocks = cluster_clauses(
            chosen[order],
            access[order],
            n_remaining[order],
            n_predicates,
            clauses.starts,
            literal_order,
            of_literals,
        )
        return Layout(
            list_starts=list_starts,
            lows=lows,
            highs=highs,
            reaches=reaches,
            predicates=predicates,
            predicate_clusters=predicate_clusters,
            cluster_widths=cluster_widths,
            block_starts=block_starts,
            blocks=blocks,
            has_veto=n_vetoes > 0,
        )

    def _match_part(self, part: Part, event: OneEvent) -> Found:
        arrays = part.arrays
        words = self._scratch.array("words", len(arrays.predicate_clusters) // 64 + 1, np.uint64)
        found, doubtful, n_candidates, n_predicates, n_lists = propagate_event(
            event.attributes, event.codes, words, part.handle(Layout)
        )
        if len(doubtful):  # D6
            held, n_tested = self._verified(part, doubtful, event)
            found, n_predicates = np.concatenate([found, held]), n_predicates + n_tested
        return Found(found, n_candidates, n_predicates, n_lists)

    def _check_part(self, part: Part) -> None:
        arrays = part.arrays
        n_predicates, n_clusters = len(arrays.predicate_clusters) - 1, len(arrays.cluster_widths)
        assert arrays.list_starts[0] == 0
        assert arrays.list_starts[-1] == len(arrays.lows) == len(arrays.highs) == len(arrays.reaches)
        assert sorted(set(arrays.predicates.tolist())) == list(range(n_predicates))
        for start, end in zip(arrays.list_starts[:-1], arrays.list_starts[1:], strict=True):
            lows, highs = arrays.lows[start:end].astype(np.int64), arrays.highs[start:end]
            assert (np.diff((lows << 32) - highs) >= 0).all()
            assert (np.maximum.accumulate(highs) == arrays.reaches[start:end]).all()
        assert arrays.predicate_clusters[-1] == n_clusters == len(arrays.block_starts) - 1
        assert arrays.block_starts[-1] == len(arrays.blocks)
        members = [self._members(arrays, cluster) for cluster in range(n_clusters)]
        found = sorted(np.concatenate([np.zeros(0), *members]).tolist())
        assert found == sorted(set(range(part.n_clauses)) - set(part.others.tolist()))
        assert len(arrays.has_veto) == part.n_clauses

    @staticmethod
    def _members(arrays: Layout, cluster: int) -> NDArray[np.uint32]:
        """Return the clauses of a cluster."""
        start, end = arrays.block_starts[cluster : cluster + 2]
        n_members = (end - start) // (arrays.cluster_widths[cluster] + 1)
        return arrays.blocks[end - n_members : end]

    def _describe_part(self, part: Part) -> list[str]:
        arrays = part.arrays
        n_predicates, n_clusters = len(arrays.predicate_clusters) - 1, len(arrays.cluster_widths)
        n_access = np.count_nonzero(np.diff(arrays.predicate_clusters))
        widths = np.bincount(arrays.cluster_widths)
        return [
            f"{n_predicates:,} distinct predicates, {n_access:,} of them access predicates of {n_clusters:,} clusters",
            *(f"{n:,} clusters with {width} remaining predicates" for width, n in enumerate(widths) if n),
        ]

    def _stats_of_part(self, part: Part) -> dict[str, int]:
        arrays = part.arrays
        return {
            "distinct_predicates": len(arrays.predicate_clusters) - 1,
            "access_predicates": int(np.count_nonzero(np.diff(arrays.predicate_clusters))),
            "clusters": len(arrays.cluster_widths),
        }


def _predicates(clauses: Clauses) -> Any:
    """Return list_starts, lows, highs, reaches and predicates; each literal's predicate; the number of predicates."""
    is_wanted = clauses.kinds < VETO
    plain = np.flatnonzero(is_wanted & (clauses.sets < 0))
    with_set = np.flatnonzero(is_wanted & (clauses.sets >= 0))
    firsts = first_of_equal_sets(
        with_set, clauses.attributes, clauses.sets, clauses.set_starts, clauses.set_lows, clauses.set_highs
    )
    distinct = with_set[firsts == with_set]
    set_starts = clauses.set_starts[clauses.sets[distinct]]
    lengths = clauses.set_starts[clauses.sets[distinct] + 1] - set_starts
    items = spans(set_starts, lengths)
    literals = np.concatenate([plain, np.repeat(distinct, lengths)])
    starts, literals, lows, highs = sorted_ranges(
        int(clauses.attributes.max(initial=-1)) + 1,
        literals,
        clauses.attributes[literals],
        np.concatenate([clauses.lows[plain], clauses.set_lows[items]]),
        np.concatenate([clauses.highs[plain], clauses.set_highs[items]]),
    )
    numbered = number_predicates(starts, literals, lows, highs, clauses.sets)
    list_starts, lows, highs, reaches, predicates, of_literals, n_predicates = numbered
    of_literals[with_set] = of_literals[firsts]
    return list_starts, lows, highs, reaches, predicates, of_literals, n_predicates


def _counts_in_clauses(clauses: Clauses, is_chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how many of the chosen literals each clause has."""
    totals = np.concatenate([[0], np.cumsum(is_chosen)])
    counts: NDArray[np.int64] = totals[clauses.starts[1:]] - totals[clauses.starts[:-1]]
    return counts
