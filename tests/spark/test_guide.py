"""The code blocks of the guide run as printed, in the session of the other tests."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parent.parent.parent / "docs" / "spark.md"


def test_examples_run(spark: Any) -> None:
    results = doctest.testfile(str(GUIDE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 0
    assert results.failed == 0
