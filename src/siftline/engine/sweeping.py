"""Sweeping: freeing the memory of removed subscriptions, while other threads add, remove and match.

A table, domains and an index of the live subscriptions are made beside those in use, as a separate engine: the
*successor*. It then catches up with the changes since, in rounds, until few are left:

    begin    freeze the table, and record from now on which ids are removed
    build    make the successor, without removed subscriptions, their constants and attributes
    follow   repeat the removals and additions since then in the successor
    finish   repeat the last few; then replace the old parts by those of the successor

Only the first and the last step hold the writers' lock, each for some milliseconds. If conditions have calls, the lock
is held throughout; otherwise what the engine learns about calls meanwhile would be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from siftline.encoding.clauses import checked_slots, concatenate, picked, select, swept
from siftline.encoding.patterns import matcher_of
from siftline.indexes.protocol import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.engine.compaction import Run
    from siftline.engine.updates import Updates
    from siftline.ids import Id

# The last round, under the lock, has at most this many changes.
_LAST_ROUND_MAX: Final = 32
# After this many rounds the next one is the last, however large; writers wait for it.
_ROUNDS_MAX: Final = 50


def sweep(updates: Updates, run: Run) -> None:
    """Free the memory of removed subscriptions; a caller that holds the writers' lock keeps it throughout.

    `run` runs the slow steps.
    """
    with updates.state.writing:
        sweeping = Sweep(updates)
        if updates.state.table.stage is not None:
            sweeping.build()
            sweeping.follow()
            return
    try:
        run(sweeping.build)
        while not sweeping.is_over:
            sweeping.follow()
    finally:
        with updates.state.writing:
            sweeping.end()


class Sweep:
    """One sweep of an engine; it is dropped if another change replaces the table meanwhile."""

    def __init__(self, updates: Updates) -> None:
        self.is_over = False
        self._updates = updates
        self._table, self._frozen = updates.state.table, updates.state.table.frozen()
        self._statistics, self._options = updates.state.statistics, updates.state.options
        self._clauses = [*updates.state.clauses, updates.state.buffer.clauses()]
        self._domains = updates.state.domains.copied()
        self._unplaced, self._entries = (
            np.array(sorted(updates.state.unplaced), dtype=np.int32),
            updates.state.entries.copy(),
        )
        self._n_done, self._n_removed, self._n_rounds = self._table.n_slots, 0, 0
        self._removed: list[Id] = []
        self._table.removed = self._removed
        self._successor = updates.without_subscriptions()

    def build(self) -> None:
        """Fill the successor with the subscriptions that were live when the sweep began."""
        updates, successor = self._updates, self._successor
        table, new_slots = self._frozen.compacted()
        joined = concatenate(self._clauses)
        if self._clauses[-1].n_clauses:  # unplaced subscriptions stay in the buffer, so slots are not in order
            joined = picked(joined, np.argsort(joined.slots, kind="stable"))
        clauses = select(joined, new_slots)
        domains, clauses = swept(self._domains, clauses, map(table.expression, checked_slots(clauses)))
        unplaced = new_slots[self._unplaced]
        unplaced = unplaced[unplaced >= 0].tolist()
        updates.name_all(domains, [table.expression(slot) for slot in unplaced if table.is_entry(slot)])
        batch = Batch(0, table.n_slots, clauses, domains, table.expression, self._statistics)
        index = updates.laid_out(batch, is_new=False)
        matcher_of(domains)
        table.enter_ids()
        successor.state.put(table, domains, [clauses], index)
        successor.state.unplaced = set(unplaced)
        successor.state.entries = {
            key: int(new_slots[slot]) for key, slot in self._entries.items() if new_slots[slot] >= 0
        }

    def follow(self) -> None:
        """Repeat the changes since the last round; if there are few, then also replace the old parts."""
        self._n_rounds += 1
        with self._updates.state.writing:
            if self._is_overtaken():
                return
            removed, first, end = self._removed[self._n_removed :], self._n_done, self._table.n_slots
            slots = (np.flatnonzero(self._table.is_live.view[first:end]) + first).astype(np.int32)
            self._n_removed, self._n_done = len(self._removed), end
            if len(removed) + len(slots) <= _LAST_ROUND_MAX or self._n_rounds > _ROUNDS_MAX:
                self._repeat(removed, slots)
                self._finish()
                return
        self._repeat(removed, slots)

    def _repeat(self, removed: list[Id], slots: NDArray[np.int32]) -> None:
        """Remove and add in the successor. An id that was added again has been removed before."""
        table, successor = self._table, self._successor
        gone = [id for id in dict.fromkeys(removed) if successor.state.table.has(id)]
        if gone:
            successor.forget(successor.state.table.remove(gone, successor.slots_of(gone)))
        if len(slots):
            expressions = [table.expression(slot) for slot in slots.tolist()]
            tenants = None if table.tenants is None else [table.tenant(slot) for slot in slots.tolist()]
            successor.add_parsed(table.ids(slots), table.weights.taken(slots).tolist(), expressions, tenants)

    def _finish(self) -> None:
        """Replace the old parts; under the writers' lock."""
        updates, successor = self._updates, self._successor
        self.end()
        with updates.state.changing():
            updates.state.put(
                successor.state.table, successor.state.domains, successor.state.clauses, successor.state.index
            )
            updates.state.buffer, updates.state.n_indexed = successor.state.buffer, successor.state.n_indexed
        updates.state.unplaced, updates.state.entries = successor.state.unplaced, successor.state.entries
        updates.state.tenants.clear()  # they refer to the old table, which would stay in memory

    def end(self) -> None:
        """Stop recording removals; under the writers' lock."""
        if self._table.removed is self._removed:
            self._table.removed = None
        self.is_over = True

    def _is_overtaken(self) -> bool:
        """End this sweep if another thread swept or tuned meanwhile; the next change starts another if needed."""
        updates = self._updates
        is_same = updates.state.table is self._table and self._table.removed is self._removed
        if (
            not is_same
            or updates.state.statistics is not self._statistics
            or updates.state.options is not self._options
        ):
            self.end()
        return self.is_over
