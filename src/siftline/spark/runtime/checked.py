"""Snapshots that this machine has checked: every byte is compared with its checksum once, and not by each worker.

What was checked is remembered in a folder of the user's own among the temporary files, by inode, size and time of every
file: a file that was written to since, or put in its place, is checked again. Files of the last seconds are not
remembered, because they could be written to once more within a tick of the clock. (The time of the last change of an
inode would say more, but `compact` links files, which is one.)
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from siftline.engine import Engine

# Within this time a file may change without another time of its own.
_SETTLED_SECONDS: Final = 2.0
_KEPT_SECONDS: Final = 30 * 24 * 3600


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
            _forget_old(mark.parent, start)
    return engine


def _forget_old(folder: Path, now: float) -> None:
    """Remove what says that something was checked long ago; it may be gone, and if not, is checked again."""
    for mark in folder.iterdir():
        if mark.stat().st_mtime < now - _KEPT_SECONDS:
            mark.unlink(missing_ok=True)


def _mark(snapshot: Path) -> tuple[Path | None, float]:
    """Return the file that says that these files were checked, None without a place for it, and the newest time."""
    folder = own_folder("siftline-checked")
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


def own_folder(name: str) -> Path | None:
    """Return a folder among the temporary files that nobody else can write to; None if there can be none."""
    folder = Path(tempfile.gettempdir(), f"{name}-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    is_ours = status.st_uid == os.getuid() and status.st_mode & 0o077 == 0 and not folder.is_symlink()
    return folder if is_ours else None
