"""Streams of notifications, as server-sent events and over WebSocket, resumable at any notification.

    register with the hub ──► read the log from the position on ──► what came meanwhile, from the queue ──► live
                                       ▲                                                                   │
                                       └───────── the queue ran over: the receiver is slow ────────────────┘

A receiver that does not read only makes its own stream wait; after a while the connection is closed. If the log has to
drop what such a stream has yet to read, the stream is told of the gap before it goes on.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocketDisconnect

from siftline.broker.notifications import LAST_PLACE, Gap, Position
from siftline.server.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.requests import HTTPConnection
    from starlette.types import Receive, Scope, Send
    from starlette.websockets import WebSocket

    from siftline.broker.broker import Broker
    from siftline.broker.hub import Listener
    from siftline.broker.notifications import Notification

MEDIA: Final = "text/event-stream; charset=utf-8"
_CHUNK: Final = 200
_PART_ITEMS: Final = 50
_PART_BYTES: Final = 64 << 10
_QUIET_SECONDS: Final = 15.0
_SEND_SECONDS: Final = 60.0
_REVOKED: Final = 4401


class Stream:
    """The notifications of one listener from a position on, for ever, or until the subscription ends.

    Parameters
    ----------
    broker : Broker
        Whose log is read.
    listener : Listener
        One that has joined the hub of the broker.
    is_woken : asyncio.Event
        Set when the listener is woken.
    after : Position, optional
        Where the client wants to go on; without it, `position` is where the log ended.
    """

    def __init__(self, broker: Broker, listener: Listener, is_woken: asyncio.Event, position: Position) -> None:
        self._broker, self._listener, self._is_woken = broker, listener, is_woken
        self._position = position
        self._on_close: list[Callable[[], None]] = []
        self.is_revoked = False

    @classmethod
    async def opened(
        cls, broker: Broker, join: Callable[[Callable[[], None]], Listener], after: Position | None
    ) -> Stream:
        """Join the hub, in a thread: the event loop never waits for a lock of the broker."""
        loop, is_woken = asyncio.get_running_loop(), asyncio.Event()

        def joined() -> tuple[Position, Listener]:
            position = Position(broker.log.last, LAST_PLACE) if after is None else after
            return position, join(lambda: _call_soon(loop, is_woken.set))

        position, listener = await run_in_threadpool(joined)
        return cls(broker, listener, is_woken, position)

    @property
    def position(self) -> Position:
        """What comes after it comes next."""
        return self._position

    def revoke(self) -> None:
        """End it, because who reads it may no longer; from any thread."""
        self.is_revoked = True
        self._listener.end()

    def on_close(self, call: Callable[[], None]) -> None:
        """Have something called, on the event loop, when the stream is closed."""
        self._on_close.append(call)

    def close(self) -> None:
        """Leave the hub."""
        for call in self._on_close:
            call()
        asyncio.get_running_loop().run_in_executor(None, self._broker.hub.leave, self._listener)

    async def pages(self) -> AsyncIterator[list[Notification | Gap]]:
        """Give notifications, and gaps where some are missing, as many as there are; an empty page after a while."""
        while True:
            self._is_woken.clear()
            if self._listener.is_behind and not self._listener.is_ended:
                async for page in self._caught_up():
                    if self.is_revoked:
                        return
                    yield page
            is_ended = self._listener.is_ended  # asked first: what is in the queue by now is given all the same
            told = self._broker.hub.told
            if (taken := self._taken()) and not self.is_revoked:
                yield taken
            if is_ended:
                return
            if not self._listener.is_behind:
                self._pass(told)
                if not await self._wait():
                    yield []

    def _taken(self) -> list[Notification | Gap]:
        """Return what the queue has that the log has not given yet."""
        taken = [each for each in self._listener.take() if each.position > self._position]
        if taken:
            self._position = taken[-1].position
        return [*taken]

    async def _caught_up(self) -> AsyncIterator[list[Notification | Gap]]:
        """Give what the log has, up to where the queue begins."""
        self._position = max(self._position, self._listener.listen())
        while True:
            last = self._broker.log.last
            page = await run_in_threadpool(self._broker.log.read, self._listener.wanted, self._position, _CHUNK)
            if page.gap is None and not page:
                self._pass(last)
                return
            if page.gap is not None:
                self._position = page.gap.resume
            if page:
                self._position = page[-1].position
            yield [*([] if page.gap is None else [page.gap]), *page]

    def _pass(self, sequence: int) -> None:
        """Go past events that were for others; so they are no gap when the log drops them."""
        self._position = max(self._position, Position(sequence, LAST_PLACE))

    async def _wait(self) -> bool:
        try:
            async with asyncio.timeout(_QUIET_SECONDS):
                await self._is_woken.wait()
        except TimeoutError:
            return False
        return True


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)


def position_of(connection: HTTPConnection) -> Position | None:
    """Return from where on a client wants notifications: `Last-Event-ID`, or `after=` in the address."""
    text = connection.headers.get("last-event-id") or connection.query_params.get("after")
    return None if not text else Position.of(text)


class EventStream:
    """A response of server-sent events."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until either side ends it."""
        headers = [
            (b"content-type", MEDIA.encode()),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        sending = asyncio.ensure_future(self._send(send, headers))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            self._stream.close()

    async def _send(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # The id is for a client whose connection breaks before the first notification.
        await _chunk(send, b"id: %b\nretry: 1000\n\n" % str(self._stream.position).encode())
        async for page in self._stream.pages():
            if not page:
                # The position is sent instead: who comes back later has not missed what was for others.
                await _chunk(send, b"id: %b\n\n" % str(self._stream.position).encode())
            for part in _parts(page):
                if self._stream.is_revoked:
                    break
                await _chunk(send, b"".join(map(_sse, part)))
        await send({"type": "http.response.body", "body": b"event: end\ndata: {}\n\n", "more_body": False})


async def _chunk(send: Send, body: bytes) -> None:
    async with asyncio.timeout(_SEND_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await asyncio.sleep(0)  # others have their turn, also while the connection takes all that it is given


def _parts(page: list[Notification | Gap]) -> Iterator[list[Notification | Gap]]:
    """Give what is sent at once: little enough for others not to wait, and much more than one at a time."""
    part: list[Notification | Gap] = []
    n_bytes = 0
    for item in page:
        part.append(item)
        n_bytes += 0 if isinstance(item, Gap) else len(item.payload)
        if n_bytes >= _PART_BYTES or len(part) >= _PART_ITEMS:
            yield part
            part, n_bytes = [], 0
    if part:
        yield part


def _sse(item: Notification | Gap) -> bytes:
    if isinstance(item, Gap):
        return b"id: %b\nevent: gap\ndata: %b\n\n" % (str(item.resume).encode(), json.dumps(item.document).encode())
    return b"id: %b\nevent: match\ndata: %b\n\n" % (str(item.position).encode(), item.envelope())


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_over(websocket: WebSocket, stream: Stream) -> None:
    """Send notifications over a WebSocket: each a CloudEvent in JSON; `{"gap": ...}` where some are no longer kept."""
    sending = asyncio.ensure_future(_send_all(websocket, stream))
    gone = asyncio.ensure_future(_closed(websocket))
    try:
        await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, gone):
            task.cancel()
        await asyncio.gather(sending, gone, return_exceptions=True)
        stream.close()


async def _send_all(websocket: WebSocket, stream: Stream) -> None:
    async for page in stream.pages():
        for part in _parts(page):
            if stream.is_revoked:
                break
            for item in part:
                text = json.dumps({"gap": item.document}) if isinstance(item, Gap) else item.envelope().decode()
                async with asyncio.timeout(_SEND_SECONDS):
                    await websocket.send_text(text)
            await asyncio.sleep(0)
    if stream.is_revoked:
        await websocket.close(_REVOKED, "the key opens this no more")
    else:
        await websocket.close(1000, "the subscription has ended")


async def _closed(websocket: WebSocket) -> None:
    try:
        while True:
            await websocket.receive()
    except (WebSocketDisconnect, RuntimeError):
        return


async def token_of(websocket: WebSocket, token: str | None, seconds: float) -> tuple[str | None, Any]:
    """Return the token of a WebSocket, and where it wants to go on; browsers say both in the first message."""
    if token is not None or "first-message" not in websocket.query_params:
        return token, None
    try:
        async with asyncio.timeout(seconds):
            document = json.loads(await websocket.receive_text())
    except (TimeoutError, ValueError, KeyError, RecursionError, WebSocketDisconnect):
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("token"), str):
        raise ProblemError(401, 'the first message must be {"token": ..., "after": ...}')
    return document["token"], document.get("after")
