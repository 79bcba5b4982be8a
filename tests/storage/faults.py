"""Files that fail on purpose: the process dies at one write, or the disk is full."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from siftline.storage.files import File, named_errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SECTOR = 512


class Crash(BaseException):
    """The process is gone; nothing that runs afterwards counts."""


class Faults:
    """Counts the operations that change files, and lets one of them fail.

    A crash in the middle of a write leaves the sectors before some point written. A crash of the machine may also lose
    what was written after the last `sync` of a file: with `loses(i)` it loses the i-th such write.
    """

    def __init__(
        self,
        crash_at: int | None = None,
        full_from: int | None = None,
        n_sectors: int = 0,
        loses: Callable[[int], bool] | None = None,
    ) -> None:
        self.n_done = 0
        self.crash_at, self.full_from, self.n_sectors, self.loses = crash_at, full_from, n_sectors, loses
        self.unsynced: list[tuple[FaultyFile, int, bytes, int]] = []
        self.files: list[FaultyFile] = []

    def file_class(self) -> type[File]:
        return type("FaultyFileOfTest", (FaultyFile,), {"faults": self})

    def before(self) -> bool:
        """Count an operation; return whether it is the last one."""
        self.n_done += 1
        if self.full_from is not None and self.n_done >= self.full_from:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.crash_at is not None and self.n_done >= self.crash_at

    def close(self) -> None:
        """Let go of all files, as the end of a process does."""
        for file in self.files:
            file.close()

    def crash(self) -> None:
        if self.loses is not None:
            for i, (file, offset, before, size) in reversed(list(enumerate(self.unsynced))):
                if self.loses(i) and file.is_open:
                    os.pwrite(file._descriptor, before, offset)
                    if file.size() > size and len(before) < file.size() - offset:
                        os.ftruncate(file._descriptor, max(size, offset + len(before)))
        raise Crash


class FaultyFile(File):
    faults: Faults

    def __init__(self, descriptor: int, path: Path | None) -> None:
        super().__init__(descriptor, path)
        self.faults.files.append(self)

    def write(self, data: Any, offset: int) -> None:
        with named_errors(self.path, "written"):
            is_last = self.faults.before()
        written = bytes(memoryview(data))
        if is_last:
            written = written[: max(0, (offset // _SECTOR + self.faults.n_sectors) * _SECTOR - offset)]
        self.faults.unsynced.append((self, offset, os.pread(self._descriptor, len(written), offset), self.size()))
        super().write(written, offset)
        if is_last:
            self.faults.crash()

    def truncate(self, n_bytes: int) -> None:
        with named_errors(self.path, "written"):
            is_last = self.faults.before()
        super().truncate(n_bytes)
        if is_last:
            self.faults.crash()

    def sync(self) -> None:
        with named_errors(self.path, "written"):
            is_last = self.faults.before()
        if is_last:
            self.faults.crash()
        # The disk itself is left alone: what counts here is the order.
        self.faults.unsynced = [write for write in self.faults.unsynced if write[0] is not self]
