"""As `matching`, for `counting` with publication types: every attribute has the domain of the workload's values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from siftline_bench.figures.kinds import matching
from siftline_bench.figures.kinds.matching import prepare
from siftline_bench.workloads import make_parameters
from siftline_bench.workloads.topss import Predicates, domain_sizes

if TYPE_CHECKING:
    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row

__all__ = ["measure", "prepare", "use_once"]


def use_once(ground: Any, run: Run) -> None:
    """Have the kernels compiled."""
    matching.use_once(ground, typed(run))


def measure(ground: Any, run: Run) -> Row:
    """Measure one index; the row has its options as the figure says them."""
    return {**matching.measure(ground, typed(run)), "options": dict(run.choice.options)}


def typed(run: Run) -> Run:
    """Give the tables of `counting` the domains that they need."""
    if run.choice.options.get("predicates") != "table":
        return run
    types = {f"a{i}": {"from": 0, "to": size - 1} for i, size in enumerate(_sizes(run))}
    return replace(run, choice=replace(run.choice, options={**run.choice.options, "types": types}))


def _sizes(run: Run) -> list[int]:
    """Return how many values each attribute has."""
    parameters = make_parameters(run.workload, **run.parameters)
    if isinstance(parameters, Predicates):
        return domain_sizes(parameters)
    return [run.parameters["n_values"]] * int(run.parameters["n_attributes"])
