"""Schedules: the order in which the calls of an event are made. The ids do not depend on it.

    naive           subscription by subscription, each until its first false call; each call is made once
    naive-no-memo   the same, but calls are repeated for each subscription
    sequential      naive, but continues with the calls of a subscription as long as others need them
    sub-order       calls of a subscription by rising probability, subscriptions by pairwise cost differences
    adaptive        next comes the call that is expected to decide most subscriptions for its cost

`everything` is the oracle, not a schedule: it makes every call and tries every substitution.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from siftline.errors import OperatorError
from siftline.kernels.pointers import empty_handle
from siftline.kernels.schedules import (
    CURSOR_SIZE,
    DONE,
    TRUE,
    SequenceRun,
    WalkRun,
    next_in_sequence,
    next_in_walk,
    sequence_beginner,
    walk_beginner,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from siftline.operators.call_statistics import CallStatistics
    from siftline.operators.problem import Problem

EVERYTHING: Final = "everything"
DEFAULT: Final = "adaptive"


class Run(Protocol):
    """The run of a schedule for one event; `kernels/schedules.py` defines its steps."""

    known: NDArray[np.int8]
    is_settled: NDArray[np.bool_]

    def next(self, last: int) -> int:
        """Return the next step, after `last`."""


class Schedule(Protocol):
    """A way to order calls; it may keep data about the chains of an engine."""

    remembers: bool  # whether each call of an event is made once

    def add(self, chain: int, literals: NDArray[np.int32]) -> None:
        """Add the next chain."""

    def remove(self, chain: int) -> None:
        """Remove a chain."""

    def rebuild(self) -> None:
        """Compute what is kept again, from the current statistics."""

    def begin(self, problem: Problem) -> Run:
        """Return the run of an event over its remaining chains."""


class KeepsNothing:
    """The methods of a schedule that keeps nothing about the chains of an engine."""

    def add(self, chain: int, literals: NDArray[np.int32]) -> None:
        """Keep nothing."""

    def remove(self, chain: int) -> None:
        """Keep nothing."""

    def rebuild(self) -> None:
        """Keep nothing."""


class Naive(KeepsNothing):
    """Paper: expensive operators, 5.2. Subscriptions and their calls in the order in which they were added."""

    def __init__(self, *, remembers: bool) -> None:
        self.remembers = remembers

    def begin(self, problem: Problem) -> Run:
        """Go from chain to chain."""
        if not self.remembers:
            return _Forgetful(problem)
        order = np.arange(problem.n_chains, dtype=np.int32)
        return Walk(problem, problem.literals, order, looks_ahead=False)


class _Forgetful:
    """Evaluates the literals of each chain again, until the first that does not hold."""

    def __init__(self, problem: Problem) -> None:
        self.known = np.zeros(problem.n_nodes, dtype=np.int8)
        self.is_settled = np.zeros(problem.n_owners, dtype=np.bool_)
        self._owners = problem.owners.tolist()
        self._chains = [part.tolist() for part in np.split(problem.literals, problem.chain_starts[1:-1])]
        self._chain = self._place = 0

    def next(self, last: int) -> int:
        """Return the next step."""
        if last >= 0:
            literal = self._chains[self._chain][self._place]
            if self.known[last] == TRUE + (literal & 1):
                self._place += 1
            else:
                self._chain, self._place = self._chain + 1, 0
        while self._chain < len(self._owners):
            if self._place < len(self._chains[self._chain]) and not self.is_settled[self._owners[self._chain]]:
                return int(self._chains[self._chain][self._place]) >> 1
            self._chain, self._place = self._chain + 1, 0
            if not self.is_settled[self._owners[self._chain - 1]]:
                return -2 - (self._chain - 1)
        return DONE


class Walk:
    """Goes through chains in an order, each until its first literal that does not hold."""

    def __init__(
        self, problem: Problem, literals: NDArray[np.int32], order: NDArray[np.int32], *, looks_ahead: bool
    ) -> None:
        self.known = np.zeros(problem.n_nodes, dtype=np.int8)
        self.is_settled = np.zeros(problem.n_owners, dtype=np.bool_)
        self._run = WalkRun(
            chain_starts=problem.chain_starts,
            literals=literals,
            owners=problem.owners,
            order=order,
            known=self.known,
            is_settled=self.is_settled,
            cursor=np.zeros(CURSOR_SIZE, dtype=np.int64),
        )
        self._handle = empty_handle(self._run)
        self._looks_ahead = looks_ahead
        walk_beginner()(self._run, self._handle)

    def next(self, last: int) -> int:
        """Return the next step; `known` has the result of the last one."""
        return int(next_in_walk(self._handle, self._looks_ahead))


class Sequential(KeepsNothing):
    """Paper: expensive operators, Algorithm 1.

    Idea: take any undecided subscription, and make all its calls, even after one was false, as long as some undecided
    subscription has them (line 9). Each subscription taken has at least one call that no schedule can avoid. So there
    are at most d times as many calls as in the optimum, where d is the largest number of calls of a subscription; with
    unequal costs, at most d * Cmax / Cmin times its cost.

    Departures. D1: subscriptions and their calls are taken in the order in which they were added; any order is allowed.
    """

    remembers = True

    def begin(self, problem: Problem) -> Run:
        """Start with the first subscription."""
        return _Sequence(problem)


class _Sequence:
    def __init__(self, problem: Problem) -> None:
        self.known = np.zeros(problem.n_nodes, dtype=np.int8)
        self.is_settled = np.zeros(problem.n_owners, dtype=np.bool_)
        self._run = SequenceRun(
            chain_starts=problem.chain_starts,
            literals=problem.literals,
            owners=problem.owners,
            order=np.arange(problem.n_chains, dtype=np.int32),
            node_starts=problem.node_starts,
            node_chains=problem.node_chains,
            known=self.known,
            is_settled=self.is_settled,
            n_left=np.empty(problem.n_chains, dtype=np.int32),
            cursor=np.zeros(CURSOR_SIZE, dtype=np.int64),
        )
        self._handle = empty_handle(self._run)
        sequence_beginner()(self._run, self._handle)

    def next(self, last: int) -> int:
        """Return the next step."""
        return int(next_in_sequence(self._handle, last))


def _sub_order(statistics: CallStatistics) -> Schedule:
    from siftline.operators.sub_order import SubOrder

    return SubOrder(statistics)


def _adaptive(statistics: CallStatistics) -> Schedule:
    from siftline.operators.adaptive import Adaptive

    return Adaptive(statistics)


_SCHEDULES: Final[dict[str, Callable[[CallStatistics], Schedule]]] = {
    "naive": lambda _: Naive(remembers=True),
    "naive-no-memo": lambda _: Naive(remembers=False),
    "sequential": lambda _: Sequential(),
    "sub-order": _sub_order,
    "adaptive": _adaptive,
}


def schedules() -> list[str]:
    """Return the names of all schedules."""
    return [*_SCHEDULES, EVERYTHING]


def check_schedule(name: Any) -> None:
    """Raise OperatorError unless there is such a schedule."""
    if name not in schedules():
        close = difflib.get_close_matches(str(name), schedules(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(schedules())}"
        raise OperatorError(f"there is no schedule {name!r}: {hint}")


def make_schedule(name: str, statistics: CallStatistics) -> Schedule:
    """Return a new schedule; `everything` needs none, and gets the simplest."""
    return _SCHEDULES.get(name, _SCHEDULES["naive"])(statistics)
