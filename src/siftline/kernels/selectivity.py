"""Estimates of the share of events that satisfy a literal, for millions of literals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.codes import FIRST_STRING, VETO
from siftline.kernels.compiler import kernel
from siftline.kernels.sections import is_between

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.literals import Literals


@kernel
def shares_of_spans(
    literals: Literals,
    spans: NDArray[np.float64],
) -> Any:
    """Estimate for each literal the share of events for which it holds; 1 for a veto.

    spans[a] has the first and the last label of an attribute's numbers and the distance between labels, and the same
    for its strings; values are assumed to be spread evenly.
    """
    attributes, lows, highs, kinds = literals.attributes, literals.lows, literals.highs, literals.kinds
    sets, set_starts, set_lows, set_highs = literals.sets, literals.set_starts, literals.set_lows, literals.set_highs
    shares = np.ones(len(attributes), dtype=np.float64)
    for i in range(len(attributes)):
        if kinds[i] >= VETO:
            continue
        a = attributes[i]
        section = 3 if lows[i] >= FIRST_STRING else 0
        first, last, gap = spans[a, section], spans[a, section + 1], spans[a, section + 2]
        if last <= first:
            continue
        is_set = sets[i] >= 0
        common = 0.0
        for k in range(set_starts[sets[i]] if is_set else 0, set_starts[sets[i] + 1] if is_set else 1):
            low, high = (set_lows[k], set_highs[k]) if is_set else (lows[i], highs[i])
            # A single label counts as the distance between two labels.
            common += max(0.0, min(high, last) - max(low, first) + gap)
        shares[i] = min(1.0, common / (last - first))
    return shares


@kernel
def shares_in_samples(
    literals: Literals,
    frequencies: NDArray[np.float64],
    sample_starts: NDArray[np.int64],
    samples: NDArray[np.int32],
) -> Any:
    """Estimate the same from samples: ascending codes, of attribute a at sample_starts[a] : sample_starts[a + 1].

    Half a sample is added to every count, so that ranges without samples are ordered by the frequency of the attribute.
    """
    attributes, lows, highs, kinds = literals.attributes, literals.lows, literals.highs, literals.kinds
    sets, set_starts, set_lows, set_highs = literals.sets, literals.set_starts, literals.set_lows, literals.set_highs
    shares = np.ones(len(attributes), dtype=np.float64)
    for i in range(len(attributes)):
        if kinds[i] >= VETO:
            continue
        a = attributes[i]
        sample = samples[sample_starts[a] : sample_starts[a + 1]]
        is_set = sets[i] >= 0
        n_inside = 0.5
        for k in range(set_starts[sets[i]] if is_set else 0, set_starts[sets[i] + 1] if is_set else 1):
            low, high = (set_lows[k], set_highs[k]) if is_set else (lows[i], highs[i])
            n_inside += np.searchsorted(sample, high, side="right") - np.searchsorted(sample, low, side="left")
        shares[i] = frequencies[a] * n_inside / (len(sample) + 1.0)
    return shares


@kernel
def weigh_shares(shares: NDArray[np.float64], weights: NDArray[np.float64], attributes: NDArray[np.int32]) -> None:
    """Multiply the share of each literal by the weight of its attribute, in place."""
    for i in range(np.uint64(len(shares))):
        shares[i] *= weights[np.uint64(attributes[i])]


@kernel
def count_predicates(
    n_attributes: int,
    attributes: NDArray[np.int32],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    sets: NDArray[np.int32],
    set_starts: NDArray[np.int64],
) -> Any:
    """Return how many predicates each attribute has; a set counts one for each range, and a `between` two."""
    counts = np.zeros(n_attributes, dtype=np.float64)
    for i in range(len(attributes)):
        n = 1
        if sets[i] >= 0:
            n = set_starts[sets[i] + 1] - set_starts[sets[i]]
        elif is_between(lows[i], highs[i]):
            n = 2
        counts[attributes[i]] += n
    return counts
