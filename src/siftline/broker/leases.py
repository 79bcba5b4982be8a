"""What the broker keeps of a subscription in the store, beside the subscription itself: tickets and webhooks.

The rows are written in the transaction that writes the subscription, so there is none without a ticket that was given
one; and they go with it, whoever removes it, so that an id that is used again does not come with an old ticket.
Subscriptions that came by another way (`siftline store import`) have no ticket; only admins can end them.
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

# So many renewals may come at once; what is about to end may be renewed so many times as often as the rest; and of so
# many subscriptions it is remembered when they came.
_AT_ONCE: Final = 5
_URGENT: Final = 10
_MOST_BUCKETS: Final = 100_000


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
    owner : str or None
        Whose it is; the broker knows.
    """

    url: str
    secret: str | None = None
    owner: str | None = None


class Renewals:
    """How often each subscription is renewed: a bucket for each, which fills by one drop every few seconds.

    Times are microseconds. The bucket of what is about to end fills ten times as fast, so that a short lease can be
    kept, but not renewed without end.

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
        """Raise if the subscription has to wait."""
        if not self._pause:
            return
        is_urgent = expires is not None and expires <= now + 2 * self._pause
        pause = self._pause / (_URGENT if is_urgent else 1)
        level, then = self._buckets.pop(id, (_AT_ONCE, now))
        level = min(_AT_ONCE, level + max(now - then, 0) / pause)
        self._buckets[id] = level - (level >= 1), now
        if len(self._buckets) > _MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]  # the one that was not renewed for longest
        if level < 1:
            seconds = (1 - level) * pause / 1e6
            raise BusyError(f"the subscription was renewed several times just now: wait {seconds:.1f} seconds")

    def forget(self, ids: Iterable[Id]) -> None:
        """Let the next subscription of an id begin anew: this one has ended."""
        for id in ids:
            self._buckets.pop(id, None)


def put_lease(connection: sqlite3.Connection, id: Id, seal: Seal, webhook: Webhook | None) -> None:
    """Write down the ticket of a subscription, and its webhook if it has one."""
    url, secret = (None, None) if webhook is None else webhook[:2]
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
    query = "SELECT id, webhook, secret, owner FROM leases LEFT JOIN subscriptions USING (id) WHERE webhook IS NOT NULL"
    if ids is None:
        rows = store.select(query)
    else:
        rows = [row for id in ids for row in store.select(f"{query} AND leases.id = ?", (id,))]
    return {id: Webhook(*webhook) for id, *webhook in rows}
