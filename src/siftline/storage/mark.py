"""The mark: the number of the last acknowledged change, in a small file beside a store, to detect lost changes.

    store.db          the tables, up to some commit
    store.db-wal      SQLite's write-ahead log: the commits after that
    store.db-mark     the number of the last acknowledged change, and a checksum

SQLite takes a truncated log for one that was being written when the machine stopped, and a missing log or file for one
that never existed. It cannot know that the changes were acknowledged; the mark does.

The mark is written after the commit, so it is never ahead of the disk. It is not synchronised: after a power failure an
older mark may remain, which detects less, but is never wrong.

Processes that write to the same store take turns by a lock on the mark, so that none overwrites a larger number by a
smaller one. A process that does not get the lock soon, for example because the other process is stopped, leaves the
mark unchanged.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from siftline.errors import StorageError, StoreError
from siftline.storage.files import File, is_whole, with_checksum

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC: Final = b"SiftMark"
_BODY: Final = struct.Struct("<8sQ")
_SIZE: Final = _BODY.size + 4
_N_TRIES: Final = 20
_PAUSE_SECONDS: Final = 0.001


class Mark:
    """The number of the last acknowledged change of a store."""

    def __init__(self, store: str) -> None:
        # Beside the file itself, not beside a link to it, like the log of SQLite.
        self.path = Path(os.path.realpath(store) + "-mark")
        self._file: File | None = None

    def read(self) -> int:
        """Return the number, 0 if there is no mark."""
        for _ in range(_N_TRIES):
            written = self._bytes()
            with contextlib.suppress(StoreError):
                return self._number(written)
            time.sleep(_PAUSE_SECONDS)  # it may have been read while it was being written
        return self._number(self._bytes())

    def _bytes(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}") from None

    def _number(self, written: bytes) -> int:
        if not any(written):  # created, but not written yet
            return 0
        if len(written) != _SIZE or not is_whole(written):
            raise StoreError(
                f"{self.path} is damaged, and does not tell whether changes were lost; remove it to do without"
            )
        return int(_BODY.unpack_from(written)[1])

    def open(self) -> None:
        """Open the file for writing; create it if it does not exist."""
        try:
            self._file = File.opened(self.path, is_made=True)
        except StorageError as error:
            raise StoreError(str(error)) from error

    def advance(self, sequence: int) -> None:
        """Record that all changes up to a number are acknowledged."""
        assert self._file is not None
        # The changes are durable even if the mark cannot be written.
        with contextlib.suppress(StorageError), self._turn(self._file):
            if self._number(self._file.read(_SIZE, 0)) < sequence:  # another process may have advanced it
                self._file.write(with_checksum(_BODY.pack(_MAGIC, sequence)), 0)

    @contextlib.contextmanager
    def _turn(self, file: File) -> Iterator[None]:
        for _ in range(_N_TRIES):
            if file.try_lock():
                break
            time.sleep(_PAUSE_SECONDS)
        else:
            raise StorageError(f"{self.path} is locked")
        try:
            yield
        finally:
            file.unlock()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
