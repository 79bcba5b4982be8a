"""`siftline explain`: why an event matches a subscription, or does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline.cli.moments import add_now, moment_of
from siftline.cli.operator_modules import add_operators, load_operators
from siftline.cli.problems import BAD_INPUT, OK, CannotRunError, say, show
from siftline.errors import EventError, SubscriptionError
from siftline.files.formats import STANDARD, array_error, open_bytes
from siftline.files.problems import Problem, event_problem, problem_of

if TYPE_CHECKING:
    import argparse

    from siftline.engine.explanation import Explanation
    from siftline.ids import Id
    from siftline.model import Event, Expression, Timestamp

NAME: Final = "explain"
SUMMARY: Final = "explain why an event matches a subscription, or does not"
DETAILS: Final = """\
Shows every condition with its truth value (yes, no, or unknown if it cannot be compared) and the value in the
event. A subscription is given as text, or by file and id; an event as JSON, or by file and line.

exit status: 0 explained, whether or not it matches; 1 the subscription or the event is invalid; 2 could not run
"""
EXAMPLES: Final = """\
examples:
  siftline explain --subscription "brand = 'acme' and price <= 250" --event '{"brand": "acme", "price": 300}'
  siftline explain --subscriptions subscriptions.jsonl --id ann --event events.jsonl:17
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--subscription", metavar="TEXT", help="an expression, an event pattern ({...}) or CloudEvents filters ([...])"
    )
    which.add_argument("--subscriptions", metavar="FILE", help="a file that has the subscription; needs --id")
    parser.add_argument("--id", metavar="ID", help="the subscription's id in the file")
    parser.add_argument(
        "--event", metavar="JSON|FILE[:LINE]", required=True, help="the event; without LINE, the first of the file"
    )
    add_now(parser)
    add_operators(parser)
    parser.add_argument("--strings", action="store_true", help="keep all cells of a CSV file as text")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


class _BadInputError(Exception):
    """The subscription or the event is invalid; the message says where and why."""


def run(args: argparse.Namespace) -> int:
    """Explain, and return the exit status."""
    load_operators(args)
    from siftline.engine.explanation import explain
    from siftline.model import has_calls

    if (args.subscriptions is None) is not (args.id is None):
        raise CannotRunError("--subscriptions and --id belong together")
    if args.subscriptions == args.event == STANDARD:
        raise CannotRunError("subscriptions and the event cannot both come from standard input")
    try:
        id, expression = _subscription(args)
        event = _event(args, expression)
    except _BadInputError as error:
        say(str(error))
        return BAD_INPUT
    now = moment_of(args)
    if has_calls(expression):
        explanation = _with_calls(expression, event, id, now)
    else:
        explanation = explain(expression, event.tree, id, now=now.instant)
    show(json.dumps(explanation.to_dict()) if args.json else str(explanation))
    return OK


def _with_calls(expression: Expression, event: Event, id: Id | None, now: Timestamp) -> Explanation:
    """Let an engine match the subscription, to show which operators it calls."""
    from siftline.engine import Engine

    engine = Engine()
    found = engine.explain(event.tree, engine.add(expression, id), now=now)
    found.id = id
    return found


# The subscription


def _subscription(args: argparse.Namespace) -> tuple[Id | None, Expression]:
    if args.subscription is not None:
        return None, _parsed(args.subscription)
    return _found(args.subscriptions, args.id, args.quiet)


def _parsed(text: str) -> Expression:
    from siftline.files.subscription_files import Entry, parse_entry

    kinds = {"{": "pattern", "[": "filters"}
    kind = kinds.get(text.lstrip()[:1], "expression")
    try:
        return parse_entry(Entry(1, None, kind, text, None))
    except SubscriptionError as error:
        raise _BadInputError(problem_of(error, "--subscription", error.line)) from None


def _found(path: str, wanted: str, is_quiet: bool) -> tuple[Id, Expression]:
    """Return the subscription with an id; invalid ones in the same file do not matter."""
    from siftline.cli.reading import read_file

    subscriptions = read_file(path, is_quiet=is_quiet).unpacked()
    for id, expression in zip(subscriptions.ids, subscriptions.expressions, strict=True):
        if str(id) == wanted:
            return id, expression
    for problem in subscriptions.problems:
        if problem.reason.startswith((f"subscription {wanted!r}: ", f"subscription {wanted}: ")):
            raise _BadInputError(problem)
    raise _BadInputError(f"{subscriptions.file}: no subscription has the id {wanted}")


# The event


def _event(args: argparse.Namespace, expression: Expression) -> Event:
    text: str = args.event
    if text.lstrip()[:1] in ("{", "["):
        return _from_json(text.encode("utf-8", "surrogatepass"), "--event")
    path, line = _path_and_line(text)
    if line is None and Path(path).suffix == ".json":
        return _from_document(path)
    return _from_file(path, line, args, expression)


def _path_and_line(text: str) -> tuple[str, int | None]:
    """Split FILE:LINE, unless a file of that whole name exists."""
    path, colon, number = text.rpartition(":")
    if colon and number.isdecimal() and not Path(text).exists():
        return path, int(number)
    return text, None


def _from_json(text: bytes, name: str) -> Event:
    from siftline.encoding.json_events import load_object
    from siftline.model import Event

    try:
        return Event(load_object(text))
    except EventError as error:
        raise _BadInputError(event_problem(error, name, 1, text)) from None


def _from_document(path: str) -> Event:
    """Read a .json file: one object over several lines, or the first line of JSON Lines."""
    with open_bytes(path) as file:
        content = file.read()
    if content.lstrip().startswith(b"["):
        raise array_error(path)
    try:
        return _from_json(content, path)
    except _BadInputError:
        first = next((line for line in content.split(b"\n") if line.strip()), b"")
        return _from_json(first, path)


def _from_file(path: str, wanted: int | None, args: argparse.Namespace, expression: Expression) -> Event:
    from siftline.cli.event_files import EventFile
    from siftline.engine import Engine

    events = EventFile(path, has_only_strings=args.strings)
    engine = Engine()
    engine.add(expression)  # the engine refuses invalid values in the columns that the subscription uses
    for line, event in events.events(engine):
        if wanted is None or line == wanted:
            return _good(event)
    where = "no events" if wanted is None else f"no event on {events.unit} {wanted}"
    raise _BadInputError(f"{events.name}: {where}")


def _good(event: Any) -> Event:
    if isinstance(event, Problem):
        raise _BadInputError(event)
    return event  # type: ignore[no-any-return]
