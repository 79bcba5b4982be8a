"""Events in Arrow tables, encoded column by column.

A column of plain values gives each row one code: those columns are located as a whole and dealt out to the rows. What
is in lists, maps, and structs that may be null is ragged: it carries along which row each value belongs to. With the
attributes a, m.x and t in use

    a     m             t                dense     a:  [1, 2]
    1     {x: 5}        ["u", "v"]       ragged    m.x of row 0;  t of row 0;  t of row 0;  m (null) of row 1
    2     null          []

Columns that no subscription asks about are not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from siftline.encoding.arrow_values import (
    LIST_VIEWS,
    LISTS,
    TEXTS,
    Numbers,
    Texts,
    Times,
    ValueFaultError,
    is_any,
    merged,
    python_pairs,
    python_value,
    reader_of,
    texts_of,
    validity,
)
from siftline.encoding.clauses import spans
from siftline.encoding.domain import NULL, TRUE
from siftline.encoding.domain_tables import tables_of
from siftline.encoding.domains import ANY_STRING
from siftline.encoding.json_events import JsonSource, joined
from siftline.encoding.moments import Instants
from siftline.encoding.patterns import hits_in, matcher_of
from siftline.errors import EventError, TableError
from siftline.kernels.arrange import arrange
from siftline.model import MAX_EVENT_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.arrow_values import Mask, Values
    from siftline.encoding.domain_tables import DomainTables
    from siftline.encoding.domains import Domains
    from siftline.encoding.events import Arrays
    from siftline.encoding.json_leaves import Leaves
    from siftline.encoding.path_hash import Paths
    from siftline.encoding.patterns import Matcher

    # The pattern attributes of string i are attributes[starts[i] : starts[i + 1]].
    Hits = tuple[NDArray[np.int64], NDArray[np.int32]]
    # A derived attribute, at which places there are values of it, and their codes.
    Moments = tuple[int, NDArray[np.int64], NDArray[np.int32]]

# Rows are encoded in blocks of this many: the codes of a few dozen columns stay in the cache while they are dealt out.
# With a power of two the columns would fight for the same lines of the cache.
_BLOCK_ROWS: Final = 16_400
# The row of what lies under a null.
_NOWHERE: Final = -1

_BINARIES: Final = (types.is_binary, types.is_large_binary, types.is_binary_view)


class ArrowSource:
    """Events in an Arrow table, a row each; or in one column, or array, that holds whole events.

    Every column must have a type with a meaning in an event, whether or not a subscription uses it, so that adding a
    subscription never makes a table unusable. Values are only looked at where they are used.

    Parameters
    ----------
    data : pa.Table, pa.RecordBatch, pa.Array or pa.ChunkedArray
        In a table every column is an attribute; structs, lists and maps are what they are in JSON, and an Arrow null is
        an explicit null. An array is treated like the column that `event` names.
    event : str, optional
        The column that holds whole events: JSON text, structs, or maps with strings as keys.
    skip_bad : bool
        What is not an event, null or not a JSON object, counts as an event without attributes, and `errors` says what
        is wrong with it. Otherwise it is an error.

    Raises
    ------
    TableError
        If `event` is not a column, or a column has a type without a meaning in an event.
    EventError
        If a whole event is null.

    Examples
    --------
    >>> source = ArrowSource(pa.table({"price": [580, None], "tags": [["a", "b"], []]}))
    >>> len(source), source.tree(0)
    (2, {'price': 580, 'tags': ['a', 'b']})
    """

    def __init__(self, data: Any, *, event: str | None = None, skip_bad: bool = False) -> None:
        self._json: JsonSource | None = None
        self._errors: dict[int, str] = {}
        # Under the path None is a column that holds whole events.
        self._columns: list[tuple[str | None, Any]] = []
        if isinstance(data, (pa.Table, pa.RecordBatch)) and event is None:
            self._n_events: int = data.num_rows
            self._columns = [(name, data.column(i)) for i, name in enumerate(data.schema.names)]
            for name, column in self._columns:
                _check_type(column.type, str(name), 1)
        else:
            column = data if isinstance(data, (pa.Array, pa.ChunkedArray)) else _event_column(data, event)
            self._n_events = len(column)
            self._take_whole(column, event, skip_bad)

    def _take_whole(self, column: Any, name: str | None, skip_bad: bool) -> None:
        """Take a column that holds whole events."""
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        type_ = column.type.storage_type if str(column.type) == "extension<arrow.json>" else column.type
        if is_any(type_, (*TEXTS, *_BINARIES)):
            self._json = JsonSource.from_arrow(column, skip_bad=skip_bad)
            return
        shown = "the events" if name is None else f"column {name!r}"
        if not types.is_struct(type_) and not types.is_map(type_):
            raise TableError(f"{shown}: events must be JSON text, structs or maps, not {type_}")
        _check_type(type_, name, 0)
        for position in np.flatnonzero(np.asarray(column.is_null())).tolist() if column.null_count else []:
            if not skip_bad:
                raise EventError(f"event {position}: {shown} is null there" if name else f"event {position} is null")
            self._errors[position] = f"event {position}: it is null"
        self._columns = [(None, column)]

    @property
    def errors(self) -> dict[int, str]:
        """What is wrong with which event, if bad ones are skipped; those must match nothing at all."""
        return self._json.errors if self._json is not None else self._errors

    def __len__(self) -> int:
        return self._n_events

    def tree(self, position: int) -> Mapping[str, Any]:
        """Return one event as Python objects; a value without a meaning, in a column that nobody uses, is None."""
        if self._json is not None:
            return self._json.tree(position)
        pairs: list[tuple[str, Any]] = []
        for path, column in self._columns:
            scalar = column[position]
            pairs += python_pairs(scalar) if path is None else [(path, python_value(scalar))]
        return merged(pairs)

    def parsed(self, positions: NDArray[np.int64], paths: Paths, *, keeps_strings: bool = False) -> Leaves | None:
        """Return the leaves of some events, which ascend and are at least one; None if they are no JSON texts."""
        return None if self._json is None else self._json.parsed(positions, paths, keeps_strings=keeps_strings)

    def one_text(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]] | None:
        """Return the data of a single event, and where it starts and ends; None if it is no JSON text."""
        return None if self._json is None else self._json.one_text()

    def encode(self, domains: Domains, now: int = 0) -> Arrays:
        """Encode all rows."""
        if self._json is not None:
            return self._json.encode(domains, now)
        tables = tables_of(domains)
        matcher = matcher_of(domains)
        used = [(path, column) for path, column in self._columns if matcher.takes_all or _is_used(path, tables)]
        if not used:
            nothing = np.zeros(0, dtype=np.int32)
            return np.zeros(len(self) + 1, dtype=np.int64), nothing, nothing
        table = pa.table([column for _, column in used], names=[str(i) for i in range(len(used))])
        dictionaries: dict[Any, _Coded] = {}
        first_row, parts = 0, []
        for batch in table.to_batches(max_chunksize=_BLOCK_ROWS):
            block = _Block(tables, matcher, now, batch.num_rows, first_row, len(self), dictionaries)
            for (path, _), column in zip(used, batch.columns, strict=True):
                block.add(column, path, None)
            parts.append(block.arranged())
            first_row += batch.num_rows
        return joined(parts)


class _Coded(NamedTuple):
    """The values of a dictionary: their codes, and of strings the patterns that they satisfy and their moments."""

    codes: NDArray[np.int32]
    hits: Hits | None
    moments: Sequence[Moments]


class _Block:
    """The codes of some rows while they are collected."""

    def __init__(
        self,
        tables: DomainTables,
        matcher: Matcher,
        now: int,
        n_rows: int,
        first_row: int,
        n_events: int,
        dictionaries: dict[Any, _Coded],
    ) -> None:
        self._tables = tables
        self._matcher = matcher
        self._now = now
        self._n_rows = n_rows
        self._first_row = first_row
        self._n_events = n_events
        self._dictionaries = dictionaries
        self._dense: list[tuple[int, NDArray[np.int32]]] = []
        self._ragged: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]] = []
        self._found: list[tuple[NDArray[np.int64], NDArray[np.int32]]] = []

    def add(self, array: Any, path: str | None, rows: NDArray[np.int64] | None) -> None:
        """Take in what an array holds; `rows` says to which row each of its elements belongs, None: one to each."""
        if len(array) == 0 or not self._is_used(path):
            return
        type_ = array.type
        if path is not None and reader_of(type_) is not None:
            self._add_plain(array, path, rows)
        elif types.is_dictionary(type_):
            self._add_dictionary(array, path, rows)
        elif types.is_run_end_encoded(type_):
            self.add(pc.run_end_decode(array), path, rows)
        elif types.is_struct(type_):
            rows = self._rows_under(array, path, rows)
            for i, field in enumerate(type_):
                self.add(array.field(i), _join(path, field.name), rows)
        elif types.is_map(type_):
            self._add_map(array, path, rows)
        else:
            elements, lengths = _elements(array)
            self.add(elements, path, np.repeat(self._rows_under(array, path, rows), lengths))

    def _is_used(self, path: str | None) -> bool:
        return self._matcher.takes_all or _is_used(path, self._tables)

    def arranged(self) -> Arrays:
        """Return the events."""
        nothing = np.zeros(0, dtype=np.int32)
        if self._found:
            self._add_ragged(*self._joined_patterns())
        dense_codes = np.empty((len(self._dense), self._n_rows), dtype=np.int32)
        for i, (_, codes) in enumerate(self._dense):
            dense_codes[i] = codes
        return arrange(
            self._n_rows,
            np.array([attribute for attribute, _ in self._dense], dtype=np.int32),
            dense_codes,
            np.concatenate([np.zeros(0, dtype=np.int64), *(rows for rows, _, _ in self._ragged)]),
            np.concatenate([nothing, *(attributes for _, attributes, _ in self._ragged)]),
            np.concatenate([nothing, *(codes for _, _, codes in self._ragged)]),
        )

    def _joined_patterns(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """Return rows and pattern attributes, each pair once."""
        rows = np.concatenate([rows for rows, _ in self._found])
        attributes = np.concatenate([attributes for _, attributes in self._found])
        n_attributes = int(attributes.max(initial=0)) + 1
        is_there = rows != _NOWHERE
        rows, attributes = np.divmod(np.unique(rows[is_there] * n_attributes + attributes[is_there]), n_attributes)
        return rows, attributes.astype(np.int32), np.full(len(rows), TRUE, dtype=np.int32)

    def _add_plain(self, array: Any, path: str, rows: NDArray[np.int64] | None) -> None:
        attribute = self._tables.ids.get(path)
        if attribute is not None:
            values = self._read(array, rows, lambda _: path)
            self._add_codes(values.located(*self._tables.line_of(attribute)), attribute, rows)
            self._add_patterns(values, path, rows, None)
            self._add_moments(values, attribute, rows, None)
        elif self._matcher.takes_all:
            self._add_strings(array, rows)

    def _add_strings(self, array: Any, rows: NDArray[np.int64] | None) -> None:
        """Take in which patterns the strings of an attribute satisfy that nobody asks about by its name."""
        mask = _mask(array, rows)
        try:
            values = reader_of(array.type)(array, mask)  # type: ignore[misc]
        except ValueFaultError:  # such values count as null where nobody uses their attribute
            array = pa.array([python_value(scalar) for scalar in array], pa.string())
            values = reader_of(array.type)(array, _mask(array, rows))  # type: ignore[misc]
        self._add_patterns(values, None, rows, None)

    def _searched_as(self, path: str | None) -> int | None:
        """Return the attribute as which the strings at a path are searched, None if they are not."""
        default = ANY_STRING if self._matcher.takes_all else None
        return default if path is None else self._matcher.paths.get(path, default)

    def _add_patterns(self, values: Values, path: str | None, rows: NDArray[np.int64] | None, chosen: Mask) -> None:
        """Take in which patterns the (chosen) values satisfy, each different string tried once."""
        attribute = self._searched_as(path)
        strings = None if attribute is None else texts_of(values)
        if strings is not None and attribute is not None:
            texts, places, numbers = strings.distinct(chosen)
            self._add_hits(self._hits(texts, attribute), places if rows is None else rows[places], numbers)

    def _hits(self, texts: Texts, attribute: int) -> Hits:
        """Return the pattern attributes of each of several strings of an attribute."""
        found = texts.well_formed()
        are_there = np.ones(len(found.starts) - 1, dtype=np.bool_) if found.mask is None else found.mask
        return hits_in(self._matcher, attribute, found.starts, found.source, are_there)

    def _add_hits(self, hits: Hits, rows: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Take in the pattern attributes of strings that stand, by their numbers, in rows."""
        starts, attributes = hits
        lengths = np.diff(starts)[numbers]
        self._found.append((np.repeat(rows, lengths), attributes[spans(starts[numbers], lengths)]))

    def _add_moments(self, values: Values, attribute: int, rows: NDArray[np.int64] | None, chosen: Mask) -> None:
        """Take in the instants and ages of the (chosen) values that are times."""
        for derived, places, codes in self._moments(values, attribute, chosen):
            self._add_ragged(
                places if rows is None else rows[places], np.full(len(places), derived, dtype=np.int32), codes
            )

    def _moments(self, values: Values, attribute: int, chosen: Mask) -> list[Moments]:
        derived = self._tables.domains.moments.get(attribute, ())
        if not derived or not isinstance(values, (Texts, Times)):
            return []
        places = values.places(chosen)
        if isinstance(values, Times):
            instants = Instants(values.seconds[places], values.nanoseconds[places])
        else:
            instants = Instants.read(values.source, values.starts[places], values.starts[places + 1])
        found = []
        for number, op in derived:
            located = Numbers(*instants.numbers(op, self._now), None).located(*self._tables.line_of(number))
            found.append((number, places[instants.places], located))
        return found

    def _read(self, array: Any, rows: NDArray[np.int64] | None, path_at: Callable[[int], str]) -> Values:
        reader = reader_of(array.type)
        assert reader is not None
        try:
            return reader(array, _mask(array, rows))
        except ValueFaultError as fault:
            row = self._first_row + (fault.index if rows is None else int(rows[fault.index]))
            raise EventError(f"event {row}: attribute {path_at(fault.index)!r}: {fault.reason}") from None

    def _add_codes(self, codes: NDArray[np.int32], attribute: int, rows: NDArray[np.int64] | None) -> None:
        if rows is None:
            self._dense.append((attribute, codes))
        else:
            self._add_ragged(rows, np.full(len(rows), attribute, dtype=np.int32), codes)

    def _add_ragged(self, rows: NDArray[np.int64], attributes: NDArray[np.int32], codes: NDArray[np.int32]) -> None:
        kept = (rows != _NOWHERE) & (attributes >= 0)
        if not kept.all():
            rows, attributes, codes = rows[kept], attributes[kept], codes[kept]
        self._ragged.append((rows, attributes, codes))

    def _rows_under(self, array: Any, path: str | None, rows: NDArray[np.int64] | None) -> Any:
        """Return the rows of what the elements of a nested array contain, and take in those that are null."""
        mask = validity(array)
        if mask is None:
            return rows if rows is not None or types.is_struct(array.type) else np.arange(self._n_rows)
        if rows is None:
            rows = np.arange(self._n_rows)
        attribute = self._tables.ids.get(path) if path is not None else None
        if attribute is not None:
            null_rows = rows[~mask]
            self._add_codes(np.full(len(null_rows), NULL, dtype=np.int32), attribute, null_rows)
        return np.where(mask, rows, _NOWHERE)

    def _add_dictionary(self, array: Any, path: str | None, rows: NDArray[np.int64] | None) -> None:
        dictionary = array.dictionary
        # Unused entries without a meaning are no error, so those types are read as they are used.
        is_lasting = any(is_type(dictionary.type) for is_type in (*TEXTS, types.is_integer, types.is_floating))
        if not is_lasting or len(dictionary) > max(self._n_events, len(array)):
            self.add(array.dictionary_decode(), path, rows)
            return
        attribute = self._tables.ids.get(str(path))
        if attribute is None and self._matcher.takes_all:
            self.add(array.dictionary_decode(), path, rows)
        elif attribute is not None:
            indices, mask = array.indices, _mask(array, rows)
            places = _integers(indices.fill_null(0) if indices.null_count else indices)
            coded = self._dictionary_codes(dictionary, attribute, str(path))
            codes = coded.codes[places]
            if mask is not None:
                codes[~mask] = NULL
            self._add_codes(codes, attribute, rows)
            there = np.arange(len(codes)) if mask is None else np.flatnonzero(mask)
            rows_there = there if rows is None else rows[there]
            if coded.hits is not None:
                self._add_hits(coded.hits, rows_there, places[there])
            for derived, entries, entry_codes in coded.moments:
                by_entry = np.full(len(dictionary) + 1, NULL, dtype=np.int32)
                by_entry[entries] = entry_codes
                moment_codes = by_entry[places[there]]
                kept = moment_codes != NULL
                attributes = np.full(int(kept.sum()), derived, dtype=np.int32)
                self._add_ragged(rows_there[kept], attributes, moment_codes[kept])

    def _dictionary_codes(self, dictionary: Any, attribute: int, path: str) -> _Coded:
        """Return what there is to know about a dictionary's values."""
        addresses = tuple(buffer.address if buffer is not None else 0 for buffer in dictionary.buffers())
        key = (attribute, addresses, dictionary.offset, len(dictionary))
        known = self._dictionaries.get(key)
        if known is None:
            # One more than there are values: what a null refers to is nothing, or anything.
            codes, hits = np.full(len(dictionary) + 1, NULL, dtype=np.int32), None
            moments: list[Moments] = []
            if len(dictionary):
                values = self._read(dictionary, None, repr)
                codes[:-1] = values.located(*self._tables.line_of(attribute))
                searched = self._searched_as(path)
                strings = None if searched is None else texts_of(values)
                if strings is not None and searched is not None:
                    hits = self._hits(strings, searched)
                moments = self._moments(values, attribute, None)
            known = self._dictionaries[key] = _Coded(codes, hits, moments)
        return known

    def _add_map(self, array: Any, path: str | None, rows: NDArray[np.int64] | None) -> None:
        first, end, lengths = _extent(array)
        rows = np.repeat(self._rows_under(array, path, rows), lengths)
        items = _decoded(array.items.slice(first, end - first))
        names, keys = _coded_keys(array.keys.slice(first, end - first), path)
        paths = [_join(path, name) for name in names]
        if reader_of(items.type) is None:
            for i, inner in enumerate(paths):
                if self._is_used(inner):
                    self.add(items, inner, np.where(keys == i, rows, _NOWHERE))
        else:
            self._add_items(items, rows, paths, keys)

    def _add_items(self, items: Any, rows: NDArray[np.int64], paths: list[str], keys: NDArray[np.int64]) -> None:
        """Take in the plain values of maps, each of the attribute that its key says."""
        ids = np.array([self._tables.ids.get(path, -1) for path in paths], dtype=np.int32)
        attributes = ids[keys]
        if self._matcher.takes_all:
            self._add_strings(items, np.where(attributes < 0, rows, _NOWHERE))
        if not (ids >= 0).any():
            return
        rows = np.where(attributes >= 0, rows, _NOWHERE)
        values: Values = self._read(items, rows, lambda i: paths[keys[i]])
        if self._tables.is_worth_merging(len(items)):
            codes = values.located_each(self._tables.base, np.maximum(attributes, 0))
        else:
            used = np.unique(attributes[attributes >= 0])
            base = self._tables.several(used.tolist())
            codes = values.located_each(base, np.searchsorted(used, np.maximum(attributes, 0)).astype(np.int32))
        self._add_ragged(rows, attributes, codes)
        for i in [i for i, path in enumerate(paths) if ids[i] >= 0 and self._searched_as(path) is not None]:
            self._add_patterns(values, paths[i], rows, keys == i)
        for i in [i for i, attribute in enumerate(ids.tolist()) if attribute in self._tables.domains.moments]:
            self._add_moments(values, int(ids[i]), rows, keys == i)


