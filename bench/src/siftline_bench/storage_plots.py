"""Plots of `siftline bench storage`, as SVG, from its rows alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from siftline_bench.plots import prepare, saved

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Draw what the rows hold into a folder; return the files."""
    prepare(folder)
    drawn = []
    if any(row["figure"] == "search" for row in rows):
        drawn.append(_page_reads(rows, folder / "storage-page-reads.svg"))
    if any(row["figure"] == "insert" for row in rows):
        drawn.append(_changes(rows, folder / "storage-changes.svg"))
    drawn += [
        _table_one(rows, workload, folder / f"storage-table-1-{workload}.svg")
        for workload in ("points", "half-infinite")
        if any(row.get("workload") == workload for row in rows)
    ]
    return drawn


def _page_reads(rows: list[Row], path: Path) -> Path:
    """Draw reads against log_B n + L/B, with the fitted line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4))
    axes = figure.subplots()
    searches = [row for row in rows if row["figure"] == "search"]
    fit = next((row for row in rows if row["figure"] == "fit"), None)
    for n in sorted({row["n"] for row in searches}):
        chosen = [row for row in searches if row["n"] == n]
        pages = [math.log(n, row["per_page"]) + row["L"] / row["per_page"] for row in chosen]
        (points,) = axes.plot(pages, [row["page_reads"] for row in chosen], "o", label=f"n = {n:,}")
        axes.plot(pages, [row["cold_reads"] for row in chosen], "x", color=points.get_color())
        if fit is not None:
            logs = [math.log(n, row["per_page"]) for row in chosen]
            line = [
                fit["cold_per_log"] * log + fit["cold_per_page_of_results"] * (page - log)
                for log, page in zip(logs, pages, strict=True)
            ]
            axes.plot(pages, line, "-", color="grey", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="log_B n + L/B", ylabel="pages read by a search (x: pool empty)")
    axes.legend()
    return saved(figure, path)


def _changes(rows: list[Row], path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4))
    axes = figure.subplots()
    for name in ("insert", "delete"):
        chosen = [row for row in rows if row["figure"] == name]
        axes.plot([row["n"] for row in chosen], [row["page_accesses"] for row in chosen], "o-", label=name)
    axes.set(xscale="log", ylim=(0, None), xlabel="n", ylabel="pages looked at by a change")
    axes.legend()
    return saved(figure, path)


def _table_one(rows: list[Row], workload: str, path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    chosen = [row for row in rows if row.get("workload") == workload]
    titles = {"search_steps": "search", "insert_steps": "insert", "entries_each": "entries for each predicate"}
    for axes, (column, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
        for name in dict.fromkeys(row["structure"] for row in chosen):
            mine = [row for row in chosen if row["structure"] == name]
            axes.plot([row["n"] for row in mine], [row[column] for row in mine], "o-", label=name)
        axes.set(xscale="log", yscale="log", xlabel="n", title=title)
    figure.axes[0].set_ylabel("steps")
    figure.axes[0].legend(fontsize="small")
    return saved(figure, path)
