"""Streams of notifications, as server-sent events and over WebSocket, resumable at any notification.

    register with the hub ──► read the log from the position on ──► what came meanwhile, from the queue ──► live
                                       ▲                                                                   │
                                       └───────── the queue ran over: the receiver is slow ────────────────┘

A receiver that does not read only makes its own stream wait; after a while the connection is closed. If the log has to
drop what such a stream has yet to read, the stream is told of the gap before it goes on. What a stream has read and not
yet sent counts as much as what is in its queue.
"""

from __future__ import annotations

import asyncio
import json
import time
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocketDisconnect

from siftline.broker.notifications import LAST_PLACE, Gap, Position
from siftline.server.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from starlette.requests import HTTPConnection
    from starlette.types import Receive, Scope, Send
    from starlette.websockets import WebSocket

    from siftline.broker.broker import Broker
    from siftline.broker.hub import Listener
    from siftline.broker.notifications import Notification, Page

MEDIA: Final = "text/event-stream; charset=utf-8"
_CHUNK: Final = 200
_PART_ITEMS: Final = 100
_PART_BYTES: Final = 64 << 10
# What a notification takes beside its payload while it is sent.
_ITEM_BYTES: Final = 300
# A stream that has much to send works for so long, and then lets others work: Python runs one thread at a time, and who
# publishes would wait for the event loop, and his answer for all parts of the stream.
_BURST_SECONDS: Final = 0.001
_PAUSE_SECONDS: Final = 0.001
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
    alarm : Alarm
        Wakes the stream when there is something to do.
    after : Position, optional
        Where the client wants to go on; without it, `position` is where the log ended.
    """

    def __init__(self, broker: Broker, listener: Listener, alarm: Alarm, position: Position) -> None:
        self._broker, self._listener, self._alarm = broker, listener, alarm
        self._position = position
        self._on_close: list[Callable[[], None]] = []
        self.is_revoked = False

    @classmethod
    async def opened(
        cls, broker: Broker, join: Callable[[Callable[[], None]], Listener], after: Position | None
    ) -> Stream:
        """Join the hub, in a thread: the event loop never waits for a lock of the broker."""
        alarm = Alarm(asyncio.get_running_loop())

        def joined() -> tuple[Position, Listener]:
            position = Position(broker.log.last, LAST_PLACE) if after is None else after
            return position, join(alarm.ring)

        position, listener = await run_in_threadpool(joined)
        return cls(broker, listener, alarm, position)

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
        """Give notifications, and gaps where some are missing, in parts to be sent at once; an empty one after a while.

        When the next part is asked for, the one before it counts as sent.
        """
        listener, turn = self._listener, _Turn()
        while True:
            self._alarm.clear()
            if listener.is_behind and not listener.is_ended:
                async for part in self._caught_up():
                    if self.is_revoked:
                        return
                    yield part
                    await turn.pause()
            is_ended = listener.is_ended  # asked first: what is in the queue by now is given all the same
            told = self._broker.hub.told
            while messages := listener.take(_PART_ITEMS):
                new = (each for message in messages for each in message.after(self._position))
                for part in self._parts(new, sum(message.n_bytes for message in messages)):
                    if self.is_revoked:
                        return
                    yield part
                    await turn.pause()
            if is_ended:
                return
            if not listener.is_behind:
                self._pass(told)
                if not await self._alarm.wait(_QUIET_SECONDS):
                    yield []
                turn = _Turn()

    def _parts(self, page: Iterable[Notification | Gap], n_bytes: int) -> Iterator[list[Notification | Gap]]:
        """Give a page in parts, and let them count with the bytes of the page."""
        for part, part_bytes in _parts(page):
            last = part[-1]
            self._position = last.resume if isinstance(last, Gap) else last.position
            self._listener.hold(n_bytes + part_bytes)
            yield part
            part.clear()  # whoever has sent it may wait for the next one for long

    async def _caught_up(self) -> AsyncIterator[list[Notification | Gap]]:
        """Give what the log has, up to where the queue begins."""
        self._position = max(self._position, self._listener.listen())
        while True:
            last = self._broker.log.last
            page = await run_in_threadpool(self._read)
            if page.gap is None and not page:
                self._pass(last)
                return
            for part in self._parts([*([] if page.gap is None else [page.gap]), *page], _page_bytes(page)):
                yield part

    def _read(self) -> Page:
        """Return the next page of the log: of one event if there is little room for what waits to be sent."""
        read, wanted = self._broker.log.read, self._listener.wanted
        if self._listener.is_short:
            return read(wanted, self._position, _PART_ITEMS, most_bytes=0)
        return read(wanted, self._position, _CHUNK)

    def _pass(self, sequence: int) -> None:
        """Go past events that were for others; so they are no gap when the log drops them."""
        self._position = max(self._position, Position(sequence, LAST_PLACE))


class _Turn:
    """How long a stream has worked without a pause."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def pause(self) -> None:
        """Let others work if it is their turn."""
        if time.monotonic() - self._began > _BURST_SECONDS:
            await asyncio.sleep(_PAUSE_SECONDS)
            self._began = time.monotonic()


