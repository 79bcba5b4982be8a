"""Publishing: events that several clients publish at the same time are matched and written together.

    client A   events ──────────────── accepted
    client B       events ─────────────────────────────── accepted
    client C         events ───────────────────────────── accepted
    publisher  [A: match, write, disk] [B, C: match, write, disk]

One thread matches, in kernels that release the interpreter lock, and commits to the log of notifications; then the hub
gets the events. An invalid event is refused with all events of the same request, and no others. A request that was
published before with the same idempotency key is not published again (`remembered.py`).

The queue is bounded in events and in bytes. Matches come in chunks, and a publish whose matches do not fit into the log
is refused, so the memory of a turn is bounded too.
"""

from __future__ import annotations

import json
import re
import threading
import time
from concurrent.futures import Future
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.broker.raw_json import json_text
from siftline.broker.recent import event_cost
from siftline.broker.remembered import PUBLISH_NAME_BYTES, Answer, Done
from siftline.errors import BusyError, EventError, IdempotencyError, LimitError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from siftline.broker.limits import Limits
    from siftline.broker.remembered import Name
    from siftline.ids import Id

    # Events, each with the numbers of the subscriptions that it matches.
    Pairs = list[tuple[bytes, NDArray[np.uint32]]]

# The largest number of events and bytes of one turn; a single request may exceed them.
_MOST_EVENTS: Final = 4096
_MOST_BYTES: Final = 16 << 20
# When a turn has found this many matches, the complete requests are written before the rest is matched.
_MANY_MATCHES: Final = 1 << 21
# One publish of several events may fill one of this many parts of the log.
_PARTS: Final = 4
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


class Published(NamedTuple):
    """The answer to a publish.

    Attributes
    ----------
    events : int
        The number of events.
    sequence : int
        The number of the last event in the log.
    repeated : bool
        Whether the events had been published before with the same idempotency key; then this is the first answer.
    """

    events: int
    sequence: int
    repeated: bool = False


class Request(NamedTuple):
    """Events that are published together, and their idempotency keys: one for all of them, or one for each."""

    events: list[bytes]
    name: Name | None = None
    event_names: Sequence[Name | None] = ()

    @property
    def keys(self) -> set[bytes]:
        """The keys under which answers are looked up."""
        names = (self.name, *self.event_names)
        return {name.key for name in names if name is not None}


class _Waiting(NamedTuple):
    request: Request
    n_bytes: int
    answer: Future[Published]
    start: float


class _Turn:
    """The part of one request that is to be published: some of its events may have been published before."""

    def __init__(self, waiting: _Waiting) -> None:
        self.waiting = waiting
        self.events: list[tuple[int, bytes]] = []  # with their positions in the request
        # Names with the number of their events, and the position in `events` of the name of a single event.
        self.names: list[tuple[Name, int, int | None]] = []
        self.pairs: Pairs = []
        self.n_matches = 0


