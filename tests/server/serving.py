"""A real server on a free port, in a thread of the test."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import httpx

from siftline.broker.broker import Broker
from siftline.server.run import running

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from siftline.server.run import Server, Tls


class Service:
    """A broker, its server, and a client for it."""

    def __init__(self, broker: Broker, server: Server, url: str) -> None:
        self.broker, self.server, self.url = broker, server, url
        self.client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def subscribe(self, expression: str = "a > 0", **more: Any) -> tuple[str, dict[str, str]]:
        """Subscribe, and return the id and the header with the ticket."""
        answer = self.client.post("/subscriptions", json={"expression": expression, **more})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"], bearer(answer.json()["ticket"])

    def publish(self, *events: dict[str, Any]) -> None:
        answer = self.client.post("/events", json=list(events))
        assert answer.status_code == 202, answer.text

    @contextlib.contextmanager
    def stream(self, path: str, headers: dict[str, str] | None = None) -> Iterator[Iterator[dict[str, str]]]:
        """Give the server-sent events of a stream."""
        with self.client.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200, response.read()
            yield sse(response.iter_lines())


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def sse(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Parse server-sent events that have data."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
            continue
        if "data" in fields:
            yield fields
        fields = {}


def data_of(event: dict[str, str]) -> Any:
    return json.loads(event["data"])["data"]


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@contextlib.contextmanager
def serving(
    path: Path, *, host: str = "127.0.0.1", tls: Tls | None = None, is_open: Collection[str] = (), **options: Any
) -> Iterator[Service]:
    """Run a server on a new broker."""
    with Broker(path, **options) as broker, running(broker, host=host, tls=tls, is_open=is_open) as server:
        service = Service(broker, server, server.url.replace(host, "127.0.0.1"))
        with service.client:
            yield service
