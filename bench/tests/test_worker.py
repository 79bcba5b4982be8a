"""The process that measures, as the one that started it sees it: what ends a run, and what its memory is."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from siftline_bench.figures import worker
from siftline_bench.figures.figure import Run, Settings
from siftline_bench.figures.worker import OUT_OF_DISK, OUT_OF_MEMORY, TIMED_OUT, RunFailedError, Worker
from siftline_bench.runner import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PREPARED = ("prepared", None)
_MB = 2**20


class Connection:
    """Gives answers in turn, and then none."""

    def __init__(self, answers: list[tuple[str, Any]]) -> None:
        self._answers = answers

    def send(self, run: Run) -> None:
        """Take a run."""

    def poll(self, seconds: float) -> bool:
        """Return whether there is an answer."""
        return bool(self._answers)

    def recv(self) -> tuple[str, Any]:
        """Return the next answer."""
        return self._answers.pop(0)


class Process:
    """Is there."""

    pid = os.getpid()


def _run(kind: str = "matching", limit_s: float = 20.0, memory_mb: float = 6_000.0) -> Run:
    settings = Settings(limit_s=limit_s, memory_mb=memory_mb)
    return Run("opindex-0", "sift", 1, kind, "dense", {}, 1, 0, Choice("sift"), settings)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Measure with a process that gives these answers."""

    def measure(run: Run, *answers: tuple[str, Any]) -> Any:
        subject = Worker()
        monkeypatch.setattr(subject, "_start", lambda: None)
        monkeypatch.setattr(subject, "_end", lambda: None)
        monkeypatch.setattr(subject, "_process", Process())
        monkeypatch.setattr(subject, "_connection", Connection(list(answers)))
        return subject.measure(run)

    return measure


def test_what_ends_a_measurement_is_its_row(measured: Callable[..., Any]) -> None:
    late = measured(_run(limit_s=0.0), _PREPARED)
    assert late == {"mode": "matching", "status": TIMED_OUT, "reason": "more than 0 s"}
    large = measured(_run(memory_mb=1.0), _PREPARED)
    assert large == {"mode": "matching", "status": OUT_OF_MEMORY, "reason": "more than 1 MB"}
    assert measured(_run(), _PREPARED, (OUT_OF_MEMORY, "none left"))["status"] == OUT_OF_MEMORY
    assert measured(_run(), _PREPARED, ("row", {"status": "ok"})) == {"status": "ok"}


def test_what_ends_the_preparation_is_no_row(measured: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunFailedError, match=r"^out of memory while preparing \(more than 1 MB\): no finding about"):
        measured(_run(memory_mb=1.0))
    with pytest.raises(RunFailedError, match=r"^out of memory while preparing \(none left\): no finding about"):
        measured(_run(), (OUT_OF_MEMORY, "none left"))
    monkeypatch.setattr(worker, "_PREPARED_S", 0.0)
    with pytest.raises(RunFailedError, match=r"^timed out while preparing \(more than 0 s\): no finding about"):
        measured(_run(limit_s=0.0))


def test_a_disk_that_is_too_small_for_a_run_is_a_row(measured: Callable[..., Any]) -> None:
    assert measured(_run(), (OUT_OF_DISK, "100 GB are wanted"))["status"] == OUT_OF_DISK


# memory


@pytest.fixture
def above_another(tmp_path: Path) -> Iterator[int]:
    """Return a process that has one below it, with 30 MB of their own each; both map a file of 200 MB.

    Not this process: a session of Spark may be below it.
    """
    file = tmp_path / "mapped"
    file.write_bytes(bytes(200 * _MB))
    code = f"""if True:
        import mmap, os, sys
        os.fork()
        own = bytearray(b"x") * (30 << 20)
        mapped = mmap.mmap(os.open({str(file)!r}, os.O_RDONLY), 0, prot=mmap.PROT_READ)
        sum(mapped[::4096])
        print("x", end="", flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"xx"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not say")
def test_memory_below_counts_without_what_is_shared(above_another: int) -> None:
    alone = worker._Memory(above_another, has_below=False).mb()
    everything = worker._Memory(above_another, has_below=True).mb()
    assert 25 < everything - alone < 100


def test_processes_below_are_looked_for_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def look(pid: int) -> list[int]:
        looked.append(pid)
        return [pid]

    monkeypatch.setattr(worker, "processes_below", look)
    for seconds, n_looks in ((600.0, 1), (0.0, 3)):
        looked.clear()
        monkeypatch.setattr(worker, "_LOOK_BELOW_S", seconds)
        memory = worker._Memory(os.getpid(), has_below=True)
        assert all(memory.mb() > 0 for _ in range(3))
        assert looked == [os.getpid()] * n_looks


def test_only_the_pipeline_has_processes_below(measured: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "processes_below", lambda pid: [pid, -1])
    monkeypatch.setattr(worker, "_resident_mb", lambda pid, is_shared_in=True: 5.0 if is_shared_in else 50.0)
    for kind, status in (("matching", TIMED_OUT), ("on-spark", OUT_OF_MEMORY)):
        assert measured(_run(kind, limit_s=0.2, memory_mb=40.0), _PREPARED)["status"] == status