def _event_column(table: Any, name: str | None) -> Any:
    names = table.schema.names
    if name not in names:
        there = ", ".join(map(repr, names)) or "no columns at all"
        raise TableError(f"there is no column {name!r}; there are: {there}")
    return table.column(names.index(name))


def _check_type(type_: Any, path: str | None, depth: int) -> None:
    """Refuse a type that has no meaning in an event, naming where it is."""
    if depth >= MAX_EVENT_DEPTH and types.is_nested(type_):
        raise TableError(f"column {path!r} nests deeper than {MAX_EVENT_DEPTH} levels")
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        _check_type(type_.value_type, path, depth)
    elif types.is_struct(type_):
        for field in type_:
            _check_type(field.type, _join(path, field.name), depth + 1)
    elif types.is_map(type_):
        _check_key_type(type_, path)
        _check_type(type_.item_type, path, depth + 1)
    elif is_any(type_, LISTS):
        _check_type(type_.value_type, path, depth + 1)
    elif reader_of(type_) is None:
        raise TableError(f"column {path!r}: the type {type_} has no meaning in an event")


def _check_key_type(type_: Any, path: str | None) -> None:
    key = type_.key_type
    if not is_any(key.value_type if types.is_dictionary(key) else key, TEXTS):
        raise TableError(f"column {path!r}: the keys of a map must be strings, not {key}")


