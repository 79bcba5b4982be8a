"""What the recipes draw with: distinct attributes by weight, events around planted subscriptions, the two tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Planted(NamedTuple):
    """For each event, one row: attributes that must be there (-1: none) and values that make subscriptions match."""

    attributes: NDArray[np.int32]
    values: NDArray[np.int32]


def zipf_weights(n: int, skew: float) -> NDArray[np.float64]:
    """Return probabilities: the i-th is proportional to 1 / (i + 1) ** skew.

    >>> zipf_weights(3, 1.0).round(2).tolist()
    [0.55, 0.27, 0.18]
    """
    weights = 1.0 / np.arange(1, n + 1) ** skew
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities


def draw_distinct(
    chance: np.random.Generator, weights: NDArray[np.float64], n_columns: int, taken: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Draw `n_columns` attributes for each row of `taken`, one after the other, none twice and none that is taken."""
    n_rows, n_taken = taken.shape
    if n_columns + n_taken > len(weights):
        raise ValueError(f"cannot draw {n_columns + n_taken} distinct attributes out of {len(weights)}")
    cumulated = np.cumsum(weights)
    drawn = np.concatenate([taken, np.full((n_rows, n_columns), -1, dtype=np.int32)], axis=1)
    for column in range(n_taken, n_taken + n_columns):
        rows = np.arange(n_rows)
        while len(rows):
            chosen = np.searchsorted(cumulated[:-1], chance.random(len(rows)) * cumulated[-1], side="right")
            is_repeated = (drawn[rows, :column] == chosen[:, None]).any(axis=1)
            drawn[rows[~is_repeated], column] = chosen[~is_repeated]
            rows = rows[is_repeated]
    return drawn[:, n_taken:]


def subscription_attributes(
    chance: np.random.Generator, weights: NDArray[np.float64], counts: NDArray[np.int64], n_columns: int
) -> NDArray[np.int32]:
    """Draw the attributes of subscriptions or events, one row each; -1 behind the `counts[i]` of row i."""
    attributes = draw_distinct(chance, weights, n_columns, np.empty((len(counts), 0), dtype=np.int32))
    attributes[np.arange(n_columns) >= counts[:, None]] = -1
    return attributes


def draw_by_count(
    chance: np.random.Generator,
    weights: NDArray[np.float64],
    counts: NDArray[np.int64],
    taken: NDArray[np.int32] | None = None,
) -> NDArray[np.int32]:
    """Draw `counts[i]` attributes for row i, one after the other, none twice and none that is taken; then -1.

    `draw_distinct` draws again what it has already. Here the weight of what is left is cut out of the line instead, so
    that it takes no longer when a few attributes have nearly all of the weight.
    """
    taken = np.empty((len(counts), 0), dtype=np.int32) if taken is None else taken
    most = int(counts.max(initial=0))
    if most + taken.shape[1] > len(weights):
        raise ValueError(f"cannot draw {most + taken.shape[1]} distinct attributes out of {len(weights)}")
    ends = np.cumsum(weights)
    rows = np.argsort(-counts, kind="stable")  # those that still want one come first
    wanted = counts[rows]
    drawn = np.full((len(counts), most), -1, dtype=np.int32)
    known = np.sort(taken[rows], axis=1)
    for column in range(most):
        n = int(np.searchsorted(-wanted, -column, side="left"))
        known = known[:n]
        chosen = _draw_beside(chance, weights, ends, known)
        drawn[rows[:n], column] = chosen
        known = np.sort(np.concatenate([known, chosen[:, None]], axis=1), axis=1)
    return drawn


