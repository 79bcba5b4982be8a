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

from siftline.bench.measure import time_each, time_once
from siftline.bench.results import circumstances
from siftline.bench.workloads import Workload, generate

if TYPE_CHECKING:
    from siftline.bench.results import Row
    from siftline.engine import Engine

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
    target : float or None
        None for a figure that is only shown.
    is_rate : bool
        Whether more is better.
    """

    name: str
    unit: str
    samples: list[float]
    target: float | None = None
    is_rate: bool = False

    @property
    def median(self) -> float:
        """The middle of the samples, which decides."""
        return median(self.samples)

    @property
    def best(self) -> float:
        """The best of the samples: what a quieter machine might show."""
        return max(self.samples) if self.is_rate else min(self.samples)

    @property
    def verdict(self) -> str:
        """`met`, `missed`, `missed, best run met it`, or nothing without a target."""
        if self.target is None:
            return ""
        if self._meets(self.median):
            return "met"
        return "missed, best run met it" if self._meets(self.best) else "missed"

    @property
    def is_missed(self) -> bool:
        """Whether there is a target that the median does not meet."""
        return self.verdict.startswith("missed")

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
        for measure in (self.parsing, self.loading, self.encoding, self.json, self.importing, self.scanning):
            say(f"measuring {measure.__name__}")
            found += measure()
        return found

    def parsing(self) -> list[Figure]:
        """Text to model."""
        import siftline

        texts = expressions(self.sizes.n_texts, self.seed)
        for text in texts[:100]:
            siftline.parse(text)
        rates = self._rates(lambda: [siftline.parse(text) for text in texts], len(texts))
        return [Figure("text to model, 5 predicates", "expressions/s", rates, 15_000, is_rate=True)]

    def loading(self) -> list[Figure]:
        """Columns to an engine that is ready to match."""
        coded = self.workload.predicates
        plain = _plain(coded)
        _loaded(coded.slice(0, 1_000))
        n, times = coded.num_rows, self.sizes.n_loads
        return [
            Figure(
                "columnar load into fast-scan, string columns",
                "predicates/s",
                self._rates(lambda: _loaded(plain), n, times),
                2_000_000,
                is_rate=True,
            ),
            Figure(
                "the same, dictionary columns",
                "predicates/s",
                self._rates(lambda: _loaded(coded), n, times),
                is_rate=True,
            ),
        ]

    def encoding(self) -> list[Figure]:
        """Events to codes: single dicts, and an Arrow batch with a column for each attribute."""
        dicts = self.workload.dicts
        encode = self.engine.encode
        time_each(encode, dicts)
        times = [float(np.median(time_each(encode, dicts))) / 1e3 for _ in range(self.sizes.n_passes)]
        batch = self._wide_batch()
        encode(batch.slice(0, 100))
        rates = self._rates(lambda: encode(batch), batch.num_rows)
        return [
            Figure("a dict of 30 attributes encoded", "us", times, 15.0),
            Figure("an Arrow batch of 30 columns encoded", "events/s", rates, 300_000, is_rate=True),
        ]

    def _wide_batch(self) -> Any:
        import pyarrow as pa

        chance = np.random.default_rng(self.seed)
        names = [f"a{i}" for i in range(self.sizes.event_size)]
        return pa.table({name: chance.integers(0, 100, self.sizes.n_batch) for name in names})

    def json(self) -> list[Figure]:
        """JSON bytes to arrays: the parser alone, and with locating every value."""
        from siftline.encoding.json_leaves import parse_json
        from siftline.encoding.path_hash import build_path_hash

        lines = self.workload.json
        lines = (lines * (self.sizes.n_batch // len(lines) + 1))[: self.sizes.n_batch]
        data = b"\n".join(lines)
        ends = np.cumsum([len(line) + 1 for line in lines]) - 1
        starts = np.concatenate([[0], ends[:-1] + 1])
        paths = build_path_hash([f"a{i}" for i in range(self.sizes.n_attributes)])
        parse_json(lines[0], starts[:1], ends[:1], paths)
        self.engine.encode(lines[0])
        parsed = self._rates(lambda: parse_json(data, starts, ends, paths), len(lines))
        encoded = self._rates(lambda: self.engine.encode(data), len(lines))
        return [
            Figure("JSON of 30 pairs to arrays, parser alone", "events/s", parsed, 500_000, is_rate=True),
            Figure("JSON of 30 pairs to codes", "events/s", encoded, 500_000, is_rate=True),
        ]

    def importing(self) -> list[Figure]:
        """`import siftline` in new processes, and what the first match costs there."""
        imports = [_in_new_process(_IMPORT) for _ in range(self.sizes.n_imports)]
        uses = [_in_new_process(_FIRST_MATCH) for _ in range(self.sizes.n_imports)]
        return [
            Figure("import siftline", "s", [seconds for seconds, _ in imports], 0.3),
            Figure("numba imported by that (0: no)", "", [has_numba for _, has_numba in imports], 0.0),
            Figure("import, first engine, first match", "s", [seconds for seconds, _ in uses]),
        ]

    def scanning(self) -> list[Figure]:
        """One encoded event at a time against all subscriptions."""
        events = [self.engine.encode(tree) for tree in self.workload.dicts[: self.sizes.n_events]]
        time_each(self.engine.match, events)
        passes = [float(np.median(time_each(self.engine.match, events))) / 1e6 for _ in range(self.sizes.n_passes)]
        name = f"fast-scan, {self.sizes.n_subscriptions:,} subscriptions of 5"
        return [Figure(name, "ms/event", passes, 5.0)]

    def _rates(self, work: Callable[[], object], n_items: int, times: int | None = None) -> list[float]:
        """Return items per second, several times."""
        return [n_items / time_once(work).seconds for _ in range(times or self.sizes.n_passes)]


# What a new process runs; it prints the seconds and whether numba is loaded.
_IMPORT: Final = "import siftline"
_FIRST_MATCH: Final = "import siftline; e = siftline.Engine(); e.add('a = 1'); e.match({'a': 1})"
_PROBE: Final = (
    "import sys, time; t = time.perf_counter(); {}; print(time.perf_counter() - t, int('numba' in sys.modules))"
)


def _in_new_process(statement: str) -> tuple[float, float]:
    command = [sys.executable, "-c", _PROBE.format(statement)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(output[-2]), float(output[-1])


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
        "median": figure.median,
        "best": figure.best,
        "verdict": figure.verdict,
    }


def table(figures: Sequence[Figure]) -> list[list[str]]:
    """Return the lines of a table, heading first."""
    lines = [
        [figure.name, _shown(figure.median), _shown(figure.best), figure.unit, _target(figure), figure.verdict]
        for figure in figures
    ]
    return [["figure", "median", "best", "unit", "target", ""], *lines]


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return f"{'>=' if figure.is_rate else '<='} {_shown(figure.target)}"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 or value == 0 else f"{value:.3g}"
