"""`siftline serve` as a process that is killed and started again, on a file system that may be full."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator

# The first start may have to compile.
FIRST_SECONDS, START_SECONDS = 900.0, 120.0


class Service:
    """One server after the other on one store and one port.

    Parameters
    ----------
    folder : path
        Where the store is.
    options
        Of `siftline serve`.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.store = folder, folder / "store.db"
        self._options = options
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = (folder.parent / "server.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None
        self.n_starts = 0
        self.start_seconds: list[float] = []

    def command(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command of ours beside the server."""
        command = [sys.executable, "-m", "siftline", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def new_key(self, role: str) -> str:
        """Make a key, as an operator does."""
        made = self.command("serve", "--store", str(self.store), "--new-key", role)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def start(self) -> None:
        """Start the server, and wait until it takes requests."""
        command = [sys.executable, "-m", "siftline", "serve", "--store", str(self.store), "--port", str(self.port)]
        began, most = time.monotonic(), START_SECONDS if self.n_starts else FIRST_SECONDS
        # With this, a server that is aborted says first what each of its threads was doing.
        environment = os.environ | {"PYTHONFAULTHANDLER": "1"}
        self._process = subprocess.Popen(
            [*command, *self._options], stdout=self._log, stderr=self._log, env=environment
        )
        self.n_starts += 1
        while not self._answers():
            if self._process.poll() is not None:
                raise AssertionError(f"the server does not start (status {self._process.returncode}): {self.said()}")
            if time.monotonic() - began > most:
                self._process.send_signal(signal.SIGABRT)
                self._process.wait(60)
                raise AssertionError(f"the server does not answer after {most:g} s: {self.said(20_000)}")
            time.sleep(0.05)
        if self.n_starts > 1:
            self.start_seconds.append(time.monotonic() - began)

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/healthz", trust_env=False, timeout=5).status_code == 200
        return False

    def said(self, n_characters: int = 600) -> str:
        """Return what the servers said last."""
        return (self.folder.parent / "server.log").read_text(errors="replace")[-n_characters:]

    def end(self, by: signal.Signals) -> None:
        """End the server by a signal, and wait for it."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended by itself (status {self._process.returncode}): {self.said()}")
        self._process.send_signal(by)
        status = self._process.wait(60)
        if by == signal.SIGTERM and status != 0:
            raise AssertionError(f"the server ended with status {status} when it was told to stop")

    def pause(self, seconds: float) -> None:
        """Let the server stand still for a time, as a machine does that swaps."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def memory_mb(self) -> float:
        """Return how much memory the server has."""
        with contextlib.suppress(OSError):
            assert self._process is not None
            lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
            return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
        return 0.0

    def disk_mb(self) -> float:
        """Return how much room its files take."""
        total = 0
        for folder, _, names in os.walk(self.folder):  # which passes over folders that the server removes meanwhile
            for name in names:
                with contextlib.suppress(OSError):
                    if name != FILLER:
                        total += os.stat(os.path.join(folder, name)).st_blocks * 512
        return total / 2**20

    def close(self) -> None:
        """Kill what is left."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()


FILLER = "filler"


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Fill the file system of a folder, and empty it again."""
    filler = folder / FILLER
    try:
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * (1 << 20))
        with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 512)
        yield
    finally:
        filler.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """Mount a small file system at a folder, and tell whether that is allowed here."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
