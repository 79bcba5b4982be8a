"""Renewal: all constants get new labels, while other threads add, remove and match.

A new constant may fall between two others whose labels leave no gap. Its subscription is added nevertheless, with the
codes around the constant, and values there need the exact check: the subscription is *unplaced*. When many
subscriptions are unplaced, the labels of their lines (the ordered constants of an attribute) are assigned again, and an
index is built for the new labels, beside the one in use:

    deal     known constants get new labels, in an *heir* of their line; meanwhile new constants get none
    open     from now on, new constants get a label in the line and in its heir
    build    lay out the index for the new labels
    follow   relabel the clauses that were added since and add them to the new index, in rounds, until few are left
    finish   do that for the last few and for the write buffer; then replace domains, clauses and index

Only the first and the last step hold the writers' lock, each for some milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.encoding.clauses import between, concatenate, picked, relabelled, select
from siftline.encoding.conjunctions import encode_many
from siftline.encoding.domains import Heir
from siftline.engine.write_buffer import WriteBuffer
from siftline.indexes.protocol import Batch

if TYPE_CHECKING:
    from siftline.encoding.clauses import Clauses
    from siftline.encoding.domains import Domains, Move
    from siftline.engine.compaction import Run
    from siftline.engine.updates import Updates
    from siftline.indexes.protocol import Index

# The last round, under the lock, has at most this many subscriptions.
_LAST_ROUND_MAX: Final = 1024


def renew(updates: Updates, run: Run) -> None:
    """Give labels to all constants; a caller that holds the writers' lock keeps it throughout.

    `run` runs the slow steps. If another thread replaces the index meanwhile, the renewal is dropped.
    """
    updates.flush(run)  # because a renewal handles subscriptions of the index only
    with updates.state.writing:
        if not any(slot < updates.state.n_indexed for slot in updates.state.unplaced):
            return
        renewal = Renewal(updates)
    try:
        renewal.deal()
        with updates.state.writing:
            renewal.open()
        run(renewal.build)
        while not renewal.is_over:
            renewal.follow()
    except BaseException:
        with updates.state.writing:
            renewal.give_up()
        raise


class Renewal:
    """One renewal of an engine; it is dropped if another change replaces the index meanwhile."""

    def __init__(self, updates: Updates) -> None:
        self.is_over = False
        self._updates = updates
        self._index, self._domains, self._table = updates.state.index, updates.state.domains, updates.state.table
        self._crowded = {key: values.copy() for key, values in self._domains.crowded.items()}
        self._unplaced = {slot for slot in updates.state.unplaced if slot < updates.state.n_indexed}
        self._parts, self._n_done = list(updates.state.clauses), updates.state.n_indexed
        self._copy = self._domains.copied()
        self._heirs: dict[Any, Heir] = {}
        self._new: list[Clauses] = []
        self._new_index: Index | None = None
        self._given: dict[Any, Heir | None] = dict.fromkeys(self._crowded)
        self._domains.heirs = self._given
        # New statistics would choose other clauses, with patterns that the engine's domains do not have.
        self._covering = updates.covering

    def deal(self) -> None:
        """Assign new labels, and encode the unplaced subscriptions with them."""
        for (attribute, is_text), values in self._crowded.items():
            domain = self._copy.domains[attribute]
            line = domain.strings if is_text else domain.numbers
            self._heirs[attribute, is_text] = Heir(*line.dealt(line.unknown(values), list(values)))
        self._copy = self._copy.renewed(self._heirs)
        slots = sorted(slot for slot in self._unplaced if self._table.is_entry(slot))
        expressions = [self._table.expression(slot) for slot in slots]
        updates, copy = self._updates, self._copy
        n_known = len(copy), len(copy.patterns)
        clauses, moves = encode_many(
            expressions, 0, copy, self._covering, takes_patterns=updates.state.index.takes_patterns
        )
        # Attributes and patterns that only the copy knows would be lost with it.
        assert not moves
        assert n_known == (len(copy), len(copy.patterns))
        self._new = [clauses._replace(slots=np.array(slots, dtype=np.int32)[clauses.slots])]

    def open(self) -> None:
        """Let new constants get labels again, in the lines and in their heirs."""
        if not self._is_overtaken():
            self._given = self._domains.heirs = dict(self._heirs)

    def build(self) -> None:
        """Lay out the index for the new labels."""
        if self.is_over:
            return
        kept = np.arange(self._n_done, dtype=np.int32)
        kept[list(self._unplaced)] = -1
        old = relabelled(select(concatenate(self._parts), kept), self._moves())
        joined = concatenate([old, *self._new])
        self._new = [picked(joined, np.argsort(joined.slots, kind="stable"))]
        batch = self._batch(self._new[0], 0, self._n_done, self._copy)
        self._new_index = self._updates.laid_out(batch, is_new=False)

    def follow(self) -> None:
        """Add the clauses since the last round to the new index; if there are few, then also replace the old parts."""
        with self._updates.state.writing:
            if self._is_overtaken():
                return
            first, end = self._n_done, self._updates.state.n_indexed
            since, moves = (
                concatenate([between(part, first, end) for part in self._updates.state.clauses]),
                self._moves(),
            )
            since = relabelled(since, moves)
            frozen = self._domains.frozen().renewed(self._heirs)
            self._n_done = end
            if end - first <= _LAST_ROUND_MAX:
                domains = self._domains.renewed(self._heirs)
                self._take_in(self._batch(since, first, end, frozen), domains)
                self._finish(moves, domains)
                return
        self._take_in(self._batch(since, first, end, frozen), frozen)

    def _take_in(self, batch: Batch, domains: Domains) -> None:
        assert self._new_index is not None
        self._new_index.add(self._new_index.prepare(batch), domains)
        self._new.append(batch.clauses)

    def _finish(self, moves: list[Move], domains: Domains) -> None:
        """Replace the old parts; under the writers' lock."""
        updates, index, table = self._updates, self._new_index, self._table
        assert index is not None
        dead = table.unneeded()
        index.remove(dead[dead < self._n_done])
        waiting = updates.state.buffer.clauses()
        is_left = [slot not in self._unplaced for slot in waiting.slots.tolist()]
        buffer = WriteBuffer(updates.state.buffer_capacity)
        buffer.add(relabelled(picked(waiting, np.flatnonzero(is_left)), moves))
        for key, values in self._crowded.items():
            crowded = self._domains.crowded.pop(key)
            if len(crowded) > len(values):  # newer constants come after the others
                self._domains.crowded[key] = dict.fromkeys(list(crowded)[len(values) :])
        self._domains.heirs = {}
        with updates.state.changing():
            updates.state.put(table, domains, self._new, index)
            updates.state.buffer, updates.state.n_indexed = buffer, self._n_done
            updates.state.unplaced -= self._unplaced
        updates.state.n_overtaken = 0
        self.is_over = True

    def give_up(self) -> None:
        """Leave everything as it is; under the writers' lock."""
        if self._domains.heirs is self._given:
            self._domains.heirs = {}
        self.is_over = True

    def _is_overtaken(self) -> bool:
        """Give up if the index or the heirs were replaced; the next change starts another renewal if needed."""
        updates, domains = self._updates, self._domains
        if (
            updates.state.index is not self._index
            or updates.state.domains is not domains
            or domains.heirs is not self._given
        ):
            updates.state.n_overtaken += 1
            self.give_up()
        return self.is_over

    def _moves(self) -> list[Move]:
        return [(attribute, *heir.relabelling()) for (attribute, _), heir in self._heirs.items()]

    def _batch(self, clauses: Clauses, first: int, end: int, domains: Domains) -> Batch:
        return Batch(first, end - first, clauses, domains, self._table.expression, self._updates.state.statistics)
