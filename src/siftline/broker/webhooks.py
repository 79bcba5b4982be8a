"""Sends notifications to webhooks: signed, repeated until they are accepted, and given up after the last attempt.

    log: deliveries that are due ──► POST ──► 2xx                        delivered
                                          ──► any other answer, or none  again after 1 s, 5 s, 30 s, ...
                                          ──► last attempt failed, or 410  dead letter

One thread runs an event loop. Hundreds of receivers may hang without delaying the others, and slow name lookups delay
only webhooks of the same owner (`resolver.py`). A subscription gets its notifications in order, one at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import struct
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from siftline.broker.addresses import check_url, chosen_address
from siftline.broker.resolver import Resolver
from siftline.broker.shares import Shares
from siftline.broker.signatures import signature
from siftline.errors import LimitError, SiftlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from siftline.broker.deliveries import Deliveries, Delivery
    from siftline.broker.leases import Webhook
    from siftline.broker.notifications import Notification
    from siftline.ids import Id

RETRY_SECONDS: Final = (1.0, 5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)

# Open connections, and the bytes of the events that are sent on them. Owners share both (`shares.py`), so that hanging
# receivers of one owner leave room for others.
_CONNECTIONS_MAX: Final = 256
_MOST_BYTES: Final = 32 << 20
# The bytes of events that are read at a time.
_MOST_READ_BYTES: Final = 8 << 20
# How long a receiver may take.
_TIMEOUT_SECONDS: Final = 10.0
# How long closing a TLS connection may take; it no longer counts in anybody's share.
_CLOSE_SECONDS: Final = 1.0
_NO_LINGERING: Final = struct.pack("ii", 1, 0)
_POLL_SECONDS: Final = 0.5
_GONE: Final = 410


class Webhooks:
    """Sends the deliveries that are due.

    Parameters
    ----------
    deliveries : Deliveries
        The pending deliveries; the results are recorded there.
    webhook_of : callable
        From the id of a subscription to its webhook, None if it has none.
    now : callable
        Returns the time in microseconds.
    allow_private : bool
        Whether webhooks may have private and loopback addresses.
    retry_seconds : sequence of float, optional
        How long to wait after each failure.
    """

    def __init__(
        self,
        deliveries: Deliveries,
        webhook_of: Callable[[Id], Webhook | None],
        now: Callable[[], int],
        *,
        allow_private: bool,
        retry_seconds: Iterable[float] | None = None,
    ) -> None:
        self._deliveries, self._webhook_of, self._now = deliveries, webhook_of, now
        self._allow_private = allow_private
        self._retry_seconds = RETRY_SECONDS if retry_seconds is None else tuple(retry_seconds)
        self._tls = ssl.create_default_context()
        self._busy: dict[Id, asyncio.Task[None]] = {}
        self._connections, self._bytes = Shares(_CONNECTIONS_MAX), Shares(_MOST_BYTES)
        self._loop = asyncio.new_event_loop()
        self._has_work = asyncio.Event()
        self._resolver = Resolver()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="siftline-webhooks", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for deliveries now."""
        with contextlib.suppress(RuntimeError):  # closed meanwhile
            self._loop.call_soon_threadsafe(self._has_work.set)

    def close(self) -> None:
        """Stop; undelivered notifications stay in the log, and are sent after the next start."""
        self._is_closed = True
        self.wake()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _serve(self) -> None:
        while not self._is_closed:
            self._has_work.clear()
            with contextlib.suppress(SiftlineError):  # the log cannot be read; it is tried again later
                await asyncio.to_thread(self._deliveries.bury_overflow, self._now())
                await self._start_due()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_work.wait(), _POLL_SECONDS)
        for task in self._busy.values():
            task.cancel()
        await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def _start_due(self) -> None:
        room = self._connections.free
        if not room or not self._bytes.free:
            return
        may = self._room()
        due = await asyncio.to_thread(self._deliveries.due, self._now(), room, tuple(self._busy), may, _MOST_READ_BYTES)
        for delivery in due:
            self._start(delivery)

    def _start(self, delivery: Delivery) -> None:
        """Send a notification, unless its owner has no room: its size is known only after it was read."""
        id, n_bytes = delivery.notification.subscription, len(delivery.notification.payload)
        whose = self._whose(id)
        if not (self._connections.has_room(whose) and self._bytes.has_room(whose)):
            return
        self._connections.take(whose)
        self._bytes.take(whose, n_bytes)
        task = self._busy[id] = self._loop.create_task(self._deliver(delivery))
        task.add_done_callback(lambda _: self._finished(id, whose, n_bytes))

    def _room(self) -> Callable[[Id], bool]:
        """Return a function for another thread that says whether one more delivery of a subscription may start."""
        connections, n_bytes = self._connections.copy(), self._bytes.copy()

        def may(id: Id) -> bool:
            whose = self._whose(id)
            is_room = connections.has_room(whose) and n_bytes.has_room(whose)
            if is_room:
                connections.take(whose)
            return is_room

        return may

    def _whose(self, id: Id) -> str:
        webhook = self._webhook_of(id)
        return "" if webhook is None else _whose(webhook)

    def _finished(self, id: Id, whose: str, n_bytes: int) -> None:
        del self._busy[id]
        self._connections.give_back(whose)
        self._bytes.give_back(whose, n_bytes)
        self._has_work.set()

    async def _deliver(self, delivery: Delivery) -> None:
        notification, attempts = delivery
        webhook = self._webhook_of(notification.subscription)
        if webhook is None:
            await asyncio.to_thread(self._deliveries.forget, notification.subscription)
            return
        problem, is_final = await self._attempt(webhook, notification)
        with contextlib.suppress(SiftlineError):  # not recorded, so it is sent once more
            await asyncio.to_thread(self._settle, notification, attempts + 1, problem, is_final)

    def _settle(self, notification: Notification, attempts: int, problem: str | None, is_final: bool) -> None:
        if problem is None:
            self._deliveries.delivered(notification)
        elif is_final or attempts > len(self._retry_seconds):
            self._deliveries.bury(notification, attempts, problem, self._now())
        else:
            seconds = self._retry_seconds[attempts - 1] * random.uniform(0.8, 1.2)
            self._deliveries.postpone(notification, attempts, self._now() + int(seconds * 1e6))

    async def _attempt(self, webhook: Webhook, notification: Notification) -> tuple[str | None, bool]:
        """Send once; return the error, None if there is none, and whether trying again is useless."""
        try:
            status = await asyncio.wait_for(self._post(webhook, notification), _TIMEOUT_SECONDS)
        except TimeoutError:
            return f"no answer within {_TIMEOUT_SECONDS:g} s", False
        except LimitError as error:
            return str(error), True
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            return f"no connection, or no HTTP: {type(error).__name__}", False
        if 200 <= status < 300:
            return None, True
        return f"the answer had status {status}", status == _GONE

    async def _post(self, webhook: Webhook, notification: Notification) -> int:
        target = check_url(webhook.url, allow_private=self._allow_private)
        found = await self._resolver.addresses(target.host, target.port, _whose(webhook))
        address = chosen_address(found, allow_private=self._allow_private)
        context = self._tls if target.is_secure else None
        host, seconds = (target.host, _CLOSE_SECONDS) if context else (None, None)
        reader, writer = await asyncio.open_connection(
            address, target.port, ssl=context, server_hostname=host, ssl_shutdown_timeout=seconds, limit=1 << 16
        )
        try:
            writer.write(self._request(webhook, notification, target.authority, target.resource))
            await writer.drain()
            line = await reader.readuntil(b"\n")
        finally:
            _end(writer)
        version, status, *_ = line.split(b" ")
        if not version.startswith(b"HTTP/1."):
            raise ValueError("not HTTP")
        return int(status)

    def _request(self, webhook: Webhook, notification: Notification, authority: str, resource: str) -> bytes:
        id, body, timestamp = str(notification.position), notification.envelope(), self._now() // 1_000_000
        headers = {
            "Host": authority,
            "User-Agent": "siftline",
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "Content-Length": len(body),
            "Connection": "close",
            "webhook-id": id,
            "webhook-timestamp": timestamp,
            "webhook-signature": signature(webhook.secret or "", id, timestamp, body),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {resource} HTTP/1.1\r\n{head}\r\n".encode() + body


def _end(writer: asyncio.StreamWriter) -> None:
    """Close a connection, and discard data that the receiver has not read, here and in the kernel."""
    if writer.transport.get_write_buffer_size():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
        writer.transport.abort()
    writer.close()


def _whose(webhook: Webhook) -> str:
    """Return the group that shares connections and lookups with a webhook: its owner, or the same site."""
    if webhook.owner is not None:
        return f"owner {webhook.owner}"
    host = urlsplit(webhook.url).hostname or ""
    return f"site {'.'.join(host.split('.')[-2:])}"
