"""The schedules on their own: bounds against the true optimum, the paper's figures, formulas against enumeration."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_cases import SCHEDULES, conjunctions, problem_of, run, statistics_of, truths_of

from siftline.errors import OperatorError
from siftline.kernels.chain_order import differences_of
from siftline.operators.adaptive import Greedy, chain_rows, rates_of
from siftline.operators.call_statistics import CallStatistics
from siftline.operators.problem import Problem, problem_of_lists
from siftline.operators.schedules import check_schedule, schedules
from siftline.operators.sub_order import SubOrder, likelihoods, sorted_chains


def optimum(problem: Problem, truths: Any, costs: Any) -> float:
    """Return the least cost of nodes that decide all subscriptions, by trying all sets of nodes."""
    chains = [part.tolist() for part in np.split(problem.literals >> 1, problem.chain_starts[1:-1])]
    best = float("inf")
    for chosen in itertools.product([False, True], repeat=problem.n_nodes):
        if all(
            all(chosen[node] for node in chain)
            if all(truths[node] for node in chain)
            else any(chosen[node] and not truths[node] for node in chain)
            for chain in chains
        ):
            best = min(best, sum(cost for cost, is_chosen in zip(costs, chosen, strict=True) if is_chosen))
    return best


@settings(max_examples=150, deadline=None)
@given(chains=conjunctions, bits=st.integers(0, 63), costs=st.lists(st.integers(1, 4), min_size=6, max_size=6))
def test_sequential_is_bounded(chains: list[list[int]], bits: int, costs: list[int]) -> None:
    problem = problem_of(chains)
    truths = truths_of(problem, bits)
    here = [costs[node] for node in problem.nodes]
    evaluated = run("sequential", problem, truths, statistics_of(problem))
    d = max(map(len, chains))
    assert len(set(evaluated)) == len(evaluated)
    assert len(evaluated) <= d * optimum(problem, truths, [1] * len(here))
    cost = sum(here[node] for node in evaluated)
    assert cost <= d * max(here) / min(here) * optimum(problem, truths, here)


@settings(max_examples=100, deadline=None)
@given(chains=conjunctions, bits=st.integers(0, 63))
def test_no_schedule_beats_the_optimum_or_repeats_itself(chains: list[list[int]], bits: int) -> None:
    problem = problem_of(chains)
    truths = truths_of(problem, bits)
    least = optimum(problem, truths, [1] * problem.n_nodes)
    counts = {name: len(run(name, problem, truths, statistics_of(problem))) for name in SCHEDULES}
    assert all(count >= least for count in counts.values())
    assert counts["naive"] <= counts["naive-no-memo"]
    assert max(counts["adaptive"], counts["sub-order"], counts["sequential"]) <= problem.n_nodes


def test_stopping_at_the_first_false_would_break_the_bound() -> None:
    # One predicate that all share decides everything; each subscription has a false one of its own before it.
    problem = problem_of([[1 + i, 0] for i in range(5)])
    truths = np.zeros(problem.n_nodes, dtype=np.bool_)
    statistics = statistics_of(problem)
    assert len(run("sequential", problem, truths, statistics)) == 2
    assert len(run("naive", problem, truths, statistics)) == 5


def test_figure_2() -> None:
    # S1 = {P1, P2}, S2 = {P2, P3}, S3 = {P3, P4}; the algorithm takes S2 first.
    problem = problem_of_lists([[[2, 4]], [[0, 2]], [[4, 6]]])  # nodes P1 = 0, P2 = 1, P3 = 2, P4 = 3; S2, S1, S3
    truths = np.array([True, False, True, True])
    evaluated = run("sequential", problem, truths, statistics_of(problem))
    assert evaluated == [1, 2, 3]  # P2 decides S1 and S2, P3 is evaluated for S3, P1 never


def figure_3(share_bronx: float) -> tuple[Problem, CallStatistics]:
    bronx, chase, mob, congestion, pedestrians, within, accident, police = range(8)
    chains = [[chase, bronx], [mob, bronx], [within, pedestrians, congestion], [bronx, congestion, accident, police]]
    problem = problem_of(chains)
    shares = [share_bronx] + [0.5] * 7
    shares[congestion] = 0.4
    return problem, statistics_of(problem, shares)


def test_figure_3() -> None:
    problem, statistics = figure_3(0.1)
    schedule = SubOrder(statistics)
    for chain, literals in enumerate(np.split(problem.literals, problem.chain_starts[1:-1])):
        schedule.add(chain, literals)
    order = schedule.order()
    assert order.index(2) < order.index(3)  # `congestion` is at the top of chain 3 and below `loc_in` in chain 4
    tops = [schedule._literals_of(chain)[0] >> 1 for chain in range(4)]
    assert tops == [0, 0, 3, 0]  # the least likely first
    # Outside of the Bronx, the first false node takes chains 1, 2 and 4 away.
    evaluated = run("sub-order", problem, np.array([False] + [True] * 7), statistics)
    assert sorted(evaluated) == [0, 3, 4, 5]


def expected_cost(order: list[list[int]], shares: Any, costs: Any) -> float:
    """Return what walking along two sorted chains costs on average, by enumerating all truths."""
    nodes = sorted({node for chain in order for node in chain})
    total = 0.0
    for outcome in itertools.product([True, False], repeat=len(nodes)):
        truth = dict(zip(nodes, outcome, strict=True))
        likelihood = np.prod([shares[node] if truth[node] else 1 - shares[node] for node in nodes])
        known: dict[int, bool] = {}
        for chain in order:
            if any(known.get(node) is False for node in chain):
                continue
            for node in chain:
                if node not in known:
                    known[node] = truth[node]
                    total += likelihood * costs[node]
                if not known[node]:
                    break
    return total


@settings(max_examples=100, deadline=None)
@given(
    one=st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True),
    two=st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True),
    shares=st.lists(st.sampled_from([0.1, 0.3, 0.5, 0.9]), min_size=6, max_size=6),
    costs=st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=6, max_size=6),
)
def test_cost_difference_is_what_enumeration_gives(one: Any, two: Any, shares: Any, costs: Any) -> None:
    holding = np.repeat(np.array(shares), 2)
    holding[1::2] = 1 - holding[1::2]
    known = likelihoods(holding, np.array(costs))
    starts = np.array([0, len(one), len(one) + len(two)])
    literals = np.array([2 * node for node in one + two], dtype=np.int32)
    literals = sorted_chains(starts, literals, known.keys[literals])
    found = differences_of(0, np.array([1], dtype=np.int32), starts, literals, known.keys, holding, known.costs)
    chains = [(part >> 1).tolist() for part in np.split(literals, starts[1:-1])]
    expected = expected_cost(chains, shares, costs) - expected_cost(chains[::-1], shares, costs)
    assert found[0] == pytest.approx(expected, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_order_follows_additions_and_removals(data: Any) -> None:
    shares = data.draw(st.lists(st.sampled_from([0.1, 0.5, 0.8]), min_size=6, max_size=6))
    statistics = CallStatistics()
    for node, share in enumerate(shares):
        statistics.add(f"operator {node}", 1.0, share)
    schedule = SubOrder(statistics)
    live: list[int] = []
    n = 0
    for _ in range(data.draw(st.integers(1, 15))):
        if live and data.draw(st.booleans()):
            schedule.remove(live.pop(data.draw(st.integers(0, len(live) - 1))))
        else:
            nodes = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True))
            schedule.add(n, np.array([2 * node for node in nodes], dtype=np.int32))
            live.append(n)
            n += 1
        if data.draw(st.booleans()):
            schedule._check()
            assert sorted(schedule.order()) == sorted(live)


def test_an_added_chain_comes_before_the_one_that_it_helps() -> None:
    statistics = CallStatistics()
    for node, share in enumerate([0.1, 0.4, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]):
        statistics.add(f"operator {node}", 1.0, share)
    schedule = SubOrder(statistics)
    for chain, nodes in enumerate([[4, 5], [6, 7], [0, 1], [8, 9], [5, 8]]):
        schedule.add(chain, np.array([2 * node for node in nodes], dtype=np.int32))
    before = schedule.order()
    schedule.add(5, np.array([2, 4], dtype=np.int32))  # has node 1 at its top, chain 2 below node 0
    after = schedule.order()
    assert [chain for chain in after if chain != 5] == before
    assert after.index(5) == after.index(2) - 1


def test_adaptive_takes_the_node_that_decides_most() -> None:
    problem = problem_of([[0, 1], [0, 2], [0, 3], [4, 5]])
    greedy = Greedy(chain_rows(problem), rates_of(np.full(12, 0.5), np.ones(6)))
    assert greedy.next(-1) == 0
    costly = Greedy(chain_rows(problem), rates_of(np.full(12, 0.5), np.array([10.0, 1, 1, 1, 1, 1])))
    assert costly.next(-1) != 0


def test_unknown_schedules_are_refused() -> None:
    assert "adaptive" in schedules()
    with pytest.raises(OperatorError, match="did you mean 'sub-order'"):
        check_schedule("suborder")
