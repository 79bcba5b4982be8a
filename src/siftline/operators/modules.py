"""Modules that define operators, by name or as files."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from siftline.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Iterable

_files: Final[set[Path]] = set()


def module_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names without repeats; paths of files are absolute, so that other processes find the same modules."""
    if isinstance(names, str):
        raise TypeError(f"operators must be a sequence of modules: [{names!r}]")
    return tuple(dict.fromkeys(str(Path(name).absolute()) if name.endswith(".py") else name for name in names))


def load_modules(names: Iterable[str]) -> None:
    """Load modules, or .py files, each once in this process; raise OperatorError if one cannot be loaded."""
    for name in names:
        try:
            _load(name)
        except Exception as error:
            raise OperatorError(f"the operators of {name} cannot be loaded: {error!r}") from error


def _load(name: str) -> None:
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    path = Path(name).absolute()
    if path in _files:
        return
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    _files.add(path)
