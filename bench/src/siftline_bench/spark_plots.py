"""Plots of `siftline bench spark`, as SVG, from its rows alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.plots import prepare, saved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Row = dict[str, Any]

# How rows of the group `scale-up` are called.
_SCALE_UP: Final = re.compile(r"events/s, (\d+) cores")


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw what the rows hold into a folder; return the files."""
    prepare(folder)
    drawn = []
    costs = [row for row in rows if "n_subscriptions" in row and row["mode"].startswith("us an event")]
    if costs:
        drawn.append(_growth(costs, folder / "spark-growth.svg"))
    rates = {int(found[1]): row for row in rows if (found := _SCALE_UP.fullmatch(row.get("mode", "")))}
    if rates:
        drawn.append(_scale_up(rates, folder / "spark-scale-up.svg"))
    loads = [row for row in rows if row.get("figure") == "simulation"]
    if loads:
        drawn.append(_loads(loads, folder / "spark-shards.svg"))
    return drawn


def _growth(rows: Sequence[Row], path: Path) -> Path:
    """Draw the cost of an event against the number of subscriptions."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name in dict.fromkeys(row["workload"] for row in rows):
        chosen = [row for row in rows if row["workload"] == name]
        axes.plot([row["n_subscriptions"] for row in chosen], [row["median"] for row in chosen], "o-", label=name)
    axes.set(xscale="log", yscale="log", xlabel="subscriptions", ylabel="µs of processor time an event, all processes")
    axes.legend()
    return saved(figure, path)


def _scale_up(by_cores: Mapping[int, Row], path: Path) -> Path:
    """Draw events a second, every pass of them, against the number of cores; and what twice the cores would give."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    cores, medians = list(by_cores), [row["median"] for row in by_cores.values()]
    for n, row in by_cores.items():
        axes.plot([n] * len(row["passes"]), row["passes"], "o", color="0.6")
    axes.plot(cores, medians, "o-", color="black", label="median of all passes")
    axes.plot(cores, [medians[0] * n / cores[0] for n in cores], "--", color="0.4", label="in proportion")
    axes.set(xlabel="cores", ylabel="events a second", xticks=cores, ylim=(0, None))
    axes.legend()
    return saved(figure, path)


def _loads(rows: Sequence[Row], path: Path) -> Path:
    """Draw the share of events that visit each shard, the most visited first."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        shares = [n / row["parameters"]["n_events"] for n in row["visits_by_shard"]]
        axes.plot(range(1, len(shares) + 1), shares, label=f"{row['workload']}: {row['visits']:.3g} visits an event")
    axes.set(xlabel="shard, most visited first", ylabel="share of all events", ylim=(0, 1.02))
    axes.legend()
    return saved(figure, path)
