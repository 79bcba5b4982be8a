"""A damaged, foreign, full, read-only or locked store gives a clear error, never a wrong or lost subscription."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from siftline import Store
from siftline.errors import StoreError, StoreLockedError
from siftline.storage.migrations import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = 4096
PYTHON = [sys.executable, "-c"]


def filled(path: Path, n: int = 300) -> list[Any]:
    with Store(path) as store:
        with store.batch() as batch:
            for id in range(n):
                batch.add(f"price <= {id} and name = 'number {id}'", id, owner=f"owner {id % 7}")
        for id in range(0, n, 50):
            store.replace(id, f"price > {id}")
            store.remove(id + 1)
    return contents(path)


def add_all(store: Store, ids: range) -> None:
    with store.batch() as batch:
        for id in ids:
            batch.add(f"a = {id}", id)


def contents(path: Path) -> list[Any]:
    with Store(path) as store:
        return [*store.changes(), *store.subscriptions()]


def test_a_file_of_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    filled(path, 2)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    for is_read_only in (False, True):
        with pytest.raises(StoreError, match=f"has version {VERSION + 1}.*newer Siftline"):
            Store(path, is_read_only=is_read_only)


def test_files_that_are_no_store(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("price <= 580\n")
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE people (name)")
    connection.close()
    before = other.read_bytes()
    with pytest.raises(StoreError, match="not a store"):
        Store(text)
    with pytest.raises(StoreError, match="is a SQLite database, but not a store"):
        Store(other)
    with pytest.raises(StoreError, match="is a directory"):
        Store(tmp_path)
    with pytest.raises(StoreError, match="its directory does not exist"):
        Store(tmp_path / "absent" / "store.db")
    with pytest.raises(StoreError, match="does not exist"):
        Store(tmp_path / "absent.db", is_read_only=True)
    assert other.read_bytes()[100:] == before[100:]


def test_a_file_truncated_at_any_page(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    filled(path)
    whole = path.read_bytes()
    n_pages = len(whole) // PAGE
    assert n_pages > 10
    for n in range(1, n_pages):  # nothing at all: see below
        copy.write_bytes(whole[: n * PAGE - (0 if n % 2 else 1000)])
        with pytest.raises(StoreError):
            contents(copy)
        for leftover in tmp_path.glob("copy.db-*"):
            leftover.unlink()


def test_a_flipped_bit_is_an_error_or_harmless(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    expected = filled(path)
    whole = path.read_bytes()
    draw = random.Random(5)
    n_found = 0
    for _ in range(400):
        damaged = bytearray(whole)
        place = draw.randrange(len(whole))
        damaged[place] ^= 1 << draw.randrange(8)
        copy.write_bytes(damaged)
        try:
            found = contents(copy)
        except StoreError:
            n_found += 1
        else:
            assert found == expected, place
        for leftover in tmp_path.glob("copy.db-*"):
            leftover.unlink()
    assert n_found > 100


def killed(path: Path, n: int = 40) -> None:
    """Leave a store as a killed process leaves it: what was acknowledged last is in the log alone."""
    code = f"""
import os, signal
from siftline import Store
store = Store({str(path)!r})
for id in range({n}):
    store.add(f"price <= {{id}} and name = 'number {{id}}'", id)
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([*PYTHON, code], check=False)


