"""stream: matches a stream of events with an index, while subscriptions change.

events ──────────► micro-batch n ──► matches, written by any sink of Spark
                      │ claims (version 4, delta 7, 12:00), the state of the index when it starts
apply ──► delta 8 ────┼──────► seen by micro-batch n + 1
compact ► version 5 ──┘        (version 4 merged with delta 8: the same subscriptions)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from siftline.errors import TableError
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.match import letters_of, matcher_of, result_schema, with_counted_tasks
from siftline.spark.runtime.paths import local_path
from siftline.spark.runtime.tasks import function_of
from siftline.spark.worker.events import EVENT, MAX_EVENT_BYTES, column_of, key_fields, quoted, selected, shape_of
from siftline.spark.worker.live import StreamMatcher
from siftline.spark.worker.matcher import PAIRS, TOP

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from siftline.spark.worker.counts import Counts
    from siftline.spark.worker.events import Shape

_NOTIFICATION: Final = "notification"
# Columns that exist while duplicates are removed: the keys, and a unique text for events whose keys are unknown.
_KEY: Final = "_siftline_key_"
_UNKNOWN: Final = "_siftline_unknown"


def stream(
    events: Any,
    index: str | os.PathLike[str],
    *,
    key: str | Sequence[str] = "id",
    event: str | Sequence[str] | None = EVENT,
    how: str = PAIRS,
    k: int = 10,
    weights: bool = False,
    notification: bool = False,
    time: str | None = None,
    late: str | None = None,
    dead_letters: str | os.PathLike[str] | None = None,
    fail_above: int | float | None = None,
    counts: Counts | None = None,
    max_event_bytes: int = MAX_EVENT_BYTES,
    operators: Sequence[str] = (),
) -> Any:
    """Return a streaming DataFrame of the subscriptions that each event satisfies, as of its micro-batch.

    Parameters
    ----------
    events : streaming DataFrame
        One event per row.
    index : str or path
        An index directory, which all machines can read and write under the same path. Each micro-batch uses the
        subscriptions as they are when it starts, with all earlier changes of `compile`, `apply` and `compact`.
    key, event, how, k, weights, counts, max_event_bytes, operators
        As for `match`.
    notification : bool
        Whether to add a column `notification`: a name for the pair of event (by its keys) and subscription, which is
        always the same, for receivers that may get a match twice.
    time, late : str, optional
        A column with the time of an event, and how late an event may be, such as "10 minutes". Spark drops later ones,
        and counts them in the progress of the query (`numRowsDroppedByWatermark`). It also drops duplicates: events
        whose keys came already within that time. Events with a null in a key have no duplicates.
    dead_letters : str or path, optional
        A folder for unreadable events: Parquet files with keys, event and reason, in a sub-folder `run=<query>-<batch>`
        for each micro-batch. "ignore" leaves such events out. Without either, one of them ends the query.
    fail_above : int or float, optional
        More dead letters in a micro-batch than this number (an int), or a greater share of its events than this (a
        float), end the query. A share needs a shuffle of the events.

    Returns
    -------
    DataFrame
        To be written by `writeStream` with a checkpoint. Every match is written to Parquet and JSON files exactly once,
        even if the job is killed at any moment and restarted; `foreachBatch` may be called twice for the same batch,
        with the same rows.

    Raises
    ------
    TableError
        If the DataFrame is not a stream, if a column is missing, or if its type cannot hold events.
    SnapshotError
        If the index cannot be opened.

    Examples
    --------
    >>> matches = stream(events, "/data/index", key="id")                  # doctest: +SKIP
    >>> query = matches.writeStream.format("parquet").start(               # doctest: +SKIP
    ...     "/data/matches", checkpointLocation="/data/checkpoint")
    """
    if not events.isStreaming:
        raise TableError("the events are not a stream; use match")
    if (time is None) != (late is None):
        raise ValueError("time and late go together")
    if notification and how not in (PAIRS, TOP):
        raise ValueError(f"how={how!r} has no notifications")
    directory = IndexDirectory.open(local_path(index))
    shape = shape_of(events.schema, key, event, max_event_bytes)
    letters = letters_of(dead_letters, counts, fail_above)
    if time is not None and late is not None:
        events = _once(events.withWatermark(_top_level(events, time), late), shape)
    rows, letters = with_counted_tasks(selected(events, shape), letters)
    matcher = matcher_of(directory, shape, how, k, weights, letters, operators)
    schema = result_schema(key_fields(rows, shape), matcher)
    found = rows.mapInArrow(function_of(StreamMatcher(matcher, str(directory.path))), schema)
    return _named(found, [*shape.keys, "subscription"]) if notification else found


def _top_level(events: Any, time: str) -> str:
    """Return the quoted name of the column with the time of events; Spark accepts no field of a struct here."""
    found = column_of(events.schema, time)
    if found is None or len(found.path) > 1:
        raise TableError(f"time={time!r}: there is no such column; there are {', '.join(events.columns)}")
    return quoted(*found.path)


def _once(events: Any, shape: Shape) -> Any:
    """Drop events whose keys came before; an event with a null in a key is never a duplicate."""
    from pyspark.sql import functions

    keys = [functions.col(quoted(*path)) for path in shape.paths[: len(shape.keys)]]
    named = {f"{_KEY}{number}": key for number, key in enumerate(keys)}
    has_null = functions.greatest(*(key.isNull() for key in keys), functions.lit(False))
    named[_UNKNOWN] = functions.when(has_null, functions.uuid())
    return events.withColumns(named).dropDuplicatesWithinWatermark(list(named)).drop(*named)


def _named(found: Any, columns: Sequence[str]) -> Any:
    """Add a name for each row, from some columns."""
    from pyspark.sql import functions

    names = [quoted(name) for name in columns]
    return found.withColumn(_NOTIFICATION, functions.md5(functions.to_json(functions.struct(*names))))
