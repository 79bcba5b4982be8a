"""`kill -9` at any moment loses no acknowledged change, and never leaves half of a batch."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from siftline import Engine, Store

if TYPE_CHECKING:
    from pathlib import Path

# Four threads write, each its own ids in turn: an add, then a batch of three that replaces, adds and removes, then a
# renewal; the store is compacted now and then, as a whole and little by little. Every acknowledged step is told to a
# pipe with one write, so that the log is whole up to the moment of the kill.
WRITER = """
import os, sys, threading
from datetime import UTC, datetime, timedelta
from siftline import Store

store, log = Store(sys.argv[1]), int(sys.argv[2])
first = store.sequence

def work(thread):
    n = 0
    while True:
        id = f"{os.getpid()}-{thread}-{n}"
        store.add(f"a = {n}", id)
        os.write(log, f"add {id}\\n".encode())
        with store.batch() as batch:
            batch.replace(id, f"a > {n}")
            batch.add(f"b = {n}", id + "-other")
            batch.add(f"c = {n}", id + "-third")
        os.write(log, f"batch {id}\\n".encode())
        store.remove(id + "-third")
        os.write(log, f"remove {id}-third\\n".encode())
        store.renew(id, datetime(2100, 1, 1, tzinfo=UTC) + timedelta(hours=n))
        os.write(log, f"renew {id}\\n".encode())
        if n % 20 == 19:
            store.compact()
        elif n % 3 == 0:
            store.compact_some(20, reader="broker", seen=store.sequence, n_kept=5)
        n += 1

for thread in range(4):
    threading.Thread(target=work, args=(thread,)).start()
"""


def killed_writer(path: Path, seconds: float) -> list[list[str]]:
    """Let a process write for a moment, kill it, and return what it had acknowledged."""
    reading, writing = os.pipe()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(writing)], pass_fds=[writing]) as process:
        os.close(writing)
        with os.fdopen(reading, "rb") as log:
            head = log.readline()  # it has begun
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
            return [line.split() for line in (head + log.read()).decode().splitlines()]


def check(store: Store, acknowledged: list[list[str]]) -> None:
    texts = {each.id: each.written.text for each in store}
    ends = {each.id: each.expires for each in store}
    added = {id for what, id in acknowledged if what == "add"}
    replaced = {id for what, id in acknowledged if what == "batch"}
    removed = {id for what, id in acknowledged if what == "remove"}
    assert added <= texts.keys()
    assert {f"{id}-other" for id in replaced} <= texts.keys()
    assert not removed & texts.keys()
    for what, id in acknowledged:
        if what == "renew":
            assert ends[id] == datetime(2100, 1, 1, tzinfo=UTC) + timedelta(hours=int(id.rpartition("-")[2]))
    for id in added:  # a batch is there as a whole, acknowledged or not
        is_replaced = texts[id].startswith("a >")
        assert is_replaced == (f"{id}-other" in texts)
        assert is_replaced or id not in replaced


def run_crashes(path: Path, n_crashes: int) -> None:
    draw = random.Random(3)
    acknowledged: list[list[str]] = []
    engine, sequence = Engine(), 0
    for _ in range(n_crashes):
        acknowledged += killed_writer(path, draw.uniform(0, 0.12))
        with Store(path) as store:
            assert store.verify() == []
            check(store, acknowledged)
            sequence = store.follow(engine, sequence)
            assert sorted(engine.ids()) == sorted(each.id for each in store)
            store.acknowledge("engine", sequence)
    assert len(acknowledged) >= n_crashes


def test_kill_at_any_moment(tmp_path: Path) -> None:
    run_crashes(tmp_path / "store.db", 8)


@pytest.mark.slow
def test_kill_at_any_moment_at_length(tmp_path: Path) -> None:
    run_crashes(tmp_path / "store.db", 300)
