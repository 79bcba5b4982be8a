"""Times on the command line: the option `--now`, the instant of `now()` in conditions, and times with a zone."""

from __future__ import annotations

import argparse
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

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


def zoned_time(name: str, value: Any) -> datetime:
    """Return a time from a text or a datetime; raise ValueError if it is invalid or has no time zone."""
    example = "such as 2030-01-31T12:00:00Z"
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a time, {example}, not {value!r}") from None
    if moment.tzinfo is None:
        raise ValueError(f"{name} needs a time zone, {example}, and {value!s} has none")
    return moment


def _instant(text: str) -> int:
    from siftline.model import instant_of_text

    instant = instant_of_text(text)
    if instant is None:
        raise argparse.ArgumentTypeError(f"expected a time such as 2026-01-31T10:00:00Z, found {text!r}")
    return instant
