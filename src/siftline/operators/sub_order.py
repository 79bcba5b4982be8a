"""`sub-order`: calls of a subscription by rising probability, subscriptions by pairwise cost differences.

Paper: expensive operators, 4.2 (linked chains), 4.3 (unequal costs).

Idea: a chain is evaluated from top to bottom until its first false node; results are shared along equivalence links.
Which of two linked chains should come first is a formula (`cost_difference`), and a greedy choice of pairs makes one
order of all chains.

Worked example, Fig. 3 with `loc_in('Bronx')` true for a tenth of the events and all else for half of them:

    1: loc_in('Bronx') > chase      2: loc_in('Bronx') > mob      4: loc_in('Bronx') > accident > congestion > police
                                                                  3: congestion > pedestrians > loc_within

Chains 1, 2 and 4 share their top node, so their order makes no difference to each other. 3 has `congestion` at its top
and 4 below two others: 3 comes first, because it reaches the shared node more surely and for less.

Arrays: labels (float64 by chain, its place in the order), before and after (its neighbours), keys (float64 by literal,
the global order of literals). Cost: pairs of chains that share an unpopular literal, sorted; an added chain is compared
with those that it shares a literal with.

Departures
D1  Pairs are chosen by falling absolute difference and directed by its sign, with one chain before and one after each
    at most; the paper sorts the wrong way and leaves them undirected.
D2  Literals are sorted by cost / (1 - probability), and costs multiply the cost terms of the formula; C' is 0 where
    nothing is above.
D3  A literal of more than `POPULAR` chains would make too many pairs. By the rule of 4.2.4 its chain with the highest
    P / C reaches it best: such chains come first of all, those of the literals that fail most chains before the others.
    Of the other chains of such a literal only neighbours by P / C are compared.
D4  The greedy choice leaves paths, whose order the paper does not define: they are sorted by how many chains their
    nodes fail.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.growable import Growable
from siftline.kernels.chain_order import POPULAR, differences_of, laid_in_line, linked, ratios, weighted_pairs
from siftline.operators.schedules import Walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.operators.call_statistics import CallStatistics
    from siftline.operators.problem import Problem

# The whole order is computed again if more than this share of the chains is new.
_NEW_SHARE: Final = 0.25
_NONE: Final = -1
# All labels are assigned again if two are closer than this.
_CLOSEST: Final = 1e-6


class Likelihoods(NamedTuple):
    """What chains are ordered by: probabilities of literals, costs of nodes, and the sort keys of literals."""

    holding: NDArray[np.float64]
    costs: NDArray[np.float64]
    keys: NDArray[np.float64]


def likelihoods(holding: NDArray[np.float64], costs: NDArray[np.float64]) -> Likelihoods:
    """Return likelihoods from the probabilities of literals and the costs of nodes."""
    with np.errstate(divide="ignore"):
        keys = np.repeat(costs, 2) / (1.0 - holding)
    return Likelihoods(holding, costs, keys)


def sorted_chains(
    chain_starts: NDArray[np.int64], literals: NDArray[np.int32], keys: NDArray[np.float64]
) -> NDArray[np.int32]:
    """Return the literals with those of each chain in the global order; `keys` has the key of each literal given."""
    return literals[np.lexsort((literals, keys, _chains_of(chain_starts)))]


def _chains_of(chain_starts: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.repeat(np.arange(len(chain_starts) - 1, dtype=np.int32), np.diff(chain_starts))


def chain_order(chain_starts: NDArray[np.int64], literals: NDArray[np.int32], known: Likelihoods) -> NDArray[np.int32]:
    """Return the order of chains whose literals are sorted."""
    holding, costs, keys = known
    chains = _chains_of(chain_starts)
    reached = ratios(chain_starts, literals, holding, costs)
    by_literal = np.lexsort((-reached, literals))
    counts = np.bincount(literals, minlength=len(holding))
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    sharing = chains[by_literal]
    savings, firsts, seconds = weighted_pairs(chain_starts, literals, keys, holding, costs, starts, sharing)
    after, before = linked(firsts, seconds, np.argsort(-savings, kind="stable"), len(chain_starts) - 1)
    heads = np.flatnonzero(before == _NONE)
    line = laid_in_line(heads, after, len(before))
    failed = counts * (1.0 - holding)
    line = _by_paths(line, before, _scores(chain_starts, failed[literals] * np.minimum(reached, 1.0)))
    popular = np.flatnonzero(counts > POPULAR)
    leaders = sharing[starts[popular[np.argsort(-failed[popular], kind="stable")]]]
    return _distinct(np.concatenate([leaders, line]))


def _scores(chain_starts: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest value of each chain, 0 for one without literals."""
    found = np.zeros(len(chain_starts) - 1)
    np.maximum.at(found, _chains_of(chain_starts), values)
    return found


