"""Operators on the positions of events: regions with shapely, distances on the ellipsoid with pyproj.

    loc_in(region)                    inside a region that `load_regions` or `add_region` named
    loc_within(lat, lon, metres)      at most this far from a point
    distance_from(place, ?metres)     the distance from a place of the gazetteer

An event without a position is unknown (see `events.position_of`).

>>> add_region("harbour", {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]})
>>> loc_in({"lat": 0.5, "lon": 0.5}, "harbour"), loc_in({"lat": 2, "lon": 0.5}, "harbour"), loc_in({}, "harbour")
(True, False, None)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from siftline.errors import OperatorError
from siftline.operators.events import position_of
from siftline.operators.operator import operator
from siftline.operators.places import find_place

try:
    import shapely
    from pyproj import Geod
    from shapely.geometry import shape
except ImportError as error:
    raise ImportError("operators on places need shapely and pyproj: pip install 'siftline[operators]'") from error

_regions: Final[dict[str, Any]] = {}
_earth: Final = Geod(ellps="WGS84")


def add_region(name: str, geometry: Mapping[str, Any]) -> None:
    """Name a region: a GeoJSON geometry, longitude before latitude."""
    try:
        region = shape(geometry)
    except (ValueError, TypeError, KeyError, AttributeError, shapely.errors.ShapelyError) as error:
        raise OperatorError(f"the region {name!r} is no GeoJSON geometry: {error}") from error
    shapely.prepare(region)
    _regions[name] = region


def load_regions(source: str | Path | Mapping[str, Any]) -> int:
    """Name the features of a GeoJSON file by their property `name`, or else by their id; return how many there are."""
    document = source if isinstance(source, Mapping) else json.loads(Path(source).read_text(encoding="utf-8"))
    features = document.get("features", [document])
    for feature in features:
        name = (feature.get("properties") or {}).get("name", feature.get("id"))
        if name is None or "geometry" not in feature:
            raise OperatorError("a feature has no name and no id, or no geometry")
        add_region(str(name), feature["geometry"])
    return len(features)


@operator("loc_in", cost=0.05)
def loc_in(event: Any, region: str) -> bool | None:
    """Return whether the event is in a region or on its border."""
    area = _regions.get(region)
    if area is None:
        raise OperatorError(f"there is no region {region!r}; load_regions adds some")
    where = position_of(event)
    return None if where is None else bool(shapely.intersects_xy(area, where[1], where[0]))


@operator("loc_within", cost=0.01)
def loc_within(event: Any, lat: float, lon: float, metres: float) -> bool | None:
    """Return whether the event is at most this far from a point."""
    where = position_of(event)
    return None if where is None else _metres(where, (lat, lon)) <= metres


@operator("distance_from", cost=0.01, binds=["metres"])
def distance_from(event: Any, place: str) -> float | None:
    """Return how far the event is from a place."""
    there, where = find_place(place), position_of(event)
    return None if where is None else _metres(where, there)


def _metres(one: tuple[float, float], two: tuple[float, float]) -> float:
    """Return the distance between two points (latitude, longitude) on the ellipsoid."""
    return float(_earth.inv(one[1], one[0], two[1], two[0])[2])
