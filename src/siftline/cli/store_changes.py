"""`siftline store add` and `siftline store remove`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from siftline.cli.moments import zoned_time
from siftline.cli.problems import BAD_INPUT, OK, CannotRunError, counted, say, show
from siftline.errors import DuplicateIdError, SubscriptionError, UnknownIdError
from siftline.files.problems import problem_of

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

    from siftline.ids import Id
    from siftline.storage.store import Store

# How often a new number is tried if another process has taken it.
_ATTEMPTS: Final = 20
# The dialects of a store; importing its module only for the help would take long.
DIALECTS: Final = ("text", "eventbridge", "sns", "cloudevents")
# The dialect by the first character of an expression.
_LOOKS: Final = {"{": "eventbridge", "[": "cloudevents"}


def add(args: argparse.Namespace) -> int:
    """Add one subscription, print its id, and return the exit status."""
    from siftline.storage.store import Store

    try:
        expires = None if args.expires is None else zoned_time("--expires", args.expires)
    except ValueError as error:
        raise CannotRunError(str(error)) from None
    with Store(args.store, is_guest=True) as store:  # a server may be running on it
        try:
            show(str(_added(store, args, expires)))
        except SubscriptionError as error:
            say(str(problem_of(error, "EXPRESSION", error.line)))
            return BAD_INPUT
        except DuplicateIdError as error:
            say(f"siftline: {error}")
            return BAD_INPUT
    return OK


def _added(store: Store, args: argparse.Namespace, expires: datetime | None) -> Id:
    dialect = args.dialect or _LOOKS.get(args.expression.lstrip()[:1], "text")
    for attempt in range(_ATTEMPTS):
        id = _next_id(store) if args.id is None else _id(args.id, store.are_ids_text())
        try:
            store.add(args.expression, id, weight=args.weight, owner=args.owner, expires=expires, dialect=dialect)
        except DuplicateIdError:
            if args.id is not None or attempt == _ATTEMPTS - 1:
                raise
        else:
            break
    return id


def _next_id(store: Store) -> int:
    """Return a number that no subscription in the feed of the store has had."""
    if store.are_ids_text():
        raise CannotRunError(f"the ids of {store.path} are strings: --id is needed")
    ((largest,),) = store.select("SELECT max(id) FROM changes")
    return 1 if largest is None else max(largest, 0) + 1


def _id(text: str, are_texts: bool | None) -> Id:
    """Return an id in the form of the store: a whole number is an integer, unless the ids are strings."""
    from siftline.files.subscription_files import whole_number

    number = None if are_texts else whole_number(text)
    return text if number is None else number


def remove(args: argparse.Namespace) -> int:
    """Remove subscriptions by their ids, and return the exit status."""
    from siftline.storage.store import Store

    if not os.path.exists(args.store):
        raise CannotRunError(f"{args.store} does not exist")
    wanted = list(dict.fromkeys(args.ids))
    with Store(args.store, is_guest=True) as store:
        are_texts = store.are_ids_text()
        try:
            with store.batch() as batch:
                for text in wanted:
                    batch.remove(_id(text, are_texts))
        except UnknownIdError as error:
            say(f"siftline: {error}: nothing was removed")
            return BAD_INPUT
    if not args.quiet:
        say(f"{args.store}: {counted(len(wanted), 'subscription')} removed")
    return OK
