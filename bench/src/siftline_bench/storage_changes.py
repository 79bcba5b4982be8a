"""What single changes of `pb-tree` cost: into a temporary file, into one with a path, and done again after a crash."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline.engine import Engine
from siftline_bench.errors import WrongIdsError
from siftline_bench.measure import time_once

if TYPE_CHECKING:
    from collections.abc import Callable

    Say = Callable[[str], None]

Row = dict[str, Any]

_VALUES: Final = 1_000


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n_before: int = 2_000
    n_changes: int = 1_000


QUICK: Final = Sizes(200, 50)


def changes(sizes: Sizes, seed: int, say: Say) -> list[Row]:
    """Add and remove one by one, then open what a crash would leave."""
    rng = random.Random(seed)
    row: Row = {"figure": "changes", "n": sizes.n_before}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pages"
        for name, file in (("temporary", None), ("durable", path)):
            say(f"single changes, {name}")
            engine = Engine("pb-tree", path=file)
            engine.add_many((id, _text(rng)) for id in range(sizes.n_before))
            row |= {f"{name}_{figure}": per_s for figure, per_s in _changed(engine, sizes, rng).items()}
        expected = sorted(engine.ids())
        engine._tree.pages.close_files()  # type: ignore[attr-defined]  # as a crash leaves it: without a checkpoint
        say("opening again")
        opened = time_once(lambda: Engine("pb-tree", path=path))
        if sorted(opened.result.ids()) != expected:
            raise WrongIdsError("pb-tree does not hold what was acknowledged")
        opened.result.close()
        return [{**row, "changes_done_again": 2 * sizes.n_changes, "open_s": round(opened.seconds, 3)}]


def _text(rng: random.Random) -> str:
    return f"price < {rng.randrange(_VALUES)} and brand = 'brand {rng.randrange(_VALUES)}'"


def _changed(engine: Engine, sizes: Sizes, rng: random.Random) -> dict[str, float]:
    new = range(sizes.n_before, sizes.n_before + sizes.n_changes)
    texts = [_text(rng) for _ in new]

    def add() -> None:
        for id, text in zip(new, texts, strict=True):
            engine.add(text, id)

    def remove() -> None:
        for id in range(sizes.n_changes):
            engine.remove(id)

    return {
        "adds_per_s": round(sizes.n_changes / time_once(add).seconds, 1),
        "removes_per_s": round(sizes.n_changes / time_once(remove).seconds, 1),
    }
