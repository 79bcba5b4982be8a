"""City monitoring: subscriptions S1 to S5 of the paper on expensive operators, over generated camera events.

    python examples/city_monitoring.py [n_events]

Drones send pictures with their position and brightness. The pattern recognisers are simulated: they wait a moment and
read from the event what a model would have found. The example shows how many of them are called.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import siftline
from siftline.operators.geometry import add_region
from siftline.operators.places import find_place

SUBSCRIPTIONS = {
    "S1": "loc_in('Bronx') and chase_pattern('police car', 'any car')",
    "S2": "loc_in('Bronx') and seen('mob', ?people) and ?people > 50",
    "S3": "loc_within(40.758, -73.985, 5000) and traffic_pattern('congestion')"
    " and seen('pedestrians', ?n) and ?n > 250",
    "S4": "loc_in('Bronx') and traffic_pattern('congestion') and traffic_pattern('accident')"
    " and seen('police cars', ?n) and ?n < 2",
    "S5": "distance_from('Statue of Liberty', ?x) and ?x < 1000 and seen('tour boats', ?y)"
    " and seen('coast guard boats', ?z) and ?y > 2 * ?z",
    "S2 by day": "altitude < 500 and light > 80 and loc_in('Bronx') and seen('mob', ?people) and ?people > 20",
}
# A rough outline, longitude before latitude.
BRONX = [(-73.93, 40.80), (-73.87, 40.79), (-73.75, 40.84), (-73.78, 40.89), (-73.91, 40.92), (-73.93, 40.80)]
PATTERN_SECONDS = 0.0005


@siftline.operator("chase_pattern", cost=0.5)
def chase_pattern(event: Any, hunter: str, hunted: str) -> bool:
    """Return whether the picture shows a chase."""
    time.sleep(PATTERN_SECONDS)
    return [hunter, hunted] in event["chases"]


@siftline.operator("traffic_pattern", cost=0.5)
def traffic_pattern(event: Any, what: str) -> bool:
    """Return whether the picture shows a kind of traffic."""
    time.sleep(PATTERN_SECONDS)
    return what in event["traffic"]


@siftline.operator("seen", cost=0.5, binds=["n"])
def seen(event: Any, what: str) -> Any:
    """Return how many objects of a kind each part of the picture shows."""
    time.sleep(PATTERN_SECONDS)
    return event["seen"].get(what, [])


def camera_event(rng: random.Random) -> dict[str, Any]:
    """Return a random event."""
    latitude, longitude = find_place(
        rng.choice(["Yankee Stadium", "Times Square", "Statue of Liberty", "Central Park"])
    )
    counts = {"mob": 90, "pedestrians": 500, "police cars": 4, "tour boats": 6, "coast guard boats": 3}
    return {
        "lat": latitude + rng.gauss(0, 0.01),
        "lon": longitude + rng.gauss(0, 0.01),
        "altitude": rng.randint(50, 900),
        "light": rng.randint(0, 255),
        "chases": [["police car", "any car"]] if rng.random() < 0.05 else [],
        "traffic": [what for what in ("congestion", "accident") if rng.random() < 0.3],
        "seen": {what: [rng.randint(0, n) for _ in range(2)] for what, n in counts.items() if rng.random() < 0.6},
    }


def main(n_events: int) -> None:
    """Match the same events with every schedule, and print the calls and the time."""
    add_region("Bronx", {"type": "Polygon", "coordinates": [BRONX]})
    rng = random.Random(7)
    events = [camera_event(rng) for _ in range(n_events)]
    print(f"{'schedule':<14} {'matches':>8} {'calls/event':>15} {'ms/event':>12}")
    for schedule in ("naive-no-memo", "naive", "sequential", "sub-order", "adaptive"):
        engine = siftline.Engine(schedule=schedule)
        engine.add_many(SUBSCRIPTIONS.items())
        start = time.perf_counter()
        n_matches = sum(len(engine.match(event)) for event in events)
        milliseconds = (time.perf_counter() - start) * 1000 / n_events
        calls = engine.stats()["operators"]["calls"] / n_events
        print(f"{schedule:<14} {n_matches:>8,} {calls:>15.2f} {milliseconds:>12.2f}")
    print()
    print(engine.explain(events[0], "S2"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
