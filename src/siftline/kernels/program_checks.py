"""One event in JSON from its bytes to the programs that hold, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.kernels.compiler import kernel
from siftline.kernels.json_leaves import OK, Statuses, parse_events
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.pointers import arrays_at
from siftline.kernels.programs import run_programs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from siftline.kernels.program_table import Decided, Pairs

# Results beside those of `run_programs`: the event has no room, or only the model knows what it means.
IS_ODD: Final = -2


class CheckHandles(NamedTuple):
    """The handles of everything that one check needs."""

    paths: NDArray[np.int64]
    programs: NDArray[np.int64]
    parser: NDArray[np.int64]
    scratch: NDArray[np.int64]
    # Where leaves go.
    leaves: NDArray[np.int64]
    leaf_statuses: NDArray[np.int64]


@kernel
def check_text(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    pairs: Pairs,
    decided: Decided,
    handles: CheckHandles,
    others: int,
    seconds: int,
    nanoseconds: int,
) -> int:
    """Parse one event, with all its strings if there are `others`, and run programs on it as `run_programs` does.

    There must be room for the event in all arrays. If its values do not fit, the result is IS_ODD.
    """
    leaves, statuses = arrays_at(handles.leaves, LeafColumns), arrays_at(handles.leaf_statuses, Statuses)
    statuses.event_starts[0] = 0
    n_parsed, _ = parse_events(data, starts, ends, handles.paths, handles.parser, statuses, leaves, 0, 0, others)
    if n_parsed != 1 or statuses.statuses[0] != OK:
        return IS_ODD
    return run_programs(
        pairs,
        leaves,
        statuses.event_starts,
        decided,
        handles.programs,
        handles.scratch,
        seconds,
        nanoseconds,
    )