class Publisher:
    """Queues events from any thread, and answers when their notifications are durable.

    Parameters
    ----------
    match : callable
        From JSON texts to an iterator over the ids that each matches, or the error of an invalid one.
    number : callable
        From ids to their numbers in the log, which take less memory.
    write : callable
        Makes (event, numbers) pairs and names durable in one transaction, and returns the number of the last event.
    find : callable
        From keys to the answers that are remembered.
    observe : callable
        Called with the numbers of events and matches, and the seconds, of each request.
    limits : Limits
        The bounds of the queue and of a publish.
    """

    def __init__(
        self,
        match: Callable[[list[bytes]], Iterator[list[Id] | EventError]],
        number: Callable[[list[Id]], NDArray[np.uint32]],
        write: Callable[[Pairs, list[Done]], int],
        find: Callable[[set[bytes]], dict[bytes, Answer]],
        observe: Callable[[int, int, float], None],
        limits: Limits,
    ) -> None:
        self._match, self._number, self._write, self._find = match, number, write, find
        self._observe, self._limits = observe, limits
        self._waiting: list[_Waiting] = []
        self._n_waiting = self._n_bytes = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="siftline-publisher", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Future[Published]:
        """Queue events that belong together: all are accepted, or none."""
        n_events, n_bytes = max(1, len(request.events)), sum(map(len, request.events))
        self._check_size(n_events, n_bytes)
        waiting = _Waiting(request, n_bytes, Future(), time.perf_counter())
        # A caller that stops waiting cannot cancel it: other requests share its commit, and would be cancelled too.
        waiting.answer.set_running_or_notify_cancel()
        with self._changed:
            if self._is_closed:
                raise StoreError("the broker is closed")
            if self._n_waiting and self._n_waiting + n_events > self._limits.waiting_events:
                raise BusyError(f"{self._n_waiting:,} events are waiting already")
            if self._n_bytes and self._n_bytes + n_bytes > self._limits.waiting_bytes:
                raise BusyError(f"events of {self._n_bytes:,} bytes are waiting already")
            self._waiting.append(waiting)
            self._n_waiting += n_events
            self._n_bytes += n_bytes
            self._changed.notify()
        return waiting.answer

    def _check_size(self, n_events: int, n_bytes: int) -> None:
        if n_events > self._limits.batch_events:
            raise LimitError(f"{n_events:,} events at once: at most {self._limits.batch_events:,} are allowed")
        if n_bytes > self._limits.waiting_bytes:
            raise LimitError(f"events of {n_bytes:,} bytes at once: at most {self._limits.waiting_bytes:,} are allowed")

    @property
    def n_waiting(self) -> int:
        """How many events are in the queue."""
        return self._n_waiting

    def close(self) -> None:
        """Publish the queued events, and stop."""
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
                for waiting in group:
                    if not waiting.answer.done():
                        waiting.answer.set_exception(error)

    def _taken(self) -> list[_Waiting]:
        """Take at least one request for one turn; one that repeats a key waits for the answer to the first."""
        n_events = n_bytes = n_requests = 0
        keys: set[bytes] = set()
        for request, size, *_ in self._waiting:
            is_full = n_events + len(request.events) > _MOST_EVENTS or n_bytes + size > _MOST_BYTES
            if n_requests and (is_full or not keys.isdisjoint(request.keys)):
                break
            keys |= request.keys
            n_requests += 1
            n_events += max(1, len(request.events))
            n_bytes += size
        group, self._waiting = self._waiting[:n_requests], self._waiting[n_requests:]
        self._n_waiting -= n_events
        self._n_bytes -= n_bytes
        return group

    def _publish(self, group: list[_Waiting]) -> None:
        turns = self._turns(group)
        matched = self._match([event for turn in turns for _, event in turn.events])
        complete: list[_Turn] = []
        for turn in turns:
            refusal = self._collect(turn, matched, is_alone=len(turns) == 1)
            if refusal is not None:
                turn.waiting.answer.set_exception(refusal)
                continue
            complete.append(turn)
            if sum(each.n_matches for each in complete) > _MANY_MATCHES:
                self._finish(complete)
                complete = []
        self._finish(complete)

    def _turns(self, group: list[_Waiting]) -> list[_Turn]:
        """Return the requests that have something to publish; answer those that were published before."""
        keys = set().union(*(waiting.request.keys for waiting in group))
        known = self._find(keys) if keys else {}
        turns = []
        for waiting in group:
            try:
                turn = _turn(waiting, known)
            except IdempotencyError as error:
                waiting.answer.set_exception(error)
                continue
            if isinstance(turn, Published):
                waiting.answer.set_result(turn)
            else:
                turns.append(turn)
        return turns

    def _collect(
        self, turn: _Turn, matched: Iterator[list[Id] | EventError], *, is_alone: bool
    ) -> EventError | LimitError | None:
        """Take the matches of one request; return the error if it cannot be published."""
        refusal: EventError | LimitError | None = None
        cost = 0
        named = {position for _, _, position in turn.names}
        for number, (position, event) in enumerate(turn.events):
            found = next(matched)
            if refusal is not None:
                continue  # the matches of this request are skipped, up to the next one
            if isinstance(found, EventError):
                refusal = found if len(turn.waiting.request.events) == 1 else EventError(f"event {position}: {found}")
            else:
                turn.pairs.append((event, self._number(found)))
                turn.n_matches += len(found)
                cost += event_cost(len(event), len(found)) + PUBLISH_NAME_BYTES * (number in named) if found else 0
                refusal = self._too_large(turn, cost)
            if refusal is not None:
                turn.pairs.clear()
                if is_alone:
                    break  # the others need not be matched
        return refusal

    def _too_large(self, turn: _Turn, cost: int) -> LimitError | None:
        """Return the error of a request that is too large: several events may fill a part of the log, one all of it."""
        room = self._limits.log_bytes
        if cost <= room // _PARTS or (cost <= room and len(turn.waiting.request.events) == 1):
            return None
        return LimitError(
            f"these events match {turn.n_matches:,} times or more, which takes too much of the {room:,} bytes that the"
            " log of notifications has; publish fewer at once, or give the log more (--log-bytes)"
        )

    def _finish(self, turns: list[_Turn]) -> None:
        """Write complete requests, and answer them."""
        if not turns:
            return
        sequence = self._write([pair for turn in turns for pair in turn.pairs], _done(turns))
        now = time.perf_counter()
        for turn in turns:
            n_events = len(turn.waiting.request.events)
            self._observe(n_events, turn.n_matches, now - turn.waiting.start)
            turn.waiting.answer.set_result(Published(n_events, sequence))


