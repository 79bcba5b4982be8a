"""The owner of a store; a process never loses the locks by which others see that the store is open."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from siftline import Store
from siftline.broker.broker import Broker
from siftline.errors import StoreError, StoreLockedError
from siftline.storage.mark import Mark
from siftline.storage.owner import refuse_network

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON = [sys.executable, "-c"]
HAS_LOCKS = Path("/proc/locks").exists()


def locks(path: Path | str) -> set[tuple[str, str, str]]:
    """Return the POSIX locks of this process on the files of a database, as the kernel has them."""
    inodes = {
        str(os.stat(f"{path}{suffix}").st_ino): suffix for suffix in ("", "-shm") if os.path.exists(f"{path}{suffix}")
    }
    found = set()
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "POSIX" in fields and str(os.getpid()) in fields:
            place = fields[fields.index(str(os.getpid())) + 1]
            inode = place.rpartition(":")[2]
            if inode in inodes:
                found.add((inodes[inode], fields[-2], fields[-1]))
    return found


def held(path: Path | str) -> bool:
    """Return whether others can see that a database is open here: by its shared lock, and that of its index."""
    return {suffix for suffix, *_ in locks(path)} == {"", "-shm"}


@pytest.mark.skipif(not HAS_LOCKS, reason="this system does not show its locks")
def test_no_operation_of_a_store_drops_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store(path) as store:
        store.add("a = 1", "x")

        def beside(**how: Any) -> None:
            with Store(path, **how) as other:
                list(other)

        def refused(attempt: Any) -> None:
            with pytest.raises(StoreLockedError):
                attempt(path)

        operations: list[Callable[[], Any]] = [
            lambda: store.add("a = 1", "y"),
            lambda: store.replace("y", "a = 2"),
            lambda: store.renew("y", None),
            lambda: list(store),
            lambda: list(store.changes()),
            lambda: store.remove("y"),
            lambda: store.expire(),
            lambda: store.identity(),
            lambda: store.acknowledge("reader", 1),
            lambda: store.compact(),
            lambda: store.verify(),
            lambda: beside(is_read_only=True),
            lambda: beside(is_guest=True),
            lambda: refused(Store),
            lambda: refused(Broker),
        ]
        for operation in operations:
            operation()
            assert held(path)


@pytest.mark.skipif(not HAS_LOCKS, reason="this system does not show its locks")
def test_no_operation_of_a_broker_drops_the_locks_of_store_and_log(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Broker(path) as broker:
        lease = broker.subscribe("a = 1")
        broker.publish({"a": 1})
        operations: list[Callable[[], Any]] = [
            lambda: broker.renew(lease.id, lease.ticket),
            lambda: broker.replace(lease.id, lease.ticket, "a > 0"),
            lambda: broker.notifications(lease.id, lease.ticket),
            lambda: broker.publish({"a": 1}),
            lambda: broker.keys.revoke(broker.keys.add("admin").partition(".")[0]),
            lambda: broker.purge(),
            lambda: broker.save(),
            lambda: broker.log.tend(),
            lambda: broker.unsubscribe(lease.id, lease.ticket),
        ]
        for operation in operations:
            operation()
            assert held(path)
            assert held(broker.log.path)


# Records every file that Python itself opens; SQLite opens its own without Python's knowledge.
WATCHED = """
import sys
opened = []
sys.addaudithook(lambda name, given: opened.append(str(given[0])) if name == "open" else None)
from siftline import Store
from siftline.broker.broker import Broker
from siftline.cli import main
path = sys.argv[1]
import os
rules, link = path + ".jsonl", path + "-link.jsonl"
with open(rules, "w") as file:
    file.write('{"id": "x", "expression": "a = 1"}')
