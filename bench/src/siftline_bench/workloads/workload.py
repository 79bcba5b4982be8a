"""What a workload is: subscriptions and events as Arrow tables, and everything that is needed to draw them again.

Both tables are long: one row a predicate, one row a value of an event. Wide events, one column an attribute, would be
impossible with 30,000 attributes; `wide` makes them where there are few.

    predicates  subscription  clause  attribute  op  number  ...     (see `Engine.add_many`)
    values      event  attribute  number  text  flag                 (only the columns that are needed)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siftline_bench.measure import Timed

# A larger workload is drawn in chunks of this many subscriptions, each from a seed of its own.
CHUNK: Final = 1_000_000

# The columns of `values` that may hold the value; at most one of them is not null.
_VALUE_COLUMNS = ("number", "text", "flag")


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What every workload can vary; each workload adds its own."""

    n_subscriptions: int
    n_events: int

    def as_dict(self) -> dict[str, Any]:
        """Return the parameters by name; one that came `later` only if it has not its neutral value."""
        pairs = ((each, getattr(self, each.name)) for each in fields(self))
        return {each.name: value for each, value in pairs if "later" not in each.metadata or value != each.default}


def later(neutral: float) -> Any:
    """Declare a parameter that a recipe got when there were rows and files of it already.

    With its neutral value the workload is what it was before, and so is its identity.
    """
    return field(default=neutral, metadata={"later": True})


# (parameters, generator for subscriptions, generator for events[, what was prepared]) -> predicates, values
Draw = Callable[..., tuple[Any, Any]]


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
    prepare : callable, optional
        Given parameters and a generator, draws what all chunks share; `draw` gets it as its last argument.
    version : int
        Counted up when `draw` changes what it draws, so that stored workloads are drawn again.
    """

    name: str
    description: str
    parameters: Parameters
    draw: Draw
    prepare: Callable[[Any, np.random.Generator], Any] | None = None
    version: int = 1

    def generate(self, parameters: Parameters, seed: int, chunk: int = CHUNK) -> Workload:
        """Draw the workload, all chunks of it."""
        import pyarrow as pa

        numbers = range(n_chunks(parameters, chunk))
        tables = zip(*(self.draw_chunk(parameters, seed, number, chunk) for number in numbers), strict=True)
        predicates, values = (parts[0] if len(parts) == 1 else pa.concat_tables(parts) for parts in tables)
        return Workload(self.name, parameters, seed, self.version, predicates, values, chunk)

    def draw_chunk(self, parameters: Parameters, seed: int, number: int, chunk: int = CHUNK) -> tuple[Any, Any]:
        """Draw one chunk: some of the subscriptions, and of the events, with their numbers in the whole.

        Seed and number decide, so that chunks may be drawn anywhere and in any order. Subscriptions and events have
        generators of their own: more events leave the subscriptions as they are.
        """
        n = n_chunks(parameters, chunk)
        begin, end = number * chunk, min((number + 1) * chunk, parameters.n_subscriptions)
        first, last = (parameters.n_events * k // n for k in (number, number + 1))
        # At least one event is drawn, because recipes need not be able to draw none.
        part = replace(parameters, n_subscriptions=end - begin, n_events=max(1, last - first))
        chance, event_chance = _generators(seed, number)
        prepared = []
        if self.prepare is not None:
            prepared.append(self.prepare(parameters, _generators(seed, 0)[0] if number else chance))
        predicates, values = self.draw(part, chance, event_chance, *prepared)
        values = values if last > first else values.slice(0, 0)
        return _numbered_from(predicates, "subscription", begin), _numbered_from(values, "event", first)


def n_chunks(parameters: Parameters, chunk: int) -> int:
    """Return in how many chunks a workload is drawn."""
    return max(1, -(-parameters.n_subscriptions // chunk))


def _generators(seed: int, number: int) -> list[np.random.Generator]:
    """Return the generators of a chunk, for subscriptions and for events."""
    sequence = np.random.SeedSequence(seed, spawn_key=(number,)) if number else np.random.SeedSequence(seed)
    return [np.random.default_rng(part) for part in sequence.spawn(2)]


def _numbered_from(table: Any, column: str, first: int) -> Any:
    """Return a table whose column of numbers starts from `first` instead of 0."""
    import pyarrow.compute as pc

    if first == 0:
        return table
    return table.set_column(table.column_names.index(column), column, pc.add(table[column], first))


def identity(name: str, parameters: Parameters, seed: int, version: int, chunk: int) -> dict[str, Any]:
    """Return everything that determines the tables; the chunk, if there are several."""
    known = {"workload": name, "parameters": parameters.as_dict(), "seed": seed, "version": version}
    return {**known, "chunk": chunk} if n_chunks(parameters, chunk) > 1 else known


@dataclass(frozen=True)
class Workload:
    """Subscriptions and events, drawn."""

    name: str
    parameters: Parameters
    seed: int
    version: int
    predicates: Any
    values: Any
    chunk: int = CHUNK

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the tables."""
        return identity(self.name, self.parameters, self.seed, self.version, self.chunk)

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

    @property
    def is_text(self) -> bool:
        """Whether subscriptions are expressions to be parsed, and not rows of predicates."""
        return "expression" in self.predicates.column_names

    def loaded(self, *, takes_patterns: bool) -> Timed:
        """Return rows of predicates as `add_loaded` takes them, and how long it took to load them, once."""
        from siftline.encoding.columns import load_columns
        from siftline.encoding.domains import Domains
        from siftline_bench.measure import time_once

        way = takes_patterns and "text" in self.predicates.column_names  # without texts, there are no patterns
        if way not in self._loaded:
            table = self.predicates
            self._loaded[way] = time_once(lambda: load_columns(table, Domains(), takes_patterns=way))
        return self._loaded[way]

    @cached_property
    def _loaded(self) -> dict[bool, Timed]:
        return {}

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
