"""Shape: which columns of a DataFrame hold its events, and in which form.

    JSON         event: string or binary               {"price": 550, "model": "x"}
    a map        event: map<string, ...>               {price -> 550.0}
    a struct     event: struct<price: ..., ...>
    entries      event: array<struct<name, value>>     [(price, 550.0)]
    two arrays   event=("names", "values")             [price], [550.0]
    columns      event=None, or no column `event`      every column but the keys is an attribute

The driver finds the shape once, from the schema. Workers get the keys first and then the columns of the event, and read
Arrow batches by position. The name of a column may have any characters; otherwise it is read as Spark reads it: `a.b`
is the column of that name, or else the field b of the struct a, and backticks quote a part.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from siftline.encoding.arrow_events import ArrowSource
from siftline.encoding.arrow_values import python_value
from siftline.errors import EventError, TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

# The column that holds whole events by default.
EVENT: Final = "event"
# Larger events become dead letters by default, because a batch of them would not fit into memory.
MAX_EVENT_BYTES: Final = 1 << 24
# How much of an unreadable event is kept with the reason.
_DEAD_LETTER_BYTES: Final = 1 << 16

JSON, WHOLE, ENTRIES, ARRAYS, COLUMNS = "json", "whole", "entries", "arrays", "columns"

_TAKEN: Final = (
    "JSON text (string or binary), a map, a struct, an array of structs of name and value, or two arrays, "
    "given as event=(names, values)"
)
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_TEXTS: Final = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
_LISTS: Final = (types.is_list, types.is_large_list)


@dataclass(frozen=True, slots=True)
class Shape:
    """Where the keys and the event are in a row: for workers by position, keys first.

    Attributes
    ----------
    kind : str
        The form of the events: one of JSON, WHOLE, ENTRIES, ARRAYS, COLUMNS.
    keys, columns : tuple of str
        The names of the keys in the result, and of the columns of the event.
    paths : tuple of tuple of str
        For the driver, where these are: the name of a column, followed by those of the fields inside it.
    """

    kind: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    most_bytes: int = MAX_EVENT_BYTES
    # A VARIANT, which Spark turns into JSON text first.
    is_variant: bool = False
    paths: tuple[tuple[str, ...], ...] = ()

    def keys_of(self, batch: Any) -> list[Any]:
        """Return the columns of the keys."""
        columns: list[Any] = batch.columns[: len(self.keys)]
        return columns

    def problems(self, batch: Any) -> dict[int, str]:
        """Return the rows of an Arrow batch that hold no event, and why."""
        n_keys = len(self.keys)
        found: dict[int, str] = {}
        if self.kind == ARRAYS:
            lengths = [_lengths(column) for column in batch.columns[n_keys:]]
            for row in np.flatnonzero(lengths[0] != lengths[1]).tolist():
                found[row] = f"there are {lengths[0][row]} names and {lengths[1][row]} values"
        if self.kind == JSON:
            sizes = pc.binary_length(batch.column(n_keys)).fill_null(0).to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(sizes > self.most_bytes).tolist():
                found[row] = f"the event has {sizes[row]:,} bytes; at most {self.most_bytes:,} are allowed"
        for column in batch.columns[n_keys:] if self.kind != COLUMNS else ():
            if column.null_count:
                found |= dict.fromkeys(np.flatnonzero(column.is_null()).tolist(), "the event is null")
        return found

    def source(self, batch: Any) -> ArrowSource:
        """Return the events of an Arrow batch; texts that are not JSON objects become errors of the source."""
        columns = batch.columns[len(self.keys) :]
        if self.kind == COLUMNS:
            return ArrowSource(pa.RecordBatch.from_arrays(columns, names=list(self.columns)))
        if self.kind == ENTRIES:
            return ArrowSource(_map_of(columns[0], *columns[0].flatten().flatten()), skip_bad=True)
        if self.kind == ARRAYS:
            return ArrowSource(_map_of(columns[0], *(column.flatten() for column in columns)), skip_bad=True)
        return ArrowSource(columns[0], skip_bad=True)

    def text(self, batch: Any, row: int) -> str | None:
        """Return an event as text, for a dead letter; a long one is cut off."""
        values = [column[row] for column in batch.columns[len(self.keys) :]]
        if self.kind == JSON:
            content = values[0].as_buffer()
            return None if content is None else content[:_DEAD_LETTER_BYTES].to_pybytes().decode("utf-8", "replace")
        shown = [python_value(value) for value in values]
        tree = dict(zip(self.columns, shown, strict=True)) if self.kind == COLUMNS else shown
        return json.dumps(tree, ensure_ascii=False)[:_DEAD_LETTER_BYTES]


def _lengths(lists: Any) -> Any:
    return pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)


def _map_of(lists: Any, names: Any, values: Any) -> Any:
    """Return maps from names to values, which are the concatenated elements of lists; a name may repeat."""
    if names.null_count:
        raise EventError("the name of an attribute is null")
    offsets = np.concatenate([[0], np.cumsum(_lengths(lists))]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def shape_of(
    schema: Any,
    key: str | Sequence[str],
    event: str | Sequence[str] | None = EVENT,
    most_bytes: int = MAX_EVENT_BYTES,
) -> Shape:
    """Return the shape of the events in a DataFrame with this schema.

    Parameters
    ----------
    schema : pyspark.sql.types.StructType
        The schema of the DataFrame.
    key : str or sequence of str
        The columns that identify an event in the result; there may be none.
    event : str, pair of str, or None
        The column with whole events; the columns with names and values; or None, if the columns are the attributes.
    most_bytes : int
        The most bytes that an event may have as JSON.

    Raises
    ------
    TableError
        If a column is missing, or its type cannot hold events.
    """
    keys = [_column(schema, name, "key") for name in ([key] if isinstance(key, str) else key)]
    names = [column.name for column in keys]
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"two keys would be named {name!r} in the result; give one of them another name before")
    if not isinstance(event, str) and event is not None:
        kind, columns = _arrays(schema, tuple(event))
    elif event is None or (event == EVENT and EVENT not in schema.names):
        kind, columns = _wide(schema, keys, event)
    else:
        kind, columns = _whole(_column(schema, event, "event"))
    is_variant = kind == JSON and columns[0].type.typeName() == "variant"
    paths = tuple(column.path for column in (*keys, *columns))
    shape = Shape(kind, tuple(names), tuple(column.name for column in columns), most_bytes, is_variant, paths)
    return _checked(shape, [*keys, *columns])


class Column(NamedTuple):
    """A column of a DataFrame, or a field in one; `name` is the last part of its path."""

    path: tuple[str, ...]
    type: Any

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path[-1]


def column_of(schema: Any, name: str) -> Column | None:
    """Return the column of this name, or the field that Spark finds by the name; None if there is none."""
    if name in schema.names:
        return Column((name,), schema[name].dataType)
    parts = _parts(name)
    inner = schema
    for part in parts:
        if part not in getattr(inner, "names", ()):
            return None
        inner = inner[part].dataType
    return Column(parts, inner) if parts else None


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name that are separated by dots, without backticks; none if the syntax is wrong.

    >>> _parts("meta.`the.id`"), _parts("`a``b`"), _parts("a..b")
    (('meta', 'the.id'), ('a`b',), ())
    """
    parts, place = [], 0
    while found := _PART.match(name, place):
        parts.append(found[2] or found[1].replace("``", "`"))
        place = found.end()
        if place == len(name):
            return tuple(parts)
        if name[place] != ".":
            break
        place += 1
    return ()


