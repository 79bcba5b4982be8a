"""`siftline store`: subscriptions in a durable file: add, remove, import, export, list, verify."""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from siftline.cli.actions import add_action
from siftline.cli.files import refuse_overwriting
from siftline.cli.match import count
from siftline.cli.problems import BAD_INPUT, MAX_REPORTED, OK, CannotRunError, Reporter, counted, say, show
from siftline.cli.store_changes import DIALECTS, add, remove
from siftline.files.formats import CSV, JSONL, PARQUET, STANDARD, input_format

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from siftline.cli.store_import import Import
    from siftline.storage.rows import StoredSubscription
    from siftline.storage.store import Store

NAME: Final = "store"
SUMMARY: Final = "keep subscriptions in a durable file: add, remove, import, export, list, verify"
DETAILS: Final = """\
  add      adds one subscription, and prints its id: a new number unless --id is given.
  remove   removes subscriptions by their ids: all of them, or none if one is unknown.
  import   reads subscriptions like `siftline match`, and adds all of them, or none if one is invalid.
           Invalid ones are reported with line and reason; with --quarantine they are written to a
           file with the reason, and the valid ones are added.
  export   writes all subscriptions; JSON Lines keep every expression as it was written, the other
           formats have it in the text language.
  list     shows subscriptions and the state of the store; with --json as one document.
  verify   checks the whole file: structure, checksums, expressions; and the log of notifications
           beside it, if there is one.

A server may be running on the store: it sees the changes. `add` and `import` make a new store if there is none.

exit status: 0 done; 1 invalid or unknown subscriptions, or damage; 2 could not run
"""
EXAMPLES: Final = """\
examples:
  siftline store add subscriptions.db "brand = 'acme' and price <= 580" --id ann --owner shop
  siftline store remove subscriptions.db ann
  siftline store import subscriptions.db rules.jsonl --quarantine bad.jsonl
  siftline store list subscriptions.db --owner ann
  siftline store export subscriptions.db --output rules.parquet
  siftline store verify subscriptions.db
"""

_DEFAULT_LIMIT: Final = 50
_WIDTH: Final = 100
_COLUMNS: Final = ("id", "owner", "weight", "created", "expires", "dialect", "expression")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the commands and their options."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    adding = _action(actions, "add", "add one subscription, and print its id", add)
    adding.add_argument("expression", metavar="EXPRESSION", help="text, an event pattern {...} or filters [...]")
    adding.add_argument("--id", metavar="ID", help="the id (a new number); whole numbers are integers")
    adding.add_argument("--weight", metavar="NUMBER", type=float, default=1.0, help="the weight for ranking (1)")
    adding.add_argument("--owner", metavar="NAME", help="the owner of the subscription")
    adding.add_argument("--expires", metavar="TIME", help="when it expires, with a time zone: 2030-01-31T12:00:00Z")
    adding.add_argument("--dialect", choices=DIALECTS, help="the dialect of the expression, if not detected")
    removing = _action(actions, "remove", "remove subscriptions: all of them, or none if one is unknown", remove)
    removing.add_argument("ids", metavar="ID", nargs="+", help="the ids")
    importing = _action(actions, "import", "add subscriptions from files", _import)
    importing.add_argument("files", metavar="FILE", nargs="+", help="JSON Lines, CSV, Parquet or text; - is JSON Lines")
    importing.add_argument("--replace", action="store_true", help="replace the expressions of ids that are in use")
    importing.add_argument("--quarantine", metavar="FILE", help="the file for invalid subscriptions, as JSON Lines")
    importing.add_argument("--owner", metavar="NAME", help="the owner of subscriptions without one")
    exporting = _action(actions, "export", "write all subscriptions to a file", _export)
    exporting.add_argument("--output", metavar="FILE", default=STANDARD, help="the file (standard output)")
    exporting.add_argument("--format", choices=(JSONL, CSV, PARQUET), help="of the output, if not by its extension")
    exporting.add_argument("--owner", metavar="NAME", help="only the subscriptions of one owner")
    listing = _action(actions, "list", "show subscriptions", _list)
    listing.add_argument("--owner", metavar="NAME", help="only the subscriptions of one owner")
    listing.add_argument("--limit", metavar="N", type=count, help="show at most N (50; with --json all)")
    listing.add_argument("--json", action="store_true", help="print state and subscriptions as a JSON document")
    verifying = _action(actions, "verify", "check the whole file for damage", _verify)
    verifying.add_argument("--json", action="store_true", help="print a JSON document instead of text")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    action = add_action(actions, name, summary, run)
    action.add_argument("store", metavar="STORE", help="the file of the store")
    return action


def run(args: argparse.Namespace) -> int:
    """Run one action, and return the exit status."""
    return int(args.act(args))


