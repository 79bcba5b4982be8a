"""`sift`: our own index.

Idea: cache misses cost more time than comparisons. So every clause is posted under the literal that the fewest events
satisfy (its *access literal*), and the posting itself has the literals that are most likely to reject it next. Frequent
attributes have a tree over their elementary spaces, in which a wide range is posted at a few nodes. Rare attributes
have one block, and reading one cache line of it is often enough. Data of single subscriptions is read only for the few
candidates that these tests leave.

Worked example: a clause  brand = 'x' and price between 3 and 8 and year > 2000 and not (color = 'red' is true)

    access literal   brand = 'x'        posted at the node of 'x' in the tree of `brand`
    posting          price 3..8, year   attribute of the second and the third literal, and 16 *marks* for each: one bit
                                        for each sixteenth of the attribute's ordinals in which the value may lie
    row              slot, year > 2000, color: no value in 'red' .. 'red'; price too, unless the marks decide it

    event {brand: 'x', price: 5}        one path of nodes in the tree of `brand`: the second literal may hold, but
                                        `year` is absent: rejected after reading 6 bytes

    tree of `price`, ordinals 0 .. 7, as a heap; 2 .. 5 is posted at two nodes, value 5 visits four:

                           1                     posted at nodes 5 (ordinals 2, 3) and 6 (4, 5)
                  2                 3
              4       5*       6*       7
            8   9  10  11   12  13   14   15     value with ordinal 5: nodes 13, 6, 3, 1

    pool of `size` (not rare, few entries): one node with all entries, whatever their range of `size`; there, the access
                             literal is the second literal of the posting, so that marks test it too

    block of `color` (rare): n | 16 bits for each entry's second attribute | records
                             an entry whose second attribute the event lacks is nearly always rejected by two bytes

Arrays
------
cut_starts : int64[n_attributes + 1], cuts : int32[]
    Bounds of the ranges that trees test; a value's ordinal is the number of cuts not above its code.
guide_bases : int64[n_attributes + 1], guides : int32[]
    How many cuts lie below evenly spaced codes: where the search for a value among the cuts starts.
lanes : uint8[n_attributes]
    Where an event notes the marks of an attribute. The attributes that most entries test have a lane each; the others
    share the remaining lanes.
node_bases : int64[n_attributes + 1], node_starts : int32[]
    The tree of attribute a is a heap at node_bases[a]; entries of a node are node_starts[node] : node_starts[node + 1].
rises : uint8[]
    How many levels above a node the next node with entries is: in a tree over many spaces most nodes have no entries.
marked : uint8[6 n_entries + 64]
    Lane and marks of the second and of the third literal; lane 0, which every event has, if there is none. The six
    bytes are stored as columns, separately for each list; see `indexes/sift/vectors.py`.
cold : int32[n_entries]
    Where the row of the entry's clause starts.
rows : int32[]
    Slot with some flags, and the remaining literals; see `layout_kernels.py`. Rows are in the order of the lists, so
    that the rows of one list are on few pages of memory.
owners : int32[n_entries]
    The clause of each entry.
alone_starts : int32[], alone_slots, alone_clauses : int32[]
    Clauses of one literal, by the same nodes: an event that reaches the node matches them.
blocks : int32[n_attributes], flat : int32[]
    Where the block of a rare attribute starts, or -1.
expected : float64[1]
    How many access literals an event satisfies on average, according to the statistics; -1 without statistics.

Cost: an event of m values walks m paths of O(log spaces) nodes, or reads m pools or blocks. A candidate takes 6 bytes
(2 in a block), and a cache miss if these do not reject it. A range of w spaces takes O(log w) entries.
"""

from __future__ import annotations

