"""Result rows: one JSON line a measurement, with everything that is needed to believe it or to repeat it."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siftline.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline.bench.runner import Measurement
    from siftline.bench.workloads import Workload

Row = dict[str, Any]
# The rows of each run of a figure, one for each round.
Rounds = Mapping[str, Sequence[Row]]


def rows_of(workload: Workload, measurements: Iterable[Measurement], n_passes: int) -> list[Row]:
    """Return the rows of a run."""
    head = {**workload.identity, "n_passes": n_passes}
    return [{**head, **columns(measurement), **circumstances()} for measurement in measurements]


def columns(measurement: Measurement) -> Row:
    """Return what a row says of the index: its times, or why there are none."""
    choice = measurement.choice
    row: Row = {"index": choice.index, "options": dict(choice.options), "mode": measurement.mode}
    if measurement.passes is None or measurement.encode_us is None:
        return {**row, "status": measurement.status, "reason": measurement.reason}
    stats = measurement.stats
    return {
        **row,
        "status": "ok",
        "unit": "us",
        "n_events": measurement.n_events,
        "n_matches": measurement.n_matches,
        "first_use_s": round(measurement.first_use_s, 6),
        "build_s": round(measurement.build_s, 6),
        "index_s": round(measurement.index_s, 6),
        "index_passes_s": [round(seconds, 6) for seconds in measurement.index_passes],
        "warm_up_s": round(measurement.warm_up_s, 6),
        "encode_us": measurement.encode_us.as_dict(),
        **({} if measurement.add_us is None else {"add_us": measurement.add_us.as_dict()}),
        "match_us": measurement.passes.per_event_us().as_dict(),
        "all_us": measurement.passes.all_us().as_dict(),
        "passes": measurement.passes.pass_medians_us(),
        "processor_share": measurement.passes.processor_share,
        "times_faster_than_fast_scan": measurement.ratio,
        "fast_scan_least_us": measurement.reference_least_us,
        "index_bytes": sum(stats.get("bytes", {}).values()),
        "stats": stats,
    }


def circumstances() -> Row:
    """Return commit, machine and date."""
    now = datetime.datetime.now(datetime.UTC)
    return {**commit(), "machine": machine(), "date": now.isoformat(timespec="seconds")}


@cache
def commit() -> Row:
    """Return the commit of the code that runs, and whether it was changed since; both None outside of a checkout."""
    try:
        name = _git("rev-parse", "HEAD")
        return {"commit": name, "is_dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "is_dirty": None}


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@cache
def machine() -> Row:
    """Return processor, cores, memory and the versions that matter for speed."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("siftline", "numpy", "numba", "pyarrow")},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def append(rows: Iterable[Mapping[str, Any]], path: str | Path) -> Path:
    """Append rows to a file of JSON lines, making it and its directory if need be."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    with target.open("a", encoding="utf-8") as file:
        file.write(text)
    return target


def read(path: str | Path) -> list[Row]:
    """Read the rows of a file."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {error}") from None
    return [_row(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def _row(line: str, place: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ResultsError(f"{place}: not JSON: {error}") from None
    if not isinstance(row, dict) or "workload" not in row:
        raise ResultsError(f"{place}: not a result row")
    return row
