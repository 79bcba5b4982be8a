"""`siftline bench generate`; only the standard library is imported before it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siftline_bench.arguments import add_parameters, count, parameters_of

if TYPE_CHECKING:
    import argparse


def add_parser(actions: Any) -> None:
    """Add `generate` to the commands of `bench`."""
    parser = actions.add_parser("generate", help="draw a workload and write it as Parquet")
    parser.add_argument("workload", metavar="WORKLOAD")
    add_parameters(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="a new directory for the files")
    parser.add_argument(
        "--chunk", type=count, metavar="N", help="draw so many subscriptions at a time; default: 1 M; part of the seed"
    )
    parser.add_argument("--workers", type=count, metavar="N", help="processes that draw chunks; default: all cores")
    parser.add_argument("--spark", action="store_true", help="draw chunks on Spark; needs siftline[spark]")
    parser.set_defaults(act=run)


def run(args: argparse.Namespace) -> int:
    """Draw and write."""
    from siftline_bench.workloads import CHUNK, Drawing

    if args.output.exists():
        raise ValueError(f"{args.output} exists already")
    parameters = parameters_of(args.workload, args)
    drawing = Drawing(args.workload, parameters, args.seed, args.chunk or CHUNK)
    if args.spark:
        from siftline.spark import session

        drawing.write_by_spark(session(args.workers, short_lived=True), args.output)
    else:
        drawing.write(args.output, workers=args.workers or len(os.sched_getaffinity(0)))
    print(f"{parameters.n_subscriptions:,} subscriptions and {parameters.n_events:,} events in {args.output}")
    return 0
