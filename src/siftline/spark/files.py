"""match_files: from Parquet files to Parquet files, read and written by the workers themselves.

    row groups → dealt out to tasks → a worker reads them, matches, and writes a file of its own → put into place

The same matches as `match`, but no event and no match goes through the JVM, which takes longer to read an event and to
write a match than the index takes to find it. Files are complete when the folder has its name: it is renamed into place
when all tasks are done, and what tasks wrote that Spark had to repeat is not in it.
"""

from __future__ import annotations

import glob
import re
import shutil
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from siftline.errors import SparkError, TableError
from siftline.spark.dead_letters import DeadLetters
from siftline.spark.directory import IndexDirectory
from siftline.spark.events import EVENT, MOST_EVENT_BYTES, selected, shape_of
from siftline.spark.live import LiveMatcher
from siftline.spark.match import function_of, matcher_of, result_schema, state_for
from siftline.spark.paths import is_remote, local_path
from siftline.spark.worker import PAIRS

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from siftline.spark.counts import Counts
    from siftline.spark.events import Shape
    from siftline.spark.worker import Matcher

_GROUPS: Final = "place int, file string, group int"
_WRITTEN: Final = "file string, rows bigint"
# Events that are read at a time, and matches that become a row group.
_READ_ROWS: Final = 50_000
_WRITTEN_ROWS: Final = 1_000_000
_DRAFT_NAME: Final = re.compile(r"\..*-[0-9a-f]{32}")
# A folder of matches that nothing was added to for so long was left by a driver that was killed.
_LEFT_OVER_SECONDS: Final = 7 * 24 * 3600
# Tasks for each core, so that those that have more to do do not hold up the job.
_TASKS_PER_CORE: Final = 4


class Written(NamedTuple):
    """What `match_files` has written."""

    path: str
    files: int
    rows: int


def match_files(
    events: str | Sequence[str],
    index: str | IndexDirectory,
    target: str | os.PathLike[str],
    *,
    key: str | Sequence[str] = "id",
    event: str | Sequence[str] | None = EVENT,
    how: str = PAIRS,
    k: int = 10,
    weights: bool = False,
    dead_letters: str | None = None,
    counts: Counts | None = None,
    max_event_bytes: int = MOST_EVENT_BYTES,
    operators: Sequence[str] = (),
) -> Written:
    """Match the events in Parquet files, and write the matches as Parquet files into a new folder.

    Parameters
    ----------
    events : str or sequence of str
        Files and folders of Parquet, which workers can read under the same path.
    index : str
        As for `match`; every machine maps the whole of it.
    target : str or path
        A folder that does not exist yet, which workers can write to under the same path.
    key, event, how, k, weights, dead_letters, counts, max_event_bytes, operators
        As for `match`.

    Returns
    -------
    Written
        How many files and rows there are now.

    Raises
    ------
    SparkError
        If the target exists.
    TableError, SnapshotError
        As for `match`; also if a column is not in the files, as those are not that partitions are named after.

    Examples
    --------
    >>> match_files("/data/events", "/data/index", "/data/matches")          # doctest: +SKIP
    Written(path='/data/matches', files=8, rows=265041)
    """
    from siftline.spark.session import session

    spark = session()
    directory = index if isinstance(index, IndexDirectory) else IndexDirectory.open(index)
    frame = spark.read.parquet(*([events] if isinstance(events, str) else events))
    shape = shape_of(frame.schema, key, event, max_event_bytes)
    matcher = matcher_of(directory, shape, how, k, weights, DeadLetters(dead_letters, counts), operators)
    schema = result_schema(selected(frame, shape), matcher)
    state, is_changed = state_for(index, directory)
    stage = LiveMatcher(matcher, directory.reference, state) if is_changed else matcher
    directory.share(spark)
    n_tasks = _TASKS_PER_CORE * int(spark.conf.get("spark.sql.shuffle.partitions"))
    groups = _dealt_out(_row_groups([_mounted(file, "events") for file in frame.inputFiles()], shape), n_tasks)
    folder = _mounted(target, "matches")
    with _Draft(folder) as draft:
        found: list[Any] = []
        if groups:
            tasks = spark.createDataFrame(groups, _GROUPS).repartitionById(n_tasks, "place")
            work = function_of(FileMatcher(stage, shape, _key_types(schema, shape), str(draft.folder)))
            found = tasks.mapInArrow(work, _WRITTEN).collect()
        draft.commit({row.file for row in found}, schema)
    return Written(str(folder), len(found), sum(row.rows for row in found))


def _mounted(path: str | os.PathLike[str], what: str) -> Path:
    """Return the path of a file that workers read or write themselves."""
    if is_remote(path):
        raise SparkError(f"{path}: workers read and write {what} themselves, which must be mounted; use `match`")
    return local_path(path)


