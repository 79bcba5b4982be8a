from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Share the session with the other folder of tests on Spark, that of the product."""
    config.pluginmanager.import_plugin("spark.running")
