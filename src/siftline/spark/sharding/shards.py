"""Shards: workers count the attributes of parsed subscriptions, send them to their shards, and build the shards."""

from __future__ import annotations

import tempfile
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from siftline.engine import Engine
from siftline.language.text import parse_stored
from siftline.operators.modules import load_modules
from siftline.spark.sharding.pairs import save_pairs
from siftline.spark.sharding.parsed import Parsed
from siftline.spark.sharding.pivots import NO_PIVOT, pivots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from siftline.encoding.statistics import Statistics
    from siftline.spark.sharding.pivots import Line, Ranks

ATTRIBUTE_COUNTS: Final = "attribute string, n bigint"
PIVOT_COUNTS: Final = "pivot bigint, n bigint"
ROUTED: Final = "shard int, pivots binary, content binary"
BUILT: Final = "shard int, subscriptions bigint, bytes bigint, pairs bigint, pivots binary, folder string"
CHUNKS: Final = (
    "shard int, subscriptions bigint, bytes bigint, pairs bigint, pivots binary, "
    "file string, offset bigint, content binary"
)
_BUILT: Final = {
    "shard": pa.int32(),
    "subscriptions": pa.int64(),
    "bytes": pa.int64(),
    "pairs": pa.int64(),
    "pivots": pa.binary(),
}
# Large enough that the overhead of a row does not matter, small enough for the heap of an executor with a few of them.
_CHUNK_BYTES: Final = 4 << 20


def count_attributes(batches: Iterable[Any]) -> Iterator[Any]:
    """Count the subscriptions' uses of each attribute, in a worker."""
    counts: Counter[str] = Counter()
    for parsed in _parsed(batches):
        if len(parsed.predicates):
            for pair in parsed.predicates["attribute"].combine_chunks().value_counts().to_pylist():
                counts[pair["values"]] += pair["counts"]
        if "attributes" in parsed.subscriptions.column_names:
            for clauses in parsed.subscriptions["attributes"].drop_null().to_pylist():
                counts.update(name for clause in clauses for name in clause)
    yield _batch({"attribute": list(counts), "n": list(counts.values())}, [pa.string(), pa.int64()])


def count_pivots(ranks: Ranks) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function that counts subscriptions by pivot, in a worker."""

    def count(batches: Iterable[Any]) -> Iterator[Any]:
        for parsed in _parsed(batches):
            pivots, counts = np.unique(pivots_of(parsed, ranks).primary, return_counts=True)
            yield _batch({"pivot": pivots, "n": counts}, [pa.int64(), pa.int64()])

    return count


def route(ranks: Ranks, line: Line) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function that groups subscriptions by shard, in a worker: rows of ROUTED."""

    def sort(batches: Iterable[Any]) -> Iterator[Any]:
        for parsed in _parsed(batches):
            pivots = pivots_of(parsed, ranks)
            shards = line.shards(pivots.primary, parsed.subscriptions["id"])
            for shard in np.unique(shards).tolist():
                used = np.unique(pivots.clauses[shards[pivots.owners] == shard])
                content = parsed.taken(np.flatnonzero(shards == shard)).packed()
                yield _batch(
                    {"shard": [shard], "pivots": [used.tobytes()], "content": [content]},
                    [pa.int32(), pa.binary(), pa.binary()],
                )

    return sort


class Calls(NamedTuple):
    """The modules of the operators that subscriptions call, and a schedule of the calls."""

    operators: tuple[str, ...] = ()
    schedule: str | None = None


class Plan(NamedTuple):
    """The input of workers that build shards; ranks only if there are several shards."""

    statistics: Statistics | None
    ranks: Ranks | None
    calls: Calls


def build(folder: Path, plan: Plan) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function that writes a snapshot of each shard into a folder, in a worker: a row of BUILT for each."""

    def build_all(batches: Iterable[Any]) -> Iterator[Any]:
        load_modules(plan.calls.operators)
        for shard, parsed, pivots in _by_shard(batches):
            # Every attempt has its own name, because Spark may run a task twice.
            name = f".{shard}-{uuid.uuid4().hex}"
            row = _saved(shard, parsed, pivots, folder / name, plan)
            yield _batch({**row, "folder": [name]}, [*_BUILT.values(), pa.string()])

    return build_all


def build_chunks(plan: Plan) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function that makes rows of CHUNKS of a snapshot of each shard; the last row has no file."""

    def build_all(batches: Iterable[Any]) -> Iterator[Any]:
        load_modules(plan.calls.operators)
        for shard, parsed, pivots in _by_shard(batches):
            with tempfile.TemporaryDirectory(prefix="siftline-shard-") as folder:
                snapshot = Path(folder, "snapshot")
                row = _saved(shard, parsed, pivots, snapshot, plan)
                for name, offset, content in _chunks_of(snapshot):
                    yield _chunk(_nothing(shard), name, offset, content)
            yield _chunk(row)

    return build_all


