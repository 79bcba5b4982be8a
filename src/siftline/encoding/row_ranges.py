"""The codes that satisfy each row of a table of predicates, on their way to clauses."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.clauses import SET, VETO, Clauses, spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from siftline.encoding.ranges import Ranges

COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=", "between")


class CodedPredicate(NamedTuple):
    """One predicate in codes."""

    attribute: int
    ranges: Ranges
    is_wanted: bool
    is_exact: bool
    pattern: int = -1


class RowRanges:
    """The code ranges of each row under construction: one for most rows, a set of several for some, none at all."""

    def __init__(self, n_rows: int) -> None:
        self.counts = np.zeros(n_rows, dtype=np.int64)
        self.lows = np.zeros(n_rows, dtype=np.int32)
        self.highs = np.zeros(n_rows, dtype=np.int32)
        self.is_veto = np.zeros(n_rows, dtype=np.bool_)
        self.is_exact = np.ones(n_rows, dtype=np.bool_)
        self.patterns = np.full(n_rows, -1, dtype=np.int32)
        # Of rows with several ranges: (row of each range, lows, highs), ranges of a row together and ascending.
        self.sets: list[tuple[Any, Any, Any]] = []

    def add(self, rows: Any, lows: Any, highs: Any) -> None:
        """Give each row one range."""
        self.counts[rows] = 1
        self.lows[rows] = lows
        self.highs[rows] = highs

    def add_sets(self, rows: Any, counts: Any, lows: Any, highs: Any) -> None:
        """Give each row its number of ranges."""
        self.counts[rows] = counts
        ends = np.cumsum(counts)
        is_filled = counts > 0
        self.lows[rows[is_filled]] = lows[(ends - counts)[is_filled]]
        self.highs[rows[is_filled]] = highs[ends[is_filled] - 1]
        in_set = np.repeat(counts > 1, counts)
        self.sets.append((np.repeat(rows, counts)[in_set], lows[in_set], highs[in_set]))

    def add_coded(self, rows: NDArray[np.int64], coded: Sequence[CodedPredicate], places: NDArray[np.int64]) -> None:
        """Give each row what the predicate at its place has in codes."""
        self.is_veto[rows] = np.array([not each.is_wanted for each in coded], dtype=np.bool_)[places]
        self.is_exact[rows] = np.array([each.is_exact for each in coded], dtype=np.bool_)[places]
        self.patterns[rows] = np.array([each.pattern for each in coded], dtype=np.int32)[places]
        counts = np.array([len(each.ranges) for each in coded], dtype=np.int64)
        bounds = np.array(list(chain.from_iterable(each.ranges for each in coded)), dtype=np.int32).reshape(-1, 2)
        items = spans((np.cumsum(counts) - counts)[places], counts[places])
        self.add_sets(rows, counts[places], bounds[items, 0], bounds[items, 1])

    def add_comparisons(self, rows: Any, ops: Any, codes: Any, uppers: Any, section: Any) -> None:
        """Give each row of a comparison the codes that satisfy it."""
        names = {op: ops == i for i, op in enumerate(COMPARISONS)}
        first, last = np.int32(section.first), np.int32(section.last)
        above = names[">"] | names[">="]
        lows = np.select([names["<"] | names["<="], names[">"]], [first, codes + 1], codes)
        highs = np.select([names["<"], above], [codes - 1, last], uppers)
        is_single = ~names["!="] & (lows <= highs)
        self.add(rows[is_single], lows[is_single], highs[is_single])
        unequal = codes[names["!="]]
        if len(unequal):
            starts = np.column_stack([np.full_like(unequal, first), unequal + 1]).ravel()
            ends = np.column_stack([unequal - 1, np.full_like(unequal, last)]).ravel()
            self.add_sets(rows[names["!="]], np.full(len(unequal), 2), starts, ends)

    def clauses(self, is_kept: Any, is_new: Any, owners: Any, attributes: Any) -> Clauses:
        """Return the clauses of the kept rows."""
        rows = np.flatnonzero(is_kept)
        has_set = self.counts[rows] > 1
        clause_starts = np.flatnonzero(is_new[rows])
        is_exact, patterns = self.is_exact[rows], self.patterns[rows]
        set_lows, set_highs = self._joined_sets(is_kept)
        return Clauses(
            slots=owners[rows][clause_starts].astype(np.int32),
            starts=np.append(clause_starts, len(rows)).astype(np.int64),
            is_exact=_all_of_each(is_exact, clause_starts),
            is_exact_by_patterns=_all_of_each(is_exact | (patterns >= 0), clause_starts),
            attributes=attributes[rows],
            lows=self.lows[rows],
            highs=self.highs[rows],
            kinds=(has_set * np.uint8(SET) + self.is_veto[rows] * np.uint8(VETO)).astype(np.uint8),
            sets=np.where(has_set, np.cumsum(has_set) - 1, -1).astype(np.int32),
            is_alternative=np.zeros(len(rows), dtype=np.bool_),
            patterns=patterns,
            set_starts=np.concatenate([[0], np.cumsum(self.counts[rows][has_set])]).astype(np.int64),
            set_lows=set_lows,
            set_highs=set_highs,
        )

    def _joined_sets(self, is_kept: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the ranges of all kept sets, in the order of their rows."""
        parts = [(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32)), *self.sets]
        rows, lows, highs = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(rows, kind="stable")
        order = order[is_kept[rows[order]]]
        return lows[order], highs[order]


def _all_of_each(flags: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each clause whether all its rows are flagged."""
    return np.logical_and.reduceat(flags, starts) if len(flags) else np.zeros(0, np.bool_)
