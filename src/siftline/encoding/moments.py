"""Comparisons with timestamps, as comparisons of integers that every index knows.

A string that is a time has, beside itself, an *instant* and an *age*: nanoseconds since 1970, and nanoseconds until
the moment of the match. Each attribute that some subscription compares with timestamps gets a derived attribute for its
instants, each that is compared with `now()` one for its ages; an event carries them for all its strings that are times:

    at > timestamp '2026-01-31T10:00:00Z'      instant of at > 1769853600000000000
    at > now() - interval '1 day'              age of at < 86400000000000

So nothing in an index moves with the time: the ages of an event are taken when it is matched. A string that is no time
has neither, and the comparison is unknown, as the language wants it.

A list that mixes instants, ages and other constants is a list of each kind, or-ed (`language/normal_form.py`). A range
that mixes them (`at between timestamp '2026-01-31' and now()`) speaks of several attributes for one value. An index is
then only told that there must be some value to compare with, and the event itself is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.encoding.domains import AGE, INSTANT, MomentOf
from siftline.encoding.flat_domains import read_only
from siftline.kernels.moments import read_instants, split_nanoseconds
from siftline.model import Expression, Now, Predicate, Timestamp, instant_of_text, walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains

_PER_SECOND: Final = 1_000_000_000
# The later an instant, the smaller its age.
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class _Comparison(Predicate):
    """A predicate on numbers of nanoseconds, which may be larger than constants are."""

    __slots__ = ()

    def __init__(self, attribute: str | None, op: str, operand: Any) -> None:
        for name, value in zip(self.__match_args__, (attribute, op, operand), strict=True):
            object.__setattr__(self, name, value)


def has_moments(predicate: Predicate) -> bool:
    """Return whether a predicate compares with a timestamp or with now."""
    operand = predicate.operand
    if type(operand) is tuple:
        return any(isinstance(constant, (Timestamp, Now)) for constant in operand)
    return isinstance(operand, (Timestamp, Now))


def derived_comparison(predicate: Predicate) -> tuple[MomentOf, Predicate] | None:
    """Return what a predicate with moments asks of a derived attribute; None if one attribute cannot tell.

    >>> of, comparison = derived_comparison(Predicate("at", ">", Now(-60)))
    >>> of, comparison.op, comparison.operand
    (MomentOf(path='at', op='age'), '<', 60)
    """
    assert predicate.attribute is not None
    kinds = {type(constant) for constant in predicate.constants()}
    op, operand = predicate.op, predicate.operand
    if kinds == {Timestamp}:
        numbers: Any = [constant.instant for constant in predicate.constants()]  # type: ignore[union-attr]
        return MomentOf(predicate.attribute, INSTANT), _comparison(predicate.attribute, op, operand, numbers)
    if kinds == {Now}:
        ages = [-constant.offset for constant in predicate.constants()]  # type: ignore[union-attr]
        if op.endswith("between"):
            ages.reverse()
        return MomentOf(predicate.attribute, AGE), _comparison(
            predicate.attribute, _MIRRORED.get(op, op), operand, ages
        )
    return None


def _comparison(attribute: str, op: str, operand: Any, numbers: list[int]) -> Predicate:
    return _Comparison(attribute, op, tuple(numbers) if isinstance(operand, tuple) else numbers[0])


def ages_of(expression: Expression) -> set[MomentOf]:
    """Return the ages that an expression looks at anywhere; those of array elements without the path of the array."""
    return {
        MomentOf(node.attribute or "", AGE)
        for node in walk(expression)
        if isinstance(node, Predicate) and any(type(constant) is Now for constant in node.constants())
    }


def append_moments(owners: list[int], values: list[Any], first: int, domains: Domains, now: int) -> None:
    """Append the instants and ages of the leaves from `first` on."""
    moments = domains.moments
    for owner, value in zip(owners[first:], values[first:], strict=True):
        if owner in moments and type(value) is str:
            instant = instant_of_text(value)
            if instant is not None:
                for attribute, op in moments[owner]:
                    owners.append(attribute)
                    values.append(instant if op == INSTANT else now - instant)


class Instants:
    """The times among many values.

    Attributes
    ----------
    places : int64[n]
        Which of the values are times.
    """

    def __init__(
        self, seconds: NDArray[np.int64], nanoseconds: NDArray[np.int64], places: NDArray[np.int64] | None = None
    ) -> None:
        self.places = np.arange(len(seconds)) if places is None else places
        self._seconds, self._nanoseconds = seconds, nanoseconds

    @classmethod
    def read(cls, texts: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Instants:
        """Return the times among many strings."""
        seconds, nanoseconds, are_times = read_instants(read_only(texts), read_only(starts), read_only(ends))
        places = np.flatnonzero(are_times)
        return cls(seconds[places], nanoseconds[places], places)

    def numbers(self, op: str, now: int, chosen: NDArray[np.int64] | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the instants or the ages of (the chosen) times: their nearest doubles, and what is missing to them."""
        seconds, nanoseconds = self._seconds, self._nanoseconds
        if chosen is not None:
            seconds, nanoseconds = seconds[chosen], nanoseconds[chosen]
        if op == AGE:
            now_seconds, now_nanoseconds = divmod(now, _PER_SECOND)
            seconds, nanoseconds = now_seconds - seconds, now_nanoseconds - nanoseconds
        return split_nanoseconds(seconds, nanoseconds)
