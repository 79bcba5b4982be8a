"""How an explanation describes calls: whether matching made them, what they find, how long they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from siftline.language.tokens import quoted
from siftline.operators.calling import CallCounts, EventCalls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from siftline.model import Call, Constant, Solution
    from siftline.operators.predicates import CallKey
    from siftline.operators.trace import Trace

# How many solutions of a call are shown.
_MOST_SHOWN: Final = 5


class ExplainedCalls:
    """The calls of a condition. Those that matching has made are not made again; the others are, each once."""

    def __init__(self, tree: Mapping[str, Any], trace: Trace | None = None) -> None:
        self._trace = trace
        made = None if trace is None else trace.results
        self._calls = EventCalls(tree, CallCounts()) if made is None else made
        self._notes: dict[CallKey, Call] = {}

    def solve(self, call: Call) -> Sequence[Solution] | None:
        """Return the solutions of a call."""
        return self._calls.solve(call)

    def note(self, call: Call) -> str:
        """Return the outcome of a call, in words."""
        predicate = self._calls.predicate(call)
        if predicate is None:
            return "failed: no operator takes this call any more"
        solutions, key = self._calls.solutions(predicate), predicate.key
        cost = self._cost(key, self._notes.setdefault(key, call) is call)
        failure = self._calls.failure(key)
        if failure is not None:
            return f"{failure.value}, {cost}"
        if solutions is None:
            return f"the operator cannot tell, {cost}"
        return f"{_listed(solutions)}{cost}"

    def _cost(self, key: CallKey, is_first: bool) -> str:
        """Return how long a call took, how many conditions share it, and whether matching skipped it."""
        if not is_first:
            return "shared"
        parts = [f"{self._calls.milliseconds(key):.2f} ms"]
        if self._trace is not None:
            traced = self._trace.calls.get(key)
            if traced is None or not traced.is_made:
                parts.append("skipped when matching")
            elif traced.n_conditions > 1:
                parts.append(f"shared by {traced.n_conditions:,} conditions")
        return ", ".join(parts)


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
