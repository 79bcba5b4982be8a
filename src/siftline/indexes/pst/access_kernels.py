"""What access predicates are chosen by: the ranges of positive literals, and how many spaces they cover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.codes import VETO
from siftline.kernels.compiler import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The keys of ranks 0 .. 7 lie between 0 and 1, and spaces decide among equal ranks.
_N_RANKS = 8.0
_MOST_SPACES = 2.0**32


@kernel
def pieces_of_literals(
    chosen: NDArray[np.int32],
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    sets: NDArray[np.int32],
    set_starts: NDArray[np.int64],
    set_lows: NDArray[np.int32],
    set_highs: NDArray[np.int32],
) -> Any:
    """Return (piece starts by literal, attributes, lows, highs): the ranges of the chosen clauses' positive literals.

    A literal with a set has one piece for each of its ranges; vetoes and the literals of other clauses have none.
    """
    piece_starts = np.zeros(len(attributes) + 1, dtype=np.int64)
    for c in chosen:
        for i in range(starts[c], starts[c + 1]):
            if kinds[i] < VETO:
                s = sets[i]
                piece_starts[i + 1] = 1 if s < 0 else set_starts[s + 1] - set_starts[s]
    for i in range(len(attributes)):
        piece_starts[i + 1] += piece_starts[i]
    n = piece_starts[-1]
    piece_attributes = np.empty(n, dtype=np.int32)
    piece_lows = np.empty(n, dtype=np.int32)
    piece_highs = np.empty(n, dtype=np.int32)
    for i in range(len(attributes)):
        first = piece_starts[i]
        for p in range(first, piece_starts[i + 1]):
            piece_attributes[p] = attributes[i]
            if sets[i] < 0:
                piece_lows[p] = lows[i]
                piece_highs[p] = highs[i]
            else:
                place = set_starts[sets[i]] + p - first
                piece_lows[p] = set_lows[place]
                piece_highs[p] = set_highs[place]
    return piece_starts, piece_attributes, piece_lows, piece_highs


@kernel
def keys_by_rank(
    ranks: NDArray[np.uint8], piece_starts: NDArray[np.int64], firsts: NDArray[np.int32], lasts: NDArray[np.int32]
) -> Any:
    """Return a number below 1 for each literal: it ascends by rank, and in a rank by the spaces that are covered."""
    keys = np.empty(len(ranks), dtype=np.float64)
    for i in range(len(ranks)):
        n_covered = 0
        for p in range(piece_starts[i], piece_starts[i + 1]):
            n_covered += lasts[p] - firsts[p] + 1
        keys[i] = (ranks[i] + n_covered / _MOST_SPACES) / _N_RANKS
    return keys
