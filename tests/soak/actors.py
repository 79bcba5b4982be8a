"""Those who use the service and those who attack it: each a function that runs in a thread until the world ends.

They write down what they asked for and what they were answered (`model.py`), and complain about answers that are wrong
by themselves. An answer that never came is looked up as soon as the server is back.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import httpx
from standardwebhooks import Webhook

from siftline import Client, Store
from siftline.errors import StoreLockedError
from soak.model import Condition, Model, Orphan, Published, Subscription, draw_condition, draw_event
from soak.service import full_disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from siftline.broker.notifications import Notification
    from soak.service import Service

# Answers that say: not now.
_LATER = (429, 500, 503, 507)
_SEEN_SECONDS = 30.0  # within which the server sees what a command beside it did, on a busy machine


@dataclass
class World:
    """What all of them share."""

    service: Service
    model: Model
    admin: str
    publisher: str
    subscriber: str
    has_small_disk: bool
    hooks: Hooks
    is_over: threading.Event = field(default_factory=threading.Event)
    is_calm: threading.Event = field(default_factory=threading.Event)
    is_broken: threading.Event = field(default_factory=threading.Event)
    guard: threading.Lock = field(default_factory=threading.Lock)
    is_up: threading.Lock = field(default_factory=threading.Lock)  # held by whom the server may not be taken from
    problems: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    n_events: int = 0

    def complain(self, problem: str) -> None:
        """Write down what is wrong."""
        with self.guard:
            self.problems.append(problem)

    def http(self, key: str) -> httpx.Client:
        """Return a client with a key."""
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.service.url, headers=headers, timeout=60, trust_env=False)

    def numbers(self, n: int) -> list[int]:
        """Return numbers for new events."""
        with self.guard:
            self.n_events += n
            return list(range(self.n_events - n, self.n_events))


class BrokenError(Exception):
    """The server is gone for good, which somebody else has complained about."""


def patient(world: World, send: Callable[[], httpx.Response]) -> httpx.Response:
    """Send until there is an answer that is not 'later'."""
    while not world.is_broken.is_set():
        with contextlib.suppress(httpx.HTTPError):
            answer = send()
            if answer.status_code not in _LATER:
                return answer
        time.sleep(0.1)
    raise BrokenError


# Publishing.


def publish(world: World, chance: Random) -> None:
    """Publish events; what is not acknowledged is sent again under the same name, and must be delivered once."""
    with world.http(world.publisher) as http:
        while not world.is_over.is_set():
            publish_once(world, http, [draw_event(chance, n) for n in world.numbers(chance.choice((1, 1, 1, 2, 5)))])
            time.sleep(chance.uniform(0.0, 0.06))


def publish_once(world: World, http: httpx.Client, events: list[dict[str, int]]) -> None:
    """Publish events until they are acknowledged."""
    name = {"Idempotency-Key": uuid.uuid4().hex}
    start = time.time()
    answer = patient(world, lambda: http.post("/events", json=events, headers=name))
    end = time.time()
    if answer.status_code != 202:
        world.complain(f"publishing: {answer.status_code} {answer.text[:200]}")
        return
    with world.guard:
        for event in events:
            world.model.published[event["n"]] = Published(event, start, end)
        world.done["published"] += len(events)


# Subscribing.


def subscribe(world: World, chance: Random) -> None:
    """Subscribe, renew, replace, unsubscribe, and let leases end."""
    mine: list[Subscription] = []
    with world.http(world.subscriber) as http:
        while not world.is_over.is_set():
            if len(mine) < 5 or (len(mine) < 60 and chance.random() < 0.3):
                made = _subscribed(world, http, chance)
                mine += [] if made is None else [made]
            else:
                subscription = chance.choice(mine)
                change = chance.choices((_replace, _renew, _unsubscribe), (4, 3, 1))[0]
                if not change(world, http, chance, subscription):
                    mine.remove(subscription)
            time.sleep(chance.uniform(0.0, 0.1))


def _subscribed(world: World, http: httpx.Client, chance: Random) -> Subscription | None:
    condition = draw_condition(chance)
    document: dict[str, Any] = {"expression": condition.text, "validity": chance.choice((0.2, 1, 3, 10, 3600, 3600))}
    has_webhook = chance.random() < 0.2
    if has_webhook:
        document["deliver"] = {"webhook": world.hooks.url}
    asked = time.time()
    try:
        answer = http.post("/subscriptions", json=document)
    except httpx.HTTPError:
        answer = None
    if answer is None or answer.status_code >= 500:
        with world.guard:
            world.model.orphans.append(Orphan(condition, asked))
        time.sleep(0.3)
        return None
    if answer.status_code != 201:
        if answer.status_code != 429:
            world.complain(f"subscribing: {answer.status_code} {answer.text[:200]}")
        return None
    made = answer.json()
    subscription = Subscription(made["id"], made["ticket"], has_webhook)
    known = time.time()
    subscription.conditions.ask(asked, condition)
    subscription.conditions.settle(known)
    subscription.expiries.ask(asked, _seconds(made["expires"]))
    subscription.expiries.settle(known)
    if has_webhook:
        world.hooks.know(made["id"], made["secret"])
    with world.guard:
        world.model.subscriptions[made["id"]] = subscription
        world.done["subscribed"] += 1
    return subscription


def _replace(world: World, http: httpx.Client, chance: Random, subscription: Subscription) -> bool:
    condition = draw_condition(chance)
    asked = time.time()
    subscription.conditions.ask(asked, condition)
    answer = _sent(http, "PUT", subscription, {"expression": condition.text})
    if answer is not None and answer.status_code == 200:
        subscription.conditions.settle(time.time())
        world.done["replaced"] += 1
        return True
    return _looked_up(world, http, subscription, asked, answer, "replace")


def _renew(world: World, http: httpx.Client, chance: Random, subscription: Subscription) -> bool:
    validity = chance.choice((0.5, 2, 10, 3600))
    asked = time.time()
    subscription.expiries.ask(asked, asked + validity)
    answer = _sent(http, "POST", subscription, {"validity": validity}, "/renew")
    if answer is not None and answer.status_code == 200:
        subscription.expiries.settle(time.time(), _seconds(answer.json()["expires"]))
        world.done["renewed"] += 1
        return True
    return _looked_up(world, http, subscription, asked, answer, "renew")


def _unsubscribe(world: World, http: httpx.Client, chance: Random, subscription: Subscription) -> bool:
    asked = time.time()
    subscription.end.ask(asked, True)
    answer = _sent(http, "DELETE", subscription, None)
    if answer is not None and answer.status_code == 204:
        subscription.end.settle(time.time())
        world.done["unsubscribed"] += 1
        return False
    return _looked_up(world, http, subscription, asked, answer, "end")


def _sent(
    http: httpx.Client, method: str, subscription: Subscription, document: Any, what: str = ""
) -> httpx.Response | None:
    headers = {"Authorization": f"Bearer {subscription.ticket}"}
    try:
        return http.request(method, f"/subscriptions/{subscription.id}{what}", json=document, headers=headers)
    except httpx.HTTPError:
        return None


def _looked_up(
    world: World,
    http: httpx.Client,
    subscription: Subscription,
    asked: float,
    answer: httpx.Response | None,
    change: str,
) -> bool:
    """Find out what became of a change that was not answered with success; return whether the subscription lives."""
    timeline: Any = {"replace": subscription.conditions, "renew": subscription.expiries, "end": subscription.end}[
        change
    ]
    wanted = timeline.latest
    if answer is not None and answer.status_code in (404, 429):
        timeline.withdraw()  # so it says: what was refused is not in force
        if answer.status_code == 404 and subscription.must_exist(asked, time.time()):
            world.complain(f"{change} of {subscription.id}: {answer.text[:200]}, and it must be there")
        return answer.status_code == 429
    if answer is not None and answer.status_code < 500:
        world.complain(f"{change} of {subscription.id}: {answer.status_code} {answer.text[:200]}")
    headers = {"Authorization": f"Bearer {subscription.ticket}"}
    found = patient(world, lambda: http.get(f"/subscriptions/{subscription.id}", headers=headers))
    if found.status_code == 404:
        if change == "end":
            timeline.settle(time.time())
        elif subscription.must_exist(asked, time.time()):
            world.complain(f"{subscription.id} is gone")
        return False
    shown = found.json()
    if change == "replace":
        has_come = shown["expression"] == wanted.text
    else:
        has_come = change == "renew" and _seconds(shown["expires"]) >= wanted
    if not has_come:
        timeline.withdraw()
    elif change == "renew":
        timeline.settle(time.time(), _seconds(shown["expires"]))
    else:
        timeline.settle(time.time())
    return True


def _seconds(time_text: str) -> float:
    return datetime.fromisoformat(time_text).timestamp()


# Receiving.


@dataclass
class Reader:
    """What one stream gave."""

    name: str
    notifications: list[Notification] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    is_complete: bool = False
    lag_s: float = 0.0  # of the last notification, since its event was published
    longest_lag_s: float = 0.0

    def take(self, notification: Notification, now: float) -> None:
        """Take a notification."""
        self.notifications.append(notification)
        self.lag_s = now - notification.at / 1e6
        self.longest_lag_s = max(self.longest_lag_s, self.lag_s)

    def miss(self, reason: str) -> None:
        """Take note of a gap, and of how far behind the reader was: one who keeps up must not be told of any."""
        last = self.notifications[-1].id if self.notifications else "the beginning"
        self.gaps.append(f"{reason} (after {last}, {self.lag_s:.1f} s behind, at {time.time():.3f})")


def read(world: World, reader: Reader, last: Callable[[], int | None], seconds_each: float = 0.0, **which: Any) -> None:
    """Follow a stream over all restarts until the last event comes; slowly, if it is told to."""
    key = None if "ticket" in which else world.admin
    with Client(world.service.url, key=key, timeout=60, use_proxies=False) as client:
        for each in client.stream(**which, after="0-0", patience=None, on_gap=reader.miss):
            reader.take(each, time.time())
            if each.event["n"] == last():
                reader.is_complete = True
                return
            if not world.is_over.is_set():
                time.sleep(seconds_each)


class Hooks:
    """A receiver of webhooks that fails now and then, and checks signatures as the reference library does."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._secrets: dict[str, str] = {}
        self.received: Counter[tuple[str, int]] = Counter()
        self.problems: list[str] = []
        hooks = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response(hooks.take(body, dict(self.headers)))
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def know(self, id: str, secret: str) -> None:
        """Know a secret to check signatures with."""
        self._secrets[id] = secret

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        """Take a notification; return the status."""
        if self._chance.random() < 0.05:
            return 500
        envelope = json.loads(body)
        secret = self._secrets.get(envelope["subject"])
        if secret is not None:
            try:
                Webhook(secret).verify(body, headers)
            except Exception as error:
                self.problems.append(f"webhook {envelope['id']}: {error!r}")
        self.received[envelope["subject"], envelope["data"]["n"]] += 1
        return 200

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


