"""Random changes of subscriptions, and a model of the matches that an index must have in each of its states."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from siftline import Engine
from siftline.spark.changes import apply

if TYPE_CHECKING:
    from siftline.spark.directory.state import State

ATTRIBUTES = "abc"
NEVER = 2**63 - 1
Rows = dict[int, tuple[str, float, int]]


def expression(chance: random.Random) -> str:
    literals = []
    for name in chance.sample(ATTRIBUTES, chance.randint(1, 2)):
        kind = chance.choice(["= {}", "<= {}", "between {} and 3", "in ({}, 2)", "is null", "is not null"])
        literals.append(f"{chance.choice(['', '', 'not '])}({name} {kind.format(chance.randrange(5))})")
    return chance.choice([" and ", " or "]).join(literals)


def tree(chance: random.Random) -> dict[str, int]:
    return {name: chance.randrange(5) for name in sorted(chance.sample(ATTRIBUTES, chance.randint(0, 3)))}


class Model:
    """What changes mean, written down as plainly as possible: all subscriptions after each delta."""

    def __init__(self, rows: list[tuple[int, str, float]], seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.states: dict[int, Rows] = {0: {id: (text, weight, NEVER) for id, text, weight in rows}}
        self.last = 0

    def change(self, path: Any, now: int, n_changes: int = 4) -> None:
        """Make random changes to the index and to the model."""
        rows = dict(self.states[self.last])
        changes = []
        for _ in range(n_changes):
            id = self.chance.randrange(30)
            kind = self.chance.choice(["add", "replace", "remove", "expire"])
            end = self.chance.choice([None, now + self.chance.randrange(1, 50)])
            change: dict[str, Any] = {"change": kind, "subscription": id, "expires": end}
            if kind in ("add", "replace"):
                change |= {"expression": expression(self.chance), "weight": float(self.chance.randrange(4))}
                rows[id] = (change["expression"], change["weight"], NEVER if end is None else end)
            elif kind == "remove" or end is None:
                rows.pop(id, None)
            elif id in rows and rows[id][2] > now:
                rows[id] = (*rows[id][:2], end)
            changes.append(change)
        delta = apply(path, changes, now=now)
        assert delta.refused == []
        assert delta.number == self.last + 1
        self.last = delta.number
        self.states[self.last] = rows

    def rows(self, state: State) -> list[tuple[int, str, float]]:
        """Return the subscriptions that there are in a state."""
        return [(id, text, weight) for id, (text, weight, end) in self.states[state.delta].items() if end > state.time]

    def matches(self, state: State, trees: list[dict[str, Any]]) -> list[list[int]]:
        """Return what the scan finds for each event."""
        engine = Engine("scan")
        engine.add_many(self.rows(state))
        return [sorted(map(int, engine.match(each))) for each in trees]
