"""The write buffer of an engine: its newest subscriptions, which the index does not have yet.

An index that is built in bulk takes milliseconds for one more subscription; the buffer only appends a few numbers.
Every event scans the buffer. When a flush is due, its clauses go to the index together (`flushing.py`). The buffer has
room for several times as many, for additions during the flush.

    heads      slot, start, end, exactness     one row a clause, with the first literal's attribute, low and high
    literals   attribute, low, high, kind, start and end in ranges (equal: no set), is_alternative, pattern
    ranges     low, high                       the ranges of sets

Rows are written before `n_clauses` counts them, and never change, except that a removal sets the exactness to DEAD. So
a reader that reads `n_clauses` first may go on while other threads add.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.clauses import RANGE, SET, VETO, Clauses, spans
from siftline.indexes.protocol import Candidates, Many
from siftline.kernels.write_buffer import (
    ATTRIBUTE,
    BY_PATTERNS,
    DEAD,
    END,
    EXACT,
    EXACTNESS,
    FIRST_ATTRIBUTE,
    FIRST_HIGH,
    FIRST_LOW,
    HIGH,
    INEXACT,
    IS_ALTERNATIVE,
    KIND,
    LOW,
    N_HEAD_COLUMNS,
    PATTERN,
    SET_END,
    SET_START,
    SLOT,
    START,
    match_buffer,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.events import EncodedEvents
    from siftline.encoding.plain import PlainRows, Row

_N_COLUMNS: Final = PATTERN + 1
_NO_PATTERN: Final = -1
_LITERALS_A_CLAUSE: Final = 8
_ROOM_FACTOR: Final = 8  # there is room for this many times what makes a flush due
_LOW_HALF: Final = 0xFFFFFFFF
_NONE: Final = np.empty(0, dtype=np.int32)


class End(NamedTuple):
    """How much of each kind of row a buffer has."""

    n_clauses: int
    n_literals: int
    n_ranges: int


class WriteBuffer:
    """A few subscriptions with ascending slots.

    Parameters
    ----------
    capacity : int
        How many clauses make a flush due; there is room for more.

    Attributes
    ----------
    n_clauses : int
        How many clauses a reader may read.
    """

    __slots__ = ("_heads", "_literals", "_n_literals", "_n_ranges", "_places", "_ranges", "capacity", "n_clauses")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.n_clauses = 0
        n_clauses = capacity * _ROOM_FACTOR
        self._heads = np.empty((n_clauses, N_HEAD_COLUMNS), dtype=np.int32)
        self._literals = np.empty((n_clauses * _LITERALS_A_CLAUSE, _N_COLUMNS), dtype=np.int32)
        self._ranges = np.empty((n_clauses * _LITERALS_A_CLAUSE, 2), dtype=np.int32)
        self._n_literals = 0
        self._n_ranges = 0
        self._places: dict[int, int] = {}  # the first clause of each slot

    @classmethod
    def of(cls, clauses: Clauses) -> WriteBuffer:
        """Return a buffer of some clauses with any slots, only for matching."""
        buffer = cls(0)
        n_literals, n_ranges = len(clauses.attributes), len(clauses.set_lows)
        buffer._heads = np.empty((clauses.n_clauses, N_HEAD_COLUMNS), dtype=np.int32)
        buffer._literals = np.empty((n_literals, _N_COLUMNS), dtype=np.int32)
        buffer._ranges = np.empty((n_ranges, 2), dtype=np.int32)
        buffer.add(clauses)
        return buffer

    @property
    def first_slot(self) -> int:
        """The least slot; there must be one."""
        return self._heads.item(0, SLOT)

    @property
    def is_due(self) -> bool:
        """Whether the buffer has so many clauses or literals that a flush is due."""
        return self.n_clauses >= self.capacity or self._n_literals >= self.capacity * _LITERALS_A_CLAUSE

    # changes

    def has_room(self, n_clauses: int, n_literals: int, n_ranges: int) -> bool:
        """Return whether this much can be added."""
        return (
            self.n_clauses + n_clauses <= len(self._heads)
            and self._n_literals + n_literals <= len(self._literals)
            and self._n_ranges + n_ranges <= len(self._ranges)
        )

    def add_plain(self, slot: int, rows: PlainRows) -> None:
        """Add a subscription of ranges and sets of them."""
        n_clauses = self.n_clauses
        self._places[slot] = n_clauses
        for literals, exactness in ((rows.exact, EXACT), (rows.wide, INEXACT)):
            if literals:
                first, end = self._n_literals, self._n_literals + len(literals)
                self._literals[first:end] = [self._plain_literal(row) for row in literals]
                self._heads[n_clauses] = (slot, first, end, exactness, *literals[0][:3], 0)
                self._n_literals = end
                n_clauses += 1
        self.n_clauses = n_clauses

    def _plain_literal(self, row: Row) -> tuple[int, ...]:
        """Return the columns of a literal; several ranges are appended to the ranges of the buffer."""
        attribute, low, high, ranges = row
        if not ranges:
            return attribute, low, high, RANGE, 0, 0, 0, _NO_PATTERN
        start, end = self._n_ranges, self._n_ranges + len(ranges)
        self._ranges[start:end] = ranges
        self._n_ranges = end
        return attribute, low, high, SET, start, end, 0, _NO_PATTERN

    def add(self, clauses: Clauses) -> None:
        """Add the clauses of new slots."""
        n_clauses, first, first_range = self.n_clauses, self._n_literals, self._n_ranges
        end_clause, end = n_clauses + clauses.n_clauses, first + len(clauses.attributes)
        end_range = first_range + len(clauses.set_lows)
        self._ranges[first_range:end_range] = np.stack([clauses.set_lows, clauses.set_highs], axis=1)
        self._literals[first:end] = _literal_rows(clauses, first_range)
        self._heads[n_clauses:end_clause] = _head_rows(clauses, first)
        self._n_literals, self._n_ranges = end, end_range
        for place in range(end_clause - 1, n_clauses - 1, -1):
            self._places[int(self._heads[place, SLOT])] = place
        self.n_clauses = end_clause

    def remove(self, slot: int) -> None:
        """Remove a subscription: it never matches again."""
        place = self._places.get(slot, self.n_clauses)
        while place < self.n_clauses and self._heads[place, SLOT] == slot:
            self._heads[place, EXACTNESS] = DEAD
            place += 1

    def take_over(self, other: WriteBuffer, start: End) -> None:
        """Append the rows of another buffer from `start` on; what was removed there stays removed."""
        n_clauses, first_literal, first_range = self.end
        end = other.end
        end_clause = n_clauses + end.n_clauses - start.n_clauses
        self._n_literals = first_literal + end.n_literals - start.n_literals
        self._n_ranges = first_range + end.n_ranges - start.n_ranges
        heads = self._heads[n_clauses:end_clause]
        heads[:] = other._heads[start.n_clauses : end.n_clauses]
        heads[:, START : END + 1] += first_literal - start.n_literals
        literals = self._literals[first_literal : self._n_literals]
        literals[:] = other._literals[start.n_literals : end.n_literals]
        literals[:, SET_START : SET_END + 1] += first_range - start.n_ranges  # without a set, they stay equal
        self._ranges[first_range : self._n_ranges] = other._ranges[start.n_ranges : end.n_ranges]
        slots = heads[:, SLOT].tolist()
        self._places.update(zip(reversed(slots), range(end_clause - 1, n_clauses - 1, -1), strict=True))
        self.n_clauses = end_clause

    # reading

    @property
    def end(self) -> End:
        """Where the next clause goes."""
        return End(self.n_clauses, self._n_literals, self._n_ranges)

    def dead_slots(self, n_clauses: int) -> NDArray[np.int32]:
        """Return the slots of removed subscriptions among the first clauses."""
        heads = self._heads[:n_clauses]
        return np.unique(heads[heads[:, EXACTNESS] == DEAD, SLOT])

    def match(
        self, attributes: NDArray[np.int32], codes: NDArray[np.int32], n_clauses: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the slots that match among the first clauses, and those that must be checked."""
        found = np.empty(n_clauses, dtype=np.int32)
        counts = match_buffer(attributes, codes, self._heads, self._literals, self._ranges, n_clauses, found)
        if not counts:
            return _NONE, _NONE
        n_possible = counts >> 32
        return found[: counts & _LOW_HALF], found[n_clauses - n_possible :] if n_possible else _NONE

    def match_many(self, events: EncodedEvents, first: int, end: int, n_clauses: int) -> Many:
        """Return the same for each of the events first .. end - 1."""
        starts, attributes, codes = events.starts, events.attributes, events.codes
        spans = pairwise(starts[first : end + 1].tolist())
        return Many.of([Candidates(*self.match(attributes[a:b], codes[a:b], n_clauses)) for a, b in spans])

    def clauses(self, n_clauses: int | None = None) -> Clauses:
        """Return the clauses, or the first of them, without those of removed subscriptions; callable during changes."""
        heads = self._heads[: self.n_clauses if n_clauses is None else n_clauses].copy()
        heads = heads[heads[:, EXACTNESS] != DEAD]
        lengths = heads[:, END] - heads[:, START]
        literals = self._literals[spans(heads[:, START], lengths)]
        set_lengths = literals[:, SET_END] - literals[:, SET_START]
        has_set = set_lengths > 0
        ranges = self._ranges[spans(literals[has_set, SET_START], set_lengths[has_set])]
        exactness = heads[:, EXACTNESS]
        return Clauses(
            slots=_column(heads, SLOT),
            starts=_starts(lengths),
            is_exact=exactness == EXACT,
            is_exact_by_patterns=exactness >= BY_PATTERNS,
            attributes=_column(literals, ATTRIBUTE),
            lows=_column(literals, LOW),
            highs=_column(literals, HIGH),
            kinds=_column(literals, KIND).astype(np.uint8),
            sets=np.where(has_set, np.cumsum(has_set) - 1, -1).astype(np.int32),
            is_alternative=literals[:, IS_ALTERNATIVE] != 0,
            patterns=_column(literals, PATTERN),
            set_starts=_starts(set_lengths[has_set]),
            set_lows=_column(ranges, 0),
            set_highs=_column(ranges, 1),
        )

    def check(self) -> None:
        """Assert that rows and counts fit together."""
        heads = self._heads[: self.n_clauses]
        assert (heads[:, START] <= heads[:, END]).all()
        assert (np.diff(heads[:, SLOT]) >= 0).all()
        assert len(heads) == 0 or heads[-1, END] == self._n_literals
        assert all(heads[place, SLOT] == slot for slot, place in self._places.items())
        assert set(heads[:, SLOT].tolist()) == self._places.keys()
        self.clauses().check()


