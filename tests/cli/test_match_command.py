from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run_fixture, write_fixture  # noqa: F401

import siftline

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import Run, Write

SUBSCRIPTIONS: list[Any] = [
    {"id": "ann", "expression": "price <= 580", "weight": 2},
    {"subscription": "bob", "expression": "brand = 'acme' and not (price > 600)", "weight": 3},
    {"id": "cat", "pattern": {"brand": ["nokia"]}},
    {"id": "dan", "filters": [{"prefix": {"brand": "ac"}}]},
]
EVENTS: list[Any] = [{"brand": "acme", "price": 550}, {"brand": "nokia"}, {"price": 10}]
PAIRS = {(0, "ann"), (0, "bob"), (0, "dan"), (1, "cat"), (2, "ann")}


def test_json_lines(run: Run, write: Write) -> None:
    outcome = run("match", "--subscriptions", write("s.jsonl", SUBSCRIPTIONS), "--events", write("e.jsonl", EVENTS))
    assert outcome.status == 0
    assert outcome.pairs() == PAIRS
    assert {(row["event"], row["line"]) for row in outcome.rows()} == {(0, 1), (1, 2), (2, 3)}
    assert "3 events, 5 matches" in outcome.err


@pytest.mark.parametrize("index", [*siftline.indexes(), "op-index:segments=0"])
def test_any_index(run: Run, write: Write, index: str) -> None:
    files = "--subscriptions", write("s.jsonl", SUBSCRIPTIONS), "--events", write("e.jsonl", EVENTS)
    assert run("match", *files, "--index", index).pairs() == PAIRS


def test_every_index_gives_the_same_ids(run: Run, write: Write, tmp_path: Path) -> None:
    chance = np.random.default_rng(2)
    n = 1200
    rows = {"subscription": np.sort(chance.integers(0, 400, n)), "clause": np.zeros(n, dtype=np.int32)}
    attributes, operators = (chance.choice(words, n) for words in ([f"a{i}" for i in range(60)], ["=", "<=", ">="]))
    table = pa.table({**rows, "attribute": attributes, "op": operators, "number": chance.integers(0, 10, n)})
    pq.write_table(table, tmp_path / "s.parquet")
    events = [{f"a{i}": int(chance.integers(0, 10)) for i in chance.permutation(60)[:30]} for _ in range(20)]
    files = "--subscriptions", str(tmp_path / "s.parquet"), "--events", write("e.jsonl", events)
    found = {index: run("match", *files, "--index", index).pairs() for index in siftline.indexes()}
    assert len(found["scan"]) > 10
    assert all(pairs == found["scan"] for pairs in found.values())


def test_wrong_options_of_an_index(run: Run, write: Write) -> None:
    files = "--subscriptions", write("s.jsonl", SUBSCRIPTIONS), "--events", write("e.jsonl", EVENTS)
    outcome = run("match", *files, "--index", "counting:association=ring")
    assert outcome.status == 2
    assert "index 'counting': association must be" in outcome.err
    outcome = run("match", *files, "--index", "be-tree:leaf-capacity=5")
    assert "did you mean 'leaf_capacity'?" in outcome.err
    types = '{"price": {"from": 0, "to": 900}, "brand": "string"}'
    assert run("match", *files, "--index", f"counting:types={types},predicates=table").pairs() == PAIRS


def test_nothing_matched_is_fine(run: Run, write: Write) -> None:
    outcome = run("match", "--subscriptions", write("s.sift", "a = 1"), "--events", write("e.jsonl", [{}]), "--quiet")
    assert outcome == (0, "", "")


def test_text_files_have_line_numbers_as_ids(run: Run, write: Write) -> None:
    rules = write("s.sift", "-- cheap things\nprice < 20\n\nbrand = 'acme' -- the good one\r\n")
    outcome = run("match", "--subscriptions", rules, "--events", write("e.jsonl", EVENTS))
    assert outcome.pairs() == {(0, 4), (2, 2)}


def test_bare_strings_have_line_numbers_as_ids(run: Run, write: Write) -> None:
    outcome = run("match", "--subscriptions", write("s.jsonl", ["price < 20"]), "--events", write("e.jsonl", EVENTS))
    assert outcome.pairs() == {(2, 1)}


