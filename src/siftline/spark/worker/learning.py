"""Statistics of calls of operators, which workers share from one task to the next and with each other.

A task counts the results of its calls, and writes the counts into a file beside the index when it is done
(`directory/learned.py`). When a task starts, it adds the files of earlier jobs, or micro-batches, to the sum, and its
engines start from the sum, whatever worker and version of the index it comes from. All of this happens in tasks, so
that planning a job writes nothing. A task never fails because counts cannot be written.
"""

from __future__ import annotations

import contextlib
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from siftline.errors import StorageError
from siftline.operators.learned import summed
from siftline.spark.directory.learned import merge, read_learned, total_file, write_learned
from siftline.spark.runtime.tasks import partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from siftline.operators.stage import Stage

# The shortest time between two merges of a stream: after each merge all workers read the sum again.
STREAM_MERGE_PAUSE_SECONDS: Final = 10.0

# The modification time of the sum that each stage has read.
_known_sums: WeakKeyDictionary[Stage, int] = WeakKeyDictionary()


@dataclass(frozen=True)
class Learning:
    """Where the tasks of a job record what they learn.

    Attributes
    ----------
    path : str or None
        The index directory; None if nothing is recorded.
    run : str
        The job, or the micro-batch.
    merge_pause : float
        Seconds between two merges.
    """

    path: str | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    merge_pause: float = 0.0

    @contextlib.contextmanager
    def task(self, stage: str = "part") -> Iterator[TaskLearning]:
        """Learn from one task; tasks of different stages have files of different names."""
        task = TaskLearning(self, stage)
        try:
            yield task
            task.finish()
        finally:
            task.end()


class TaskLearning:
    """The statistics of one task."""

    def __init__(self, owner: Learning, stage: str) -> None:
        self._owner = owner
        self._folder = None if owner.path is None else Path(owner.path)
        self._name = f"{owner.run}-{stage}-{partition():05d}"
        self._stages: list[Stage] = []

    def watch(self, engines: Iterable[Any]) -> None:
        """Let engines start from the sum, and count their calls from now on."""
        folder = self._folder
        if folder is None:
            return
        for engine in engines:
            stage = engine.call_stage
            if stage is None or stage in self._stages:
                continue
            if not self._stages:
                merge(folder, run=self._owner.run, pause=self._owner.merge_pause)
            _start_from(stage, total_file(folder))
            stage.record()
            self._stages.append(stage)

    def finish(self) -> None:
        """Write the counts, if there are any."""
        learned = summed(stage.recorded() for stage in self._stages)
        self._stages = []
        if not learned or self._folder is None:
            return
        try:
            write_learned(self._folder, self._name, learned)
        except (OSError, StorageError) as error:
            print(f"siftline: the statistics of calls cannot be written: {error}", file=sys.stderr)

    def end(self) -> None:
        """Stop counting, even in a failed task."""
        for stage in self._stages:
            stage.recorded()


def _start_from(stage: Stage, total: Path) -> None:
    """Let a stage start from the sum, unless it has read it already."""
    try:
        stamp = total.stat().st_mtime_ns
    except OSError:
        return
    if _known_sums.get(stage) != stamp:
        stage.take(read_learned(total))
        _known_sums[stage] = stamp