# Operating.


def administer(world: World, chance: Random) -> None:
    """Run every command of ours, and SQLite itself, beside the server."""
    tasks = [_keys_come_and_go, _look, _import, _open_with_sqlite, _second_server, _second_store]
    n = 0
    while not world.is_over.is_set():
        tasks[n % len(tasks)](world, n)
        n += 1
        world.done["admin tasks"] += 1
        world.is_over.wait(chance.uniform(0.5, 3.0))


def _run(world: World, *arguments: str) -> str:
    """Run a command that must succeed, unless the disk is full just then."""
    ended = world.service.command(*arguments)
    if ended.returncode != 0 and "full" not in ended.stderr:
        world.complain(f"siftline {' '.join(arguments)}: status {ended.returncode}: {ended.stderr.strip()[-300:]}")
    return ended.stdout.strip() if ended.returncode == 0 else ""


def _keys_come_and_go(world: World, _: int) -> None:
    store = str(world.service.store)
    key = _run(world, "serve", "--store", store, "--new-key", "publish")
    if not key:
        return
    name = key.partition(".")[0]
    if name not in _run(world, "serve", "--store", store, "--list-keys"):
        world.complain(f"{name} was made, and is not listed")
    with world.http(key) as http:
        event = {"absent": 1}
        _expect(world, lambda: http.post("/events", json=event).status_code == 202, f"{name} does not open")
        if _run(world, "serve", "--store", store, "--revoke-key", name) or name not in _run(
            world, "serve", "--store", store, "--list-keys"
        ):
            _expect(world, lambda: http.post("/events", json=event).status_code == 401, f"{name} opens after its end")


