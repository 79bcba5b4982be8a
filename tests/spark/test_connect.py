"""The pipeline through Spark Connect, from a client that has no SparkContext."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from siftline.spark import compile, match
from spark.test_remote import TESTS, events, rows_of, subscriptions

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(find_spec("grpc_status") is None, reason="needs pip install 'pyspark[connect]'")
def test_matches_are_those_of_a_classic_session(spark: Any, tmp_path: Path) -> None:
    paths = [str(TESTS), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(TESTS / "spark" / "run_connect.py"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    index = compile(subscriptions(spark), tmp_path / "classic")
    wanted = rows_of(match(events(spark), index, dead_letters="ignore"))
    for name in ("replicated", "sharded", "files"):
        assert rows_of(spark.read.parquet(str(tmp_path / name))) == wanted
