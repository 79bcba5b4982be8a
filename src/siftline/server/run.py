"""Running the application: uvicorn, with limits on connections, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import uvicorn

from siftline.errors import ServerError
from siftline.server.app import application
from siftline.server.connections import Connections, HttpConnection, WebSocketConnection

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Iterator

    from siftline.broker.broker import Broker

_STOP_SECONDS = 20


class Tls(NamedTuple):
    """Files of a certificate and its key; with `ca`, clients must have a certificate too."""

    certificate: str
    key: str | None = None
    ca: str | None = None


class Server(uvicorn.Server):
    """Serves a broker until it is told to stop.

    Parameters
    ----------
    broker : Broker
        Closed by the caller, after the server has stopped.
    host, port
        Where to listen; port 0 is any free one.
    tls : Tls, optional
        Serve https.
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
        secure: dict[str, Any] = {}
        if tls is not None:
            secure = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
            if tls.ca is not None:
                import ssl

                secure |= {"ssl_ca_certs": tls.ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
        super().__init__(
            uvicorn.Config(
                self._app,
                host=host,
                port=port,
                http=http,
                ws=websocket,
                ws_max_size=1 << 16,
                access_log=False,  # addresses of requests can hold what is nobody's business
                log_level="error",  # of what strangers send there is no end
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=math.ceil(broker.limits.idle_seconds) + 1,  # ours is sooner
                timeout_graceful_shutdown=_STOP_SECONDS,
                lifespan="off",
                **secure,
            )
        )

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.servers[0].sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Where it is reached."""
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"{'https' if self.config.is_ssl else 'http'}://{host}:{self.port}"

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, so that the connections can end; requests that have begun are answered."""
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