import os
import sys
from functools import cache, reduce
from threading import get_ident
from time import thread_time_ns
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from siftline.encoding.selectivity import attribute_frequencies, literal_shares
from siftline.errors import TooLargeError
from siftline.indexes.parts import Context, Found, OneEvent, Part, PartedIndex, one_event
from siftline.indexes.protocol import Candidates, Finder, Many
from siftline.indexes.sift.arrays import (
    Cuts,
    Event,
    Findings,
    Ids,
    Layout,
    Scratch,
    Wanted,
    Workspace,
    words_of,
)
from siftline.indexes.sift.batch_kernels import Rest, complete_event, distinct_in_events, match_events
from siftline.indexes.sift.bits import COSTS, Bits, beside
from siftline.indexes.sift.kernels import candidates_of_several, match_at, match_interpreted
from siftline.indexes.sift.layout_kernels import (
    ALWAYS,
    BARE,
    CLAUSE,
    FLAGGED,
    INEXACT,
    LAST,
    LINE,
    MORE,
    MOST_BITS,
    N_SLOTS,
    RECORD,
    ROW,
    SET,
    SLOT,
    Marks,
    Pieces,
    Shape,
    access_pieces,
    beside_access,
    by_entry,
    lay_blocks,
    lay_guides,
    lay_marked,
    lay_nodes,
    lay_rises,
    lay_rows,
    lay_trees,
    mark_literals,
    measure_rows,
    place_blocks,
    ranges_in_trees,
    records_at,
)
from siftline.indexes.sift.list_kernels import N_WAITING, N_WORKS, UNCOUNTED_SURVIVORS
from siftline.indexes.sift.vectors import N_COLUMNS, N_LANES, N_MARK_BYTES, SIGNED, WIDTH
from siftline.kernels.codes import ABSENT
from siftline.kernels.compiler import direct
from siftline.kernels.literals import Events, order_literals
from siftline.kernels.pointers import HEADER_SIZE, IS_COMPILED, event_describer, handle_of, table_of
from siftline.kernels.selectivity import weigh_shares
from siftline.kernels.spaces import cut_attributes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.events import EncodedEvents
    from siftline.encoding.growable import Growable
    from siftline.indexes.protocol import Sharing

# An attribute with more postings than this gets a tree if enough of their second attributes occur in events; with this
# many times as many postings, it always gets one.
_TREE_POSTINGS: Final = 128
_TREE_FACTOR: Final = 8
# An attribute without a tree gets a pool if an event has the second attribute of more postings than this, on average.
_POOL_PASSING: Final = 4.0

# Words of a pool in the heap of nodes: its only node, and node 0, which no heap uses.
_POOL: Final = 2

# Lane 0 is for entries without a literal, the last lane for attributes that no entry tests.
_MOST_LANES: Final = N_LANES - 2
_UNASKED: Final = N_LANES - 1
# How many attributes have a lane each if there are not enough lanes for all.
_OWN_LANES: Final = 190
# Positions in rows are int32.
_MOST_WORDS: Final = 2**31 - 1
# NumPy requests huge pages for arrays from this size on.
_HUGE_PAGES_BYTES: Final = 1 << 22

_LOW_HALF: Final = 0xFFFFFFFF
# How many values of attributes that a part does not know an event may have on the fast path.
_MOST_UNKNOWN: Final = 1024
_NOTHING: Final = np.empty(0, dtype=np.int32)
_ALL_LIVE: Final = np.empty(0, dtype=np.bool_)
_NO_WEIGHTS: Final = np.empty(0, dtype=np.float64)
_ALL_WANTED: Final = Wanted(_ALL_LIVE, _NO_WEIGHTS, _NO_WEIGHTS)
_NO_INT64: Final = np.empty(0, dtype=np.int64)
_NO_IDS: Final = Ids(_NO_INT64, _NO_INT64, np.empty(0, dtype=np.uint64), _NOTHING, _ALL_LIVE)
# The words of a workspace's table that change from match to match.
_LIVE_WORDS: Final = words_of("wanted", "is_live")
_WANTED_WORDS: Final = words_of("wanted")
_IDS_WORDS: Final = words_of("ids")
_SKIPPED_WORDS: Final = words_of("scratch", "is_skipped")
_NO_CANDIDATES: Final = Candidates(_NOTHING, _NOTHING)