def _key_types(schema: Any, shape: Shape) -> tuple[Any, ...]:
    """Return the Arrow types of the keys: files may have others, which Spark takes for these."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return tuple(to_arrow_schema(schema, timezone="UTC").types[: len(shape.keys)])


class _Group(NamedTuple):
    file: str
    number: int
    n_rows: int


def _row_groups(files: Sequence[Path], shape: Shape) -> list[_Group]:
    """Return the row groups of some files, which must have all columns."""
    import pyarrow.parquet as pq

    if shape.is_variant:
        raise TableError("a VARIANT is read by Spark alone; use `match`")
    found = []
    for file in sorted(files):
        with pq.ParquetFile(file) as opened:
            names, metadata = opened.schema_arrow.names, opened.metadata
        missing = [name for name in (*shape.keys, *shape.columns) if name not in names]
        if missing:
            raise TableError(f"{file} has no column {missing[0]!r}; use `match` if folders are named after its values")
        numbers = range(metadata.num_row_groups)
        found += [_Group(str(file), number, metadata.row_group(number).num_rows) for number in numbers]
    return found


def _dealt_out(groups: Sequence[_Group], n_tasks: int) -> list[tuple[int, str, int]]:
    """Return rows of _GROUPS: neighbours go to one task, about the same number of events to each.

    >>> _dealt_out([_Group("a", 0, 10), _Group("a", 1, 10), _Group("b", 0, 20)], 2)
    [(0, 'a', 0), (0, 'a', 1), (1, 'b', 0)]
    """
    total, before, rows = max(1, sum(group.n_rows for group in groups)), 0, []
    for group in groups:
        place = min(n_tasks - 1, (before + group.n_rows // 2) * n_tasks // total)
        rows.append((place, group.file, group.number))
        before += group.n_rows
    return rows


@dataclass(frozen=True)
class FileMatcher:
    """What a worker does: rows of _GROUPS in, files written, a row of _WRITTEN for each out."""

    matcher: Matcher | LiveMatcher
    shape: Shape
    key_types: tuple[Any, ...]
    folder: str

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Match the events of one task."""
        name = f"part-{uuid.uuid4().hex}.parquet"
        with _Writer(f"{self.folder}/{name}", len(self.shape.keys)) as writer:
            for result in self.matcher(self._events(batches)):
                writer.write(result)
        if writer.n_rows:
            columns = [pa.array([name]), pa.array([writer.n_rows], pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, names=["file", "rows"])

    def _events(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow.parquet as pq

        names = [*self.shape.keys, *self.shape.columns]
        for batch in batches:
            for _, file, group in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                # Spark writes times as INT96 by default; as nanoseconds they would end in 2262.
                with pq.ParquetFile(file, memory_map=True, coerce_int96_timestamp_unit="us") as opened:
                    options = {"columns": names, "use_threads": False}
                    for events in opened.iter_batches(_READ_ROWS, [group], **options):
                        yield self._alike(events.select(names))

    def _alike(self, events: Any) -> Any:
        """Return events with keys of the types that all files have in common."""
        columns = events.columns
        for number, kind in enumerate(self.key_types):
            if columns[number].type != kind:
                columns[number] = columns[number].cast(kind)
        return pa.RecordBatch.from_arrays(columns, names=events.schema.names)


class _Writer:
    """A Parquet file of large row groups, made when there is something to write; use it in a `with`."""

    def __init__(self, path: str, n_keys: int) -> None:
        self._path = path
        self._n_keys = n_keys
        self._file: Any = None
        self._waiting: list[Any] = []
        self._n_waiting = 0
        self.n_rows = 0

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._waiting and error is None:
            self._write()
        if self._file is not None:
            self._file.close()

    def write(self, batch: Any) -> None:
        """Take some rows."""
        self._waiting.append(batch)
        self._n_waiting += batch.num_rows
        self.n_rows += batch.num_rows
        if self._n_waiting >= _WRITTEN_ROWS:
            self._write()

    def _write(self) -> None:
        import pyarrow.parquet as pq

        table = pa.Table.from_batches(self._waiting)
        if self._file is None:
            # The keys of an event stand beside each other in all its rows; ids are too many for a dictionary.
            dictionaries = table.schema.names[: self._n_keys]
            self._file = pq.ParquetWriter(self._path, table.schema, use_dictionary=dictionaries)
        self._file.write_table(table, row_group_size=_WRITTEN_ROWS)
        self._waiting, self._n_waiting = [], 0


def _remove_left_over(target: Path) -> None:
    """Remove the folders of drivers that were killed."""
    for folder in target.parent.glob(f".{glob.escape(target.name)}-*"):
        with suppress(OSError):
            if _DRAFT_NAME.fullmatch(folder.name) and folder.stat().st_mtime < time.time() - _LEFT_OVER_SECONDS:
                shutil.rmtree(folder)


class _Draft:
    """The folder of the matches under another name, until it is complete; use it in a `with`."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.folder = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
        if target.exists():
            raise SparkError(f"{target} exists already")
        self.folder.mkdir(parents=True)
        _remove_left_over(target)

    def __enter__(self) -> _Draft:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def commit(self, files: set[str], schema: Any) -> None:
        """Give the folder its name, with these files alone; without any there is one that has the columns."""
        import pyarrow.parquet as pq
        from pyspark.sql.pandas.types import to_arrow_schema

        for file in self.folder.iterdir():
            if file.name not in files:
                file.unlink()
        if not files:
            pq.write_table(to_arrow_schema(schema, timezone="UTC").empty_table(), self.folder / "part-0.parquet")
        (self.folder / "_SUCCESS").touch()
        if self._target.exists():
            raise SparkError(f"{self._target} exists already; something else was written there")
        self.folder.rename(self._target)
