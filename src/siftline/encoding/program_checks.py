"""The exact check of one event in JSON, without arrays that are made for it.

The arrays of a thread have room for every event up to a size, so a check is one call of a kernel. A larger event, and
one whose values do not fit, takes the way of batches; so does what is left when a program waits for an undecided test.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.encoding.flat_domains import read_only
from siftline.encoding.json_leaves import empty_statuses, parser_scratch
from siftline.encoding.patterns import folded_characters
from siftline.encoding.program_runs import NOTHING_DECIDED, Workspace
from siftline.encoding.program_values import Values
from siftline.kernels.compiler import direct
from siftline.kernels.json_leaves import NO_OTHERS, TEXT_MARGIN
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.pointers import handle_of, no_arrays
from siftline.kernels.program_checks import IS_ODD, CheckHandles, check_text
from siftline.kernels.program_table import NEEDS_FOLDING, Pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from siftline.encoding.programs import ProgramView

# Larger events take the way of batches. What arrays have room for is not touched before it is needed.
_BYTES_MAX: Final = 1 << 15
_LEAVES: Final = _BYTES_MAX // 2 + 2
_NOTHING: Final = np.empty(0, dtype=np.int64)


class _OfThread(threading.local):
    checker: OneCheck | None = None


_of_thread = _OfThread()


def one_check() -> OneCheck:
    """Return what this thread has for checks of one event."""
    checker = _of_thread.checker
    if checker is None:
        checker = _of_thread.checker = OneCheck()
    return checker


class OneCheck:
    """Arrays with room for one event, and their handles."""

    def __init__(self) -> None:
        self._leaves, self._statuses = _columns(_LEAVES), empty_statuses(1)
        self._parser = parser_scratch(1024, _BYTES_MAX // 4, _BYTES_MAX)
        self._workspace = Workspace()
        self._workspace.make_room(0, 0, _LEAVES, _BYTES_MAX)
        self._zeros = np.zeros(64, dtype=np.int64)
        self._n_slots, self._sizes = len(self._parser.stamps), (0, 0)
        self._outputs: Any = handle_of(self._leaves), handle_of(self._statuses)
        self._parser_handle: Any = handle_of(self._parser)

    def _handles(self, view: ProgramView) -> CheckHandles:
        """Make room for the programs of a view; return the handles of everything, while the caller keeps the view."""
        workspace, n_slots, sizes = (
            self._workspace,
            view.paths.hash.slots.size >> 2,
            (len(view.leaves), len(view.names)),
        )
        if n_slots > self._n_slots:
            self._parser = self._parser._replace(stamps=np.zeros(2 * n_slots, dtype=np.int64))
            self._parser_handle, self._n_slots = handle_of(self._parser), 2 * n_slots
        if sizes != self._sizes:
            workspace.make_room(*sizes, _LEAVES, _BYTES_MAX)
            self._sizes = sizes
        own = self._parser_handle, workspace.handle
        return CheckHandles(view.paths.handle, view.handle, *own, *self._outputs)

    def run(
        self, text: tuple[Any, Any, Any], view: ProgramView, places: NDArray[np.int32], now: tuple[int, int]
    ) -> int:
        """Run programs on one event from their places on; return how many wait, a negative number if that failed.

        The event is data[starts[0]:ends[0]].
        """
        data, starts, ends = text
        if ends[0] - starts[0] > _BYTES_MAX:
            return IS_ODD
        n = len(places)
        if n > len(self._zeros):
            self._zeros = np.zeros(2 * n, dtype=np.int64)
        pairs = Pairs(self._zeros[:n], places, np.empty(n, dtype=np.int32))
        arguments = view.paths.n_paths if view.asks_strings else NO_OTHERS, *now
        check = _checker()
        n_waiting = check(data, starts, ends, pairs, NOTHING_DECIDED, self._handles(view), *arguments)
        if n_waiting != NEEDS_FOLDING:
            return n_waiting
        self._workspace.replace(folded=folded_characters())
        return check(data, starts, ends, pairs, NOTHING_DECIDED, self._handles(view), *arguments)

    def values(self) -> Values:
        """Return the values of the event that was checked last, until the next check."""
        starts = self._statuses.event_starts
        return Values(_first(self._leaves, int(starts[1])), starts, _NOTHING)


def _columns(n: int) -> LeafColumns:
    empty: LeafColumns = no_arrays(LeafColumns)
    made = {name: np.empty(n, dtype=array.dtype) for name, array in empty._asdict().items()}
    return LeafColumns(**{**made, "texts": np.empty(_BYTES_MAX + TEXT_MARGIN, dtype=np.uint8)})


def _first(columns: LeafColumns, n: int) -> LeafColumns:
    """Return the first n leaves."""
    n_texts = int(columns.text_ends[n - 1]) if n else 0
    kept: dict[str, Any] = {name: array[:n] for name, array in columns._asdict().items()}
    return LeafColumns(**{**kept, "texts": columns.texts[:n_texts]})


@functools.cache
def _checker() -> Callable[..., int]:
    """Return `check_text` for arguments whose types are known."""
    data, places = read_only(np.empty(0, np.uint8)), read_only(np.empty(0, np.int64))
    handles = CheckHandles(*[_NOTHING] * len(CheckHandles._fields))
    return direct(check_text, data, places, places, no_arrays(Pairs), NOTHING_DECIDED, handles, NO_OTHERS, 0, 0)
