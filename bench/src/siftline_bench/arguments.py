"""What the commands of `siftline bench` share; only the standard library is imported here."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from siftline_bench.workloads import Parameters


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


def results_path(name: str) -> Path:
    """Return where rows go unless another file is asked for: the folder `results`, at the top of a checkout its own."""
    folder = Path("bench", "results")
    return (folder if folder.is_dir() else Path("results")) / f"{name}.jsonl"


def check_output(path: Path | None) -> None:
    """Refuse before the work begins what could not be written after it."""
    if path is not None and path.is_dir():
        raise ValueError(f"{path} is a directory; rows are appended to a file")


def add_parameters(parser: argparse.ArgumentParser) -> None:
    """Add what decides how a workload is drawn."""
    parser.add_argument("--size", type=count, metavar="N", help="number of subscriptions")
    parser.add_argument("--events", type=count, metavar="N", help="number of events")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument(
        "--set", action="append", default=[], metavar="PARAMETER=VALUE", help="change another parameter"
    )


def parameters_of(name: str, args: argparse.Namespace) -> Parameters:
    """Return the parameters of a workload as they were asked for."""
    from siftline_bench.workloads import make_parameters

    changes = dict(pair(text) for text in args.set)
    if args.size is not None:
        changes["n_subscriptions"] = args.size
    if args.events is not None:
        changes["n_events"] = args.events
    return make_parameters(name, **changes)


def pair(text: str) -> tuple[str, Any]:
    """Read NAME=NUMBER."""
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        raise ValueError(f"{text!r} is not of the form NAME=NUMBER") from None