def _saved(shard: int, parsed: Parsed, pivots: bytes, snapshot: Path, plan: Plan) -> dict[str, Any]:
    """Build and save one shard; return the columns of its row."""
    engine = engine_of(parsed, plan.statistics, plan.calls.schedule)
    engine.save(snapshot)
    pairs = None if plan.ranks is None else save_pairs(snapshot, pivots_of(parsed, plan.ranks), plan.ranks)
    numbers = {"subscriptions": [len(engine)], "bytes": [folder_bytes(snapshot)], "pairs": [pairs]}
    return {**_nothing(shard), **numbers, "pivots": [pivots]}


def _nothing(shard: int) -> dict[str, Any]:
    return {name: [shard] if name == "shard" else [None] for name in _BUILT}


def _chunk(row: dict[str, Any], name: str | None = None, offset: int | None = None, content: Any = None) -> Any:
    columns = {**row, "file": [name], "offset": [offset], "content": [content]}
    return _batch(columns, [*_BUILT.values(), pa.string(), pa.int64(), pa.binary()])


def _chunks_of(snapshot: Path) -> Iterator[tuple[str, int, bytes]]:
    """Return the content of all files in chunks, each with its file and its offset."""
    for file in sorted(path for path in snapshot.rglob("*") if path.is_file()):
        name = file.relative_to(snapshot).as_posix()
        with file.open("rb") as stream:
            content = stream.read(_CHUNK_BYTES)
            yield name, 0, content  # also of an empty file
            while content := stream.read(_CHUNK_BYTES):
                yield name, stream.tell() - len(content), content


def _by_shard(batches: Iterable[Any]) -> Iterator[tuple[int, Parsed, bytes]]:
    """Return the subscriptions of each shard of this task, and its pivots."""
    parts: dict[int, list[Parsed]] = {}
    pivots: dict[int, list[Any]] = {}
    for batch in batches:
        for shard, used, content in zip(*batch.columns, strict=True):
            parts.setdefault(shard.as_py(), []).append(Parsed.unpacked(content.as_buffer()))
            pivots.setdefault(shard.as_py(), []).append(np.frombuffer(used.as_py(), dtype=np.int64))
    for shard in sorted(parts):
        used = np.unique(np.concatenate(pivots[shard])).tobytes()
        yield shard, Parsed.joined(parts.pop(shard)), used


def engine_of(parsed: Parsed, statistics: Statistics | None, schedule: str | None = None) -> Engine:
    """Return an engine with these subscriptions."""
    engine = Engine(statistics=statistics, schedule=schedule)
    counts = np.diff(parsed.starts)
    plain, others = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    if len(plain):
        owners = pa.array(np.repeat(np.arange(len(plain)), counts[plain]))
        chosen = parsed.subscriptions.take(plain)
        texts = chosen["text"].combine_chunks()
        engine.add_rows(
            parsed.predicates.append_column("subscription", owners),
            chosen["id"],
            chosen["weight"],
            texts if texts.null_count == 0 else None,
        )
    if len(others):
        rows = parsed.subscriptions.take(others).select(["id", "text", "weight"]).to_pylist()
        texts = (row["text"].decode("utf-8", "surrogatepass") for row in rows)
        engine.add_many((row["id"], parse_stored(text), row["weight"]) for row, text in zip(rows, texts, strict=True))
        engine.settle()
    return engine


def folder_bytes(folder: Path) -> int:
    """Return the size of all files of a snapshot."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def pivot_names(used: bytes, ranks: Ranks | None) -> tuple[list[str], bool]:
    """Return the pivots of a shard, and whether every event must visit it."""
    found = np.frombuffer(used, dtype=np.int64).tolist()
    if ranks is None:
        return [], True
    return [ranks.names[pivot] for pivot in found if pivot != NO_PIVOT], NO_PIVOT in found


def _parsed(batches: Iterable[Any]) -> Iterator[Parsed]:
    for batch in batches:
        for content in batch.column("content"):
            yield Parsed.unpacked(content.as_buffer())


def _batch(columns: dict[str, Any], types: list[Any]) -> Any:
    arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
