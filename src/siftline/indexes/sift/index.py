"""`sift`: our own index.

Idea: what costs time is cache misses, not comparisons. So every clause is posted under the one literal that the fewest
events satisfy, and the literals that would reject it next stand in the posting itself. Frequent attributes have a tree
over their elementary spaces, in which a wide range is posted at a few nodes; rare attributes have one block that a
single cache line often decides. Nothing is looked up by subscription before nearly everything is rejected.

Worked example: a clause  brand = 'x' and price between 3 and 8 and year > 2000 and not (color = 'red' is true)

    access literal   brand = 'x'        posted at the node of 'x' in the tree of `brand`
    posting          price 3..8, year   attribute of the second and the third literal, and for each 16 *marks*: in which
                                        sixteenths of the attribute's ordinals may the value be?
    row              slot, year > 2000, color: no value in 'red' .. 'red'; price too, unless the marks decide it

    event {brand: 'x', price: 5}        one path of nodes in the tree of `brand`: the second literal may hold, but
                                        `year` is absent: rejected on 6 bytes, without a further look

    tree of `price`, ordinals 0 .. 7, as a heap; 2 .. 5 is posted at two nodes, value 5 visits four:

                           1                     posted at nodes 5 (ordinals 2, 3) and 6 (4, 5)
                  2                 3
              4       5*       6*       7
            8   9  10  11   12  13   14   15     value with ordinal 5: nodes 13, 6, 3, 1

    pool of `size` (not rare, few entries): one node with all of them, whatever they ask of `size`; the access literal
                             is the second literal of the posting then, so that marks decide it too

    block of `color` (rare): n | 16 bits for each entry's second attribute | records
                             an entry whose second attribute the event lacks is nearly always gone after two bytes

Arrays
------
cut_starts : int64[n_attributes + 1], cuts : int32[]
    Bounds of what trees ask about; a value's ordinal is the number of cuts not above its code.
guide_bases : int64[n_attributes + 1], guides : int32[]
    How many cuts lie below evenly spaced codes: where to look for a value among them.
lanes : uint8[n_attributes]
    Where an event notes the marks of an attribute. Those that entries ask for most have a lane of their own; the others
    share what is left.
node_bases : int64[n_attributes + 1], node_starts : int32[]
    The tree of attribute a is a heap at node_bases[a]; entries of a node are node_starts[node] : node_starts[node + 1].
rises : uint8[]
    How many levels above a node the next one with entries is: most nodes of a tree over many spaces have none.
marked : uint8[6 n_entries + 64]
    Lane and marks of the second and of the third literal; lane 0 for none: every event has it. The six bytes stand in
    columns, for each list on its own; see `indexes/sift/vectors.py`.
cold : int32[n_entries]
    Where the row of the entry's clause starts.
rows : int32[]
    Slot with some flags, and the literals that are left; see `layout_kernels.py`. They stand in the order of the
    lists, so that those of one list are on few pages of memory.
owners : int32[n_entries]
    The clause of each entry.
alone_starts : int32[], alone_slots, alone_clauses : int32[]
    Clauses of one literal, by the same nodes: whoever comes there matches.
blocks : int32[n_attributes], flat : int32[]
    Where the block of a rare attribute starts, or -1.
expected : float64[1]
    How many clauses have an access literal that an event satisfies, on average, as the statistics say; none: -1.

Cost: an event of m values walks m paths of O(log spaces) nodes, or reads m pools or blocks; 6 bytes a candidate (2 in a
block), a cache miss for each that survives. A range of w spaces takes O(log w) entries.
"""

from __future__ import annotations

import os
import sys
from functools import reduce
from threading import get_ident
from time import thread_time_ns
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

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
from siftline.indexes.sift.batch_kernels import Rest, distinct_in_events, match_events
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
from siftline.kernels.literals import Events, Literals, order_literals
from siftline.kernels.pointers import HEADER_SIZE, IS_COMPILED, event_describer, table_of
from siftline.kernels.selectivity import weigh_shares
from siftline.kernels.spaces import cut_attributes
from siftline.kernels.verify import distinct_slots, verify_clauses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.events import EncodedEvents
    from siftline.encoding.growable import Growable
    from siftline.indexes.protocol import Sharing

