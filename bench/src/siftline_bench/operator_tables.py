"""The figures of `siftline bench operators` for people: tables and verdicts, from means over all seeds."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.targets import Target, Verdict, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]

_OF_NAIVE: Final = "sequential / naive-no-memo"
_OF_SEQUENTIAL: Final = "sub-order / sequential"


def tables(rows: Sequence[Row]) -> list[list[list[str]]]:
    """Return a table for each figure that was measured."""
    made = (
        _calls_lines(rows),
        _lines(rows, "drift", ("drift",), ("calls of sub-order", "calls of adaptive", "ratio")),
        _lines(rows, "order", (), ("order_s", "order_processor_s", "add_us", "remove_us")),
        _lines(rows, "overhead", ("schedule",), ("event_us", "call_ns")),
        _lines(rows, "index", ("schedule", "factor"), ("calls", "drop", "event_us", "us_per_call_made")),
    )
    return [lines for lines in made if len(lines) > 1]


def _calls_lines(rows: Sequence[Row]) -> list[list[str]]:
    """Return calls per event: a column for each workload, means over seeds."""
    chosen = [row for row in rows if row["figure"] == "calls"]
    workloads = list(dict.fromkeys(row["workload"] for row in chosen))
    schedules = dict.fromkeys(row["schedule"] for row in chosen)
    return [
        ["calls per event", *workloads],
        *([name, *(shown(_calls(chosen, workload, name)) for workload in workloads)] for name in schedules),
    ]


def _calls(rows: Sequence[Row], workload: str, schedule: str) -> float:
    return mean(float(row["calls"]) for row in rows if (row["workload"], row["schedule"]) == (workload, schedule))


def _lines(rows: Sequence[Row], figure: str, by: tuple[str, ...], names: tuple[str, ...]) -> list[list[str]]:
    """Return the means over seeds of some figures, a line for each workload and what else they differ by."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["figure"] == figure:
            groups.setdefault((row["workload"], *(row[name] for name in by)), []).append(row)
    lines = [[figure, *by, *names]]
    for (workload, *others), group in groups.items():
        figures = (mean(_value(row, name) for row in group) for name in names)
        lines.append([workload, *map(str, others), *map(shown, figures)])
    return lines


def _value(row: Row, name: str) -> float:
    what, _, schedule = name.partition(" of ")
    return float(row[what][schedule] if schedule else row[name])


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Compare with what schedules must reach."""
    return [*_call_verdicts(rows), *_drift_verdicts(rows), *_time_verdicts(rows), *_index_verdicts(rows)]


def _call_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    groups: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        if row["figure"] == "calls":
            groups.setdefault((row["workload"], row["seed"]), {})[row["schedule"]] = row["calls"]
    found: dict[Target, list[float]] = {}
    for (workload, _), calls in groups.items():
        is_zipf, is_uniform = workload.startswith("zipf"), workload.startswith("uniform")
        ratio = calls["sequential"] / calls["naive-no-memo"]
        target = Target(workload, "sequential", _OF_NAIVE, at_most=0.25 if is_uniform else None)
        found.setdefault(target, []).append(ratio)
        at_most = 0.9 if is_zipf else 1.0
        ratio = calls["sub-order"] / calls["sequential"]
        found.setdefault(Target(workload, "sub-order", _OF_SEQUENTIAL, at_most=at_most), []).append(ratio)
        closed = (calls["sub-order"] - calls["adaptive"]) / (calls["sub-order"] - calls["offline"])
        target = Target(workload, "adaptive", "gap to offline closed", at_least=0.5 if is_zipf else None)
        found.setdefault(target, []).append(closed)
    return [Verdict(target, mean(values)) for target, values in found.items()]


def _drift_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    found: dict[Target, list[float]] = {}
    for row in rows:
        if row["figure"] == "drift":
            what = "adaptive / sub-order, " + ("drifting" if row["drift"] else "steady")
            target = Target(row["workload"], "adaptive", what, at_most=0.9 if row["drift"] else 1.02)
            found.setdefault(target, []).append(row["ratio"])
    return [Verdict(target, mean(values)) for target, values in found.items()]


def _time_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    found: dict[Target, list[float]] = {}
    for row in rows:
        if row["figure"] == "order":
            target = Target(row["workload"], "sub-order", "s to order all", at_most=20.0)
            found.setdefault(target, []).append(row["order_s"])
        elif row["figure"] == "overhead":
            target = Target(row["workload"], row["schedule"], "ns a call made or avoided", at_most=100.0)
            found.setdefault(target, []).append(row["call_ns"])
    return [Verdict(target, mean(values)) for target, values in found.items()]


def _index_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Without sharing, calls must drop by what the index leaves; the more calls are shared, the less is to drop."""
    found: dict[Target, list[float]] = {}
    for row in rows:
        if row["figure"] == "index" and row["factor"] > 1:
            is_plain = row["schedule"] == "naive-no-memo"
            what = f"calls drop / {row['factor']} times fewer left"
            target = Target(row["workload"], row["schedule"], what, at_least=0.9 if is_plain else None)
            found.setdefault(target, []).append(row["drop"] / row["factor"])
    return [Verdict(target, mean(values)) for target, values in found.items()]
