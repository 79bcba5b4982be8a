"""Files that are written at places: locked, synchronised on request, and with errors that name the file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siftline.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class File:
    """An open file. All changes go through `write`, `truncate` and `sync`, which tests override to make them fail."""

    def __init__(self, descriptor: int, path: Path | None) -> None:
        self._descriptor = descriptor
        self.path = path

    @classmethod
    def opened(cls, path: Path, *, is_new: bool = False, is_made: bool = False) -> File:
        """Open a file for reading and writing; `is_new` makes it, or empties it, `is_made` makes it if it is absent."""
        how = os.O_CREAT | os.O_TRUNC if is_new else os.O_CREAT if is_made else 0
        with named_errors(path, "opened"):
            return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC | how, 0o644), path)

    @classmethod
    def temporary(cls) -> File:
        """Return a file without a name, which is gone when it is closed."""
        with named_errors(Path(tempfile.gettempdir()), "written"):
            descriptor, name = tempfile.mkstemp(prefix="siftline-")
            os.unlink(name)
            return cls(descriptor, None)

    def read(self, n_bytes: int, offset: int) -> bytes:
        """Return up to `n_bytes` from a place on: fewer only at the end of the file."""
        with named_errors(self.path, "read"):
            return os.pread(self._descriptor, n_bytes, offset)

    def read_into(self, buffer: Any, offset: int) -> int:
        """Fill a buffer from a place on; return how many bytes there were."""
        with named_errors(self.path, "read"):
            return os.preadv(self._descriptor, [buffer], offset)

    def write(self, data: Any, offset: int) -> None:
        """Write all bytes at a place."""
        with named_errors(self.path, "written"):
            view = memoryview(data)
            while len(view):
                n_written = os.pwrite(self._descriptor, view, offset)
                view, offset = view[n_written:], offset + n_written

    def truncate(self, n_bytes: int) -> None:
        """Cut the file off."""
        with named_errors(self.path, "written"):
            os.ftruncate(self._descriptor, n_bytes)

    def sync(self) -> None:
        """Return when everything that was written is on the disk."""
        with named_errors(self.path, "written"):
            os.fdatasync(self._descriptor)

    def size(self) -> int:
        """Return the number of bytes."""
        return os.fstat(self._descriptor).st_size

    def lock(self) -> None:
        """Keep all others out, until the file is closed or the process ends in whatever way."""
        if not self.try_lock():
            raise StorageError(f"{self.path} is open already, here or in another process: one writer at a time")

    def try_lock(self) -> bool:
        """Do the same if nobody else has done it; return whether that was so."""
        with named_errors(self.path, "locked"):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def unlock(self) -> None:
        """Let others lock the file."""
        with named_errors(self.path, "unlocked"):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; once is enough."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether it is not closed."""
        return self._descriptor >= 0


@contextlib.contextmanager
def named_errors(path: Path | None, verb: str) -> Iterator[None]:
    """Turn errors of the operating system into StorageError."""
    try:
        yield
    except OSError as error:
        name = "the temporary file" if path is None else path
        hint = {errno.ENOSPC: "; nothing was lost: make room and open it again"}.get(error.errno or 0, "")
        raise StorageError(f"{name} cannot be {verb}: {error.strerror or error}{hint}") from error


def sync_folder(folder: Path) -> None:
    """Return when the names in a directory are on the disk."""
    with named_errors(folder, "written"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
