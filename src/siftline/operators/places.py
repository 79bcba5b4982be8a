"""Names of places and their coordinates: a small gazetteer, to which more can be added.

place_at(name, ?lat, ?lon)             where a place is
place_of(attribute, ?lat, ?lon)        where the places named by an attribute of the event are
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Final

from siftline.errors import OperatorError
from siftline.operators.events import texts_of
from siftline.operators.operator import operator

# Latitude and longitude, to about a hundred metres.
_PLACES: Final[dict[str, tuple[float, float]]] = {
    "Amsterdam": (52.373, 4.893),
    "Athens": (37.984, 23.728),
    "Bangkok": (13.752, 100.494),
    "Beijing": (39.906, 116.391),
    "Berlin": (52.517, 13.389),
    "Brooklyn Bridge": (40.706, -73.997),
    "Buenos Aires": (-34.608, -58.371),
    "Cairo": (30.044, 31.236),
    "Cape Town": (-33.929, 18.417),
    "Central Park": (40.783, -73.965),
    "Chicago": (41.876, -87.624),
    "Delhi": (28.651, 77.231),
    "Empire State Building": (40.748, -73.986),
    "Istanbul": (41.009, 28.966),
    "Lagos": (6.455, 3.394),
    "London": (51.507, -0.128),
    "Los Angeles": (34.054, -118.243),
    "Madrid": (40.417, -3.704),
    "Mexico City": (19.433, -99.133),
    "Moscow": (55.751, 37.618),
    "Mumbai": (19.076, 72.878),
    "Nairobi": (-1.286, 36.817),
    "New York": (40.713, -74.006),
    "Paris": (48.857, 2.352),
    "Rome": (41.893, 12.483),
    "San Francisco": (37.779, -122.419),
    "Sao Paulo": (-23.551, -46.633),
    "Shanghai": (31.232, 121.469),
    "Singapore": (1.290, 103.852),
    "Statue of Liberty": (40.689, -74.045),
    "Sydney": (-33.870, 151.208),
    "Times Square": (40.758, -73.985),
    "Tokyo": (35.677, 139.765),
    "Toronto": (43.653, -79.384),
    "Yankee Stadium": (40.829, -73.926),
}
_known: Final = {name.casefold(): where for name, where in _PLACES.items()}


def add_place(name: str, latitude: float, longitude: float) -> None:
    """Add a place, or move it; names ignore case."""
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        raise OperatorError(f"{name!r} is nowhere: latitude {latitude}, longitude {longitude}")
    _known[name.casefold()] = (float(latitude), float(longitude))


def load_places(path: str | Path) -> int:
    """Add the places of a CSV file with the columns name, lat and lon; return how many there are."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        add_place(row["name"], float(row["lat"]), float(row["lon"]))
    return len(rows)


def find_place(name: str) -> tuple[float, float]:
    """Return latitude and longitude of a place, or raise OperatorError.

    >>> find_place("times square")
    (40.758, -73.985)
    """
    where = _known.get(name.casefold())
    if where is None:
        raise OperatorError(f"there is no place {name!r}; add_place or load_places adds some")
    return where


@operator("place_at", cost=0.001, binds=["lat", "lon"])
def place_at(event: Any, name: str) -> Any:
    """Return where a place is; none if it is unknown."""
    where = _known.get(name.casefold())
    return [] if where is None else where


@operator("place_of", cost=0.005, binds=["lat", "lon"])
def place_of(event: Any, attribute: str) -> Any:
    """Return where the places named by an attribute are; unknown if none of them is in the gazetteer.

    >>> place_of({"city": "Tokyo"}, "city")
    [(35.677, 139.765)]
    """
    found = [_known[name] for text in texts_of(event, attribute) if (name := text.casefold()) in _known]
    return found or None
