"""What changes cost: adds and removes, one by one and at once, and matching while others change subscriptions."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.engine import Engine
from siftline_bench.measure import no_collection, time_once
from siftline_bench.readings import Reading
from siftline_bench.workloads import generate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from siftline_bench.readings import Bench

# Changes that are timed together: small enough for several samples, large enough to hold merges now and then.
_N_BLOCKS: Final = 5
# Of the subscriptions, this share is exchanged every second while matching is watched.
_CHANGED_SHARE: Final = 0.01
_N_ROUNDS: Final = 3


def one_by_one(bench: Bench) -> list[Reading]:
    """Time `add` of parsed expressions and `remove`, amortised: merges that they cause are part of the time."""
    engine, n = bench.engine, bench.sizes.n_changes
    expressions = _expressions(_fresh(bench, n))
    first = unused(engine)
    new = list(zip(range(first, first + n), expressions, strict=True))
    adds = _blocks(new, lambda pair: engine.add(pair[1], id=pair[0]), bench.sizes.pass_box_s)
    present = [id for id, _ in new if id in engine]
    removes = _blocks(present, engine.remove, bench.sizes.pass_box_s)
    return [Reading("us an add", adds), Reading("us a remove", removes)]


def _blocks(items: Sequence[Any], work: Callable[[Any], object], box_s: float) -> list[float]:
    """Do all the work, or as much as fits into the box, in blocks; return microseconds an item, by block."""
    size = max(1, len(items) // _N_BLOCKS)
    found: list[float] = []
    end = time.perf_counter() + box_s
    for start in range(0, len(items), size):
        block, n_done = items[start : start + size], 0
        begin = time.perf_counter()
        with no_collection():
            for item in block:
                work(item)
                n_done += 1
                if n_done % 64 == 0 and time.perf_counter() > end:
                    break
        found.append((time.perf_counter() - begin) / n_done * 1e6)
        if time.perf_counter() > end:
            break
    return found


def at_once(bench: Bench) -> list[Reading]:
    """Time `add_many` of a table and `remove_many`."""
    engine, n = bench.engine, bench.sizes.n_changes
    table = _fresh(bench, n)
    adds, removes = [], []
    for _ in range(bench.sizes.n_passes):
        first = unused(engine)
        rows = _renumbered(table, first)
        adds.append(time_once(lambda rows=rows: engine.add_many(rows)).seconds)  # type: ignore[misc]
        gone = range(first, first + n)
        removes.append(time_once(lambda gone=gone: engine.remove_many(gone)).seconds)  # type: ignore[misc]
    return [Reading("s to add_many", adds), Reading("s to remove_many", removes)]


def while_changing(bench: Bench) -> list[Reading]:
    """Time matching while 1 % of the subscriptions are exchanged every second, against just before."""
    engine = bench.engine
    n = max(1, int(len(engine) * _CHANGED_SHARE))
    table = _fresh(bench, n)
    events = [engine.encode(event) for event in bench.events]
    ratios, quiets = [], []
    for _ in range(_N_ROUNDS):
        quiet = _median_us(engine, events, bench.sizes.churn_s)
        with _Changes(engine, table, n):
            changing = _median_us(engine, events, bench.sizes.churn_s)
        ratios.append(changing / quiet)
        quiets.append(quiet)
    return [Reading("us an event before", quiets), Reading("x as slow while 1 %/s change", ratios)]


def _median_us(engine: Engine, events: Sequence[Any], seconds: float) -> float:
    """Match events over and over for some time."""
    clock, match = time.perf_counter_ns, engine.match
    end = clock() + int(seconds * 1e9)
    taken: list[int] = []
    begin = clock()
    with no_collection():
        while begin < end or not taken:
            match(events[len(taken) % len(events)])
            now = clock()
            taken.append(now - begin)
            begin = now
    return float(np.median(taken)) / 1e3


class _Changes:
    """Adds `n` subscriptions every second and removes the `n` oldest, in a thread of its own."""

    def __init__(self, engine: Engine, table: Any, n: int) -> None:
        self._engine, self._table, self._n = engine, table, n
        # Listing a million ids would disturb those who match.
        self._ids = engine.ids()
        self._first = unused(engine)
        self._is_over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        n = self._n
        try:
            while not self._is_over.is_set():
                next_time = time.perf_counter() + 1
                self._engine.add_many(_renumbered(self._table, self._first))
                self._engine.remove_many(self._ids[:n])
                self._ids = self._ids[n:]
                self._first += n
                self._is_over.wait(max(0.0, next_time - time.perf_counter()))
        except Exception as error:  # shown where the thread is joined
            self._error = error


def _fresh(bench: Bench, n: int) -> Any:
    """Return `n` other subscriptions of the same kind, as a table with ids from 0 on."""
    workload = bench.workload
    changes = {**workload.identity["parameters"], "n_subscriptions": n, "n_events": 1}
    return generate(workload.name, seed=workload.seed + 1, **changes).predicates


def _renumbered(table: Any, first: int) -> Any:
    """Return the table with other ids."""
    import pyarrow.compute as pc

    return table.set_column(0, "subscription", pc.add(table["subscription"], first))


def _expressions(table: Any) -> list[Any]:
    engine = Engine(index="scan")
    engine.add_many(table)
    return [engine.expression(id) for id in engine.ids()]


def unused(engine: Engine) -> int:
    """Return a number from which on no id is in use."""
    return max(engine.ids(), default=-1) + 1  # type: ignore[operator]
