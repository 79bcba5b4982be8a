"""Runs a workload through indexes: the same subscriptions, the same events, one timer, ids checked first.

build     the predicate table, loaded once for all indexes, added to an engine; and the index alone, from clauses
encode    each event apart from matching, so that all indexes start from the same arrays
warm-up   a pass of its own, in which the ids are collected and checked
passes    all indexes in turn; the timer covers the whole call of `match`: reset, match, collect
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.engine import Engine
from siftline.errors import SubscriptionError, TooLargeError, UnknownIndexError
from siftline.indexes.registry import PAGED, make_index, parse_choice
from siftline_bench.checks import Found, check_reference, check_same, find_all
from siftline_bench.loading import add_loaded
from siftline_bench.measure import Passes, Spread, interleaved, time_each, time_once

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline_bench.workloads import Workload

REFERENCE: Final = "fast-scan"
# A first engine of this many predicates compiles the kernels, or loads them, outside of all other times.
_FIRST_ROWS: Final = 64


class Hopeless(Exception):  # noqa: N818  (a finding, not an error)
    """An index would take too long."""


# What an index says to a workload that it cannot take.
REFUSALS: Final = (NotImplementedError, SubscriptionError, TooLargeError, MemoryError, Hopeless)
# Shares of a workload that are built to see how long the whole would take, unless they are too small to tell.
_BUILT_FIRST: Final = (100, 10)
_LEAST_BUILT: Final = 5_000
# However slow an index is, it is timed on this many events.
_LEAST_EVENTS: Final = 3
_MOST_REBUILDS: Final = 5

Say = Callable[[str], None]


@dataclass(frozen=True)
class Choice:
    """An index with its options."""

    index: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Choice:
        """Read `name` or `name:option=value,option=value`, values as JSON.

        >>> Choice.parse("op-index:segments=0")
        Choice(index='op-index', options={'segments': 0})
        """
        return cls(*parse_choice(text))

    @property
    def label(self) -> str:
        """The choice as `parse` reads it."""
        options = ",".join(f"{key}={json.dumps(value)}" for key, value in self.options.items())
        return f"{self.index}:{options}" if options else self.index

    @property
    def takes_patterns(self) -> bool:
        """Whether tables are loaded for it as for an index that decides patterns itself."""
        return make_index(self.index, dict(self.options)).takes_patterns

    def engine(self) -> Engine:
        """Return an empty engine."""
        return Engine(index=self.index, **self.options)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to measure.

    Attributes
    ----------
    n_passes : int
        At least 5, unless it is only to see that something runs.
    n_events : dict
        For slow indexes: only this many events, by name of the index. `scan` does a million subscriptions in seconds.
    as_slots : bool
        Time `match(..., as_slots=True)`.
    is_batch : bool
        Time `match_batch` of all events at once instead of one event at a time.
    most_events : int, optional
        Only this many events of the workload, for all indexes.
    build_box_s : float, optional
        An index whose build, judged by smaller ones, would take longer is hopeless: that is reported, and all.
    rebuild_box_s : float
        The index alone is built anew until this time is over, some times at most.
    least_s : float
        Quick indexes get more passes than `n_passes`, until this time is over.
    pass_box_s : float, optional
        A slow index is timed on as many events only as it matches in this time.
    check_box_s : float, optional
        All indexes get as many events only as `fast-scan` matches in this time, because ids are checked first.
    """

    n_passes: int = 5
    n_events: Mapping[str, int] = field(default_factory=lambda: {"scan": 5})
    as_slots: bool = False
    is_batch: bool = False
    most_events: int | None = None
    build_box_s: float | None = None
    rebuild_box_s: float = 0.0
    least_s: float = 0.0
    pass_box_s: float | None = None
    check_box_s: float | None = None

    @property
    def mode(self) -> str:
        """What is timed, in a word."""
        return "batch" if self.is_batch else "slots" if self.as_slots else "ids"


