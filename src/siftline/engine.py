"""The engine: subscriptions in, events in, ids out, over any index.

This file is what a user sees; `changes.py` has the parts of an engine and how they change, `matching.py` how one event
is matched. Threads may match while others add and remove.
"""

from __future__ import annotations

import pickle
import threading
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, overload

import numpy as np

from siftline.encoding.events import DictSource, EncodedEvents
from siftline.encoding.sources import source_of
from siftline.encoding.statistics import Statistics
from siftline.errors import DuplicateIdError, TableError
from siftline.ids import AnyId, Id, plain_id, plain_ids
from siftline.indexes.protocol import MOST_FOUND
from siftline.indexes.registry import DEFAULT, PAGED
from siftline.matching import Matching
from siftline.model import has_calls
from siftline.subscriptions import (
    SubscriptionTable,
    TextExpressions,
    accepted,
    check_top,
    checked_now,
    checked_tenant,
    checked_weight,
)
from siftline.subsets import Subset, Tenant, subset_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from siftline.additions import Added, OnError
    from siftline.encoding.columns import LoadedColumns
    from siftline.explanation import Explanation
    from siftline.model import Expression
    from siftline.operators.stage import Stage
    from siftline.tuning import Tuning

# What `within=` takes.
Within: TypeAlias = "Subset | Iterable[AnyId] | None"


