"""The leaves of events as arrays by name: what the JSON parser writes, and what is located."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class LeafColumns(NamedTuple):
    """Leaves, one after the other; `encoding/json_leaves.py` describes each column."""

    attributes: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    numbers: NDArray[np.float64]
    residuals: NDArray[np.int64]
    text_starts: NDArray[np.int64]
    text_ends: NDArray[np.int64]
    texts: NDArray[np.uint8]  # the bytes of all strings
