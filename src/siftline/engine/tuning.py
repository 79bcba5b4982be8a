"""Tuning: laying out the index for a sample of events, and measuring whether that is faster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.encoding.clauses import VETO
from siftline.encoding.events import EncodedEvents
from siftline.encoding.selectivity import literal_shares
from siftline.encoding.sources import source_of
from siftline.encoding.statistics import Statistics

if TYPE_CHECKING:
    from siftline.encoding.clauses import Clauses
    from siftline.encoding.events import Source
    from siftline.engine.updates import Updates
    from siftline.indexes.protocol import Index

# How many events are matched to measure a layout, and how often; the statistics use all events.
_MEASURED: Final = 500
_PASSES: Final = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """What matching one event costs with one layout of the index.

    Attributes
    ----------
    microseconds : float
        Median over the events, encoding not included.
    candidates, predicates : float
        Subscriptions that were examined and predicates that were tested, on average.
    """

    microseconds: float
    candidates: float
    predicates: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """What `Engine.tune` found.

    Attributes
    ----------
    n_events : int
        How many events the statistics are from.
    expected_candidates : float
        How many subscriptions the index should examine for an event, according to the statistics: the sum, over all
        clauses, of the share of events that satisfy its rarest predicate.
    before, after : Cost
        What was measured on a sample of the events, with the old layout and with the new one.
    is_kept : bool
        Whether the new layout is in use: only if it is not slower.
    """

    n_events: int
    expected_candidates: float
    before: Cost
    after: Cost
    is_kept: bool

    def __str__(self) -> str:
        rows = [("", "candidates", "predicates", "microseconds")]
        rows.append(("expected by the statistics", f"{self.expected_candidates:,.1f}", "", ""))
        for name, cost in (("measured before", self.before), ("measured after", self.after)):
            rows.append((name, f"{cost.candidates:,.1f}", f"{cost.predicates:,.1f}", f"{cost.microseconds:,.1f}"))
        lines = [f"{name:<26}  {a:>12}  {b:>12}  {c:>12}" for name, a, b, c in rows]
        ratio = self.before.microseconds / self.after.microseconds
        verdict = f"{ratio:.2f} times as fast: kept" if self.is_kept else f"{ratio:.2f} times as fast: not kept"
        return "\n".join([f"statistics of {self.n_events:,} events, an event on average:", *lines, verdict])


def tune(updates: Updates, events: Any) -> Tuning:
    """Lay out the index by statistics of the events, measure, and keep the faster layout; under `writing`."""
    source: Source = events.source if isinstance(events, EncodedEvents) else source_of(events, event=None, is_one=False)
    if not len(source):
        raise ValueError("tuning needs some events")
    statistics = Statistics.from_events(source.tree(position) for position in range(len(source)))
    updates.sweep_all()
    updates.flush()
    clauses, domains = updates.joined_clauses(), updates.state.domains
    sample = EncodedEvents(source, domains)
    old_index, old_statistics = updates.state.index, updates.state.statistics
    before = _measured(old_index, sample)
    updates.state.statistics = statistics
    try:
        updates.rebuild()
    except BaseException:
        updates.state.statistics = old_statistics
        raise
    after = _measured(updates.state.index, sample)
    is_kept = after.microseconds <= before.microseconds
    if not is_kept:
        updates.state.statistics = old_statistics
        with updates.state.changing():
            updates.state.put(updates.state.table, domains, [clauses], old_index)
    return Tuning(statistics.n_events, _expected(clauses, updates, statistics), before, after, is_kept)


def _measured(index: Index, events: EncodedEvents) -> Cost:
    """Match some of the events, spread over all of them."""
    positions = np.linspace(0, len(events) - 1, min(len(events), _MEASURED)).astype(int).tolist()
    positions = [position for position in positions if position not in events.errors]
    for position in positions[:_PASSES]:  # loads kernels and makes scratch arrays
        index.match(events, position)
    before = index.stats()
    times = np.array([[_time(index, events, position) for position in positions] for _ in range(_PASSES)])
    after = index.stats()
    n = max(1, times.size)
    counts = [(after[name] - before[name]) / n for name in ("candidates_examined", "predicates_evaluated")]
    return Cost(float(np.median(times.min(axis=0))) / 1e3 if times.size else 0.0, *counts)


def _time(index: Index, events: EncodedEvents, position: int) -> int:
    start = time.perf_counter_ns()
    index.match(events, position)
    return time.perf_counter_ns() - start


def _expected(clauses: Clauses, updates: Updates, statistics: Statistics) -> float:
    """Return in how many clauses an event is expected to satisfy the rarest predicate."""
    shares = literal_shares(clauses, updates.state.domains, statistics)
    shares = np.where((clauses.kinds >= VETO) | clauses.is_alternative, 1.0, shares)
    has_literals = np.diff(clauses.starts) > 0
    rarest = np.minimum.reduceat(shares, clauses.starts[:-1][has_literals]) if has_literals.any() else shares[:0]
    return float(rarest.sum() + np.count_nonzero(~has_literals))


def placement(updates: Updates) -> list[str]:
    """Describe what an engine holds besides its index; under `writing`."""
    table, domains, statistics = updates.state.table, updates.state.domains, updates.state.statistics
    clauses = updates.joined_clauses()
    n_paths = len(domains.ids)
    n_patterns = len(domains.patterns) + len(domains.pattern_attributes)
    lines = [
        f"{table.n_live:,} subscriptions, {table.n_duplicates:,} of them with the same expression as another",
        f"{clauses.n_clauses:,} clauses of {len(clauses.attributes):,} predicates"
        f" on {n_paths:,} attributes, {n_patterns:,} patterns",
    ]
    counts = np.bincount(clauses.attributes, minlength=len(domains))
    most = [a for a in np.argsort(-counts, kind="stable")[:5].tolist() if counts[a]]
    if most:
        lines.append("most predicates: " + ", ".join(f"{domains.names[a]} ({counts[a]:,})" for a in most))
    known = f"of {statistics.n_events:,} events" if statistics is not None else "none: `tune` makes them from events"
    lines.append(f"statistics: {known}")
    if updates.state.index.has_write_buffer:
        lines.append(
            f"write buffer: {updates.state.buffer.n_clauses:,} clauses that wait for the index, scanned by every event"
        )
    return lines
