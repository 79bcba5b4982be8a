"""Workloads on disk: two Parquet files in a directory, with parameters and seed in the metadata of both."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline.bench.workloads.registry import make_parameters, recipe
from siftline.bench.workloads.workload import Workload
from siftline.errors import TableError

if TYPE_CHECKING:
    from siftline.bench.workloads.workload import Parameters

_KEY: Final = b"siftline.workload"
_FILES: Final = ("predicates.parquet", "values.parquet")


def save(workload: Workload, directory: str | Path) -> Path:
    """Write a workload into a new directory, which appears only when it is complete."""
    import pyarrow.parquet as pq

    target = Path(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    metadata = {_KEY: json.dumps(workload.identity)}
    partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        for table, file in zip((workload.predicates, workload.values), _FILES, strict=True):
            pq.write_table(table.replace_schema_metadata(metadata), partial / file, compression="zstd")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def load(directory: str | Path) -> Workload:
    """Read a workload that `save` wrote.

    Raises
    ------
    TableError
        If a file is missing or no workload, or the two do not belong together.
    """
    (predicates, identity), (values, other) = (_read(Path(directory) / file) for file in _FILES)
    if identity != other:
        raise TableError(f"the files in {directory} belong to different workloads")
    parameters = make_parameters(identity["workload"], **identity["parameters"])
    return Workload(identity["workload"], parameters, identity["seed"], identity["version"], predicates, values)


def _read(path: Path) -> tuple[Any, dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise TableError(f"cannot read {path}: {error}") from None
    text = (table.schema.metadata or {}).get(_KEY)
    if text is None:
        raise TableError(f"{path} holds no workload: it has no parameters in its metadata")
    return table.replace_schema_metadata(None), json.loads(text)


def cached(name: str, parameters: Parameters, seed: int, directory: str | Path | None) -> Workload:
    """Return a workload from `directory` if it is there with these very parameters, else draw it and keep it there."""
    if directory is None:
        return recipe(name).generate(parameters, seed)
    path = Path(directory) / _file_name(name, parameters, seed)
    if path.exists():
        workload = load(path)
        if (workload.name, workload.parameters, workload.seed) != (name, parameters, seed):
            raise TableError(f"{path} holds another workload: {workload.identity}")
        if workload.version == recipe(name).version:
            return workload
    workload = recipe(name).generate(parameters, seed)
    save(workload, path)
    return workload


def _file_name(name: str, parameters: Parameters, seed: int) -> str:
    digest = hashlib.sha256(repr((parameters, seed)).encode()).hexdigest()[:10]
    return f"{name}-{parameters.n_subscriptions}-{digest}"
