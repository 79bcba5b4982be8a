"""Subscriptions as tables: what the caller has becomes Arrow, and its columns are checked and put in order."""

from __future__ import annotations

from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siftline.encoding.arrow_values import ValueFaultError, reader_of, validity
from siftline.encoding.clauses import spans
from siftline.encoding.sources import arrow_of
from siftline.errors import SubscriptionError, TableError
from siftline.language.tokens import read_timestamp
from siftline.model import And, Expression, Or, Predicate, Timestamp, instant_of
from siftline.model.predicate import IGNORING_CASE, SETS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_REQUIRED: Final = ("subscription", "attribute", "op")
_TYPES: Final = {
    "clause": "an integer",
    "attribute": "a string",
    "op": "a string",
    "number": "a number",
    "upper": "a number",
    "text": "a string",
    "upper_text": "a string",
    "flag": "a boolean",
    "numbers": "a list of numbers",
    "texts": "a list of strings",
    "timestamp": "a timestamp",
    "upper_timestamp": "a timestamp",
    "timestamps": "a list of timestamps",
    "weight": "a number",
}


_TIMESTAMPS: Final = ("timestamp", "upper_timestamp", "timestamps")


def table_of(source: Any) -> Any:
    """Return an Arrow table for a table, a data frame or the path of a Parquet file; None for anything else."""
    if isinstance(source, (str, PathLike)):
        return _read_parquet(source)
    table = arrow_of(source)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if table is not None and not isinstance(table, pa.Table):
        raise TableError(f"subscriptions must come as a table, not as {type(source).__name__}")
    return table


def _read_parquet(path: str | PathLike[str]) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(f"{path} cannot be read as Parquet: {error}") from None


def _missing(names: Sequence[str], table: Any) -> TableError:
    wanted = " and ".join(repr(name) for name in names)
    return TableError(f"the table has no column {wanted}; it has {', '.join(table.column_names) or 'none'}")


def ordered_rows(table: Any) -> tuple[Any, list[Any], NDArray[np.int32]]:
    """Return a predicate table sorted by subscription and clause, the ids, and the position of each row's id."""
    missing = [name for name in _REQUIRED if name not in table.column_names]
    if missing:
        raise _missing(missing, table)
    columns = {"subscription": _ids_column(table)}
    columns |= {name: _column(table, name) for name in _TYPES if name in table.column_names}
    rows = pa.table(columns)
    codes, ids = _numbered(rows["subscription"])
    clauses = _values(rows["clause"], np.int64) if "clause" in columns else np.zeros(len(codes), dtype=np.int64)
    if len(codes) and ((np.diff(codes) < 0).any() or _has_clause_out_of_order(codes, clauses)):
        order = np.lexsort((clauses, codes))
        rows, codes = rows.take(order), codes[order]
    return rows.combine_chunks(), ids, codes


def _numbered(column: Any) -> tuple[NDArray[np.int32], list[Any]]:
    """Return for each row the position of its id in a list of the distinct ids."""
    if pa.types.is_integer(column.type) and len(column):
        values = column.to_numpy()
        if (values[1:] >= values[:-1]).all():  # in order already, as most tables are: no need to hash
            is_first = np.append(True, values[1:] != values[:-1])
            return (np.cumsum(is_first) - 1).astype(np.int32), values[is_first].tolist()
    return _dictionary(column)


def _has_clause_out_of_order(codes: NDArray[np.int32], clauses: NDArray[np.int64]) -> bool:
    return bool(((np.diff(clauses) < 0) & (np.diff(codes) == 0)).any())


def _ids_column(table: Any) -> Any:
    column = table["subscription"]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        raise TableError("column 'subscription' has a null")
    if pa.types.is_integer(column.type):
        return _cast(column, pa.int64(), "subscription")
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.large_string())
    raise TableError(f"column 'subscription' must be an integer or a string, not {column.type}")


