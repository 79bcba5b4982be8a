"""Workloads: the same for the same seed, as their parameters say, and the same after a round through Parquet."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import siftline
from siftline.errors import TableError
from siftline_bench.workloads import cached, generate, load, make_parameters, recipe, save, workloads
from siftline_bench.workloads.drawing import draw_distinct

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", workloads())
def test_the_seed_decides(name: str) -> None:
    one, same, other = (generate(name, n_subscriptions=200, n_events=5, seed=seed) for seed in (7, 7, 8))
    assert one.predicates.equals(same.predicates)
    assert one.values.equals(same.values)
    assert not one.predicates.equals(other.predicates)
    assert not one.values.equals(other.values)


@pytest.mark.parametrize("name", workloads())
def test_more_events_leave_the_subscriptions_alone(name: str) -> None:
    few, many = (generate(name, n_subscriptions=100, n_events=n) for n in (2, 20))
    assert few.predicates.equals(many.predicates)


@pytest.mark.parametrize("name", ["dense", "sparse", "equality", "zipf", "all-range"])
def test_tables_are_as_the_parameters_say(name: str) -> None:
    workload = generate(name, n_subscriptions=500, n_events=20)
    rows = workload.predicates.to_pandas()
    sizes = rows.groupby("subscription").size()
    assert len(sizes) == 500
    assert sizes.between(3, 7).all()
    assert not rows.duplicated(["subscription", "attribute"]).any()
    assert abs((rows["op"] == "=").mean() - workload.parameters.equal_share) < 0.05  # type: ignore[attr-defined]
    assert rows["upper"].notna().equals(rows["op"] == "between")
    assert (rows["upper"].dropna() >= rows["number"][rows["upper"].notna()]).all()
    assert all(len(event) == 30 for event in workload.dicts)
    assert rows["number"].between(0, 99).all()


def test_zipf_prefers_the_first_attributes() -> None:
    counts = generate("zipf", n_subscriptions=2_000).predicates.to_pandas()["attribute"].value_counts()
    assert counts["a0"] > 3 * counts["a9"] > 9 * counts["a99"] > 0


@pytest.mark.parametrize(
    ("name", "n_planted"),
    [("sparse", 2), ("ads-eq", 1), ("ads", 1), ("long", 1), ("products", 1), ("rules", 10), ("strings", 1)],
)
def test_planted_subscriptions_match(name: str, n_planted: int) -> None:
    workload = generate(name, n_subscriptions=150, n_events=10, seed=3)
    engine = siftline.Engine(index="scan")
    engine.add_many(workload.predicates)
    assert all(len(engine.match(event)) >= n_planted for event in workload.dicts)


@pytest.mark.parametrize("name", ["sparse", "ads"])
def test_planting_needs_room(name: str) -> None:
    with pytest.raises(ValueError, match="too small"):
        generate(name, n_subscriptions=10, n_events=1, event_size=10)


def test_half_of_the_ads_are_sets() -> None:
    rows = generate("ads", n_subscriptions=1_000, n_events=1).predicates.to_pandas()
    is_in = rows["op"] == "in"
    assert abs(is_in.mean() - 0.5) < 0.03
    sizes = rows["numbers"][is_in].map(len)
    assert sizes.between(2, 10).all()
    assert rows["numbers"][is_in].map(lambda values: len(set(values))).equals(sizes)
    assert rows["number"].isna().equals(is_in)
    assert set(generate("ads-eq", n_subscriptions=100, n_events=1).predicates["op"].to_pylist()) == {"="}


def test_keywords_have_the_shape_of_the_log() -> None:
    workload = generate("keywords", n_subscriptions=5_000, n_events=5)
    assert workload.predicates.num_rows / 5_000 == pytest.approx(2.8, abs=0.05)
    assert all(len(event) == 93 and set(event.values()) == {1} for event in workload.dicts)


def test_common_attributes_of_products() -> None:
    workload = generate("products", n_subscriptions=100, n_events=3_000)
    rows = workload.values.to_pandas()
    commonest = rows["attribute"].value_counts().head(2) / 3_000
    assert commonest.tolist() == pytest.approx([0.31, 0.17], abs=0.03)
    assert rows.groupby("event").size().between(5, 40).all()
    assert not rows.duplicated(["event", "attribute"]).any()
    assert (rows["number"].isna() != rows["text"].isna()).all()


def test_wide_has_many_constants() -> None:
    rows = generate("wide", n_subscriptions=10_000, n_events=1).predicates.to_pandas()
    for name in ("user", "price"):
        asked = rows[rows["attribute"] == name]
        n_constants = len(set(asked["number"]) | set(asked["upper"].dropna()))
        assert n_constants > 0.95 * 10_000
    assert set(rows["subscription"]) == set(range(10_000))


def test_strings_are_in_the_proportions_of_real_rules() -> None:
    rows = generate("strings", n_subscriptions=3_000, n_events=1).predicates.to_pandas()
    counts = rows["op"].value_counts()
    total = 4_625 + 3_445 + 570 + 214
    n_strings = len(rows) - counts["="]
    for op, n in {"contains": 4_625, "ends with": 3_445, "starts with": 570, "matches": 214}.items():
        assert counts[op] / n_strings == pytest.approx(n / total, abs=0.03)
    assert rows[rows["op"] != "="].groupby("subscription").size().between(1, 3).all()


def test_rules_have_six_conditions() -> None:
    workload = generate("rules", n_subscriptions=200, n_events=3)
    rows = workload.predicates.to_pandas()
    assert (rows.groupby("subscription").size() == 6).all()
    assert not rows.duplicated(["subscription", "attribute"]).any()
    assert set(rows["op"]) == {"=", "<=", ">=", "between", "starts with"}
    assert all(len(event) == 8 for event in workload.dicts)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("ads", {"n_values": 30}, "at most 24"),
        ("products", {"most_predicates": 6}, "cannot match"),
        ("rules", {"n_predicates": 9}, "at most 8"),
        ("strings", {"most_predicates": 9}, "at most 8"),
    ],
)
def test_parameters_out_of_range(name: str, changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(name, n_subscriptions=10, n_events=1, **changes)


def test_drawn_attributes_are_distinct_and_not_taken() -> None:
    chance = np.random.default_rng(0)
    taken = np.array([[0, -1], [1, 2]] * 50, dtype=np.int32)
    drawn = draw_distinct(chance, np.array([8.0, 4.0, 2.0, 1.0, 1.0, 1.0]), 3, taken)
    for row, before in zip(drawn.tolist(), taken.tolist(), strict=True):
        assert len(set(row)) == 3
        assert not set(row) & set(before)


def test_too_few_attributes_are_an_error() -> None:
    with pytest.raises(ValueError, match="distinct attributes"):
        generate("dense", n_attributes=6, n_subscriptions=1)


@pytest.mark.parametrize("name", ["dense", "rules", "strings", "products", "wide"])
def test_events_in_every_form(name: str) -> None:
    workload = generate(name, n_subscriptions=1, n_events=4)
    assert [json.loads(text) for text in workload.json] == workload.dicts
    wide = workload.wide().to_pylist()
    assert [{key: value for key, value in row.items() if value is not None} for row in wide] == workload.dicts


def test_an_attribute_with_several_values_becomes_a_list() -> None:
    import pyarrow as pa

    workload = generate("dense", n_subscriptions=1, n_events=2)
    values = pa.table(
        {
            "event": [0, 0, 0, 1],
            "attribute": ["a", "a", "a", "b"],
            "number": [1, 2, None, None],
            "text": [None, None, "x", "y"],
        }
    )
    assert dataclasses.replace(workload, values=values).dicts == [{"a": [1, 2, "x"]}, {"b": "y"}]


@pytest.mark.parametrize("name", workloads())
def test_save_and_load(name: str, tmp_path: Path) -> None:
    workload = generate(name, n_subscriptions=50, n_events=3, seed=5)
    loaded = load(save(workload, tmp_path / name))
    assert loaded.identity == workload.identity
    assert loaded.predicates.equals(workload.predicates)
    assert loaded.values.equals(workload.values)
    assert loaded.dicts == workload.dicts
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_files_of_two_workloads_are_refused(tmp_path: Path) -> None:
    one = save(generate("dense", n_subscriptions=5, n_events=1, seed=1), tmp_path / "one")
    other = save(generate("dense", n_subscriptions=5, n_events=1, seed=2), tmp_path / "other")
    (one / "values.parquet").replace(other / "values.parquet")
    with pytest.raises(TableError, match="different workloads"):
        load(other)
    with pytest.raises(TableError, match="cannot read"):
        load(one)


def test_a_parquet_file_without_parameters_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "predicates.parquet")
    with pytest.raises(TableError, match="no parameters"):
        load(tmp_path)


def test_cached_workloads_are_drawn_once_and_verified(tmp_path: Path) -> None:
    parameters = make_parameters("dense", n_subscriptions=20, n_events=2)
    drawn = cached("dense", parameters, 1, tmp_path)
    (place,) = tmp_path.iterdir()
    assert cached("dense", parameters, 1, tmp_path).predicates.equals(drawn.predicates)
    save(generate("dense", n_subscriptions=20, n_events=2, seed=9), place)
    with pytest.raises(TableError, match="another workload"):
        cached("dense", parameters, 1, tmp_path)


def test_an_outdated_cache_is_drawn_again(tmp_path: Path) -> None:
    parameters = make_parameters("dense", n_subscriptions=20, n_events=2)
    drawn = cached("dense", parameters, 1, tmp_path)
    (place,) = tmp_path.iterdir()
    save(dataclasses.replace(drawn, version=0, predicates=drawn.predicates.slice(0, 1)), place)
    assert cached("dense", parameters, 1, tmp_path).predicates.equals(drawn.predicates)


def test_wrong_names_and_parameters() -> None:
    with pytest.raises(ValueError, match="did you mean 'dense'"):
        recipe("dens")
    with pytest.raises(ValueError, match="no parameter 'colour'"):
        make_parameters("dense", colour=1)
    with pytest.raises(ValueError, match="a number like 100"):
        make_parameters("dense", n_attributes=1.5)
