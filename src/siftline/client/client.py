"""The client with blocking methods."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from siftline.broker.limits import DAY
from siftline.client import calls
from siftline.client.connection import HttpClient, refusal_of, result_of, stream_timeout, unreachable
from siftline.client.following import Following, warn_of_gap
from siftline.client.repeating import Repeating
from siftline.errors import BusyError, LimitError, ServerError, SiftlineError, UnknownIdError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from siftline.broker.leases import Lease, Webhook
    from siftline.broker.notifications import Delivered, Notification, Page
    from siftline.client.answers import Changes, Published, Subscription
    from siftline.client.calls import Call
    from siftline.ids import Id

Result = TypeVar("Result")


class Client(HttpClient[httpx.Client]):
    """A client of `siftline serve`, with the methods of `Broker`; thread-safe.

    Errors are those of the library, such as SubscriptionError with the position; AccessError if a key is missing or
    wrong, BusyError if the server asks to try again later (`retry_after` has the seconds), ServerError if there is no
    answer. Only `publish` and `publish_many` are repeated automatically, with an idempotency key by which the server
    recognises the repeat and delivers the events once. After their ServerError, the events may have been published or
    not; it is safe to repeat the call with the same `idempotency`.

    Parameters
    ----------
    url : str
        The URL of the server, such as ``https://broker.example:8080``.
    key : str, optional
        An API key.
    timeout : float
        How many seconds connecting, sending, or waiting for the next bytes may take.
    ca : str, optional
        A file with the certificates to trust instead of those of the system.
    certificate, certificate_key : str, optional
        The files of the certificate and the key by which the client identifies itself.
    use_proxies : bool
        Whether to use the proxies in the environment variables.
    retries : int
        How often a publish is sent again if there was no answer, or the server was busy.

    Examples
    --------
    >>> import tempfile, siftline
    >>> from siftline.broker.broker import Broker
    >>> from siftline.server.run import running
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Broker(folder.name + "/s.db") as broker, running(broker) as server, siftline.Client(server.url) as client:
    ...     lease = client.subscribe("model = 'iphone5s' and price <= 580", validity="12h")
    ...     client.publish({"model": "iphone5s", "price": 550})
    ...     for notification in client.stream(lease.id, lease.ticket, after="0-0"):
    ...         notification.event
    ...         client.unsubscribe(lease.id, lease.ticket)  # which ends the stream
    1
    {'model': 'iphone5s', 'price': 550}
    >>> folder.cleanup()
    """

    _http_type = httpx.Client

    def close(self) -> None:
        """Close the connections; streams end."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def subscribe(
        self,
        expression: Any,
        validity: Any = DAY,
        *,
        deliver: Webhook | None = None,
        owner: str | None = None,
        dialect: str = calls.TEXT,
        weight: float = 1.0,
    ) -> Lease:
        """Add a subscription that expires after a time; the arguments are those of `Broker.subscribe`."""
        return self._ask(
            calls.subscribe(expression, validity, deliver=deliver, owner=owner, dialect=dialect, weight=weight)
        )

    def renew(self, id: Id, ticket: str | None = None, validity: Any = DAY) -> datetime:
        """Renew a subscription from now on, and return when it expires. Admins need no ticket, here and below."""
        return self._ask(calls.renew(id, ticket, validity))

    def replace(self, id: Id, ticket: str | None, expression: Any, *, dialect: str = calls.TEXT) -> None:
        """Replace the expression of a subscription; every event meets either the old one or the new one."""
        self._ask(calls.replace(id, ticket, expression, dialect=dialect))

    def unsubscribe(self, id: Id, ticket: str | None = None) -> None:
        """End a subscription."""
        self._ask(calls.unsubscribe(id, ticket))

    def get(self, id: Id, ticket: str | None = None) -> Subscription:
        """Return a subscription."""
        return self._ask(calls.get(id, ticket))

    def publish(self, event: Any, *, idempotency: str | None = None) -> int:
        """Publish one event, a dict or JSON text; return when its notifications are durable."""
        return self._ask(calls.publish_many([event], idempotency))

    def publish_many(self, events: Iterable[Any], *, idempotency: str | None = None) -> int:
        """Publish events together, all of them or none if one is invalid; return how many."""
        return self._ask(calls.publish_many(events, idempotency))

    def match(self, event: Any) -> list[Id]:
        """Return the subscriptions that an event matches, without notifying them; for admins."""
        return self._ask(calls.match(event))

    def explain(
        self, event: Any, expression: Any = None, *, id: Id | None = None, dialect: str = calls.TEXT
    ) -> dict[str, Any]:
        """Return why an event matches an expression or a subscription, or does not; for admins."""
        return self._ask(calls.explain(event, expression, id=id, dialect=dialect))

    def subscriptions(self, owner: str) -> Iterator[Subscription]:
        """Yield all subscriptions of an owner, in the order of their ids; needs the owner's key."""
        page = self._ask(calls.owned(owner, None))
        while page.next is not None:
            yield from page.subscriptions
            page = self._ask(calls.owned(owner, page.next))
        yield from page.subscriptions

    def notifications(self, id: Id, ticket: str | None = None, after: str | None = None, limit: int = 1000) -> Page:
        """Return the notifications of a subscription after another one, oldest first, as far as the log has them."""
        return self._ask(calls.notifications(id, ticket, after, limit))

    def published(self, after: int | None = None, limit: int = 1000) -> Published:
        """Return the events after a number, or all, of a broker that leaves matching to a cluster; for admins."""
        return self._ask(calls.published(after, limit))

    def changes(self, after: int = 0, limit: int = 1000) -> Changes:
        """Return the changes of subscriptions after a number, oldest first; for admins."""
        return self._ask(calls.changes(after, limit))

    def acknowledge(self, reader: str, sequence: int) -> None:
        """Acknowledge that a reader has all changes up to a number: later ones are kept for it; for admins."""
        self._ask(calls.acknowledge(reader, sequence))

    def deliver(self, matches: Iterable[tuple[int, list[Id]]]) -> Delivered:
        """Send the matches that a cluster has found, by the numbers of events; repeats are ignored; for admins."""
        return self._ask(calls.deliver(matches))

    def stream(
        self,
        id: Id | None = None,
        ticket: str | None = None,
        *,
        owner: str | None = None,
        after: str | None = None,
        patience: float | None = 300.0,
        on_gap: Callable[[str], None] = warn_of_gap,
    ) -> Iterator[Notification]:
        """Yield notifications as they come, each once, until the subscription ends.

        A broken connection is made again, with growing pauses, and the stream resumes where it was.

        Parameters
        ----------
        id, ticket
            The subscription; without them, the notifications of all subscriptions, for admins.
        owner : str, optional
            Yield the notifications of all subscriptions of an owner; needs the owner's key.
        after : str, optional
            The id of the last notification that was received earlier; '0-0' means all that the log has. Without it,
            the stream starts with new notifications.
        patience : float, optional
            Seconds without a connection after which ServerError is raised; None means never.
        on_gap : callable
            Called with the reason if notifications are missing from the log; the default is a warning.
        """
        following = Following(ticket, after, patience, on_gap)
        path = calls.stream_path(id, owner)
        while not self._http.is_closed:
            error: ServerError | BusyError | None = None
            try:
                yield from self._connected(path, following)
            except (BusyError, ServerError) as problem:
                error = problem
            except (httpx.HTTPError, httpx.StreamError) as problem:
                error = unreachable(problem)
            except UnknownIdError:
                if following.was_open:
                    return
                raise
            if not self._http.is_closed:
                time.sleep(following.pause(error))

    def _connected(self, path: str, following: Following) -> Iterator[Notification]:
        timeout = stream_timeout(self._timeout)
        with self._http.stream("GET", path, headers=following.headers(), timeout=timeout) as response:
            if response.status_code != 200:
                raise refusal_of(response, response.read(), LimitError)
            following.opened()
            for chunk in response.iter_bytes():
                yield from following.take(chunk)

    def _ask(self, call: Call[Result]) -> Result:
        repeating = Repeating(call, self._retries)
        while True:
            try:
                return self._sent(call)
            except SiftlineError as error:
                seconds = repeating.pause(error)
            time.sleep(seconds)

    def _sent(self, call: Call[Result]) -> Result:
        try:
            response = self._http.request(call.method, call.path, content=call.body, headers=call.headers())
        except httpx.HTTPError as error:
            raise unreachable(error) from error
        return result_of(call, response)
