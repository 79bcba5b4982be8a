"""Loading: the open snapshots of a worker, which stay in the process for the next task.

The arrays of an engine are memory maps, which all workers of a machine share.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from siftline.errors import SnapshotError
from siftline.spark.directory.mirror import located
from siftline.spark.directory.versions import missing
from siftline.spark.runtime.checked import open_checked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.engine import Engine

# How many snapshots stay open even if the current task needs fewer: earlier versions of a stream's index, or other
# shards of earlier tasks.
_OPEN_CAPACITY: Final = 16

_opened: OrderedDict[tuple[str, int, int], Engine] = OrderedDict()


def open_shards(references: Sequence[str]) -> list[Engine]:
    """Return the engines of some snapshots, each opened once in this process."""
    paths = [str(located(reference)) for reference in references]
    # A folder that was replaced by another one of the same name is another snapshot.
    stamps = [(path, *stamp_of(path)) for path in paths]
    for stamp in stamps:
        known = _opened.pop(stamp, None)
        _opened[stamp] = _open(stamp[0]) if known is None else known
    while len(_opened) > max(_OPEN_CAPACITY, len(paths)):
        _opened.popitem(last=False)
    return [_opened[stamp] for stamp in stamps]


def _open(path: str) -> Engine:
    """Open a snapshot, which may be removed at the same time."""
    try:
        return open_checked(path)
    except (SnapshotError, OSError):
        if Path(path).exists():
            raise
        raise missing(Path(path)) from None


def stamp_of(path: str) -> tuple[int, int]:
    """Return two numbers that distinguish a folder from another one of the same name."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        raise missing(Path(path)) from None
    except OSError as error:
        raise SnapshotError(f"cannot open {path}: {error.strerror}") from None
    return status.st_ino, status.st_mtime_ns
