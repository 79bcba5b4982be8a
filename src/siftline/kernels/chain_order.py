"""The order of chains of `sub-order`: pairwise cost differences, and the greedy choice among them (4.2.4, 4.2.5).

Literals of all chains are in one global order, by `keys` and then by number, so that links never cross.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A literal of more chains than this is popular: its chains are compared with their neighbours by P / C alone.
POPULAR = 8
# Smaller differences are rounding errors.
_NOTHING = 1e-12


@inline_kernel
def cost_difference(
    one: Any,
    two: Any,
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    keys: NDArray[np.float64],
    holding: NDArray[np.float64],
    costs: NDArray[np.float64],
) -> Any:
    """Return C1 - C2: how much more it costs to evaluate chain `one` first than chain `two`.

    This is the sum over shared literals of (1 - p) * (P2 * C1' - P1 * C2'). P is the probability that all literals
    above hold, C' the expected cost of those above that are not shared.
    """
    x, x_end = chain_starts[one], chain_starts[one + 1]
    y, y_end = chain_starts[two], chain_starts[two + 1]
    p1, p2 = 1.0, 1.0
    reached1, reached2 = 1.0, 1.0  # as P, without shared literals
    c1, c2 = 0.0, 0.0
    difference = 0.0
    while x < x_end and y < y_end:
        left, right = literals[x], literals[y]
        if left == right:
            p = holding[left]
            difference += (1.0 - p) * (p2 * c1 - p1 * c2)
            p1 *= p
            p2 *= p
            x += 1
            y += 1
        elif keys[left] < keys[right] or (keys[left] == keys[right] and left < right):
            c1 += reached1 * costs[left >> 1]
            reached1 *= holding[left]
            p1 *= holding[left]
            x += 1
        else:
            c2 += reached2 * costs[right >> 1]
            reached2 *= holding[right]
            p2 *= holding[right]
            y += 1
    return difference


@kernel
def differences_of(
    chain: int,
    others: NDArray[np.int32],
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    keys: NDArray[np.float64],
    holding: NDArray[np.float64],
    costs: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the cost difference of one chain and each of some others."""
    found = np.empty(len(others), dtype=np.float64)
    for i in range(len(others)):
        found[i] = cost_difference(chain, others[i], chain_starts, literals, keys, holding, costs)
    return found


@kernel
def ratios(
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    holding: NDArray[np.float64],
    costs: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return P / C for each literal of each chain: the probability of reaching it, divided by the cost."""
    found = np.empty(len(literals), dtype=np.float64)
    for c in range(len(chain_starts) - 1):
        p, cost = 1.0, 0.0
        for place in range(chain_starts[c], chain_starts[c + 1]):
            found[place] = p / cost if cost > 0.0 else np.inf
            cost += p * costs[literals[place] >> 1]
            p *= holding[literals[place]]
    return found


@inline_kernel
def _count_pairs(n: Any) -> Any:
    return n * (n - 1) // 2 if n <= POPULAR else n - 1


@kernel
def weighted_pairs(
    chain_starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    keys: NDArray[np.float64],
    holding: NDArray[np.float64],
    costs: NDArray[np.float64],
    sharing_starts: NDArray[np.int64],
    sharing: NDArray[np.int32],
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
    """Return the savings of pairs of chains that share a literal, and which of the two comes first, which second.

    `sharing` has the chains of each literal by falling P / C; of a popular literal, only neighbours are compared.
    """
    n = 0
    for literal in range(len(sharing_starts) - 1):
        n += _count_pairs(sharing_starts[literal + 1] - sharing_starts[literal])
    savings = np.empty(n, dtype=np.float64)
    firsts = np.empty(n, dtype=np.int32)
    seconds = np.empty(n, dtype=np.int32)
    n = 0
    for literal in range(len(sharing_starts) - 1):
        start, end = sharing_starts[literal], sharing_starts[literal + 1]
        reach = end if end - start <= POPULAR else 2
        for i in range(start, end):
            for j in range(i + 1, min(end, i + reach)):
                one, two = sharing[i], sharing[j]
                saving = cost_difference(one, two, chain_starts, literals, keys, holding, costs)
                if abs(saving) > _NOTHING:
                    savings[n] = abs(saving)
                    firsts[n] = two if saving > 0.0 else one
                    seconds[n] = one if saving > 0.0 else two
                    n += 1
    return savings[:n], firsts[:n], seconds[:n]


@inline_kernel
def _root(parents: NDArray[np.int32], node: Any) -> Any:
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@kernel
def linked(
    firsts: NDArray[np.int32], seconds: NDArray[np.int32], by_saving: NDArray[np.int64], n_chains: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Choose pairs by falling saving: each chain has one before and one after it at most, and there is no cycle.

    Returns the chain after and before each, -1 for none.
    """
    after = np.full(n_chains, -1, dtype=np.int32)
    before = np.full(n_chains, -1, dtype=np.int32)
    parents = np.arange(n_chains).astype(np.int32)
    for e in by_saving:
        first, second = firsts[e], seconds[e]
        if after[first] != -1 or before[second] != -1:
            continue
        one, two = _root(parents, first), _root(parents, second)
        if one != two:
            parents[one] = two
            after[first] = second
            before[second] = first
    return after, before


@kernel
def laid_in_line(heads: NDArray[np.int64], after: NDArray[np.int32], n_chains: int) -> NDArray[np.int32]:
    """Return all chains, path by path, from the heads of the paths on."""
    order = np.empty(n_chains, dtype=np.int32)
    n = 0
    for head in heads:
        chain = head
        while chain != -1:
            order[n] = chain
            n += 1
            chain = after[chain]
    return order
