"""What the server does on one core, measured over loopback from another core by plain sockets.

Events have 10 attributes. Single events are published over several connections that each wait for the answer, so that
is what a service with so many clients sees; batches are JSON Lines. The latency is taken at half of the rates that are
asked for, with requests at fixed times: a late answer does not delay the next request, and counts from when it was due.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.storage.store import Store
from siftline_bench.errors import WrongIdsError
from siftline_bench.targets import Target, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Say = Callable[[str], None]

Row = dict[str, Any]

SINGLES: Final = 1_500
BATCHED: Final = 50_000
_BATCH: Final = 500
_BRANDS: Final = 1_000
_COLORS: Final = 100


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n_subscriptions: int = 100_000
    seconds: float = 5.0
    n_connections: int = 32
    n_streams: int = 1_000
    n_stream_events: int = 2_000


QUICK: Final = Sizes(2_000, 0.5, 4, 20, 50)


def server(sizes: Sizes, seed: int, say: Say) -> list[Row]:
    """Measure a server on a temporary store."""
    rng = random.Random(seed)
    row: Row = {"figure": "server", "workload": "server", "n": sizes.n_subscriptions}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        say(f"storing {sizes.n_subscriptions:,} subscriptions")
        with Store(path) as store, store.batch() as batch:
            for id in range(sizes.n_subscriptions):
                batch.add(_text(rng), f"s{id}")
        say("starting")
        with started(path) as (_, seconds):
            row["first_start_s"] = round(seconds, 2)
        with started(path) as (running, seconds):
            row["start_s"] = round(seconds, 2)
            row |= asyncio.run(_measured(running, sizes, rng, say))
    return [row]


def _text(rng: random.Random) -> str:
    brand, price, color = rng.randrange(_BRANDS), rng.randrange(100_000), rng.randrange(_COLORS)
    return f"brand = 'brand {brand}' and price <= {price} and color in ('none', 'color {color}')"


def _event(rng: random.Random) -> bytes:
    event = {
        "brand": f"brand {rng.randrange(_BRANDS)}",
        "price": rng.randrange(100_000),
        "color": f"color {rng.randrange(_COLORS)}",
    }
    event |= {f"attribute{number}": rng.randrange(1000) for number in range(7)}
    return json.dumps(event).encode()


@contextlib.contextmanager
def started(path: Path) -> Iterator[tuple[Running, float]]:
    """Run the server on the first core and give it, and how long it took to listen."""
    cores = sorted(os.sched_getaffinity(0))
    command = [
        sys.executable,
        "-m",
        "siftline",
        "serve",
        "--store",
        str(path),
        "--port",
        "0",
        "--subscribe-rate",
        "1e9",
    ]
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        os.sched_setaffinity(process.pid, cores[:1])
        assert process.stdout is not None
        url = process.stdout.readline()
        seconds = time.perf_counter() - begin
        os.sched_setaffinity(0, cores[1:] or cores)
        try:
            yield Running(int(url.strip().strip("/").rpartition(":")[2]), process.pid), seconds
        finally:
            os.sched_setaffinity(0, cores)
            process.terminate()
            process.wait()


class Running(NamedTuple):
    """A server that listens."""

    port: int
    process: int

    def processor_seconds(self) -> float:
        """Return how much of its core the server has used; other programs do not count."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Connection:
    """One connection that is kept, and what can be asked over it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> Connection:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request and return status and body of the answer."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head[9:12]), await self._reader.readexactly(length)

    async def open_stream(self, path: str, ticket: str) -> None:
        """Open a stream, whose lines come from now on."""
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ticket}\r\n\r\n"
        self._writer.write(head.encode())
        await self._reader.readuntil(b"retry: 1000")

    async def line(self) -> bytes:
        """Return the next line of a stream."""
        return (await self._reader.readuntil(b"\n")).strip()

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()


def request(path: str, body: bytes, kind: str = "application/json") -> bytes:
    """Return a POST request."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _measured(running: Running, sizes: Sizes, rng: random.Random, say: Say) -> Row:
    port = running.port
    singles = [request("/events", _event(rng)) for _ in range(500)]
    batches = [
        request("/events", b"\n".join(_event(rng) for _ in range(_BATCH)), "application/x-ndjson") for _ in range(20)
    ]
    await _rate(port, batches, 1, 0.2)
    await _rate(port, singles, 1, 0.2)  # kernels are loaded
    say("single events")
    rate, cost = await _costed(running, singles, sizes.n_connections, sizes.seconds)
    row: Row = {"publishes_per_s": round(rate), "publish_processor_us": round(cost * 1e6, 1)}
    say("batches")
    rate, cost = await _costed(running, batches, 4, sizes.seconds)
    row |= {"batched_events_per_s": round(_BATCH * rate), "batched_event_processor_us": round(cost * 1e6 / _BATCH, 2)}
    say("latency at half the load")
    row["single_p99_ms"] = await _p99(port, singles, SINGLES / 2, sizes)
    row["batch_p99_ms"] = await _p99(port, batches, BATCHED / 2 / _BATCH, sizes)
    say(f"{sizes.n_streams:,} streams")
    return row | await _streamed(port, sizes, rng)


