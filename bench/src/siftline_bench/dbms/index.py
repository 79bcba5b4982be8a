"""`dbms`: subscriptions are rows, and an event is a query to a database.

Paper: the DBMS half of ToPSS (section 4): sequential search (4.1) and predicate grouping (4.2), there on Kdb.

Idea: *sequential* keeps a row for each predicate of each subscription; a query compares all of them with the event,
counts by subscription, and keeps those that count as many as they have. *Grouping* keeps each different predicate once;
the query finds those that hold, then counts them in the table of which clause uses which predicate.

Worked example:    1: price < 580 and brand = 'x'        2: price < 580 and year in (2019, 2020)

    sequential    subs (sid, attr, op, val)        grouping   subs (sid, cnt)     preds (pid, attr, op, val)
                  1    price  <  580                          1   2               0    price  <  580
                  1    brand  =  'x'                          2   2               1    brand  =  'x'
                  2    price  <  580                          subs_preds          2    year   =  2019
                  2    year   =  2019                         (sid, pid)          2    year   =  2020
                  2    year   =  2020                         1 0, 1 1, 2 0, 2 2

    event {price: 550, year: 2020}, as a relation e (attr, val):

        WITH hit AS (SELECT sid FROM subs_preds WHERE pid IN (
            SELECT pid FROM preds p JOIN e ON p.attr = e.attr AND CASE p.op WHEN '<' THEN e.val < p.val ... END))
        SELECT sid FROM (SELECT sid, count(*) AS n FROM hit GROUP BY sid) JOIN subs USING (sid) WHERE n = cnt

    hits: pid 0, pid 2    counts: 1 has 1 of 2, 2 has 2 of 2    match: 2

Tables: `engines.TABLES`; the columns of a predicate are those of `predicates.ROW_TYPES`. In SQLite `preds`
has an index over (attr, kind, op, value), in which every operator is one range, and `subs_preds` lies in the order of
pid. In DuckDB rows lie in the order of pid too, and are scanned.

Arrays
------
slots : int32[n_clauses], is_exact : bool[n_clauses], by sid; is_live : bool[n_slots]

Cost: sequential reads every row for every event. Grouping reads the different predicates (SQLite: those that hold), and
then as many rows of `subs_preds` as clauses use predicates that hold; that is where its time goes, as the paper says.

Departures
----------
D1  A subscription is a clause of a disjunction, and `sid` numbers clauses; a slot with several is reported once.
D2  The event is a relation that the query joins, where the paper writes out a condition for each attribute. The
    statement then stays the same, and DuckDB takes a fifth of the time with 10,000 subscriptions (4 ms against 23 in
    a trial with grouping), half of it with 100,000; with sequential search a fifth and less.
D3  Attributes are numbers. Values have columns by type, and an operator for each way to bound a range on two sides.
    All comparisons are exact, for integers beyond 2**53 too (`predicates.py`).
D4  A predicate may have several rows, one for each of its ranges (`in`, `not in`); it still counts once.
D5  "No value lies in these ranges" is a predicate with negative points: if it holds, the sum cannot be right any more.
    Clauses that need nothing are found by `cnt = 0`.
D6  `contains` and its like are decided when an event is encoded, and are then an attribute that the event has or lacks.
    What codes cannot tell becomes a candidate for the exact check.
D7  Removing a subscription clears a flag; its rows go when the engine sweeps. Deleting them one by one would take a
    scan of the association each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from siftline.encoding.growable import Growable
from siftline.indexes.protocol import Candidates, OneByOne
from siftline_bench.dbms.engines import GROUPING, SEQUENTIAL, Query, arrow_array, import_duckdb, open_database
from siftline_bench.dbms.predicates import ROW_TYPES, event_rows, rows_of, uses_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.domains import Domains
    from siftline.encoding.events import EncodedEvents
    from siftline.indexes.protocol import Batch
    from siftline_bench.dbms.engines import Columns, Database
    from siftline_bench.dbms.predicates import Key, Uses

_ENGINES: Final = ("sqlite", "duckdb")
_PLANS: Final = (GROUPING, SEQUENTIAL)


class Prepared(NamedTuple):
    """Rows for new subscriptions, laid out and not yet in the tables."""

    batch: Batch
    tables: dict[str, Columns]
    pids: dict[Key, int]
    n_rows: int
    has_rest: bool
    has_unneeding: bool


class Dbms(OneByOne):
    """Matching by SQL in an embedded database.

    Parameters
    ----------
    engine : {"sqlite", "duckdb"}
        The database. DuckDB needs `pip install duckdb`, which siftline-bench brings.
    plan : {"grouping", "sequential"}
        Whether each different predicate is kept once, or each subscription has its own.

    Examples
    --------
    >>> from siftline import Engine
    >>> engine = Engine("dbms", engine="sqlite", plan="grouping")
    >>> engine.add_many([(1, "price < 580 and brand = 'x'"), (2, "price < 580 and year in (2019, 2020)")])
    2
    >>> engine.match({"price": 550, "year": 2020})
    [2]
    """

    name: ClassVar[str] = "dbms"

    def __init__(self, *, engine: str = "sqlite", plan: str = GROUPING) -> None:
        if engine not in _ENGINES:
            raise ValueError(f"engine must be one of {', '.join(_ENGINES)}, not {engine!r}")
        if plan not in _PLANS:
            raise ValueError(f"plan must be one of {', '.join(_PLANS)}, not {plan!r}")
        if engine == "duckdb":
            import_duckdb()
        self._engine = engine
        self._plan = plan
        self._counters = dict.fromkeys(("events", "candidates_examined", "predicates_evaluated", "lists_scanned"), 0)
        self._clear()

    def _clear(self) -> None:
        self._database: Database | None = None  # opened with the first row: that takes milliseconds
        self._domains: Domains | None = None
        self._slots = Growable.empty(np.int32)
        self._is_exact = Growable.empty(np.bool_)
        self._is_live = Growable.empty(np.bool_)
        self._pids: dict[Key, int] = {}
        self._n_rows = 0
        self._has_rest = self._has_unneeding = False

    # changes

    def build(self, batch: Batch) -> None:
        """Fill new tables."""
        self._clear()
        self.add(self.prepare(batch), batch.domains)

    def prepare(self, batch: Batch) -> Prepared:
        """Make the rows of new subscriptions."""
        uses = uses_of(batch.clauses)
        pids = dict.fromkeys(uses.keys, -1)
        for key in pids:
            pids[key] = self._pids.get(key, -1)
        new = [key for key, pid in pids.items() if pid < 0]
        pids.update(zip(new, range(len(self._pids), len(self._pids) + len(new)), strict=True))
        wanted = new if self._plan == GROUPING else uses.keys
        rows = [row for key in wanted for row in rows_of(pids[key], key, batch.domains)]
        numbers = np.array([pids[key] for key in uses.keys], dtype=np.int64)
        make = self._grouped if self._plan == GROUPING else self._spread
        tables = make(batch.clauses, uses, numbers, rows)
        has_rest = any(row[5] or row[7] for row in rows)
        return Prepared(batch, tables, pids, len(rows), has_rest, bool((uses.needed == 0).any()))

    def _grouped(self, clauses: Clauses, uses: Uses, pids: NDArray[np.int64], rows: list[Any]) -> dict[str, Columns]:
        """Return rows for the tables of 4.2."""
        first = len(self._slots)
        used = pids[uses.predicates]
        order = np.argsort(used, kind="stable")  # the order of the table: inserting is appending
        return {
            "subs": {"sid": np.arange(first, first + clauses.n_clauses), "cnt": uses.needed},
            "preds": _columns(rows),
            "subs_preds": {
                "pid": used[order],
                "sid": uses.clauses[order] + first,
                "points": uses.points[order],
            },
        }

    def _spread(self, clauses: Clauses, uses: Uses, pids: NDArray[np.int64], rows: list[Any]) -> dict[str, Columns]:
        """Return rows for the table of 4.1: those of each predicate once for every clause that uses it."""
        first = len(self._slots)
        by_pid = np.argsort(pids, kind="stable")
        row_pids = np.array([row[0] for row in rows], dtype=np.int64)
        places = by_pid[np.searchsorted(pids[by_pid], row_pids)]  # rows stand in the order of the keys
        starts = np.searchsorted(places, np.arange(len(pids) + 1))
        counts = np.diff(starts)[uses.predicates]
        taken = np.repeat(starts[uses.predicates] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        owners = np.repeat(uses.clauses, counts)
        # A clause without any predicate has a row too, which no event can hit.
        bare = np.setdiff1d(np.arange(clauses.n_clauses), uses.clauses)
        sids = np.concatenate([owners, bare])
        table: Columns = {
            "sid": sids + first,
            "cnt": uses.needed[sids],
            "points": np.concatenate([np.repeat(uses.points, counts), np.zeros(len(bare), dtype=np.int64)]),
        }
        places = np.concatenate([taken, np.full(len(bare), len(rows))])
        table |= {name: column.take(places) for name, column in _columns([*rows, _NOWHERE]).items()}
        return {"subs": table}

    def add(self, prepared: Prepared, domains: Domains) -> None:
        """Put rows into the tables."""
        batch = prepared.batch
        if batch.clauses.n_clauses:
            if self._database is None:
                self._database = open_database(self._engine, self._plan)
            self._database.load(prepared.tables)
        self._domains = domains
        self._pids.update(prepared.pids)
        self._n_rows += prepared.n_rows
        self._has_rest |= prepared.has_rest
        self._has_unneeding |= prepared.has_unneeding
        self._is_live.extend(np.ones(batch.n_slots, dtype=np.bool_))
        self._is_exact.extend(batch.clauses.is_exact)
        self._slots.extend(batch.clauses.slots)

    def remove(self, slots: NDArray[np.int32]) -> None:
        """Clear live flags (D7)."""
        self._is_live.view[slots] = False

    # matching

    def match(self, events: EncodedEvents, position: int) -> Candidates:
        """Ask the database."""
        nothing = np.empty(0, dtype=np.int32)
        self._counters["events"] += 1
        database, domains = self._database, self._domains
        if database is None or domains is None:
            return Candidates(nothing, nothing)
        start, end = events.starts[position], events.starts[position + 1]
        event = events.event(position)
        rows = event_rows(event, domains, events.attributes[start:end], events.codes[start:end])
        query = Query(
            self._plan,
            has_rest=self._has_rest or any(row[3] for row in rows),
            has_repeats=len({row[0] for row in rows}) < len(rows),
            has_unneeding=self._has_unneeding,
        )
        sids = database.find(query, rows)
        self._counters["lists_scanned"] += 1
        self._counters["candidates_examined"] += len(sids)
        self._counters["predicates_evaluated"] += self._n_rows
        return self._candidates(sids)

    def _candidates(self, sids: NDArray[np.int64]) -> Candidates:
        # Clauses that were added during the query are not in these views, or completely.
        slots, is_exact = self._slots.view, self._is_exact.view
        sids = sids[sids < len(slots)]
        sids = sids[self._is_live.view[slots[sids]]]
        are_exact = is_exact[sids]
        sure = np.unique(slots[sids[are_exact]])
        possible = np.setdiff1d(slots[sids[~are_exact]], sure)
        return Candidates(sure, possible)

    # looking in

    def stats(self) -> dict[str, Any]:
        """Return the bytes of the database and the work done so far."""
        sizes = {
            "database": 0 if self._database is None else self._database.n_bytes(),
            "slots": int(self._slots.view.nbytes),
            "is_exact": int(self._is_exact.view.nbytes),
            "is_live": int(self._is_live.view.nbytes),
        }
        counts = {"clauses": len(self._slots), "distinct_predicates": len(self._pids), "rows": self._n_rows}
        return {"bytes": sizes, **counts, **self._counters}

    def describe(self) -> str:
        """Return what the tables hold."""
        return (
            f"dbms: {self._engine}, plan {self._plan}: {len(self._slots):,} clauses,"
            f" {len(self._pids):,} different predicates in {self._n_rows:,} rows"
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the live flags: the tables are filled again from the clauses that the engine saves."""
        return {"is_live": self._is_live.view}

    def restore(self, arrays: Mapping[str, NDArray[Any]], batch: Batch) -> None:
        """Fill the tables."""
        self.build(batch)
        self._is_live.view[:] = arrays["is_live"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_database": None if self._database is None else self._database.dump()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if state["_database"] is not None:
            self._database = open_database(self._engine, self._plan)
            self._database.load(state["_database"])

    def _check(self) -> None:
        assert len(self._slots) == len(self._is_exact)
        assert (np.diff(self._slots.view) >= 0).all()
        assert sorted(self._pids.values()) == list(range(len(self._pids)))
        tables = {} if self._database is None else self._database.dump()
        if not tables:
            assert len(self._slots) == 0
            return
        sids = tables["subs"]["sid"]
        assert sorted(set(sids)) == list(range(len(self._slots)))
        if self._plan == GROUPING:
            assert set(tables["preds"]["pid"]) == set(self._pids.values())
            assert len(tables["preds"]["pid"]) == self._n_rows
            needed = dict.fromkeys(sids, 0)
            for sid, points in zip(tables["subs_preds"]["sid"], tables["subs_preds"]["points"], strict=True):
                needed[sid] += points > 0
            assert needed == dict(zip(sids, tables["subs"]["cnt"], strict=True))


# A row that no event can hit: there is no such attribute.
_NOWHERE: Final = (-1, -1, 0, 0, None, 0, None, 0, None, None)


def _columns(rows: list[tuple[Any, ...]]) -> Columns:
    """Return the columns of rows as Arrow arrays."""
    columns: Any = zip(*rows, strict=True) if rows else [()] * len(ROW_TYPES)
    return {name: arrow_array(c, ROW_TYPES[name]) for name, c in zip(ROW_TYPES, columns, strict=True)}
