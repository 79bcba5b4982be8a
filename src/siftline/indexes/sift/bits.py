"""Batches against a part of `sift`: which clauses are matched in bitmaps of 1,024 events, and which event by event.

In bitmaps, the cost of a clause does not depend on how many events satisfy its access literal; event by event, it does.
So the clauses under one attribute (a *cluster*) are matched in bitmaps if enough events visit them:

    cluster of `price`    60,000 clauses, ranges; 300 of 1,024 events have a price, each visits 9,000    →  bitmaps
    cluster of `city`     60,000 clauses, equalities; 300 events have a city, each visits 50             →  one by one

Only clauses in trees are matched in bitmaps. The arrays are made once matching batches without them has cost a good
part of what making them costs. So a program that matches few batches, or single events only, never pays for them.

Arrays
------
cut_starts : int64[n_attributes + 1], cuts : int32[]
    The elementary spaces of all literals in bitmaps; none for attributes with too many constants.
cluster_starts : int32[n_attributes + 1]
    The groups of an attribute.
group_rows : uint32[n_groups, 2], group_starts : int32[n_groups + 1]
    The rows of the access literal that the clauses of a group share, and where these clauses begin.
heads : uint16 or uint32 [n_clauses, 2 * HEAD], tail_starts : int32[n_clauses + 1], tails : the same type []
    The other literals; see `indexes/sift/bit_kernels.py`.
answers : int32[n_clauses]
    The slot of a clause; or its number with the sign bit, if it is inexact or some of its literals are not here.
covers : int32[n_spaces + 1]
    How many clauses an event with a value in this space visits.
"""

from __future__ import annotations

import math
import threading
from time import thread_time_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.indexes.protocol import Many
from siftline.indexes.sift.bit_kernels import (
    HEAD,
    BitClauses,
    Spaces,
    access_literals,
    by_event,
    count_visits,
    cover_spaces,
    fill_bitmaps,
    find_pairs,
    lay_clauses,
    piece_attributes,
    verify_pairs,
)
from siftline.indexes.sift.bitmaps import EVENTS, empty_bitmaps
from siftline.kernels.literals import Events, order_literals
from siftline.kernels.spaces import cut_attributes, spaces_of_ranges
from siftline.kernels.spans import side_by_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.events import EncodedEvents
    from siftline.indexes.parts import Part

# An attribute with more spaces than this has no bitmaps; a part with more rows than this in all has none (32 MB).
_MOST_CUTS: Final = 8192
_MOST_ROWS: Final = 1 << 18
# With fewer events, or clauses, the cost of one of them is not measured.
_MEASURED_MIN: Final = 64
# A measured cost is used after this many measurements.
_CHUNKS: Final = 4
# Every 32nd event of a batch (more of a small one) is sampled to estimate how many clauses the events visit.
_SAMPLE: Final = 32

# The arrays are made when matching without them has cost this share of making them: more batches are likely to come.
_PATIENCE: Final = 0.25
# The arrays are made even if all clusters together would be up to this many times slower in bitmaps: some are faster.
_HOPE: Final = 2

_NONE: Final = np.empty(0, dtype=np.int64)


class Costs(NamedTuple):
    """Nanoseconds, as measured on dense, zipf, ads and long with 1,000,000 subscriptions.

    The cost of an event without bitmaps is not among them. It is measured while batches are matched, because it differs
    by a factor of ten between long lists, which are read 64 entries at a time, and short lists that end in matches. The
    cost of a clause in bitmaps is measured too, once some were matched.
    """

    clause: float = 12.0  # a clause in bitmaps that stay in the L2 cache ...
    distant_clause: float = 20.0  # ... in larger ones ...
    remote_clause: float = 32.0  # ... and in bitmaps that hardly fit into the L3 cache
    block: float = 100_000.0  # 1,024 events: calls, and joining results
    row: float = 15.0  # a bitmap made
    value: float = 40.0  # finding the space of a value
    literal: float = 200.0  # a literal laid out

    def of_clause(self, n_rows: int) -> float:
        """Return the cost of a clause when there are this many bitmaps."""
        n_bytes = n_rows * EVENTS // 8
        return self.clause if n_bytes < 1 << 20 else self.distant_clause if n_bytes < 8 << 20 else self.remote_clause


