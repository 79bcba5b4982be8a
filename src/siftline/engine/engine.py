"""The engine: it takes subscriptions and events, and returns ids, over any index.

This file is the public interface. `state.py` has the parts of an engine, `updates.py` changes them, `pipeline.py`
matches events against them. Threads may match while others add and remove.
"""

from __future__ import annotations

import pickle
import time
from typing import TYPE_CHECKING, Any, Final, Literal, overload

import numpy as np

from siftline.encoding.events import EncodedEvents
from siftline.engine.arguments import check_top, checked_now, checked_statistics, checked_tenant, checked_weight
from siftline.engine.fast_path import fast_ids, fast_ids_at, located_event
from siftline.engine.interface import CommonEngine
from siftline.engine.pipeline import find, find_at_once, moment_of, source_for
from siftline.engine.state import State
from siftline.engine.subscriptions import TextExpressions
from siftline.engine.subsets import Subset, Tenant, subset_of
from siftline.engine.updates import Updates
from siftline.errors import DuplicateIdError, TableError
from siftline.ids import AnyId, Id, plain_id, plain_ids
from siftline.indexes.registry import DEFAULT, PAGED
from siftline.operators.acceptance import accepted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from siftline.encoding.statistics import Statistics
    from siftline.engine.additions import Added, OnError
    from siftline.engine.subsets import Within
    from siftline.engine.tuning import Tuning
    from siftline.model import Expression
    from siftline.operators.stage import Stage

# `stats` names so many of the subscriptions that it counts.
_NAMED_MAX: Final = 10