def _by_paths(line: NDArray[np.int32], before: NDArray[np.int32], scores: NDArray[np.float64]) -> NDArray[np.int32]:
    """Put the paths of a line in order, by falling mean score (D4)."""
    paths = np.cumsum(before[line] == _NONE) - 1
    means = np.bincount(paths, scores[line]) / np.bincount(paths) if len(line) else scores
    return line[np.argsort(-means[paths], kind="stable")]


def _distinct(chains: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return each chain where it comes first."""
    return chains[np.sort(np.unique(chains, return_index=True)[1])]


class SubOrder:
    """The order of an engine's chains."""

    remembers = True

    def __init__(self, statistics: CallStatistics) -> None:
        self._statistics = statistics
        self._starts = Growable(np.zeros(1, dtype=np.int64))
        self._literals = Growable.empty(np.int32)  # of each chain in the global order
        self._known = likelihoods(np.zeros(0), np.zeros(0))
        self._labels = Growable.empty(np.float64)
        self._after = Growable.empty(np.int32)
        self._before = Growable.empty(np.int32)
        self._last = _NONE
        self._members: dict[int, dict[int, None]] = {}  # the live chains of each literal
        self._live: dict[int, None] = {}
        self._new: list[int] = []  # chains that have no place yet
        self._version = 0
        self._prepared: tuple[Any, ...] = (None, -1, None, None)
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: part for name, part in self.__dict__.items() if name not in ("_lock", "_prepared")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock, self._prepared = threading.Lock(), (None, -1, None, None)

    def add(self, chain: int, literals: NDArray[np.int32]) -> None:
        """Add the next chain."""
        with self._lock:
            self._literals.extend(literals)
            self._starts.append(len(self._literals))
            for array, value in ((self._labels, 0.0), (self._after, _NONE), (self._before, _NONE)):
                array.append(value)
            for literal in literals.tolist():
                self._members.setdefault(literal, {})[chain] = None
            self._live[chain] = None
            self._new.append(chain)

    def remove(self, chain: int) -> None:
        """Remove a chain and its links; the others keep their order."""
        with self._lock:
            self._settle()
            del self._live[chain]
            for literal in self._literals_of(chain).tolist():
                del self._members[literal][chain]
            before, after = int(self._before.view[chain]), int(self._after.view[chain])
            if before != _NONE:
                self._after.set(before, after)
            if after != _NONE:
                self._before.set(after, before)
            else:
                self._last = before

    def order(self) -> list[int]:
        """Return all chains in order."""
        with self._lock:
            self._settle()
            return sorted(self._live, key=self._labels.view.__getitem__)

    def begin(self, problem: Problem) -> Walk:
        """Go through the remaining chains in order."""
        with self._lock:
            self._settle()
            if self._prepared[0] is not problem or self._prepared[1] != self._version:
                nodes = problem.nodes.astype(np.int64)
                keys = self._known.keys[2 * nodes[problem.literals >> 1] + (problem.literals & 1)]
                literals = sorted_chains(problem.chain_starts, problem.literals, keys)
                order = np.argsort(self._labels.view[problem.chains], kind="stable").astype(np.int32)
                self._prepared = (problem, self._version, literals, order)
            _, _, literals, order = self._prepared
        return Walk(problem, literals, order, looks_ahead=True)

    def _literals_of(self, chain: int) -> NDArray[np.int32]:
        start, end = self._starts.view[chain : chain + 2].tolist()
        return self._literals.view[start:end]

    # order

    def _settle(self) -> None:
        """Give new chains their places: insert a few one by one; for many, compute the whole order again."""
        if not self._new:
            return
        self._version += 1
        self._learn_new_nodes()
        if len(self._new) > max(1.0, _NEW_SHARE * len(self._live)):
            self._build()
        else:
            for chain in self._new:
                self._insert(chain)
        self._new = []

    def _learn_new_nodes(self) -> None:
        """Read the statistics of new nodes; those of other nodes stay the same, and so does their order."""
        n_known = len(self._known.costs)
        n = int(self._literals.view.max(initial=-1)) // 2 + 1
        nodes = np.arange(n_known, n, dtype=np.int32)
        if len(nodes):
            new = likelihoods(1.0 - self._statistics.failing(nodes), self._statistics.costs(nodes))
            self._known = Likelihoods(*(np.concatenate(pair) for pair in zip(self._known, new, strict=True)))

    def rebuild(self) -> None:
        """Compute the order again from the current statistics."""
        with self._lock:
            nodes = np.arange(len(self._known.costs), dtype=np.int32)
            self._known = likelihoods(1.0 - self._statistics.failing(nodes), self._statistics.costs(nodes))
            self._learn_new_nodes()
            self._build()
            self._new, self._version = [], self._version + 1

    def _build(self) -> None:
        literals = self._literals.view
        literals[:] = sorted_chains(self._starts.view, literals, self._known.keys[literals])
        order = chain_order(self._starts.view, literals, self._known)
        is_live = np.zeros(len(order), dtype=np.bool_)
        is_live[list(self._live)] = True
        order = order[is_live[order]]
        self._labels.view[order] = np.arange(len(order))
        self._after.view[order] = np.append(order[1:], _NONE)
        self._before.view[order] = np.append(_NONE, order[:-1])
        self._last = int(order[-1]) if len(order) else _NONE

    def _insert(self, chain: int) -> None:
        """Put a chain beside the one with the greatest cost difference, or at the end if there is none."""
        start, end = self._starts.view[chain : chain + 2].tolist()
        own = self._literals.view[start:end]
        own[:] = own[np.lexsort((own, self._known.keys[own]))]
        others = self._partners(chain, own)
        if len(others):
            holding, costs, keys = self._known
            differences = differences_of(chain, others, self._starts.view, self._literals.view, keys, holding, costs)
            best = int(np.argmax(np.abs(differences)))
            if differences[best] != 0.0:
                self._place(chain, int(others[best]), is_after=bool(differences[best] > 0.0))
                return
        self._place(chain, self._last, is_after=True)

    def _partners(self, chain: int, literals: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return chains that share a literal and have a place; for a popular literal only some."""
        unplaced = set(self._new[self._new.index(chain) :])
        found: dict[int, None] = {}
        for literal in literals.tolist():
            members = self._members[literal]
            some = list(members)[: POPULAR + len(unplaced)] if len(members) > POPULAR else members
            found.update((other, None) for other in some if other not in unplaced)
        return np.array(list(found), dtype=np.int32)

    def _place(self, chain: int, beside: int, *, is_after: bool) -> None:
        """Link a chain into the order right after or before another."""
        if beside == _NONE:
            self._labels.set(chain, 0.0)
            self._last = chain
            return
        before = beside if is_after else int(self._before.view[beside])
        after = int(self._after.view[beside]) if is_after else beside
        labels = self._labels.view
        low = labels[before] if before != _NONE else labels[after] - 2.0
        high = labels[after] if after != _NONE else labels[before] + 2.0
        labels[chain] = (low + high) / 2.0
        self._before.set(chain, before)
        self._after.set(chain, after)
        if before != _NONE:
            self._after.set(before, chain)
        if after != _NONE:
            self._before.set(after, chain)
        else:
            self._last = chain
        if high - low < _CLOSEST:
            self._relabel()

    def _relabel(self) -> None:
        """Assign all labels again, along the links."""
        chain, label = self._last, 0.0
        while chain != _NONE:
            self._labels.set(chain, label)
            chain, label = int(self._before.view[chain]), label - 1.0

    def _check(self) -> None:
        """Assert that links and labels agree."""
        order = self.order()
        after, before, labels = self._after.view, self._before.view, self._labels.view
        pairs = list(itertools.pairwise(order))
        assert all(after[one] == two and before[two] == one for one, two in pairs)
        assert all(labels[one] < labels[two] for one, two in pairs)
        if order:
            assert before[order[0]] == after[order[-1]] == _NONE
            assert self._last == order[-1]
