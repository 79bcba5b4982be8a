"""Dead letters: unreadable events. They are set aside with the reason, or they fail the job.

A task writes its dead letters into one Parquet file beside the job, `PATH/run=.../part-00007-0-1312.parquet`, which
gets its name when the task is done (`task_files.py`). So dead letters cost nothing if there are none, no event is read
twice to find them, and a repeated task replaces its file instead of adding to it. (The alternative is a second
DataFrame, for which Spark would compute everything again, or keep all matches.)

With `fail_above`, each task also records how many events it could read and how many it could not, and then adds up the
records of all tasks: the last task that ends sees all of them. A number can be exceeded at any time, so a task without
dead letters needs no record. A share is known only when all tasks have recorded theirs, so their number must be known
(`n_tasks`).
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from siftline.errors import EventError
from siftline.spark.runtime.fail_above import check_fail_above, is_above
from siftline.spark.runtime.paths import is_remote, local_path
from siftline.spark.worker.counts import Done
from siftline.spark.worker.task_files import TaskFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siftline.spark.worker.counts import Counts
    from siftline.spark.worker.events import Shape
    from siftline.spark.worker.task_files import TaskFile

# The value that leaves unreadable events out, in place of a folder.
IGNORE: Final = "ignore"
# The columns besides the keys.
EVENT, REASON = "event", "reason"
# The stage in which events are read and counted; later stages do not count them again.
READING: Final = "part"
# How many dead letters are collected in memory before they are written.
_WRITE_BUFFER_ROWS: Final = 4096
_NOTE: Final = "read"
# A message shows at most this many characters of a key.
_SHOWN_KEY_CHARACTERS: Final = 80


@dataclass(frozen=True)
class DeadLetters:
    """How a job handles unreadable events.

    Attributes
    ----------
    path : str or None
        A folder for them; IGNORE leaves them out; None fails the job.
    counts : Counts or None
        Counts readable and unreadable events.
    fail_above : int, float or None
        More of them, or a greater share of all events, fail the job.
    n_tasks : int or None
        How many tasks read events, if `fail_above` is a share.
    run, start : str
        The job, and the start of the stream.
    """

    path: str | None = None
    counts: Counts | None = None
    fail_above: int | float | None = None
    n_tasks: int | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    start: str = ""

    def __post_init__(self) -> None:
        check_fail_above(self.fail_above)
        if self.fail_above is not None and not self.has_folder:
            raise ValueError("fail_above needs a folder for the counts of tasks: dead_letters='...'")
        # Workers have another working directory, and would take a `file:` URI for a name.
        if self.path is not None and self.has_folder and not is_remote(self.path):
            object.__setattr__(self, "path", str(local_path(self.path)))

    @property
    def has_folder(self) -> bool:
        """Whether there is a folder for them."""
        return self.path is not None and self.path != IGNORE

    @property
    def needs_tasks(self) -> bool:
        """Whether the number of tasks must be known."""
        return isinstance(self.fail_above, float)

    @contextmanager
    def task(self, shape: Shape, stage: str = READING) -> Iterator[TaskLetters]:
        """Collect the dead letters of one task; tasks of different stages have files of different names."""
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
        self._file: TaskFile | None = None
        self._folder: TaskFolder | None = None
        if owner.path is not None and owner.has_folder:
            self._folder = TaskFolder(owner.path, owner.run, stage, owner.start)

    def count(self, n_events: int, n_matches: int) -> None:
        """Count events that were read."""
        self._n_events += n_events
        self._n_matches += n_matches

    def without(self, batch: Any, problems: dict[int, str]) -> Any:
        """Set some rows of a batch aside, and return the others; raise EventError if the job fails on them."""
        rows = sorted(problems)
        self._first = self._first or f"{self._named(batch, rows[0])}{problems[rows[0]]}"
        if self._owner.path is None:
            raise EventError(
                f"{len(rows):,} of {batch.num_rows:,} events cannot be read; the first: {self._first}; name a folder "
                f"for them (dead_letters='...'), or leave them out (dead_letters={IGNORE!r})"
            )
        self._n_dead += len(rows)
        if self._folder is not None:
            self._keep(batch, rows, problems)
        is_good = np.ones(batch.num_rows, dtype=np.bool_)
        is_good[rows] = False
        return batch.filter(pa.array(is_good))

    def _named(self, batch: Any, row: int) -> str:
        """Return the keys of an event, for a message."""
        keys = zip(self._shape.keys, self._shape.keys_of(batch), strict=True)
        shown = ", ".join(f"{name}={str(column[row].as_py())[:_SHOWN_KEY_CHARACTERS]}" for name, column in keys)
        return f"{shown}: " if shown else ""

    def _keep(self, batch: Any, rows: list[int], problems: dict[int, str]) -> None:
        shape, places = self._shape, pa.array(rows, pa.int64())
        columns = [key.take(places) for key in shape.keys_of(batch)]
        columns.append(pa.array([shape.text(batch, row) for row in rows], pa.string()))
        columns.append(pa.array([problems[row] for row in rows], pa.string()))
        self._waiting.append(pa.Table.from_arrays(columns, names=[*shape.keys, EVENT, REASON]))
        self._n_waiting += len(rows)
        if self._n_waiting >= _WRITE_BUFFER_ROWS:
            self._write()

    def _write(self) -> None:
        assert self._folder is not None
        self._file = self._file or self._folder.opened()
        self._file.write(pa.concat_tables(self._waiting))
        self._waiting, self._n_waiting = [], 0

    def finish(self) -> None:
        """Write the remaining rows, and give the file its name; raise EventError if there are too many."""
        if self._waiting:
            self._write()
        if self._file is not None:
            self._file.commit()
            self._file = None
        owner = self._owner
        if owner.counts is not None:
            done = Done(self._n_events, self._n_matches, self._n_dead)
            owner.counts.add(done, owner.run, self._stage, owner.start)
        if owner.fail_above is not None:
            self._check()

    def _check(self) -> None:
        """Record the counts of this task, and add up those of all tasks when that can decide."""
        owner, folder = self._owner, self._folder
        assert folder is not None
        is_share_needed = owner.needs_tasks and self._stage == READING
        if not self._n_dead and not is_share_needed:
            return
        folder.write_note(_NOTE, [self._n_events, self._n_dead, self._first])
        if owner.needs_tasks and len(folder.note_names(_NOTE, READING)) < (owner.n_tasks or 0):
            return
        notes = list(folder.notes(_NOTE))
        n_read, n_dead = sum(note[0] for note in notes), sum(note[1] for note in notes)
        if is_above(owner.fail_above, n_dead, n_read + n_dead):
            of_all = f" of {n_read + n_dead:,}" if owner.needs_tasks else ""
            first = next(note[2] for note in notes if note[1])
            raise EventError(
                f"{n_dead:,}{of_all} events cannot be read, more than fail_above={owner.fail_above} allows; they are "
                f"in {folder.path}; one of them: {first}"
            )

    def discard(self) -> None:
        """Drop the file of a task that failed; after `finish` there is nothing to drop."""
        if self._file is not None:
            self._file.discard()
