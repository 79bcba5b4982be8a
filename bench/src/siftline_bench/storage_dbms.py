"""`dbms` against `counting`: the ToPSS paper's Tables 1 and 2, with DuckDB and SQLite in the place of Kdb.

The paper's subscription workload is lost. This one has 20 attributes with the values 0 to 19; a subscription has five
predicates on different attributes, half of them `=`, the others `<=`, `>=` and `between`; an event has all attributes.
So there are at most 5,400 different predicates, and the bit matrix fits into memory as it did for the authors.

An event is matched as a dict: encoding and the making of the query are part of the time. Loading starts from an Arrow
table of predicates for every index; the fastest of several loads counts. As in the paper, `counting` finds predicates
by tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from siftline.engine import Engine
from siftline_bench.checks import Found, check_same, find_all
from siftline_bench.measure import interleaved, time_each, time_once
from siftline_bench.workloads import generate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from siftline_bench.workloads import Workload

    Say = Callable[[str], None]

Row = dict[str, Any]

_N_ATTRIBUTES: Final = 20
_N_VALUES: Final = 20
_TYPES: Final = {f"a{i}": {"from": 0, "to": _N_VALUES - 1} for i in range(_N_ATTRIBUTES)}

# The first one is what the others are compared with.
INDEXES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "counting, lists": ("counting", {"predicates": "table", "types": _TYPES}),
    "counting, bit matrix": ("counting", {"predicates": "table", "association": "bit-matrix", "types": _TYPES}),
    "duckdb, grouping": ("dbms", {"engine": "duckdb", "plan": "grouping"}),
    "duckdb, sequential": ("dbms", {"engine": "duckdb", "plan": "sequential"}),
    "sqlite, grouping": ("dbms", {"engine": "sqlite", "plan": "grouping"}),
    "sqlite, sequential": ("dbms", {"engine": "sqlite", "plan": "sequential"}),
}
# Tables 1 and 2 of the paper, in milliseconds: matching and bulk loading with Kdb, bit-wise and by lists.
CLAIMED: Final = {
    1_000: ((89.3, 0.3, 0.10), (52, 6, 6)),
    10_000: ((397.4, 3.8, 0.63), (196, 52, 58)),
    100_000: ((3451.2, 40.4, 8.10), (1699, 523, 862)),
    1_000_000: ((33473.1, 562.4, 190.70), (15658, 5428, 97746)),
    5_000_000: ((338166.1, 1555.7, 1056.00), (69811, 26976, 2678858)),
}


# Above a million subscriptions everything is loaded once and measured alone, because memory does not hold all indexes
# beside each other; this one is left out: it takes minutes for each load, and many seconds for each event.
_TOGETHER_MAX: Final = 1_000_000
_SLOWEST: Final = "sqlite, sequential"


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    subscriptions: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    n_events: int = 5
    n_passes: int = 5
    n_loads: int = 2


QUICK: Final = Sizes((200, 1_000), 3, 2)


def dbms(sizes: Sizes, seed: int, say: Say) -> list[Row]:
    """Load and match at several sizes, with every database, plan and kind of counting."""
    _compile()
    return [row for n in sizes.subscriptions for row in _measured(n, sizes, seed, say)]


def _compile() -> None:
    """Compile the kernels before anything is timed."""
    workload = _drawn(100, 2, 0)
    for index, options in INDEXES.values():
        engine = Engine(index, **options)
        engine.add_many(workload.predicates)
        find_all(engine, workload.dicts)


def _drawn(n: int, n_events: int, seed: int) -> Workload:
    return generate(
        "dense",
        seed=seed,
        n_subscriptions=n,
        n_events=n_events,
        n_attributes=_N_ATTRIBUTES,
        n_values=_N_VALUES,
        event_size=_N_ATTRIBUTES,
        least_predicates=5,
        most_predicates=5,
        equal_share=0.5,
    )


def _measured(n: int, sizes: Sizes, seed: int, say: Say) -> list[Row]:
    workload = _drawn(n, sizes.n_events, seed)
    labels = [label for label in INDEXES if n <= _TOGETHER_MAX or label != _SLOWEST]
    groups = [labels] if n <= _TOGETHER_MAX else [[label] for label in labels]
    expected: Found = []
    return [row for group in groups for row in _beside(group, workload, sizes, expected, say)]


def _beside(labels: list[str], workload: Workload, sizes: Sizes, expected: Found, say: Say) -> list[Row]:
    """Load some indexes and match with them by turns; `expected` is filled by the first one that finds anything."""
    n = workload.n_subscriptions
    rows: list[Row] = []
    works: list[Callable[[], NDArray[np.int64]]] = []
    for label in labels:
        index, options = INDEXES[label]
        say(f"{n:,} subscriptions: loading {label}")
        engine, loads = loaded(index, options, workload, sizes.n_loads if n <= _TOGETHER_MAX else 1)
        found = find_all(engine, workload.dicts)
        expected[:] = expected or found
        check_same(label, found, expected, next(iter(INDEXES)))
        stats = engine.stats()
        rows.append(
            {
                "figure": "dbms",
                "workload": "dbms",
                "index": label,
                "n": n,
                "n_matches": sum(map(len, found)) / len(found),
                "load_ms": round(min(loads) * 1e3, 3),
                "loads_ms": [round(seconds * 1e3, 3) for seconds in loads],
                "index_bytes": sum(stats["bytes"].values()),
                "distinct_predicates": stats["distinct_predicates"],
            }
        )
        works.append(lambda engine=engine: time_each(engine.match, workload.dicts))  # type: ignore[misc]
    say(f"{n:,} subscriptions: matching{' with ' + labels[0] if len(labels) == 1 else ''}")
    for row, passes in zip(rows, interleaved(works, sizes.n_passes), strict=True):
        row["match_ms"] = round(passes.per_event_us().median / 1e3, 4)
        row["match_min_ms"] = round(passes.all_us().min / 1e3, 4)
        row["processor_share"] = passes.processor_share
    return rows


def loaded(index: str, options: dict[str, Any], workload: Workload, n_loads: int) -> tuple[Engine, list[float]]:
    """Load new engines; return the last one, and the seconds that each took."""
    loads = []
    for _ in range(n_loads):
        engine = Engine(index, **options)
        loads.append(time_once(lambda engine=engine: engine.add_many(workload.predicates)).seconds)  # type: ignore[misc]
    return engine, loads


def tables(rows: Sequence[Row]) -> list[list[list[str]]]:
    """Return Tables 1 and 2 as measured, in milliseconds, and the bytes of each index."""
    return [
        _lines(rows, "match_ms", "ms an event", 0),
        _lines(rows, "load_ms", "ms to load", 1),
        _lines(rows, "index_bytes", "bytes", None),
    ]


def _lines(rows: Sequence[Row], figure: str, heading: str, claimed: int | None) -> list[list[str]]:
    sizes = sorted({row["n"] for row in rows})
    lines = [[heading, *(f"{n:,}" for n in sizes)]]
    for label in INDEXES:
        by_size = {row["n"]: row[figure] for row in rows if row["index"] == label}
        lines.append([label, *(_shown(by_size[n]) if n in by_size else "-" for n in sizes)])
    if claimed is not None:
        for column, name in enumerate(("paper: Kdb", "paper: bit-wise", "paper: lists")):
            cells = [_shown(CLAIMED[n][claimed][column]) if n in CLAIMED else "-" for n in sizes]
            lines.append([name, *cells])
    return lines


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
