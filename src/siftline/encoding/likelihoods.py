"""How likely leaves are to be true, from the samples of Statistics: what `cover` chooses witnesses by.

A leaf counts by its share of the sampled values of its attribute, which is drawn towards what its form says: a sample
of a hundred values cannot tell which of two rare texts is rarer. How many events carry the attribute counts less,
because the mix of events changes sooner than their values do: a literal that asks for the kind of event is rare among
all events, and still true for all events of that kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from siftline.encoding.moments import has_moments
from siftline.encoding.regex_literals import literal_of
from siftline.language.likelihood import NOT_WORTH_FINDING, likelihood_by_form, likelihood_of_text
from siftline.model import Predicate, compare, fold
from siftline.model.predicate import IGNORING_CASE, PRESENCES

if TYPE_CHECKING:
    from siftline.encoding.statistics import Statistics
    from siftline.model import Expression, Leaf

# A shorter text in a regular expression is found too often to be looked for.
_SHORTEST_TEXT: Final = 3
# So much of a sample is looked at: enough to tell a common value from a rare one, in microseconds.
_SAMPLED_CHARACTERS: Final = 1 << 14
_SAMPLED_VALUES: Final = 128
# What the form of a leaf says weighs as much as this many values.
_WEIGHT_OF_FORM: Final = 4.0
# How much the frequency of an attribute counts: 1 as much as the share of its values, 0 nothing.
_POWER_OF_FREQUENCY: Final = 0.5
_SEPARATOR: Final = "\0"


class Likelihoods:
    """Estimates how likely a leaf is to be true; without statistics by its form alone.

    Examples
    --------
    >>> from siftline import Statistics
    >>> likelihood = Likelihoods(Statistics.from_events([{"path": "/home/ann"}] * 9 + [{"path": "/tmp"}]))
    >>> common, rare = (Predicate("path", "starts with", text) for text in ("/home", "/tmp"))
    >>> likelihood(common) > likelihood(rare) > likelihood(Predicate("path", "starts with", "/var/lib"))
    True
    """

    def __init__(self, statistics: Statistics | None) -> None:
        self._statistics = statistics
        self._samples: dict[str, _Sample] = {}
        self._known: dict[Expression, float] = {}  # subscriptions that come together have much in common

    def __call__(self, leaf: Expression) -> float:
        """Return the estimate, NOT_WORTH_FINDING for what takes longer to find than to check."""
        by_form = _by_form(leaf)
        statistics = self._statistics
        if statistics is None or not statistics.n_events or not _is_sampled(leaf):
            return by_form
        known = self._known.get(leaf)
        if known is None:
            known = self._known[leaf] = self._by_samples(leaf, by_form, statistics)
        return known

    def _by_samples(self, leaf: Predicate, by_form: float, statistics: Statistics) -> float:
        path = str(leaf.attribute)
        sample = self._samples.get(path)
        if sample is None:
            sample = self._samples[path] = _sample_of(statistics.samples.get(path, []))
        share = (sample.n_satisfying(leaf) + _WEIGHT_OF_FORM * by_form) / (len(sample.values) + _WEIGHT_OF_FORM)
        frequency = max(statistics.counts.get(path, 0), 1) / statistics.n_events
        return float(share * frequency**_POWER_OF_FREQUENCY)


def _is_sampled(leaf: Expression) -> TypeGuard[Predicate]:
    """Return whether the values of a sample can be compared with a leaf."""
    if not isinstance(leaf, Predicate) or leaf.attribute is None:
        return False
    return leaf.op != "matches" and leaf.op not in PRESENCES and not has_moments(leaf)


class _Sample(NamedTuple):
    """Some values of an attribute; the strings also as one text, as they are and folded, between separators."""

    values: list[Leaf]
    text: str
    folded: str

    def n_satisfying(self, predicate: Predicate) -> int:
        """Return how many of the values satisfy a predicate."""
        op, operand = predicate.op, predicate.operand
        if isinstance(operand, str):
            # Most texts are in no value, and are looked for in all of them at once.
            is_folded = op.endswith(IGNORING_CASE)
            text, part = (self.folded, fold(operand)) if is_folded else (self.text, operand)
            match op.removesuffix(IGNORING_CASE):
                case "contains" if part not in text:
                    return 0
                case "starts with" if _SEPARATOR + part not in text:
                    return 0
                case "ends with" if part + _SEPARATOR not in text:
                    return 0
                case "=" if _SEPARATOR + part + _SEPARATOR not in text:
                    return 0
        return sum(compare(value, op, operand) is True for value in self.values if value is not None)


def _sample_of(values: list[Leaf]) -> _Sample:
    """Return as many values as fit, spread over all."""
    chosen: list[Leaf] = []
    room = _SAMPLED_CHARACTERS
    for value in values[:: max(1, len(values) // _SAMPLED_VALUES)]:
        room -= len(value) if isinstance(value, str) else 1
        if room < 0 and chosen:
            break
        chosen.append(value)
    text = _SEPARATOR.join(["", *(value for value in chosen if isinstance(value, str)), ""])
    return _Sample(chosen, text, fold(text))


def _by_form(leaf: Any) -> float:
    """Return the likelihood by form; that of a regular expression by the text that it needs."""
    if not isinstance(leaf, Predicate) or leaf.op != "matches":
        return likelihood_by_form(leaf)
    literal = literal_of(str(leaf.operand))
    if literal is None or len(literal.text) < _SHORTEST_TEXT:
        return NOT_WORTH_FINDING
    return likelihood_of_text(len(literal.text))
