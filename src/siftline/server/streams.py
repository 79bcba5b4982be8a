"""Streams of notifications, as server-sent events and over WebSocket, resumable at any notification.

    join the hub ──► read the log from the position on ──► read the queue, which was filled meanwhile ──► live
                              ▲                                                                           │
                              └───────────── the queue overflowed: the receiver is slow ──────────────────┘

A receiver that does not read delays only its own stream; after a while its connection is closed. If the log drops
events that the stream has not read yet, the stream reports the gap before it goes on. Notifications that a stream has
read and not yet sent count in the limits like those in its queue.
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
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator

    from starlette.requests import HTTPConnection
    from starlette.types import Receive, Scope, Send
    from starlette.websockets import WebSocket

    from siftline.broker.broker import Broker
    from siftline.broker.hub import Listener
    from siftline.broker.notifications import Notification, Page

MEDIA: Final = "text/event-stream; charset=utf-8"
# Notifications that are read from the log at a time.
_CHUNK: Final = 200
# The largest part that is sent at once.
_PART_ITEMS: Final = 100
_PART_BYTES: Final = 64 << 10
# The bytes of a notification besides its payload while it is sent.
_ITEM_BYTES: Final = 300
# How long a stream sends without a pause, and the pause. Python runs one thread at a time, so without pauses a busy
# stream would delay publishers and the answers to them.
_BURST_SECONDS: Final = 0.001
_PAUSE_SECONDS: Final = 0.001
# After this long without notifications, the position is sent.
_QUIET_SECONDS: Final = 15.0
# How long a receiver may take to read a part.
_SEND_SECONDS: Final = 60.0
# The close code of a WebSocket whose key was revoked.
_REVOKED: Final = 4401


class Stream:
    """The notifications of one listener from a position on, until the subscription ends.

    Parameters
    ----------
    broker : Broker
        The broker whose log is read.
    listener : Listener
        A listener that has joined the hub of the broker.
    alarm : Alarm
        Wakes the stream when there is something to send.
    position : Position
        The position after which the stream starts.
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
        """Join the hub in a thread, because the event loop must not wait for a lock of the broker.

        Without `after`, the stream starts at the end of the log.
        """
        alarm = Alarm(asyncio.get_running_loop())

        def joined() -> tuple[Position, Listener]:
            position = Position(broker.log.last, LAST_PLACE) if after is None else after
            return position, join(alarm.ring)

        position, listener = await run_in_threadpool(joined)
        return cls(broker, listener, alarm, position)

    @property
    def position(self) -> Position:
        """The position after which the stream goes on."""
        return self._position

    def revoke(self) -> None:
        """End the stream because its permission is gone; may be called from any thread."""
        self.is_revoked = True
        self._listener.end()

    def on_close(self, call: Callable[[], None]) -> None:
        """Add a function that is called on the event loop when the stream is closed."""
        self._on_close.append(call)

    def close(self) -> None:
        """Leave the hub."""
        for call in self._on_close:
            call()
        asyncio.get_running_loop().run_in_executor(None, self._broker.hub.leave, self._listener)

    async def pages(self) -> AsyncIterator[list[Notification | Gap]]:
        """Yield notifications and gaps in parts that are sent at once; an empty part after a time without any.

        When the next part is requested, the one before counts as sent.
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
            is_ended = listener.is_ended  # read before the queue, whose contents are sent in any case
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
        """Yield a page in parts, which count in the load with the bytes of the page."""
        for part, part_bytes in _parts(page):
            last = part[-1]
            self._position = last.resume if isinstance(last, Gap) else last.position
            self._listener.hold(n_bytes + part_bytes)
            yield part
            part.clear()  # it may be long until the next part is requested

    async def _caught_up(self) -> AsyncIterator[list[Notification | Gap]]:
        """Yield what the log has, up to the start of the queue."""
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
        """Return the next page of the log, with only one event if memory is short."""
        read, wanted = self._broker.log.read, self._listener.wanted
        if self._listener.is_short:
            return read(wanted, self._position, _PART_ITEMS, most_bytes=0)
        return read(wanted, self._position, _CHUNK)

    def _pass(self, sequence: int) -> None:
        """Move the position past events of other listeners, so that there is no gap when the log drops them."""
        self._position = max(self._position, Position(sequence, LAST_PLACE))


class _Turn:
    """Measures how long a stream has sent without a pause."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def pause(self) -> None:
        """Pause if the stream has sent for long enough."""
        if time.monotonic() - self._began > _BURST_SECONDS:
            await asyncio.sleep(_PAUSE_SECONDS)
            self._began = time.monotonic()


