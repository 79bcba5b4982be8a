"""The checks of a new subscription: its id, the size of its expression, its webhook, and its owner's quota."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any, Final

from siftline.broker.addresses import check_url
from siftline.broker.signatures import new_signing_secret, signing_secret
from siftline.errors import LimitError, SubscriptionError
from siftline.storage.written import Written

if TYPE_CHECKING:
    import sqlite3

    from siftline.broker.leases import Webhook
    from siftline.broker.limits import Limits
    from siftline.ids import Id

# The canonical form of an integer: no plus sign, no leading zeros, ASCII digits only.
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


def named_id(text: str, *, are_ids_text: bool | None) -> Id:
    """Return the id that a text of a request stands for: the ids of one store are all integers or all strings."""
    is_number = _INTEGER.fullmatch(text) is not None and are_ids_text is False
    return int(text) if is_number and -(2**63) <= int(text) < 2**63 else text


def new_id(*, are_ids_text: bool | None) -> Id:
    """Return a random id that is not in use and cannot be guessed."""
    return secrets.token_hex(10) if are_ids_text is not False else secrets.randbits(62)


def accepted_text(expression: Any, dialect: str, limits: Limits) -> Written:
    """Return an expression in the form that is stored; raise if it is invalid or too long."""
    written = Written.of(expression, dialect)
    n_bytes = len(written.text.encode("utf-8", "surrogatepass"))
    if n_bytes > limits.expression_bytes:
        raise SubscriptionError(f"the expression has {n_bytes:,} bytes; the limit is {limits.expression_bytes:,}")
    return written


def accepted_webhook(deliver: Webhook, *, allow_private: bool) -> Webhook:
    """Return a webhook with its secret, a new one if it has none; raise if the URL or the secret is not allowed."""
    check_url(deliver.url, allow_private=allow_private)
    return deliver._replace(secret=new_signing_secret() if deliver.secret is None else signing_secret(deliver.secret))


def check_room(connection: sqlite3.Connection, owner: str | None, limits: Limits) -> None:
    """Raise if an owner already has the largest number of subscriptions allowed."""
    if owner is None:
        return
    most = limits.subscriptions_per_owner
    query = "SELECT count(*) FROM (SELECT 1 FROM subscriptions WHERE owner = ? LIMIT ?)"
    if connection.execute(query, (owner, most)).fetchone()[0] >= most:
        raise LimitError(f"the owner has {most:,} subscriptions already, which is the limit")
