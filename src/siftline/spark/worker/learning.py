"""What calls have shown, from all workers to all workers.

    learned/<run>-part-00003.json   what one task has seen: counts by predicate and by operator
    learned/total.json              the sum of those that were merged

A task counts what it sees (exactly, and nothing is forgotten), and writes it down when it is done, under the name of
its partition: a task that Spark repeats replaces its own file. Whoever begins a job, or a micro-batch, adds the files
up. Before a task matches, its engines go on from the sum, whichever worker saw it, and in which version of the index.
Counts only decide which calls come first, so a job never has to wait for them.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from siftline.errors import SnapshotError, StorageError
from siftline.operators.learned import Learned, summed
from siftline.spark.directory.documents import read_document, write_document
from siftline.spark.runtime.paths import local_path
from siftline.storage.files import File

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from siftline.operators.stage import Stage

_FOLDER: Final = "learned"
_TOTAL: Final = "total.json"
# A stream adds up every so many seconds, or when there are so many files: every time, all workers read the sum again.
STREAM_PAUSE: Final = 10.0
_MANY_PARTS: Final = 1_000
# Of a predicate so many evaluations count at most, so that the sum follows when events change.
_MOST_EVALUATIONS: Final = 100_000
# The sum has so many predicates at most: those that were evaluated most often.
_MOST_PREDICATES: Final = 200_000

# Which sum a stage has gone on from.
_taken: WeakKeyDictionary[Stage, int] = WeakKeyDictionary()


@dataclass(frozen=True)
class Learning:
    """Where the tasks of a job write down what they learn: beside an index, or nowhere."""

    path: str | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @contextlib.contextmanager
    def task(self, stage: str = "part") -> Iterator[TaskLearning]:
        """Learn from what one task does; tasks of several stages have files of different names."""
        folder = None if self.path is None else local_path(self.path) / _FOLDER
        task = TaskLearning(folder, f"{self.run}-{stage}-{partition():05d}.json")
        try:
            yield task
            task.finish()
        finally:
            task.end()


class TaskLearning:
    """What one task learns."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._folder = folder
        self._name = name
        self._stages: list[Stage] = []

    def watch(self, engines: Iterable[Any]) -> None:
        """Let engines go on from what is known, and count what they see from now on."""
        folder = self._folder
        if folder is None:
            return
        for engine in engines:
            stage = engine.call_stage
            if stage is not None and stage not in self._stages:
                self._go_on(stage, folder / _TOTAL)
                stage.record()
                self._stages.append(stage)

    def _go_on(self, stage: Stage, file: Path) -> None:
        try:
            stamp = file.stat().st_mtime_ns
        except OSError:
            return
        if _taken.get(stage) != stamp:
            stage.take(_read(file))
            _taken[stage] = stamp

    def finish(self) -> None:
        """Write down what was learned, if it was anything; a task that cannot is done all the same."""
        learned = summed(stage.recorded() for stage in self._stages)
        self._stages = []
        if not learned or self._folder is None:
            return
        try:
            self._folder.mkdir(exist_ok=True)
            write_document(self._folder / self._name, learned._asdict())
        except (OSError, StorageError) as error:
            print(f"siftline: what calls have shown is lost: {error}", file=sys.stderr)

    def end(self) -> None:
        """Count no longer, also in a task that failed."""
        for stage in self._stages:
            stage.recorded()


def partition() -> int:
    """Return the number of this task's partition, 0 outside of Spark."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return int(task.partitionId()) if task is not None else 0


def merge(path: str | os.PathLike[str], *, pause: float = 0.0) -> None:
    """Add up what tasks have written down since the last time, unless somebody else is doing so, or nobody may.

    With `pause`, nothing is done for so many seconds after the last time, unless there are many files already.
    """
    folder = local_path(path) / _FOLDER
    parts = _parts(folder)
    if not parts or (len(parts) < _MANY_PARTS and _age(folder / _TOTAL) < pause):
        return
    opened = contextlib.ExitStack()
    with contextlib.suppress(OSError, StorageError), opened:
        file = opened.enter_context(contextlib.closing(File.opened(folder / "lock", is_new=True)))
        file.lock()
        _merge(folder)


def _age(file: Path) -> float:
    """Return how many seconds ago a file was written."""
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return math.inf


def _merge(folder: Path) -> None:
    parts = _parts(folder)
    total = _document(folder / _TOTAL)
    # Whoever was killed between writing the sum and removing its parts has counted these already.
    new = [part for part in parts if part.name not in total.get("merged", ())]
    if new:
        learned = _bounded(summed([_learned(total), *map(_read, new)]))
        write_document(folder / _TOTAL, {**learned._asdict(), "merged": [part.name for part in new]})
    for part in parts:
        part.unlink(missing_ok=True)


def _parts(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(file for file in folder.glob("*.json") if file.name != _TOTAL and not file.name.startswith("."))


def _bounded(learned: Learned) -> Learned:
    predicates = learned.predicates
    if len(predicates) > _MOST_PREDICATES:
        chosen = sorted(predicates, key=lambda key: -predicates[key][2])[:_MOST_PREDICATES]
        predicates = {key: predicates[key] for key in chosen}
    scales = {key: min(1.0, _MOST_EVALUATIONS / max(counts[2], 1.0)) for key, counts in predicates.items()}
    bounded = {
        key: counts if scales[key] == 1.0 else [number * scales[key] for number in counts]
        for key, counts in predicates.items()
    }
    return Learned(bounded, learned.operators)


def learned_of(path: str | os.PathLike[str]) -> Learned:
    """Return all that is known, merged or not."""
    folder = local_path(path) / _FOLDER
    total = _document(folder / _TOTAL)
    parts = [part for part in _parts(folder) if part.name not in total.get("merged", ())]
    return summed([_learned(total), *map(_read, parts)])


def _read(file: Path) -> Learned:
    return _learned(_document(file))


def _document(file: Path) -> dict[str, Any]:
    """Return a document; nothing if it is damaged or gone: what is lost will be learned again."""
    try:
        return read_document(file) if file.exists() else {}
    except SnapshotError:
        return {}


def _learned(document: dict[str, Any]) -> Learned:
    return Learned(document.get("predicates", {}), document.get("operators", {}))
