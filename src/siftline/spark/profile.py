"""profile: collects statistics of events with Spark.

    in each task      for every attribute: how many events have it, a sample of its values, their smallest hashes
    over all tasks    the sums; of the samples, the values with the smallest random numbers; the smallest hashes

A sample by smallest random numbers is uniform, however the events are divided among tasks. The smallest hashes estimate
the number of different values (K minimum values): if the k-th smallest hash is at a fraction s of the range of hashes,
there are about (k - 1) / s values.
"""

from __future__ import annotations

import json
import random
from hashlib import blake2b
from heapq import heapify, heappushpop
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from siftline.encoding.domains import Domains
from siftline.encoding.events import EncodedEvents
from siftline.encoding.statistics import SAMPLE_SIZE, Statistics
from siftline.model import Event
from siftline.spark.runtime.tasks import partition
from siftline.spark.worker.dead_letters import IGNORE, DeadLetters
from siftline.spark.worker.events import EVENT, MAX_EVENT_BYTES, column_of, quoted, selected, shape_of
from siftline.spark.worker.reading import pieces, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from siftline.model import Leaf
    from siftline.spark.worker.counts import Counts
    from siftline.spark.worker.dead_letters import TaskLetters
    from siftline.spark.worker.events import Shape

# How many of the smallest hashes are kept: the error of the estimate is then about 6 %.
_KEPT_HASHES: Final = 256
# How many recent values of an attribute are remembered, so that they are not hashed again.
_RECENT_VALUES: Final = 4096
_COLLECTED: Final = pa.schema(
    [
        ("attribute", pa.string()),
        ("n", pa.int64()),
        ("sample", pa.list_(pa.struct([("chance", pa.float64()), ("value", pa.string())]))),
        ("hashes", pa.list_(pa.int64())),
    ]
)
_SCHEMA: Final = "attribute string, n bigint, sample array<struct<chance: double, value: string>>, hashes array<bigint>"
_HASH_RANGE: Final = 2.0**63


def profile(
    events: Any,
    *,
    key: str | Sequence[str] | None = "id",
    event: str | Sequence[str] | None = EVENT,
    seed: int = 0,
    counts: Counts | None = None,
) -> Statistics:
    """Collect statistics of events: how often attributes occur, samples of their values, how many are different.

    Parameters
    ----------
    events : pyspark.sql.DataFrame
        One event per row, in any form that `match` accepts. A sample of many events is enough: `events.sample(0.01)`.
    key : str or sequence of str, optional
        Columns that are not part of the event, if they exist.
    event : str, pair of str, or None
        As for `match`.
    seed : int
        The seed of the samples.
    counts : Counts, optional
        Counts events, and unreadable ones (`dead_letters`), which are left out.

    Returns
    -------
    Statistics
        Statistics of all readable events, for `compile` and for inspection: `frequency`, `histogram`, `n_distinct`,
        `common`.
    """
    names = (key,) if isinstance(key, str) else tuple(key or ())
    if event is None or (event == EVENT and EVENT not in events.columns):
        keys = [column.path for name in names if (column := column_of(events.schema, name)) is not None]
        events = events.select(*(quoted(name) for name in events.columns if (name,) not in keys))
    shape = shape_of(events.schema, (), event, MAX_EVENT_BYTES)
    letters = DeadLetters(IGNORE, counts)
    collected = selected(events, shape).mapInArrow(_collector(shape, seed, letters), _SCHEMA)
    return _statistics(_summed(collected).collect())


def _summed(collected: Any) -> Any:
    from pyspark.sql import functions as f

    sample = f.slice(f.array_sort(f.flatten(f.collect_list("sample"))), 1, SAMPLE_SIZE)
    hashes = f.slice(f.array_sort(f.array_distinct(f.flatten(f.collect_list("hashes")))), 1, _KEPT_HASHES)
    return collected.groupBy("attribute").agg(
        f.sum("n").alias("n"), sample.getField("value").alias("sample"), hashes.alias("hashes")
    )


