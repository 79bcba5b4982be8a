"""Runs the application in uvicorn, with limits of connections and a shutdown that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn

from siftline.errors import ServerError
from siftline.server.app import application
from siftline.server.connections import Connections, HttpConnection, WebSocketConnection
from siftline.server.tls import Tls, TlsListener

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Iterator

    from siftline.broker.broker import Broker

__all__ = ["Server", "Tls", "running"]

_STOP_SECONDS = 20
# Connections that wait to be accepted, as many as the system allows: a refused client retries only after a second.
_BACKLOG = 65_535
# The exit status of uvicorn if it cannot listen.
_CANNOT_START = 3


class Server(uvicorn.Server):
    """Serves a broker until it is stopped.

    Parameters
    ----------
    broker : Broker
        Closed by the caller, after the server has stopped.
    host, port
        Where to listen; port 0 means any free port.
    tls : Tls, optional
        The certificate, to serve https.
    is_open : collection of str
        Roles that need no key.
    """

    def __init__(
        self, broker: Broker, *, host: str, port: int, tls: Tls | None = None, is_open: Collection[str] = ()
    ) -> None:
        self._broker = broker
        self._app = application(broker, is_open=is_open)
        self.connections = Connections(broker.limits)
        http: Any = partial(HttpConnection, self.connections)
        websocket: Any = partial(WebSocketConnection, self.connections)
        self._context = None if tls is None else tls.context()
        super().__init__(
            uvicorn.Config(
                self._app,
                host=host,
                port=port,
                http=http,
                ws=websocket,
                ws_max_size=1 << 16,
                access_log=False,  # URLs of requests may contain private data
                log_level="error",  # invalid requests of strangers would fill the log
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=math.ceil(broker.limits.idle_seconds) + 1,  # our own timer ends first
                timeout_graceful_shutdown=_STOP_SECONDS,
                backlog=_BACKLOG,
                lifespan="off",
            )
        )

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self.servers[0].sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """The URL of the server."""
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"{'http' if self._context is None else 'https'}://{host}:{self.port}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        if self._context is None:
            await super().startup(sockets)
            return
        make: Any = self.config.http_protocol_class
        protocol = partial(make, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        try:
            listener: Any = TlsListener(
                self.connections,
                self._context,
                protocol,
                host=self.config.host,
                port=self.config.port,
                backlog=self.config.backlog,
            )
        except OSError as error:
            logging.getLogger("uvicorn.error").error(error)
            sys.exit(_CANNOT_START)
        self.servers, self.started = [listener], True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, so that their connections can close; requests under way are answered."""
        self._app.state.shared.is_ready = False
        await asyncio.to_thread(self._broker.hub.end)
        await super().shutdown(sockets)


@contextlib.contextmanager
def running(broker: Broker, *, host: str = "127.0.0.1", port: int = 0, **options: Any) -> Iterator[Server]:
    """Serve a broker in a thread of this process; options are those of `Server`."""
    server = Server(broker, host=host, port=port, **options)
    thread = threading.Thread(target=server.run, name="siftline-server", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise ServerError(f"cannot listen on {host}:{port}")
            time.sleep(0.01)
        yield server
    finally:
        server.should_exit = True
        thread.join()
