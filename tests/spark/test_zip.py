"""Siftline in a zip file, as `--py-files` ships it, is refused with the reason and the alternative."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import siftline

PACKAGE = Path(siftline.__file__).parent
REASON = "Siftline does not run out of a zip file"
JOB = """
import sys
from siftline.spark import match, session
from spark.directories import directory
spark = session(1, memory="512m", short_lived=True, settings={"spark.python.daemon.module": "pyspark.daemon"})
spark.sparkContext.addPyFile(sys.argv[1])
frame = spark.createDataFrame([(1, '{"a": 1}')], "id bigint, event string")
match(frame, directory(sys.argv[2], [(1, "a = 1")])).collect()
"""


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    file = tmp_path / "siftline.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for source in PACKAGE.rglob("*.py"):
            archive.write(source, Path("siftline") / source.relative_to(PACKAGE))
    return file


def run(*arguments: str, paths: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode
    return done.stderr


def test_on_the_driver(zipped: Path) -> None:
    for code in ("import siftline.spark", "import siftline; siftline.Engine()"):
        said = run(code, paths=[str(zipped)])
        assert f"ImportError: {REASON} ({zipped})" in said
        assert "pip install 'siftline[spark]'" in said


@pytest.mark.slow
def test_on_workers(zipped: Path, tmp_path: Path) -> None:
    tests = str(Path(__file__).parent.parent)
    said = run(JOB, str(zipped), str(tmp_path / "index"), paths=[tests, str(PACKAGE.parent)])
    assert REASON in said
