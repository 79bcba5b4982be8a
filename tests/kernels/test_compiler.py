"""What is compiled is kept as long as none of its sources changes, whichever package they are in."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from numba.core import config

if TYPE_CHECKING:
    from pathlib import Path

HELPER = """\
from siftline.kernels.compiler import inline_kernel

@inline_kernel
def step(number):
    return number + {}
"""
KERNEL = """\
from siftline.kernels.compiler import kernel
from counting_package.inner.helper import step

@kernel
def twice(number):
    return step(step(number))
"""
CALL = """\
from counting_package.inner.kernels import twice
print(twice(0), sum(twice.stats.cache_hits.values()))
"""


def called(folder: Path) -> list[int]:
    """Return the kernel's result in a new process, and how often it was found compiled."""
    outcome = subprocess.run(
        [sys.executable, "-c", CALL],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(word) for word in outcome.stdout.split()]


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_a_changed_helper_compiles_the_kernels_of_another_package_again(tmp_path: Path) -> None:
    package = tmp_path / "counting_package" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "kernels.py").write_text(KERNEL)
    (package / "helper.py").write_text(HELPER.format(1))
    assert called(tmp_path) == [2, 0]
    assert called(tmp_path) == [2, 1]
    (package / "helper.py").write_text(HELPER.format(5))  # as long as before
    assert called(tmp_path) == [10, 0]
