"""The runner: ids before times, all indexes alike, refusals reported."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from siftline.errors import UnknownIndexError
from siftline.indexes import registry
from siftline.indexes.fast_scan.index import FastScan
from siftline_bench.checks import check_reference, check_same
from siftline_bench.errors import WrongIdsError
from siftline_bench.measure import MOST_PASSES, Passes, interleaved, time_each
from siftline_bench.results import rows_of
from siftline_bench.runner import Choice, Plan, run
from siftline_bench.workloads import Workload, generate

if TYPE_CHECKING:
    from siftline.indexes.protocol import Candidates

_FEW = Plan(n_passes=2, n_events={"scan": 3})


class Forgetful(FastScan):
    """Loses the last match."""

    def match(self, events: Any, position: int) -> Candidates:
        found = super().match(events, position)
        return found._replace(sure=found.sure[:-1])


class Picky(FastScan):
    """Takes nothing."""

    def build(self, batch: Any) -> None:
        raise NotImplementedError("no ranges")

    def add(self, batch: Any, domains: Any) -> None:
        raise NotImplementedError("no ranges")


@pytest.fixture
def workload() -> Workload:
    return generate("sparse", n_subscriptions=400, n_events=6, n_attributes=300, seed=2)


@pytest.fixture
def with_index(monkeypatch: pytest.MonkeyPatch) -> Any:
    def add(name: str, index: type) -> None:
        monkeypatch.setitem(registry._INDEXES, name, (index.__module__, index.__qualname__))

    return add


def test_all_indexes_see_the_same(workload: Workload) -> None:
    fast, scan = run(workload, [Choice("scan"), Choice("fast-scan")], _FEW)
    assert [fast.choice.index, scan.choice.index] == ["fast-scan", "scan"]
    assert fast.n_events == 6
    assert scan.n_events == 3
    assert fast.n_matches >= 12
    assert fast.passes is not None
    assert fast.passes.times_ns.shape == (2, 6)
    assert fast.ratio == 1.0
    assert scan.ratio is not None


@pytest.mark.parametrize("plan", [Plan(n_passes=2, as_slots=True), Plan(n_passes=2, is_batch=True)])
def test_other_modes(workload: Workload, plan: Plan) -> None:
    (fast,) = run(workload, [], plan)
    assert fast.mode in ("slots", "batch")
    assert fast.median_us > 0


def test_wrong_ids_fail_loudly(workload: Workload, with_index: Any) -> None:
    with_index("forgetful", Forgetful)
    with pytest.raises(
        WrongIdsError, match=r"forgetful and fast-scan disagree on event 0: none found only by forgetful"
    ):
        run(workload, [Choice("forgetful")], _FEW)


def test_a_wrong_reference_is_found_by_the_oracle(workload: Workload, with_index: Any) -> None:
    with_index("fast-scan", Forgetful)
    with pytest.raises(WrongIdsError, match="fast-scan and scan disagree"):
        run(workload, [], _FEW)


def test_invented_ids_are_found_by_the_oracle(workload: Workload) -> None:
    found = [frozenset({399})] * workload.n_events
    with pytest.raises(WrongIdsError, match="found only by fast-scan"):
        check_reference(workload, found, "fast-scan")


def test_the_same_ids_are_fine() -> None:
    check_same("one", [frozenset({1})], [frozenset({1}), frozenset({2})], "other")


def test_a_refusal_is_reported(workload: Workload, with_index: Any) -> None:
    with_index("picky", Picky)
    fast, picky = run(workload, [Choice("picky")], _FEW)
    assert fast.passes is not None
    assert picky.passes is None
    row = rows_of(workload, [picky], 2)[0]
    assert row["status"] == "unsupported"
    assert row["reason"] == "NotImplementedError: no ranges"


def test_an_unknown_index_is_a_mistake(workload: Workload) -> None:
    with pytest.raises(UnknownIndexError, match="there is no index 'shift'"):
        run(workload, [Choice("shift")], _FEW)


def test_choices_are_text_both_ways() -> None:
    choice = Choice.parse('op-index:segments=0,kind="x"')
    assert choice == Choice("op-index", {"segments": 0, "kind": "x"})
    assert Choice.parse(choice.label) == choice
    assert Choice.parse("k-index:kind=x").options == {"kind": "x"}


def test_passes_are_interleaved() -> None:
    order: list[str] = []

    def work(name: str) -> Any:
        def one_pass() -> Any:
            order.append(name)
            return np.array([1, 2])

        return one_pass

    first, _ = interleaved([work("a"), work("b")], 3)
    assert order == ["a", "b"] * 3
    assert first.times_ns.shape == (3, 2)


def test_quick_works_go_round_until_the_time_is_over() -> None:
    def one_pass() -> Any:
        time.sleep(0.002)
        return np.array([1])

    (some,) = interleaved([one_pass], 2, least_s=1.0)
    assert 2 < len(some.times_ns) <= MOST_PASSES
    (most,) = interleaved([lambda: np.array([1])], 2, least_s=60)
    assert len(most.times_ns) == MOST_PASSES


def test_an_interrupted_event_does_not_count_for_its_own_cost() -> None:
    times = np.array([[1_000, 2_000], [1_000, 900_000], [1_000, 2_000]])
    passes = Passes(times, 1.0)
    assert passes.per_event_us().max == 2.0
    assert passes.all_us().max == 900.0
    assert passes.pass_medians_us() == [1.5, 450.5, 1.5]


def test_time_each_times_each() -> None:
    seen: list[int] = []
    assert time_each(seen.append, [3, 4]).shape == (2,)
    assert seen == [3, 4]