COSTS: Final = Costs()


class BitArrays(NamedTuple):
    """See the head of this file."""

    cut_starts: NDArray[np.int64]
    cuts: NDArray[np.int32]
    cluster_starts: NDArray[np.int32]
    group_rows: NDArray[np.uint32]
    group_starts: NDArray[np.int32]
    heads: NDArray[Any]
    tail_starts: NDArray[np.int32]
    tails: NDArray[Any]
    answers: NDArray[np.int32]
    covers: NDArray[np.int32]

    @property
    def bit_clauses(self) -> BitClauses:
        """The clauses, for kernels."""
        return BitClauses(heads=self.heads, tail_starts=self.tail_starts, tails=self.tails, answers=self.answers)

    @property
    def n_rows(self) -> int:
        """The number of bitmaps: each attribute has two more than cuts."""
        return len(self.cuts) + 2 * (len(self.cut_starts) - 1)

    @property
    def cluster_sizes(self) -> NDArray[np.int64]:
        """The number of clauses under each attribute."""
        return np.diff(self.group_starts[self.cluster_starts]).astype(np.int64)


def laid_in_bits(
    clauses: Clauses, access_attributes: NDArray[np.int32], shares: NDArray[np.float64]
) -> BitArrays | None:
    """Lay out the clauses that are posted under an attribute; None if too many bitmaps would be needed."""
    n_attributes = int(clauses.attributes.max(initial=-1)) + 1
    owners = piece_attributes(clauses.attributes, clauses.sets, clauses.set_starts)
    is_plain = clauses.kinds == 0
    cut_starts, cuts = cut_attributes(
        n_attributes,
        np.concatenate([clauses.attributes[is_plain], owners]),
        np.concatenate([clauses.lows[is_plain], clauses.set_lows]),
        np.concatenate([clauses.highs[is_plain], clauses.set_highs]),
    )
    cut_starts, cuts, is_usable = _without_many(cut_starts, cuts)
    if len(cuts) + 2 * n_attributes > _MOST_ROWS:
        return None
    spaces = Spaces(
        *spaces_of_ranges(clauses.attributes, clauses.lows, clauses.highs, cut_starts, cuts),
        *spaces_of_ranges(owners, clauses.set_lows, clauses.set_highs, cut_starts, cuts),
    )
    order = order_literals(clauses.starts, shares, clauses.kinds)
    accesses = access_literals(access_attributes, is_usable, order, clauses.literals)
    chosen = np.flatnonzero(accesses >= 0).astype(np.int32)
    places, group_literals, group_starts = _grouped(accesses[chosen], spaces)
    group_attributes = clauses.attributes[group_literals]
    cluster_starts = np.searchsorted(group_attributes, np.arange(n_attributes + 1)).astype(np.int32)
    before = spaces.firsts[group_literals] + 2 * group_attributes + 1
    group_rows = np.stack([before, spaces.lasts[group_literals] + 2 * group_attributes + 2], axis=1).astype(np.uint32)
    dtype = np.uint16 if len(cuts) + 2 * n_attributes < 1 << 16 else np.uint32
    heads = np.empty((len(chosen), 2 * HEAD), dtype=dtype)
    answers = np.empty(len(chosen), dtype=np.int32)
    tail_starts = np.zeros(len(chosen) + 1, dtype=np.int32)
    laid = BitClauses(heads, tail_starts, np.empty(0, dtype=dtype), answers)
    slots, is_exact, literals = clauses.slots, clauses.is_exact, clauses.literals
    lay_clauses(chosen, places, accesses, order, literals, spaces, is_usable, slots, is_exact, laid)
    np.cumsum(tail_starts, out=tail_starts)
    tails = np.empty(int(tail_starts[-1]), dtype=dtype)
    if len(tails):
        laid = laid._replace(tails=tails)
        lay_clauses(chosen, places, accesses, order, literals, spaces, is_usable, slots, is_exact, laid)
    return BitArrays(
        cut_starts=cut_starts,
        cuts=cuts,
        cluster_starts=cluster_starts,
        group_rows=group_rows,
        group_starts=group_starts,
        heads=heads,
        tail_starts=tail_starts,
        tails=tails,
        answers=answers,
        covers=cover_spaces(chosen, accesses, literals, spaces, cut_starts),
    )


