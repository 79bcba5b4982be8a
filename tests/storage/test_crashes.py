"""An engine that is killed at any moment opens again with all acknowledged changes."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from faults import Crash, Faults
from numba.core import config
from writer import LONG_LOG, MANY_ROWS, OPTIONS, after, changes, do, expression

from siftline import Engine, to_text
from siftline.errors import StorageError
from siftline.indexes.pb_tree import index as pb_tree
from siftline.language.text import parse
from siftline.storage.pages import PageFile

if TYPE_CHECKING:
    from collections.abc import Iterator

State = dict[int, str]


def holds(path: Path, states: list[State]) -> None:
    """Assert that a file opens, is consistent, holds one of these states, and matches as it should."""
    with Engine("pb-tree", path=path, **OPTIONS) as engine:
        engine._check()
        found = {id: to_text(engine.expression(id)) for id in engine.ids()}
        wanted = [{id: to_text(parse(text)) for id, text in state.items()} for state in states]
        assert found in wanted
        oracle = Engine("scan")
        oracle.add_many(found.items())
        for event in ({"a": 20, "b": "x1", "d": "y"}, {"a": 49, "c": 5}):
            assert sorted(engine.match(event)) == sorted(oracle.match(event))


@pytest.fixture
def early_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pb_tree, "_LONG_LOG", LONG_LOG)
    monkeypatch.setattr(pb_tree, "_MANY_ROWS", MANY_ROWS)


def run_until_crash(path: Path, seed: int, faults: Faults, n_changes: int) -> list[State]:
    """Change an engine until the crash; return the last acknowledged state and the one that was on its way."""
    known: State = {}
    coming: State = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pb_tree, "PageFile", functools.partial(PageFile, open_file=faults.file_class()))
        try:
            engine = Engine("pb-tree", path=path, **OPTIONS)
            for n, (removed, added) in enumerate(changes(seed, known)):
                if n == n_changes:
                    break
                coming = after(known, removed, added)
                do(engine, removed, added)
                known.clear()
                known.update(coming)
        except (Crash, StorageError):
            pass
    faults.close()
    return [known, coming]


def crash_at(points: range, folder: Path, mode: str) -> None:
    for point in points:
        rng = random.Random(f"{mode} {point}")
        seed = point % 7
        total = Faults()
        if seed not in TOTALS:
            run_until_crash(folder / f"whole-{seed}", seed, total, 25)
            TOTALS[seed] = total.n_done
        loses = (lambda _, rng=rng: rng.random() < 0.5) if mode == "power" else None
        faults = Faults(n_sectors=rng.randrange(9) if mode != "kill" else 0, loses=loses)
        moment = rng.randrange(1, TOTALS[seed] + 1)
        faults.crash_at, faults.full_from = (None, max(8, moment)) if mode == "full" else (moment, None)
        path = folder / f"{mode}-{point}"
        holds(path, run_until_crash(path, seed, faults, 25))


TOTALS: dict[int, int] = {}
N_POINTS = 12 if config.DISABLE_JIT else 60


@pytest.mark.usefixtures("early_checkpoints")
@pytest.mark.parametrize("mode", ["kill", "torn", "power", "full"])
def test_crashes_at_writes(tmp_path: Path, mode: str) -> None:
    """Die before or in the middle of a write, lose what was not synchronised, or find the disk full."""
    crash_at(range(N_POINTS), tmp_path, mode)


@pytest.mark.slow
@pytest.mark.usefixtures("early_checkpoints")
@pytest.mark.parametrize("mode", ["kill", "torn", "power", "full"])
def test_crashes_at_writes_at_length(tmp_path: Path, mode: str) -> None:
    crash_at(range(1000, 1500), tmp_path, mode)


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, bytes, bytes]:
    """The file of an engine with a checkpoint and a log behind it, and what is in both."""
    path, rng = tmp_path / "filled", random.Random(8)
    with Engine("pb-tree", path=path, **OPTIONS) as engine:
        engine.add_many([(id, expression(rng)) for id in range(150)])
    with Engine("pb-tree", path=path, **OPTIONS) as engine:
        engine.remove_many(range(0, 150, 4))
        engine.add("a < 30", id=1000)
        # As it is now, before closing makes a checkpoint.
        return path, path.read_bytes(), path.with_name("filled-log").read_bytes()


def matched(path: Path) -> list[list[Any]] | None:
    """Return what an engine holds and matches; None if that is refused."""
    try:
        engine = Engine("pb-tree", path=path, **OPTIONS)
        events = [{"a": a, "b": "x1", "d": "y"} for a in range(50)]
        return [sorted(engine.ids(), key=str), *(sorted(engine.match(event), key=str) for event in events)]
    except StorageError:
        return None


def test_a_damaged_engine_never_matches_otherwise(filled: tuple[Path, bytes, bytes]) -> None:
    path, data, log = filled
    path.write_bytes(data)
    path.with_name("filled-log").write_bytes(log)
    whole, n_refused = matched(path), 0
    assert whole is not None
    for bit in random.Random(9).sample(range(3 * 4096 * 8, len(data) * 8), 60):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        path.with_name("filled-log").write_bytes(log)
        found = matched(path)
        assert found in (None, whole)
        n_refused += found is None
    assert n_refused > 20
    n_refused = 0
    for n_bytes in range(0, len(data), 512 * 7):
        path.write_bytes(data[:n_bytes])
        path.with_name("filled-log").write_bytes(log)
        # What was written behind the checkpoint and is not part of it may be missing.
        found = matched(path)
        assert found in (None, whole)
        n_refused += found is None
    assert n_refused > 5


class Writer:
    """The process of writer.py."""

    def __init__(self) -> None:
        source = Path(__file__).parent.parent.parent / "src"
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "writer.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(source)},
            start_new_session=True,
        )

    def told(self) -> list[Any]:
        assert self._process.stdout is not None
        said: list[Any] = json.loads(self._process.stdout.readline())
        return said

    def kill_after(self, seed: int, path: Path, n_lines: int, pause_s: float) -> list[State]:
        """Let a child work until it said so many lines, and a moment longer; return the states that are possible."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seed} {path}\n")
        self._process.stdin.flush()
        child, known, coming, n_said = 0, State(), State(), 0
        while (said := self.told())[0] != "gone":
            if said[0] == "started":
                child = said[1]
            elif said[0] == "begin":
                coming = after(known, said[1], [(id, text) for id, text in said[2]])
            elif said[0] == "done":
                known = coming
            n_said += said[0] in ("begin", "done")
            if child and n_said >= n_lines:
                time.sleep(pause_s)
                os.kill(child, signal.SIGKILL)
                child, n_lines = 0, 1 << 60
        return [known, coming]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.killpg(self._process.pid, signal.SIGKILL)  # with a child that is still at work
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def writer() -> Iterator[Writer]:
    process = Writer()
    yield process
    process.close()


def kill(writer: Writer, seeds: range, folder: Path) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        path = folder / str(seed)
        holds(path, writer.kill_after(seed, path, rng.randrange(120), rng.random() * 0.004))


def test_real_kills(tmp_path: Path, writer: Writer) -> None:
    kill(writer, range(30), tmp_path)


@pytest.mark.slow
def test_real_kills_at_length(tmp_path: Path, writer: Writer) -> None:
    kill(writer, range(1000, 1500), tmp_path)