def _column(table: Any, name: str) -> Any:
    """Return a column in the one type that the loader works with."""
    column = table[name]
    if pa.types.is_dictionary(column.type) and name not in ("attribute", "op"):
        column = column.cast(column.type.value_type)
    if name in ("clause", "attribute", "op") and column.null_count:
        raise TableError(f"column {name!r} has a null")
    if name in ("number", "upper", "numbers", "weight"):
        column = _replaced(column, pa.types.is_decimal, partial(_without_decimals, name=name))
    if name in _TIMESTAMPS:
        column = _replaced(column, pa.types.is_timestamp, _written)
    target = _target(name, column.type)
    if target is None:
        raise TableError(f"column {name!r} must be {_TYPES[name]}, not {column.type}")
    return _cast(column, target, name)


def _replaced(column: Any, is_replaced: Callable[[Any], bool], replace: Callable[[Any], Any]) -> Any:
    """Return a column with its values, or the elements of its lists, replaced if they are of some type."""
    kind = column.type
    if is_replaced(kind):
        return pa.chunked_array([replace(column.combine_chunks())])
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not is_replaced(kind.value_type):
        return column
    lists = column.cast(pa.large_list(kind.value_type)).combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
    return pa.chunked_array([pa.LargeListArray.from_arrays(ends, replace(lists.flatten()), mask=lists.is_null())])


def _without_decimals(decimals: Any, name: str) -> Any:
    """Return integers or doubles instead of decimals, by the rule for events."""
    if decimals.type.scale == 0:
        return _cast(decimals, pa.int64(), name)
    # Arrow's own cast to doubles does not always give the nearest one.
    return pa.array(_read(decimals).numbers, mask=decimals.is_null().to_numpy(zero_copy_only=False))


def _written(timestamps: Any) -> Any:
    """Return timestamps as the strings that they are in events."""
    return pa.array(_read(timestamps).texts().strings() if len(timestamps) else [], pa.large_string())


def _read(array: Any) -> Any:
    reader = reader_of(array.type)
    assert reader is not None
    try:
        return reader(array, validity(array))
    except ValueFaultError as fault:
        raise TableError(f"row {fault.index}: {fault.reason}") from None


def _target(name: str, kind: Any) -> Any:
    """Return the type to cast a column to; None if it is of the wrong kind."""
    if pa.types.is_null(kind):
        empty = {"numbers": pa.float64(), "texts": pa.string(), "timestamps": pa.string()}
        kind = pa.list_(empty[name]) if name in empty else kind
    if name in ("numbers", "texts", "timestamps"):
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        element = _target("number" if name == "numbers" else "text", kind.value_type) if is_list else None
        return None if element is None else pa.large_list(element)
    if name in ("attribute", "op", "text", "upper_text", "timestamp", "upper_timestamp"):
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
        if name in ("attribute", "op") and pa.types.is_dictionary(kind):
            return pa.dictionary(pa.int32(), pa.large_string())
        return pa.large_string() if is_text else None
    if name == "flag":
        return pa.bool_() if pa.types.is_boolean(kind) or pa.types.is_null(kind) else None
    if pa.types.is_integer(kind) and name != "weight":
        return pa.int64()
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
    return pa.float64() if is_number and name != "clause" else None


def _cast(column: Any, target: Any, name: str) -> Any:
    try:
        return column.cast(target)
    except pa.ArrowInvalid as error:
        raise TableError(f"column {name!r}: {error}") from None


def _dictionary(column: Any) -> tuple[NDArray[np.int32], list[Any]]:
    """Return for each row the position of its value in a list of the distinct values."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    combined = encoded.unify_dictionaries().combine_chunks()
    if not len(combined):
        return np.zeros(0, dtype=np.int32), []
    return combined.indices.to_numpy(zero_copy_only=False).astype(np.int32), combined.dictionary.to_pylist()


def dictionary_column(rows: Any, name: str) -> tuple[NDArray[np.int32], list[Any]]:
    """Return a text column as positions in the list of its distinct values."""
    return _dictionary(rows[name])


def _values(column: Any, dtype: Any) -> NDArray[Any]:
    return np.asarray(column.to_numpy(), dtype=dtype)


def number_column(rows: Any, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the numbers of a column (0 where null) and where there are any."""
    if name not in rows.column_names:
        return np.zeros(len(rows), dtype=np.float64), np.zeros(len(rows), dtype=np.bool_)
    column = rows[name].combine_chunks()
    is_there = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False), is_there


