"""What people write today without an index: joins in Spark SQL and in DuckDB, and rules in a Python function.

All subscriptions have five predicates, and each is a range of whole numbers, `=` included. The databases are spared the
JSON: they get the events as arrays, by position and by attribute, in Parquet; subscriptions are tables in memory.

    explode     a row for each value of an event, joined with all ranges of that attribute that hold it, counted
    narrowest   the same with the narrowest range of each subscription alone; the other ranges are then looked at
    function    the rules broadcast to the workers, and a Python function that goes through them for each event
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline_bench.spark_processes import spent

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from siftline_bench.spark_data import Data
    from siftline_bench.spark_processes import Spent

N_PREDICATES: Final = 5
_INTEGERS: Final = (-(2**31), 2**31 - 1)

_EXPLODE: Final = """
    SELECT e.id, r.subscription FROM exploded e
    JOIN ranges r ON e.attribute = r.attribute AND e.value BETWEEN r.low AND r.high
    GROUP BY e.id, r.subscription HAVING count(*) = {n}"""
_NARROWEST: Final = """
    SELECT {hint} e.id, s.subscription FROM exploded e
    JOIN narrowest s ON e.attribute = s.attribute0 AND e.value BETWEEN s.low0 AND s.high0
    WHERE {verified}"""


@dataclass(frozen=True)
class Baseline:
    """A way to match without us, the number of events that it gets, and what runs it: (events, target) -> None."""

    name: str
    n_events: int
    run: Callable[[str, str], None]


class Tables:
    """Events and subscriptions of a workload as the baselines take them."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._names = {name: number for number, name in enumerate(self._attributes())}
        self.ranges = self._ranges()
        self._events: dict[int, str] = {}

    def _attributes(self) -> list[str]:
        names = self._data.workload.predicates["attribute"].unique().to_pylist()
        return sorted({*names, *self._data.workload.values["attribute"].unique().to_pylist()})

    def _coded(self, column: Any) -> NDArray[np.int32]:
        coded = column.combine_chunks()
        coded = coded if hasattr(coded, "dictionary") else coded.dictionary_encode()
        numbers = np.array([self._names[name] for name in coded.dictionary.to_pylist()], dtype=np.int32)
        found: NDArray[np.int32] = numbers[coded.indices.to_numpy(zero_copy_only=False)]
        return found

    def _ranges(self) -> dict[str, NDArray[Any]]:
        """Return a row for each predicate, by subscription, the narrowest first."""
        rows = self._data.workload.predicates
        ops, numbers = np.array(rows["op"].to_pylist()), rows["number"].to_numpy()
        uppers = rows["upper"].fill_null(0).to_numpy()
        lows = np.where(ops == "<=", _INTEGERS[0], numbers)
        highs = np.where(ops == ">=", _INTEGERS[1], np.where(ops == "between", uppers, numbers))
        # A half-open range is as wide as the values that there are.
        most = int(max(numbers.max(), uppers.max()))
        widths = np.minimum(highs, most) - np.maximum(lows, 0)
        owners = rows["subscription"].to_numpy()
        order = np.lexsort((widths, owners))
        columns = {"subscription": owners, "attribute": self._coded(rows["attribute"]), "low": lows, "high": highs}
        return {name: column[order] for name, column in columns.items()}

    def narrowest(self) -> dict[str, NDArray[Any]]:
        """Return a row for each subscription, with all its ranges beside each other."""
        columns = {"subscription": self.ranges["subscription"][::N_PREDICATES]}
        for i in range(N_PREDICATES):
            columns |= {f"{name}{i}": self.ranges[name][i::N_PREDICATES] for name in ("attribute", "low", "high")}
        return columns

    def events(self, n_events: int) -> str:
        """Return the path of the first events: id, attributes, numbers, slots (a place for each attribute)."""
        if n_events not in self._events:
            self._events[n_events] = self._data.written(f"events-{n_events}", self._rows(n_events))
        return self._events[n_events]

    def _rows(self, n_events: int) -> Any:
        import pyarrow as pa

        values = self._data.workload.values
        owners, numbers = values["event"].to_numpy(), values["number"].to_numpy().astype(np.int32)
        attributes = self._coded(values["attribute"])
        starts = np.searchsorted(owners, np.arange(n_events + 1)).astype(np.int32)
        end, n_slots = starts[-1], len(self._names)
        slots, are_null = np.zeros(n_events * n_slots, dtype=np.int32), np.ones(n_events * n_slots, dtype=np.bool_)
        places = owners[:end] * n_slots + attributes[:end]
        slots[places], are_null[places] = numbers[:end], False
        slot_starts = np.arange(n_events + 1, dtype=np.int32) * n_slots
        return pa.table(
            {
                "id": np.arange(n_events),
                "attributes": pa.ListArray.from_arrays(starts, attributes[:end]),
                "numbers": pa.ListArray.from_arrays(starts, numbers[:end]),
                "slots": pa.ListArray.from_arrays(slot_starts, pa.array(slots, mask=are_null)),
            }
        )


