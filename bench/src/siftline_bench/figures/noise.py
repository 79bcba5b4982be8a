"""How far from its bound a number must be before another measurement can be expected to fall on the same side.

Every round gives a number of its own. How these differ is the noise of one round, and what all rounds say together has
less of it, by the root of their number. Few rounds say little about the noise itself; so what was seen of others counts
as if it were one round more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

# Taken for how much ratios of times differ from round to round, as logarithms. Seen on a shared machine with two cores:
# of matching times one in ten by half of it and one in a hundred by more, of building times one in ten by all of it.
_SEEN: Final = 0.2
_SEEN_ROUNDS: Final = 1
# But a single row may be off by a factor of two, which nothing else shows.
_ONCE: Final = 0.8
# 95 % are nearer to the middle than two standard deviations; and a median has a quarter more of them than a mean.
_DEVIATIONS: Final = 2.5


def distance(number: float, bound: float, *, span: float | None = None) -> float:
    """Return how far apart two numbers are, as logarithms; exponents as what they make of an x that is `span` times.

    >>> round(distance(2.0, 1.0), 2), round(distance(1.1, 1.0, span=10.0), 2), distance(0.0, 1.0)
    (0.69, 0.23, inf)
    """
    if span is not None:
        return abs(number - bound) * math.log(span)
    return abs(math.log(number / bound)) if 0 < number < math.inf and bound > 0 else math.inf


def margin(numbers: Sequence[float], *, span: float | None = None) -> float:
    """Return the least distance from a bound that can be told from noise, by what each round says.

    >>> [round(margin([1.0] * n), 2) for n in (1, 3, 7)]
    [0.8, 0.17, 0.07]
    """
    finite = [number for number in numbers if math.isfinite(number) and (span is not None or number > 0)]
    if len(finite) < 2:
        return _ONCE
    told = np.array(finite) * math.log(span) if span is not None else np.log(finite)
    n = len(finite)
    squares = float(np.var(told)) * n
    variance = (_SEEN_ROUNDS * _SEEN**2 + squares) / (_SEEN_ROUNDS + n - 1)
    return _DEVIATIONS * math.sqrt(variance / n)