def test_csv_both_ways(run: Run, write: Write, tmp_path: Path) -> None:
    subscriptions = write(
        "s.csv", "id,expression,weight\n10,\"brand = 'acme'\n and price = 550\",1.5\n11,new = true,\n"
    )
    events = write("e.csv", "brand,price,new\nacme,550,\nacme,,true\nnokia,007,TRUE\n")
    output = tmp_path / "m.csv"
    assert run("match", "--subscriptions", subscriptions, "--events", events, "--output", str(output)).status == 0
    rows = list(csv.reader(output.read_text().splitlines()))
    assert rows == [["event", "line", "subscription"], ["0", "2", "10"], ["1", "3", "11"]]


def test_csv_cells_can_stay_text(run: Run, write: Write) -> None:
    files = "--subscriptions", write("s.sift", "zip = '8001'"), "--events", write("e.csv", "zip\n8001\n")
    assert run("match", *files).pairs() == set()
    assert run("match", *files, "--strings").pairs() == {(0, 1)}


def test_ids_of_csv_are_strings_unless_all_are_numbers(run: Run, write: Write) -> None:
    subscriptions = write("s.csv", "subscription,expression\n1,a = 1\nx,a = 1\n")
    outcome = run("match", "--subscriptions", subscriptions, "--events", write("e.jsonl", [{"a": 1}]))
    assert outcome.pairs() == {(0, "1"), (0, "x")}


def test_parquet_text_table(run: Run, write: Write, tmp_path: Path) -> None:
    subscriptions, events, output = (str(tmp_path / name) for name in ("s.parquet", "e.parquet", "m.parquet"))
    pq.write_table(pa.table({"subscription": [1, 2], "expression": ["price < 20", "brand = 'acme'"]}), subscriptions)
    pq.write_table(pa.table({"price": [10, None], "brand": ["nokia", "acme"]}), events)
    outcome = run("match", "--subscriptions", subscriptions, "--events", events, "--output", output)
    assert outcome.status == 0
    assert pq.read_table(output).to_pydict() == {"event": [0, 1], "subscription": [1, 2]}


