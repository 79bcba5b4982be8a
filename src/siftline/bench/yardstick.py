"""How fast the machine is just now: the same small work, measured beside every run.

A shared machine is up to twice as fast in one minute as in another. Rows that were measured minutes apart are compared
by what the yardstick took beside each of them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.bench.measure import time_each
from siftline.bench.runner import REFERENCE, Choice
from siftline.bench.workloads import generate

if TYPE_CHECKING:
    from siftline.engine import Engine

# As large as what most runs look at: it feels the caches and the memory that others use, not the processor alone.
_N_SUBSCRIPTIONS: Final = 50_000
_N_EVENTS: Final = 200


def yardstick_us() -> float:
    """Return the microseconds that a scan of always the same subscriptions takes for an event."""
    engine, events = _work()
    return round(float(np.median(time_each(engine.match, events))) / 1e3, 3)


@cache
def _work() -> tuple[Engine, list[Any]]:
    workload = generate("dense", seed=0, n_subscriptions=_N_SUBSCRIPTIONS, n_events=_N_EVENTS)
    engine = Choice(REFERENCE).engine()
    engine.add_many(workload.predicates)
    events = [engine.encode(tree) for tree in workload.dicts]
    engine.match(events[0])  # so that nothing is compiled while the clock runs
    return engine, events
