"""What `siftline bench` does with the papers' figures; at the top, only the standard library is imported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.arguments import count, results_path, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from siftline_bench.figures.harness import Outcome
    from siftline_bench.results import Row

_SCALES: Final = ("small", "paper")
# Options of `run` that workloads have and figures have not.
_OF_WORKLOADS: Final = ("index", "size", "events", "set", "sample", "slots", "batch", "interleaved", "json")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` takes for figures."""
    parser.add_argument("--all", action="store_true", dest="is_all", help="all figures of all papers")
    parser.add_argument("--scale", choices=_SCALES, help="of figures: quick sizes, or the papers'; default: small")
    parser.add_argument("--again", action="store_true", help="measure figures anew that have rows already")
    parser.add_argument(
        "--rounds",
        type=count,
        metavar="N",
        help="of figures: measure what verdicts hang on up to so often; default: 15, at the papers' sizes 1",
    )


def add_report(actions: Any) -> None:
    """Add `report`."""
    parser = actions.add_parser("report", help="write figures and claims of the papers as one HTML page")
    parser.add_argument("papers", nargs="*", metavar="PAPER", help="default: all")
    parser.add_argument("--scale", choices=_SCALES, default="small", help="default: small")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="default: results/figures-SCALE.jsonl")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--output", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html")
    parser.add_argument("--markdown", action="store_true", help="also print what all figures say together, as tables")
    parser.add_argument(
        "--performance", type=Path, metavar="FILE", help="write no page: make the tables of PERFORMANCE.md anew"
    )
    parser.set_defaults(act=report)


def report(args: argparse.Namespace) -> int:
    """Write the page, and say what the verdicts are."""
    if args.performance is not None:
        return _renew(args.performance)
    from siftline_bench.figures import PAPERS, chosen, claims, harness, summary
    from siftline_bench.figures.report import html_of
    from siftline_bench.figures.speed import steadied
    from siftline_bench.tables import markdown

    papers = args.papers or list(PAPERS)
    if unknown := set(papers) - PAPERS.keys():
        raise ValueError(f"there is no paper {', '.join(sorted(unknown))} (there are: {', '.join(PAPERS)})")
    rows = steadied(harness.rows_by_run(args.rows or harness.path_of(args.scale)))
    if not rows:
        raise ValueError("there are no rows: `siftline bench run --all` makes them")
    args.output.write_text(html_of(args.scale, rows, args.seed, papers), encoding="utf-8")
    found = claims.verdicts([each for each in claims.claims() if each.paper in papers], args.scale, rows, args.seed)
    for word in claims.VERDICTS:
        numbers = [str(each.claim.number) for each in found if each.word == word]
        if numbers:
            print(f"{word}: {len(numbers)} ({', '.join(numbers)})")
    if unsure := [str(each.claim.number) for each in found if each.hangs_on]:
        print(f"open, because a number that decides is near to its bound: {', '.join(unsure)}")
    if args.markdown:
        for table in summary.tables(chosen(papers), args.scale, rows, args.seed):
            print(f"{table.title}\n\n{markdown([table.heading, *table.lines])}\n")
    print(args.output)
    return 0


def _renew(path: Path) -> int:
    from siftline_bench.performance import renewed

    path.write_text(renewed(path.read_text(encoding="utf-8"), results_path("").parent), encoding="utf-8")
    print(path)
    return 0


def changed_verdicts(old: Sequence[Row], new: Sequence[Row]) -> list[str]:
    """Return the claims whose verdict is another one with other rows; rows of figures say which scale they are of."""
    from siftline_bench.figures.claims import NOT_MEASURED, claims, verdicts
    from siftline_bench.figures.harness import by_run
    from siftline_bench.figures.speed import steadied

    changed = []
    for scale in sorted({str(row["scale"]) for row in new if "run" in row}):
        words = []
        for rows in (old, new):
            mine = steadied(by_run(row for row in rows if row.get("scale") == scale))
            words.append({each.claim.number: each.word for each in verdicts(claims(), scale, mine)})
        changed += [
            f"claim {number}: {before}, then {words[1][number]}"
            for number, before in words[0].items()
            if before != words[1][number] and NOT_MEASURED not in (before, words[1][number])
        ]
    return changed


def is_asked(args: argparse.Namespace) -> bool:
    """Return whether `run` was asked for figures; to ask for figures and workloads at once is a mistake."""
    if args.is_all:
        if args.names:
            raise ValueError("--all means all figures; leave it out to run some")
        return True
    if not args.names:
        raise ValueError("give names of workloads, figures or papers, or --all for all figures")
    from siftline_bench.workloads import workloads

    others = [name for name in args.names if name not in workloads()]
    if others and len(others) < len(args.names):
        raise ValueError(f"{', '.join(others)}: figures and workloads are run by two calls")
    return bool(others) and (args.scale is not None or _are_figures(others))


def _are_figures(names: list[str]) -> bool:
    """Return whether these are figures; where figures cannot be read, nothing is."""
    from siftline_bench.figures.registry import is_figure

    return any(is_figure(name) for name in names)


def run(args: argparse.Namespace) -> int:
    """Measure figures; 1 if ids were wrong or a run failed."""
    from siftline_bench.figures import chosen, harness

    given = [f"--{name}" for name in _OF_WORKLOADS if getattr(args, name)]
    if given:
        raise ValueError(f"{', '.join(given)}: figures say themselves how they are measured")
    scale = args.scale or "small"
    path = args.output or harness.path_of(scale)
    outcome = harness.measure(
        chosen(args.names),
        scale,
        path,
        say,
        seed=args.seed,
        cache=args.cache,
        is_again=args.again,
        most_rounds=args.rounds,
    )
    _print_outcome(outcome, path)
    return int(bool(outcome.wrong or outcome.failures))


def _print_outcome(outcome: Outcome, path: Path) -> None:
    counts = ", ".join(f"{n} {status}" for status, n in outcome.statuses.items())
    more = f", {outcome.n_more} once more" if outcome.n_more else ""
    n_runs = f"{outcome.n_runs} runs measured{more}{f' ({counts})' if counts else ''}"
    print(f"{n_runs}, {outcome.n_earlier} were there: {path}")
    for text in outcome.failures:
        print(f"siftline bench: failed, no row is written: {text}", file=sys.stderr)
    for text in outcome.wrong:
        print(f"siftline bench: WRONG IDS, no row is written: {text}", file=sys.stderr)


def print_list() -> None:
    """Print the figures by paper, with how many runs each has and what it should take."""
    from siftline_bench.figures import PAPERS, figures, harness

    for paper, title in PAPERS.items():
        mine = [each for each in figures().values() if each.paper == paper]
        print(f"figures of {paper}: {title}")
        for each in mine:
            budgets = [
                f"{scale} {len(each.runs(scale))} runs, {each.settings(scale).seconds:g} s" for scale in each.scales
            ]
            print(f"    {each.name}: {each.title} ({'; '.join(budgets)})")
    for scale in _SCALES:
        n_runs, seconds = harness.planned(list(figures().values()), scale)
        print(f"all figures, --scale {scale}: {n_runs} different runs, {seconds / 60:,.0f} min")


def as_json() -> dict[str, Any]:
    """Return the same for machines."""
    from siftline_bench.figures import figures

    return {
        each.name: {
            "paper": each.paper,
            "where": each.where,
            "title": each.title,
            "scales": {
                scale: {"runs": len(each.runs(scale)), "seconds": each.settings(scale).seconds} for scale in each.scales
            },
        }
        for each in figures().values()
    }
