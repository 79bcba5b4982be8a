"""Pages, pool, log and checkpoints: acknowledged changes are kept, or an error says why not."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from faults import Crash, Faults

from siftline.errors import StorageError
from siftline.storage.files import File
from siftline.storage.log import Log
from siftline.storage.pages import PageFile

if TYPE_CHECKING:
    from pathlib import Path

PLACES_AT = 3 * 4096


class Notes:
    """A tiny owner of pages: numbered notes, each a page; changes are logged and done again after a crash."""

    def __init__(self, path: Path | None, faults: Faults | None = None, buffer_mb: float = 0.01) -> None:
        opener = File if faults is None else faults.file_class()
        self.pages = PageFile(path, page_bytes=512, buffer_mb=buffer_mb, open_file=opener)
        self.numbers: dict[str, int] = json.loads(self.pages.state or b"{}")
        for record in self.pages.replay():
            self._do(*json.loads(record))

    def set(self, name: str, value: int | None) -> None:
        self.pages.append(json.dumps([name, value]).encode())
        self._do(name, value)

    def _do(self, name: str, value: int | None) -> None:
        with self.pages.changing():
            if value is None:
                self.pages.free(self.numbers.pop(name))
                return
            if name not in self.numbers:
                self.numbers[name], page = self.pages.allocate()
            else:
                page = self.pages.write(self.numbers[name])
            page[100:104].view(np.uint32)[0] = value

    def all(self) -> dict[str, int]:
        return {name: int(self.pages.read(number)[100:104].view(np.uint32)[0]) for name, number in self.numbers.items()}

    def checkpoint(self) -> None:
        self.pages.checkpoint(json.dumps(self.numbers).encode())


def scribble(notes: Notes, seed: int, known: dict[str, int], n_steps: int = 60) -> None:
    """Make random changes; `known` follows what was acknowledged."""
    rng = random.Random(seed)
    for step in range(n_steps):
        name = str(rng.randrange(40))
        if rng.random() < 0.3 and name in known:
            notes.set(name, None)
            del known[name]
        else:
            notes.set(name, step)
            known[name] = step
        if rng.random() < 0.1:
            notes.checkpoint()


def test_pages_come_back_from_the_file() -> None:
    pages = PageFile(page_bytes=512, buffer_mb=0.001)
    numbers = []
    for value in range(100):
        with pages.changing():
            number, page = pages.allocate()
            page[200] = value
        numbers.append(number)
    assert [int(pages.read(number)[200]) for number in numbers] == list(range(100))
    counters = pages.counters()
    assert counters["pool_bytes"] <= 16 * 512
    assert counters["page_reads"] >= 84
    assert counters["page_writes"] >= 84
    pages.check()


def test_pages_that_are_given_back_are_used_again(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "pages", Faults())
    for step in range(2000):
        notes.set(str(step % 10), step)
        notes.set(str(step % 10), None)
        if step % 50 == 0:
            notes.checkpoint()
    assert notes.pages.counters()["file_bytes"] < 100 * 512 + PLACES_AT
    notes.pages.check()


def test_blobs() -> None:
    pages = PageFile(page_bytes=512)
    for n in (0, 1, 499, 500, 501, 5000):
        data = random.Random(n).randbytes(n)
        with pages.changing():
            number = pages.write_blob(data)
        assert pages.read_blob(number, n) == data
        with pages.changing():
            pages.free_blob(number)
    assert pages.counters()["pages"] == 0


def test_a_file_opens_where_it_stopped(tmp_path: Path) -> None:
    known: dict[str, int] = {}
    for seed in range(8):
        notes = Notes(tmp_path / "pages")
        assert notes.all() == known
        scribble(notes, seed, known)
        notes.pages.check()
        if seed % 2:
            notes.checkpoint()
        notes.pages.close_files()


@pytest.mark.parametrize("mode", ["kill", "torn", "power"])
def test_a_crash_at_every_write(tmp_path: Path, mode: str) -> None:
    """Die at the k-th operation, for every k, and open what is left."""
    crash_at, is_over = 1, False
    while not is_over:
        path = tmp_path / f"pages-{crash_at}"
        rng = random.Random(crash_at)
        sectors = rng.randrange(1, 9) if mode != "kill" else 0
        loses = (lambda i, rng=rng: rng.random() < 0.5) if mode == "power" else None
        faults = Faults(crash_at=crash_at, n_sectors=sectors, loses=loses)
        known: dict[str, int] = {}
        trace: list[dict[str, int]] = [{}]
        try:
            scribble(Watched(path, faults, trace), 1, known, n_steps=40)
            is_over = True
        except Crash:
            pass
        faults.close()
        notes = Notes(path, Faults())
        # The change that was under way may have been done or not.
        assert notes.all() in (known, trace[-1]), crash_at
        notes.pages.check()
        notes.pages.close_files()
        crash_at += 1
    assert crash_at > 100


class Watched(Notes):
    """Notes that tell what they are about to be."""

    def __init__(self, path: Path, faults: Faults, trace: list[dict[str, int]]) -> None:
        self.trace, self.now = trace, dict[str, int]()
        super().__init__(path, faults)

    def set(self, name: str, value: int | None) -> None:
        if value is None:
            self.now = {other: number for other, number in self.now.items() if other != name}
        else:
            self.now = {**self.now, name: value}
        self.trace.append(self.now)
        super().set(name, value)


def test_a_full_disk(tmp_path: Path) -> None:
    """From the k-th operation on nothing can be written: an error, and what was acknowledged is there."""
    for full_from in range(8, 120, 3):
        path = tmp_path / f"pages-{full_from}"
        known: dict[str, int] = {}
        trace: list[dict[str, int]] = [{}]
        notes = Watched(path, Faults(full_from=full_from), trace)
        with pytest.raises(StorageError, match="No space left"):
            scribble(notes, 2, known, n_steps=100)
        notes.pages.close_files()
        assert Notes(path).all() in (known, trace[-1])


def test_a_full_disk_with_room_again(tmp_path: Path) -> None:
    faults = Faults()
    notes = Notes(tmp_path / "pages", faults)
    notes.set("a", 1)
    faults.full_from = 0
    with pytest.raises(StorageError, match="No space left"):
        notes.set("b", 2)
    faults.full_from = None
    notes.set("c", 3)
    assert notes.all() == {"a": 1, "c": 3}
    notes.pages.close_files()
    assert Notes(tmp_path / "pages").all() == {"a": 1, "c": 3}


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, dict[str, int]]:
    """A file with a checkpoint and a log behind it."""
    path, known = tmp_path / "pages", dict[str, int]()
    notes = Notes(path)
    scribble(notes, 3, known)
    notes.checkpoint()
    for number in range(5):
        notes.set(f"late {number}", number)
        known[f"late {number}"] = number
    notes.pages.close_files()
    return path, known


def outcome(path: Path) -> dict[str, int] | None:
    """Return what a file holds; None if it is refused with a clear error."""
    notes = None
    try:
        notes = Notes(path)
        return notes.all()
    except StorageError as error:
        if path.name not in str(error):
            raise
        return None
    finally:
        if notes is not None:
            notes.pages.close_files()


@pytest.mark.parametrize("name", ["pages", "pages-log"])
def test_flipped_bits(written: tuple[Path, dict[str, int]], name: str) -> None:
    """A flipped bit is an error, or in what nobody needs any more; never another result."""
    path, known = written
    file = path.with_name(name)
    data = file.read_bytes()
    log = path.with_name("pages-log").read_bytes()
    rng, n_refused = random.Random(4), 0
    for bit in rng.sample(range(8 * len(data)), 400):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.with_name("pages-log").write_bytes(log)
        file.write_bytes(flipped)
        found = outcome(path)
        assert found in (None, known), (bit // 8, bit % 8)
        n_refused += found is None
    assert n_refused > 40


@pytest.mark.parametrize("name", ["pages", "pages-log"])
def test_truncated_files(written: tuple[Path, dict[str, int]], name: str) -> None:
    path, known = written
    data, log = path.with_name(name).read_bytes(), path.with_name("pages-log").read_bytes()
    for n in [*range(0, len(data), 512), len(data) - 1]:
        path.with_name("pages-log").write_bytes(log)
        path.with_name(name).write_bytes(data[:n])
        assert outcome(path) is None, n
    path.with_name(name).write_bytes(data)
    assert outcome(path) == known


def test_a_missing_log_or_file(written: tuple[Path, dict[str, int]]) -> None:
    path, _ = written
    log = path.with_name("pages-log")
    log.rename(log.with_name("elsewhere"))
    with pytest.raises(StorageError, match="is missing"):
        PageFile(path)
    log.with_name("elsewhere").rename(log)
    path.unlink()
    with pytest.raises(StorageError, match="is missing"):
        PageFile(path)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    pages = PageFile(tmp_path / "pages")
    with pytest.raises(StorageError, match="one writer at a time"):
        PageFile(tmp_path / "pages")
    code = f"from siftline.storage.pages import PageFile; PageFile({str(tmp_path / 'pages')!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "one writer at a time" in other.stderr
    pages.close_files()
    PageFile(tmp_path / "pages").close_files()


def test_a_newer_version(written: tuple[Path, dict[str, int]]) -> None:
    path, _ = written
    data = bytearray(path.read_bytes())
    for block in (0, 4096):
        data[block + 8 : block + 12] = struct.pack("<I", 2)
    path.write_bytes(data)
    with pytest.raises(StorageError, match="of version 2; this Siftline reads version 1"):
        PageFile(path)


def test_files_that_are_not_page_files(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello" * 5000)
    with pytest.raises(StorageError, match="not a file of Siftline pages"):
        PageFile(tmp_path / "text")
    with pytest.raises(StorageError, match="is a directory"):
        PageFile(tmp_path)
    for page_bytes in (100, 513, 65536, True, "512"):
        with pytest.raises(ValueError, match="power of two"):
            PageFile(page_bytes=page_bytes)  # type: ignore[arg-type]


def test_a_read_only_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, who may write everywhere, the system is made to refuse."""
    plain_open = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_CREAT and str(path).startswith(str(tmp_path)):
            raise PermissionError(13, "Permission denied")
        return plain_open(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageError, match="cannot be opened: Permission denied"):
        PageFile(tmp_path / "pages")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StorageError, match="pages cannot be made: its directory is read-only"):
        PageFile(tmp_path / "pages")
    assert os.listdir(tmp_path) == []


