"""`siftline bench rules`; only the standard library is imported before it runs."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.arguments import check_output, count, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siftline_bench.real_rules.figures import Found
    from siftline_bench.real_rules.measuring import Sizes

VARIABLE: Final = "SIFTLINE_RULES"
# The groups of figures.
_LOADING, _MEMORY, _MATCHING, _COMPARED = "loading", "memory", "matching", "compared"
_GROUPS: Final = (_LOADING, _MEMORY, _MATCHING, _COMPARED)
_DESCRIPTION: Final = """\
Reads Sigma rules, matches events of logs with all of them, and compares the ids with those that DuckDB and SQLite (one
query a rule) and `scan` find. Of each file the first 10,000 events, or the first half if there are fewer, are for
statistics; the others are timed. Nothing about an event is kept from one pass to the next, and one thread works.
"""


def add_parser(actions: Any) -> None:
    """Add `rules` to the commands of `bench`."""
    parser = actions.add_parser(
        "rules",
        help="measure real detection rules on real logs, beside DuckDB; needs siftline[sigma]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rules",
        type=Path,
        metavar="DIR",
        help=f"a folder of Sigma rules, or of sigma-rules.tar.xz; default: what {VARIABLE} names",
    )
    parser.add_argument(
        "--events",
        type=Path,
        action="append",
        metavar="FILE",
        help="JSON Lines, also .xz, .gz or .zst, or an archive of the regression events of Sigma; repeat for several;"
        " default: what lies beside the archive of rules",
    )
    parser.add_argument(
        "--pipelines",
        action="append",
        metavar="NAME",
        help="of pySigma, or a YAML file; repeat for several, `none` for none; default: sysmon, windows-logsources",
    )
    parser.add_argument("--only", action="append", choices=_GROUPS, help="repeat for several; default: all figures")
    parser.add_argument(
        "--compared", type=_number, default=2_000, metavar="N", help="events for DuckDB; default: 2,000"
    )
    parser.add_argument("--sqlite", type=_number, default=200, metavar="N", help="events for SQLite; default: 200")
    parser.add_argument("--scan", type=_number, default=100, metavar="N", help="events for `scan`; default: 100")
    parser.add_argument(
        "--copies",
        type=count,
        default=1,
        metavar="N",
        help="match N times as many rules as well; the target is for 27",
    )
    parser.add_argument("--passes", type=count, default=5, help="default: 5")
    parser.add_argument("--limit-rules", type=count, metavar="N", help="at most so many, evenly spaced, and no targets")
    parser.add_argument("--limit-events", type=count, metavar="N", help="at most the first of a file, and no targets")
    parser.add_argument("--seed", type=int, default=0, help="of the copies; default: 0")
    parser.add_argument("--fail", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append rows there")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--json", action="store_true", help="print the rows instead of a table")
    parser.set_defaults(act=run)


def _number(text: str) -> int:
    return 0 if text == "0" else count(text)


def run(args: argparse.Namespace) -> int:
    """Measure, and show figures with their targets; 1 if one is missed and that matters."""
    from siftline_bench import results
    from siftline_bench.real_rules import figures
    from siftline_bench.tables import aligned, markdown

    check_output(args.output)
    head = {"seed": args.seed, "n_passes": args.passes, "limits": [args.limit_rules, args.limit_events]}
    rows, is_missed = [], False
    for found in _measured(args):
        mine = figures.rows_of(found, head)
        if args.output is not None:
            results.append(mine, args.output)
        rows += mine
        is_missed |= any(each.is_missed for each in found)
    if args.json:
        print("\n".join(map(json.dumps, rows)))
    else:
        print((markdown if args.markdown else aligned)(figures.table(rows)))
    return int(args.fail and is_missed)


def _measured(args: argparse.Namespace) -> Iterator[list[Found]]:
    """Yield the figures of each part of the work when it is done."""
    from siftline_bench.real_rules import data, measuring

    place = _rules(args)
    paths = args.events or data.event_files(place)
    for path in paths:
        data.check_events(path)
    sizes, groups = _sizes(args), args.only or _GROUPS
    with data.rules_folder(place) as folder:
        rules, found = measuring.reading(folder, _pipelines(args), sizes, say)
    yield found
    pairs = data.sample(list(zip(rules.ids, rules.expressions, strict=True)), args.limit_rules or len(rules))
    if not pairs:
        raise ValueError(f"{place}: none of the rules can be matched")
    for number, path in enumerate(paths):
        bench = measuring.Bench.of(pairs, data.read_events(path, args.limit_events), sizes, say)
        if number == 0 and _LOADING in groups:
            yield measuring.loading(bench)
        if number == 0 and _MEMORY in groups:
            yield measuring.memory_figures(bench)
        if _MATCHING in groups:
            yield list(measuring.matching(bench))
        if _COMPARED in groups:
            yield list(measuring.comparing(bench))
        if number == 0 and args.copies > 1:
            yield list(measuring.copying(bench, args.seed))


def _rules(args: argparse.Namespace) -> Path:
    if args.rules is not None:
        return Path(args.rules)
    named = os.environ.get(VARIABLE)
    if not named:
        raise ValueError(f"--rules or {VARIABLE} says where the rules are; they are no part of the project")
    return Path(named)


def _pipelines(args: argparse.Namespace) -> list[str] | None:
    return None if args.pipelines is None else [name for name in args.pipelines if name != "none"]


def _sizes(args: argparse.Namespace) -> Sizes:
    from siftline_bench.real_rules.measuring import Sizes

    return Sizes(
        n_passes=args.passes,
        n_compared=args.compared,
        n_sqlite=args.sqlite,
        n_scanned=args.scan,
        n_copies=args.copies,
        is_judged=args.limit_rules is None and args.limit_events is None,
    )
