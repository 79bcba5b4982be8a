"""`siftline match`: finds the subscriptions that each event satisfies."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.cli.files import is_stream, refuse_overwriting
from siftline.cli.moments import add_now, moment_of
from siftline.cli.operator_modules import add_operators, load_operators
from siftline.cli.problems import BAD_INPUT, MAX_REPORTED, OK, CannotRunError, Reporter, counted, say
from siftline.cli.progress import announce
from siftline.cli.sigma_rules import add_sigma, read_sigma
from siftline.files.formats import CSV, JSONL, PARQUET, STANDARD
from siftline.files.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siftline.cli.event_files import Chunk, EventFile
    from siftline.cli.match_files import MatchWriter
    from siftline.encoding.statistics import Statistics
    from siftline.engine import Engine
    from siftline.files.subscription_files import Subscriptions
    from siftline.ids import Id

NAME: Final = "match"
SUMMARY: Final = "match events against subscriptions"
DETAILS: Final = """\
Writes a row for every event and every subscription that it satisfies:
  event         position of the event in its file, from 0, including invalid events
  line          its line in the file (JSON Lines and CSV)
  subscription  the id
  title, level  of a Sigma rule
Events are in the order of the file; the rows of one event are in no particular order, unless --top is given.

The extension gives the format of a file: .jsonl .ndjson .json (JSON Lines), .csv, .parquet, and for
subscriptions also .txt .sift (one expression per line). Inputs may be compressed (.jsonl.gz, .csv.zst). A single
- is standard input or output, as JSON Lines; so are pipes and devices (/dev/stdin) without an extension.

subscriptions, from a file (--subscriptions), a store (--store, without expired ones; its owners are tenants), a
snapshot of Engine.save (--snapshot) or a folder of Sigma rules (--sigma; their levels are weights, so that --top
takes the most severe)
  JSON Lines  {"id": "ann", "expression": "price <= 580", "weight": 2}
              "pattern" (an event pattern; "dialect": "sns" for filter policies) or "filters" (CloudEvents)
              may replace "expression"; a bare string is an expression whose id is its line
  CSV         a header with subscription (or id), expression and optionally weight and tenant
  Parquet     the same columns, or one row per predicate (subscription, clause, attribute, op, number, text, ...)
events
  JSON Lines  one object per line
  CSV         the header has the attributes; cells that are JSON numbers, true or false become numbers and
              booleans, an empty cell is an absent attribute, any other cell is text
  Parquet     each column is an attribute, or --event COLUMN holds whole events

exit status: 0 done, even if nothing matched; 1 invalid input, which may have been skipped; 2 could not run
"""
EXAMPLES: Final = """\
examples:
  siftline match --subscriptions subscriptions.jsonl --events events.jsonl
  siftline match --subscriptions rules.sift --events orders.csv --output matches.parquet
  siftline match --store subscriptions.db --events orders.csv.gz --tenant ann
  siftline match --sigma rules/windows --events logs.jsonl --skip-bad
  tail -f log.jsonl | siftline match --subscriptions subscriptions.jsonl --events - --skip-bad
