"""A connection to a server that repeatedly breaks after a number of bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Flaky:
    """Passes bytes on between clients and a server, and hangs up after `n_bytes` from the server."""

    def __init__(self, port: int, n_bytes: int) -> None:
        self._port, self.n_bytes = port, n_bytes
        self.n_connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.n_connections += 1
                server = socket.create_connection(("127.0.0.1", self._port))
                threading.Thread(target=_pass_on, args=(client, server, None), daemon=True).start()
                threading.Thread(target=_pass_on, args=(server, client, self.n_bytes), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, n_bytes: int | None) -> None:
    with contextlib.suppress(OSError):
        while n_bytes is None or n_bytes > 0:
            chunk = source.recv(1024 if n_bytes is None else min(1024, n_bytes))
            if not chunk:
                break
            target.sendall(chunk)
            n_bytes = None if n_bytes is None else n_bytes - len(chunk)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextlib.contextmanager
def flaky(port: int, n_bytes: int) -> Iterator[Any]:
    """Give a connection that breaks."""
    between = Flaky(port, n_bytes)
    try:
        yield between
    finally:
        between.close()
