"""Packed subscriptions: rows are small enough for the JVM, however many a worker parses at once."""

from __future__ import annotations

import pyarrow as pa

from siftline.spark.sharding.parsed import Parsed
from siftline.spark.worker.subscriptions import Form, parser


def test_many_predicates_become_several_rows() -> None:
    n = 45_000
    columns = {
        "subscription": pa.array([i // 2 for i in range(2 * n)], pa.int64()),
        "clause": pa.array([0] * (2 * n), pa.int64()),
        "attribute": pa.array(["a", "b"] * n),
        "op": pa.array(["="] * (2 * n)),
        "number": pa.array([float(i // 2 % 9) for i in range(2 * n)]),
    }
    table = pa.table(columns)
    rows = list(parser(Form(None, "bigint", "predicates"))(table.to_batches(max_chunksize=10_000)))
    assert [row["n"].to_pylist() for row in rows] == [[20_000], [20_000], [5_000]]
    assert all(row["is_good"].to_pylist() == [True] for row in rows)
    parts = [Parsed.unpacked(row["content"][0].as_buffer()) for row in rows]
    assert [len(part) for part in parts] == [20_000, 20_000, 5_000]
    whole = Parsed.joined(parts)
    assert whole.subscriptions["id"].to_pylist() == list(range(n))
    assert whole.predicates.num_rows == 2 * n
