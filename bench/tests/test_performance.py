"""PERFORMANCE.md shows the rows that are kept, and is short."""

from __future__ import annotations

from pathlib import Path

import pytest

from siftline_bench.performance import renewed

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "PERFORMANCE.md").read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_rows() -> None:
    """If not: `siftline bench report --performance PERFORMANCE.md`."""
    assert renewed(TEXT, ROOT / "bench" / "results") == TEXT
    assert TEXT.count("<!--end-->") >= 10


def test_it_can_be_read_in_ten_minutes() -> None:
    assert len(TEXT.split()) <= 2_500


def test_a_table_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="no table 'shift'"):
        renewed("<!--shift-->\n<!--end-->", ROOT / "bench" / "results")
