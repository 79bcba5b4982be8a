"""The order of things: which runs are missing, one after the other, each row written at once.

After the first round come others, only of the runs that verdicts hang on (`claims.py`), until none does or there were
enough rounds. A slow minute of the machine then spoils one row of several.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from siftline_bench import results
from siftline_bench.arguments import results_path
from siftline_bench.errors import WrongIdsError
from siftline_bench.figures.claims import claims, verdicts
from siftline_bench.figures.speed import steadied
from siftline_bench.figures.worker import RunFailedError, Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from siftline_bench.figures.figure import Figure, Run
    from siftline_bench.results import Rounds, Row
    from siftline_bench.runner import Say

# How many rows a run gets at most, unless more or fewer are asked for: at the papers' sizes one takes minutes.
MOST_ROUNDS: Final = {"small": 15, "paper": 1}
# After so many rounds it is asked again whether a verdict hangs on a run. After each, those that look sure by chance
# would stop: tried in a simulation, two whole measurements then agree less often.
_STAGES: Final = (1, 3, 7)
# Nothing is measured once more after this time, so that all small figures stay within half an hour.
_ROUNDS_END_S: Final = {"small": 28 * 60.0, "paper": math.inf}


def path_of(scale: str) -> Path:
    """Return the file of the rows of a scale."""
    return results_path(f"figures-{scale}")


def rows_by_run(path: Path) -> dict[str, list[Row]]:
    """Return the rows of each run, one for each round, the first one where it was begun anew; none without a file."""
    if not results.stored(path).exists():
        return {}
    results.mend(path)
    return by_run(results.read(path))


def by_run(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return those rows that are of figures, by run."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if "run" in row:
            rounds = found.setdefault(row["run"], [])
            if row.get("round", 1) == 1:
                rounds.clear()
            rounds.append(row)
    return found


@dataclass
class Outcome:
    """What a call of `measure` did; `n_more` counts the rows of later rounds."""

    n_runs: int = 0
    n_earlier: int = 0
    n_more: int = 0
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
    most_rounds: int | None = None,
) -> Outcome:
    """Measure what the figures need and the file does not have yet; all of it if it is done again.

    Then, in rounds, what verdicts hang on, up to `most_rounds` rows of a run: see `MOST_ROUNDS`.
    """
    earlier = {} if is_again else rows_by_run(path)
    wanted = distinct(run for each in figures for run in each.runs(scale, seed))
    missing = [run for run in wanted if run.key not in earlier]
    outcome = Outcome(len(missing), len(wanted) - len(missing))
    if outcome.n_earlier:
        say(f"{outcome.n_earlier} of {len(wanted)} runs are in {path} already")
    end = time.monotonic() + _ROUNDS_END_S[scale]
    most = MOST_ROUNDS[scale] if most_rounds is None else most_rounds
    with Worker(cache) as worker:
        session = _Session(worker, scale, path, say, outcome)
        session.measure(missing, _Clock(missing, figures, scale), {})
        while not (outcome.wrong or outcome.failures):
            rows = rows_by_run(path)
            again = in_doubt(wanted, scale, rows, most, seed)
            if not again or time.monotonic() > end:
                break
            say(f"verdicts hang on {len(again)} runs: once more")
            outcome.n_more += session.measure(again, _Clock(again, figures, scale), rows, end)
    return outcome


def in_doubt(runs: Sequence[Run], scale: str, rows: Rounds, most_rounds: int, seed: int = 0) -> list[Run]:
    """Return those runs that verdicts hang on, while they have fewer rounds than the next stage wants."""
    stages = [*(stage for stage in _STAGES if stage < most_rounds), most_rounds]
    reached = {run: max(stage for stage in (1, *stages) if stage <= len(rounds)) for run, rounds in rows.items()}
    asked = {run: rounds[: reached[run]] for run, rounds in rows.items()}
    doubtful = set()
    for verdict in verdicts(claims(), scale, steadied(asked), seed):
        for answer in verdict.hangs_on:
            least = min(reached[run] for run in answer.runs)
            wanted = next((stage for stage in stages if stage > least), 0)
            doubtful |= {run for run in answer.runs if len(rows[run]) < wanted}
    return [run for run in runs if run.key in doubtful]


class _Session:
    """What measures runs and writes their rows."""

    def __init__(self, worker: Worker, scale: str, path: Path, say: Say, outcome: Outcome) -> None:
        self._worker, self._scale, self._path, self._say, self._outcome = worker, scale, path, say, outcome

    def measure(self, runs: Sequence[Run], clock: _Clock, earlier: Rounds, end: float = math.inf) -> int:
        """Measure each run once, as long as there is time; return how many.

        The earlier rows are those of earlier rounds.
        """
        for number, run in enumerate(runs, 1):
            begin = time.monotonic()
            if begin > end:
                return number - 1
            status = self._one(run, 1 + len(earlier.get(run.key, ())))
            taken = time.monotonic() - begin
            left = _minutes(clock.left_after(run, taken))
            self._say(f"[{number}/{len(runs)}] {_name(run)}: {status}, {taken:.1f} s; {left} left")
        return len(runs)

    def _one(self, run: Run, n_rounds: int) -> str:
        """Measure a run and write its row; return how that went."""
        try:
            columns = self._worker.measure(run)
        except WrongIdsError as error:
            self._outcome.wrong.append(f"{_name(run)}: {error}")
            return "WRONG IDS, no row is written"
        except RunFailedError as error:
            self._outcome.failures.append(f"{_name(run)}: {error}")
            return "failed, no row is written"
        where = {"scale": self._scale, "round": n_rounds}
        row: dict[str, Any] = {**run.identity, **where, **columns, **results.circumstances()}
        results.append([row], self._path)
        status = str(row["status"])
        self._outcome.statuses[status] = self._outcome.statuses.get(status, 0) + 1
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
