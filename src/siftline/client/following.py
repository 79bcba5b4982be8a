"""The state of a stream over several connections: bytes of server-sent events in, notifications out, each once.

    connect ──► bytes ──► notifications; their ids are remembered
       ▲          │
       └── wait ◄─┘ the connection broke, or the server stopped: resume after the last id

Nothing here reads or waits; the two clients do that, each in its own way.
"""

from __future__ import annotations

import json
import random
import time
import warnings
from typing import TYPE_CHECKING, Final

from siftline.broker.notifications import Notification, Position
from siftline.client.calls import bearer
from siftline.errors import BusyError, ServerError, SiftlineError

if TYPE_CHECKING:
    from collections.abc import Callable

    OnGap = Callable[[str], None]

_FIRST_SECONDS: Final = 0.5
_MOST_SECONDS: Final = 30.0


def warn_of_gap(reason: str) -> None:
    """Warn that notifications are missing; the default of a stream."""
    warnings.warn(f"the stream has a gap: {reason}", RuntimeWarning, stacklevel=2)


class Following:
    """The state of a stream from one connection to the next.

    Parameters
    ----------
    token : str, optional
        The ticket.
    after : str, optional
        The id of the notification after which to resume; without it, the stream starts with new notifications.
    patience : float, optional
        Seconds without a connection after which the stream gives up; None means never.
    on_gap : callable
        Called with the reason if notifications are missing.
    """

    def __init__(self, token: str | None, after: str | None, patience: float | None, on_gap: OnGap) -> None:
        self._token, self._patience, self._on_gap = token, patience, on_gap
        self._after = None if after is None else Position.of(after)
        self._rest = b""
        self._fields: dict[bytes, bytes] = {}
        self._n_failures = 0
        self._failing_since: float | None = None
        self.was_open = False

    def headers(self) -> dict[str, str]:
        """Return the headers of the next connection."""
        headers = {} if self._token is None else bearer(self._token)
        return headers if self._after is None else headers | {"Last-Event-ID": str(self._after)}

    def opened(self) -> None:
        """Reset the state after a connection was made."""
        self._rest, self._fields = b"", {}
        self._n_failures, self._failing_since = 0, None
        self.was_open = True

    def take(self, chunk: bytes) -> list[Notification]:
        """Return the notifications in some bytes, without repeats."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        found = [self._line(line.removesuffix(b"\r")) for line in lines]
        return [each for each in found if each is not None]

    def pause(self, error: SiftlineError | None) -> float:
        """Return how many seconds to wait before connecting again; raise the error if another attempt is useless."""
        if isinstance(error, ServerError) and error.status is not None and error.status < 500:
            raise error  # the next attempt would fail in the same way
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if self._patience is not None and now - self._failing_since >= self._patience:
            raise error or ServerError("the server ends the stream repeatedly")
        seconds = min(_MOST_SECONDS, _FIRST_SECONDS * 2.0 ** min(self._n_failures, 10))
        self._n_failures += 1
        asked = error.retry_after if isinstance(error, (BusyError, ServerError)) else None
        return max(seconds * random.uniform(0.5, 1.0), min(asked or 0.0, _MOST_SECONDS))

    def _line(self, line: bytes) -> Notification | None:
        if line:
            name, _, value = line.partition(b":")
            self._fields[name] = value.removeprefix(b" ")
            return None
        fields, self._fields = self._fields, {}
        kind = fields.get(b"event")
        if kind == b"match":
            return self._new(_notification(fields[b"data"]))
        if b"id" in fields:  # a position to resume at: after a gap, at the start, or past events of others
            self._after = Position.of(fields[b"id"].decode())
        if kind == b"gap":
            self._on_gap(_reason(fields.get(b"data", b"")))
        return None

    def _new(self, notification: Notification) -> Notification | None:
        """Return a notification unless it is a repeat: the ids of a stream ascend."""
        if self._after is not None and notification.position <= self._after:
            return None
        self._after = notification.position
        return notification


def _notification(data: bytes) -> Notification:
    try:
        return Notification.of(data.decode())
    except (ValueError, KeyError, TypeError):
        raise ServerError(f"the stream has sent an invalid notification: {data[:100]!r}") from None


def _reason(data: bytes) -> str:
    try:
        return str(json.loads(data)["reason"])
    except (ValueError, KeyError, TypeError):
        return "some notifications are no longer kept"
