"""Ids: NumPy integers, UUIDs and members of enumerations are taken wherever an id is."""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import siftline
from siftline import Engine, Store
from siftline.errors import SubscriptionError, UnknownIdError

if TYPE_CHECKING:
    from pathlib import Path

ANN = UUID("550e8400-e29b-41d4-a716-446655440000")
BOB = UUID("00000000-0000-0000-0000-000000000001")


class Number(IntEnum):
    SEVEN = 7


class Name(StrEnum):
    ANN = "ann"


class OldName(str, Enum):  # noqa: UP042 - as programs for Python 3.10 have them
    ANN = "ann"


# What is given, and what is held.
TAKEN: list[tuple[Any, int | str]] = [
    (np.int64(7), 7),
    (np.int8(7), 7),
    (np.uint64(7), 7),
    (Number.SEVEN, 7),
    (ANN, str(ANN)),
    (Name.ANN, "ann"),
    (OldName.ANN, "ann"),
    (np.str_("ann"), "ann"),
]
# One index that keeps subscriptions in memory, one that keeps them in a file, and the oracle.
INDEXES = ["sift", "pb-tree", "scan"]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize(("given", "held"), TAKEN, ids=lambda value: type(value).__name__)
def test_an_engine_takes_them_everywhere(index: str, given: Any, held: int | str) -> None:
    engine = Engine(index)
    added = engine.add("a = 1", id=given, weight=2.0)
    assert (added, type(added)) == (held, type(held))
    assert given in engine
    assert held in engine
    assert engine.ids() == [held]
    assert engine.weight(given) == 2.0
    assert engine.expression(given) == siftline.parse("a = 1")
    assert engine.explain({"a": 1}, given).matched
    assert engine.match({"a": 1}, within=[given]) == [held]
    assert engine.match({"a": 1}, within={given}) == [held]
    assert engine.match({"a": 1}, within=engine.subset([given])) == [held]
    assert engine.match_batch([{"a": 1}], within=[given])["subscription"].to_pylist() == [held]
    engine.replace(given, "a = 2")
    assert engine.match({"a": 2}) == [held]
    engine.remove(given)
    assert engine.add_many([(given, "a = 1")]) == 1
    assert [type(id) for id in engine.ids()] == [type(held)]
    engine.remove_many([given])
    assert given not in engine
    with pytest.raises(UnknownIdError):
        engine.remove(given)


def test_arrays_of_ids() -> None:
    engine = Engine()
    engine.add_many(zip(np.arange(5), ["a = 1"] * 5, strict=True))
    assert sorted(engine.match({"a": 1}, within=np.array([1, 3, 99]))) == [1, 3]
    engine.remove_many(np.array([0, 1]))
    assert sorted(engine.ids()) == [2, 3, 4]


def test_a_uuid_is_its_text_in_another_spelling_too() -> None:
    engine = Engine()
    engine.add("a = 1", id=UUID(str(ANN).upper()))
    engine.add_many(pa.table({"subscription": [str(BOB)], "expression": ["a = 1"]}))
    assert sorted(engine.match({"a": 1}, within=[ANN, BOB])) == sorted([str(ANN), str(BOB)])


@pytest.mark.parametrize("id", [True, np.bool_(True), 1.0, np.float64(1), None, b"x", (1,), np.uint64(2**63)])
def test_what_is_no_id_is_refused(id: Any, tmp_path: Path) -> None:
    engine = Engine()
    if id is not None:
        with pytest.raises(SubscriptionError, match="id"):
            engine.add("a = 1", id=id)
    with pytest.raises(SubscriptionError, match="id"):
        engine.add_many([(id, "a = 1")])
    with Store(tmp_path / "store.db") as store, pytest.raises(SubscriptionError, match="id"):
        store.add("a = 1", id)


@pytest.mark.parametrize(("given", "held"), TAKEN, ids=lambda value: type(value).__name__)
def test_a_store_takes_them_everywhere(given: Any, held: int | str, tmp_path: Path) -> None:
    with Store(tmp_path / "store.db") as store:
        store.add("a = 1", given)
        assert given in store
        assert [each.id for each in store] == [held]
        assert store.get(given).id == held
        assert store.known([given]) == {held}
        store.replace(given, "a = 2")
        store.renew(given, None)
        with store.batch() as batch:
            batch.replace(given, "a = 3")
        store.remove(given)
        assert given not in store
