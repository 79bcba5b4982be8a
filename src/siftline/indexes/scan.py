"""`scan`: every subscription against every event, in pure Python. The oracle.

Idea: the specification (`model/semantics.py`) as an index. It shares no code with the other indexes: no codes, no
kernels. Every other index must return exactly its ids.

Worked example: subscriptions 0: a = 1, 1: a > 0 or b = 2. The event {"a": 1} is tested against both and matches both.

Cost: time O(n) evaluations an event; no memory beyond the expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from siftline.indexes.protocol import Candidates, OneByOne
from siftline.model import has_calls, matches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains
    from siftline.encoding.events import EncodedEvents
    from siftline.indexes.protocol import Batch
    from siftline.model import Expression


class Scan(OneByOne):
    """The oracle: evaluates every expression."""

    name: ClassVar[str] = "scan"

    def __init__(self) -> None:
        self._expressions: dict[int, Expression] = {}
        self._called: dict[int, Expression] = {}  # expressions with operator calls, which the engine evaluates
        self._n_events = 0
        self._n_evaluated = 0

    def build(self, batch: Batch) -> None:
        """Keep the expressions of the batch and no others."""
        self._expressions = {}
        self._called = {}
        self.add(batch, batch.domains)

    def prepare(self, batch: Batch) -> Batch:
        """Return the batch: there is nothing to lay out."""
        return batch

    def add(self, batch: Batch, domains: Domains) -> None:
        """Keep the expressions of the batch, beside those it has."""
        slots = range(batch.first_slot, batch.first_slot + batch.n_slots)
        # A new dict, because another thread may be iterating over the old one.
        new = {slot: batch.expression(slot) for slot in slots}
        called = {slot: expression for slot, expression in new.items() if has_calls(expression)}
        self._called = self._called | called
        self._expressions = self._expressions | {slot: e for slot, e in new.items() if slot not in called}

    def remove(self, slots: NDArray[np.int32]) -> None:
        """Drop the expressions."""
        gone = set(slots.tolist())
        self._expressions = {slot: e for slot, e in self._expressions.items() if slot not in gone}
        self._called = {slot: e for slot, e in self._called.items() if slot not in gone}

    def match(self, events: EncodedEvents, position: int) -> Candidates:
        """Evaluate all expressions."""
        event = events.event(position)
        expressions = self._expressions
        self._n_events += 1
        self._n_evaluated += len(expressions)
        found = [slot for slot, expression in expressions.items() if matches(expression, event)]
        return Candidates(np.array(found, dtype=np.int32), np.array(list(self._called), dtype=np.int32))

    def stats(self) -> dict[str, Any]:
        """Return how many expressions were evaluated."""
        n = self._n_evaluated
        return {
            "bytes": {},
            "events": self._n_events,
            "candidates_examined": n,
            "predicates_evaluated": n,
            "lists_scanned": 0,
        }

    def describe(self) -> str:
        """Return how many expressions there are."""
        return f"scan: {len(self._expressions) + len(self._called):,} expressions, evaluated one by one"

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return nothing: the expressions are stored with the engine."""
        return {}

    def restore(self, arrays: Mapping[str, NDArray[Any]], batch: Batch) -> None:
        """Take the expressions from the engine."""
        self.build(batch)

    def _check(self) -> None:
        assert all(isinstance(slot, int) for slot in self._expressions)
