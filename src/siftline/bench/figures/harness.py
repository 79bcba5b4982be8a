"""The order of things: which runs are missing, one after the other, each row written at once."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline.bench import results
from siftline.bench.figures.worker import RunFailedError, Worker
from siftline.errors import WrongIdsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from siftline.bench.figures.figure import Figure, Run
    from siftline.bench.results import Row
    from siftline.bench.runner import Say

RESULTS: Final = Path("results")


def path_of(scale: str) -> Path:
    """Return the file of the rows of a scale."""
    return RESULTS / f"figures-{scale}.jsonl"


def rows_by_run(path: Path) -> dict[str, Row]:
    """Return the last row of each run; none if there is no file yet."""
    if not path.exists():
        return {}
    _mend(path)
    return {row["run"]: row for row in results.read(path) if "run" in row}


def _mend(path: Path) -> None:
    """Cut off the end of a file that was being written when its process ended."""
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


@dataclass
class Outcome:
    """What a call of `measure` did."""

    n_runs: int = 0
    n_earlier: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def measure(
    figures: Sequence[Figure],
    scale: str,
    path: Path,
    say: Say,
    *,
    seed: int = 0,
    cache: Path | None = None,
    is_again: bool = False,
) -> Outcome:
    """Measure what the figures need and the file does not have yet; all of it if it is done again."""
    earlier = {} if is_again else rows_by_run(path)
    wanted = distinct(run for each in figures for run in each.runs(scale, seed))
    missing = [run for run in wanted if run.key not in earlier]
    outcome = Outcome(len(missing), len(wanted) - len(missing))
    if outcome.n_earlier:
        say(f"{outcome.n_earlier} of {len(wanted)} runs are in {path} already")
    clock = _Clock(missing, figures, scale)
    with Worker(cache) as worker:
        for number, run in enumerate(missing, 1):
            begin = time.monotonic()
            status = _one(worker, run, scale, path, outcome)
            taken = time.monotonic() - begin
            left = clock.left_after(run, taken)
            say(f"[{number}/{len(missing)}] {_name(run)}: {status}, {taken:.1f} s; {_minutes(left)} left")
    return outcome


def _one(worker: Worker, run: Run, scale: str, path: Path, outcome: Outcome) -> str:
    """Measure a run and write its row; return how that went."""
    try:
        columns = worker.measure(run)
    except WrongIdsError as error:
        outcome.wrong.append(f"{_name(run)}: {error}")
        return "WRONG IDS, no row is written"
    except RunFailedError as error:
        outcome.failures.append(f"{_name(run)}: {error}")
        return "failed, no row is written"
    row: dict[str, Any] = {**run.identity, "scale": scale, **columns, **results.circumstances()}
    results.append([row], path)
    status = str(row["status"])
    outcome.statuses[status] = outcome.statuses.get(status, 0) + 1
    return status if status == "ok" else f"{status} ({row.get('reason')})"


def _name(run: Run) -> str:
    x = f"{run.x:,}" if isinstance(run.x, (int, float)) else run.x
    return f"{run.figure}, {run.series} at {x}"


def distinct(runs: Iterable[Run]) -> list[Run]:
    """Return each run once, under the first figure that has it, and those of a ground together.

    The first x of every series comes first, then the last ones, then those in between, small workloads before large
    ones: who stops before the end, which is hours away at the papers' sizes, has something of everything.
    """
    every = list(runs)
    xs: dict[tuple[str, str], dict[Any, None]] = {}
    for run in every:
        xs.setdefault((run.figure, run.series), {}).setdefault(run.x)
    turns = {line: dict(zip(mine, _turns(len(mine)), strict=True)) for line, mine in xs.items()}
    found: dict[str, Run] = {}
    places: dict[str, tuple[int, int, int]] = {}
    for run in every:
        found.setdefault(run.key, run)
        place = turns[run.figure, run.series][run.x], run.parameters.get("n_subscriptions", 0), len(places)
        places[run.ground] = min(place, places.get(run.ground, place))
    return sorted(found.values(), key=lambda run: places[run.ground])


def _turns(n: int) -> list[int]:
    """Return when each of n comes: the ends, then always what halves the widest gap.

    >>> _turns(6)
    [0, 4, 2, 3, 5, 1]
    """
    order = [0, n - 1][:n]
    while len(order) < n:
        begin, end = max(itertools.pairwise(sorted(order)), key=lambda gap: gap[1] - gap[0])
        order.append((begin + end) // 2)
    return [order.index(k) for k in range(n)]


def planned(figures: Sequence[Figure], scale: str, seed: int = 0) -> tuple[int, float]:
    """Return how many runs the figures have, each once, and the seconds that their budgets give them."""
    each = _budgets(figures, scale)
    runs = distinct(run for figure in figures for run in figure.runs(scale, seed))
    return len(runs), sum(each[run.figure] for run in runs)


def _budgets(figures: Sequence[Figure], scale: str) -> dict[str, float]:
    """Return the seconds for a run of each figure."""
    shown = [each for each in figures if scale in each.scales]
    return {each.name: each.settings(scale).seconds / len(each.runs(scale)) for each in shown}


class _Clock:
    """Guesses the time left: what the figures' budgets say, corrected by how the runs so far kept to them."""

    def __init__(self, runs: Sequence[Run], figures: Sequence[Figure], scale: str) -> None:
        self._each = _budgets(figures, scale)
        self._left = sum(self._each[run.figure] for run in runs)
        self._planned = self._taken = 0.0

    def left_after(self, run: Run, seconds: float) -> float:
        self._planned += self._each[run.figure]
        self._left -= self._each[run.figure]
        self._taken += seconds
        return max(0.0, self._left) * self._taken / self._planned


def _minutes(seconds: float) -> str:
    """Return a time as people say it.

    >>> _minutes(42.4), _minutes(1500)
    ('42 s', '25 min')
    """
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