@dataclass
class Measurement:
    """What was measured of one index, or why not."""

    choice: Choice
    mode: str
    status: str = "ok"  # or "unsupported" or "hopeless", with a reason
    reason: str | None = None
    n_events: int = 0
    first_use_s: float = 0.0
    build_s: float = 0.0
    index_passes: Sequence[float] = (0.0,)
    warm_up_s: float = 0.0
    encode_us: Spread | None = None
    passes: Passes | None = None
    n_matches: int = 0
    stats: dict[str, Any] = field(default_factory=dict)
    ratio: float | None = None
    # What the reference took for the same events by turns, in its fastest pass.
    reference_least_us: float | None = None
    # Of an index that took turns with another one, its subject: that one's median over the same events.
    subject_us: float | None = None
    # Of adds and matches that alternate.
    add_us: Spread | None = None

    @property
    def index_s(self) -> float:
        """The fastest build of the index alone."""
        return min(self.index_passes)

    @property
    def median_us(self) -> float:
        """The median time of an event."""
        return float("nan") if self.passes is None else self.passes.per_event_us().median

    def median_over(self, other: Measurement) -> float:
        """Return the median time of the events on which another index was timed too."""
        passes = self._passes_over(other)
        return self.median_us if passes is None else passes.per_event_us().median

    def least_over(self, other: Measurement) -> float:
        """Return the median time of these events in the fastest pass."""
        passes = self._passes_over(other)
        return self.median_us if passes is None else min(passes.pass_medians_us())

    def _passes_over(self, other: Measurement) -> Passes | None:
        if self.passes is None or other.passes is None or self.mode == "batch":
            return self.passes
        n = min(self.passes.times_ns.shape[1], other.passes.times_ns.shape[1])
        return Passes(self.passes.times_ns[:, :n], self.passes.processor_share)


def refusal(choice: Choice, mode: str, error: Exception) -> Measurement:
    """Return what is reported of an index that does not take a workload."""
    status = "hopeless" if isinstance(error, Hopeless) else "unsupported"
    return Measurement(choice, mode, status, f"{type(error).__name__}: {error}")


class _Candidate:
    """An index that takes part in a run."""

    def __init__(self, choice: Choice, plan: Plan) -> None:
        self.measurement = Measurement(choice, plan.mode)
        self.plan = plan
        self.engine = choice.engine()
        self.dicts: list[dict[str, Any]] = []
        self.events: list[Any] = []
        self.batch: Any = None
        self.found: Found = []

    def build(self, workload: Workload) -> None:
        first = self.measurement.choice.engine()
        self.measurement.first_use_s = time_once(lambda: use_engine_once(first, workload)).seconds
        if self.plan.build_box_s is not None and self.measurement.choice.index != REFERENCE:
            _check_build(self.measurement.choice, workload, self.plan.build_box_s)
        if self.measurement.choice.index in PAGED or workload.is_text:
            self.measurement.build_s = time_once(lambda: self.engine.add_many(workload.predicates)).seconds
            self.measurement.index_passes = self._rebuilt([time_once(self.engine.rebuild).seconds])
            return
        loaded = workload.loaded(takes_patterns=self.measurement.choice.takes_patterns)
        added = time_once(lambda: add_loaded(self.engine, loaded.result))
        self.measurement.build_s = loaded.seconds + added.seconds
        self.measurement.index_passes = self._rebuilt([self.engine.stats()["laid_out_s"]])

    def _rebuilt(self, taken: list[float]) -> list[float]:
        """Return the seconds of building the index alone; of a quick one, of several times."""
        while len(taken) < _MOST_REBUILDS and sum(taken) < self.plan.rebuild_box_s:
            taken.append(time_once(self.engine.rebuild).seconds)
        return taken

    def encode(self, workload: Workload, most: int | None = None) -> None:
        choice = self.measurement.choice
        limits = (self.plan.n_events.get(choice.index), self.plan.most_events, most, workload.n_events)
        self.dicts = workload.dicts[: min(limit for limit in limits if limit is not None)]
        self.measurement.encode_us = Spread.of(time_each(self.engine.encode, self.dicts) / 1e3)
        self.events = [self.engine.encode(tree) for tree in self.dicts]

    def warm_up(self) -> None:
        """Find the ids, within the box if there is one, and keep the events that can be timed."""
        is_reference = self.measurement.choice.index == REFERENCE
        box = self.plan.check_box_s if is_reference else self.plan.pass_box_s
        # The very first event may still compile something, which says nothing about the time of a pass.
        first = time_once(lambda: self.engine.match(self.events[0]))
        timed = time_once(lambda: find_within(self.engine, self.events, box))
        self.measurement.warm_up_s = first.seconds + timed.seconds
        self.found = timed.result
        n_timed = len(self.found)
        if self.plan.pass_box_s is not None:
            n_timed = min(n_timed, max(_LEAST_EVENTS, int(n_timed * self.plan.pass_box_s / timed.seconds)))
        self.events = self.events[:n_timed]
        self.measurement.n_events = n_timed
        self.measurement.n_matches = sum(len(ids) for ids in self.found[:n_timed])
        self.batch = self.engine.encode(self.dicts[:n_timed])

    def check_batch(self) -> None:
        """Raise unless `match_batch` finds what `match` found."""
        table = self.engine.match_batch(self.batch)
        found: list[set[Any]] = [set() for _ in self.events]
        for event, id in zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True):
            found[event].add(id)
        check_same("match_batch", [frozenset(ids) for ids in found], self.found[: len(found)], "match")

    def one_pass(self) -> NDArray[np.int64]:
        """Return the nanoseconds of each event; of a batch, the mean as one number."""
        if self.plan.is_batch:
            seconds = time_once(lambda: self.engine.match_batch(self.batch)).seconds
            return np.array([round(seconds * 1e9 / max(1, len(self.events)))])
        match = self.engine.match
        if self.plan.as_slots:
            return time_each(lambda event: match(event, as_slots=True), self.events)
        return time_each(match, self.events)

    def finish(self, passes: Passes, stats_before: Mapping[str, Any]) -> Measurement:
        """Return the measurement, with the work that the passes cost."""
        stats = self.engine.stats()
        n_matched = len(passes.times_ns) * max(1, len(self.events))
        for key, before in stats_before.items():
            if type(before) is int and stats[key] != before:  # what matching counts, as a mean over the events
                stats[key] = (stats[key] - before) / n_matched
        return replace(self.measurement, passes=passes, stats=stats)


