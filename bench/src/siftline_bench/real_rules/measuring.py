"""The figures of `siftline bench rules`: reading, loading and matching, and the same elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.encoding.statistics import Statistics
from siftline.engine import Engine
from siftline_bench.foundation import Figure
from siftline_bench.measure import Spread, Timed, no_collection, time_once
from siftline_bench.real_rules import figures, memory, rivals
from siftline_bench.real_rules.copies import copied
from siftline_bench.real_rules.data import KIND, sample
from siftline_bench.real_rules.figures import Found, of_passes, of_values
from siftline_bench.real_rules.rivals import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from siftline.model.expression import Expression
    from siftline.sigma import Rules
    from siftline_bench.real_rules.data import EventFile

Say = Callable[[str], None]
_MICROSECONDS: Final = 1e6
_MEGABYTE: Final = 1e6
# Counters of caches in `stats()` end so.
_HITS, _LOOKUPS = " hits", " lookups"
_FIRST_REFUSED: Final = 10
# Events with which it is checked that copies change nothing for the rules themselves.
_COPIES_CHECKED: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured.

    Attributes
    ----------
    n_passes : int
        Passes over the same events; fewer once `box_s` seconds are over.
    n_batch, n_singles : int
        The most events of one batch, and those that are matched one by one.
    n_kinds, least_of_kind : int
        How many kinds of events are timed by themselves, and how many events make a kind.
    n_compared, n_sqlite, n_scanned : int
        How many events of a file DuckDB, SQLite and `scan` get.
    n_copies : int
        How many times the rules are there in the last figures; 1 leaves these out.
    is_judged : bool
        Whether targets count, which are about all rules.
    """

    n_passes: int = 5
    box_s: float = 30.0
    n_batch: int = 10_000
    n_singles: int = 10_000
    n_kinds: int = 8
    least_of_kind: int = 50
    n_compared: int = 20_000
    n_sqlite: int = 200
    n_scanned: int = 100
    n_copies: int = 1
    is_judged: bool = True


def reading(folder: Path, pipelines: Sequence[str] | None, sizes: Sizes, say: Say) -> tuple[Rules, list[Found]]:
    """Read the rules, and return them with the time of all and of each part."""
    try:
        from siftline.sigma import PIPELINES, read_rules
    except ImportError as error:
        raise ValueError(str(error)) from None
    say("reading rules")
    timed = [time_once(lambda: read_rules(folder, PIPELINES if pipelines is None else pipelines))]
    rules: Rules = timed[0].result
    for reason, n in Counter(problem.reason for problem in rules.refused).most_common(_FIRST_REFUSED):
        say(f"{n} rules refused: {reason}")
    facts = {
        "n_rules": len(rules),
        "n_refused": len(rules.refused),
        "refused": [f"{problem.file}: {problem.reason}" for problem in rules.refused],
    }
    target = figures.OF_RULES_AT_MOST[figures.READING] if sizes.is_judged else None
    found = [Found(figures.RULES, figures.OURS, of_passes(figures.READING, "s", 1.0, timed, target), facts)]
    for part, seconds in rules.seconds.items():
        found.append(_number(f"s for {part}", seconds))
    return rules, [*found, _number("rules loaded", len(rules)), _number("rules refused", len(rules.refused))]


def _number(name: str, value: float, target: float | None = None, **facts: Any) -> Found:
    return Found(figures.RULES, figures.OURS, of_values(name, [value], target), facts)


