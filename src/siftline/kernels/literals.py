"""The literals of clauses, and the events that they are tested against, as arrays by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Literals(NamedTuple):
    """The literals of clause c are starts[c] : starts[c + 1]; see `encoding/clauses.py` for the drawing."""

    starts: NDArray[np.int64]
    attributes: NDArray[np.int32]
    lows: NDArray[np.int32]
    highs: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    sets: NDArray[np.int32]  # -1: no set
    is_alternative: NDArray[np.bool_]
    set_starts: NDArray[np.int64]
    set_lows: NDArray[np.int32]
    set_highs: NDArray[np.int32]


class Events(NamedTuple):
    """The values of event i are starts[i] : starts[i + 1]."""

    starts: NDArray[np.int64]
    attributes: NDArray[np.int32]
    codes: NDArray[np.int32]
