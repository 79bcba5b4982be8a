"""The names of all indexes. Registering one enrols it in the tests against `scan`."""

from __future__ import annotations

import difflib
import importlib
import json
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import UnknownIndexError

if TYPE_CHECKING:
    from siftline.indexes.protocol import Index

# Name -> module and class; a module is imported when its index is first asked for.
_INDEXES: Final = {
    "scan": ("siftline.indexes.scan", "Scan"),
    "fast-scan": ("siftline.indexes.fast_scan", "FastScan"),
    "counting": ("siftline.indexes.counting", "Counting"),
    "k-index": ("siftline.indexes.k_index", "KIndex"),
    "propagation": ("siftline.indexes.propagation", "Propagation"),
    "op-index": ("siftline.indexes.op_index", "OpIndex"),
    "be-tree": ("siftline.indexes.be_tree", "BeTree"),
    "pst-bloom": ("siftline.indexes.pst_bloom", "PstBloom"),
    "pst-hash": ("siftline.indexes.pst_hash", "PstHash"),
    "sift": ("siftline.indexes.sift", "Sift"),
}

DEFAULT: Final = "fast-scan"


def indexes() -> list[str]:
    """Return the names that `Engine(index=...)` takes.

    >>> indexes()
    ['scan', 'fast-scan', 'counting', 'k-index', 'propagation', 'op-index', 'be-tree', 'pst-bloom', 'pst-hash', 'sift']
    """
    return list(_INDEXES)


def parse_choice(text: str) -> tuple[str, dict[str, Any]]:
    """Read an index with its options from the command line: `name` or `name:option=value,option=value`.

    A value is JSON, or else text.

    >>> parse_choice("op-index:segments=0"), parse_choice("counting:association=bit-matrix")
    (('op-index', {'segments': 0}), ('counting', {'association': 'bit-matrix'}))
    """
    name, _, rest = text.partition(":")
    pairs = [part.partition("=") for part in rest.split(",") if part]
    return name, {key: _json_or_text(value) for key, _, value in pairs}


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def make_index(name: str, options: dict[str, Any]) -> Index:
    """Return a new, empty index."""
    if name not in _INDEXES:
        close = difflib.get_close_matches(str(name), _INDEXES, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UnknownIndexError(f"there is no index {name!r}{hint} (there are: {', '.join(_INDEXES)})")
    module, class_name = _INDEXES[name]
    factory = getattr(importlib.import_module(module), class_name)
    try:
        index: Index = factory(**options)
    except (TypeError, ValueError) as error:
        raise UnknownIndexError(f"index {name!r} does not take these options: {error}") from None
    return index
