"""The run: a server, those who use it, those who attack it, and the comparison with the model at the end.

    python -m soak.run --seconds 1800 --seed 7        (in the folder tests; or `make soak`)

It prints what was done and what is wrong, and ends with status 1 if anything is.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from soak.actors import (
    BrokenError,
    Hooks,
    Reader,
    World,
    administer,
    attack,
    patient,
    publish,
    publish_once,
    read,
    subscribe,
)
from soak.model import Condition, Model, Subscription
from soak.service import Service, small_disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.broker.notifications import Notification

# The server's limits: a log that runs over during the run, so that a slow reader is told of gaps. It holds some
# minutes: a quick reader whom a restart, a pause and a full disk keep away in a row must find everything there.
LOG_EVENTS = 12_000
DISK_MB = 512
# What the server may take; its code and kernels alone take about 300 MB.
MEMORY_BOUND_MB = 900.0
FILES_BOUND_MB = 300.0
WEBHOOK_SECONDS = 180.0


class Outcome(NamedTuple):
    """What a run has found."""

    problems: list[str]
    summary: str


def soak(seconds: float, seed: int, say: Callable[[str], None] = print) -> Outcome:
    """Run for some seconds, and compare."""
    with tempfile.TemporaryDirectory(prefix="siftline-soak-") as folder:
        place = Path(folder) / "disk"
        place.mkdir()
        with small_disk(place, DISK_MB) as has_small_disk:
            if not has_small_disk:
                say("*** no file system may be mounted here: the disk is never full in this run ***")
            service = Service(place, "--private-webhooks", "--log-events", str(LOG_EVENTS), "--subscribe-rate", "10000")
            try:
                return _soak(service, seconds, seed, has_small_disk, say)
            finally:
                service.close()


def _soak(service: Service, seconds: float, seed: int, has_small_disk: bool, say: Callable[[str], None]) -> Outcome:
    chance = Random(seed)
    hooks = Hooks(Random(seed + 1))
    admin, publisher, subscriber = (service.new_key(role) for role in ("admin", "publish", "subscribe:soak"))
    world = World(service, Model(), admin, publisher, subscriber, has_small_disk, hooks)
    service.start()
    last: list[int] = []
    readers = _readers(world, lambda: last[0] if last else None)
    users = [_started(world, actor, Random(chance.random())) for actor in (publish,) * 3 + (subscribe,) * 4]
    users.append(_started(world, administer, Random(chance.random())))
    attacker = _started(world, attack, Random(chance.random()))
    peaks = _watched(world, seconds, say)
    world.is_calm.set()
    attacker.join()
    world.is_over.set()
    for thread in users:
        thread.join()
    if not world.is_broken.is_set():
        last += world.numbers(1)
        with world.http(world.publisher) as http:
            publish_once(world, http, [{"n": last[0], "k": -1, "v": -1}])
        for thread, _ in readers:
            thread.join(120)
        _wait_for_webhooks(world)
    problems = list(world.problems) + hooks.problems + _beyond(peaks)
    if not world.is_broken.is_set():
        problems += _compared(world, [reader for _, reader in readers])
    hooks.close()
    summary = (
        f"seed {seed}, {seconds:g} s: {dict(world.done)}; {service.n_starts} starts, the slowest "
        f"{max(service.start_seconds, default=0.0):.1f} s; at most {peaks['memory']:.0f} MB of memory and "
        f"{peaks['files']:.0f} MB of files; "
        f"gaps {[len(reader.gaps) for _, reader in readers]}, longest lags "
        f"{[round(reader.longest_lag_s, 1) for _, reader in readers]} s; webhooks {sum(hooks.received.values())}"
    )
    return Outcome(problems, summary)


def _started(world: World, actor: Callable[[World, Random], None], chance: Random) -> threading.Thread:
    """Let an actor act in a thread; what it raises is a problem, and ends the run."""

    def act() -> None:
        try:
            actor(world, chance)
        except BrokenError:
            return
        except BaseException as error:
            world.complain(f"{actor.__name__} ended: {error!r}")
            world.is_broken.set()
            world.is_calm.set()

    thread = threading.Thread(target=act, name=actor.__name__, daemon=True)
    thread.start()
    return thread


def _readers(world: World, last: Callable[[], int | None]) -> list[tuple[threading.Thread, Reader]]:
    """Read everybody's notifications, those of one subscription, and everybody's again, slowly."""
    with world.http(world.subscriber) as http:
        asked = time.time()
        answer = patient(world, lambda: http.post("/subscriptions", json={"expression": "n >= 0", "validity": "30d"}))
        assert answer.status_code == 201, answer.text
    made = answer.json()
    everything = Subscription(made["id"], made["ticket"], False)
    everything.conditions.ask(asked, Condition("n >= 0", lambda event: event["n"] >= 0))
    everything.conditions.settle(time.time())
    everything.expiries.ask(asked, float("inf"))
    everything.expiries.settle(time.time())
    world.model.subscriptions[made["id"]] = everything
    one = {"id": made["id"], "ticket": made["ticket"]}
    found = []
    for name, which, seconds_each in (("everybody", {}, 0.0), ("one", one, 0.0), ("slow", {}, 0.02)):
        reader = Reader(name)
        follow = functools.partial(read, world, reader, last, seconds_each, **which)
        found.append((_started(world, lambda *_, follow=follow: follow(), Random(0)), reader))
    return found


def _watched(world: World, seconds: float, say: Callable[[str], None]) -> dict[str, float]:
    """Watch the server until the time is over; return the most that it took."""
    peaks = {"memory": 0.0, "files": 0.0}
    end, next_word = time.monotonic() + seconds, time.monotonic() + 60
    while time.monotonic() < end and not world.is_calm.is_set():
        peaks["memory"] = max(peaks["memory"], world.service.memory_mb())
        peaks["files"] = max(peaks["files"], world.service.disk_mb())
        if time.monotonic() > next_word:
            next_word += 60
            say(f"{end - time.monotonic():.0f} s left: {dict(world.done)}, {peaks}, {len(world.problems)} problems")
        time.sleep(0.5)
    return peaks


def _wait_for_webhooks(world: World) -> None:
    end = time.monotonic() + WEBHOOK_SECONDS
    with world.http(world.admin) as http:
        while http.get("/stats").json()["webhooks_waiting"]:
            if time.monotonic() > end:
                world.complain("webhooks still wait for notifications")
                return
            time.sleep(0.5)


def _compared(world: World, readers: list[Reader]) -> list[str]:
    """Return what is wrong with what came."""
    problems = [f"the reader {reader.name} did not get to the end" for reader in readers if not reader.is_complete]
    everybody, one, slow = readers
    if everybody.gaps or one.gaps:
        problems.append(f"quick readers were told of gaps: {everybody.gaps[:3]} {one.gaps[:3]}")
    notified: dict[int, list[str]] = defaultdict(list)
    for each in everybody.notifications:
        notified[each.event["n"]].append(str(each.subscription))
    problems += world.model.problems(notified)
    problems += _differences(
        one, {each.id: each for each in everybody.notifications}, one.notifications[0].subscription
    )
    if len(slow.notifications) < len(everybody.notifications) and not slow.gaps:
        problems.append("the slow reader missed something, and was not told")
    if not {each.id for each in slow.notifications} <= {each.id for each in everybody.notifications}:
        problems.append("the slow reader got what nobody else did")
    problems += _undelivered(world, notified)
    return problems


def _differences(one: Reader, everybody: dict[str, Notification], id: object) -> list[str]:
    mine = {each.id for each in one.notifications}
    theirs = {each.id for each in everybody.values() if each.subscription == id}
    return [f"the stream of one subscription differs: {sorted(mine ^ theirs)[:5]}"] if mine != theirs else []


def _undelivered(world: World, notified: dict[int, list[str]]) -> list[str]:
    """Return what webhooks lack: each gets what it matched, as long as it lives and is no dead letter."""
    with world.http(world.admin) as http:
        letters = http.get("/dead-letters", params={"limit": 1000}).json()["dead_letters"]
    dead = {(str(each["subscription"]), each["event"]["n"]) for each in letters}
    now = time.time()
    problems = []
    for number, ids in notified.items():
        for id in ids:
            subscription = world.model.subscriptions.get(id)
            if subscription is None or not subscription.has_webhook or number not in world.model.published:
                continue
            if subscription.must_exist(world.model.published[number].end, now):
                is_there = (id, number) in world.hooks.received or (id, number) in dead
                problems += [] if is_there else [f"event {number} was not delivered to the webhook of {id}"]
    for id, number in world.hooks.received:
        if id not in notified.get(number, ()):
            problems.append(f"the webhook of {id} got event {number}, which no stream has")
    return problems


def _beyond(peaks: dict[str, float]) -> list[str]:
    bounds = {"memory": MEMORY_BOUND_MB, "files": FILES_BOUND_MB}
    return [
        f"{name}: {peaks[name]:.0f} MB, at most {most:.0f} are right"
        for name, most in bounds.items()
        if peaks[name] > most
    ]


def main() -> int:
    """Run as a command."""
    parser = argparse.ArgumentParser(
        prog="python -m soak.run", description="Attack a real server, and check what it did."
    )
    parser.add_argument("--seconds", type=float, default=1800.0, help="how long (1800)")
    parser.add_argument("--seed", type=int, default=1, help="what everything random is drawn from (1)")
    arguments = parser.parse_args()
    outcome = soak(arguments.seconds, arguments.seed, functools.partial(print, flush=True))
    for problem in outcome.problems[:50]:
        print(f"WRONG: {problem}")
    print(outcome.summary)
    print(f"{len(outcome.problems)} problems")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
