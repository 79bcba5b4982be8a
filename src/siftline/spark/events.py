"""Which columns of a DataFrame hold its events, and how.

    JSON         event: string or binary               {"price": 550, "model": "x"}
    a map        event: map<string, ...>               {price -> 550.0}
    a struct     event: struct<price: ..., ...>
    entries      event: array<struct<name, value>>     [(price, 550.0)]
    two arrays   event=("names", "values")             [price], [550.0]
    columns      event=None, or no column `event`      every column but the keys is an attribute

The driver finds the shape once, from the schema; workers get the keys first and then the columns of the event, and
read Arrow batches by position.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from siftline.encoding.arrow_events import ArrowSource
from siftline.encoding.arrow_values import python_value
from siftline.errors import EventError, TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

# The column that holds whole events if nothing else is said.
EVENT: Final = "event"
# Larger events are put aside: a batch of them would not fit into memory.
MOST_EVENT_BYTES: Final = 1 << 24
# Of an event that cannot be read, so much is kept beside the reason.
_SHOWN_BYTES: Final = 1 << 16

JSON, WHOLE, ENTRIES, ARRAYS, COLUMNS = "json", "whole", "entries", "arrays", "columns"

_TAKEN: Final = (
    "JSON text (string or binary), a map, a struct, an array of structs of name and value, or two arrays, "
    "given as event=(names, values)"
)
_TEXTS: Final = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
_LISTS: Final = (types.is_list, types.is_large_list)


@dataclass(frozen=True, slots=True)
class Shape:
    """Where keys and events stand, for drivers by name and for workers by position: keys first."""

    kind: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    most_bytes: int = MOST_EVENT_BYTES
    # A VARIANT, which Spark turns into JSON text first.
    is_variant: bool = False

    def keys_of(self, batch: Any) -> list[Any]:
        """Return the columns of the keys."""
        columns: list[Any] = batch.columns[: len(self.keys)]
        return columns

    def problems(self, batch: Any) -> dict[int, str]:
        """Return which rows of an Arrow batch hold no event at all, and why."""
        n_keys = len(self.keys)
        found: dict[int, str] = {}
        if self.kind == ARRAYS:
            lengths = [_lengths(column) for column in batch.columns[n_keys:]]
            for row in np.flatnonzero(lengths[0] != lengths[1]).tolist():
                found[row] = f"there are {lengths[0][row]} names and {lengths[1][row]} values"
        if self.kind == JSON:
            sizes = pc.binary_length(batch.column(n_keys)).fill_null(0).to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(sizes > self.most_bytes).tolist():
                found[row] = f"the event has {sizes[row]:,} bytes; at most {self.most_bytes:,} are taken"
        nullable = n_keys if self.kind == COLUMNS else len(batch.columns)
        for number, column in enumerate(batch.columns[:nullable]):
            if column.null_count:
                reason = f"the key {self.keys[number]!r} is null" if number < n_keys else "the event is null"
                found |= dict.fromkeys(np.flatnonzero(column.is_null()).tolist(), reason)
        return found

    def source(self, batch: Any) -> ArrowSource:
        """Return the events of an Arrow batch; those that are no JSON objects become its errors."""
        columns = batch.columns[len(self.keys) :]
        if self.kind == COLUMNS:
            return ArrowSource(pa.RecordBatch.from_arrays(columns, names=list(self.columns)))
        if self.kind == ENTRIES:
            return ArrowSource(_map_of(columns[0], *columns[0].flatten().flatten()), skip_bad=True)
        if self.kind == ARRAYS:
            return ArrowSource(_map_of(columns[0], *(column.flatten() for column in columns)), skip_bad=True)
        return ArrowSource(columns[0], skip_bad=True)

    def text(self, batch: Any, row: int) -> str | None:
        """Return an event as text, for whoever looks at what could not be read; of JSON the beginning is enough."""
        values = [column[row] for column in batch.columns[len(self.keys) :]]
        if self.kind == JSON:
            content = values[0].as_buffer()
            return None if content is None else content[:_SHOWN_BYTES].to_pybytes().decode("utf-8", "replace")
        shown = [python_value(value) for value in values]
        tree = dict(zip(self.columns, shown, strict=True)) if self.kind == COLUMNS else shown
        return json.dumps(tree, ensure_ascii=False)[:_SHOWN_BYTES]


def _lengths(lists: Any) -> Any:
    return pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)


def _map_of(lists: Any, names: Any, values: Any) -> Any:
    """Return maps from the names to the values of lists, all of them put behind each other; a name may repeat."""
    if names.null_count:
        raise EventError("the name of an attribute is null")
    offsets = np.concatenate([[0], np.cumsum(_lengths(lists))]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def shape_of(
    schema: Any,
    key: str | Sequence[str],
    event: str | Sequence[str] | None = EVENT,
    most_bytes: int = MOST_EVENT_BYTES,
) -> Shape:
    """Return how the events stand in a DataFrame with this schema.

    Parameters
    ----------
    schema : pyspark.sql.types.StructType
        Of the DataFrame.
    key : str or sequence of str
        The columns that name an event in the result; there may be none.
    event : str, pair of str, or None
        The column with whole events; the columns with names and values; or None, if the columns are the attributes.
    most_bytes : int
        The most bytes that an event may have as JSON.

    Raises
    ------
    TableError
        If a column is missing, or has a type that holds no events.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    for name in keys:
        _check_column(schema, name, "key")
    if not isinstance(event, str) and event is not None:
        shape = _arrays(schema, keys, tuple(event), most_bytes)
    elif event is None or (event == EVENT and EVENT not in schema.names):
        shape = _wide(schema, keys, event, most_bytes)
    else:
        _check_column(schema, event, "event")
        shape = _whole(schema, keys, event, most_bytes)
    return _checked(shape, schema)


