"""`fast-scan`: every clause against every event, compiled. The baseline that every claim is measured against.

Idea: a fast linear scan. In each clause, the literal that holds for the fewest events comes first, and the first
literals of all clauses are stored in separate arrays. An event streams through these arrays without a branch, and tests
the other literals only of clauses whose first literal holds.

Worked example, with codes for values (price 550 is code 7, brand 'x' is code 40):

    clause            0: brand = 'x' and price < 580        1: price > 600 and year = 2020
    first literal     brand 40..40                          year 90..90
    rest              price 3..8                            price 11..max

    event {price: 550, brand: 'x'}    dense = {price: 7, brand: 40, year: absent}
    first literals: 0 holds, 1 does not.  Rest of 0: price 7 lies in 3..8.  Match: clause 0.

Arrays
------
first_entries : uint32[n_clauses], first_lows : int32[n_clauses], first_widths : uint32[n_clauses]
    The first literal: its attribute + 1, its range. A clause that has only vetoes tests for code 0 of entry 0,
    which every event has.
rest_starts : int64[n_clauses + 1]
    The other literals of clause c are at rest_starts[c] : rest_starts[c + 1] of attributes, lows, highs, kinds, sets.
slots : int32[n_clauses], ascending; is_exact : bool[n_clauses]; is_live : bool[n_slots]

Cost: 12 bytes streamed per clause and event; 17 bytes more per literal; O(n) time whatever the event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from siftline.encoding.clauses import RANGE, VETO
from siftline.encoding.growable import Growable
from siftline.encoding.selectivity import literal_shares
from siftline.indexes.fast_scan.kernels import Scanned, scan_clauses, scanned_describer
from siftline.indexes.protocol import Candidates, OneByOne
from siftline.kernels.literals import order_literals
from siftline.kernels.pointers import empty_handle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains
    from siftline.encoding.events import EncodedEvents
    from siftline.indexes.protocol import Batch

# The entry that every event has, for clauses without a first literal.
_ALWAYS: Final = 0

_DTYPES: Final = {
    "first_entries": np.uint32,
    "first_lows": np.int32,
    "first_widths": np.uint32,
    "rest_starts": np.int64,
    "attributes": np.int32,
    "lows": np.int32,
    "highs": np.int32,
    "kinds": np.uint8,
    "sets": np.int32,
    "set_starts": np.int64,
    "set_lows": np.int32,
    "set_highs": np.int32,
    "slots": np.int32,
    "is_exact": np.bool_,
    "is_live": np.bool_,
}


class _Published(NamedTuple):
    """The columns that the next match reads."""

    n_attributes: int
    scanned: Scanned
    handle: Any  # of `scanned`, for kernels
    slots: NDArray[np.int32]
    is_exact: NDArray[np.bool_]
    is_live: NDArray[np.bool_]


class FastScan(OneByOne):
    """A compiled linear scan."""

    name: ClassVar[str] = "fast-scan"

    def __init__(self) -> None:
        self._counters = {"candidates_examined": 0, "predicates_evaluated": 0, "lists_scanned": 0, "events": 0}
        self._columns: dict[str, Growable] = {}
        self._published: _Published
        self._clear()

    def _clear(self) -> None:
        self._columns = {name: Growable.empty(dtype) for name, dtype in _DTYPES.items()}
        self._columns["rest_starts"].extend([0])
        self._columns["set_starts"].extend([0])
        self._publish(0)

    def _publish(self, n_attributes: int) -> None:
        """Make the current columns visible to the next match, all at once."""
        views = {name: column.view for name, column in self._columns.items()}
        scanned = Scanned(**{name: views[name] for name in Scanned._fields})
        handle = empty_handle(scanned)
        scanned_describer()(scanned, handle)
        self._published = _Published(n_attributes, scanned, handle, views["slots"], views["is_exact"], views["is_live"])

    def __getstate__(self) -> dict[str, Any]:
        # The published arrays are views of the columns; as separate copies they would miss later changes.
        return {**self.__dict__, "_published": self._published.n_attributes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._publish(state["_published"])

    def build(self, batch: Batch) -> None:
        """Replace all clauses by those of the batch."""
        self._clear()
        self.add(batch, batch.domains)

    def prepare(self, batch: Batch) -> Batch:
        """Return the batch: `add` lays it out."""
        return batch

    def add(self, batch: Batch, domains: Domains) -> None:
        """Append the clauses."""
        n_sets = len(self._columns["set_starts"]) - 1
        for name, values in _laid_out(batch).items():
            column = self._columns[name]
            if name.endswith("starts"):
                values = values[1:] + column.view[-1]
            elif name == "sets":
                values = np.where(values >= 0, values + n_sets, -1)
            column.extend(values)
        self._publish(len(domains))

    def remove(self, slots: NDArray[np.int32]) -> None:
        """Clear live flags; the engine rebuilds when too many are cleared."""
        self._columns["is_live"].view[slots] = False

    def match(self, events: EncodedEvents, position: int) -> Candidates:
        """Scan all clauses."""
        start, end = events.starts[position], events.starts[position + 1]
        published = self._published
        sure, possible, n_survivors, n_tested = scan_clauses(
            events.attributes[start:end],
            events.codes[start:end],
            published.n_attributes,
            published.handle,
            published.slots,
            published.is_exact,
            published.is_live,
        )
        self._counters["events"] += 1
        self._counters["lists_scanned"] += 1
        self._counters["candidates_examined"] += n_survivors
        self._counters["predicates_evaluated"] += len(published.scanned.first_lows) + n_tested
        if len(possible):
            possible = np.setdiff1d(possible, sure)
        return Candidates(sure, possible)

    def stats(self) -> dict[str, Any]:
        """Return bytes by array and the work done so far."""
        sizes = {name: int(column.view.nbytes) for name, column in self._columns.items()}
        return {"bytes": sizes, "clauses": len(self._columns["slots"]), **self._counters}

    def describe(self) -> str:
        """Return how many clauses are scanned."""
        clauses, literals = len(self._columns["slots"]), len(self._columns["attributes"])
        return f"fast-scan: {clauses:,} clauses, each with a first literal; {literals:,} other literals"

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays."""
        return {name: column.view for name, column in self._columns.items()}

    def restore(self, arrays: Mapping[str, NDArray[Any]], batch: Batch) -> None:
        """Use the arrays without copying them."""
        self._columns = {name: Growable(arrays[name]) for name in _DTYPES}
        self._publish(len(batch.domains))

    def _check(self) -> None:
        arrays = self.arrays()
        n_clauses = len(arrays["slots"])
        assert len(arrays["first_entries"]) == len(arrays["is_exact"]) == n_clauses
        assert len(arrays["rest_starts"]) == n_clauses + 1
        assert arrays["rest_starts"][-1] == len(arrays["attributes"])
        assert (np.diff(arrays["rest_starts"]) >= 0).all()
        assert (np.diff(arrays["slots"]) >= 0).all()
        assert n_clauses == 0 or arrays["slots"][-1] < len(arrays["is_live"])
        assert (arrays["first_entries"] <= self._published.n_attributes).all()


