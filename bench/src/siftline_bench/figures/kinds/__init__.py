"""How runs are measured: one module for each kind, with three functions.

prepare(run, cache)    what runs of the same ground share: the workload, and the ids that it must give
use_once(ground, run)  the index on next to nothing, so that kernels are compiled before the time of a run begins
measure(ground, run)   the columns of the row; ids are checked before it returns
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row


@dataclass(frozen=True)
class Kind:
    """A module of this folder.

    Attributes
    ----------
    is_drawn : bool
        Whether `workload` of a figure names a recipe of `workloads`.
    version : int
        Of other kinds, counted up when they measure something else than before.
    """

    name: str
    is_drawn: bool = True
    version: int = 1

    def prepare(self, run: Run, cache: Path | None) -> Any:
        """Make what runs of the same ground share."""
        return self._module.prepare(run, cache)

    def use_once(self, ground: Any, run: Run) -> None:
        """Have the kernels of an index compiled."""
        self._module.use_once(ground, run)

    def measure(self, ground: Any, run: Run) -> Row:
        """Measure; a refusal of an index is a row with another status than `ok`."""
        row: Row = self._module.measure(ground, run)
        return row

    @property
    def _module(self) -> Any:
        return importlib.import_module(f"{__name__}.{self.name.replace('-', '_')}")


_KINDS: Final = {
    each.name: each
    for each in (
        Kind("matching"),
        Kind("interleaved"),
        Kind("changes"),
        Kind("finite-domains"),
        Kind("finite-changes"),
        Kind("dbms"),
        Kind("on-spark"),
        Kind("table-one", is_drawn=False),
        Kind("intervals"),
        Kind("operators", is_drawn=False),
        Kind("facts", is_drawn=False),
    )
}


def kind(name: str) -> Kind:
    """Return a kind by its name."""
    if name not in _KINDS:
        raise ValueError(f"there is no kind {name!r} of figures (there are: {', '.join(_KINDS)})")
    return _KINDS[name]
