"""The foundation's figures: how fast everything is that stands in front of and beside an index, against its targets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline_bench.measure import Timed, time_each, time_once
from siftline_bench.results import circumstances
from siftline_bench.workloads import Workload, generate

if TYPE_CHECKING:
    from siftline.engine import Engine
    from siftline_bench.results import Row

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything is measured."""

    n_subscriptions: int = 1_000_000
    n_predicates: int = 5
    n_attributes: int = 100
    event_size: int = 30
    n_events: int = 200
    n_texts: int = 5_000
    n_batch: int = 100_000
    n_imports: int = 9
    n_passes: int = 7
    n_loads: int = 5


QUICK: Final = Sizes(
    n_subscriptions=50_000, n_events=50, n_texts=500, n_batch=5_000, n_imports=3, n_passes=3, n_loads=2
)


@dataclass(frozen=True)
class Figure:
    """One figure, measured several times.

    Attributes
    ----------
    samples, processor_samples : list of float
        By the wall clock, and by the time that the process had a core: what a quiet machine would show, or somewhat
        more, because others also take away cache and memory bandwidth.
    target : float or None
        None for a figure that is only shown.
    is_rate : bool
        Whether more is better.
    """

    name: str
    unit: str
    samples: list[float]
    processor_samples: list[float]
    target: float | None = None
    is_rate: bool = False

    @classmethod
    def rate(cls, name: str, unit: str, n_items: int, timed: Sequence[Timed], target: float | None = None) -> Figure:
        """Return items per second."""
        walls = [n_items / each.seconds for each in timed]
        return cls(name, unit, walls, [n_items / each.processor_seconds for each in timed], target, is_rate=True)

    @classmethod
    def each(cls, name: str, unit: str, per_second: float, timed: Sequence[Timed], target: float) -> Figure:
        """Return the time of one event, from passes of `time_each`: the median, and by processor time the mean."""
        walls = [float(np.median(each.result)) / 1e9 * per_second for each in timed]
        processors = [each.processor_seconds / len(each.result) * per_second for each in timed]
        return cls(name, unit, walls, processors, target)

    @property
    def median(self) -> float:
        """The middle of the samples."""
        return median(self.samples)

    @property
    def best(self) -> float:
        """The best of the samples."""
        return max(self.samples) if self.is_rate else min(self.samples)

    @property
    def processor(self) -> float:
        """The middle of the samples by processor time."""
        return median(self.processor_samples)

    @property
    def verdict(self) -> str:
        """`met`, `met by processor time`, `missed`, or nothing without a target; medians decide."""
        if self.target is None:
            return ""
        if self._meets(self.median):
            return "met"
        return "met by processor time" if self._meets(self.processor) else "missed"

    def _meets(self, value: float) -> bool:
        assert self.target is not None
        return value >= self.target if self.is_rate else value <= self.target


