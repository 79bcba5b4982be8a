"""Checking candidate clauses against one event, literal by literal; shared by all indexes that find candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.codes import ABSENT, VETO
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.literals import Literals, literal_holds, spread_event
from siftline.kernels.pointers import arrays_at, fetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Longer events are assumed to have several values of some attribute, because a test takes the square of their length.
_COMPARED_LENGTH_MAX = 64
# Numbers of 32 bits on a cache line.
_ON_LINE = np.uint64(16)


@inline_kernel
def clear_event(attributes: NDArray[np.int32], dense: NDArray[np.int32]) -> None:
    """Undo `spread_event`: `dense` is all absent again, for the next event."""
    for p in range(len(attributes)):
        place = attributes[p] + 1
        if place < len(dense):
            dense[place] = ABSENT


@inline_kernel
def clause_holds(
    clause: int, dense: NDArray[np.int32], codes: NDArray[np.int32], following: NDArray[np.int32], literals: Any
) -> Any:
    """Return whether a clause holds (all literals; of alternatives, one), and how many literals were tested."""
    holds = True
    n_tested = 0
    for i in range(literals.starts[clause], literals.starts[clause + 1]):
        if literals.is_alternative[i]:
            if holds:
                continue
        elif not holds:
            break
        n_tested += 1
        holds = literal_holds(
            dense[literals.attributes[i] + 1],
            literals.lows[i],
            literals.highs[i],
            literals.kinds[i],
            literals.sets[i],
            codes,
            following,
            literals,
        )
    return holds, n_tested


@inline_kernel
def fetch_literals(clause: int, literals: Literals) -> None:
    """Prefetch what `clause_holds` will read of a clause."""
    begin, end = np.uint64(literals.starts[clause]), np.uint64(literals.starts[clause + 1])
    for i in range(begin, end + _ON_LINE, _ON_LINE):
        fetch(literals.attributes, i)
        fetch(literals.lows, i)
        fetch(literals.highs, i)
        fetch(literals.sets, i)
    fetch(literals.kinds, begin)
    fetch(literals.is_alternative, begin)


@kernel
def verify_clauses(
    candidates: NDArray[np.int32],
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    dense: NDArray[np.int32],
    part: NDArray[np.int64],
) -> Any:
    """Return the candidates that hold, and how many literals were tested.

    The literals of a part come as the handle of `Literals` (see `kernels/pointers.py`).
    """
    literals = arrays_at(part, Literals)
    following = np.empty(len(event_codes), dtype=np.int32)
    spread_event(event_attributes, event_codes, dense, following)
    found = np.empty(len(candidates), dtype=np.int32)
    n_found = 0
    n_tested = 0
    for k in range(len(candidates)):
        clause = candidates[k]
        holds, n = clause_holds(clause, dense, event_codes, following, literals)
        n_tested += n
        found[n_found] = clause
        n_found += holds
    clear_event(event_attributes, dense)
    return found[:n_found].copy(), n_tested


@inline_kernel
def _may_repeat(attributes: NDArray[np.int32]) -> Any:
    """Return whether an event has several values of one attribute, or is too long for a quick test."""
    if len(attributes) > _COMPARED_LENGTH_MAX:
        return True
    for p in range(len(attributes)):
        for q in range(p):
            if attributes[p] == attributes[q]:
                return True
    return False


@kernel
def slots_of_clauses(
    found: NDArray[np.int32],
    slots: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    is_live: NDArray[np.bool_],
    event_attributes: NDArray[np.int32],
    has_repeated_slots: bool,
    seen: NDArray[np.bool_],
) -> Any:
    """Return the live slots of clauses that hold, each once: those that match, and those that must be checked.

    A slot can repeat if it has several clauses, or if an attribute of the event has several values; only then `seen` is
    used. It is all False afterwards.
    """
    sure = np.empty(len(found), dtype=np.int32)
    possible = np.empty(len(found), dtype=np.int32)
    n_sure = 0
    n_possible = 0
    for k in range(len(found)):
        clause = found[k]
        slot = slots[clause]
        if is_live[slot]:
            if is_exact[clause]:
                sure[n_sure] = slot
                n_sure += 1
            else:
                possible[n_possible] = slot
                n_possible += 1
    if has_repeated_slots or _may_repeat(event_attributes):
        n_sure, n_possible = distinct_slots(sure, n_sure, possible, n_possible, seen)
    return sure[:n_sure].copy(), possible[:n_possible].copy()


@kernel
def distinct_slots(
    sure: NDArray[np.int32], n_sure: int, possible: NDArray[np.int32], n_possible: int, seen: NDArray[np.bool_]
) -> Any:
    """Keep each slot once, at the front of its array, and none in both; return both counts. `seen` ends all False."""
    n_sure = _keep_new(sure, n_sure, seen)
    n_possible = _keep_new(possible, n_possible, seen)
    for k in range(n_sure):
        seen[sure[k]] = False
    for k in range(n_possible):
        seen[possible[k]] = False
    return n_sure, n_possible


@inline_kernel
def _keep_new(slots: NDArray[np.int32], n: int, seen: NDArray[np.bool_]) -> Any:
    """Keep those of the first n slots that were not seen before, and mark them as seen; return how many."""
    n_new = 0
    for k in range(n):
        slot = slots[k]
        if not seen[slot]:
            seen[slot] = True
            slots[n_new] = slot
            n_new += 1
    return n_new


@kernel
def can_be_found(starts: NDArray[np.int64], kinds: NDArray[np.uint8], is_alternative: NDArray[np.bool_]) -> Any:
    """Return which clauses need a value of the event: those with a literal that is no veto, nor its alternatives.

    An index finds such clauses by the values of events; it must test the others for every event.
    """
    found = np.zeros(len(starts) - 1, dtype=np.bool_)
    for c in range(len(starts) - 1):
        i = starts[c]
        while i < starts[c + 1] and not found[c]:
            is_wanted = kinds[i] < VETO
            i += 1
            while i < starts[c + 1] and is_alternative[i]:
                is_wanted &= kinds[i] < VETO
                i += 1
            found[c] = is_wanted
    return found