def _laid_out(batch: Batch) -> dict[str, NDArray[Any]]:
    """Return the arrays for the clauses of a batch, with sets counted from 0."""
    clauses = batch.clauses
    shares = literal_shares(clauses, batch.domains, batch.statistics)
    order = order_literals(clauses.starts, shares, clauses.kinds)
    has_literal = np.diff(clauses.starts) > 0
    leaders = np.full(clauses.n_clauses, -1, dtype=np.int64)
    leaders[has_literal] = order[clauses.starts[:-1][has_literal]]
    # A veto cannot be the first literal. For a set, its hull is the first literal, and the set stays among the rest.
    has_first = has_literal & (clauses.kinds[leaders] < VETO) if len(order) else has_literal
    is_settled = has_first & (clauses.kinds[leaders] == RANGE) if len(order) else has_literal
    first = leaders[has_first]
    rest = np.delete(order, clauses.starts[:-1][is_settled])
    n_clauses = clauses.n_clauses
    first_entries = np.full(n_clauses, _ALWAYS, dtype=np.uint32)
    first_lows = np.zeros(n_clauses, dtype=np.int32)
    first_widths = np.zeros(n_clauses, dtype=np.uint32)
    first_entries[has_first] = clauses.attributes[first] + 1
    first_lows[has_first] = clauses.lows[first]
    first_widths[has_first] = clauses.highs[first] - clauses.lows[first]
    lengths = np.diff(clauses.starts) - is_settled
    return {
        "first_entries": first_entries,
        "first_lows": first_lows,
        "first_widths": first_widths,
        "rest_starts": np.concatenate([[0], np.cumsum(lengths)]),
        "attributes": clauses.attributes[rest],
        "lows": clauses.lows[rest],
        "highs": clauses.highs[rest],
        "kinds": clauses.kinds[rest],
        "sets": clauses.sets[rest],
        "set_starts": clauses.set_starts,
        "set_lows": clauses.set_lows,
        "set_highs": clauses.set_highs,
        "slots": clauses.slots,
        "is_exact": clauses.is_exact,
        "is_live": np.ones(batch.n_slots, dtype=np.bool_),
    }