def _column(schema: Any, name: str, role: str) -> Column:
    found = column_of(schema, name)
    if found is None:
        there = ", ".join(map(repr, schema.names)) or "none at all"
        raise TableError(f"there is no column {name!r} ({role}={name!r}); the columns are: {there}")
    return found


def _wide(schema: Any, keys: Sequence[Column], event: str | None) -> tuple[str, list[Column]]:
    taken = {key.path for key in keys}
    columns = [Column((field.name,), field.dataType) for field in schema if (field.name,) not in taken]
    if event is not None and len(columns) == 1 and _kind(_arrow_type(columns[0])) is not None:
        # Most likely this column holds whole events and has another name; as an attribute it would never match.
        raise TableError(
            f"there is no column {EVENT!r}; write event={columns[0].name!r} if that column holds the events, "
            f"event=None if it is an attribute"
        )
    if not columns:
        raise TableError(f"there is no column {EVENT!r}, and besides the key there are no columns at all")
    return COLUMNS, columns


def _arrays(schema: Any, event: tuple[str, ...]) -> tuple[str, list[Column]]:
    if len(event) != 2:
        raise TableError(f"event must be a column, two columns (names, values) or None, not {event!r}")
    columns = [_column(schema, name, "event") for name in event]
    names, values = map(_arrow_type, columns)
    if not _is_any(names, _LISTS) or not _is_any(values, _LISTS) or not _is_any(names.value_type, _TEXTS[:2]):
        raise TableError(f"event={event!r} must be an array of strings and an array of values, not {names}, {values}")
    return ARRAYS, columns


def _whole(column: Column) -> tuple[str, list[Column]]:
    if column.type.typeName() == "variant":
        return JSON, [column]
    kind = _kind(_arrow_type(column))
    if kind is None:
        raise TableError(f"column {column.name!r} has the type {column.type.simpleString()}; it must be {_TAKEN}")
    return kind, [column]


def _kind(type_: Any) -> str | None:
    """Return in which form a column of this type holds whole events, None if it cannot."""
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


def _arrow_type(column: Column) -> Any:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        return to_arrow_type(column.type, timezone="UTC")
    except PySparkException:
        raise TableError(
            f"column {column.name!r}: the type {column.type.simpleString()} has no meaning in an event"
        ) from None


def _checked(shape: Shape, columns: Sequence[Column]) -> Shape:
    """Raise TableError if a type inside has no meaning in an event, because then no row could be read."""
    if not shape.is_variant:
        empty = [pa.array([], _arrow_type(column)) for column in columns]
        shape.source(pa.RecordBatch.from_arrays(empty, names=[str(i) for i in range(len(empty))]))
    return shape


def selected(events: Any, shape: Shape) -> Any:
    """Return the DataFrame with only the keys and the columns of the event, in the order that workers expect.

    Their names are numbers, because `mapInArrow` would take a name with a dot for a field of a struct.
    """
    from pyspark.sql import functions

    columns = [functions.col(quoted(*path)) for path in shape.paths]
    if shape.is_variant:
        columns[-1] = functions.to_json(columns[-1])
    return events.select(*(column.alias(f"c{number}") for number, column in enumerate(columns)))


def key_fields(rows: Any, shape: Shape) -> list[Any]:
    """Return the keys of a DataFrame that `selected` has returned, with their names in the result."""
    from pyspark.sql.types import StructField

    fields = zip(shape.keys, rows.schema.fields, strict=False)
    return [StructField(name, field.dataType, field.nullable) for name, field in fields]


def quoted(*path: str) -> str:
    """Return the quoted name of a column, or of a field in it; it may have any characters.

    >>> quoted("a.b"), quoted("meta", "id")
    ('`a.b`', '`meta`.`id`')
    """
    return ".".join("`{}`".format(name.replace("`", "``")) for name in path)
