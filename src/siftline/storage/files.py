"""Files with positioned reads and writes, locks, synchronisation on request, and errors that name the file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siftline.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class File:
    """An open file; all changes go through `write`, `truncate` and `sync`, which tests override to make them fail."""

    def __init__(self, descriptor: int, path: Path | None) -> None:
        self._descriptor = descriptor
        self.path = path

    @classmethod
    def opened(cls, path: Path, *, is_new: bool = False, is_made: bool = False) -> File:
        """Open a file for reading and writing; `is_new` creates or empties it, `is_made` creates a missing one."""
        how = os.O_CREAT | os.O_TRUNC if is_new else os.O_CREAT if is_made else 0
        with named_errors(path, "opened"):
            return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC | how, 0o644), path)

    @classmethod
    def temporary(cls) -> File:
        """Return a file without a name, which is deleted when it is closed."""
        with named_errors(Path(tempfile.gettempdir()), "written"):
            descriptor, name = tempfile.mkstemp(prefix="siftline-")
            os.unlink(name)
            return cls(descriptor, None)

    def read(self, n_bytes: int, offset: int) -> bytes:
        """Return `n_bytes` from an offset on; fewer only at the end of the file."""
        with named_errors(self.path, "read"):
            return os.pread(self._descriptor, n_bytes, offset)

    def read_into(self, buffer: Any, offset: int) -> int:
        """Fill a buffer from an offset on; return how many bytes were read."""
        with named_errors(self.path, "read"):
            return os.preadv(self._descriptor, [buffer], offset)

    def write(self, data: Any, offset: int) -> None:
        """Write all bytes at an offset."""
        with named_errors(self.path, "written"):
            view = memoryview(data)
            while len(view):
                n_written = os.pwrite(self._descriptor, view, offset)
                view, offset = view[n_written:], offset + n_written

    def truncate(self, n_bytes: int) -> None:
        """Truncate the file to a length."""
        with named_errors(self.path, "written"):
            os.ftruncate(self._descriptor, n_bytes)

    def sync(self) -> None:
        """Return when all writes are on the disk."""
        with named_errors(self.path, "written"):
            os.fdatasync(self._descriptor)

    def size(self) -> int:
        """Return the number of bytes."""
        return os.fstat(self._descriptor).st_size

    def lock(self) -> None:
        """Lock the file until it is closed or the process ends; raise if it is locked already."""
        if not self.try_lock():
            raise StorageError(f"{self.path} is open already, here or in another process: one writer at a time")

    def try_lock(self) -> bool:
        """Lock the file if nobody else has locked it; return whether that succeeded."""
        with named_errors(self.path, "locked"):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def unlock(self) -> None:
        """Release the lock."""
        with named_errors(self.path, "unlocked"):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, unless it is closed already."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._descriptor >= 0


def with_checksum(body: bytes) -> bytes:
    """Return bytes followed by their checksum."""
    return body + struct.pack("<I", zlib.crc32(body))


def is_whole(block: bytes) -> bool:
    """Return whether a block that `with_checksum` has made is complete and undamaged."""
    return len(block) > 4 and block == with_checksum(block[:-4])


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
    """Return when the entries of a directory are on the disk."""
    with named_errors(folder, "written"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
