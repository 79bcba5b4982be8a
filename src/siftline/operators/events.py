"""What shipped operators read from events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from siftline.model import Event

if TYPE_CHECKING:
    from siftline.model import Leaf


def values_of(event: Mapping[str, Any], attribute: str) -> list[Leaf]:
    """Return the values of an attribute, without nulls.

    >>> values_of({"a": {"b": [1, None, 2]}}, "a.b")
    [1, 2]
    """
    value = event.get(attribute)
    if isinstance(value, (str, int, float)):
        return [value]
    return [leaf for leaf in Event(event).values(attribute) if leaf is not None]


def texts_of(event: Mapping[str, Any], attribute: str) -> list[str]:
    """Return the strings of an attribute."""
    return [value for value in values_of(event, attribute) if isinstance(value, str)]


def position_of(event: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return latitude and longitude of an event, None if it has none.

    They are `lat` and `lon`, of the event or of its `location`; or `location` or `geometry` is a GeoJSON point.

    >>> position_of({"location": {"type": "Point", "coordinates": [-73.9, 40.8]}})
    (40.8, -73.9)
    """
    for place in (event, event.get("location"), event.get("geometry")):
        if not isinstance(place, Mapping):
            continue
        coordinates = place.get("coordinates")
        if place.get("type") == "Point" and isinstance(coordinates, (list, tuple)) and len(coordinates) >= 2:
            return _checked(coordinates[1], coordinates[0])
        if "lat" in place and "lon" in place:
            return _checked(place["lat"], place["lon"])
    return None


def _checked(latitude: Any, longitude: Any) -> tuple[float, float] | None:
    if not isinstance(latitude, (int, float)) or not isinstance(longitude, (int, float)):
        return None
    return (latitude, longitude) if abs(latitude) <= 90 and abs(longitude) <= 180 else None
