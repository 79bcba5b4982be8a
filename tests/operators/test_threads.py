"""Matching with calls while subscriptions come and go."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from siftline.engine import Engine
from siftline.operators.operator import operator
from siftline.operators.schedules import schedules


def _threaded(name: str) -> None:
    operator(name)(lambda event, n: event["n"] % 7 == n % 7)


for _i in range(20):
    _threaded(f"threaded_{_i}")


@pytest.mark.parametrize("schedule", schedules())
def test_readers_see_what_stays(schedule: str) -> None:
    engine = Engine(schedule=schedule)
    engine.add_many((i, f"threaded_{i % 3}({i}) and threaded_{i % 2}({i})") for i in range(50))
    problems: list[Any] = []
    is_over = threading.Event()

    def read() -> None:
        try:
            while not is_over.is_set():
                for n in range(7):
                    found = [id for id in engine.match({"n": n}) if isinstance(id, int) and id < 50]
                    assert sorted(found) == [i for i in range(50) if i % 7 == n]
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for i in range(60):
        engine.add(f"threaded_{i % 20}({i}) or not threaded_{(i + 5) % 20}({i + 1})", id=1000 + i)
        if i % 2:
            engine.remove(1000 + i)
        if i % 20 == 7:
            engine._updates.sweep_all()
            engine.rebuild()
    is_over.set()
    for reader in readers:
        reader.join()
    assert not problems, problems