# An attribute with more postings than this gets a tree, unless few of them have a second attribute that events have;
# with this many times as many it always does.
_TREE_POSTINGS: Final = 128
_TREE_FACTOR: Final = 8
# With more postings than this that get past the second attribute, and no tree, it gets a pool.
_POOL_PASSING: Final = 4.0

# Words of a pool in the heap of nodes: one that is never used, and its only node.
_POOL: Final = 2

# Lane 0 is for entries without a literal, the last one for attributes that no entry asks for.
_MOST_LANES: Final = N_LANES - 2
_UNASKED: Final = N_LANES - 1
# How many attributes have lanes of their own where there are not enough for all.
_OWN_LANES: Final = 190
# Places in rows are int32.
_MOST_WORDS: Final = 2**31 - 1
# From here on NumPy asks for huge pages.
_HUGE_PAGES_BYTES: Final = 1 << 22

_LOW_HALF: Final = 0xFFFFFFFF
# Values of attributes that a part does not know, for which there is room.
_MOST_UNKNOWN: Final = 1024
_NOTHING: Final = np.empty(0, dtype=np.int32)
_ALL_LIVE: Final = np.empty(0, dtype=np.bool_)
_NO_WEIGHTS: Final = np.empty(0, dtype=np.float64)
_ALL_WANTED: Final = Wanted(_ALL_LIVE, _NO_WEIGHTS, _NO_WEIGHTS)
_NO_INT64: Final = np.empty(0, dtype=np.int64)
_NO_IDS: Final = Ids(_NO_INT64, _NO_INT64, np.empty(0, dtype=np.uint64), _NOTHING, _ALL_LIVE)
# Where the table of a workspace describes what changes from match to match.
_LIVE_WORDS: Final = words_of("wanted", "is_live")
_WANTED_WORDS: Final = words_of("wanted")
_IDS_WORDS: Final = words_of("ids")
_SKIPPED_WORDS: Final = words_of("scratch", "is_skipped")
_NO_CANDIDATES: Final = Candidates(_NOTHING, _NOTHING)


class SiftArrays(NamedTuple):
    """See the head of this file."""

    cut_starts: NDArray[np.int64]
    cuts: NDArray[np.int32]
    guide_bases: NDArray[np.int64]
    guides: NDArray[np.int32]
    lanes: NDArray[np.uint8]
    node_bases: NDArray[np.int64]
    node_starts: NDArray[np.int32]
    rises: NDArray[np.uint8]
    marked: NDArray[np.uint8]
    cold: NDArray[np.int32]
    rows: NDArray[np.int32]
    owners: NDArray[np.int32]
    alone_starts: NDArray[np.int32]
    alone_slots: NDArray[np.int32]
    alone_clauses: NDArray[np.int32]
    blocks: NDArray[np.int32]
    flat: NDArray[np.int32]
    expected: NDArray[np.float64]


def _layout(arrays: SiftArrays) -> Layout:
    """Return a part as kernels see it."""
    named = {name: array for name, array in arrays._asdict().items() if name != "expected"}
    return Layout(**named, signatures=arrays.flat.view(np.uint16))