@dataclass
class Bench:
    """Rules, the events of one file, and an engine for them."""

    rules: list[tuple[str, Expression]]
    file: EventFile
    statistics: Statistics
    sizes: Sizes
    say: Say

    @classmethod
    def of(cls, rules: list[tuple[str, Expression]], file: EventFile, sizes: Sizes, say: Say) -> Bench:
        """Collect the statistics of the first events."""
        say(f"{file.name}: statistics of {len(file.seen):,} events")
        return cls(rules, file, Statistics.from_events([json.loads(line) for line in file.seen]), sizes, say)

    def loaded(self) -> Engine:
        """Return a new engine with all rules."""
        engine = Engine(statistics=self.statistics)
        engine.add_many(self.rules)
        return engine

    @cached_property
    def engine(self) -> Engine:
        """An engine with all rules, that has nothing to do any more."""
        self.say(f"{self.file.name}: loading {len(self.rules):,} rules")
        engine = self.loaded()
        engine.settle()
        return engine

    @cached_property
    def with_command_line(self) -> list[bytes]:
        """The timed events that have a command line."""
        return self.file.with_command_line()

    def timed(self, work: Callable[[], Any]) -> list[Timed]:
        """Run `work` as often as the sizes say, within the time; the first run counts only if it is too long."""
        done = [time_once(work)]
        if self.sizes.n_passes > 1 and done[0].seconds < self.sizes.box_s / 2:
            done = [time_once(work)]
        while len(done) < self.sizes.n_passes and sum(each.seconds for each in done) < self.sizes.box_s:
            done.append(time_once(work))
        return done

    def target(self, value: float | None) -> float | None:
        """Return a target, if targets count."""
        return value if self.sizes.is_judged else None

    def found(self, events: str, figure: Figure, **facts: Any) -> Found:
        """Return a figure of our own, of some events of the file."""
        return Found(f"{self.file.name}{events}", figures.OURS, figure, facts)


def loading(bench: Bench) -> list[Found]:
    """Time `add_many`, kernels loaded, and count what it made."""
    bench.say("warming up")
    small = replace(bench, rules=sample(bench.rules, 100), say=lambda text: None)
    warm_up(small.engine, bench.file.seen[:100])
    bench.say("timing add_many")
    target = bench.target(figures.OF_RULES_AT_MOST[figures.ADDING])
    timed = bench.timed(bench.loaded)
    engine = timed[-1].result
    settled = time_once(engine.settle)
    bench.engine = engine
    stats = engine.stats()
    return [
        Found(figures.RULES, figures.OURS, of_passes(figures.ADDING, "s", 1.0, timed, target)),
        Found(figures.RULES, figures.OURS, of_passes("s to settle after it", "s", 1.0, [settled])),
        *(_number(name, value) for name, value in numbers(stats).items() if value and name != "subscriptions"),
        _number("MB of arrays", (_total(stats["bytes"]) + stats["clause_bytes"]) / _MEGABYTE),
    ]


def _total(sizes: Any) -> int:
    return sum(map(_total, sizes.values())) if isinstance(sizes, dict) else int(sizes)


def warm_up(engine: Engine, lines: Sequence[bytes]) -> None:
    """Let all kernels be loaded that matching calls."""
    dicts = [json.loads(line) for line in lines]
    for batch in (b"\n".join(lines), dicts):
        engine.match_batch(batch, threads=1)
    engine.match_batch(_arrow(lines), event="event", threads=1)
    for line, event in zip(lines, dicts, strict=True):
        engine.match(line)
        engine.match(event)


def _arrow(lines: Sequence[bytes]) -> Any:
    import pyarrow as pa

    return pa.table({"event": pa.array([line.decode() for line in lines], pa.string())})


def memory_figures(bench: Bench) -> list[Found]:
    """Measure what a process grows by that has all rules and matches."""
    if not sys.platform.startswith("linux"):
        bench.say("memory is measured on Linux only")
        return []
    bench.say("measuring memory")
    taken = memory.measured(bench.rules, bench.statistics, sample(bench.file.seen, 100))
    target = bench.target(figures.OF_RULES_AT_MOST[figures.MEMORY])
    names = {
        figures.MEMORY: ("loaded", "imported", target),
        "MB above a process that has loaded kernels": ("loaded", "warm", None),
        "MB above the imported process, at most": ("peak", "imported", None),
    }
    return [
        _number(name, (taken[of] - taken[above]) / _MEGABYTE, bound, **taken)
        for name, (of, above, bound) in names.items()
    ]


