"""How evenly shards are loaded under skew, and how many machines that makes: a simulation, without Spark.

Subscriptions and events are drawn as for all other figures, a sample of a billion, and go to shards and visit them by
the very code that the sharded plan runs. What is assumed are the costs below, measured by `--only sharded` and
`--only growth`, and the machines. A shard that has more to do than one machine can is held by several, which share its
events; shards and copies are then packed onto machines, those with the most work first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.routing import no_filters, visits
from siftline.spark.sharding.parsed import Parsed
from siftline.spark.sharding.pivots import NO_PIVOT, Line, Ranks, coded, pivots_of
from siftline_bench.targets import shown
from siftline_bench.workloads import cached, make_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from siftline_bench.results import Row
    from siftline_bench.workloads import Workload

    Say = Callable[[str], None]

WORKLOADS: Final = ("sparse", "products", "zipf", "dense")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done, and with what.

    Attributes
    ----------
    n_subscriptions, events_each_s : float
        A billion, and a million a second.
    per_shard : float
        Subscriptions of a shard, as `compile` makes them.
    visit_us : float
        Processor time of a visit of an event to a shard: reading, routing, moving, matching and writing, divided by the
        visits.
    bytes_each : float
        Of a subscription in a shard.
    cores, memory_gb : float
        Of a machine, as far as they are for workers.
    utilisation : float
        The share of its cores that a machine should be busy with at most.
    """

    n_subscriptions: float = 1e9
    events_each_s: float = 1e6
    per_shard: float = 4e6
    visit_us: float = 12.0
    bytes_each: float = 500.0
    cores: int = 32
    memory_gb: float = 200.0
    utilisation: float = 0.7

    @property
    def n_shards(self) -> int:
        """How many shards all subscriptions make."""
        return max(1, round(self.n_subscriptions / self.per_shard))


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is drawn."""

    n_subscriptions: int = 1_000_000
    n_events: int = 20_000


QUICK: Final = Sizes(n_subscriptions=2_000, n_events=200)


class Load(NamedTuple):
    """What each shard has: subscriptions of the sample, and visits by the events of the sample."""

    subscriptions: NDArray[np.int64]
    visits: NDArray[np.int64]


class Packed(NamedTuple):
    """Machines, the copies of shards on them, and what the busiest machine does against the mean."""

    n_machines: int
    n_copies: int
    busiest: float


def simulate(plan: Plan, sizes: Sizes, seed: int, cache: Path | None, say: Say) -> Iterator[Row]:
    """Return a row for each workload."""
    for name in WORKLOADS:
        say(f"simulating {name}")
        parameters = make_parameters(name, n_subscriptions=sizes.n_subscriptions, n_events=sizes.n_events)
        workload = cached(name, parameters, seed, cache)
        load = load_of(workload, plan.n_shards)
        packed = packed_of(load, workload.n_events, plan)
        per_event = load.visits.sum() / workload.n_events
        yield {
            **workload.identity,
            "figure": "simulation",
            "n_shards": plan.n_shards,
            "largest_of_mean": _of_mean(load.subscriptions),
            "visits": float(per_event),
            "busiest_of_mean": _of_mean(load.visits),
            "cores": per_event * plan.visit_us * plan.events_each_s / 1e6,
            **{f"machines_{key}": value for key, value in packed._asdict().items()},
            "visits_by_shard": np.sort(load.visits)[::-1].tolist(),
        }


def _of_mean(numbers: NDArray[Any]) -> float:
    return float(numbers.max() / max(numbers.mean(), 1e-9))


def load_of(workload: Workload, n_shards: int) -> Load:
    """Send subscriptions to shards and events to those that they must visit."""
    parsed = _parsed(workload)
    names, attributes = coded(workload.values["attribute"])
    # As `profile` would have it: in how many events an attribute occurs.
    counts = dict(zip(names, np.bincount(attributes, minlength=len(names)).tolist(), strict=True))
    ranks = Ranks({name: counts.get(name, 0) for name in coded(parsed.predicates["attribute"])[0]})
    pivots = pivots_of(parsed, ranks)
    found, loads = np.unique(pivots.primary, return_counts=True)
    line = Line(dict(zip(found.tolist(), loads.tolist(), strict=True)), n_shards)
    shards = line.shards(pivots.primary, parsed.subscriptions["id"])
    owners = np.unique(np.stack([pivots.clauses, shards[pivots.owners]]), axis=1)
    return Load(np.bincount(shards, minlength=n_shards), _visits(workload, names, attributes, ranks, owners, n_shards))


def _parsed(workload: Workload) -> Parsed:
    import pyarrow as pa

    ids, counts = np.unique(workload.predicates["subscription"].to_numpy(), return_counts=True)
    return Parsed(pa.table({"id": ids, "n_rows": counts}), workload.predicates)


def _visits(
    workload: Workload,
    names: list[str],
    attributes: NDArray[np.int64],
    ranks: Ranks,
    owners: NDArray[np.int64],
    n_shards: int,
) -> NDArray[np.int64]:
    """Return how many events visit each shard; `owners` has pairs of pivot and shard, by pivot."""
    none = len(ranks.names)  # the rank of attributes that no subscription uses
    ranked = np.array([ranks.ranks.get(name, none) for name in names], dtype=np.int32)[attributes]
    always = np.unique(owners[1][owners[0] == NO_PIVOT]).astype(np.int32)
    owners = owners[:, owners[0] != NO_PIVOT]
    owner_starts = np.searchsorted(owners[0], np.arange(none + 2))
    starts = np.searchsorted(workload.values["event"].to_numpy(), np.arange(workload.n_events + 1))
    codes = np.ones(len(ranked), dtype=np.int32)
    lists = owner_starts.astype(np.int64), owners[1].astype(np.int32)
    filters = no_filters(none + 1, n_shards)
    _, shards = visits(starts.astype(np.int64), ranked, codes, 0, *lists, always, n_shards, filters)
    return np.bincount(shards, minlength=n_shards)


def packed_of(load: Load, n_events: int, plan: Plan) -> Packed:
    """Put shards onto machines, each onto the least busy one that has the memory, adding machines until all fit."""
    cores = load.visits / n_events * plan.events_each_s * plan.visit_us / 1e6
    room = plan.cores * plan.utilisation
    n_bytes = load.subscriptions / load.subscriptions.sum() * plan.n_subscriptions * plan.bytes_each
    copies = np.maximum(1, np.ceil(cores / room)).astype(np.int64)
    needs = np.repeat(cores / copies, copies)
    sizes = np.repeat(n_bytes, copies)
    order = np.argsort(-needs)
    least = max(np.ceil(needs.sum() / room), np.ceil(sizes.sum() / (plan.memory_gb * 1e9)), 1)
    n_machines = int(least)
    while (busy := _packed_onto(n_machines, needs[order], sizes[order], room, plan.memory_gb * 1e9)) is None:
        n_machines += max(1, n_machines // 50)
    return Packed(n_machines, len(needs), _of_mean(busy))


def _packed_onto(
    n_machines: int, needs: NDArray[np.float64], sizes: NDArray[np.float64], room: float, memory: float
) -> NDArray[np.float64] | None:
    """Return how busy each machine is; None if they are too few."""
    busy, full = np.zeros(n_machines), np.zeros(n_machines)
    for need, size in zip(needs.tolist(), sizes.tolist(), strict=True):
        chosen = int(np.argmin(np.where(full + size <= memory, busy, np.inf)))
        busy[chosen] += need
        full[chosen] += size
        if full[chosen] > memory or busy[chosen] > room * (1 + 1e-9):
            return None
    return busy


def table(rows: list[Row]) -> list[list[str]]:
    """Return a line for each workload."""
    heading = ["workload", "shards", "largest / mean", "visits", "busiest / mean", "cores", "copies", "machines"]
    columns = ("largest_of_mean", "visits", "busiest_of_mean", "cores", "machines_n_copies", "machines_n_machines")
    lines = [[row["workload"], shown(row["n_shards"]), *(shown(row[column]) for column in columns)] for row in rows]
    return [[*heading, "busiest machine / mean"]] + [
        [*line, shown(row["machines_busiest"])] for line, row in zip(lines, rows, strict=True)
    ]
