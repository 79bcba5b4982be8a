"""Runs a workload through indexes: the same subscriptions, the same events, one timer, ids checked first.

build     Engine.add_many of the predicate table; and the index alone, from clauses that are encoded
encode    each event apart from matching, so that all indexes start from the same arrays
warm-up   a pass of its own, in which the ids are collected and checked
passes    all indexes in turn; the timer covers the whole call of `match`: reset, match, collect
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.bench.checks import Found, check_reference, check_same, find_all
from siftline.bench.measure import Passes, Spread, interleaved, time_each, time_once
from siftline.engine import Engine
from siftline.errors import SubscriptionError, TooLargeError, UnknownIndexError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.bench.workloads import Workload

REFERENCE: Final = "fast-scan"
# A first engine of this many predicates compiles the kernels, or loads them, outside of all other times.
_FIRST_ROWS: Final = 64
# What an index says to a workload that it cannot take.
_REFUSALS: Final = (NotImplementedError, SubscriptionError, TooLargeError)

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
        index, _, rest = text.partition(":")
        pairs = [part.partition("=") for part in rest.split(",") if part]
        return cls(index, {key: _json_or_text(value) for key, _, value in pairs})

    @property
    def label(self) -> str:
        """The choice as `parse` reads it."""
        options = ",".join(f"{key}={json.dumps(value)}" for key, value in self.options.items())
        return f"{self.index}:{options}" if options else self.index

    def engine(self) -> Engine:
        """Return an empty engine."""
        return Engine(index=self.index, **self.options)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to measure.

    Attributes
    ----------
    n_passes : int
        At least 5, unless it is only to see that something runs.
    n_events : dict
        For slow indexes: only so many events, by name of the index. `scan` does a million subscriptions in seconds.
    as_slots : bool
        Time `match(..., as_slots=True)`.
    is_batch : bool
        Time `match_batch` of all events at once instead of one event at a time.
    """

    n_passes: int = 5
    n_events: Mapping[str, int] = field(default_factory=lambda: {"scan": 5})
    as_slots: bool = False
    is_batch: bool = False

    @property
    def mode(self) -> str:
        """What is timed, in a word."""
        return "batch" if self.is_batch else "slots" if self.as_slots else "ids"


@dataclass
class Measurement:
    """What was measured of one index, or why not."""

    choice: Choice
    mode: str
    reason: str | None = None
    n_events: int = 0
    first_use_s: float = 0.0
    build_s: float = 0.0
    index_s: float = 0.0
    warm_up_s: float = 0.0
    encode_us: Spread | None = None
    passes: Passes | None = None
    n_matches: int = 0
    stats: dict[str, Any] = field(default_factory=dict)
    ratio: float | None = None

    @property
    def median_us(self) -> float:
        """The median time of an event."""
        return float("nan") if self.passes is None else self.passes.per_event_us().median


class _Candidate:
    """An index that takes part in a run."""

    def __init__(self, choice: Choice, plan: Plan) -> None:
        self.measurement = Measurement(choice, plan.mode)
        self.plan = plan
        self.engine = choice.engine()
        self.events: list[Any] = []
        self.batch: Any = None
        self.found: Found = []

    def build(self, workload: Workload) -> None:
        first = self.measurement.choice.engine()
        self.measurement.first_use_s = time_once(lambda: _use_once(first, workload)).seconds
        self.measurement.build_s = time_once(lambda: self.engine.add_many(workload.predicates)).seconds
        self.measurement.index_s = time_once(self.engine.rebuild).seconds

    def encode(self, workload: Workload) -> None:
        choice = self.measurement.choice
        dicts = workload.dicts[: self.plan.n_events.get(choice.index, workload.n_events)]
        self.measurement.n_events = len(dicts)
        self.measurement.encode_us = Spread.of(time_each(self.engine.encode, dicts) / 1e3)
        self.events = [self.engine.encode(tree) for tree in dicts]
        self.batch = self.engine.encode(dicts)

    def warm_up(self) -> None:
        timed = time_once(lambda: find_all(self.engine, self.events))
        self.measurement.warm_up_s = timed.seconds
        self.found = timed.result
        self.measurement.n_matches = sum(len(ids) for ids in self.found)

    def check_batch(self) -> None:
        """Raise unless `match_batch` finds what `match` found."""
        table = self.engine.match_batch(self.batch)
        found: list[set[Any]] = [set() for _ in self.events]
        for event, id in zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True):
            found[event].add(id)
        check_same("match_batch", [frozenset(ids) for ids in found], self.found, "match")

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
        self.measurement.passes = passes
        stats = self.engine.stats()
        n_matched = self.plan.n_passes * max(1, len(self.events))
        for key in ("candidates_examined", "predicates_evaluated", "lists_scanned"):
            if key in stats:
                stats[key] = (stats[key] - stats_before.get(key, 0)) / n_matched
        self.measurement.stats = stats
        return self.measurement


def _use_once(engine: Engine, workload: Workload) -> None:
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
    if workload.n_events == 0:
        raise ValueError("a run needs events")
    candidates, refused = _prepared(workload, _with_reference(choices), plan, say)
    say("checking ids")
    _check_all(workload, candidates)
    say(f"{plan.n_passes} passes over {len(candidates)} indexes")
    before = [candidate.engine.stats() for candidate in candidates]
    all_passes = interleaved([candidate.one_pass for candidate in candidates], plan.n_passes)
    measured = [c.finish(passes, stats) for c, passes, stats in zip(candidates, all_passes, before, strict=True)]
    reference = measured[0].median_us
    for measurement in measured:
        measurement.ratio = float(f"{reference / measurement.median_us:.4g}")
    return [*measured, *refused]


def _with_reference(choices: Sequence[Choice]) -> list[Choice]:
    """Return the choices, each once, the reference first."""
    reference = Choice(REFERENCE)
    return [reference, *(choice for i, choice in enumerate(choices) if choice not in (reference, *choices[:i]))]


def _prepared(
    workload: Workload, choices: Sequence[Choice], plan: Plan, say: Say
) -> tuple[list[_Candidate], list[Measurement]]:
    """Build, encode and warm up each index; return those that can, and the refusals of those that cannot."""
    candidates, refused = [], []
    for choice in choices:
        say(f"building {choice.label}")
        try:
            candidate = _Candidate(choice, plan)
            candidate.build(workload)
            candidate.encode(workload)
            candidate.warm_up()
        except UnknownIndexError:
            raise  # a wrong name or option is the caller's mistake, not a limit of the index
        except _REFUSALS as error:
            if choice.index == REFERENCE:
                raise
            refused.append(Measurement(choice, plan.mode, reason=f"{type(error).__name__}: {error}"))
        else:
            candidates.append(candidate)
    return candidates, refused


def _check_all(workload: Workload, candidates: Sequence[_Candidate]) -> None:
    reference = candidates[0]
    check_reference(workload, reference.found, REFERENCE)
    for candidate in candidates:
        check_same(candidate.measurement.choice.label, candidate.found, reference.found, REFERENCE)
        if candidate.plan.is_batch:
            candidate.check_batch()