def _check_column(schema: Any, name: str, role: str) -> None:
    if name not in schema.names:
        there = ", ".join(map(repr, schema.names)) or "none at all"
        raise TableError(f"there is no column {name!r} ({role}={name!r}); the columns are: {there}")


def _wide(schema: Any, keys: tuple[str, ...], event: str | None, most_bytes: int) -> Shape:
    columns = tuple(name for name in schema.names if name not in keys)
    if event is not None and len(columns) == 1 and _kind(_arrow_type(schema, columns[0])) is not None:
        # Most likely the column of whole events by another name; as an attribute it would never match.
        raise TableError(
            f"there is no column {EVENT!r}; write event={columns[0]!r} if that column holds the events, "
            f"event=None if it is an attribute"
        )
    if not columns:
        raise TableError(f"there is no column {EVENT!r}, and besides the key there are no columns at all")
    return Shape(COLUMNS, keys, columns, most_bytes)


def _arrays(schema: Any, keys: tuple[str, ...], event: tuple[str, ...], most_bytes: int) -> Shape:
    if len(event) != 2:
        raise TableError(f"event must be a column, two columns (names, values) or None, not {event!r}")
    for name in event:
        _check_column(schema, name, "event")
    names, values = (_arrow_type(schema, name) for name in event)
    if not _is_any(names, _LISTS) or not _is_any(values, _LISTS) or not _is_any(names.value_type, _TEXTS[:2]):
        raise TableError(f"event={event!r} must be an array of strings and an array of values, not {names}, {values}")
    return Shape(ARRAYS, keys, event, most_bytes)


def _whole(schema: Any, keys: tuple[str, ...], event: str, most_bytes: int) -> Shape:
    if schema[event].dataType.typeName() == "variant":
        return Shape(JSON, keys, (event,), most_bytes, is_variant=True)
    type_ = _arrow_type(schema, event)
    kind = _kind(type_)
    if kind is None:
        raise TableError(f"column {event!r} has the type {schema[event].dataType.simpleString()}; it must be {_TAKEN}")
    return Shape(kind, keys, (event,), most_bytes)


def _kind(type_: Any) -> str | None:
    """Return how a column of this type holds whole events, None if it does not."""
    if _is_any(type_, _TEXTS):
        return JSON
    if types.is_map(type_) or types.is_struct(type_):
        return WHOLE
    is_list_of_structs = _is_any(type_, _LISTS) and types.is_struct(type_.value_type)
    if is_list_of_structs and type_.value_type.num_fields == 2 and _is_any(type_.value_type[0].type, _TEXTS[:2]):
        return ENTRIES
    return None


def _is_any(type_: Any, tests: Sequence[Any]) -> bool:
    return any(test(type_) for test in tests)


def _arrow_type(schema: Any, name: str) -> Any:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        return to_arrow_type(schema[name].dataType, timezone="UTC")
    except PySparkException:
        raise TableError(
            f"column {name!r}: the type {schema[name].dataType.simpleString()} has no meaning in an event"
        ) from None


def _checked(shape: Shape, schema: Any) -> Shape:
    """Raise TableError if a type inside has no meaning in an event: no row of it could be read."""
    if not shape.is_variant:
        empty = [pa.array([], _arrow_type(schema, name)) for name in (*shape.keys, *shape.columns)]
        shape.source(pa.RecordBatch.from_arrays(empty, names=[str(i) for i in range(len(empty))]))
    return shape


def selected(events: Any, shape: Shape) -> Any:
    """Return the DataFrame with the keys and the columns of the event alone, as workers take it."""
    from pyspark.sql import functions

    keys = [functions.col(quoted(name)) for name in shape.keys]
    columns = [functions.col(quoted(name)) for name in shape.columns]
    if shape.is_variant:
        columns = [functions.to_json(column).alias(name) for name, column in zip(shape.columns, columns, strict=True)]
    return events.select(*keys, *columns)


def quoted(name: str) -> str:
    """Return a column's name as Spark takes it, whatever characters it has.

    >>> quoted("a.b")
    '`a.b`'
    """
    return "`{}`".format(name.replace("`", "``"))