def find_within(engine: Engine, events: Sequence[Any], seconds: float | None) -> Found:
    """Return the ids of the events, of as many as there is time for, and of some at least."""
    if seconds is None:
        return find_all(engine, events)
    end = time.perf_counter() + seconds
    found: Found = []
    for event in events:
        if len(found) >= _LEAST_EVENTS and time.perf_counter() > end:
            break
        found += find_all(engine, [event])
    return found


def _check_build(choice: Choice, workload: Workload, box_s: float) -> None:
    """Build a hundredth and a tenth of the index, and give up if the whole would take too long."""
    for share in _BUILT_FIRST:
        if workload.n_subscriptions // share < _LEAST_BUILT:
            continue
        rows = workload.predicates.slice(0, workload.predicates.num_rows // share)
        engine = choice.engine()
        seconds = time_once(lambda engine=engine, rows=rows: engine.add_many(rows)).seconds  # type: ignore[misc]
        if seconds * share > box_s:
            raise Hopeless(f"1/{share} of the subscriptions took {seconds:.1f} s to add, and {box_s:g} s are for all")


def use_engine_once(engine: Engine, workload: Workload) -> None:
    """Add a few subscriptions and match an event, so that the kernels are compiled."""
    engine.add_many(workload.predicates.slice(0, _FIRST_ROWS))
    engine.match(workload.dicts[0])
    engine.match_batch(workload.dicts[:1])


def run(workload: Workload, choices: Sequence[Choice], plan: Plan, say: Say = lambda text: None) -> list[Measurement]:
    """Measure indexes on a workload; `fast-scan` always takes part, as what the others are compared with.

    Raises
    ------
    WrongIdsError
        If an index finds other ids than `fast-scan`, or that other ids than `scan`.
    """
    candidates, refused = _prepared(workload, with_reference(choices), plan, say)
    say("checking ids")
    _check_all(workload, candidates)
    return [*_measured(candidates, plan, say), *refused]


def run_in_turn(
    workload: Workload, subject: Choice, others: Sequence[Choice], plan: Plan, say: Say = lambda text: None
) -> list[Measurement]:
    """Measure as `run` does, with two indexes in memory and not all: `fast-scan` and the subject of the comparison.

    Each other index takes turns with these two, and is let go. So its `ratio` and `subject_us` belong together with its
    own times, and not with those of the next one.
    """
    standing, refused = _prepared(workload, with_reference([subject]), plan, say)
    say("checking ids")
    _check_all(workload, standing)
    measured = _measured(standing, plan, say)
    for other in with_reference(others)[1:]:
        if other == subject:
            continue
        gc.collect()  # what the last one leaves behind are gigabytes
        rivals, unable = _prepared(workload, [other], plan, say, len(standing[0].found))
        refused += unable
        for rival in rivals:
            _check_found(rival, standing[0])
            *beside, last = _measured([*standing, rival], plan, say)
            last.subject_us = beside[-1].median_over(last)
            measured.append(last)
    return [*measured, *refused]


class Standing:
    """`fast-scan` over a workload, its ids checked: other indexes are measured beside it, one at a time."""

    def __init__(self, workload: Workload, plan: Plan, say: Say = lambda text: None) -> None:
        self.workload = workload
        self._plan, self._say = plan, say
        (self._reference,), _ = _prepared(workload, [Choice(REFERENCE)], plan, say)
        _check_all(workload, [self._reference])

    @property
    def found(self) -> Found:
        """What every index must find, by event; as many events as there was time for."""
        return self._reference.found

    def measure(self, choice: Choice) -> Measurement:
        """Build an index, check its ids, and time it in turn with `fast-scan`; or return why it refused."""
        if choice == Choice(REFERENCE):
            return _measured([self._reference], self._plan, self._say)[0]
        gc.collect()
        rivals, refused = _prepared(self.workload, [choice], self._plan, self._say, len(self.found))
        if refused:
            return refused[0]
        _check_found(rivals[0], self._reference)
        return _measured([self._reference, *rivals], self._plan, self._say)[-1]


def _measured(candidates: Sequence[_Candidate], plan: Plan, say: Say) -> list[Measurement]:
    """Time all candidates in turn; the first one is what the others are compared with."""
    say(f"{plan.n_passes} passes over {len(candidates)} indexes")
    before = [candidate.engine.stats() for candidate in candidates]
    all_passes = interleaved([candidate.one_pass for candidate in candidates], plan.n_passes, plan.least_s)
    measured = [c.finish(passes, stats) for c, passes, stats in zip(candidates, all_passes, before, strict=True)]
    for each in measured:
        each.ratio = float(f"{measured[0].median_over(each) / each.median_over(measured[0]):.4g}")
        each.reference_least_us = measured[0].least_over(each)
    return measured


def with_reference(choices: Sequence[Choice]) -> list[Choice]:
    """Return the choices, each once, the reference first."""
    reference = Choice(REFERENCE)
    return [reference, *(choice for i, choice in enumerate(choices) if choice not in (reference, *choices[:i]))]


def _prepared(
    workload: Workload, choices: Sequence[Choice], plan: Plan, say: Say, most: int | None = None
) -> tuple[list[_Candidate], list[Measurement]]:
    """Build, encode and warm up each index; return those that can, and the refusals of those that cannot.

    All get at most `most` events, or as many as the reference had ids for.
    """
    if workload.n_events == 0:
        raise ValueError("a run needs events")
    candidates: list[_Candidate] = []
    refused = []
    for choice in choices:
        say(f"building {choice.label}")
        try:
            candidate = _Candidate(choice, plan)
            candidate.build(workload)
            candidate.encode(workload, most)
            candidate.warm_up()
        except UnknownIndexError:
            raise  # a wrong name or option is the caller's mistake, not a limit of the index
        except REFUSALS as error:
            if choice.index == REFERENCE:
                raise
            refused.append(refusal(choice, plan.mode, error))
        else:
            most = len(candidate.found) if choice.index == REFERENCE else most
            candidates.append(candidate)
    return candidates, refused


def _check_all(workload: Workload, candidates: Sequence[_Candidate]) -> None:
    reference = candidates[0]
    check_reference(workload, reference.found, REFERENCE)
    for candidate in candidates:
        _check_found(candidate, reference)


def _check_found(candidate: _Candidate, reference: _Candidate) -> None:
    check_same(candidate.measurement.choice.label, candidate.found, reference.found, REFERENCE)
    if candidate.plan.is_batch:
        candidate.check_batch()