def test_a_change_that_breaks_off(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "pages")
    notes.set("a", 1)
    with pytest.raises(KeyError), notes.pages.changing():
        raise KeyError("x")
    with pytest.raises(StorageError, match="open it again"):
        notes.set("b", 2)
    notes.pages.close_files()
    with pytest.raises(StorageError):
        notes.set("b", 2)
    assert Notes(tmp_path / "pages").all() == {"a": 1}


def test_a_log_of_another_file(written: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    path, known = written
    shutil.copy(path, tmp_path / "copy")
    shutil.copy(path.with_name("pages-log"), tmp_path / "copy-log")
    assert outcome(tmp_path / "copy") == known
    (tmp_path / "copy-log").write_bytes(b"SiftLogX" + bytes(100))
    assert outcome(tmp_path / "copy") is None


def test_a_record_cut_short_is_dropped(tmp_path: Path) -> None:
    log = Log(File.opened(tmp_path / "log", is_new=True))
    log.reset(1)
    log.append(b"one")
    log.append(b"two")
    data = (tmp_path / "log").read_bytes()
    for n in range(log.n_bytes - 26, log.n_bytes):
        (tmp_path / "log").write_bytes(data[:n])
        assert Log(File.opened(tmp_path / "log")).records(1) == [b"one"]
