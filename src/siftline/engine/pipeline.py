"""Matching one event, while others change subscriptions.

An event that is already encoded is matched without any lock: an odd generation says that the engine is being changed,
another one afterwards that it was; then it is matched again, with the lock. Locks, and the objects that `_find` passes
around, would cost as much as matching does. The kernels themselves never run under a lock, on arrays that no longer
change under them.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.changes import Changing
from siftline.encoding.events import EncodedEvents
from siftline.encoding.sources import source_of
from siftline.errors import EventError
from siftline.model import matches
from siftline.shortcuts import NO_SHORTCUT, Shortcut, put_shortcut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.batches import Matches
    from siftline.indexes.protocol import Index
    from siftline.subscriptions import SubscriptionTable
    from siftline.subsets import Chosen, Subset
    from siftline.tail import Tail

# How often a match that a replacement crossed is tried again before it holds off writers.
_PATIENCE: Final = 3

_NONE: Final = np.empty(0, dtype=np.int32)


class Moment(NamedTuple):
    """What one match needs, all of one moment."""

    events: EncodedEvents
    searched: Index
    table: SubscriptionTable
    n_slots: int  # how many the index had
    n_added: int  # how often subscriptions were added to the index until then
    tail: Tail
    n_tail: int  # how many clauses the tail had
    chosen: Chosen | None  # only these subscriptions are asked for


class Found(NamedTuple):
    """The slots that match, the table that they belong to, and the events as they were encoded."""

    slots: NDArray[np.int32]
    table: SubscriptionTable
    events: EncodedEvents


class Matching(Changing):
    """How an engine matches one event."""

    def _new_shortcut(self) -> Shortcut | None:
        """Make and remember a shortcut for this thread; None if there is none, or it is too soon for one.

        Making one takes longer than a match, so that the first match after a change goes without.
        """
        ways = self._shortcuts.ways
        if not isinstance(ways, dict):
            return None  # something is being changed
        if get_ident() not in ways:
            put_shortcut(ways, None)
            return None
        generation, table, domains = self._generation, self._table, self._domains
        version, tail = domains.version, self._tail
        # Before the index is asked: an id that is removed and added again is then found once at most.
        n_tail = tail.n_clauses
        finders = None if table.numbers is None else self._index.finders(table.numbers, table.sharing)
        if generation & 1 or self._generation != generation:
            return None
        shortcut = NO_SHORTCUT
        if finders is not None:
            shortcut = Shortcut(generation, domains, version, finders, table, tail, n_tail)
        put_shortcut(ways, shortcut)
        return shortcut

    def _match_at_once(self, event: EncodedEvents) -> tuple[NDArray[np.int32], SubscriptionTable] | None:
        """Match one encoded event without any lock; None if that is not enough."""
        generation = self._generation
        latest = event.latest_for(self._domains)
        if generation & 1 or latest is None:
            return None
        table, tail = self._table, self._tail
        # Before the index is asked: an id that is removed and added again is then found once at most.
        n_tail = tail.n_clauses
        slots, possible = self._index.match(latest, 0)
        if n_tail:
            slots, possible = _with_tail(slots, possible, tail, n_tail, latest, 0)
        if len(possible):
            slots = _with_checked(slots, possible, table, latest, 0)
        if table.following is not None:
            slots = table.with_followers(slots)
        return (slots, table) if self._generation == generation else None

    def _moment(
        self,
        events: Any,
        *,
        event: str | None = None,
        is_one: bool = False,
        within: Subset | None = None,
        now: int | None = None,
    ) -> Moment:
        """Return events encoded for the index as it is at this moment; `now` counts for what is not encoded yet."""
        source = events.source if isinstance(events, EncodedEvents) else source_of(events, event=event, is_one=is_one)
        if is_one and len(source) != 1:
            raise EventError(f"match takes one event, not {len(source)}; use match_batch")
        with self._publishing:
            is_encoded = isinstance(events, EncodedEvents)
            encoded = events.encoded_for(self._domains) if is_encoded else EncodedEvents(source, self._domains, now)
            table, tail = self._table, self._tail
            chosen = None if within is None else within.ready(self)
            moment = Moment(encoded, self._index, table, self._n_indexed, self._n_added, tail, tail.n_clauses, chosen)
        if within is None or chosen is not None:
            return moment
        with self._writing:  # which comes before `_publishing`
            within.prepare(self)
            return self._moment(encoded, within=within)

    def _matching(self, moment: Moment, position: int, top: int | None = None) -> Found:
        """Return the slots that match one event, or at least the `top` best of them."""
        events, table, chosen = moment.events, moment.table, moment.chosen
        if position in events.errors:
            return Found(_NONE, table, events)
        is_shared = table.following is not None
        if chosen is not None and chosen.scan is not None:
            sure, possible = _scanned(chosen.scan, events, position)
        else:
            # The heaviest of those that share an entry need not be the one that the index knows.
            sure, possible = self._candidates(moment, position, None if chosen is not None or is_shared else top)
            if chosen is not None and not is_shared:
                sure, possible = sure[chosen.has(sure)], possible[chosen.has(possible)]
        if len(possible):
            sure = _with_checked(sure, possible, table, events, position)
        if is_shared:
            sure = table.with_followers(sure)
            if chosen is not None:
                sure = sure[chosen.has(sure)]
        elif chosen is not None:
            sure = sure[table.is_live.taken(sure)]  # of what is scanned, some may have been removed since
        return Found(sure, table, events)

    def _candidates(
        self, moment: Moment, position: int, top: int | None
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return what index and tail find for one event."""
        events, index, table, n_slots, n_added, tail, n_tail, _ = moment
        if top is None:
            sure, possible = index.match(events, position)
        else:
            sure, possible = index.match_top(events, position, top, table.weights.view)
        if self._n_added != n_added:
            # Subscriptions added after the event was encoded may use constants that its codes do not know, or were in
            # the tail then. And they may be among the best.
            sure, possible = (sure, possible) if top is None else index.match(events, position)
            sure, possible = sure[sure < n_slots], possible[possible < n_slots]
        if n_tail:
            return _with_tail(sure, possible, tail, n_tail, events, position)
        return sure, possible

    def _find(
        self,
        events: Any,
        position: int,
        *,
        is_one: bool = False,
        top: int | None = None,
        within: Subset | None = None,
        now: int | None = None,
    ) -> Found:
        """Match one event, and again if a subscription was replaced meanwhile: it could miss both old and new."""
        for _ in range(_PATIENCE):
            n_replaced = self._n_replaced
            found = self._matching(self._moment(events, is_one=is_one, within=within, now=now), position, top)
            if n_replaced == self._n_replaced:
                return found
        with self._writing:
            return self._matching(self._moment(events, is_one=is_one, within=within, now=now), position, top)

    def _find_many(self, events: EncodedEvents, first: int, end: int, within: Subset | None = None) -> Matches:
        """Match the events first .. end - 1, and again if a subscription was replaced meanwhile."""
        for _ in range(_PATIENCE):
            n_replaced = self._n_replaced
            found = self._matching_many(self._moment(events, within=within), first, end)
            if n_replaced == self._n_replaced:
                return found
        with self._writing:
            return self._matching_many(self._moment(events, within=within), first, end)

    def _matching_many(self, moment: Moment, first: int, end: int) -> Matches:
        from siftline.batches import confirmed, followed, joined, kept

        events, index, table, n_slots, n_added, tail, n_tail, chosen = moment
        if chosen is not None and chosen.scan is not None:
            many = chosen.scan.match_many(events, first, end, chosen.scan.n_clauses)
            found = confirmed(many, events, first, table, None)
        else:
            many = index.match_many(events, first, end)
            is_known = None if self._n_added == n_added else lambda slots: slots < n_slots
            found = confirmed(many, events, first, table, is_known)
            if n_tail:
                newest = tail.match_many(events, first, end, n_tail)
                found = joined(found, confirmed(newest, events, first, table, None))
        if table.following is not None:
            found = followed(found)
        return found if chosen is None else kept(found, chosen.has)


