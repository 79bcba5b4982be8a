"""Result rows: one JSON line a measurement, with everything that is needed to believe it or to repeat it.

Files that are kept are compressed (`xz -9 sift.jsonl` makes `sift.jsonl.xz`). Whoever names a file that is there only
compressed means that one: rows are read from it, and appended to it as an xz stream of their own.
"""

from __future__ import annotations

import datetime
import json
import lzma
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline_bench.runner import Measurement
    from siftline_bench.workloads import Workload

Row = dict[str, Any]
_COMPRESSED: Final = ".xz"
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


def stored(path: str | Path) -> Path:
    """Return the file itself, or the compressed one if only that is there."""
    plain = Path(path)
    compressed = plain.with_name(f"{plain.name}{_COMPRESSED}")
    return compressed if compressed.exists() and not plain.exists() else plain


def append(rows: Iterable[Mapping[str, Any]], path: str | Path) -> Path:
    """Append rows to a file of JSON lines, making it and its directory if need be."""
    target = stored(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    with target.open("ab") as file:
        file.write(lzma.compress(content) if target.suffix == _COMPRESSED else content)
    return target


def read(path: str | Path) -> list[Row]:
    """Read the rows of a file."""
    try:
        lines = _content(stored(path)).decode().splitlines()
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {error}") from None
    return [_row(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def mend(path: str | Path) -> None:
    """Cut off the end of a file that was being written when its process ended."""
    target = stored(path)
    content = target.read_bytes()
    whole = _whole_streams(content) if target.suffix == _COMPRESSED else content.rfind(b"\n") + 1
    if whole < len(content):
        with target.open("r+b") as file:
            file.truncate(whole)


def _content(path: Path) -> bytes:
    if path.suffix != _COMPRESSED:
        return path.read_bytes()
    with lzma.open(path) as file:
        return file.read()


def _whole_streams(content: bytes) -> int:
    """Return how many bytes the xz streams have that are there to their end."""
    whole = 0
    while whole < len(content):
        stream = lzma.LZMADecompressor()
        try:
            stream.decompress(content[whole:])
        except lzma.LZMAError:  # damaged, which cutting off an end does not mend
            return len(content)
        if not stream.eof:
            return whole
        whole = len(content) - len(stream.unused_data)
    return whole


def _row(line: str, place: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ResultsError(f"{place}: not JSON: {error}") from None
    if not isinstance(row, dict) or not row.keys() & {"workload", "figure"}:
        raise ResultsError(f"{place}: not a result row")
    return row
