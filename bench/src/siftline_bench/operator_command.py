"""`siftline bench operators`; only the standard library is imported before it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.arguments import check_output, count, results_path, say

if TYPE_CHECKING:
    import argparse

FIGURES: Final = ("calls", "drift", "order", "overhead", "index")


def add_parser(actions: Any) -> None:
    """Add `operators` to the commands of `bench`."""
    parser = actions.add_parser("operators", help="count the calls of all schedules against their targets")
    parser.add_argument("--only", action="append", choices=FIGURES, help="repeat for several; default: all figures")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not what it saves")
    parser.add_argument("--events", type=count, metavar="N", help="default: 200")
    parser.add_argument("--seed", type=int, default=0, help="the first of several; default: 0")
    parser.add_argument("--seeds", type=count, metavar="N", help="how many; default: 3")
    parser.add_argument("--fail", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument(
        "--output",
        type=Path,
        default=results_path("operators"),
        metavar="FILE",
        help="default: results/operators.jsonl",
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--json", action="store_true", help="print the rows instead of tables")
    parser.set_defaults(act=run)


def run(args: argparse.Namespace) -> int:
    """Measure what was asked for; 1 if a target is missed and that matters."""
    from siftline_bench import operator_tables, operators, results, targets
    from siftline_bench.tables import aligned, markdown

    check_output(args.output)
    sizes = operators.with_seeds(operators.QUICK if args.quick else operators.Sizes(), args.seeds, args.events)
    rows = []
    for row in operators.measure(args.only or FIGURES, sizes, args.seed, say):
        rows.append(row)
        results.append([{**row, **results.circumstances()}], args.output)
    verdicts = operator_tables.verdicts(rows)
    if args.json:
        print("\n".join(map(json.dumps, rows)))
    else:
        shown = markdown if args.markdown else aligned
        print("\n\n".join(map(shown, [*operator_tables.tables(rows), targets.table(verdicts)])))
    say(f"rows appended to {args.output}")
    return int(args.fail and any(verdict.is_bad for verdict in verdicts))