def has_values(rows: Any, name: str) -> NDArray[np.bool_]:
    """Return where a column is not null."""
    if name not in rows.column_names:
        return np.zeros(len(rows), dtype=np.bool_)
    return pc.is_valid(rows[name]).to_numpy()  # type: ignore[no-any-return]


class PredicateRows:
    """Expressions kept as rows of predicates; rows of subscription i are starts[i] : starts[i + 1]."""

    def __init__(self, rows: Any, starts: NDArray[np.int64]) -> None:
        self.rows = rows
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def expression(self, position: int) -> Expression:
        """Put one expression together."""
        start, end = int(self.starts[position]), int(self.starts[position + 1])
        clauses: dict[int, list[Expression]] = {}
        for row in self.rows.slice(start, end - start).to_pylist():
            clauses.setdefault(row.get("clause", 0), []).append(predicate_of(row))
        conjunctions = [group[0] if len(group) == 1 else And(group) for group in clauses.values()]
        return conjunctions[0] if len(conjunctions) == 1 else Or(conjunctions)

    def select(self, positions: NDArray[np.int64]) -> PredicateRows:
        """Return the expressions at these positions."""
        lengths = np.diff(self.starts)[positions]
        rows = self.rows.take(spans(self.starts[positions], lengths))
        return PredicateRows(rows, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def spelling(op: str) -> str:
    """Return an operator as the model spells it: lower case, single blanks, `!=` for `<>`."""
    plain = " ".join(op.lower().split())
    return "!=" if plain == "<>" else plain


def predicate_of(row: dict[str, Any]) -> Predicate:
    """Return the predicate of one row; raise SubscriptionError if its columns do not fit its operator."""
    op = spelling(row["op"])
    given = {name: row[name] for name in _TYPES if name in row and row[name] is not None}
    used, operand = _operand(op, given)
    surplus = set(given) - used - {"clause", "attribute", "op", "weight"}
    if surplus:
        raise SubscriptionError(f"'{op}' does not take the column {sorted(surplus)[0]!r}")
    return Predicate(row["attribute"], op, operand)


def _operand(op: str, given: dict[str, Any]) -> tuple[set[str], Any]:
    """Return which columns an operator uses, and the operand that they make."""
    if op in ("is null", "is not null", "exists"):
        return set(), None
    if op.removesuffix(IGNORING_CASE) in SETS:
        if "timestamps" in given:
            return {"timestamps"}, tuple(map(_timestamp, given["timestamps"]))
        if not {"numbers", "texts"} & set(given):
            raise SubscriptionError(f"'{op}' needs a list in the column 'numbers', 'texts' or 'timestamps'")
        return {"numbers", "texts"}, (*given.get("numbers", ()), *given.get("texts", ()))
    kinds = [name for name in ("number", "text", "flag", "timestamp") if name in given]
    if len(kinds) != 1:
        names = "'number', 'text', 'flag' and 'timestamp'"
        raise SubscriptionError(f"'{op}' needs a constant in one of the columns {names}")
    read = _timestamp if kinds[0] == "timestamp" else lambda value: value
    if op not in ("between", "not between"):
        return {kinds[0]}, read(given[kinds[0]])
    upper = {"text": "upper_text", "timestamp": "upper_timestamp"}.get(kinds[0], "upper")
    if upper not in given:
        raise SubscriptionError(f"'{op}' needs its upper bound in the column {upper!r}")
    return {kinds[0], upper}, (read(given[kinds[0]]), read(given[upper]))


def _timestamp(value: Any) -> Any:
    """Return the constant that a text or a timestamp of Python means; a null stays one, to be refused."""
    if isinstance(value, str):
        return read_timestamp(value)
    instant = instant_of(value)
    return value if instant is None else Timestamp(instant)
