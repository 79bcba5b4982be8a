"""The exact check: which candidates hold, by their expressions and the values of their events.

Expressions run as programs (`encoding/programs.py`) in one kernel for all candidates of a batch. The values are parsed
again, for the events that have candidates and the attributes that programs ask about. An event whose values do not fit
(a key twice in an object, an integer beyond 64 bits) is checked by the model.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from siftline.encoding.program_checks import one_check
from siftline.encoding.program_runs import PER_SECOND, Run
from siftline.encoding.program_values import values_of
from siftline.kernels.program_table import FAILS, HOLDS
from siftline.model import matches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.events import EncodedEvents
    from siftline.encoding.programs import ProgramView
    from siftline.engine.subscriptions import SubscriptionTable


def holds_by_programs(
    positions: NDArray[np.int64], slots: NDArray[np.int32], events: EncodedEvents, table: SubscriptionTable
) -> NDArray[np.bool_]:
    """Return which pairs of an event and a slot hold; events ascend, and there is at least one pair."""
    view, places = table.programs.ready(slots, table.expression)
    now = time.time_ns() if events.now is None else events.now
    if len(events) == 1:
        holds = _hold_for_one(events, view, places, table, now)
        if holds is not None:
            return holds
    is_first = np.empty(len(positions), dtype=np.bool_)
    is_first[0] = True
    np.not_equal(positions[1:], positions[:-1], out=is_first[1:])
    present, owners = positions[is_first], np.cumsum(is_first) - 1
    values = values_of(events, present, view)
    for i in np.flatnonzero(np.isin(owners, values.odd)).tolist() if len(values.odd) else ():
        places[i] = HOLDS if matches(table.expression(int(slots[i])), events.event(int(positions[i]))) else FAILS
    run = Run(table.programs, view, values, lambda event: events.event(int(present[event])), now)
    return run.holds(owners, places)


def _hold_for_one(
    events: EncodedEvents, view: ProgramView, places: NDArray[np.int32], table: SubscriptionTable, now: int
) -> NDArray[np.bool_] | None:
    """Return which programs hold for a single event in JSON; None if it has to take the way of batches."""
    one_text = getattr(events.source, "one_text", None)
    text = None if one_text is None else one_text()
    if text is None:
        return None
    check = one_check()
    n_waiting = check.run(text, view, places, divmod(now, PER_SECOND))
    if n_waiting < 0:
        return None
    if n_waiting == 0:
        holds: NDArray[np.bool_] = places == HOLDS
        return holds
    run = Run(table.programs, view, check.values(), events.event, now)
    return run.holds(np.zeros(len(places), dtype=np.int64), places)
