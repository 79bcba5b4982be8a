"""Positions of spans are those that NumPy finds, empty spans and no spans included."""

from __future__ import annotations

import numpy as np
import pytest

from siftline.kernels.spans import span_owners, span_positions


@pytest.mark.parametrize("lengths", [[], [0], [3], [0, 2, 0, 0, 1], [1, 1, 1]])
def test_positions_and_owners(lengths: list[int]) -> None:
    n = np.array(lengths, dtype=np.int64)
    starts = np.arange(len(n), dtype=np.int64)[::-1] * 10
    expected = [start + k for start, length in zip(starts.tolist(), lengths, strict=True) for k in range(length)]
    assert span_positions(np.ascontiguousarray(starts), n).tolist() == expected
    bounds = np.concatenate([[0], np.cumsum(n)]).astype(np.int64)
    assert span_owners(bounds).tolist() == np.repeat(np.arange(len(n)), n).tolist()
