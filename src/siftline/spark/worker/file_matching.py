"""Workers that read events from Parquet files, match them, and write the matches into Parquet files.

    row groups → distributed over tasks → a worker reads them, matches, and writes a file → folder renamed at the end

No event and no match goes through the JVM, which takes longer to read an event and to write a match than the index
takes to find it. The files are complete when the folder has its name: it is renamed when all tasks are done, and it has
no files of tasks that Spark had to repeat.
"""

from __future__ import annotations

import glob
import re
import shutil
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from siftline.errors import SparkError
from siftline.storage.files import named_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from siftline.spark.worker.event_files import Reader
    from siftline.spark.worker.live import LiveMatcher
    from siftline.spark.worker.matcher import Matcher

# The output of a worker: the file that it has written.
WRITTEN: Final = "file string, rows bigint"
# How many matches a row group has.
_ROW_GROUP_ROWS: Final = 1_000_000
_DRAFT_NAME: Final = re.compile(r"\..*-[0-9a-f]{32}")
# A draft that was not changed for this long was left by a killed driver.
_DRAFT_LIFETIME_SECONDS: Final = 7 * 24 * 3600


def key_types(schema: Any, n_keys: int) -> tuple[Any, ...]:
    """Return the Arrow types of the keys in the result: in a file they may have others, which Spark converts."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return tuple(to_arrow_schema(schema, timezone="UTC").types[:n_keys])


@dataclass(frozen=True)
class FileMatcher:
    """The work of a task: reads row groups, writes files, and returns a row of WRITTEN for each file."""

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
                # Spark's times have microseconds; smaller units are truncated.
                columns[number] = columns[number].cast(kind, safe=not pa.types.is_timestamp(kind))
        return pa.RecordBatch.from_arrays(columns, names=events.schema.names)


class _Writer:
    """A Parquet file of large row groups, created when there is something to write; use it in a `with`."""

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
        """Add some rows."""
        self._waiting.append(batch)
        self._n_waiting += batch.num_rows
        self.n_rows += batch.num_rows
        if self._n_waiting >= _ROW_GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        import pyarrow.parquet as pq

        table = pa.Table.from_batches(self._waiting)
        with named_errors(Path(self._path), "written"):
            if self._file is None:
                # The matches of an event have the same keys and follow each other; ids are too many for a dictionary.
                dictionaries = table.schema.names[: self._n_keys]
                self._file = pq.ParquetWriter(self._path, table.schema, use_dictionary=dictionaries)
            self._file.write_table(table, row_group_size=_ROW_GROUP_ROWS)
        self._waiting, self._n_waiting = [], 0


def _remove_left_over(target: Path) -> None:
    """Remove the drafts of killed drivers."""
    for folder in target.parent.glob(f".{glob.escape(target.name)}-*"):
        with suppress(OSError):
            if _DRAFT_NAME.fullmatch(folder.name) and folder.stat().st_mtime < time.time() - _DRAFT_LIFETIME_SECONDS:
                shutil.rmtree(folder)


class MatchesDraft:
    """The folder of the matches, which gets its name when it is complete; use it in a `with`."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.folder = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
        if target.exists():
            raise SparkError(f"{target} exists already")
        with named_errors(self.folder, "written"):
            self.folder.mkdir(parents=True)
        _remove_left_over(target)

    def __enter__(self) -> MatchesDraft:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def commit(self, files: set[str], schema: Any) -> None:
        """Give the folder its name, with only these files; if there are none, an empty file has the columns."""
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
