"""Access predicates: by which literals of a clause `pst-bloom` and `pst-hash` find it (PS-Tree, section 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from siftline.encoding.forms import ANY, AT_LEAST, AT_MOST, BETWEEN, EQUAL, IN, OTHER, forms
from siftline.encoding.selectivity import literal_shares
from siftline.indexes.pst.access_kernels import keys_by_rank, pieces_of_literals
from siftline.kernels.literals import order_literals
from siftline.kernels.spaces import cut_attributes, spaces_of_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.indexes.parts import Context

# The paper's ranking of operators, most selective first; `<` and `>` are alike.
_RANKS: Final = np.zeros(7, dtype=np.uint8)
_RANKS[[EQUAL, IN, BETWEEN, AT_MOST, AT_LEAST, OTHER, ANY]] = [0, 1, 2, 3, 3, 4, 5]


class Covers(NamedTuple):
    """The trees of a part, and what each positive literal covers in them.

    A leaf of the tree of attribute a is an elementary space; its leaves are leaf_starts[a] : leaf_starts[a + 1], and
    leaf k reaches from cuts[k] to the next cut. Piece p of literal i, p in piece_starts[i] : piece_starts[i + 1],
    covers the leaves firsts[p] .. lasts[p].
    """

    leaf_starts: NDArray[np.int64]
    cuts: NDArray[np.int32]
    piece_starts: NDArray[np.int64]
    piece_attributes: NDArray[np.int32]
    firsts: NDArray[np.int32]
    lasts: NDArray[np.int32]


def covers_of(clauses: Clauses, chosen: NDArray[np.int32], n_attributes: int) -> Covers:
    """Return the trees that the positive literals of the chosen clauses make, and what they cover."""
    piece_starts, attributes, lows, highs = pieces_of_literals(
        chosen,
        clauses.starts,
        clauses.attributes,
        clauses.lows,
        clauses.highs,
        clauses.kinds,
        clauses.sets,
        clauses.set_starts,
        clauses.set_lows,
        clauses.set_highs,
    )
    leaf_starts, cuts = cut_attributes(n_attributes, attributes, lows, highs)
    firsts, lasts = spaces_of_ranges(attributes, lows, highs, leaf_starts, cuts)
    return Covers(leaf_starts, cuts, piece_starts, attributes, firsts, lasts)


def by_selectivity(clauses: Clauses, covers: Covers, context: Context) -> NDArray[np.int64]:
    """Return the literals of each clause, the most selective first and vetoes last.

    With statistics, a literal is the more selective the fewer events satisfy it; without, by the rank of its operator,
    and among equal operators by the number of spaces that it covers.
    """
    if context.statistics is None:
        keys = keys_by_rank(_RANKS[forms(clauses)], covers.piece_starts, covers.firsts, covers.lasts)
    else:
        keys = literal_shares(clauses, context.domains, context.statistics)
    order: NDArray[np.int64] = order_literals(clauses.starts, keys, clauses.kinds)
    return order
