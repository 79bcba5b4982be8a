"""Workloads on disk: predicates and values as Parquet in a directory, with parameters and seed in the metadata.

    predicates.parquet                      one file each, or
    predicates.parquet/part-00000.parquet   a file for each chunk, written by processes or by Spark

The same files come out however many processes draw them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import TableError
from siftline_bench.workloads.registry import make_parameters, recipe
from siftline_bench.workloads.workload import CHUNK, Workload, identity, n_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siftline_bench.workloads.workload import Parameters

_KEY: Final = b"siftline.workload"
_FILES: Final = ("predicates.parquet", "values.parquet")


@contextmanager
def _appearing(directory: str | Path) -> Iterator[Path]:
    """Give a place to write to, which becomes the directory when all is written."""
    target = Path(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        yield partial
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def save(workload: Workload, directory: str | Path) -> Path:
    """Write a workload into a new directory, which appears only when it is complete."""
    with _appearing(directory) as partial:
        for table, file in zip((workload.predicates, workload.values), _FILES, strict=True):
            _write(table, partial / file, workload.identity)
    return Path(directory)


def _write(table: Any, path: Path, known: dict[str, Any]) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table.replace_schema_metadata({_KEY: json.dumps(known)}), path, compression="zstd")


@dataclass(frozen=True)
class Drawing:
    """A workload that is drawn chunk by chunk into a directory, and never in memory as a whole."""

    name: str
    parameters: Parameters
    seed: int = 0
    chunk: int = CHUNK

    def write(self, directory: str | Path, *, workers: int = 1) -> Path:
        """Draw with this many processes."""
        with _appearing(directory) as partial:
            self._make_folders(partial)
            if workers == 1 or self._n_chunks == 1:
                for number in range(self._n_chunks):
                    self.write_chunk(number, partial)
            else:
                self._write_in_processes(partial, workers)
        return Path(directory)

    def write_by_spark(self, session: Any, directory: str | Path) -> Path:
        """Draw with the workers of a Spark session, which must see the directory under the same path."""
        import pyarrow as pa

        with _appearing(Path(directory).absolute()) as partial:
            self._make_folders(partial)

            def write_chunks(batches: Iterator[Any]) -> Iterator[Any]:
                for batch in batches:
                    numbers = batch.column(0).to_pylist()
                    for number in numbers:
                        self.write_chunk(number, partial)
                    yield pa.RecordBatch.from_pydict({"id": pa.array(numbers, pa.int64())})

            numbers = session.range(0, self._n_chunks, 1, self._n_chunks)
            numbers.mapInArrow(write_chunks, "id long").count()
        return Path(directory)

    def cached_by_spark(self, session: Any, directory: str | Path) -> Path:
        """Return where in `directory` this workload is, in chunks; if it is not there yet, Spark draws it."""
        path = Path(directory).absolute() / _file_name(self.name, self.parameters, self.seed)
        return path if self._is_at(path) else self.write_by_spark(session, path)

    def _is_at(self, directory: Path) -> bool:
        """Return whether all chunks of this very workload are there."""
        known = [self._known] * self._n_chunks
        return all([_known_of(part) for part in _parts(directory / file)] == known for file in _FILES)

    def write_chunk(self, number: int, folder: Path) -> None:
        """Draw one chunk into its files. A task that is repeated replaces them with the same."""
        known = self._known
        tables = recipe(self.name).draw_chunk(self.parameters, self.seed, number, self.chunk)
        for table, file in zip(tables, _FILES, strict=True):
            own = folder / f".{file}-{number}-{os.getpid()}"
            _write(table, own, known)
            os.replace(own, folder / file / f"part-{number:05}.parquet")

    @property
    def _known(self) -> dict[str, Any]:
        return identity(self.name, self.parameters, self.seed, recipe(self.name).version, self.chunk)

    @property
    def _n_chunks(self) -> int:
        return n_chunks(self.parameters, self.chunk)

    def _make_folders(self, partial: Path) -> None:
        for file in _FILES:
            (partial / file).mkdir()

    def _write_in_processes(self, partial: Path, workers: int) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        numbers = range(self._n_chunks)
        # Spawned, because a process with the threads of Arrow in it cannot be forked safely.
        with ProcessPoolExecutor(min(workers, len(numbers)), get_context("spawn")) as pool:
            list(pool.map(self.write_chunk, numbers, [partial] * len(numbers)))


def load(directory: str | Path) -> Workload:
    """Read a workload that `save` or a `Drawing` wrote.

    Raises
    ------
    TableError
        If a file is missing or no workload, or they do not belong together.
    """
    (predicates, known), (values, other) = (_read(Path(directory) / file) for file in _FILES)
    if known != other:
        raise TableError(f"the files in {directory} belong to different workloads")
    parameters = make_parameters(known["workload"], **known["parameters"])
    chunk = _chunk_of(known)
    return Workload(known["workload"], parameters, known["seed"], known["version"], predicates, values, chunk)


def _read(path: Path) -> tuple[Any, dict[str, Any]]:
    import pyarrow as pa

    if not path.is_dir():
        return _read_file(path)
    read = [_read_file(part) for part in _parts(path)]
    if not read:
        raise TableError(f"{path} has no parts")
    tables, known = zip(*read, strict=True)
    if any(each != known[0] for each in known):
        raise TableError(f"the parts in {path} belong to different workloads")
    n = known[0]["parameters"]["n_subscriptions"]
    if len(read) != -(-n // _chunk_of(known[0])):
        raise TableError(f"{path} is not complete: it has {len(read)} parts")
    return pa.concat_tables(tables), known[0]


def _parts(path: Path) -> list[Path]:
    return sorted(path.glob("part-*.parquet"))


def _known_of(path: Path) -> Any:
    """Return what a file says about its workload; None if it is none."""
    import pyarrow.parquet as pq

    text = (pq.read_schema(path).metadata or {}).get(_KEY)
    return None if text is None else json.loads(text)


def _chunk_of(known: dict[str, Any]) -> int:
    """Return in what chunks a workload was drawn; without a word, as one."""
    return int(known.get("chunk", max(CHUNK, known["parameters"]["n_subscriptions"])))


def _read_file(path: Path) -> tuple[Any, dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read()
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
        if (workload.version, workload.chunk) == (recipe(name).version, CHUNK):
            return workload
    workload = recipe(name).generate(parameters, seed)
    save(workload, path)
    return workload


def _file_name(name: str, parameters: Parameters, seed: int) -> str:
    digest = hashlib.sha256(repr((parameters.as_dict(), seed)).encode()).hexdigest()[:10]
    return f"{name}-{parameters.n_subscriptions}-{digest}"
