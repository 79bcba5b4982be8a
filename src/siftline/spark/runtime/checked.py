"""Checked snapshots: a machine compares every byte with its checksum once, and not in each worker.

A private folder among the temporary files has a mark for each snapshot that was checked. The mark is named after inode,
size and time of every file, so that a file that was changed or replaced since is checked again. Files that were written
within the last seconds get no mark, because they could be written again within a tick of the clock. (The change time of
the inode would be more exact, but `compact` links files, which changes it.)
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from siftline.engine import Engine
from siftline.spark.runtime.paths import private_folder

# Within this time a file may change without a change of its modification time.
_SETTLED_SECONDS: Final = 2.0
_MARK_LIFETIME_SECONDS: Final = 30 * 24 * 3600


def open_checked(path: str) -> Engine:
    """Open a snapshot, and compare it with its checksums unless a process of this machine has done so."""
    mark, newest = _mark(Path(path))
    if mark is None or mark.exists():
        return Engine.open(path, check=mark is None)
    start = time.time()
    engine = Engine.open(path)
    if start - newest > _SETTLED_SECONDS:
        with suppress(OSError):
            mark.touch()
            _remove_old_marks(mark.parent, start)
    return engine


def _remove_old_marks(folder: Path, now: float) -> None:
    """Remove old marks. The snapshot may be gone; if it is not, it is checked again."""
    for mark in folder.iterdir():
        if mark.stat().st_mtime < now - _MARK_LIFETIME_SECONDS:
            mark.unlink(missing_ok=True)


def _mark(snapshot: Path) -> tuple[Path | None, float]:
    """Return the mark of these files, None if there is no folder for it, and the time of the newest file."""
    folder = private_folder("siftline-checked")
    if folder is None:
        return None, 0.0
    newest = 0.0
    digest = blake2b(os.fsencode(snapshot.resolve()), digest_size=16)
    for file in sorted(snapshot.rglob("*")):
        status = file.stat()
        stamps = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        newest = max(newest, status.st_mtime)
        digest.update(f"{file.relative_to(snapshot)!r} {stamps}".encode())
    return folder / digest.hexdigest(), newest
