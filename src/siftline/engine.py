"""The engine: subscriptions in, events in, ids out, over any index.

Threads may match while others add and remove. Writers take turns (`_writing`). What readers need at one moment, the
encoding of an event and the index that goes with it, changes under a second lock (`_publishing`), held for encoding and
for small additions; large ones build a new index beside the old one. The kernels themselves run without any lock, on
arrays that no longer change under them. An event that is already encoded is matched without a lock altogether, and
again with it if the generation moved meanwhile.
"""

from __future__ import annotations

import math
import pickle
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, overload

import numpy as np

from siftline.encoding.clauses import Clauses, concatenate, constants_of, encode_covers, relabelled, select, swept
from siftline.encoding.domains import Domains
from siftline.encoding.events import EncodedEvents
from siftline.encoding.patterns import matcher_of
from siftline.encoding.sources import source_of
from siftline.encoding.statistics import Statistics
from siftline.errors import DuplicateIdError, EventError, SiftlineError, SubscriptionError, TooLargeError
from siftline.indexes.protocol import Batch, Index
from siftline.indexes.registry import DEFAULT, make_index
from siftline.language.normal_form import cover, cover_with_alternatives
from siftline.model import Expression, matches
from siftline.subscriptions import Id, ParsedExpressions, SubscriptionTable, accepted, check_top

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from siftline.batches import Matches
    from siftline.encoding.columns import LoadedColumns
    from siftline.encoding.domains import Move
    from siftline.explanation import Explanation
    from siftline.language.normal_form import Cover
    from siftline.subscriptions import Expressions

# Removed subscriptions are swept out when they are this many and as many as the live ones.
_SWEEP: Final = 1024
# Clauses of small additions are joined when there are this many parts.
_MANY_PARTS: Final = 256
# How often a match that a replacement crossed is tried again before it holds off writers.
_PATIENCE: Final = 3

# The slots that match, the table that they belong to, and the events as they were encoded.
_Found = tuple["NDArray[np.int32]", SubscriptionTable, EncodedEvents]

# What one match needs, all of one moment: the encoded events, the index, the table, its number of slots, and how often
# subscriptions were added to the index until then.
_Moment = tuple[EncodedEvents, Index, SubscriptionTable, int, int]


