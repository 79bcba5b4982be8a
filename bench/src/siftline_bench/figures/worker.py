"""Another process that measures: it can be ended when a run takes too long or too much, and the next one starts anew.

It lives on from run to run, because loading the kernels takes as long as a small run, and because runs of the same
ground share what was prepared. Where it ends, all processes below it end too, and its temporary files go.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.errors import WrongIdsError
from siftline_bench.figures.kinds import kind
from siftline_bench.spark_processes import processes_below

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row

_LOOK_S: Final = 0.05  # between two looks at clock and memory
# The same for the memory of processes below: finding them takes milliseconds, because all of the machine are looked at.
_LOOK_BELOW_S: Final = 1.0
# The kind whose processes below are the pipeline. After it Java lives on, and is no part of another run.
_ON_SPARK: Final = "on-spark"
_ENDED_S: Final = 10.0
_PREPARED_S: Final = 600.0
TIMED_OUT: Final = "timed out"
OUT_OF_MEMORY: Final = "out of memory"
OUT_OF_DISK: Final = "out of disk"


class RunFailedError(Exception):
    """A run that gives no row: its process met an error, or an end, that is no finding about the index."""


class Worker:
    """The process, seen from the one that started it."""

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache
        self._process: Any = None
        self._connection: Any = None
        self._folder = ""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def measure(self, run: Run) -> Row:
        """Return the columns of the row of a run.

        Raises
        ------
        WrongIdsError
            If an index finds other ids than it must.
        RunFailedError
            If something else goes wrong.
        """
        self._start()
        self._connection.send(run)
        # Drawing a workload, `fast-scan` over it, and the compiler are no fault of the index.
        word, content = self._wait(run, _PREPARED_S + run.settings.limit_s)
        is_prepared = word == "prepared"
        if is_prepared:
            word, content = self._wait(run, run.settings.limit_s)
        if word == "row":
            row: Row = content
            return row
        self._end()  # whatever it was, the next run shall not suffer from it
        if word == "wrong ids":
            raise WrongIdsError(content)
        if word == "failed":
            raise RunFailedError(content)
        # A disk that is too small for a run is a finding, and `on-spark` says so before anything is drawn.
        if not is_prepared and word != OUT_OF_DISK:
            raise RunFailedError(f"{word} while preparing ({content}): no finding about the index")
        return {"mode": run.kind, "status": word, "reason": content}

    def _start(self) -> None:
        if self._process is not None and self._process.is_alive():
            return
        self._end()  # of one that has ended by itself, what is left
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._folder = tempfile.mkdtemp(prefix="siftline-figures-")
        self._process = context.Process(target=_serve, args=(theirs, self._cache, self._folder), daemon=True)
        self._process.start()
        theirs.close()

    def _end(self) -> None:
        if self._process is not None:
            below = [pid for pid in processes_below(self._process.pid) if pid != self._process.pid]
            self._process.kill()
            self._process.join(_ENDED_S)
            self._connection.close()
            for pid in below:  # Spark: Java, and the workers that it has started
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self._folder, ignore_errors=True)
        self._process = None

    def _wait(self, run: Run, seconds: float) -> tuple[str, Any]:
        end = time.monotonic() + seconds
        memory = _Memory(self._process.pid, has_below=run.kind == _ON_SPARK)
        while not self._connection.poll(_LOOK_S):
            if time.monotonic() > end:
                return TIMED_OUT, f"more than {seconds:g} s"
            if memory.mb() > run.settings.memory_mb:
                return OUT_OF_MEMORY, f"more than {run.settings.memory_mb:,.0f} MB"
        try:
            answer: tuple[str, Any] = self._connection.recv()
        except EOFError:
            self._process.join(_ENDED_S)
            return _death(self._process.exitcode)
        return answer


def _death(exit_code: int | None) -> tuple[str, str]:
    """Say what the end of a process means: nobody but the system's guard of memory kills it with signal 9."""
    return (OUT_OF_MEMORY, "ended by the system") if exit_code == -9 else ("failed", f"exit status {exit_code}")


class _Memory:
    """The memory of a process, and if asked of those below it: Java, and the Python workers that it has started.

    Of the process all that is resident counts, of those below what is not shared: an index file that all workers map
    would count once for each, and the system can let go of it. What a worker still shares with the one that it was
    forked from does count for each. That was 60 MB a worker, and to leave it out (`smaps_rollup`) the system would have
    to walk through all pages.
    """

    def __init__(self, pid: int, has_below: bool) -> None:
        self._pid, self._has_below = pid, has_below
        self._below_mb, self._next_look = 0.0, 0.0

    def mb(self) -> float:
        """Return it; of those below, what it was when they were last looked at."""
        now = time.monotonic()
        if self._has_below and now >= self._next_look:
            below = (pid for pid in processes_below(self._pid) if pid != self._pid)
            self._below_mb = sum(_resident_mb(pid, is_shared_in=False) for pid in below)
            self._next_look = now + _LOOK_BELOW_S
        return _resident_mb(self._pid) + self._below_mb


def _resident_mb(pid: int, is_shared_in: bool = True) -> float:
    """Return the memory of a process, with or without files and what else is shared.

    It is 0 if the process is gone, or the system does not say.
    """
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return 0.0
    pages = resident if is_shared_in else resident - shared
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


# in the other process


def _serve(connection: Connection, cache: Path | None, folder: str) -> None:
    """Measure what comes, until the connection is closed; temporary files go into the folder."""
    tempfile.tempdir = folder
    name, ground = "", None
    while True:
        try:
            run = connection.recv()
        except EOFError:
            return
        try:
            if run.ground != name:
                _let_go(ground)
                name, ground = "", None  # before the next one takes memory
            ground = kind(run.kind).prepare(run, cache) if name == "" else ground
            name = run.ground
            kind(run.kind).use_once(ground, run)
            connection.send(("prepared", None))
            connection.send(("row", kind(run.kind).measure(ground, run)))
        except WrongIdsError as error:
            connection.send(("wrong ids", str(error)))
        except MemoryError as error:
            connection.send((OUT_OF_MEMORY, str(error) or "memory could not be had"))
        except Exception as error:
            connection.send(_failure(error))


def _failure(error: Exception) -> tuple[str, str]:
    """Say what an error means: a full disk is a finding."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return OUT_OF_DISK, str(error.strerror)
    return "failed", "".join(traceback.format_exception(error))


def _let_go(ground: Any) -> None:
    """Close a ground that has more than memory: a session, files."""
    close = getattr(ground, "close", None)
    if close is not None:
        close()
