"""The engine of `pb-tree`: subscriptions are in a file of pages, not in memory.

An `Engine` keeps ids, expressions and codes in memory, beside its index. Here all of them are in the file of the index,
and only a pool of its pages is in memory; events are matched by their values. `Engine(index="pb-tree", ...)` returns a
`PagedEngine`. If it has a path, a change is durable when `add` or `remove` returns.

There is one lock for all threads, because a match changes the pool.
"""

from __future__ import annotations

import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from siftline.encoding.domains import Domains
from siftline.encoding.events import EncodedEvents
from siftline.encoding.sources import source_of
from siftline.encoding.statistics import Statistics
from siftline.encoding.terms import terms_of
from siftline.engine.arguments import check_top, checked_now, checked_statistics, checked_tenant, checked_weight
from siftline.engine.engine import Engine
from siftline.engine.interface import CommonEngine
from siftline.engine.ranking import best_rows
from siftline.engine.subsets import Subset
from siftline.errors import DuplicateIdError, EventError, OperatorError, SubscriptionError, TableError, UnknownIdError
from siftline.ids import check_type, plain_id, plain_id_set, plain_ids
from siftline.indexes.pb_tree.index import PbTree
from siftline.indexes.pb_tree.rows import Row
from siftline.indexes.registry import make_index
from siftline.language.normal_form import cover
from siftline.language.printer import to_text
from siftline.language.text import parse_stored
from siftline.model import evaluate_solutions, has_calls, matches
from siftline.operators.acceptance import accepted
from siftline.operators.calling import CallCounts, EventCalls
from siftline.operators.schedules import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from siftline.engine.additions import Added, OnError
    from siftline.engine.subsets import Within
    from siftline.engine.tuning import Tuning
    from siftline.ids import AnyId, Id
    from siftline.model import Event, Expression


# `tune` matches at most this many events.
_MEASURED: Final = 500


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Expression:
    return parse_stored(text)