def _is_used(path: str | None, tables: DomainTables) -> bool:
    """Tell whether an attribute is at the path or below it."""
    return path is None or path in tables.ids or path in tables.prefixes


def _join(path: str | None, key: str) -> str:
    return key if path is None else f"{path}.{key}"


def _mask(array: Any, rows: NDArray[np.int64] | None) -> Mask:
    """Return which elements count: those that are not null and not nowhere."""
    mask = validity(array)
    if rows is None:
        return mask
    somewhere: NDArray[np.bool_] = rows != _NOWHERE
    if mask is not None:
        somewhere &= mask
    return None if somewhere.all() else somewhere


def _decoded(array: Any) -> Any:
    """Return an array with the values that a dictionary or runs stand for."""
    while True:
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def _elements(array: Any) -> tuple[Any, NDArray[np.int64]]:
    """Return the elements of all lists in one array, and how many each list has."""
    if is_any(array.type, LIST_VIEWS):  # in any order, even overlapping
        return array.flatten(), pc.list_value_length(array).fill_null(0).to_numpy()
    first, end, lengths = _extent(array)
    return array.values.slice(first, end - first), lengths


def _extent(array: Any) -> tuple[int, int, NDArray[np.int64]]:
    """Return where the elements of all lists (or maps) lie, those under nulls included, and how many each has."""
    if types.is_fixed_size_list(array.type):
        size = array.type.list_size
        return array.offset * size, (array.offset + len(array)) * size, np.full(len(array), size, dtype=np.int64)
    offsets = _integers(array.offsets)
    return int(offsets[0]), int(offsets[-1]), np.diff(offsets)


def _integers(array: Any) -> NDArray[np.int64]:
    integers: NDArray[np.int64] = array.to_numpy().astype(np.int64)
    return integers


def _coded_keys(keys: Any, path: str | None) -> tuple[list[str], NDArray[np.int64]]:
    """Return the different keys, and for each key which of them it is."""
    if keys.null_count:
        raise EventError(f"attribute {path!r}: a key of a map is null")
    coded = keys if types.is_dictionary(keys.type) else keys.dictionary_encode()
    return coded.dictionary.to_pylist(), _integers(coded.indices)