def matching(bench: Bench) -> Iterator[Found]:
    """Time events in batches and one by one: all, those with a command line, and each of the largest kinds."""
    warm_up(bench.engine, bench.file.seen[:100])
    lines = bench.file.timed
    bounds = figures.targets_of(bench.file, len(bench.with_command_line))
    yield from _batches(bench, "", lines, bounds)
    yield from _singles(bench, "", lines, bounds)
    yield from _other_forms(bench)
    if 0 < len(bench.with_command_line) < len(lines):
        bounds, name = figures.targets_with_command_line(bench.file), figures.WITH_COMMAND_LINE
        yield from _batches(bench, name, bench.with_command_line, bounds)
        yield from _singles(bench, name, bench.with_command_line, bounds)
    kinds = bench.file.kinds(bench.sizes.n_kinds, bench.sizes.least_of_kind)
    for kind, mine in kinds.items():
        name = f", {KIND} {kind}"
        yield from _batches(bench, name, mine, {})
        yield from _singles(bench, name, mine, {})


def _batches(bench: Bench, name: str, lines: Sequence[bytes], bounds: dict[str, float]) -> Iterator[Found]:
    """Time batches of JSON Lines, and count what matching them has done."""
    bench.say(f"{bench.file.name}{name}: {len(lines):,} events in batches")
    batches = [b"\n".join(part) for part in _parts(lines, bench.sizes.n_batch)]
    before, n_runs = numbers(bench.engine.stats()), [0]

    def work() -> int:
        n_runs[0] += 1
        return sum(bench.engine.match_batch(batch, threads=1).num_rows for batch in batches)

    timed = bench.timed(work)
    n_events, n_matches = len(lines), timed[-1].result
    counts = grown(before, numbers(bench.engine.stats()), n_events * n_runs[0])
    bound = bench.target(bounds.get(figures.BATCHES))
    figure = of_passes(figures.BATCHES, "us", _MICROSECONDS / n_events, timed, bound)
    n_bytes = sum(map(len, lines)) / n_events
    yield bench.found(name, figure, n_events=n_events, n_matches=n_matches, bytes_an_event=round(n_bytes), work=counts)
    yield bench.found(name, of_values("matches an event", [n_matches / n_events]))
    for what, value in counts.items():
        yield bench.found(name, of_values(what, [value]))


def _parts(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[first : first + size] for first in range(0, len(items), size)]


def numbers(stats: dict[str, Any]) -> dict[str, int]:
    """Return the whole numbers of `stats()`, those of its parts too, without bytes.

    >>> numbers({"index": "sift", "bytes": {"a": 1}, "clauses": 2, "checks": {"regex_calls": 3}})
    {'clauses': 2, 'checks regex calls': 3}
    """
    found: dict[str, int] = {}
    for key, value in stats.items():
        name = key.replace("_", " ")
        if isinstance(value, dict) and key != "bytes":
            found |= {f"{name} {inner}": n for inner, n in numbers(value).items()}
        elif isinstance(value, int) and not key.endswith("bytes"):
            found[name] = value
    return found


def grown(before: dict[str, int], after: dict[str, int], n_events: int) -> dict[str, float]:
    """Return by how much the numbers of `stats()` have grown for each event, and the hit rates of caches.

    >>> grown({"n": 1, "x": 0, "of hits": 0, "of lookups": 0}, {"n": 1, "x": 8, "of hits": 3, "of lookups": 4}, 4)
    {'x an event': 2.0, 'of hits an event': 0.75, 'of lookups an event': 1.0, 'of hit rate': 0.75}
    """
    growth = {name: value - before.get(name, 0) for name, value in after.items() if name != "events"}
    found = {f"{name} an event": n / n_events for name, n in growth.items() if n}
    for name, n in growth.items():
        cache = name.removesuffix(_LOOKUPS)
        if cache != name and n and f"{cache}{_HITS}" in growth:
            found[f"{cache} hit rate"] = growth[f"{cache}{_HITS}"] / n
    return found


def _singles(bench: Bench, name: str, lines: Sequence[bytes], bounds: dict[str, float]) -> Iterator[Found]:
    """Time events one by one: an event's own time is the median of its passes."""
    chosen = sample(lines, bench.sizes.n_singles)
    bench.say(f"{bench.file.name}{name}: {len(chosen):,} events one by one")
    timed = bench.timed(lambda: _time_each(bench.engine.match, chosen))
    walls, processors = (np.stack([each.result[clock] for each in timed]) / 1e3 for clock in (0, 1))
    medians = [np.median(times, axis=1).tolist() for times in (walls, processors)]
    wall, processor = (Spread.of(np.median(times, axis=0)) for times in (walls, processors))
    facts = {"n_events": len(chosen), "match_us": wall.as_dict(), "match_processor_us": processor.as_dict()}
    figure = Figure(figures.SINGLES, "us", medians[0], medians[1], bench.target(bounds.get(figures.SINGLES)))
    tails = [[each.p99 / each.median] for each in (wall, processor)]
    yield bench.found(name, figure, **facts)
    yield bench.found(name, Figure("us an event one by one, p99", "us", [wall.p99], [processor.p99]))
    yield bench.found(name, Figure(figures.TAIL, "", tails[0], tails[1], bench.target(bounds.get(figures.TAIL))))


