"""match_files: from Parquet files to Parquet files, read and written by the workers themselves.

    row groups → dealt out to tasks → a worker reads them, matches, and writes a file of its own → put into place

The same matches as `match`, but no event and no match goes through the JVM, which takes longer to read an event and to
write a match than the index takes to find it. Files are complete when the folder has its name: it is renamed into place
when all tasks are done, and what tasks wrote that Spark had to repeat is not in it.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from siftline.errors import SparkError
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.match import function_of, letters_of, matcher_of, result_schema, state_for
from siftline.spark.runtime.failures import own_errors
from siftline.spark.worker.event_files import dealt_out, event_files, mounted
from siftline.spark.worker.events import EVENT, MOST_EVENT_BYTES, column_of, quoted, shape_of
from siftline.spark.worker.live import LiveMatcher
from siftline.spark.worker.matcher import PAIRS
from siftline.storage.files import named_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from siftline.spark.worker.counts import Counts
    from siftline.spark.worker.event_files import EventFiles, Reader
    from siftline.spark.worker.events import Shape
    from siftline.spark.worker.matcher import Matcher

_GROUPS: Final = "place int, file string, group int"
_WRITTEN: Final = "file string, rows bigint"
# Matches that become a row group.
_WRITTEN_ROWS: Final = 1_000_000
_DRAFT_NAME: Final = re.compile(r"\..*-[0-9a-f]{32}")
# A folder of matches that nothing was added to for so long was left by a driver that was killed.
_LEFT_OVER_SECONDS: Final = 7 * 24 * 3600


class Written(NamedTuple):
    """What `match_files` has written."""

    path: str
    files: int
    rows: int


def match_files(
    events: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    index: str | IndexDirectory,
    target: str | os.PathLike[str],
    *,
    key: str | Sequence[str] = "id",
    event: str | Sequence[str] | None = EVENT,
    how: str = PAIRS,
    k: int = 10,
    weights: bool = False,
    dead_letters: str | os.PathLike[str] | None = None,
    fail_above: int | float | None = None,
    counts: Counts | None = None,
    max_event_bytes: int = MOST_EVENT_BYTES,
    operators: Sequence[str] = (),
    now: Any = None,
) -> Written:
    """Match the events in Parquet files, and write the matches as Parquet files into a new folder.

    Parameters
    ----------
    events : str, path, or a sequence of these
        Files and folders of Parquet, which workers can read under the same path. Folders named after values, such as
        `day=2026-11-17`, are columns, as in Spark. Files may have different columns: what one lacks is null there.
    index : str
        As for `match`; every machine maps the whole of it.
    target : str or path
        A folder that does not exist yet, which workers can write to under the same path.
    key, event, how, k, weights, dead_letters, fail_above, counts, max_event_bytes, operators, now
        As for `match`.

    Returns
    -------
    Written
        How many files and rows there are now.

    Raises
    ------
    SparkError
        If the target exists, or the events do not.
    TableError, SnapshotError
        As for `match`; also if the folder is a table of Delta Lake, Iceberg or Hudi, of which not all files count.
    EventError
        If an event cannot be read, or if too many cannot; nothing is written then.
    StorageError
        If a file cannot be read or written.

    Examples
    --------
    >>> match_files("/data/events", "/data/index", "/data/matches")          # doctest: +SKIP
    Written(path='/data/matches', files=8, rows=265041)
    """
    from siftline.spark.session import session, tasks_at_a_time

    spark = session()
    directory = index if isinstance(index, IndexDirectory) else IndexDirectory.open(index)
    folder = mounted(target, "matches")
    files = event_files(spark, [events] if isinstance(events, (str, os.PathLike)) else events)
    shape = shape_of(files.schema, key, event, max_event_bytes)
    reader = files.reader(shape)
    n_tasks = files.n_tasks(tasks_at_a_time(spark))
    letters = replace(letters_of(dead_letters, counts, fail_above), n_tasks=n_tasks)
    matcher = matcher_of(directory, shape, how, k, weights, letters, operators, now=now)
    schema = result_schema(_keys_of(files, shape), matcher)
    state, is_changed = state_for(index, directory)
    stage = LiveMatcher(matcher, directory.reference, state) if is_changed else matcher
    directory.share(spark)
    with _Draft(folder) as draft, own_errors(str(folder)):
        found: list[Any] = []
        if files.groups:
            work = function_of(FileMatcher(stage, reader, _arrow_types(schema, shape), str(draft.folder)))
            found = _tasks(spark, files, n_tasks).mapInArrow(work, _WRITTEN).collect()
        draft.commit({row.file for row in found}, schema)
    return Written(str(folder), len(found), sum(row.rows for row in found))


def _tasks(spark: Any, files: EventFiles, n_tasks: int) -> Any:
    """Return a DataFrame of the row groups, those of a task in one partition."""
    from pyspark.sql import types

    partitions = [types.StructField(f"value{i}", field.dataType) for i, field in enumerate(files.partitions)]
    fields = [*types.StructType.fromDDL(_GROUPS), *partitions]
    groups = dealt_out(files.groups, n_tasks)
    return spark.createDataFrame(groups, types.StructType(fields)).repartitionById(n_tasks, "place")


def _keys_of(files: EventFiles, shape: Shape) -> list[Any]:
    """Return the keys as columns of the result; a key that has several types gets one that holds them all."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField

    fields = []
    for name, path in zip(shape.keys, shape.paths, strict=False):
        kind = column_of(files.schema, quoted(*path))
        assert kind is not None
        spark_type = kind.type
        if len(path) == 1 and len(files.kinds.get(path[0], ())) > 1 and path[0] not in files.partition_names:
            spark_type = from_arrow_type(files.united(path[0], "key"))
        fields.append(StructField(name, spark_type))
    return fields


def _arrow_types(schema: Any, shape: Shape) -> tuple[Any, ...]:
    """Return the Arrow types of the keys: files may have others, which Spark takes for these."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return tuple(to_arrow_schema(schema, timezone="UTC").types[: len(shape.keys)])


@dataclass(frozen=True)
class FileMatcher:
    """What a worker does: rows of row groups in, files written, a row of _WRITTEN for each out."""

    matcher: Matcher | LiveMatcher
    reader: Reader
    key_types: tuple[Any, ...]
    folder: str

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Match the events of one task."""
        name = f"part-{uuid.uuid4().hex}.parquet"
        with _Writer(f"{self.folder}/{name}", len(self.key_types)) as writer:
            for result in self.matcher(map(self._alike, self.reader(batches))):
                writer.write(result)
        if writer.n_rows:
            columns = [pa.array([name]), pa.array([writer.n_rows], pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, names=["file", "rows"])

    def _alike(self, events: Any) -> Any:
        """Return events with keys of the types that all files have in common."""
        columns = events.columns
        for number, kind in enumerate(self.key_types):
            if columns[number].type != kind:
                # Spark's times have microseconds: what is finer is cut off.
                columns[number] = columns[number].cast(kind, safe=not pa.types.is_timestamp(kind))
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
        with named_errors(Path(self._path), "written"):
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
        with named_errors(self.folder, "written"):
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

        with named_errors(self.folder, "written"):
            for file in self.folder.iterdir():
                if file.name not in files:
                    file.unlink()
            if not files:
                pq.write_table(to_arrow_schema(schema, timezone="UTC").empty_table(), self.folder / "part-0.parquet")
            (self.folder / "_SUCCESS").touch()
            if self._target.exists():
                raise SparkError(f"{self._target} exists already; something else was written there")
            self.folder.rename(self._target)