def test_parquet_predicate_table(run: Run, write: Write, tmp_path: Path) -> None:
    path = str(tmp_path / "s.parquet")
    rows = [
        {"subscription": "a", "clause": 0, "attribute": "price", "op": "<", "number": 20.0, "text": None},
        {"subscription": "b", "clause": 0, "attribute": "brand", "op": "=", "number": None, "text": "acme"},
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    outcome = run("match", "--subscriptions", path, "--events", write("e.jsonl", EVENTS))
    assert outcome.pairs() == {(0, "b"), (2, "a")}


def test_parquet_predicate_table_with_a_bad_one(run: Run, write: Write, tmp_path: Path) -> None:
    path = str(tmp_path / "s.parquet")
    rows = [{"subscription": i, "attribute": "a", "op": "=" if i != 3 else "almost", "number": 1.0} for i in range(9)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    files = "--subscriptions", path, "--events", write("e.jsonl", [{"a": 1}])
    refused = run("match", *files)
    assert refused.status == 1
    assert refused.out == ""
    assert "subscription 3" in refused.err
    assert "almost" in refused.err
    skipped = run("match", *files, "--skip-bad")
    assert skipped.status == 1
    assert skipped.pairs() == {(0, i) for i in range(9) if i != 3}


def test_parquet_column_with_events(run: Run, write: Write, tmp_path: Path) -> None:
    path = str(tmp_path / "e.parquet")
    pq.write_table(pa.table({"payload": [json.dumps(event) for event in EVENTS] + ["[1]"]}), path)
    files = "--subscriptions", write("s.jsonl", SUBSCRIPTIONS), "--events", path, "--event", "payload"
    refused = run("match", *files)
    assert refused.status == 1
    assert "e.parquet: row 4: " in refused.err
    skipped = run("match", *files, "--skip-bad")
    assert (skipped.status, skipped.pairs()) == (1, PAIRS)
    assert run("match", *files[:-1], "nothing").status == 2


def test_top(run: Run, write: Write) -> None:
    files = "--subscriptions", write("s.jsonl", SUBSCRIPTIONS), "--events", write("e.jsonl", EVENTS)
    rows = run("match", *files, "--top", "2").rows()
    assert [(row["event"], row["subscription"]) for row in rows] == [(0, "bob"), (0, "ann"), (1, "cat"), (2, "ann")]


def test_standard_input_and_output(run: Run, write: Write) -> None:
    stdin = b"\xef\xbb\xbf" + json.dumps(EVENTS[0]).encode()
    outcome = run("match", "--subscriptions", write("s.jsonl", SUBSCRIPTIONS), "--events", "-", stdin=stdin)
    assert outcome.pairs() == {pair for pair in PAIRS if pair[0] == 0}
    outcome = run("match", "--subscriptions", "-", "--events", write("e.jsonl", EVENTS), stdin=b'"price = 10"')
    assert outcome.pairs() == {(2, 1)}
    both = run("match", "--subscriptions", "-", "--events", "-")
    assert both.status == 2


def test_large_files_come_in_chunks(run: Run, write: Write) -> None:
    events = "".join(f'{{"n": {i}, "filler": "{"x" * 1000}"}}\n' + "\n" * (i % 3 == 0) for i in range(2000))
    outcome = run(
        "match", "--subscriptions", write("s.sift", "n in (0, 299, 1999)"), "--events", write("e.jsonl", events)
    )
    assert outcome.pairs() == {(0, 1), (299, 1), (1999, 1)}
    assert [row["line"] for row in outcome.rows()] == [1, 400, 2667]
    assert "2,000 events" in outcome.err


def test_statistics(run: Run, write: Write, tmp_path: Path) -> None:
    from siftline import Statistics

    path = tmp_path / "statistics.json"
    Statistics.from_events(EVENTS).save(path)
    files = "--subscriptions", write("s.jsonl", SUBSCRIPTIONS), "--events", write("e.jsonl", EVENTS)
    assert run("match", *files, "--statistics", str(path)).pairs() == PAIRS
    assert run("match", *files, "--statistics", files[1]).status == 2


def test_sns_policies(run: Run, write: Write) -> None:
    subscription = {"id": 1, "pattern": {"n": [{"numeric": ["=", 1]}]}, "dialect": "sns"}
    outcome = run(
        "match", "--subscriptions", write("s.jsonl", [subscription]), "--events", write("e.jsonl", [{"n": 1}])
    )
    assert outcome.pairs() == {(0, 1)}


def test_the_summary_separates_loading_and_matching(run: Run, write: Write) -> None:
    rules = write("s.sift", "".join(f"a = {i}\n" for i in range(10_000)))
    outcome = run("match", "--subscriptions", rules, "--events", write("e.jsonl", [{"a": 1}]))
    assert "building the index" not in outcome.err  # nobody waits where there is no terminal
    assert re.search(r"1 event, 1 match; loading took \d+\.\d s, matching \d+\.\d s\n$", outcome.err)


def test_parquet_columns_of_many_types(run: Run, write: Write, tmp_path: Path) -> None:
    path = str(tmp_path / "e.parquet")
    columns = {
        "name": pa.array(["x", None]).dictionary_encode(),
        "when": pa.array([0, 1], pa.timestamp("us")),
        "tags": pa.array([["a", "b"], []]),
        "shop": pa.array([{"city": "oslo"}, None]),
        "more": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "nothing": pa.nulls(2),
    }
    pq.write_table(pa.table(columns), path)
    rules = write("s.sift", "name = 'x' and tags = 'b'\nshop.city = 'oslo' and more.k = 1\nwhen starts with '1970'")
    outcome = run("match", "--subscriptions", rules, "--events", path)
    assert (outcome.status, outcome.pairs()) == (0, {(0, 1), (0, 2), (0, 3), (1, 3)})


def test_now(run: Run, write: Write) -> None:
    rules = write("s.sift", "at between now() - interval '1 day' and now()\nat > timestamp '2026-01-31T10:00:00Z'")
    times = ["2026-01-31T10:00:01Z", "2026-01-31 14:00:00+05:00", "x"]
    files = "--subscriptions", rules, "--events", write("e.jsonl", [{"at": text} for text in times])
    assert run("match", *files, "--now", "2026-01-31T11:00:00Z").pairs() == {(0, 1), (0, 2), (1, 1)}
    assert run("match", *files).pairs() == {(0, 2)}
    refused = run("match", *files, "--now", "tomorrow")
    assert refused.status == 2
    assert "expected a time such as 2026-01-31T10:00:00Z, found 'tomorrow'" in refused.err
