"""One workload, one index under examination, and the figures that are read off it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

from siftline_bench.measure import time_once
from siftline_bench.results import circumstances

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from siftline.engine import Engine
    from siftline_bench.results import Row
    from siftline_bench.runner import Choice, Say
    from siftline_bench.workloads import Workload


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything is measured.

    Attributes
    ----------
    n_subscriptions : int, optional
        Fewer than the workload has by itself.
    n_events, n_batch, n_passes : int
        Events that are timed one by one, events of a batch, and passes over both.
    n_changes : int
        Subscriptions that are added and removed, one by one and at once.
    build_box_s, pass_box_s, check_box_s : float
        See `Plan`.
    n_results : int
        A batch has only so many events that it matches about so many subscriptions in all.
    churn_s : float
        How long events are matched while subscriptions change, and before, each time.
    """

    n_subscriptions: int | None = None
    n_events: int = 200
    n_batch: int = 10_000
    n_passes: int = 5
    n_changes: int = 10_000
    build_box_s: float = 300.0
    pass_box_s: float = 5.0
    check_box_s: float = 60.0
    n_results: int = 20_000_000
    churn_s: float = 3.0


@dataclass(frozen=True)
class Reading:
    """A figure, measured several times; the median counts."""

    what: str
    samples: Sequence[float]
    is_rate: bool = False

    @property
    def value(self) -> float:
        """The median."""
        return float(median(self.samples))


@dataclass
class Bench:
    """A workload, and the index under examination over it; what several figures need is made once."""

    workload: Workload
    subject: Choice
    sizes: Sizes
    say: Say = field(default=lambda text: None)

    @cached_property
    def engine(self) -> Engine:
        """The subject with all subscriptions."""
        self.say(f"building {self.subject.label}")
        engine = self.subject.engine()
        engine.add_many(self.workload.predicates)
        return engine

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that are matched one by one."""
        return self.workload.dicts[: self.sizes.n_events]

    def timed(self, work: Callable[[], Any]) -> list[float]:
        """Return the seconds of each pass."""
        return [time_once(work).seconds for _ in range(self.sizes.n_passes)]

    def rows(self, readings: Sequence[Reading]) -> list[Row]:
        """Return a result row for each reading."""
        head = {**self.workload.identity, "n_passes": self.sizes.n_passes}
        head |= {"index": self.subject.index, "options": dict(self.subject.options), "status": "ok"}
        return [
            {
                **head,
                "mode": each.what,
                "unit": "",
                "is_rate": each.is_rate,
                "passes": list(each.samples),
                "median": each.value,
                **circumstances(),
            }
            for each in readings
        ]
