"""The event loop never waits: while a lock of the broker is held, requests that do not need it are answered."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import tracemalloc
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.datastructures import Headers

from server.serving import Service, bearer, serving, wait_for
from siftline.broker.limits import Limits
from siftline.errors import LimitError
from siftline.server.events import events_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition)
HELD_SECONDS = 2.0
# Guards of counters and queues, held for some instructions and never while anything is waited for.
BRIEF = ("broker.hub._load._guard",)
# What is held for longer, for the normal run; all others in the long one.
LONG = ("broker._live.lock", "broker.hub._guard", "broker.log._guard", "broker._publisher._changed")


def locks_of(broker: Any) -> dict[str, Any]:
    """Find all locks below a broker, by where they are."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("broker", broker)]
    while pending:
        name, each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, LOCKS):
            found[name] = each
        elif isinstance(each, dict):
            pending += [(f"{name}[]", value) for value in list(each.values())[:50]]
        elif isinstance(each, (list, tuple, set, frozenset, deque)):
            pending += [(f"{name}[]", value) for value in list(each)[:50]]
        elif type(each).__module__.startswith("siftline."):
            slots = [slot for kind in type(each).__mro__ for slot in getattr(kind, "__slots__", ())]
            members = [*getattr(each, "__dict__", {}), *slots]
            pending += [(f"{name}.{member}", getattr(each, member)) for member in members if hasattr(each, member)]
    return {name: lock for name, lock in found.items() if name not in BRIEF}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = Limits(subscribes_per_second=None, publishes_per_second=None)
    with serving(tmp_path_factory.mktemp("loop") / "store.db", limits=limits) as service:
        service.subscribe("a > 0", owner="ann")
        service.publish({"a": 1})
        yield service


@contextlib.contextmanager
def held(lock: Any) -> Iterator[None]:
    """Let another thread hold a lock."""
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            is_over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(30)
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def requests_of(service: Service, lease: tuple[str, dict[str, str]]) -> list[tuple[str, str, Any]]:
    one = f"/subscriptions/{lease[0]}"
    return [
        ("GET", "/", None),
        ("GET", "/openapi.json", None),
        ("GET", "/readyz", None),
        ("GET", "/metrics", None),
        ("GET", "/stats?structure", None),
        ("GET", "/dead-letters", None),
        ("GET", "/events", None),
        ("GET", "/changes", None),
        ("GET", "/subscriptions?search=a", None),
        ("GET", "/owners/ann/subscriptions", None),
        ("GET", one, None),
        ("GET", f"{one}/notifications", None),
        ("GET", f"{one}/stream?after=0-0", None),
        ("GET", "/owners/ann/stream?after=0-0", None),
        ("GET", "/stream?after=0-0", None),
        ("POST", "/events", {"a": 1}),
        ("POST", "/events", [{"a": 1}] * 2000),
        ("POST", "/match", {"a": 1}),
        ("POST", "/explain", {"expression": "a = 1", "event": {}}),
        ("POST", "/matches", None),
        ("POST", "/subscriptions", {"expression": "a > 0"}),
        ("POST", f"{one}/renew", {}),
        ("PUT", one, {"expression": "a > 1"}),
        ("PUT", "/readers/spark", {"sequence": 1}),
        ("DELETE", f"{one}", None),
        ("DELETE", "/subscriptions/unknown", None),
    ]


def send(service: Service, method: str, path: str, body: Any) -> None:
    with (
        contextlib.suppress(httpx.HTTPError),
        httpx.Client(base_url=service.url, timeout=60, trust_env=False) as http,
        http.stream(method, path, json=body) as answer,
    ):
        next(answer.iter_bytes(), None)  # of a stream, the beginning


def answer_seconds(service: Service) -> float:
    start = time.monotonic()
    assert service.client.get("/healthz").status_code == 200
    return time.monotonic() - start


def slowest_answer(service: Service, lock: Any) -> float:
    """Send all kinds of requests while a lock is held; return how long others waited meanwhile."""
    requests = requests_of(service, service.subscribe("a > 0", owner="ann"))
    slowest = 0.0
    with ThreadPoolExecutor(len(requests)) as pool:
        with held(lock):
            sent = [pool.submit(send, service, *request) for request in requests]
            end = time.monotonic() + HELD_SECONDS
            while time.monotonic() < end:
                slowest = max(slowest, answer_seconds(service))
                time.sleep(0.01)
        for each in sent:
            each.result()
    return slowest