def spark_baselines(spark: Any, tables: Tables, n_events: int, n_slow: int) -> list[Baseline]:
    """Return the plans in Spark; the slow ones get fewer events."""
    import pandas as pd

    verified = _verified(lambda i: f"e.slots[s.attribute{i}]")
    hint = "/*+ BROADCAST(s) */"
    for name, columns in (("ranges", tables.ranges), ("narrowest", tables.narrowest())):
        frame = spark.createDataFrame(pd.DataFrame(columns)).cache()
        frame.count()
        frame.createOrReplaceTempView(name)

    def query(text: str) -> Callable[[str, str], None]:
        def run(events: str, target: str) -> None:
            spark.read.parquet(events).createOrReplaceTempView("events")
            pairs = "explode(arrays_zip(attributes, numbers)) AS pair"
            rows = spark.sql(f"SELECT id, slots, {pairs} FROM events")
            rows = rows.selectExpr("id", "slots", "pair.attributes AS attribute", "pair.numbers AS value")
            rows.createOrReplaceTempView("exploded")
            spark.sql(text).write.parquet(target)

        return run

    return [
        Baseline("Spark SQL, explode", n_slow, query(_EXPLODE.format(n=N_PREDICATES))),
        Baseline("Spark SQL, narrowest", n_events, query(_NARROWEST.format(hint=hint, verified=verified))),
        Baseline("Spark, Python function", n_slow, _function(spark, tables)),
    ]


def _verified(value: Callable[[int], str]) -> str:
    return " AND ".join(f"{value(i)} BETWEEN s.low{i} AND s.high{i}" for i in range(1, N_PREDICATES))


def _function(spark: Any, tables: Tables) -> Callable[[str, str], None]:
    from pyspark.sql.functions import explode, udf

    ranges = list(zip(*(tables.ranges[name].tolist() for name in ("attribute", "low", "high")), strict=True))
    ids = tables.ranges["subscription"][::N_PREDICATES].tolist()
    rules = [(id, ranges[i * N_PREDICATES : (i + 1) * N_PREDICATES]) for i, id in enumerate(ids)]
    broadcast = spark.sparkContext.broadcast(rules)

    @udf("array<bigint>")  # type: ignore[untyped-decorator, unused-ignore]
    def satisfied(slots):  # type: ignore[no-untyped-def]  # Spark would try to make sense of annotations
        return [
            id
            for id, predicates in broadcast.value
            if all((value := slots[a]) is not None and low <= value <= high for a, low, high in predicates)
        ]

    def run(events: str, target: str) -> None:
        matches = explode(satisfied("slots")).alias("subscription")
        spark.read.parquet(events).select("id", matches).write.parquet(target)

    return run


def duckdb_baselines(tables: Tables, n_events: int, n_slow: int, n_threads: int) -> list[Baseline]:
    """Return the same two joins in DuckDB."""
    import duckdb
    import pyarrow as pa

    connection = duckdb.connect(config={"threads": n_threads})
    for name, columns in (("ranges", tables.ranges), ("narrowest", tables.narrowest())):
        connection.register("given", pa.table(columns))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    verified = _verified(lambda i: f"e.slots[s.attribute{i} + 1]")

    def query(text: str) -> Callable[[str, str], None]:
        def run(events: str, target: str) -> None:
            Path(target).mkdir()
            pairs = "unnest(attributes) AS attribute, unnest(numbers) AS value"
            rows = f"WITH exploded AS (SELECT id, slots, {pairs} FROM read_parquet('{events}/*.parquet'))"
            connection.execute(f"COPY ({rows} {text}) TO '{target}/part-0.parquet'")

        return run

    return [
        Baseline("DuckDB, explode", n_slow, query(_EXPLODE.format(n=N_PREDICATES))),
        Baseline("DuckDB, narrowest", n_events, query(_NARROWEST.format(hint="", verified=verified))),
    ]


def measured(baseline: Baseline, tables: Tables, data: Data, n_passes: int) -> list[Spent]:
    """Run a baseline some times after a first run on a few events; ids are checked."""
    folder = data.folder / baseline.name.replace(" ", "-").replace(",", "")
    folder.mkdir(parents=True)
    baseline.run(tables.events(max(1, baseline.n_events // 20)), str(folder / "few"))
    events = tables.events(baseline.n_events)
    found = []
    for number in range(n_passes):
        target = folder / str(number)
        found.append(spent(lambda target=target: baseline.run(events, str(target))))  # type: ignore[misc]
        data.check(baseline.name, str(target), baseline.n_events)
    return found
