"""The names of all indexes. Registering one enrols it in the tests against `scan`.

A package offers an index by an entry point with the index's name:

    [project.entry-points."siftline.indexes"]
    grid = "grids.siftline:GridIndex"

The class has the methods of `protocol.py`. A package cannot replace an index of Siftline itself.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import re
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import UnknownIndexError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline.indexes.protocol import Index

GROUP: Final = "siftline.indexes"

# Name -> module and class; a module is imported when its index is first used.
_INDEXES: Final = {
    "scan": ("siftline.indexes.scan", "Scan"),
    "fast-scan": ("siftline.indexes.fast_scan.index", "FastScan"),
    "counting": ("siftline.indexes.counting.index", "Counting"),
    "k-index": ("siftline.indexes.k_index.index", "KIndex"),
    "propagation": ("siftline.indexes.propagation.index", "Propagation"),
    "op-index": ("siftline.indexes.op_index.index", "OpIndex"),
    "be-tree": ("siftline.indexes.be_tree.index", "BeTree"),
    "pst-bloom": ("siftline.indexes.pst.bloom", "PstBloom"),
    "pst-hash": ("siftline.indexes.pst.hash", "PstHash"),
    "pb-tree": ("siftline.indexes.pb_tree.index", "PbTree"),
    "sift": ("siftline.indexes.sift.index", "Sift"),
}

# Indexes of a distribution of their own, and the command that installs it.
_SEPARATE: Final = {"dbms": "pip install 'siftline[bench]'"}

# These indexes also store the subscriptions; their engine is `siftline.engine.paged`.
PAGED: Final = frozenset({"pb-tree"})

DEFAULT: Final = "sift"

# A comma that separates two options. A comma inside a JSON value is not followed by `name=`.
_COMMA: Final = re.compile(r",(?=[^,\[\]{}=\"]+=)")


def own_indexes() -> list[str]:
    """Return the names of the indexes that Siftline has itself, without looking at other packages."""
    return list(_INDEXES)


def indexes() -> list[str]:
    """Return the names that `Engine(index=...)` takes; those of installed packages come last.

    >>> indexes()[:11]
    ['scan', 'fast-scan', 'counting', 'k-index', 'propagation', 'op-index', 'be-tree', 'pst-bloom', 'pst-hash',
     'pb-tree', 'sift']
    """
    from importlib.metadata import entry_points  # slow to load, and most processes do not need it

    return [*_INDEXES, *sorted({point.name for point in entry_points(group=GROUP)} - _INDEXES.keys())]


def parse_choice(text: str) -> tuple[str, dict[str, Any]]:
    """Read an index with its options from the command line: `name` or `name:option=value,option=value`.

    A value is JSON, or else text.

    >>> parse_choice("op-index:segments=0"), parse_choice("counting:association=bit-matrix")
    (('op-index', {'segments': 0}), ('counting', {'association': 'bit-matrix'}))
    """
    name, colon, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in _COMMA.split(rest) if colon else []:
        key, equals, value = part.partition("=")
        if not key.strip() or not equals or key.strip() in options:
            raise UnknownIndexError(f"{text!r}: options are written name:option=value,option=value, each once")
        options[key.strip()] = _json_or_text(value)
    return name.strip(), options


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def make_index(name: str, options: dict[str, Any]) -> Index:
    """Return a new, empty index."""
    factory = _factory(name)
    _check_names(name, factory, options)
    try:
        index: Index = factory(**options)
    except (TypeError, ValueError) as error:
        raise UnknownIndexError(f"index {name!r}: {error}") from None
    return index


def _factory(name: str) -> Any:
    """Return the class of an index."""
    if name in _INDEXES:
        module, class_name = _INDEXES[name]
        return getattr(importlib.import_module(module), class_name)
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=str(name)):
        try:
            return point.load()
        except Exception as error:  # whatever a package's module raises
            raise UnknownIndexError(f"the index {name!r} of {point.value} cannot be loaded: {error!r}") from error
    if name in _SEPARATE:
        raise UnknownIndexError(f"the index {name!r} is not installed: {_SEPARATE[name]} brings it")
    known = indexes()
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise UnknownIndexError(f"there is no index {name!r}{hint} (there are: {', '.join(known)})")


def _check_names(name: str, factory: Any, options: Iterable[str]) -> None:
    known = list(inspect.signature(factory).parameters)
    for option in options:
        if option not in known:
            close = difflib.get_close_matches(str(option), known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            offered = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UnknownIndexError(f"index {name!r} has no option {option!r}{hint} ({offered})")
