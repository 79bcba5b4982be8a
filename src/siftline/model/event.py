"""Events: JSON objects seen as attributes with zero, one or several values.

{"id": 7, "tags": ["a", null], "items": [{"sku": "x", "qty": 1}, {"sku": "y"}], "none": []}

id         -> 7                 tags -> "a", null          none -> (present, but no leaf)
items.sku  -> "x", "y"          items.qty -> 1             anything else: absent
"""

from __future__ import annotations

import datetime
import decimal
import enum
import itertools
import math
import time
from collections.abc import Mapping
from typing import Any, Final

from siftline.errors import EventError
from siftline.model.structure import MAX_EVENT_DEPTH, NotPlainError, opened, plain_tree, refusal, text_of
from siftline.model.timestamp import instant_of_text

Leaf = bool | int | float | str | None

# An integer in an event has at most this many digits: what is longer, many readers of JSON refuse, Python's among them.
MAX_INTEGER_DIGITS: Final = 4300
_FIRST_TOO_LONG: Final = 10**MAX_INTEGER_DIGITS
_LONG_BITS: Final = _FIRST_TOO_LONG.bit_length() - 1

# Elements that come from spelling one path in several ways at once.
_MAX_SPELLINGS: Final = 10_000

_PLAIN: Final = frozenset({str, int, bool, type(None)})


class Event:
    """One event, flattened once: `leaves[path]` are the values of an attribute, nulls included.

    Parameters
    ----------
    tree : mapping
        The event.
    now : int, optional
        The instant at which it is matched, for conditions with `now()`; when it is first asked for, if left out.

    Examples
    --------
    >>> Event({"a": {"b": [1, None]}, "a.b": 2}).leaves
    {'a.b': [1, None, 2]}
    """

    __slots__ = ("_now", "leaves", "tree")

    def __init__(self, tree: Mapping[str, Any], now: int | None = None) -> None:
        if not isinstance(tree, Mapping):
            tree = _object_of(tree)
        self.tree: Any = tree
        self._now = now
        self.leaves: dict[str, list[Leaf]] = {}
        try:
            _flatten(tree, "", self.leaves, 1)
        except NotPlainError:  # a set, a dataclass or the like is inside
            self.tree, self.leaves = plain_tree(tree), {}
            _flatten(self.tree, "", self.leaves, 1)

    @property
    def now(self) -> int:
        """The instant at which the event is matched."""
        if self._now is None:
            self._now = time.time_ns()
        return self._now

    def values(self, path: str | None) -> list[Leaf]:
        """Return the leaves of an attribute, nulls included, in document order."""
        return self.leaves.get(path, []) if path is not None else []

    def strings(self) -> list[str]:
        """Return all strings of the event, whichever attribute they belong to."""
        return [leaf for leaves in self.leaves.values() for leaf in leaves if isinstance(leaf, str)]

    def elements(self, path: str) -> list[Event | Element]:
        """Return the elements at `path`: of arrays all their elements, otherwise the object or value itself."""
        found, now = _resolve(self.tree, path), self.now
        return [Event(node, now) if isinstance(node, Mapping) else Element(node, now) for node in found]


class Element:
    """An array element that is a value and not an object: its only attribute is the element itself (`this`)."""

    __slots__ = ("leaf", "now")

    def __init__(self, leaf: Leaf, now: int) -> None:
        self.leaf = leaf
        self.now = now

    def values(self, path: str | None) -> list[Leaf]:
        """Return the element for `THIS`, nothing for any other path."""
        return [self.leaf] if path is None else []

    def strings(self) -> list[str]:
        """Return the element, if it is a string."""
        return [self.leaf] if isinstance(self.leaf, str) else []

    def elements(self, path: str) -> list[Event | Element]:
        """Return nothing: a value has no elements."""
        return []