class Alarm:
    """Wakes a task from any thread; the event loop is called once, however often it rings before it is cleared."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._event = loop, asyncio.Event()
        self._is_rung = False

    def ring(self) -> None:
        """Wake the task; called from any thread, after the data for the task is in place."""
        if not self._is_rung and not self._loop.is_closed():
            self._is_rung = True
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Reset the alarm; called on the event loop, before the task looks for data."""
        self._event.clear()
        self._is_rung = False

    async def wait(self, seconds: float) -> bool:
        """Wait for the alarm; return whether it rang in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


def position_of(connection: HTTPConnection) -> Position | None:
    """Return the position at which a client resumes: the header `Last-Event-ID`, or `after` in the query string."""
    text = connection.headers.get("last-event-id") or connection.query_params.get("after")
    return None if not text else Position.of(text)


class EventStream:
    """A response of server-sent events."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until either side ends the stream."""
        headers = [
            (b"content-type", MEDIA.encode()),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await _until_gone(self._stream, self._send(send, headers), _disconnected(receive))

    async def _send(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # A client whose connection breaks before the first notification resumes at this id.
        await _chunk(send, b"id: %b\nretry: 1000\n\n" % str(self._stream.position).encode())
        async for page in self._stream.pages():
            if not page:
                # A client that resumes at this id later has no gap from events of other subscriptions.
                await _chunk(send, b"id: %b\n\n" % str(self._stream.position).encode())
            else:
                await _chunk(send, _sse(page))
        await send({"type": "http.response.body", "body": b"event: end\ndata: {}\n\n", "more_body": False})


async def _chunk(send: Send, body: bytes) -> None:
    async with asyncio.timeout(_SEND_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await asyncio.sleep(0)  # let other tasks run, even if the connection accepts everything at once


def _page_bytes(page: Page) -> int:
    """Return the bytes of a page of the log; notifications of one event share its payload."""
    payloads = {each.position.sequence: len(each.payload) for each in page}
    return sum(payloads.values()) + _ITEM_BYTES * len(page)


def _parts(page: Iterable[Notification | Gap]) -> Iterator[tuple[list[Notification | Gap], int]]:
    """Yield parts of a page with their bytes: small enough not to delay others, larger than single notifications."""
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
    """Formats envelopes quickly: those of one event differ in the place and the subscription only.

    It keeps a copy of the last event, so one object is used for one part of a stream.

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
        """Return the same as `notification.envelope()`."""
        (sequence, place), id, *_ = notification
        if sequence != self._sequence:
            self._learn(notification)
        subject = encode_basestring_ascii(str(id)).encode()
        return b"%b%d-%d%b%b%b" % (self._before, sequence, place, self._between, subject, self._after)

    def _learn(self, notification: Notification) -> None:
        """Split the envelope of an event at the place and at the subscription."""
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
    """Send notifications over a WebSocket as CloudEvents in JSON, and `{"gap": ...}` where some are missing."""
    await _until_gone(stream, _send_all(websocket, stream), _closed(websocket))


async def _until_gone(stream: Stream, sending: Coroutine[Any, Any, None], gone: Coroutine[Any, Any, None]) -> None:
    """Send until the stream ends or the client is gone, then close the stream."""
    tasks = [asyncio.ensure_future(each) for each in (sending, gone)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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
        await websocket.close(_REVOKED, "the key was revoked")
    else:
        await websocket.close(1000, "the subscription has ended")


async def _closed(websocket: WebSocket) -> None:
    try:
        while True:
            await websocket.receive()
    except (WebSocketDisconnect, RuntimeError):
        return


async def token_of(websocket: WebSocket, token: str | None, seconds: float) -> tuple[str | None, Any]:
    """Return the token of a WebSocket and where it resumes; browsers send both in the first message."""
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
