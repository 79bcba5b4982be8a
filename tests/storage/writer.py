"""A process that changes an engine until it is killed, and prints each acknowledged change.

For each line `SEED PATH` on its input it forks a child that does the work, so that kernels are loaded only once.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import TYPE_CHECKING, Any

from siftline import Engine
from siftline.indexes.pb_tree import index as pb_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

# Small pages and an early checkpoint: everything that can be interrupted happens often.
OPTIONS: dict[str, Any] = {"page_bytes": 512, "buffer_mb": 0.01}
LONG_LOG = 1500
MANY_ROWS = 20


def expression(rng: random.Random) -> str:
    op, constant = rng.choice(["=", "!=", "<", "<=", ">", ">="]), rng.randrange(50)
    other = rng.choice(["", f" and b = 'x{rng.randrange(5)}'", f" or c > {rng.randrange(9)}", " and d contains 'y'"])
    return f"a {op} {constant}{other}"


def changes(seed: int, known: dict[int, str]) -> Iterator[tuple[list[int], list[tuple[int, str]]]]:
    """Yield what to remove and what to add; `known` is what there is now."""
    rng = random.Random(seed)
    while True:
        chance = rng.random()
        if known and chance < 0.3:
            yield rng.sample(sorted(known), min(len(known), rng.choice([1, 1, 3]))), []
        elif known and chance < 0.4:
            id = rng.choice(sorted(known))
            yield [id], [(id, expression(rng))]
        else:
            first = max(known, default=0) + 1
            yield [], [(first + i, expression(rng)) for i in range(rng.choice([1, 1, 1, 5, 30]))]


def do(engine: Engine, removed: list[int], added: list[tuple[int, str]]) -> None:
    if removed and added:
        engine.replace(removed[0], added[0][1])
    elif removed:
        engine.remove_many(removed)
    else:
        engine.add_many(added)


def after(known: dict[int, str], removed: list[int], added: list[tuple[int, str]]) -> dict[int, str]:
    return {id: text for id, text in known.items() if id not in removed} | dict(added)


def say(*words: Any) -> None:
    """Write one line in one piece: parent and child share the pipe."""
    os.write(1, json.dumps(words).encode() + b"\n")


def work(seed: int, path: str) -> None:
    known: dict[int, str] = {}
    engine = Engine("pb-tree", path=path, **OPTIONS)
    for removed, added in changes(seed, known):
        say("begin", removed, added)
        do(engine, removed, added)
        say("done")
        for id in removed:
            del known[id]
        known.update(added)


def main() -> None:
    pb_tree._LONG_LOG, pb_tree._MANY_ROWS = LONG_LOG, MANY_ROWS  # type: ignore[misc]
    warm = Engine("pb-tree", **OPTIONS)
    for removed, added in changes(0, {}):
        do(warm, removed, added)
        break
    warm.match({"a": 1})
    for line in sys.stdin:
        seed, path = line.rstrip("\n").split(" ", 1)
        child = os.fork()
        if child == 0:
            work(int(seed), path)
            os._exit(0)
        say("started", child)
        os.waitpid(child, 0)
        say("gone")


if __name__ == "__main__":
    main()
