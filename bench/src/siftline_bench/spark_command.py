"""`siftline bench spark`; only the standard library is imported before it runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.arguments import check_output, count, results_path, say

if TYPE_CHECKING:
    import argparse

GROUPS: Final = ("compile", "match", "sharded", "baselines", "streaming", "growth", "scale-up", "simulation")


def add_parser(actions: Any) -> None:
    """Add `spark` to the commands of `bench`."""
    parser = actions.add_parser("spark", help="measure the pipeline on Spark, beside SQL, against its targets")
    parser.add_argument("--only", action="append", choices=GROUPS, help="repeat for several; default: all figures")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast it is")
    parser.add_argument("--size", type=count, metavar="N", help="number of subscriptions; default: 1 M")
    parser.add_argument("--passes", type=count, help="default: 3")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--fail", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep drawn workloads there")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="for tables and indexes while it runs; default: /tmp"
    )
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw SVG files there")
    parser.add_argument(
        "--output",
        type=Path,
        default=results_path("spark"),
        metavar="FILE",
        help="default: results/spark.jsonl",
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--json", action="store_true", help="print the rows instead of tables")
    parser.set_defaults(act=run)


def run(args: argparse.Namespace) -> int:
    """Measure what was asked for; 1 if a target is missed and that matters."""
    from siftline_bench import results, spark, spark_plots, spark_simulation, targets
    from siftline_bench.tables import aligned, markdown

    check_output(args.output)
    groups = args.only or GROUPS
    given = {"n_subscriptions": args.size, "n_passes": args.passes}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    sizes = replace(spark.QUICK if args.quick else spark.Sizes(), **changes)
    figures, rows = [], []
    shown = markdown if args.markdown else aligned
    for figure in spark.measure(groups, sizes, args.seed, args.cache, say, args.folder):
        say(f"{figure.head['workload']}: {figure.reading.what}: {targets.shown(figure.reading.value)}")
        figures.append(figure)
        rows.append(figure.row)
        results.append(rows[-1:], args.output)
    verdicts = spark.verdicts(figures)
    if "simulation" in groups:
        drawn = spark_simulation.QUICK if args.quick else spark_simulation.Sizes()
        loads = list(spark_simulation.simulate(spark_simulation.Plan(), drawn, args.seed, args.cache, say))
        results.append([{**row, **results.circumstances()} for row in loads], args.output)
        rows += loads
        if not args.json:
            print(shown(spark_simulation.table(loads)))
    if args.json:
        print("\n".join(json.dumps(row) for row in rows))
    elif figures:
        print(shown(targets.table(verdicts)))
    if args.plots is not None:
        for path in spark_plots.draw(rows, args.plots):
            say(f"drawn: {path}")
    say(f"rows appended to {args.output}")
    return int(args.fail and any(verdict.is_bad for verdict in verdicts))