class Engine:
    """Subscriptions over one index.

    Parameters
    ----------
    index : str
        A name from `siftline.indexes()`.
    statistics : Statistics, optional
        What is known about the events to come; helps the index to choose.
    **options
        Options of the index.

    Examples
    --------
    >>> engine = Engine()
    >>> engine.add("model = 'iphone5s' and price <= 580", id="ann")
    'ann'
    >>> engine.match({"model": "iphone5s", "price": 550})
    ['ann']
    """

    def __init__(self, index: str = DEFAULT, statistics: Statistics | None = None, **options: Any) -> None:
        if statistics is not None and not isinstance(statistics, Statistics):
            raise TypeError(f"statistics must be a siftline.Statistics, not {type(statistics).__name__}")
        self._index_name = index
        self._options = options
        self._statistics = statistics
        self._index: Index = make_index(index, options)
        self._table = SubscriptionTable()
        self._domains = Domains()
        self._clauses = [encode_covers([], 0, self._domains)]
        self._n_added = 0
        self._n_replaced = 0
        self._generation = 0
        self._writing = threading.RLock()
        self._publishing = threading.Lock()

    # subscriptions

    def __len__(self) -> int:
        return self._table.n_live

    def __contains__(self, id: Id) -> bool:
        with self._publishing:
            return self._table.has(id)

    def __repr__(self) -> str:
        return f"<siftline.Engine: {len(self):,} subscriptions, index {self._index_name!r}>"

    def ids(self) -> list[Id]:
        """Return the ids of all subscriptions."""
        with self._publishing:
            table = self._table
            return table.ids(np.flatnonzero(table.is_live.view).astype(np.int32))

    def expression(self, id: Id) -> Expression:
        """Return the expression of a subscription."""
        with self._publishing:
            table = self._table
            slot = table.slot(id)
        return table.expression(slot)

    def add(self, expression: str | Expression, id: Id | None = None, weight: float = 1.0) -> Id:
        """Add one subscription and return its id.

        Parameters
        ----------
        expression : str or Expression
            Text of the language (LANGUAGE.md), or an expression from `parse`, `parse_pattern`, `attr` and so on.
        id : int or str, optional
            A new number if left out. Ids of one engine are all integers or all strings.
        weight : float
            For `match(..., top=k)`.

        Raises
        ------
        SubscriptionError
            If the expression cannot be accepted; it says where and why.
        DuplicateIdError
            If the id is in use.
        """
        parsed = accepted(expression)
        with self._writing:
            chosen = self._table.next_id() if id is None else id
            self._table.check_ids([chosen])
            self._add_parsed([chosen], [_checked_weight(weight)], [parsed])
        return chosen

    def add_many(self, source: Any) -> int:
        """Add many subscriptions at once: all of them, or none if one is refused. Returns how many.

        Parameters
        ----------
        source
            An iterable of (id, expression) or (id, expression, weight); or an Arrow table, pandas or polars data frame,
            or the path of a Parquet file, with the columns `subscription`, `expression` and optionally `weight`, or in
            the columnar form of one row a predicate (see README).
        """
        from siftline.encoding.columns import load_columns
        from siftline.encoding.tables import rows_of, table_of

        table = table_of(source)
        if table is not None and "expression" not in table.column_names:
            with self._writing:
                takes_patterns = self._index.takes_patterns
                return self._add_columns(load_columns(table, self._domains.copied(), takes_patterns=takes_patterns))
        ids, expressions, weights = rows_of(source if table is None else table)
        parsed = [_accepted_row(expression, id) for id, expression in zip(ids, expressions, strict=True)]
        with self._writing:
            self._table.check_ids(ids)
            self._add_parsed(ids, [_checked_weight(weight) for weight in weights], parsed)
        return len(ids)

    def replace(self, id: Id, expression: str | Expression, weight: float | None = None) -> None:
        """Give a subscription a new expression; every match sees either the old one or the new one."""
        parsed = accepted(expression)
        with self._writing:
            slot = self._table.slot(id)
            kept = float(self._table.weights.view[slot]) if weight is None else _checked_weight(weight)
            self._add_parsed([id], [kept], [parsed], replaced=[id])

    def remove(self, id: Id) -> None:
        """Remove one subscription; it never matches again."""
        self.remove_many([id])

    def remove_many(self, ids: Iterable[Id]) -> None:
        """Remove subscriptions: all of them, or none if one is unknown."""
        gone = list(ids)
        with self._writing:
            slots = self._slots_of(gone)
            if len(np.unique(slots)) != len(slots):
                raise DuplicateIdError("an id is to be removed twice")
            with self._changing():
                self._table.remove(gone, slots)
                self._index.remove(slots)
            self._sweep()
            self._index.tidy()

    def _slots_of(self, ids: Sequence[Id]) -> NDArray[np.int32]:
        return np.array([self._table.slot(id) for id in ids], dtype=np.int32)

    # matching

    @overload
    def match(self, event: Any, *, top: int | None = None, as_slots: Literal[False] = False) -> list[Id]: ...
    @overload
    def match(self, event: Any, *, top: int | None = None, as_slots: Literal[True]) -> NDArray[np.int32]: ...
    def match(self, event: Any, *, top: int | None = None, as_slots: bool = False) -> list[Id] | NDArray[np.int32]:
        """Return the ids of all subscriptions that one event satisfies, in no promised order.

        Parameters
        ----------
        event : dict, JSON text or bytes, or what `encode` returned
            One event.
        top : int, optional
            Only the `top` best by weight: weight descending, then id ascending.
        as_slots : bool
            Return the internal integers instead, without making Python objects.
        """
        if type(event) is EncodedEvents and top is None:
            slots_found = self._match_at_once(event)
            if slots_found is not None:
                return slots_found[0] if as_slots else slots_found[1].ids(slots_found[0])
        slots, table, _ = self._find(event, 0, is_one=True)
        if top is not None:
            slots = _best(slots, top, table)
        return slots if as_slots else table.ids(slots)

    def _match_at_once(self, event: EncodedEvents) -> tuple[NDArray[np.int32], SubscriptionTable] | None:
        """Match without any lock; None if that is not enough.

        An odd generation says that the engine is being changed, another one afterwards that it was. Locks, and the
        objects that `_find` passes around, would cost as much as matching does.
        """
        generation, table = self._generation, self._table
        if generation & 1 or len(event.starts) != 2 or event.errors or not event.fits(self._domains):
            return None
        sure, possible = self._index.match(event, 0)
        return None if len(possible) or self._generation != generation else (sure, table)

    def match_batch(
        self, events: Any, *, event: str | None = None, top: int | None = None, threads: int | None = None
    ) -> Any:
        """Return an Arrow table (event, subscription): all subscriptions that each event satisfies.

        Parameters
        ----------
        events
            Dicts or JSON texts; an Arrow table, pandas or polars data frame, with a column for each attribute; an Arrow
            array of JSON texts; bytes with JSON Lines; or what `encode` returned.
        event : str, optional
            The column that holds whole events, as JSON text, map or struct.
        top : int, optional
            Only the `top` best subscriptions of each event, in order.
        threads : int, optional
            How many threads share a large batch; one for each core if left out.
        """
        from siftline.batches import matched_table

        encoded = self._moment(events, event=event)[0]
        return matched_table(len(encoded), lambda first, end: self._find_many(encoded, first, end), top, threads)

    def encode(self, events: Any, *, event: str | None = None) -> EncodedEvents:
        """Encode one event or many once, for matching them often.

        The result may be given to `match` (one event) and `match_batch`. It stays right when subscriptions change:
        the engine encodes it again if need be.
        """
        return self._moment(events, event=event)[0]

    def _moment(self, events: Any, *, event: str | None = None, is_one: bool = False) -> _Moment:
        """Return events encoded for the index as it is at this moment."""
        source = events.source if isinstance(events, EncodedEvents) else source_of(events, event=event, is_one=is_one)
        if is_one and len(source) != 1:
            raise EventError(f"match takes one event, not {len(source)}; use match_batch")
        with self._publishing:
            is_encoded = isinstance(events, EncodedEvents)
            encoded = events.encoded_for(self._domains) if is_encoded else EncodedEvents(source, self._domains)
            return encoded, self._index, self._table, self._table.n_slots, self._n_added

    def _matching(self, moment: _Moment, position: int) -> _Found:
        """Return the slots that match one event."""
        events, index, table, n_slots, n_added = moment
        if position in events.errors:
            return np.empty(0, dtype=np.int32), table, events
        sure, possible = index.match(events, position)
        if self._n_added != n_added:
            # Subscriptions added after the event was encoded may use constants that its codes do not know.
            sure, possible = sure[sure < n_slots], possible[possible < n_slots]
        if len(possible):
            event = events.event(position)
            checked = [slot for slot in possible.tolist() if matches(table.expression(slot), event)]
            sure = np.concatenate([sure, np.array(checked, dtype=np.int32)])
        return sure, table, events

    def _find(self, events: Any, position: int, *, is_one: bool = False) -> _Found:
        """Match one event, and again if a subscription was replaced meanwhile: it could miss both old and new."""
        for _ in range(_PATIENCE):
            n_replaced = self._n_replaced
            found = self._matching(self._moment(events, is_one=is_one), position)
            if n_replaced == self._n_replaced:
                return found
        with self._writing:
            return self._matching(self._moment(events, is_one=is_one), position)

    def _find_many(self, events: EncodedEvents, first: int, end: int) -> Matches:
        """Match the events first .. end - 1, and again if a subscription was replaced meanwhile."""
        for _ in range(_PATIENCE):
            n_replaced = self._n_replaced
            found = self._matching_many(self._moment(events), first, end)
            if n_replaced == self._n_replaced:
                return found
        with self._writing:
            return self._matching_many(self._moment(events), first, end)

    def _matching_many(self, moment: _Moment, first: int, end: int) -> Matches:
        from siftline.batches import confirmed

        events, index, table, n_slots, n_added = moment
        found = index.match_many(events, first, end)
        return confirmed(found, events, first, table, n_slots if self._n_added != n_added else None)

    # looking in

    def explain(self, event: Any, id: Id) -> Explanation:
        """Say condition by condition why an event matches a subscription, or why not.

        >>> engine = Engine()
        >>> _ = engine.add("price <= 580 and color = 'red'", id=1)
        >>> engine.explain({"price": 600}, 1).matched
        False
        """
        from siftline.explanation import explain

        expression = self.expression(id)
        source = source_of(event, event=None, is_one=True)
        return explain(expression, source.tree(0), id)

    def stats(self) -> dict[str, Any]:
        """Return counts, bytes by structure, and what matching has cost so far."""
        with self._writing:
            clauses = self._joined_clauses()
            return {
                "index": self._index_name,
                "subscriptions": len(self),
                "attributes": len(self._domains.ids),
                "patterns": len(self._domains.patterns) + len(self._domains.pattern_attributes),
                "clauses": clauses.n_clauses,
                "predicates": len(clauses.attributes),
                "clause_bytes": sum(array.nbytes for array in clauses),
                **self._index.stats(),
            }

    def rebuild(self) -> None:
        """Lay out the index anew, as one piece, without removed subscriptions; matching goes on meanwhile.

        Never needed for right results: an index takes additions and removals as they come.
        """
        with self._writing:
            self._sweep(is_forced=True)
            clauses = self._joined_clauses()
            index = self._built_index(clauses, self._domains, ParsedExpressions([]))
            with self._changing():
                self._index = index

    def describe(self) -> str:
        """Return a few lines that show how the index is built.

        >>> print(Engine().describe())
        fast-scan: 0 clauses, each with a first literal; 0 other literals
        """
        with self._writing:
            return self._index.describe()

    # saving

    def save(self, path: str | Path) -> None:
        """Write a snapshot directory; an existing one is replaced only when the new one is complete."""
        from siftline.saved import save

        with self._writing:
            self._sweep(is_forced=True)
            save(self, path)

    @classmethod
    def open(cls, path: str | Path) -> Engine:
        """Open a snapshot; its arrays are memory-mapped, so this is quick and the memory is shared."""
        from siftline.saved import load

        return load(cls, path)

    def __getstate__(self) -> dict[str, Any]:
        # Pickled under the lock, because nothing holds it when the caller's pickler gets to the parts.
        with self._writing, self._publishing:
            state = {name: part for name, part in self.__dict__.items() if name not in ("_writing", "_publishing")}
            return {"pickled": pickle.dumps(state)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(pickle.loads(state["pickled"]))
        self._writing = threading.RLock()
        self._publishing = threading.Lock()

    # how changes are made; all of these run under `_writing`

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let nobody look at the parts for a moment; who looked without a lock sees that the generation moved on."""
        with self._publishing:
            self._generation += 1
            try:
                yield
            finally:
                self._generation += 1

    def _add_parsed(
        self, ids: list[Id], weights: list[float], expressions: list[Expression], replaced: Sequence[Id] = ()
    ) -> None:
        """Add expressions whose ids were checked, taking away `replaced` in the same moment."""
        covering = cover_with_alternatives if self._index.takes_alternatives else cover
        covers = [covering(expression) for expression in expressions]
        constants = constants_of(covers)
        parts = ParsedExpressions(expressions)
        if self._domains.has_room(constants):
            with self._changing():
                self._domains.add(constants)
                clauses = self._encoded(covers, self._domains)
                self._extend(clauses, parts)
                self._enter(ids, weights, parts, replaced)
        else:
            domains = self._domains.copied()
            moves = domains.add(constants)
            clauses = self._encoded(covers, domains)
            self._swap(domains, moves, clauses, parts, lambda: self._enter(ids, weights, parts, replaced))
        self._sweep()
        self._index.tidy()

    def _encoded(self, covers: Sequence[Cover], domains: Domains) -> Clauses:
        """Return clauses for the next slots."""
        return encode_covers(covers, self._table.n_slots, domains, takes_patterns=self._index.takes_patterns)

    def _add_columns(self, loaded: LoadedColumns) -> int:
        """Add what was loaded from columns over a copy of the domains."""
        self._table.check_ids(loaded.ids)
        ids, weights, expressions, clauses, domains, moves = loaded
        clauses = clauses._replace(slots=clauses.slots + np.int32(self._table.n_slots))
        if moves or len(ids) > len(self):
            self._swap(domains, moves, clauses, expressions, lambda: self._enter(ids, weights, expressions, ()))
        else:
            with self._changing():
                self._domains = domains
                self._extend(clauses, expressions)
                self._enter(ids, weights, expressions, ())
            self._index.tidy()
        return len(ids)

    def _swap(
        self, domains: Domains, moves: list[Move], clauses: Clauses, new: Expressions, enter: Callable[[], None]
    ) -> None:
        """Build an index beside the old one, which goes on matching, and put it in its place."""
        joined = concatenate([relabelled(self._joined_clauses(), moves), clauses])
        index = self._built_index(joined, domains, new)
        matcher_of(domains)  # made here, not by the first match under the lock
        with self._changing():
            self._domains, self._index, self._clauses = domains, index, [joined]
            enter()

    def _extend(self, clauses: Clauses, new: Expressions) -> None:
        """Add clauses to the index as it is; under both locks."""
        first = self._table.n_slots
        self._n_added += 1  # before the index shows anything new
        try:
            self._index.add(self._batch(clauses, self._domains, first, new))
        except SiftlineError:
            raise  # an index that refuses has not changed
        except BaseException:
            self._index = self._built_index(self._joined_clauses(), self._domains, ParsedExpressions([]))
            raise
        self._clauses.append(clauses)
        if len(self._clauses) > _MANY_PARTS:
            self._joined_tail()

    def _enter(self, ids: Sequence[Id], weights: Any, expressions: Expressions, replaced: Sequence[Id]) -> None:
        """Write subscriptions that the index has into the table; under both locks."""
        if replaced:
            gone = self._slots_of(replaced)
            self._n_replaced += 1
            self._table.remove(replaced, gone)
            self._index.remove(gone)
        self._table.append(ids, weights, expressions)

    def _joined_tail(self) -> None:
        """Join the small parts at the end, and larger ones before them while that at least doubles them."""
        parts, size = self._clauses, 0
        first = len(parts)
        while first > 0 and (first > len(parts) - _MANY_PARTS or parts[first - 1].n_clauses <= size):
            first -= 1
            size += parts[first].n_clauses
        self._clauses = [*parts[:first], concatenate(parts[first:])]

    def _joined_clauses(self) -> Clauses:
        """Return all clauses as one, including those of removed subscriptions that were not swept out yet."""
        if len(self._clauses) > 1:
            self._clauses = [concatenate(self._clauses)]
        return self._clauses[0]

    def _built_index(self, clauses: Clauses, domains: Domains, new: Expressions) -> Index:
        """Return a new index over the slots of the table and the new expressions behind them."""
        batch = self._batch(clauses, domains, 0, new)
        index = self._laid_out(batch, is_new=len(new) > len(self))
        dead = np.flatnonzero(~self._table.is_live.view).astype(np.int32)
        if len(dead):
            index.remove(dead)
        return index

    def _laid_out(self, batch: Batch, *, is_new: bool) -> Index:
        """Return a new index; what is mostly old is never refused, but laid out in several parts if need be."""
        index = make_index(self._index_name, self._options)
        try:
            index.build(batch)
        except TooLargeError:
            if is_new:
                raise
            index.build_in_parts(batch)
        return index

    def _batch(self, clauses: Clauses, domains: Domains, first: int, new: Expressions) -> Batch:
        """Describe the slots from `first` on: those of the table, and the new ones that are not in it yet."""
        old, n_old = self._table.expression, self._table.n_slots

        def expression(slot: int) -> Expression:
            return old(slot) if slot < n_old else new.expression(slot - n_old)

        return Batch(first, n_old - first + len(new), clauses, domains, expression, self._statistics)

    def _sweep(self, *, is_forced: bool = False) -> None:
        """Give back the memory of removed subscriptions, their constants and attributes included."""
        n_dead = self._table.n_slots - len(self)
        if n_dead == 0 or not (is_forced or (n_dead >= _SWEEP and n_dead >= len(self))):
            return
        table, new_slots = self._table.compacted()
        domains, clauses = swept(self._domains, select(self._joined_clauses(), new_slots))
        batch = Batch(0, table.n_slots, clauses, domains, table.expression, self._statistics)
        index = self._laid_out(batch, is_new=False)
        matcher_of(domains)
        with self._changing():
            self._table, self._index, self._domains, self._clauses = table, index, domains, [clauses]

    def _check(self) -> None:
        """Assert every invariant of the engine and of its index."""
        self._table.check()
        self._domains.check()
        clauses = self._joined_clauses()
        clauses.check()
        assert clauses.n_clauses == self._index.stats().get("clauses", clauses.n_clauses)
        self._index._check()


def _accepted_row(expression: str | Expression, id: Id) -> Expression:
    try:
        return accepted(expression)
    except SubscriptionError as error:
        raise SubscriptionError(
            f"subscription {id!r}: {error.reason}",
            text=error.text,
            position=error.position,
            hint=error.hint,
            path=error.path,
        ) from None


def _checked_weight(weight: object) -> float:
    try:
        if isinstance(weight, (int, float)) and not isinstance(weight, bool) and math.isfinite(weight):
            return float(weight)
    except OverflowError:  # an integer beyond all doubles
        pass
    raise SubscriptionError("a weight must be a finite number")


def _best(slots: NDArray[np.int32], top: Any, table: SubscriptionTable) -> NDArray[np.int32]:
    """Return the `top` slots by weight, heaviest first, and by id where weights are equal."""
    check_top(top)
    weights = table.weights.view[slots]
    if 0 < top < len(slots):
        # Everything at least as heavy as the k-th heaviest, ties included, so that few are left to sort by id.
        threshold = np.partition(weights, len(slots) - top)[len(slots) - top]
        slots = slots[weights >= threshold]
    ranked = sorted(zip(table.weights.view[slots].tolist(), table.ids(slots), slots.tolist(), strict=True), key=_rank)
    return np.array([slot for _, _, slot in ranked[:top]], dtype=np.int32)


def _rank(row: tuple[float, Any, int]) -> tuple[float, Any]:
    weight, id, _ = row
    return -weight, id
