"""Many events at once: chunks of a batch over threads, and what they match as an Arrow table.

    events 0 .. 9,999   →   chunks of some thousand events, each matched at one moment of the engine
    chunk               →   candidates by event  →  exact check  →  (events, slots)  →  columns of the table

Nothing here makes a Python object for a pair of event and subscription, but for the pairs that need the exact check.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siftline.kernels.sharing import with_followers
from siftline.model import matches
from siftline.subscriptions import SubscriptionTable, check_top

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from siftline.encoding.events import EncodedEvents
    from siftline.indexes.protocol import Many

# Events of a chunk: as many as `sift` matches in bitmaps at a time, or a few times as many. Fewer, and starting a chunk
# is felt; more, and its results no longer stay in the cache.
_BLOCK: Final = 1024
_MOST_BLOCKS: Final = 4
# Each thread gets about so many chunks, because some take longer than others.
_CHUNKS: Final = 4
# An Arrow array of strings holds less than this many bytes.
_MOST_BYTES: Final = 2**31 - 1

# Events, ids, and weights if they are asked for.
_Columns = tuple[Any, list[Any], Any]

# The string ids of a table by slot; as long as nothing was added to it, they are the same for every batch.
_id_texts: WeakKeyDictionary[SubscriptionTable, Any] = WeakKeyDictionary()


class Matches(NamedTuple):
    """Pairs of an event and the slot of a subscription that it satisfies, by ascending events."""

    events: NDArray[np.int64]
    slots: NDArray[np.int32]
    table: SubscriptionTable


def matched_table(
    n: int,
    find: Callable[[int, int], Matches],
    are_ids_text: Callable[[], bool | None],
    top: int | None,
    threads: int | None,
    weights: bool = False,
    *,
    whole: bool = False,
) -> pa.Table:
    """Return the table of what `find(first, end)` finds for all n events, with the weights of subscriptions or not.

    `are_ids_text` tells of which type the column `subscription` is if nothing matched. With `whole`, `find` is asked
    once for all events.
    """
    if top is not None:
        check_top(top)
    n_threads = _n_threads(threads)
    size = max(1, n) if whole else _BLOCK * min(max(n // (_BLOCK * _CHUNKS * n_threads), 1), _MOST_BLOCKS)

    def columns(first: int) -> _Columns:
        found = find(first, min(first + size, n))
        if top is not None:
            found = best(found, top)
        heavy = pa.array(found.table.weights.view[found.slots]) if weights else None
        return pa.array(found.events), ids_of(found.table, found.slots), heavy

    firsts = range(0, n, size)
    if n_threads == 1 or len(firsts) < 2:
        return _table(map(columns, firsts), are_ids_text, weights)
    return _table(_pool(os.getpid(), n_threads).map(columns, firsts), are_ids_text, weights)


def _n_threads(threads: object) -> int:
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise ValueError(f"threads must be a number of threads, not {threads!r}")
    return threads


@cache
def _pool(process: int, n_threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process: a pool does not survive a fork."""
    return ThreadPoolExecutor(n_threads, "siftline")