def _findings(layout: Layout) -> Findings:
    """Return empty findings, large enough for every event."""
    # Lists: two numbers for every level of every tree, because an event has each attribute once. Records: two numbers
    # for each entry of the blocks. Survivors: all entries of trees, and a few that are written before they are counted.
    n_levels = sum(int(size).bit_length() for size in np.diff(layout.node_bases) if size)
    sizes = (2 * n_levels + 2, len(layout.flat) // 4 + 2, len(layout.cold) + UNCOUNTED_SURVIVORS)
    return Findings(*(np.empty(size, dtype=np.int32) for size in sizes))


def _scratch(part: Part, work: NDArray[np.int64]) -> Scratch:
    """Return the scratch arrays of one thread.

    For entries without a second or third literal, every event has code 0 at place 0, all marks in lane 0, and the
    signature ALWAYS.
    """
    n_places = len(part.arrays.blocks) + 2
    scratch = Scratch(
        dense=np.full(n_places, ABSENT, dtype=np.int32),
        seen=np.zeros(1024, dtype=np.uint64),
        marks=np.zeros(N_MARK_BYTES, dtype=np.uint8),
        bits=np.zeros(n_places, dtype=np.uint64),
        groups=np.empty(2 * N_WAITING, dtype=np.uint64),
        waiting=np.empty(2 * N_WAITING, dtype=np.int32),
        sure=np.empty(part.n_clauses, dtype=np.int32),
        possible=np.empty(part.n_clauses, dtype=np.int32),
        work=work,
        is_skipped=np.zeros(n_places, dtype=np.bool_),
        # By position in the event; a longer event is matched by `candidates_of_several`.
        ordinals=np.zeros(n_places + _MOST_UNKNOWN, dtype=np.int32),
        signatures=part.arrays.flat.view(np.uint16),
    )
    scratch.dense[0] = 0
    scratch.marks[[0, N_LANES]] = 255
    scratch.seen[int(ALWAYS) // 64] = 1 << 63
    scratch.marks[[SIGNED + int(ALWAYS) % 256, SIGNED + N_LANES + int(ALWAYS) // 256]] = 255
    return scratch


class ThreadWorkspace:
    """What one thread needs to match events against one part: scratch arrays, and the addresses of all arrays."""

    def __init__(self, part: Part, work: NDArray[np.int64]) -> None:
        self.part = part
        self.n_forks = _n_forks
        layout: Layout = part.arrays
        self.arrays = Workspace(_ALL_WANTED, _NO_IDS, _findings(layout), _scratch(part, work), part.literals, layout)
        self.owner: Growable | None = None
        self.ids_found = _NO_IDS.found.data  # a memoryview becomes a short list faster than an array
        self._table = table_of([array for group in self.arrays for array in group])
        # The same table with ids; `_ids` keeps its arrays alive.
        self._ids = _NO_IDS
        self._table_with_ids = self._table.copy()
        self.table_with_ids_at = self._table_with_ids.ctypes.data
        self.call = direct(match_at, 0, 0)
        self._header = np.empty(HEADER_SIZE, dtype=np.int64)
        self._describe = event_describer()
        self.is_plain = not len(part.others) and not part.has_repeated_slots
        self._rest: Rest | None = None  # until it is needed, and for other live flags
        self._rest_handle: Any = None

    def match(
        self,
        attributes: NDArray[np.int32],
        codes: NDArray[np.int32],
        is_live: Any,
        weights: NDArray[np.float64] = _NO_WEIGHTS,
        heaviest: NDArray[np.float64] = _NO_WEIGHTS,
    ) -> Candidates | None:
        """Return what the part finds; None if an attribute has several values, or the event has too many values."""
        live_flags = is_live if self.part.n_dead else _ALL_LIVE
        if not IS_COMPILED:
            event = Event(attributes, codes, self.arrays.scratch.ordinals)
            counts = match_interpreted(event, self.arrays._replace(wanted=Wanted(live_flags, weights, heaviest)))
        else:
            self.set_live_flags(live_flags)
            table = self._weighed(weights, heaviest) if len(heaviest) else self._table
            counts = self.call(self._describe(attributes, codes, self._header), table.ctypes.data)
        if counts < 0:
            return None
        if not self.is_plain:
            counts = self._completed(counts, attributes, codes, is_live)
        n_sure, n_possible = counts & _LOW_HALF, counts >> 32
        sure, possible = self.arrays.scratch.sure, self.arrays.scratch.possible
        return Candidates(sure[:n_sure].copy(), possible[:n_possible].copy() if n_possible else _NOTHING)

    @property
    def handle(self) -> Any:
        """The handle of the workspace, for kernels."""
        return self._table if IS_COMPILED else self.arrays

    def handle_for_batch(self, live_flags: NDArray[np.bool_], is_skipped: NDArray[np.bool_]) -> Any:
        """Return the handle for a match with other live flags, which skips some trees."""
        if not IS_COMPILED:
            scratch = self.arrays.scratch._replace(is_skipped=is_skipped)
            return self.arrays._replace(wanted=_ALL_WANTED._replace(is_live=live_flags), scratch=scratch)
        table = self._table.copy()
        table[_LIVE_WORDS], table[_SKIPPED_WORDS] = table_of([live_flags]), table_of([is_skipped])
        return table

    def set_live_flags(self, live_flags: NDArray[np.bool_]) -> None:
        """Update the tables if the live flags are in another array now."""
        if live_flags is not self.arrays.wanted.is_live:
            self.arrays = self.arrays._replace(wanted=self.arrays.wanted._replace(is_live=live_flags))
            self._table[_LIVE_WORDS] = self._table_with_ids[_LIVE_WORDS] = table_of([live_flags])

    def is_ready_for(self, ids: Growable, sharing: Sharing) -> bool:
        """Update the table if ids or duplicates are in other arrays now; return whether the kernel can write ids."""
        if self.owner is not ids:
            return self._take_ids(ids, sharing)
        if sharing is None:
            return True
        plain, next_duplicates, is_member = sharing
        known = self._ids
        return (
            ids.whole is known.ids
            and plain.whole is known.plain
            and next_duplicates.whole is known.next_duplicates
            and is_member.whole is known.is_member
        ) or self._take_ids(ids, sharing)

    def _take_ids(self, ids: Growable, sharing: Sharing) -> bool:
        """Let the kernel write ids; return False if it cannot, or `ids` lacks slots of the part."""
        part = self.part
        if not (IS_COMPILED and self.is_plain and int(part.clauses.slots[-1]) < len(ids)):
            return False
        self.owner = ids
        # One more than there can be: the kernel reports a full array as an overflow.
        found = np.empty(1 + (part.n_clauses if sharing is None else len(ids.whole)), dtype=np.int64)
        self._ids, self.ids_found = _NO_IDS._replace(ids=ids.whole, found=found), found.data
        if sharing is not None:
            plain, next_duplicates, is_member = sharing
            self._ids = self._ids._replace(
                plain=plain.whole, next_duplicates=next_duplicates.whole, is_member=is_member.whole
            )
        self._table_with_ids[_IDS_WORDS] = table_of(self._ids)
        return True

    def _weighed(self, weights: NDArray[np.float64], heaviest: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the table for a match that omits slots that are too light."""
        table = self._table.copy()
        table[_WANTED_WORDS] = table_of(Wanted(self.arrays.wanted.is_live, weights, heaviest))
        return table

    def _completed(
        self, counts: int, attributes: NDArray[np.int32], codes: NDArray[np.int32], is_live: NDArray[np.bool_]
    ) -> int:
        """Add the clauses that have no posting, and keep each slot once; return the new counts."""
        if self._rest is None or self._rest.is_live is not is_live:
            clauses, seen = self.part.clauses, np.zeros(len(is_live), dtype=np.bool_)
            self._rest = Rest(
                self.part.others, self.arrays.scratch.dense, clauses.slots, clauses.is_exact, is_live, seen
            )
            self._rest_handle = handle_of(self._rest)
        return _completer()(counts, attributes, codes, self.handle, self._rest_handle)


@cache
def _completer() -> Callable[..., int]:
    """Return `complete_event` for arguments whose types are known."""
    values, handle = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    return direct(complete_event, 0, values, values, handle, handle)


class Sift(PartedIndex):
    """Postings with their next literals, in trees and in blocks."""

    name: ClassVar[str] = "sift"
    has_write_buffer: ClassVar[bool] = True
    shares: ClassVar[bool] = True
    arrays_type: ClassVar[type] = Layout

    def __init__(self) -> None:
        super().__init__()
        self._work = np.zeros(N_WORKS, dtype=np.int64)

    # laying out

    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> Layout:
        _check_slots(clauses.slots)
        shares = _shares(clauses, context)
        order = order_literals(clauses.starts, shares, clauses.kinds)
        expected = float(shares[order[clauses.starts[chosen]]].sum()) if context.statistics else -1.0
        literals = clauses.literals
        pieces = Pieces(*access_pieces(chosen, order, literals))
        n_pieces = np.bincount(pieces.attributes, minlength=len(context.domains))
        is_tree, is_pool = _are_trees(n_pieces, pieces, clauses, order, context)
        pieces = _once_in_pools(pieces, is_pool)
        is_posted = is_tree[pieces.attributes]
        is_in_tree = np.zeros(clauses.n_clauses, dtype=np.bool_)
        is_in_tree[pieces.clauses] = is_posted
        is_implied = np.ones(clauses.n_clauses, dtype=np.bool_)
        is_implied[pieces.clauses] = ~is_pool[pieces.attributes]
        is_alone = is_in_tree & is_implied & clauses.is_exact & (np.diff(clauses.starts) == 1)
        has_row = is_in_tree & ~is_alone
        seconds, thirds = beside_access(chosen, has_row, is_implied, order, literals)
        n_asked, asked_attributes, asked_lows, asked_highs = ranges_in_trees(
            len(is_tree), chosen, has_row, is_implied, order, seconds, thirds, literals
        )
        is_cut = is_posted & is_implied[pieces.clauses]  # if it is not implied, it is among the tested ranges
        cut_starts, cuts_of_all = cut_attributes(
            len(is_tree),
            np.concatenate([pieces.attributes[is_cut], asked_attributes]),
            np.concatenate([pieces.lows[is_cut], asked_lows]),
            np.concatenate([pieces.highs[is_cut], asked_highs]),
        )
        guide_bases, guides = lay_guides(cut_starts, cuts_of_all)
        cuts = Cuts(cut_starts, cuts_of_all, guide_bases, guides)
        node_bases = lay_nodes(is_tree, is_pool, cut_starts)
        _check_words(max(int(node_bases[-1]), len(cuts.guides)))
        is_lone = is_alone[pieces.clauses]
        node_starts, entries = lay_trees(_picked(pieces, is_posted & ~is_lone), node_bases, cuts)
        lanes, is_own = _lanes(n_asked)
        second = Marks(*mark_literals(np.where(has_row, seconds, -1), lanes, is_own, literals, cuts))
        third = Marks(*mark_literals(thirds, lanes, is_own, literals, cuts))
        is_few = (np.diff(cut_starts) > 0) & (np.diff(cut_starts) < MOST_BITS)
        # A block has the hull of a second literal, by codes. This decides the literal unless it is a set.
        in_block = np.flatnonzero(~has_row & (seconds >= 0))
        second.decides[in_block] = literals.sets[seconds[in_block]] < 0
        shape = Shape(has_row, is_few, is_implied, seconds, thirds, second.decides, third.decides, order)
        all_starts = measure_rows(by_entry(entries, chosen, clauses.n_clauses), clauses.n_clauses, shape, literals)
        _check_words(int(all_starts[-1]))
        row_starts = all_starts.astype(np.int32)
        rows = _aligned(int(row_starts[-1]))
        slots, is_exact = clauses.slots, clauses.is_exact
        has_all = lay_rows(row_starts, slots, is_exact, rows, shape, literals, cuts)
        alone_starts, lone = _NOTHING, _NOTHING
        if is_lone.any():
            alone_starts, lone = lay_trees(_picked(pieces, is_lone), node_bases, cuts)
        rises = lay_rises(node_bases, node_starts, alone_starts)
        marked = np.zeros(N_COLUMNS * len(entries) + WIDTH, dtype=np.uint8)
        lay_marked(node_starts, entries, second, third, marked)
        blocks, n_words = place_blocks(is_tree, n_pieces)
        _check_words(n_words)
        flat = _aligned(n_words)
        lay_blocks(pieces, is_tree, n_pieces, seconds, row_starts, has_all, slots, is_exact, literals, blocks, flat)
        return Layout(
            cut_starts=cuts.cut_starts,
            cuts=cuts.cuts,
            guide_bases=cuts.guide_bases,
            guides=cuts.guides,
            lanes=lanes,
            node_bases=node_bases,
            node_starts=_roomy(node_starts),
            rises=rises,
            marked=marked,
            cold=row_starts[entries],
            rows=rows,
            owners=entries,
            alone_starts=alone_starts,
            alone_slots=clauses.slots[lone],
            alone_clauses=lone,
            blocks=blocks,
            flat=flat,
            expected=np.array([expected]),
        )

    # matching

    def match(self, events: EncodedEvents, position: int) -> Candidates:
        """Match one event against every part."""
        return self._match_all(events, position, _NO_WEIGHTS, _NO_WEIGHTS)

    def match_top(self, events: EncodedEvents, position: int, top: int, weights: NDArray[np.float64]) -> Candidates:
        """Match one event, and reject slots early that are too light."""
        # Two clauses of one subscription would enter its weight twice.
        if top == 0 or any(part.has_repeated_slots for part in self._published[0]):
            return self.match(events, position)
        n_wanted = min(top, max(1, len(weights)))
        return self._match_all(events, position, weights, np.full(n_wanted, -np.inf))

    def _match_all(self, events: EncodedEvents, position: int, weights: Any, heaviest: Any) -> Candidates:
        attributes, codes = events.attributes, events.codes
        if len(events.starts) > 2:
            start, end = events.starts[position], events.starts[position + 1]
            attributes, codes = attributes[start:end], codes[start:end]
        parts, is_live = self._published
        results = []
        for part in parts:
            found = self._workspace(part).match(attributes, codes, is_live, weights, heaviest)
            if found is None:
                return super().match(events, position)
            results.append(found)
        return results[0] if len(results) == 1 else Candidates.of(results)

    def match_many(self, events: EncodedEvents, first: int, end: int) -> Many:
        """Match the events first .. end - 1 against one part after the other."""
        parts, is_live = self._published
        # The small parts are last. Joining from the end copies the large results once.
        found = [self._match_many_of_part(part, events, first, end, is_live) for part in reversed(parts)]
        return reduce(beside, found) if found else Many.of([_NO_CANDIDATES] * (end - first))

    def _match_many_of_part(
        self, part: Part, events: EncodedEvents, first: int, end: int, is_live: NDArray[np.bool_]
    ) -> Many:
        """Match events against one part: some clusters in bitmaps, events with several values one by one."""
        bits = _bits(part)
        in_bits = bits.arrays
        chosen = bits.choose(in_bits, events, first, end)
        seen = self._scratch.array("seen", len(is_live), np.bool_) if part.has_repeated_slots else _ALL_LIVE
        rest = Rest(part.others, self._dense(), part.clauses.slots, part.clauses.is_exact, is_live, seen)
        own = self._workspace(part)
        is_skipped = np.zeros_like(own.arrays.scratch.is_skipped)
        is_skipped[chosen] = True
        workspace = own.handle_for_batch(is_live if part.n_dead else _ALL_LIVE, is_skipped)
        values = Events(events.starts, events.attributes, events.codes)
        before = thread_time_ns()
        starts, sure, possible_starts, possible, several = match_events(first, end, values, workspace, rest)
        found = Many(starts, sure, possible_starts, possible)
        if in_bits is not None and len(chosen):
            others = bits.match(in_bits, chosen, events, (first, end), several, part, self._dense(), is_live)
            found = beside(found, others)
            if part.has_repeated_slots:
                found = Many(*distinct_in_events(found.starts, found.sure, found.possible_starts, found.possible, seen))
            bits.observe_with(end - first, thread_time_ns() - before)
        else:
            bits.observe(end - first, thread_time_ns() - before)
            if bits.wants_arrays(part):
                assert self._context is not None
                bits.lay_out(part, _access_attributes(part), _shares(part.clauses, self._context))
        if not len(several):
            return found
        on_their_own = [_NO_CANDIDATES] * (end - first)
        for position in several.tolist():
            event = one_event(events, position)
            on_their_own[position - first] = self._slots(part, event, is_live)
        return beside(found, Many.of(on_their_own))

    def finders(self, ids: Growable, sharing: Sharing) -> list[Finder] | None:
        """Return a finder for each part, or None if a part cannot write ids."""
        parts, is_live = self._published
        workspaces = [self._workspace(part) for part in parts]
        if not all(each.is_ready_for(ids, sharing) for each in workspaces):
            return None
        for each in workspaces:
            each.set_live_flags(is_live if each.part.n_dead else _ALL_LIVE)
        return [Finder(each.call, each.table_with_ids_at, each.ids_found, each) for each in workspaces]

    def _workspace(self, part: Part) -> ThreadWorkspace:
        """Return this thread's workspace for a part, and drop those of threads that ended."""
        thread = get_ident()
        known: ThreadWorkspace | None = part.workspaces.get(thread)
        if known is None or known.n_forks != _n_forks:
            for ended in part.workspaces.keys() - sys._current_frames().keys():
                part.workspaces.pop(ended, None)
            known = part.workspaces[thread] = ThreadWorkspace(part, self._work)
        return known

    def _match_part(self, part: Part, event: OneEvent) -> Found:
        """Match an event that has several values of some attribute: find candidates, and test all their literals."""
        handle = self._workspace(part).handle
        clauses, n_lists = candidates_of_several(event.attributes, event.codes, handle)
        found, n_tested = self._verified(part, clauses, event)
        return Found(found, len(clauses), n_tested, n_lists)

    def stats(self) -> dict[str, Any]:
        """Return bytes by structure, and the work that matching has done so far."""
        stats = super().stats()
        for part in self._parts:
            arrays = part.batching.arrays if part.batching is not None else None
            for array in arrays or ():
                stats["bytes"]["bits"] = stats["bytes"].get("bits", 0) + int(array.nbytes)
        names = ("events", "candidates_examined", "predicates_evaluated", "lists_scanned")
        found = dict(zip(names, self._work[:4].tolist(), strict=True))
        # The second literal of every candidate is tested in the posting.
        found["predicates_evaluated"] += found["candidates_examined"]
        return stats | {name: stats[name] + n for name, n in found.items()}

    def _check_part(self, part: Part) -> None:
        arrays, clauses = part.arrays, part.clauses
        assert len(arrays.marked) == N_COLUMNS * len(arrays.cold) + WIDTH
        assert len(arrays.cold) == arrays.node_starts[-1]
        assert len(arrays.alone_slots) == len(arrays.alone_clauses) == (arrays.alone_starts[-1:].sum())
        assert (np.diff(arrays.node_starts) >= 0).all()
        assert (np.diff(arrays.node_bases) >= 0).all()
        assert (np.diff(arrays.cut_starts)[np.diff(arrays.node_bases) > 0] > 0).all()
        assert np.array_equal(arrays.alone_slots, clauses.slots[arrays.alone_clauses])
        assert clauses.is_exact[arrays.alone_clauses].all()
        blocks = [_block(arrays.flat, start) for start in arrays.blocks.tolist() if start >= 0]
        heads = arrays.cold
        in_trees = arrays.owners
        in_blocks = np.concatenate([_NOTHING, *(block[CLAUSE] for block in blocks)])
        posted = np.concatenate([in_trees, in_blocks])
        slots = np.concatenate([arrays.rows[heads], *(block[SLOT] for block in blocks)])
        found = np.setdiff1d(np.arange(part.n_clauses), part.others)
        assert np.array_equal(np.unique(np.concatenate([posted, arrays.alone_clauses])), found)
        assert np.array_equal(slots & ~FLAGGED, clauses.slots[posted])
        assert np.array_equal((slots & INEXACT) == 0, clauses.is_exact[posted])
        n_literals = np.diff(clauses.starts)
        is_pool, access = np.diff(arrays.node_bases) == _POOL, _access_attributes(part)
        for clause, row in zip(in_trees.tolist(), heads.tolist(), strict=True):
            if arrays.rows[row] & MORE:
                assert arrays.rows[row + 1] == clause
            else:
                first = -1 if arrays.rows[row] & BARE else row + 1
                n_implied = int(not is_pool[access[clause]])
                assert n_implied <= n_literals[clause] - _row_length(arrays.rows, first) <= n_implied + 2
        in_records = (np.concatenate([_NOTHING, *(block[word] for block in blocks)]) for word in (CLAUSE, ROW, SLOT))
        for clause, row, slot in zip(*(each.tolist() for each in in_records), strict=True):
            if not slot & MORE:
                assert 1 <= n_literals[clause] - _row_length(arrays.rows, row) <= 2

    def _describe_part(self, part: Part) -> list[str]:
        arrays = part.arrays
        assert self._context is not None
        in_trees = arrays.node_starts[arrays.node_bases[1:]] - arrays.node_starts[arrays.node_bases[:-1]]
        if len(arrays.alone_starts):
            in_trees = in_trees + np.diff(arrays.alone_starts[arrays.node_bases])
        in_blocks = np.where(arrays.blocks >= 0, arrays.flat[arrays.blocks], 0) if len(arrays.flat) else 0 * in_trees
        n_alone, n_others = len(arrays.alone_slots), len(part.others)
        n_trees, n_pools = np.count_nonzero(in_trees), np.count_nonzero(np.diff(arrays.node_bases) == _POOL)
        names, postings = self._context.domains.names, in_trees + in_blocks
        most = ", ".join(f"{names[a]} ({postings[a]:,})" for a in np.argsort(-postings)[:5].tolist() if postings[a])
        expected = float(arrays.expected[0])
        why = "as the statistics say" if expected >= 0 else "as constants and subscriptions suggest, without statistics"
        lines = [
            f"each clause stands under the literal that the fewest events satisfy, {why}",
            f"{n_trees:,} attributes with trees, {n_pools:,} of them a single list: {len(arrays.cold):,} entries, "
            f"{n_alone:,} alone",
            f"{np.count_nonzero(in_blocks):,} rare attributes with blocks: {int(in_blocks.sum()):,} entries",
            f"most entries: {most or 'none'}",
        ]
        if expected >= 0:
            lines.append(f"clauses that an event reaches on average: {expected:,.1f} expected")
        if n_others:
            lines.append(f"{n_others:,} clauses ask for nothing that must be there: every event is tested against them")
        return lines


def _bits(part: Part) -> Bits:
    """Return the object that matches batches of a part in bitmaps."""
    if part.batching is None:
        part.batching = Bits(COSTS)
    bits: Bits = part.batching
    return bits


def _access_attributes(part: Part) -> NDArray[np.int32]:
    """Return the attribute in whose tree each clause is posted; -1 for clauses in blocks and for lone clauses."""
    arrays: Layout = part.arrays
    found = np.full(part.n_clauses, -1, dtype=np.int32)
    n_entries = np.diff(arrays.node_starts[arrays.node_bases])
    attributes = np.arange(len(n_entries), dtype=np.int32)
    if len(arrays.cold):
        found[arrays.owners] = np.repeat(attributes, n_entries)
    return found


def _block(flat: NDArray[np.int32], start: int) -> NDArray[np.int32]:
    """Return the records of a block, transposed: one row for each word of a record."""
    n = int(flat[start])
    first = int(records_at(start, n))
    return flat[first : first + RECORD * n].reshape(n, RECORD).T


def _row_length(rows: NDArray[np.int32], place: int) -> int:
    """Return how many literals a row has."""
    length = 0
    while place >= 0:
        word = int(rows[place])
        length += 1
        place += 2 + 2 * int(rows[place + 1]) if word & SET else 3
        if word & LAST:
            break
    return length


def _check_slots(slots: NDArray[np.int32]) -> None:
    """Raise TooLargeError for slots that leave no room for flags."""
    if len(slots) and slots.max() >= N_SLOTS:
        raise TooLargeError(f"sift has room for {N_SLOTS:,} subscriptions at most")


def _check_words(n_words: int) -> None:
    """Raise TooLargeError if rows, blocks, nodes or guides need more words than int32 can number."""
    if n_words > _MOST_WORDS:
        why = f"sift lays out at most {_MOST_WORDS:,} words at once, not {n_words:,}"
        raise TooLargeError(f"{why}: add fewer subscriptions at a time")


def _shares(clauses: Clauses, context: Context) -> NDArray[np.float64]:
    """Estimate the share of events for which each literal holds.

    Without statistics, an attribute that few subscriptions use is assumed to be rare in events too.
    """
    shares = literal_shares(clauses, context.domains, context.statistics)
    if context.statistics is None and len(shares):
        frequencies = attribute_frequencies(clauses, context.domains, None)
        weigh_shares(shares, frequencies / frequencies.max(), clauses.attributes)
    return shares


def _are_trees(
    n_pieces: NDArray[np.int64], pieces: Pieces, clauses: Clauses, order: NDArray[np.int64], context: Context
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Choose which attributes get trees, and which of these are pools.

    A block tests the second attribute of all postings of an attribute. A tree tests only postings whose range has the
    value, but reaching them takes a few more cache misses. In between is a pool, one list in which marks test the
    access literal: it is cheaper than a path of many short lists.
    """
    frequencies = attribute_frequencies(clauses, context.domains, context.statistics)
    if context.statistics is None:
        frequencies = np.minimum(frequencies / max(1, clauses.n_clauses), 1)
    owners, firsts = pieces.clauses, clauses.starts[pieces.clauses]
    has_second = np.diff(clauses.starts)[owners] > 1
    passing = np.ones(len(owners))
    passing[has_second] = frequencies[clauses.attributes[order[firsts[has_second] + 1]]]
    n_passing = np.bincount(pieces.attributes, passing, minlength=len(n_pieces))
    is_large = (n_pieces > _TREE_POSTINGS) & (
        (n_pieces > _TREE_FACTOR * _TREE_POSTINGS) | (n_passing > _TREE_POSTINGS / _TREE_FACTOR)
    )
    in_pool = _is_first(owners)
    n_in_pool = np.bincount(pieces.attributes[in_pool], minlength=len(n_pieces))
    is_busy = np.bincount(pieces.attributes[in_pool], passing[in_pool], minlength=len(n_pieces)) > _POOL_PASSING
    is_pool = is_busy & (~is_large | (n_in_pool <= _TREE_POSTINGS))
    return is_large | is_pool, is_pool


def _is_first(owners: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which pieces are the first ones of their clauses."""
    is_first = np.ones(len(owners), dtype=np.bool_)
    is_first[1:] = owners[1:] != owners[:-1]
    return is_first


def _once_in_pools(pieces: Pieces, is_pool: NDArray[np.bool_]) -> Pieces:
    """Keep one piece of each clause in pools: a clause has one entry there, however many ranges it has."""
    return _picked(pieces, _is_first(pieces.clauses) | ~is_pool[pieces.attributes])


def _picked(pieces: Pieces, is_kept: NDArray[np.bool_]) -> Pieces:
    return Pieces(*(each[is_kept] for each in pieces))


def _lanes(counts: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the lane of each attribute, by how many entries test it, and which attributes do not share theirs."""
    n_attributes = len(counts)
    asked = np.flatnonzero(counts)
    asked = asked[np.argsort(-counts[asked], kind="stable")]
    n_own = len(asked) if len(asked) <= _MOST_LANES else _OWN_LANES
    places = np.arange(len(asked))
    lanes = np.full(n_attributes, _UNASKED, dtype=np.uint8)
    lanes[asked] = np.where(places < n_own, 1 + places, 1 + n_own + places % max(1, _MOST_LANES - n_own))
    is_own = np.zeros(n_attributes, dtype=np.bool_)
    is_own[asked[:n_own]] = True
    return lanes, is_own


def _aligned(n: int) -> NDArray[np.int32]:
    """Return n zeros that start on a cache line."""
    room = np.zeros(n + LINE, dtype=np.int32)
    first = (-room.ctypes.data % (room.itemsize * LINE)) // room.itemsize
    return room[first : first + n]


def _roomy(array: NDArray[Any]) -> NDArray[Any]:
    """Copy a large array into memory from NumPy, which requests huge pages; kernels do not."""
    return array.copy() if array.nbytes > _HUGE_PAGES_BYTES else array


# How many forks lead to this process. A thread of the parent with the same number as one of ours may have been in the
# middle of a match, so the workspaces that were copied with the parent's memory are unusable.
_n_forks = 0


def _after_fork() -> None:
    global _n_forks
    _n_forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
