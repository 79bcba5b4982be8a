"""The decorators that compile kernels.

Kernels release the GIL, are cached on disk, and use unsigned arithmetic that wraps around. With NUMBA_DISABLE_JIT=1
they run as plain Python, as the tests do once more.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import config, event

Function = TypeVar("Function", bound=Callable[..., Any])

# Imports for type checking count as well, because kernels read the fields of NamedTuples by position.
_IMPORT = re.compile(rb"^ *from ([\w.]+) import", re.MULTILINE)


def kernel(function: Function) -> Function:
    """Compile `function` on its first call; flat arrays and scalars only."""
    if config.DISABLE_JIT:
        return _interpreted(function)
    return _compiled(function, {})


def inline_kernel(function: Function) -> Function:
    """Compile `function` as a part of the kernels that call it; it must not allocate arrays.

    By default Numba calls larger helpers, and counts references to every array that it passes, atomically. Without
    these calls and counts, the JSON parser is four to six times as fast.
    """
    if config.DISABLE_JIT:
        return function
    return _compiled(function, {"forceinline": True, "_nrt": False})


def direct(function: Function, *arguments: Any) -> Function:
    """Return the compiled function of a kernel for arguments of these types.

    A kernel checks the types of all arguments at every call, which takes half a microsecond for four arrays. The
    function returned here does not: its caller must pass arguments of exactly these types.
    """
    if config.DISABLE_JIT:
        return function
    compiled: Any = function
    return cast("Function", compiled.compile(tuple(map(numba.typeof, arguments))))


def _compiled(function: Function, options: dict[str, Any]) -> Function:
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        compiled: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to write a cache, as in a read-only container
        return cast("Function", numba.njit(**options)(function))
    # By default Numba checks only the date and size of the kernel's own file, and would keep code with old helpers.
    compiled._cache._cache_file._source_stamp = _checksum(function.__module__)
    return cast("Function", compiled)


@functools.cache
def _checksum(module: str) -> int:
    """Return a checksum of the sources of a module of kernels, of all that it imports, and of this file.

    Imports from this package count, and from the package that the kernels belong to, which may be another one.
    """
    packages = {name.partition(".")[0] for name in (__name__, module)}
    sources: dict[str, bytes] = {}
    pending = [__name__, module]
    while pending:
        name = pending.pop()
        if name not in sources:
            sources[name] = _source(name)
            imported = (each.decode() for each in _IMPORT.findall(sources[name]))
            pending += [each for each in imported if each.partition(".")[0] in packages]
    return zlib.crc32(b"".join(sources[name] for name in sorted(sources)))


def _source(module: str) -> bytes:
    """Return the source of a module. It may not be loaded, if it is imported for type checking only."""
    loaded = sys.modules.get(module)
    if loaded is not None and loaded.__file__ is not None:
        return Path(loaded.__file__).read_bytes()
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # a name in a text that looks like an import
        return b""
    return b"" if spec is None or spec.origin is None else Path(spec.origin).read_bytes()


def _interpreted(function: Function) -> Function:
    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return function(*arguments)

    return run  # type: ignore[return-value]


class _FirstCompilation(event.Listener):  # type: ignore[misc]
    """Prints once per process that kernels are being compiled, to explain the pause."""

    said = False

    def on_start(self, details: Any) -> None:
        name = str(getattr(details.data.get("dispatcher"), "__module__", ""))
        if not self.said and name.startswith("siftline"):
            self.said = True
            if sys.stderr is None or not sys.stderr.isatty():  # only a terminal gets the message
                return
            print("siftline: compiling kernels that are new to this machine ...", file=sys.stderr, flush=True)

    def on_end(self, details: Any) -> None:
        """Do nothing: one line is enough."""


event.register("numba:compile", _FirstCompilation())
