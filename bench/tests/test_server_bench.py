"""`siftline bench server` runs, and what streams get is checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from siftline.cli import main

if TYPE_CHECKING:
    import pytest


def test_small_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "server", "--quick", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["publishes_per_s"] > 0
    assert row["n_streams"] == 20
