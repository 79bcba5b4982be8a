"""Which subscriptions each of some JSON texts matches, or what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from siftline.errors import EventError

if TYPE_CHECKING:
    from siftline.engine import Engine
    from siftline.subscriptions import Id


def matched_ids(engine: Engine, events: list[bytes]) -> list[list[Id] | EventError]:
    """Match events; a bad one does not disturb the others."""
    if len(events) == 1:
        return [_matched(engine, events[0])]
    return _matched_many(engine, events) if events else []


def _matched(engine: Engine, event: bytes) -> list[Id] | EventError:
    try:
        return engine.match(event)
    except EventError as error:
        return error


def _matched_many(engine: Engine, events: list[bytes]) -> list[list[Id] | EventError]:
    import pyarrow as pa

    from siftline.encoding.json_events import JsonSource

    source = JsonSource.from_arrow(pa.array(events, pa.large_binary()), skip_bad=True)
    pairs = engine.match_batch(source)
    found: list[list[Id] | EventError] = [[] for _ in events]
    for position, id in zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True):
        found[position].append(id)
    for position in source.errors:
        refusal = _matched(engine, events[position])  # once more, for words that do not name a position in this batch
        found[position] = refusal if isinstance(refusal, EventError) else EventError(source.errors[position])
    return found
