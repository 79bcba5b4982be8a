"""Statistics of the calls of operators, recorded by tasks and merged into one sum.

    learned/<run>-part-00003.json   the counts of one task, by predicate and by operator
    learned/total.json              the sum of the files that were merged

Only tasks write here (`worker/learning.py`): a job that is planned and never run writes nothing. The counts only decide
the order of calls, so a file that is lost, or merged twice, never changes a result.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import SnapshotError, StorageError
from siftline.operators.learned import Learned, summed
from siftline.spark.directory.documents import read_document, write_document
from siftline.spark.directory.layout import LEARNED, LOCK
from siftline.spark.directory.locks import held

if TYPE_CHECKING:
    from pathlib import Path

_TOTAL: Final = "total.json"
# From this number of files on, they are merged even if the last merge was a moment ago.
_MAX_WAITING_FILES: Final = 1_000
# The tasks of a job start together. One of them merges, and the others wait this long to start from the new sum.
_WAIT_SECONDS: Final = 1.0
# The counts of a predicate are scaled down to this number of evaluations, so that the sum follows when events change.
_MAX_EVALUATIONS: Final = 100_000
# The sum has at most this number of predicates: those that were evaluated most often.
_MAX_PREDICATES: Final = 200_000


def total_file(folder: Path) -> Path:
    """Return the file of the sum of an index."""
    return folder / LEARNED / _TOTAL


def read_learned(file: Path) -> Learned:
    """Return the counts in a file; none if it is damaged or missing, because they will be learned again."""
    return _learned(_document(file))


def write_learned(folder: Path, name: str, learned: Learned) -> None:
    """Write the counts of a task under a name; a repeated task replaces its own file."""
    (folder / LEARNED).mkdir(exist_ok=True)
    write_document(folder / LEARNED / f"{name}.json", learned._asdict())


def merge(folder: Path, *, run: str = "", pause: float = 0.0) -> None:
    """Add the counts of tasks to the sum, unless another process does so, or the index is read-only.

    The files of `run` are not merged yet, because its tasks may be repeated. With `pause`, nothing is done until this
    many seconds after the last merge, unless too many files are waiting.
    """
    waiting = _waiting(folder, run)
    if not waiting or (len(waiting) < _MAX_WAITING_FILES and _age(total_file(folder)) < pause):
        return
    with contextlib.suppress(OSError, StorageError), held(folder / LEARNED / LOCK, _WAIT_SECONDS) as is_held:
        if is_held:
            _merge(folder, run)


def _merge(folder: Path, run: str) -> None:
    waiting = _waiting(folder, run)
    total = _document(total_file(folder))
    # A process that was killed after writing the sum has left files that are already in it.
    new = [file for file in waiting if file.name not in total.get("merged", ())]
    if new:
        learned = _bounded(summed([_learned(total), *map(read_learned, new)]))
        write_document(total_file(folder), {**learned._asdict(), "merged": [file.name for file in new]})
    for file in waiting:
        file.unlink(missing_ok=True)


def learned_of(folder: Path) -> Learned:
    """Return all counts, merged or not."""
    total = _document(total_file(folder))
    new = [file for file in _waiting(folder) if file.name not in total.get("merged", ())]
    return summed([_learned(total), *map(read_learned, new)])


def _waiting(folder: Path, run: str = "") -> list[Path]:
    """Return the files that tasks have written, without those of a run."""
    if not (folder / LEARNED).is_dir():
        return []
    files = (file for file in (folder / LEARNED).glob("*.json") if file.name != _TOTAL and file.name[0] != ".")
    return sorted(file for file in files if not run or not file.name.startswith(f"{run}-"))


def _age(file: Path) -> float:
    """Return how many seconds ago a file was written."""
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return math.inf


def _bounded(learned: Learned) -> Learned:
    predicates = learned.predicates
    if len(predicates) > _MAX_PREDICATES:
        chosen = sorted(predicates, key=lambda key: -predicates[key][2])[:_MAX_PREDICATES]
        predicates = {key: predicates[key] for key in chosen}
    scales = {key: min(1.0, _MAX_EVALUATIONS / max(counts[2], 1.0)) for key, counts in predicates.items()}
    bounded = {
        key: counts if scales[key] == 1.0 else [number * scales[key] for number in counts]
        for key, counts in predicates.items()
    }
    return Learned(bounded, learned.operators)


def _document(file: Path) -> dict[str, Any]:
    try:
        return read_document(file) if file.exists() else {}
    except SnapshotError:
        return {}


def _learned(document: dict[str, Any]) -> Learned:
    return Learned(document.get("predicates", {}), document.get("operators", {}))
