"""Which operator of the papers a coded literal stands for.

Codes do not remember how a predicate was spelled, and need not: `a < 5` and `a <= 4.9` are both "from the beginning of
the numbers up to a code".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from siftline.encoding.clauses import SET
from siftline.encoding.domain import BOOLEANS, NOT_NULL, NUMBERS, PRESENT, STRINGS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses

EQUAL: Final = 0  # one code
IN: Final = 1  # several single codes
BETWEEN: Final = 2  # a range with two inner ends
AT_MOST: Final = 3  # from the beginning of a section; also `<`
AT_LEAST: Final = 4  # to the end of a section; also `>`
OTHER: Final = 5  # several ranges: `!=`, `not in`, `not between`
ANY: Final = 6  # one or more whole sections: presence


def forms(clauses: Clauses) -> NDArray[np.uint8]:
    """Return the form of each literal, whether it is a veto or not.

    The constants ascend from the most to the least selective: the papers' ranking of operators.
    """
    lows, highs = clauses.lows, clauses.highs
    starts_section = (lows == NUMBERS.first) | (lows == STRINGS.first)
    ends_section = (highs == NUMBERS.last) | (highs == STRINGS.last)
    is_whole = np.zeros(len(lows), dtype=np.bool_)
    for section in (NUMBERS, STRINGS, BOOLEANS, NOT_NULL, PRESENT):
        is_whole |= (lows == section.first) & (highs == section.last)
    chosen = [(clauses.kinds & SET) != 0, lows == highs, is_whole, starts_section, ends_section]
    found = np.select(chosen, [OTHER, EQUAL, ANY, AT_MOST, AT_LEAST], BETWEEN).astype(np.uint8)
    found[np.flatnonzero(clauses.sets >= 0)[_are_points(clauses)]] = IN
    return found


def _are_points(clauses: Clauses) -> NDArray[np.bool_]:
    """Return for each literal with a set, in their order, whether it lists single codes only."""
    if len(clauses.set_lows) == 0:
        return np.zeros(0, dtype=np.bool_)
    is_wide = np.concatenate([[0], np.cumsum(clauses.set_lows != clauses.set_highs)])
    n_wide = is_wide[clauses.set_starts[1:]] - is_wide[clauses.set_starts[:-1]]
    chosen: NDArray[np.bool_] = n_wide[clauses.sets[clauses.sets >= 0]] == 0
    return chosen
