"""The registry of operators: of this process, of Siftline itself, and of installed packages.

A package offers an operator by an entry point with the operator's name:

    [project.entry-points."siftline.operators"]
    tide_at = "tides.siftline:tide_at"
"""

from __future__ import annotations

import difflib
import importlib
import logging
import threading
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from siftline.errors import OperatorError, SubscriptionError
from siftline.language.text_hints import method_hint

if TYPE_CHECKING:
    from siftline.operators.operator import Operator

_log: Final = logging.getLogger("siftline.operators")

GROUP: Final = "siftline.operators"

# The modules of the operators that ship with Siftline; each is loaded when one of its operators is called.
_SHIPPED: Final[dict[str, str]] = {
    "brightness": "siftline.operators.images",
    "day_of_week": "siftline.operators.times",
    "distance_from": "siftline.operators.geometry",
    "dominant_color": "siftline.operators.images",
    "keywords": "siftline.operators.texts",
    "loc_in": "siftline.operators.geometry",
    "loc_within": "siftline.operators.geometry",
    "log_pattern": "siftline.operators.texts",
    "lookup": "siftline.operators.tables",
    "place_at": "siftline.operators.places",
    "place_of": "siftline.operators.places",
    "reason": "siftline.operators.reasoning",
    "similar_to": "siftline.operators.texts",
    "within_hours": "siftline.operators.times",
}

_operators: Final[dict[str, Operator]] = {}
_loading: Final = threading.RLock()


def register(operator: Operator, *, replace: bool = False) -> None:
    """Add an operator that conditions can call."""
    with _loading:
        known = _operators.get(operator.name)
        if known is not None and _is_shipped(operator) and not _is_shipped(known):
            return  # the program has replaced it
        # A module that is loaded again defines the same operators again.
        is_free = known is None or _is_shipped(known) or _home(known) == _home(operator)
        if not is_free and not replace:
            raise OperatorError(f"there is already an operator {operator.name!r}; give replace=True to replace it")
        _operators[operator.name] = operator


def unregister(name: str) -> None:
    """Remove an operator; its calls in subscriptions count as failed from now on."""
    with _loading:
        if _operators.pop(name, None) is None:
            raise OperatorError(f"there is no operator {name!r}")


def find(name: str) -> Operator | None:
    """Return an operator; load its module if needed."""
    found = _operators.get(name)
    if found is not None:
        return found
    with _loading:
        if name in _SHIPPED:
            importlib.import_module(_SHIPPED[name])
        elif name not in _operators:
            _load_entry_points(name)
        return _operators.get(name)


def get(name: str) -> Operator:
    """Return an operator, or raise SubscriptionError with a hint."""
    try:
        found = find(name)
    except ImportError as error:
        raise SubscriptionError(f"the operator {name!r} cannot be loaded: {error}") from error
    if found is not None:
        return found
    raise SubscriptionError(f"there is no operator {name!r}", hint=_hint(name))


def operators() -> list[str]:
    """Return the names of all operators, loaded or not."""
    return sorted({*_operators, *_SHIPPED, *(point.name for point in entry_points(group=GROUP))})


def _load_entry_points(name: str) -> None:
    """Load the entry points of installed packages with a name; failures are logged and ignored."""
    for point in entry_points(group=GROUP, name=name):
        try:
            loaded = point.load()
        except Exception:
            _log.exception("the operator %r of %s cannot be loaded", name, point.value)
            continue
        if getattr(loaded, "name", name) != name:
            _log.error("the entry point %r is the operator %r", name, loaded.name)


def _is_shipped(operator: Operator) -> bool:
    return _SHIPPED.get(operator.name) == operator.function.__module__


def _home(operator: Operator) -> tuple[str, str]:
    return operator.function.__module__, operator.function.__qualname__


def _hint(name: str) -> str:
    hint = method_hint(name)
    if hint:
        return hint
    close = difflib.get_close_matches(name.lower(), operators(), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "make one with @siftline.operator"
