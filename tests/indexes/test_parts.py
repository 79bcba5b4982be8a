"""The dynamic side that most indexes share, seen through the simplest index that can stand on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pytest

from siftline import Engine
from siftline.errors import TooLargeError
from siftline.indexes import registry
from siftline.indexes.parts import Context, Found, OneEvent, Part, PartedIndex, check_memory

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses


class Arrays(NamedTuple):
    chosen: NDArray[np.int32]


class Everything(PartedIndex):
    """Tests every clause: it has no structure of its own."""

    name: ClassVar[str] = "everything"
    takes_alternatives: ClassVar[bool] = True
    arrays_type: ClassVar[type] = Arrays

    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> Arrays:
        return Arrays(chosen)

    def _match_part(self, part: Part, event: OneEvent) -> Found:
        chosen = part.arrays.chosen
        found, n_tested = self._verified(part, chosen, event)
        return Found(found, len(part.arrays.chosen), n_tested, 1)

    def _check_part(self, part: Part) -> None:
        assert len(part.arrays.chosen) + len(part.others) == part.n_clauses

    def _describe_part(self, part: Part) -> list[str]:
        return ["one list"]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._INDEXES, "everything", (__name__, "Everything"))


def sizes(engine: Engine) -> list[int]:
    return [part.n_clauses for part in engine._state.index._parts]  # type: ignore[attr-defined]


def test_parts_halve_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_AT_ONCE", "_FEW_SLOTS"):  # nothing in the background
        monkeypatch.setattr(f"siftline.engine.compaction.{name}", 4096)
    engine = Engine("everything")
    engine.add_many((n, f"a = {n}") for n in range(1000))
    for n in range(1000, 1200):
        engine.add(f"a = {n % 7}", id=n)
        engine._check()
    assert sum(sizes(engine)) == 1200
    assert all(one >= 2 * other for one, other in zip(sizes(engine)[:-2], sizes(engine)[1:-1], strict=True))
    assert len(sizes(engine)) <= 4
    assert sorted(engine.match({"a": 3})) == [3, *(n for n in range(1000, 1200) if n % 7 == 3)]


def test_memory_comes_back() -> None:
    engine = Engine("everything")
    engine.add_many((n, f"a = {n}") for n in range(600))
    full = sum(engine.stats()["bytes"].values())
    for n in range(300):
        engine.remove(n)
        engine._check()
    assert 300 <= sizes(engine)[0] < 400
    assert engine.match({"a": 5}) == []
    assert engine.match({"a": 305}) == [305]
    engine.remove_many(range(300, 600))
    assert sizes(engine) == []
    assert sum(engine.stats()["bytes"].values()) < full / 4


def test_subscriptions_without_anything_to_find_them_by() -> None:
    engine = Engine("everything")
    engine.add("not (a = 1 is true)", id=1)
    engine.add("a is null", id=2)
    engine.add("a is null or b = 1", id=3)
    engine._check()
    assert sorted(engine.match({})) == [1, 2, 3]
    assert sorted(engine.match({"a": 1, "b": 1})) == [3]


def test_alternatives() -> None:
    engine = Engine("everything")
    engine.add("(a = 1 or b = 2 or c = 1) and (d > 3 or e is null) and f != 0", id=1)
    assert engine.stats()["clauses"] == 1
    assert engine.match({"b": 2, "d": 4, "f": 1}) == [1]
    assert engine.match({"c": 1, "f": 1}) == [1]
    assert engine.match({"c": 1, "f": 1, "e": 2}) == []
    assert engine.match({"c": 1, "f": 0}) == []


def test_saved_parts(tmp_path: Path) -> None:
    engine = Engine("everything")
    engine.add_many((n, f"a = {n % 10}") for n in range(200))
    engine.add("a = 3 or b = 4", id=500)
    engine.save(tmp_path / "saved")
    opened = Engine.open(tmp_path / "saved")
    opened._check()
    assert sizes(opened) == sizes(engine) == [200, 2]
    opened.add("a = 3", id=501)
    assert sorted(opened.match({"a": 3})) == [*range(3, 200, 10), 500, 501]


def test_work_is_counted() -> None:
    engine = Engine("everything")
    engine.add_many((n, f"a = {n}") for n in range(100))
    engine.match({"a": 3})
    stats: dict[str, Any] = engine.stats()
    assert (stats["events"], stats["candidates_examined"], stats["lists_scanned"]) == (1, 100, 1)
    assert "one list" in engine.describe()


def test_a_limit_is_explained() -> None:
    check_memory("k-index", 1 << 20, 1, "ranges")
    with pytest.raises(TooLargeError, match=r"k-index would take 3\.00 GB for ranges; the limit is 1\.00 GB"):
        check_memory("k-index", 3 << 30, 1024, "ranges")


def test_what_is_there_is_never_refused_later(tmp_path: Path) -> None:
    engine = Engine("k-index", memory_limit_mb=1)
    rows = [(n, f"a between {n} and {n + 800} and b > {n}") for n in range(800)]
    with pytest.raises(TooLargeError, match=r"the limit is 1\.00 MB"):
        engine.add_many(rows)
    assert len(engine) == 0
    for id, expression in rows:
        engine.add(expression, id=id)
    engine.remove(0)
    engine.save(tmp_path / "saved")
    engine.remove_many(range(1, 500))
    engine.rebuild()
    engine._check()
    assert len(engine) == len(engine.match({"a": 800, "b": 900})) == 300
    opened = Engine.open(tmp_path / "saved")
    opened._check()
    assert len(opened) == 799