def _head_rows(clauses: Clauses, first: int) -> NDArray[np.int32]:
    rows = np.zeros((clauses.n_clauses, N_HEAD_COLUMNS), dtype=np.int32)
    rows[:, SLOT] = clauses.slots
    rows[:, START], rows[:, END] = clauses.starts[:-1] + first, clauses.starts[1:] + first
    rows[:, EXACTNESS] = np.where(clauses.is_exact_by_patterns, BY_PATTERNS, INEXACT)
    rows[clauses.is_exact, EXACTNESS] = EXACT
    rows[:, FIRST_ATTRIBUTE] = -1
    # A clause may hold without its first literal's attribute if that literal is a veto or has alternatives.
    has_literals = np.diff(clauses.starts) > 0
    firsts = clauses.starts[:-1][has_literals]
    has_alternatives = np.append(clauses.is_alternative, False)[firsts + 1]
    decides = (clauses.kinds[firsts] < VETO) & ~has_alternatives
    chosen, firsts = np.flatnonzero(has_literals)[decides], firsts[decides]
    rows[chosen, FIRST_ATTRIBUTE] = clauses.attributes[firsts]
    rows[chosen, FIRST_LOW], rows[chosen, FIRST_HIGH] = clauses.lows[firsts], clauses.highs[firsts]
    return rows


def _literal_rows(clauses: Clauses, first_range: int) -> NDArray[np.int32]:
    rows = np.zeros((len(clauses.attributes), _N_COLUMNS), dtype=np.int32)
    columns: dict[int, Any] = {
        ATTRIBUTE: clauses.attributes,
        LOW: clauses.lows,
        HIGH: clauses.highs,
        KIND: clauses.kinds,
        IS_ALTERNATIVE: clauses.is_alternative,
        PATTERN: clauses.patterns,
    }
    for column, values in columns.items():
        rows[:, column] = values
    has_set = clauses.sets >= 0
    rows[has_set, SET_START] = clauses.set_starts[clauses.sets[has_set]] + first_range
    rows[has_set, SET_END] = clauses.set_starts[clauses.sets[has_set] + 1] + first_range
    return rows


def _starts(lengths: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _column(rows: NDArray[np.int32], column: int) -> NDArray[np.int32]:
    return np.ascontiguousarray(rows[:, column])
