"""What `siftline bench` does with the papers' figures; at the top, only the standard library is imported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from siftline.bench.arguments import say

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from siftline.bench.figures.harness import Outcome

_SCALES: Final = ("small", "paper")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` takes for figures."""
    parser.add_argument("--all", action="store_true", dest="is_all", help="all figures of all papers")
    parser.add_argument("--scale", choices=_SCALES, help="of figures: quick sizes, or the papers'; default: small")
    parser.add_argument("--again", action="store_true", help="measure figures anew that have rows already")


def is_asked(args: argparse.Namespace) -> bool:
    """Return whether `run` was asked for figures; to ask for figures and workloads at once is a mistake."""
    if args.is_all:
        if args.names:
            raise ValueError("--all means all figures; leave it out to run some")
        return True
    if not args.names:
        raise ValueError("give names of workloads, figures or papers, or --all for all figures")
    from siftline.bench.workloads import workloads

    others = [name for name in args.names if name not in workloads()]
    if others and len(others) < len(args.names):
        raise ValueError(f"{', '.join(others)}: figures and workloads are run by two calls")
    return bool(others) and (args.scale is not None or _are_figures(others))


def _are_figures(names: list[str]) -> bool:
    """Return whether these are figures; where figures cannot be read, nothing is."""
    from siftline.bench.figures.registry import is_figure

    return any(is_figure(name) for name in names)


def run(args: argparse.Namespace) -> int:
    """Measure figures; 1 if ids were wrong or a run failed."""
    from siftline.bench.figures import chosen, harness

    scale = args.scale or "small"
    path = args.output or harness.path_of(scale)
    outcome = harness.measure(
        chosen(args.names), scale, path, say, seed=args.seed, cache=args.cache, is_again=args.again
    )
    _print_outcome(outcome, path)
    return int(bool(outcome.wrong or outcome.failures))


def _print_outcome(outcome: Outcome, path: Path) -> None:
    counts = ", ".join(f"{n} {status}" for status, n in outcome.statuses.items())
    print(f"{outcome.n_runs} runs measured{f' ({counts})' if counts else ''}, {outcome.n_earlier} were there: {path}")
    for text in outcome.failures:
        print(f"siftline bench: failed, no row is written: {text}", file=sys.stderr)
    for text in outcome.wrong:
        print(f"siftline bench: WRONG IDS, no row is written: {text}", file=sys.stderr)


def print_list() -> None:
    """Print the figures by paper, with how many runs each has and what it should take."""
    from siftline.bench.figures import PAPERS, figures

    for paper, title in PAPERS.items():
        mine = [each for each in figures().values() if each.paper == paper]
        print(f"figures of {paper}: {title}")
        for each in mine:
            budgets = [
                f"{scale} {len(each.runs(scale))} runs, {each.settings(scale).seconds:g} s" for scale in each.scales
            ]
            print(f"    {each.name}: {each.title} ({'; '.join(budgets)})")


def as_json() -> dict[str, Any]:
    """Return the same for machines."""
    from siftline.bench.figures import figures

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
