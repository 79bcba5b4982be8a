"""Siftline finds, for every event, all of the millions of standing subscriptions that it satisfies.

>>> import siftline
>>> engine = siftline.Engine()
>>> engine.add("model = 'iphone5s' and price <= 580", id="ann")
'ann'
>>> engine.add("brand in ('apple', 'nokia') and not (price > 600)", id="bob")
'bob'
>>> sorted(engine.match({"model": "iphone5s", "brand": "apple", "price": 550}))
['ann', 'bob']
>>> engine.match({"brand": "apple"})  # no price: unknown, and only true matches
[]
>>> print(engine.explain({"model": "iphone5s", "price": 600}, "ann"))
no match: ann
  no   and
  yes    model = 'iphone5s'    model is 'iphone5s'
  no     price <= 580          price is 600
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# Public name -> module. Loaded on first use, so that `import siftline` is quick and compiles nothing.
_HOMES = {
    "AsyncClient": "siftline.client.async_client",
    "Client": "siftline.client.client",
    "Engine": "siftline.engine",
    "EventError": "siftline.errors",
    "Expression": "siftline.model",
    "SiftlineError": "siftline.errors",
    "Statistics": "siftline.encoding.statistics",
    "Store": "siftline.storage.store",
    "SubscriptionError": "siftline.errors",
    "attr": "siftline.language.builder",
    "now": "siftline.language.builder",
    "operator": "siftline.operators.operator",
    "parse": "siftline.language.text",
    "parse_filters": "siftline.language.cloudevents",
    "parse_pattern": "siftline.language.event_pattern",
    "parse_sigma": "siftline.sigma",
    "to_text": "siftline.language.printer",
}

__all__ = [
    "AsyncClient",
    "Client",
    "Engine",
    "EventError",
    "Expression",
    "SiftlineError",
    "Statistics",
    "Store",
    "SubscriptionError",
    "attr",
    "errors",
    "indexes",
    "now",
    "operator",
    "parse",
    "parse_filters",
    "parse_pattern",
    "parse_sigma",
    "to_text",
]

if TYPE_CHECKING:
    from siftline import errors
    from siftline.client.async_client import AsyncClient
    from siftline.client.client import Client
    from siftline.encoding.statistics import Statistics
    from siftline.engine import Engine
    from siftline.errors import EventError, SiftlineError, SubscriptionError
    from siftline.indexes.registry import indexes
    from siftline.language.builder import attr, now
    from siftline.language.cloudevents import parse_filters
    from siftline.language.event_pattern import parse_pattern
    from siftline.language.printer import to_text
    from siftline.language.text import parse
    from siftline.model import Expression
    from siftline.operators.operator import operator
    from siftline.sigma import parse_sigma
    from siftline.storage.store import Store


def __getattr__(name: str) -> Any:
    if name in ("errors", "indexes"):  # the modules themselves; `indexes` can be called
        return importlib.import_module(f"siftline.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'siftline' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
