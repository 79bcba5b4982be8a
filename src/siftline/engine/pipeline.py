"""How an engine matches events, in five steps.

    candidates   index and write buffer find slots that match, and slots that may match
    confirm      the latter are checked by their expressions, compiled as programs (`exact_check.py`); operators are
                 called last, for what is still undecided
    duplicates   subscriptions with the same expression as a slot that was found are added
    subset       only the subscriptions that the caller asked for are kept
    rank         only the best by weight are kept

Every step takes and returns (starts, slots): the slots of the i-th event are slots[starts[i] : starts[i + 1]]. One
event is a batch of one. Nothing here makes a Python object for a pair of event and subscription, except for the pairs
that need the exact check. `fast_path.py` is a shortcut for a single encoded event without further arguments.

Matching one encoded event needs no lock: an odd generation tells that the engine is being changed, and a different
generation afterwards tells that it was changed meanwhile; then the event is matched again, with the lock. Kernels run
without a lock, on arrays that no longer change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.events import EncodedEvents
from siftline.encoding.sources import source_of
from siftline.engine.exact_check import holds_by_programs
from siftline.engine.ranking import best_rows
from siftline.errors import EventError
from siftline.indexes.protocol import Many
from siftline.kernels.sharing import with_duplicates
from siftline.kernels.spans import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from siftline.encoding.events import Source
    from siftline.engine.state import State
    from siftline.engine.subscriptions import SubscriptionTable
    from siftline.engine.subsets import Chosen, Subset
    from siftline.engine.updates import Updates
    from siftline.engine.write_buffer import WriteBuffer
    from siftline.indexes.protocol import Index

# How often a match is tried without a lock before it takes the writers' lock, if subscriptions are replaced meanwhile.
TRIES_WITHOUT_LOCK: Final = 3

_NO_SLOTS: Final = np.empty(0, dtype=np.int32)


class Moment(NamedTuple):
    """What a match reads, all of one moment."""

    events: EncodedEvents
    searched_index: Index
    table: SubscriptionTable
    n_slots: int  # how many slots the index had
    n_added: int  # how many additions to the index there had been
    buffer: WriteBuffer
    n_buffered: int  # how many clauses the write buffer had
    chosen: Chosen | None  # None: all subscriptions are wanted


class Matches(NamedTuple):
    """The slots that match consecutive events, from the event `first` on, and the table that they belong to."""

    first: int
    starts: NDArray[np.int64]
    slots: NDArray[np.int32]
    table: SubscriptionTable

    @property
    def events(self) -> NDArray[np.int64]:
        """The event of each slot."""
        return np.repeat(np.arange(self.first, self.first + len(self.starts) - 1), np.diff(self.starts))


# moments


def moment_of(
    updates: Updates, events: EncodedEvents | Source, within: Subset | None, now: int | None = None
) -> Moment:
    """Return the current moment, with the events encoded for it; `now` is for events that are not encoded yet."""
    state = updates.state
    with state.publishing:
        if isinstance(events, EncodedEvents):
            encoded = events.encoded_for(state.domains)
        else:
            encoded = EncodedEvents(events, state.domains, now)
        chosen = None if within is None else within.ready(state)
        moment = _moment(state, encoded, chosen)
    if within is None or chosen is not None:
        return moment
    with state.writing:  # must be taken before `publishing`
        within.prepare(updates)
        return moment_of(updates, encoded, within)


def _moment(state: State, events: EncodedEvents, chosen: Chosen | None) -> Moment:
    # The write buffer is read before the index, so that an id that is removed and added again is found at most once.
    buffer = state.buffer
    n_buffered = buffer.n_clauses
    return Moment(events, state.index, state.table, state.n_indexed, state.n_added, buffer, n_buffered, chosen)


def source_for(events: Any, *, event: str | None = None, is_one: bool = False) -> Any:
    """Return a source to encode events from; encoded events are returned unchanged."""
    if isinstance(events, EncodedEvents):
        source = events.source
    else:
        events = source = source_of(events, event=event, is_one=is_one)
    if is_one and len(source) != 1:
        raise EventError(f"match takes one event, not {len(source)}; use match_batch")
    return events


# all steps


def find_at_once(state: State, event: EncodedEvents) -> Matches | None:
    """Match one encoded event without any lock; None if the engine changed meanwhile."""
    generation = state.generation
    latest = event.latest_for(state.domains)
    if generation & 1 or latest is None:
        return None
    found = _found(state, _moment(state, latest, None), 0, 1)
    return found if state.generation == generation else None


def find(
    updates: Updates,
    events: Any,
    first: int,
    end: int,
    *,
    within: Subset | None = None,
    top: int | None = None,
    now: int | None = None,
) -> Matches:
    """Match the events first .. end - 1, and again if a subscription was replaced meanwhile.

    A match during a replacement could miss both the old expression and the new one.
    """
    state = updates.state
    for _ in range(TRIES_WITHOUT_LOCK):
        n_replaced = state.n_replaced
        found = _found(state, moment_of(updates, events, within, now), first, end, top)
        if n_replaced == state.n_replaced:
            return found
    with state.writing:
        return _found(state, moment_of(updates, events, within, now), first, end, top)


def _found(state: State, moment: Moment, first: int, end: int, top: int | None = None) -> Matches:
    table, chosen = moment.table, moment.chosen
    is_shared = table.next_duplicates is not None
    # The index knows the weight of a leader only, and a duplicate may be heavier.
    may_leave_out = top is not None and chosen is None and not is_shared
    found = _candidates(state, moment, first, end, top if may_leave_out else None)
    # The subset is applied before the exact check, unless a duplicate of an unwanted slot may be wanted.
    has = None if chosen is None or is_shared or chosen.scan is not None else chosen.has
    starts, slots = _confirmed(found, moment, first, has)
    if is_shared:
        starts, slots = _with_duplicates(starts, slots, table)
    if chosen is not None:
        # Some of the scanned subscriptions may have been removed since.
        starts, slots = _kept(starts, slots, chosen.has(slots) & table.is_live.taken(slots))
    if top is not None:
        weights = table.weights.view[slots]
        starts, rows = best_rows(starts, weights, lambda rows: table.ids(slots[rows]), top)
        slots = slots[rows]
    return Matches(first, starts, slots, table)


# candidates


def _candidates(state: State, moment: Moment, first: int, end: int, top: int | None) -> Many:
    """Return the candidates of index and write buffer, or of the scan of a small subset."""
    events, index, table, n_slots, n_added, buffer, n_buffered, chosen = moment
    if chosen is not None and chosen.scan is not None:
        return chosen.scan.match_many(events, first, end, chosen.scan.n_clauses)
    found = _of_index(index, events, first, end, top, table.weights.view)
    if state.n_added != n_added:
        # Subscriptions that were added since are dropped: they may use constants that the events' codes do not know, or
        # were in the write buffer. As they may be among the best, the search for the best is repeated for all.
        found = found if top is None else _of_index(index, events, first, end, None, table.weights.view)
        found = Many(
            *_kept(found.starts, found.sure, found.sure < n_slots),
            *_kept(found.possible_starts, found.possible, found.possible < n_slots),
        )
    if not n_buffered:
        return found
    newest = buffer.match_many(events, first, end, n_buffered)
    return Many(
        *_joined(found.starts, found.sure, newest.starts, newest.sure),
        *_joined(found.possible_starts, found.possible, newest.possible_starts, newest.possible),
    )


def _of_index(
    index: Index, events: EncodedEvents, first: int, end: int, top: int | None, weights: NDArray[np.float64]
) -> Many:
    if end - first > 1:
        return index.match_many(events, first, end)
    found = index.match(events, first) if top is None else index.match_top(events, first, top, weights)
    return Many(_of_one(found.sure), found.sure, _of_one(found.possible), found.possible)


def _of_one(slots: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.array([0, len(slots)])


# confirm


def _confirmed(found: Many, moment: Moment, first: int, has: Callable[[Any], Any] | None) -> tuple[Any, Any]:
    """Return the candidates that match: all sure ones, and the possible ones that the exact check confirms."""
    events, table = moment.events, moment.table
    starts, slots, possible_starts, possible = found
    if events.errors:
        starts, slots = _readable(starts, slots, events, first)
        possible_starts, possible = _readable(possible_starts, possible, events, first)
    if has is not None:
        starts, slots = _kept(starts, slots, has(slots))
        possible_starts, possible = _kept(possible_starts, possible, has(possible))
    if not len(possible):
        return starts, slots
    holds = _holds(Matches(first, possible_starts, possible, table), events)
    return _joined(starts, slots, *_kept(possible_starts, possible, holds))


def _readable(starts: Any, slots: Any, events: EncodedEvents, first: int) -> tuple[Any, Any]:
    """Drop what was found for events that could not be read."""
    positions = np.repeat(np.arange(first, first + len(starts) - 1), np.diff(starts))
    return _kept(starts, slots, ~np.isin(positions, list(events.errors)))


def _holds(candidates: Matches, events: EncodedEvents) -> NDArray[np.bool_]:
    """Return which candidates the event satisfies, by their expressions."""
    table, slots, positions = candidates.table, candidates.slots, candidates.events
    holds = np.zeros(len(slots), dtype=np.bool_)
    is_called = np.zeros(len(slots), dtype=np.bool_)
    if table.owners is not None:
        is_called = table.owners.taken(slots) >= 0
    if is_called.any():
        holds[is_called] = _called(positions[is_called], slots[is_called], events, table)
    if not is_called.any():
        return holds_by_programs(positions, slots, events, table)
    is_plain = ~is_called
    if is_plain.any():
        holds[is_plain] = holds_by_programs(positions[is_plain], slots[is_plain], events, table)
    return holds


def _called(
    positions: NDArray[np.int64], slots: NDArray[np.int32], events: EncodedEvents, table: SubscriptionTable
) -> NDArray[np.bool_]:
    """Return which pairs of an event and a condition with calls hold; events ascend, and there is at least one pair."""
    stage, owners = table.stage, table.owners
    assert stage is not None
    assert owners is not None
    present, starts = np.unique(positions, return_index=True)
    batch = stage.batch({position: events.event(position).tree for position in present.tolist()})
    found = [
        stage.matching(owners.taken(of_event), events.event(position), batch, position)
        for position, of_event in zip(present.tolist(), np.split(slots, starts[1:]), strict=True)
    ]
    return np.concatenate(found)


# duplicates


def _with_duplicates(starts: Any, slots: Any, table: SubscriptionTable) -> tuple[Any, Any]:
    """Return the slots that were found, with their duplicates."""
    sharing = table.sharing
    assert sharing is not None
    if not len(slots):
        return starts, slots
    with_all: tuple[Any, Any] = with_duplicates(starts, slots, *(each.view for each in sharing))
    return with_all


# (starts, slots)


def _kept(starts: Any, slots: Any, is_kept: NDArray[np.bool_]) -> tuple[Any, Any]:
    """Return the slots that are kept."""
    n_kept = np.zeros(len(slots) + 1, dtype=np.int64)
    np.cumsum(is_kept, out=n_kept[1:])
    return n_kept[starts], slots[is_kept]


def _joined(starts: Any, slots: Any, other_starts: Any, other_slots: Any) -> tuple[Any, Any]:
    """Join two results for the same events, event by event."""
    if not len(other_slots):
        return starts, slots
    if not len(slots):
        return other_starts, other_slots
    if len(starts) == 2:
        return starts + other_starts, np.concatenate([slots, other_slots])
    joined: tuple[Any, Any] = side_by_side(starts, slots, other_starts, other_slots)
    return joined
