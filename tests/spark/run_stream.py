"""A job of its own, to be killed or run on a cluster: `python run_stream.py FOLDER [MASTER]`.

Matches the events in FOLDER/events with FOLDER/index, as they are and as a stream, and writes what it finds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from siftline.spark import match, session, stream
from spark.streaming import SCHEMA, events_of


def main(folder: Path, master: str | None) -> None:
    settings: dict[str, Any] = {"spark.local.dir": folder / "spark", "spark.sql.warehouse.dir": folder / "warehouse"}
    if master is not None:
        settings |= {"spark.master": master, "spark.executor.memory": "512m"}
    spark = session(2, memory="512m", short_lived=True, settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    events = events_of(spark, folder / "events")
    if master is not None:
        table = match(spark.read.schema(SCHEMA).json(str(folder / "events")).repartition(4), str(folder / "index"))
        table.write.parquet(str(folder / "batch"))
        events = events.repartition(2).mapInArrow(killer(folder / "killed"), SCHEMA)
    writer = stream(events, folder / "index").writeStream.format("parquet").option("path", str(folder / "matches"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


def killer(mark: Path) -> Any:
    """Return what kills one worker, once, after it has matched something."""

    def kill_once(batches: Any) -> Any:
        for batch in batches:
            yield batch
            if batch.num_rows and _is_first(mark):
                os.kill(os.getpid(), 9)

    return kill_once


def _is_first(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
