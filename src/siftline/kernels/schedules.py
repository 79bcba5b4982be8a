"""The steps of schedules: which call of an operator comes next.

A chain is a conjunction of literals over call predicates (nodes): node * 2 means that the node must be true, node * 2 +
1 that it must be false. Several chains may have one owner, a subscription that matches if any of its chains holds.
`node_chains` has the chains of a node in the same way: chain * 2, or chain * 2 + 1 where the node must be false.

Every step returns a node to evaluate, `-2 - chain` for a chain whose literals all hold, or `DONE`. Before the next
step, the caller writes the outcome of the node to `known`, and sets `is_settled` of an owner that is decided.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.compiler import direct, inline_kernel, kernel
from siftline.kernels.pointers import arrays_at, describe, no_arrays

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

DONE = -1
# Values of `known`.
NOT_EVALUATED = 0
TRUE = 1
FALSE = 2
UNKNOWN = 3

# Places in `cursor`.
CHAIN = 0
LITERAL = 1
BUCKET = 2
N_PENDING = 3
CURSOR_SIZE = 4

_NOWHERE = -1
# Buckets for gains from 2 ** -30 to 2 ** 50, four to a factor of two: two bits of the fraction of a double. Eight took
# a third longer and saved one call in 400.
N_BUCKETS = 320
_LEAST = 2.0**-30
_STEP = 50
_FIRST_BUCKET = (1023 - 30) << 2
# The number of open chains of an evaluated node; the sum of two still fits into int32.
_GONE = -(2**29)


@inline_kernel
def _fails(literal: Any, known: NDArray[np.int8]) -> Any:
    """Return whether a literal is known not to hold."""
    found = known[literal >> 1]
    return found != NOT_EVALUATED and found != TRUE + (literal & 1)


# Schedules that go chain by chain


class WalkRun(NamedTuple):
    """The run of one event along the chains."""

    chain_starts: NDArray[np.int64]
    literals: NDArray[np.int32]
    owners: NDArray[np.int32]
    order: NDArray[np.int32]  # of chains
    known: NDArray[np.int8]
    is_settled: NDArray[np.bool_]
    cursor: NDArray[np.int64]


@inline_kernel
def walk_step(run: WalkRun, looks_ahead: bool) -> Any:
    """Continue along the chains in order, each until its first literal that does not hold.

    With `looks_ahead`, a chain is skipped if any of its literals is known not to hold, which is the same as removing
    all chains that are linked to a false node (4.2.2, 1b).
    """
    chain_starts, known, cursor = run.chain_starts, run.known, run.cursor
    while cursor[CHAIN] < len(run.order):
        c = run.order[cursor[CHAIN]]
        asked = DONE
        is_open = not run.is_settled[run.owners[c]]
        for place in range(chain_starts[c], chain_starts[c + 1]):
            if not is_open:
                break
            literal = run.literals[place]
            if known[literal >> 1] == NOT_EVALUATED:
                if asked == DONE:
                    asked = literal >> 1
                if not looks_ahead:
                    break
            elif _fails(literal, known):
                is_open = False
        if is_open and asked != DONE:
            return asked
        cursor[CHAIN] += 1
        if is_open:
            return -2 - c
    return DONE


@kernel
def begin_walk(run: WalkRun, handle: NDArray[np.int64]) -> None:
    """Write the handle of a run, for callers in Python."""
    describe(run, handle)


@functools.cache
def walk_beginner() -> Callable[[WalkRun, NDArray[np.int64]], None]:
    """Return `begin_walk` for callers whose arrays have the types that `WalkRun` names."""
    return direct(begin_walk, no_arrays(WalkRun), np.empty(0, dtype=np.int64))


@kernel
def next_in_walk(handle: NDArray[np.int64], looks_ahead: bool) -> Any:
    """Do one step, for callers in Python."""
    return walk_step(arrays_at(handle, WalkRun), looks_ahead)


# Sequential


class SequenceRun(NamedTuple):
    """The run of one event through Algorithm 1."""

    chain_starts: NDArray[np.int64]
    literals: NDArray[np.int32]
    owners: NDArray[np.int32]
    order: NDArray[np.int32]  # of chains
    node_starts: NDArray[np.int64]
    node_chains: NDArray[np.int32]
    known: NDArray[np.int8]
    is_settled: NDArray[np.bool_]
    n_left: NDArray[np.int32]  # by chain: how many literals are open, -1 if one does not hold
    cursor: NDArray[np.int64]


@inline_kernel
def _note(node: Any, run: SequenceRun) -> None:
    """Bring the chains of a node up to date."""
    node_starts, node_chains, known, n_left = run.node_starts, run.node_chains, run.known, run.n_left
    for e in range(node_starts[node], node_starts[node + 1]):
        c = node_chains[e] >> 1
        if n_left[c] >= 0:
            n_left[c] = n_left[c] - 1 if known[node] == TRUE + (node_chains[e] & 1) else -1


@inline_kernel
def sequence_step(run: SequenceRun, last: int) -> Any:
    """Continue Algorithm 1; `last` is the previous step, DONE at first."""
    chain_starts, owners, node_starts = run.chain_starts, run.owners, run.node_starts
    is_settled, n_left, cursor = run.is_settled, run.n_left, run.cursor
    if last >= 0:
        _note(last, run)  # l. 11-13
    while cursor[CHAIN] < len(run.order):  # l. 4
        c = run.order[cursor[CHAIN]]
        if cursor[LITERAL] == _NOWHERE and n_left[c] > 0 and not is_settled[owners[c]]:  # l. 5
            cursor[LITERAL] = chain_starts[c]
        if cursor[LITERAL] != _NOWHERE:
            while cursor[LITERAL] < chain_starts[c + 1]:  # l. 7-8
                node = run.literals[cursor[LITERAL]] >> 1
                cursor[LITERAL] += 1
                if run.known[node] != NOT_EVALUATED:
                    continue
                for e in range(node_starts[node], node_starts[node + 1]):  # l. 9
                    other = run.node_chains[e] >> 1
                    if n_left[other] > 0 and not is_settled[owners[other]]:
                        return node
        cursor[CHAIN] += 1
        cursor[LITERAL] = _NOWHERE
        if n_left[c] == 0 and not is_settled[owners[c]]:
            return -2 - c
    return DONE


@inline_kernel
def start_sequence(run: SequenceRun) -> None:
    """Set the state before the first evaluation."""
    run.cursor[LITERAL] = _NOWHERE
    for c in range(len(run.n_left)):
        run.n_left[c] = run.chain_starts[c + 1] - run.chain_starts[c]


@kernel
def begin_sequence(run: SequenceRun, handle: NDArray[np.int64]) -> None:
    """Start, and write the handle of a run, for callers in Python."""
    start_sequence(run)
    describe(run, handle)


@functools.cache
def sequence_beginner() -> Callable[[SequenceRun, NDArray[np.int64]], None]:
    """Return `begin_sequence` for callers whose arrays have the types that `SequenceRun` names."""
    return direct(begin_sequence, no_arrays(SequenceRun), np.empty(0, dtype=np.int64))


@kernel
def next_in_sequence(handle: NDArray[np.int64], last: int) -> Any:
    """Do one step, for callers in Python."""
    return sequence_step(arrays_at(handle, SequenceRun), last)


# Greedy. A chain is a row of `rows`: how many of its literals are open (-1 once it is decided), how many it has, its
# number, and the literals. So reading a chain is one cache miss, not three.

OPEN = 0
SIZE = 1
NUMBER = 2
FIRST = 3


@kernel
def rows_of(chain_starts: NDArray[np.int64], literals: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return all chains as rows; that of chain c begins at chain_starts[c] + FIRST * c."""
    n = len(chain_starts) - 1
    rows = np.empty(len(literals) + FIRST * n, dtype=np.int32)
    for c in range(n):
        row, size = chain_starts[c] + FIRST * c, chain_starts[c + 1] - chain_starts[c]
        rows[row + OPEN], rows[row + SIZE], rows[row + NUMBER] = size, size, c
        for k in range(size):
            rows[row + FIRST + k] = literals[chain_starts[c] + k]
    return rows


