"""Whether a broker can write: what it tells who asks whether it is ready.

A flag would tell what was true when something was last written. So a tiny write is made durable in each file, at most
every few seconds, however many ask. A disk that is nearly full is a problem before it is one: the write-ahead log has
room for a tiny write long after an event would no longer fit.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from siftline.errors import StoreError
from siftline.storage.sqlite_files import open_sqlite, plain_error, transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

# So long what was found counts, and so long a probe waits for others who write.
_AGE_SECONDS: Final = 3.0
_STUCK_SECONDS: Final = 20.0
WAIT_SECONDS: Final = 2.0
# What a large batch of events may take on the disk, before old ones make room.
LEAST_FREE_BYTES: Final = 8 << 20


class Health:
    """Probes files, and remembers for a moment what it has found; threads may share one.

    Parameters
    ----------
    files : mapping
        From what a file is called in problems to its path; all are SQLite databases that exist.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = {name: (path, _identity(path)) for name, path in files.items()}
        self._guard = threading.Lock()
        self._found: list[str] = []
        self._found_at = time.monotonic() - _AGE_SECONDS

    def problems(self) -> list[str]:
        """Return what keeps the files from being written, in words; nothing if all is well."""
        if self._guard.acquire(blocking=False):
            try:
                if time.monotonic() - self._found_at >= _AGE_SECONDS:
                    self._found = [each for name, file in self._files.items() for each in _problems(name, *file)]
                    self._found_at = time.monotonic()
            finally:
                self._guard.release()
        elif time.monotonic() - self._found_at > _STUCK_SECONDS:  # nobody else waits for a disk that hangs
            return [f"the disk has not answered for {_STUCK_SECONDS:.0f} seconds"]
        return list(self._found)


def without_paths(text: str, files: Mapping[str, str]) -> str:
    """Return a text in which files are called by their names: where they are is not for clients.

    >>> without_paths("/srv/a.db-log: full", {"the store": "/srv/a.db", "the log": "/srv/a.db-log"})
    'the log: full'
    """
    names = {
        spelling: name
        for name, path in files.items()
        for spelling in (path, os.path.abspath(path), os.path.realpath(path))
    }
    spellings = "|".join(re.escape(each) for each in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({spellings})(?!\w)", lambda found: names[found[1]], text)


def _identity(path: str) -> tuple[int, int] | None:
    """Return what tells a file from all others, None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _problems(name: str, path: str, identity: tuple[int, int] | None) -> list[str]:
    if _identity(path) != identity:
        return [f"{name}: the file was removed or replaced while it was open; start again"]
    problems = []
    try:
        free = shutil.disk_usage(Path(path).resolve().parent).free
        if free < LEAST_FREE_BYTES:
            problems.append(f"{name}: the disk is full but for {free:,} bytes")
        _write(path)
    except sqlite3.Error as error:
        problems.append(str(plain_error(error, name)))
    except (OSError, StoreError) as error:
        reason = without_paths(str(error), {name: path})
        problems.append(reason if reason.startswith(name) else f"{name}: {reason}")
    return problems


def _write(path: str) -> None:
    """Write the version of a database over itself, durably."""
    opened = open_sqlite(path, is_read_only=False, wait_seconds=WAIT_SECONDS)
    with contextlib.closing(opened) as connection, transaction(connection) as execute:
        (version,) = execute("PRAGMA user_version").fetchone()
        execute(f"PRAGMA user_version = {version}")
