"""apply and compact: change the subscriptions of an index while streams and jobs run.

apply     changes → checked → the next delta beside the version (`directory/deltas.py`)
compact   a version and the deltas on top of it → the next version (`sharding/compaction.py`)
"""

from __future__ import annotations

import time
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from siftline.errors import SubscriptionError, TableError
from siftline.ids import INT64, plain_id
from siftline.operators.modules import load_modules
from siftline.spark.directory.deltas import END, PUT, REMOVE, Delta, Refused, delta_lock, last_delta, write_delta
from siftline.spark.directory.draft import Draft
from siftline.spark.directory.overlay import Overlay
from siftline.spark.directory.retention import RETENTION_PERIOD
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.runtime.paths import local_path
from siftline.spark.sharding.compaction import compacted_ends, compacted_shards
from siftline.spark.worker.subscriptions import LANGUAGES, PREDICATES, SOURCES, parsed_text, refusal
from siftline.storage.files import named_errors
from siftline.storage.rows import Change, microseconds

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from datetime import timedelta
    from pathlib import Path

    from siftline.ids import Id

    # The number of a change, if it has one, and the change, or why it is refused.
    _Checked = tuple[int | None, list[Any] | Refused]

# The names of changes: as users write them, and as the feed of a store reports them.
_KINDS: Final = {
    "add": PUT,
    "added": PUT,
    "replace": PUT,
    "replaced": PUT,
    "renewed": PUT,
    "remove": REMOVE,
    "removed": REMOVE,
    "expire": END,
    "expired": REMOVE,
}


def apply(
    path: str | os.PathLike[str],
    changes: Any,
    *,
    language: str | None = None,
    source: str | None = None,
    sequence: int | None = None,
    now: int | None = None,
) -> Delta:
    """Change the subscriptions of an index; running streams see it from their next micro-batch on.

    Parameters
    ----------
    path : str or path
        The index directory.
    changes : DataFrame, Arrow table, iterable of mappings or of changes of a store
        `change` (add, replace, remove or expire; by default add), `subscription`, `expression`, `weight`, `expires`, in
        order; rows of a DataFrame have no order, unless there is a column `sequence`. `add` and `replace` give the
        whole content of a subscription; with `expire` it ends at `expires`, or at once.
    language : str, optional
        The language of the expressions, if it is not to be detected; a column `language` overrides it.
    source, sequence : str and int, optional
        Where the changes come from, and the number of the last one: changes that a source has delivered before are not
        applied again. Changes that have their own number (`sequence`) are compared one by one.
    now : int, optional
        The time of the delta, in microseconds since 1970.

    Returns
    -------
    Delta
        Its `refused` has the changes that were left out, with reasons.

    Examples
    --------
    >>> apply("/data/index", [{"subscription": 7, "expression": "price < 9"},
    ...                       {"change": "remove", "subscription": 3}])          # doctest: +SKIP
    """
    folder = local_path(path)
    if language is not None and (language not in LANGUAGES or language == PREDICATES):
        raise ValueError(f"unknown language {language!r}")
    if (source is None) != (sequence is None):
        raise ValueError("source and sequence go together")
    directory = IndexDirectory.open(folder)
    load_modules(directory.operators)
    checked = _checked(rows_of(changes), language, directory.id_type == "string")
    with delta_lock(folder):
        moment = time.time_ns() // 1000 if now is None else now  # later deltas have later times
        delta, is_new = _next_delta(folder, checked, source, sequence, moment)
        if is_new:
            write_delta(folder, delta)
        return delta


def _next_delta(
    folder: Path, checked: list[_Checked], source: str | None, sequence: int | None, now: int
) -> tuple[Delta, bool]:
    """Return the delta of some changes, and whether it has to be written: a source may have delivered them before."""
    number, marks = last_delta(folder)
    mark = -1 if source is None else marks.get(source, -1)
    new = [outcome for place, outcome in checked if source is None or place is None or place > mark]
    accepted = [outcome for outcome in new if not isinstance(outcome, Refused)]
    refused = [outcome for outcome in new if isinstance(outcome, Refused)]
    is_known = sequence is not None and mark >= sequence
    if is_known or (source is None and not accepted):
        return Delta(number, now, [], refused, marks), False
    if source is not None and sequence is not None:
        marks = {**marks, source: sequence}
    return Delta(number + 1, now, accepted, refused, marks), True