def _table(chunks: Iterable[_Columns], are_ids_text: Callable[[], bool | None], has_weights: bool) -> pa.Table:
    events, ids, weights = [], [], []
    for chunk_events, chunk_ids, chunk_weights in chunks:
        if len(chunk_events):
            events.append(chunk_events)
            ids += chunk_ids
            weights.append(chunk_weights)
    # Asked after matching: the first subscription may have come meanwhile.
    schema = matches_schema(are_ids_text(), has_weights)
    columns = [events, ids, weights] if has_weights else [events, ids]
    arrays = [pa.chunked_array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def matches_schema(are_ids_text: bool | None, has_weights: bool) -> pa.Schema:
    """Return the schema of every table of matches; the ids of an engine that never had any are numbers."""
    fields = [pa.field("event", pa.int64()), pa.field("subscription", id_type(are_ids_text))]
    return pa.schema([*fields, pa.field("weight", pa.float64())] if has_weights else fields)


def confirmed(
    found: Many, events: EncodedEvents, first: int, table: SubscriptionTable, is_wanted: Callable[[Any], Any] | None
) -> Matches:
    """Return the candidates that match: all that are sure, and those possible ones that the exact check confirms.

    `is_wanted` tells which slots may be there at all: others may be newer than the codes of the events.
    """
    positions, slots = _pairs(found.starts, found.sure, events, first, is_wanted)
    if len(found.possible):
        kept, checked = _pairs(found.possible_starts, found.possible, events, first, is_wanted)
        holds = np.zeros(len(kept), dtype=np.bool_)
        is_called = np.zeros(len(kept), dtype=np.bool_)
        if table.owners is not None:
            is_called = table.owners.taken(checked) >= 0
        if is_called.any():
            holds[is_called] = _called(kept[is_called], checked[is_called], events, table)
        for i in np.flatnonzero(~is_called).tolist():
            holds[i] = matches(table.expression(int(checked[i])), events.event(int(kept[i])))
        return joined(Matches(positions, slots, table), Matches(kept[holds], checked[holds], table))
    return Matches(positions, slots, table)


def _called(
    positions: NDArray[np.int64], slots: NDArray[np.int32], events: EncodedEvents, table: SubscriptionTable
) -> NDArray[np.bool_]:
    """Return which pairs of an event and a condition with calls hold; the events ascend, and there are some."""
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


def joined(some: Matches, others: Matches) -> Matches:
    """Return all pairs, by ascending events."""
    if not len(others.events):
        return some
    events, slots = np.concatenate([some.events, others.events]), np.concatenate([some.slots, others.slots])
    order = np.argsort(events, kind="stable")
    return Matches(events[order], slots[order], some.table)


def followed(found: Matches) -> Matches:
    """Return the same with all subscriptions that share the entries of those that were found."""
    table = found.table
    sharing = table.sharing
    assert sharing is not None
    if not len(found.events):
        return found
    events = np.arange(found.events[0], found.events[-1] + 1)
    starts = np.searchsorted(found.events, np.append(events, events[-1] + 1))
    starts, slots = with_followers(starts, found.slots, *(each.view for each in sharing))
    return Matches(np.repeat(events, np.diff(starts)), slots, table)


def kept(found: Matches, has: Callable[[Any], Any]) -> Matches:
    """Return the pairs whose slots are wanted and were not removed."""
    is_kept = has(found.slots) & found.table.is_live.taken(found.slots)
    return Matches(found.events[is_kept], found.slots[is_kept], found.table)


def _pairs(
    starts: NDArray[np.int64],
    slots: NDArray[np.int32],
    events: EncodedEvents,
    first: int,
    is_wanted: Callable[[Any], Any] | None,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the event and the slot of each candidate."""
    positions = np.repeat(np.arange(first, first + len(starts) - 1), np.diff(starts))
    if is_wanted is not None:
        is_kept = is_wanted(slots)
        positions, slots = positions[is_kept], slots[is_kept]
    if events.errors:
        is_event = ~np.isin(positions, list(events.errors))
        positions, slots = positions[is_event], slots[is_event]
    return positions, slots


def best(found: Matches, top: int) -> Matches:
    """Return the `top` subscriptions of each event by weight, heaviest first, and by id where weights are equal."""
    found = _heaviest(found, top)
    weights = found.table.weights.view[found.slots]
    ids = pa.chunked_array(ids_of(found.table, found.slots), id_type(found.table.are_ids_text))
    rows = pa.table({"event": found.events, "weight": weights, "id": ids})
    order = pc.sort_indices(rows, [("event", "ascending"), ("weight", "descending"), ("id", "ascending")]).to_numpy()
    events = found.events[order]
    rank = np.arange(len(events)) - np.searchsorted(events, events)
    return Matches(events[rank < top], found.slots[order][rank < top], found.table)


def _heaviest(found: Matches, top: int) -> Matches:
    """Leave for each event everything at least as heavy as its k-th heaviest, so that few are left to sort."""
    weights = found.table.weights.view[found.slots]
    _, starts, counts = np.unique(found.events, return_index=True, return_counts=True)
    is_kept = np.full(len(weights), top > 0)
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        if 0 < top < count:
            here = weights[start : start + count]
            is_kept[start : start + count] = here >= np.partition(here, count - top)[count - top]
    return Matches(found.events[is_kept], found.slots[is_kept], found.table)


def id_type(are_ids_text: bool | None) -> pa.DataType:
    """Return the Arrow type of ids; None, of an engine that never had any, is as numbers."""
    return pa.string() if are_ids_text else pa.int64()


def ids_of(table: SubscriptionTable, slots: NDArray[np.int32]) -> list[Any]:
    """Return the ids of slots as Arrow arrays."""
    if not len(slots):
        return []
    if not table.are_ids_text:
        # Slots are in bounds: `take` that clips does not look, and takes half as long.
        return [pa.array(table.id_array().take(slots, mode="clip"))]
    texts, longest = _texts_of(table, int(slots.max()) + 1)
    size = max(1, _MOST_BYTES // max(1, longest))
    return [texts.take(pa.array(slots[start : start + size])) for start in range(0, len(slots), size)]


def _texts_of(table: SubscriptionTable, n: int) -> tuple[Any, int]:
    """Return the string ids of at least n slots, and how many bytes the longest has."""
    known = _id_texts.get(table)
    if known is None or len(known[0]) < n:
        texts = pa.array(table.id_list(), pa.string())
        known = _id_texts[table] = texts, pc.max(pc.binary_length(texts)).as_py()
    return known