def _draw_beside(
    chance: np.random.Generator, weights: NDArray[np.float64], ends: NDArray[np.float64], known: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Draw one attribute for each row that is not among those, in order, that it has."""
    chosen = np.empty(len(known), dtype=np.int32)
    rows = np.arange(len(known))
    while len(rows):
        own = known[rows]
        places = chance.random(len(rows)) * (ends[-1] - weights[own].sum(axis=1))
        for column in own.T:
            places += np.where(places >= ends[column] - weights[column], weights[column], 0.0)
        found = np.searchsorted(ends[:-1], places, side="right").astype(np.int32)
        chosen[rows] = found
        rows = rows[(own == found[:, None]).any(axis=1)]  # by rounding, hardly ever
    return chosen


def draw_values(chance: np.random.Generator, n_values: int, skew: float, shape: tuple[int, ...]) -> NDArray[np.int32]:
    """Draw values 0 .. n_values - 1 by the Zipf law; the exponent 0 is uniform."""
    if skew == 0:
        return chance.integers(0, n_values, shape, dtype=np.int32)
    ends = np.cumsum(zipf_weights(n_values, skew))
    return np.searchsorted(ends[:-1], chance.random(shape), side="right").astype(np.int32)


def choose_planted(
    chance: np.random.Generator, attributes: NDArray[np.int32], n_events: int, n_planted: int
) -> NDArray[np.int64]:
    """Choose `n_planted` subscriptions for each event that share no attribute: one value could not satisfy both."""
    n = len(attributes)
    chosen = chance.integers(0, max(1, n), size=(n_events, n_planted))
    rows = _clashing(attributes, chosen)
    while len(rows):
        chosen[rows] = chance.integers(0, n, size=(len(rows), n_planted))
        rows = rows[_clashing(attributes, chosen[rows])]
    return chosen


def _clashing(attributes: NDArray[np.int32], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the events whose planted subscriptions share an attribute."""
    ordered = np.sort(attributes[chosen].reshape(len(chosen), -1), axis=1)
    return np.flatnonzero(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1))


def fill_events(
    chance: np.random.Generator,
    weights: NDArray[np.float64],
    size: int,
    n_values: int,
    planted: Planted,
    value_skew: float = 0.0,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return attributes and values of events, one row each: what is planted, then others, with values by chance."""
    n = len(planted.attributes)
    filling = draw_distinct(chance, weights, size, planted.attributes)
    attributes = np.concatenate([planted.attributes, filling], axis=1)
    values = np.concatenate([planted.values, draw_values(chance, n_values, value_skew, (n, size))], axis=1)
    # Planted places come first, unused ones last, and the first `size` make the event.
    order = np.argsort(attributes < 0, axis=1, kind="stable")[:, :size]
    return np.take_along_axis(attributes, order, 1), np.take_along_axis(values, order, 1)


# the tables


def predicate_table(
    owners: NDArray[np.int64], attributes: Any, operators: NDArray[np.int8], spellings: Sequence[str], **columns: Any
) -> Any:
    """Return one row a predicate, in the columnar form that `Engine.add_many` takes; `columns` hold the constants."""
    import pyarrow as pa

    fixed = {
        "subscription": owners,
        "clause": np.zeros(len(owners), dtype=np.int32),
        "attribute": attributes,
        "op": pa.DictionaryArray.from_arrays(operators, list(spellings)),
    }
    return pa.table({**fixed, **columns})


def long_table(attributes: NDArray[np.int32], names: Sequence[str], **columns: Any) -> Any:
    """Return one row a value, of events of any size: one row of `attributes` each, -1 where there is none.

    A column is an array of the same shape, or the column itself.
    """
    import pyarrow as pa

    used = attributes >= 0
    parts = {key: values[used] if isinstance(values, np.ndarray) else values for key, values in columns.items()}
    owners = np.repeat(np.arange(len(attributes)), used.sum(axis=1))
    return pa.table({"event": owners, "attribute": named(attributes[used], names), **parts})


def named(codes: NDArray[Any], names: Sequence[str], is_there: NDArray[np.bool_] | None = None) -> Any:
    """Return a column of names by their codes; null where nothing is there."""
    import pyarrow as pa

    mask = None if is_there is None else ~is_there
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=mask), pa.array(names, pa.string()))


def numbered(values: NDArray[Any], is_there: NDArray[np.bool_]) -> Any:
    """Return a column of numbers, null where nothing is there."""
    import pyarrow as pa

    return pa.array(values.astype(np.float64 if values.dtype.kind == "f" else np.int64), mask=~is_there)


def listed(counts: NDArray[Any], elements: Any, is_there: NDArray[np.bool_]) -> Any:
    """Return a column of lists, null where nothing is there; `elements` are those of all lists, one after the other."""
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(np.where(is_there, counts, 0))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=pa.array(~is_there))
