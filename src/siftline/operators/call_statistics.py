"""How often call predicates are true and how long calls take, learned from events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.encoding.growable import Growable
from siftline.kernels.schedules import FALSE, NOT_EVALUATED, TRUE
from siftline.operators.learned import Learned

if TYPE_CHECKING:
    from numpy.typing import NDArray

# All that is known counts as at most this many evaluations, so that estimates follow when events change.
_MEMORY: Final = 50.0
# For a new predicate, what is known of all predicates of its operator counts as this many evaluations.
_PRIOR: Final = 2.0
# The assumed share of true results before anything is known.
_UNKNOWN_SHARE: Final = 0.5
# Probabilities stay this far from 0 and 1, so that every literal may decide its chain.
_SMALLEST: Final = 1e-6
# The least cost of a call, in milliseconds.
_CHEAPEST: Final = 1e-6


class CallStatistics:
    """Counts by node (how often it was true, false, evaluated) and by operator (the same, and the time of a call).

    Writers take turns; reading needs no lock.
    """

    def __init__(self) -> None:
        self._operators: dict[str, int] = {}
        self._node_operators = Growable.empty(np.int32)
        self._counts = [Growable.empty(np.float64) for _ in range(3)]  # true, false, all
        self._pooled = np.zeros((3, 0))
        self._costs = np.zeros(0)  # milliseconds
        self._n_measured = np.zeros(0)

    def add(self, operator: str, cost: float, share: float | None = None) -> None:
        """Add the next node: a predicate of this operator, with its expected cost and share of true results."""
        number = self._operators.setdefault(operator, len(self._operators))
        if number == len(self._costs):
            self._pooled = np.concatenate([self._pooled, np.zeros((3, 1))], axis=1)
            self._costs = np.append(self._costs, cost)
            self._n_measured = np.append(self._n_measured, 0.0)
        self._node_operators.append(number)
        known = (0.0, 0.0, 0.0) if share is None else (share * _MEMORY, (1 - share) * _MEMORY, _MEMORY)
        for counts, value in zip(self._counts, known, strict=True):
            counts.append(value)

    def failing(self, nodes: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the probability to fail of both literals of each node: the node must be true, it must be false."""
        operators = self._node_operators.view[nodes]
        pooled = self._pooled  # read after the line above, so that it has all their operators
        pooled_all = pooled[2] + _PRIOR
        found = np.empty(2 * len(nodes))
        total = self._counts[2].view[nodes] + _PRIOR
        for sign in (0, 1):
            prior = (pooled[sign] + _PRIOR * _UNKNOWN_SHARE) / pooled_all
            holds = (self._counts[sign].view[nodes] + _PRIOR * prior[operators]) / total
            found[sign::2] = 1.0 - holds
        return np.clip(found, _SMALLEST, 1.0 - _SMALLEST)

    def costs(self, nodes: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the expected time of a call of each node."""
        costs: NDArray[np.float64] = self._costs[self._node_operators.view[nodes]]
        return costs

    def learn(self, nodes: NDArray[np.int32], known: NDArray[np.int8]) -> None:
        """Learn from the outcomes of some nodes."""
        is_evaluated = known != NOT_EVALUATED
        nodes, known = nodes[is_evaluated], known[is_evaluated]
        if not len(nodes):
            return
        outcomes = (known == TRUE, known == FALSE, np.ones(len(nodes), dtype=np.bool_))
        operators = self._node_operators.view[nodes]
        scale = np.minimum(1.0, (_MEMORY - 1.0) / np.maximum(self._counts[2].view[nodes], 1.0))
        pooled_scale = np.minimum(1.0, 100 * _MEMORY / np.maximum(self._pooled[2], 1.0))
        for row, (counts, outcome) in enumerate(zip(self._counts, outcomes, strict=True)):
            counts.view[nodes] = counts.view[nodes] * scale + outcome
            new = np.bincount(operators, outcome, minlength=len(self._costs))
            self._pooled[row] = self._pooled[row] * pooled_scale + new

    def measured(self, operator: str, milliseconds: float) -> None:
        """Learn from the time of a call; the declared cost counts as one call."""
        number = self._operators[operator]
        n = min(self._n_measured[number] + 1.0, _MEMORY)
        self._n_measured[number] = n
        self._costs[number] += (max(milliseconds, _CHEAPEST) - self._costs[number]) / (n + 1.0)

    def take_over(self, other: CallStatistics, nodes: list[int]) -> None:
        """Copy the statistics of another; `nodes` has the number there of each node here."""
        for counts, others in zip(self._counts, other._counts, strict=True):
            counts.view[:] = others.view[nodes]
        for name, number in self._operators.items():
            old = other._operators[name]
            self._pooled[:, number] = other._pooled[:, old]
            self._costs[number], self._n_measured[number] = other._costs[old], other._n_measured[old]

    def learned(self, nodes: dict[str, int]) -> Learned:
        """Return what was learned about nodes, by the keys of their predicates."""
        counts = np.stack([counts.view for counts in self._counts])
        predicates = {key: counts[:, node].tolist() for key, node in nodes.items() if counts[2, node]}
        operators = {
            name: [0.0, 0.0, 0.0, float(self._n_measured[i]), float(self._n_measured[i] * self._costs[i] * 1e6)]
            for name, i in self._operators.items()
            if self._n_measured[i]
        }
        return Learned(predicates, operators)

    def take(self, learned: Learned, nodes: dict[str, int]) -> None:
        """Continue from what was learned elsewhere about these nodes and their operators."""
        pooled = np.zeros_like(self._pooled)
        for key, numbers in learned.predicates.items():
            node = nodes.get(key)
            if node is not None:
                scale = min(1.0, _MEMORY / max(numbers[2], 1.0))
                for counts, number in zip(self._counts, numbers, strict=True):
                    counts.set(node, number * scale)
                pooled[:, self._node_operators.view[node]] += numbers
        self._pooled = pooled
        for name, (*_, n, nanoseconds) in learned.operators.items():
            i = self._operators.get(name)
            if i is not None and n:
                self._costs[i] = max(nanoseconds / n / 1e6, _CHEAPEST)
                self._n_measured[i] = min(n, _MEMORY)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the statistics by operator."""
        return {
            name: {
                "share_true": float(self._pooled[0, i] / self._pooled[2, i]) if self._pooled[2, i] else None,
                "milliseconds": float(self._costs[i]),
            }
            for name, i in self._operators.items()
        }
