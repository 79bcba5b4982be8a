"""Subscriptions over call predicates, and what a schedule evaluates of them; for the tests of both distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from siftline.operators.call_statistics import CallStatistics
from siftline.operators.problem import Problem, problem_of_lists
from siftline.operators.schedules import make_schedule

SCHEDULES = ["naive", "naive-no-memo", "sequential", "sub-order", "adaptive"]

conjunctions = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True), min_size=1, max_size=6)


def problem_of(chains: list[list[int]]) -> Problem:
    return problem_of_lists([[[2 * node for node in chain]] for chain in chains])


def truths_of(problem: Problem, bits: int) -> np.ndarray[Any, Any]:
    return np.array([bits >> int(node) & 1 for node in problem.nodes], dtype=np.bool_)


def statistics_of(problem: Problem, shares: Any = None, costs: Any = None) -> CallStatistics:
    statistics = CallStatistics()
    for node in range(int(problem.nodes.max(initial=-1)) + 1):
        cost = 1.0 if costs is None else float(costs[node])
        statistics.add(f"operator {node}", cost, None if shares is None else float(shares[node]))
    return statistics


def run(schedule: str, problem: Problem, truths: Any, statistics: CallStatistics) -> list[int]:
    """Return the nodes that a schedule evaluates, in order."""
    made = make_schedule(schedule, statistics)
    starts = problem.chain_starts
    for chain in range(problem.n_chains):
        literals = problem.literals[starts[chain] : starts[chain + 1]]
        made.add(chain, 2 * problem.nodes[literals >> 1] + (literals & 1))
    going = made.begin(problem)
    evaluated = []
    step = -1
    while (step := going.next(step)) != -1:
        if step >= 0:
            evaluated.append(step)
            going.known[step] = 1 if truths[step] else 2
        else:
            going.is_settled[problem.owners[-2 - step]] = True
    expected = [bool(truths[part >> 1].all()) for part in np.split(problem.literals, starts[1:-1])]
    assert going.is_settled.tolist() == expected
    return evaluated
