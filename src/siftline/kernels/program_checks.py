"""One event in JSON from its bytes to the programs that hold, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.kernels.compiler import kernel
from siftline.kernels.json_leaves import NO_OTHERS, OK, Statuses, parse_events
from siftline.kernels.json_strings import read_strings
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
    keys: NDArray[np.int64]
    scratch: NDArray[np.int64]
    # Where leaves go, and all strings.
    leaves: NDArray[np.int64]
    leaf_statuses: NDArray[np.int64]
    strings: NDArray[np.int64]
    string_statuses: NDArray[np.int64]


@kernel
def check_text(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    pairs: Pairs,
    decided: Decided,
    handles: CheckHandles,
    asks_strings: bool,
    seconds: int,
    nanoseconds: int,
) -> int:
    """Parse one event, all its strings if they are asked about, and run programs on it as `run_programs` does.

    There must be room for the event in all arrays. If its values do not fit, the result is IS_ODD.
    """
    leaves, statuses = arrays_at(handles.leaves, LeafColumns), arrays_at(handles.leaf_statuses, Statuses)
    statuses.event_starts[0] = 0
    n_parsed, _ = parse_events(data, starts, ends, handles.paths, handles.parser, statuses, leaves, 0, 0, NO_OTHERS)
    if n_parsed != 1 or statuses.statuses[0] != OK:
        return IS_ODD
    strings, more = arrays_at(handles.strings, LeafColumns), arrays_at(handles.string_statuses, Statuses)
    more.event_starts[0] = 0
    more.event_starts[1] = 0
    if asks_strings:
        read_strings(data, starts, ends, more, strings, handles.keys)
        if more.statuses[0] != OK:
            return IS_ODD
    return run_programs(
        pairs,
        leaves,
        statuses.event_starts,
        strings,
        more.event_starts,
        decided,
        handles.programs,
        handles.scratch,
        seconds,
        nanoseconds,
    )
