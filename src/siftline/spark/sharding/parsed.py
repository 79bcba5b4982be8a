"""Parsed: subscriptions between the worker that parses them and the worker that builds their shard.

Most subscriptions are conjunctions of predicates, or disjunctions of a few conjunctions. They become rows, one for each
predicate, which an engine loads a column at a time; the text comes with them, so that an engine can show it. All other
subscriptions are sent as text alone, and are parsed again where the shard is built.

Rows are packed into bytes, and are not columns of Spark: the JVM would read and write every element of every list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from siftline.encoding.clauses import spans
from siftline.encoding.predicate_columns import PredicateColumns, fits
from siftline.language.normal_form import Asked, cover, parts_of
from siftline.model import And, Expression, Or, Predicate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# A disjunction of more conjunctions is sent as text, for which the engine may choose a better normal form.
_MAX_CLAUSES: Final = 8
# Operators that can be true of an attribute that has no value.
WITHOUT_VALUE: Final = frozenset({"is null", "exists"})


class Parsed(NamedTuple):
    """Some subscriptions.

    subscriptions   id, weight, text (null: only rows), n_rows (0: only text), and for those with only text,
                    attributes: the result of `required_attributes`
    predicates      clause, attribute, op, number, text, ... of all rows, in the order of the subscriptions
    """

    subscriptions: Any
    predicates: Any

    def __len__(self) -> int:
        return len(self.subscriptions)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the rows of each subscription start."""
        counts = self.subscriptions["n_rows"].to_numpy()
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def taken(self, positions: NDArray[np.int64]) -> Parsed:
        """Return the subscriptions at ascending positions."""
        starts = self.starts
        rows = spans(starts[positions], np.diff(starts)[positions])
        return Parsed(self.subscriptions.take(positions), self.predicates.take(rows))

    def sliced(self, start: int, n: int) -> Parsed:
        """Return `n` subscriptions from a position on, or fewer at the end."""
        begin, end = self.starts[[start, min(start + n, len(self))]].tolist()
        return Parsed(self.subscriptions.slice(start, n), self.predicates.slice(begin, end - begin))

    def packed(self) -> bytes:
        """Return the subscriptions as bytes."""
        sink = pa.BufferOutputStream()
        for table in self:
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks())
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def unpacked(cls, packed: Any) -> Parsed:
        """Return the subscriptions that were packed, as views of the bytes."""
        source = pa.BufferReader(packed)
        return cls(*(pa.ipc.open_stream(source).read_all() for _ in cls._fields))

    @classmethod
    def joined(cls, parts: Sequence[Parsed]) -> Parsed:
        """Return all subscriptions of some parts."""
        tables = [pa.concat_tables(tables, promote_options="default") for tables in zip(*parts, strict=True)]
        return cls(*(table.unify_dictionaries().combine_chunks() for table in tables))


class Collector:
    """Collects expressions, and returns them as columns."""

    def __init__(self, id_type: Any) -> None:
        self._id_type = id_type
        self._ids: list[Any] = []
        self._weights: list[float] = []
        self._texts: list[str] = []
        self._counts: list[int] = []
        self._others: dict[int, list[list[str]]] = {}
        self._clauses: list[int] = []
        self._predicates = PredicateColumns()

    def add(self, id: Any, weight: float, text: str, expression: Expression) -> None:
        """Add one valid subscription."""
        first = len(self._predicates)
        if not self._add_rows(expression):
            self._others[len(self._ids)] = required_attributes(expression)
        self._ids.append(id)
        self._weights.append(weight)
        self._texts.append(text)
        self._counts.append(len(self._predicates) - first)

    def _add_rows(self, expression: Expression) -> bool:
        """Add the predicates of a disjunction of a few conjunctions; return False for any other expression."""
        clauses = _conjunctions(expression)
        if clauses is None:
            return False
        for number, predicates in enumerate(clauses):
            for predicate in predicates:
                self._predicates.add(predicate)
                self._clauses.append(number)
        return True

    def parsed(self) -> Parsed:
        """Return all subscriptions that were added."""
        subscriptions = {
            "id": pa.array(self._ids, self._id_type),
            "weight": pa.array(self._weights, pa.float64()),
            "text": pa.array([_encoded(text) for text in self._texts], pa.large_binary()),
            "n_rows": pa.array(self._counts, pa.int32()),
            "attributes": pa.array([self._others.get(i) for i in range(len(self._ids))], _ATTRIBUTES),
        }
        predicates = {"clause": pa.array(self._clauses, pa.int32()), **self._predicates.columns()}
        return Parsed(pa.table(subscriptions), pa.table(predicates))


_ATTRIBUTES: Final = pa.list_(pa.list_(pa.string()))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _conjunctions(expression: Expression) -> list[tuple[Predicate, ...]] | None:
    """Return the predicates of each conjunction of a disjunction; None if the expression has another form."""
    operands = expression.operands if type(expression) is Or else (expression,)
    if len(operands) > _MAX_CLAUSES:
        return None
    clauses: list[Any] = [operand.operands if type(operand) is And else (operand,) for operand in operands]
    for clause in clauses:
        for predicate in clause:
            if not fits(predicate):
                return None
    return clauses if all(clauses) else None


def required_attributes(expression: Expression) -> list[list[str]]:
    """Return for each clause of the necessary condition the attributes that must have a value for it to hold.

    >>> from siftline import parse
    >>> required_attributes(parse("a = 1 and not (b = 2) or c is null"))
    [['a', 'b'], []]
    """
    return [[path for part in clause if (path := _required(part)) is not None] for clause in cover(expression).clauses]


def _required(part: Expression) -> str | None:
    """Return the attribute that must have a value for a literal to hold, if there is one."""
    leaf, asked = parts_of(part)
    if not isinstance(leaf, Predicate) or leaf.op in WITHOUT_VALUE:
        return None
    # A predicate that is false has compared a value, as one that is true; only "is not null" is false without a value.
    needs_value = asked is Asked.TRUE or (asked is Asked.FALSE and leaf.op != "is not null")
    return leaf.attribute if needs_value else None
