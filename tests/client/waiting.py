"""The asynchronous client with blocking methods, so that both clients pass the same tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import siftline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siftline.broker.notifications import Notification


class WaitingClient:
    def __init__(self, url: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._streams: list[Any] = []
        self._client = siftline.AsyncClient(url, **options)

    def __enter__(self) -> WaitingClient:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            self._loop.run_until_complete(stream.aclose())
        self._loop.run_until_complete(self._client.close())
        self._loop.close()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._client, name)
        return lambda *args, **options: self._loop.run_until_complete(verb(*args, **options))

    def stream(self, *args: Any, **options: Any) -> Iterator[Notification]:
        found = self._client.stream(*args, **options)
        self._streams.append(found)
        try:
            while True:
                yield self._loop.run_until_complete(anext(found))
        except StopAsyncIteration:
            return
