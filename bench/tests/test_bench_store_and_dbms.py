"""The figures of stores and of matching by SQL, on small sizes: they run, and say what was found."""

from __future__ import annotations

from siftline_bench import storage_dbms, storage_store
from siftline_bench.targets import table


def test_dbms_beside_counting() -> None:
    said: list[str] = []
    rows = storage_dbms.dbms(storage_dbms.QUICK, 1, said.append)
    assert {(row["n"], row["index"]) for row in rows} == {(n, i) for n in (200, 1_000) for i in storage_dbms.INDEXES}
    assert all(row["match_ms"] > 0 and row["load_ms"] > 0 and row["index_bytes"] > 0 for row in rows)
    assert "1,000 subscriptions: matching" in said
    matching, loading, memory = storage_dbms.tables(rows)
    assert matching[0] == ["ms an event", "200", "1,000"]
    assert matching[-3] == ["paper: Kdb", "-", "89.3"]
    assert loading[-1] == ["paper: lists", "-", "6"]
    assert len(memory) == 1 + len(storage_dbms.INDEXES)


def test_the_store() -> None:
    rows = storage_store.store(storage_store.QUICK, 1, lambda text: None)
    found = storage_store.verdicts(rows)
    assert [verdict.target.what for verdict in found] == ["s to import 100,000", "single durable adds/s"]
    assert len(table(found)) == 3
    assert ["n", "2,000"] in storage_store.lines_of(rows)
