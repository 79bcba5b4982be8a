"""The operators that ship with Siftline, through an engine."""

from __future__ import annotations

import base64
import io
import sqlite3
from typing import Any

import duckdb
import pytest
from PIL import Image

from siftline.engine import Engine
from siftline.errors import OperatorError, SubscriptionError
from siftline.operators import datalog, geometry, places, reasoning, tables
from siftline.operators.registry import _SHIPPED, get, operators


def matched(text: str, event: dict[str, Any]) -> bool:
    engine = Engine()
    engine.add(text, id=1)
    return engine.match(event) == [1]


def test_all_can_be_found() -> None:
    assert set(_SHIPPED) <= set(operators())
    for name in _SHIPPED:
        assert get(name).name == name


# places


@pytest.fixture
def regions() -> None:
    square = [[[-73.94, 40.78], [-73.74, 40.78], [-73.74, 40.92], [-73.94, 40.92], [-73.94, 40.78]]]
    bronx = {
        "type": "Feature",
        "properties": {"name": "Bronx"},
        "geometry": {"type": "Polygon", "coordinates": square},
    }
    assert geometry.load_regions({"type": "FeatureCollection", "features": [bronx]}) == 1


def test_regions(regions: None) -> None:
    assert matched("loc_in('Bronx')", {"lat": 40.829, "lon": -73.926})
    assert matched("loc_in('Bronx')", {"location": {"type": "Point", "coordinates": [-73.94, 40.8]}})
    assert not matched("loc_in('Bronx')", {"lat": 40.758, "lon": -73.985})
    assert matched("not loc_in('Bronx')", {"lat": 40.758, "lon": -73.985})
    assert not matched("loc_in('Bronx') or not loc_in('Bronx')", {"lat": "here"})  # unknown
    assert not matched("loc_in('Atlantis')", {"lat": 0, "lon": 0})
    with pytest.raises(OperatorError, match="no GeoJSON geometry"):
        geometry.add_region("bad", {"type": "Cube"})


def test_distances() -> None:
    # One degree of latitude at the equator is 110,574 m on the ellipsoid, of longitude 111,319 m.
    assert matched("loc_within(0, 0, 110600)", {"lat": 1, "lon": 0})
    assert not matched("loc_within(0, 0, 110600)", {"lat": 0, "lon": 1})
    at_statue = {"lat": 40.6892, "lon": -74.0445}
    assert matched("distance_from('statue of liberty', ?d) and ?d < 100", at_statue)
    assert matched("distance_from('Times Square', ?d) and ?d > 8000 and ?d < 10000", at_statue)
    assert matched("place_at('Paris', ?lat, ?lon) and ?lat > 48 and ?lon < 3", {})
    assert not matched("place_at('Nowhere', ?lat, ?lon)", {})
    assert matched("place_of('at.city', ?lat, ?lon) and ?lat > 48 and ?lon < 3", {"at": {"city": ["Nowhere", "paris"]}})
    assert not matched("not place_of('city', ?lat, ?lon)", {"city": "Nowhere"})


def test_more_places(tmp_path: Any) -> None:
    path = tmp_path / "places.csv"
    path.write_text("name,lat,lon\nDepot 7,10.5,20.25\n", encoding="utf-8")
    assert places.load_places(path) == 1
    assert matched("distance_from('depot 7', ?d) and ?d < 1", {"lat": 10.5, "lon": 20.25})
    with pytest.raises(OperatorError, match="nowhere"):
        places.add_place("far", 100, 0)


# texts and times


def test_texts() -> None:
    event = {"text": "Fire in the Harbour, two ships", "log": ["login of ann failed 3 times", "other"]}
    assert matched("keywords('text', 'harbour', 'FIRE')", event)
    assert not matched("keywords('text', 'harbour', 'hip')", event)
    assert not matched("not keywords('absent', 'x')", event)
    assert matched("similar_to('text', 'fire at the harbor', ?s) and ?s > 0.5", event)
    assert matched("similar_to('text', 'quarterly results', ?s) and ?s < 0.2", event)
    assert matched("log_pattern('log', 'login of {} failed {} times', ?who, ?n) and ?n > 2 and ?who = 'ann'", event)
    assert not matched("log_pattern('log', 'login of {}', ?who, ?n)", event)


def test_times() -> None:
    event = {"at": "2026-01-31T23:30:00Z", "seconds": 1_769_902_200, "bad": "yesterday"}
    assert matched("within_hours('at', '22:00', '06:00') and within_hours('seconds', '23:00', '23:59')", event)
    assert not matched("within_hours('at', '08:00', '17:00')", event)
    assert matched("within_hours('at', '08:00', '09:00', 'Asia/Tokyo')", event)
    assert matched("day_of_week('at', 'sat', 'Sunday') and not day_of_week('at', 'mon')", event)
    assert not matched("not day_of_week('bad', 'mon')", event)
    assert not matched("day_of_week('at', 'someday')", event)


