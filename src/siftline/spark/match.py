"""match: a table of events and an index in, a table of matches out."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import TableError
from siftline.operators.modules import module_names
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.session import is_connect, tasks_at_a_time
from siftline.spark.worker.dead_letters import DeadLetters
from siftline.spark.worker.events import EVENT, MOST_EVENT_BYTES, key_fields, selected, shape_of
from siftline.spark.worker.learning import Learning, merge
from siftline.spark.worker.live import LiveMatcher, state_of
from siftline.spark.worker.matcher import COUNTS, HOW, LISTS, PAIRS, TOP, Matcher
from siftline.subscriptions import checked_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.spark.worker.counts import Counts
    from siftline.spark.worker.events import Shape
    from siftline.spark.worker.live import State

AUTO, REPLICATED, SHARDED = "auto", "replicated", "sharded"
PLANS: Final = (AUTO, REPLICATED, SHARDED)

# The columns of the result beside the keys.
_COLUMNS: Final = {PAIRS: ("subscription",), LISTS: ("subscriptions",), COUNTS: ("matches",), TOP: ("subscription",)}
_WEIGHT: Final = "weight"


def match(
    events: Any,
    index: str | IndexDirectory,
    *,
    key: str | Sequence[str] = "id",
    event: str | Sequence[str] | None = EVENT,
    how: str = PAIRS,
    k: int = 10,
    weights: bool = False,
    plan: str = AUTO,
    dead_letters: str | os.PathLike[str] | None = None,
    fail_above: int | float | None = None,
    counts: Counts | None = None,
    max_event_bytes: int = MOST_EVENT_BYTES,
    operators: Sequence[str] = (),
    now: Any = None,
) -> Any:
    """Return a DataFrame of the subscriptions that each event satisfies.

    Parameters
    ----------
    events : pyspark.sql.DataFrame
        A row an event; not a stream, for which there is `stream`.
    index : str or IndexDirectory
        The path of an index directory that `compile` made; workers must be able to read it under the same path. Changes
        since (`apply`) count too, as of now; a version that was opened (`IndexDirectory`) is taken as it is.
    key : str or sequence of str
        The columns that name an event in the result, as it is or with a null. `a.b` is the column of that name, or else
        the field b of the struct a, which is named b in the result; backticks quote a part, as in Spark.
    event : str, pair of str, or None
        The column that holds whole events, as JSON text (string or binary), map, struct or array of structs of name and
        value; two columns, an array of names and one of values; or None: every column but the keys is an attribute.
        The last is also taken if there is no column `event` and nothing else was said.
    how : str
        `pairs`: (key, subscription), a row for each match. `arrays`: (key, subscriptions), a row for each event.
        `counts`: (key, matches), a row for each event. `top-k`: (key, subscription, weight), the best of each event.
    k : int
        For `top-k`: so many for each event, by weight descending, then id ascending.
    weights : bool
        Whether `pairs` have a column `weight`.
    plan : str
        `replicated`: every machine maps the whole index. `sharded`: each shard is matched by tasks of its own, which
        get only the events that may match there. `auto`: sharded if the index is larger than half of the memory here.
    dead_letters : str or path, optional
        A folder for the events that cannot be read: Parquet files with keys, event and reason, in a new sub-folder
        `run=...` for each call. "ignore" leaves such events out. Without either, one of them fails the job.
    fail_above : int or float, optional
        More dead letters than this number (an int), or a greater share of all events than this (a float), fail the job
        when it runs; they are in the folder then. A share takes another shuffle of the events if they come out of one.
    counts : Counts, optional
        Counts events, matches and dead letters.
    max_event_bytes : int
        Larger JSON texts are not read.
    operators : sequence of str
        Modules, or .py files, that define operators; those that the index was compiled with need not be named again.
    now : datetime or str, optional
        The instant that `now()` means; if left out, that of this call, also if the result is computed later or twice.

    Raises
    ------
    TableError
        If a column is missing, or has a type that holds no events; if the events are a stream.
    SnapshotError
        If the index cannot be opened. A shard that is damaged is only found by the worker that opens it.
    EventError
        When the job runs (Spark wraps it then): if an event cannot be read, or if too many cannot.

    Examples
    --------
    >>> matches = match(events, "/data/index", key="id")                   # doctest: +SKIP
    >>> matches.groupBy("subscription").count().show()                     # doctest: +SKIP
    """
    if events.isStreaming:
        raise TableError(
            "the events are a stream, and `match` would never see a change of the subscriptions; use `stream`"
        )
    directory = index if isinstance(index, IndexDirectory) else IndexDirectory.open(index)
    _check_choice("plan", plan, PLANS)
    shape = shape_of(events.schema, key, event, max_event_bytes)
    rows, letters = with_counted_tasks(selected(events, shape), letters_of(dead_letters, counts, fail_above))
    matcher = matcher_of(directory, shape, how, k, weights, letters, operators, now=now)
    schema = result_schema(key_fields(rows, shape), matcher)
    state, is_changed = state_for(index, directory)
    directory.share(events.sparkSession)
    if plan == SHARDED or (plan == AUTO and _is_too_large(directory)):
        from siftline.spark.worker.sharded import match_sharded

        return match_sharded(rows, directory, state, matcher, schema, is_changed=is_changed)
    stage = LiveMatcher(matcher, directory.reference, state) if is_changed else matcher
    return rows.mapInArrow(function_of(stage), schema)


def letters_of(
    dead_letters: str | os.PathLike[str] | None, counts: Counts | None, fail_above: int | float | None
) -> DeadLetters:
    """Return what becomes of events that cannot be read."""
    return DeadLetters(None if dead_letters is None else os.fspath(dead_letters), counts, fail_above)


def with_counted_tasks(rows: Any, letters: DeadLetters) -> tuple[Any, DeadLetters]:
    """Return events, and their dead letters with the number of tasks that read them, if a share must be known."""
    if not letters.needs_tasks:
        return rows, letters
    n_tasks = None if is_connect(rows.sparkSession) or rows.isStreaming else _known_tasks(rows)
    if n_tasks is None:
        n_tasks = tasks_at_a_time(rows.sparkSession)
        rows = rows.repartition(n_tasks)  # a number that Spark does not change when it runs
    return rows, replace(letters, n_tasks=n_tasks)


def _known_tasks(rows: Any) -> int | None:
    """Return how many partitions there will be; None if Spark decides it when it runs, as behind a shuffle."""
    plan = rows._jdf.queryExecution().executedPlan()
    return None if plan.nodeName().startswith("Adaptive") else int(plan.execute().getNumPartitions())


def state_for(index: str | IndexDirectory, directory: IndexDirectory) -> tuple[State, bool]:
    """Return how far an index has come, now or when it was opened by the caller, and whether it is not as compiled."""
    state = state_of(directory)
    if directory is index:
        state = state._replace(delta=directory.delta)
    return state, state.delta > directory.delta or len(directory.ends) > 0


def matcher_of(
    directory: IndexDirectory,
    shape: Shape,
    how: str,
    k: int,
    weights: bool,
    letters: DeadLetters,
    operators: Sequence[str] = (),
    now: Any = None,
) -> Matcher:
    """Return what workers have to know to match with a version of an index; what earlier ones learned is merged."""
    _check_choice("how", how, HOW)
    if not shape.keys:
        raise TableError("there must be a key column at least: key='id'")
    merge(directory.path)
    return Matcher(
        shape=shape,
        shards=directory.shard_references(),
        are_ids_text=directory.id_type == "string",
        how=how,
        k=_checked_k(k) if how == TOP else None,
        has_weights=_has_weights(how, weights),
        dead_letters=letters,
        learning=Learning(directory.learning_path),
        operators=module_names([*directory.operators, *operators]),
        now=time.time_ns() if now is None else checked_now(now),
    )


def function_of(stage: Any) -> Any:
    """Return a function, as Spark looks at its signature; the class would be one too."""

    def matched(batches: Any) -> Any:
        return stage(batches)

    return matched


def result_schema(keys: Sequence[Any], matcher: Matcher) -> Any:
    """Return the schema of the matches: the keys as they are, and what `how` says."""
    from pyspark.sql import types

    shape = matcher.shape
    id_type = types.StringType() if matcher.are_ids_text else types.LongType()
    value_types = {PAIRS: id_type, TOP: id_type, LISTS: types.ArrayType(id_type), COUNTS: types.LongType()}
    fields = list(keys)
    names = [*_COLUMNS[matcher.how], *([_WEIGHT] if matcher.has_weights else [])]
    for name in names:
        if name in shape.keys:
            raise TableError(f"a key column is named {name!r} like a column of the result; rename it")
    fields.append(types.StructField(names[0], value_types[matcher.how]))
    if matcher.has_weights:
        fields.append(types.StructField(_WEIGHT, types.DoubleType()))
    return types.StructType(fields)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


def _checked_k(k: object) -> int:
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise ValueError(f"k must be a number from 1 on, not {k!r}")
    return k


def _has_weights(how: str, asked: bool) -> bool:
    if asked and how in (LISTS, COUNTS):
        raise ValueError(f"how={how!r} has no weights")
    return asked or how == TOP


def _is_too_large(directory: IndexDirectory) -> bool:
    n_bytes: int = sum(shard.bytes for shard in directory.shards)
    return len(directory.shards) > 1 and n_bytes > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
