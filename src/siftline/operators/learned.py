"""What schedules have learned, as plain numbers that can be saved, added up, and used by other engines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.schedules import FALSE, NOT_EVALUATED, TRUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from siftline.operators.calling import CallCounts
    from siftline.operators.predicates import CallPredicate

_COUNTED: Final = ("calls", "failures", "timeouts")


class Learned(NamedTuple):
    """Counts by predicate and by operator.

    Attributes
    ----------
    predicates : dict
        By key (`key_of`): how often it was true, false, evaluated.
    operators : dict
        By name: calls, failures, timeouts; evaluations of predicates, and the nanoseconds that they took. The calls of
        an operator that takes many events at once are fewer than its evaluations.
    """

    predicates: dict[str, list[float]]
    operators: dict[str, list[float]]

    def __bool__(self) -> bool:
        return bool(self.predicates or self.operators)

    def shown(self) -> dict[str, dict[str, Any]]:
        """Return what is known by operator, for display."""
        outcomes: dict[str, list[float]] = {}
        for key, counts in self.predicates.items():
            _add(outcomes, json.loads(key)[0], counts)
        found: dict[str, dict[str, Any]] = {}
        for name, (*counted, n, nanoseconds) in sorted(self.operators.items()):
            n_true, _, n_all = outcomes.get(name, (0.0, 0.0, 0.0))
            found[name] = dict(zip(_COUNTED, map(int, counted), strict=True)) | {
                "share_true": n_true / n_all if n_all else None,
                "milliseconds": nanoseconds / n / 1e6 if n else None,
            }
        return found


def summed(parts: Iterable[Learned]) -> Learned:
    """Return the sum of several.

    >>> one = Learned({'["p", [], []]': [1, 0, 1]}, {"p": [1, 0, 0, 1, 500]})
    >>> summed([one, one]).operators
    {'p': [2, 0, 0, 2, 1000]}
    """
    total = Learned({}, {})
    for part in parts:
        for counts, others in zip(total, part, strict=True):
            for name, numbers in others.items():
                _add(counts, name, numbers)
    return total


def _add(counts: dict[str, list[float]], name: str, numbers: Sequence[float]) -> None:
    known = counts.get(name)
    counts[name] = list(numbers) if known is None else [a + b for a, b in zip(known, numbers, strict=True)]


def key_of(predicate: CallPredicate) -> str:
    """Return a text for a predicate that is the same in every process.

    >>> from siftline.operators.predicates import CallKey, CallPredicate
    >>> key_of(CallPredicate(CallKey("near", ((False, "A"), (False, 2.0))), (0, ((True, True),))))
    '["near", ["A", 2], [0, [true]]]'
    """
    constants = [_plain(value) for value in predicate.key.values()]
    pattern = [part if isinstance(part, int) else [_plain(part[0][1])] for part in predicate.pattern]
    return json.dumps([predicate.key.name, constants, pattern])


def _plain(value: Any) -> Any:
    """Return a float that is an integer as int, so that equal numbers have one key."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Recorder:
    """Exact counts of what one stage learns from some events."""

    def __init__(self, n_nodes: int, counts: CallCounts) -> None:
        self._outcomes = np.zeros((3, n_nodes), dtype=np.int64)
        self._times: dict[str, list[float]] = {}
        self._counts = counts
        self._before = counts.to_dict()

    def note(self, nodes: NDArray[np.int32], known: NDArray[np.int8], times: Mapping[str, Sequence[int]]) -> None:
        """Add the outcomes of an event's nodes, and by operator the evaluations and how long they took."""
        for row, is_so in enumerate((known == TRUE, known == FALSE, known != NOT_EVALUATED)):
            self._outcomes[row, nodes[is_so]] += 1
        for name, numbers in times.items():
            _add(self._times, name, numbers)

    def learned(self, predicates: Sequence[CallPredicate]) -> Learned:
        """Return all counts; `predicates` has the predicates of the nodes."""
        found = {
            key_of(predicates[node]): self._outcomes[:, node].tolist()
            for node in np.flatnonzero(self._outcomes[2]).tolist()
        }
        operators: dict[str, list[float]] = {}
        for name, after in self._counts.to_dict().items():
            before = self._before.get(name, {})
            counted = [after[what] - before.get(what, 0) for what in _COUNTED]
            timed = self._times.get(name, [0, 0])
            if any((*counted, *timed)):
                operators[name] = [*counted, *timed]
        return Learned(found, operators)
