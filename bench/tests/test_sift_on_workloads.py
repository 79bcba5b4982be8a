"""`sift` finds what a scan finds on drawn workloads."""

from __future__ import annotations

import pytest

from siftline import Engine
from siftline_bench.workloads import generate


@pytest.mark.parametrize("name", ["dense", "sparse", "zipf", "equality"])
def test_workloads(name: str) -> None:
    workload = generate(name, n_subscriptions=3000, n_events=30, seed=5)
    engine, reference = Engine("sift"), Engine("fast-scan")
    for each in (engine, reference):
        each.add_many(workload.predicates)
    engine._check()
    for event in workload.dicts:
        assert sorted(engine.match(event)) == sorted(reference.match(event))