def _expect(world: World, condition: Callable[[], bool], complaint: str) -> None:
    """Complain unless something comes true in time; time without a server does not count."""
    seconds = 0.0
    while seconds < _SEEN_SECONDS and not world.is_broken.is_set():
        with contextlib.suppress(httpx.HTTPError):
            if condition():
                return
            seconds += 0.2
        time.sleep(0.2)
    if seconds >= _SEEN_SECONDS:
        world.complain(complaint)


def _look(world: World, _: int) -> None:
    store = str(world.service.store)
    for command in ("list", "export", "verify"):
        _run(world, "store", command, store)


def _import(world: World, n: int) -> None:
    """Import a subscription; it has no ticket and no end."""
    id, kind = f"imported-{n}", n % 6
    rows = world.service.folder.parent / "import.jsonl"
    rows.write_text(json.dumps({"id": id, "expression": f"k = {kind}"}) + "\n")
    subscription = Subscription(id, "", False)
    asked = time.time()
    subscription.conditions.ask(asked, Condition(f"k = {kind}", lambda event: event["k"] == kind))
    subscription.expiries.ask(asked, float("inf"))
    with world.guard:
        world.model.subscriptions[id] = subscription
    _run(world, "store", "import", str(world.service.store), str(rows))
    with world.http(world.admin) as http:
        found = patient(world, lambda: http.get(f"/subscriptions/{id}"))
        if found.status_code != 200:
            return  # the disk was full: it stays unknown
        document = {"k": kind, "v": 0, "n": -1}
        _expect(
            world,
            lambda: id in http.post("/match", json=document).json().get("subscriptions", ()),
            f"{id} was imported, and does not match",
        )
    subscription.conditions.settle(time.time())
    subscription.expiries.settle(time.time())


