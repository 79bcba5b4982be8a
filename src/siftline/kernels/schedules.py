"""Which call comes next: the schedules of the operator layer, one step at a time.

A chain is a conjunction of literals over call predicates (nodes): node * 2 asks that the node is true, node * 2 + 1
that it is false. Several chains may have one owner, a subscription that matches if any of its chains holds.
`node_chains` has the chains of a node in the same way: chain * 2, or chain * 2 + 1 where the node must be false.

Every step returns a node to evaluate, `-2 - chain` for a chain whose literals all hold, or `DONE`. The caller writes
what became of a node into `known` before it asks for the next step, and sets `is_settled` of an owner that needs no
more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

DONE = -1
# What `known` says of a node.
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
# Gains from 2 ** -30 to 2 ** 50, four buckets to a factor of two, which are two bits of the fraction of a double. Eight
# took a third longer and saved one call in 400.
N_BUCKETS = 320
_LEAST = 2.0**-30
_STEP = 50
_FIRST_BUCKET = (1023 - 30) << 2
# What stands for the open chains of a node that is evaluated; two of them are still an int32.
_GONE = -(2**29)


@inline_kernel
def _fails(literal: Any, known: NDArray[np.int8]) -> Any:
    """Return whether a literal is known not to hold."""
    found = known[literal >> 1]
    return found != NOT_EVALUATED and found != TRUE + (literal & 1)


# The schedules that go chain by chain


@inline_kernel
def walk_step(
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    owners: NDArray[np.int32],
    order: NDArray[np.int32],
    known: NDArray[np.int8],
    is_settled: NDArray[np.bool_],
    cursor: NDArray[np.int64],
    looks_ahead: bool,
) -> Any:
    """Go on along the chains in order, each until its first literal that does not hold.

    With `looks_ahead`, a chain is left at once if any of its literals is known not to hold: that is what removing all
    chains that are linked to a false node comes to (4.2.2, 1b).
    """
    while cursor[CHAIN] < len(order):
        c = order[cursor[CHAIN]]
        asked = DONE
        is_open = not is_settled[owners[c]]
        for place in range(chain_starts[c], chain_starts[c + 1]):
            if not is_open:
                break
            literal = literals[place]
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
def next_in_walk(
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    owners: NDArray[np.int32],
    order: NDArray[np.int32],
    known: NDArray[np.int8],
    is_settled: NDArray[np.bool_],
    cursor: NDArray[np.int64],
    looks_ahead: bool,
) -> Any:
    """Do one step, for callers in Python."""
    return walk_step(chain_starts, literals, owners, order, known, is_settled, cursor, looks_ahead)


# Sequential


@inline_kernel
def _note(
    node: Any,
    node_starts: NDArray[np.int64],
    node_chains: NDArray[np.int32],
    known: NDArray[np.int8],
    n_left: NDArray[np.int32],
) -> None:
    """Bring the chains of a node up to date: `n_left` is how many literals are open, -1 if one does not hold."""
    for e in range(node_starts[node], node_starts[node + 1]):
        c = node_chains[e] >> 1
        if n_left[c] >= 0:
            n_left[c] = n_left[c] - 1 if known[node] == TRUE + (node_chains[e] & 1) else -1


@inline_kernel
def sequence_step(
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    owners: NDArray[np.int32],
    order: NDArray[np.int32],
    node_starts: NDArray[np.int64],
    node_chains: NDArray[np.int32],
    known: NDArray[np.int8],
    is_settled: NDArray[np.bool_],
    n_left: NDArray[np.int32],
    cursor: NDArray[np.int64],
    last: int,
) -> Any:
    """Go on with Algorithm 1; `last` is the step before, DONE at first."""
    if last >= 0:
        _note(last, node_starts, node_chains, known, n_left)  # l. 11-13
    while cursor[CHAIN] < len(order):  # l. 4
        c = order[cursor[CHAIN]]
        if cursor[LITERAL] == _NOWHERE and n_left[c] > 0 and not is_settled[owners[c]]:  # l. 5
            cursor[LITERAL] = chain_starts[c]
        if cursor[LITERAL] != _NOWHERE:
            while cursor[LITERAL] < chain_starts[c + 1]:  # l. 7-8
                node = literals[cursor[LITERAL]] >> 1
                cursor[LITERAL] += 1
                if known[node] != NOT_EVALUATED:
                    continue
                for e in range(node_starts[node], node_starts[node + 1]):  # l. 9
                    other = node_chains[e] >> 1
                    if n_left[other] > 0 and not is_settled[owners[other]]:
                        return node
        cursor[CHAIN] += 1
        cursor[LITERAL] = _NOWHERE
        if n_left[c] == 0 and not is_settled[owners[c]]:
            return -2 - c
    return DONE


@kernel
def next_in_sequence(
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    owners: NDArray[np.int32],
    order: NDArray[np.int32],
    node_starts: NDArray[np.int64],
    node_chains: NDArray[np.int32],
    known: NDArray[np.int8],
    is_settled: NDArray[np.bool_],
    n_left: NDArray[np.int32],
    cursor: NDArray[np.int64],
    last: int,
) -> Any:
    """Do one step, for callers in Python."""
    return sequence_step(
        chain_starts, literals, owners, order, node_starts, node_chains, known, is_settled, n_left, cursor, last
    )


# Greedy. A chain is a row of `rows`: how many of its literals are open (-1 once it is decided), how many it has, its
# number, and the literals. So looking at a chain is one cache miss, not three.

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


@inline_kernel
def _bucket(node: Any, n_open: NDArray[np.int32], rates: NDArray[np.float64], key: NDArray[np.float64]) -> Any:
    """Return the bucket of a node: by how many chains a call is expected to decide for its cost.

    `key` is room for a double, to look at its bits.
    """
    asked, denied = 2 * node, 2 * node + 1
    key[0] = max(n_open[asked] * rates[asked] + n_open[denied] * rates[denied], _LEAST)
    return min(max((key.view(np.int64)[0] >> _STEP) - _FIRST_BUCKET, 0), N_BUCKETS - 1)


@inline_kernel
def _put(node: Any, bucket: Any, heads: NDArray[np.int32], following: NDArray[np.int32]) -> None:
    following[node] = heads[bucket]
    heads[bucket] = node


@kernel
def begin_greedy(
    rows: NDArray[np.int32],
    rates: NDArray[np.float64],
    n_open: NDArray[np.int32],
    key: NDArray[np.float64],
    heads: NDArray[np.int32],
    following: NDArray[np.int32],
    pending: NDArray[np.int32],
    cursor: NDArray[np.int64],
) -> None:
    """Put all nodes into buckets.

    `n_open` says how many open chains have a literal, `rates` how likely it fails them, for its cost.
    """
    row = 0
    while row < len(rows):
        if rows[row + OPEN] <= 1:
            pending[cursor[N_PENDING]] = row
            cursor[N_PENDING] += 1
        row += FIRST + rows[row + SIZE]
    heads[:] = _NOWHERE
    for node in range(len(following)):
        _put(node, _bucket(node, n_open, rates, key), heads, following)
    cursor[BUCKET] = N_BUCKETS - 1


@inline_kernel
def _close(row: Any, rows: NDArray[np.int32], n_open: NDArray[np.int32]) -> None:
    """Take away a chain that is decided."""
    for place in range(row + FIRST, row + FIRST + rows[row + SIZE]):
        n_open[rows[place]] -= 1
    rows[row + OPEN] = -1


@inline_kernel
def _close_settled(
    chain: Any,
    chain_starts: NDArray[np.int64],
    owners: NDArray[np.int32],
    rows: NDArray[np.int32],
    n_open: NDArray[np.int32],
) -> None:
    """Take away the other chains of an owner, which stand beside each other."""
    first = chain
    while first > 0 and owners[first - 1] == owners[chain]:
        first -= 1
    for c in range(first, len(owners)):
        if owners[c] != owners[chain]:
            break
        row = chain_starts[c] + FIRST * c
        if rows[row + OPEN] >= 0:
            _close(row, rows, n_open)


@inline_kernel
def greedy_step(
    chain_starts: NDArray[np.int64],
    owners: NDArray[np.int32],
    node_starts: NDArray[np.int64],
    node_rows: NDArray[np.int32],
    rates: NDArray[np.float64],
    known: NDArray[np.int8],
    is_settled: NDArray[np.bool_],
    rows: NDArray[np.int32],
    n_open: NDArray[np.int32],
    key: NDArray[np.float64],
    heads: NDArray[np.int32],
    following: NDArray[np.int32],
    pending: NDArray[np.int32],
    cursor: NDArray[np.int64],
    last: int,
) -> Any:
    """Take the node that decides most chains for its cost; `last` is the step before, DONE at first.

    The last open node of a chain must be evaluated in any case, so it comes at once. Gains only shrink as chains are
    decided: a node that is found in a bucket above its own is put down.
    """
    if last >= 0:
        n_open[2 * last] = n_open[2 * last + 1] = _GONE
        for e in range(node_starts[last], node_starts[last + 1]):
            row = node_rows[e] >> 1
            n_left = rows[row + OPEN]
            if n_left < 0:
                continue
            if known[last] != TRUE + (node_rows[e] & 1):
                _close(row, rows, n_open)
                continue
            rows[row + OPEN] = n_left - 1
            if n_left <= 2:
                pending[cursor[N_PENDING]] = row
                cursor[N_PENDING] += 1
    elif last != DONE and is_settled[owners[-2 - last]]:
        _close_settled(-2 - last, chain_starts, owners, rows, n_open)
    while cursor[N_PENDING] > 0:
        cursor[N_PENDING] -= 1
        row = pending[cursor[N_PENDING]]
        if rows[row + OPEN] == 0:
            _close(row, rows, n_open)
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
        heads[cursor[BUCKET]] = following[node]
        if n_open[2 * node] + n_open[2 * node + 1] <= 0:
            continue
        bucket = _bucket(node, n_open, rates, key)
        if bucket >= cursor[BUCKET]:
            return node
        _put(node, bucket, heads, following)
    return DONE


@kernel
def next_in_greedy(
    chain_starts: NDArray[np.int64],
    owners: NDArray[np.int32],
    node_starts: NDArray[np.int64],
    node_rows: NDArray[np.int32],
    rates: NDArray[np.float64],
    known: NDArray[np.int8],
    is_settled: NDArray[np.bool_],
    rows: NDArray[np.int32],
    n_open: NDArray[np.int32],
    key: NDArray[np.float64],
    heads: NDArray[np.int32],
    following: NDArray[np.int32],
    pending: NDArray[np.int32],
    cursor: NDArray[np.int64],
    last: int,
) -> Any:
    """Do one step, for callers in Python."""
    return greedy_step(
        chain_starts,
        owners,
        node_starts,
        node_rows,
        rates,
        known,
        is_settled,
        rows,
        n_open,
        key,
        heads,
        following,
        pending,
        cursor,
        last,
    )
