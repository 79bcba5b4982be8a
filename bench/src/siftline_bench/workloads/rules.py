"""`rules`: event-routing rules of six conditions over records of eight fields; equality, range and prefix mixed.

Ten rules belong together: they describe the same record, each by six of its eight fields. An event is such a record, so
that it matches these ten, and rarely others.

    source, type, region       texts, asked for by =
    size, latency, priority    numbers, asked for by =, <=, >=, between
    path, topic                texts of four words, asked for by `starts with`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline_bench.workloads.drawing import named, numbered, predicate_table
from siftline_bench.workloads.words import words
from siftline_bench.workloads.workload import Parameters, Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIELDS: Final = ("source", "type", "region", "size", "latency", "priority", "path", "topic")
_NAMED, _NUMBERED = range(3), range(3, 6)
# Different values of each field that has few.
_N_VALUES: Final = (200, 500, 20, 100_000, 10_000, 100)
_SEPARATORS: Final = {6: "/", 7: "."}
_N_PARTS: Final = 4

_EQUAL, _AT_MOST, _AT_LEAST, _BETWEEN, _PREFIX = range(5)
_OPERATORS: Final = ("=", "<=", ">=", "between", "starts with")


@dataclass(frozen=True, kw_only=True)
class Rules(Parameters):
    """Parameters of the rules.

    Attributes
    ----------
    n_predicates : int
        Conditions of a rule, at most 8.
    n_planted : int
        Rules that describe the same record, and so match the same event.
    """

    n_subscriptions: int = 100_000
    n_events: int = 1_000
    n_predicates: int = 6
    n_planted: int = 10


class _Records(NamedTuple):
    """Records, one row each: codes of words and numbers in the first six fields, texts in the last two."""

    numbers: NDArray[np.int64]
    texts: NDArray[Any]

    def text(self, record: NDArray[np.int64], field: int) -> NDArray[Any]:
        """Return a field of records as text."""
        if field in _NAMED:
            codes = self.numbers[record, field] * (field + 1) % len(words())
            return np.asarray(np.array(words(), dtype=object)[codes])
        return np.asarray(self.texts[record, field - _NUMBERED.stop])


class _Conditions(NamedTuple):
    """One row a condition."""

    rules: NDArray[np.int64]
    fields: NDArray[np.int64]
    operators: NDArray[np.int8]
    lows: NDArray[np.int64]
    highs: NDArray[np.int64]
    texts: NDArray[Any]


def draw(parameters: Rules, chance: np.random.Generator, event_chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    if parameters.n_predicates > len(_FIELDS):
        raise ValueError(f"a rule has at most {len(_FIELDS)} conditions")
    n_records = -(-parameters.n_subscriptions // parameters.n_planted)
    records = _draw_records(n_records, chance)
    chosen = event_chance.integers(0, max(1, n_records), size=parameters.n_events)
    return _predicate_table(_draw_conditions(parameters, records, chance)), _value_table(records, chosen)


def _draw_records(n: int, chance: np.random.Generator) -> _Records:
    numbers = chance.integers(0, _N_VALUES, size=(n, len(_N_VALUES)))
    parts = np.array(words(), dtype=object)[chance.integers(0, len(words()), size=(n, len(_SEPARATORS), _N_PARTS))]
    joined = [[mark.join(row[i]) for i, mark in enumerate(_SEPARATORS.values())] for row in parts]
    return _Records(numbers, np.array(joined, dtype=object).reshape(n, len(_SEPARATORS)))


def _draw_conditions(parameters: Rules, records: _Records, chance: np.random.Generator) -> _Conditions:
    """Draw the conditions of rule i, which record i // n_planted satisfies."""
    n = parameters.n_subscriptions
    fields = np.sort(chance.permuted(np.tile(np.arange(len(_FIELDS)), (n, 1)), axis=1)[:, : parameters.n_predicates])
    rules = np.repeat(np.arange(n), parameters.n_predicates)
    flat = fields.ravel()
    owners = rules // parameters.n_planted
    operators = np.where(flat >= _NUMBERED.stop, _PREFIX, _EQUAL).astype(np.int8)
    is_number = (flat >= _NUMBERED.start) & (flat < _NUMBERED.stop)
    operators[is_number] = chance.integers(_EQUAL, _PREFIX, size=int(is_number.sum()))
    lows, highs = _bounds(records, owners, flat, operators, chance)
    return _Conditions(rules, flat, operators, lows, highs, _texts(records, owners, flat, chance))


