"""`siftline demo` where it cannot run; tests/spark/test_demo.py runs it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from command_line import run_fixture  # noqa: F401

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from command_line import Run


def test_without_the_extra(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    outcome = run("demo", "--output", str(tmp_path / "demo"))
    assert outcome.status == 2
    assert outcome.err.endswith("PySpark is not installed: pip install 'siftline[spark]'\n")
    assert not (tmp_path / "demo").exists()


def test_a_folder_of_somebody_else_is_kept(run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "data" / "thesis.txt"
    kept.parent.mkdir()
    kept.write_text("important")
    outcome = run("demo", "--quick", "--output", str(tmp_path))
    assert outcome.status == 2
    assert outcome.err == f"siftline: {kept.parent} exists and is not from a demo: choose another --output\n"
    assert kept.read_text() == "important"
