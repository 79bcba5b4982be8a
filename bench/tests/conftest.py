"""The laboratory's tests draw examples as the product's do; shared modules are found in the folder `tests` of those."""

from __future__ import annotations

import conftest  # noqa: F401
import pytest

import siftline


def pytest_configure() -> None:
    """Refuse to run beside older metadata: an entry point of `bench/pyproject.toml` is known once it is installed."""
    if "dbms" not in siftline.indexes():
        raise pytest.UsageError("siftline-bench is installed without its index `dbms`: run `make setup`")
