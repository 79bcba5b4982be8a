"""The indexes' figures: how many times faster than `fast-scan` each one must be, and how quickly it must build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from siftline_bench.runner import Choice, Plan, run
from siftline_bench.targets import Target, Verdict
from siftline_bench.workloads import cached, make_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from siftline_bench.runner import Measurement, Say
    from siftline_bench.workloads import Workload

WORKLOADS: Final = ("dense", "sparse", "equality")
QUICK: Final = {"n_subscriptions": 20_000, "n_events": 20}
# Subscriptions a second, laid out in bulk from clauses.
_QUICK_TO_BUILD: Final = 300_000


_PREDICATE_SPACES: Final = ("pst-hash", "pst-bloom")
_BUILT: Final = ("op-index", "pst-bloom", "counting")

TARGETS: Final = (
    *(Target("sparse", index, "x fast-scan", 20) for index in ("op-index", "be-tree", *_PREDICATE_SPACES)),
    *(Target("dense", index, "x fast-scan", 4) for index in _PREDICATE_SPACES),
    *(Target("dense", index, f"x {other}", 1) for index in _PREDICATE_SPACES for other in ("op-index", "be-tree")),
    *(Target("equality", index, "x fast-scan", 20) for index in ("propagation", "k-index")),
    *(Target("dense", index, "subscriptions/s built", _QUICK_TO_BUILD) for index in _BUILT),
)


def measure(
    choices: Sequence[Choice], plan: Plan, changes: dict[str, Any], seed: int, cache: Path | None, say: Say
) -> list[tuple[Workload, list[Measurement]]]:
    """Run all choices on all workloads."""
    found = []
    for name in WORKLOADS:
        say(f"drawing {name}")
        workload = cached(name, make_parameters(name, **changes), seed, cache)
        found.append((workload, run(workload, choices, plan, say)))
    return found


def verdicts(runs: Sequence[tuple[Workload, Sequence[Measurement]]]) -> list[Verdict]:
    """Compare what was measured with the targets; targets of indexes that took no part are left out."""
    found = []
    for target in TARGETS:
        for workload, measurements in runs:
            by_index = {m.choice.index: m for m in measurements if not m.choice.options}
            if workload.name == target.workload and target.index in by_index:
                found.append(Verdict(target, _measured(target, by_index, workload.n_subscriptions)))
    return found


def _measured(target: Target, by_index: dict[str, Measurement], n_subscriptions: int) -> float | None:
    measurement = by_index[target.index]
    if measurement.passes is None:
        return None
    if target.what.startswith("x "):
        other = by_index.get(target.what.removeprefix("x "))
        return None if other is None or other.passes is None else other.median_us / measurement.median_us
    return n_subscriptions / measurement.index_s
