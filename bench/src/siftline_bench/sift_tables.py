"""The rows of `siftline bench sift` as Markdown: one table of times, one of figures with their targets."""

from __future__ import annotations

from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, Final

from siftline_bench import sift
from siftline_bench.runner import REFERENCE
from siftline_bench.tables import markdown
from siftline_bench.targets import Verdict, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline_bench.results import Row

_TIMES: Final = ("matches", f"`{REFERENCE}` µs", "best other", "its µs")


def report(rows: Sequence[Row], subject: str) -> str:
    """Return the tables, headed by machine and date."""
    if not rows:
        raise ValueError("there are no rows to show")
    tables = [times(rows, subject), figures(rows, subject)]
    return "\n\n".join([_heading(rows[-1]), *(markdown(lines) for lines in tables if len(lines) > 1)])


def _heading(row: Row) -> str:
    machine = row["machine"]
    versions = ", ".join(f"{name.capitalize()} {machine[name]}" for name in ("python", "numba"))
    cores = f"{machine['cores']} cores, {machine['memory_gb']} GB"
    return f"{row['date'][:10]}, {machine['processor']} ({cores}), {versions}, seed {row['seed']}."


def times(rows: Sequence[Row], subject: str) -> list[list[str]]:
    """Return a line for each workload: the baseline, the best of all others, and the subject."""
    lines = [["workload", *_TIMES, f"`{subject}` µs", f"x `{REFERENCE}`", "x best other", "p99 / median"]]
    for name in dict.fromkeys(row["workload"] for row in rows):
        measured = {row["index"]: row for row in rows if row["workload"] == name and "match_us" in row}
        readings = _readings(rows, name)
        if subject not in measured or REFERENCE not in measured:
            continue
        own, baseline = measured[subject], measured[REFERENCE]
        others = {index: row for index, row in measured.items() if index not in (subject, REFERENCE)} or {"-": baseline}
        best = min(others, key=lambda index: float(others[index]["match_us"]["median"]))
        medians = [each["match_us"]["median"] for each in (baseline, others[best], own)]
        lines.append(
            [
                f"`{name}`",
                shown(own["n_matches"] / own["n_events"]),
                shown(medians[0]),
                f"`{best}`",
                shown(medians[1]),
                shown(medians[2]),
                *(shown(readings.get(what)) for what in (sift.RATIO, sift.BEST, sift.TAIL)),
            ]
        )
    return lines


def figures(rows: Sequence[Row], subject: str) -> list[list[str]]:
    """Return a line for each figure that has a target."""
    lines = [["workload", "figure", "measured", "target", ""]]
    bests: dict[str, float] = {}
    for target in sift.targets(subject):
        readings = _readings(rows, target.workload)
        value = readings.get(target.what)
        if target.what == sift.BEST and value is not None:
            bests[target.workload] = value
        if target.workload == sift.ALL and set(bests) >= set(sift.WORKLOADS):
            value = geometric_mean(bests.values())
        if target.workload == "wide" and target.what == sift.AS_DENSE:
            medians = [_readings(rows, name).get(sift.MEDIAN) for name in ("wide", "dense")]
            value = medians[0] / medians[1] if medians[0] and medians[1] else None
        if value is not None:
            verdict = Verdict(target, value)
            lines.append([target.workload, target.what, shown(value), target.shown, verdict.word])
    return lines


def _readings(rows: Sequence[Row], workload: str) -> dict[str, Any]:
    """Return the figures of one workload by name, the latest of each."""
    return {row["mode"]: row["median"] for row in rows if row["workload"] == workload and "median" in row}
