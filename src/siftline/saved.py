"""An engine as a snapshot, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from siftline.encoding.clauses import Clauses
from siftline.encoding.domain import Domain
from siftline.encoding.domains import Domains
from siftline.encoding.statistics import Statistics
from siftline.encoding.tables import PredicateRows
from siftline.errors import SnapshotError
from siftline.indexes.protocol import Batch
from siftline.storage.snapshot import Snapshot, read_snapshot, write_snapshot
from siftline.subscriptions import ParsedExpressions, SubscriptionTable, TextExpressions

if TYPE_CHECKING:
    from pathlib import Path

    from siftline.engine import Engine
    from siftline.subscriptions import Expressions

# Metadata of a table of predicates; the array beside it says where each subscription starts.
_STARTS: Final = "starts"


def save(engine: Engine, path: str | Path) -> None:
    """Write a snapshot of an engine that has no removed subscriptions left."""
    table = engine._table
    arrays = {"weights": table.weights.view}
    arrays |= {f"clauses/{name}": array for name, array in engine._joined_clauses()._asdict().items()}
    arrays |= {f"index/{name}": array for name, array in engine._index.arrays().items()}
    tables: dict[str, Any] = {}
    if table.are_ids_text is False:
        arrays["ids"] = table.id_array()
    elif table.are_ids_text:
        tables["ids"] = pa.table({"id": _binary(table.id_list())})
    for number, part in enumerate(table.parts):
        tables[f"expressions/{number}"] = _expression_table(part)
        if isinstance(part, PredicateRows):
            arrays[f"expressions/{number}-{_STARTS}"] = part.starts
    documents = {"domains": _described(engine._domains)}
    if engine._statistics is not None:
        documents["statistics"] = engine._statistics.to_dict()
    header = {"index": engine._index_name, "options": engine._options, "parts": len(table.parts)}
    write_snapshot(path, Snapshot(header, arrays, tables, documents))


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


def _described(domains: Domains) -> dict[str, Any]:
    """Return domains as JSON; integers and floats stay what they are."""
    lines = [[d.numbers.keys, d.numbers.labels, d.strings.keys, d.strings.labels] for d in domains.domains]
    return {"names": domains.names, "lines": lines}


def load(engine_class: type[Engine], path: str | Path) -> Engine:
    """Open a snapshot."""
    snapshot = read_snapshot(path)
    try:
        return _opened(engine_class, snapshot)
    except (KeyError, ValueError, TypeError) as error:
        raise SnapshotError(f"the snapshot {path} does not hold an engine: {error!r}") from error


def _opened(engine_class: type[Engine], snapshot: Snapshot) -> Engine:
    header, arrays, tables, documents = snapshot
    statistics = Statistics.from_dict(documents["statistics"]) if "statistics" in documents else None
    engine = engine_class(header["index"], statistics, **header["options"])
    clauses = Clauses(**_below("clauses", arrays))
    parts = [_part(snapshot, number) for number in range(header["parts"])]
    ids: Any = arrays.get("ids")
    if ids is None and "ids" in tables:
        ids = [text.decode("utf-8", "surrogatepass") for text in tables["ids"]["id"].to_pylist()]
    table = SubscriptionTable.restored(ids, arrays["weights"], parts)
    domains = _domains(documents["domains"])
    batch = Batch(0, table.n_slots, clauses, domains, table.expression, statistics)
    engine._index.restore(_below("index", arrays), batch)
    engine._table, engine._domains, engine._clauses = table, domains, [clauses]
    return engine


def _below(folder: str, arrays: dict[str, Any]) -> dict[str, Any]:
    prefix = folder + "/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _part(snapshot: Snapshot, number: int) -> Expressions:
    name = f"expressions/{number}"
    starts = snapshot.arrays.get(f"{name}-{_STARTS}")
    if starts is not None:
        return PredicateRows(snapshot.tables[name], starts)
    column = snapshot.tables[name]["expression"].combine_chunks()
    return TextExpressions(column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks))


def _domains(document: dict[str, Any]) -> Domains:
    domains = Domains()
    domains.names = document["names"]
    domains.ids = {name: attribute for attribute, name in enumerate(domains.names)}
    for numbers, number_labels, strings, string_labels in document["lines"]:
        domain = Domain()
        domain.numbers.keys, domain.numbers.labels = numbers, number_labels
        domain.strings.keys, domain.strings.labels = strings, string_labels
        domains.domains.append(domain)
    return domains
