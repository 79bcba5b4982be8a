"""What an explanation says about calls: whether they were made, what they found, how long it took."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from siftline.language.tokens import quoted
from siftline.operators.calling import CallCounts, EventCalls
from siftline.operators.predicates import predicate_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from siftline.model import Call, Constant, Solution
    from siftline.operators.predicates import CallKey

# Solutions shown of a call.
_MOST_SHOWN: Final = 5


class ExplainedCalls:
    """The calls that explaining one event makes; each is made once, and noted."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self._counts = CallCounts()
        self._calls = EventCalls(tree, self._counts)
        self._times: dict[CallKey, tuple[float, int]] = {}
        self._notes: dict[CallKey, Call] = {}

    def solve(self, call: Call) -> Sequence[Solution] | None:
        """Return the solutions of a call."""
        predicate = predicate_of(call)
        before = self._n_failed(call.name)
        start = time.perf_counter_ns()
        solutions = self._calls.solutions(predicate)
        milliseconds = (time.perf_counter_ns() - start) / 1e6
        self._times.setdefault(predicate.key, (milliseconds, self._n_failed(call.name) - before))
        return solutions

    def note(self, call: Call) -> str:
        """Say what became of a call."""
        solutions = self.solve(call)
        key = predicate_of(call).key
        milliseconds, n_failed = self._times[key]
        first = self._notes.setdefault(key, call)
        cost = f"{milliseconds:.2f} ms" if first is call else "shared"
        if n_failed:
            return f"failed, {cost}"
        if solutions is None:
            return f"the operator cannot tell, {cost}"
        return f"{_listed(solutions)}{cost}"

    def _n_failed(self, name: str) -> int:
        counts = self._counts.by_operator.get(name)
        return 0 if counts is None else counts.failures + counts.timeouts


def _listed(solutions: Sequence[Solution]) -> str:
    if not solutions or not solutions[0]:
        return ""
    shown = "; ".join(", ".join(map(_shown, solution)) for solution in solutions[:_MOST_SHOWN])
    more = f"; ... ({len(solutions)} solutions)" if len(solutions) > _MOST_SHOWN else ""
    return f"finds {shown}{more}, "


def _shown(value: Constant) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value, "'") if isinstance(value, str) else str(value)
