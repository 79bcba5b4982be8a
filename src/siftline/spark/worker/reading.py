"""Reading: converts Arrow batches to encoded events, without the unreadable ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from siftline.errors import EventError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from siftline.encoding.events import EncodedEvents
    from siftline.spark.worker.dead_letters import TaskLetters
    from siftline.spark.worker.events import Shape

    Encode = Callable[[Any], EncodedEvents]

# How many events are encoded and matched together: enough for the bitmaps of `sift`, and few enough for their matches
# to stay in the cache.
_PIECE_ROWS: Final = 4096
# How many rows a batch for Spark has: 100,000 are a quarter faster than 10,000.
_RESULT_ROWS: Final = 100_000
# The start of a reason with the position of the event, which has no meaning outside of its batch.
_POSITION: Final = re.compile(r"^event \d+: ")


def pieces(batch: Any, *, whole: bool = False) -> Iterator[Any]:
    """Cut a batch into pieces that are matched one after the other; with `whole` there is one piece."""
    size = max(1, batch.num_rows) if whole else _PIECE_ROWS
    for first in range(0, batch.num_rows, size):
        yield batch.slice(first, size)


def are_whole(engines: Iterable[Any]) -> bool:
    """Return whether an operator of these engines takes all events of a batch at once."""
    stages = [engine.call_stage for engine in engines]
    return any(stage is not None and stage.takes_batches for stage in stages)


def readable(piece: Any, shape: Shape, letters: TaskLetters, encode: Encode) -> tuple[Any, EncodedEvents]:
    """Return the readable events and their encoding; the others become dead letters."""
    problems = shape.problems(piece)
    good = letters.without(piece, problems) if problems else piece
    try:
        encoded = encode(shape.source(good))
    except EventError:
        good = letters.without(good, dict(_unreadable(good, 0, shape, encode)))
        encoded = encode(shape.source(good))
    if not encoded.errors:
        return good, encoded
    good = letters.without(good, {row: _POSITION.sub("", reason) for row, reason in encoded.errors.items()})
    return good, encode(shape.source(good))


def _unreadable(piece: Any, first: int, shape: Shape, encode: Encode) -> Iterator[tuple[int, str]]:
    """Find the events with invalid values by bisection, because there are few of them."""
    try:
        encode(shape.source(piece))
    except EventError as error:
        n = piece.num_rows
        if n == 1:
            yield first, _POSITION.sub("", str(error))
            return
        yield from _unreadable(piece.slice(0, n // 2), first, shape, encode)
        yield from _unreadable(piece.slice(n // 2), first + n // 2, shape, encode)


def joined(results: Iterable[Any]) -> Iterator[Any]:
    """Join small batches, because a batch has as much overhead as thousands of rows."""
    waiting: list[Any] = []
    n_rows = 0
    for result in results:
        if result.num_rows:
            waiting.append(result)
            n_rows += result.num_rows
        if n_rows >= _RESULT_ROWS:
            yield _one(waiting)
            waiting, n_rows = [], 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
