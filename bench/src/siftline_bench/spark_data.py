"""Workloads as a data engineer has them: Parquet files of events as JSON and of subscriptions as text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.engine import Engine
from siftline_bench.checks import Found, check_reference, check_same
from siftline_bench.runner import REFERENCE, find_within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from siftline_bench.workloads import Workload

    Say = Callable[[str], None]

# Tasks get a file each, at least.
_N_FILES: Final = 4
# Rows of a row group: some megabytes.
_ROWS: Final = 50_000
# So long `fast-scan` looks for the ids of the first events, and these are at most this many.
_CHECK_S: Final = 20.0
_CHECKED: Final = 200


def event_texts(values: Any, n_events: int) -> Any:
    """Return the events of a table of values as JSON texts.

    >>> import pyarrow as pa
    >>> event_texts(pa.table({"event": [0, 0], "attribute": ["a", "b"], "number": [1, 2]}), 2).to_pylist()
    ['{"a":1,"b":2}', '{}']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = [name for name in ("number", "flag", "text") if name in values.column_names]
    constants = [_quoted(_strings(values[name]), '"') if name == "text" else _strings(values[name]) for name in kinds]
    pairs = pc.binary_join_element_wise('"', _strings(values["attribute"]), '":', pc.coalesce(*constants), "")
    return _joined(values["event"], pairs, n_events, ",", pa.scalar("{"), pa.scalar("}"))


def expression_texts(predicates: Any, n_subscriptions: int) -> Any:
    """Return the subscriptions of a table of predicates, all of them conjunctions, as texts of the language.

    >>> import pyarrow as pa
    >>> columns = {"attribute": ["a", "b"], "op": ["between", ">="], "number": [1, 3], "upper": [2, None]}
    >>> expression_texts(pa.table({"subscription": [0, 0], **columns}), 1).to_pylist()
    ['"a" between 1 and 2 and "b" >= 3']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def join(*parts: Any) -> Any:
        return pc.binary_join_element_wise(*parts, "")

    # Some attributes are named like words of the language.
    names, ops = _quoted(_strings(predicates["attribute"]), '"'), _strings(predicates["op"])
    texts = {
        name: _strings(predicates[name]) for name in ("number", "upper", "text") if name in predicates.schema.names
    }
    constants = [texts["number"], *([_quoted(texts["text"], "'")] if "text" in texts else [])]
    rows = join(names, " ", ops, " ", pc.coalesce(*constants))
    between = join(names, " between ", texts["number"], " and ", texts["upper"])
    rows = pc.if_else(pc.equal(ops, "between"), between, rows)
    if "texts" in predicates.column_names:
        lists = join(names, " in ('", pc.binary_join(predicates["texts"].combine_chunks(), "', '"), "')")
        rows = pc.if_else(pc.equal(ops, "in"), lists, rows)
    return _joined(predicates["subscription"], rows, n_subscriptions, " and ", pa.scalar(""), pa.scalar(""))


def _strings(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.string()).combine_chunks()


def _quoted(texts: Any, mark: str) -> Any:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(mark, texts, mark, "")


def _joined(owners: Any, parts: Any, n: int, separator: str, before: Any, after: Any) -> Any:
    """Put the parts of each owner behind each other; owners ascend."""
    import pyarrow as pa
    import pyarrow.compute as pc

    starts = np.searchsorted(owners.to_numpy(), np.arange(n + 1)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(starts), parts)
    return pc.binary_join_element_wise(before, pc.binary_join(lists, separator), after, "")


@dataclass
class Data:
    """One workload in a folder, as files.

    Attributes
    ----------
    workload : Workload
        What was drawn.
    folder : Path
        Where the files go, and indexes, and results.
    n_copies : int
        How often all events stand in the table of events, under new ids.
    say : callable
        Told what is going on.
    """

    workload: Workload
    folder: Path
    n_copies: int
    say: Say

    @property
    def n_events(self) -> int:
        """How many rows the table of events has."""
        return self.workload.n_events * self.n_copies

    @cached_property
    def events(self) -> str:
        """The path of the events: id, event."""
        import pyarrow as pa

        texts = event_texts(self.workload.values, self.workload.n_events)
        n = len(texts)
        copies = [pa.table({"id": np.arange(n) + copy * n, "event": texts}) for copy in range(self.n_copies)]
        return self.written("events", pa.concat_tables(copies))

    @cached_property
    def subscriptions(self) -> str:
        """The path of the subscriptions: subscription, expression."""
        import pyarrow as pa

        n = self.workload.n_subscriptions
        texts = expression_texts(self.workload.predicates, n)
        return self.written("subscriptions", pa.table({"subscription": np.arange(n), "expression": texts}))

    @cached_property
    def predicates(self) -> str:
        """The path of the subscriptions as rows of predicates."""
        return self.written("predicates", self.workload.predicates)

    def written(self, name: str, table: Any) -> str:
        """Write a table as a few files; return their folder."""
        import pyarrow.parquet as pq

        self.say(f"{self.workload.name}: writing {name}")
        target = self.folder / name
        target.mkdir(parents=True)
        n = -(-table.num_rows // _N_FILES)
        for number in range(_N_FILES):
            part = table.slice(number * n, n)
            pq.write_table(part, target / f"part-{number}.parquet", row_group_size=_ROWS)
        return str(target)

    @cached_property
    def expected(self) -> Found:
        """The ids of the first events, found by `fast-scan`, which is compared with `scan`."""
        self.say(f"{self.workload.name}: looking for the ids of some events")
        reference = Engine(index=REFERENCE)
        reference.add_many(self.workload.predicates)
        found = find_within(reference, self.workload.dicts[:_CHECKED], _CHECK_S)
        check_reference(self.workload, found, REFERENCE)
        return found

    def check(self, label: str, path: str, n_events: int | None = None) -> int:
        """Raise unless pairs in Parquet files are right for the first events; return how many pairs there are."""
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        expected = self.expected[: n_events or None]
        pairs = ds.dataset(path, format="parquet", exclude_invalid_files=True)
        rows = pairs.to_table(filter=pc.field("id") < len(expected))
        found: list[set[Any]] = [set() for _ in expected]
        for event, id in zip(rows["id"].to_pylist(), rows["subscription"].to_pylist(), strict=True):
            found[event].add(id)
        check_same(label, [frozenset(ids) for ids in found], expected, REFERENCE)
        return int(pairs.count_rows())