class PagedEngine(CommonEngine):
    """Subscriptions in a file of pages.

    Examples
    --------
    >>> import tempfile
    >>> from siftline import Engine
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Engine("pb-tree", path=f"{folder.name}/subscriptions") as engine:
    ...     engine.add("price < 1000", id="ann")
    'ann'
    >>> with Engine("pb-tree", path=f"{folder.name}/subscriptions") as engine:
    ...     engine.match({"price": 500})
    ['ann']
    >>> folder.cleanup()
    """

    def __init__(
        self,
        index: str = PbTree.name,
        statistics: Statistics | None = None,
        *,
        schedule: str | None = None,
        **options: Any,
    ) -> None:
        self.index_name = index
        self._options = options
        self._statistics = checked_statistics(statistics)
        if schedule not in (None, EVERYTHING):
            raise OperatorError(f"{index} has no schedule {schedule!r}: it keeps nothing about subscriptions in memory")
        self._call_counts = CallCounts()
        self._domains = Domains()  # without attributes: events are matched by their values
        self._lock = threading.RLock()
        self._tree = cast("PbTree", make_index(index, options))
        longest_key = self._tree.longest_key
        self._tree.recover(lambda text: terms_of(cover(_parsed(text)), longest_key))

    def close(self) -> None:
        """Bring the file up to date and release it; the engine cannot be used any more."""
        with self._lock:
            self._tree.close()

    # subscriptions

    def __len__(self) -> int:
        return self._tree.n_subscriptions

    def __contains__(self, id: AnyId) -> bool:
        with self._lock:
            return self._tree.slot(plain_id(id)) is not None

    def ids(self) -> list[Id]:
        """Return the ids of all subscriptions."""
        with self._lock:
            return [row.id for _, row, _ in self._tree.rows]

    def expression(self, id: AnyId) -> Expression:
        """Return the expression of a subscription."""
        with self._lock:
            return _parsed(self._row(id).text)

    def weight(self, id: AnyId) -> float:
        """Return the weight of a subscription."""
        with self._lock:
            return self._row(id).weight

    def _row(self, id: AnyId) -> Row:
        slot = self._tree.slot(plain_id(id))
        if slot is None:
            raise UnknownIdError(f"there is no subscription with the id {id!r}")
        return self._tree.rows.row(slot)[0]

    def add(
        self, expression: str | Expression, id: AnyId | None = None, weight: float = 1.0, *, tenant: str | None = None
    ) -> Id:
        """Add one subscription and return its id; see `Engine.add`."""
        text = to_text(accepted(expression))
        with self._lock:
            chosen = self._next_id() if id is None else plain_id(id)
            self._check_ids([chosen])
            self._tree.change([], [Row(chosen, checked_weight(weight), text, checked_tenant(tenant))])
        return chosen

    def add_many(self, source: Any, *, tenant: str | None = None, on_error: OnError = "raise") -> Added:
        """Add many subscriptions at once: all of them, or none if one is refused; see `Engine.add_many`."""
        from siftline.engine.additions import Added, Columns, read

        rows = read(source, checked_tenant(tenant), on_error)
        with self._lock:
            are_ids_text = self._tree.are_ids_text
            if on_error == "collect":
                rows = rows.fitted(are_ids_text, lambda id: self._tree.slot(id) is not None)
            rows = rows.unpacked() if isinstance(rows, Columns) else rows.spelled(are_ids_text)
            self._check_ids(rows.ids)
            texts = map(to_text, rows.expressions)
            added = zip(rows.ids, rows.weights, texts, rows.each_tenant(), strict=True)
            self._tree.change([], [Row(*row) for row in added])
        return Added(len(rows.ids), rows.refused)

    def add_rows(self, rows: Any, ids: Any, weights: Any, texts: Any = None) -> int:
        """Add subscriptions that were parsed elsewhere; see `Engine.add_rows`."""
        from siftline.engine.additions import Columns

        unpacked = Columns(rows, None, [], rows).unpacked()
        if unpacked.ids != list(range(len(ids))):
            raise TableError("the column 'subscription' must have every position in ids, ascending")
        written = [None] * len(ids) if texts is None else texts.to_pylist()
        with self._lock:
            chosen = ids.to_pylist()
            self._check_ids(chosen)
            added = [
                Row(id, weight, to_text(expression) if text is None else text.decode("utf-8", "surrogatepass"), None)
                for id, weight, expression, text in zip(
                    chosen, weights.to_pylist(), unpacked.expressions, written, strict=True
                )
            ]
            self._tree.change([], added)
        return len(added)

    def replace(self, id: AnyId, expression: str | Expression, weight: float | None = None) -> None:
        """Give a subscription a new expression; every match sees either the old one or the new one."""
        text = to_text(accepted(expression))
        with self._lock:
            row = self._row(id)
            kept = row.weight if weight is None else checked_weight(weight)
            self._tree.change([row.id], [row._replace(weight=kept, text=text)])

    def remove(self, id: AnyId) -> None:
        """Remove one subscription; it never matches again."""
        self.remove_many([id])

    def remove_many(self, ids: Iterable[AnyId]) -> None:
        """Remove subscriptions: all of them, or none if one is unknown."""
        gone = plain_ids(ids)
        with self._lock:
            for id in gone:
                self._row(id)
            if len(set(gone)) != len(gone):
                raise DuplicateIdError("an id is to be removed twice")
            self._tree.change(gone, [])

    def _next_id(self) -> int:
        if self._tree.are_ids_text:
            raise SubscriptionError("this engine's ids are strings: a subscription needs an id")
        return self._tree.next_id()

    def _check_ids(self, ids: Sequence[Id]) -> None:
        """Raise unless all ids are new, different, and of this engine's type."""
        is_text = self._tree.are_ids_text
        seen: set[Id] = set()
        for id in ids:
            is_text = check_type(id, is_text)
            if id in seen or self._tree.slot(id) is not None:
                raise DuplicateIdError(f"the id {id!r} is already in use")
            seen.add(id)

    # matching

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
    ) -> Any:
        """Return the ids of all subscriptions that one event satisfies; see `Engine.match`."""
        if first and (top is not None or as_slots):
            raise ValueError("first=True gives one id: it goes neither with top nor with as_slots")
        encoded = self._events(event, None, is_one=True, now=now)
        if len(encoded) != 1:
            raise EventError(f"match takes one event, not {len(encoded)}; use match_batch")
        found = self._found(encoded, 0, top, _asked(within, tenant))
        if first:
            return found[0][1].id if found else None
        return np.array([slot for slot, _ in found], dtype=np.int32) if as_slots else [row.id for _, row in found]

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
        """Return an Arrow table (event, subscription); see `Engine.match_batch`. `threads` has no effect."""
        import pyarrow as pa

        from siftline.engine.batches import matches_schema

        encoded, is_asked = self._events(events, event, is_one=False, now=now), _asked(within, tenant)
        pairs = [(i, row) for i in range(len(encoded)) for _, row in self._found(encoded, i, top, is_asked)]
        columns = {"event": [position for position, _ in pairs], "subscription": [row.id for _, row in pairs]}
        schema = matches_schema(self._tree.are_ids_text, weights)
        return pa.table(columns | ({"weight": [row.weight for _, row in pairs]} if weights else {}), schema=schema)

    def encode(self, events: Any, *, event: str | None = None, now: Any = None) -> EncodedEvents:
        """Return events in a form that `match` and `match_batch` take; their values are not encoded."""
        return self._events(events, event, is_one=False, now=now)

    def _events(self, events: Any, event: str | None, *, is_one: bool, now: Any = None) -> EncodedEvents:
        is_encoded = isinstance(events, EncodedEvents)
        source = events.source if is_encoded else source_of(events, event=event, is_one=is_one)
        return EncodedEvents(source, self._domains, time.time_ns() if now is None else checked_now(now))

    def _found(
        self, events: EncodedEvents, position: int, top: Any, is_asked: Callable[[Row], bool]
    ) -> list[tuple[int, Row]]:
        """Return the subscriptions that match one event, each with its slot."""
        if top is not None:
            check_top(top)
        if position in events.errors:
            return []
        event = events.event(position)
        calls = EventCalls(event.tree, self._call_counts)
        with self._lock:
            clauses, is_sure = self._tree.match(event.leaves, event.now)
            held: dict[int, Row] = {}
            refused: set[int] = set()
            for (slot, row), is_enough in zip(self._tree.rows.owners(clauses), is_sure.tolist(), strict=True):
                if slot in held or (slot in refused and not is_enough) or not is_asked(row):
                    continue
                if is_enough or _holds(_parsed(row.text), event, calls):
                    held[slot] = row
                else:
                    refused.add(slot)
        found = list(held.items())
        if top is None:
            return found
        weights = np.array([row.weight for _, row in found], dtype=np.float64)
        _, best = best_rows(np.array([0, len(found)]), weights, lambda rows: [found[i][1].id for i in rows], top)
        return [found[i] for i in best.tolist()]

    # looking in

    @property
    def call_stage(self) -> None:
        """None: nothing about subscriptions is in memory, so their calls have no schedule."""
        return

    def stats(self) -> dict[str, Any]:
        """Return counts, bytes by structure, page reads and writes, and the work that matching has done so far."""
        with self._lock:
            return {
                "index": self.index_name,
                "subscriptions": len(self),
                "shared": 0,
                "attributes": len(self._tree.attributes),
                "patterns": 0,
                "clauses": self._tree.n_clauses,
                **self._tree.stats(),
                **({"operators": {"operators": calls}} if (calls := self._call_counts.to_dict()) else {}),
            }

    def rebuild(self) -> None:
        """Do nothing: trees change in place, and pages of removed subscriptions are merged and reused."""

    settle = rebuild

    def tune(self, events: Any) -> Tuning:
        """Return the cost of matching events like these; nothing changes, because trees do not depend on events."""
        from siftline.engine.tuning import Cost, Tuning

        encoded = self._events(events, None, is_one=False)
        if not len(encoded):
            raise ValueError("tuning needs some events")
        self._statistics = Statistics.from_events(encoded.source.tree(position) for position in range(len(encoded)))
        before, times = self.stats(), []
        for position in range(min(len(encoded), _MEASURED)):
            begin = time.perf_counter_ns()
            self._found(encoded, position, None, _anyone)
            times.append(time.perf_counter_ns() - begin)
        after = self.stats()
        names = ("candidates_examined", "predicates_evaluated")
        cost = Cost(float(np.median(times)) / 1e3, *((after[name] - before[name]) / len(times) for name in names))
        return Tuning(self._statistics.n_events, cost.candidates, cost, cost, is_kept=True)

    def describe(self) -> str:
        """Return a few lines that show the trees."""
        with self._lock:
            return self._tree.describe()

    def _check(self) -> None:
        with self._lock:
            self._tree.check()

    # copies

    def save(self, path: str | Path) -> None:
        """Write a snapshot directory with all subscriptions; opening it makes a new temporary file from them."""
        from siftline.engine.snapshots import save_rows

        with self._lock:
            options = {name: value for name, value in self._options.items() if name != "path"}
            save_rows(path, self.index_name, options, self._statistics, [row for _, row, _ in self._tree.rows])

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            options = {name: value for name, value in self._options.items() if name != "path"}
            rows = [row for _, row, _ in self._tree.rows]
            return {"index": self.index_name, "options": options, "statistics": self._statistics, "rows": rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["index"], state["statistics"], **state["options"])  # type: ignore[misc]
        self.add_stored(state["rows"])

    def add_stored(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add subscriptions (id, weight, text, tenant) that another engine has checked."""
        with self._lock:
            self._tree.change([], [Row(*row) for row in rows])


def _holds(expression: Expression, event: Event, calls: EventCalls) -> bool:
    """Check a candidate; its calls have no schedule, because nothing about subscriptions is in memory."""
    if not has_calls(expression):
        return matches(expression, event)
    return evaluate_solutions(expression, event, calls.solve) is True


def _anyone(row: Row) -> bool:
    return True


def _asked(within: Within, tenant: str | None) -> Callable[[Row], bool]:
    """Return the test of subscriptions for the arguments `within` and `tenant`."""
    if within is not None and tenant is not None:
        raise ValueError("within and tenant exclude each other")
    if within is not None:
        if isinstance(within, (str, bytes)):
            raise TypeError("within must be ids or a subset, not one string")
        ids = within.ids if isinstance(within, Subset) else plain_id_set(within)
        return lambda row: row.id in ids
    return _anyone if checked_tenant(tenant) is None else lambda row: row.tenant == tenant


# `Engine("pb-tree")` returns a PagedEngine, which `isinstance` must know as an Engine.
Engine.register(PagedEngine)
