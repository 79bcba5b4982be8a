"""Snapshots: an engine as a directory of flat arrays, versioned, checksummed, memory-mapped when opened.

    manifest.json        format, version, index name and options, and for every file its size and checksum
    engine/*.npy         weights, integer ids, clauses
    index/*.npy          the arrays of the index
    domains.json         attributes and constants
    ids.arrow            string ids
    expressions-N.arrow  the expressions of consecutive slots, as text or as rows of predicates

A snapshot is written beside its final place and renamed into it, so that readers see all of it or nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from siftline.encoding.clauses import Clauses
from siftline.encoding.domain import Domain, Line
from siftline.encoding.domains import Domains
from siftline.encoding.statistics import Statistics
from siftline.encoding.tables import PredicateRows
from siftline.errors import SnapshotError
from siftline.indexes.protocol import Batch
from siftline.subscriptions import ParsedExpressions, SubscriptionTable, TextExpressions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from siftline.engine import Engine

_FORMAT: Final = "siftline-engine"
_VERSION: Final = 1
_MANIFEST: Final = "manifest.json"


def save(engine: Engine, path: str | Path) -> None:
    """Write a snapshot of an engine without removed subscriptions."""
    target = Path(path)
    if target.exists() and not (target / _MANIFEST).is_file():
        raise SnapshotError(f"{target} exists and is not a snapshot: it will not be replaced")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write(engine, draft)
        _move_into_place(draft, target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _move_into_place(draft: Path, target: Path) -> None:
    os.chmod(draft, 0o755)  # mkdtemp makes it private
    if not target.exists():
        draft.rename(target)
        return
    old = draft.with_name(draft.name + "-old")
    target.rename(old)
    try:
        draft.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write(engine: Engine, folder: Path) -> None:
    table, clauses = engine._table, engine._joined_clauses()
    arrays: dict[str, NDArray[Any]] = {"weights": table.weights.view, **clauses._asdict()}
    if table.are_ids_text is False:
        arrays["ids"] = table.id_array()
    _write_arrays(folder / "engine", arrays)
    _write_arrays(folder / "index", engine._index.arrays())
    if table.are_ids_text:
        _write_arrow(folder / "ids.arrow", pa.table({"id": _binary(table.id_list())}))
    for number, part in enumerate(table.parts):
        _write_arrow(folder / f"expressions-{number}.arrow", _expression_table(part))
    _write_json(folder / "domains.json", _describe(engine._domains))
    if engine._statistics is not None:
        engine._statistics.save(folder / "statistics.json")
    _write_json(folder / _MANIFEST, _manifest(engine, folder))


def _manifest(engine: Engine, folder: Path) -> dict[str, Any]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "index": engine._index_name,
        "options": engine._options,
        "ids": {None: "none", True: "text", False: "integer"}[engine._table.are_ids_text],
        "parts": len(engine._table.parts),
        "files": {file.relative_to(folder).as_posix(): [file.stat().st_size, _checksum(file)] for file in files},
    }


def _checksum(file: Path) -> int:
    """Return the CRC-32 of a file."""
    total = 0
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            total = zlib.crc32(chunk, total)
    return total


def _write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def _write_json(file: Path, document: Any) -> None:
    file.write_text(json.dumps(document), encoding="ascii")


def _write_arrow(file: Path, table: Any) -> None:
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _binary(texts: list[str]) -> Any:
    # Binary and not string, because Arrow strings cannot hold lone surrogates.
    return pa.array([text.encode("utf-8", "surrogatepass") for text in texts], pa.large_binary())


def _expression_table(part: Any) -> Any:
    if isinstance(part, PredicateRows):
        metadata = {b"siftline.starts": json.dumps(part.starts.tolist()).encode()}
        return part.rows.replace_schema_metadata(metadata)
    texts = _binary(part.texts()) if isinstance(part, ParsedExpressions) else part.array
    return pa.table({"expression": texts})


def _describe(domains: Domains) -> dict[str, Any]:
    """Return domains as JSON; integers and floats stay what they are."""
    lines = [[d.numbers.keys, d.numbers.labels, d.strings.keys, d.strings.labels] for d in domains.domains]
    return {"names": domains.names, "lines": lines}


# opening


def load(engine_class: type[Engine], path: str | Path) -> Engine:
    """Open a snapshot."""
    folder = Path(path)
    manifest = _read_manifest(folder)
    _verify(folder, manifest)
    try:
        return _opened(engine_class, folder, manifest)
    except (KeyError, ValueError, TypeError, pa.ArrowInvalid, OSError) as error:
        raise SnapshotError(f"the snapshot {folder} is damaged: {error}") from error


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / _MANIFEST
    if not file.is_file():
        raise SnapshotError(f"there is no snapshot at {folder}: it has no {_MANIFEST}")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise SnapshotError(f"{file} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise SnapshotError(f"{file} does not belong to a snapshot of an engine")
    if manifest.get("version") != _VERSION:
        version = manifest.get("version")
        raise SnapshotError(f"the snapshot {folder} is of version {version!r}; this Siftline reads {_VERSION}")
    return manifest


def _verify(folder: Path, manifest: dict[str, Any]) -> None:
    """Compare every file with its size and checksum."""
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise SnapshotError(f"{folder / _MANIFEST} lists no files")
    for name, entry in files.items():
        file = folder / name
        if not file.is_file():
            raise SnapshotError(f"the snapshot {folder} lacks the file {name}")
        if [file.stat().st_size, _checksum(file)] != entry:
            raise SnapshotError(f"the snapshot {folder} is damaged: {name} is not as it was written")


def _opened(engine_class: type[Engine], folder: Path, manifest: dict[str, Any]) -> Engine:
    statistics_file = folder / "statistics.json"
    statistics = Statistics.load(statistics_file) if statistics_file.exists() else None
    engine = engine_class(manifest["index"], statistics, **manifest["options"])
    arrays = _read_arrays(folder / "engine")
    clauses = Clauses(**{name: arrays[name] for name in Clauses._fields})
    table = SubscriptionTable.restored(_read_ids(folder, manifest, arrays), arrays["weights"], _parts(folder, manifest))
    domains = _read_domains(folder)
    batch = Batch(0, table.n_slots, clauses, domains, table.expression, statistics)
    engine._index.restore(_read_arrays(folder / "index"), batch)
    engine._table, engine._domains, engine._clauses = table, domains, [clauses]
    return engine


def _read_arrays(folder: Path) -> dict[str, NDArray[Any]]:
    return {file.stem: _mapped(file) for file in folder.glob("*.npy")}


def _mapped(file: Path) -> NDArray[Any]:
    """Return an array as a read-only map of its file; a plain view, because memmap objects are slow to slice."""
    return np.load(file, mmap_mode="r", allow_pickle=False).view(np.ndarray)  # type: ignore[no-any-return]


def _read_ids(folder: Path, manifest: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    if manifest["ids"] == "text":
        column = _read_arrow(folder / "ids.arrow")["id"]
        return [value.decode("utf-8", "surrogatepass") for value in column.to_pylist()]
    return arrays["ids"] if manifest["ids"] == "integer" else None


def _parts(folder: Path, manifest: dict[str, Any]) -> list[Any]:
    return [_read_part(folder / f"expressions-{number}.arrow") for number in range(manifest["parts"])]


def _read_part(file: Path) -> Any:
    table = _read_arrow(file)
    metadata = table.schema.metadata or {}
    if b"siftline.starts" in metadata:
        return PredicateRows(table, np.array(json.loads(metadata[b"siftline.starts"]), dtype=np.int64))
    return TextExpressions(table["expression"].combine_chunks())


def _read_arrow(file: Path) -> Any:
    return pa.ipc.open_file(pa.memory_map(str(file))).read_all()


def _read_domains(folder: Path) -> Domains:
    document = json.loads((folder / "domains.json").read_text(encoding="ascii"))
    domains = Domains()
    domains.names = document["names"]
    domains.ids = {name: attribute for attribute, name in enumerate(domains.names)}
    for numbers, number_labels, strings, string_labels in document["lines"]:
        domain = Domain()
        _fill(domain.numbers, numbers, number_labels)
        _fill(domain.strings, strings, string_labels)
        domains.domains.append(domain)
    return domains


def _fill(line: Line, keys: list[Any], labels: list[int]) -> None:
    line.keys, line.labels = keys, labels
