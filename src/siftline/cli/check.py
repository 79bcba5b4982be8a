"""`siftline check`: whether subscriptions are valid, and whether they can ever match."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

from siftline.cli.match import count
from siftline.cli.operator_modules import add_operators, load_operators
from siftline.cli.problems import BAD_INPUT, OK, CannotRunError, Reporter, counted, show
from siftline.cli.sigma_rules import add_sigma, read_sigma
from siftline.files.problems import Problem

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from siftline.cli.costs import Cost, Sample
    from siftline.cli.event_files import EventFile
    from siftline.cli.progress import Progress
    from siftline.files.subscription_files import Subscriptions
    from siftline.model import Event

NAME: Final = "check"
SUMMARY: Final = "find invalid subscriptions, and those that can never match"
DETAILS: Final = """\
Without --against, all subscriptions are parsed, and the invalid ones are reported with file, line, column and
reason. With --against, the valid ones are also matched against a sample of events, and those that can never
match these events are reported: because an attribute is always absent, a value always has another type, a
constant is out of range, or because of a likely typo. Subscriptions that can match, but use attributes that no
event has, are reported too. The cost of each subscription is counted:
  matches  how many of the events it matches
  share    the share of events that satisfy its rarest condition, for which an index has to examine it
  clauses  how many alternatives an index keeps for it
  check    whether an index only finds candidates, for which the whole expression has to be evaluated

--sigma reads a folder of Sigma rules instead of a file. A rule can never match logs that lack a field of it, or
the channel and event number that its log source stands for.

exit status: 0 all valid; 1 some are invalid, can never match, or use unknown attributes; 2 could not run
"""
EXAMPLES: Final = """\
examples:
  siftline check subscriptions.jsonl
  siftline check rules.sift --against events.jsonl --json > report.json
  siftline check --sigma rules/windows --events logs.jsonl
