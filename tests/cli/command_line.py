"""Running commands in this process, and writing their input: fixtures that the tests of this folder import.

A second conftest.py would clash with the first for the type checker, because test folders are no packages.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from siftline.cli import main
from siftline.kernels.compiler import _FirstCompilation

if TYPE_CHECKING:
    from pathlib import Path


class Outcome(NamedTuple):
    status: int
    out: str
    err: str

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def pairs(self) -> set[tuple[int, int | str]]:
        return {(row["event"], row["subscription"]) for row in self.rows()}


Run = Callable[..., Outcome]
Write = Callable[[str, Any], str]


@pytest.fixture(name="run")
def run_fixture(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    # Whether kernels are compiled or loaded depends on what ran before: that line would come and go.
    monkeypatch.setattr(_FirstCompilation, "said", True)

    def run(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        status = main(arguments)
        out, err = capfdbinary.readouterr()
        return Outcome(status, out.decode(), err.decode())

    return run


@pytest.fixture(name="write")
def write_fixture(tmp_path: Path) -> Write:
    """Write text, bytes, or a list of JSON values as lines; return the path."""

    def write(name: str, content: Any) -> str:
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(json.dumps(value) + "\n" for value in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write
