"""Chooses a few notifications, and explains them with the engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.demo.figures import Sample
from siftline.engine import Engine
from siftline.language.printer import to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.demo.catalogue import Shop

_N_SAMPLES: Final = 4
# How many events are searched for interesting notifications.
_N_LOOKED_AT: Final = 500


class Chosen(NamedTuple):
    """A pair of event and subscription to show, and whether the pipeline found that they match."""

    title: str
    event: int
    subscription: int
    was_told: bool


def match_samples(shop: Shop, events: Any, subscriptions: Any) -> list[Chosen]:
    """Choose matches of different events and subscriptions with the most conditions, some of them with alternatives."""
    rows = np.flatnonzero(events < _N_LOOKED_AT)
    pairs = list(zip(events[rows].tolist(), subscriptions[rows].tolist(), strict=True))
    texts = {id: shop.subscriptions["expression"][id].as_py() for _, id in pairs}
    pairs.sort(key=lambda pair: (-texts[pair[1]].count(" or "), -texts[pair[1]].count(" and "), pair))
    with_choice = [pair for pair in pairs if " or " in texts[pair[1]]][: _N_SAMPLES // 2]
    chosen: dict[int, int] = {}
    for event, id in [*with_choice, *(pair for pair in pairs if " or " not in texts[pair[1]])]:
        if event not in chosen and id not in chosen.values() and len(chosen) < _N_SAMPLES:
            chosen[event] = id
    return [Chosen("Told", event, id, was_told=True) for event, id in chosen.items()]


def explained(index: str, shop: Shop, chosen: Sequence[Chosen]) -> list[Sample]:
    """Explain each pair with the engine of the current version of the index."""
    from siftline.spark import IndexDirectory

    directory = IndexDirectory.open(index)
    engines = [Engine.open(directory.shard_path(number)) for number in range(len(directory.shards))]
    return [
        _explained(next(engine for engine in engines if each.subscription in engine), shop, each) for each in chosen
    ]


def _explained(engine: Engine, shop: Shop, chosen: Chosen) -> Sample:
    text = shop.events["event"][chosen.event].as_py()
    explanation = engine.explain(text, chosen.subscription)
    return Sample(
        title=chosen.title,
        event=chosen.event,
        tree=json.loads(text),
        subscription=chosen.subscription,
        expression=to_text(engine.expression(chosen.subscription)),
        was_told=chosen.was_told,
        matched=explanation.matched,
        explanation=str(explanation),
    )
