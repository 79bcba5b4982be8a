"""An engine as a snapshot, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from siftline.encoding.clauses import Clauses
from siftline.encoding.domains import Domains, Pattern
from siftline.encoding.flat_domains import base_of
from siftline.encoding.statistics import Statistics
from siftline.encoding.tables import PredicateRows
from siftline.engine.subscriptions import ParsedExpressions, SubscriptionTable, TextExpressions
from siftline.errors import SnapshotError
from siftline.indexes.protocol import Batch
from siftline.storage.snapshot import Snapshot, read_snapshot, write_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from siftline.engine.engine import Engine
    from siftline.engine.subscriptions import Expressions
    from siftline.engine.updates import Updates

# Suffix of the array that tells where each subscription of a table of predicates starts.
_STARTS: Final = "starts"


def save(updates: Updates, path: str | Path) -> None:
    """Write a snapshot of an engine that was swept."""
    table = updates.state.table
    arrays = {"weights": table.weights.view}
    arrays |= {f"clauses/{name}": array for name, array in updates.joined_clauses()._asdict().items()}
    arrays |= {f"index/{name}": array for name, array in updates.state.index.arrays().items()}
    tables: dict[str, Any] = {}
    if table.are_ids_text is False:
        arrays["ids"] = table.id_array()
    elif table.are_ids_text:
        tables["ids"] = pa.table({"text": _binary(table.id_list())})
    if table.leaders is not None:
        arrays |= {"leaders": table.leaders.view, "is_live": table.is_live.view}
    if table.tenants is not None:
        arrays["tenants"] = table.tenants.view
        tables["tenants"] = pa.table({"text": _binary(list(table.tenant_numbers))})
    for number, part in enumerate(table.parts):
        tables[f"expressions/{number}"] = _expression_table(part)
        if isinstance(part, PredicateRows):
            arrays[f"expressions/{number}-{_STARTS}"] = part.starts
    _put_domains(updates.state.domains, arrays, tables)
    documents = {} if updates.state.statistics is None else {"statistics": updates.state.statistics.to_dict()}
    if table.owners is not None and table.stage is not None:
        arrays["with_calls"] = np.flatnonzero(table.owners.view >= 0)
        documents["calls"] = table.stage.to_document()
    header = {
        "index": updates.state.index_name,
        "options": updates.state.options,
        "parts": len(table.parts),
        "schedule": updates.state.schedule,
    }
    write_snapshot(path, Snapshot(header, arrays, tables, documents))


def save_rows(
    path: str | Path, index: str, options: dict[str, Any], statistics: Statistics | None, rows: Sequence[Any]
) -> None:
    """Write a snapshot of an engine that keeps its subscriptions in a file: (id, weight, text, tenant) of each."""
    are_texts = any(isinstance(row.id, str) for row in rows)
    ids = _binary([row.id for row in rows]) if are_texts else pa.array([row.id for row in rows], pa.int64())
    tenants = [None if row.tenant is None else row.tenant.encode("utf-8", "surrogatepass") for row in rows]
    columns = {
        "id": ids,
        "weight": pa.array([row.weight for row in rows], pa.float64()),
        "text": _binary([row.text for row in rows]),
        "tenant": pa.array(tenants, pa.large_binary()),
    }
    documents = {} if statistics is None else {"statistics": statistics.to_dict()}
    write_snapshot(path, Snapshot({"index": index, "options": options}, {}, {"rows": pa.table(columns)}, documents))


def _binary(texts: list[str]) -> Any:
    # Binary and not string, because Arrow strings cannot hold lone surrogates.
    return pa.array([text.encode("utf-8", "surrogatepass") for text in texts], pa.large_binary())


def _expression_table(part: Expressions) -> Any:
    if isinstance(part, PredicateRows):
        return part.rows
    if isinstance(part, ParsedExpressions):
        return pa.table({"expression": _binary(part.texts())})
    assert isinstance(part, TextExpressions)
    return pa.table({"expression": part.array})


def _put_domains(domains: Domains, arrays: dict[str, Any], tables: dict[str, Any]) -> None:
    """Store domains by their names, their flat arrays and their patterns."""
    tables["domains/names"] = pa.table({"text": _binary(domains.names)})
    arrays |= {f"domains/{name}": array for name, array in domains.merged_base().flat._asdict().items()}
    arrays["domains/pattern_attributes"] = np.array(list(domains.pattern_attributes), dtype=np.int32)
    tables["domains/patterns"] = _pattern_table(domains.patterns)
    tables["domains/attribute_patterns"] = _pattern_table(list(domains.pattern_attributes.values()))


def _pattern_table(patterns: list[Pattern]) -> Any:
    attributes, ops, operands = list(zip(*patterns, strict=True)) or [(), (), ()]
    columns = pa.array(attributes, pa.int32()), pa.array(ops, pa.string()), _binary(list(operands))
    return pa.table(columns, names=["attribute", "op", "text"])


def load(engine_class: type[Engine], path: str | Path, *, check: bool = True) -> Engine:
    """Open a snapshot."""
    snapshot = read_snapshot(path, check=check)
    try:
        return _opened(engine_class, snapshot)
    except (KeyError, ValueError, TypeError) as error:
        raise SnapshotError(f"the snapshot {path} does not hold an engine: {error!r}") from error


def _opened(engine_class: type[Engine], snapshot: Snapshot) -> Engine:
    header, arrays, tables, documents = snapshot
    statistics = Statistics.from_dict(documents["statistics"]) if "statistics" in documents else None
    engine = engine_class(header["index"], statistics, schedule=header.get("schedule"), **header["options"])
    if "rows" in tables:
        engine.add_stored(_rows(tables["rows"]))  # type: ignore[attr-defined]
        return engine
    clauses = Clauses(**_below("clauses", arrays))
    parts = [_part(snapshot, number) for number in range(header["parts"])]
    ids: Any = arrays.get("ids")
    if ids is None and "ids" in tables:
        ids = _texts(tables["ids"])
    tenants = (arrays["tenants"], _texts(tables["tenants"])) if "tenants" in tables else None
    sharing = (arrays["leaders"], arrays["is_live"]) if "leaders" in arrays else None
    table = SubscriptionTable.restored(ids, arrays["weights"], parts, tenants, sharing)
    domains = _domains(_below("domains", arrays), _below("domains", tables))
    batch = Batch(0, table.n_slots, clauses, domains, table.expression, statistics)
    state = engine._state
    state.index.restore(_below("index", arrays), batch)
    state.table, state.domains, state.clauses = table, domains, [clauses]
    state.n_indexed = table.n_slots
    if "with_calls" in arrays:
        table.call(arrays["with_calls"].tolist(), state.schedule)
    if table.stage is not None and "calls" in documents:
        table.stage.restore(documents["calls"])
    return engine


def _rows(table: Any) -> list[tuple[Any, ...]]:
    """Return the rows that `save_rows` wrote."""
    columns = [table[name].to_pylist() for name in ("id", "weight", "text", "tenant")]
    return [tuple(_text(value) for value in row) for row in zip(*columns, strict=True)]


def _text(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def _below(folder: str, parts: dict[str, Any]) -> dict[str, Any]:
    prefix = folder + "/"
    return {name.removeprefix(prefix): part for name, part in parts.items() if name.startswith(prefix)}


def _part(snapshot: Snapshot, number: int) -> Expressions:
    name = f"expressions/{number}"
    starts = snapshot.arrays.get(f"{name}-{_STARTS}")
    if starts is not None:
        return PredicateRows(snapshot.tables[name], starts)
    column = snapshot.tables[name]["expression"].combine_chunks()
    return TextExpressions(column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks))


def _domains(arrays: dict[str, Any], tables: dict[str, Any]) -> Domains:
    patterns = dict(
        zip(arrays.pop("pattern_attributes").tolist(), _patterns(tables["attribute_patterns"]), strict=True)
    )
    names = _texts(tables["names"])
    base = base_of(arrays)
    if base.n_attributes != len(names):
        raise ValueError(f"{len(names)} attributes have {base.n_attributes} domains")
    domains = Domains.restored(names, patterns, base)
    for pattern in _patterns(tables["patterns"]):
        domains.add_pattern(pattern)
    return domains


def _patterns(table: Any) -> list[Pattern]:
    columns = table["attribute"].to_pylist(), table["op"].to_pylist(), _texts(table)
    return [Pattern(*row) for row in zip(*columns, strict=True)]


def _texts(table: Any) -> list[str]:
    return [text.decode("utf-8", "surrogatepass") for text in table["text"].to_pylist()]
