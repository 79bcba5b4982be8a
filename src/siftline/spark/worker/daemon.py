"""Daemon: the process from which Spark forks Python workers, with the kernels loaded and used once.

The setting `spark.python.daemon.module` is `siftline.spark.daemon`, which runs this; `siftline.spark.session` sets it.
A worker is then ready at once; otherwise each worker takes two seconds to load the compiler and the kernels.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import siftline
from siftline.encoding.arrow_events import ArrowSource
from siftline.encoding.domain import NULL
from siftline.encoding.domains import Domains
from siftline.encoding.events import EncodedEvents
from siftline.indexes.sift.bits import Bits, Costs
from siftline.kernels.routing import no_filters, visits
from siftline.spark.sharding.pairs import save_pairs
from siftline.spark.sharding.parsed import Collector, Parsed
from siftline.spark.sharding.pivots import Ranks, pivots_of
from siftline.spark.sharding.shards import engine_of

# One subscription for each path through the kernels.
_EXPRESSIONS: Final = (
    "a = 1 and b >= 2.5",
    "a between 1 and 3 or not (c = 'x')",
    "c in ('x', 'y') and a in (1, 2, 3)",
    "c contains 'x' and c like '%y%'",
    "any items (sku = 'x' and qty > 2)",
    "d is null",
)
_ATTRIBUTES: Final = ("a", "b", "c", "d", "items.sku", "items.qty")
# Enough for trees in the index, and for bitmaps of events, which are built after some batches.
_N_RANGES: Final = 300
_N_EVENTS: Final = 128
_N_BATCHES: Final = 8
_EVENT: Final = '{"a": 1, "b": 3.5, "c": "xy", "items": [{"sku": "x", "qty": 3}], "e": null}'
# With these costs, bitmaps are built and used as early as possible.
_FREE: Final = Costs(*[0.0] * len(Costs._fields))


def warm_up() -> None:
    """Use the kernels that workers need, without starting a thread, because threads do not survive the fork."""
    with tempfile.TemporaryDirectory() as folder:
        engine = _compiled(Path(folder))
        texts = pa.array([_EVENT] * _N_EVENTS)
        for top in (None, 1):
            engine.match_batch(texts, top=top, threads=1, weights=True)
        engine.match_batch(pa.table({"a": [1], "b": [3.5], "c": ["xy"]}), threads=1)
        _match_in_bitmaps(engine, texts)
        _route(texts)
        engine.remove(engine.add("a = 7"))


def _compiled(folder: Path) -> siftline.Engine:
    """Do what `compile` does in workers: parse, pack, count, route, build, save; and open the result."""
    collector = Collector(pa.int64())
    for number, text in enumerate((*_EXPRESSIONS, *(f"a >= {n} and b < {n}.5" for n in range(_N_RANGES)))):
        collector.add(number, 1.0, text, siftline.parse(text))
    parsed = Parsed.unpacked(collector.parsed().packed())
    ranks = Ranks(dict.fromkeys(_ATTRIBUTES, 1.0))
    engine_of(parsed, None).save(folder / "engine")
    save_pairs(folder / "engine", pivots_of(parsed, ranks), ranks)
    return siftline.Engine.open(folder / "engine")


def _match_in_bitmaps(engine: siftline.Engine, texts: Any) -> None:
    """Match some batches as if bitmaps cost nothing; otherwise they are built only after many events."""
    index: Any = engine._state.index
    for part in index._parts:
        part.batching = Bits(_FREE)
    for _ in range(_N_BATCHES):
        engine.match_batch(texts, threads=1)


def _route(texts: Any) -> None:
    """Route events to two shards."""
    domains = Domains()
    for name in _ATTRIBUTES:
        domains.intern(name)
    events = EncodedEvents(ArrowSource(texts), domains)
    owners = np.arange(len(_ATTRIBUTES) + 1), np.zeros(len(_ATTRIBUTES), dtype=np.int32)
    filters = no_filters(len(_ATTRIBUTES), 2)
    always = np.ones(1, dtype=np.int32)
    visits(events.starts, events.attributes, events.codes, NULL, *owners, always, 2, filters)


def serve() -> None:
    """Load the kernels, and fork workers until Spark ends this process."""
    from pyspark import daemon

    # Spark reads a port number from standard output, so nothing else may be written there.
    with redirect_stdout(sys.stderr):
        warm_up()
    gc.freeze()  # so that workers neither scan the loaded objects repeatedly nor copy their pages
    daemon.manager()
