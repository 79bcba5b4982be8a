"""The client for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from siftline.broker.limits import DAY
from siftline.client import calls
from siftline.client.connection import HttpClient, refusal_of, result_of, stream_timeout, unreachable
from siftline.client.following import Following, warn_of_gap
from siftline.client.repeating import Repeating
from siftline.errors import BusyError, LimitError, ServerError, SiftlineError, UnknownIdError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
    from datetime import datetime

    from siftline.broker.leases import Lease, Webhook
    from siftline.broker.notifications import Delivered, Notification, Page
    from siftline.client.answers import Changes, Published, Subscription
    from siftline.client.calls import Call
    from siftline.ids import Id

Result = TypeVar("Result")


class AsyncClient(HttpClient[httpx.AsyncClient]):
    """The asyncio version of `Client`: every method is awaited, and streams are read by `async for`.

    Parameters are those of `Client`.

    Examples
    --------
    >>> import asyncio, tempfile, siftline
    >>> from siftline.broker.broker import Broker
    >>> from siftline.server.run import running
    >>> async def main(url):
    ...     async with siftline.AsyncClient(url) as client:
    ...         lease = await client.subscribe("price <= 580")
    ...         await client.publish_many([{"price": 550}, {"price": 600}])
    ...         async for notification in client.stream(lease.id, lease.ticket, after="0-0"):
    ...             print(notification.event)
    ...             await client.unsubscribe(lease.id, lease.ticket)
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Broker(folder.name + "/store.db") as broker, running(broker) as server:
    ...     asyncio.run(main(server.url))
    {'price': 550}
    >>> folder.cleanup()
    """

    _http_type = httpx.AsyncClient

    async def close(self) -> None:
        """Close the connections; streams end."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def subscribe(
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
        return await self._ask(
            calls.subscribe(expression, validity, deliver=deliver, owner=owner, dialect=dialect, weight=weight)
        )

    async def renew(self, id: Id, ticket: str | None = None, validity: Any = DAY) -> datetime:
        """Renew a subscription from now on, and return when it expires. Admins need no ticket, here and below."""
        return await self._ask(calls.renew(id, ticket, validity))

    async def replace(self, id: Id, ticket: str | None, expression: Any, *, dialect: str = calls.TEXT) -> None:
        """Replace the expression of a subscription; every event meets either the old one or the new one."""
        await self._ask(calls.replace(id, ticket, expression, dialect=dialect))

    async def unsubscribe(self, id: Id, ticket: str | None = None) -> None:
        """End a subscription."""
        await self._ask(calls.unsubscribe(id, ticket))

    async def get(self, id: Id, ticket: str | None = None) -> Subscription:
        """Return a subscription."""
        return await self._ask(calls.get(id, ticket))

    async def publish(self, event: Any, *, idempotency: str | None = None) -> int:
        """Publish one event, a dict or JSON text; return when its notifications are durable."""
        return await self._ask(calls.publish_many([event], idempotency))

    async def publish_many(self, events: Iterable[Any], *, idempotency: str | None = None) -> int:
        """Publish events together, all of them or none if one is invalid; return how many."""
        return await self._ask(calls.publish_many(events, idempotency))

    async def match(self, event: Any) -> list[Id]:
        """Return the subscriptions that an event matches, without notifying them; for admins."""
        return await self._ask(calls.match(event))

    async def explain(
        self, event: Any, expression: Any = None, *, id: Id | None = None, dialect: str = calls.TEXT
    ) -> dict[str, Any]:
        """Return why an event matches an expression or a subscription, or does not; for admins."""
        return await self._ask(calls.explain(event, expression, id=id, dialect=dialect))

    async def subscriptions(self, owner: str) -> AsyncIterator[Subscription]:
        """Yield all subscriptions of an owner, in the order of their ids; needs the owner's key."""
        page = await self._ask(calls.owned(owner, None))
        while page.next is not None:
            for each in page.subscriptions:
                yield each
            page = await self._ask(calls.owned(owner, page.next))
        for each in page.subscriptions:
            yield each

    async def notifications(
        self, id: Id, ticket: str | None = None, after: str | None = None, limit: int = 1000
    ) -> Page:
        """Return the notifications of a subscription after another one, oldest first, as far as the log has them."""
        return await self._ask(calls.notifications(id, ticket, after, limit))

    async def published(self, after: int | None = None, limit: int = 1000) -> Published:
        """Return the events after a number, or all, of a broker that leaves matching to a cluster; for admins."""
        return await self._ask(calls.published(after, limit))

    async def changes(self, after: int = 0, limit: int = 1000) -> Changes:
        """Return the changes of subscriptions after a number, oldest first; for admins."""
        return await self._ask(calls.changes(after, limit))

    async def acknowledge(self, reader: str, sequence: int) -> None:
        """Acknowledge that a reader has all changes up to a number: later ones are kept for it; for admins."""
        await self._ask(calls.acknowledge(reader, sequence))

    async def deliver(self, matches: Iterable[tuple[int, list[Id]]]) -> Delivered:
        """Send the matches that a cluster has found, by the numbers of events; repeats are ignored; for admins."""
        return await self._ask(calls.deliver(matches))

    async def stream(
        self,
        id: Id | None = None,
        ticket: str | None = None,
        *,
        owner: str | None = None,
        after: str | None = None,
        patience: float | None = 300.0,
        on_gap: Callable[[str], None] = warn_of_gap,
    ) -> AsyncIterator[Notification]:
        """Yield notifications as they come, each once, until the subscription ends; see `Client.stream`."""
        following = Following(ticket, after, patience, on_gap)
        path = calls.stream_path(id, owner)
        while not self._http.is_closed:
            error: ServerError | BusyError | None = None
            try:
                async with contextlib.aclosing(self._connected(path, following)) as found:
                    async for notification in found:
                        yield notification
            except (BusyError, ServerError) as problem:
                error = problem
            except (httpx.HTTPError, httpx.StreamError) as problem:
                error = unreachable(problem)
            except UnknownIdError:
                if following.was_open:
                    return
                raise
            if not self._http.is_closed:
                await asyncio.sleep(following.pause(error))

    async def _connected(self, path: str, following: Following) -> AsyncGenerator[Notification]:
        timeout = stream_timeout(self._timeout)
        async with self._http.stream("GET", path, headers=following.headers(), timeout=timeout) as response:
            if response.status_code != 200:
                raise refusal_of(response, await response.aread(), LimitError)
            following.opened()
            async for chunk in response.aiter_bytes():
                for notification in following.take(chunk):
                    yield notification

    async def _ask(self, call: Call[Result]) -> Result:
        repeating = Repeating(call, self._retries)
        while True:
            try:
                return await self._sent(call)
            except SiftlineError as error:
                seconds = repeating.pause(error)
            await asyncio.sleep(seconds)

    async def _sent(self, call: Call[Result]) -> Result:
        try:
            response = await self._http.request(call.method, call.path, content=call.body, headers=call.headers())
        except httpx.HTTPError as error:
            raise unreachable(error) from error
        return result_of(call, response)
