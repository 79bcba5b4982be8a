"""A snapshot is checked once on a machine, and again when one of its files has changed."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest

from siftline import Engine
from siftline.errors import SnapshotError
from siftline.spark.runtime.checked import open_checked
from siftline.storage import snapshot

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    engine = Engine()
    engine.add("a = 1", id="one")
    engine.save(tmp_path / "engine")
    age(tmp_path / "engine")
    return str(tmp_path / "engine")


def age(folder: Path) -> None:
    """Let files have been written some time ago."""
    for file in (folder, *folder.rglob("*")):
        os.utime(file, (1e9, 1e9))


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Count what is compared with its checksums."""
    found: list[object] = []
    verified = snapshot._verified

    def counted(*arguments: object) -> object:
        found.append(arguments)
        return verified(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot, "_verified", counted)
    return found


def test_checked_once(saved: str, checked: list[object]) -> None:
    for _ in range(3):
        assert open_checked(saved).match({"a": 1}) == ["one"]
    assert len(checked) == 1


def test_links_make_no_difference(saved: str, tmp_path: Path, checked: list[object]) -> None:
    """`compact` links what nothing changed in."""
    open_checked(saved)
    shutil.copytree(saved, tmp_path / "next", copy_function=os.link)
    open_checked(saved)
    assert len(checked) == 1


def test_new_files_are_checked_until_they_are_older(saved: str, checked: list[object]) -> None:
    os.utime(f"{saved}/weights.npy")
    for _ in range(2):
        open_checked(saved)
    assert len(checked) == 2


def test_old_marks_are_removed(saved: str, tmp_path: Path) -> None:
    folder = tmp_path / f"siftline-checked-{os.getuid()}"
    folder.mkdir(mode=0o700)
    (folder / "old").touch()
    os.utime(folder / "old", (0, 0))
    open_checked(saved)
    assert not (folder / "old").exists()
    assert len(list(folder.iterdir())) == 1


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