def leaf_of(value: object, path: str) -> Leaf:
    """Return a scalar as a leaf: NaN and infinities are null, dates are text, anything unknown is an error."""
    if type(value) in _PLAIN:
        if type(value) is int:
            check_integer(value, path)
        return value  # type: ignore[return-value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (str, int)):  # subclasses, such as enumerations
        return str.__str__(value) if isinstance(value, str) else leaf_of(int(value), path)
    if isinstance(value, datetime.date):
        return iso_text(value) if value == value else None  # pandas.NaT is a date that is not equal to itself
    if isinstance(value, decimal.Decimal):
        return _from_decimal(value, path)
    if isinstance(value, enum.Enum):
        return leaf_of(value.value, path)
    if getattr(value, "ndim", None) == 0 and getattr(value, "dtype", None) is not None:
        return _from_numpy(value, path)
    text = text_of(value)
    if text is None:
        raise refusal(value, path)
    return text


def json_value(value: Any) -> Any:
    """Return what JSON has instead of a value that it does not have, for `json.dumps(event, default=json_value)`.

    >>> import json
    >>> json.dumps({"tags": {"a"}, "day": datetime.date(2026, 1, 31)}, default=json_value)
    '{"tags": ["a"], "day": "2026-01-31"}'
    """
    found = opened(value)
    return leaf_of(value, "") if found is None else found


def check_integer(value: int, path: str) -> None:
    """Raise if an integer has more digits than an event may have."""
    if value.bit_length() >= _LONG_BITS and abs(value) >= _FIRST_TOO_LONG:
        raise EventError(f"attribute {path!r}: an integer has more than {MAX_INTEGER_DIGITS:,} digits")


def iso_text(moment: datetime.date) -> str:
    """Return a date as YYYY-MM-DD, a timestamp as UTC YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ: text order is time order.

    >>> iso_text(datetime.datetime(2026, 1, 31, 10, 0))
    '2026-01-31T10:00:00.000000000Z'
    """
    if not isinstance(moment, datetime.datetime):
        return moment.isoformat()
    if moment.tzinfo is not None:
        try:
            moment = moment.astimezone(datetime.UTC)
        except OverflowError:
            raise EventError(f"the timestamp {moment} lies outside the years 1 to 9999 in UTC") from None
    nanosecond = getattr(moment, "nanosecond", 0)  # pandas.Timestamp has it
    seconds = moment.replace(tzinfo=None).isoformat(timespec="seconds")[:19]
    return f"{seconds}.{moment.microsecond * 1000 + nanosecond:09d}Z"


def instant_of(value: object) -> int | None:
    """Return the instant of a timestamp of Python, NumPy or pandas; None for anything else, and for "not a time".

    >>> instant_of(datetime.datetime(1970, 1, 2)), instant_of(datetime.date(1970, 1, 2))
    (86400000000000, None)
    """
    is_moment = isinstance(value, datetime.datetime) or getattr(getattr(value, "dtype", None), "kind", "") == "M"
    text = leaf_of(value, "constant") if is_moment else None
    return instant_of_text(text) if isinstance(text, str) else None


def _from_numpy(scalar: Any, path: str) -> Leaf:
    """Return a NumPy scalar as a leaf; NumPy itself is not imported here."""
    if scalar.dtype.kind == "M":
        return _from_datetime64(scalar, path)
    item = scalar.item()
    if type(item) is type(scalar) or scalar.dtype.kind not in "biufUO":
        raise EventError(f"attribute {path!r}: a NumPy {scalar.dtype} has no meaning in an event")
    return leaf_of(item, path)


def _from_datetime64(moment: Any, path: str) -> Leaf:
    seconds = moment.astype("datetime64[s]")
    text = str(seconds)
    if text == "NaT":
        return None
    if len(text) != len("2026-01-31T10:00:00") or not text[:4].isdigit() or text.startswith("0000"):
        raise EventError(f"attribute {path!r}: the timestamp {moment} lies outside the years 1 to 9999")
    # Nanoseconds apart, because as nanoseconds alone only the years 1678 to 2262 can be written.
    return f"{text}.{int((moment - seconds).astype('timedelta64[ns]').astype(int)):09d}Z"