def _bounds(
    records: _Records,
    owners: NDArray[np.int64],
    fields: NDArray[np.int64],
    operators: NDArray[np.int8],
    chance: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return numbers with the record's own number between them, a tenth of all numbers away at most."""
    columns = np.minimum(fields, len(_N_VALUES) - 1)
    values = records.numbers[owners, columns]
    spans = np.array(_N_VALUES)[columns] // 10
    below, above = chance.integers(0, spans + 1, size=(2, len(fields)))
    is_point = operators == _EQUAL
    return np.where(is_point, values, values - below), np.where(is_point, values, values + above)


def _texts(
    records: _Records, owners: NDArray[np.int64], fields: NDArray[np.int64], chance: np.random.Generator
) -> NDArray[Any]:
    """Return the text of each condition: the record's own, or the beginning of it, two words and a bit."""
    found = np.full(len(fields), None, dtype=object)
    for field in (*_NAMED, *_SEPARATORS):
        rows = np.flatnonzero(fields == field)
        found[rows] = records.text(owners[rows], field)
        if field in _SEPARATORS:
            bits = chance.integers(1, 4, size=len(rows)).tolist()
            found[rows] = [_beginning(t, _SEPARATORS[field], bit) for t, bit in zip(found[rows], bits, strict=True)]
    return found


def _beginning(text: str, mark: str, n_letters: int) -> str:
    """Return two words and some letters of the third.

    >>> _beginning("a/b/word/c", "/", 2)
    'a/b/wo'
    """
    one, two, three, *_ = text.split(mark)
    return mark.join([one, two, three[:n_letters]])


def _predicate_table(conditions: _Conditions) -> Any:
    import pyarrow as pa

    operators, lows, highs = conditions.operators, conditions.lows, conditions.highs
    is_number = np.isin(conditions.fields, list(_NUMBERED))
    return predicate_table(
        conditions.rules,
        named(conditions.fields, _FIELDS),
        operators,
        _OPERATORS,
        number=numbered(np.where(operators == _AT_MOST, highs, lows), is_number),
        upper=numbered(highs, operators == _BETWEEN),
        text=pa.array(conditions.texts, pa.string()),
    )


def _value_table(records: _Records, chosen: NDArray[np.int64]) -> Any:
    import pyarrow as pa

    n, n_fields = len(chosen), len(_FIELDS)
    texts = np.full((n, n_fields), None, dtype=object)
    for field in (*_NAMED, *_SEPARATORS):
        texts[:, field] = records.text(chosen, field)
    numbers = np.zeros((n, n_fields), dtype=np.int64)
    numbers[:, : len(_N_VALUES)] = records.numbers[chosen]
    is_number = np.isin(np.arange(n_fields), list(_NUMBERED))
    return pa.table(
        {
            "event": np.repeat(np.arange(n), n_fields),
            "attribute": named(np.tile(np.arange(n_fields), n), _FIELDS),
            "number": numbered(numbers.ravel(), np.tile(is_number, n)),
            "text": pa.array(texts.ravel(), pa.string()),
        }
    )


RECIPES: Final = (
    Recipe(
        name="rules",
        description="rules of 6 conditions (=, ranges, prefixes) over 8 fields, 10 matches planted in each event",
        parameters=Rules(),
        draw=draw,
    ),
)
