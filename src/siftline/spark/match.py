"""match and match_files: match a table of events with an index, as a DataFrame or as Parquet files.

`match` only plans: it writes nothing, neither into the index nor beside it, until the DataFrame is computed.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.engine.arguments import checked_now
from siftline.errors import TableError
from siftline.operators.modules import module_names
from siftline.spark.directory.state import state_of
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.runtime.failures import own_errors
from siftline.spark.runtime.sessions import is_connect, session, tasks_at_a_time
from siftline.spark.runtime.tasks import function_of
from siftline.spark.worker.dead_letters import DeadLetters
from siftline.spark.worker.event_files import event_files, key_columns, mounted, task_rows
from siftline.spark.worker.events import EVENT, MAX_EVENT_BYTES, key_fields, selected, shape_of
from siftline.spark.worker.file_matching import WRITTEN, FileMatcher, MatchesDraft, key_types
from siftline.spark.worker.learning import Learning
from siftline.spark.worker.live import LiveMatcher
from siftline.spark.worker.matcher import COUNTS, HOW, LISTS, PAIRS, TOP, Matcher
from siftline.spark.worker.sharded import match_sharded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.spark.directory.state import State
    from siftline.spark.worker.counts import Counts
    from siftline.spark.worker.events import Shape

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
    max_event_bytes: int = MAX_EVENT_BYTES,
    operators: Sequence[str] = (),
    now: Any = None,
) -> Any:
    """Return a DataFrame of the subscriptions that each event satisfies.

    Parameters
    ----------
    events : pyspark.sql.DataFrame
        One event per row; for a stream, use `stream`.
    index : str or IndexDirectory
        The path of an index directory of `compile`; workers must be able to read it under the same path. Later changes
        (`apply`) are included, as of now; an opened version (`IndexDirectory`) is used as it is.
    key : str or sequence of str
        The columns that identify an event in the result; they may be null. `a.b` is the column of that name, or else
        the field b of the struct a, which is named b in the result; backticks quote a part, as in Spark.
    event : str, pair of str, or None
        The column that holds whole events, as JSON text (string or binary), map, struct or array of structs of name and
        value; two columns, an array of names and one of values; or None: every column except the keys is an attribute.
        The default also means this if there is no column `event`.
    how : str
        `pairs`: (key, subscription), a row for each match. `arrays`: (key, subscriptions), a row for each event.
        `counts`: (key, matches), a row for each event. `top-k`: (key, subscription, weight), the best of each event.
    k : int
        For `top-k`: how many for each event, by weight descending, then id ascending.
    weights : bool
        Whether `pairs` have a column `weight`.
    plan : str
        `replicated`: every machine maps the whole index. `sharded`: each shard is matched by its own tasks, which
        get only the events that may match there. `auto`: sharded if the index is larger than half of the memory here.
    dead_letters : str or path, optional
        A folder for unreadable events: Parquet files with keys, event and reason, in a new sub-folder `run=...` for
        each call. "ignore" leaves such events out. Without either, one of them fails the job.
    fail_above : int or float, optional
        More dead letters than this number (an int), or a greater share of all events than this (a float), fail the job
        when it runs; they are in the folder then. A share needs another shuffle if the events come from a shuffle.
    counts : Counts, optional
        Counts events, matches and dead letters.
    max_event_bytes : int
        Larger JSON texts are not read.
    operators : sequence of str
        Modules, or .py files, that define operators; those of the index need not be named again.
    now : datetime or str, optional
        The value of `now()`; by default the time of this call, even if the result is computed later or twice.

    Raises
    ------
    TableError
        If a column is missing, or its type cannot hold events; if the events are a stream.
    SnapshotError
        If the index cannot be opened. A damaged shard is only found by the worker that opens it.
    EventError
        When the job runs (Spark wraps it then): if an event is unreadable, or too many are.

    Examples
    --------
    >>> matches = match(events, "/data/index", key="id")                   # doctest: +SKIP
    >>> matches.groupBy("subscription").count().show()                     # doctest: +SKIP
    """
    if events.isStreaming:
        raise TableError(
            "the events are a stream, in which `match` would never apply a change of the subscriptions; use `stream`"
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
        return match_sharded(rows, directory, state, matcher, schema, is_changed=is_changed)
    stage = LiveMatcher(matcher, directory.reference, state) if is_changed else matcher
    return rows.mapInArrow(function_of(stage), schema)


class Written(NamedTuple):
    """The result of `match_files`."""

    path: str
    files: int
    rows: int


def match_files(
    events: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    index: str | IndexDirectory,
    target: str | os.PathLike[str],
    *,
    key: str | Sequence[str] = "id",
    event: str | Sequence[str] | None = EVENT,
    how: str = PAIRS,
    k: int = 10,
    weights: bool = False,
    dead_letters: str | os.PathLike[str] | None = None,
    fail_above: int | float | None = None,
    counts: Counts | None = None,
    max_event_bytes: int = MAX_EVENT_BYTES,
    operators: Sequence[str] = (),
    now: Any = None,
) -> Written:
    """Match the events in Parquet files, and write the matches as Parquet files into a new folder.

    The matches are those of `match`, but workers read and write the files themselves (`worker/file_matching.py`).

    Parameters
    ----------
    events : str, path, or a sequence of these
        Files and folders of Parquet, which workers can read under the same path. Folders named after values, such as
        `day=2026-11-17`, are columns, as in Spark. Files may have different columns: missing ones are null.
    index : str
        As for `match`; every machine maps the whole index.
    target : str or path
        A folder that does not exist yet, which workers can write to under the same path.
    key, event, how, k, weights, dead_letters, fail_above, counts, max_event_bytes, operators, now
        As for `match`.

    Returns
    -------
    Written
        The number of files and rows.

    Raises
    ------
    SparkError
        If the target exists, or the events do not.
    TableError, SnapshotError
        As for `match`; also if the folder is a table of Delta Lake, Iceberg or Hudi, of which not all files are valid.
    EventError
        If an event is unreadable, or too many are; nothing is written then.
    StorageError
        If a file cannot be read or written.

    Examples
    --------
    >>> match_files("/data/events", "/data/index", "/data/matches")          # doctest: +SKIP
    Written(path='/data/matches', files=8, rows=265041)
    """
    spark = session()
    directory = index if isinstance(index, IndexDirectory) else IndexDirectory.open(index)
    folder = mounted(target, "matches")
    files = event_files(spark, [events] if isinstance(events, (str, os.PathLike)) else events)
    shape = shape_of(files.schema, key, event, max_event_bytes)
    reader = files.reader(shape)
    n_tasks = files.n_tasks(tasks_at_a_time(spark))
    letters = replace(letters_of(dead_letters, counts, fail_above), n_tasks=n_tasks)
    matcher = matcher_of(directory, shape, how, k, weights, letters, operators, now=now)
    schema = result_schema(key_columns(files, shape), matcher)
    state, is_changed = state_for(index, directory)
    stage = LiveMatcher(matcher, directory.reference, state) if is_changed else matcher
    directory.share(spark)
    with MatchesDraft(folder) as draft, own_errors(str(folder)):
        found: list[Any] = []
        if files.groups:
            work = function_of(FileMatcher(stage, reader, key_types(schema, len(shape.keys)), str(draft.folder)))
            found = task_rows(spark, files, n_tasks).mapInArrow(work, WRITTEN).collect()
        draft.commit({row.file for row in found}, schema)
    return Written(str(folder), len(found), sum(row.rows for row in found))


def letters_of(
    dead_letters: str | os.PathLike[str] | None, counts: Counts | None, fail_above: int | float | None
) -> DeadLetters:
    """Return how the job handles unreadable events."""
    return DeadLetters(None if dead_letters is None else os.fspath(dead_letters), counts, fail_above)


def with_counted_tasks(rows: Any, letters: DeadLetters) -> tuple[Any, DeadLetters]:
    """Return events, and their dead letters with the number of tasks that read them, if a share needs that number."""
    if not letters.needs_tasks:
        return rows, letters
    n_tasks = None if is_connect(rows.sparkSession) or rows.isStreaming else _known_tasks(rows)
    if n_tasks is None:
        n_tasks = tasks_at_a_time(rows.sparkSession)
        rows = rows.repartition(n_tasks)  # Spark does not change this number when the job runs
    return rows, replace(letters, n_tasks=n_tasks)


def _known_tasks(rows: Any) -> int | None:
    """Return the number of partitions; None if Spark decides it when the job runs, as after a shuffle."""
    plan = rows._jdf.queryExecution().executedPlan()
    return None if plan.nodeName().startswith("Adaptive") else int(plan.execute().getNumPartitions())


def state_for(index: str | IndexDirectory, directory: IndexDirectory) -> tuple[State, bool]:
    """Return the state of an index, now or as it was opened, and whether it differs from its version."""
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
    """Return the matcher for workers with a version of an index; nothing is written."""
    _check_choice("how", how, HOW)
    if not shape.keys:
        raise TableError("there must be a key column at least: key='id'")
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


def result_schema(keys: Sequence[Any], matcher: Matcher) -> Any:
    """Return the schema of the matches: the keys, and the columns of `how`."""
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
