"""Readiness: whether the files of a broker can be written.

A flag would only say whether the last write succeeded. So a small durable write is made in each file, at most every
few seconds, however often readiness is asked for. Little free space is reported as well: the write-ahead log has room
for the small write long after an event no longer fits.
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

# How long the result of a probe is used.
_AGE_SECONDS: Final = 3.0
# After this long without an answer, a probe under way counts as a disk that hangs.
_STUCK_SECONDS: Final = 20.0
# How long a probe waits for other writers.
WAIT_SECONDS: Final = 2.0
# Less free space than this is a problem: a large batch of events may need it before older ones are dropped.
LEAST_FREE_BYTES: Final = 8 << 20


class Health:
    """Probes files, and keeps the result for a few seconds; thread-safe.

    Parameters
    ----------
    files : mapping
        From the name of a file in messages to its path; all are existing SQLite databases.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = {name: (path, _identity(path)) for name, path in files.items()}
        self._guard = threading.Lock()
        self._found: list[str] = []
        self._found_at = time.monotonic() - _AGE_SECONDS

    def problems(self) -> list[str]:
        """Return why the files cannot be written, as texts; an empty list if they can."""
        if self._guard.acquire(blocking=False):
            try:
                if time.monotonic() - self._found_at >= _AGE_SECONDS:
                    self._found = [each for name, file in self._files.items() for each in _problems(name, *file)]
                    self._found_at = time.monotonic()
            finally:
                self._guard.release()
        elif time.monotonic() - self._found_at > _STUCK_SECONDS:  # only one thread waits for a disk that hangs
            return [f"the disk has not answered for {_STUCK_SECONDS:.0f} seconds"]
        return list(self._found)


def without_paths(text: str, files: Mapping[str, str]) -> str:
    """Return a text with names in place of paths, which clients must not see.

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
    """Return what identifies a file, None if it does not exist."""
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
    """Overwrite the version of a database with itself, durably."""
    opened = open_sqlite(path, is_read_only=False, wait_seconds=WAIT_SECONDS)
    with contextlib.closing(opened) as connection, transaction(connection) as execute:
        (version,) = execute("PRAGMA user_version").fetchone()
        execute(f"PRAGMA user_version = {version}")
