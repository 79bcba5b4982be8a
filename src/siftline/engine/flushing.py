"""Flushing: the write buffer's clauses become a part of the index, while others add, remove and match.

    begin    it is noted what the buffer has now; everything stays in it
    run      a part of the index is laid out for them, without a lock
    finish   the part is shown, and a new buffer has what came since

Only the first and the last step need the writers' lock, each for less than a millisecond. Subscriptions that were
removed in between are removed from the part; a flush that something else overtook is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.encoding.clauses import picked
from siftline.engine.write_buffer import WriteBuffer
from siftline.indexes.protocol import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.engine.compaction import Run
    from siftline.engine.updates import Updates

# At most this many clauses of unplaced subscriptions stay in the buffer.
UNPLACED_IN_BUFFER_MAX: Final = 256


def flush(updates: Updates, run: Run) -> None:
    """Bring the buffer into the index, but for what is unplaced; who calls this under `writing` holds it throughout."""
    with updates.state.writing:
        if updates.state.n_indexed == updates.state.table.n_slots:
            return
        flushing = Flush(updates)
    run(flushing.run)
    with updates.state.writing:
        flushing.finish()


def is_to_stay(clauses: Clauses, unplaced: set[int], n_indexed: int) -> NDArray[np.bool_]:
    """Return which clauses of the buffer a flush leaves there: those whose constants have no labels yet."""
    is_unplaced = np.array([slot in unplaced for slot in clauses.slots.tolist()], dtype=np.bool_)
    if np.count_nonzero(is_unplaced) <= UNPLACED_IN_BUFFER_MAX:
        return is_unplaced
    return clauses.slots < n_indexed  # the index takes slots in their order


class Flush:
    """One flush of an engine; begun and finished under the writers' lock.

    While they hold it, these two steps make few calls that let go of the interpreter's lock: to get it back from a busy
    thread takes five milliseconds each time, and writers wait meanwhile.
    """

    def __init__(self, updates: Updates) -> None:
        state = updates.state
        self._updates, self._index, self._buffer = updates, state.index, state.buffer
        self._end, self._n_indexed, self._n_slots = state.buffer.end, state.n_indexed, state.table.n_slots
        self._unplaced = state.unplaced.copy()
        self._expression, self._statistics = state.table.expression, state.statistics
        self._domains = state.domains.frozen()  # new attributes do not appear in it while it is looked at
        self._new_buffer = WriteBuffer(state.buffer_capacity)
        self._taken: Clauses | None = None
        self._prepared: Any = None

    def run(self) -> None:
        """Lay out the part; others may match, add, remove and merge meanwhile."""
        clauses = self._buffer.clauses(self._end.n_clauses)
        stays = is_to_stay(clauses, self._unplaced, self._n_indexed)
        self._new_buffer.add(picked(clauses, np.flatnonzero(stays)))
        self._taken = picked(clauses, np.flatnonzero(~stays))
        n_new = self._n_slots - self._n_indexed
        batch = Batch(self._n_indexed, n_new, self._taken, self._domains, self._expression, self._statistics)
        self._prepared = self._index.prepare(batch)

    def finish(self) -> None:
        """Show the part, unless the index or the buffer was exchanged meanwhile."""
        state, new_buffer = self._updates.state, self._new_buffer
        if state.index is not self._index or state.buffer is not self._buffer:
            return
        assert self._taken is not None
        dead = self._buffer.dead_slots(self._end.n_clauses)
        for slot in dead.tolist():
            new_buffer.remove(slot)
        new_buffer.take_over(self._buffer, self._end)
        with state.changing():
            state.n_added += 1  # before the index shows anything new
            state.index.add(self._prepared, state.domains)
            state.buffer, state.n_indexed = new_buffer, self._n_slots
            if len(dead):
                state.index.remove(dead)
        self._updates.keep(self._taken)