class GreedyRun(NamedTuple):
    """The run of one event by the greedy schedule."""

    chain_starts: NDArray[np.int64]
    owners: NDArray[np.int32]
    node_starts: NDArray[np.int64]
    node_rows: NDArray[np.int32]  # row * 2, + 1 where the node must be false
    rates: NDArray[np.float64]  # by literal: the probability that it fails its chains, divided by its cost
    known: NDArray[np.int8]
    is_settled: NDArray[np.bool_]
    rows: NDArray[np.int32]
    n_open: NDArray[np.int32]  # by literal: how many open chains have it
    key: NDArray[np.float64]  # one double, whose bits are read
    heads: NDArray[np.int32]  # by bucket: its first node
    following: NDArray[np.int32]  # by node: the next in its bucket
    pending: NDArray[np.int32]  # rows with one open literal or none
    cursor: NDArray[np.int64]


@inline_kernel
def _bucket(node: Any, run: GreedyRun) -> Any:
    """Return the bucket of a node: by the number of chains that a call is expected to decide, divided by its cost."""
    asked, denied = 2 * node, 2 * node + 1
    gain = run.n_open[asked] * run.rates[asked] + run.n_open[denied] * run.rates[denied]
    run.key[0] = max(gain, _LEAST)
    return min(max((run.key.view(np.int64)[0] >> _STEP) - _FIRST_BUCKET, 0), N_BUCKETS - 1)


