"""Snapshots that this machine has checked: every byte is compared with its checksum once, and not by each worker.

What was checked is remembered in a folder of the user's own among the temporary files, by inode, size and times of
every file: a file that was written to since, or put in its place, is checked again.
"""

from __future__ import annotations

import os
import tempfile
from hashlib import blake2b
from pathlib import Path

from siftline.engine import Engine


def open_checked(path: str) -> Engine:
    """Open a snapshot, and compare it with its checksums unless a process of this machine has done so."""
    mark = _mark(Path(path))
    if mark is None or mark.exists():
        return Engine.open(path, check=mark is None)
    engine = Engine.open(path)
    mark.touch()
    return engine


def _mark(snapshot: Path) -> Path | None:
    """Return the file that says that these files were checked; None if there is no place for it."""
    folder = own_folder("siftline-checked")
    if folder is None:
        return None
    digest = blake2b(os.fsencode(snapshot.resolve()), digest_size=16)
    for file in sorted(snapshot.rglob("*")):
        status = file.stat()
        stamps = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        digest.update(f"{file.relative_to(snapshot)!r} {stamps}".encode())
    return folder / digest.hexdigest()


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
