"""How likely a leaf is to be true of an event, judged by its form: what an index should look for first.

The numbers only have to be in the right order: a long text is rarer than a short one, an equality rarer than a range.
`encoding/likelihoods.py` replaces them where samples of events are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from siftline.model import AnyString, Predicate
from siftline.model.predicate import IGNORING_CASE, POSITIVE_OF

if TYPE_CHECKING:
    from siftline.model import Expression

Likelihood = Callable[["Expression"], float]

_EQUAL: Final = 0.01
# What holds for most values ...
_MOST: Final = 0.9
# ... and for many of them: comparisons, regular expressions, networks.
_MANY: Final = 0.4
# A text of one character is in half of all strings, and with each further character in fewer.
_TEXT: Final = 0.5
_PER_CHARACTER: Final = 0.75
_LEAST: Final = 1e-4
# Of what takes longer to find than to check. An index looks for it where nothing else is to be found.
NOT_WORTH_FINDING: Final = 1.0


def likelihood_by_form(leaf: Expression) -> float:
    """Estimate how likely a leaf is to be true, by its operator and its constants.

    >>> from siftline.model import Predicate
    >>> equal, contains = Predicate("a", "=", 1), Predicate("a", "contains", "powershell")
    >>> likelihood_by_form(equal) < likelihood_by_form(contains) < likelihood_by_form(Predicate("a", "<", 1))
    True
    """
    if not isinstance(leaf, (Predicate, AnyString)) or leaf.op in POSITIVE_OF:
        return _MOST
    match leaf.op.removesuffix(IGNORING_CASE):
        case "=":
            return _EQUAL
        case "in":
            return min(_EQUAL * len(leaf.operand), _MOST) if isinstance(leaf.operand, tuple) else _EQUAL
        case "contains" | "starts with" | "ends with" | "like" | "ilike":
            return likelihood_of_text(sum(character not in "%_" for character in str(leaf.operand)))
        case "is null" | "is not null" | "exists":
            return _MOST
    return _MANY


def likelihood_of_text(length: int) -> float:
    """Return how likely a string is to have a text of so many characters."""
    return float(max(_TEXT * _PER_CHARACTER ** max(length - 1, 0), _LEAST)) if length else _MOST
