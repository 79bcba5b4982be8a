"""The option `--now` of commands that match: the instant of `now()` in conditions."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from siftline.model import Timestamp


def add_now(parser: argparse.ArgumentParser) -> None:
    """Define the option."""
    parser.add_argument(
        "--now",
        metavar="TIME",
        type=_instant,
        help="the instant of now(), such as 2026-01-31T10:00:00Z (the current time)",
    )


def moment_of(args: argparse.Namespace) -> Timestamp:
    """Return the instant of the option, or the current time."""
    from siftline.model import Timestamp

    return Timestamp(time.time_ns() if args.now is None else args.now)


def _instant(text: str) -> int:
    from siftline.model import instant_of_text

    instant = instant_of_text(text)
    if instant is None:
        raise argparse.ArgumentTypeError(f"expected a time such as 2026-01-31T10:00:00Z, found {text!r}")
    return instant
