"""TLS connections, which are counted and timed from the start of the handshake, not from its end.

    accepted ──► handshake ──► idle, head, body, ... as any other connection (`connections.py`)
                 │
                 └── header_seconds; closed first when all connections are in use

asyncio reports a connection only after its handshake, so a peer that sends nothing, or half of its first message, would
hold a connection that is not counted. So this module accepts and counts connections, and hands them to asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.errors import ServerError
from siftline.server.connections import MOST_REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.server.connections import Connections, HttpConnection

# How long closing a connection may take before it is aborted.
_CLOSE_SECONDS: Final = 2.0
# How long to wait if the process has no free file descriptor for a connection.
_PAUSE_SECONDS: Final = 0.2


class Tls(NamedTuple):
    """The files of a certificate and its key; with `ca`, clients need a certificate too."""

    certificate: str
    key: str | None = None
    ca: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return the SSL context of the server."""
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca)
            context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            raise ServerError(f"the certificate, its key or the authority cannot be used: {error}") from None
        if self.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class Handshake:
    """A connection during its handshake, as `Connections` counts it."""

    def __init__(self, plain: socket.socket) -> None:
        self._plain = plain
        self._peer = plain.getpeername()

    def get_extra_info(self, name: str) -> Any:
        """Return the address of the peer."""
        return self._peer if name == "peername" else None

    def abort(self) -> None:
        """Close the connection, so that the handshake fails."""
        with contextlib.suppress(OSError):
            self._plain.shutdown(socket.SHUT_RDWR)


class TlsListener:
    """Accepts connections and starts TLS on them; has the interface of an asyncio server.

    Parameters
    ----------
    connections : Connections
        Counts the connections.
    context : ssl.SSLContext
        The context of the server.
    protocol : callable
        Makes the protocol of a connection.
    host, port, backlog
        Where to listen, and how many connections may wait to be accepted.
    """

    def __init__(
        self,
        connections: Connections,
        context: ssl.SSLContext,
        protocol: Callable[[], HttpConnection],
        *,
        host: str,
        port: int,
        backlog: int,
    ) -> None:
        self._connections, self._context, self._protocol = connections, context, protocol
        self.sockets = _listening(host, port, backlog)
        self._loop = asyncio.get_running_loop()
        self._accepting = [self._loop.create_task(self._accept(each)) for each in self.sockets]
        self._handshakes: dict[asyncio.Task[None], Handshake] = {}

    def close(self) -> None:
        """Stop accepting, and abort the handshakes under way."""
        for task in self._accepting:
            task.cancel()
        for each in self.sockets:
            each.close()
        for handshake in self._handshakes.values():
            handshake.abort()

    async def wait_closed(self) -> None:
        """Wait until all tasks have ended."""
        await asyncio.gather(*self._accepting, *self._handshakes, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                plain, _ = await self._loop.sock_accept(listener)
            except OSError:  # the peer is gone already, or there are no free file descriptors
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            with contextlib.suppress(OSError):
                self._begin(plain)

    def _begin(self, plain: socket.socket) -> None:
        try:
            plain.setblocking(False)
            handshake = Handshake(plain)
            is_admitted = self._connections.admit(handshake)
            if not is_admitted and self._connections.n_refused >= MOST_REFUSED:
                plain.close()
                return
        except OSError:
            plain.close()
            raise
        self._connections.set_idle(handshake, True)
        task = self._loop.create_task(self._shake_hands(plain, handshake, is_admitted=is_admitted))
        self._handshakes[task] = handshake
        task.add_done_callback(self._handshakes.pop)

    async def _shake_hands(self, plain: socket.socket, handshake: Handshake, *, is_admitted: bool) -> None:
        """Make the handshake; a connection too many is refused afterwards, over TLS."""

        def protocol() -> HttpConnection:
            made = self._protocol()
            made.handshake = handshake  # which it replaces
            return made

        self._connections.n_refused += not is_admitted
        try:
            with contextlib.suppress(OSError):  # no TLS, not in time, or gone
                await self._loop.connect_accepted_socket(
                    protocol,
                    plain,
                    ssl=self._context,
                    ssl_handshake_timeout=self._connections.limits.header_seconds,
                    ssl_shutdown_timeout=_CLOSE_SECONDS,
                )
        finally:
            self._connections.release(handshake)
            self._connections.n_refused -= not is_admitted


def _listening(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Return listening sockets for all addresses of a host name."""
    found: list[socket.socket] = []
    try:
        for family, kind, number, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            listener = socket.socket(family, kind, number)
            found.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setblocking(False)
            listener.bind(address)
            listener.listen(backlog)
    except OSError:
        for listener in found:
            listener.close()
        raise
    return found
