"""What durable subscriptions cost: importing, single adds from several threads, loading an engine, verifying.

Single adds are measured with 1, 16 and 64 threads, each of which waits until its subscription is on the disk before
it adds the next. How many share a commit depends on the disk: the slower it is, the more. So a plain `fsync` of one
page stands beside the figures.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.cli.store_import import Import
from siftline.engine import Engine
from siftline.storage.store import Store
from siftline_bench.errors import WrongIdsError
from siftline_bench.measure import time_once
from siftline_bench.targets import Target, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Say = Callable[[str], None]

Row = dict[str, Any]

_BRANDS: Final = 1_000
_IMPORT, _ADDS = "s to import 100,000", "single durable adds/s"


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n_imported: int = 100_000
    n_threads: tuple[int, ...] = (1, 16, 64)
    seconds: float = 3.0
    n_changed: int = 1_000


QUICK: Final = Sizes(2_000, (1, 8), 0.3, 100)


def store(sizes: Sizes, seed: int, say: Say) -> list[Row]:
    """Measure a store in a temporary directory."""
    with tempfile.TemporaryDirectory() as folder:
        rules, path = Path(folder) / "rules.jsonl", Path(folder) / "store.db"
        rng = random.Random(seed)
        rules.write_text("".join(_line(id, rng) for id in range(sizes.n_imported)), encoding="utf-8")
        row: Row = {"figure": "store", "workload": "store", "n": sizes.n_imported, "fsync_us": _fsync_us(Path(folder))}
        with Store(path) as opened:
            say(f"importing {sizes.n_imported:,} subscriptions from JSON Lines")
            row |= _imported(opened, rules)
            for n_threads in sizes.n_threads:
                say(f"single adds from {n_threads} threads")
                row |= _added(opened, n_threads, sizes.seconds, rng)
            say("loading an engine, following, verifying")
            row |= _loaded(opened, sizes.n_changed, rng)
        row["file_bytes"] = path.stat().st_size
        again = time_once(lambda: Store(path))
        again.result.close()
        row["open_ms"] = round(again.seconds * 1e3, 1)
        return [row]


def _line(id: int, rng: random.Random) -> str:
    return json.dumps({"id": id, "expression": _text(rng), "owner": f"owner {id % 100}"}) + "\n"


def _text(rng: random.Random) -> str:
    brand, price = rng.randrange(_BRANDS), rng.randrange(100_000)
    return f"brand = 'brand {brand}' and price <= {price} and color in ('red', 'color {rng.randrange(100)}')"


def _fsync_us(folder: Path) -> float:
    """Return the median time of writing one page behind the others and waiting for the disk."""
    taken = []
    with (folder / "page").open("wb", buffering=0) as file:
        for _ in range(50):
            begin = time.perf_counter_ns()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            taken.append((time.perf_counter_ns() - begin) / 1e3)
    return round(float(np.median(taken)), 1)


def _imported(opened: Store, rules: Path) -> Row:
    """Do what `siftline store import` does."""
    job = Import(opened, is_replacing=False, owner=None, is_quiet=True)

    def run() -> None:
        job.read(str(rules), None)
        job.commit(None)

    timed = time_once(run)
    return {"import_s": round(timed.seconds, 3), "import_processor_s": round(timed.processor_seconds, 3)}


def _added(opened: Store, n_threads: int, seconds: float, rng: random.Random) -> Row:
    """Let threads add for some time, and check that everything that was acknowledged is there."""
    texts = [_text(rng) for _ in range(1_000)]
    first = (1 + n_threads) * 10**9
    counts = [0] * n_threads
    end = time.perf_counter() + seconds

    def add(thread: int) -> None:
        while time.perf_counter() < end:
            opened.add(texts[counts[thread] % len(texts)], first + thread * 10**6 + counts[thread])
            counts[thread] += 1

    n_before, begin = len(opened), time.perf_counter()
    threads = [threading.Thread(target=add, args=(thread,)) for thread in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - begin
    if len(opened) != n_before + sum(counts):
        raise WrongIdsError(f"{sum(counts):,} adds were acknowledged, {len(opened) - n_before:,} are there")
    return {f"adds_per_s_{n_threads}": round(sum(counts) / taken, 1)}


def _loaded(opened: Store, n_changed: int, rng: random.Random) -> Row:
    Engine("sift").add_many((id, _text(rng)) for id in range(_BRANDS))  # kernels are compiled before the clock runs
    engine = Engine("sift")
    loaded = time_once(lambda: opened.load_into(engine))
    with opened.batch() as batch:
        for id in range(n_changed):
            batch.replace(id, _text(rng))
    followed = time_once(lambda: opened.follow(engine, loaded.result))
    verified = time_once(opened.verify)
    if verified.result or len(engine) != len(opened):
        raise WrongIdsError("the store is damaged, or the engine has other subscriptions")
    return {
        "load_s": round(loaded.seconds, 3),
        "n_loaded": len(engine),
        "follow_us_a_change": round(followed.seconds / n_changed * 1e6, 1),
        "verify_s": round(verified.seconds, 3),
    }


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Compare with what a store must reach."""
    (row,) = rows
    best = max(value for name, value in row.items() if name.startswith("adds_per_s_"))
    imported = row["import_s"] * 100_000 / row["n"]
    targets = (
        (Target("store", "store", _IMPORT, at_most=10), imported),
        (Target("store", "store", _ADDS, at_least=2_000), best),
    )
    return [Verdict(target, value) for target, value in targets]


def lines_of(rows: Sequence[Row]) -> list[list[str]]:
    """Return all figures as a table."""
    (row,) = rows
    figures = [name for name in row if name not in ("figure", "workload")]
    return [["store", "measured"], *([name, f"{row[name]:,}"] for name in figures)]
