"""Adds and matches that alternate, as where subscriptions and events arrive together.

PS-Tree paper, Fig. 5(b): an index that must put itself in order again before it can match pays for that here, and not
when it is built in one go. Most of the workload is loaded first; the last subscriptions, one for each event of each
pass, are then added one by one, and an event is matched after each.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.engine import Engine
from siftline_bench.checks import check_same
from siftline_bench.measure import Passes, Spread, no_collection
from siftline_bench.runner import REFERENCE, REFUSALS, Choice, Measurement, refusal, with_reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from siftline_bench.checks import Found
    from siftline_bench.runner import Plan, Say
    from siftline_bench.workloads import Workload

MODE = "interleaved"


def run_interleaved(
    workload: Workload, choices: Sequence[Choice], plan: Plan, say: Say = lambda text: None
) -> list[Measurement]:
    """Time adds and matches in alternation; every match is compared with that of `fast-scan`."""
    alternation = Alternation(workload, plan.n_passes)
    measured, refused = [alternation.reference], list[Measurement]()
    for choice in with_reference(choices)[1:]:
        say(f"alternating with {choice.label}")
        each = alternation.measure(choice)
        (refused if each.passes is None else measured).append(each)
    return [*measured, *refused]


class Alternation:
    """A workload whose last subscriptions come one by one, and what `fast-scan` finds after each."""

    def __init__(self, workload: Workload, n_passes: int) -> None:
        n_late = n_passes * workload.n_events
        if not 0 < n_late < workload.n_subscriptions:
            raise ValueError(f"{n_late:,} of {workload.n_subscriptions:,} subscriptions cannot be added one by one")
        self.workload, self._n_passes = workload, n_passes
        self._late = _expressions(workload, workload.n_subscriptions - n_late)
        self.reference, self._expected = _alternate(workload, Choice(REFERENCE), n_passes, self._late)
        self.reference.ratio = 1.0

    def measure(self, choice: Choice) -> Measurement:
        """Alternate with one index, and compare what it finds; or return why it refused."""
        if choice == Choice(REFERENCE):
            return self.reference
        try:
            measurement, found = _alternate(self.workload, choice, self._n_passes, self._late)
        except REFUSALS as error:
            return refusal(choice, MODE, error)
        check_same(choice.label, found, self._expected, REFERENCE)
        measurement.ratio = float(f"{self.reference.median_us / measurement.median_us:.4g}")
        return measurement


def _expressions(workload: Workload, first: int) -> list[tuple[int, Any]]:
    """Return the subscriptions from `first` on as ids and expressions."""
    engine = Engine(index="scan")
    engine.add_many(_rows(workload, first, workload.n_subscriptions))
    return [(id, engine.expression(id)) for id in range(first, workload.n_subscriptions)]


def _rows(workload: Workload, start: int, stop: int) -> Any:
    """Return the predicates of some subscriptions; ids ascend in every workload."""
    ids = workload.predicates["subscription"].to_numpy()
    begin, end = np.searchsorted(ids, [start, stop])
    return workload.predicates.slice(begin, end - begin)


def _alternate(
    workload: Workload, choice: Choice, n_passes: int, late: Sequence[tuple[int, Any]]
) -> tuple[Measurement, Found]:
    engine = choice.engine()
    begin = time.perf_counter()
    engine.add_many(_rows(workload, 0, late[0][0]))
    build_s = time.perf_counter() - begin
    adds, matches = np.empty((2, n_passes, workload.n_events), dtype=np.int64)
    found: Found = []
    wall, processor = time.perf_counter(), time.process_time()
    with no_collection():
        for i, (id, expression) in enumerate(late):
            place = divmod(i, workload.n_events)
            adds[place], matches[place], ids = _step(engine, id, expression, workload.dicts[place[1]])
            found.append(frozenset(ids))
    share = (time.process_time() - processor) / max(time.perf_counter() - wall, 1e-9)
    return _measurement(choice, engine, Passes(matches, round(share, 3)), adds, found, build_s), found


def _step(engine: Engine, id: int, expression: Any, event: Any) -> tuple[int, int, list[Any]]:
    """Add, then match; return the nanoseconds of both. Encoding is not part of either, as everywhere."""
    clock = time.perf_counter_ns
    begin = clock()
    engine.add(expression, id=id)
    added = clock() - begin
    encoded = engine.encode(event)
    begin = clock()
    ids = engine.match(encoded)
    return added, clock() - begin, ids


def _measurement(
    choice: Choice, engine: Engine, passes: Passes, adds: NDArray[np.int64], found: Found, build_s: float
) -> Measurement:
    return Measurement(
        choice,
        MODE,
        n_events=adds.shape[1],
        n_matches=sum(len(ids) for ids in found) // len(adds),
        build_s=build_s,
        encode_us=Spread.of([0.0]),
        passes=passes,
        add_us=Spread.of(adds / 1e3),
        stats=engine.stats(),
    )
