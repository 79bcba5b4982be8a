"""Claims: which state of an index a micro-batch is matched with, written down before anything is.

    streams/<query>/<batch>.json   {"state": [4, 7, 1794824320000000]}   version, delta, time

The first task of a micro-batch takes the state of the index as it is then; all others of the batch find its claim and
do the same. When a stream starts again from its checkpoint, Spark repeats the micro-batch that was under way, with the
same number and the same events; the claim is still there, so the output is the same, whatever changed in between.

A claim is made by linking a finished file to its name, of which only the first can succeed. Query and batch come from
the properties that Spark gives to every task of a stream, so there is nothing to do on the driver, and it works in
file sinks and in `foreachBatch` alike.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from siftline.errors import SnapshotError, SparkError
from siftline.spark.directory.documents import read_document, write_document
from siftline.spark.runtime.paths import local_path
from siftline.spark.worker.live import State, state_of
from siftline.storage.files import named_errors, sync_folder

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
# Spark's jobs for a query are a group, named after its start.
_START: Final = "spark.jobGroup.id"
# Spark keeps as many micro-batches in its checkpoint.
_KEPT: Final = 100


def micro_batch() -> tuple[str, int, str]:
    """Return the query, the number of the micro-batch that this task belongs to, and which start of the query it is."""
    from pyspark import TaskContext

    task = TaskContext.get()
    found = [task.getLocalProperty(name) if task is not None else None for name in (_QUERY, _BATCH, _START)]
    query, batch, start = found
    if query is None or batch is None:
        raise SparkError("this is no micro-batch: the result of `stream` must be written by writeStream")
    return query, int(batch), start or ""


def claim(path: str | os.PathLike[str], query: str, batch: int) -> State:
    """Return the state that a micro-batch is matched with; whoever asks first decides."""
    folder = local_path(path)
    file = folder / "streams" / query / f"{batch}.json"
    if not file.exists():
        _make(file, _now_or_later(state_of(folder), file.with_name(f"{batch - 1}.json")))
        (file.parent / f"{batch - _KEPT}.json").unlink(missing_ok=True)
    return read_claim(file)


def read_claim(file: Path) -> State:
    """Return the state that was claimed."""
    document = read_document(file)
    try:
        return State(*document["state"])
    except (KeyError, TypeError) as error:
        raise SnapshotError(f"{file} is damaged: {error!r}") from None


def _now_or_later(state: State, before: Path) -> State:
    """Return a state that is not before that of the last micro-batch: clocks and views of machines differ."""
    if not before.exists():
        return state
    last = read_claim(before)
    # What a mounted file system shows may be some seconds old.
    return max(state, last)._replace(time=max(state.time, last.time))


def _make(file: Path, state: State) -> None:
    with named_errors(file, "written"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=file.parent) as folder:
            draft = Path(folder, file.name)
            write_document(draft, {"state": state})
            try:
                os.link(draft, file)
            except FileExistsError:
                return
    sync_folder(file.parent)