def _without_many(cut_starts: NDArray[np.int64], cuts: NDArray[np.int32]) -> tuple[Any, Any, NDArray[np.bool_]]:
    """Drop the cuts of attributes that have too many; return also which attributes have bitmaps."""
    counts = np.diff(cut_starts)
    is_usable = (counts > 0) & (counts <= _MOST_CUTS)
    left = np.where(is_usable, counts, 0)
    return np.concatenate([[0], np.cumsum(left)]).astype(np.int64), cuts[np.repeat(is_usable, counts)], is_usable


def _grouped(
    literals: NDArray[np.int64], spaces: Spaces
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Group clauses by access literal: return their places, and for each group its literal and its start."""
    keys = (spaces.firsts[literals].astype(np.int64) << 32) | spaces.lasts[literals]
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    places = np.empty(len(order), dtype=np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return places, literals[order[starts]], np.append(starts, len(order)).astype(np.int32)


class Bits:
    """The bitmaps of one part: made when that is worth its cost, used for the clusters that they make faster."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.arrays: BitArrays | None = None
        self.event_ns = math.inf  # the least cost of an event without bitmaps; interruptions only add to it
        self._with_ns = math.inf  # the least cost of an event of a chunk with some clusters in bitmaps
        self._clause_ns = math.inf
        self._n_chunks = self._n_events = self._n_blocks = self._n_with = 0
        self._is_settled = False
        self._making = threading.Lock()

    def observe(self, n_events: int, elapsed_ns: int) -> None:
        """Record the time of events that were matched without bitmaps."""
        if n_events >= _MEASURED_MIN:
            self._n_chunks += 1
            self._n_events += n_events
            self.event_ns = min(self.event_ns, elapsed_ns / n_events)

    def observe_with(self, n_events: int, elapsed_ns: int) -> None:
        """Record the time of events with bitmaps, and drop the arrays if that is no faster.

        `Costs` does not include clauses that must be verified because an attribute has too many constants.
        """
        if n_events >= _MEASURED_MIN:
            self._n_with += 1
            self._with_ns = min(self._with_ns, elapsed_ns / n_events)
            if self._n_with >= _CHUNKS and self._with_ns > self.event_ns:
                self.arrays = None

    def wants_arrays(self, part: Part) -> bool:
        """Return whether batches have cost enough to lay out the arrays.

        It never is if no cluster is likely to be faster in bitmaps. The first chunks do not count: they may have waited
        for the compiler.
        """
        if self._is_settled or self._n_chunks < _CHUNKS:
            return False
        costs = self.costs
        is_likely = _HOPE * self.event_ns * EVENTS > part.n_clauses * costs.distant_clause
        spent = self._n_events * self.event_ns
        return is_likely and spent > _PATIENCE * len(part.clauses.attributes) * costs.literal

    def lay_out(self, part: Part, access_attributes: NDArray[np.int32], shares: NDArray[np.float64]) -> None:
        """Make the arrays, unless another thread is making them."""
        if not self._making.acquire(blocking=False):
            return
        try:
            if not self._is_settled:
                self.arrays = laid_in_bits(part.clauses, access_attributes, shares)
                self._is_settled = True
        finally:
            self._making.release()

    def choose(self, arrays: BitArrays | None, events: EncodedEvents, first: int, end: int) -> NDArray[np.int64]:
        """Return the attributes whose clusters are faster in bitmaps."""
        costs = self.costs
        if arrays is None:
            return _NONE
        n_events = end - first
        step = max(1, min(_SAMPLE, n_events // _SAMPLE))
        values = Events(events.starts, events.attributes, events.codes)
        visits = count_visits(first, end, step, values, arrays.cut_starts, arrays.cuts, arrays.covers)
        # The time of an event is divided among the clauses that it visits. Spreading its values is not saved.
        spread_ns = int(events.starts[end] - events.starts[first]) * costs.value
        saved_ns = max(n_events * self.event_ns - spread_ns, 0) * visits / max(1, visits.sum())
        n_blocks = -(-n_events // EVENTS)
        clause_ns = self._clause_ns if self._n_blocks >= _CHUNKS else costs.of_clause(arrays.n_rows)
        gains = saved_ns - n_blocks * clause_ns * arrays.cluster_sizes
        overhead = n_blocks * (costs.block + arrays.n_rows * costs.row) + spread_ns
        return np.flatnonzero(gains > 0) if gains[gains > 0].sum() > overhead else _NONE

    def match(
        self,
        arrays: BitArrays,
        chosen: NDArray[np.int64],
        events: EncodedEvents,
        span: tuple[int, int],
        several: NDArray[np.int64],
        part: Part,
        dense: NDArray[np.int32],
        is_live: NDArray[np.bool_],
    ) -> Many:
        """Match the clusters of the chosen attributes for the events of a span, except those with several values."""
        bitmaps = empty_bitmaps(arrays.n_rows)
        n_clauses = max(_MEASURED_MIN, int(arrays.cluster_sizes[chosen].sum()))
        live_flags = is_live if part.n_dead else is_live[:0]
        values = Events(events.starts, events.attributes, events.codes)
        slots, is_exact, literals = part.clauses.slots, part.clauses.is_exact, part.literals
        blocks = []
        for first in range(span[0], span[1], EVENTS):
            n = min(EVENTS, span[1] - first)
            is_left_out = np.zeros(n, dtype=np.bool_)
            is_left_out[several[(several >= first) & (several < first + n)] - first] = True
            fill_bitmaps(first, first + n, is_left_out, values, arrays.cut_starts, arrays.cuts, bitmaps)
            before = thread_time_ns()
            sure_events, sure_slots, open_events, open_clauses = find_pairs(
                chosen,
                live_flags,
                arrays.cluster_starts,
                arrays.group_rows,
                arrays.group_starts,
                arrays.bit_clauses,
                bitmaps,
            )
            self._clause_ns = min(self._clause_ns, (thread_time_ns() - before) / n_clauses)
            self._n_blocks += 1
            pair_starts, pair_clauses = by_event(n, open_events, open_clauses)
            rest = Many(
                *verify_pairs(first, pair_starts, pair_clauses, values, dense, literals, slots, is_exact, is_live)
            )
            starts, sure = by_event(n, sure_events, sure_slots)
            blocks.append(beside(rest, Many(starts, sure, np.zeros(n + 1, dtype=np.int64), rest.possible[:0])))
        return blocks[0] if len(blocks) == 1 else _one_after_the_other(blocks)


def beside(found: Many, others: Many) -> Many:
    """Join two results for the same events."""
    starts, sure = found.starts, found.sure
    if len(others.sure):
        starts, sure = (
            side_by_side(starts, sure, others.starts, others.sure) if len(sure) else (others.starts, others.sure)
        )
    possible_starts, possible = found.possible_starts, found.possible
    if len(others.possible):
        possible_starts, possible = (
            side_by_side(possible_starts, possible, others.possible_starts, others.possible)
            if len(possible)
            else (others.possible_starts, others.possible)
        )
    return Many(starts, sure, possible_starts, possible)


def _one_after_the_other(blocks: list[Many]) -> Many:
    """Join the results of consecutive spans of events."""
    return Many(
        _joined_starts([block.starts for block in blocks]),
        np.concatenate([block.sure for block in blocks]),
        _joined_starts([block.possible_starts for block in blocks]),
        np.concatenate([block.possible for block in blocks]),
    )


def _joined_starts(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in parts]))]).astype(np.int64)