async def _costed(running: Running, requests: list[bytes], n_connections: int, seconds: float) -> tuple[float, float]:
    """Return requests a second, and the seconds that the processor works for one."""
    before, begin = running.processor_seconds(), time.perf_counter()
    rate = await _rate(running.port, requests, n_connections, seconds)
    used = running.processor_seconds() - before
    return rate, used / (rate * (time.perf_counter() - begin))


async def _rate(port: int, requests: list[bytes], n_connections: int, seconds: float) -> float:
    """Return requests a second over connections that each wait for their answers."""
    end = time.perf_counter() + seconds

    async def work(first: int) -> int:
        connection = await Connection.to(port)
        done = 0
        while time.perf_counter() < end:
            status, body = await connection.ask(requests[(first + done) % len(requests)])
            if status != 202:
                raise WrongIdsError(f"status {status}: {body[:200]!r}")
            done += 1
        await connection.close()
        return done

    begin = time.perf_counter()
    counts = await asyncio.gather(*(work(7 * number) for number in range(n_connections)))
    return sum(counts) / (time.perf_counter() - begin)


async def _p99(port: int, requests: list[bytes], per_second: float, sizes: Sizes) -> float:
    """Return the 99th percentile of the time from when a request was due to its answer, in milliseconds."""
    idle = [await Connection.to(port) for _ in range(sizes.n_connections)]
    taken: list[float] = []

    async def work(due: float, text: bytes) -> None:
        connection = idle.pop() if idle else await Connection.to(port)
        await connection.ask(text)
        taken.append(time.perf_counter() - due)
        idle.append(connection)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(per_second * sizes.seconds)):
            due = begin + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(work(due, requests[number % len(requests)]))
    for connection in idle:
        await connection.close()
    return round(1e3 * float(np.percentile(taken, 99)), 2)


async def _streamed(port: int, sizes: Sizes, rng: random.Random) -> Row:
    """Let streams listen, publish, and check that every one has got what it should, once."""
    publisher = await Connection.to(port)
    topics = range(sizes.n_streams)
    streams = [await _listening(port, publisher, topic) for topic in topics]
    expected: list[list[int]] = [[] for _ in topics]
    events = []
    for number in range(sizes.n_stream_events):
        topic = rng.randrange(sizes.n_streams)
        expected[topic].append(number)
        events.append(json.dumps({"topic": topic, "number": number}).encode())
    begin = time.perf_counter()
    for first in range(0, len(events), 50):
        await publisher.ask(request("/events", b"\n".join(events[first : first + 50]), "application/x-ndjson"))
    async with asyncio.timeout(60):
        got = await asyncio.gather(*(_numbers(streams[topic], len(expected[topic])) for topic in topics))
    seconds = time.perf_counter() - begin
    for connection in (publisher, *streams):
        await connection.close()
    if got != expected:
        raise WrongIdsError("a stream has got other notifications than it should")
    return {"n_streams": sizes.n_streams, "streamed_per_s": round(len(events) / seconds)}


async def _listening(port: int, publisher: Connection, topic: int) -> Connection:
    body = json.dumps({"expression": f"topic = {topic}"}).encode()
    _, answer = await publisher.ask(request("/subscriptions", body))
    lease = json.loads(answer)
    connection = await Connection.to(port)
    await connection.open_stream(f"/subscriptions/{lease['id']}/stream", lease["ticket"])
    return connection


async def _numbers(stream: Connection, n: int) -> list[int]:
    """Return what this many notifications carry; repeats are left out."""
    found: dict[str, int] = {}
    while len(found) < n:
        line = await stream.line()
        if line.startswith(b"data: "):
            document = json.loads(line[6:])
            found[document["id"]] = document["data"]["number"]
    return list(found.values())


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Compare with what the server must reach."""
    (row,) = rows
    targets = (
        (Target("server", "server", "single publishes/s", at_least=SINGLES), row["publishes_per_s"]),
        (Target("server", "server", "events/s in batches", at_least=BATCHED), row["batched_events_per_s"]),
        (Target("server", "server", "p99 ms, singles at half", at_most=25), row["single_p99_ms"]),
        (Target("server", "server", "p99 ms, batches at half", at_most=25), row["batch_p99_ms"]),
        (Target("server", "server", "s to start", at_most=15), row["start_s"]),
    )
    return [Verdict(target, value) for target, value in targets]


def lines_of(rows: Sequence[Row]) -> list[list[str]]:
    """Return all figures as a table."""
    (row,) = rows
    figures = [name for name in row if name not in ("figure", "workload")]
    return [["server", "measured"], *([name, f"{row[name]:,}"] for name in figures)]
