"""`dnf`, `cnf`: subscriptions of several clauses, as in Fig. 13 of the OpIndex paper (sections 6.1 and 7.6).

    dnf    (a17 <= 4 and a3 = 90) or (a5 >= 11)          a row a predicate, with the number of its clause
    cnf    (a17 <= 4 or a3 = 90) and (a5 >= 11)          texts: the columnar form has no clauses of alternatives

The paper gives the largest number of clauses, 5. The others are ours: the number of clauses is uniform from 1, a clause
has 1 to 3 predicates on different attributes, and everything else is as in `many-attributes`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline_bench.workloads.synthetic import (
    AT_MOST,
    BETWEEN,
    OPERATORS,
    Matrix,
    Synthetic,
    attribute_names,
    conjunctions,
    draw_events,
    draw_predicates,
    value_table,
)
from siftline_bench.workloads.workload import Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class NormalForms(Synthetic):
    """Parameters: those of `many-attributes`, and the clauses.

    Attributes
    ----------
    least_clauses, most_clauses : int
        The least and the most clauses of a subscription, drawn uniformly. `least_predicates` and `most_predicates` are
        those of a clause.
    """

    n_attributes: int = 20_000
    least_predicates: int = 1
    most_predicates: int = 3
    equal_share: float = 0.4
    n_values: int = 200
    event_size: int = 40
    has_between: bool = False
    least_clauses: int = 1
    most_clauses: int = 5


def draw_dnf(parameters: NormalForms, chance: np.random.Generator, event_chance: np.random.Generator) -> Any:
    """Draw the tables of predicates and of values."""
    owners, clauses = _draw_clauses(parameters, chance)
    rows = conjunctions(parameters, clauses)
    first = np.flatnonzero(np.diff(owners, prepend=-1))
    places = np.arange(len(owners)) - np.repeat(first, np.diff(np.append(first, len(owners))))
    rows = rows.set_column(0, "subscription", [np.repeat(owners, clauses.counts)])
    rows = rows.set_column(1, "clause", [np.repeat(places, clauses.counts).astype(np.int32)])
    return rows, _draw_values(parameters, clauses, event_chance)


def draw_cnf(parameters: NormalForms, chance: np.random.Generator, event_chance: np.random.Generator) -> Any:
    """Draw the tables of expressions and of values."""
    import pyarrow as pa

    owners, clauses = _draw_clauses(parameters, chance)
    alternatives = _joined(np.cumsum(clauses.counts), _predicate_texts(parameters, clauses), " or ")
    ends = np.searchsorted(owners, np.arange(parameters.n_subscriptions), side="right")
    texts = _joined(ends, _between("(", alternatives, ")"), " and ")
    rows = pa.table({"subscription": np.arange(parameters.n_subscriptions), "expression": texts})
    return rows, _draw_values(parameters, clauses, event_chance)


def _draw_clauses(parameters: NormalForms, chance: np.random.Generator) -> tuple[NDArray[np.int64], Matrix]:
    """Draw clauses, one row each, and whose they are."""
    n = parameters.n_subscriptions
    counts = chance.integers(parameters.least_clauses, parameters.most_clauses + 1, size=n)
    owners = np.repeat(np.arange(n), counts)
    return owners, draw_predicates(replace(parameters, n_subscriptions=len(owners)), chance)


def _draw_values(parameters: NormalForms, clauses: Matrix, chance: np.random.Generator) -> Any:
    return value_table(*draw_events(parameters, clauses, chance), attribute_names(parameters.n_attributes))


def _predicate_texts(parameters: NormalForms, clauses: Matrix) -> Any:
    """Return each predicate as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    used = clauses.is_used
    operators = clauses.operators[used]
    lows, highs = (pa.array(bounds[used]).cast(pa.string()) for bounds in (clauses.lows, clauses.highs))
    constants = pc.if_else(pa.array(operators == AT_MOST), highs, lows)
    constants = pc.if_else(pa.array(operators == BETWEEN), _between(lows, " and ", highs), constants)
    names = pa.array(attribute_names(parameters.n_attributes)).take(pa.array(clauses.attributes[used]))
    signs = pa.array(OPERATORS).take(pa.array(operators))
    return pc.binary_join_element_wise(names, signs, constants, " ")


def _between(before: Any, middle: Any, after: Any) -> Any:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(before, middle, after, "")


def _joined(ends: NDArray[np.int64], parts: Any, separator: str) -> Any:
    """Put the parts up to each end behind each other."""
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, parts), separator)


RECIPES: Final = (
    Recipe(
        name="dnf",
        description="OpIndex, Fig. 13: alternatives of 1 to 5 conjunctions over 20,000 attributes",
        parameters=NormalForms(),
        draw=draw_dnf,
    ),
    Recipe(
        name="cnf",
        description="OpIndex, Fig. 13: conjunctions of 1 to 5 clauses of alternatives over 20,000 attributes",
        parameters=NormalForms(),
        draw=draw_cnf,
    ),
)
