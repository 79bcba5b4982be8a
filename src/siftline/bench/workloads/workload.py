"""What a workload is: subscriptions and events as Arrow tables, and everything that is needed to draw them again.

Both tables are long: one row a predicate, one row a value of an event. Wide events, one column an attribute, would be
impossible with 30,000 attributes; `wide` makes them where there are few.

    predicates  subscription  clause  attribute  op  number  ...     (see `Engine.add_many`)
    values      event  attribute  number  text  flag                 (only the columns that are needed)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

# The columns of `values` that may hold the value; at most one of them is not null.
_VALUE_COLUMNS = ("number", "text", "flag")


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What every workload can vary; each workload adds its own."""

    n_subscriptions: int
    n_events: int


# (parameters, generator for subscriptions, generator for events) -> predicates, values
Draw = Callable[[Any, np.random.Generator, np.random.Generator], tuple[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to draw a workload.

    Attributes
    ----------
    name, description : str
        What `siftline bench list` shows.
    parameters : Parameters
        The defaults.
    draw : callable
        Returns the tables of predicates and of values.
    version : int
        Counted up when `draw` changes what it draws, so that stored workloads are drawn again.
    """

    name: str
    description: str
    parameters: Parameters
    draw: Draw
    version: int = 1

    def generate(self, parameters: Parameters, seed: int) -> Workload:
        """Draw the workload.

        Subscriptions and events have generators of their own: more events leave the subscriptions as they are.
        """
        streams = [np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2)]
        predicates, values = self.draw(parameters, *streams)
        return Workload(self.name, parameters, seed, self.version, predicates, values)


@dataclass(frozen=True)
class Workload:
    """Subscriptions and events, drawn."""

    name: str
    parameters: Parameters
    seed: int
    version: int
    predicates: Any
    values: Any

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the tables."""
        return {
            "workload": self.name,
            "parameters": asdict(self.parameters),
            "seed": self.seed,
            "version": self.version,
        }

    @property
    def n_subscriptions(self) -> int:
        """The number of subscriptions."""
        return self.parameters.n_subscriptions

    @property
    def n_events(self) -> int:
        """The number of events."""
        return self.parameters.n_events

    @cached_property
    def dicts(self) -> list[dict[str, Any]]:
        """The events as dicts; an attribute with several values has a list."""
        trees: list[dict[str, Any]] = [{} for _ in range(self.n_events)]
        for event, attribute, value in self._rows():
            tree = trees[event]
            if attribute not in tree:
                tree[attribute] = value
            elif isinstance(tree[attribute], list):
                tree[attribute].append(value)
            else:
                tree[attribute] = [tree[attribute], value]
        return trees

    def _rows(self) -> Iterator[tuple[int, str, Any]]:
        columns = [self.values[name].to_pylist() for name in _VALUE_COLUMNS if name in self.values.column_names]
        values = columns[0]
        for column in columns[1:]:
            values = [other if value is None else value for value, other in zip(values, column, strict=True)]
        return zip(self.values["event"].to_pylist(), self.values["attribute"].to_pylist(), values, strict=True)

    @cached_property
    def json(self) -> list[bytes]:
        """The events as JSON, without white space, as most encoders write it."""
        return [json.dumps(tree, separators=(",", ":")).encode() for tree in self.dicts]

    def wide(self) -> Any:
        """Return the events as an Arrow table with a column for each attribute; for few attributes only."""
        import pyarrow as pa

        names = self.values["attribute"].unique().to_pylist()
        return pa.table({name: [tree.get(name) for tree in self.dicts] for name in sorted(names)})
