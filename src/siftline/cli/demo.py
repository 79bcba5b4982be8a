"""`siftline demo`: runs the pipeline on Spark with generated wish lists and products, and writes a report."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from siftline.cli.match import count
from siftline.cli.problems import OK, CannotRunError, say, show

if TYPE_CHECKING:
    import argparse

NAME: Final = "demo"
SUMMARY: Final = "run the pipeline on Spark with generated wish lists and products, and write a report"
DETAILS: Final = """\
Generates products and wish lists, collects statistics of the products, compiles the wish lists into an index, matches
the products, and streams more of them while wish lists change. DIR/report.html shows the results, with throughput,
charts and explained notifications; DIR/figures.json has the same numbers, DIR/data all data that was read and written.
The same seed gives the same wish lists, products and matches.

Needs the extra `[spark]`, which includes Java in case there is none.
"""
EXAMPLES: Final = """\
examples:
  siftline demo
  siftline demo --quick
  siftline demo --subscriptions 1000000 --events 500000 --output /tmp/demo
"""

_OUTPUT: Final = "siftline-demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    parser.add_argument("--subscriptions", metavar="N", type=count, help="how many wish lists (200000)")
    parser.add_argument("--events", metavar="N", type=count, help="how many products to match (200000)")
    parser.add_argument("--stream-events", metavar="N", type=count, help="how many products to stream (20000)")
    parser.add_argument("--quick", action="store_true", help="a tenth of all sizes that are not given")
    parser.add_argument("--output", metavar="DIR", type=Path, default=Path(_OUTPUT), help=f"a folder ({_OUTPUT})")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="the seed of the random numbers (1)")
    parser.add_argument("--cores", metavar="N", type=count, help="how many tasks at a time (all cores)")
    parser.add_argument("--memory", metavar="SIZE", default="2g", help="the memory of the JVM (2g)")


def run(args: argparse.Namespace) -> int:
    """Run the demo."""
    if importlib.util.find_spec("pyspark") is None:
        raise CannotRunError("the demo runs on Spark, and PySpark is not installed: pip install 'siftline[spark]'")
    pipeline = importlib.import_module("siftline.demo.pipeline")
    usual = pipeline.QUICK if args.quick else pipeline.Sizes()
    given = {"subscriptions": args.subscriptions, "events": args.events, "streamed": args.stream_events}
    sizes = usual._replace(**{name: number for name, number in given.items() if number is not None})
    options = {"seed": args.seed, "cores": args.cores, "memory": args.memory}
    pipeline.run_demo(args.output, sizes, _silent if args.quiet else say, **options)
    show(f"report: {(args.output / pipeline.REPORT).absolute()}")
    return OK


def _silent(text: str) -> None:
    """Print nothing."""