class Engine(CommonEngine):
    """Subscriptions over one index.

    Parameters
    ----------
    index : str
        A name from `siftline.indexes()`.
    statistics : Statistics, optional
        What is known about future events; helps the index to choose its layout.
    schedule : str, optional
        The order in which operators are called: `adaptive` if left out, or `everything` for the oracle `scan`.
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

    def __new__(cls, index: str = DEFAULT, *arguments: Any, **options: Any) -> Engine:
        """Return an engine; for an index that keeps subscriptions in its own file, a `PagedEngine`."""
        if cls is Engine and index in PAGED:
            from siftline.engine.paged import PagedEngine

            return PagedEngine(index, *arguments, **options)  # type: ignore[return-value]
        return super().__new__(cls)

    def __init__(
        self,
        index: str = DEFAULT,
        statistics: Statistics | None = None,
        *,
        schedule: str | None = None,
        **options: Any,
    ) -> None:
        self._state = State(index, checked_statistics(statistics), _checked_schedule(schedule, index), options)
        self._updates = Updates(self._state)

    # subscriptions

    def __contains__(self, id: AnyId) -> bool:
        with self._state.publishing:
            return self._state.table.has(plain_id(id))

    def __len__(self) -> int:
        return self._state.table.n_live

    @property
    def index_name(self) -> str:  # type: ignore[override]
        """The name of the index."""
        return self._state.index_name

    def ids(self) -> list[Id]:
        """Return the ids of all subscriptions."""
        with self._state.publishing:
            table = self._state.table
            return table.ids(np.flatnonzero(table.is_live.view).astype(np.int32))

    def expression(self, id: AnyId) -> Expression:
        """Return the expression of a subscription."""
        with self._state.publishing:
            table = self._state.table
            slot = table.slot(plain_id(id))
        return table.expression(slot)

    def weight(self, id: AnyId) -> float:
        """Return the weight of a subscription."""
        with self._state.publishing:
            return float(self._state.table.weights.view[self._state.table.slot(plain_id(id))])

    def add(
        self, expression: str | Expression, id: AnyId | None = None, weight: float = 1.0, *, tenant: str | None = None
    ) -> Id:
        """Add one subscription and return its id.

        Parameters
        ----------
        expression : str or Expression
            Text of the language (LANGUAGE.md), or an expression from `parse`, `parse_pattern`, `attr` and so on.
        id : int, str or UUID, optional
            A new number if left out. Ids of one engine are all integers or all strings; a UUID counts as its text,
            here and in all other methods.
        weight : float
            For `match(..., top=k)`.
        tenant : str, optional
            The owner of the subscription, for `match(..., tenant=...)`.

        Raises
        ------
        SubscriptionError
            If the expression cannot be accepted; it says where and why.
        DuplicateIdError
            If the id is in use.
        """
        parsed = accepted(expression)
        self._state.compactor.stall(self._updates)
        with self._state.writing:
            chosen = self._state.table.next_id() if id is None else plain_id(id)
            self._state.table.check_id(chosen)
            self._updates.add_one(chosen, checked_weight(weight), parsed, checked_tenant(tenant))
        return chosen

    def add_many(self, source: Any, *, tenant: str | None = None, on_error: OnError = "raise") -> Added:
        """Add many subscriptions at once: all of them, or none if one is refused. Return how many were added.

        Parameters
        ----------
        source
            A dict from id to expression; an iterable of (id, expression) or (id, expression, weight), or of dicts with
            the keys of a line of JSON; an Arrow table, pandas or polars data frame, with the columns `subscription` (or
            `id`), `expression` and optionally `weight` and `tenant`, or in the columnar form of one row a predicate
            (see README); or the path of a file as the command line takes it: JSON Lines, CSV, Parquet or text, also
            `.gz` or `.zst`.
        tenant : str, optional
            The owner of the subscriptions, for `match(..., tenant=...)`, unless a row names one.
        on_error : {'raise', 'collect'}
            With 'collect', the good ones are added, and the attribute `refused` of the result lists the others, each
            with its position, id, reason and hint. A source that cannot be read at all is an error either way.

        >>> engine = Engine()
        >>> added = engine.add_many([(1, "a = 1"), (2, "a == 2"), (1, "a = 3")], on_error="collect")
        >>> int(added), [(refused.position, refused.hint or refused.reason) for refused in added.refused]
        (1, [(1, 'write ='), (2, 'the id 1 is already in use')])
        """
        from siftline.encoding.columns import load_columns
        from siftline.engine.additions import Added, Columns, read

        rows = read(source, checked_tenant(tenant), on_error)
        with self._state.writing:
            if on_error == "collect":
                rows = rows.fitted(self._state.table.are_ids_text, self._state.table.has)
            if isinstance(rows, Columns):
                takes_patterns = self._state.index.takes_patterns
                loaded = load_columns(rows.table, self._state.domains.copied(), takes_patterns=takes_patterns)
                return Added(self._updates.add_columns(loaded, rows.tenants_of(loaded.ids)), rows.refused)
            rows = rows.spelled(self._state.table.are_ids_text)
            self._state.table.check_ids(rows.ids)
            self._updates.add_parsed(rows.ids, rows.weights, rows.expressions, rows.tenants)
        return Added(len(rows.ids), rows.refused)

    def add_rows(self, rows: Any, ids: Any, weights: Any, texts: Any = None) -> int:
        """Add subscriptions that were parsed elsewhere, from a table of their predicates.

        Parameters
        ----------
        rows : Arrow table
            The columnar form; `subscription` is a position in `ids`, ascending, and every position occurs.
        ids, weights : Arrow arrays
            Of each subscription.
        texts : Arrow array of binary, optional
            The expressions in the text language, for `expression` and `explain`.
        """
        from siftline.encoding.columns import load_columns

        with self._state.writing:
            loaded = load_columns(rows, self._state.domains.copied(), takes_patterns=self._state.index.takes_patterns)
            if loaded.ids != list(range(len(ids))):
                raise TableError("the column 'subscription' must have every position in ids, ascending")
            loaded = loaded._replace(ids=ids.to_pylist(), weights=weights.to_numpy())
            return self._updates.add_columns(loaded, None, None if texts is None else TextExpressions(texts))

    def replace(self, id: AnyId, expression: str | Expression, weight: float | None = None) -> None:
        """Give a subscription a new expression; every match sees either the old one or the new one."""
        id, parsed = plain_id(id), accepted(expression)
        self._state.compactor.stall(self._updates)
        with self._state.writing:
            slot = self._state.table.slot(id)
            kept = float(self._state.table.weights.view[slot]) if weight is None else checked_weight(weight)
            self._updates.replace_one(id, kept, parsed, self._state.table.tenant(slot))

    def remove(self, id: AnyId) -> None:
        """Remove one subscription; it never matches again."""
        with self._state.writing:
            self._updates.remove_one(plain_id(id))

    def remove_many(self, ids: Iterable[AnyId]) -> None:
        """Remove subscriptions: all of them, or none if one is unknown."""
        gone = plain_ids(ids)
        with self._state.writing:
            slots = self._updates.slots_of(gone)
            if len(set(gone)) != len(gone):
                raise DuplicateIdError("an id is to be removed twice")
            with self._state.fast_paths:
                self._updates.forget(self._state.table.remove(gone, slots))
            self._state.compactor.tidy(self._updates)

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
            Only among these; unknown ids are ignored. For many matches `subset` is faster, because a small subset is
            matched without the index.
        tenant : str, optional
            Only among the subscriptions that were added for this tenant.
        as_slots : bool
            Return the internal integers instead, without making Python objects.
        now : datetime or str, optional
            The instant that `now()` means in subscriptions; the current time if left out.

        >>> engine = Engine()
        >>> _ = engine.add_many([(1, "a = 1"), (2, "a > 0", 2.0)])
        >>> _ = engine.add("a < 9", id=3, tenant="acme")
        >>> sorted(engine.match({"a": 1})), engine.match({"a": 1}, top=1), engine.match({"a": 1}, within=[1, 5])
        ([1, 2, 3], [2], [1])
        >>> engine.match({"a": 1}, tenant="acme"), engine.match({"a": 10}, first=True), engine.match({}, first=True)
        ([3], 2, None)
        """
        instant = None if now is None else checked_now(now)
        state, found = self._state, None
        is_plain = top is None and within is None and tenant is None
        if type(event) is not EncodedEvents:
            located = located_event(state, event, instant)
            if located is not None:
                if is_plain and not as_slots and not first:
                    ids = fast_ids_at(state, located)
                    if ids is not None:
                        return ids
                event = located.encoded(event)
                found = find_at_once(state, event) if is_plain else None
        else:
            if instant is not None or state.domains.has_ages:
                with state.publishing:
                    event = event.at(instant, state.domains)
            if is_plain and event.is_single:
                if not as_slots and not first:
                    ids = fast_ids(state, event)
                    if ids is not None:
                        return ids
                found = find_at_once(state, event)
        if top is not None:
            check_top(top)
        if first and (top is not None or as_slots):
            raise ValueError("first=True gives one id: it goes neither with top nor with as_slots")
        if found is None:
            one, chosen = source_for(event, is_one=True), self._within(within, tenant)
            found = find(self._updates, one, 0, 1, within=chosen, top=top, now=instant)
        if first:
            return found.table.ids(found.slots[:1])[0] if len(found.slots) else None
        return found.slots if as_slots else found.table.ids(found.slots)

    def _within(self, within: Within, tenant: str | None) -> Subset | None:
        """Return the subset for the arguments `within` and `tenant`."""
        if tenant is None:
            return None if within is None else subset_of(within)
        if within is not None:
            raise ValueError("within and tenant exclude each other")
        checked_tenant(tenant)
        known = self._state.tenants.get(tenant)
        if known is None:
            known = Tenant(tenant)
            if tenant in self._state.table.tenant_numbers:
                self._state.tenants[tenant] = known
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
        `subscription` is int64 or string, as the ids of this engine are, and int64 if it never had any; `weight`, if
        wanted, is float64.

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
            The instant that `now()` means, for all events alike; the current time if left out.

        >>> engine = Engine()
        >>> _ = engine.add("a = 1", id="ann")
        >>> engine.match_batch([{"a": 2}]).schema
        event: int64
        subscription: string
        """
        from siftline.engine.batches import matched_table

        if top is not None:
            check_top(top)
        instant = time.time_ns() if now is None else checked_now(now)
        if isinstance(events, EncodedEvents):
            with self._state.publishing:
                events = events.at(instant, self._state.domains)
        encoded = moment_of(self._updates, source_for(events, event=event), None, instant).events
        chosen, stage = self._within(within, tenant), self._state.table.stage
        return matched_table(
            len(encoded),
            lambda first, end: find(self._updates, encoded, first, end, within=chosen, top=top),
            lambda: self._state.table.are_ids_text,
            threads,
            weights,
            whole=stage is not None and stage.takes_batches,
        )

    def encode(self, events: Any, *, event: str | None = None, now: Any = None) -> EncodedEvents:
        """Encode one event or many once, for matching them often.

        `match` (one event) and `match_batch` take the result. It stays valid when subscriptions change, and as time
        passes: the engine encodes it again if needed. With `now`, it need not be encoded again for that instant.
        """
        instant = None if now is None else checked_now(now)
        is_one = type(events) is dict or (type(events) is bytes and b"\n" not in events)
        located = located_event(self._state, events, instant) if is_one else None
        if located is not None:
            return located.encoded(events)
        return moment_of(self._updates, source_for(events, event=event), None, instant).events

    # looking in

    def stats(self) -> dict[str, Any]:
        """Return counts, bytes by structure, and the work that matching has done so far.

        `always_checked` counts the subscriptions that are candidates for every event, because they need not find any
        value; `always_checked_ids` names some of them. `programs` counts the expressions that were compiled for the
        exact check, because an event met a clause of theirs that does not say everything; `program_tests` the
        predicates that they share; `regex_calls` how often a regular expression was run on a string for them.

        >>> engine = Engine()
        >>> _ = engine.add_many({"ann": "a = 1 and not (b = 2) is true", "bob": "(b = 2) is not true"})
        >>> stats = engine.stats()
        >>> stats["always_checked"], stats["always_checked_ids"]
        (1, ['bob'])
        """
        with self._state.writing:
            clauses, always = self._updates.joined_clauses(), self._updates.always_checked()
            matcher = self._state.domains.matcher
            n_strings, n_searched, n_tests = (0, 0, 0) if matcher is None else matcher.counts.tolist()
            return {
                "index": self._state.index_name,
                "subscriptions": len(self),
                "shared": self._state.table.n_duplicates,
                "always_checked": len(always),
                "always_checked_ids": self._state.table.ids(always[:_NAMED_MAX]),
                "attributes": len(self._state.domains.ids),
                "patterns": len(self._state.domains.patterns) + len(self._state.domains.pattern_attributes),
                "strings": n_strings,
                "strings_searched": n_searched,
                "strings_tested": n_tests,
                "clauses": clauses.n_clauses,
                "predicates": len(clauses.attributes),
                "clause_bytes": sum(array.nbytes for array in clauses),
                "laid_out_s": self._state.laid_out_s,
                **self._state.index.stats(),
                **self._state.table.programs.stats(),
                **({} if self._state.table.stage is None else {"operators": self._state.table.stage.stats()}),
            }

    @property
    def call_stage(self) -> Stage | None:
        """The stage that calls operators and learns from the calls; None if no condition has calls."""
        return self._state.table.stage

    def rebuild(self) -> None:
        """Lay out the whole index again, as one part, without removed subscriptions; matching goes on meanwhile.

        The schedule `sub-order` also computes its order of calls again, from what was learned about them.

        Never needed for correct results: an index takes additions and removals at any time.
        """
        with self._state.writing:
            self._updates.sweep_all()
            self._updates.renew()
            self._updates.rebuild()
            if self._state.table.stage is not None:
                self._state.table.stage.rebuild()

    def settle(self) -> None:
        """Wait until all work after changes is done, such as merging parts of the index.

        Never needed for correct results; matching may be a little faster afterwards. Raises the error of a background
        thread, if there was one.
        """
        self._state.compactor.join()
        with self._state.writing:
            self._state.compactor.settle(self._updates)

    def tune(self, events: Any) -> Tuning:
        """Lay out the index for events like these, and return the expected and the measured costs.

        Parameters
        ----------
        events
            A sample of future events, some thousand of them, in any form that `match_batch` takes.

        The statistics of the events tell which predicates are rare. An index is built with them beside the old one,
        which goes on matching; then both match some of the events, and the faster one is kept.

        >>> engine = Engine()
        >>> engine.add_many((n, f"common = 1 and rare = {n}") for n in range(100))
        100
        >>> print(engine.tune([{"common": 1, "rare": n} for n in range(50)]))  # doctest: +ELLIPSIS
        statistics of 50 events, an event on average:
        ...
        """
        from siftline.engine.tuning import tune

        with self._state.writing:
            self._updates.renew()
            return tune(self._updates, events)

    def describe(self) -> str:
        """Return a few lines about what the engine holds, and how the index is built.

        >>> engine = Engine("fast-scan")
        >>> _ = engine.add("price <= 580 and color = 'red'", id=1)
        >>> print(engine.describe())
        1 subscriptions, 0 of them with the same expression as another
        1 clauses of 2 predicates on 2 attributes, 0 patterns
        most predicates: price (1), color (1)
        statistics: none: `tune` makes them from events
        fast-scan: 1 clauses, each with a first literal; 1 other literals
        """
        from siftline.engine.tuning import placement

        with self._state.writing:
            return "\n".join([*placement(self._updates), self._state.index.describe()])

    # saving

    def save(self, path: str | Path) -> None:
        """Write a snapshot directory; an existing one is replaced only when the new one is complete."""
        from siftline.engine.snapshots import save

        with self._state.writing:
            self._updates.sweep_all()
            self._updates.renew()
            self._updates.flush()
            save(self._updates, path)

    @classmethod
    def open(cls, path: str | Path, *, check: bool = True) -> Engine:
        """Open a snapshot; its arrays are memory-mapped, so this is quick and the memory is shared.

        Checksums of all files are checked first; `check=False` is for a snapshot that was checked already.
        """
        from siftline.engine.snapshots import load

        return load(cls, path, check=check)

    def _check(self) -> None:
        """Assert every invariant of the engine and of its index."""
        with self._state.writing:
            self._updates.check()

    def __getstate__(self) -> dict[str, Any]:
        # Pickled here, under the locks: the caller's pickler would read the parts without them.
        with self._state.writing, self._state.publishing:
            return {"pickled": pickle.dumps(self._state)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._state = pickle.loads(state["pickled"])
        self._updates = Updates(self._state)


def _checked_schedule(schedule: str | None, index: str) -> str:
    """Return the schedule of an engine; the default is known without importing the schedules."""
    if schedule is None:
        return "everything" if index == "scan" else "adaptive"
    from siftline.operators.schedules import check_schedule

    check_schedule(schedule)
    return schedule