class Engine(Matching):
    """Subscriptions over one index.

    Parameters
    ----------
    index : str
        A name from `siftline.indexes()`.
    statistics : Statistics, optional
        What is known about the events to come; helps the index to choose.
    schedule : str, optional
        In which order calls of operators are made; `adaptive` if left out, for `scan` the oracle, `everything`.
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

    def __new__(cls, index: str = DEFAULT, *_: Any, **__: Any) -> Engine:
        """Return an engine; of an index that keeps subscriptions in its own file, the one that is made for that."""
        if cls is Engine and index in PAGED:
            from siftline.paged_engine import PagedEngine

            return super().__new__(PagedEngine)
        return super().__new__(cls)

    def __init__(
        self,
        index: str = DEFAULT,
        statistics: Statistics | None = None,
        *,
        schedule: str | None = None,
        **options: Any,
    ) -> None:
        if statistics is not None and not isinstance(statistics, Statistics):
            raise TypeError(f"statistics must be a siftline.Statistics, not {type(statistics).__name__}")
        super().__init__(index, statistics, _checked_schedule(schedule, index), options)

    # subscriptions

    def __contains__(self, id: AnyId) -> bool:
        with self._publishing:
            return self._table.has(plain_id(id))

    def __repr__(self) -> str:
        return f"<siftline.Engine: {len(self):,} subscriptions, index {self._index_name!r}>"

    def ids(self) -> list[Id]:
        """Return the ids of all subscriptions."""
        with self._publishing:
            table = self._table
            return table.ids(np.flatnonzero(table.is_live.view).astype(np.int32))

    def expression(self, id: AnyId) -> Expression:
        """Return the expression of a subscription."""
        with self._publishing:
            table = self._table
            slot = table.slot(plain_id(id))
        return table.expression(slot)

    def weight(self, id: AnyId) -> float:
        """Return the weight of a subscription."""
        with self._publishing:
            return float(self._table.weights.view[self._table.slot(plain_id(id))])

    def add(
        self, expression: str | Expression, id: AnyId | None = None, weight: float = 1.0, *, tenant: str | None = None
    ) -> Id:
        """Add one subscription and return its id.

        Parameters
        ----------
        expression : str or Expression
            Text of the language (LANGUAGE.md), or an expression from `parse`, `parse_pattern`, `attr` and so on.
        id : int, str or UUID, optional
            A new number if left out. Ids of one engine are all integers or all strings; a UUID counts as its text, here
            and wherever an id is taken.
        weight : float
            For `match(..., top=k)`.
        tenant : str, optional
            Whose subscription it is, for `match(..., tenant=...)`.

        Raises
        ------
        SubscriptionError
            If the expression cannot be accepted; it says where and why.
        DuplicateIdError
            If the id is in use.
        """
        parsed = accepted(expression)
        with self._writing:
            chosen = self._table.next_id() if id is None else plain_id(id)
            self._table.check_id(chosen)
            self._add_one(chosen, checked_weight(weight), parsed, checked_tenant(tenant))
        return chosen

    def add_many(self, source: Any, *, tenant: str | None = None, on_error: OnError = "raise") -> Added:
        """Add many subscriptions at once: all of them, or none if one is refused. Returns how many.

        Parameters
        ----------
        source
            A dict from id to expression; an iterable of (id, expression) or (id, expression, weight), or of dicts with
            the keys of a line of JSON; an Arrow table, pandas or polars data frame, with the columns `subscription` (or
            `id`), `expression` and optionally `weight` and `tenant`, or in the columnar form of one row a predicate
            (see README); or the path of a file as the command line takes it: JSON Lines, CSV, Parquet or text, also
            `.gz` or `.zst`.
        tenant : str, optional
            Whose subscriptions they are, for `match(..., tenant=...)`, unless a row says it.
        on_error : {'raise', 'collect'}
            With 'collect', the good ones are added, and `refused` of what is returned lists the others, each with its
            position, id, reason and hint. A source that cannot be read at all is an error either way.

        >>> engine = Engine()
        >>> added = engine.add_many([(1, "a = 1"), (2, "a == 2"), (1, "a = 3")], on_error="collect")
        >>> int(added), [(refused.position, refused.hint or refused.reason) for refused in added.refused]
        (1, [(1, 'write ='), (2, 'the id 1 is already in use')])
        """
        from siftline.additions import Added, Columns, read
        from siftline.encoding.columns import load_columns

        rows = read(source, checked_tenant(tenant), on_error)
        with self._writing:
            if on_error == "collect":
                rows = rows.fitted(self._table.are_ids_text, self._table.has)
            if isinstance(rows, Columns):
                takes_patterns = self._index.takes_patterns
                loaded = load_columns(rows.table, self._domains.copied(), takes_patterns=takes_patterns)
                return Added(self._add_columns(loaded, rows.tenants_of(loaded.ids)), rows.refused)
            rows = rows.spelled(self._table.are_ids_text)
            self._table.check_ids(rows.ids)
            self._add_parsed(rows.ids, rows.weights, rows.expressions, rows.tenants)
        return Added(len(rows.ids), rows.refused)

    def add_loaded(self, loaded: LoadedColumns) -> int:
        """Add what `load_columns` made of a table over empty domains; several engines may take the same.

        Only an engine that never had subscriptions takes it.
        """
        with self._writing:
            if self._table.n_slots or self._domains.ids:
                raise ValueError("only a new engine takes what was loaded for one")
            return self._add_columns(loaded._replace(domains=loaded.domains.copied()), None)

    def add_rows(self, rows: Any, ids: Any, weights: Any, texts: Any = None) -> int:
        """Add subscriptions whose predicates stand in a table already, for those who parse elsewhere.

        Parameters
        ----------
        rows : Arrow table
            The columnar form; `subscription` is a position in `ids`, ascending, and every position occurs.
        ids, weights : Arrow arrays
            Of each subscription.
        texts : Arrow array of binary, optional
            What the predicates were parsed from, in the text language, for `expression` and `explain`.
        """
        from siftline.encoding.columns import load_columns

        with self._writing:
            loaded = load_columns(rows, self._domains.copied(), takes_patterns=self._index.takes_patterns)
            if loaded.ids != list(range(len(ids))):
                raise TableError("the column 'subscription' must have every position in ids, ascending")
            loaded = loaded._replace(ids=ids.to_pylist(), weights=weights.to_numpy())
            return self._add_columns(loaded, None, None if texts is None else TextExpressions(texts))

    def replace(self, id: AnyId, expression: str | Expression, weight: float | None = None) -> None:
        """Give a subscription a new expression; every match sees either the old one or the new one."""
        id, parsed = plain_id(id), accepted(expression)
        with self._writing:
            slot = self._table.slot(id)
            kept = float(self._table.weights.view[slot]) if weight is None else checked_weight(weight)
            self._replace_one(id, kept, parsed, self._table.tenant(slot))

    def remove(self, id: AnyId) -> None:
        """Remove one subscription; it never matches again."""
        with self._writing:
            self._remove_one(plain_id(id))

    def remove_many(self, ids: Iterable[AnyId]) -> None:
        """Remove subscriptions: all of them, or none if one is unknown."""
        gone = plain_ids(ids)
        with self._writing:
            slots = self._slots_of(gone)
            if len(set(gone)) != len(gone):
                raise DuplicateIdError("an id is to be removed twice")
            with self._shortcuts:
                self._forget(self._table.remove(gone, slots))
            self._tidier.tidy(self)

    # matching

    @overload
    def match(
        self, event: Any, *, first: Literal[True], within: Within = None, tenant: str | None = None, now: Any = None
    ) -> Id | None: ...
    @overload
    def match(
        self,
        event: Any,
        *,
        top: int | None = None,
        first: Literal[False] = False,
        within: Within = None,
        tenant: str | None = None,
        as_slots: Literal[False] = False,
        now: Any = None,
    ) -> list[Id]: ...
    @overload
    def match(
        self,
        event: Any,
        *,
        top: int | None = None,
        first: Literal[False] = False,
        within: Within = None,
        tenant: str | None = None,
        as_slots: Literal[True],
        now: Any = None,
    ) -> NDArray[np.int32]: ...
    def match(
        self,
        event: Any,
        *,
        top: int | None = None,
        first: bool = False,
        within: Within = None,
        tenant: str | None = None,
        as_slots: bool = False,
        now: Any = None,
    ) -> list[Id] | NDArray[np.int32] | Id | None:
        """Return the ids of all subscriptions that one event satisfies, in no promised order.

        Parameters
        ----------
        event : dict, JSON text or bytes, or what `encode` returned
            One event.
        top : int, optional
            Only the `top` best by weight: weight descending, then id ascending.
        first : bool
            Return the id of any one of them, None if there is none.
        within : ids, or what `subset` returned
            Only among these; ids that no subscription has are left out. For many matches `subset` is faster: few ids
            are then matched by themselves, without the index.
        tenant : str, optional
            Only among the subscriptions that were added for this tenant.
        as_slots : bool
            Return the internal integers instead, without making Python objects.
        now : datetime or str, optional
            The instant that `now()` means in subscriptions; this one if left out.

        >>> engine = Engine()
        >>> _ = engine.add_many([(1, "a = 1"), (2, "a > 0", 2.0)])
        >>> _ = engine.add("a < 9", id=3, tenant="acme")
        >>> sorted(engine.match({"a": 1})), engine.match({"a": 1}, top=1), engine.match({"a": 1}, within=[1, 5])
        ([1, 2, 3], [2], [1])
        >>> engine.match({"a": 1}, tenant="acme"), engine.match({"a": 10}, first=True), engine.match({}, first=True)
        ([3], 2, None)
        """
        instant = None if now is None else checked_now(now)
        if type(event) is dict:
            with self._publishing:
                event = EncodedEvents(DictSource((event,)), self._domains, instant)
        elif (instant is not None or self._domains.has_ages) and type(event) is EncodedEvents:
            with self._publishing:
                event = event.at(instant, self._domains)
        is_plain = top is None and within is None and tenant is None
        if is_plain and type(event) is EncodedEvents and event.is_single:
            if not as_slots and not first:
                # As `_match_at_once` by a shorter way, for ids that are numbers. All in one place: where few match, a
                # call more would be a twentieth of the time.
                way = self._shortcuts.ways.get(get_ident()) or self._new_shortcut()
                latest: EncodedEvents | None = event
                if way is not None and (event.version != way.version or event.domains is not way.domains):
                    latest = event.latest_for(way.domains)
                if way is not None and latest is not None:
                    n_found = way.call(latest.address or latest.described(), way.table_at)
                    ids: list[Any] | None = way.ids_found[:n_found].tolist() if 0 <= n_found <= MOST_FOUND else None
                    if ids is not None and way.has_more:
                        ids = way.with_more(ids, latest)
                    if ids is not None and self._generation == way.generation:
                        return ids
            found = self._match_at_once(event)
            if found is not None and not first:
                return found[0] if as_slots else found[1].ids(found[0])
            if found is not None and not as_slots:
                return _first(*found)
        if top is not None:
            check_top(top)
        if first and (top is not None or as_slots):
            raise ValueError("first=True gives one id: it goes neither with top nor with as_slots")
        slots, table, _ = self._find(event, 0, is_one=True, top=top, within=self._within(within, tenant), now=instant)
        if first:
            return _first(slots, table)
        if top is not None:
            slots = _best(slots, top, table)
        return slots if as_slots else table.ids(slots)

    def subset(self, ids: Iterable[AnyId]) -> Subset:
        """Return some ids for `match(..., within=...)`, prepared once for many matches.

        The subset follows changes: an id that is added later belongs to it too.
        """
        return Subset(ids)

    def _within(self, within: Within, tenant: str | None) -> Subset | None:
        """Return the subset that is asked for."""
        if tenant is None:
            return None if within is None else subset_of(within)
        if within is not None:
            raise ValueError("within and tenant exclude each other")
        checked_tenant(tenant)
        known = self._tenants.get(tenant)
        if known is None:
            known = Tenant(tenant)
            if tenant in self._table.tenant_numbers:
                self._tenants[tenant] = known
        return known

    def match_batch(
        self,
        events: Any,
        *,
        event: str | None = None,
        top: int | None = None,
        within: Within = None,
        tenant: str | None = None,
        threads: int | None = None,
        weights: bool = False,
        now: Any = None,
    ) -> pa.Table:
        """Return an Arrow table (event, subscription): all subscriptions that each event satisfies.

        The columns and their types are the same whatever matched: `event`, the number of the event, is int64;
        `subscription` is int64 or string, as the ids of this engine are, and int64 as long as it never had any;
        `weight`, if it is asked for, is float64.

        Parameters
        ----------
        events
            Dicts or JSON texts; an Arrow table, pandas or polars data frame, with a column for each attribute; an Arrow
            array of JSON texts; bytes with JSON Lines; or what `encode` returned.
        event : str, optional
            The column that holds whole events, as JSON text, map or struct.
        top : int, optional
            Only the `top` best subscriptions of each event, in order.
        within, tenant
            As for `match`.
        threads : int, optional
            How many threads share a large batch; one for each core if left out.
        weights : bool
            Whether the table has a third column, `weight`.
        now : datetime or str, optional
            The instant that `now()` means, for all events alike; this one if left out.

        >>> engine = Engine()
        >>> _ = engine.add("a = 1", id="ann")
        >>> engine.match_batch([{"a": 2}]).schema
        event: int64
        subscription: string
        """
        from siftline.batches import matched_table

        instant = time.time_ns() if now is None else checked_now(now)
        if isinstance(events, EncodedEvents):
            with self._publishing:
                events = events.at(instant, self._domains)
        encoded, chosen = self._moment(events, event=event, now=instant)[0], self._within(within, tenant)
        stage = self._table.stage
        return matched_table(
            len(encoded),
            lambda first, end: self._find_many(encoded, first, end, chosen),
            lambda: self._table.are_ids_text,
            top,
            threads,
            weights,
            whole=stage is not None and stage.takes_batches,
        )

    def encode(self, events: Any, *, event: str | None = None, now: Any = None) -> EncodedEvents:
        """Encode one event or many once, for matching them often.

        The result may be given to `match` (one event) and `match_batch`. It stays right when subscriptions change, and
        as time passes: the engine encodes it again if need be. Who knows already at which instant it will be matched
        may say so; then `now()` is no reason for that.
        """
        return self._moment(events, event=event, now=None if now is None else checked_now(now))[0]

    # looking in

    def explain(self, event: Any, id: AnyId, *, now: Any = None) -> Explanation:
        """Say condition by condition why an event matches a subscription, or why not.

        If the subscription has calls, the event is matched with all others too, to see which calls that takes. `now` is
        the instant that `now()` means; this one if left out.

        >>> engine = Engine()
        >>> _ = engine.add("price <= 580 and color = 'red'", id=1)
        >>> engine.explain({"price": 600}, 1).matched
        False
        """
        from siftline.explanation import explain

        id = plain_id(id)
        expression = self.expression(id)
        tree, stage = source_of(event, event=None, is_one=True).tree(0), self.call_stage
        instant = time.time_ns() if now is None else checked_now(now)
        if stage is None or not has_calls(expression):
            return explain(expression, tree, id, now=instant)
        return explain(expression, tree, id, stage.traced(lambda: self.match(tree, now=now)), now=instant)

    def stats(self) -> dict[str, Any]:
        """Return counts, bytes by structure, and what matching has cost so far."""
        with self._writing:
            clauses = self._joined_clauses()
            return {
                "index": self._index_name,
                "subscriptions": len(self),
                "shared": self._table.n_followers,
                "attributes": len(self._domains.ids),
                "patterns": len(self._domains.patterns) + len(self._domains.pattern_attributes),
                "clauses": clauses.n_clauses,
                "predicates": len(clauses.attributes),
                "clause_bytes": sum(array.nbytes for array in clauses),
                "laid_out_s": self._laid_out_s,
                **self._index.stats(),
                **({} if self._table.stage is None else {"operators": self._table.stage.stats()}),
            }

    @property
    def call_stage(self) -> Stage | None:
        """What makes the calls of conditions, and learns from them; None if there are none."""
        return self._table.stage

    def rebuild(self) -> None:
        """Lay out the index anew, as one piece, without removed subscriptions; matching goes on meanwhile.

        The order of calls that `sub-order` keeps is made anew too, from what was learned about them.

        Never needed for right results: an index takes additions and removals as they come.
        """
        with self._writing:
            self._sweep_all()
            self._renew()
            self._rebuild()
            if self._table.stage is not None:
                self._table.stage.rebuild()

    def settle(self) -> None:
        """Wait until everything that follows from changes is done, such as merging parts of the index.

        Never needed for right results; matching may be a little faster afterwards. Raises what went wrong in the
        background, if anything did.
        """
        self._tidier.join()
        with self._writing:
            self._tidier.settle(self)

    def tune(self, events: Any) -> Tuning:
        """Lay out the index for events like these, and return what that was expected to cost, and what it costs.

        Parameters
        ----------
        events
            A sample of the events to come, some thousand of them, in any form that `match_batch` takes.

        The statistics of the events tell which predicates are rare. The index is built anew with them beside the old
        one, which goes on matching; then both match some of the events, and the faster one stays.

        >>> engine = Engine()
        >>> engine.add_many((n, f"common = 1 and rare = {n}") for n in range(100))
        100
        >>> print(engine.tune([{"common": 1, "rare": n} for n in range(50)]))  # doctest: +ELLIPSIS
        statistics of 50 events, an event on average:
        ...
        """
        from siftline.tuning import tune

        with self._writing:
            self._renew()
            return tune(self, events)

    def describe(self) -> str:
        """Return some lines that show what the engine holds, and how the index is built.

        >>> engine = Engine("fast-scan")
        >>> _ = engine.add("price <= 580 and color = 'red'", id=1)
        >>> print(engine.describe())
        1 subscriptions, 0 of them with the same expression as another
        1 clauses of 2 predicates on 2 attributes, 0 patterns
        most predicates: price (1), color (1)
        statistics: none: `tune` makes them from events
        fast-scan: 1 clauses, each with a first literal; 1 other literals
        """
        from siftline.tuning import placement

        with self._writing:
            return "\n".join([*placement(self), self._index.describe()])

    # saving

    def save(self, path: str | Path) -> None:
        """Write a snapshot directory; an existing one is replaced only when the new one is complete."""
        from siftline.saved import save

        with self._writing:
            self._sweep_all()
            self._renew()
            self._flush()
            save(self, path)

    @classmethod
    def open(cls, path: str | Path, *, check: bool = True) -> Engine:
        """Open a snapshot; its arrays are memory-mapped, so this is quick and the memory is shared.

        Every byte is compared with its checksum first; `check=False` is for those that were checked already.
        """
        from siftline.saved import load

        return load(cls, path, check=check)

    def close(self) -> None:
        """Bring the file of an engine up to date and let others open it; without a file there is nothing to do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # Pickled under the lock, because nothing holds it when the caller's pickler gets to the parts.
        with self._writing, self._publishing:
            state = {name: part for name, part in self.__dict__.items() if name not in ("_writing", "_publishing")}
            return {"pickled": pickle.dumps(state)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(pickle.loads(state["pickled"]))
        self._writing = threading.RLock()
        self._publishing = threading.Lock()
        self._table.removed = None
        # Hashes of strings are others in every process.
        self._entries = {hash(self._table.expression(slot)): slot for slot in self._entries.values()}


def _checked_schedule(schedule: str | None, index: str) -> str:
    """Return the schedule of an engine; what it is called by default needs no loading."""
    if schedule is None:
        return "everything" if index == "scan" else "adaptive"
    from siftline.operators.schedules import check_schedule

    check_schedule(schedule)
    return schedule


def _first(slots: NDArray[np.int32], table: SubscriptionTable) -> Id | None:
    return table.ids(slots[:1])[0] if len(slots) else None


def _best(slots: NDArray[np.int32], top: Any, table: SubscriptionTable) -> NDArray[np.int32]:
    """Return the `top` slots by weight, heaviest first, and by id where weights are equal."""
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
