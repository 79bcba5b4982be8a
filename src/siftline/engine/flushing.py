"""Flushing: the clauses of the write buffer become a part of the index, while other threads add, remove and match.

    begin    record how many clauses the buffer has; they stay in it
    run      lay out a part of the index for them, without a lock
    finish   make the part visible, and start a new buffer with what was added since

Only the first and the last step need the writers' lock, each for less than a millisecond. Subscriptions that were
removed in between are removed from the part. If another change has replaced the index or the buffer, the flush is
dropped.
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

# If more clauses than this belong to unplaced subscriptions, a flush takes the newest of them to the index too.
UNPLACED_IN_BUFFER_MAX: Final = 256


def flush(updates: Updates, run: Run) -> None:
    """Move the buffer to the index, except what is unplaced; a caller that holds `writing` keeps it throughout."""
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
    return clauses.slots < n_indexed  # the index takes slots in ascending order only


class Flush:
    """One flush of an engine; `__init__` and `finish` run under the writers' lock.

    These two steps make few calls that release the interpreter's lock: getting it back from a busy thread takes five
    milliseconds each time, and writers wait meanwhile.
    """

    def __init__(self, updates: Updates) -> None:
        state = updates.state
        self._updates, self._index, self._buffer = updates, state.index, state.buffer
        self._end, self._n_indexed, self._n_slots = state.buffer.end, state.n_indexed, state.table.n_slots
        self._unplaced = state.unplaced.copy()
        self._expression, self._statistics = state.table.expression, state.statistics
        self._domains = state.domains.frozen()  # later additions do not change it
        self._new_buffer = WriteBuffer(state.buffer_capacity)
        self._taken: Clauses | None = None
        self._prepared: Any = None

    def run(self) -> None:
        """Lay out the part; other threads may match, add, remove and merge meanwhile."""
        clauses = self._buffer.clauses(self._end.n_clauses)
        stays = is_to_stay(clauses, self._unplaced, self._n_indexed)
        self._new_buffer.add(picked(clauses, np.flatnonzero(stays)))
        self._taken = picked(clauses, np.flatnonzero(~stays))
        n_new = self._n_slots - self._n_indexed
        batch = Batch(self._n_indexed, n_new, self._taken, self._domains, self._expression, self._statistics)
        self._prepared = self._index.prepare(batch)

    def finish(self) -> None:
        """Make the part visible, unless the index or the buffer was replaced meanwhile."""
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