class Alarm:
    """Wakes a task from any thread; however often it rings until the task clears it, the event loop is called once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._event = loop, asyncio.Event()
        self._is_rung = False

    def ring(self) -> None:
        """Wake the task; from any thread, after what it is to find."""
        if not self._is_rung and not self._loop.is_closed():
            self._is_rung = True
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Have it ring again; on the event loop, before looking for what there is."""
        self._event.clear()
        self._is_rung = False

    async def wait(self, seconds: float) -> bool:
        """Return whether it rings within some time."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


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
            else:
                await _chunk(send, _sse(page))
        await send({"type": "http.response.body", "body": b"event: end\ndata: {}\n\n", "more_body": False})


async def _chunk(send: Send, body: bytes) -> None:
    async with asyncio.timeout(_SEND_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await asyncio.sleep(0)  # others have their turn, also while the connection takes all that it is given


def _page_bytes(page: Page) -> int:
    """Return what a page of the log takes: notifications of one event share its payload."""
    payloads = {each.position.sequence: len(each.payload) for each in page}
    return sum(payloads.values()) + _ITEM_BYTES * len(page)


def _parts(page: Iterable[Notification | Gap]) -> Iterator[tuple[list[Notification | Gap], int]]:
    """Give what is sent at once, and its bytes: little enough for others not to wait, much more than one at a time."""
    part: list[Notification | Gap] = []
    n_bytes = 0
    for item in page:
        part.append(item)
        n_bytes += _ITEM_BYTES + (0 if isinstance(item, Gap) else len(item.payload))
        if n_bytes >= _PART_BYTES or len(part) >= _PART_ITEMS:
            yield part, n_bytes
            part, n_bytes = [], 0
    if part:
        yield part, n_bytes


class Envelopes:
    """Writes envelopes, most of which differ from the one before in the place and the subscription alone.

    It keeps the last event, so it is for one part of a stream.

    Examples
    --------
    >>> from siftline.broker.notifications import Notification
    >>> several = [Notification(Position(7, place), f"'{place}", 5, b'{"a": 1}') for place in range(3)]
    >>> envelopes = Envelopes()
    >>> [envelopes.of(each) == each.envelope() for each in several]
    [True, True, True]
    """

    def __init__(self) -> None:
        self._sequence = -1
        self._before = self._between = self._after = b""

    def of(self, notification: Notification) -> bytes:
        """Return what `notification.envelope()` does."""
        (sequence, place), id, *_ = notification
        if sequence != self._sequence:
            self._learn(notification)
        subject = encode_basestring_ascii(str(id)).encode()
        return b"%b%d-%d%b%b%b" % (self._before, sequence, place, self._between, subject, self._after)

    def _learn(self, notification: Notification) -> None:
        """Take the envelope of an event apart, where the place and the subscription stand in it."""
        envelope = notification._replace(subscription="").envelope()
        self._before, _, rest = envelope.partition(str(notification.position).encode())
        between, subject, self._after = rest.partition(b'"subject":""')
        self._between = between + subject[:-2]
        self._sequence = notification.position.sequence


def _sse(page: list[Notification | Gap]) -> bytes:
    """Return notifications and gaps as server-sent events."""
    text, envelopes = [], Envelopes()
    for item in page:
        if isinstance(item, Gap):
            text.append(b"id: %d-%d\nevent: gap\ndata: %b\n\n" % (*item.resume, json.dumps(item.document).encode()))
        else:
            text.append(b"id: %d-%d\nevent: match\ndata: %b\n\n" % (*item.position, envelopes.of(item)))
    return b"".join(text)


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
        envelopes = Envelopes()
        for item in page:
            text = json.dumps({"gap": item.document}) if isinstance(item, Gap) else envelopes.of(item).decode()
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
