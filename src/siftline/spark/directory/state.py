"""State: three numbers that always name the same set of subscriptions of an index.

state (4, 7, 12:00) = version 4  +  deltas 5, 6, 7 (version 4 contains those up to 4)  -  those that end by 12:00
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from siftline.spark.directory.layout import delta_numbers
from siftline.spark.directory.versions import IndexDirectory

if TYPE_CHECKING:
    import os


class State(NamedTuple):
    """A version, the last delta that is applied on top of it, and the time, in microseconds since 1970.

    The time is also the value of `now()` in expressions.
    """

    version: int
    delta: int
    time: int


def state_of(index: str | os.PathLike[str] | IndexDirectory) -> State:
    """Return the state of an index now: its current version, or the one that was opened, with all changes since."""
    directory = index if isinstance(index, IndexDirectory) else IndexDirectory.open(index)
    last = max([directory.delta, *delta_numbers(directory.path)[-1:]])
    return State(directory.version, last, time.time_ns() // 1000)
