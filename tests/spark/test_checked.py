"""A snapshot is checked once on a machine, and again when one of its files has changed."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

import pytest

from siftline import Engine
from siftline.errors import SnapshotError
from siftline.spark.checked import open_checked
from siftline.storage import snapshot

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    engine = Engine()
    engine.add("a = 1", id="one")
    engine.save(tmp_path / "engine")
    return str(tmp_path / "engine")


def test_checked_once(saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []
    verified = snapshot._verified

    def counted(*arguments: object) -> object:
        checked.append(arguments)
        return verified(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot, "_verified", counted)
    for _ in range(3):
        assert open_checked(saved).match({"a": 1}) == ["one"]
    assert len(checked) == 1


def test_damage_is_found_before_and_after(saved: str, tmp_path: Path) -> None:
    open_checked(saved)
    weights = tmp_path / "engine" / "weights.npy"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(SnapshotError, match=r"weights\.npy"):
        open_checked(saved)
    weights.unlink()
    with pytest.raises(SnapshotError, match=r"weights\.npy"):
        open_checked(saved)


def test_a_folder_of_others_is_not_believed(saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / f"siftline-checked-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    assert open_checked(saved).match({"a": 1}) == ["one"]
    assert not list(folder.iterdir())