def _time_each(work: Callable[[Any], object], items: Sequence[Any]) -> NDArray[np.int64]:
    """Return the nanoseconds that `work` takes for each item: by the wall clock, and of the processor.

    The second clock asks the system, and is read outside of the first one: it shows about a microsecond more.
    """
    wall, processor = time.perf_counter_ns, time.thread_time_ns
    taken = np.empty((2, len(items)), dtype=np.int64)
    with no_collection():
        for i, item in enumerate(items):
            processor_begin, begin = processor(), wall()
            work(item)
            end, processor_end = wall(), processor()
            taken[:, i] = end - begin, processor_end - processor_begin
    return taken


def _other_forms(bench: Bench) -> Iterator[Found]:
    """Time batches of dicts, and of an Arrow table with a column of JSON."""
    lines = sample(bench.file.timed, bench.sizes.n_batch)
    bench.say(f"{bench.file.name}: {len(lines):,} events as dicts and in an Arrow table")
    dicts, arrow = [json.loads(line) for line in lines], _arrow(lines)
    works = {
        figures.DICTS: lambda: bench.engine.match_batch(dicts, threads=1),
        figures.ARROW: lambda: bench.engine.match_batch(arrow, event="event", threads=1),
    }
    for name, work in works.items():
        yield bench.found("", of_passes(name, "us", _MICROSECONDS / len(lines), bench.timed(work)), n_events=len(lines))


def comparing(bench: Bench) -> Iterator[Found]:
    """Ask DuckDB, SQLite and `scan` about the same rules and events; raise WrongIdsError if ids differ."""
    sizes, lines = bench.sizes, sample(bench.file.timed, bench.sizes.n_compared)
    if not lines:
        return
    ours = rivals.pairs_of(bench.engine, lines)
    works = [
        (rivals.duckdb_answer, len(lines), min(sizes.n_passes, 3)),
        (rivals.sqlite_answer, min(sizes.n_sqlite, len(lines)), 1),
        (rivals.scan_answer, min(sizes.n_scanned, len(lines)), 1),
    ]
    for ask, n, n_passes in works:
        numbers = sample(range(len(lines)), n)
        mine = [lines[number] for number in numbers]
        bench.say(f"{bench.file.name}: {n:,} events for {ask.__name__.partition('_')[0]}")
        answer = ask(bench.rules, mine, n_passes)
        places = {number: place for place, number in enumerate(numbers)}
        expected = {(places[event], id) for event, id in ours if event in places}
        n_same = rivals.check_same(answer, expected)
        yield from _rival_figures(bench, answer, n, n_same)
        if answer.name == "duckdb" and answer.events:
            yield _against_duckdb(bench, answer, mine)


def _rival_figures(bench: Bench, answer: Answer, n_asked: int, n_same: int) -> Iterator[Found]:
    n_rules, n_events = len(bench.rules) - len(answer.refused), len(answer.events)
    for reason, n in Counter(answer.refused.values()).most_common(_FIRST_REFUSED):
        named = [id for id, mine in answer.refused.items() if mine == reason][:_FIRST_REFUSED]
        bench.say(f"{answer.name}: {n} rules left out, {reason}: {', '.join(named)}{', ...' if n > len(named) else ''}")
    facts = {
        "n_rules": n_rules,
        "refused": answer.refused,
        "n_events": n_events,
        "n_events_left_out": n_asked - n_events,
        "n_same_pairs": n_same,
        "prepare_s": answer.prepare_s,
    }
    bench.say(f"{answer.name}: {n_same:,} equal matches of {n_rules:,} rules on {n_events:,} of {n_asked:,} events")
    if n_events:
        figure = of_passes(figures.ELSEWHERE, "us", _MICROSECONDS / n_events, answer.timed)
        yield Found(bench.file.name, answer.name, figure, facts)
        yield Found(bench.file.name, answer.name, of_values("s to prepare", [answer.prepare_s]))


