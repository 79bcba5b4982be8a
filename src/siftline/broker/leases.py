"""What the broker keeps of a subscription in the store, beside the subscription itself: tickets and webhooks.

The rows are written in the transaction that writes the subscription, so there is none without a ticket that was given
one; and they go with it, whoever removes it, so that an id that is used again does not come with an old ticket.
Subscriptions that came by another way (`siftline store import`) have no ticket; only admins can end them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from siftline.broker.tickets import Seal, fits
from siftline.errors import UnknownIdError, WrongTicketError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from datetime import datetime
    from typing import Any

    from siftline.storage.store import Store
    from siftline.subscriptions import Id

    # Runs a query with its arguments, and returns all rows.
    Select = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]


class Lease(NamedTuple):
    """What a subscriber gets; the ticket and the secret of the webhook are shown this once."""

    id: Id
    ticket: str
    expires: datetime
    secret: str | None = None


class OwnerKey(NamedTuple):
    """What may stand instead of a ticket: who asks has a key of this owner."""

    owner: str


# By what a request acts on a subscription; None is for admins, who need nothing.
Proof = str | OwnerKey | None


class Webhook(NamedTuple):
    """Where notifications are sent to.

    Attributes
    ----------
    url : str
        Of http or https.
    secret : str or None
        What signatures are made with, `whsec_` and 24 to 64 bytes in base64; a new one is made if it is None.
    """

    url: str
    secret: str | None = None


def put_lease(connection: sqlite3.Connection, id: Id, seal: Seal, webhook: Webhook | None) -> None:
    """Write down the ticket of a subscription, and its webhook if it has one."""
    url, secret = (None, None) if webhook is None else webhook
    connection.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?)", (id, *seal, url, secret))


def check_lease(select: Select, id: Id, proof: Proof, now: int) -> None:
    """Raise unless there is such a subscription, it has not expired, and the proof, if one is given, is for it."""
    rows = select(
        "SELECT expires, owner, salt, digest FROM subscriptions LEFT JOIN leases USING (id) WHERE subscriptions.id = ?",
        (id,),
    )
    if not rows or (rows[0][0] is not None and rows[0][0] <= now):
        raise UnknownIdError(f"there is no subscription {id!r}")
    _, owner, salt, digest = rows[0]
    if isinstance(proof, OwnerKey):
        if proof.owner != owner:
            raise WrongTicketError("the subscription is not one of the key's owner")
    elif proof is not None and (salt is None or not fits(proof, Seal(salt, digest))):
        raise WrongTicketError("the ticket is not that of the subscription")


def webhooks_of(store: Store, ids: list[Id] | None = None) -> dict[Id, Webhook]:
    """Return the webhooks of some subscriptions, or of all that have one."""
    query = "SELECT id, webhook, secret FROM leases WHERE webhook IS NOT NULL"
    if ids is None:
        rows = store.select(query)
    else:
        rows = [row for id in ids for row in store.select(f"{query} AND id = ?", (id,))]
    return {id: Webhook(url, secret) for id, url, secret in rows}