"""

# From this many subscriptions on, a message is printed before they are loaded.
_ANNOUNCED_MIN: Final = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    from siftline.indexes.registry import own_indexes

    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--subscriptions", metavar="FILE", help="a file of subscriptions")
    which.add_argument("--store", metavar="FILE", help="a store of subscriptions; a server may be running on it")
    which.add_argument("--snapshot", metavar="DIR", help="a snapshot that was written by Engine.save")
    add_sigma(parser, which)
    parser.add_argument(
        "--tenant", metavar="NAME", help="only the subscriptions of one tenant, or of one owner of a store"
    )
    parser.add_argument("--events", metavar="FILE", required=True, help="the events")
    parser.add_argument(
        "--index",
        metavar="NAME",
        help=f"the index: {', '.join(own_indexes())}, or one of another package; "
        "options may follow, as in op-index:segments=0",
    )
    parser.add_argument(
        "--output", metavar="FILE", default=STANDARD, help="where matches are written (standard output)"
    )
    parser.add_argument(
        "--format", choices=(JSONL, CSV, PARQUET), help="the format of the output, if not by its extension"
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave out invalid subscriptions and events")
    parser.add_argument("--top", metavar="K", type=count, help="only the K best subscriptions of an event, by weight")
    parser.add_argument(
        "--statistics", metavar="FILE", help="statistics of events that were written by Statistics.save"
    )
    add_now(parser)
    add_operators(parser)
    parser.add_argument("--schedule", metavar="NAME", help="the order in which operators are called (adaptive)")
    parser.add_argument("--event", metavar="COLUMN", help="the column of a Parquet file that holds whole events")
    parser.add_argument("--strings", action="store_true", help="keep all cells of a CSV file as text")


def count(text: str) -> int:
    """Parse an option that is a positive integer."""
    number = int(text) if text.isascii() and text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, found {text!r}")
    return number


def run(args: argparse.Namespace) -> int:
    """Match, and return the exit status."""
    from siftline.cli.event_files import EventFile
    from siftline.cli.match_files import output_format

    if args.subscriptions == args.events == STANDARD:
        raise CannotRunError("subscriptions and events cannot both come from standard input")
    kind = output_format(args.output, args.format)
    sources = (args.subscriptions, args.store, args.snapshot, args.sigma, args.events, args.statistics)
    refuse_overwriting(args.output, *sources)
    events = EventFile(args.events, event_column=args.event, has_only_strings=args.strings)
    load_operators(args)
    start = time.perf_counter()
    loaded = _loaded(args)
    if loaded is None:
        return BAD_INPUT
    events.warm_up(loaded.engine)
    return _Run(args, loaded, events, time.perf_counter() - start).run(kind)


class _Loaded(NamedTuple):
    engine: Engine
    n_bad: int  # subscriptions that were left out
    about: dict[Id, tuple[str, str]] | None = None  # title and level of each, where subscriptions have them


def _loaded(args: argparse.Namespace) -> _Loaded | None:
    """Return an engine with the subscriptions; None if nothing can be matched."""
    if args.snapshot is not None:
        return _Loaded(_opened(args), 0)
    engine = _engine(args)
    if args.store is not None:
        n_bad = _load_store(engine, args)
        return None if n_bad is None else _Loaded(engine, n_bad)
    from siftline.cli.reading import read_file

    about: dict[Id, tuple[str, str]] | None = None
    if args.sigma is not None:
        about = {}
        subscriptions = read_sigma(args, about)
    else:
        stop_after = None if args.skip_bad else MAX_REPORTED
        subscriptions = read_file(args.subscriptions, is_quiet=args.quiet, stop_after=stop_after)
    if not _are_usable(subscriptions, args.skip_bad):
        return None
    if len(subscriptions) >= _ANNOUNCED_MIN:
        announce(f"building the index ({len(subscriptions):,} subscriptions) ...", is_quiet=args.quiet)
    engine.add_many(subscriptions, on_error="collect")  # the invalid ones have been reported
    return _Loaded(engine, len(subscriptions.problems), about)


def _opened(args: argparse.Namespace) -> Engine:
    """Open a snapshot, which has its own index."""
    from siftline.engine import Engine

    for option in ("index", "statistics", "schedule"):
        if getattr(args, option) is not None:
            raise CannotRunError(f"--{option} was decided when the snapshot was made: leave it out with --snapshot")
    return Engine.open(args.snapshot)


def _load_store(engine: Engine, args: argparse.Namespace) -> int | None:
    """Load the live subscriptions of a store; return how many are unreadable, None if nothing can be matched."""
    from siftline.storage.store import Store

    skipped: set[Id] = set()
    with Store(args.store, is_read_only=True) as store:
        store.load_into(engine, by_owner=True, skipped=skipped)
    reporter = Reporter()
    for id in sorted(skipped, key=str):
        reporter.report(Problem(args.store, None, None, f"the subscription {id!r} cannot be read (an operator?)"))
    if skipped and not args.skip_bad:
        say(f"{counted(len(skipped), 'bad subscription')}: nothing was matched; --skip-bad leaves them out")
        return None
    if not len(engine):
        say(f"{args.store}: no {'good ' if skipped else ''}subscriptions: nothing was matched")
        return None
    return len(skipped)


def _engine(args: argparse.Namespace) -> Engine:
    from siftline.engine import Engine
    from siftline.indexes.registry import DEFAULT, parse_choice

    index, options = parse_choice(args.index or DEFAULT)
    if args.statistics is not None:
        options["statistics"] = _statistics(args.statistics)
    return Engine(index, schedule=args.schedule, **options)


def _statistics(path: str) -> Statistics:
    from siftline.encoding.statistics import Statistics

    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        document = None
    if not isinstance(document, dict) or "format" not in document:
        raise CannotRunError(
            f"{path}: not statistics; --statistics needs a file that Statistics.save has written, not events"
        )
    return Statistics.load(path)


def _are_usable(subscriptions: Subscriptions, is_skipping: bool) -> bool:
    """Report the invalid subscriptions; return whether the others can be matched."""
    reporter = Reporter()
    for problem in subscriptions.problems:
        reporter.report(problem)
    n_bad = len(subscriptions.problems)
    if n_bad and not is_skipping:
        more = " (stopped there)" if n_bad >= MAX_REPORTED else ""
        say(f"{counted(n_bad, 'bad subscription')}{more}: nothing was matched; --skip-bad leaves them out")
        return False
    if not len(subscriptions):
        say(f"{subscriptions.file}: no {'good ' if n_bad else ''}subscriptions: nothing was matched")
        return False
    return True


class _BadEventError(Exception):
    """An event is invalid, and --skip-bad was not given."""


class _Run:
    """One pass over the events."""

    def __init__(
        self,
        args: argparse.Namespace,
        loaded: _Loaded,
        events: EventFile,
        loading_seconds: float,
    ) -> None:
        self._args = args
        self._engine, self._n_bad_subscriptions, self._about = loaded
        self._events = events
        self._loading_seconds = loading_seconds
        self._bad_events = Reporter()
        # A pipe may stay open for days, so each chunk of it is matched at its own instant.
        self._now = None if args.now is None and is_stream(args.events) else moment_of(args)
        self._n_events = self._n_matches = 0

    def run(self, kind: str) -> int:
        """Match everything; return the exit status."""
        from siftline.cli.match_files import match_writer

        start = time.perf_counter()
        are_ids_text = str(self._engine.match_batch([]).schema.field("subscription").type) == "string"
        has_lines = self._events.format != PARQUET
        try:
            with match_writer(
                self._args.output, kind, are_ids_text=are_ids_text, has_lines=has_lines, about=self._about
            ) as writer:
                self._match_all(writer, has_lines)
        except _BadEventError:
            written = "the matches before it were written" if is_stream(self._args.output) else "nothing was written"
            say(f"stopped at a bad event; {written}; --skip-bad leaves bad events out")
            return BAD_INPUT
        if not self._args.quiet:
            say(self._summary(time.perf_counter() - start))
        return BAD_INPUT if self._n_bad_subscriptions + self._bad_events.n_problems else OK

    def _summary(self, seconds: float) -> str:
        parts = [counted(self._n_events, "event"), counted(self._n_matches, "match", "matches")]
        if self._n_bad_subscriptions:
            parts.append(f"{counted(self._n_bad_subscriptions, 'bad subscription')} left out")
        if self._bad_events.n_problems:
            parts.append(f"{counted(self._bad_events.n_problems, 'bad event')} left out")
        return f"{', '.join(parts)}; loading took {self._loading_seconds:.1f} s, matching {seconds:.1f} s"

    def _match_all(self, writer: MatchWriter, has_lines: bool) -> None:
        for chunk, encoded in self._encoded_chunks():
            events, ids = self._matches(encoded)
            positions = [chunk.positions[event] for event in events]
            lines = [chunk.lines[event] for event in events] if has_lines else None
            writer.write(positions, lines, ids)
            self._n_events += len(chunk.positions)
            self._n_matches += len(ids)

    def _matches(self, encoded: Any) -> tuple[list[int], list[Any]]:
        """Return the matching pairs: the number of the event in the chunk, and the id."""
        chosen = {"top": self._args.top, "tenant": self._args.tenant, "now": self._now}
        table = self._engine.match_batch(encoded, **chosen)
        return table["event"].to_pylist(), table["subscription"].to_pylist()

    def _encoded_chunks(self) -> Iterator[tuple[Chunk, Any]]:
        from siftline.cli.progress import Progress

        # No progress bar on a terminal that also shows the matches.
        is_quiet = self._args.quiet or (self._args.output == STANDARD and sys.stdout.isatty())
        with (
            Progress("matching", self._events.size, "B", is_quiet=is_quiet) as progress,
            contextlib.closing(self._events.chunks()) as chunks,
        ):
            for chunk in chunks:
                good, encoded = self._events.encoded(chunk, self._engine)
                problems = good.problems
                if problems and not self._args.skip_bad:
                    good, encoded = self._events.encoded(self._events.before(good, problems[0].line or 0), self._engine)
                yield good, encoded
                self._report(problems)
                progress.advance(chunk.size)

    def _report(self, problems: list[Problem]) -> None:
        for problem in problems:
            self._bad_events.report(problem)
            if not self._args.skip_bad:
                raise _BadEventError