class Foundation:
    """Measures the figures; what several of them need is made once."""

    def __init__(self, sizes: Sizes, seed: int = 0) -> None:
        self.sizes = sizes
        self.seed = seed

    @cached_property
    def workload(self) -> Workload:
        """Subscriptions of exactly five predicates, `dense` otherwise."""
        sizes = self.sizes
        return generate(
            "dense",
            seed=self.seed,
            n_subscriptions=sizes.n_subscriptions,
            n_events=min(max(sizes.n_events, 2_000), sizes.n_batch),
            n_attributes=sizes.n_attributes,
            least_predicates=sizes.n_predicates,
            most_predicates=sizes.n_predicates,
            event_size=sizes.event_size,
        )

    @cached_property
    def engine(self) -> Engine:
        """An engine with all subscriptions."""
        return _loaded(self.workload.predicates)

    def figures(self, say: Say = lambda text: None) -> list[Figure]:
        """Measure everything."""
        found: list[Figure] = []
        yardstick: list[Timed] = []
        for measure in (self.parsing, self.loading, self.encoding, self.json, self.importing, self.scanning):
            say(f"measuring {measure.__name__}")
            yardstick += [time_once(_additions) for _ in range(3)]
            found += measure()
        return [*found, _yardstick(yardstick)]

    def parsing(self) -> list[Figure]:
        """Text to model."""
        import siftline

        texts = expressions(self.sizes.n_texts, self.seed)
        for text in texts[:100]:
            siftline.parse(text)
        timed = self._times(lambda: [siftline.parse(text) for text in texts])
        return [Figure.rate("text to model, 5 predicates", "expressions/s", len(texts), timed, 15_000)]

    def loading(self) -> list[Figure]:
        """Columns to an engine that is ready to match."""
        coded = self.workload.predicates
        plain = _plain(coded)
        _loaded(coded.slice(0, 1_000))
        name, unit, n = "columnar load into fast-scan, string columns", "predicates/s", coded.num_rows
        return [
            Figure.rate(name, unit, n, self._times(lambda: _loaded(plain), self.sizes.n_loads), 2_000_000),
            Figure.rate(
                "the same, dictionary columns", unit, n, self._times(lambda: _loaded(coded), self.sizes.n_loads)
            ),
        ]

    def encoding(self) -> list[Figure]:
        """Events to codes: single dicts, and an Arrow batch with a column for each attribute."""
        dicts, batch = self.workload.dicts, self._wide_batch()
        encode = self.engine.encode
        time_each(encode, dicts)
        encode(batch.slice(0, 100))
        singles = self._times(lambda: time_each(encode, dicts))
        batches = self._times(lambda: encode(batch))
        return [
            Figure.each("a dict of 30 attributes encoded", "us", 1e6, singles, 15.0),
            Figure.rate("an Arrow batch of 30 columns encoded", "events/s", batch.num_rows, batches, 300_000),
        ]

    def _wide_batch(self) -> Any:
        import pyarrow as pa

        chance = np.random.default_rng(self.seed)
        names = [f"a{i}" for i in range(self.sizes.event_size)]
        return pa.table({name: chance.integers(0, 100, self.sizes.n_batch) for name in names})

    def json(self) -> list[Figure]:
        """JSON bytes to arrays: the parser alone, and with locating every value."""
        from siftline.encoding.json_leaves import parse_json
        from siftline.encoding.path_hash import Paths

        lines = self.workload.json
        lines = (lines * (self.sizes.n_batch // len(lines) + 1))[: self.sizes.n_batch]
        data = b"\n".join(lines)
        ends = np.cumsum([len(line) + 1 for line in lines]) - 1
        starts = np.concatenate([[0], ends[:-1] + 1])
        paths = Paths([f"a{i}" for i in range(self.sizes.n_attributes)])
        parse_json(data, starts[:1], ends[:1], paths)
        self.engine.encode(data[: ends[-1] // 10].rpartition(b"\n")[0])
        parsed = self._times(lambda: parse_json(data, starts, ends, paths))
        encoded = self._times(lambda: self.engine.encode(data))
        return [
            Figure.rate("JSON of 30 pairs to arrays, parser alone", "events/s", len(lines), parsed, 500_000),
            Figure.rate("JSON of 30 pairs to codes", "events/s", len(lines), encoded, 500_000),
        ]

    def importing(self) -> list[Figure]:
        """`import siftline` in new processes, and what the first match costs there."""
        imports = [_in_new_process(_IMPORT) for _ in range(self.sizes.n_imports)]
        uses = [_in_new_process(_FIRST_MATCH) for _ in range(self.sizes.n_imports)]
        loaded = [float(each.result) for each in imports]
        return [
            _seconds("import siftline", imports, 0.3),
            Figure("numba imported by that (0: no)", "", loaded, loaded, 0.0),
            _seconds("import, first engine, first match", uses),
        ]

    def scanning(self) -> list[Figure]:
        """One encoded event at a time against all subscriptions."""
        events = [self.engine.encode(tree) for tree in self.workload.dicts[: self.sizes.n_events]]
        time_each(self.engine.match, events)
        timed = self._times(lambda: time_each(self.engine.match, events))
        return [
            Figure.each(f"fast-scan, {self.sizes.n_subscriptions:,} subscriptions of 5", "ms/event", 1e3, timed, 5.0)
        ]

    def _times(self, work: Callable[[], object], times: int | None = None) -> list[Timed]:
        return [time_once(work) for _ in range(times or self.sizes.n_passes)]


# What a new process runs; it prints the seconds by both clocks, and whether numba is loaded.
_IMPORT: Final = "import siftline"
_FIRST_MATCH: Final = "import siftline; e = siftline.Engine(); e.add('a = 1'); e.match({'a': 1})"
_PROBE: Final = """
import sys, time
wall, processor = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - wall, time.process_time() - processor, int("numba" in sys.modules))
"""


def _in_new_process(statement: str) -> Timed:
    command = [sys.executable, "-c", _PROBE.format(statement)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    wall, processor, has_numba = output[-3:]
    return Timed(has_numba == "1", float(wall), float(processor))


def _seconds(name: str, timed: Sequence[Timed], target: float | None = None) -> Figure:
    return Figure(name, "s", [each.seconds for each in timed], [each.processor_seconds for each in timed], target)


def _additions() -> int:
    total = 0
    for i in range(1_000_000):
        total += i
    return total


def _yardstick(timed: Sequence[Timed]) -> Figure:
    """Return how fast the machine itself was during the run.

    Virtual machines that share a core run at half speed while their neighbour works, which no clock of ours can see:
    if best and median differ here, they differ everywhere.
    """
    walls = [1e3 * each.seconds for each in timed]
    processors = [1e3 * each.processor_seconds for each in timed]
    return Figure("yardstick: 1,000,000 additions in Python", "ms", walls, processors)


def _loaded(predicates: Any) -> Engine:
    import siftline

    engine = siftline.Engine(index="fast-scan")
    engine.add_many(predicates)
    return engine


def _plain(table: Any) -> Any:
    """Return the table with text columns as plain strings."""
    import pyarrow as pa

    for name in ("attribute", "op"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.string()))
    return table


def expressions(n: int, seed: int) -> list[str]:
    """Return different expressions of five predicates each, of five forms, in changing order.

    >>> expressions(1, 0)
    ["stock >= 90 and price <= 64.5 and year between 1927 and 1951 and brand = 'b85' and color in ('c27', 'c1', 'c5')"]
    """
    chance = np.random.default_rng(seed)
    found = []
    for a, b, c, d, e, f in chance.integers(1, 100, size=(n, 6)).tolist():
        parts = [
            f"brand = 'b{a}'",
            f"price <= {b}.5",
            f"year between {1900 + min(c, d)} and {1900 + max(c, d)}",
            f"color in ('c{d}', 'c{e % 10}', 'c{f % 10}')",
            f"stock >= {a + f}",
        ]
        found.append(" and ".join(parts[i] for i in chance.permutation(5)))
    return found


def rows_of(figures: Sequence[Figure], sizes: Sizes, seed: int) -> list[Row]:
    """Return a result row for each figure."""
    head = {"workload": "foundation", "parameters": asdict(sizes), "seed": seed, "n_passes": sizes.n_passes}
    return [{**head, **_columns(figure), **circumstances()} for figure in figures]


def _columns(figure: Figure) -> Row:
    return {
        "index": figure.name,
        "status": "ok",
        "unit": figure.unit,
        "is_rate": figure.is_rate,
        "target": figure.target,
        "passes": figure.samples,
        "processor_passes": figure.processor_samples,
        "median": figure.median,
        "best": figure.best,
        "processor": figure.processor,
        "verdict": figure.verdict,
    }


def table(figures: Sequence[Figure]) -> list[list[str]]:
    """Return the lines of a table, heading first."""
    lines = [[figure.name, *_numbers(figure), figure.unit, _target(figure), figure.verdict] for figure in figures]
    return [["figure", "median", "best", "by processor time", "unit", "target", ""], *lines]


def _numbers(figure: Figure) -> list[str]:
    return [_shown(value) for value in (figure.median, figure.best, figure.processor)]


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return f"{'>=' if figure.is_rate else '<='} {_shown(figure.target)}"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 or value == 0 else f"{value:.3g}"