def copied(path: Path, folder: Path, log: bytes | None) -> Path:
    """Copy a store with another log, and without what processes share while they have it open."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    copy = folder / path.name
    for suffix in ("", "-mark"):  # nobody has the store open: a plain copy drops no locks
        shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
    if log is not None:
        Path(f"{copy}-wal").write_bytes(log)
    return copy


def test_a_damaged_log_loses_nothing_in_silence(tmp_path: Path) -> None:
    path, draw = tmp_path / "store.db", random.Random(8)
    killed(path)
    whole = Path(f"{path}-wal").read_bytes()
    copy = copied(path, tmp_path / "copy", whole)
    expected = contents(copy)
    assert len(expected) == 80
    for attempt in range(120):
        place = draw.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.randrange(8)
        log = bytes(damaged) if attempt % 2 else whole[:place]
        copy = copied(path, tmp_path / "copy", log)
        try:
            assert contents(copy) == expected, place
        except StoreError:
            assert Path(f"{copy}-wal").read_bytes() == log  # nothing that could be mended is thrown away
            with pytest.raises(StoreError, match="was acknowledged"):
                Store(copy, is_read_only=True)


def test_a_log_or_a_file_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    killed(path, 5)
    copy = copied(path, tmp_path / "copy", None)
    with pytest.raises(StoreError, match="ends with change 0, but change 5 was acknowledged"):
        Store(copy)
    copy.write_bytes(b"")
    with pytest.raises(StoreError, match="change 5 was acknowledged"):
        Store(copy)
    copy.unlink()
    with pytest.raises(StoreError, match="change 5 was acknowledged"):
        Store(copy)
    assert not copy.exists()
    Path(f"{copy}-mark").unlink()
    with Store(copy) as store:  # as the message says
        assert len(store) == 0


def test_a_damaged_mark_says_so(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    expected = filled(path, 10)
    mark = Path(f"{path}-mark")
    damaged = bytearray(mark.read_bytes())
    damaged[9] ^= 4
    mark.write_bytes(damaged)
    with pytest.raises(StoreError, match=r"store.db-mark is damaged.*remove it"):
        Store(path)
    mark.unlink()
    assert contents(path) == expected
    assert mark.read_bytes()[:8] == damaged[:8]  # made again


def test_verify_reports_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path, 60)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE changes SET text = 'price <= 999' WHERE id = 7")
    connection.execute("DELETE FROM changes WHERE id = 9")
    connection.commit()
    connection.close()
    with Store(path) as store:
        problems = store.verify()
        assert any("does not fit its checksum" in problem for problem in problems)
        assert any("the subscription 9 points to" in problem for problem in problems)
        with pytest.raises(StoreError, match="damaged"):
            store.get(7)
        assert store.get(8).written.text.startswith("price <= 8 ")


def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    before = filled(path, 20)
    with Store(path) as store:
        assert store._writer is not None
        (n_pages,) = store._writer._connection.execute("PRAGMA page_count").fetchone()
        store._writer._connection.execute(f"PRAGMA max_page_count = {n_pages + 2}")
        with pytest.raises(StoreError, match="the disk is full: nothing of this was written"):
            add_all(store, range(1000, 3000))
        store.add("a = 1", 1000)  # what still fits goes on
        assert len(store) == 19 + 1
        assert list(store.changes())[:-1] == before[: len(list(store.changes())) - 1]


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """The limit of a process on the size of files stands for a disk that refuses to write."""
    path = tmp_path / "store.db"
    filled(path, 20)
    code = f"""
import resource, signal
from siftline import Store
from siftline.errors import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store({str(path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
n = 0
try:
    while True:
        store.add("a = 1", 1000 + n)
        n += 1
except StoreError as error:
    print(n, error)
"""
    output = subprocess.run([*PYTHON, code], capture_output=True, text=True, check=True).stdout
    n, _, message = output.partition(" ")
    assert "nothing of this was written" in message
    with Store(path) as store:
        assert len(store) == 19 + int(n)
        assert store.verify() == []


def test_a_read_only_directory() -> None:
    """Run by a user without rights, because root may write everywhere."""
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "store.db"
        expected = len(filled(path, 20))
        folder.chmod(0o555)
        path.chmod(0o444)
        code = f"""
import os, sys
from siftline import Store
from siftline.errors import StoreError
import siftline.storage.store
if os.geteuid() == 0:
    os.setuid(65534)
for path in {[str(path), str(folder / "new.db")]!r}:
    try:
        Store(path)
    except StoreError as error:
        print(error)
with Store({str(path)!r}, is_read_only=True) as store:
    print(len([*store.changes(), *store.subscriptions()]))
    try:
        store.add("a = 1", 99)
    except StoreError as error:
        print(error)
"""
        lines = subprocess.run([*PYTHON, code], capture_output=True, text=True, check=True).stdout.splitlines()
        assert "read-only" in lines[0] or "cannot be opened" in lines[0]
        assert "cannot be opened" in lines[1]
        assert lines[2:] == [str(expected), f"{path} was opened read-only"]
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_another_writer(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store(path, wait_seconds=0.05) as store:
        store.add("a = 1", 1)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError, match="another process is writing"):
            store.add("a = 2", 2)
        assert [each.id for each in store] == [1]  # reading does not wait
        other.execute("ROLLBACK")
        other.close()
        store.add("a = 2", 2)
        # An owner and a guest take turns.
        with Store(path, is_guest=True) as second:
            second.add("a = 3", 3)
        assert store.add("a = 4", 4) == 4
        assert [change.sequence for change in store.changes()] == [1, 2, 3, 4]


def test_a_closed_or_inherited_store_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.add("a = 1", 1)
    attempts: list[Callable[[], Any]] = [lambda: store.add("a = 2", 2), lambda: len(store)]
    child = os.fork()
    if child == 0:
        n_refused = 0
        for attempt in attempts:
            try:
                attempt()
            except StoreError:
                n_refused += 1
        os._exit(n_refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    store.close()
    for attempt in attempts:
        with pytest.raises(StoreError, match="is closed"):
            attempt()
