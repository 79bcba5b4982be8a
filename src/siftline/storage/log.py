"""An append-only log of acknowledged changes since the last checkpoint.

    header     magic, generation, checksum
    record     length, number, checksum of these two, checksum of the payload; payload
    record     ...

A record is written by one call and then synchronised; only then is it acknowledged. So the end of a log may have one
incomplete record that was never acknowledged: it is dropped. Any other record with a wrong checksum was acknowledged
and is damaged: that is an error, because dropping it would lose a subscription.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

from siftline.errors import StorageError
from siftline.storage.files import is_whole, with_checksum

if TYPE_CHECKING:
    from siftline.storage.files import File

_MAGIC: Final = b"SiftLog1"
_HEADER: Final = struct.Struct("<8sQ")
_HEADER_BYTES: Final = _HEADER.size + 4
_RECORD: Final = struct.Struct("<QQII")


class Log:
    """The log of one generation, which is the time since one checkpoint."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.generation = 0
        self.n_bytes = 0  # up to the end of the last complete record
        self._number = 0
        self._has_rest = False  # after a failed write that could not be truncated

    def reset(self, generation: int) -> None:
        """Drop all records, because a checkpoint contains them."""
        self._file.truncate(0)
        self._file.write(with_checksum(_HEADER.pack(_MAGIC, generation)), 0)
        self._file.sync()
        self.generation, self.n_bytes, self._number = generation, _HEADER_BYTES, 0

    def append(self, payload: bytes) -> None:
        """Write a record and wait until it is on the disk; if that fails, the log is unchanged."""
        head = struct.pack("<QQ", len(payload), self._number)
        record = _RECORD.pack(len(payload), self._number, zlib.crc32(head), zlib.crc32(payload)) + payload
        self._cut_rest()
        try:
            self._file.write(record, self.n_bytes)
            self._file.sync()
        except StorageError:
            self._has_rest = True
            self._cut_rest()
            raise
        self.n_bytes += len(record)
        self._number += 1

    def _cut_rest(self) -> None:
        if self._has_rest:
            self._file.truncate(self.n_bytes)
            self._has_rest = False

    def read_generation(self) -> int | None:
        """Return the generation of the log; None if a reset was interrupted."""
        head = self._file.read(_HEADER_BYTES, 0)
        if len(head) < _HEADER_BYTES:
            return None
        magic, generation = _HEADER.unpack_from(head)
        if magic != _MAGIC or not is_whole(head):
            raise StorageError(f"{self._file.path} is damaged: its header is not as it was written")
        return int(generation)

    def records(self, generation: int) -> list[bytes]:
        """Return all payloads, and prepare to append after them."""
        self.generation, self.n_bytes, self._number = generation, _HEADER_BYTES, 0
        size, payloads = self._file.size(), []
        while (record := self._record_at(self.n_bytes, size)) is not None:
            payloads.append(record)
            self.n_bytes += _RECORD.size + len(record)
            self._number += 1
        if size > self.n_bytes:
            self._file.truncate(self.n_bytes)
        return payloads

    def _record_at(self, offset: int, size: int) -> bytes | None:
        """Return a payload; None at the end, or if only an incomplete record follows."""
        if offset + _RECORD.size > size:
            return None
        head = self._file.read(_RECORD.size, offset)
        length, number, head_checksum, checksum = _RECORD.unpack(head)
        if head_checksum != zlib.crc32(head[:16]) or number != self._number:
            raise self._damage(offset)
        if offset + _RECORD.size + length > size:
            return None
        payload = self._file.read(length, offset + _RECORD.size)
        if zlib.crc32(payload) != checksum:
            raise self._damage(offset)
        return payload

    def _damage(self, offset: int) -> StorageError:
        return StorageError(f"{self._file.path} is damaged at byte {offset:,}: a record is not as it was written")
