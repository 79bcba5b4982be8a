"""Events that cannot be read: put aside with the reason and counted, while the job goes on.

A task writes its own into one Parquet file beside the job, `PATH/run=.../part-00007.parquet`, named after its partition
and moved into place when the task is done. So they cost nothing where there are none, no event is read twice to find
them, and a task that Spark repeats replaces its file instead of adding to it. A micro-batch that a stream repeats when
it starts again may have other partitions: the names of its files tell which start they belong to, and those of earlier
ones go away. (A second DataFrame would be the other way: Spark would compute everything again for it, or keep all
matches for it.)
"""

from __future__ import annotations

import sys
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from siftline.spark.counts import Done
from siftline.spark.paths import local_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siftline.spark.counts import Counts
    from siftline.spark.events import Shape

# Columns beside the keys.
EVENT, REASON = "event", "reason"
# So many wait in memory before they are written.
_WAITING: Final = 4096


@dataclass(frozen=True)
class DeadLetters:
    """Where the dead letters of a job go: to a folder, and to counts; without a folder the workers' log names one."""

    path: str | None = None
    counts: Counts | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    start: str = ""

    def __post_init__(self) -> None:
        # Workers have other working directories, and take a file: URI for a name.
        if self.path is not None and (self.path.startswith("file:") or "://" not in self.path):
            object.__setattr__(self, "path", str(local_path(self.path)))

    @contextmanager
    def task(self, shape: Shape, stage: str = "part") -> Iterator[TaskLetters]:
        """Take the dead letters of one task; tasks of several stages have files of different names."""
        task = TaskLetters(self, shape, stage)
        try:
            yield task
            task.finish()
        finally:
            task.discard()


class TaskLetters:
    """The dead letters of one task."""

    def __init__(self, owner: DeadLetters, shape: Shape, stage: str) -> None:
        self._owner = owner
        self._shape = shape
        self._stage = stage
        self._waiting: list[Any] = []
        self._n_waiting = self._n_dead = self._n_events = self._n_matches = 0
        self._first = ""
        self._writer: Any = None
        self._place = _Place(owner.path, owner.run, owner.start, stage) if owner.path is not None else None

    def count(self, n_events: int, n_matches: int) -> None:
        """Count events that were read."""
        self._n_events += n_events
        self._n_matches += n_matches

    def without(self, batch: Any, problems: dict[int, str]) -> Any:
        """Put some rows of a batch aside, and return the others."""
        rows = sorted(problems)
        self._n_dead += len(rows)
        self._first = self._first or problems[rows[0]]
        if self._place is not None:
            self._keep(batch, rows, problems)
        is_good = np.ones(batch.num_rows, dtype=np.bool_)
        is_good[rows] = False
        return batch.filter(pa.array(is_good))

    def _keep(self, batch: Any, rows: list[int], problems: dict[int, str]) -> None:
        shape, places = self._shape, pa.array(rows, pa.int64())
        columns = [key.take(places) for key in shape.keys_of(batch)]
        columns.append(pa.array([shape.text(batch, row) for row in rows], pa.string()))
        columns.append(pa.array([problems[row] for row in rows], pa.string()))
        self._waiting.append(pa.Table.from_arrays(columns, names=[*shape.keys, EVENT, REASON]))
        self._n_waiting += len(rows)
        if self._n_waiting >= _WAITING:
            self._write()

    def _write(self) -> None:
        import pyarrow.parquet as pq

        assert self._place is not None
        table = pa.concat_tables(self._waiting)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._place.draft(), table.schema)
        self._writer.write_table(table)
        self._waiting, self._n_waiting = [], 0

    def finish(self) -> None:
        """Write what is left, and put the file into its place."""
        if self._waiting:
            self._write()
        if self._writer is not None:
            assert self._place is not None
            self._writer.close()
            self._writer = None
            self._place.commit()
        if self._owner.counts is not None:
            done = Done(self._n_events, self._n_matches, self._n_dead)
            self._owner.counts.add(done, f"{self._owner.run}-{self._stage}-{_task()[0]}")
        if self._n_dead and self._place is None:
            print(f"siftline: {self._n_dead:,} events could not be read; the first: {self._first}", file=sys.stderr)

    def discard(self) -> None:
        """Drop the file of a task that failed; after `finish` there is nothing to drop."""
        if self._writer is not None and self._place is not None:
            self._writer.close()
            self._place.discard()


def _task() -> tuple[int, int]:
    """Return the numbers of this task's partition and of the attempt at it."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return (task.partitionId(), task.taskAttemptId()) if task is not None else (0, 0)


class _Place:
    """The file of one task, on any file system that Arrow knows."""

    def __init__(self, path: str, run: str, start: str, stage: str) -> None:
        partition, attempt = _task()
        self._files, root = _file_system(path)
        self._folder = f"{root}/run={run}"
        self._start = start
        name = f"{stage}-{partition:05d}{start and '-'}{start}.parquet"
        self._target = f"{self._folder}/{name}"
        # Spark's readers skip names with an underscore.
        self._draft = f"{self._folder}/_{attempt}-{name}"
        self._stream: Any = None

    def draft(self) -> Any:
        """Open the file under a name of its own."""
        self._files.create_dir(self._folder, recursive=True)
        self._stream = self._files.open_output_stream(self._draft)
        return self._stream

    def commit(self) -> None:
        """Move the file into its place, over that of an earlier attempt."""
        self._stream.close()
        self._files.move(self._draft, self._target)
        if self._start:
            self._remove_earlier()

    def _remove_earlier(self) -> None:
        """Remove the files of earlier starts; other tasks of this one may do so at the same time."""
        from pyarrow import fs

        for file in self._files.get_file_info(fs.FileSelector(self._folder)):
            if not file.path.endswith(f"-{self._start}.parquet"):
                with suppress(FileNotFoundError):
                    self._files.delete_file(file.path)

    def discard(self) -> None:
        """Remove the file."""
        self._stream.close()
        self._files.delete_file(self._draft)


def _file_system(path: str) -> tuple[Any, str]:
    from pyarrow import fs

    if "://" not in path:
        return fs.LocalFileSystem(), path
    system, root = fs.FileSystem.from_uri(path)
    return system, root
