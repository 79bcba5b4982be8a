"""A job on a cluster of two executors, of which workers and one executor are killed: `python run_kills.py FOLDER`.

Compiles SUBSCRIPTIONS into FOLDER/index and matches EVENTS by files and by the sharded plan, each with one kill.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from siftline.spark import match, match_files, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODULES = ("compile", "match", "worker.sharded")
SUBSCRIPTIONS = [(number, f"a{number % 7} >= {number % 5}") for number in range(60)]
EVENTS = [{f"a{number % 9}": number % 6, f"a{number % 4}": number % 3} for number in range(300)]


def main(folder: Path) -> None:
    settings: dict[str, Any] = {
        "spark.master": "local-cluster[2,1,1024]",
        "spark.executor.memory": "512m",
        "spark.local.dir": folder / "spark",
        "spark.sql.warehouse.dir": folder / "warehouse",
    }
    spark = session(2, memory="512m", short_lived=True, settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    index = str(folder / "index")
    compiling: Any
    files: Any
    sharded: Any
    compiling, files, sharded = (importlib.import_module(f"siftline.spark.{name}") for name in MODULES)
    build, function_of = compiling.build, files.function_of
    compiling.build = lambda *arguments: killing(build(*arguments), folder / "compile killed", os.getpid)
    compiling.compile(spark.createDataFrame(SUBSCRIPTIONS, "subscription bigint, expression string"), index, shards=3)
    rows = [(number, json.dumps(tree)) for number, tree in enumerate(EVENTS)]
    events = spark.createDataFrame(rows, "id bigint, event string").repartition(4)
    events.write.parquet(str(folder / "events"))
    files.function_of = lambda stage: killing(function_of(stage), folder / "files killed", os.getpid)
    match_files(str(folder / "events"), index, folder / "files")
    for how in ("pairs", "counts"):
        mark = folder / f"{how} killed"

        def stopped(stage: Any, mark: Path = mark) -> Any:
            is_second = isinstance(stage, sharded.ShardMatcher)
            return killing(function_of(stage), mark, executor) if is_second else function_of(stage)

        sharded.function_of = stopped
        mixed = events.mapInArrow(mixing, "id bigint, event string")
        match(mixed, index, plan="sharded", how=how).write.parquet(str(folder / how))
    spark.stop()


def killing(function: Any, mark: Path, victim: Callable[[], int]) -> Any:
    """Return the same function, which kills a process once when it has a result."""

    def run(batches: Any) -> Iterator[Any]:
        for result in function(batches):
            yield result
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(victim(), 9)

    return run


def executor() -> int:
    """Return the process of the executor: it has started the process that this worker was forked from."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


def mixing(batches: Any) -> Iterator[Any]:
    """Return rows in an order that is never the same, as behind a shuffle."""
    for batch in batches:
        order = list(range(batch.num_rows))
        random.SystemRandom().shuffle(order)
        yield batch.take(pa.array(order, pa.int64()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
