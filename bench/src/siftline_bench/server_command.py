"""`siftline bench server`; only the standard library is imported before it runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siftline_bench.arguments import check_output, count, say

if TYPE_CHECKING:
    import argparse


def add_parser(actions: Any) -> None:
    """Add `server` to the commands of `bench`."""
    parser = actions.add_parser("server", help="measure the server over loopback; needs siftline[server]")
    parser.add_argument("--size", type=count, metavar="N", help="number of stored subscriptions; default: 100,000")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast it is")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append rows there")
    parser.add_argument("--json", action="store_true", help="print the rows instead of tables")
    parser.set_defaults(act=run)


def run(args: argparse.Namespace) -> int:
    """Measure, and show figures and verdicts."""
    from siftline_bench import results, server, targets
    from siftline_bench.tables import aligned

    check_output(args.output)
    sizes = server.QUICK if args.quick else server.Sizes()
    if args.size is not None:
        sizes = replace(sizes, n_subscriptions=args.size)
    rows = server.server(sizes, args.seed, say)
    tables = [server.lines_of(rows), targets.table(server.verdicts(rows))]
    print("\n".join(map(json.dumps, rows)) if args.json else "\n\n".join(map(aligned, tables)))
    if args.output is not None:
        results.append([{"seed": args.seed, **row, **results.circumstances()} for row in rows], args.output)
    return 0
