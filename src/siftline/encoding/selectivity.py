"""How many events satisfy a literal: estimated from Statistics, or from the constants that subscriptions use."""

from __future__ import annotations

import time
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.encoding.domains import ANY_STRING, INSTANT, PATTERN_OPS
from siftline.encoding.events import locate
from siftline.encoding.patterns import Layer, hits_of, n_new_patterns
from siftline.kernels.selectivity import count_predicates, shares_in_samples, shares_of_spans
from siftline.model import instant_of_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.domain import Line
    from siftline.encoding.domains import Domains
    from siftline.encoding.patterns import Entry, Matcher
    from siftline.encoding.statistics import Statistics
    from siftline.model import Leaf

# So many sampled values of each attribute are searched for patterns that any string may satisfy.
_ANY_STRING_SAMPLES: Final = 64
# So many characters of a sample are searched for patterns, and so many values at least.
_SEARCHED_CHARACTERS: Final = 1 << 16
_SEARCHED_MIN: Final = 64


def literal_shares(clauses: Clauses, domains: Domains, statistics: Statistics | None) -> NDArray[np.float64]:
    """Estimate the share of events for which each literal holds; 1 for a veto.

    With statistics: how often events carry the attribute, times the share of its sampled values that lie in the
    range. Without: values are taken to spread evenly over the constants, and every event to carry every attribute; a
    pattern counts like a constant beside the other patterns of its attribute.
    """
    used, attributes = _used(clauses, domains)
    literals = clauses.literals._replace(attributes=attributes)
    if statistics is None:
        spans = [_spans(attribute, domains) for attribute in used]
        table = np.array(spans, dtype=np.float64).reshape(-1, 6)
        even: NDArray[np.float64] = shares_of_spans(literals, table)
        return even
    frequencies = _frequencies(used, domains, statistics)
    starts, codes = sampled_codes(used, domains, statistics)
    shares: NDArray[np.float64] = shares_in_samples(literals, frequencies, starts, codes)
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
    frequencies[used] = _frequencies(used, domains, statistics)
    return frequencies


