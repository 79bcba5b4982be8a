"""What the commands of `siftline bench` share; only the standard library is imported here."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def count(text: str) -> int:
    """Read a positive number; 1e6, 50_000 and 1,000,000 are welcome."""
    try:
        number = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        number = 0.0
    if number < 1 or number != int(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(number)


def say(text: str) -> None:
    """Tell people what is going on."""
    print(text, file=sys.stderr, flush=True)


def check_output(path: Path | None) -> None:
    """Refuse before the work begins what could not be written after it."""
    if path is not None and path.is_dir():
        raise ValueError(f"{path} is a directory; rows are appended to a file")
