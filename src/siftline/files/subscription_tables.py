"""Reads subscriptions from Parquet files: tables of expressions, and the columnar form with one row per predicate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import FileError, SubscriptionError, TableError
from siftline.files.problems import Problem
from siftline.files.subscription_files import KEPT, Entry, Subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BATCH_ROWS: Final = 4096


def read_table(
    path: str, file: Any, advance: Callable[[int], None], stop_after: int | None
) -> Subscriptions | Iterator[Entry | Problem]:
    """Return the entries of a table of expressions, or all subscriptions of a table of predicates."""
    names = file.schema_arrow.names
    id_name = next((name for name in ("subscription", "id") if name in names), None)
    if id_name and "expression" in names:
        return _text_entries(path, file, id_name, advance)
    if id_name and "attribute" in names and "op" in names:
        return _predicate_table(path, file, id_name, stop_after)
    raise FileError(
        f"{path}: expected the columns subscription and expression, or subscription, attribute and op "
        f"(one row a predicate), found {', '.join(names) or 'none'}"
    )


def _text_entries(path: str, file: Any, id_name: str, advance: Callable[[int], None]) -> Iterator[Entry | Problem]:
    columns = [
        id_name,
        "expression",
        *(name for name in ("weight", "tenant", *KEPT) if name in file.schema_arrow.names),
    ]
    row = 0
    size = file.metadata.serialized_size // max(file.metadata.num_rows, 1)
    for batch in _batches(path, file, columns):
        for record in batch.to_pylist():
            row += 1
            kept = {key: record[key] for key in KEPT if record.get(key) is not None}
            source, weight, tenant = record["expression"], record.get("weight"), record.get("tenant")
            yield Entry(row, record[id_name], "expression", source, weight, kept=kept, tenant=tenant)
        advance(size * len(batch))


def _batches(path: str, file: Any, columns: list[str]) -> Iterator[Any]:
    import pyarrow as pa

    try:
        yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path}: cannot be read further: {error}") from None


def _predicate_table(path: str, file: Any, id_name: str, stop_after: int | None) -> Subscriptions:
    import pyarrow as pa

    try:
        table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path}: cannot be read: {error}") from None
    table = table.rename_columns(["subscription" if name == id_name else name for name in table.column_names])
    subscriptions = Subscriptions(path, "row")
    bad = []
    try:
        for id, reason, hint in bad_subscriptions(table):
            bad.append(id)
            details = (f"  hint: {hint}",) if hint else ()
            raw = json.dumps(rows_of_ids(table, [id], is_wanted=True).to_pylist(), default=str)
            subscriptions.problems.append(Problem(path, None, None, reason, details, raw=raw, id=id))
            if stop_after is not None and len(bad) >= stop_after:
                break
    except TableError as error:
        raise FileError(f"{path}: {error}") from None
    subscriptions.table = rows_of_ids(table, bad, is_wanted=False) if bad else table
    return subscriptions


def bad_subscriptions(table: Any) -> Iterator[tuple[Any, str, str | None]]:
    """Yield the subscriptions that cannot be loaded, by halving the table until each is alone."""
    from siftline.encoding.columns import load_columns
    from siftline.encoding.domains import Domains

    try:
        load_columns(table, Domains())
        return
    except SubscriptionError as error:
        reason, hint = error.reason, error.hint
    ids = table["subscription"].unique().to_pylist()
    if len(ids) == 1:
        yield ids[0], reason, hint
        return
    half = ids[: len(ids) // 2]
    yield from bad_subscriptions(rows_of_ids(table, half, is_wanted=True))
    yield from bad_subscriptions(rows_of_ids(table, half, is_wanted=False))


def rows_of_ids(table: Any, ids: list[Any], *, is_wanted: bool) -> Any:
    """Return the rows of these subscriptions, or of all others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    chosen = pc.is_in(table["subscription"], value_set=pa.array(ids, table["subscription"].type))
    return table.filter(chosen if is_wanted else pc.invert(chosen))
