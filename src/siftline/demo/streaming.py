"""The stream of the demo: files of events arrive one by one, and before each file some subscriptions change.

Each change is made for an event of the next file, which shows whether the change took effect:

    added      two conditions that the event satisfies       the pair must be in the output
    replaced   one more condition, which the event fails     the pair must not be in the output
    removed    a subscription that the event satisfies       the pair must not be in the output
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from siftline.demo.figures import Batch, Kind
from siftline.demo.samples import Chosen

if TYPE_CHECKING:
    from pathlib import Path

    from siftline.demo.catalogue import Shop

_N_FILES: Final = 20
# For each of the three kinds of changes, one event in this many has its subscription changed.
_EVENTS_PER_CHANGE: Final = 50
_MEANINGS: Final = {
    "added": "the event that it was made for was told",
    "replaced": "the event that it no longer wants was not told",
    "removed": "the event that it would have matched was not told",
}
_SCHEMA: Final = "id bigint, event string"


class Change(NamedTuple):
    """A change, and the event of the next file that shows whether it took effect."""

    kind: str
    event: int
    row: dict[str, Any]


class Streamed(NamedTuple):
    """The results of the stream."""

    batches: list[Batch]
    kinds: list[Kind]
    samples: list[Chosen]
    compact_seconds: float


def stream_with_changes(spark: Any, data: Path, index: str, shop: Shop, first: int) -> Streamed:
    """Stream all events from `first` on, while subscriptions change.

    `compact` merges the changes into the index once, after half of the files, while the stream runs.
    """
    from siftline.spark import apply, stream

    files = _Files(data, shop.events, first)
    events = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(files.incoming))
    target = str(data / "notifications")
    query = (
        stream(events, index)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(data / "checkpoint"))
        .start(target)
    )
    draft = _Changes(shop)
    made: list[list[Change]] = []
    with ThreadPoolExecutor(1) as background:
        try:
            for number, ids in enumerate(files.ids):
                changes = draft.for_events(ids)
                apply(index, [change.row for change in changes])
                made.append(changes)
                if number == len(files.ids) // 2:
                    merging = background.submit(_compact, index)
                files.deliver(ids)
                query.processAllAvailable()
            compact_seconds = merging.result()
            progress = [each for each in query.recentProgress if each["numInputRows"]]
        finally:
            query.stop()
    told = _told(target)
    kinds = [_kind(name, [change for each in made for change in each], told) for name in _MEANINGS]
    samples = _samples(made[: len(made) // 2 + 1], told)
    return Streamed(_batches(files.ids, made, progress, told), kinds, samples, compact_seconds)


def _compact(index: str) -> float:
    from siftline.spark import compact

    start = time.perf_counter()
    compact(index)
    return time.perf_counter() - start


class _Files:
    """Files of events, which appear one by one."""

    def __init__(self, data: Path, events: Any, first: int) -> None:
        self.incoming = data / "incoming"
        self.incoming.mkdir()
        self._data = data
        self._events = events
        ids = np.arange(first, len(events))
        self.ids = [part for part in np.array_split(ids, _N_FILES) if len(part)]

    def deliver(self, ids: Any) -> None:
        """Let a complete file appear at once."""
        draft = self._data / "arriving.parquet"
        pq.write_table(self._events.slice(int(ids[0]), len(ids)), draft)
        os.replace(draft, self.incoming / f"{ids[0]}.parquet")


class _Changes:
    """Makes changes; no subscription is changed twice."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._changed: set[int] = set()
        self._next_id = len(shop.subscriptions)

    def for_events(self, ids: Any) -> list[Change]:
        """Return changes for some of these events."""
        n_each = max(1, len(ids) // _EVENTS_PER_CHANGE)
        makers = [self._added] * n_each + [self._replaced] * n_each + [self._removed] * n_each
        made = (make(int(event)) for make, event in zip(makers, ids, strict=False))
        return [change for change in made if change is not None]

    def _added(self, event: int) -> Change:
        tree = self._tree(event)
        conditions = [_condition(name, tree[name]) for name in list(tree)[-2:]]
        id, self._next_id = self._next_id, self._next_id + 1
        return Change("added", event, {"change": "add", "subscription": id, "expression": " and ".join(conditions)})

    def _replaced(self, event: int) -> Change | None:
        id = self._planted(event)
        if id is None:
            return None
        name, value = next(iter(self._tree(event).items()))
        text = f"({self._shop.subscriptions['expression'][id].as_py()}) and not ({_condition(name, value)})"
        return Change("replaced", event, {"change": "replace", "subscription": id, "expression": text})

    def _removed(self, event: int) -> Change | None:
        id = self._planted(event)
        return None if id is None else Change("removed", event, {"change": "remove", "subscription": id})

    def _planted(self, event: int) -> int | None:
        """Return a subscription that an event satisfies and that has not been changed yet."""
        id = int(self._shop.planted[event])
        if id in self._changed:
            return None
        self._changed.add(id)
        return id

    def _tree(self, event: int) -> dict[str, Any]:
        tree: dict[str, Any] = json.loads(self._shop.events["event"][event].as_py())
        return tree


def _condition(name: str, value: Any) -> str:
    return f"{name} = '{value}'" if isinstance(value, str) else f"{name} between {value} and {value + 10}"


# results


def _told(target: str) -> set[tuple[int, int]]:
    """Return all pairs of event and subscription in the output.

    Spark's log of the sink says which files are valid; after a run without failures these are all files.
    """
    table = pq.read_table(target)
    return set(zip(table["id"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def _kind(name: str, changes: list[Change], told: set[tuple[int, int]]) -> Kind:
    made = [change for change in changes if change.kind == name]
    followed = sum(_is_told(change, told) == (name == "added") for change in made)
    return Kind(name, _MEANINGS[name], len(made), followed)


def _is_told(change: Change, told: set[tuple[int, int]]) -> bool:
    return (change.event, change.row["subscription"]) in told


def _samples(made: list[list[Change]], told: set[tuple[int, int]]) -> list[Chosen]:
    """Return the last added and the last replaced subscription, of those that are in the merged index."""
    titles = {
        "added": "Told by the stream: the wish was added just before",
        "replaced": "Not told by the stream: the wish was narrowed just before",
    }
    last = {change.kind: change for changes in made for change in changes if change.kind in titles}
    return [
        Chosen(titles[kind], change.event, change.row["subscription"], _is_told(change, told))
        for kind, change in sorted(last.items())
    ]


def _batches(ids: list[Any], made: list[list[Change]], progress: list[Any], told: set[tuple[int, int]]) -> list[Batch]:
    """Return the micro-batches, each of which had one file."""
    edges = [int(part[0]) for part in ids]
    found = np.bincount(np.searchsorted(edges, [event for event, _ in told], side="right"), minlength=len(ids) + 1)[1:]
    return [
        Batch(each["numInputRows"], each["durationMs"]["triggerExecution"] / 1000, int(n_found), len(changes))
        for each, n_found, changes in zip(progress, found, made, strict=True)
    ]
