"""What the broker takes as a subscription: an id, an expression of a bounded size, a webhook, one of not too many."""

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

# As integers are written: no sign of plus, no leading zeros, no other digits than ours.
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


def named_id(text: str, *, are_ids_text: bool | None) -> Id:
    """Return the id that a text from outside names: ids of one store are all integers or all strings."""
    is_number = _INTEGER.fullmatch(text) is not None and are_ids_text is False
    return int(text) if is_number and -(2**63) <= int(text) < 2**63 else text


def new_id(*, are_ids_text: bool | None) -> Id:
    """Return an id that nobody has, and nobody guesses."""
    return secrets.token_hex(10) if are_ids_text is not False else secrets.randbits(62)


def accepted_text(expression: Any, dialect: str, limits: Limits) -> Written:
    """Return an expression as it is kept; raise if it is none, or too long."""
    written = Written.of(expression, dialect)
    n_bytes = len(written.text.encode("utf-8", "surrogatepass"))
    if n_bytes > limits.expression_bytes:
        raise SubscriptionError(f"the expression has {n_bytes:,} bytes: at most {limits.expression_bytes:,} may be")
    return written


def accepted_webhook(deliver: Webhook, *, allow_private: bool) -> Webhook:
    """Return a webhook with its secret, a new one if it has none; raise if it may not be."""
    check_url(deliver.url, allow_private=allow_private)
    return deliver._replace(secret=new_signing_secret() if deliver.secret is None else signing_secret(deliver.secret))


def check_room(connection: sqlite3.Connection, owner: str | None, limits: Limits) -> None:
    """Raise if an owner has as many subscriptions as may be."""
    if owner is None:
        return
    most = limits.subscriptions_per_owner
    query = "SELECT count(*) FROM (SELECT 1 FROM subscriptions WHERE owner = ? LIMIT ?)"
    if connection.execute(query, (owner, most)).fetchone()[0] >= most:
        raise LimitError(f"the owner has {most:,} subscriptions already, and no more may be")
