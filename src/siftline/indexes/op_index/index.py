"""`op-index`: subscriptions by pivot attribute, their predicates by operator, counted down.

Paper: D. Zhang, C.-Y. Chan, K.-L. Tan, An Efficient Publish/Subscribe Index for E-Commerce Databases, PVLDB 7(8), 2014.

Idea: a subscription can match only events that have its rarest attribute, the *pivot*. All its predicates go into the
lists of that pivot, one list for each operator. An event looks only into the lists of its own attributes. A list is cut
into `segments` by attribute, each with a signature of `signature_bits` that tells most searches to end before they
start. Every clause has a counter of unmatched predicates, next to those of the same pivot. An event sets the counters
of its pivots, counts down the predicates that it matches, and finds the clauses that reach zero. A conjunction of
disjunctions has a bitmap of unmatched disjunctions instead of a counter, under each attribute of its shortest
disjunction.

Worked example (Table 1 of the paper, b = 2 segments: A, C, E and B, D; `x` is an empty segment, with signature 0):

    S1  A = 2 and B in (3, 6, 9)          pivot    list   segment 0               segment 1
    S2  A <= 8 and C >= 2                 A        =      A 2 →S1  A 2 →S4        B 3 →S1  B 6 →S1  B 9 →S1
    S3  C = 6 and B <= 4                           <=     A 8 →S2                 x
            and E between 3 and 12                 >=     C 2 →S2                 x
    S4  A = 2                             C        =      C 6 →S3                 x
    S5  D >= 12 and E <= 9                         <=     E 12 →S3                B 4 →S3
    S6  B in (3, 6) and C <= 4                     >=     E 3 →S3                 x
            and D >= 10 and E <= 7        D        ...

    counters   A: S1 2, S2 2, S4 1      C: S3 4      D: S5 2, S6 4

    event B = 6, C = 3, E = 9: the only pivot is C. `=`: B 6 and C 3 and E 9 find nothing. `<=`: E 12. `>=`: E 3.
    S3 keeps 2 of 4: no match. S2 and S5, of which one predicate holds, are never touched.

Arrays (b segments, or 1; p numbers the pivots by attribute; cell = (p * 3 + operator) * b + segment)
------
pivots : int32[n_attributes]                    attribute -> p, or -1
directory : uint32[n_pivots * 3 * b + 1]        cell -> its first entry
signatures : uint64[n_pivots * 3 * b]           every entry has its bit set; empty without segments
keys : uint64[n_entries]                        attribute << 32 | operand, ascending inside a cell
targets : int32[n_entries]                      t >= 0: counter t of the pivot; ~t = bitmap of the pivot * 64 + bit
counter_starts : int64[n_pivots + 1]            the counters of p are counter_starts[p] : counter_starts[p + 1] of ...
counter_clauses : int32, needs : uint8          ... the clause, and its number of counts, at least 1
bitmap_starts, bitmap_clauses : int32, bitmaps : uint64      the same for CNF; one bit for each disjunction
is_verified : bool[n_clauses]                   clauses that their counts do not decide
is_exact : bool[n_clauses]                      exact when patterns are decided as well; empty without patterns
patterns : int32[...]                           the patterns of the part that have lists, ascending
sizes : int64[3]                                most counters and most bitmaps of a pivot, number of verified clauses

Cost: 12 bytes for each predicate, 6 for each clause, 36 b for each pivot. An event of m values tests up to 3 m²
signatures and counts down what matches under its pivots: Lemmas 3, 6 and 7, which `describe` prints beside what was
measured. Laying out is a counting sort by cell, and a small sort inside each.

Departures
----------
D1  Additions and removals by parts, not in place: a sorted list is slow to change and unsafe under a match (parts.py).
    So a bit is never removed from a signature: it is computed again with its part. Pivots are the rarest attributes of
    the part.
D2  Operands are codes, so `<` is `<=` of the code before. A value is compared inside its section only (numbers with
    numbers), and a test of presence is `>=` the first code of a section.
D3  Several entries share a count where one value fires at most one of them: `in`, and `!=` and `not between` as
    `<=` or `>=`. For other sets of ranges (`not in`) presence gives the count, and the clause is verified.
D4  Vetoes are not counted; their clauses are verified when nothing else is left. So are all clauses when an attribute
    of the event has several values, because counts may then be too high.
D5  Half of a `between` must not clear the bit of a disjunction: its `>=` half does, and the clause is verified. More
    than 255 counts or 64 disjunctions: the first ones are counted, and the clause is verified.
D6  The lists for prefixes, suffixes and regular expressions belong to a part, not to a pivot, so that each string is
    looked up once (lists.py); a pattern that matches is added to the event as a value. After a snapshot is opened, the
    first match makes the lists again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from siftline.encoding.selectivity import attribute_frequencies
from siftline.errors import TooLargeError
from siftline.indexes.op_index.kernels import N_OPERATORS, Layout, match_event, sort_out
from siftline.indexes.op_index.list_kernels import (
    FIRST_PATTERN,
    Pivoted,
    choose_pivots,
    most_entries,
    number_pivots,
    sign_segments,
    sort_entries,
    write_entries,
)
from siftline.indexes.op_index.lists import LISTS, PatternLists
from siftline.indexes.parts import Found, PartedIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.domains import Domains
    from siftline.indexes.parts import Context, OneEvent, Part

_MOST_SEGMENTS: Final = 4096
_MOST_BITS: Final = 64
# The largest number that fits into `directory`.
_MOST_CELLS: Final = 2**32 - 1
# How many bitmaps `targets` can number.
_MOST_BITMAPS: Final = 2**25

# Work that matching counts, besides what every index counts.
_COUNTERS: Final = (
    "parts_matched",
    "values_seen",
    "segments_probed",
    "segments_pruned",
    "entries_reached",
    "entries_matched",
)


class OpIndex(PartedIndex):
    """Pivots, lists by operator, counters.

    Parameters
    ----------
    segments : int
        How many segments each list is cut into; 0 for neither segments nor signatures (OpIndex-BS).
    signature_bits : int
        How many bits the signature of a segment has, 1 to 64.
    lists : sequence of str
        The operators that get a list of their own, of `starts with`, `ends with` and `matches`. Without one, a prefix
        is a range of codes (faster while they are few: 25 against 37 us an event with 20,000 of them), and the others
        go to the exact check.
    """

    name: ClassVar[str] = "op-index"
    takes_alternatives: ClassVar[bool] = True
    takes_patterns: ClassVar[bool] = True
    arrays_type: ClassVar[type] = Layout

    def __init__(self, *, segments: int = 32, signature_bits: int = 64, lists: Sequence[str] = tuple(LISTS)) -> None:
        if type(segments) is not int or not 0 <= segments <= _MOST_SEGMENTS:
            raise ValueError(f"segments must be a whole number from 0 to {_MOST_SEGMENTS}, not {segments!r}")
        if type(signature_bits) is not int or not 1 <= signature_bits <= _MOST_BITS:
            raise ValueError(f"signature_bits must be a whole number from 1 to {_MOST_BITS}, not {signature_bits!r}")
        if not isinstance(lists, (list, tuple)) or not set(lists) <= LISTS.keys():
            raise ValueError(f"lists must be a list of some of {', '.join(map(repr, LISTS))}, not {lists!r}")
        self._has_segments = segments > 0
        self._n_segments = max(segments, 1)
        self._n_bits = signature_bits
        self._listed = frozenset(lists)
        self._pattern_lists: dict[Part, PatternLists] = {}
        super().__init__()
        self._counters |= dict.fromkeys(_COUNTERS, 0)

    # laying out

    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> Layout:
        frequencies = attribute_frequencies(clauses, context.domains, context.statistics)
        firsts, ends, is_cnf = choose_pivots(
            chosen, clauses.starts, clauses.attributes, clauses.kinds, clauses.is_alternative, frequencies
        )
        pivots, counter_starts, bitmap_starts = number_pivots(
            len(context.domains), firsts, ends, is_cnf, clauses.attributes
        )
        n_most = most_entries(
            chosen, firsts, ends, clauses.starts, clauses.lows, clauses.highs, clauses.sets, clauses.set_starts
        )
        n_cells = (len(counter_starts) - 1) * N_OPERATORS * self._n_segments
        if max(n_most, n_cells) > _MOST_CELLS or bitmap_starts[-1] > _MOST_BITMAPS:
            raise TooLargeError(
                f"op-index holds at most {_MOST_CELLS:,} segments, as many list entries,"
                f" and {_MOST_BITMAPS:,} bitmaps in one part"
            )
        is_verified = np.zeros(clauses.n_clauses, dtype=np.bool_)
        patterns = _plugged(clauses.patterns, context.domains, self._listed)
        cells, keys, targets, counter_clauses, needs, bitmap_clauses, bitmaps = write_entries(
            n_most,
            self._n_segments,
            chosen,
            Pivoted(firsts, ends, is_cnf, pivots, counter_starts, bitmap_starts),
            is_verified,
            patterns,
            clauses.literals,
        )
        directory, keys, targets = sort_entries(n_cells, cells, keys, targets)
        signatures = np.zeros(0, dtype=np.uint64)
        if self._has_segments:
            signatures = sign_segments(self._n_segments, self._n_bits, directory, keys)
        sizes = [np.diff(counter_starts).max(initial=0), np.diff(bitmap_starts).max(initial=0), is_verified.sum()]
        return Layout(
            pivots=pivots,
            directory=directory,
            signatures=signatures,
            keys=keys,
            targets=targets,
            counter_starts=counter_starts,
            counter_clauses=counter_clauses,
            needs=needs,
            bitmap_starts=bitmap_starts,
            bitmap_clauses=bitmap_clauses,
            bitmaps=bitmaps,
            is_verified=is_verified,
            is_exact=_exact_with_lists(clauses, patterns, is_verified),
            patterns=np.unique(patterns[patterns >= 0]),
            sizes=np.array(sizes, dtype=np.int64),
        )

    # matching

    def _match_part(self, part: Part, event: OneEvent) -> Found:
        arrays = part.arrays
        attributes, codes = event.attributes, event.codes
        if len(arrays.patterns):
            attributes, codes = self._with_patterns(part, event)
        n_counters, n_bitmaps, n_verified = arrays.sizes.tolist()
        found, is_single, n_pivots, n_candidates, n_pruned, n_reached, n_matched = match_event(
            attributes,
            codes,
            self._n_segments,
            self._n_bits,
            self._dense(),
            self._scratch.array("counters", n_counters, np.uint8),
            self._scratch.array("bitmaps", n_bitmaps, np.uint64),
            part.handle(Layout),
        )
        n_lists = n_pivots * N_OPERATORS
        counters = self._counters
        counters["parts_matched"] += 1
        counters["values_seen"] += len(attributes)
        counters["segments_probed"] += n_lists * len(attributes)
        counters["segments_pruned"] += n_pruned
        counters["entries_reached"] += n_reached
        counters["entries_matched"] += n_matched
        if not n_verified and not n_bitmaps and is_single:
            return Found(found, n_candidates, n_matched, n_lists)
        is_reported = self._scratch.array("is_reported", part.n_clauses, np.bool_)
        sure, unsure = sort_out(found, is_single, arrays.is_verified, is_reported)
        if not len(unsure):
            return Found(sure, n_candidates, n_matched, n_lists)
        verified, n_tested = self._verified(part, unsure, event)  # D4
        return Found(np.concatenate([sure, verified]), n_candidates, n_matched + n_tested, n_lists)

    def _with_patterns(self, part: Part, event: OneEvent) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the event with the patterns that its strings match, as values of their own (D6)."""
        lists = self._pattern_lists.get(part)
        if lists is None:
            assert self._context is not None
            domains = self._context.domains
            lists = PatternLists(((n, domains.patterns[n]) for n in part.arrays.patterns.tolist()), domains.names)
            self._pattern_lists[part] = lists
        matched = np.array(lists.match(event.leaves), dtype=np.int32)
        attributes = np.concatenate([event.attributes, matched + np.int32(FIRST_PATTERN)])
        return attributes, np.concatenate([event.codes, np.zeros(len(matched), dtype=np.int32)])

    def _is_exact(self, part: Part, event: OneEvent) -> NDArray[np.bool_]:
        exact: NDArray[np.bool_] = part.arrays.is_exact
        # With several values, verifying over codes does not tell whether the patterns were counted.
        if len(exact) and len(np.unique(event.attributes)) == len(event.attributes):
            return exact
        return super()._is_exact(part, event)

    def _publish(self) -> None:
        super()._publish()
        # Copied first, because a match in another thread may add to it.
        made = self._pattern_lists.copy()
        self._pattern_lists = {part: lists for part, lists in made.items() if part in self._parts}

    def __getstate__(self) -> dict[str, Any]:
        # Automata cannot be pickled; the first match makes the lists again.
        return {**super().__getstate__(), "_pattern_lists": {}}

    # looking inside

    def _check_part(self, part: Part) -> None:
        arrays, n_segments = part.arrays, self._n_segments
        n_pivots = int((arrays.pivots >= 0).sum())
        assert arrays.pivots[arrays.pivots >= 0].tolist() == list(range(n_pivots))
        assert len(arrays.directory) == n_pivots * N_OPERATORS * n_segments + 1
        assert arrays.directory[-1] == len(arrays.keys) == len(arrays.targets)
        cells = np.repeat(np.arange(len(arrays.directory) - 1), np.diff(arrays.directory.astype(np.int64)))
        in_order = (np.diff(cells) > 0) | (arrays.keys[1:] >= arrays.keys[:-1])
        assert in_order.all()
        assert ((arrays.keys >> np.uint64(32)) % n_segments == cells % n_segments).all()
        for starts, owners in (
            (arrays.counter_starts, arrays.counter_clauses),
            (arrays.bitmap_starts, arrays.bitmap_clauses),
        ):
            assert (starts[0], starts[-1]) == (0, len(owners))
            assert (np.diff(starts) >= 0).all()
        places = np.where(arrays.targets >= 0, arrays.targets, ~arrays.targets // 64)
        pivot_sizes = np.where(
            arrays.targets >= 0,
            np.diff(arrays.counter_starts)[cells // (N_OPERATORS * n_segments)],
            np.diff(arrays.bitmap_starts)[cells // (N_OPERATORS * n_segments)],
        )
        assert (places < pivot_sizes).all()
        assert arrays.needs.all()
        assert arrays.bitmaps.all()
        owners = np.union1d(arrays.counter_clauses, arrays.bitmap_clauses)
        assert len(owners) + len(part.others) == part.n_clauses
        if self._has_segments:
            signed = sign_segments(n_segments, self._n_bits, arrays.directory, arrays.keys)
            assert (signed == arrays.signatures).all()
            assert (arrays.signatures >> np.uint64(self._n_bits - 1) <= 1).all()

    def _stats_of_part(self, part: Part) -> dict[str, int]:
        arrays = part.arrays
        return {
            "pivots": len(arrays.counter_starts) - 1,
            "entries": len(arrays.keys),
            "verified_clauses": int(arrays.sizes[2]),
            "cnf_copies": len(arrays.bitmaps),
        }

    def _describe_part(self, part: Part) -> list[str]:
        arrays = part.arrays
        model = _Model.of(part)
        n_pivots = len(arrays.counter_starts) - 1
        segments = f"{self._n_segments} segments of {self._n_bits} bits" if self._has_segments else "no segments"
        mean = len(arrays.keys) / max(1, n_pivots * N_OPERATORS * self._n_segments)
        return [
            f"{n_pivots:,} pivots, {N_OPERATORS} lists each, {segments}; {len(arrays.keys):,} entries",
            f"entries in a segment: {model.segment_length(self._n_segments):.3g} by Lemma 3, {mean:.3g} in fact",
        ]

    def describe(self) -> str:
        """Return a few lines that show the structure, and the paper's predictions beside what was measured."""
        counters = self._counters
        lines = [super().describe()]
        if counters["parts_matched"]:
            models = [_Model.of(part) for part in self._parts]
            size = counters["values_seen"] / counters["parts_matched"]
            kappa = sum(model.match_chance for model in models) / max(1, len(models))
            psi = sum(model.n_matching(size) for model in models)
            share = counters["entries_matched"] / max(1, counters["entries_reached"])
            pruned = counters["segments_pruned"] / max(1, counters["segments_probed"])
            matched = counters["entries_matched"] / counters["events"]
            lines += [
                f"  {counters['events']:,} events of {size:.1f} values; signatures prune {pruned:.1%} of the segments",
                f"  chance that an entry matches: {kappa:.3g} by Lemma 6, {share:.3g} of those reached",
                f"  matching entries an event: {psi:.4g} by Lemma 7, {matched:.4g} in fact",
            ]
        return "\n".join(lines)


class _Model(NamedTuple):
    """The paper's model of a part: N, Γ average, d and σ of its Table 2, estimated from what the part holds."""

    n_clauses: int
    clause_size: float
    n_attributes: int
    cardinality: float

    @classmethod
    def of(cls, part: Part) -> _Model:
        arrays = part.arrays
        n_clauses = len(arrays.counter_clauses) + len(arrays.bitmap_clauses)
        operands = np.unique(arrays.keys)
        n_attributes = max(1, len(np.unique(operands >> np.uint64(32))))
        return cls(n_clauses, len(arrays.keys) / max(1, n_clauses), n_attributes, len(operands) / n_attributes)

    def segment_length(self, n_segments: int) -> float:
        """η of Lemma 3."""
        return self.n_clauses * self.clause_size / (N_OPERATORS * n_segments * self.n_attributes)

    @property
    def match_chance(self) -> float:
        """κ of Lemma 6."""
        return (1 + 2 / self.cardinality) / 3 if self.cardinality else 0.0

    def n_matching(self, size: float) -> float:
        """ψ of Lemma 7, for events of this many values."""
        d = self.n_attributes
        of_pivots = size * self.n_clauses * self.match_chance / d
        return of_pivots * (1 + (size - 1) * (self.clause_size - 1) / d)


def _plugged(patterns: NDArray[np.int32], domains: Domains, listed: frozenset[str]) -> NDArray[np.int32]:
    """Return the pattern of each literal if its operator has a list, -1 if not."""
    if not len(domains.patterns) or not (patterns >= 0).any():
        return np.full(len(patterns), -1, dtype=np.int32)
    has_list = np.array([pattern.op in listed for pattern in domains.patterns] + [False])  # with a last place for -1
    return np.where(has_list[patterns], patterns, -1).astype(np.int32)


def _exact_with_lists(
    clauses: Clauses, plugged: NDArray[np.int32], is_verified: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which clauses need no exact check after the lists have decided their patterns; nothing if none has any.

    Verifying over codes would not notice a pattern that did not match, so a verified clause is not among them.
    """
    if not (plugged >= 0).any():
        return np.zeros(0, dtype=np.bool_)
    is_open = np.zeros(clauses.n_clauses, dtype=np.bool_)
    owners = np.repeat(np.arange(clauses.n_clauses), np.diff(clauses.starts))
    is_open[owners[(clauses.patterns >= 0) & (plugged < 0)]] = True
    return clauses.is_exact | (clauses.is_exact_by_patterns & ~is_open & ~is_verified)