def _statistics(rows: list[Any]) -> Statistics:
    n_events = sum(row.n for row in rows if row.attribute is None)
    rows = sorted((row for row in rows if row.attribute is not None), key=lambda row: str(row.attribute))
    return Statistics(
        n_events,
        {row.attribute: row.n for row in rows},
        {row.attribute: [json.loads(text) for text in row.sample] for row in rows},
        {row.attribute: _estimate(row.hashes) for row in rows},
    )


def _estimate(hashes: list[int]) -> int:
    """Estimate how many different values there are."""
    if len(hashes) < _KEPT_HASHES:
        return len(hashes)
    return round((len(hashes) - 1) * _HASH_RANGE / hashes[-1])


def _collector(shape: Shape, seed: int, letters: DeadLetters) -> Any:
    def collect(batches: Iterable[Any]) -> Iterator[Any]:
        with letters.task(shape) as task:
            yield from _Collected(shape, random.Random(f"{seed} {partition()}")).all(batches, task)

    return collect


class _Collected:
    """The statistics of one task."""

    def __init__(self, shape: Shape, chance: random.Random) -> None:
        self._shape = shape
        self._chance = chance.random
        self._n_events = 0
        self._attributes: dict[str, _Attribute] = {}

    def all(self, batches: Iterable[Any], letters: TaskLetters) -> Iterator[Any]:
        """Return the rows for all events of a task."""
        nothing = Domains()
        for batch in batches:
            for piece in pieces(batch):
                # Without attributes, encoding only finds the unreadable events.
                good, encoded = readable(piece, self._shape, letters, lambda source: EncodedEvents(source, nothing))
                letters.count(good.num_rows, 0)
                for position in range(good.num_rows):
                    self._take(Event(encoded.source.tree(position)))
        yield pa.RecordBatch.from_pylist(self._rows(), _COLLECTED)

    def _take(self, event: Event) -> None:
        self._n_events += 1
        for path, leaves in event.leaves.items():
            attribute = self._attributes.get(path)
            if attribute is None:
                attribute = self._attributes[path] = _Attribute()
            attribute.n += 1
            for leaf in leaves:
                attribute.take(leaf, -self._chance())

    def _rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [{"attribute": None, "n": self._n_events, "sample": [], "hashes": []}]
        for path, seen in self._attributes.items():
            sample = [{"chance": -chance, "value": json.dumps(leaf)} for chance, _, leaf in seen.sample]
            rows.append(
                {"attribute": path, "n": seen.n, "sample": sample, "hashes": [-number for number in seen.hashes]}
            )
        return rows


class _Attribute:
    """The statistics of one attribute in one task; the heaps have negated numbers, so that the greatest come first."""

    __slots__ = ("hashes", "known", "n", "n_values", "sample")

    def __init__(self) -> None:
        self.n = self.n_values = 0
        self.sample: list[tuple[float, int, Leaf]] = []
        self.hashes: list[int] = []
        self.known: set[tuple[bool, Leaf]] = set()

    def take(self, leaf: Leaf, chance: float) -> None:
        """Add a value."""
        if isinstance(leaf, float) and leaf.is_integer():
            leaf = int(leaf)  # the same value, and the same hash
        self.n_values += 1
        if len(self.sample) < SAMPLE_SIZE:
            self.sample.append((chance, self.n_values, leaf))
            if len(self.sample) == SAMPLE_SIZE:
                heapify(self.sample)
        elif chance > self.sample[0][0]:
            heappushpop(self.sample, (chance, self.n_values, leaf))
        key = isinstance(leaf, bool), leaf
        if key not in self.known:
            self._take_new(key, leaf)

    def _take_new(self, key: tuple[bool, Leaf], leaf: Leaf) -> None:
        if len(self.known) >= _RECENT_VALUES:
            self.known.clear()
        self.known.add(key)
        digest = blake2b(json.dumps(leaf).encode("ascii"), digest_size=8).digest()
        smallest = -(int.from_bytes(digest, "big") >> 1)
        if smallest in self.hashes:
            return
        if len(self.hashes) < _KEPT_HASHES:
            self.hashes.append(smallest)
            if len(self.hashes) == _KEPT_HASHES:
                heapify(self.hashes)
        elif smallest > self.hashes[0]:
            heappushpop(self.hashes, smallest)
