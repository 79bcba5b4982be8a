"""The simulation of schedules makes the calls that the schedules make."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_cases import SCHEDULES, conjunctions, problem_of, run, statistics_of, truths_of

from siftline_bench.schedule_simulation import calls_of, simulate


def test_adaptive_follows_drift() -> None:
    rng = np.random.default_rng(7)
    chains = [[int(node) for node in rng.choice(300, 4, replace=False)] for _ in range(600)]
    problem = problem_of(chains)
    before, after = rng.random(problem.n_nodes) ** 4, rng.random(problem.n_nodes) ** 4
    steady = rng.random((60, problem.n_nodes)) < before
    drifted = rng.random((120, problem.n_nodes)) < after
    statistics = statistics_of(problem, before)
    assert calls_of("adaptive", problem, steady, statistics) <= 1.02 * calls_of(
        "sub-order", problem, steady, statistics_of(problem, before)
    )
    adaptive = calls_of("adaptive", problem, drifted, statistics)
    assert adaptive <= 0.9 * calls_of("sub-order", problem, drifted, statistics_of(problem, before))


@settings(max_examples=40, deadline=None)
@given(chains=conjunctions, bits=st.integers(0, 63))
def test_simulations_make_the_same_calls(chains: list[list[int]], bits: int) -> None:
    problem = problem_of(chains)
    truths = truths_of(problem, bits)
    for name in SCHEDULES:
        expected = run(name, problem, truths, statistics_of(problem))
        simulation = simulate(name, problem, truths[None, :], statistics_of(problem))
        assert simulation.calls.tolist() == [len(expected)]
