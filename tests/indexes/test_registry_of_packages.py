"""A package brings an index by an entry point, and Siftline's own names stay Siftline's."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

import pytest

import siftline
from siftline.errors import UnknownIndexError

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
from typing import ClassVar
from siftline.indexes.scan import Scan

class Reversed(Scan):
    name: ClassVar[str] = "reversed-scan"
"""

POINTS = """
[siftline.indexes]
reversed-scan = reversed_index:Reversed
sift = reversed_index:Reversed
broken = no_such:X
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a distribution with entry points, as pip would."""
    folder = tmp_path / "reversed-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: reversed\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    (tmp_path / "reversed_index.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("package")
def test_an_index_of_a_package() -> None:
    assert "reversed-scan" in siftline.indexes()
    engine = siftline.Engine("reversed-scan")
    engine.add("a = 1", id=1)
    assert engine.match({"a": 1}) == [1]
    assert siftline.indexes().count("sift") == 1
    assert type(siftline.Engine("sift")._state.index).__module__.startswith("siftline.")


@pytest.mark.usefixtures("package")
def test_an_index_that_cannot_be_loaded_says_so() -> None:
    with pytest.raises(UnknownIndexError, match=r"'broken' of no_such:X cannot be loaded: ModuleNotFoundError"):
        siftline.Engine("broken")


def test_without_the_package() -> None:
    with pytest.raises(UnknownIndexError, match="there is no index 'reversed-scan'"):
        siftline.Engine("reversed-scan")


def test_an_index_of_the_laboratory_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    assert "dbms" not in siftline.indexes()
    with pytest.raises(UnknownIndexError, match=r"'dbms' is not installed: pip install 'siftline\[bench\]' brings it"):
        siftline.Engine("dbms")