# tables


def test_lookups(tmp_path: Any) -> None:
    with sqlite3.connect(tmp_path / "items.db") as database:
        database.execute("create table items (sku, price, stock)")
        database.executemany("insert into items values (?, ?, ?)", [("a", 5, 1), ("a", 7, 0), ("b", 9, None)])
    database.close()
    duck = duckdb.connect(str(tmp_path / "items.duckdb"))
    duck.execute("create table items as select 'a' as sku, 2.5 as price")
    duck.close()
    tables.add_lookup("items", tmp_path / "items.db", "select price, stock from items where sku = ?")
    tables.add_lookup("ducks", tmp_path / "items.duckdb", "select price::double from items where sku = ?")
    assert matched("lookup('items', 'order.sku', ?p, ?n) and ?n > 0 and ?p < 6", {"order": {"sku": "a"}})
    assert not matched("lookup('items', 'sku', ?p, ?n)", {"sku": "b"})
    assert matched("lookup('ducks', 'sku', 2.5)", {"sku": ["z", "a"]})
    assert not matched("lookup('nothing', 'sku', ?p)", {"sku": "a"})
    with pytest.raises(OperatorError, match="one \\?"):
        tables.add_lookup("bad", tmp_path / "items.db", "select 1")
    for name in ("items", "ducks"):
        tables.remove_lookup(name)


# images


def encoded(color: tuple[int, int, int]) -> str:
    file = io.BytesIO()
    Image.new("RGB", (20, 10), color).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def test_images() -> None:
    assert matched("dominant_color(?c) and ?c = 'red'", {"image": encoded((220, 10, 10))})
    assert matched("brightness(?b) and ?b < 100", {"image": encoded((10, 10, 10))})
    assert matched("brightness('camera.view', ?b) and ?b < 100", {"camera": {"view": encoded((10, 10, 10))}})
    assert matched("brightness('photo', ?b) and ?b > 200", {"photo": encoded((250, 250, 250))})
    assert not matched("brightness(?b)", {"image": "no image"})
    assert not matched("not brightness(?b)", {})


# reasoning


def test_reasoning() -> None:
    reasoning.define_program(
        "access",
        """
        % who may enter what
        may_enter(P, R) :- holds(P, B), opens(B, R).
        may_enter(P, R) :- boss(P, Q), may_enter(Q, R), P != Q.
        opens('red badge', lab).
        """,
    )
    facts = {"facts": {"holds": [["bob", "red badge"]], "boss": [["ann", "bob"]]}}
    assert matched("reason('access', 'may_enter', 'ann', 'lab')", facts)
    assert matched("reason('access', 'may_enter', ?p, 'lab') and ?p != 'ann'", facts)
    assert not matched("reason('access', 'may_enter', 'eve', ?room)", facts)
    assert not matched("reason('unheard of', 'x', ?y)", facts)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("p(X) :- q(Y).", "gives X a value"),
        ("p(X)", "gives X a value|full stop"),
        ("p(1", "expected|ends"),
        ("p :- q(X).", "expected a relation"),
        ("p(a) :- ", "ends in the middle"),
        ("p(a) ?", "no rule begins"),
    ],
)
def test_bad_programs_are_refused(text: str, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        datalog.Program(text)


def test_datalog_against_closure() -> None:
    edges = {(i, (i * 7 + 3) % 11) for i in range(11)} | {(1, 5), (5, 1)}
    program = datalog.Program("path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), path(Y, Z). loop(X) :- path(X, X).")
    closure = set(edges)
    while True:
        more = {(a, d) for a, b in closure for c, d in closure if b == c} - closure
        if not more:
            break
        closure |= more
    found = program.solved({"edge": edges})
    assert found["path"] == closure
    assert found["loop"] == {(a,) for a, b in closure if a == b}


# a name that somebody takes


def test_own_operators_go_before_shipped_ones() -> None:
    from siftline.operators import registry
    from siftline.operators.operator import operator

    shipped = registry.get("keywords")

    @operator("keywords")
    def own(event: Any) -> bool:
        return True

    try:
        registry.register(shipped)
        assert registry.get("keywords") is own
        with pytest.raises(SubscriptionError):
            Engine().add("keywords('text', 'x')")
    finally:
        registry.unregister("keywords")
        registry.register(shipped)