def compact(
    path: str | os.PathLike[str], *, now: int | None = None, keep: timedelta = RETENTION_PERIOD
) -> IndexDirectory:
    """Merge all changes of an index into a new version, and return it; it needs no Spark.

    Streams and jobs may run meanwhile, and changes may be applied: later ones stay on top of the new version.
    Subscriptions that have ended by now are dropped.

    Parameters
    ----------
    path : str or path
        The index directory.
    now : int, optional
        Microseconds since 1970.
    keep : timedelta
        How long a replaced version is kept for the jobs that began before. The last three versions, and those that
        streams still need, are always kept.

    Raises
    ------
    SparkError
        If something is being compiled into the directory, or compacted, at this time.
    StorageError
        If something cannot be written.
    """
    moment = time.time_ns() // 1000 if now is None else now
    with Draft(path, keep) as draft, named_errors(draft.folder, "written"):
        directory = IndexDirectory.open(draft.path)
        load_modules(directory.operators)
        if draft.delta == directory.delta and not any(end <= moment for end in directory.ends["end"].to_pylist()):
            return directory
        overlay = Overlay(directory)
        overlay.advance(draft.delta)
        return draft.commit(
            compacted_shards(overlay, moment, draft.shards),
            id_type=directory.id_type,
            quarantined=directory.quarantined,
            statistics=directory.statistics,
            ends=compacted_ends(overlay, moment),
            operators=directory.operators,
            schedule=directory.schedule,
            compiled=directory.compiled if overlay.has_changes or directory.compiled < directory.delta else None,
        )


# rows of changes


def rows_of(changes: Any) -> Iterable[Mapping[str, Any]]:
    """Return changes as mappings, in order."""
    if hasattr(changes, "sparkSession"):
        changes = _collected(changes)
    if isinstance(changes, (pa.Table, pa.RecordBatch)):
        changes = changes.to_pylist()
    return [_mapping(change) if isinstance(change, Change) else change for change in changes]


def _collected(frame: Any) -> Any:
    """Return a DataFrame as an Arrow table, by sequence if there is one."""
    table = frame.toArrow()
    if "expires" in table.column_names and pa.types.is_timestamp(table["expires"].type):
        # A timestamp without a zone has the zone of the session.
        moments = table["expires"].cast(pa.timestamp("us"))
        if table["expires"].type.tz is None:
            moments = pc.assume_timezone(moments, frame.sparkSession.conf.get("spark.sql.session.timeZone"))
        table = table.set_column(table.column_names.index("expires"), "expires", moments.cast(pa.int64()))
    return table.sort_by("sequence") if "sequence" in table.column_names else table


def _mapping(change: Change) -> dict[str, Any]:
    """Return a change of a store as a row."""
    row: dict[str, Any] = {"sequence": change.sequence, "change": change.kind, "subscription": change.id}
    subscription = change.subscription
    if subscription is None:
        return row
    written = {"expression": subscription.written.text, "language": subscription.written.dialect}
    return {**row, **written, "weight": subscription.weight, "expires": subscription.expires}


def _checked(rows: Iterable[Mapping[str, Any]], language: str | None, is_text: bool) -> list[_Checked]:
    """Return each row as a change, or why it is refused, with its number if it has one."""
    checked: list[_Checked] = []
    for row in rows:
        if not hasattr(row, "get"):
            raise TableError(f"a change must be a mapping with a subscription, not {type(row).__name__}")
        id = row.get("subscription", row.get("id"))
        column = next((name for name in SOURCES if row.get(name) is not None), "expression")
        text = row.get(column)
        try:
            outcome: Any = _change(row, _checked_id(id, is_text), text, language or SOURCES[column])
        except SubscriptionError as error:
            outcome = Refused(_shown(id), _shown(text), str(error))
        checked.append((row.get("sequence"), outcome))
    return checked


def _change(row: Mapping[str, Any], id: Id, text: str | None, language: str | None) -> list[Any]:
    name = row.get("change") or "add"
    kind = _KINDS.get(name)
    if kind is None:
        raise SubscriptionError(f"unknown change {name!r}; there are add, replace, remove and expire")
    end = _microseconds(row.get("expires"))
    if kind == REMOVE or (kind == END and end is None):
        return [REMOVE, id]
    if kind == END:
        return [END, id, end]
    weight = row.get("weight")
    weight = 1.0 if weight is None else weight
    if isinstance(weight, bool) or not isinstance(weight, (int, float, Decimal)):
        raise SubscriptionError("the weight must be a number")
    reason = refusal(id, text, float(weight))
    if reason is not None:
        raise SubscriptionError(reason)
    if not isinstance(text, str):
        raise SubscriptionError(f"the expression must be text, not {type(text).__name__}")
    return [PUT, id, parsed_text(text, row.get("language") or language)[0], float(weight), end]


def _microseconds(moment: Any) -> int | None:
    """Return a time: a datetime or ISO 8601 text, both with a time zone, or microseconds already."""
    if type(moment) is int:
        return moment
    try:
        return microseconds(datetime.fromisoformat(moment) if isinstance(moment, str) else moment)
    except ValueError as error:
        raise SubscriptionError(f"expires: {error}") from None


def _checked_id(id: Any, is_text: bool) -> Id:
    if id is None:
        raise SubscriptionError("the id is null")
    id = plain_id(id)
    fits = isinstance(id, str) if is_text else isinstance(id, int) and not isinstance(id, bool) and id in INT64
    if not fits:
        raise SubscriptionError(f"the ids of this index are {'strings' if is_text else 'integers'}, not {id!r}")
    return id  # type: ignore[no-any-return]


def _shown(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, str)) else repr(value)
