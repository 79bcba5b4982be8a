"""Limits of connections: their number, the size of a request's head, and the time of each phase.

    made ──► idle ──► head ──► body ──► answer ──► idle ...
             │        │        │        │
             │        │        │        └── send_seconds, while the peer does not read
             │        │        └─────────── request_seconds; a few more to read the rest after an early answer
             │        └──────────────────── header_seconds, header_bytes, headers
             └───────────────────────────── header_seconds at first, then idle_seconds; only a request ends this phase

A timer runs in every phase except the answer, which the application times. When all connections are in use, the one
that has been idle longest is closed for a new one.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from siftline.server.clients import client_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.broker.limits import Limits

# File descriptors that are reserved for stores, logs and webhooks.
_OTHER_FILES: Final = 200
# How long data of the peer is still read after an answer that closes the connection: closing at once would make the
# peer's system discard the answer.
_LINGER_SECONDS: Final = 2.0
# How much of it is read: of a body, and after a head that is too large.
_LEFT_BYTES: Final = 64 << 20
_REFUSED_BYTES: Final = 1 << 20
# How many refused connections may linger at the same time; more are dropped without an answer.
MOST_REFUSED: Final = 100
# The application itself answers when a body is late; the connection waits this much longer.
_GRACE_SECONDS: Final = 5.0
# A peer that reads more slowly than this counts as not reading.
_LEAST_BYTES_PER_SECOND: Final = 1024


class Peer(Protocol):
    """A counted connection: a transport, or a TLS handshake that will become one (`tls.py`)."""

    def get_extra_info(self, name: str) -> Any:
        """Return a property of the connection."""

    def abort(self) -> None:
        """Close the connection at once."""


class Connections:
    """Counts the connections of a server, and decides whether a new one is admitted."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        n_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = max(1, min(limits.connections, n_files - _OTHER_FILES))
        self.n_refused = 0
        self._clients: dict[Peer, str] = {}
        self._counts: Counter[str] = Counter()
        self._idle: dict[Peer, None] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def admit(self, transport: Peer) -> bool:
        """Count a new connection, unless there are too many."""
        peer = transport.get_extra_info("peername")
        client = client_of(str(peer[0])) if isinstance(peer, tuple) else ""
        if self._counts[client] >= self.limits.connections_per_address:
            return False
        if len(self._clients) >= self.most and not self._make_room():
            return False
        self._clients[transport] = client
        self._counts[client] += 1
        return True

    def _make_room(self) -> bool:
        for transport in self._idle:
            transport.abort()
            self.release(transport)
            return True
        return False

    def release(self, transport: Peer) -> None:
        """Stop counting a connection."""
        self._idle.pop(transport, None)
        client = self._clients.pop(transport, None)
        if client is not None:
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]

    def set_idle(self, transport: Peer, is_idle: bool) -> None:
        """Set whether a connection waits for a request."""
        self._idle.pop(transport, None)
        if is_idle and transport in self._clients:
            self._idle[transport] = None


class SendTimer:
    """Aborts a connection whose peer does not read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, seconds: float) -> None:
        self._loop, self._transport, self._seconds = loop, transport, seconds
        self._timer: asyncio.TimerHandle | None = None
        self._n_bytes = 0

    def start(self) -> None:
        """Start when the write buffer is full."""
        self.stop()
        self._n_bytes = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._seconds, self._check)

    def stop(self) -> None:
        """Stop when the peer has caught up or the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        n_sent = self._n_bytes - self._transport.get_write_buffer_size()
        if n_sent < _LEAST_BYTES_PER_SECOND * self._seconds:
            self._transport.abort()
        else:
            self.start()


class _TimedSending(asyncio.Protocol):
    """Bounds how long a connection waits for its peer to read; the first base of a protocol."""

    _sending: SendTimer

    def pause_writing(self) -> None:
        """Wait for the peer, but not forever."""
        super().pause_writing()
        self._sending.start()

    def resume_writing(self) -> None:
        """Stop waiting, because the peer has read."""
        super().resume_writing()
        self._sending.stop()