def check(service: Service, names: list[str]) -> None:
    locks = locks_of(service.broker)
    for name in names:
        seconds = slowest_answer(service, locks[name])
        if seconds > HELD_SECONDS / 2:  # the machine may have been busy with something else; a lock is waited for again
            seconds = slowest_answer(service, locks[name])
        assert seconds < HELD_SECONDS / 2, f"{name} was waited for: {seconds:.2f} s"


@pytest.mark.parametrize("name", LONG)
def test_a_lock_that_is_held(service: Service, name: str) -> None:
    check(service, [name])


@pytest.mark.slow
def test_every_lock_that_is_held(service: Service) -> None:
    names = sorted(locks_of(service.broker).keys() - set(LONG))
    assert len(names) > 6
    check(service, names)


def test_a_stream_that_ends_while_a_lock_is_held(service: Service) -> None:
    id, ticket = service.subscribe("open > 0")
    locks = locks_of(service.broker)
    for name in LONG:
        with contextlib.ExitStack() as stack:
            stack.enter_context(service.stream(f"/subscriptions/{id}/stream", ticket))
            wait_for(lambda: len(service.broker.hub))
            with held(locks[name]):
                stack.close()
                time.sleep(0.2)
                assert answer_seconds(service) < HELD_SECONDS / 2, name
        wait_for(lambda: not len(service.broker.hub))


def test_large_bodies_are_put_together_as_they_come(tmp_path: Path) -> None:
    """The loop does nothing large at once: no turn of it takes as much processor time as copying the body does."""
    with serving(tmp_path / "store.db", limits=Limits(body_bytes=200 << 20, bodies_bytes=200 << 20)) as service:
        body = b"[" + b" " * 150_000_000 + b"]"
        begun = time.thread_time()
        bytearray(body)
        copied = time.thread_time() - begun  # on this machine, as busy as it is now
        assert longest_turn(service, lambda: service.client.post("/events", content=body)) < copied


def longest_turn(service: Service, call: Callable[[], Any]) -> float:
    """Return the most processor time that the loop of a server takes at once while something is called.

    The garbage collector rests: it would look at all that other tests left, in whichever thread it happens to run.
    """
    longest, is_over = [0.0], threading.Event()

    def beat(then: float) -> None:
        now = time.thread_time()
        longest[0] = max(longest[0], now - then)
        if not is_over.is_set():
            loop.call_later(0.001, beat, time.thread_time())

    [loop] = {each.get_loop() for each in service.server.servers}
    gc.disable()
    try:
        loop.call_soon_threadsafe(beat, float("inf"))
        call()
    finally:
        gc.enable()
        is_over.set()
    assert longest[0] > 0.0
    return longest[0]


def test_lines_are_found_one_by_one() -> None:
    limits = Limits()
    for body, n in ((b"{}\n" * 5_000_000, None), (b"\n" * 16_000_000, None), (b"\n{}\n" * 10_000 + b" " * 9, 10_000)):
        tracemalloc.start()
        try:
            found = events_of(Headers({"content-type": "application/x-ndjson"}), body, limits).events
            assert (len(found), found[0]) == (n, b"{}")
        except LimitError:
            assert n is None
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < 4 << 20  # no copy of what is left


def test_a_writer_of_another_process_is_not_waited_for(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "store.db"
    with serving(path) as service:
        id, ticket = service.subscribe("a > 0")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with ThreadPoolExecutor(4) as pool:
                waiting = pool.submit(send, service, "POST", "/subscriptions", {"expression": "a > 0"})
                for _ in range(20):
                    start = time.monotonic()
                    assert service.client.get("/healthz").status_code == 200
                    assert service.client.get(f"/subscriptions/{id}", headers=ticket).status_code == 200
                    assert time.monotonic() - start < 1.0
                other.execute("ROLLBACK")
                waiting.result()
        assert service.client.get("/stats", headers=bearer("x")).status_code == 401
