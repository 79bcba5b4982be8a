"""The figures of `sift`, our own index: against every other one, on every workload, with their targets.

Each group of figures is a function of a `Bench`, and can be run alone: `siftline bench sift --only batches`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline_bench import new_constants, updates
from siftline_bench.checks import check_reference, check_same, find_all
from siftline_bench.measure import Timed, time_each, time_once
from siftline_bench.new_constants import TEXTS
from siftline_bench.readings import Bench, Reading, Sizes
from siftline_bench.runner import REFERENCE, Choice, Plan, find_within, run_in_turn
from siftline_bench.targets import Target, Verdict
from siftline_bench.workloads import cached, make_parameters, recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from siftline_bench.runner import Measurement, Say
    from siftline_bench.workloads import Workload

WORKLOADS: Final = (
    "dense",
    "sparse",
    "zipf",
    "ads-eq",
    "ads",
    "keywords",
    "products",
    "all-range",
    "long",
    "dense-short",
    "wide",
    "rules",
    "strings",
)

QUICK: Final = Sizes(
    n_subscriptions=5_000, n_events=20, n_batch=100, n_passes=2, n_changes=100, pass_box_s=0.5, churn_s=0.2
)

_TIMES_FASTER: Final = {"dense": 40, "sparse": 300, "zipf": 80, "ads-eq": 200, "ads": 120, "strings": 30}
_BETTER_IN_BATCHES: Final = ("dense", "all-range", "ads")
ALL: Final = "all workloads"

# What the figures are called.
RATIO, MEDIAN, TAIL, BEST = f"x {REFERENCE}", "us an event", "p99 / median", "x best other index"
AS_DENSE: Final = "x as long as dense"
# `sift` tries both of its ways to match a batch on the first few.
_WARM_UPS: Final = 3
_COPYING, _FLOOR = "x as long as copying the slots", "us to copy the slots"
_BATCH, _FROM_ARROW, _FROM_CODES = "x one by one, in a batch", "events/s from Arrow", "events/s from codes"
_BYTES, _BUILT = "index bytes a predicate", "subscriptions/s built"
_DICT: Final = "us a dict, encoding included"


def targets(index: str) -> list[Target]:
    """Return all targets of an index."""
    found = [Target(name, index, RATIO, at_least=times) for name, times in _TIMES_FASTER.items()]
    for name in WORKLOADS:
        found += [Target(name, index, TAIL, at_most=4), Target(name, index, BEST, at_least=1)]
        found.append(Target(name, index, _BATCH, at_least=2 if name in _BETTER_IN_BATCHES else 1))
        found.append(Target(name, index, _BUILT, at_least=400_000))
        if name != "strings":
            found.append(Target(name, index, _BYTES, at_most=40))
    return [
        *found,
        Target(ALL, index, BEST, at_least=5),
        Target("wide", index, AS_DENSE, at_most=2),
        Target("dense-short", index, _COPYING, at_most=8),
        Target("rules", index, _FROM_ARROW, at_least=500_000),
        Target("rules", index, _FROM_CODES, at_least=1_000_000),
        Target("sparse", index, _DICT, at_most=22),
        Target("dense", index, "us an add", at_most=50),
        Target("dense", index, "us a remove", at_most=20),
        Target("dense", index, "us a new constant's add, median", at_most=50),
        Target("dense", index, "us a new constant's add, median by processor time", at_most=50),
        Target("dense", index, "ms a new constant's add, longest", at_most=20),
        Target("dense", index, "ms a new constant's add, longest without waits for a processor", at_most=20),
        Target("dense", index, "ms a new constant's add, longest by processor time", at_most=20),
        *(Target("dense", index, f"us a new constant's add, {what}, median", at_most=50) for what in TEXTS),
        Target("dense", index, "s to add_many", at_most=0.1),
        Target("dense", index, "s to remove_many", at_most=0.1),
        Target("dense", index, "x as slow while 1 %/s change", at_most=1.1),
    ]


# the groups of figures


def match_figures(measured: Sequence[Measurement], subject: Choice) -> list[Reading]:
    """Read off a run how the subject compares with `fast-scan` and with the best of all others."""
    own = next(each for each in measured if each.choice == subject)
    if own.passes is None or own.ratio is None:
        return []
    times = own.passes.per_event_us()
    rivals = [each.median_us / each.subject_us for each in measured if each.subject_us]
    if subject.index != REFERENCE:
        rivals.append(own.ratio)
    found = [
        Reading(RATIO, [own.ratio], is_rate=True),
        Reading(MEDIAN, own.passes.pass_medians_us()),
        Reading(TAIL, [times.p99 / times.median]),
    ]
    return [*found, Reading(BEST, [min(rivals)], is_rate=True)] if rivals else found


def slots(bench: Bench) -> list[Reading]:
    """Time `match(..., as_slots=True)` against merely copying the same slots out of an array of all slots."""
    engine = bench.engine
    events = [engine.encode(event) for event in bench.events]
    stored = np.arange(len(engine), dtype=np.int32)
    places = [np.sort(engine.match(event, as_slots=True)).astype(np.intp) for event in events]
    out = np.empty(max(map(len, places), default=0), dtype=np.int32)

    def copied(chosen: NDArray[np.intp]) -> object:
        return stored.take(chosen, out=out[: len(chosen)], mode="clip")

    floors, ratios = [], []
    for _ in range(bench.sizes.n_passes):
        matching = float(np.median(time_each(lambda event: engine.match(event, as_slots=True), events)))
        floor = float(np.median(time_each(copied, places)))
        floors.append(floor / 1e3)
        ratios.append(matching / floor)
    return [Reading(_FLOOR, floors), Reading(_COPYING, ratios)]


def batches(bench: Bench) -> list[Reading]:
    """Time a batch of encoded events against the same events one by one; `rules` also from Arrow, and by the core."""
    engine, n = bench.engine, _batch_size(bench)
    bench.say(f"a batch of {n:,} events")
    dicts = bench.workload.dicts[:n]
    singles, batch = [engine.encode(event) for event in dicts], engine.encode(dicts)
    _check_batch(bench, singles)
    for _ in range(_WARM_UPS):
        engine.match_batch(batch)
    ratios = []
    for _ in range(bench.sizes.n_passes):
        one_by_one = time_each(engine.match, singles).sum() / 1e9
        # Tables may be gigabytes: they are let go at once, as whoever writes them somewhere does.
        ratios.append(float(one_by_one / time_once(lambda: engine.match_batch(batch).num_rows).seconds))
    found = [Reading(_BATCH, ratios, is_rate=True)]
    if bench.workload.name == "rules":
        wide = bench.workload.wide().slice(0, n)
        for what, events in ((_FROM_CODES, batch), (_FROM_ARROW, wide)):
            timed = [_on_one_thread(bench, events) for _ in range(1 + bench.sizes.n_passes)]
            found.append(_by_core(what, n, timed[1:]))
    return found


def _on_one_thread(bench: Bench, events: Any) -> Timed:
    """Time a batch on one thread: two of them may have to share a core."""
    return time_once(lambda: bench.engine.match_batch(events, threads=1))


def _by_core(what: str, n: int, timed: Sequence[Timed]) -> Reading:
    """Return events a second and core: by processor time, in which threads add up."""
    return Reading(what, [n / max(each.processor_seconds, 1e-9) for each in timed], is_rate=True)


def _batch_size(bench: Bench) -> int:
    """Return how many events a batch has, so that it neither takes minutes nor fills the memory with results."""
    engine, sizes = bench.engine, bench.sizes
    engine.match(bench.events[0])
    timed = [time_once(lambda event=event: engine.match(event)) for event in bench.events[:10]]  # type: ignore[misc]
    n_matches = sum(len(each.result) for each in timed) / len(timed)
    seconds = sum(each.seconds for each in timed) / len(timed)
    most = min(sizes.n_batch, bench.workload.n_events, sizes.n_results / max(n_matches, 1), sizes.pass_box_s / seconds)
    return max(1, int(most))


def _check_batch(bench: Bench, singles: Sequence[Any]) -> None:
    """Raise unless a batch finds what its events find one by one."""
    first = singles[: bench.sizes.n_events]
    table = bench.engine.match_batch(bench.workload.dicts[: len(first)])
    found: list[set[Any]] = [set() for _ in first]
    for event, id in zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True):
        found[event].add(id)
    check_same("match_batch", [frozenset(ids) for ids in found], find_all(bench.engine, first), "match")


def memory(bench: Bench) -> list[Reading]:
    """Return the size of the index and how fast it is laid out from clauses."""
    engine = bench.engine
    seconds = bench.timed(engine.rebuild)
    stats = engine.stats()
    n_bytes = sum(stats.get("bytes", {}).values()) / max(1, stats["predicates"])
    return [Reading(_BYTES, [n_bytes]), Reading(_BUILT, [len(engine) / each for each in seconds], is_rate=True)]


def dicts(bench: Bench) -> list[Reading]:
    """Time `match` of Python dicts, different ones each time, encoding included."""
    events = bench.workload.dicts[: 5 * bench.sizes.n_events]
    time_each(bench.engine.match, events)
    passes = [time_each(bench.engine.match, events) for _ in range(bench.sizes.n_passes)]
    return [Reading(_DICT, [float(np.median(times)) / 1e3 for times in passes])]


def changes(bench: Bench) -> list[Reading]:
    """Time adds, removes, and matching meanwhile."""
    return [
        *updates.at_once(bench),
        *updates.one_by_one(bench),
        *updates.while_changing(bench),
        *new_constants.with_new_constants(bench),
    ]


@dataclass(frozen=True)
class Group:
    """A function that returns figures, and the workloads that it is for; none: all."""

    measure: Callable[[Bench], list[Reading]]
    workloads: tuple[str, ...] = ()


# `matching` is the run itself. The others in this order: changes leave another index behind.
GROUPS: Final = {
    "slots": Group(slots, ("dense-short",)),
    "batches": Group(batches),
    "dict": Group(dicts, ("sparse",)),
    "memory": Group(memory),
    "updates": Group(changes, ("dense",)),
}
MATCHING: Final = "matching"


# one run over everything


@dataclass
class Result:
    """What was measured on one workload."""

    workload: str
    measured: list[Measurement] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    def value(self, what: str) -> float | None:
        """Return a figure by its name."""
        return next((each.value for each in self.readings if each.what == what), None)


def measure(
    subject: Choice,
    others: Sequence[Choice],
    names: Sequence[str],
    groups: Sequence[str],
    sizes: Sizes,
    seed: int = 0,
    cache: Path | None = None,
    say: Say = lambda text: None,
) -> Iterator[tuple[Bench, Result]]:
    """Measure one workload after the other; groups without figures for a workload are left out.

    Only the results should be kept: a workload with its index takes gigabytes.
    """
    for name in names:
        wanted = [group for key, group in GROUPS.items() if key in groups and name in (group.workloads or names)]
        if not wanted and MATCHING not in groups:
            continue
        say(f"drawing {name}")
        bench, result = Bench(_drawn(name, sizes, seed, cache), subject, sizes, say), Result(name)
        if MATCHING in groups:
            result.measured = run_in_turn(bench.workload, subject, others, _plan(sizes), say)
            result.readings += match_figures(result.measured, subject)
        else:
            check_ids(bench)
        if all(each.status == "ok" for each in result.measured if each.choice == subject):
            for group in wanted:
                say(f"measuring {group.measure.__name__}")
                result.readings += group.measure(bench)
        yield bench, result
        del bench


def check_ids(bench: Bench) -> None:
    """Raise unless the subject finds what `fast-scan` finds; for figures that are measured without the run itself."""
    bench.say("checking ids")
    reference = Choice(REFERENCE).engine()
    reference.add_many(bench.workload.predicates)
    expected = find_within(reference, bench.events, bench.sizes.check_box_s)
    check_reference(bench.workload, expected, REFERENCE)
    found = find_all(bench.engine, bench.events[: len(expected)])
    check_same(bench.subject.label, found, expected, REFERENCE)


def _drawn(name: str, sizes: Sizes, seed: int, cache: Path | None) -> Workload:
    defaults = recipe(name).parameters
    n_subscriptions = min(defaults.n_subscriptions, sizes.n_subscriptions or defaults.n_subscriptions)
    n_events = max(sizes.n_events, sizes.n_batch)
    return cached(name, make_parameters(name, n_subscriptions=n_subscriptions, n_events=n_events), seed, cache)


def _plan(sizes: Sizes) -> Plan:
    return Plan(
        n_passes=sizes.n_passes,
        most_events=sizes.n_events,
        build_box_s=sizes.build_box_s,
        pass_box_s=sizes.pass_box_s,
        check_box_s=sizes.check_box_s,
    )


def verdicts(results: Sequence[Result], subject: Choice) -> list[Verdict]:
    """Compare what was measured with the targets, workload by workload; figures without a target are shown too."""
    wanted = {(target.workload, target.what): target for target in targets(subject.label)}
    found = []
    for result in results:
        name = result.workload
        for reading in result.readings:
            target = wanted.get((name, reading.what), Target(name, subject.label, reading.what))
            found.append(Verdict(target, reading.value))
        if any(each.choice == subject and each.status != "ok" for each in result.measured):
            found += [Verdict(target, None) for target in wanted.values() if target.workload == name]
    return [*found, *_over_all(results, wanted)]


def _over_all(results: Sequence[Result], wanted: dict[tuple[str, str], Target]) -> Iterator[Verdict]:
    """Compare workloads with each other."""
    bests = [best for result in results if (best := result.value(BEST)) is not None]
    if bests:
        target = wanted[ALL, BEST]
        # The mean of a few chosen workloads is no answer to the question about all of them.
        is_all = {result.workload for result in results} >= set(WORKLOADS)
        partial = Target(f"{len(bests)} workloads", target.index, target.what)
        yield Verdict(target if is_all else partial, geometric_mean(bests))
    medians = {result.workload: result.value(MEDIAN) for result in results}
    wide, dense = medians.get("wide"), medians.get("dense")
    if wide and dense:
        yield Verdict(wanted["wide", AS_DENSE], wide / dense)
