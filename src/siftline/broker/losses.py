"""What is missing in the log: so that a stream that goes on after a position is told of it.

    floor       everything up to here was dropped, because the log is bounded
    runs        the numbers that were in use: each start of the broker begins a run of numbers, at the time of day
    lost        events inside a run that are not there: damaged, or in a tail that the file no longer has

Numbers of events are never used twice. A run begins at the time in microseconds, so it is beyond all numbers of runs
before it, even if the file that had them is lost or was replaced by an older copy. A position in no known run is one
of events that this file never had.
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

# Runs that are remembered; a position in an older one is told of a gap, which may be none.
_MOST_RUNS: Final = 1000
# Losses that are told apart; more are told as one.
_MOST_LOSSES: Final = 1000


class Run(NamedTuple):
    """Numbers that were in use, from the first to the last one."""

    first: int
    last: int


class Losses:
    """What is missing; whoever has the log's guard may use it.

    Parameters
    ----------
    floor : Position
        The last notification that was dropped.
    runs : iterable of Run
        In ascending order; the newest is open.
    """

    def __init__(self, floor: Position, runs: Iterable[Run]) -> None:
        self.floor = floor
        self.runs = list(runs)[-_MOST_RUNS:]
        # Events after the first number, up to the second one; in ascending order, and apart from each other.
        self._lost: list[tuple[int, int]] = []

    def add(self, after: int, until: int) -> None:
        """Events after a number, up to another one, are lost."""
        self._add([(after, until)])

    def _add(self, lost: Iterable[tuple[int, int]]) -> None:
        """Take note of losses; what is too much to be told apart is told as one with its nearest neighbour."""
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
        """Take note of the events of a run that are not among those that are there."""
        first, last = max(run.first, self.floor.sequence + 1), run.last
        there = sequences[(sequences >= first) & (sequences <= last)]
        bounds = np.concatenate([[first - 1], there, [last + 1]])
        positions = np.flatnonzero(np.diff(bounds) > 1)
        self._add(zip(bounds[positions].tolist(), (bounds[positions + 1] - 1).tolist(), strict=True))

    def __len__(self) -> int:
        return len(self._lost)

    def dropped(self, floor: Position) -> None:
        """Everything up to a notification was dropped."""
        self.floor = floor
        while self._lost and self._lost[0][1] <= floor.sequence:
            self._lost.pop(0)

    def advance(self, last: int) -> None:
        """Let the newest run go up to a number."""
        self.runs[-1] = Run(self.runs[-1].first, last)

    def at(self, after: Position) -> Gap | None:
        """Return the gap if something that came right after a position cannot be given."""
        if after.sequence == 0:
            return None  # who begins at the beginning wants what there is
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
