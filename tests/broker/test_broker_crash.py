"""`kill -9` during many subscribes and publishes: acknowledged ones survive, and are delivered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from siftline.broker.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path

# Threads subscribe, publish what matches, renew and unsubscribe; every acknowledged step goes to a pipe in one write.
STORM = """
import json, os, sys, threading
from siftline.broker.broker import Broker

broker, log = Broker(sys.argv[1]), int(sys.argv[2])

def say(*words):
    os.write(log, json.dumps(words).encode() + b"\\n")

def work(thread):
    n = 0
    while True:
        value = f"{os.getpid()}-{thread}-{n}"
        lease = broker.subscribe(f"a = '{value}'")
        say("subscribed", lease.id, lease.ticket, value)
        broker.publish({"a": value})
        say("published", lease.id)
        if n % 3 == 0:
            say("renewed", lease.id, broker.renew(lease.id, lease.ticket, "9d").isoformat())
        if n % 5 == 0:
            say("ending", lease.id)
            broker.unsubscribe(lease.id, lease.ticket)
            say("unsubscribed", lease.id)
        n += 1

threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def killed(path: Path, n_lines: int) -> list[list[Any]]:
    """Kill a storm after so many acknowledgements, and return all that it had given by then."""
    reading, writing = os.pipe()
    with subprocess.Popen([sys.executable, "-c", STORM, str(path), str(writing)], pass_fds=[writing]) as process:
        os.close(writing)
        with os.fdopen(reading, "rb") as log:
            lines = [log.readline() for _ in range(n_lines)]
            process.send_signal(signal.SIGKILL)
            return [json.loads(line) for line in [*lines, *log]]


def check(path: Path, steps: list[list[Any]]) -> None:
    done: dict[str, set[str]] = {}
    for what, id, *_ in steps:
        done.setdefault(what, set()).add(id)
    ended = done.get("unsubscribed", set())
    with Broker(path) as broker:
        for what, id, *more in steps:
            if id not in broker.engine or what not in ("subscribed", "renewed"):
                continue
            if what == "renewed":
                expires = broker.get(id, None).expires
                assert expires is not None
                assert expires.isoformat() == more[0]
            else:
                ticket, value = more
                assert broker.match({"a": value}) == [id]
                got = [each.payload for each in broker.notifications(id, ticket)]
                assert got == [b'{"a": "%b"}' % value.encode()] or id not in done["published"]
        assert done["subscribed"] - done.get("ending", set()) <= set(broker.engine.ids())
        assert not ended & set(broker.engine.ids())


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    steps: list[list[Any]] = []
    for n_lines in (37, 80):
        steps += killed(path, n_lines)
        check(path, steps)