class HttpConnection(_TimedSending, HttpToolsProtocol):
    """An HTTP connection with a limit for every phase."""

    def __init__(self, connections: Connections, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connections, self._limits = connections, connections.limits
        self._timer: asyncio.TimerHandle | None = None
        self._is_in_head = self._is_in_body = self._is_refused = self._is_turned_away = False
        self._n_head_bytes = self._n_left_bytes = 0
        self.handshake: Peer | None = None

    # called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or refuse it."""
        super().connection_made(transport)
        self._sending = SendTimer(self.loop, transport, self._limits.send_seconds)
        if self.handshake is not None:
            self._connections.release(self.handshake)
        if self._connections.admit(transport):
            self._connections.set_idle(transport, True)
            self._within(self._limits.header_seconds)
        elif self._connections.n_refused < MOST_REFUSED:
            self._connections.n_refused += 1
            self._is_turned_away = True
            self._refuse(503, "there are too many connections")
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and stop counting the connection."""
        self._stop_timer()
        self._sending.stop()
        self._connections.release(self.transport)
        self._connections.n_refused -= self._is_turned_away
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process some bytes; refuse a head without an end."""
        if self._is_refused:
            self._leave_out(len(data), _REFUSED_BYTES)
            return
        was_in_head = self._is_in_head
        super().data_received(data)
        if self._is_in_head and was_in_head:
            self._n_head_bytes += len(data)
            if self._n_head_bytes > self._limits.header_bytes:
                self._refuse_head()

    # called by the parser

    def on_message_begin(self) -> None:
        """Start with the head of a request."""
        if self._is_refused:
            return
        super().on_message_begin()
        self._is_in_head, self._n_head_bytes = True, 0
        self._connections.set_idle(self.transport, False)
        self._within(self._limits.header_seconds)

    def on_headers_complete(self) -> None:
        """Continue with the body, if the head is not too large."""
        if self._is_refused:
            return
        n_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if n_bytes > self._limits.header_bytes or len(self.headers) > self._limits.headers:
            self._refuse_head()
            return
        if sum(name == b"host" for name, _ in self.headers) > 1:  # a proxy may choose another of them
            self._refuse(400, "there is more than one header Host")
            return
        self._is_in_head, self._is_in_body, self._n_left_bytes = False, True, 0
        self._within(self._limits.request_seconds + _GRACE_SECONDS)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body; discard it after the answer."""
        if self._is_refused:
            return
        if self._is_answered():
            self._leave_out(len(body), _LEFT_BYTES)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer: the request is complete, and the application times the answer."""
        if self._is_refused:
            return
        self._is_in_body = False
        self._stop_timer()
        super().on_message_complete()
        if self._is_answered():
            self._wait()

    # called by the application

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._within(self._limits.send_seconds, self.transport.abort)
        elif self._is_answered() and self._is_in_body:
            self._within(_LINGER_SECONDS)
        elif self._is_answered() and not self._is_in_head:
            self._wait()

    def _is_answered(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_complete

    def _wait(self) -> None:
        if not self.transport.is_closing():
            self._connections.set_idle(self.transport, True)
            self._within(self._limits.idle_seconds)

    # refusing

    def _refuse_head(self) -> None:
        most = f"{self._limits.header_bytes:,} bytes and {self._limits.headers} headers"
        self._refuse(431, f"the head of the request is too large: at most {most} are allowed")

    def _refuse(self, status: int, reason: str) -> None:
        self._is_refused, self._is_in_head, self._n_left_bytes = True, False, 0
        document = {"status": status, "reason": reason} | ({"kind": "BusyError"} if status == 503 else {})
        body = json.dumps({"error": document}, separators=(",", ":")).encode()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
        again = b"retry-after: 1\r\n" if status == 503 else b""
        self.transport.write(STATUS_LINE[status] + head + again + b"\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._within(_LINGER_SECONDS, self.transport.abort)

    def _leave_out(self, n_bytes: int, most: int) -> None:
        """Discard bytes, up to a limit."""
        self._n_left_bytes += n_bytes
        if self._n_left_bytes > most:
            self.transport.abort()

    def _within(self, seconds: float, end: Callable[[], None] | None = None) -> None:
        """Close the connection after some seconds, unless another phase begins."""
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, end or self._close)

    def _close(self) -> None:
        self.transport.close()
        self._within(self._limits.send_seconds, self.transport.abort)  # the peer may never read what was sent

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket protocol."""
        self._stop_timer()
        self._sending.stop()
        super().handle_websocket_upgrade()


class WebSocketConnection(_TimedSending, WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket; it has been counted since it was made."""

    def __init__(self, connections: Connections, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over an HTTP connection."""
        self._sending = SendTimer(
            self.loop, cast("asyncio.Transport", transport), self._connections.limits.send_seconds
        )
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and stop counting the connection."""
        self._sending.stop()
        self._connections.release(self.transport)
        super().connection_lost(exc)