def _from_decimal(value: decimal.Decimal, path: str) -> Leaf:
    """Return what the digits of a decimal mean in JSON: an integer, or with a point or exponent a double."""
    if not value.is_finite():
        return None
    if value.as_tuple().exponent == 0:
        return leaf_of(int(value), path)
    double = float(value)
    if math.isinf(double):
        raise EventError(f"attribute {path!r}: the decimal {value:.3G} is too large for a double")
    return double


def _object_of(value: Any) -> Mapping[str, Any]:
    """Return the fields of what stands for an object."""
    tree = plain_tree(value) if opened(value) is not None else value
    if not isinstance(tree, Mapping):
        raise EventError(f"an event must be a JSON object, not {_json_name(value)}{_event_hint(value)}")
    return tree


def _event_hint(value: Any) -> str:
    """Return what to do with something that is no event, such as a row or all of a data frame."""
    name = type(value).__name__
    if isinstance(value, (list, tuple)) or name in ("DataFrame", "LazyFrame", "Table", "RecordBatch"):
        return "; match_batch takes many events"
    return "; send value.to_dict()" if name == "Series" and hasattr(value, "to_dict") else ""


def _flatten(node: Mapping[str, Any], prefix: str, leaves: dict[str, list[Leaf]], depth: int) -> None:
    for key, value in node.items():
        if not isinstance(key, str):
            raise EventError(f"a key of an event must be a string, not {type(key).__name__}: {key!r}")
        _add(value, prefix + key, leaves, depth)


def _add(value: Any, path: str, leaves: dict[str, list[Leaf]], depth: int) -> None:
    if isinstance(value, (Mapping, list, tuple)):
        if depth >= MAX_EVENT_DEPTH:
            raise EventError(f"the event nests deeper than {MAX_EVENT_DEPTH} levels")
        if isinstance(value, Mapping):
            _flatten(value, path + ".", leaves, depth + 1)
            return
        leaves.setdefault(path, [])
        for element in value:
            _add(element, path, leaves, depth + 1)
    else:
        leaves.setdefault(path, []).append(leaf_of(value, path))


def _resolve(node: Any, path: str) -> list[Any]:
    """Return what stands at `path` below a node, arrays flattened, through dotted keys and nested objects alike."""
    if isinstance(node, (list, tuple)):
        return [found for element in node for found in _resolve(element, path)]
    if not isinstance(node, Mapping):
        return []
    sources: list[list[Any]] = []
    below: dict[str, Any] = {}
    for key, value in node.items():
        if key == path:
            found: list[Any] = []
            _spread(value, found, path)
            sources.append(found)
        elif path.startswith(key + "."):
            sources.append(_resolve(value, path[len(key) + 1 :]))
        elif key.startswith(path + "."):
            below[key[len(path) + 1 :]] = value
    if below:
        sources.append([below])
    return sources[0] if len(sources) == 1 else _joined(sources, path)


def _joined(sources: list[list[Any]], path: str) -> list[Any]:
    """Join several spellings of one path ({"a": {"x": 1}, "a.y": 2}): an element is an object out of each, merged."""
    values = [element for source in sources for element in source if not isinstance(element, Mapping)]
    objects = [group for source in sources if (group := [node for node in source if isinstance(node, Mapping)])]
    if math.prod(map(len, objects)) > _MAX_SPELLINGS:
        raise EventError(f"attribute {path!r} is spelled in too many ways, with and without dots")
    return values + [_merged(choice) for choice in itertools.product(*objects) if choice]


def _merged(objects: tuple[Mapping[str, Any], ...]) -> Mapping[str, Any]:
    merged: dict[str, Any] = {}
    for node in objects:
        for key, value in node.items():
            merged[key] = [merged[key], value] if key in merged else value
    return merged


def _spread(value: Any, found: list[Any], path: str) -> None:
    if isinstance(value, (list, tuple)):
        for element in value:
            _spread(element, found, path)
    else:
        found.append(value if isinstance(value, Mapping) else leaf_of(value, path))


def _json_name(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return "an array"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", type(None): "null"}
    return names.get(type(value), type(value).__name__)
