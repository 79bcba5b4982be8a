"""Whole events by one schedule, where the truths of all nodes are known beforehand: for simulations and tests.

Each run writes into `known` what it evaluated, and returns the number of calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import kernel
from siftline.kernels.schedules import (
    CURSOR_SIZE,
    DONE,
    FALSE,
    N_BUCKETS,
    TRUE,
    GreedyRun,
    SequenceRun,
    WalkRun,
    greedy_step,
    sequence_step,
    start_greedy,
    start_sequence,
    walk_step,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def run_without_memo(
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    order: NDArray[np.int32],
    truths: NDArray[np.bool_],
    known: NDArray[np.int8],
) -> Any:
    """Count calls chain by chain, each until its first literal that does not hold, and nothing is remembered."""
    n = 0
    for c in order:
        for place in range(chain_starts[c], chain_starts[c + 1]):
            literal = literals[place]
            n += 1
            known[literal >> 1] = TRUE if truths[literal >> 1] else FALSE
            if truths[literal >> 1] == (literal & 1 == 1):
                break
    return n


@kernel
def run_walk(
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    owners: NDArray[np.int32],
    order: NDArray[np.int32],
    truths: NDArray[np.bool_],
    known: NDArray[np.int8],
    is_settled: NDArray[np.bool_],
    looks_ahead: bool,
) -> Any:
    """Run `next_in_walk` to its end."""
    cursor = np.zeros(CURSOR_SIZE, dtype=np.int64)
    run = WalkRun(chain_starts, literals, owners, order, known, is_settled, cursor)
    n = 0
    while True:
        step = walk_step(run, looks_ahead)
        if step == DONE:
            return n
        if step >= 0:
            known[step] = TRUE if truths[step] else FALSE
            n += 1
        else:
            is_settled[owners[-2 - step]] = True


@kernel
def run_sequence(
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    owners: NDArray[np.int32],
    order: NDArray[np.int32],
    node_starts: NDArray[np.int64],
    node_chains: NDArray[np.int32],
    truths: NDArray[np.bool_],
    known: NDArray[np.int8],
    is_settled: NDArray[np.bool_],
) -> Any:
    """Run `next_in_sequence` to its end."""
    cursor = np.zeros(CURSOR_SIZE, dtype=np.int64)
    n_left = np.empty(len(owners), dtype=np.int32)
    run = SequenceRun(
        chain_starts, literals, owners, order, node_starts, node_chains, known, is_settled, n_left, cursor
    )
    start_sequence(run)
    n, step = 0, DONE
    while True:
        step = sequence_step(run, step)
        if step == DONE:
            return n
        if step >= 0:
            known[step] = TRUE if truths[step] else FALSE
            n += 1
        else:
            is_settled[owners[-2 - step]] = True


@kernel
def run_greedy(
    chain_starts: NDArray[np.int64],
    owners: NDArray[np.int32],
    node_starts: NDArray[np.int64],
    node_rows: NDArray[np.int32],
    rates: NDArray[np.float64],
    rows: NDArray[np.int32],
    n_open: NDArray[np.int32],
    truths: NDArray[np.bool_],
    known: NDArray[np.int8],
    is_settled: NDArray[np.bool_],
) -> Any:
    """Run `next_in_greedy` to its end; `rows` and `n_open` are used up."""
    cursor = np.zeros(CURSOR_SIZE, dtype=np.int64)
    key = np.empty(1, dtype=np.float64)
    heads = np.empty(N_BUCKETS, dtype=np.int32)
    following = np.empty(len(known), dtype=np.int32)
    pending = np.empty(2 * len(owners), dtype=np.int32)
    run = GreedyRun(
        chain_starts, owners, node_starts, node_rows, rates, known, is_settled,
        rows, n_open, key, heads, following, pending, cursor,
    )  # fmt: skip
    start_greedy(run)
    n, step = 0, DONE
    while True:
        step = greedy_step(run, step)
        if step == DONE:
            return n
        if step >= 0:
            known[step] = TRUE if truths[step] else FALSE
            n += 1
        else:
            is_settled[owners[-2 - step]] = True
