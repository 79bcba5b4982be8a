"""How many events satisfy a literal: estimated from Statistics, or from the constants that subscriptions use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.selectivity import count_predicates, shares_in_samples, shares_of_spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.domains import Domains
    from siftline.encoding.statistics import Statistics


def literal_shares(clauses: Clauses, domains: Domains, statistics: Statistics | None) -> NDArray[np.float64]:
    """Estimate the share of events for which each literal, or the hull of its set, holds; 1 for a veto.

    With statistics: how often events carry the attribute, times the share of its sampled values that lie in the
    range. Without: values are taken to spread evenly over the constants, and every event to carry every attribute.
    """
    used, attributes = _used(clauses, domains)
    if statistics is None:
        lines = [domains.domains[attribute] for attribute in used]
        spans = [_span(line.numbers.labels) + _span(line.strings.labels) for line in lines]
        table = np.array(spans, dtype=np.float64).reshape(-1, 6)
        even: NDArray[np.float64] = shares_of_spans(attributes, clauses.lows, clauses.highs, clauses.kinds, table)
        return even
    codes = [sampled_codes(attribute, domains, statistics) for attribute in used]
    starts = np.concatenate([[0], np.cumsum([len(part) for part in codes])]).astype(np.int64)
    frequencies = np.array([statistics.frequency(domains.names[attribute]) for attribute in used])
    joined = np.concatenate([*codes, np.zeros(0, dtype=np.int32)])
    shares: NDArray[np.float64] = shares_in_samples(
        attributes, clauses.lows, clauses.highs, clauses.kinds, frequencies, starts, joined
    )
    return shares


def attribute_frequencies(clauses: Clauses, domains: Domains, statistics: Statistics | None) -> NDArray[np.float64]:
    """Return how frequent each attribute is: its share of events, or how often the literals of the clauses name it.

    Literals count as the papers rewrite them: a set once for each of its ranges, a range with two inner ends twice.
    Attributes without literals get 0.
    """
    if statistics is None:
        counts: NDArray[np.float64] = count_predicates(
            len(domains), clauses.attributes, clauses.lows, clauses.highs, clauses.sets, clauses.set_starts
        )
        return counts
    used, _ = _used(clauses, domains)
    frequencies = np.zeros(len(domains))
    frequencies[used] = [statistics.frequency(domains.names[attribute]) for attribute in used]
    return frequencies


def sampled_codes(attribute: int, domains: Domains, statistics: Statistics) -> NDArray[np.int32]:
    """Return the codes of an attribute's sampled values, ascending."""
    domain = domains.domains[attribute]
    sample = statistics.samples.get(domains.names[attribute], ())
    return np.array(sorted(domain.code(leaf) for leaf in sample), dtype=np.int32)


def _used(clauses: Clauses, domains: Domains) -> tuple[list[int], NDArray[np.int32]]:
    """Return the attributes to look at, and the position in them of each literal's attribute."""
    attributes: NDArray[Any] = clauses.attributes
    if len(attributes) >= len(domains):
        return list(range(len(domains))), attributes
    # Only the attributes that occur here: a single subscription must not pay for all the others.
    used, positions = np.unique(attributes, return_inverse=True)
    return used.tolist(), positions.astype(np.int32)


def _span(labels: list[int]) -> tuple[float, float, float]:
    """Return where values may lie, one gap beyond the outermost labels, and how wide a gap is."""
    if not labels:
        return 0.0, 0.0, 0.0
    gap = (labels[-1] - labels[0]) / (len(labels) - 1) if len(labels) > 1 else 1.0
    return labels[0] - gap, labels[-1] + gap, gap
