"""Timing: passes over events, each event on its own, warm-up apart, and what the numbers come to."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

# Of works that go round until some time is over.
MOST_PASSES: Final = 60


@dataclass(frozen=True)
class Spread:
    """Least, middle, 99th percentile and greatest of many numbers."""

    min: float
    median: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Any) -> Spread:
        """Summarise numbers.

        >>> Spread.of([3.0, 1.0, 2.0])
        Spread(min=1.0, median=2.0, p99=2.98, max=3.0)
        """
        least, middle, high, greatest = np.percentile(np.asarray(values, dtype=np.float64), [0, 50, 99, 100])
        return cls(*(round(float(value), 6) for value in (least, middle, high, greatest)))

    def as_dict(self) -> dict[str, float]:
        """Return the numbers for a result row."""
        return asdict(self)


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python's cyclic garbage collection out of the times, as `timeit` does: its pauses belong to no event."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def time_each(work: Callable[[Any], object], items: Sequence[Any]) -> NDArray[np.int64]:
    """Return the nanoseconds that `work` takes for each item, results thrown away."""
    clock = time.perf_counter_ns
    taken = np.empty(len(items), dtype=np.int64)
    with no_collection():
        for i, item in enumerate(items):
            begin = clock()
            work(item)
            taken[i] = clock() - begin
    return taken


@dataclass(frozen=True)
class Timed:
    """A result and the seconds that it took, on the wall clock and of the processor."""

    result: Any
    seconds: float
    processor_seconds: float


def time_once(work: Callable[[], Any]) -> Timed:
    """Run `work` once."""
    with no_collection():
        begin, processor_begin = time.perf_counter(), time.process_time()
        result = work()
        return Timed(result, time.perf_counter() - begin, time.process_time() - processor_begin)


@dataclass(frozen=True)
class Passes:
    """Times of several passes over the same events.

    `times_ns` has a row for each pass and a column for each event. Two views of it matter: an event's own cost is the
    median over its passes, which leaves out what the machine did meanwhile; a pass's cost is the median over its
    events, and how passes differ is the noise of the run.
    """

    times_ns: NDArray[np.int64]
    processor_share: float

    def per_event_us(self) -> Spread:
        """Return the spread over events of each event's own cost."""
        return Spread.of(np.median(self.times_ns, axis=0) / 1e3)

    def all_us(self) -> Spread:
        """Return the spread over all single measurements, interruptions included."""
        return Spread.of(self.times_ns / 1e3)

    def pass_medians_us(self) -> list[float]:
        """Return the median of each pass, in the order in which they ran."""
        return [round(float(value), 6) for value in np.median(self.times_ns, axis=1) / 1e3]


def interleaved(works: Sequence[Callable[[], NDArray[np.int64]]], n_passes: int, least_s: float = 0.0) -> list[Passes]:
    """Run all works in turn, `n_passes` times round, so that a busy minute of the machine hits all of them.

    Each work returns the nanoseconds of its events. Quick works go round until `least_s` is over, within limits. A
    processor share below 1 says that others had the core.
    """
    rounds: list[list[NDArray[np.int64]]] = [[] for _ in works]
    walls, processors = np.zeros(len(works)), np.zeros(len(works))
    for number in range(max(n_passes, MOST_PASSES)):
        if number >= n_passes and walls.sum() >= least_s:
            break
        for i, work in enumerate(works):
            timed = time_once(work)
            rounds[i].append(timed.result)
            walls[i] += timed.seconds
            processors[i] += timed.processor_seconds
    shares = processors / np.maximum(walls, 1e-9)
    return [Passes(np.stack(times), round(float(share), 3)) for times, share in zip(rounds, shares, strict=True)]
