"""Publishing: what several clients publish at the same moment is matched together and written together.

    client A   events ──────────────── accepted
    client B       events ─────────────────────────────── accepted
    client C         events ───────────────────────────── accepted
    publisher  [A: match, write, disk] [B, C: match, write, disk]

One thread matches, in kernels that let the others run, and commits to the log of notifications; then the hub is told.
Bad events are refused with all that was published together with them, and nobody else's. What was published before
under the same name is not published again (`remembered.py`).

What waits is bounded in events and in bytes. Matches come piece by piece, and a publish whose matches the log could not
hold is refused, so the memory of a turn is bounded too.
"""

from __future__ import annotations

import json
import re
import threading
import time
from concurrent.futures import Future
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.broker.recent import event_cost
from siftline.broker.remembered import PUBLISH_NAME_BYTES, Answer, Done
from siftline.errors import BusyError, EventError, IdempotencyError, LimitError, StoreError
from siftline.model import json_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from siftline.broker.limits import Limits
    from siftline.broker.remembered import Name
    from siftline.ids import Id

    # Events, and the numbers of the subscriptions that they match.
    Pairs = list[tuple[bytes, NDArray[np.uint32]]]

# This many events and bytes go into one turn at most, but always one publish.
_MOST_EVENTS: Final = 4096
_MOST_BYTES: Final = 16 << 20
# When a turn has found this many matches, what is complete is written before the rest is matched.
_MANY_MATCHES: Final = 1 << 21
# Of the log, one publish of several events may fill this part.
_PARTS: Final = 4
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


class Published(NamedTuple):
    """What became of the events of one call.

    Attributes
    ----------
    events : int
        How many there were.
    sequence : int
        The number of the last notification then.
    repeated : bool
        Whether they had been published before under the same name; then this is the answer of that time.
    """

    events: int
    sequence: int
    repeated: bool = False


class Request(NamedTuple):
    """Events that are published together, and their names: of all of them, or of each."""

    events: list[bytes]
    name: Name | None = None
    event_names: Sequence[Name | None] = ()

    @property
    def keys(self) -> set[bytes]:
        """What the names are looked up by."""
        names = (self.name, *self.event_names)
        return {name.key for name in names if name is not None}


class _Waiting(NamedTuple):
    request: Request
    n_bytes: int
    answer: Future[Published]
    start: float


class _Turn:
    """What is to be published of one request, which may be less than it has: some events may be known."""

    def __init__(self, waiting: _Waiting) -> None:
        self.waiting = waiting
        self.events: list[tuple[int, bytes]] = []  # with their positions in the request
        # With the number of their events, and the position in `events` if it is one.
        self.names: list[tuple[Name, int, int | None]] = []
        self.pairs: Pairs = []
        self.n_matches = 0


class Publisher:
    """Takes events from any thread, and answers when those they match are sure to be notified.

    Parameters
    ----------
    match : callable
        From JSON texts to the ids that each matches, or what is wrong with it, one after the other.
    number : callable
        From ids to the numbers that the log has for them, which take less memory.
    write : callable
        Takes (event, numbers) pairs and names, makes them durable together, and returns the number of the last one.
    find : callable
        From the keys of names to the answers that are known.
    observe : callable
        Told of events, matches and seconds of each request.
    limits : Limits
        Of the queue.
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
        # A caller that no longer waits cannot cancel it: others share its commit, and would be cancelled too.
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
            raise LimitError(f"{n_events:,} events at once: at most {self._limits.batch_events:,} may be")
        if n_bytes > self._limits.waiting_bytes:
            raise LimitError(f"events of {n_bytes:,} bytes at once: at most {self._limits.waiting_bytes:,} may be")

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
                for waiting in group:
                    if not waiting.answer.done():
                        waiting.answer.set_exception(error)

    def _taken(self) -> list[_Waiting]:
        """Take requests for one turn, at least one; the repeat of a name has to wait for the answer to the first."""
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
        """Return what there is to do; answer what was done before."""
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
        """Take the matches of one request; return why it cannot be published, if so."""
        refusal: EventError | LimitError | None = None
        cost = 0
        named = {position for _, _, position in turn.names}
        for number, (position, event) in enumerate(turn.events):
            found = next(matched)
            if refusal is not None:
                continue  # the next request begins where this one ends
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
        """Return why a request cannot be published: several events may fill a part of the log, one event all of it."""
        room = self._limits.log_bytes
        if cost <= room // _PARTS or (cost <= room and len(turn.waiting.request.events) == 1):
            return None
        return LimitError(
            f"these events match {turn.n_matches:,} times or more, which takes too much of the {room:,} bytes that the"
            " log of notifications has; publish fewer at once, or give the log more (--log-bytes)"
        )

    def _finish(self, turns: list[_Turn]) -> None:
        """Write what is complete, and answer."""
        if not turns:
            return
        sequence = self._write([pair for turn in turns for pair in turn.pairs], _done(turns))
        now = time.perf_counter()
        for turn in turns:
            n_events = len(turn.waiting.request.events)
            self._observe(n_events, turn.n_matches, now - turn.waiting.start)
            turn.waiting.answer.set_result(Published(n_events, sequence))


def _done(turns: list[_Turn]) -> list[Done]:
    """Return all names, each with the last of its events that matched."""
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
    """Return what is new of a request, or the answer if nothing is; raise if a name has another meaning."""
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
    text = bytes(event) if isinstance(event, (bytes, bytearray, memoryview)) else _dumped(event)
    if len(text) > limits.event_bytes:
        raise LimitError(f"an event of {len(text):,} bytes: at most {limits.event_bytes:,} may be")
    _check_unicode(text)
    if b"NaN" in text or b"Infinity" in text:
        _check_numbers(text)
    if text.startswith(b"\xef\xbb\xbf"):
        text = text[3:]
    if b"\n" in text or b"\r" in text:
        _check_lines(text)
    return text.replace(b"\n", b" ").replace(b"\r", b" ").strip()


def _dumped(event: Any) -> bytes:
    try:
        return json.dumps(event, allow_nan=False, default=json_value).encode()
    except EventError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(f"not a JSON object: {error}") from None


def _check_unicode(text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise EventError(f"not a JSON object: invalid UTF-8 at byte {error.start}") from None


def _check_lines(text: bytes) -> None:
    """Refuse line breaks in strings, which JSON does not have; between tokens they may become spaces."""
    for string in _STRING.finditer(text):
        if b"\n" in string[0] or b"\r" in string[0]:
            raise EventError(f"not a JSON object: a line break in a string at byte {string.start()}")


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
