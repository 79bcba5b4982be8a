"""Batches find what single events find, whatever the index, the ids and the other threads do."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from strategies import sweep

import siftline
from siftline import Engine
from siftline.encoding.events import EncodedEvents
from siftline.encoding.json_events import json_lines

INDEXES = siftline.indexes()
N_EVENTS = 3000  # several chunks


def pairs(table: Any) -> list[tuple[int, Any]]:
    return list(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def one_by_one(engine: Engine, events: list[dict[str, Any]], top: int | None = None) -> list[tuple[int, Any]]:
    return [(position, id) for position, event in enumerate(events) for id in engine.match(event, top=top)]


EXPRESSIONS = [
    "a <= 3",
    "a >= 2 and b = 'x'",
    "a = 1 or b = 'y' or c is null",
    "not (a = 5 is true)",
    "b starts with 'x' and a between 1 and 4",
    "b contains 'y'",
    "c in (1, 3, 5) and not (a in (2, 4) is true)",
    "any items (sku = 'p' and n > 2)",
    "true",
]

EVENTS: list[dict[str, Any]] = [
    {"a": 1, "b": "x"},
    {"a": [1, 5], "b": ["x", "y"]},
    {},
    {"a": None, "c": 3},
    {"c": 5, "a": 2, "b": "xy"},
    {"items": [{"sku": "p", "n": 3}, {"sku": "q", "n": 1}]},
    {"items": [{"sku": "p", "n": 1}, {"sku": "q", "n": 3}]},
]


def filled(index: str, ids: list[Any]) -> Engine:
    engine = Engine(index)
    rows = [(id, EXPRESSIONS[n % len(EXPRESSIONS)], n % 4) for n, id in enumerate(ids)]
    engine.add_many(rows[:20])
    for id, expression, weight in rows[20:]:
        engine.add(expression, id=id, weight=weight)
    engine.remove_many(ids[3:20:5])
    return engine


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("ids", [list(range(40)), [f"é{n % 7}-{n}" for n in range(40)]], ids=["numbers", "strings"])
def test_a_batch_finds_what_its_events_find(index: str, ids: list[Any]) -> None:
    engine = filled(index, ids)
    found = pairs(engine.match_batch(EVENTS))
    assert sorted(found) == sorted(one_by_one(engine, EVENTS))
    assert [position for position, _ in found] == sorted(position for position, _ in found)
    for top in (0, 1, 3, 100):
        assert pairs(engine.match_batch(EVENTS, top=top)) == one_by_one(engine, EVENTS, top)
    engine._check()


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_chunks_and_threads_change_nothing(threads: int | None) -> None:
    engine = filled("sift", list(range(40)))
    events = [EVENTS[position % len(EVENTS)] for position in range(N_EVENTS)]
    found = sorted(pairs(engine.match_batch(events, threads=threads)))
    expected = {position: sorted(engine.match(event)) for position, event in enumerate(EVENTS)}
    assert found == [(position, id) for position in range(N_EVENTS) for id in expected[position % len(EVENTS)]]


@pytest.mark.parametrize("threads", [0, -1, True, "2", 1.5])
def test_threads_are_a_number(threads: Any) -> None:
    with pytest.raises(ValueError, match="threads"):
        Engine().match_batch([{}], threads=threads)


def test_top_is_a_number() -> None:
    with pytest.raises(ValueError, match="top"):
        Engine().match_batch([], top=-1)


def test_empty_engines_and_batches() -> None:
    engine = Engine("sift")
    assert engine.match_batch([]).num_rows == engine.match_batch([{}, {"a": 1}]).num_rows == 0
    engine.add("a = 1", id="x")
    assert engine.match_batch([{"a": 2}], top=3).num_rows == 0
    assert pairs(engine.match_batch([{}, {"a": 1}], top=3)) == [(1, "x")]


def test_string_ids_follow_changes() -> None:
    engine = Engine("sift")
    for n in range(5):
        engine.add("a = 1", id=f"s{n}")
        assert sorted(pairs(engine.match_batch([{"a": 1}]))) == [(0, f"s{k}") for k in range(n + 1)]
    engine.remove("s2")
    engine.rebuild()  # gives the slots new numbers
    engine.add("a = 1", id="new")
    assert sorted(id for _, id in pairs(engine.match_batch([{"a": 1}]))) == ["new", "s0", "s1", "s3", "s4"]


@pytest.mark.parametrize("index", INDEXES)
def test_skipped_events_match_nothing(index: str) -> None:
    engine = Engine(index)
    engine.add_many([(1, "true"), (2, "a is null")])
    domains = engine.encode({}).domains
    encoded = EncodedEvents(json_lines(b'{"a": 1}\n[2]\n{}\n', skip_bad=True), domains)
    assert sorted(pairs(engine.match_batch(encoded))) == [(0, 1), (2, 1), (2, 2)]


def test_huge_results() -> None:
    engine = Engine("sift")
    engine.add_many([(f"{n}", "a >= 0") for n in range(500)])
    found = engine.match_batch([{"a": position % 2 - 1} for position in range(N_EVENTS)])
    assert found.num_rows == 500 * N_EVENTS // 2
    assert set(found["event"].to_pylist()) == set(range(1, N_EVENTS, 2))


def test_long_ids_are_split_over_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    # As for results of more than 2**31 bytes, which one Arrow array of strings cannot hold.
    monkeypatch.setattr("siftline.engine.batches._MOST_BYTES", 100)
    engine = Engine("sift")
    engine.add_many([(f"{n:030}", "a >= 0") for n in range(10)])
    found = engine.match_batch([{"a": 1}, {"a": 2}])
    assert sorted(pairs(found)) == [(event, f"{n:030}") for event in range(2) for n in range(10)]


@pytest.mark.parametrize("index", ["sift", "fast-scan", "counting"])
def test_batches_while_another_thread_changes(index: str) -> None:
    engine = Engine(index)
    engine.add_many([(i, f"a >= {i}") for i in range(20)])
    engine.add("a = 5 and b = 1", id=1000)
    n_events = N_EVENTS if index == "sift" else 50
    events = engine.encode([{"a": 5, "b": 1}] * n_events)
    is_over = threading.Event()

    def match() -> None:
        while not is_over.is_set():
            found: list[set[int]] = [set() for _ in range(n_events)]
            for position, id in pairs(engine.match_batch(events, threads=2)):
                assert id not in found[position], id
                found[position].add(id)
            for ids in found:
                # One is replaced all the time, and always there; odd ones never match.
                assert {*range(6), 1000} <= ids, ids
                assert all(id < 20 or id % 2 == 0 for id in ids), ids

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(match) for _ in range(2)]
        try:
            for i in range(2000, 2060):
                engine.add(f"a > {5 - 1 / i!r}" if i % 2 == 0 else f"a > {5 + 1 / i!r}", id=i)
                engine.replace(1000, f"a = 5 and b < {1 + 1 / i!r}")
                if i % 3 == 0:
                    engine.remove(i)
                if i % 20 == 0:
                    sweep(engine)
        finally:
            is_over.set()
            sys.setswitchinterval(interval)
    for each in running:
        each.result()
    engine._check()


def _count(engine: Engine) -> int:
    return int(engine.match_batch([{"a": 1}] * N_EVENTS, threads=2).num_rows)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    engine = Engine("sift")
    engine.add("a = 1", id=1)
    assert _count(engine) == N_EVENTS  # the pool of this process has started
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_count, [engine]).get(timeout=60) == N_EVENTS


def schema_of(id_type: str, has_weights: bool) -> list[tuple[str, str]]:
    columns = [("event", "int64"), ("subscription", id_type)]
    return [*columns, ("weight", "double")] if has_weights else columns


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize(("id", "id_type"), [(None, "int64"), (7, "int64"), ("ann", "string")], ids=str)
@pytest.mark.parametrize("has_weights", [False, True])
def test_the_schema_does_not_depend_on_what_matches(index: str, id: Any, id_type: str, has_weights: bool) -> None:
    engine = Engine(index)
    if id is not None:
        engine.add("a = 1", id=id, tenant="acme")
    within = {"within": [id or 0]}
    choices: list[dict[str, Any]] = [{}, {"top": 1}, {"top": 0}, within, {"tenant": "acme"}, {"tenant": "x"}]
    no_rows = pa.table({"a": pa.array([], pa.int64())})
    batches: list[Any] = [[], [{"a": 1}], [{"a": 2}], [{"a": 2}, {"a": 1}], no_rows, b""]

    def check() -> None:
        for events, options in product(batches, choices):
            table = engine.match_batch(events, weights=has_weights, **options)
            assert [(field.name, str(field.type)) for field in table.schema] == schema_of(id_type, has_weights)

    check()
    if id is not None:
        engine.remove(id)
        check()


def test_the_schema_survives_a_snapshot(tmp_path: Any) -> None:
    engine = Engine()
    engine.add("a = 1", id="ann")
    engine.remove("ann")
    engine.save(tmp_path / "saved")
    table = Engine.open(tmp_path / "saved").match_batch([{"a": 1}])
    assert [(field.name, str(field.type)) for field in table.schema] == schema_of("string", has_weights=False)


@pytest.mark.parametrize("threads", [1, 3])
def test_chunks_without_matches_do_not_change_the_schema(threads: int) -> None:
    engine = Engine()
    engine.add("a = 1", id="ann")
    table = engine.match_batch([{"a": int(n == 2500)} for n in range(N_EVENTS)], threads=threads)
    assert pairs(table) == [(2500, "ann")]
    assert str(table.schema.field("subscription").type) == "string"


CALLER = """
from uuid import UUID
import numpy as np
import pyarrow as pa
from siftline import Engine

engine = Engine()
table: pa.Table = engine.match_batch([{"a": 1}], weights=True, within=[1, UUID(int=1), np.int64(5)])
ids: list[int | str] = engine.match({"a": 1})
first: int | str | None = engine.match({"a": 1}, first=True)
added: int | str = engine.add("a = 1", id=UUID(int=1))
reveal_type(engine.match_batch([]))
"""


def test_a_caller_is_checked_strictly(tmp_path: Any) -> None:
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "pyarrow").mkdir()
    (tmp_path / "pyarrow" / "__init__.pyi").write_text("class Table: ...\nclass Schema: ...\nclass DataType: ...\n")
    source = Path(siftline.__file__).parent.parent
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", "caller.py"]
    environment = {**os.environ, "MYPYPATH": f"{source}{os.pathsep}{tmp_path}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Table" in done.stdout
