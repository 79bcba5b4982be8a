"""The time that decides whether a lease has ended: the wall clock without its jumps.

    wall clock    12:00:00  12:00:01  17:00:02  17:00:03  12:00:04        an administrator mistyped the time
    this clock    12:00:00  12:00:01  12:00:02  12:00:03  12:00:04

Between two readings, the wall clock and the steady clock should advance by about the same time. If they do, the wall
clock is used, so that small corrections of it take effect. If they do not, the wall clock has jumped, and the steady
clock is used until the wall clock has kept its new time for a minute. Then the new time is taken as right: for example,
a machine that started without knowing the time has learnt it.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# How much the two clocks may differ between two readings before that counts as a jump.
TOLERANCE: Final = timedelta(seconds=1)
# How long the wall clock has to keep a time that it has jumped to until that time is used.
PATIENCE_SECONDS: Final = 60.0
# If the clock is set back by less than this, time stands still; if by more, the new time is used.
_SET_BACK: Final = timedelta(minutes=5)


def wall_time() -> datetime:
    """Return the time of the wall clock."""
    return datetime.now(UTC)


def steady_seconds() -> float:
    """Return the time of a clock that cannot be set, and that runs while the machine sleeps if there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class ForwardClock:
    """Stands still while the clock is a few minutes behind an earlier reading; follows it if it is set back further.

    >>> moments = iter([datetime(2026, 1, 1, 12, minute, tzinfo=UTC) for minute in (30, 28, 10)])
    >>> clock = ForwardClock(lambda: next(moments))
    >>> [clock().minute for _ in range(3)]
    [30, 30, 10]
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._latest = datetime.min.replace(tzinfo=UTC)

    def __call__(self) -> datetime:
        """Return the time."""
        moment = self._clock()
        if moment > self._latest or self._latest - moment > _SET_BACK:
            self._latest = moment
        return self._latest


class SteadyClock:
    """Returns the time when it is called; threads may share one.

    >>> moments = iter([datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (12, 17, 12)])
    >>> clock = SteadyClock(wall=lambda: next(moments), steady=iter(range(9)).__next__)
    >>> str(clock()), str(clock())
    ('2026-01-01 12:00:01+00:00', '2026-01-01 12:00:02+00:00')
    """

    def __init__(self, wall: Callable[[], datetime] = wall_time, steady: Callable[[], float] = steady_seconds) -> None:
        self._wall, self._steady = wall, steady
        self._guard = threading.Lock()
        self._now, self._at = wall(), steady()
        self._jump: timedelta | None = None  # how far the wall clock is from the expected time
        self._jumped_at = 0.0

    def __call__(self) -> datetime:
        """Return the time."""
        with self._guard:
            wall, at = self._wall(), self._steady()
            expected = self._now + timedelta(seconds=at - self._at)
            self._now, self._at = self._judged(wall, expected, at), at
            return self._now

    def _judged(self, wall: datetime, expected: datetime, at: float) -> datetime:
        """Return the wall clock's time or the expected one, whichever is to be trusted."""
        off = wall - expected
        if abs(off) <= TOLERANCE:
            self._jump = None
            return max(wall, self._now)
        if self._jump is None or abs(off - self._jump) > TOLERANCE:
            self._jump, self._jumped_at = off, at
        if at - self._jumped_at < PATIENCE_SECONDS:
            return expected
        self._jump = None
        return wall
