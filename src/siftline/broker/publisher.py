"""Publishing: what several clients publish at the same moment is matched together and written together.

    client A   events ──────────────── accepted
    client B       events ─────────────────────────────── accepted
    client C         events ───────────────────────────── accepted
    publisher  [A: match, write, disk] [B, C: match, write, disk]

One thread matches, in kernels that let the others run, and commits to the log of notifications; then the hub is told.
Bad events are refused with all that was published together with them, and nobody else's.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.errors import BusyError, EventError, LimitError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.broker.limits import Limits
    from siftline.subscriptions import Id

    Matched = list[list[Id] | EventError]

# So many events go into one turn at most.
_MOST: Final = 4096


class Published(NamedTuple):
    """What became of the events of one call: how many there were, and the number of the last notification then."""

    events: int
    sequence: int


class _Request(NamedTuple):
    events: list[bytes]
    answer: Future[Published]
    start: float


class Publisher:
    """Takes events from any thread, and answers when those they match are sure to be notified.

    Parameters
    ----------
    match : callable
        From JSON texts to the ids that each matches, or what is wrong with it.
    write : callable
        Takes (event, ids) pairs, makes them durable, and returns the number of the last one.
    observe : callable
        Told of events, matches and seconds of each request.
    limits : Limits
        Of the queue.
    """

    def __init__(
        self,
        match: Callable[[list[bytes]], Matched],
        write: Callable[[list[tuple[bytes, list[Id]]]], int],
        observe: Callable[[int, int, float], None],
        limits: Limits,
    ) -> None:
        self._match, self._write, self._observe, self._limits = match, write, observe, limits
        self._waiting: list[_Request] = []
        self._n_waiting = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="siftline-publisher", daemon=True)
        self._thread.start()

    def submit(self, events: list[bytes]) -> Future[Published]:
        """Queue events that belong together: all are accepted, or none."""
        if len(events) > self._limits.batch_events:
            raise LimitError(f"{len(events):,} events at once: at most {self._limits.batch_events:,} may be")
        request = _Request(events, Future(), time.perf_counter())
        # Who no longer waits for it cannot cancel it: the others that share its commit would be told of that.
        request.answer.set_running_or_notify_cancel()
        with self._changed:
            if self._is_closed:
                raise StoreError("the broker is closed")
            if self._n_waiting and self._n_waiting + len(events) > self._limits.waiting_events:
                raise BusyError(f"{self._n_waiting:,} events are waiting already")
            self._waiting.append(request)
            self._n_waiting += len(events)
            self._changed.notify()
        return request.answer

    @property
    def n_waiting(self) -> int:
        """How many events wait."""
        return self._n_waiting

    def close(self) -> None:
        """Finish what was submitted, and stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                group = self._taken()
            if not group:
                return
            try:
                self._publish(group)
            except BaseException as error:
                for request in group:
                    if not request.answer.done():
                        request.answer.set_exception(error)

    def _taken(self) -> list[_Request]:
        """Take requests with at most _MOST events, but at least one."""
        n_events = n_requests = 0
        for request in self._waiting:
            if n_requests and n_events + len(request.events) > _MOST:
                break
            n_requests += 1
            n_events += len(request.events)
        group, self._waiting = self._waiting[:n_requests], self._waiting[n_requests:]
        self._n_waiting -= n_events
        return group

    def _publish(self, group: list[_Request]) -> None:
        matched = self._match([event for request in group for event in request.events])
        pairs: list[tuple[bytes, list[Id]]] = []
        good: list[tuple[_Request, int]] = []
        first = 0
        for request in group:
            mine = matched[first : first + len(request.events)]
            first += len(request.events)
            refusal = _refusal(mine)
            if refusal is not None:
                request.answer.set_exception(refusal)
                continue
            found = [(event, ids) for event, ids in zip(request.events, mine, strict=True) if isinstance(ids, list)]
            pairs += found
            good.append((request, sum(len(ids) for _, ids in found)))
        sequence = self._write(pairs)
        now = time.perf_counter()
        for request, n_matches in good:
            self._observe(len(request.events), n_matches, now - request.start)
            request.answer.set_result(Published(len(request.events), sequence))


def _refusal(matched: Matched) -> EventError | None:
    """Return what is wrong with the first bad event, and which it is if there are several."""
    for position, found in enumerate(matched):
        if isinstance(found, EventError):
            return EventError(f"event {position}: {found}") if len(matched) > 1 else found
    return None


def event_text(event: Any, limits: Limits) -> bytes:
    r"""Return an event as JSON on one line.

    >>> from siftline.broker.limits import Limits
    >>> event_text({"price": 5}, Limits()), event_text(b'{"price":\n 5}', Limits())
    (b'{"price": 5}', b'{"price":  5}')
    """
    if isinstance(event, str):
        event = event.encode("utf-8", "surrogatepass")
    text = bytes(event) if isinstance(event, (bytes, bytearray, memoryview)) else _dumped(event)
    if len(text) > limits.event_bytes:
        raise LimitError(f"an event of {len(text):,} bytes: at most {limits.event_bytes:,} may be")
    _check_unicode(text)
    if b"NaN" in text or b"Infinity" in text:
        _check_numbers(text)
    if text.startswith(b"\xef\xbb\xbf"):
        text = text[3:]
    # Between tokens only: in strings JSON has no such characters.
    return text.replace(b"\n", b" ").replace(b"\r", b" ").strip()


def _dumped(event: Any) -> bytes:
    try:
        return json.dumps(event, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(f"not a JSON object: {error}") from None


def _check_unicode(text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise EventError(f"not a JSON object: invalid UTF-8 at byte {error.start}") from None


def _check_numbers(text: bytes) -> None:
    """Refuse what Python takes for numbers and JSON does not; receivers could not read it."""

    def refuse(name: str) -> None:
        raise EventError(f"not a JSON object: {name} is not a JSON number")

    try:
        json.loads(text, parse_constant=refuse)
    except EventError:
        raise
    except (ValueError, RecursionError):
        return  # whoever parses it next will say what is wrong
