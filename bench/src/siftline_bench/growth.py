"""How the cost of a match grows with the number of subscriptions: `siftline bench growth`, with a plot."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.plots import prepare, saved
from siftline_bench.results import rows_of
from siftline_bench.runner import REFERENCE, Plan, run_in_turn
from siftline_bench.targets import shown
from siftline_bench.workloads import cached, make_parameters, recipe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from siftline_bench.results import Row
    from siftline_bench.runner import Choice, Say

WORKLOADS: Final = ("sparse", "dense")
SIZES: Final = (10_000, 100_000, 1_000_000, 4_000_000)
QUICK: Final = (1_000, 2_000)


def measure(
    subject: Choice,
    names: Sequence[str],
    sizes: Sequence[int],
    plan: Plan,
    seed: int,
    cache: Path | None,
    say: Say,
) -> Iterator[list[Row]]:
    """Measure the subject beside `fast-scan`, size by size."""
    for name in names:
        for size in sizes:
            n_events = min(200, recipe(name).parameters.n_events)
            parameters = dataclasses.replace(make_parameters(name, n_events=n_events), n_subscriptions=size)
            say(f"drawing {size:,} subscriptions of {name}")
            workload = cached(name, parameters, seed, cache)
            measured = run_in_turn(workload, subject, [], plan, say)
            yield rows_of(workload, measured, plan.n_passes)


def table(rows: Sequence[Row], subject: str) -> list[list[str]]:
    """Return a line for each workload and size."""
    lines = [["workload", "subscriptions", "matches", "candidates", f"{REFERENCE} us", f"{subject} us", "index MB"]]
    for row in rows:
        if row["index"] != subject or row["status"] != "ok":
            continue
        baseline = _row(rows, row, REFERENCE)
        lines.append(
            [
                row["workload"],
                f"{_size(row):,}",
                shown(row["n_matches"] / row["n_events"]),
                shown(row["stats"].get("candidates_examined")),
                shown(baseline["match_us"]["median"]),
                shown(row["match_us"]["median"]),
                shown(row["index_bytes"] / 2**20),
            ]
        )
    return lines


def draw(rows: Sequence[Row], subject: str, folder: Path) -> Path:
    """Draw time against size, on two logarithmic axes."""
    prepare(folder)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    names = dict.fromkeys(row["workload"] for row in rows)
    for name, line in zip(names, ("-", "--", "-.", ":"), strict=False):
        for index, marker in ((subject, "o"), (REFERENCE, "x")):
            chosen = [row for row in rows if (row["workload"], row["index"], row["status"]) == (name, index, "ok")]
            times = [row["match_us"]["median"] for row in chosen]
            axes.plot([_size(row) for row in chosen], times, line + marker, label=f"{index}, {name}")
    axes.set(xscale="log", yscale="log", xlabel="subscriptions", ylabel="µs an event, median")
    axes.legend()
    return saved(figure, folder / "growth.svg")


def _size(row: Row) -> int:
    return int(row["parameters"]["n_subscriptions"])


def _row(rows: Sequence[Row], like: Row, index: str) -> Any:
    """Return the row of another index over the same subscriptions."""
    return next(
        row for row in rows if (row["index"], row["workload"], _size(row)) == (index, like["workload"], _size(like))
    )
