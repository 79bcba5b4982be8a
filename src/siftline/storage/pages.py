"""A file of fixed-size pages with checksums, a bounded pool in memory, and checkpoints that survive any crash.

    PATH        header A | header B | mark | place 0 | place 1 | place 2 | ...
    PATH-log    the changes acknowledged since the last checkpoint (log.py)

A page has a fixed number, and is stored at some *place* of the file. The page table maps numbers to places:

    number      1   2   3   4        checkpoint 7:  header B names the pages that hold this table
    place       0   3   -   1

A place that the last checkpoint uses is not overwritten before the next one: a changed page goes to a free place, and
only the table in memory refers to it. A checkpoint writes the changed pages, the table, and then, with one small write,
the header that names the new table: the file has either the old state or the new one. The places that only the old
state used are free from then on. The owner of the file appends changes that must not be lost in between to the log, and
applies them again after a crash (`replay`).

The two headers are written alternately; the one with the higher number is valid. The *mark* has the length of the log
at the last acknowledgement, so that a truncated log is detected. Every page contains its number and a checksum.

The pool holds `buffer_mb` of pages and evicts the least recently used first. Within `changing()` nothing is evicted, so
that a change works on the arrays of the pool; a change touches few pages. Arrays that were returned for reading stay
valid after their page has left the pool.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.errors import StorageError
from siftline.storage.files import File, is_whole, named_errors, sync_folder, with_checksum
from siftline.storage.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

# An array of bytes; a more exact type could not be passed to `struct` and `zlib`.
Page = Any

_MAGIC: Final = b"SiftPage"
_VERSION: Final = 1
_BLOCK: Final = 4096
_MARK_AT: Final = 2 * _BLOCK
_PLACES_AT: Final = 3 * _BLOCK
# magic, version, page size, checkpoint, places, page numbers, page of the owner's state, its length, table pages
_HEADER: Final = struct.Struct("<8sIIQIIIQI")
_MARK: Final = struct.Struct("<QQ")
_NOWHERE: Final = 0xFFFFFFFF
_MOST_TABLE_PAGES: Final = (_BLOCK - _HEADER.size - 4) // 4

# Each page begins with its checksum and its number; a page of a blob also with the number of the next page.
PAGE_HEAD: Final = 8
_BLOB_HEAD: Final = 12
SMALLEST_PAGE: Final = 512
LARGEST_PAGE: Final = 32768
# The smallest pool: the pages of a search down a tree must fit.
_FEWEST_FRAMES: Final = 16


class PageFile:
    """Pages by number, with `read`, `write`, `allocate` and `free`; `append`, `checkpoint` and `replay` for durability.

    Parameters
    ----------
    path : str or Path, optional
        The file; it is created if it does not exist. Without a path: a temporary file, without log and checkpoints.
    page_bytes : int
        The page size of a new file; an existing file keeps its own.
    buffer_mb : float
        The size of the pool.
    open_file : callable
        Opens files; tests pass their own to simulate failures.

    Examples
    --------
    >>> pages = PageFile()
    >>> with pages.changing():
    ...     number, page = pages.allocate()
    ...     page[100] = 7
    >>> int(pages.read(number)[100]), pages.counters()["pages"]
    (7, 1)
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        page_bytes: int = 8192,
        buffer_mb: float = 64,
        open_file: type[File] = File,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.state = b""  # the owner's state at the last checkpoint
        self._n_reads = self._n_writes = self._n_hits = 0
        self._n_changing = 0
        self._failure: str | None = None
        self._pool: OrderedDict[int, Page] = OrderedDict()
        self._dirty: set[int] = set()
        self._table: list[int] = [_NOWHERE]  # for number 0, which is not a page
        self._free_numbers: list[int] = []
        self._free_places: list[int] = []
        self._is_kept: bytearray = bytearray()  # for each place whether the last checkpoint needs it
        self._leaving: list[int] = []  # places that the next checkpoint does not need
        self._table_places: list[int] = []
        self._checkpoint = 0
        self._log: Log | None = None
        self._log_file: File | None = None
        self._pending: list[bytes] = []
        self.page_bytes = _checked_page_bytes(page_bytes)
        self._n_frames = _FEWEST_FRAMES
        self._open(open_file)
        self._n_frames = max(_FEWEST_FRAMES, int(buffer_mb * 2**20) // self.page_bytes)

    # opening

    def _open(self, open_file: type[File]) -> None:
        if self.path is None:
            self._file = open_file.temporary()
            return
        if self.path.is_dir():
            raise StorageError(f"{self.path} is a directory; pages go to a file")
        log_path = self.path.with_name(self.path.name + "-log")
        if not self.path.exists():
            self._make(open_file, log_path)
        self._file = open_file.opened(self.path)
        try:
            self._file.lock()
            self._read_headers()
            self._open_log(open_file, log_path)
        except BaseException:
            self.close_files()
            raise

    def _make(self, open_file: type[File], log_path: Path) -> None:
        """Write an empty file under a temporary name, and give it its name when it is complete."""
        assert self.path is not None
        with named_errors(self.path.parent, "made"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        if log_path.exists() and log_path.stat().st_size:
            raise StorageError(
                f"{self.path} is missing, but its log {log_path} is there: put it back, or remove the log"
            )
        if not os.access(self.path.parent, os.W_OK):
            raise StorageError(f"{self.path} cannot be made: its directory is read-only")
        draft = self.path.with_name(f".{self.path.name}-{os.getpid()}")
        try:
            file = open_file.opened(draft, is_new=True)
            try:
                file.write(bytes(_PLACES_AT), 0)
                file.write(self._header(1, 0, 0, 0), _BLOCK)
                file.write(with_checksum(_MARK.pack(0, 0)), _MARK_AT)
                file.sync()
            finally:
                file.close()
            with contextlib.suppress(FileExistsError), named_errors(self.path, "made"):
                os.link(draft, self.path)  # if another process was quicker, its file is used
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def _header(self, checkpoint: int, n_places: int, state_page: int, n_state: int) -> bytes:
        n_tables = len(self._table_places)
        numbers = self.page_bytes, checkpoint, n_places, len(self._table), state_page, n_state, n_tables
        body = _HEADER.pack(_MAGIC, _VERSION, *numbers) + struct.pack(f"<{n_tables}I", *self._table_places)
        return with_checksum(body.ljust(_BLOCK - 4, b"\0"))

    def _read_headers(self) -> None:
        """Load the state of the last checkpoint."""
        blocks = [self._file.read(_BLOCK, offset) for offset in (0, _BLOCK)]
        known = [block for block in blocks if block[:8] == _MAGIC]
        if not known:
            raise StorageError(f"{self.path} is not a file of Siftline pages")
        for block in known:
            version = _HEADER.unpack_from(block)[1]
            if version != _VERSION:
                raise StorageError(f"{self.path} is of version {version}; this Siftline reads version {_VERSION}")
        whole = [block for block in blocks if is_whole(block)]
        self._has_lost_header = any(not is_whole(block) and any(block) for block in blocks)
        if not whole:
            raise self._damage("no header is as it was written")
        header = max(whole, key=lambda block: int(_HEADER.unpack_from(block)[3]))
        _, _, self.page_bytes, self._checkpoint, n_places, n_numbers, state_page, n_state, n_tables = (
            _HEADER.unpack_from(header)
        )
        if self._file.size() < _PLACES_AT + n_places * self.page_bytes:
            raise self._damage(f"it was cut off, and has {self._file.size():,} bytes")
        self._table_places = list(struct.unpack_from(f"<{n_tables}I", header, _HEADER.size))
        self._read_table(n_places, n_numbers)
        if n_state:
            self.state = self.read_blob(state_page, n_state)
            with self.changing():
                self.free_blob(state_page)

    def _read_table(self, n_places: int, n_numbers: int) -> None:
        entries = [np.array([_NOWHERE], dtype=np.uint32)]
        for number, place in enumerate(self._table_places):
            page = np.empty(self.page_bytes, dtype=np.uint8)
            self._read_place(place, page, number)
            entries.append(page[PAGE_HEAD:].view(np.uint32))
        self._table = np.concatenate(entries)[:n_numbers].tolist()
        self._free_numbers = [n for n in range(n_numbers - 1, 0, -1) if self._table[n] == _NOWHERE]
        self._is_kept = bytearray(n_places)
        for place in (*self._table, *self._table_places):
            if place != _NOWHERE:
                if place >= n_places:
                    raise self._damage("its table names places that it does not have")
                self._is_kept[place] = 1
        self._free_places = [place for place in range(n_places - 1, -1, -1) if not self._is_kept[place]]

    def _open_log(self, open_file: type[File], log_path: Path) -> None:
        """Read the changes acknowledged since the checkpoint, or start a new log."""
        mark = self._file.read(_MARK.size + 4, _MARK_AT)
        if not is_whole(mark):
            raise self._damage("its mark is not as it was written")
        marked, n_marked = _MARK.unpack_from(mark)
        has_marked = marked == self._checkpoint and n_marked > 0
        if has_marked and not log_path.exists():
            raise StorageError(f"the log {log_path} is missing: it holds subscriptions that {self.path} does not")
        is_new = not log_path.exists()
        self._log_file = open_file.opened(log_path, is_new=is_new)
        self._log = Log(self._log_file)
        generation = self._log.read_generation()
        if marked > self._checkpoint or (generation or 0) > self._checkpoint:
            raise self._damage("the last header is not as it was written")
        if self._has_lost_header and generation != self._checkpoint:
            raise self._damage("a header is not as it was written")
        if generation == self._checkpoint:
            self._pending = self._log.records(generation)
            if has_marked and self._log.n_bytes < n_marked:
                raise StorageError(f"{log_path} was cut off: it holds fewer subscriptions than were acknowledged")
            return
        if has_marked:
            raise StorageError(f"{log_path} was cut off: it holds fewer subscriptions than were acknowledged")
        self._log.reset(self._checkpoint)
        if is_new:
            sync_folder(log_path.parent)

    def _damage(self, what: str) -> StorageError:
        return StorageError(f"{self.path or 'the temporary file'} is damaged: {what}")

    # pages

    def read(self, number: int) -> Page:
        """Return a page for reading."""
        page = self._pool.get(number)
        if page is not None:
            self._n_hits += 1
            self._pool.move_to_end(number)
            return page
        self._check_usable()
        page = np.empty(self.page_bytes, dtype=np.uint8)
        place = self._table[number] if 0 < number < len(self._table) else _NOWHERE
        if place == _NOWHERE:
            raise self._damage(f"it has no page {number}, but another page names it")
        self._read_place(place, page, number)
        self._pool[number] = page
        self._shrink()
        return page

    def write(self, number: int) -> Page:
        """Return a page for changing; only within `changing()`."""
        assert self._n_changing
        page = self.read(number)
        self._dirty.add(number)
        return page

    def allocate(self) -> tuple[int, Page]:
        """Return the number of a new page, and the page, filled with zeros; only within `changing()`."""
        assert self._n_changing
        self._check_usable()
        if self._free_numbers:
            number = self._free_numbers.pop()
        else:
            number = len(self._table)
            self._table.append(_NOWHERE)
        page = np.zeros(self.page_bytes, dtype=np.uint8)
        self._pool[number] = page
        self._dirty.add(number)
        return number, page

    def free(self, number: int) -> None:
        """Free a page; only within `changing()`."""
        assert self._n_changing
        self._pool.pop(number, None)
        self._dirty.discard(number)
        self._vacate(number)
        self._free_numbers.append(number)

    def write_blob(self, data: bytes) -> int:
        """Write bytes of any length over several pages; return the number of the first."""
        room = self.page_bytes - _BLOB_HEAD
        following = 0
        for start in range((max(len(data), 1) - 1) // room * room, -1, -room):
            number, page = self.allocate()
            chunk = data[start : start + room]
            page[PAGE_HEAD:_BLOB_HEAD].view(np.uint32)[0] = following
            page[_BLOB_HEAD : _BLOB_HEAD + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
            following = number
        return following

    def read_blob(self, number: int, n_bytes: int) -> bytes:
        """Return the bytes of a blob."""
        chunks = []
        while number:
            page = self.read(number)
            chunks.append(page[_BLOB_HEAD:].tobytes())
            number = _following(page)
        return b"".join(chunks)[:n_bytes]

    def free_blob(self, number: int) -> None:
        """Free the pages of a blob."""
        while number:
            following = _following(self.read(number))
            self.free(number)
            number = following

    # the pool

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Keep all pages in the pool during a change; after an error in it, the file can no longer be used."""
        self._check_usable()
        self._n_changing += 1
        try:
            yield
        except BaseException as error:
            self._failure = self._failure or f"a change broke off ({error})"
            raise
        finally:
            self._n_changing -= 1
        self._shrink()

    def settle(self) -> None:
        """Evict pages in the middle of a long change that holds no pages."""
        depth, self._n_changing = self._n_changing, 0
        self._shrink()
        self._n_changing = depth

    def empty_pool(self) -> None:
        """Evict all pages, so that the next ones are read from the file."""
        n_frames, self._n_frames = self._n_frames, 0
        try:
            self._shrink()
        finally:
            self._n_frames = n_frames

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise StorageError(
                f"{self.path or 'the temporary file'} can no longer be used: {self._failure}; open it again"
            )
        if not self._file.is_open:
            raise StorageError(f"{self.path or 'the temporary file'} is closed")

    def _shrink(self) -> None:
        while len(self._pool) > self._n_frames and not self._n_changing:
            number, page = next(iter(self._pool.items()))
            if number in self._dirty:
                self._write_back(number, page)
            del self._pool[number]

    def _write_back(self, number: int, page: Page) -> None:
        place = self._table[number]
        if place == _NOWHERE or self._is_kept[place]:
            fresh = self._new_place()
            self._vacate(number)
            self._table[number] = place = fresh
        self._write_place(place, page, number)
        self._dirty.discard(number)

    def _new_place(self) -> int:
        if self._free_places:
            return self._free_places.pop()
        self._is_kept.append(0)
        return len(self._is_kept) - 1

    def _vacate(self, number: int) -> None:
        """Free the place of a page: at once, or at the next checkpoint if the last one needs it."""
        place, self._table[number] = self._table[number], _NOWHERE
        if place != _NOWHERE:
            (self._leaving if self._is_kept[place] else self._free_places).append(place)

    def _read_place(self, place: int, page: Page, number: int) -> None:
        n_read = self._file.read_into(page, _PLACES_AT + place * self.page_bytes)
        self._n_reads += 1
        if n_read < self.page_bytes:
            raise self._damage(f"it was cut off: page {number} is not there")
        checksum, inside = page[:PAGE_HEAD].view(np.uint32).tolist()
        if checksum != zlib.crc32(page[4:]) or inside != number:
            raise self._damage(f"page {number} is not as it was written")

    def _write_place(self, place: int, page: Page, number: int) -> None:
        head = page[:PAGE_HEAD].view(np.uint32)
        head[1] = number
        head[0] = zlib.crc32(page[4:])
        self._file.write(page, _PLACES_AT + place * self.page_bytes)
        self._n_writes += 1

    # durability

    @property
    def is_durable(self) -> bool:
        """Whether the file has a name, and therefore a log and checkpoints."""
        return self._log is not None

    @property
    def is_usable(self) -> bool:
        """Whether the file is open and no change has failed."""
        return self._failure is None and self._file.is_open

    @property
    def n_log_bytes(self) -> int:
        """The length of the log in bytes."""
        return self._log.n_bytes if self._log is not None else 0

    def append(self, payload: bytes) -> None:
        """Append a change to the log before it is made; when this returns, the change is durable."""
        self._check_usable()
        if self._log is None:
            return
        self._log.append(payload)
        # The mark is written after the log is on the disk, so that it is never ahead of it.
        try:
            self._file.write(with_checksum(_MARK.pack(self._log.generation, self._log.n_bytes)), _MARK_AT)
        except StorageError as error:
            self._failure = f"the log is ahead of what is in memory ({error})"
            raise

    def replay(self) -> list[bytes]:
        """Return the changes in the log, which the owner applies again."""
        pending, self._pending = self._pending, []
        return pending

    def checkpoint(self, state: bytes) -> None:
        """Make all changes since the last checkpoint durable with the owner's state, and start a new log."""
        self._check_usable()
        if self._log is None:
            return
        try:
            self._write_checkpoint(state, self._log)
        except BaseException as error:
            self._failure = self._failure or f"a checkpoint broke off ({error})"
            raise

    def _write_checkpoint(self, state: bytes, log: Log) -> None:
        with self.changing():
            state_page = self.write_blob(state)
        for number in sorted(self._dirty):
            self._write_back(number, self._pool[number])
        self._leaving += self._table_places
        self._table_places = self._written_table()
        n_places = len(self._is_kept)
        self._file.sync()
        self._checkpoint += 1
        header = self._header(self._checkpoint, n_places, state_page, len(state))
        self._file.write(header, self._checkpoint % 2 * _BLOCK)
        self._file.sync()
        for place in self._leaving:
            self._is_kept[place] = 0
        self._free_places += self._leaving
        self._leaving = []
        for place in (*self._table, *self._table_places):
            if place != _NOWHERE:
                self._is_kept[place] = 1
        self.state = state
        with self.changing():
            self.free_blob(state_page)
        log.reset(self._checkpoint)

    def _written_table(self) -> list[int]:
        """Write the page table to free places, and return these."""
        room = (self.page_bytes - PAGE_HEAD) // 4
        places = []
        for number, start in enumerate(range(1, len(self._table), room)):
            page = np.zeros(self.page_bytes, dtype=np.uint8)
            entries = self._table[start : start + room]
            page[PAGE_HEAD : PAGE_HEAD + 4 * len(entries)].view(np.uint32)[:] = entries
            places.append(self._new_place())
            self._write_place(places[-1], page, number)
        if len(places) > _MOST_TABLE_PAGES:
            largest = _MOST_TABLE_PAGES * room * self.page_bytes >> 30
            raise StorageError(f"{self.path} cannot grow beyond {largest} GB with pages of {self.page_bytes} bytes")
        return places

    def close_files(self) -> None:
        """Close the files as they are, without a checkpoint."""
        for file in (self._file, self._log_file):
            if file is not None:
                file.close()
        self._pool.clear()
        self._dirty.clear()

    # statistics and checks

    def counters(self) -> dict[str, Any]:
        """Return the pages in use, the bytes of the file and the pool, and the page reads, writes and hits so far."""
        return {
            "pages": len(self._table) - 1 - len(self._free_numbers),
            "page_bytes": self.page_bytes,
            "file_bytes": self._file.size() if self._file.is_open else 0,
            "pool_bytes": len(self._pool) * self.page_bytes,
            "page_reads": self._n_reads,
            "page_writes": self._n_writes,
            "page_hits": self._n_hits,
        }

    def check(self) -> None:
        """Assert that every place is in exactly one state: used, free, or free after the next checkpoint."""
        used = [place for place in (*self._table, *self._table_places) if place != _NOWHERE]
        places = used + self._free_places + self._leaving
        extra = set(self._table_places) & set(self._leaving)
        assert not extra
        assert sorted(places) == list(range(len(self._is_kept)))
        assert len(self._pool) <= self._n_frames
        assert self._dirty <= self._pool.keys()


def _following(page: Page) -> int:
    return int(page[PAGE_HEAD:_BLOB_HEAD].view(np.uint32)[0])


def _checked_page_bytes(page_bytes: Any) -> int:
    is_number = isinstance(page_bytes, int) and not isinstance(page_bytes, bool)
    if not is_number or not SMALLEST_PAGE <= page_bytes <= LARGEST_PAGE or page_bytes & (page_bytes - 1):
        raise ValueError(
            f"page_bytes must be a power of two from {SMALLEST_PAGE} to {LARGEST_PAGE}, not {page_bytes!r}"
        )
    return int(page_bytes)