def sampled_codes(
    attributes: Sequence[int], domains: Domains, statistics: Statistics
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the codes of the sampled values of attributes, ascending; those of i are at starts[i] : starts[i + 1]."""
    samples = [_sample(attribute, domains, statistics) for attribute in attributes]
    starts = np.concatenate([[0], np.cumsum([len(sample) for sample in samples])]).astype(np.int64)
    places = np.repeat(np.arange(len(attributes)), np.diff(starts))
    owners, values = np.asarray(attributes, dtype=np.int64)[places].tolist(), list(chain.from_iterable(samples))
    _, _, codes = locate(owners, values, np.array((0, len(owners))), domains)
    return starts, codes[np.lexsort((codes, places))]


def _sample(attribute: int, domains: Domains, statistics: Statistics) -> Sequence[Leaf]:
    """Return sampled values of an attribute; of ages, those at this moment."""
    pattern = domains.pattern_attributes.get(attribute)
    if pattern is None:
        return statistics.samples.get(domains.names[attribute], ())
    if pattern.op in PATTERN_OPS:
        return (True,)
    instants = _instants(domains.names[pattern.attribute], statistics)
    if pattern.op == INSTANT:
        return instants
    now = time.time_ns()
    return [now - instant for instant in instants]


def _instants(path: str, statistics: Statistics) -> list[int]:
    """Return the sampled values of an attribute that are times."""
    found = (instant_of_text(leaf) for leaf in statistics.samples.get(path, ()) if isinstance(leaf, str))
    return [instant for instant in found if instant is not None]


def _used(clauses: Clauses, domains: Domains) -> tuple[list[int], NDArray[np.int32]]:
    """Return the attributes to look at, and the position in them of each literal's attribute."""
    attributes: NDArray[Any] = clauses.attributes
    if len(attributes) >= len(domains):
        return list(range(len(domains))), attributes
    # Only the attributes that occur here: a single subscription must not pay for all the others.
    used, positions = np.unique(attributes, return_inverse=True)
    return used.tolist(), positions.astype(np.int32)


def _frequencies(used: Sequence[int], domains: Domains, statistics: Statistics) -> NDArray[np.float64]:
    """Return the share of events that carry each of some attributes; that of patterns by trying them on the samples."""
    entries: dict[int, list[Entry]] = {}
    for attribute in used:
        pattern = domains.pattern_attributes.get(attribute)
        if pattern is not None:
            entries.setdefault(pattern.attribute, []).append((attribute, pattern))
    shares: dict[int, float] = {}
    for owner, group in entries.items():
        if owner == ANY_STRING:
            shares |= _any_string_shares(group, statistics)
            continue
        path = domains.names[owner]
        sample, frequency = _searched(statistics.samples.get(path, [])), statistics.frequency(path)
        patterns = [entry for entry in group if entry[1].op in PATTERN_OPS]
        if patterns:
            shares |= _pattern_shares(patterns, _finder(domains, patterns), sample, frequency)
        if len(patterns) < len(group):
            share = frequency * len(_instants(path, statistics)) / max(1, len(sample))
            shares |= {attribute: share for attribute, pattern in group if pattern.op not in PATTERN_OPS}
    names = domains.names
    return np.array([shares[a] if a in shares else statistics.frequency(names[a]) for a in used], dtype=np.float64)


def _searched(sample: Sequence[Leaf]) -> Sequence[Leaf]:
    """Return the part of a sample that is searched for patterns: long strings take long, and fewer of them will do."""
    lengths = np.cumsum([len(leaf) if isinstance(leaf, str) else 1 for leaf in sample])
    return sample[: max(_SEARCHED_MIN, int(np.searchsorted(lengths, _SEARCHED_CHARACTERS)))]


def _finder(domains: Domains, entries: list[Entry]) -> Matcher | Layer:
    """Return what finds some patterns in strings: the matcher if it knows all, because a layer takes long to make."""
    matcher = domains.matcher
    return Layer(entries) if matcher is None or n_new_patterns(domains) else matcher


def _pattern_shares(
    entries: list[Entry], finder: Matcher | Layer, sample: Sequence[Leaf], frequency: float
) -> dict[int, float]:
    """Return the share of events that satisfy each of some patterns of one attribute."""
    texts = [leaf for leaf in sample if isinstance(leaf, str)]
    _, found = hits_of(finder, entries[0][1].attribute, texts)
    counts = Counter(found.tolist())
    return {attribute: frequency * (counts[attribute] + 0.5) / (len(sample) + 1.0) for attribute, _ in entries}


def _any_string_shares(entries: list[Entry], statistics: Statistics) -> dict[int, float]:
    """Return the share of events some string of which satisfies each of some patterns, if attributes are independent.

    A few samples of each attribute are looked at.
    """
    layer, left = Layer(entries), {attribute: 1.0 for attribute, _ in entries}
    for path, sample in statistics.samples.items():
        texts = [leaf for leaf in sample[:_ANY_STRING_SAMPLES] if isinstance(leaf, str)]
        if texts:
            _, found = hits_of(layer, ANY_STRING, texts)
            share = statistics.frequency(path) / min(len(sample), _ANY_STRING_SAMPLES)
            for attribute, count in Counter(found.tolist()).items():
                left[attribute] *= 1.0 - min(1.0, share * count)
    least = 0.5 / (1.0 + max(map(len, statistics.samples.values()), default=0))
    return {attribute: max(least, 1.0 - each) for attribute, each in left.items()}


def _spans(attribute: int, domains: Domains) -> tuple[float, ...]:
    """Return where the numbers of an attribute may lie and how wide their gaps are, and the same for its strings."""
    pattern = domains.pattern_attributes.get(attribute)
    if pattern is not None and pattern.op in PATTERN_OPS:
        return 0.0, 1.0 + domains.pattern_counts[pattern.attribute], 1.0, 0.0, 0.0, 0.0
    domain = domains.domains[attribute]
    return _span(domain.numbers) + _span(domain.strings)


def _span(line: Line) -> tuple[float, float, float]:
    """Return where values may lie, one gap beyond the outermost labels, and how wide a gap is."""
    n = len(line)
    if not n:
        return 0.0, 0.0, 0.0
    first, last = line.ends
    gap = (last - first) / (n - 1) if n > 1 else 1.0
    return first - gap, last + gap, gap
