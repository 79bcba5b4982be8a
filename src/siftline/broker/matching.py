"""Matching a list of JSON texts in chunks of bounded size.

A chunk is so small that its matches fit into memory even if each of its events matches every subscription. Only the ids
of one event are Python objects at the same time.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from siftline.errors import EventError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from siftline.engine import Engine
    from siftline.ids import Id

# A chunk has at most this many possible pairs of an event and a subscription, and at most this many events ...
_MOST_PAIRS: Final = 1 << 22
_MOST_EVENTS: Final = 4096
# ... and at least this many, because the kernels are much faster with several events than with one.
_LEAST_EVENTS: Final = 8


def matched_ids(
    engine: Engine, events: list[bytes], now: datetime | None = None, before: Callable[[], None] = lambda: None
) -> Iterator[list[Id] | EventError]:
    """Yield the matching ids of each event, or the error of an invalid one; `now` is the instant of the match.

    `before` is called before each chunk.
    """
    first = 0
    while first < len(events):
        n = min(max(_MOST_PAIRS // (len(engine) + 1), _LEAST_EVENTS), _MOST_EVENTS)
        before()
        yield from _matched_piece(engine, events[first : first + n], now)
        first += n


def _matched_piece(engine: Engine, events: list[bytes], now: datetime | None) -> Iterator[list[Id] | EventError]:
    return iter([_matched(engine, events[0], now)]) if len(events) == 1 else _matched_many(engine, events, now)


def _matched(engine: Engine, event: bytes, now: datetime | None) -> list[Id] | EventError:
    try:
        return engine.match(event, now=now)
    except EventError as error:
        return error


def _matched_many(engine: Engine, events: list[bytes], now: datetime | None) -> Iterator[list[Id] | EventError]:
    import pyarrow as pa

    from siftline.encoding.json_events import JsonSource

    source = JsonSource.from_arrow(pa.array(events, pa.large_binary()), skip_bad=True)
    pairs = engine.match_batch(source, now=now)
    # The pairs are in the order of the events.
    bounds = np.searchsorted(pairs["event"].to_numpy(), np.arange(len(events) + 1)).tolist()
    for position, (first, end) in enumerate(pairwise(bounds)):
        if position in source.errors:
            refusal = _matched(engine, events[position], now)  # for a message without a position in this chunk
            yield refusal if isinstance(refusal, EventError) else EventError(source.errors[position])
        else:
            yield pairs["subscription"].slice(first, end - first).to_pylist()
