"""The problem of one event: the chains of call literals that it has to decide, in flat arrays.

subscription 0:  p0 and p1              chains       0        1        2
subscription 1:  p1 and not p2 or p3    literals     0 2      2 5      6         node * 2, + 1 if it must be false
owners       0        1        1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from siftline.kernels.problems import gathered, renumbered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Problem(NamedTuple):
    """The remaining chains of an event.

    Attributes
    ----------
    chains : int32[c]
        Their numbers among all chains of the engine.
    chain_starts : int64[c + 1]
    literals : int32[l]
        Node * 2, or node * 2 + 1 where the node must be false; nodes are numbered within the problem.
    owners : int32[c]
        Numbered within the problem.
    nodes : int32[n]
        Their numbers among all nodes of the engine.
    node_starts : int64[n + 1]
    node_chains : int32[l]
        Chain * 2, + 1 where the node must be false.
    n_open : int32[2 n]
        By literal: how many chains have it.
    """

    chains: NDArray[np.int32]
    chain_starts: NDArray[np.int64]
    literals: NDArray[np.int32]
    owners: NDArray[np.int32]
    nodes: NDArray[np.int32]
    node_starts: NDArray[np.int64]
    node_chains: NDArray[np.int32]
    n_open: NDArray[np.int32]

    @property
    def n_chains(self) -> int:
        """The number of chains."""
        return len(self.chains)

    @property
    def n_nodes(self) -> int:
        """The number of nodes."""
        return len(self.nodes)

    @property
    def n_owners(self) -> int:
        """The number of subscriptions."""
        return 1 + int(self.owners.max(initial=-1))


def problem_of(
    chains: NDArray[np.int32],
    owners: NDArray[np.int32],
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    n_nodes: int,
) -> Problem:
    """Return the problem of some chains and their owners; the other arguments describe all chains."""
    starts, asked = gathered(chains, chain_starts, literals)
    nodes, local, node_starts, node_chains = renumbered(starts, asked, n_nodes)
    n_open = np.bincount(local, minlength=2 * len(nodes)).astype(np.int32)
    return Problem(chains, starts, local, owners, nodes, node_starts, node_chains, n_open)


def problem_of_lists(subscriptions: Sequence[Sequence[Sequence[int]]]) -> Problem:
    """Return the problem of subscriptions as lists of chains of literals, for tests and simulations.

    >>> problem_of_lists([[[0, 2]], [[2, 5], [6]]]).node_chains.tolist()
    [0, 0, 2, 3, 4]
    """
    chains = [chain for subscription in subscriptions for chain in subscription]
    owners = np.repeat(np.arange(len(subscriptions)), [len(chains) for chains in subscriptions]).astype(np.int32)
    starts = np.cumsum([0, *map(len, chains)]).astype(np.int64)
    literals = np.array([literal for chain in chains for literal in chain], dtype=np.int32)
    n_nodes = int(literals.max(initial=-1)) // 2 + 1
    return problem_of(np.arange(len(chains), dtype=np.int32), owners, starts, literals, n_nodes)