def _findings(layout: Layout) -> Findings:
    """Return room for what the steps of a match leave for the next step."""
    # Two places for every level of every tree: an event has each attribute once.
    n_levels = sum(int(size).bit_length() for size in np.diff(layout.node_bases) if size)
    # Two numbers for each entry of the blocks; those of trees, and a few more that are written before it is known
    # how many there are.
    sizes = (2 * n_levels + 2, len(layout.flat) // 4 + 2, len(layout.cold) + UNCOUNTED_SURVIVORS)
    return Findings(*(np.empty(size, dtype=np.int32) for size in sizes))


def _scratch(part: Part, work: NDArray[np.int64]) -> Scratch:
    """Return the scratch arrays of one thread.

    Every event has place 0 with code 0, lane 0 with all marks, and the signature ALWAYS, for entries without a second
    or third literal.
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
        # By place in the event; one with more values is matched by `candidates_of_several`.
        ordinals=np.zeros(n_places + _MOST_UNKNOWN, dtype=np.int32),
    )
    scratch.dense[0] = 0
    scratch.marks[[0, N_LANES]] = 255
    scratch.seen[int(ALWAYS) // 64] = 1 << 63
    scratch.marks[[SIGNED + int(ALWAYS) % 256, SIGNED + N_LANES + int(ALWAYS) // 256]] = 255
    return scratch


class ThreadWorkspace:
    """What one thread needs to match events against one part: scratch arrays, and the addresses of everything."""

    def __init__(self, part: Part, work: NDArray[np.int64]) -> None:
        self.part = part
        self.n_forks = _n_forks
        layout = _layout(part.arrays)
        self.arrays = Workspace(_ALL_WANTED, _NO_IDS, _findings(layout), _scratch(part, work), part.literals, layout)
        self.owner: Growable | None = None
        self.ids_found = _NO_IDS.found.data  # gives a list of a few in less time than an array
        self._sharing: Sharing = None
        self._table = table_of([array for group in self.arrays for array in group])
        # The same with ids: what it has the addresses of is kept alive here.
        self._ids = _NO_IDS
        self._table_with_ids = self._table.copy()
        self.table_with_ids_at = self._table_with_ids.ctypes.data
        self.call = direct(match_at, 0, 0)
        self._header = np.empty(HEADER_SIZE, dtype=np.int64)
        self._describe = event_describer()
        self.is_plain = not len(part.others) and not part.has_repeated_slots

    def match(
        self,
        attributes: NDArray[np.int32],
        codes: NDArray[np.int32],
        is_live: Any,
        weights: NDArray[np.float64] = _NO_WEIGHTS,
        heaviest: NDArray[np.float64] = _NO_WEIGHTS,
    ) -> Candidates | None:
        """Return what the part finds for an event with one value for each attribute, and not very many; else None."""
        living = is_live if self.part.n_dead else _ALL_LIVE
        if not IS_COMPILED:
            event = Event(attributes, codes, self.arrays.scratch.ordinals)
            counts = match_interpreted(event, self.arrays._replace(wanted=Wanted(living, weights, heaviest)))
        else:
            self.take_living(living)
            table = self._weighed(weights, heaviest) if len(heaviest) else self._table
            counts = self.call(self._describe(attributes, codes, self._header), table.ctypes.data)
        if counts < 0:
            return None
        n_sure, n_possible = counts & _LOW_HALF, counts >> 32
        if not self.is_plain:
            return self._completed(attributes, codes, is_live, n_sure, n_possible)
        sure, possible = self.arrays.scratch.sure, self.arrays.scratch.possible
        return Candidates(sure[:n_sure].copy(), possible[:n_possible].copy() if n_possible else _NOTHING)

    @property
    def handle(self) -> Any:
        """What kernels take for the workspace."""
        return self._table if IS_COMPILED else self.arrays

    def handle_for_batch(self, living: NDArray[np.bool_], is_skipped: NDArray[np.bool_]) -> Any:
        """Return the same for a match that sees other live slots, and skips other trees."""
        if not IS_COMPILED:
            scratch = self.arrays.scratch._replace(is_skipped=is_skipped)
            return self.arrays._replace(wanted=_ALL_WANTED._replace(is_live=living), scratch=scratch)
        table = self._table.copy()
        table[_LIVE_WORDS], table[_SKIPPED_WORDS] = table_of([living]), table_of([is_skipped])
        return table

    def take_living(self, living: NDArray[np.bool_]) -> None:
        """Let the kernel see which slots are live, unless it does."""
        if living is not self.arrays.wanted.is_live:
            self.arrays = self.arrays._replace(wanted=self.arrays.wanted._replace(is_live=living))
            self._table[_LIVE_WORDS] = self._table_with_ids[_LIVE_WORDS] = table_of([living])

    def is_ready_for(self, ids: Growable, sharing: Sharing) -> bool:
        """Let the kernel have these ids, and see who shares an entry, unless it does; return whether it can."""
        if self.owner is not ids:
            return self._take_ids(ids, sharing)
        if sharing is None:
            return True
        plain, following, is_member = sharing
        known = self._ids
        return (
            ids.whole is known.ids
            and plain.whole is known.plain
            and following.whole is known.following
            and is_member.whole is known.is_member
        ) or self._take_ids(ids, sharing)

    def _take_ids(self, ids: Growable, sharing: Sharing) -> bool:
        """Let the kernel find the ids of slots itself, if all those of the part are known."""
        part = self.part
        if not (IS_COMPILED and self.is_plain and int(part.clauses.slots[-1]) < len(ids)):
            return False
        self.owner = ids
        # One more than there can be: so the kernel sees that they had room.
        found = np.empty(1 + (part.n_clauses if sharing is None else len(ids.whole)), dtype=np.int64)
        self._ids, self.ids_found = _NO_IDS._replace(ids=ids.whole, found=found), found.data
        if sharing is not None:
            plain, following, is_member = sharing
            self._ids = self._ids._replace(plain=plain.whole, following=following.whole, is_member=is_member.whole)
        self._table_with_ids[_IDS_WORDS] = table_of(self._ids)
        return True

    def _weighed(self, weights: NDArray[np.float64], heaviest: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the table for a match that leaves out what is too light."""
        table = self._table.copy()
        table[_WANTED_WORDS] = table_of(Wanted(self.arrays.wanted.is_live, weights, heaviest))
        return table

    def _completed(
        self, attributes: NDArray[np.int32], codes: NDArray[np.int32], is_live: Any, n_sure: int, n_possible: int
    ) -> Candidates:
        """Add the clauses that nothing finds, and leave each slot once."""
        part = self.part
        scratch = self.arrays.scratch
        others, _ = verify_clauses(part.others, attributes, codes, scratch.dense, part.handle(Literals))
        slots = part.clauses.slots[others]
        is_sure = part.clauses.is_exact[others]
        is_alive = is_live[slots]
        sure = np.concatenate([scratch.sure[:n_sure], slots[is_sure & is_alive]])
        possible = np.concatenate([scratch.possible[:n_possible], slots[~is_sure & is_alive]])
        seen = np.zeros(len(is_live), dtype=np.bool_)
        n_sure, n_possible = distinct_slots(sure, len(sure), possible, len(possible), seen)
        return Candidates(sure[:n_sure], possible[:n_possible])


class Sift(PartedIndex):
    """Postings that carry their next literals, in trees and in blocks."""

    name: ClassVar[str] = "sift"
    has_write_buffer: ClassVar[bool] = True
    shares: ClassVar[bool] = True
    arrays_type: ClassVar[type] = SiftArrays

    def __init__(self) -> None:
        super().__init__()
        self._work = np.zeros(N_WORKS, dtype=np.int64)

    # laying out

    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> SiftArrays:
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
        is_cut = is_posted & is_implied[pieces.clauses]  # what is not implied is asked for, too
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
        # A block has the hull of a second literal, by codes: all of it, if it is no set.
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
        return SiftArrays(
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
        """Match one event, without looking closely at what is too light."""
        # Two clauses of one subscription would count its weight twice.
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
        if len(results) == 1:
            return results[0]
        return Candidates(
            np.concatenate([_NOTHING, *(found.sure for found in results)]),
            np.concatenate([_NOTHING, *(found.possible for found in results)]),
        )

    def match_many(self, events: EncodedEvents, first: int, end: int) -> Many:
        """Match the events first .. end - 1 against every part, each part for all of them."""
        parts, is_live = self._published
        # The small parts are at the end: what is copied again and again is little.
        found = [self._match_many_of_part(part, events, first, end, is_live) for part in reversed(parts)]
        return reduce(beside, found) if found else Many.of([_NO_CANDIDATES] * (end - first))

    def _match_many_of_part(
        self, part: Part, events: EncodedEvents, first: int, end: int, is_live: NDArray[np.bool_]
    ) -> Many:
        """Match events against one part: some clusters in bitmaps, events with several values on their own."""
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
            on_their_own[position - first] = Candidates(*self._slots(part, event, is_live))
        return beside(found, Many.of(on_their_own))

    def finders(self, ids: Growable, sharing: Sharing) -> list[Finder] | None:
        """Return how each part finds ids, if they all can."""
        parts, is_live = self._published
        workspaces = [self._workspace(part) for part in parts]
        if not all(each.is_ready_for(ids, sharing) for each in workspaces):
            return None
        for each in workspaces:
            each.take_living(is_live if each.part.n_dead else _ALL_LIVE)
        return [Finder(each.call, each.table_with_ids_at, each.ids_found, each) for each in workspaces]

    def _workspace(self, part: Part) -> ThreadWorkspace:
        """Return what this thread needs to match against a part."""
        thread = get_ident()
        known: ThreadWorkspace | None = part.workspaces.get(thread)
        if known is None or known.n_forks != _n_forks:
            for ended in part.workspaces.keys() - sys._current_frames().keys():
                part.workspaces.pop(ended, None)
            known = part.workspaces[thread] = ThreadWorkspace(part, self._work)
        return known

    def _match_part(self, part: Part, event: OneEvent) -> Found:
        """Match an event with several values of some attribute: find candidates, and test all their literals."""
        handle = self._workspace(part).handle
        clauses, n_lists = candidates_of_several(event.attributes, event.codes, handle)
        found, n_tested = self._verified(part, clauses, event)
        return Found(found, len(clauses), n_tested, n_lists)

    def stats(self) -> dict[str, Any]:
        """Return bytes by structure, and what matching has cost so far."""
        stats = super().stats()
        for part in self._parts:
            arrays = part.batching.arrays if part.batching is not None else None
            for array in arrays or ():
                stats["bytes"]["bits"] = stats["bytes"].get("bits", 0) + int(array.nbytes)
        names = ("events", "candidates_examined", "predicates_evaluated", "lists_scanned")
        found = dict(zip(names, self._work[:4].tolist(), strict=True))
        # The second literal of every candidate is tested where it stands.
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
    """Return the bitmaps side of a part."""
    if part.batching is None:
        part.batching = Bits(COSTS)
    bits: Bits = part.batching
    return bits


def _access_attributes(part: Part) -> NDArray[np.int32]:
    """Return under which attribute each clause stands in a tree, -1 if it does not or is alone there."""
    arrays: SiftArrays = part.arrays
    found = np.full(part.n_clauses, -1, dtype=np.int32)
    n_entries = np.diff(arrays.node_starts[arrays.node_bases])
    attributes = np.arange(len(n_entries), dtype=np.int32)
    if len(arrays.cold):
        found[arrays.owners] = np.repeat(attributes, n_entries)
    return found


def _block(flat: NDArray[np.int32], start: int) -> NDArray[np.int32]:
    """Return the records of a block, a line for each word."""
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
    """Refuse slots that leave no room for flags."""
    if len(slots) and slots.max() >= N_SLOTS:
        raise TooLargeError(f"sift has room for {N_SLOTS:,} subscriptions at most")


def _check_words(n_words: int) -> None:
    """Refuse a part whose rows, blocks, nodes or guides have more words than their places can count."""
    if n_words > _MOST_WORDS:
        why = f"sift lays out at most {_MOST_WORDS:,} words at once, not {n_words:,}"
        raise TooLargeError(f"{why}: add fewer subscriptions at a time")


def _shares(clauses: Clauses, context: Context) -> NDArray[np.float64]:
    """Estimate the share of events for which each literal holds.

    Without statistics, an attribute that few subscriptions use is taken to be rare in events too.
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

    In a block, all postings of an attribute are looked at, and those go on whose second attribute the event has. In a
    tree, only those whose values fit are looked at, but it takes some more cache misses to come to them. In between is
    a pool, one list that marks decide: cheaper than a path of many short lists.
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
    """Leave one piece of each clause in pools: whichever ranges its access literal has, it has one entry there."""
    return _picked(pieces, _is_first(pieces.clauses) | ~is_pool[pieces.attributes])


def _picked(pieces: Pieces, is_kept: NDArray[np.bool_]) -> Pieces:
    return Pieces(*(each[is_kept] for each in pieces))


def _lanes(counts: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the lane of each attribute, by how often entries ask for it, and which ones have it for themselves."""
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
    """Return a large array in memory from NumPy, which asks for huge pages; kernels do not."""
    return array.copy() if array.nbytes > _HUGE_PAGES_BYTES else array


# How often this process was forked off another: there, a thread with the number of one of ours may have been in the
# middle of a match, and what its workspace holds is in our memory.
_n_forks = 0


def _after_fork() -> None:
    global _n_forks
    _n_forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
