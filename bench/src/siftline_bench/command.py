"""`siftline bench`: measures indexes, the papers' figures, and all parts against their targets; compares and reports.

Only the standard library is imported here: the command line builds all parsers before it knows which one is wanted.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline_bench import (
    figures_command,
    generate_command,
    operator_command,
    rules_command,
    server_command,
    spark_command,
)
from siftline_bench.arguments import add_parameters, check_output, count, pair, parameters_of, results_path, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from siftline_bench.foundation import Figure
    from siftline_bench.runner import Choice, Measurement
    from siftline_bench.workloads import Workload

SUMMARY: Final = "measure indexes on seeded workloads"
DETAILS: Final = """\
Measures indexes, the papers' figures, and all parts against their targets; compares and reports. `siftline bench list`
shows workloads, indexes and figures; `siftline bench ACTION --help` says more.
"""
EXAMPLES: Final = """\
examples:
  siftline bench run dense --index sift --index op-index --size 100_000
  siftline bench run --all --scale small
  siftline bench report
  siftline bench compare old.jsonl new.jsonl --fail
"""
# The figures of `siftline bench storage`, and the groups of figures of `siftline bench sift`.
_STORAGE: Final = ("pages", "changes", "large", "table-1", "dbms", "store")
_GROUPS: Final = ("matching", "slots", "batches", "dict", "memory", "updates")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `siftline bench` can do."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_list(actions)
    generate_command.add_parser(actions)
    _add_run(actions)
    _add_foundation(actions)
    _add_indexes(actions)
    _add_sift(actions)
    _add_growth(actions)
    _add_storage(actions)
    operator_command.add_parser(actions)
    rules_command.add_parser(actions)
    spark_command.add_parser(actions)
    server_command.add_parser(actions)
    figures_command.add_report(actions)
    _add_compare(actions)


def _add_list(actions: Any) -> None:
    parser = actions.add_parser("list", help="show workloads with their parameters, indexes, and the papers' figures")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(act=_list)


def _add_run(actions: Any) -> None:
    parser = actions.add_parser("run", help="measure indexes on workloads, or the papers' figures")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of workloads, or of figures and papers; see `list`")
    figures_command.add_run_arguments(parser)
    parser.add_argument(
        "--index",
        action="append",
        metavar="NAME[:OPTION=VALUE,...]",
        help="repeat for several; default: all but scan, pb-tree and dbms",
    )
    add_parameters(parser)
    parser.add_argument("--passes", type=count, default=5, help="default: 5")
    parser.add_argument(
        "--sample", action="append", default=[], metavar="INDEX=N", help="fewer events for a slow index"
    )
    parser.add_argument("--slots", action="store_true", help="time match(..., as_slots=True)")
    parser.add_argument("--batch", action="store_true", help="time match_batch of all events")
    parser.add_argument("--interleaved", action="store_true", help="adds and matches alternate; time both")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep drawn workloads there")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="append rows there; default: results/WORKLOAD.jsonl"
    )
    parser.add_argument("--json", action="store_true", help="print the rows instead of a table")
    parser.set_defaults(act=_run)


def _add_foundation(actions: Any) -> None:
    parser = actions.add_parser("foundation", help="measure parsing, loading, encoding and scanning against targets")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast it is")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--fail", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append rows there")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--json", action="store_true", help="print the rows instead of a table")
    parser.set_defaults(act=_foundation)


def _add_indexes(actions: Any) -> None:
    parser = actions.add_parser("indexes", help="measure all indexes on three workloads against targets")
    parser.add_argument(
        "--index",
        action="append",
        metavar="NAME[:OPTION=VALUE,...]",
        help="repeat for several; default: all but scan, pb-tree and dbms",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast it is")
    parser.add_argument("--events", type=count, metavar="N", help="number of events; default: 200")
    parser.add_argument("--passes", type=count, default=5, help="default: 5")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--fail", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep drawn workloads there")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append rows there")
    parser.add_argument("--json", action="store_true", help="print the rows instead of tables")
    parser.set_defaults(act=_indexes)


def _add_sift(actions: Any) -> None:
    parser = actions.add_parser("sift", help="measure sift on all workloads, beside all indexes, against its targets")
    parser.add_argument("--subject", default="sift", metavar="NAME", help="the index under examination; default: sift")
    parser.add_argument(
        "--index",
        action="append",
        metavar="NAME[:OPTION=VALUE,...]",
        help="compare with these; default: all but scan, pb-tree and dbms",
    )
    parser.add_argument("--workload", action="append", metavar="NAME", help="repeat for several; default: all")
    parser.add_argument("--only", action="append", choices=_GROUPS, help="repeat for several; default: all figures")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast it is")
    parser.add_argument("--size", type=count, metavar="N", help="at most this many subscriptions")
    parser.add_argument("--events", type=count, metavar="N", help="events that are timed one by one; default: 200")
    parser.add_argument("--passes", type=count, help="default: 5")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--fail", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep drawn workloads there")
    parser.add_argument(
        "--output", type=Path, default=results_path("sift"), metavar="FILE", help="default: results/sift.jsonl"
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables at the end")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="measure nothing: show what an earlier run wrote there"
    )
    parser.add_argument("--json", action="store_true", help="print the rows instead of tables")
    parser.set_defaults(act=_sift)


def _add_growth(actions: Any) -> None:
    parser = actions.add_parser("growth", help="measure how the cost of a match grows with the subscriptions")
    parser.add_argument("--subject", default="sift", metavar="NAME", help="the index under examination; default: sift")
    parser.add_argument("--workload", action="append", metavar="NAME", help="default: sparse and dense")
    parser.add_argument("--size", action="append", type=count, metavar="N", help="default: 10 K, 100 K, 1 M and 4 M")
    parser.add_argument("--passes", type=count, default=5, help="default: 5")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast it is")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep drawn workloads there")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw an SVG file there")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append rows there")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.set_defaults(act=_growth)


def _add_storage(actions: Any) -> None:
    parser = actions.add_parser(
        "storage", help="measure pages, memory, the PB+tree paper's Table 1, databases, and stores"
    )
    parser.add_argument("--only", action="append", choices=_STORAGE, help="repeat for several; default: all")
    parser.add_argument("--size", action="append", type=count, metavar="N", help="of dbms; default: 1 K to 1 M")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast it is")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw SVG files there")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append rows there")
    parser.add_argument("--json", action="store_true", help="print the rows instead of tables")
    parser.set_defaults(act=_storage)


def _add_compare(actions: Any) -> None:
    parser = actions.add_parser("compare", help="compare two result files")
    parser.add_argument("old", type=Path, metavar="OLD")
    parser.add_argument("new", type=Path, metavar="NEW")
    parser.add_argument("--fail", action="store_true", help="exit 1 if something got slower or larger beyond the noise")
    parser.set_defaults(act=_compare)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; 0 is success, 1 a wrong result or a missed target, 2 a mistake in the call."""
    from siftline.errors import SiftlineError
    from siftline_bench.errors import WrongIdsError

    try:
        return int(args.act(args))
    except WrongIdsError as error:
        print(f"siftline bench: WRONG IDS, no row is written: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        raise  # the command line knows what to do when the reader of the output went away
    except (SiftlineError, ValueError, OSError) as error:
        print(f"siftline bench: {error}", file=sys.stderr)
        return 2


def _list(args: argparse.Namespace) -> int:
    import dataclasses

    import siftline
    from siftline_bench.workloads import recipe, workloads

    recipes = [recipe(name) for name in workloads()]
    if args.json:
        shown = {r.name: {"description": r.description, **dataclasses.asdict(r.parameters)} for r in recipes}
        listed = {"workloads": shown, "indexes": siftline.indexes(), "figures": figures_command.as_json()}
        print(json.dumps(listed, indent=2))
        return 0
    for each in recipes:
        print(f"{each.name}: {each.description}")
        pairs = dataclasses.asdict(each.parameters).items()
        print("    " + "  ".join(f"{key}={value}" for key, value in pairs))
    print(f"indexes: {', '.join(siftline.indexes())}")
    figures_command.print_list()
    return 0


def _run(args: argparse.Namespace) -> int:
    from siftline_bench import results
    from siftline_bench.interleaving import run_interleaved
    from siftline_bench.runner import Plan, run
    from siftline_bench.workloads import cached, recipe

    check_output(args.output)
    if figures_command.is_asked(args):
        return figures_command.run(args)
    for name in args.names:
        recipe(name)
    choices = _choices(args.index)
    samples = {**Plan().n_events, **dict(pair(text) for text in args.sample)}
    plan = Plan(n_passes=args.passes, n_events=samples, as_slots=args.slots, is_batch=args.batch)
    for name in args.names:
        say(f"drawing {name}")
        workload = cached(name, parameters_of(name, args), args.seed, args.cache)
        measured = (run_interleaved if args.interleaved else run)(workload, choices, plan, say)
        rows = results.rows_of(workload, measured, plan.n_passes)
        path = results.append(rows, args.output or results_path(name))
        _print_run(workload, measured, rows, args.json)
        say(f"{len(rows)} rows appended to {path}")
    return 0


def _choices(texts: Sequence[str] | None) -> list[Choice]:
    """Return the indexes that were asked for; a wrong name or option shows before the work begins."""
    import siftline
    from siftline.indexes.registry import PAGED
    from siftline_bench.runner import Choice

    # What works on disk builds for a quarter of an hour where the others take seconds, and a database takes a thousand
    # times as long for an event: they take part when they are asked.
    usual = [name for name in siftline.indexes() if name not in ("scan", "dbms", *PAGED)]
    choices = [Choice.parse(text) for text in texts or usual]
    for choice in choices:
        choice.engine()
    return choices


def _indexes(args: argparse.Namespace) -> int:
    from siftline_bench import indexes, results, targets
    from siftline_bench.runner import Plan
    from siftline_bench.tables import aligned

    check_output(args.output)
    changes = dict(indexes.QUICK) if args.quick else {"n_events": 200}
    if args.events is not None:
        changes["n_events"] = args.events
    plan = Plan(n_passes=args.passes)
    runs = indexes.measure(_choices(args.index), plan, changes, args.seed, args.cache, say)
    for workload, measured in runs:
        rows = results.rows_of(workload, measured, plan.n_passes)
        _print_run(workload, measured, rows, args.json)
        if args.output is not None:
            results.append(rows, args.output)
    found = indexes.verdicts(runs)
    if not args.json:
        print(aligned(targets.table(found)))
    return int(args.fail and any(verdict.is_bad for verdict in found))


def _sift(args: argparse.Namespace) -> int:
    import dataclasses

    from siftline_bench import results, sift, sift_tables, targets
    from siftline_bench.readings import Sizes
    from siftline_bench.tables import aligned

    if args.rows is not None:
        print(sift_tables.report(results.read(args.rows), args.subject))
        return 0
    check_output(args.output)
    subject, others = _subject(args.subject), _choices(args.index)
    changes = {"n_subscriptions": args.size, "n_events": args.events, "n_passes": args.passes}
    given = {name: value for name, value in changes.items() if value is not None}
    sizes = dataclasses.replace(sift.QUICK if args.quick else Sizes(), **given)
    names, groups = args.workload or sift.WORKLOADS, args.only or _GROUPS
    found, all_rows = [], []
    for bench, result in sift.measure(subject, others, names, groups, sizes, args.seed, args.cache, say):
        measured = results.rows_of(bench.workload, result.measured, sizes.n_passes)
        rows = [*measured, *bench.rows(result.readings)]
        results.append(rows, args.output)
        all_rows += rows
        if args.json:
            print("\n".join(json.dumps(row) for row in rows))
        elif result.measured:
            _print_run(bench.workload, result.measured, measured, False)
        found.append(result)
        del bench  # before the next one is drawn
    if not found:
        raise ValueError(f"none of these workloads has figures of the kind {', '.join(groups)}")
    verdicts = sift.verdicts(found, subject)
    if args.markdown:
        print(sift_tables.report(all_rows, args.subject))
    elif not args.json:
        print(aligned(targets.table(verdicts)))
    say(f"rows appended to {args.output}")
    return int(args.fail and any(verdict.is_bad for verdict in verdicts))


def _growth(args: argparse.Namespace) -> int:
    from siftline_bench import growth, results
    from siftline_bench.runner import Plan
    from siftline_bench.tables import aligned, markdown

    check_output(args.output)
    subject = _subject(args.subject)
    names = args.workload or growth.WORKLOADS
    sizes = args.size or (growth.QUICK if args.quick else growth.SIZES)
    rows: list[dict[str, Any]] = []
    for found in growth.measure(subject, names, sizes, Plan(n_passes=args.passes), args.seed, args.cache, say):
        rows += found
        if args.output is not None:
            results.append(found, args.output)
    print((markdown if args.markdown else aligned)(growth.table(rows, subject.index)))
    if args.plots is not None:
        say(f"drawn: {growth.draw(rows, subject.index, args.plots)}")
    return 0


def _storage(args: argparse.Namespace) -> int:
    from siftline_bench import results, storage, storage_changes, storage_dbms, storage_plots, storage_store, targets
    from siftline_bench.tables import aligned

    check_output(args.output)
    sizes = storage.QUICK if args.quick else storage.Sizes()
    rows: list[dict[str, Any]] = []
    tables: list[list[list[str]]] = []
    for figure in args.only or _STORAGE:
        if figure == "pages":
            found = storage.page_reads(sizes, args.seed, say)
            found.append(storage.fitted(found))
            tables += [storage.search_lines(found), storage.change_lines(found), storage.lines_of(found[-1])]
        elif figure == "changes":
            found = storage_changes.changes(
                storage_changes.QUICK if args.quick else storage_changes.Sizes(), args.seed, say
            )
            tables.append(storage.lines_of(found[0]))
        elif figure == "large":
            found = [storage.large(sizes, args.seed, say)]
            tables.append(storage.lines_of(found[0]))
        elif figure == "dbms":
            chosen = storage_dbms.QUICK if args.quick else storage_dbms.Sizes()
            if args.size:
                chosen = replace(chosen, subscriptions=tuple(args.size))
            found = storage_dbms.dbms(chosen, args.seed, say)
            tables += storage_dbms.tables(found)
        elif figure == "store":
            found = storage_store.store(storage_store.QUICK if args.quick else storage_store.Sizes(), args.seed, say)
            tables += [storage_store.lines_of(found), targets.table(storage_store.verdicts(found))]
        else:
            found = storage.table_one(sizes, args.seed, say)
            tables += [storage.table_one_lines(found, workload) for workload in storage.WORKLOADS]
        rows += found
    print("\n".join(map(json.dumps, rows)) if args.json else "\n\n".join(map(aligned, tables)))
    if args.plots is not None:
        for path in storage_plots.draw(rows, args.plots):
            say(f"drawn: {path}")
    if args.output is not None:
        results.append([{"seed": args.seed, **row, **results.circumstances()} for row in rows], args.output)
    return 0


def _subject(text: str) -> Choice:
    """Return the index under examination; if it is missing, say how to examine another one."""
    from siftline.errors import UnknownIndexError
    from siftline_bench.runner import Choice

    choice = Choice.parse(text)
    try:
        choice.engine()
    except UnknownIndexError as error:
        raise ValueError(f"{error}; `--subject NAME` examines another index") from None
    return choice


def _print_run(workload: Workload, measured: Sequence[Measurement], rows: Sequence[Any], is_json: bool) -> None:
    from siftline_bench.tables import aligned

    if is_json:
        print("\n".join(json.dumps(row) for row in rows))
        return
    print(f"{workload.name}, {workload.n_subscriptions:,} subscriptions, seed {workload.seed}, {measured[0].mode}")
    heading = [
        "index",
        "events",
        "matches",
        "build s",
        "index s",
        "MB",
        "min us",
        "median us",
        "p99 us",
        "max us",
        "x fast-scan",
    ]
    print(aligned([heading, *(_run_line(measurement) for measurement in measured)]))
    for refused in (m for m in measured if m.passes is None):
        print(f"{refused.choice.label}: {refused.status}: {refused.reason}")
    for each in measured:
        if each.add_us is not None:
            times = each.add_us
            print(
                f"{each.choice.label}: an add took {times.median:,.1f} us, p99 {times.p99:,.1f}, max {times.max:,.1f}"
            )
    shares = [m.passes.processor_share for m in measured if m.passes is not None]
    if min(shares) < 0.9:
        print(f"the machine was busy: the core was ours only {min(shares):.0%} of the time")


def _run_line(measurement: Measurement) -> list[str]:
    label = measurement.choice.label
    if measurement.passes is None:
        return [label, measurement.status, *[""] * 9]
    times = measurement.passes.per_event_us()
    megabytes = sum(measurement.stats.get("bytes", {}).values()) / 1e6
    matches = measurement.n_matches / max(1, measurement.n_events)
    numbers = [f"{megabytes:,.0f}", *(f"{t:,.1f}" for t in (times.min, times.median, times.p99, times.max))]
    return [
        label,
        f"{measurement.n_events:,}",
        f"{matches:,.1f}",
        f"{measurement.build_s:.2f}",
        f"{measurement.index_s:.2f}",
        *numbers,
        f"{measurement.ratio or 0:.3g}",
    ]


def _foundation(args: argparse.Namespace) -> int:
    from siftline_bench import foundation, results

    check_output(args.output)
    sizes = foundation.QUICK if args.quick else foundation.Sizes()
    figures = foundation.Foundation(sizes, args.seed).figures(say)
    rows = foundation.rows_of(figures, sizes, args.seed)
    if args.json:
        print("\n".join(json.dumps(row) for row in rows))
    else:
        _print_figures(figures, args.markdown)
    if args.output is not None:
        results.append(rows, args.output)
    return int(args.fail and any(figure.verdict == "missed" for figure in figures))


def _print_figures(figures: Sequence[Figure], is_markdown: bool) -> None:
    from siftline_bench import foundation, results
    from siftline_bench.tables import aligned, markdown

    machine = results.machine()
    print((markdown if is_markdown else aligned)(foundation.table(figures)))
    print(
        f"\n{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, Python {machine['python']}, ",
        end="",
    )
    print(f"numba {machine['numba']}, {results.circumstances()['date'][:10]}")


def _compare(args: argparse.Namespace) -> int:
    from siftline_bench import compare, results
    from siftline_bench.tables import aligned

    old, new = results.read(args.old), results.read(args.new)
    found, lonely = compare.compare(old, new)
    different = [comparison for comparison in found if not comparison.is_noise]
    if different:
        print(aligned(compare.table(different)))
    if found:
        print(compare.counts(found))
    for label in lonely:
        print(f"not compared: {label}")
    lost = compare.ended_early(old, new)
    for text in lost:
        print(f"did not get to an end: {text}")
    for text in figures_command.changed_verdicts(old, new):
        print(text)
    if any(not comparison.is_same_machine for comparison in found):
        print("the files come from different machines or versions: only large differences mean something")
    if not found:
        raise ValueError("the files have no measurement in common")
    return int(args.fail and (bool(lost) or any(comparison.is_worse for comparison in found)))
