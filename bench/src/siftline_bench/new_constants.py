"""What single changes cost whose constants are always new: the longest of them, and who stands still meanwhile."""

from __future__ import annotations

import os
import random
import threading
import time
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from siftline.language.text import parse
from siftline_bench.measure import no_collection
from siftline_bench.readings import Reading
from siftline_bench.updates import unused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from siftline_bench.readings import Bench


# Numbers that are added between two changes, in about the time of one.
_N_ADDED: Final = 400


def with_new_constants(bench: Bench) -> list[Reading]:
    """Time single changes each of which brings a constant that nobody had, and how long another thread stands still.

    Numbers go into one gap of the attribute that most subscriptions speak of: in order, at random, and so that they
    halve what is left of it again and again. Then come strings, prefixes and texts to look for, of an attribute of
    their own, and strings that lie ever closer. Three times tell who is slow: that by the clock, that of the processor
    for this thread, and that by the clock without the waits for a processor, which others keep busy. Between changes
    some plain arithmetic shows what the machine does to everybody. The garbage collector is off, as for all figures.
    """
    engine, attribute, n = bench.engine, _hottest(bench), bench.sizes.n_changes
    adds, replaces, removes = _Times(), _Times(), _Times()
    others: dict[str, _Times] = {}
    with _Watch() as watch:
        for name, constants in _ORDERS.items():
            bench.say(f"new constants: {name}")
            ids = _unused_ids(bench)
            new = [parse(f"{attribute} > {each!r}") for each in islice(constants(), 2 * n)]
            with no_collection():
                adds.take(lambda id, expression: engine.add(expression, id=id), zip(ids, new[:n], strict=True))
                replaces.take(engine.replace, zip(ids, new[n:], strict=True))
                removes.take(engine.remove, zip(ids, strict=True))
        for name, condition in TEXTS.items():
            bench.say(f"new constants: {name}")
            others[name] = _Times()
            ids = _unused_ids(bench)
            new = [parse(condition(i)) for i in range(n)]
            with no_collection():
                others[name].take(lambda id, expression: engine.add(expression, id=id), zip(ids, new, strict=True))
            engine.remove_many(ids)
    engine.settle()
    found = [*adds.readings("add"), *replaces.readings("replace"), *removes.readings("remove")]
    for name, times in others.items():
        found += times.readings(f"add, {name}")
    return [
        *found,
        Reading("ms of arithmetic between adds, longest", [adds.longest_control_ns / 1e6]),
        Reading("ms that another thread stands still", [watch.longest_ns / 1e6]),
    ]


def _unused_ids(bench: Bench) -> range:
    first = unused(bench.engine)
    return range(first, first + bench.sizes.n_changes)


def _rising() -> Iterator[float]:
    return (0.25 + i * 1e-9 for i in count())


def _random() -> Iterator[float]:
    rng = random.Random(0)
    while True:
        yield rng.random()


def _halving() -> Iterator[float]:
    """Halve a gap until no double is left between its ends, and then the next."""
    for step in count(1):
        below, above = 0.5 + step * 1e-6, 0.5 + (step + 1) * 1e-6
        turns = count()
        while below < (middle := (below + above) / 2) < above:
            yield middle
            below, above = (middle, above) if next(turns) % 2 else (below, middle)


_ORDERS: Final = {"rising": _rising, "random": _random, "halving": _halving}


# Conditions on strings, the i-th of many; hashes come in no order.
TEXTS: Final[dict[str, Callable[[int], str]]] = {
    "strings": lambda i: f"new_text = 'name-{_scattered(i)}'",
    "crowded strings": lambda i: f"new_text > 'name-{'m' * (i % 500)}{i}'",
    "prefixes": lambda i: f"new_text starts with 'name-{_scattered(i)}'",
    "contains": lambda i: f"new_text contains '{_scattered(i)}'",
}


def _scattered(i: int) -> str:
    return f"{(i + 1) * 0x9E3779B97F4A7C15 % 2**64:016x}"


class _Times:
    """What each of some changes took: by the clock, of the processor, and waiting for a processor."""

    def __init__(self) -> None:
        self._wall_ns: list[int] = []
        self._thread_ns: list[int] = []
        self._waiting_ns: list[int] = []
        self.longest_control_ns = 0

    def take(self, work: Callable[..., object], items: Iterable[tuple[Any, ...]]) -> None:
        """Do the work for each of the items."""
        with _Waits() as waits:
            for item in items:
                waited, thread, wall = waits.so_far_ns(), time.thread_time_ns(), time.perf_counter_ns()
                work(*item)
                self._wall_ns.append(time.perf_counter_ns() - wall)
                self._thread_ns.append(time.thread_time_ns() - thread)
                self._waiting_ns.append(waits.so_far_ns() - waited)
                begin, total = time.perf_counter_ns(), 0
                for k in range(_N_ADDED):
                    total += k * k
                self.longest_control_ns = max(self.longest_control_ns, time.perf_counter_ns() - begin)

    def readings(self, what: str) -> list[Reading]:
        """Return median, 99th percentile and maximum."""
        wall, thread = np.array(self._wall_ns) / 1e3, np.array(self._thread_ns) / 1e3
        running = np.maximum(thread, wall - np.array(self._waiting_ns) / 1e3)
        name = f"a new constant's {what}"
        return [
            Reading(f"us {name}, median", [float(np.median(wall))]),
            Reading(f"us {name}, median by processor time", [float(np.median(thread))]),
            Reading(f"us {name}, p99", [float(np.percentile(wall, 99))]),
            Reading(f"ms {name}, longest", [float(wall.max()) / 1e3]),
            Reading(f"ms {name}, longest without waits for a processor", [float(running.max()) / 1e3]),
            Reading(f"ms {name}, longest by processor time", [float(thread.max()) / 1e3]),
        ]


class _Waits:
    """How long this thread was ready to run and had no processor, where Linux tells; always 0 elsewhere."""

    def __enter__(self) -> Self:
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file >= 0:
            os.close(self._file)

    def so_far_ns(self) -> int:
        """Return the nanoseconds since the thread was started."""
        return int(os.pread(self._file, 100, 0).split()[1]) if self._file >= 0 else 0


class _Watch:
    """A thread that only looks at the clock every half a millisecond, and notes how long it could not."""

    def __init__(self) -> None:
        self.longest_ns = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        before = time.perf_counter_ns()
        while not self._is_over.is_set():
            time.sleep(0.0005)
            now = time.perf_counter_ns()
            self.longest_ns = max(self.longest_ns, now - before)
            before = now


def _hottest(bench: Bench) -> str:
    """Return the attribute that most subscriptions speak of."""
    counts = bench.workload.predicates["attribute"].value_counts().to_pylist()
    return str(max(counts, key=lambda each: each["counts"])["values"])
