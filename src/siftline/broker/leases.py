"""Tickets and webhooks of subscriptions, in the store beside the subscriptions themselves.

The rows are written in the transaction that writes the subscription, so a subscription never lacks its ticket. They
are removed with it, so a new subscription with the same id does not inherit the ticket. Subscriptions that were not
made by the broker (`siftline store import`) have no ticket; only admins can end them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.broker.tickets import Seal, fits
from siftline.errors import BusyError, UnknownIdError, WrongTicketError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from typing import Any

    from siftline.ids import Id
    from siftline.storage.store import Store

    # Runs a query with its arguments, and returns all rows.
    Select = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]

# The size of a token bucket: how many renewals of a subscription may come at once.
_BURST: Final = 5
# How many times faster the bucket of a subscription refills that is about to expire.
_URGENT_FACTOR: Final = 10
# How many subscriptions have a bucket; beyond this the one that was renewed longest ago is forgotten.
_MOST_BUCKETS: Final = 100_000


class Lease(NamedTuple):
    """The answer to a subscriber; the ticket and the secret of the webhook are not shown again."""

    id: Id
    ticket: str
    expires: datetime
    secret: str | None = None


class OwnerKey(NamedTuple):
    """Replaces a ticket: the request has an API key of this owner."""

    owner: str


# What authorises a request to act on a subscription: a ticket, an owner's key, or None for admins.
Proof = str | OwnerKey | None


class Webhook(NamedTuple):
    """Where notifications are sent to.

    Attributes
    ----------
    url : str
        An http or https URL.
    secret : str or None
        The key of the signatures, `whsec_` and 24 to 64 bytes in base64; if it is None, a new one is made.
    owner : str or None
        The owner of its subscription; set by the broker.
    """

    url: str
    secret: str | None = None
    owner: str | None = None


class Renewals:
    """Limits how often each subscription is renewed: a token bucket for each, which gains a token every few seconds.

    Times are in microseconds. The bucket of a subscription that is about to expire refills ten times as fast, so that
    a short lease can be renewed in time.

    >>> renewals = Renewals(2.0)
    >>> for _ in range(5):
    ...     renewals.take("x", 0, 10**9)
    >>> renewals.take("x", 0, 10**9)
    Traceback (most recent call last):
        ...
    siftline.errors.BusyError: the subscription was renewed several times just now: wait 2.0 seconds
    >>> renewals.take("x", 200_000, 4_000_000)
    >>> renewals.take("x", 200_000, 4_000_000)
    Traceback (most recent call last):
        ...
    siftline.errors.BusyError: the subscription was renewed several times just now: wait 0.2 seconds
    >>> renewals.forget(["x"])
    >>> renewals.take("x", 200_000, 10**9)
    """

    def __init__(self, seconds: float) -> None:
        self._pause = int(1e6 * seconds)
        self._buckets: dict[Id, tuple[float, int]] = {}

    def take(self, id: Id, now: int, expires: int | None) -> None:
        """Take a token; raise if there is none."""
        if not self._pause:
            return
        is_urgent = expires is not None and expires <= now + 2 * self._pause
        pause = self._pause / (_URGENT_FACTOR if is_urgent else 1)
        level, then = self._buckets.pop(id, (_BURST, now))
        level = min(_BURST, level + max(now - then, 0) / pause)
        self._buckets[id] = level - (level >= 1), now
        if len(self._buckets) > _MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]  # renewed longest ago
        if level < 1:
            seconds = (1 - level) * pause / 1e6
            raise BusyError(f"the subscription was renewed several times just now: wait {seconds:.1f} seconds")

    def forget(self, ids: Iterable[Id]) -> None:
        """Drop the buckets of subscriptions that have ended."""
        for id in ids:
            self._buckets.pop(id, None)


def put_lease(connection: sqlite3.Connection, id: Id, seal: Seal, webhook: Webhook | None) -> None:
    """Write the ticket of a subscription, and its webhook if it has one."""
    url, secret = (None, None) if webhook is None else webhook[:2]
    connection.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?)", (id, *seal, url, secret))


def check_lease(select: Select, id: Id, proof: Proof, now: int) -> None:
    """Raise unless the subscription exists, has not expired, and the proof, if there is one, belongs to it."""
    rows = select(
        "SELECT expires, owner, salt, digest FROM subscriptions LEFT JOIN leases USING (id) WHERE subscriptions.id = ?",
        (id,),
    )
    if not rows or (rows[0][0] is not None and rows[0][0] <= now):
        raise UnknownIdError(f"there is no subscription {id!r}")
    _, owner, salt, digest = rows[0]
    if isinstance(proof, OwnerKey):
        if proof.owner != owner:
            raise WrongTicketError("the subscription does not belong to the owner of the key")
    elif proof is not None and (salt is None or not fits(proof, Seal(salt, digest))):
        raise WrongTicketError("the ticket does not belong to the subscription")


def webhooks_of(store: Store, ids: list[Id] | None = None) -> dict[Id, Webhook]:
    """Return the webhooks of some subscriptions, or of all that have one."""
    query = "SELECT id, webhook, secret, owner FROM leases LEFT JOIN subscriptions USING (id) WHERE webhook IS NOT NULL"
    if ids is None:
        rows = store.select(query)
    else:
        rows = [row for id in ids for row in store.select(f"{query} AND leases.id = ?", (id,))]
    return {id: Webhook(*webhook) for id, *webhook in rows}