"""

_DEFAULT_SAMPLE: Final = 100_000
_DEFAULT_LIMIT: Final = 50
_COSTLIEST: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("file", metavar="FILE", nargs="?", help="the subscriptions; formats as for `siftline match`")
    add_sigma(parser, which)
    parser.add_argument(
        "--against", "--events", dest="against", metavar="EVENTS", help="events to match the subscriptions with"
    )
    parser.add_argument("--sample", metavar="N", type=count, help="use the first N events (100000)")
    parser.add_argument("--event", metavar="COLUMN", help="the column of a Parquet file that holds whole events")
    add_operators(parser)
    parser.add_argument("--strings", action="store_true", help="keep all cells of a CSV file as text")
    parser.add_argument(
        "--limit", metavar="N", type=count, default=_DEFAULT_LIMIT, help="print at most N findings (50); --json has all"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON document instead of text")


def run(args: argparse.Namespace) -> int:
    """Check, and return the exit status."""
    load_operators(args)
    from siftline.cli.event_files import EventFile
    from siftline.cli.reading import read_file

    if args.sample is not None and args.against is None:
        raise CannotRunError("--sample needs --against")
    if args.file == "-" == args.against:
        raise CannotRunError("subscriptions and events cannot both come from standard input")
    events = None
    if args.against is not None:
        events = EventFile(args.against, event_column=args.event, has_only_strings=args.strings)
    subscriptions = read_sigma(args) if args.sigma else read_file(args.file, is_quiet=args.quiet)
    report = _Report(subscriptions, args)
    if events is not None:
        report.sample(events)
    report.print_json() if args.json else report.print_text()
    return report.status


class _Report:
    """The findings about the subscriptions of a file."""

    def __init__(self, subscriptions: Subscriptions, args: argparse.Namespace) -> None:
        self._subscriptions = subscriptions
        self._args = args
        self._costs: list[Cost] = []
        self._bad_events: list[Problem] = []
        self._n_events: int | None = None

    def sample(self, events: EventFile) -> None:
        """Match the valid subscriptions with events."""
        from siftline.cli.costs import Sample
        from siftline.cli.progress import Progress

        self._subscriptions = self._subscriptions.unpacked()
        sample = Sample(self._subscriptions.expressions)
        with Progress("matching", events.size, "B", is_quiet=self._args.quiet) as progress:
            sample.take(itertools.islice(self._good(events, sample, progress), self._args.sample or _DEFAULT_SAMPLE))
        self._n_events = sample.seen.n_events
        self._costs = [sample.cost(position) for position in range(len(self._subscriptions))]

    def _good(self, events: EventFile, sample: Sample, progress: Progress) -> Iterator[Event]:
        for _, event in events.events(sample.engine, progress.advance):
            if isinstance(event, Problem):
                self._bad_events.append(event)
            else:
                yield event

    @property
    def status(self) -> int:
        """The exit status: 1 if there is any finding."""
        is_odd = any(cost.findings or cost.warnings for cost in self._costs)
        is_empty = not len(self._subscriptions)
        return BAD_INPUT if self._subscriptions.problems or self._bad_events or is_odd or is_empty else OK

    # text output

    def print_text(self) -> None:
        """Report to standard output; problems with events go to standard error."""
        reporter = Reporter()
        for problem in self._bad_events:
            reporter.report(problem)
        findings = list(self._findings())
        for text in findings[: self._args.limit]:
            show(text)
        if len(findings) > self._args.limit:
            show(f"... and {len(findings) - self._args.limit:,} more (--limit N shows more, --json all)")
        if self._costs and self._n_events and not self._args.quiet:
            self._print_costliest()
        if not self._args.quiet or self.status:
            show(self._summary())

    def _findings(self) -> Iterator[str]:
        yield from map(str, self._subscriptions.problems)
        for position, cost in enumerate(self._costs):
            if cost.findings:
                yield self._never(position, cost)
            for warning in cost.warnings:
                yield f"{self._place(position)}: warning: subscription {self._subscriptions.ids[position]!r}: {warning}"

    def _never(self, position: int, cost: Cost) -> str:
        id = self._subscriptions.ids[position]
        lines = [f"{self._place(position)}: subscription {id!r} can never match on these events"]
        shown = [f"  {finding}" for finding in cost.findings[:5]]
        more = [f"  ... and {len(cost.findings) - 5} more reasons"] if len(cost.findings) > 5 else []
        return "\n".join(lines + shown + more)

    def _place(self, position: int) -> str:
        subscriptions = self._subscriptions
        line = subscriptions.lines[position] if subscriptions.lines else None
        file = subscriptions.files[position] if subscriptions.files else subscriptions.file
        return Problem(file, line, None, "", unit=subscriptions.unit).place

    def _print_costliest(self) -> None:
        ranked = sorted(range(len(self._costs)), key=lambda i: (-self._costs[i].share, -self._costs[i].clauses, i))
        show(f"costliest subscriptions ({counted(self._n_events or 0, 'event')}):")
        show(f"  {'share':>7}  {'matches':>9}  {'clauses':>7}  check  subscription")
        for position in ranked[:_COSTLIEST]:
            cost = self._costs[position]
            check = "yes" if cost.needs_check else "no"
            id = self._subscriptions.ids[position]
            show(f"  {cost.share:>7.1%}  {cost.matches:>9,}  {cost.clauses:>7}  {check:<5}  {id}")

    def _summary(self) -> str:
        counts = self._counts()
        if not counts["good"] + counts["broken"]:
            return f"{self._subscriptions.file}: no subscriptions"
        text = f"{counts['good']:,} good, {counts['broken']:,} broken"
        if self._n_events is not None:
            matched = counted(counts["matched"], "subscription")
            text += f"; on {counted(self._n_events, 'event')} {matched} matched, {counts['never']:,} can never match"
            if counts["unseen"]:
                text += f", {counts['unseen']:,} can, but with attributes that no event has"
            if self._n_events == 0:
                text += " (no events: nothing can be said)"
        if self._bad_events:
            text += f"; skipped {counted(len(self._bad_events), 'bad event')}"
        return f"{self._subscriptions.file}: {text}"

    def _counts(self) -> dict[str, int]:
        return {
            "good": len(self._subscriptions),
            "broken": len(self._subscriptions.problems),
            "matched": sum(cost.matches > 0 for cost in self._costs),
            "never": sum(bool(cost.findings) for cost in self._costs),
            "unseen": sum(bool(cost.warnings and not cost.findings) for cost in self._costs),
        }

    # JSON output

    def print_json(self) -> None:
        """Print everything as one JSON document."""
        counts = self._counts()
        document: dict[str, Any] = {"file": self._subscriptions.file, "good": counts["good"]}
        document["broken"] = [problem.to_dict() for problem in self._subscriptions.problems]
        if self._n_events is not None:
            document |= {"events": self._n_events, "matched": counts["matched"], "never": counts["never"]}
            document["bad_events"] = [problem.to_dict() for problem in self._bad_events]
            document["subscriptions"] = [self._json_cost(position) for position in range(len(self._costs))]
        show(json.dumps(document))

    def _json_cost(self, position: int) -> dict[str, Any]:
        subscriptions = self._subscriptions
        line = subscriptions.lines[position] if subscriptions.lines else None
        where = {"file": subscriptions.files[position], "line": line} if subscriptions.files else {"line": line}
        return {"id": subscriptions.ids[position], **where, **self._costs[position].to_dict()}
