"""Parsed subscriptions on their way to a shard: columns of predicates, packed into bytes that Spark only carries.

Most subscriptions are conjunctions of predicates, or a few of them or-ed. Those become rows, one a predicate, which an
engine loads a column at a time; their text goes along, so that an engine can show it. The others travel as text alone
and are parsed again where the shard is built.

Bytes and not columns of Spark, because the JVM would touch every element of every list twice.
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

# Where an `or` has more conjunctions, another normal form may be better: the engine chooses it.
_MAX_CLAUSES: Final = 8
# An attribute that satisfies one of these may have no value.
WITHOUT_VALUE: Final = frozenset({"is null", "exists"})


class Parsed(NamedTuple):
    """Some subscriptions.

    subscriptions   id, weight, text (null: rows alone), n_rows (0: text alone), and for those with text alone,
                    attributes: what `required_attributes` says
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
        """Return `n` subscriptions, or what there is of them."""
        begin, end = self.starts[[start, min(start + n, len(self))]].tolist()
        return Parsed(self.subscriptions.slice(start, n), self.predicates.slice(begin, end - begin))

    def packed(self) -> bytes:
        """Return the same as bytes."""
        sink = pa.BufferOutputStream()
        for table in self:
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks())
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def unpacked(cls, packed: Any) -> Parsed:
        """Return what was packed, as views of the bytes."""
        source = pa.BufferReader(packed)
        return cls(*(pa.ipc.open_stream(source).read_all() for _ in cls._fields))

    @classmethod
    def joined(cls, parts: Sequence[Parsed]) -> Parsed:
        """Return all subscriptions of some parts."""
        tables = [pa.concat_tables(tables, promote_options="default") for tables in zip(*parts, strict=True)]
        return cls(*(table.unify_dictionaries().combine_chunks() for table in tables))


class Collector:
    """Takes expressions one at a time, and gives them back as columns."""

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
        """Take one subscription that was accepted."""
        first = len(self._predicates)
        if not self._add_rows(expression):
            self._others[len(self._ids)] = required_attributes(expression)
        self._ids.append(id)
        self._weights.append(weight)
        self._texts.append(text)
        self._counts.append(len(self._predicates) - first)

    def _add_rows(self, expression: Expression) -> bool:
        """Take the predicates of a conjunction, or of some of them, or-ed; return False for anything else."""
        clauses = _conjunctions(expression)
        if clauses is None:
            return False
        for number, predicates in enumerate(clauses):
            for predicate in predicates:
                self._predicates.add(predicate)
                self._clauses.append(number)
        return True

    def parsed(self) -> Parsed:
        """Return everything that was taken."""
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
    """Return the predicates of conjunctions that are or-ed; None if the expression is anything else."""
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
    # False, like true, needs something to compare with; only "is not null" is false without.
    needs_value = asked is Asked.TRUE or (asked is Asked.FALSE and leaf.op != "is not null")
    return leaf.attribute if needs_value else None
