"""The limits of a broker and its server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from siftline.errors import LimitError

DAY: Final = timedelta(days=1)

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"([0-9]{1,12})\s*([smhd])")


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest sizes, counts, times and rates that a broker and its server accept.

    Attributes
    ----------
    body_bytes, event_bytes, expression_bytes : int
        The size of the body of a request, of one event, and of an expression as it is written.
    bodies_bytes : int
        The bodies of all requests that a server is reading or working on; beyond that, requests are refused as busy.
    batch_events : int
        Events in one publish.
    waiting_events, waiting_bytes : int
        Events that wait to be matched; beyond that, publishes are refused as busy.
    subscriptions, subscriptions_per_owner : int
        Subscriptions in all, and of one owner.
    validity : timedelta
        The longest lease.
    renewal_seconds : float
        The average time between renewals of a subscription; a few may come at once, and ten times as many when its
        lease is about to end.
    log_events, log_bytes : int
        Events that the log of notifications keeps, and the bytes of their payloads and matches.
    letter_bytes : int
        Dead letters with their events.
    publish_names : int
        Idempotency keys that are remembered, besides those whose notifications the log has.
    stream_items, stream_bytes : int
        The queue of one stream in memory; a stream whose queue is full reads the log instead.
    hub_bytes : int
        The queues of all streams together, with what they are about to send.
    streams, streams_per_owner, streams_per_ticket : int
        Open streams: in all, of one owner and the owner's subscriptions, and of one subscription.
    connections, connections_per_address : int
        Open connections: in all, and from one address.
    header_bytes, headers : int
        The head of a request: its size, and its number of headers.
    request_seconds, header_seconds : float
        Within what time a request, and its head, have to be complete.
    idle_seconds, send_seconds : float
        How long a connection may wait for the next request, and a response for a peer that does not read it.
    publishes_per_second, subscribes_per_second : float or None
        Requests of one client; None means no limit.
    """

    body_bytes: int = 16 << 20
    bodies_bytes: int = 128 << 20
    event_bytes: int = 1 << 20
    expression_bytes: int = 64 << 10
    batch_events: int = 10_000
    waiting_events: int = 50_000
    waiting_bytes: int = 64 << 20
    subscriptions: int = 10_000_000
    subscriptions_per_owner: int = 10_000
    validity: timedelta = timedelta(days=366)
    renewal_seconds: float = 1.0
    log_events: int = 100_000
    log_bytes: int = 256 << 20
    letter_bytes: int = 32 << 20
    publish_names: int = 200_000
    stream_items: int = 1_000
    stream_bytes: int = 4 << 20
    hub_bytes: int = 256 << 20
    streams: int = 10_000
    streams_per_owner: int = 1_000
    streams_per_ticket: int = 20
    connections: int = 16_000
    connections_per_address: int = 4_000
    header_bytes: int = 32 << 10
    headers: int = 100
    request_seconds: float = 30.0
    header_seconds: float = 10.0
    idle_seconds: float = 30.0
    send_seconds: float = 60.0
    publishes_per_second: float | None = None
    subscribes_per_second: float | None = 100.0

    def lease(self, validity: Any) -> timedelta:
        """Return a validity, which is a timedelta, seconds, or text such as '12h', as a timedelta.

        >>> Limits().lease("2d"), Limits().lease(90)
        (datetime.timedelta(days=2), datetime.timedelta(seconds=90))
        """
        asked = _duration(validity)
        if not timedelta(0) < asked <= self.validity:
            raise LimitError(f"the validity must be positive and at most {self.validity.days} days")
        return asked


def _duration(validity: Any) -> timedelta:
    if isinstance(validity, timedelta):
        return validity
    if isinstance(validity, (int, float)) and not isinstance(validity, bool) and abs(validity) < 1e10:
        return timedelta(seconds=validity)
    found = _DURATION.fullmatch(validity.strip()) if isinstance(validity, str) else None
    if found is None:
        raise LimitError("the validity must be a number of seconds, or text such as '45s', '30m', '12h' or '7d'")
    seconds = int(found[1]) * _UNITS[found[2]]
    return timedelta(seconds=min(seconds, 10**10))
