"""What the structures over closed intervals share: `IntervalTree`, `SegmentTree`, and `IntervalScan`, the baseline.

They answer which of many intervals contain a point, as a PS-Tree does (Table 3 of its paper). All, and PsTree, have

    build(lows, highs)      → a structure over the intervals 0, 1, ...; one with low > high contains nothing
    query(value)            → the ids of the intervals that contain a value, in no promised order
    query_many(values)      → (starts, ids): the same for value i, ids[starts[i] : starts[i + 1]]
    count_many(values)      → how many they are, without listing them
    locate_many(values)     → where values lie (only PsTree and SegmentTree: the others have no places)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from siftline_bench.structures.interval_kernels import count_in_scan, query_scan

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Intervals(Protocol):
    """A structure over closed intervals."""

    def query(self, value: float) -> NDArray[np.int32]:
        """Return the ids of the intervals that contain a value."""

    def query_many(self, values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return (starts, ids) of the intervals that contain each value."""

    def count_many(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many intervals contain each value."""

    def stats(self) -> dict[str, Any]:
        """Return the bytes of each array, and how much of everything there is."""


class IntervalScan:
    """Compares every point with every interval.

    Examples
    --------
    >>> IntervalScan.build(np.array([0, 2]), np.array([4, 4])).query(3)
    array([0, 1], dtype=int32)
    """

    def __init__(self, lows: NDArray[Any], highs: NDArray[Any]) -> None:
        self._lows, self._highs = checked_intervals(lows, highs)

    @classmethod
    def build(cls, lows: NDArray[Any], highs: NDArray[Any]) -> IntervalScan:
        """Keep the intervals as they are."""
        return cls(lows, highs)

    def query(self, value: float) -> NDArray[np.int32]:
        """Return the ids of the intervals that contain a value."""
        return self.query_many(np.array([value]))[1]

    def query_many(self, values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return (starts, ids) of the intervals that contain each value."""
        values = checked_points(values, self._lows.dtype)
        starts = starts_of(count_in_scan(values, self._lows, self._highs))
        return starts, query_scan(values, starts, self._lows, self._highs)

    def count_many(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many intervals contain each value."""
        counts: NDArray[np.int64] = count_in_scan(checked_points(values, self._lows.dtype), self._lows, self._highs)
        return counts

    def stats(self) -> dict[str, Any]:
        """Return the bytes of the two arrays."""
        return {"bytes": {"lows": self._lows.nbytes, "highs": self._highs.nbytes}, "intervals": len(self._lows)}


def checked_intervals(lows: NDArray[Any], highs: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the ends of intervals, both as int64 or both as float64."""
    lows, highs = np.asarray(lows), np.asarray(highs)
    if lows.shape != highs.shape or lows.ndim != 1:
        raise ValueError("intervals need as many lows as highs")
    dtype = np.float64 if "f" in lows.dtype.kind + highs.dtype.kind else np.int64
    lows, highs = checked_points(lows, dtype), checked_points(highs, dtype)
    if dtype is np.float64 and (np.isnan(lows).any() or np.isnan(highs).any()):
        raise ValueError("NaN is no end of an interval")
    return lows, highs


def checked_points(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return values in the type of the ends of intervals, or raise if that would change them."""
    values = np.asarray(values)
    if not len(values) and values.dtype.kind == "f":
        return values.astype(dtype)
    if values.dtype.kind not in "iuf" or (values.dtype.kind == "f" and np.dtype(dtype).kind == "i"):
        raise ValueError(f"intervals of {np.dtype(dtype)} cannot be compared with {values.dtype}")
    points = np.ascontiguousarray(values, dtype=dtype)
    if values.dtype.kind in "iu" and (points.astype(object) != values.astype(object)).any():
        raise ValueError(f"some of these integers are no {np.dtype(dtype)}")
    return points


def starts_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each of some rows starts, and where the last one ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
