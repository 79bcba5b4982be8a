"""Helpers for tests of streams: events in files, a query over them, and its output."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from siftline.spark.directory.documents import read_document
from siftline.spark.directory.state import State
from siftline.spark.stream import stream

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "id bigint, event string"


def put_events(folder: Path, name: int, trees: list[dict[str, Any]], first: int) -> None:
    """Add a file of events, in one step; files are read in the order of their names."""
    folder.mkdir(exist_ok=True)
    rows = [json.dumps({"id": first + number, "event": json.dumps(each)}) for number, each in enumerate(trees)]
    draft = folder / f".{name:05d}"
    draft.write_text("\n".join(rows) + "\n")
    os.utime(draft, (1_000_000_000 + name,) * 2)  # the order in which Spark reads them
    draft.rename(folder / f"{name:05d}.json")


def events_of(spark: Any, folder: Path) -> Any:
    """Return a stream with a micro-batch for each file."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).option("latestFirst", "false")
    return reader.json(str(folder))


def run_all(spark: Any, folder: Path, index: Any, kind: str = "parquet", **options: Any) -> Any:
    """Match all events that are there, and return the query."""
    found = stream(events_of(spark, folder / "events"), index, **options)
    writer = found.writeStream.format(kind).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.option("path", str(folder / "matches")).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def written(spark: Any, folder: Path, kind: str = "parquet") -> list[tuple[int, int]]:
    """Return all rows that are in the output."""
    rows = spark.read.schema("id bigint, subscription bigint").format(kind).load(str(folder / "matches"))
    return sorted(tuple(row) for row in rows.collect())


def claims(index: Any, query: Any) -> list[State]:
    """Return the states that the micro-batches of a query were matched with."""
    folder = index / "streams" / str(query.id)
    files = sorted(folder.glob("*.json"), key=lambda file: int(file.stem))
    return [State(*read_document(file)["state"]) for file in files]
