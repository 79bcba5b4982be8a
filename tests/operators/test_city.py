"""S1 to S5 of the paper, with operators that read what a camera's event says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from siftline.engine import Engine
from siftline.operators import geometry
from siftline.operators.operator import operator
from siftline.operators.schedules import schedules

SUBSCRIPTIONS = {
    "S1": "loc_in('Bronx') and chase_pattern('police car', 'any car')",
    "S2": "loc_in('Bronx') and mob_pattern(?people) and ?people > 50",
    "S3": "loc_within(40.758, -73.985, 5000) and traffic_pattern('congestion')"
    " and pedestrian_count(?ped) and ?ped > 250",
    "S4": "loc_in('Bronx') and traffic_pattern('congestion') and traffic_pattern('accident')"
    " and police_car_count(?pol) and ?pol < 2",
    "S5": "distance_from('Statue of Liberty', ?x) and ?x < 1000 and tour_boat_count(?y) and coast_guard_boat_count(?z)"
    " and ?y > 2 * ?z",
}


@operator("chase_pattern", cost=20)
def chase_pattern(event: Any, hunter: str, hunted: str) -> bool:
    return [hunter, hunted] in event.get("chases", [])


@operator("traffic_pattern", cost=10)
def traffic_pattern(event: Any, what: str) -> bool:
    return what in event.get("traffic", [])


def _counter(name: str) -> None:
    operator(name, cost=15, binds=["n"])(lambda event: event.get("seen", {}).get(name, []))


for _name in ("mob_pattern", "pedestrian_count", "police_car_count", "tour_boat_count", "coast_guard_boat_count"):
    _counter(_name)

BRONX, SQUARE, STATUE = (40.85, -73.88), (40.76, -73.98), (40.69, -74.045)


def event(where: tuple[float, float], **content: Any) -> dict[str, Any]:
    return {"lat": where[0], "lon": where[1], **content}


CASES = [
    (event(BRONX, chases=[["police car", "any car"]]), ["S1"]),
    (event(BRONX, seen={"mob_pattern": [20, 80]}), ["S2"]),
    (event(BRONX, seen={"mob_pattern": [20]}), []),
    (event(SQUARE, traffic=["congestion"], seen={"pedestrian_count": 300}), ["S3"]),
    (event(SQUARE, traffic=["accident"], seen={"pedestrian_count": 300}), []),
    (event(BRONX, traffic=["congestion", "accident"], seen={"police_car_count": 1, "mob_pattern": 60}), ["S2", "S4"]),
    (event(STATUE, seen={"tour_boat_count": 5, "coast_guard_boat_count": 2}), ["S5"]),
    (event(STATUE, seen={"tour_boat_count": 4, "coast_guard_boat_count": 2}), []),
    ({}, []),
]


@pytest.mark.parametrize("schedule", schedules())
def test_city(schedule: str) -> None:
    corners = [[-73.93, 40.79], [-73.75, 40.79], [-73.75, 40.92], [-73.93, 40.92], [-73.93, 40.79]]
    geometry.add_region("Bronx", {"type": "Polygon", "coordinates": [corners]})
    engine = Engine(schedule=schedule)
    engine.add_many(SUBSCRIPTIONS.items())
    for tree, expected in CASES:
        assert sorted(engine.match(tree)) == expected
    table = engine.match_batch([tree for tree, _ in CASES])
    assert sorted(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True)) == [
        (i, id) for i, (_, ids) in enumerate(CASES) for id in ids
    ]


def test_the_example_runs() -> None:
    example = Path(__file__).parents[2] / "examples" / "city_monitoring.py"
    output = subprocess.run([sys.executable, example, "5"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in output.splitlines()[1:6]]
    assert [row[0] for row in rows] == ["naive-no-memo", "naive", "sequential", "sub-order", "adaptive"]
    assert len({row[1] for row in rows}) == 1


def test_explanation() -> None:
    engine = Engine()
    engine.add("mob_pattern(?people) and ?people > 50 and not (mob_pattern(?few) and ?few < 10)", id="S")
    lines = str(engine.explain({"seen": {"mob_pattern": [20, 80]}}, "S")).splitlines()
    assert lines[0] == "match: S"
    assert "finds 20; 80" in lines[2]
    assert lines[3].endswith("?people is 80")
    assert "shared" in lines[6]
    lines = str(engine.explain({"seen": {"mob_pattern": 5}}, "S")).splitlines()
    assert lines[0] == "no match: S"
    assert lines[3].endswith("?people is 5")
