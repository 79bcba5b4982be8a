"""Columnar subscriptions to clauses, without parsing and without an object per predicate.

One row is one predicate, and becomes one coded literal. Comparisons with numbers, equality of texts and `in` lists,
that is nearly all rows of a large table, are encoded a column at a time; other rows one by one, each distinct one once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from siftline.encoding.bulk import add_in_bulk, distinct_numbers, distinct_texts
from siftline.encoding.clauses import SATISFIED, SET, VETO, Clauses, pattern_of
from siftline.encoding.domain import NUMBERS, STRINGS
from siftline.encoding.flat_domains import EXACT_INTEGERS, binary_buffers, read_only
from siftline.encoding.ranges import boundaries, presence, spaces
from siftline.encoding.tables import (
    PredicateRows,
    dictionary_column,
    has_values,
    number_column,
    ordered_rows,
    predicate_of,
    spelling,
)
from siftline.errors import SubscriptionError
from siftline.kernels.columns import point_sets
from siftline.kernels.locate import locate_leaves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains, Move
    from siftline.encoding.ranges import Ranges
    from siftline.kernels.locate import FlatDomains
    from siftline.model import Predicate

_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=", "between")
_NUMBER_KIND: Final = 3
_STRING_KIND: Final = 4


class LoadedColumns(NamedTuple):
    """Subscriptions from a table, encoded for slots from 0 on."""

    ids: list[Any]
    weights: NDArray[np.float64]
    expressions: PredicateRows
    clauses: Clauses
    domains: Domains
    moves: list[Move]


class _Constants(NamedTuple):
    """Constants of one kind that stand in some of the rows."""

    rows: NDArray[np.int64]
    values: Any  # an array of doubles, or an Arrow array of strings


class _Encoded(NamedTuple):
    """One predicate in codes."""

    attribute: int
    ranges: Ranges
    is_wanted: bool
    is_exact: bool
    pattern: int = -1


class _OneByOne(NamedTuple):
    """The rows that are not encoded by columns."""

    rows: NDArray[np.int64]
    predicates: list[Predicate]


def load_columns(table: Any, domains: Domains, *, takes_patterns: bool = False) -> LoadedColumns:
    """Encode a predicate table; new attributes, constants and patterns go into `domains`."""
    rows, ids, owners = ordered_rows(table)
    loader = _Loader(rows, owners, domains, takes_patterns)
    moves = loader.add_constants()
    starts = np.searchsorted(owners, np.arange(len(ids) + 1)).astype(np.int64)
    expressions = PredicateRows(rows, starts)
    return LoadedColumns(ids, _weights(rows, starts), expressions, loader.clauses(), domains, moves)


class _Loader:
    """One table on its way to clauses."""

    def __init__(self, rows: Any, owners: NDArray[np.int32], domains: Domains, takes_patterns: bool) -> None:
        self.rows = rows
        self.owners = owners
        self.domains = domains
        self.takes_patterns = takes_patterns
        self.n_rows = len(owners)
        self.positions, self.names = dictionary_column(rows, "attribute")
        op_codes, ops = dictionary_column(rows, "op")
        spelled = [spelling(op) for op in ops]
        known = np.array([_COMPARISONS.index(op) if op in _COMPARISONS else -1 for op in spelled], dtype=np.int64)
        self.comparisons = known[op_codes] if len(ops) else np.zeros(0, dtype=np.int64)
        is_in = np.array([op == "in" for op in spelled], dtype=np.bool_)
        self.is_in = is_in[op_codes] if len(ops) else np.zeros(0, dtype=np.bool_)
        self._split()

    # which rows go which way

    def _split(self) -> None:
        """Sort the rows by how they are encoded."""
        numbers, has_number = number_column(self.rows, "number")
        uppers, has_upper = number_column(self.rows, "upper")
        has = {name: has_values(self.rows, name) for name in ("text", "upper_text", "flag", "numbers", "texts")}
        is_between = self.comparisons == _COMPARISONS.index("between")
        is_plain = ~(has["upper_text"] | has["flag"])
        no_lists = is_plain & ~has["numbers"] & ~has["texts"]
        is_number = (self.comparisons >= 0) & has_number & ~has["text"] & (has_upper == is_between) & no_lists
        is_number &= _is_exact_double(numbers) & _is_exact_double(uppers)
        is_text = np.isin(self.comparisons, (0, 1)) & has["text"] & ~has_number & ~has_upper & no_lists
        is_list = self.is_in & is_plain & ~has_number & ~has_upper & ~has["text"]
        self.numbers = _Constants(np.flatnonzero(is_number), numbers[is_number].astype(np.float64))
        upper_rows = np.flatnonzero(is_number & is_between)
        self.uppers = _Constants(upper_rows, uppers[upper_rows].astype(np.float64))
        self.texts = _Constants(np.flatnonzero(is_text), self._texts(is_text))
        self.number_lists = self._lists("numbers", is_list & has["numbers"] & ~has["texts"])
        self.text_lists = self._lists("texts", is_list & has["texts"] & ~has["numbers"])
        is_done = np.zeros(self.n_rows, dtype=np.bool_)
        for part in (self.numbers, self.texts, self.number_lists[0], self.text_lists[0]):
            is_done[part.rows] = True
        self.others = self._one_by_one(np.flatnonzero(~is_done))

    def _texts(self, chosen: NDArray[np.bool_]) -> Any:
        return self.rows["text"].combine_chunks().filter(chosen) if chosen.any() else None

    def _lists(self, name: str, chosen: NDArray[np.bool_]) -> tuple[_Constants, NDArray[np.int64]]:
        """Return the elements of the chosen lists, and where each list starts; odd lists are left for later."""
        rows = np.flatnonzero(chosen)
        empty = _Constants(rows[:0], None), np.zeros(1, dtype=np.int64)
        if not len(rows):
            return empty
        lists = self.rows[name].combine_chunks().take(rows)
        elements = lists.flatten()
        if elements.null_count:
            return empty
        starts = np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy())]).astype(np.int64)
        if name == "texts":
            return _Constants(rows, elements), starts
        values = elements.to_numpy()
        if not _is_exact_double(values).all():
            return empty
        return _Constants(rows, values.astype(np.float64)), starts

    def _one_by_one(self, rows: NDArray[np.int64]) -> _OneByOne:
        predicates = []
        for position, row in zip(rows.tolist(), self.rows.take(rows).to_pylist(), strict=True):
            try:
                predicates.append(predicate_of(row))
            except SubscriptionError as error:
                subscription = self.rows["subscription"][position].as_py()
                reason = f"subscription {subscription!r}, attribute {row['attribute']!r}: {error.reason}"
                raise SubscriptionError(reason, hint=error.hint) from None
        return _OneByOne(rows, predicates)

    # constants

    def add_constants(self) -> list[Move]:
        """Take the attributes and constants of all rows into the domains."""
        self.ids = np.array([self.domains.intern(name) for name in self.names], dtype=np.int32)
        self.attributes = self.ids[self.positions] if len(self.ids) else np.zeros(0, dtype=np.int32)
        n_attributes = len(self.domains)
        numbers = self._owned((self.numbers, None), (self.uppers, None), self.number_lists)
        texts = self._owned((self.texts, None), self.text_lists)
        others: dict[int, list[Any]] = {}
        for predicate in self.others.predicates:
            if predicate.operand is not None:
                needed = [value for value in boundaries(predicate) if type(value) is not bool]
                others.setdefault(self.domains.attribute_id(predicate.attribute or ""), []).extend(needed)
        return add_in_bulk(
            self.domains, distinct_numbers(numbers, n_attributes), distinct_texts(texts, n_attributes), others
        )

    def _owned(self, *parts: tuple[_Constants, NDArray[np.int64] | None]) -> list[tuple[NDArray[np.int32], Any]]:
        """Return constants, each with its attribute."""
        return [(self._owners_of(part, starts), part.values) for part, starts in parts if len(part.rows)]

    def _owners_of(self, part: _Constants, starts: NDArray[np.int64] | None) -> NDArray[np.int32]:
        """Return the attribute of each constant."""
        owners = self.attributes[part.rows]
        return owners if starts is None else np.repeat(owners, np.diff(starts))

    # codes

    def clauses(self) -> Clauses:
        """Encode all rows, once their constants are in the domains."""
        flat = self.domains.merged_base().flat
        self.ranges = _Ranges(self.n_rows)
        self._encode_comparisons(flat)
        self._encode_lists(flat)
        self._encode_others()
        return self._assembled()

    def _encode_comparisons(self, flat: FlatDomains) -> None:
        for part, section in ((self.numbers, NUMBERS), (self.texts, STRINGS)):
            if not len(part.rows):
                continue
            codes = self._codes(part, None, flat)
            ops = self.comparisons[part.rows]
            uppers = codes.copy()
            if section is NUMBERS and len(self.uppers.rows):
                uppers[ops == _COMPARISONS.index("between")] = self._codes(self.uppers, None, flat)
            self.ranges.add_comparisons(part.rows, ops, codes, uppers, section)

    def _encode_lists(self, flat: FlatDomains) -> None:
        for part, starts in (self.number_lists, self.text_lists):
            if len(part.rows):
                set_starts, points = point_sets(starts, self._codes(part, starts, flat))
                self.ranges.add_sets(part.rows, np.diff(set_starts), points, points)

    def _codes(self, part: _Constants, starts: NDArray[np.int64] | None, flat: FlatDomains) -> NDArray[np.int32]:
        attributes = self._owners_of(part, starts)
        n = len(attributes)
        no_texts = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(0, dtype=np.uint8)
        if isinstance(part.values, np.ndarray):
            numbers, text_starts, text_ends, texts = part.values, *no_texts
            kind = _NUMBER_KIND
        else:
            offsets, texts = binary_buffers(part.values)
            numbers, text_starts, text_ends = np.zeros(n), offsets[:-1], offsets[1:]
            kind = _STRING_KIND
        kinds, residuals = np.full(n, kind, np.uint8), np.zeros(n, np.int64)
        leaves: list[Any] = [attributes, kinds, numbers, residuals, text_starts, text_ends, texts]
        codes: NDArray[np.int32] = locate_leaves(*[*map(read_only, leaves), *flat])
        return codes

    def _encode_others(self) -> None:
        """Encode the remaining rows, each distinct predicate once."""
        known: dict[Predicate, _Encoded] = {}
        for row, predicate in zip(self.others.rows.tolist(), self.others.predicates, strict=True):
            encoded = known.get(predicate)
            if encoded is None:
                encoded = known[predicate] = self._encode_one(predicate)
            self.attributes[row] = encoded.attribute
            self.ranges.add_one(row, encoded)

    def _encode_one(self, predicate: Predicate) -> _Encoded:
        """Return a predicate in codes."""
        attribute = self.domains.attribute_id(predicate.attribute or "")
        if predicate.operand is None:
            section, is_wanted = presence(predicate.op)
            return _Encoded(attribute, [section], is_wanted, True)
        satisfying, _, is_tight = spaces(predicate, self.domains.domains[attribute])
        pattern = pattern_of(attribute, predicate)
        if pattern is None or (is_tight and not self.takes_patterns):
            return _Encoded(attribute, satisfying, True, is_tight)
        if self.takes_patterns:
            return _Encoded(attribute, satisfying, True, is_tight, self.domains.add_pattern(pattern))
        return _Encoded(self.domains.pattern_attribute(pattern), SATISFIED, True, True)

    def _assembled(self) -> Clauses:
        """Group the rows to clauses, leaving out clauses that can never hold."""
        ranges = self.ranges
        is_new = np.ones(self.n_rows, dtype=np.bool_)
        if self.n_rows:
            clause, _ = number_column(self.rows, "clause")
            is_new[1:] = (np.diff(self.owners) != 0) | (np.diff(clause) != 0)
        clause_of_row = np.cumsum(is_new) - 1
        is_dead = np.zeros(int(is_new.sum()), dtype=np.bool_)
        is_dead[clause_of_row[ranges.counts == 0]] = True
        is_kept = ~is_dead[clause_of_row]
        return ranges.clauses(is_kept, is_new, self.owners, self.attributes)


class _Ranges:
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

    def add_one(self, row: int, encoded: _Encoded) -> None:
        """Give one row its ranges."""
        _, ranges, is_wanted, is_exact, pattern = encoded
        self.is_veto[row], self.is_exact[row], self.patterns[row] = not is_wanted, is_exact, pattern
        bounds = np.array(ranges, dtype=np.int32).reshape(-1, 2)
        self.add_sets(np.array([row]), np.array([len(ranges)]), bounds[:, 0], bounds[:, 1])

    def add_comparisons(self, rows: Any, ops: Any, codes: Any, uppers: Any, section: Any) -> None:
        """Give each row of a comparison the codes that satisfy it."""
        names = {op: ops == i for i, op in enumerate(_COMPARISONS)}
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


def _is_exact_double(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where a number is finite and loses nothing as a double."""
    is_exact = np.isfinite(values) if values.dtype.kind == "f" else np.abs(values.astype(float)) < EXACT_INTEGERS
    return np.asarray(is_exact, dtype=np.bool_)


def _weights(rows: Any, starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weight of each subscription, 1 where none is given; all its rows must agree."""
    if "weight" not in rows.column_names:
        return np.ones(len(starts) - 1)
    given, is_there = number_column(rows, "weight")
    weights = np.where(is_there, given, 1.0)
    first = weights[starts[:-1]]
    odd = np.flatnonzero((weights != np.repeat(first, np.diff(starts))) | ~np.isfinite(weights))
    if len(odd):
        subscription = rows["subscription"][int(odd[0])].as_py()
        raise SubscriptionError(f"subscription {subscription!r}: its weight must be one finite number")
    return np.asarray(first, dtype=np.float64)
