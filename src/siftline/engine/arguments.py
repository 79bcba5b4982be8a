"""Checks of what callers give an engine besides expressions: weights, tenants, instants, `top`, statistics."""

from __future__ import annotations

import math
from typing import Any

from siftline.encoding.statistics import Statistics
from siftline.errors import SubscriptionError
from siftline.model import Timestamp, instant_of, instant_of_text


def checked_now(now: Any) -> int:
    """Return the instant that a caller names: a timestamp of Python, NumPy, pandas or the language, or text.

    >>> checked_now("1970-01-01T00:00:01Z")
    1000000000
    """
    if isinstance(now, Timestamp):
        return now.instant
    instant = instant_of_text(now) if isinstance(now, str) else instant_of(now)
    if instant is None:
        raise ValueError(f"now must be a datetime, or text such as '2026-01-31T10:00:00Z', not {now!r}")
    return instant


def check_top(top: object) -> None:
    """Raise unless `top` is a number of subscriptions."""
    if not isinstance(top, int) or isinstance(top, bool) or top < 0:
        raise ValueError(f"top must be a number of subscriptions, not {top!r}")


def checked_weight(weight: object) -> float:
    """Return a weight, 1 if there is none."""
    if weight is None:
        return 1.0
    try:
        if isinstance(weight, (int, float)) and not isinstance(weight, bool) and math.isfinite(weight):
            return float(weight)
    except OverflowError:  # an integer beyond all doubles
        pass
    raise SubscriptionError("a weight must be a finite number")


def checked_tenant(tenant: Any) -> str | None:
    """Return a tenant; raise unless it is a string or None."""
    if tenant is not None and not isinstance(tenant, str):
        raise SubscriptionError(f"a tenant must be a string, not {type(tenant).__name__}: {tenant!r}")
    return tenant


def checked_statistics(statistics: Any) -> Statistics | None:
    """Return statistics; raise unless they are a `Statistics` or None."""
    if statistics is not None and not isinstance(statistics, Statistics):
        raise TypeError(f"statistics must be a siftline.Statistics, not {type(statistics).__name__}")
    return statistics
