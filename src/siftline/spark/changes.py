"""Deltas: what changed since a version was compiled, in small numbered files beside it.

    deltas/7.json   {"time": ..., "changes": [["put", "ann", "price <= 600", 1.0, null],
                                              ["remove", "bob"],
                                              ["end", "eve", 1794824320000000]]}

A version has all deltas up to a number; the later ones go on top, in order, so that (version, delta) names one state of
the subscriptions for ever. `apply` writes the next delta in one step; the next micro-batch of a stream sees it.

A `put` gives a subscription its whole content, whether it was there or not, so changes may come twice. An `end` lets
one end at a time (microseconds since 1970) and leaves its content alone; one that is over by the time of the delta
stays over, so that it makes no difference whether `compact` has dropped it by then.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from siftline.errors import SnapshotError, SparkError, StorageError, SubscriptionError, TableError
from siftline.ids import plain_id
from siftline.operators.modules import load_modules
from siftline.spark.directory.documents import read_document, write_document
from siftline.spark.directory.versions import IndexDirectory, delta_file, last_delta
from siftline.spark.runtime.paths import local_path
from siftline.spark.worker.subscriptions import LANGUAGES, PREDICATES, SOURCES, parsed_text, refusal
from siftline.storage.files import File, named_errors
from siftline.storage.rows import Change, microseconds

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from siftline.subscriptions import Id

PUT, REMOVE, END = "put", "remove", "end"
# What a change may be called: as an order, or as the feed of a store reports it.
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
_INT64: Final = range(-(2**63), 2**63)
# How long to wait for others who are writing a delta, which takes milliseconds.
_WAIT_SECONDS: Final = 30.0


class Refused(NamedTuple):
    """A change that was not made, and why."""

    id: Any
    expression: str | None
    reason: str


class Delta(NamedTuple):
    """Changes that take effect together.

    Attributes
    ----------
    number : int
        Of the delta; the state of an index is a version with all deltas up to a number.
    time : int
        When it was written, in microseconds since 1970.
    changes : list of list
        As above.
    refused : list of Refused
        What was left out.
    marks : dict
        How far each source of changes has been followed.
    """

    number: int
    time: int
    changes: list[list[Any]]
    refused: list[Refused]
    marks: dict[str, int]


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
        `change` (add, replace, remove or expire; add if left out), `subscription`, `expression`, `weight`, `expires`,
        in order; rows of a DataFrame have none, unless there is a column `sequence`. `add` and `replace` give the
        whole content of a subscription; with `expire` one ends at `expires`, or at once.
    language : str, optional
        Of the expressions, if it shall not be guessed; a column `language` goes before it.
    source, sequence : str and int, optional
        Where the changes come from, and the number of the last one: what a source has delivered already is not applied
        again. Changes that have a number themselves (`sequence`) are looked at one by one.
    now : int, optional
        The time of the delta, in microseconds since 1970.

    Returns
    -------
    Delta
        Its `refused` has what was left out, with reasons.

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
    is_text = directory.id_type == "string"
    checked = _checked(rows_of(changes), language, is_text)
    with _turn(folder):
        number, marks = last_delta(folder)
        moment = time.time_ns() // 1000 if now is None else now
        mark = -1 if source is None else marks.get(source, -1)
        new = [outcome for place, outcome in checked if source is None or place is None or place > mark]
        good = [outcome for outcome in new if not isinstance(outcome, Refused)]
        refused = [outcome for outcome in new if isinstance(outcome, Refused)]
        is_known = sequence is not None and mark >= sequence
        if is_known or (source is None and not good):
            return Delta(number, moment, [], refused, marks)
        if source is not None and sequence is not None:
            marks = {**marks, source: sequence}
        delta = Delta(number + 1, moment, good, refused, marks)
        write_document(delta_file(folder, delta.number), {k: v for k, v in delta._asdict().items() if k != "number"})
        return delta


def read_delta(folder: Path, number: int) -> Delta:
    """Return a delta that was written."""
    file = delta_file(folder, number)
    if not file.is_file():
        raise SnapshotError(f"the index {folder} lacks its delta {number}: there is no {file}")
    document = read_document(file)
    try:
        refused = [Refused(*row) for row in document["refused"]]
        return Delta(number, document["time"], document["changes"], refused, document["marks"])
    except (KeyError, TypeError) as error:
        raise SnapshotError(f"{file} is damaged: {error!r}") from None


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Let one at a time write a delta."""
    with named_errors(folder / "deltas", "written"):
        (folder / "deltas").mkdir(exist_ok=True)
    file = File.opened(folder / "deltas" / "lock", is_new=True)
    end = time.monotonic() + _WAIT_SECONDS
    try:
        while not _is_locked(file):
            if time.monotonic() > end:
                raise SparkError(f"{folder}: others have been writing deltas for {_WAIT_SECONDS:.0f} s")
            time.sleep(0.005)
        yield
    finally:
        file.close()


def _is_locked(file: File) -> bool:
    try:
        file.lock()
    except StorageError:
        return False
    return True


# rows


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
        # A timestamp without a zone is meant in the zone of the session.
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


def _checked(
    rows: Iterable[Mapping[str, Any]], language: str | None, is_text: bool
) -> list[tuple[int | None, list[Any] | Refused]]:
    """Return each row as a change, or why it is none, with its number if it has one."""
    checked: list[tuple[int | None, list[Any] | Refused]] = []
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
    fits = isinstance(id, str) if is_text else isinstance(id, int) and not isinstance(id, bool) and id in _INT64
    if not fits:
        raise SubscriptionError(f"the ids of this index are {'strings' if is_text else 'integers'}, not {id!r}")
    return id  # type: ignore[no-any-return]


def _shown(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, str)) else repr(value)
