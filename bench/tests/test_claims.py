"""Claims: what checks find in made rows, the verdicts that follow, and the claims of the project."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from siftline_bench.figures import figures, summary
from siftline_bench.figures.checks import CHECKS, MissingRowsError, NoAnswerError, involved
from siftline_bench.figures.claims import (
    NOT_MEASURED,
    NOT_REPRODUCED,
    NOT_TESTABLE,
    PARTLY,
    REPRODUCED,
    Answer,
    Check,
    Claim,
    Verdict,
    claims,
    verdicts,
)
from siftline_bench.figures.figure import loaded
from siftline_bench.figures.measures import measure
from siftline_bench.figures.panels import Panel, Point, panel
from siftline_bench.figures.registry import CLAIMS, folder
from siftline_bench.figures.report import html_of
from siftline_bench.figures.speed import steadied
from siftline_bench.figures_command import changed_verdicts

if TYPE_CHECKING:
    from pathlib import Path


def _panel(**series: Any) -> Panel:
    """Make a panel over x = 1, 10, 100; a value that is text is a status."""
    points = {
        name.replace("_", "-"): [
            Point(x, None if isinstance(value, str) else value, value if isinstance(value, str) else "ok", "")
            for x, value in zip((1, 10, 100), values, strict=True)
        ]
        for name, values in series.items()
    }
    return Panel("made", measure("match_ms"), points)


_MADE = _panel(
    linear=[2.0, 20.0, 200.0],
    flat=[5.0, 6.0, 5.0],
    root=[1.0, 3.0, 10.0],
    late=[1.0, 2.0, "timed out"],
    refused=[1.0, 2.0, "unsupported"],
    gone=[1.0, 2.0, "not measured"],
    gap=[1.0, "not measured", 25.0],
)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("ratio", {"of": "linear", "to": "flat"}, 40),
        ("ratio", {"of": "linear", "to": "flat", "at": "first"}, 0.4),
        ("ratio", {"of": "linear", "to": "flat", "at": 10}, 20 / 6),
        ("ratio", {"of": "linear", "to": "root", "at": "least"}, 2),
        ("ratio", {"of": "linear", "to": "root", "at": "most"}, 20),
        ("ratio", {"of": "linear", "to": "linear", "at": "mean"}, 1),
        ("ratio", {"of": ["linear", "flat"], "to": "root"}, 0.5),
        ("ratio", {"of": "late", "to": "flat"}, math.inf),
        ("ratio", {"of": "late", "to": "late", "at": "mean"}, 1),
        ("ratio", {"of": "late", "to": "flat", "at": "mean"}, 0.258),
        ("ratio", {"of": "late", "to": "flat", "at": "most"}, math.inf),
        ("change", {"of": "linear"}, 100),
        ("change", {"of": "linear", "from": 10, "until": 100}, 10),
        ("against", {"of": "root", "to": "linear"}, 0.1),
        ("spread", {"of": "flat"}, 1.2),
        ("exponent", {"of": "linear"}, 1),
        ("exponent", {"of": "root"}, 0.5),
        ("order", {"of": ["flat", "root", "linear"]}, 2),
        ("order", {"of": ["root", "flat", "linear"]}, 0.5),
        ("value", {"of": "flat", "at": 10}, 6),
        ("value", {"of": "flat", "at": "most"}, 6),
        ("ratio", {"of": "linear", "to": "gap", "at": "mean"}, 4),
        ("exponent", {"of": "gap"}, 0.7),
        ("status", {"of": "late", "among": ["timed out"]}, 1),
        ("status", {"of": "late", "at": "first", "among": ["timed out"]}, 0),
    ],
)
def test_checks(name: str, arguments: dict[str, Any], expected: float) -> None:
    assert CHECKS[name](_MADE, **arguments) == pytest.approx(expected, rel=0.02)


def test_checks_without_an_answer() -> None:
    with pytest.raises(MissingRowsError, match="gone at 100 is not measured"):
        CHECKS["ratio"](_MADE, of="gone", to="flat")
    with pytest.raises(MissingRowsError, match="10 is not measured"):
        CHECKS["value"](_MADE, of="gap", at=10)
    short = Panel("made", _MADE.measure, {**_MADE.series, "short": _MADE.series["flat"][:2]})
    with pytest.raises(MissingRowsError, match="10 is not measured"):  # the last x that both have
        CHECKS["ratio"](short, of="gap", to="short")
    with pytest.raises(NoAnswerError, match="refused at 100: unsupported"):
        CHECKS["change"](_MADE, of="refused")
    with pytest.raises(NoAnswerError, match="nobody knows by how much"):
        CHECKS["against"](_MADE, of="flat", to="late")
    with pytest.raises(NoAnswerError, match="neither"):
        CHECKS["ratio"](_MADE, of="late", to="late")
    with pytest.raises(ValueError, match="no series 'lineal'"):
        CHECKS["change"](_MADE, of="lineal")
    with pytest.raises(ValueError, match="nothing at 7"):
        CHECKS["value"](_MADE, of="flat", at=7)


def _verdict(*numbers: float | None, is_missing: bool = False) -> Verdict:
    check = Check("ratio", "made", "match_ms", {}, at_least=2.0)
    answers = [Answer(check, number, "" if number else "no answer", is_missing and not number) for number in numbers]
    return Verdict(Claim(1, "opindex", "Fig. 1", "a claim", [check] * len(numbers), why="because"), answers)


def test_verdicts() -> None:
    assert _verdict(3.0, 2.0).word == REPRODUCED
    assert _verdict(3.0, 1.0).word == PARTLY
    assert _verdict(1.0, 0.5).word == NOT_REPRODUCED
    assert _verdict(None).word == NOT_TESTABLE
    assert _verdict(3.0, None, is_missing=True).word == NOT_MEASURED
    assert (_verdict(3.0).why, _verdict(1.0).why, _verdict(None).why) == ("", "because", "no answer")
    assert Verdict(replace(_verdict(3.0).claim, untested="half of it"), _verdict(3.0).answers).word == PARTLY
    assert Verdict(Claim(82, "operators", "Th. 1", "a proof", untestable="proved"), []).word == NOT_TESTABLE


def test_a_number_near_to_its_bound_is_marked() -> None:
    assert [_verdict(number).answers[0].is_near for number in (0.5, 1.9, 2.1, 9.0)] == [False, True, True, False]
    steady, unsteady = ([2.4 * factor**k for k in (-1, 0, 1)] for factor in (1.01, 1.5))
    check = _verdict(2.4).answers[0].check
    assert [Answer(check, 2.4, by_round=rounds).is_near for rounds in ([2.4], steady, unsteady)] == [True, False, True]
    exponent = replace(check, name="exponent", at_least=0.0)
    near = {
        span: [Answer(exponent, number, span=span).is_near for number in (-0.4, -0.1, 0.1, 0.4)] for span in (3, 10)
    }
    assert near == {3: [True, True, True, True], 10: [False, True, True, False]}  # a short axis says less
    for other in (replace(check, name="status"), replace(check, measure="memory_mb")):
        assert not Answer(other, 2.0).is_near
    bounded = Check("ratio", "made", "match_ms", {}, at_least=0.0, at_most=1.0)
    assert Answer(bounded, 0.5).holds
    assert not Answer(bounded, math.inf).holds
    assert bounded.bounds == "≥ 0 and ≤ 1"


def test_a_verdict_hangs_on_numbers_that_would_make_another_word() -> None:
    def hangs_on(*numbers: float | None) -> list[float | None]:
        return [answer.number for answer in _verdict(*numbers).hangs_on]

    assert hangs_on(2.1) == [2.1]
    assert hangs_on(9.0) == []
    assert hangs_on(2.1, 9.0) == [2.1]
    assert hangs_on(2.1, 1.9, 0.1) == [2.1, 1.9]
    assert hangs_on(2.1, 9.0, 0.1) == []  # partly, on whichever side the first one is
    assert hangs_on(None) == []
    assert _verdict(2.1, None, is_missing=True).hangs_on == []


@pytest.mark.parametrize(
    ("name", "arguments", "points"),
    [
        ("ratio", {"of": ["linear", "flat"], "to": "root", "at": "mean"}, [1, 10, 100] * 3),
        ("ratio", {"of": "linear", "to": "root"}, [100, 100]),
        ("change", {"of": "linear", "from": 10}, [10, 100]),
        ("against", {"of": "linear", "to": "flat"}, [1, 100] * 2),
        ("order", {"of": ["root", "flat"], "at": "first"}, [1, 1]),
        ("exponent", {"of": "flat"}, [1, 10, 100]),
    ],
)
def test_what_an_answer_depends_on(name: str, arguments: dict[str, Any], points: list[int]) -> None:
    assert [point.x for point in involved(_MADE, name, arguments)] == points


def test_rounds_are_told_by_their_median_or_least() -> None:
    rows = _made_rows("small")
    for run, (row,) in rows.items():
        rows[run] = [{**row, "match_us": {"median": us}, "index_s": us} for us in (4.0, 1.0, 2.0)]
    assert [_first_point(name, rows) for name in ("match_us", "index_s")] == [2.0, 1.0]
    check = Check("value", "opindex-1", "index_s", {"of": "OpIndex"}, at_most=9.0)
    (answer,) = verdicts([Claim(1, "opindex", "", "", [check])], "small", rows)[0].answers
    assert (answer.number, list(answer.by_round), len(answer.runs)) == (1.0, [4.0, 1.0, 2.0], 1)
    assert "3 rounds: " in html_of("small", rows, 0, ["opindex"])


def test_a_round_that_did_not_end_well_is_one_of_several() -> None:
    rows = _made_rows("small")
    figure = figures()["opindex-10c"]
    last = [run.key for run in figure.runs("small") if run.series == "OpIndex"][-1]
    late = {"status": "timed out", "reason": "more than 1 s"}
    for run, (row,) in rows.items():
        rows[run] = [row, {**row, **late} if run == last else row, row]
    check = Check("exponent", figure.name, "match_ms", {"of": "OpIndex"}, at_most=1.0)
    (answer,) = verdicts([Claim(1, "opindex", "", "", [check])], "small", rows)[0].answers
    assert answer.number == pytest.approx(0.0)
    assert len(answer.by_round) == 2
    rows[last] = [{**row, **late} for row in rows[last][:2]] + rows[last][2:]
    assert panel(figure, measure("match_ms"), "small", rows).series["OpIndex"][-1].status == "timed out"


def test_an_index_that_would_be_too_large_is_slower_than_all_that_are_not() -> None:
    rows = _made_rows("small")
    run = next(run for run in figures()["opindex-1"].runs("small") if run.series == "k-index")
    rows[run.key][0] |= {"status": "unsupported", "reason": "TooLargeError: k-index would take 8 GB"}
    point = panel(figures()["opindex-1"], measure("match_ms"), "small", rows).series["k-index"][0]
    assert (point.status, point.cost) == ("out of memory", math.inf)


def test_points_without_rows_are_counted_where_all_x_count() -> None:
    rows = _made_rows("small")
    figure = figures()["opindex-10b"]
    middle = [run.key for run in figure.runs("small") if run.series == "OpIndex"][1:-1]
    assert middle
    some = {key: rounds for key, rounds in rows.items() if key not in middle}
    for check, n in (
        (Check("spread", figure.name, "match_ms", {"of": "OpIndex"}, at_most=2.0), len(middle)),
        (Check("ratio", figure.name, "match_ms", {"of": ["OpIndex"], "to": "OpIndex"}, at_most=2.0), 0),
    ):
        verdict = verdicts([Claim(1, "opindex", "", "", [check])], "small", some)[0]
        assert (verdict.word, verdict.answers[0].n_left_out) == (REPRODUCED, n)
    assert f"(without {len(middle)} of its points, not measured yet)" in html_of("small", some, 0, ["opindex"])


# the claims of the project


def _made_rows(scale: str, seed: int = 0) -> dict[str, Any]:
    """Return a row for every run, of one round, all of them alike."""
    names = (
        "index_s build_s load_s index_bytes search_steps search_steps_but_results insert_steps delete_steps "
        "L entries_each tree_ms locate_ms query_ms calls matches_each measured predicted by_predicted"
    )
    columns: dict[str, Any] = dict.fromkeys(names.split(" "), 1.0)
    columns |= {name: {"median": 1.0} for name in ("match_us", "add_us", "remove_us")}
    machine = dict.fromkeys(("processor", "cores", "memory_gb", "siftline", "python", "numpy", "numba"), "made")
    columns |= {"status": "ok", "machine": machine, "date": "2026-01-01", "commit": "0" * 40, "is_dirty": False}
    return {
        run.key: [{**run.identity, **columns, "scale": scale, "passes": [1.0, 1.0]}]
        for figure in figures().values()
        for run in figure.runs(scale, seed)
    }


def test_all_claims_are_there_once_and_can_be_answered() -> None:
    found = claims()
    assert [claim.number for claim in found] == list(range(1, 88))
    for scale in ("small", "paper"):
        for verdict in verdicts(found, scale, _made_rows(scale)):
            needs_paper = scale == "small" and any(check.scale for check in verdict.claim.checks)
            assert verdict.word not in (NOT_MEASURED, NOT_TESTABLE) or verdict.claim.untestable or needs_paper
    assert {verdict.word for verdict in verdicts(found, "small", {})} <= {NOT_MEASURED, NOT_TESTABLE}


def test_words() -> None:
    """All are used, and a line that rises or falls does not stay."""
    words = loaded(folder() / CLAIMS)["words"]
    assert words.keys() == {check.word for claim in claims() for check in claim.checks if check.word}
    assert words["rises"]["at_least"] == words["stays"]["at_most"] == words["does not rise"]["at_most"]
    assert words["falls"]["at_most"] == words["stays"]["at_least"] == words["does not fall"]["at_least"]


def test_mistakes_in_claims(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    head = "words: {more: {at_least: 1.2}}\nclaims:\n- {number: 1, paper: opindex, where: Fig. 1, claim: fast"
    for text, message in (
        ("claims: []", "lacks words"),
        (f"{head}}}", "either checks, or why"),
        (f"{head}, checks: [{{check: ratio, figure: opindex-1}}]}}", "a word or a bound"),
        (f"{head}, checks: [{{check: ratio, figure: opindex-1, is: fewer}}]}}", "one of more; not 'fewer'"),
        (f"{head}, checks: [{{check: ratio, figure: opindex-1, is: more, at_most: 2}}]}}", "bounds or a word"),
        (f"{head}, checks: [{{check: ratio, figure: opindex-99, at_most: 1}}]}}", "no figure 'opindex-99'"),
        (f"{head.replace('opindex', 'opindices')}, untestable: so}}", "no known paper"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            claims(path)


def test_verdicts_that_changed() -> None:
    old = [row for (row,) in _made_rows("small").values()]
    new = [{**row, "by_predicted": 2.0} if row["figure"] == "operators-bound" else row for row in old]
    assert changed_verdicts(old, old) == []
    assert changed_verdicts(old, new) == ["claim 82: partly, then not reproduced"]


def test_the_report_of_a_paper() -> None:
    rows = _made_rows("small")
    late = next(row for (row,) in rows.values() if row["figure"] == "pbtree-table-1b" and row["series"] == "time index")
    late["status"] = "timed out"
    page = html_of("small", rows, papers=["pbtree"])
    assert page.count("<svg") == 2
    assert page.count("<tr id=claim-") == 3
    assert "time index (timed out: 500)" in page
    assert "href='#pbtree-table-1b'" in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    assert html_of("small", rows, papers=["pbtree"]) == page


def test_which_index_is_fastest() -> None:
    rows = _made_rows("small")
    for (row,) in rows.values():
        if row["index"] in ("sift", "op-index"):
            row["match_us"] = {"median": 0.25 if row["index"] == "sift" else 0.5}
    some = [figures()[f"opindex-10{letter}"] for letter in "abcde"]
    which, slow, size = (table.lines for table in summary.tables(some, "small", rows))
    assert [line[0] for line in which][:3] == ["opindex-10a", "opindex-10a", "opindex-10b"]
    assert which[0][2] == "OpIndex"
    assert which[0][-1] == "2"
    by_index = {line[0]: line for line in slow}
    n_points = by_index["OpIndex"][1]
    assert by_index["OpIndex"][1:5] == [n_points, n_points, "1", "1"]
    assert by_index["k-index"][1:4] == [n_points, "0", "2"]
    assert by_index["sift"][3] == "0.5"
    assert {(line[0], line[2], line[-1]) for line in size} == {("opindex-10a", "10K to 100K", "0.00")}
    assert all(not table.lines for table in summary.tables(some, "small", {}))


def test_matching_times_are_told_at_one_speed() -> None:
    """A row that was measured while the scan beside it took twice as long counts half; building and memory do not."""
    figure = figures()["opindex-1"]
    rows = _made_rows("small")
    runs = [run for run in figure.runs("small") if run.ground == figure.runs("small")[0].ground]
    for run, scan in zip(runs, (4.0, 2.0, 3.0), strict=False):
        rows[run.key][0] |= {"times_faster_than_fast_scan": scan}
    names = ("match_ms", "index_s", "memory_mb")
    before, after = ([_first_point(name, some) for name in names] for some in (rows, steadied(rows)))
    assert after == [before[0] / 2, *before[1:]]
    rows[runs[1].key][0] |= {"fast_scan_least_us": 1.0}  # in its fastest pass the scan was faster still
    assert _first_point("match_ms", steadied(rows)) == before[0] / 4


def test_what_a_round_says_alone_knows_nothing_of_the_others() -> None:
    figure = figures()["opindex-1"]
    first = figure.runs("small")[0]
    rows = _made_rows("small")
    (row,) = rows[first.key]
    rows[first.key] = [{**row, "times_faster_than_fast_scan": scan} for scan in (4.0, 2.0)]
    times = {}
    for number in (None, 0, 1):
        shown = panel(figure, measure("match_us"), "small", steadied(rows), number=number)
        times[number] = shown.series[first.series][0].value
    assert times == {None: pytest.approx((3 / 4 + 3 / 2) / 2), 0: 1.0, 1: 1.0}


def _first_point(name: str, rows: dict[str, Any]) -> Any:
    figure = figures()["opindex-1"]
    label = figure.runs("small")[0].series
    return panel(figure, measure(name), "small", rows).series[label][0].value
