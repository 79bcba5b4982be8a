"""Many events at once: chunks of a batch run in threads, and the matches become an Arrow table.

    events 0 .. 9,999   →   chunks of some thousand events, each matched at one moment of the engine
    chunk               →   `pipeline.find`: (starts, slots)  →  columns of the table

Nothing here makes a Python object for a pair of event and subscription.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from siftline.engine.pipeline import Matches
    from siftline.engine.subscriptions import SubscriptionTable

# Events of a chunk: as many as `sift` matches in bitmaps at a time, or a few times as many. With fewer, starting chunks
# takes noticeable time; with more, results no longer fit into the cache.
_BLOCK: Final = 1024
_MOST_BLOCKS: Final = 4
# Each thread gets about this many chunks, because some take longer than others.
_CHUNKS: Final = 4
# An Arrow array of strings holds less than this many bytes.
_MOST_BYTES: Final = 2**31 - 1

# Events, ids, and weights if they are wanted.
_Columns = tuple[Any, list[Any], Any]

# The string ids of a table by slot, reused for every batch until the table grows.
_id_texts: WeakKeyDictionary[SubscriptionTable, Any] = WeakKeyDictionary()


def matched_table(
    n: int,
    find: Callable[[int, int], Matches],
    are_ids_text: Callable[[], bool | None],
    threads: int | None,
    weights: bool = False,
    *,
    whole: bool = False,
) -> pa.Table:
    """Return the table of the matches that `find(first, end)` returns for n events, with or without weights.

    `are_ids_text` gives the type of the column `subscription` if nothing matched. With `whole`, `find` is called once
    for all events.
    """
    n_threads = _n_threads(threads)
    size = max(1, n) if whole else _BLOCK * min(max(n // (_BLOCK * _CHUNKS * n_threads), 1), _MOST_BLOCKS)

    def columns(first: int) -> _Columns:
        found = find(first, min(first + size, n))
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
    # Called after matching, because the first subscription may have been added meanwhile.
    schema = matches_schema(are_ids_text(), has_weights)
    columns = [events, ids, weights] if has_weights else [events, ids]
    arrays = [pa.chunked_array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def matches_schema(are_ids_text: bool | None, has_weights: bool) -> pa.Schema:
    """Return the schema of every table of matches; ids are numbers if an engine never had any."""
    fields = [pa.field("event", pa.int64()), pa.field("subscription", id_type(are_ids_text))]
    return pa.schema([*fields, pa.field("weight", pa.float64())] if has_weights else fields)


def id_type(are_ids_text: bool | None) -> pa.DataType:
    """Return the Arrow type of ids; None, for an engine that never had any, means numbers."""
    return pa.string() if are_ids_text else pa.int64()


def ids_of(table: SubscriptionTable, slots: NDArray[np.int32]) -> list[Any]:
    """Return the ids of slots as Arrow arrays."""
    if not len(slots):
        return []
    if not table.are_ids_text:
        # Slots are in bounds; `take` with `clip` does not check that, and takes half as long.
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