def _scanned(scan: Tail, events: EncodedEvents, position: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return what a few subscriptions have for an event."""
    start, end = events.starts[position], events.starts[position + 1]
    return scan.match(events.attributes[start:end], events.codes[start:end], scan.n_clauses)


def _with_tail(
    sure: NDArray[np.int32],
    possible: NDArray[np.int32],
    tail: Tail,
    n_clauses: int,
    events: EncodedEvents,
    position: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Add what the tail has for an event."""
    start, end = events.starts[position], events.starts[position + 1]
    found, to_check = tail.match(events.attributes[start:end], events.codes[start:end], n_clauses)
    if len(found):
        sure = np.concatenate([sure, found])
    if len(to_check):
        possible = np.concatenate([possible, to_check])
    return sure, possible


def _with_checked(
    sure: NDArray[np.int32], possible: NDArray[np.int32], table: SubscriptionTable, events: EncodedEvents, position: int
) -> NDArray[np.int32]:
    """Add the slots whose expressions the event satisfies; calls come last, and only for what is left."""
    event = events.event(position)
    found = [sure]
    if table.owners is not None and table.stage is not None:
        owners = table.owners.taken(possible)
        called = possible[owners >= 0]
        if len(called):
            found.append(called[table.stage.matching(owners[owners >= 0], event)])
        possible = possible[owners < 0]
    checked = [slot for slot in possible.tolist() if matches(table.expression(slot), event)]
    return np.concatenate([*found, np.array(checked, dtype=np.int32)])
