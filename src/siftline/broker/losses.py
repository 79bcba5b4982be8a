"""The missing events of the log, so that a stream that resumes at a position learns of the gap.

    floor       everything up to this position was dropped, because the log is bounded
    runs        the numbers that were in use; each start of the broker begins a run at the current time
    lost        missing events inside a run: damaged, or at the end of a file that was truncated

Numbers of events are never used twice. A run begins at the time in microseconds, which is above all numbers of earlier
runs, even if the file that had them is lost or was replaced by an older copy. A position outside of all known runs
belongs to events that this file never had.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from siftline.broker.notifications import LAST_PLACE, Gap, Position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

DROPPED: Final = "older notifications are no longer kept"
UNKNOWN: Final = "the log of notifications was lost, or is an older copy: it does not know this position"
DAMAGED: Final = "the log of notifications is damaged, and some are lost"

# How many runs are remembered; a position in an older one is reported as a gap, even if nothing is missing.
_MOST_RUNS: Final = 1000
# How many losses are kept apart; beyond that, neighbours are merged.
_MOST_LOSSES: Final = 1000


class Run(NamedTuple):
    """A range of numbers that were in use, both ends included."""

    first: int
    last: int


class Losses:
    """The missing events of a log, protected by the log's lock.

    Parameters
    ----------
    floor : Position
        The last notification that was dropped.
    runs : iterable of Run
        In ascending order; the last one is still growing.
    """

    def __init__(self, floor: Position, runs: Iterable[Run]) -> None:
        self.floor = floor
        self.runs = list(runs)[-_MOST_RUNS:]
        # Pairs (after, until): the events after the first number up to the second; ascending, not overlapping.
        self._lost: list[tuple[int, int]] = []

    def add(self, after: int, until: int) -> None:
        """Record that the events after one number up to another are lost."""
        self._add([(after, until)])

    def _add(self, lost: Iterable[tuple[int, int]]) -> None:
        """Record losses; if there are too many, the nearest neighbours are merged."""
        joined: list[tuple[int, int]] = []
        for after, until in sorted([*self._lost, *lost]):
            if until <= self.floor.sequence:
                continue
            if joined and after <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(until, joined[-1][1])
            else:
                joined.append((after, until))
        if len(joined) > _MOST_LOSSES:
            between = [after - until for (_, until), (after, _) in pairwise(joined)]
            widest = sorted(range(len(between)), key=between.__getitem__)[1 - _MOST_LOSSES :]
            ends = [*sorted(widest), len(joined) - 1]
            starts = [0, *(end + 1 for end in ends)]
            joined = [(joined[start][0], joined[end][1]) for start, end in zip(starts, ends, strict=False)]
        self._lost = joined

    def miss(self, run: Run, sequences: NDArray[np.int64]) -> None:
        """Record the events of a run that are not among the existing ones."""
        first, last = max(run.first, self.floor.sequence + 1), run.last
        there = sequences[(sequences >= first) & (sequences <= last)]
        bounds = np.concatenate([[first - 1], there, [last + 1]])
        positions = np.flatnonzero(np.diff(bounds) > 1)
        self._add(zip(bounds[positions].tolist(), (bounds[positions + 1] - 1).tolist(), strict=True))

    def __len__(self) -> int:
        return len(self._lost)

    def dropped(self, floor: Position) -> None:
        """Record that everything up to a notification was dropped."""
        self.floor = floor
        while self._lost and self._lost[0][1] <= floor.sequence:
            self._lost.pop(0)

    def advance(self, last: int) -> None:
        """Extend the newest run to a number."""
        self.runs[-1] = Run(self.runs[-1].first, last)

    def at(self, after: Position) -> Gap | None:
        """Return the gap if the events right after a position were dropped or are unknown."""
        if after.sequence == 0:
            return None  # a reader that starts at the beginning accepts what the log has
        if after < self.floor:
            return Gap(after, Position(self.floor.sequence, LAST_PLACE), DROPPED)
        if after.sequence == self.floor.sequence:
            return None
        position = bisect_right(self.runs, after.sequence + 1, key=lambda run: run.first) - 1
        is_newest = position == len(self.runs) - 1
        if position >= 0 and after.sequence <= self.runs[position].last:
            return None
        begins = self.runs[-1 if is_newest else position + 1].first
        return Gap(after, Position(begins - 1, LAST_PLACE), UNKNOWN)

    def ahead(self, after: Position) -> tuple[int, Gap] | None:
        """Return the next loss after a position: the last event before it, and the gap."""
        position = bisect_right(self._lost, after.sequence, key=itemgetter(1))
        if position == len(self._lost):
            return None
        first, until = self._lost[position]
        return first, Gap(after, Position(until, LAST_PLACE), DAMAGED)
