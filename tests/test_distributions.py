"""Two distributions: what their wheels carry, and that they are of one version."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import siftline

ROOT = Path(__file__).parents[1]


def project(folder: Path) -> dict[str, Any]:
    said: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return said


def test_each_distribution_asks_for_its_own_version_of_the_other() -> None:
    assert project(ROOT)["optional-dependencies"]["bench"] == [f"siftline-bench=={siftline.__version__}"]
    assert f"siftline=={siftline.__version__}" in project(ROOT / "bench")["dependencies"]


@pytest.mark.parametrize(
    ("folder", "package", "others"),
    [(ROOT, "siftline", {"sigma"}), (ROOT / "bench", "siftline_bench", set())],
    ids=["product", "laboratory"],
)
def test_a_wheel_carries_its_package_and_nothing_else(
    folder: Path, package: str, others: set[str], tmp_path: Path
) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=folder, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"{package}-{siftline.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    about = f"{package}-{siftline.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {package, about, *others}
    sources = {path.relative_to(folder / "src").as_posix() for path in (folder / "src").rglob("*.py")}
    assert sources <= set(names)
    figures = [name for name in names if name.endswith(".yaml")]
    assert bool(figures) == (package == "siftline_bench")