def _open_with_sqlite(world: World, _: int) -> None:
    """Do to the files what people do with SQLite, in a process of its own."""
    script = (
        "import sqlite3, sys\n"
        "for path in (sys.argv[1], sys.argv[1] + '-notifications'):\n"
        "    connection = sqlite3.connect(path, timeout=30)\n"
        "    connection.execute('SELECT count(*) FROM sqlite_master').fetchone()\n"
        "    connection.execute('BEGIN IMMEDIATE'); connection.rollback()\n"
        "    copy = sqlite3.connect(':memory:'); connection.backup(copy); copy.close()\n"
        "    connection.close()\n"
    )
    command = [sys.executable, "-c", script, str(world.service.store)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if ended.returncode != 0 and "full" not in ended.stderr and "I/O" not in ended.stderr:
        world.complain(f"sqlite3: {ended.stderr.strip()[-300:]}")


def _second_server(world: World, _: int) -> None:
    with world.is_up:
        try:
            ended = world.service.command("serve", "--store", str(world.service.store), "--port", "0", timeout=60)
        except subprocess.TimeoutExpired:
            world.complain("a second server runs on the store")
            return
    if ended.returncode == 0 or "store.db" not in ended.stderr:
        world.complain(f"a second server ended with status {ended.returncode}: {ended.stderr[-200:]}")


def _second_store(world: World, _: int) -> None:
    with world.is_up, contextlib.suppress(StoreLockedError), Store(world.service.store):
        world.complain("a second writer may open the store")


# Attacking.


def attack(world: World, chance: Random) -> None:
    """Kill, stop and pause the server, and fill its disk, until the world is calm."""
    attacks = (_kill, _stop, _pause, _fill) if world.has_small_disk else (_kill, _stop, _pause)
    while not world.is_calm.wait(chance.uniform(4.0, 12.0)):
        with world.is_up:
            chance.choices(attacks, (4, 2, 1, 1)[: len(attacks)])[0](world, chance)


def _kill(world: World, chance: Random) -> None:
    world.service.end(signal.SIGKILL)
    world.done["kills"] += 1
    time.sleep(chance.uniform(0.0, 0.5))
    world.service.start()


def _stop(world: World, chance: Random) -> None:
    world.service.end(signal.SIGTERM)
    world.done["stops"] += 1
    world.service.start()


def _pause(world: World, chance: Random) -> None:
    world.service.pause(chance.uniform(0.5, 4.0))
    world.done["pauses"] += 1


def _fill(world: World, chance: Random) -> None:
    is_killed = chance.random() < 0.4
    with full_disk(world.service.folder):
        time.sleep(chance.uniform(1.0, 5.0))
        if is_killed:
            world.service.end(signal.SIGKILL)
    world.done["full disks"] += 1
    if is_killed:
        world.service.start()