def _done(turns: list[_Turn]) -> list[Done]:
    """Return all names, each with the last of its events that matched a subscription."""
    done: list[Done] = []
    n_logged = 0
    for turn in turns:
        logged: list[int] = []
        for _, numbers in turn.pairs:
            n_logged += len(numbers) > 0
            logged.append(n_logged if len(numbers) else 0)
        last = max(logged, default=0)
        done += [Done(name, n, last if position is None else logged[position]) for name, n, position in turn.names]
    return done


def _turn(waiting: _Waiting, known: dict[bytes, Answer]) -> _Turn | Published:
    """Return the new part of a request, or the answer if nothing is new; raise if a key stands for other events."""
    request, turn = waiting.request, _Turn(waiting)
    if request.name is not None:
        answer = known.get(request.name.key)
        if answer is not None:
            answer.check(request.name)
            return Published(answer.events, answer.sequence, repeated=True)
        turn.names.append((request.name, len(request.events), None))
    seen = dict(known)
    for position, (event, name) in enumerate(zip_longest(request.events, request.event_names)):
        if name is not None:
            if name.key in seen:
                seen[name.key].check(name)
                continue
            seen[name.key] = Answer(name.digest, 1, 0)
            turn.names.append((name, 1, len(turn.events)))
        turn.events.append((position, event))
    if request.events and not turn.events and request.name is None:
        return Published(len(request.events), max(known[key].sequence for key in request.keys), repeated=True)
    return turn


def event_text(event: Any, limits: Limits) -> bytes:
    r"""Return an event as JSON on one line.

    >>> from siftline.broker.limits import Limits
    >>> event_text({"price": 5}, Limits()), event_text(b'{"price":\n 5}', Limits())
    (b'{"price": 5}', b'{"price":  5}')
    """
    if isinstance(event, str):
        event = event.encode("utf-8", "surrogatepass")
    text = bytes(event) if isinstance(event, (bytes, bytearray, memoryview)) else json_text(event)
    if len(text) > limits.event_bytes:
        raise LimitError(f"an event of {len(text):,} bytes: at most {limits.event_bytes:,} are allowed")
    _check_unicode(text)
    if b"NaN" in text or b"Infinity" in text:
        _check_numbers(text)
    if text.startswith(b"\xef\xbb\xbf"):
        text = text[3:]
    if b"\n" in text or b"\r" in text:
        _check_lines(text)
    return text.replace(b"\n", b" ").replace(b"\r", b" ").strip()


def _check_unicode(text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise EventError(f"not a JSON object: invalid UTF-8 at byte {error.start}") from None


def _check_lines(text: bytes) -> None:
    """Refuse line breaks in strings, which JSON does not allow; between tokens they are replaced by spaces."""
    for string in _STRING.finditer(text):
        if b"\n" in string[0] or b"\r" in string[0]:
            raise EventError(f"not a JSON object: a line break in a string at byte {string.start()}")


def _check_numbers(text: bytes) -> None:
    """Refuse NaN and Infinity, which Python parses as numbers, but receivers cannot."""

    def refuse(name: str) -> None:
        raise EventError(f"not a JSON object: {name} is not a JSON number")

    try:
        json.loads(text, parse_constant=refuse)
    except EventError:
        raise
    except (ValueError, RecursionError):
        return  # the parser of events reports it
