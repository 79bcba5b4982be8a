"""What is known about events before they come: how often attributes occur, and with which values."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline.encoding.sources import source_of
from siftline.errors import SnapshotError
from siftline.model import Event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from siftline.model import Leaf

_FORMAT: Final = "siftline-statistics"
_VERSION: Final = 1
# Values kept per attribute, a uniform sample of all that were seen.
SAMPLE_SIZE: Final = 1024


class Statistics:
    """Attribute frequencies and a sample of values per attribute.

    Examples
    --------
    >>> statistics = Statistics.from_events([{"price": 5}, {"price": 7, "brand": "x"}])
    >>> statistics.n_events, statistics.frequency("price"), statistics.frequency("brand"), statistics.frequency("year")
    (2, 1.0, 0.5, 0.0)
    """

    def __init__(
        self,
        n_events: int,
        counts: dict[str, int],
        samples: dict[str, list[Leaf]],
        distinct: dict[str, int] | None = None,
    ) -> None:
        self.n_events = n_events
        self.counts = counts
        self.samples = samples
        # Estimates over all events, for attributes whose samples cannot tell.
        self.distinct = distinct or {}

    @classmethod
    def from_events(cls, events: Any, *, seed: int = 0) -> Statistics:
        """Collect statistics from events: dicts (a generator will do), or whatever `Engine.match_batch` takes."""
        statistics = cls(0, {}, {})
        chance = random.Random(seed)
        n_values: dict[str, int] = {}
        for tree in _trees(events):
            statistics.n_events += 1
            for path, leaves in Event(tree).leaves.items():
                statistics.counts[path] = statistics.counts.get(path, 0) + 1
                sample = statistics.samples.setdefault(path, [])
                for leaf in leaves:
                    n_values[path] = n_values.get(path, 0) + 1
                    _keep(sample, leaf, n_values[path], chance)
        return statistics

    def __repr__(self) -> str:
        return f"<siftline.Statistics: {self.n_events:,} events, {len(self.counts):,} attributes>"

    def frequency(self, path: str) -> float:
        """Return the share of events that carry the attribute."""
        return self.counts.get(path, 0) / self.n_events if self.n_events else 0.0

    def histogram(self, path: str, n_bins: int = 10) -> list[tuple[Leaf, Leaf, float]]:
        """Return equally full bins (least value, greatest value, share of the values), numbers before strings.

        They come from the sample; nulls and booleans are left out.

        >>> Statistics.from_events({"n": n} for n in range(100)).histogram("n", 4)
        [(0, 24, 0.25), (25, 49, 0.25), (50, 74, 0.25), (75, 99, 0.25)]
        """
        if type(n_bins) is not int or n_bins < 1:
            raise ValueError(f"n_bins must be a positive number of bins, not {n_bins!r}")
        sample = self.samples.get(path, [])
        numbers = sorted(leaf for leaf in sample if isinstance(leaf, (int, float)) and not isinstance(leaf, bool))
        ordered: list[Leaf] = [*numbers, *sorted(leaf for leaf in sample if isinstance(leaf, str))]
        size = max(1, -(-len(ordered) // n_bins))
        bins = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        return [(part[0], part[-1], len(part) / len(sample)) for part in bins]

    def n_distinct(self, path: str) -> int:
        """Return about how many different values the attribute has: those of the sample, if nothing else is known.

        >>> Statistics.from_events({"n": n % 7} for n in range(100)).n_distinct("n")
        7
        """
        return self.distinct.get(path) or len(Counter(map(_kind_and_leaf, self.samples.get(path, ()))))

    def common(self, path: str, n: int = 10) -> list[tuple[Leaf, float]]:
        """Return the n most common values of the attribute in the sample, and their shares: how skewed it is.

        >>> Statistics.from_events([{"n": 1}, {"n": 1}, {"n": 2}, {"n": 1}]).common("n")
        [(1, 0.75), (2, 0.25)]
        """
        sample = self.samples.get(path, [])
        counts = Counter(map(_kind_and_leaf, sample)).most_common(n)
        return [(leaf, count / len(sample)) for (_, leaf), count in counts]

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as a JSON-ready document."""
        return {"format": _FORMAT, "version": _VERSION, **vars(self)}

    @classmethod
    def from_dict(cls, document: Any) -> Statistics:
        """Return the statistics that `to_dict` described."""
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise SnapshotError("this document holds no statistics")
        if document.get("version") != _VERSION:
            raise SnapshotError(
                f"the statistics are of version {document.get('version')!r}; this Siftline reads {_VERSION}"
            )
        try:
            return cls(document["n_events"], document["counts"], document["samples"], document.get("distinct"))
        except KeyError as error:
            raise SnapshotError(f"the statistics lack {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the statistics as JSON."""
        Path(path).write_text(json.dumps(self.to_dict()), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Statistics:
        """Read statistics that `save` wrote."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except (ValueError, SnapshotError) as error:
            raise SnapshotError(f"{path}: {error}") from None


def _kind_and_leaf(leaf: Leaf) -> tuple[bool, Leaf]:
    return isinstance(leaf, bool), leaf  # True is not 1


def _trees(events: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(events, Iterator):
        yield from events  # one at a time: a log may be larger than memory
        return
    source = source_of(events, event=None, is_one=False)
    yield from (source.tree(position) for position in range(len(source)))


def _keep(sample: list[Leaf], leaf: Leaf, n_seen: int, chance: random.Random) -> None:
    """Keep a uniform sample: the n-th value replaces a random one with probability size / n."""
    if len(sample) < SAMPLE_SIZE:
        sample.append(leaf)
    elif (place := chance.randrange(n_seen)) < SAMPLE_SIZE:
        sample[place] = leaf
