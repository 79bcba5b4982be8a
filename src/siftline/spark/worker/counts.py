"""Counts of a job, collected by its tasks in accumulators of Spark or in files of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from siftline.errors import SparkError
from siftline.spark.runtime.paths import local_path
from siftline.spark.runtime.sessions import is_connect
from siftline.spark.worker.task_files import TaskFolder

_NOTE: Final = "counts"


class Done(NamedTuple):
    """The counts of a task."""

    events: int = 0
    matches: int = 0
    dead_letters: int = 0


class Counts:
    """Counts of a job: `events` read, `matches` found, `dead_letters` set aside.

    The numbers are complete when the result has been computed. A result that is computed twice is counted twice.

    Parameters
    ----------
    spark : SparkSession
        The session of the job.
    folder : str, optional
        A folder that all machines have mounted. Each task writes a small file there, and a repeated task replaces its
        file. Without a folder, accumulators are used, which count a repeated task twice; Spark Connect has none.
    """

    def __init__(self, spark: Any, folder: str | None = None) -> None:
        if folder is None and is_connect(spark):
            raise SparkError("Spark Connect has no accumulators: name a folder that all machines have mounted")
        self._place = _Accumulators(spark) if folder is None else _Folder(folder)

    def __repr__(self) -> str:
        return f"<Counts: {self.events:,} events, {self.matches:,} matches, {self.dead_letters:,} dead letters>"

    @property
    def events(self) -> int:
        """The number of readable events."""
        return self._place.sums().events

    @property
    def matches(self) -> int:
        """The number of matching pairs of event and subscription."""
        return self._place.sums().matches

    @property
    def dead_letters(self) -> int:
        """The number of unreadable events."""
        return self._place.sums().dead_letters

    def add(self, done: Done, run: str, stage: str, start: str = "") -> None:
        """Add the counts of this task; a repeated task has the same run and start."""
        self._place.add(done, run, stage, start)


class _Accumulators:
    def __init__(self, spark: Any) -> None:
        self._sums = [spark.sparkContext.accumulator(0) for _ in Done._fields]

    def add(self, done: Done, run: str, stage: str, start: str) -> None:
        for accumulator, number in zip(self._sums, done, strict=True):
            accumulator.add(number)

    def sums(self) -> Done:
        return Done(*(int(accumulator.value) for accumulator in self._sums))


class _Folder:
    def __init__(self, path: str) -> None:
        self._path = str(local_path(path))

    def add(self, done: Done, run: str, stage: str, start: str) -> None:
        TaskFolder(self._path, run, stage, start).write_note(_NOTE, done)

    def sums(self) -> Done:
        files = Path(self._path).glob(f"run=*/_{_NOTE}-*.json")
        found = [json.loads(file.read_text(encoding="ascii")) for file in files]
        return Done(*map(sum, zip(*found, strict=True))) if found else Done()
