"""A stream over `kill -9` of the server process."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from server.test_serve_command import served

import siftline

if TYPE_CHECKING:
    from pathlib import Path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_stream_resumes_after_a_kill(tmp_path: Path) -> None:
    options = "--store", str(tmp_path / "store.db"), "--port", str(free_port())
    with served(*options) as (process, http):
        client = siftline.Client(str(http.base_url), use_proxies=False, timeout=60)
        lease = client.subscribe("a >= 0")
        stream = client.stream(lease.id, lease.ticket, after="0-0")
        client.publish_many({"a": n} for n in range(3))
        assert next(stream).event == {"a": 0}
        process.kill()
    with served(*options), client:
        client.publish({"a": 3})
        assert [next(stream).event["a"] for _ in range(3)] == [1, 2, 3]
        client.unsubscribe(lease.id, lease.ticket)
        assert list(stream) == []
