"""Collecting the remaining chains of an event from those of all subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from siftline.kernels.compiler import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def gathered(
    chains: NDArray[np.int32], chain_starts: NDArray[np.int64], literals: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return where each of some chains starts, and their literals, one chain after the other."""
    starts = np.zeros(len(chains) + 1, dtype=np.int64)
    for i in range(len(chains)):
        starts[i + 1] = starts[i] + chain_starts[chains[i] + 1] - chain_starts[chains[i]]
    found = np.empty(starts[-1], dtype=np.int32)
    for i in range(len(chains)):
        first = chain_starts[chains[i]]
        for k in range(starts[i + 1] - starts[i]):
            found[starts[i] + k] = literals[first + k]
    return starts, found


@kernel
def renumbered(
    starts: NDArray[np.int64], literals: NDArray[np.int32], n_nodes: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Give the nodes that occur new numbers, from 0 on, ascending.

    Returns the nodes, the literals by new numbers, and the chains of each (chain * 2 + whether it must be false).
    """
    counts = np.zeros(n_nodes, dtype=np.int64)
    for literal in literals:
        counts[literal >> 1] += 1
    n = 0
    for node in range(n_nodes):
        n += counts[node] > 0
    nodes = np.empty(n, dtype=np.int32)
    node_starts = np.zeros(n + 1, dtype=np.int64)
    numbers = np.empty(n_nodes, dtype=np.int32)
    n = 0
    for node in range(n_nodes):
        if counts[node] > 0:
            nodes[n], numbers[node] = node, n
            node_starts[n + 1] = node_starts[n] + counts[node]
            n += 1
    local = np.empty(len(literals), dtype=np.int32)
    node_chains = np.empty(len(literals), dtype=np.int32)
    ends = node_starts[:-1].copy()
    for c in range(len(starts) - 1):
        for place in range(starts[c], starts[c + 1]):
            number, sign = numbers[literals[place] >> 1], literals[place] & 1
            local[place] = 2 * number + sign
            node_chains[ends[number]] = 2 * c + sign
            ends[number] += 1
    return nodes, local, node_starts, node_chains
