"""The process that Spark forks Python workers from, with the kernels loaded and used once.

Name it in `spark.python.daemon.module`; `siftline.spark.session` does. A worker is then ready at once; otherwise each
one takes two seconds to load the compiler and the kernels.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import siftline

# One subscription for each way through the kernels.
_EXPRESSIONS: Final = (
    "a = 1 and b >= 2.5",
    "a between 1 and 3 or not (c = 'x')",
    "c in ('x', 'y') and a in (1, 2, 3)",
    "c contains 'x' and c like '%y%'",
    "any items (sku = 'x' and qty > 2)",
    "d is null",
)
_EVENT: Final = '{"a": 1, "b": 3.5, "c": "xy", "items": [{"sku": "x", "qty": 3}], "e": null}'


def warm_up() -> None:
    """Use the kernels that workers need, without starting a thread: threads do not survive the fork."""
    engine = siftline.Engine()
    engine.add_many((number, text) for number, text in enumerate(_EXPRESSIONS))
    engine.add_many(_predicates())
    with tempfile.TemporaryDirectory() as folder:
        engine.save(Path(folder, "engine"))
        engine = siftline.Engine.open(Path(folder, "engine"))
        texts = pa.array([_EVENT] * 2)
        for top in (None, 1):
            engine.match_batch(texts, top=top, threads=1)
        engine.match_batch(pa.table({"a": [1], "b": [3.5], "c": ["xy"]}), threads=1)
        engine.remove(engine.add("a = 7"))


def _predicates() -> Any:
    columns = {"subscription": [100, 100], "attribute": ["a", "c"], "op": [">=", "="]}
    return pa.table({**columns, "number": [1.0, None], "text": [None, "x"]})


if __name__ == "__main__":
    from pyspark import daemon

    # Spark reads the number of a port from the standard output, and nothing else must stand there.
    with redirect_stdout(sys.stderr):
        warm_up()
    gc.freeze()  # what is loaded stays: workers need not look through it again and again, nor copy its pages
    daemon.manager()