@inline_kernel
def _put(node: Any, bucket: Any, run: GreedyRun) -> None:
    run.following[node] = run.heads[bucket]
    run.heads[bucket] = node


@inline_kernel
def start_greedy(run: GreedyRun) -> None:
    """Put all nodes into buckets."""
    rows, cursor = run.rows, run.cursor
    row = 0
    while row < len(rows):
        if rows[row + OPEN] <= 1:
            run.pending[cursor[N_PENDING]] = row
            cursor[N_PENDING] += 1
        row += FIRST + rows[row + SIZE]
    run.heads[:] = _NOWHERE
    for node in range(len(run.following)):
        _put(node, _bucket(node, run), run)
    cursor[BUCKET] = N_BUCKETS - 1


@kernel
def begin_greedy(run: GreedyRun, handle: NDArray[np.int64]) -> None:
    """Start, and write the handle of a run, for callers in Python."""
    start_greedy(run)
    describe(run, handle)


@functools.cache
def greedy_beginner() -> Callable[[GreedyRun, NDArray[np.int64]], None]:
    """Return `begin_greedy` for callers whose arrays have the types that `GreedyRun` names."""
    return direct(begin_greedy, no_arrays(GreedyRun), np.empty(0, dtype=np.int64))


@inline_kernel
def _close(row: Any, run: GreedyRun) -> None:
    """Remove a chain that is decided."""
    for place in range(row + FIRST, row + FIRST + run.rows[row + SIZE]):
        run.n_open[run.rows[place]] -= 1
    run.rows[row + OPEN] = -1


@inline_kernel
def _close_settled(chain: Any, run: GreedyRun) -> None:
    """Remove the other chains of an owner, which are consecutive."""
    owners = run.owners
    first = chain
    while first > 0 and owners[first - 1] == owners[chain]:
        first -= 1
    for c in range(first, len(owners)):
        if owners[c] != owners[chain]:
            break
        row = run.chain_starts[c] + FIRST * c
        if run.rows[row + OPEN] >= 0:
            _close(row, run)


@inline_kernel
def greedy_step(run: GreedyRun, last: int) -> Any:
    """Take the node that decides most chains for its cost; `last` is the previous step, DONE at first.

    The last open node of a chain must be evaluated in any case, so it comes first. Gains only shrink as chains are
    decided, so a node that is found in a bucket above its own moves down.
    """
    known, rows, n_open = run.known, run.rows, run.n_open
    heads, pending, cursor = run.heads, run.pending, run.cursor
    if last >= 0:
        n_open[2 * last] = n_open[2 * last + 1] = _GONE
        for e in range(run.node_starts[last], run.node_starts[last + 1]):
            row = run.node_rows[e] >> 1
            n_left = rows[row + OPEN]
            if n_left < 0:
                continue
            if known[last] != TRUE + (run.node_rows[e] & 1):
                _close(row, run)
                continue
            rows[row + OPEN] = n_left - 1
            if n_left <= 2:
                pending[cursor[N_PENDING]] = row
                cursor[N_PENDING] += 1
    elif last != DONE and run.is_settled[run.owners[-2 - last]]:
        _close_settled(-2 - last, run)
    while cursor[N_PENDING] > 0:
        cursor[N_PENDING] -= 1
        row = pending[cursor[N_PENDING]]
        if rows[row + OPEN] == 0:
            _close(row, run)
            return -2 - rows[row + NUMBER]
        if rows[row + OPEN] == 1:
            for place in range(row + FIRST, row + FIRST + rows[row + SIZE]):
                if known[rows[place] >> 1] == NOT_EVALUATED:
                    return rows[place] >> 1
    while cursor[BUCKET] >= 0:
        node = heads[cursor[BUCKET]]
        if node == _NOWHERE:
            cursor[BUCKET] -= 1
            continue
        heads[cursor[BUCKET]] = run.following[node]
        if n_open[2 * node] + n_open[2 * node + 1] <= 0:
            continue
        bucket = _bucket(node, run)
        if bucket >= cursor[BUCKET]:
            return node
        _put(node, bucket, run)
    return DONE


@kernel
def next_in_greedy(handle: NDArray[np.int64], last: int) -> Any:
    """Do one step, for callers in Python."""
    return greedy_step(arrays_at(handle, GreedyRun), last)
