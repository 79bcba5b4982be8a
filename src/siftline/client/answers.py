"""Turns the responses of a server into the results and errors of the broker."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline import errors
from siftline.broker.leases import Lease
from siftline.broker.notifications import Gap, Notification, Page
from siftline.broker.raw_json import raw_elements

if TYPE_CHECKING:
    from siftline.ids import Id

# The errors of the library that a response may name.
_KINDS: Final = {
    kind.__name__: kind
    for kind in (
        errors.BusyError,
        errors.DuplicateIdError,
        errors.EventError,
        errors.GoneError,
        errors.IdempotencyError,
        errors.LimitError,
        errors.OperatorError,
        errors.StorageError,
        errors.StoreError,
        errors.StoreLockedError,
        errors.UnknownIdError,
        errors.WrongTicketError,
    )
}
# The error of a status if the response names none.
_STATUSES: Final[dict[int, type[errors.SiftlineError]]] = {
    401: errors.AccessError,
    403: errors.AccessError,
    408: errors.BusyError,
    413: errors.LimitError,
    429: errors.BusyError,
    503: errors.BusyError,
}
# The statuses of an invalid request.
_REFUSED: Final = (400, 415, 422)


class Subscription(NamedTuple):
    """A subscription on a server."""

    id: Id
    expression: str
    dialect: str
    weight: float
    owner: str | None
    created: datetime
    expires: datetime | None


def error_of(
    status: int,
    body: bytes,
    refusal: type[errors.SiftlineError],
    text: str | None = None,
    *,
    retry_after: float | None = None,
) -> errors.SiftlineError:
    """Return the error of a response.

    Parameters
    ----------
    status, body, retry_after
        Parts of the response.
    refusal : type
        The error of an invalid request if the response names none.
    text : str, optional
        The expression that was sent, to show the position of the error in it.
    """
    document = _error(body)
    reason = str(document.get("reason", f"the server answers with status {status}"))
    kind = document.get("kind")
    if kind == "SubscriptionError" or (kind is None and status in _REFUSED and refusal is errors.SubscriptionError):
        return errors.SubscriptionError(
            reason, text=text, position=document.get("position"), hint=document.get("hint"), path=document.get("path")
        )
    named = _KINDS.get(str(kind)) or (refusal if status in _REFUSED else None)
    named = named or (_STATUSES.get(status) if document else None)
    if named is errors.BusyError:
        return errors.BusyError(reason, retry_after)
    if named is errors.GoneError:
        first, last = (document.get(name) for name in ("first", "last"))
        return errors.GoneError(reason, first=first if type(first) is int else 0, last=last if type(last) is int else 0)
    return errors.ServerError(reason, status, retry_after) if named is None else named(reason)


def _error(body: bytes) -> dict[str, Any]:
    """Return the error document of a response; an empty one if it comes from another server or a proxy."""
    try:
        document = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def lease_of(document: dict[str, Any]) -> Lease:
    """Return the result of `subscribe`."""
    return Lease(document["id"], document["ticket"], _moment(document["expires"]), document.get("secret"))


def expiry_of(document: dict[str, Any]) -> datetime:
    """Return the result of `renew`."""
    return _moment(document["expires"])


def subscription_of(document: dict[str, Any]) -> Subscription:
    """Return the result of `get`."""
    created, expires = _moment(document["created"]), document["expires"]
    return Subscription(
        **document | {"created": created, "expires": None if expires is None else _moment(expires)},
    )


class SubscriptionPage(NamedTuple):
    """Some subscriptions of an owner, and where the next page starts, if there is one."""

    subscriptions: list[Subscription]
    next: str | None


def subscription_page_of(document: dict[str, Any]) -> SubscriptionPage:
    """Return a page of `subscriptions`."""
    return SubscriptionPage([subscription_of(each) for each in document["subscriptions"]], document["next"])


class PublishedEvent(NamedTuple):
    """An event that a server keeps for a cluster; `event` is JSON text."""

    sequence: int
    at: datetime
    event: str


class Published(NamedTuple):
    """Some events, and the numbers of the first and the last event that the server keeps."""

    first: int
    last: int
    events: list[PublishedEvent]


class Change(NamedTuple):
    """A change of a subscription: added, replaced, removed or expired; the last two have no expression."""

    sequence: int
    change: str
    id: Id
    expression: str | None = None
    dialect: str | None = None
    weight: float | None = None
    expires: datetime | None = None


class Changes(NamedTuple):
    """Some changes, the number of the last change on the server, and whether ids are strings."""

    last: int
    are_ids_text: bool
    changes: list[Change]


def published_of(document: dict[str, Any]) -> Published:
    """Return the result of `published`."""
    events = [PublishedEvent(**each | {"at": _moment(each["at"])}) for each in document["events"]]
    return Published(document["first"], document["last"], events)


def changes_of(document: dict[str, Any]) -> Changes:
    """Return the result of `changes`."""
    return Changes(document["last"], document["ids"] == "text", [_change(each) for each in document["changes"]])


def _change(document: dict[str, Any]) -> Change:
    expires = document.get("expires")
    return Change(**document | {"expires": None if expires is None else _moment(expires)})


def notifications_of(members: dict[str, str]) -> Page:
    """Return the result of `notifications`, from the texts of its members."""
    gap = json.loads(members.get("gap", "null"))
    envelopes = raw_elements(members["notifications"])
    return Page(map(Notification.of, envelopes), None if gap is None else Gap.of(gap))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