os.symlink(path, link)
with Broker(path) as broker:
    lease = broker.subscribe("a = 1")
    broker.publish({"a": 1})
    broker.renew(lease.id, lease.ticket)
    broker.purge()
    broker.save()
    for command in (
        ["store", "import", path, rules],
        ["store", "export", path, "--output", path + "-out.jsonl"],
        ["store", "list", path],
        ["store", "verify", path],
        ["serve", "--store", path, "--new-key", "admin"],
        ["serve", "--store", path, "--list-keys"],
        ["store", "import", path, link],
    ):
        print(main([*command, "--quiet"]), file=sys.stderr)
names = {path + beside + suffix for beside in ("", "-notifications") for suffix in ("", "-wal", "-shm", "-journal")}
print("touched:", sorted(names & set(opened)), "saw the mark:", path + "-mark" in opened)
"""


def test_python_itself_never_opens_a_file_of_sqlite(tmp_path: Path) -> None:
    ended = subprocess.run([*PYTHON, WATCHED, str(tmp_path / "store.db")], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "touched: [] saw the mark: True"
    *statuses, last = [line for line in ended.stderr.splitlines() if line.isdecimal()]
    assert (set(statuses), last) == ({"0"}, "2")
    assert "is the store itself" in ended.stderr


def test_a_second_owner_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store(path) as store:
        store.add("a = 1", 1)
        for attempt in (Store, Broker):
            with pytest.raises(StoreLockedError, match=r"owned by this process itself since 20.*is_guest"):
                attempt(path)
        link = tmp_path / "link.db"
        link.symlink_to(path)
        with pytest.raises(StoreLockedError):
            Store(link)
        code = "import sys; from siftline import Store; Store(sys.argv[1])"
        other = subprocess.run([*PYTHON, code, str(path)], capture_output=True, text=True, check=False)
        assert f"StoreLockedError: {path} is owned by process {os.getpid()} on " in other.stderr
        who = json.loads(Path(f"{path}-owner").read_text())
        assert who["pid"] == os.getpid()
        assert who["since"].endswith("Z")
        with Store(path, is_read_only=True) as reader, Store(path, is_guest=True) as guest:
            guest.add("a = 2", 2)
            assert [each.id for each in reader] == [1, 2]
        store.add("a = 3", 3)
    with Store(path) as store:  # let go
        assert len(store) == 3


def test_an_owner_without_a_description(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store(path):
        for said in ("", "{", "[]", '{"pid": 1}'):
            Path(f"{path}-owner").write_text(said)
            with pytest.raises(StoreLockedError, match="has not said who"):
                Store(path)


def test_a_failed_open_releases_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store(path) as store:
        store.add("a = 1", 1)
    mark = Path(f"{path}-mark")
    whole = mark.read_bytes()
    mark.write_bytes(b"x" * len(whole))
    with pytest.raises(StoreError, match="mark is damaged"):
        Store(path)
    mark.write_bytes(whole)
    Store(path).close()


def test_nothing_is_put_beside_a_file_that_is_no_store(tmp_path: Path) -> None:
    text = tmp_path / "rules.txt"
    text.write_text("price <= 580\n")
    with pytest.raises(StoreError, match="not a store"):
        Store(text)
    assert [path.name for path in tmp_path.iterdir()] == ["rules.txt"]


HOLDER = """
import os, sys, time
from siftline import Store
store = Store(sys.argv[1])
store.add("a = 1", 1)
if sys.argv[2] == "alone" or not os.fork():
    print("ready", os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_killed_owner_leaves_the_store_free(tmp_path: Path, how: str) -> None:
    """Also when a child that it had forked lives on: it has the descriptors, but not the store."""
    path = str(tmp_path / "store.db")
    with subprocess.Popen([*PYTHON, HOLDER, path, how], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline().split()[1])
        try:
            with pytest.raises(StoreLockedError, match=f"process {process.pid} on"):
                Store(path)
            process.send_signal(signal.SIGKILL)
            process.wait()
            with Store(path) as store:
                assert len(store) == 1
        finally:
            if how == "fork":
                os.kill(child, signal.SIGKILL)


def _ends_quietly(store: Store, reading: Any) -> None:
    store.close()
    reading.close()
    del store, reading


def test_a_forked_child_leaves_the_store_alone(tmp_path: Path) -> None:
    """Whatever it closes or collects, and while the parent is in the midst of writing."""
    path = tmp_path / "store.db"
    fork = multiprocessing.get_context("fork")
    with Store(path) as store:
        with store.batch() as batch:
            for id in range(500):
                batch.add(f"a = {id}", id)
        is_over = threading.Event()
        n = [500]

        def write() -> None:
            while not is_over.is_set():
                store.add("a = 1", n[0])
                n[0] += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(10):
                reading = store.subscriptions()
                next(reading)
                child = fork.Process(target=_ends_quietly, args=(store, reading))
                child.start()
                child.join(60)
                assert child.exitcode == 0
                reading.close()
        finally:
            is_over.set()
            thread.join()
        if HAS_LOCKS:
            assert held(path)
        with pytest.raises(StoreLockedError):
            Store(path)
        assert store.verify() == []
        assert sorted(each.id for each in store) == list(range(n[0]))


def test_a_forked_child_that_ends_as_a_program_does(tmp_path: Path) -> None:
    code = """
import os, sys
from siftline import Store
store = Store(sys.argv[1])
store.add("a = 1", 1)
reading = store.subscriptions()
next(reading)
child = os.fork()
if not child:
    sys.exit(7)  # everything is collected
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
store.add("a = 2", 2)
print(status, len(store), flush=True)
os.kill(os.getpid(), 9)
"""
    path = str(tmp_path / "store.db")
    ended = subprocess.run([*PYTHON, code, path], capture_output=True, text=True, check=False)
    assert ended.stdout == "7 2\n"
    with Store(path) as store:
        assert len(store) == 2


def test_guests_do_not_migrate_a_store_with_an_owner(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store(path) as store:
        store.add("a = 1", 1)
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 3")  # as an older program would have it
        connection.close()
        with pytest.raises(StoreLockedError, match="this process itself"):
            Store(path, is_guest=True)


def test_a_guest_may_be_the_first(tmp_path: Path) -> None:
    with Store(tmp_path / "store.db", is_guest=True) as guest:
        guest.add("a = 1", 1)
        with Store(tmp_path / "store.db") as owner:
            owner.add("a = 2", 2)
            assert len(guest) == 2


WRITER = """
import sys
from siftline import Store
with Store(sys.argv[1], is_guest=True, wait_seconds=60) as store:
    for n in range(100):
        store.add("a = 1", f"{sys.argv[2]}-{n}")
    print(store.sequence)
"""


def test_the_mark_is_right_with_writers_beside_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    with Store(path, wait_seconds=60) as store:
        guests = [
            subprocess.Popen([*PYTHON, WRITER, path, str(number)], stdout=subprocess.DEVNULL) for number in range(3)
        ]
        while any(guest.poll() is None for guest in guests):
            store.add("a = 1", f"owner-{store.sequence}")
            assert Mark(path).read() <= store.sequence
        assert [guest.returncode for guest in guests] == [0, 0, 0]
        store.add("a = 1", "last")
        assert Mark(path).read() == store.sequence
        assert len(store) == store.sequence


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_network_file_systems_are_refused(tmp_path: Path, kind: str) -> None:
    device = os.stat(tmp_path).st_dev
    mounts = tmp_path / "mountinfo"
    line = "27 1 {} / / rw,relatime shared:1 - {} server:/data rw\n"
    mounts.write_text(line.format("0:0", "proc") + line.format(f"{os.major(device)}:{os.minor(device)}", kind))
    with pytest.raises(StoreError, match=f"network file system .{kind}.*local disk"):
        refuse_network(str(tmp_path / "store.db"), mounts)
    mounts.write_text(line.format(f"{os.major(device)}:{os.minor(device)}", "ext4"))
    refuse_network(str(tmp_path / "store.db"), mounts)
