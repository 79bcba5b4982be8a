"""How to match: one file per algorithm, all behind one protocol and one registry.

The package can be called: `siftline.indexes()` lists the names.
"""

import sys
from types import ModuleType

from siftline.indexes.registry import indexes


class _Callable(ModuleType):
    """Lets `siftline.indexes` be both this package and the function that lists the indexes."""

    def __call__(self) -> list[str]:
        return indexes()


sys.modules[__name__].__class__ = _Callable
