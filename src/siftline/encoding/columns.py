"""Columnar subscriptions to clauses, without parsing and without an object per predicate.

One row is one predicate, and becomes one coded literal. Comparisons with numbers and timestamps, equality of texts and
`in` lists, that is nearly all rows of a large table, are encoded a column at a time; other rows one by one, each
distinct one once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siftline.encoding.bulk import add_in_bulk, distinct_numbers, distinct_texts
from siftline.encoding.clauses import SATISFIED, Clauses, pattern_of
from siftline.encoding.domain import NUMBERS, STRINGS, TRUE, after_prefix
from siftline.encoding.domains import INSTANT, MomentOf, Pattern
from siftline.encoding.flat_domains import EXACT_INTEGERS, binary_buffers, read_only
from siftline.encoding.moments import derived_comparison, has_moments
from siftline.encoding.ranges import boundaries, presence, spaces
from siftline.encoding.row_ranges import COMPARISONS, CodedPredicate, RowRanges
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
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.moments import read_instants, split_nanoseconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains, Move
    from siftline.encoding.flat_domains import Base
    from siftline.model import Predicate

# Patterns that need no check and are never anything simpler.
_INSIDE: Final = ("contains", "ends with")
# Timestamps with more digits behind the point are refused.
_FINER: Final = r"\.[0-9]{10}"
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
    residuals: NDArray[np.int64] | None = None  # what is missing to the exact values of the doubles


class _OneByOne(NamedTuple):
    """The rows that are not encoded by columns: row i has the predicate at places[i]."""

    rows: NDArray[np.int64]
    predicates: list[Predicate]
    places: NDArray[np.int64]


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
        known = np.array([COMPARISONS.index(op) if op in COMPARISONS else -1 for op in spelled], dtype=np.int64)
        self.comparisons = known[op_codes] if len(ops) else np.zeros(0, dtype=np.int64)
        self.op_codes, self.ops = op_codes, spelled
        self._split()

    # which rows go which way

    def _split(self) -> None:
        """Sort the rows by how they are encoded."""
        numbers, has_number = number_column(self.rows, "number")
        uppers, has_upper = number_column(self.rows, "upper")
        names = ("text", "upper_text", "flag", "numbers", "texts", "timestamp", "upper_timestamp", "timestamps")
        has = {name: has_values(self.rows, name) for name in names}
        is_between = self.comparisons == COMPARISONS.index("between")
        has_moment = has["timestamp"] | has["upper_timestamp"] | has["timestamps"]
        is_plain = ~(has["upper_text"] | has["flag"] | has_moment)
        no_lists = is_plain & ~has["numbers"] & ~has["texts"]
        is_number = (self.comparisons >= 0) & has_number & ~has["text"] & (has_upper == is_between) & no_lists
        is_number &= _is_exact_double(numbers) & _is_exact_double(uppers)
        is_text = np.isin(self.comparisons, (0, 1)) & has["text"] & ~has_number & ~has_upper & no_lists
        is_list = self._has_op("in") & is_plain & ~has_number & ~has_upper & ~has["text"]
        self.numbers = _Constants(np.flatnonzero(is_number), numbers[is_number].astype(np.float64))
        upper_rows = np.flatnonzero(is_number & is_between)
        self.uppers = _Constants(upper_rows, uppers[upper_rows].astype(np.float64))
        self.texts = _Constants(np.flatnonzero(is_text), self._texts(is_text))
        self.number_lists = self._lists("numbers", is_list & has["numbers"] & ~has["texts"])
        self.text_lists = self._lists("texts", is_list & has["texts"] & ~has["numbers"])
        # An index that takes patterns gets all of them by name.
        is_string = has["text"] & ~has_number & ~has_upper & no_lists & (not self.takes_patterns)
        is_prefix, is_inside = is_string & self._has_op("starts with"), is_string & self._has_op(*_INSIDE)
        self.prefixes = _Constants(np.flatnonzero(is_prefix), self._texts(is_prefix))
        self.prefix_ends = _prefix_ends(self.prefixes)
        self.inside = _Constants(np.flatnonzero(is_inside), self._texts(is_inside))
        has_other = has_number | has_upper | has["upper_text"] | has["flag"] | has["numbers"] | has["texts"]
        is_moment = (self.comparisons >= 0) & has["timestamp"] & (has["upper_timestamp"] == is_between)
        self._split_moments(is_moment & ~has_other & ~has["text"] & ~has["timestamps"], is_between)
        is_done = np.zeros(self.n_rows, dtype=np.bool_)
        columns = self.numbers, self.texts, self.prefixes, self.inside, self.number_lists[0], self.text_lists[0]
        for part in (*columns, self.moments):
            is_done[part.rows] = True
        self.others = self._one_by_one(np.flatnonzero(~is_done))

    def _split_moments(self, chosen: NDArray[np.bool_], is_between: NDArray[np.bool_]) -> None:
        """Read the timestamps of rows that only compare with them; what is none is left for later, with its error."""
        rows = np.flatnonzero(chosen)
        instants, are_times = self._instants("timestamp", rows)
        upper_rows = rows[is_between[rows]]
        upper_instants, are_upper = self._instants("upper_timestamp", upper_rows)
        are_times[is_between[rows]] &= are_upper
        is_kept = are_times[is_between[rows]]
        self.moments = _Constants(rows[are_times], *(part[are_times] for part in instants))
        self.upper_moments = _Constants(upper_rows[is_kept], *(part[is_kept] for part in upper_instants))

    def _instants(self, name: str, rows: NDArray[np.int64]) -> tuple[tuple[NDArray[Any], ...], NDArray[np.bool_]]:
        """Return the instants of some rows as doubles and what is missing to them, and which are timestamps."""
        if not len(rows):
            return (np.zeros(0), np.zeros(0, dtype=np.int64)), np.zeros(0, dtype=np.bool_)
        column = self.rows[name].combine_chunks().take(rows)
        starts, texts = binary_buffers(column)
        arrays = read_only(texts), read_only(starts[:-1]), read_only(starts[1:])
        seconds, nanoseconds, are_times = read_instants(*arrays)
        is_finer = pc.match_substring_regex(column, _FINER).to_numpy(zero_copy_only=False)
        return split_nanoseconds(seconds, nanoseconds), are_times & ~is_finer

    def _has_op(self, *names: str) -> NDArray[np.bool_]:
        """Return which rows have one of some operators."""
        if not len(self.ops):
            return np.zeros(0, dtype=np.bool_)
        return np.array([op in names for op in self.ops], dtype=np.bool_)[self.op_codes]

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
        """Make predicates of rows, of equal ones once."""
        firsts, places = _distinct_rows(self.rows.take(rows))
        predicates = []
        for position, row in zip(rows[firsts].tolist(), self.rows.take(rows[firsts]).to_pylist(), strict=True):
            try:
                predicates.append(predicate_of(row))
            except SubscriptionError as error:
                subscription = self.rows["subscription"][position].as_py()
                reason = f"subscription {subscription!r}, attribute {row['attribute']!r}: {error.reason}"
                raise SubscriptionError(reason, hint=error.hint) from None
        return _OneByOne(rows, predicates, places)

    # constants

    def add_constants(self) -> list[Move]:
        """Take the attributes and constants of all rows into the domains."""
        self.ids = np.array([self.domains.intern(name) for name in self.names], dtype=np.int32)
        self.attributes = self.ids[self.positions] if len(self.ids) else np.zeros(0, dtype=np.int32)
        numbers = self._owned((self.numbers, None), (self.uppers, None), self.number_lists)
        texts = self._owned((self.texts, None), (self.prefixes, None), (self.prefix_ends, None), self.text_lists)
        others = self._own_moments()
        for predicate in self.others.predicates:
            if predicate.operand is not None:
                attribute, comparison = self._comparison(predicate)
                needed = [value for value in boundaries(comparison) if type(value) is not bool]
                others.setdefault(attribute, []).extend(needed)
        n_attributes = len(self.domains)
        return add_in_bulk(
            self.domains, distinct_numbers(numbers, n_attributes), distinct_texts(texts, n_attributes), others
        )

    def _own_moments(self) -> dict[int, list[Any]]:
        """Give the rows of timestamps the attributes of instants, and return the constants of these."""
        rows = self.moments.rows
        owners, places = np.unique(self.attributes[rows], return_inverse=True)
        derived = [self.domains.intern_any(MomentOf(self.domains.names[owner], INSTANT)) for owner in owners.tolist()]
        self.attributes[rows] = np.array(derived, dtype=np.int32)[places]
        constants: dict[int, list[Any]] = {}
        for part in (self.moments, self.upper_moments):
            if part.residuals is not None and len(part.rows):
                columns = self.attributes[part.rows], part.values, part.residuals
                for attribute, number, residual in zip(*(column.tolist() for column in columns), strict=True):
                    constants.setdefault(attribute, []).append(int(number) + residual)
        return {attribute: list(dict.fromkeys(values)) for attribute, values in constants.items()}

    def _comparison(self, predicate: Predicate) -> tuple[int, Predicate]:
        """Return a predicate and its attribute; of timestamps, what it asks of their instants."""
        derived = derived_comparison(predicate) if has_moments(predicate) else None
        if derived is None:
            return self.domains.attribute_id(predicate.attribute or ""), predicate
        return self.domains.intern_any(derived[0]), derived[1]

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
        base = self.domains.merged_base()
        self.ranges = RowRanges(self.n_rows)
        self._encode_comparisons(base)
        self._encode_prefixes(base)
        self._encode_lists(base)
        self._encode_inside()
        self._encode_others()
        return self._assembled()

    def _encode_comparisons(self, base: Base) -> None:
        no_uppers = _Constants(self.uppers.rows[:0], None)
        for part, upper, section in (
            (self.numbers, self.uppers, NUMBERS),
            (self.moments, self.upper_moments, NUMBERS),
            (self.texts, no_uppers, STRINGS),
        ):
            if not len(part.rows):
                continue
            codes = self._codes(part, None, base)
            ops = self.comparisons[part.rows]
            uppers = codes.copy()
            if len(upper.rows):
                uppers[ops == COMPARISONS.index("between")] = self._codes(upper, None, base)
            self.ranges.add_comparisons(part.rows, ops, codes, uppers, section)

    def _encode_prefixes(self, base: Base) -> None:
        if len(self.prefixes.rows):
            lasts = np.full(self.n_rows, STRINGS.last, dtype=np.int32)
            if len(self.prefix_ends.rows):
                lasts[self.prefix_ends.rows] = self._codes(self.prefix_ends, None, base) - 1
            rows = self.prefixes.rows
            self.ranges.add(rows, self._codes(self.prefixes, None, base), lasts[rows])

    def _encode_inside(self) -> None:
        """Give rows that look inside strings the attributes of their patterns."""
        rows = self.inside.rows
        if not len(rows):
            return
        coded = self.inside.values.dictionary_encode()
        texts, text_codes = coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False)
        owners = self.attributes[rows].astype(np.int64) * len(self.ops) + self.op_codes[rows]
        keys, places = np.unique(owners * len(texts) + text_codes, return_inverse=True)
        found = []
        for owner, text in zip(*(part.tolist() for part in np.divmod(keys, len(texts))), strict=True):
            pattern = Pattern(owner // len(self.ops), self.ops[owner % len(self.ops)], texts[text])
            found.append(self.domains.pattern_attribute(pattern))
        self.attributes[rows] = np.array(found, dtype=np.int32)[places]
        self.ranges.add(rows, TRUE, TRUE)

    def _encode_lists(self, base: Base) -> None:
        for part, starts in (self.number_lists, self.text_lists):
            if len(part.rows):
                set_starts, points = point_sets(starts, self._codes(part, starts, base))
                self.ranges.add_sets(part.rows, np.diff(set_starts), points, points)

    def _codes(self, part: _Constants, starts: NDArray[np.int64] | None, base: Base) -> NDArray[np.int32]:
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
        columns = LeafColumns(
            attributes=attributes,
            kinds=np.full(n, kind, np.uint8),
            numbers=numbers,
            residuals=np.zeros(n, np.int64) if part.residuals is None else part.residuals,
            text_starts=text_starts,
            text_ends=text_ends,
            texts=texts,
        )
        return base.located(columns)

    def _encode_others(self) -> None:
        """Encode the remaining rows, each distinct predicate once."""
        rows, predicates, places = self.others
        if len(rows):
            coded = [self._encode_one(predicate) for predicate in predicates]
            self.attributes[rows] = np.array([each.attribute for each in coded], dtype=np.int32)[places]
            self.ranges.add_coded(rows, coded, places)

    def _encode_one(self, predicate: Predicate) -> CodedPredicate:
        """Return a predicate in codes."""
        attribute, predicate = self._comparison(predicate)
        if predicate.operand is None:
            section, is_wanted = presence(predicate.op)
            return CodedPredicate(attribute, [section], is_wanted, True)
        found = spaces(predicate, self.domains.domains[attribute])
        satisfying, is_tight = found.satisfying, found.is_tight
        pattern = pattern_of(attribute, predicate)
        if pattern is None or (is_tight and not self.takes_patterns):
            return CodedPredicate(attribute, satisfying, True, is_tight)
        if self.takes_patterns:
            return CodedPredicate(attribute, satisfying, True, is_tight, self.domains.add_pattern(pattern))
        return CodedPredicate(self.domains.pattern_attribute(pattern), SATISFIED, True, True)

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


def _prefix_ends(prefixes: _Constants) -> _Constants:
    """Return the least strings above all strings with the prefixes, for the rows where there is one."""
    if not len(prefixes.rows):
        return _Constants(prefixes.rows, None)
    coded = prefixes.values.dictionary_encode()
    ends = map(after_prefix, coded.dictionary.to_pylist())
    # Binary, because the end may be a lone surrogate.
    encoded = [None if end is None else end.encode("utf-8", "surrogatepass") for end in ends]
    values = pa.array(encoded, pa.large_binary()).take(coded.indices)
    is_there = values.is_valid().to_numpy(zero_copy_only=False)
    return _Constants(prefixes.rows[is_there], values.drop_null())


def _distinct_rows(rows: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each different predicate occurs first, and for each row which of them it is."""
    groups = np.zeros(len(rows), dtype=np.int64)
    for name in rows.column_names:
        column = rows[name].combine_chunks()
        if name in ("subscription", "clause", "weight") or column.null_count == len(column):
            continue
        if pa.types.is_large_list(column.type):
            codes = np.arange(len(rows))  # lists are not compared
        else:
            coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode("encode")
            codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, groups = np.unique(groups * (int(codes.max()) + 1) + codes, return_inverse=True)
    _, firsts, places = np.unique(groups, return_index=True, return_inverse=True)
    return firsts, places


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
