"""Claims: which state of an index a micro-batch is matched with, recorded before anything is matched.

    streams/<query>/<batch>.json   {"state": [4, 7, 1794824320000000]}   version, delta, time

The first task of a micro-batch claims the state that the index has at that time; all other tasks of the batch find the
claim and use the same state. When a stream starts again from its checkpoint, Spark repeats the micro-batch that was
being processed, with the same number and the same events. The claim still exists, so the output is the same, even if
the index has changed in between.

A claim is made by linking a finished file to its name, which only the first task can do. Query and batch come from the
properties that Spark sets for every task of a stream, so the driver has nothing to do, and claims work in file sinks
and in `foreachBatch` alike.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from siftline.errors import SnapshotError
from siftline.spark.directory.documents import read_document, write_document
from siftline.spark.directory.layout import DRAFT_PREFIX, claim_file
from siftline.spark.directory.state import State, state_of
from siftline.spark.runtime.paths import local_path
from siftline.storage.files import named_errors, sync_folder

# How many claims are kept: Spark keeps as many micro-batches in its checkpoint.
_CLAIMS_PER_QUERY: Final = 100


def claim(path: str | os.PathLike[str], query: str, batch: int) -> State:
    """Return the state that a micro-batch is matched with; the first task that asks decides."""
    folder = local_path(path)
    file = claim_file(folder, query, batch)
    if not file.exists():
        _make(file, _not_before(state_of(folder), claim_file(folder, query, batch - 1)))
        claim_file(folder, query, batch - _CLAIMS_PER_QUERY).unlink(missing_ok=True)
    return read_claim(file)


def read_claim(file: Path) -> State:
    """Return the state that was claimed."""
    document = read_document(file)
    try:
        return State(*document["state"])
    except (KeyError, TypeError) as error:
        raise SnapshotError(f"{file} is damaged: {error!r}") from None


def _not_before(state: State, previous: Path) -> State:
    """Return a state that is not older than that of the micro-batch before, as the clocks of machines differ."""
    if not previous.exists():
        return state
    last = read_claim(previous)
    # A mounted file system may show a state that is some seconds old.
    return max(state, last)._replace(time=max(state.time, last.time))


def _make(file: Path, state: State) -> None:
    with named_errors(file, "written"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=DRAFT_PREFIX, dir=file.parent) as folder:
            draft = Path(folder, file.name)
            write_document(draft, {"state": state})
            try:
                os.link(draft, file)
            except FileExistsError:
                return
    sync_folder(file.parent)
