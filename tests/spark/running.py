"""A plugin for pytest: one Spark session for all tests on Spark, and one worker that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from siftline.spark import session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all tests on Spark together (`--dist loadgroup`), because each worker would start one."""
    for item in items:
        if "spark" in item.path.parent.parts or item.name == "test_examples_run[README.md]":
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": folder / "warehouse",
        # Two tasks run at a time, and tests have few rows.
        "spark.default.parallelism": 2,
        "spark.sql.adaptive.enabled": "false",
        # Spark repeats a failed task three times by default, locally once; a bug shows at once.
        "spark.task.maxFailures": 1,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIFTLINE_MIRRORS", str(folder / "mirrors"))
        running = session(2, memory="1g", short_lived=True, settings=settings)
        running.sparkContext.setLogLevel("ERROR")
        yield running
        running.stop()
