"""From whatever the caller has, dicts, Arrow, pandas, polars, JSON, to a source of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from siftline.encoding.events import DictSource, Source
from siftline.errors import EventError, TableError
from siftline.model import opened, plain_tree

# No JSON ends like that.
_EXTENSIONS: Final = (".json", ".jsonl", ".ndjson", ".csv", ".gz", ".zst", ".parquet")


def source_of(events: Any, *, event: str | None, is_one: bool) -> Source:
    """Return a source for one event (`is_one`), or for many; `event` names the column that holds whole events."""
    if isinstance(events, Mapping):
        return DictSource([events])
    if isinstance(opened(events), Mapping):
        return DictSource([plain_tree(events)])
    if isinstance(events, (bytes, bytearray, memoryview, str)):
        return _json_source(events, is_one)
    if is_one:
        DictSource([events]).check()
    table = arrow_of(events)
    if table is not None:
        from siftline.encoding.arrow_events import ArrowSource

        return ArrowSource(table, event=event)
    if isinstance(events, Source):
        return events
    if isinstance(events, Iterable):
        return _listed(list(events))
    raise EventError(f"events must be dicts, an Arrow table, a data frame or JSON, not {type(events).__name__}")


def _listed(events: list[Any]) -> Source:
    """Return a source for dicts, or for JSON texts."""
    if not events or not all(isinstance(event, (str, bytes)) for event in events):
        return DictSource(events)
    import pyarrow as pa

    from siftline.encoding.json_events import JsonSource

    texts = [event.encode("utf-8", "surrogatepass") if isinstance(event, str) else event for event in events]
    return JsonSource.from_arrow(pa.array(texts, pa.large_binary()))


def _json_source(text: bytes | bytearray | memoryview | str, is_one: bool) -> Source:
    from siftline.encoding.json_events import json_lines, one_json

    if isinstance(text, str) and text.endswith(_EXTENSIONS):
        raise EventError(f"{text} looks like the path of a file; give what it holds: open(path, 'rb').read()")
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    return one_json(data) if is_one else json_lines(data)


def arrow_of(data: Any) -> Any:
    """Return an Arrow table or array for anything tabular, None for anything else."""
    module = type(data).__module__.partition(".")[0]
    if module not in ("pyarrow", "pandas", "polars") and not hasattr(data, "__arrow_c_stream__"):
        return None
    import pyarrow as pa

    if isinstance(data, (pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray)):
        return data
    name = f"{module}.{type(data).__name__}"
    if name == "polars.LazyFrame" or not hasattr(data, "__arrow_c_stream__") or name.endswith(".Series"):
        raise TableError(f"{name} is not a table; give a data frame (of a LazyFrame, collect() it first)")
    try:
        if module == "pandas":
            return pa.Table.from_pandas(data, preserve_index=False)
        return data.to_arrow() if module == "polars" else pa.table(data)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise TableError(f"{name} cannot be read as an Arrow table: {error}") from None