def _import(args: argparse.Namespace) -> int:
    from siftline.cli.store_import import Import
    from siftline.files.subscription_files import FORMATS
    from siftline.storage.store import Store

    if args.quarantine is not None:
        refuse_overwriting(args.quarantine, args.store, *args.files)
    if args.files.count(STANDARD) > 1:
        raise CannotRunError("standard input can be read only once")
    for file in args.files:  # before a store is made
        input_format(file, FORMATS)
        if file != STANDARD:
            os.stat(file)
            if os.path.exists(args.store) and os.path.samefile(file, args.store):
                raise CannotRunError(f"{file} is the store itself, not a file of subscriptions")
    start = time.perf_counter()
    with Store(args.store, is_guest=True) as store:  # a server may be running on it
        job = Import(store, is_replacing=args.replace, owner=args.owner, is_quiet=args.quiet)
        # Without a quarantine nothing will be added, so the first invalid ones are enough.
        stop_after = MAX_REPORTED if args.quarantine is None else None
        for file in args.files:
            job.read(file, stop_after)
        return _finish(job, args, start)


def _finish(job: Import, args: argparse.Namespace, start: float) -> int:
    reporter = Reporter()
    for problem in job.problems:
        reporter.report(problem)
    n_bad = len(job.problems)
    if n_bad and args.quarantine is None:
        more = " (stopped there)" if n_bad >= MAX_REPORTED else ""
        say(f"{counted(n_bad, 'bad subscription')}{more}: nothing was imported; --quarantine FILE sets them aside")
        return BAD_INPUT
    job.commit(args.quarantine)
    if not args.quiet:
        parts = [f"{counted(job.n_added, 'subscription')} added"]
        if args.replace:
            parts.append(f"{job.n_replaced:,} replaced")
        if n_bad:
            parts.append(f"{n_bad:,} bad in {args.quarantine}")
        say(f"{args.store}: {', '.join(parts)} in {time.perf_counter() - start:.1f} s")
    return BAD_INPUT if n_bad else OK


def _export(args: argparse.Namespace) -> int:
    from siftline.cli.match_files import output_format
    from siftline.cli.store_export import export

    kind = output_format(args.output, args.format)
    refuse_overwriting(args.output, args.store)
    with _opened(args) as store:
        n = export(store, args.output, kind, owner=args.owner, is_quiet=args.quiet)
    if not args.quiet and args.output != STANDARD:
        say(f"{args.output}: {counted(n, 'subscription')}")
    return OK


def _list(args: argparse.Namespace) -> int:
    with _opened(args) as store:
        if args.json:
            _show_document(store, args)
            return OK
        rows = [_cells(each) for each in islice(store.subscriptions(owner=args.owner), args.limit or _DEFAULT_LIMIT)]
        if rows:
            _show_table([_COLUMNS, *rows])
        n_left = len(store) - len(rows) if args.owner is None else 0
        if n_left > 0:
            show(f"... and {n_left:,} more (--limit N shows more, `siftline store export` all)")
        if not args.quiet:
            state = _state(store)
            show(f"{args.store}: {counted(state['subscriptions'], 'subscription')}, change {state['sequence']:,}")
            for reader, sequence in store.readers().items():
                show(f"  reader {reader}: change {sequence:,}")
    return OK


def _show_document(store: Store, args: argparse.Namespace) -> None:
    """Print the state and the subscriptions, one per line; there may be more than fit into memory."""
    from siftline.cli.store_export import json_line

    out = sys.stdout.buffer
    out.write(f'{json.dumps(_state(store))[:-1]}, "listed": ['.encode())
    for n, each in enumerate(islice(store.subscriptions(owner=args.owner), args.limit)):
        out.write(f"{',' * (n > 0)}\n{json_line(each)}".encode())
    out.write(b"]}\n")
    out.flush()


def _verify(args: argparse.Namespace) -> int:
    from siftline.broker.log_file import verify as verify_log
    from siftline.cli.progress import Progress

    with _opened(args, is_checked=False) as store, Progress("verifying", None, "rows", is_quiet=args.quiet) as progress:
        problems = store.verify(progress.advance)
        state = {} if problems else _state(store)
        notifications = f"{store.path}-notifications"
        if os.path.exists(notifications):
            problems += verify_log(notifications)
    if args.json:
        show(json.dumps({"problems": problems, **state}))
    else:
        for problem in problems[:MAX_REPORTED]:
            show(problem)
        if problems:
            show(f"{args.store}: damaged, {counted(len(problems), 'problem')} found")
        elif not args.quiet:
            n = counted(state["subscriptions"], "subscription")
            show(f"{args.store}: sound, {n}, change {state['sequence']:,}")
    return BAD_INPUT if problems else OK


def _opened(args: argparse.Namespace, *, is_checked: bool = True) -> Store:
    from siftline.storage.store import Store

    return Store(args.store, is_read_only=True, is_checked=is_checked)


def _state(store: Store) -> dict[str, Any]:
    return {"subscriptions": len(store), "sequence": store.sequence, "readers": store.readers()}


def _cells(subscription: StoredSubscription) -> tuple[str, ...]:
    dialect, text = subscription.written
    expires = "" if subscription.expires is None else f"{subscription.expires:%Y-%m-%d %H:%M}"
    line = " ".join(text.split())
    return (
        str(subscription.id),
        subscription.owner or "",
        f"{subscription.weight:g}",
        f"{subscription.created:%Y-%m-%d %H:%M}",
        expires,
        dialect,
        line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}...",
    )


def _show_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
        show("  ".join([*cells, row[-1]]))
