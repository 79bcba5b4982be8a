"""The workloads of the papers: they have the properties that the papers state, and chunks do not show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import siftline
from siftline.errors import TableError
from siftline_bench.command import add_arguments, run
from siftline_bench.workloads import Drawing, cached, generate, load, make_parameters, recipe, save, workloads
from siftline_bench.workloads.drawing import draw_by_count, draw_distinct, draw_values, zipf_weights
from siftline_bench.workloads.synthetic import Synthetic
from siftline_bench.workloads.words import names

if TYPE_CHECKING:
    from pathlib import Path

    from siftline_bench.workloads import Workload


def _rows(name: str, n: int = 5_000, **changes: Any) -> Any:
    return generate(name, n_subscriptions=n, n_events=1, **changes).predicates.to_pandas()


def _matching_share(workload: Workload) -> float:
    """Return the share of subscriptions that an event matches, on average."""
    engine = siftline.Engine(index="fast-scan")
    engine.add_many(workload.predicates)
    counts = [len(engine.match(event, as_slots=True)) for event in workload.dicts]
    return float(np.mean(counts)) / workload.n_subscriptions


# drawing


def test_draws_by_count_follow_the_weights() -> None:
    chance, weights = np.random.default_rng(1), np.array([0.6, 0.3, 0.08, 0.02])
    counts = np.full(20_000, 2)
    exact = draw_by_count(chance, weights, counts)
    again = draw_distinct(chance, weights, 2, np.empty((20_000, 0), dtype=np.int32))
    shares = [np.bincount(pairs[:, 0] * 4 + pairs[:, 1], minlength=16) / 20_000 for pairs in (exact, again)]
    assert shares[0] == pytest.approx(shares[1], abs=0.015)
    assert (exact[:, 0] != exact[:, 1]).all()


def test_draws_by_count_with_extreme_weights() -> None:
    chance = np.random.default_rng(2)
    counts = chance.integers(0, 31, size=500)
    taken = np.tile(np.array([0, 7], dtype=np.int32), (500, 1))
    drawn = draw_by_count(chance, zipf_weights(100, 5.0), counts, taken)
    for row, count in zip(drawn.tolist(), counts.tolist(), strict=True):
        assert len(set(row[:count]) - {0, 7}) == count
        assert set(row[count:]) <= {-1}
    with pytest.raises(ValueError, match="out of 100"):
        draw_by_count(chance, zipf_weights(100, 5.0), np.array([99]), taken[:1])


def test_values_by_the_zipf_law() -> None:
    values = draw_values(np.random.default_rng(0), 4, 1.0, (50_000,))
    assert np.bincount(values) / 50_000 == pytest.approx(zipf_weights(4, 1.0), abs=0.01)


# OpIndex


@pytest.mark.parametrize("equal_share", [0.2, 1.0])
def test_many_attributes_as_in_table_3(equal_share: float) -> None:
    rows = _rows("many-attributes", equal_share=equal_share, most_predicates=12)
    assert set(rows["op"]) == ({"=", "<=", ">="} if equal_share < 1 else {"="})
    assert (rows["op"] == "=").mean() == pytest.approx(equal_share, abs=0.02)
    sizes = rows.groupby("subscription").size()
    assert (sizes.min(), sizes.max()) == (1, 12)
    assert sizes.mean() == pytest.approx(6.5, abs=0.2)


def test_the_chance_of_a_predicate_is_that_of_lemma_6() -> None:
    changes = {"n_attributes": 1, "least_predicates": 1, "most_predicates": 1, "event_size": 1, "n_values": 50}
    workload = generate("many-attributes", n_subscriptions=3_000, n_events=200, equal_share=1 / 3, **changes)
    assert _matching_share(workload) == pytest.approx((1 + 2 / 50) / 3, abs=0.02)


def test_operands_by_the_zipf_law() -> None:
    rows = _rows("many-attributes", skew=1.0, value_skew=1.0)
    values = rows["number"].value_counts()
    assert values[0] > 1.5 * values[1] > 2 * values[4]
    attributes = rows["attribute"].value_counts()
    assert attributes["a0"] > 1.5 * attributes["a1"]


def test_dnf_has_clauses() -> None:
    rows = _rows("dnf", most_clauses=4)
    clauses = rows.groupby("subscription")["clause"].agg(["min", "max", "nunique"])
    assert (clauses["min"] == 0).all()
    assert (clauses["nunique"] == clauses["max"] + 1).all()
    assert clauses["nunique"].value_counts(normalize=True).tolist() == pytest.approx([0.25] * 4, abs=0.03)
    assert rows.groupby(["subscription", "clause"]).size().between(1, 3).all()


def test_cnf_is_the_dnf_with_the_words_exchanged() -> None:
    changes: dict[str, Any] = {"n_subscriptions": 300, "n_events": 3, "seed": 4, "has_between": True}
    engine = siftline.Engine(index="scan")
    engine.add_many(generate("dnf", **changes).predicates)
    texts = generate("cnf", **changes).predicates["expression"].to_pylist()
    for id, text in enumerate(texts):
        turned = str(siftline.parse(text.replace(" or ", " | ").replace(") and (", ") or (").replace(" | ", " and ")))
        assert str(engine.expression(id)) == turned


def test_cnf_and_dnf_match_alike_in_all_indexes() -> None:
    for name in ("cnf", "dnf"):
        workload = generate(name, n_subscriptions=400, n_events=10, n_attributes=60)
        found = []
        for index in ("scan", "op-index", "sift"):
            engine = siftline.Engine(index=index)
            engine.add_many(workload.predicates)
            found.append([sorted(engine.match(event)) for event in workload.dicts])
        assert found[0] == found[1] == found[2]
        assert any(found[0])


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_prefixes_by_share_and_length(share: float) -> None:
    workload = generate("prefixes", n_subscriptions=4_000, n_events=5, prefix_share=share, prefix_length=5)
    rows = workload.predicates.to_pandas()
    is_prefix = rows["op"] == "starts with"
    assert is_prefix.mean() == pytest.approx(share, abs=0.02)
    assert rows["attribute"].astype(str).str.startswith("topic").equals(is_prefix)
    assert rows["text"].notna().equals(is_prefix)
    assert rows["number"].isna().equals(is_prefix)
    assert rows["text"].dropna().astype(str).str.len().between(4, 5).all()
    assert not rows.duplicated(["subscription", "attribute"]).any()
    assert all(sum(isinstance(value, str) for value in event.values()) == 20 for event in workload.dicts)
    assert all(len(event) == 40 for event in workload.dicts)


@pytest.mark.parametrize(("name", "mean"), [("short-documents", 5.4), ("long-documents", 123)])
def test_documents_are_as_long_as_those_of_the_paper(name: str, mean: float) -> None:
    workload = generate(name, n_subscriptions=5_000, n_events=2_000)
    rows, values = workload.predicates.to_pandas(), workload.values.to_pandas()
    assert len(values) / 2_000 == pytest.approx(mean, rel=0.04)
    assert len(rows) / 5_000 == pytest.approx(2.4, abs=0.1)
    assert set(rows["op"]) == {"="}
    assert set(values["number"]) == {1}
    assert not values.duplicated(["event", "attribute"]).any()


def test_documents_with_counts() -> None:
    workload = generate("short-documents", n_subscriptions=2_000, n_events=500, is_counted=True)
    rows, values = workload.predicates.to_pandas(), workload.values.to_pandas()
    assert set(rows["op"]) == {"between"}
    assert (rows["upper"] > rows["number"]).all()
    assert values["number"].mean() == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("set_share", [0.0, 1.0])
def test_the_catalogue_has_texts_alone(set_share: float) -> None:
    workload = generate("catalogue", n_subscriptions=3_000, n_events=2_000, set_share=set_share, most_predicates=20)
    rows, values = workload.predicates.to_pandas(), workload.values.to_pandas()
    assert set(rows["op"]) == ({"in"} if set_share else {"="})
    assert rows.groupby("subscription").size().max() == 20
    commonest = values["attribute"].value_counts().head(2) / 2_000
    assert commonest.tolist() == pytest.approx([0.31, 0.17], abs=0.03)
    asked = rows["attribute"].value_counts().reindex(names(10_204))
    # By the logarithm of the frequency: not much more often than an attribute that few products have.
    assert 1.3 < asked.iloc[:200].mean() / asked.iloc[-2_000:].mean() < 3


# PS-Tree


@pytest.mark.parametrize(
    ("n_attributes", "changes"),
    [
        (100, {}),
        (30_000, {}),
        (100, {"skew": 1.0}),
        (100, {"skew": 5.0}),
        (3_000, {"skew": 3.0}),
        (100, {"n_values": 3}),
        (100, {"equal_share": 0.0}),
        (300, {"equal_share": 1.0}),
        (100, {"least_predicates": 28, "most_predicates": 32}),
        (100, {"event_size": 90}),
        (100, {"matching_share": 0.05}),
        (30_000, {"matching_share": 0.5}),
    ],
)
def test_the_matching_share_is_as_asked(n_attributes: int, changes: dict[str, Any]) -> None:
    workload = generate("be-gen", n_subscriptions=20_000, n_events=60, n_attributes=n_attributes, **changes)
    wanted = workload.parameters.matching_share  # type: ignore[attr-defined]
    assert _matching_share(workload) == pytest.approx(wanted, rel=0.25)
    assert all(len(event) == workload.parameters.event_size for event in workload.dicts)  # type: ignore[attr-defined]
    rows = workload.predicates.to_pandas()
    assert (rows["op"] == "=").mean() == pytest.approx(changes.get("equal_share", 0.2), abs=0.02)
    assert not rows.duplicated(["subscription", "attribute"]).any()
    assert rows["number"].between(0, changes.get("n_values", 100) - 1).all()


def test_be_gen_has_no_more_matches_than_half() -> None:
    with pytest.raises(ValueError, match=r"at most 0\.5"):
        generate("be-gen", n_subscriptions=10, n_events=1, matching_share=0.6)


def test_the_keyword_log_has_the_shape_of_the_contest() -> None:
    workload = generate("keyword-log", n_subscriptions=20_000, n_events=500)
    rows, values = workload.predicates.to_pandas(), workload.values.to_pandas()
    assert len(rows) / 20_000 == pytest.approx(2.78, abs=0.04)
    assert len(values) / 500 == pytest.approx(93.07, rel=0.05)
    assert workload.parameters.n_attributes == 17_577  # type: ignore[attr-defined]
    assert rows.groupby("attribute", observed=True)["text"].nunique().max() <= 20
    assert not values.duplicated(["event", "attribute"]).any()


def test_display_ads_have_the_shape_of_the_paper() -> None:
    workload = generate("display-ads", n_subscriptions=20_000, n_events=20)
    sizes = workload.predicates.to_pandas().groupby("subscription").size()
    assert (sizes.min(), sizes.max()) == (1, 56)
    assert sizes.mean() == pytest.approx(8, abs=0.2)
    assert all(len(event) == 20 for event in workload.dicts)
    assert workload.predicates["attribute"].unique().to_pylist().__len__() == 122
    assert _matching_share(workload) >= 1 / 20_000
    assert recipe("display-ads").parameters.n_subscriptions == 3_000_000


# ToPSS


@pytest.mark.parametrize(("domain", "most"), [(0, 6_000), (1, 60_000), (3, 600 + 6_000 + 60_000)])
def test_predicates_are_different(domain: int, most: int) -> None:
    changes = {"n_events": 3, "n_attributes": 3 if domain == 3 else 10, "domain": domain}
    rows = generate("predicates", n_subscriptions=most, **changes).predicates.to_pandas()
    assert not rows.duplicated(["attribute", "op", "number"]).any()
    assert (rows["op"].value_counts() == most // 6).all()
    with pytest.raises(ValueError, match=f"no more than {most:,}"):
        generate("predicates", n_subscriptions=most + 1, **changes)
    with pytest.raises(ValueError, match="a domain is"):
        generate("predicates", domain=4)


# operators


@pytest.mark.parametrize("changes", [{}, {"is_uniform": True}, {"exponent": 0.0, "most_predicates": 9}])
def test_operator_graphs_as_in_table_1(changes: dict[str, Any]) -> None:
    workload = generate("operator-graph", n_events=500, **changes)
    rows = workload.predicates.to_pandas()
    sizes = rows.groupby("subscription").size()
    most = changes.get("most_predicates", 5)
    assert (len(sizes), sizes.min(), sizes.max()) == (20_000, 3, most)
    assert sizes.mean() == pytest.approx((3 + most) / 2, abs=0.1)
    assert not rows.duplicated(["subscription", "attribute"]).any()
    assert set(rows["attribute"]) <= {f"p{i}" for i in range(5_000)}
    assert set(rows["op"]) == {"="}
    assert rows["flag"].all()
    assert all(set(event.values()) == {True} for event in workload.dicts)
    assert _matching_share(workload) == pytest.approx(0.002, rel=0.15)


def test_the_popularity_of_call_predicates() -> None:
    zipf, alike, uniform = (
        _rows("operator-graph", 20_000, n_predicates=500, **changes)["attribute"].value_counts()
        for changes in ({}, {"exponent": 0.0}, {"is_uniform": True})
    )
    assert zipf["p0"] > 1.5 * zipf["p1"] > 2 * zipf["p4"]
    assert alike.min() > 0.5 * alike.max()
    # By weights uniform in [0, 1], the most popular is taken twice as often as the one in the middle.
    assert uniform.max() / uniform.median() == pytest.approx(2, rel=0.25)
    assert uniform.quantile(0.1) < 0.3 * uniform.median()


def test_operator_graphs_are_those_of_their_seed() -> None:
    one, same = (generate("operator-graph", n_subscriptions=2_000, n_events=20, seed=3) for _ in range(2))
    assert one.predicates.equals(same.predicates)
    assert one.values.equals(same.values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"match_share": 0.0}, "above 0"),
        ({"least_predicates": 0}, "at least one"),
        ({"n_predicates": 4}, "5 different predicates"),
    ],
)
def test_operator_graphs_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate("operator-graph", n_subscriptions=10, n_events=1, **changes)


# chunks


@pytest.mark.parametrize("name", workloads())
def test_chunks_make_the_workload(name: str, tmp_path: Path) -> None:
    parameters = make_parameters(name, n_subscriptions=70, n_events=8)
    whole = recipe(name).generate(parameters, 5, chunk=30)
    drawing = Drawing(name, parameters, 5, chunk=30)
    loaded = load(drawing.write(tmp_path / "parts"))
    assert loaded.identity == whole.identity
    assert whole.identity["chunk"] == 30
    assert loaded.predicates.equals(whole.predicates)
    assert loaded.values.equals(whole.values)
    assert set(whole.predicates["subscription"].to_pylist()) == set(range(70))
    assert len(whole.dicts) == 8
    assert all(whole.dicts)
    ids = whole.predicates["subscription"].to_numpy()
    assert (np.diff(ids) >= 0).all()


def test_the_number_of_processes_does_not_matter(tmp_path: Path) -> None:
    drawing = Drawing("be-gen", make_parameters("be-gen", n_subscriptions=500, n_events=9), 1, chunk=200)
    one, two = (load(drawing.write(tmp_path / str(n), workers=n)) for n in (1, 2))
    assert one.predicates.equals(two.predicates)
    assert one.values.equals(two.values)
    assert len(list((tmp_path / "2" / "values.parquet").iterdir())) == 3


def test_themes_and_catalogues_are_the_same_in_all_chunks() -> None:
    parameters = make_parameters("be-gen", n_subscriptions=20_000, n_events=40)
    assert _matching_share(recipe("be-gen").generate(parameters, 0, chunk=7_000)) == pytest.approx(0.001, rel=0.25)
    products = recipe("products").generate(make_parameters("products", n_subscriptions=900, n_events=300), 0, chunk=300)
    values = products.values.to_pandas()
    texts = values.assign(is_text=values["text"].notna()).groupby("attribute", observed=True)["is_text"]
    assert (texts.nunique() == 1).all()


def test_call_predicates_are_the_same_in_all_chunks() -> None:
    parameters = make_parameters("operator-graph", n_events=600, is_uniform=True)
    workload = recipe("operator-graph").generate(parameters, 0, chunk=7_000)
    assert _matching_share(workload) == pytest.approx(0.002, rel=0.25)
    values = workload.values.to_pandas()
    shares = values.groupby([values["event"] // 200, "attribute"], observed=False).size().unstack() / 200
    assert shares.loc[0].corr(shares.loc[2]) > 0.9


def test_a_workload_of_one_chunk_is_what_it_always_was() -> None:
    parameters = make_parameters("dense", n_subscriptions=50, n_events=2)
    identity = recipe("dense").generate(parameters, 0, chunk=50).identity
    assert identity == recipe("dense").generate(parameters, 0).identity
    assert "chunk" not in identity
    assert "value_skew" not in identity["parameters"]
    assert Synthetic(value_skew=0.5).as_dict()["value_skew"] == 0.5


def test_missing_and_foreign_parts_are_refused(tmp_path: Path) -> None:
    parameters = make_parameters("dense", n_subscriptions=50, n_events=2)
    one, other = (Drawing("dense", parameters, seed, chunk=20).write(tmp_path / str(seed)) for seed in (1, 2))
    part = one / "values.parquet" / "part-00001.parquet"
    part.rename(tmp_path / "kept")
    with pytest.raises(TableError, match="not complete: it has 2 parts"):
        load(one)
    (other / "values.parquet" / "part-00001.parquet").rename(part)
    with pytest.raises(TableError, match="belong to different workloads"):
        load(one)
    for path in (one / "values.parquet").iterdir():
        path.unlink()
    with pytest.raises(TableError, match="no parts"):
        load(one)


def test_a_cached_workload_of_other_chunks_is_drawn_again(tmp_path: Path) -> None:
    parameters = make_parameters("dense", n_subscriptions=40, n_events=2)
    drawn = cached("dense", parameters, 1, tmp_path)
    (place,) = tmp_path.iterdir()
    save(recipe("dense").generate(parameters, 1, chunk=10), place)
    assert cached("dense", parameters, 1, tmp_path).predicates.equals(drawn.predicates)


def test_generate_in_chunks_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    target = tmp_path / "drawn"
    arguments = ["generate", "cnf", "--size", "50", "--events", "4", "--chunk", "20", "--workers", "1"]
    assert run(parser.parse_args([*arguments, "--output", str(target)])) == 0
    assert "50 subscriptions and 4 events" in capsys.readouterr().out
    assert load(target).identity["chunk"] == 20