def _against_duckdb(bench: Bench, answer: Answer, lines: Sequence[bytes]) -> Found:
    """Return how many times as long DuckDB takes for the events that it took."""
    taken = [lines[number] for number in answer.events]
    batches = [b"\n".join(part) for part in _parts(taken, bench.sizes.n_batch)]
    own = bench.timed(lambda: [bench.engine.match_batch(batch, threads=1).num_rows for batch in batches])
    walls = median(each.seconds for each in own)
    processor = max(median(each.processor_seconds for each in own), 1e-9)
    is_usual = not bench.file.is_regression and len(bench.with_command_line) < len(bench.file.timed)
    target = bench.target(figures.DUCKDB_AT_LEAST) if is_usual else None
    figure = Figure(
        figures.TIMES_DUCKDB,
        "",
        [each.seconds / walls for each in answer.timed],
        [each.processor_seconds / processor for each in answer.timed],
        target,
        is_rate=True,
    )
    return bench.found("", figure, n_events=len(answer.events))


def copying(bench: Bench, seed: int) -> Iterator[Found]:
    """Time batches with many times as many rules against the rules alone, in turns."""
    sizes = bench.sizes
    bench.say(f"{bench.file.name}: {sizes.n_copies} copies of {len(bench.rules):,} rules")
    large = replace(bench, rules=copied(bench.rules, sizes.n_copies, seed))
    timed = time_once(lambda: large.engine)
    lines = sample(bench.file.timed, sizes.n_batch)
    warm_up(large.engine, lines[:100])
    _check_copies(bench, large, lines[:_COPIES_CHECKED])
    batch, before = b"\n".join(lines), numbers(large.engine.stats())
    rounds = [_in_turn(bench.engine, large.engine, batch)]
    while len(rounds) < sizes.n_passes and sum(each.seconds for pair in rounds for each in pair) < sizes.box_s:
        rounds.append(_in_turn(bench.engine, large.engine, batch))
    counts = grown(before, numbers(large.engine.stats()), len(lines) * len(rounds))
    name = f", {sizes.n_copies} copies"
    passes = [late for _, late in rounds]
    figure = of_passes(figures.BATCHES, "us", _MICROSECONDS / len(lines), passes)
    n_matches, n_matches_of_one = (each.result / len(lines) for each in reversed(rounds[-1]))
    facts = {"n_rules": len(large.rules), "n_events": len(lines), "work": counts}
    yield bench.found(name, figure, **facts)
    walls = [late.seconds / early.seconds for early, late in rounds]
    processors = [late.processor_seconds / max(early.processor_seconds, 1e-9) for early, late in rounds]
    is_target = sizes.n_copies == figures.TARGET_COPIES and not bench.file.is_regression
    target = bench.target(figures.COPIES_AT_MOST) if is_target else None
    yield bench.found(name, Figure(figures.OF_COPIES, "", walls, processors, target), **facts)
    yield bench.found(name, of_values("matches an event", [n_matches]), of_one_copy=n_matches_of_one)
    for what, value in counts.items():
        yield bench.found(name, of_values(what, [value]))
    yield bench.found(name, of_passes("s to load", "s", 1.0, [timed]))


def _check_copies(bench: Bench, large: Bench, lines: Sequence[bytes]) -> None:
    """Raise WrongIdsError if the rules match other events with copies beside them than alone."""
    own = {id for id, _ in bench.rules}
    found = {pair for pair in rivals.pairs_of(large.engine, lines) if pair[1] in own}
    answer = Answer("the engine with copies", list(range(len(lines))), found)
    rivals.check_same(answer, rivals.pairs_of(bench.engine, lines))


def _in_turn(small: Engine, large: Engine, batch: bytes) -> tuple[Timed, Timed]:
    """Time both engines on a batch, right after each other."""
    return _counted(small, batch), _counted(large, batch)


def _counted(engine: Engine, batch: bytes) -> Timed:
    return time_once(lambda: engine.match_batch(batch, threads=1).num_rows)
