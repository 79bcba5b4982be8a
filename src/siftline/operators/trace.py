"""A trace of the calls of one event: which were made, for how many conditions, and how long they took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.schedules import NOT_EVALUATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from siftline.operators.calling import EventCalls
    from siftline.operators.predicates import CallKey, CallPredicate
    from siftline.operators.problem import Problem


class Traced(NamedTuple):
    """One call of an event."""

    is_made: bool
    n_conditions: int  # how many of the remaining conditions have this call
    milliseconds: float


class Trace:
    """All calls of the conditions that the index left, and the results of those that were made."""

    def __init__(self) -> None:
        self.n_conditions = 0
        self.calls: dict[CallKey, Traced] = {}
        self.results: EventCalls | None = None

    def note(
        self,
        problem: Problem,
        known: NDArray[np.int8],
        predicates: Sequence[CallPredicate],
        results: EventCalls,
    ) -> None:
        """Add the calls of one run of a schedule."""
        self.results = results
        self.n_conditions += len(np.unique(problem.owners))
        conditions: dict[CallKey, set[int]] = {}
        made: set[CallKey] = set()
        for local, node in enumerate(problem.nodes.tolist()):
            key = predicates[node].key
            chains = problem.node_chains[problem.node_starts[local] : problem.node_starts[local + 1]] >> 1
            conditions.setdefault(key, set()).update(problem.owners[chains].tolist())
            if known[local] != NOT_EVALUATED:
                made.add(key)
        for key, owners in conditions.items():
            self.calls[key] = Traced(key in made, len(owners), results.milliseconds(key))

    def to_dict(self) -> dict[str, Any]:
        """Return how many calls were made, shared by several conditions, and skipped, and what they cost."""
        made = [call for call in self.calls.values() if call.is_made]
        return {
            "conditions": self.n_conditions,
            "made": len(made),
            "shared": sum(call.n_conditions > 1 for call in made),
            "skipped": len(self.calls) - len(made),
            "milliseconds": sum(call.milliseconds for call in made),
        }

    def __str__(self) -> str:
        counts = self.to_dict()
        made = f"{counts['made']:,} made in {counts['milliseconds']:.2f} ms"
        return f"{made}, {counts['shared']:,} of them shared, {counts['skipped']:,} skipped"
