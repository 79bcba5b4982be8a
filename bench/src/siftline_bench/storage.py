"""What `pb-tree` reads from its file, how large it may become, and the PB+tree paper's Table 1, measured.

Page reads: one attribute; `=`, and `>`, `>=` with constants in the upper half, `<`, `<=` in the lower one. A value in
the middle satisfies hardly any of them, and the further out it lies, the more: so L goes from 0 to two fifths of n.
Reads are fitted by a log_B n + b L/B, B being how many constants a page of a list holds, with a pool of a twentieth of
the file.
"""

from __future__ import annotations

import json
import math
import operator
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.encoding.terms import key_of
from siftline.indexes.pb_tree.bulk import load_predicates
from siftline.indexes.pb_tree.predicates import PredicateTree
from siftline.storage.pages import PageFile
from siftline_bench.errors import WrongIdsError
from siftline_bench.structures.table_one import STRUCTURES
from siftline_bench.structures.table_one_intervals import Predicate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Say = Callable[[str], None]

Row = dict[str, Any]

_OPERATORS: Final = ("=", "<", "<=", ">", ">=")
# How far out the values of a search lie: 0 is the middle, 1 an end.
_DISTANCES: Final = (0.0, 0.01, 0.1, 0.5, 1.0)
_POOL_SHARE: Final = 0.05
# The paper's Table 1 for searches, insertions and space.
_CLAIMED: Final = {
    "PB+tree": ("log n + L", "log n", "n"),
    "grouped filter": ("log n + L", "log n", "n"),
    "red-black tree": ("n", "log n", "n"),
    "IBS-tree": ("log n + L", "log^2 n", "n log n"),
    "time index": ("log n + L", "log n .. n", "n^2"),
    "interval B+tree": ("n", "log n", "n"),
}
# The large engine: subscriptions of so many predicates, over so many attributes, with constants below that.
_PREDICATES_EACH: Final = 5
_ATTRIBUTES: Final = 100
_VALUES: Final = 1_000_000
# This many subscriptions are added at once.
_BATCH: Final = 4_000
_HOLDS: Final = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
# A time index of half-infinite intervals has n^2 / 2 entries.
_MOST_SQUARED: Final = 2_000


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    predicates: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    n_searches: int = 40
    n_changes: int = 1_000
    large: int = 5_000_000
    large_mb: float = 64
    small: tuple[int, ...] = (500, 2_000, 8_000)


QUICK: Final = Sizes((1_000, 4_000), 5, 50, 10_000, 1, (100, 400))


# page reads


def page_reads(sizes: Sizes, seed: int, say: Say) -> list[Row]:
    """Measure searches, insertions and deletions at several sizes."""
    rows = []
    for n in sizes.predicates:
        say(f"{n:,} predicates: building")
        rng = random.Random(f"{seed} {n}")
        predicates = sorted(_drawn(rng, n))
        with tempfile.TemporaryDirectory() as folder:
            state = _built(Path(folder) / "pages", predicates)
            # Opened again with a small pool, so that nothing is in it.
            n_bytes = (Path(folder) / "pages").stat().st_size
            pages = PageFile(Path(folder) / "pages", buffer_mb=_POOL_SHARE * n_bytes / 2**20)
            tree = PredicateTree(pages, state)
            say(f"{n:,} predicates: searching and changing")
            shape = {"n": n, "file_bytes": n_bytes, "pool_bytes": int(_POOL_SHARE * n_bytes), **_shape(tree)}
            rows += [{**shape, **row} for row in _searched(tree, predicates, sizes.n_searches, rng)]
            rows += [{**shape, **row} for row in _changed(tree, sizes.n_changes, n, rng)]
            pages.close_files()
    return rows


def _drawn(rng: random.Random, n: int) -> Iterator[tuple[float, str, int]]:
    for id in range(n):
        op = _OPERATORS[id % len(_OPERATORS)]
        yield (rng.random() / 2 + (0.5 if op[0] == ">" else 0.0) if op != "=" else rng.random()), op, id


def _built(path: Path, predicates: list[tuple[float, str, int]]) -> list[int]:
    pages = PageFile(path)
    tree = PredicateTree(pages)
    with pages.changing():
        load_predicates(tree, ((key_of(constant)[1], op, id) for constant, op, id in predicates))
    pages.checkpoint(b"")
    pages.close_files()
    return tree.state


def _shape(tree: PredicateTree) -> Row:
    """Return B, that is, how many constants a page of a list holds, and the height of the tree."""
    place = tree.tree.place(key_of(0.9)[1])
    return {"per_page": tree.nodes_per_page(), "height": len(place.path) + 1}


def _searched(
    tree: PredicateTree, predicates: list[tuple[float, str, int]], n_searches: int, rng: random.Random
) -> Iterator[Row]:
    """Search far and near in random order, and each value once more with an empty pool."""
    pages = tree.pages
    counted: dict[float, list[tuple[int, int, int]]] = {distance: [] for distance in _DISTANCES}
    values: dict[float, list[float]] = {distance: [] for distance in _DISTANCES}
    for distance in rng.sample(list(_DISTANCES) * n_searches, len(_DISTANCES) * n_searches):
        value = 0.5 + rng.choice((-1, 1)) * distance / 2 * rng.uniform(0.98, 1.0)
        before = pages.counters()
        ids = [id for chunk in tree.search(key_of(value)[1]) for id in chunk.tolist()]
        after = pages.counters()
        n_reads = after["page_reads"] - before["page_reads"]
        counted[distance].append((len(ids), n_reads, n_reads + after["page_hits"] - before["page_hits"]))
        values[distance].append(value)
        if len(counted[distance]) == 1:
            _check_ids(ids, predicates, value)
    for distance, rows in counted.items():
        found, reads, accesses = (list(column) for column in zip(*rows, strict=True))
        cold = round(float(np.mean([_cold_reads(tree, value) for value in values[distance][:10]])), 2)
        row = {"figure": "search", "distance": distance, "L": float(np.mean(found)), "cold_reads": cold}
        yield {**row, **_means(reads, accesses)}


def _cold_reads(tree: PredicateTree, value: float) -> int:
    """Return how many pages a search reads that finds none of them in the pool."""
    tree.pages.empty_pool()
    before = tree.pages.counters()["page_reads"]
    for _ in tree.search(key_of(value)[1]):
        pass
    return int(tree.pages.counters()["page_reads"] - before)


def _check_ids(ids: list[int], predicates: list[tuple[float, str, int]], value: float) -> None:
    expected = [id for constant, op, id in predicates if _HOLDS[op](value, constant)]
    if sorted(ids) != sorted(expected):
        raise WrongIdsError(f"pb-tree found {len(ids)} predicates for {value}, not {len(expected)}")


def _changed(tree: PredicateTree, n_changes: int, first: int, rng: random.Random) -> Iterator[Row]:
    new = [(key_of(constant)[1], op, first + id) for constant, op, id in _drawn(rng, n_changes)]
    for figure, change in (("insert", tree.add), ("delete", tree.remove)):
        reads, accesses = [], []
        begin = time.perf_counter()
        for key, op, id in new:
            before = tree.pages.counters()
            with tree.pages.changing():
                change(key, op, id)
            after = tree.pages.counters()
            reads.append(after["page_reads"] - before["page_reads"])
            accesses.append(reads[-1] + after["page_hits"] - before["page_hits"])
        taken = (time.perf_counter() - begin) / n_changes * 1e6
        yield {"figure": figure, "us": round(taken, 1), **_means(reads, accesses)}
        rng.shuffle(new)


def _means(reads: list[int], accesses: list[int]) -> Row:
    return {"page_reads": round(float(np.mean(reads)), 2), "page_accesses": round(float(np.mean(accesses)), 2)}


def fitted(rows: list[Row]) -> Row:
    """Fit the reads of searches by a log_B n + b L/B, and the accesses of changes by c log2 n."""
    searches = [row for row in rows if row["figure"] == "search"]
    columns = np.array([[math.log(row["n"], row["per_page"]), row["L"] / row["per_page"]] for row in searches])
    fit: Row = {"figure": "fit"}
    for name, prefix in (("page_reads", ""), ("cold_reads", "cold_")):
        reads = np.array([row[name] for row in searches])
        # Relative errors count: otherwise only the largest searches would.
        weights = 1 / np.maximum(reads, 1)
        solution = np.linalg.lstsq(columns * weights[:, None], reads * weights, rcond=None)[0]
        fit[f"{prefix}per_log"], fit[f"{prefix}per_page_of_results"] = solution
        fit[f"{prefix}worst_error"] = (np.abs(columns @ solution - reads) * weights).max()
    for figure in ("insert", "delete"):
        chosen = [row for row in rows if row["figure"] == figure]
        logs = np.log2([row["n"] for row in chosen])
        accesses = np.array([row["page_accesses"] for row in chosen])
        fit[f"{figure}_per_log2"] = float(accesses @ logs / (logs @ logs))
    return {name: value if isinstance(value, str) else round(float(value), 4) for name, value in fit.items()}


# more than memory


def large(sizes: Sizes, seed: int, say: Say) -> Row:
    """Fill an engine in a process of its own, match, and return what memory that took."""
    say(f"{sizes.large:,} predicates in a process of its own, pool of {sizes.large_mb:g} MB")
    with tempfile.TemporaryDirectory() as folder:
        arguments = json.dumps([str(Path(folder) / "pages"), sizes.large, sizes.large_mb, seed])
        code = f"from siftline_bench.storage import fill_and_match; fill_and_match(*{arguments})"
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        row: Row = json.loads(done.stdout)
        return row


def fill_and_match(path: str, n_predicates: int, buffer_mb: float, seed: int) -> None:
    """Add subscriptions of five predicates, match events, and print the figures; run by `large`."""
    from siftline import Engine

    begin = time.perf_counter()
    n = n_predicates // _PREDICATES_EACH
    rng = random.Random(seed)
    with Engine("pb-tree", path=path, buffer_mb=buffer_mb) as engine:
        for first in range(0, n, _BATCH):
            engine.add_many([(id, _text(_conjunction(rng))) for id in range(first, min(first + _BATCH, n))])
            if first // _BATCH % 10 == 0:
                print(f"{first:,} subscriptions, {_resident_mb():,.0f} MB", file=sys.stderr, flush=True)
        built_s = time.perf_counter() - begin
        events = [{f"a{i}": rng.randrange(_VALUES) for i in rng.sample(range(_ATTRIBUTES), 30)} for _ in range(10)]
        before = engine.stats()
        begin = time.perf_counter()
        found = [engine.match(event) for event in events]
        match_s = time.perf_counter() - begin
        after = engine.stats()
        row = {
            "figure": "large",
            "n": after["predicates"],
            "subscriptions": len(engine),
            "file_bytes": Path(path).stat().st_size,
            "pool_mb": buffer_mb,
            "resident_mb": round(_resident_mb(), 1),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "build_s": round(built_s, 1),
            "match_ms": round(match_s / len(events) * 1e3, 1),
            "matches": sum(map(len, found)) / len(events),
            "satisfied": (after["predicates_evaluated"] - before["predicates_evaluated"]) / len(events),
            "reads_per_match": (after["page_reads"] - before["page_reads"]) / len(events),
        }
    _check_found(found, events, n, seed)
    print(json.dumps(row))


def _conjunction(rng: random.Random) -> list[tuple[str, str, int]]:
    """Return predicates on different attributes."""
    chosen = rng.sample(range(_ATTRIBUTES), _PREDICATES_EACH)
    return [(f"a{attribute}", rng.choice(_OPERATORS), rng.randrange(_VALUES)) for attribute in chosen]


def _text(conjunction: list[tuple[str, str, int]]) -> str:
    return " and ".join(f"{attribute} {op} {constant}" for attribute, op, constant in conjunction)


def _check_found(found: list[list[Any]], events: list[dict[str, int]], n: int, seed: int) -> None:
    """Draw the subscriptions again and compare them with all events, one by one."""
    rng = random.Random(seed)
    expected: list[list[int]] = [[] for _ in events]
    for id in range(n):
        conjunction = _conjunction(rng)
        for ids, event in zip(expected, events, strict=True):
            if all(attribute in event and _HOLDS[op](event[attribute], k) for attribute, op, k in conjunction):
                ids.append(id)
    if [sorted(ids) for ids in found] != expected:
        raise WrongIdsError("pb-tree found other subscriptions than a scan")


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


# Table 1


class _Paged:
    """The PB+tree behind the interface of the others: steps are pages, entries are ids and keys as they fill pages."""

    def __init__(self) -> None:
        self._pages = PageFile()
        self._tree = PredicateTree(self._pages)
        self._n_reported = 0

    @property
    def steps(self) -> int:
        """Pages looked at, and ids."""
        counters = self._pages.counters()
        return int(counters["page_hits"] + counters["page_reads"]) + self._n_reported

    @property
    def n_entries(self) -> int:
        """The bytes of all pages, sixteen an entry."""
        return int(self._pages.counters()["pages"]) * self._pages.page_bytes // 16

    def insert(self, predicate: Predicate, id: int) -> None:
        """Add a predicate under an id."""
        with self._pages.changing():
            self._tree.add(key_of(predicate.constant)[1], predicate.op, id)

    def delete(self, predicate: Predicate, id: int) -> None:
        """Remove a predicate that was added under this id."""
        with self._pages.changing():
            self._tree.remove(key_of(predicate.constant)[1], predicate.op, id)

    def search(self, value: float) -> set[int]:
        """Return the ids of all predicates that a value satisfies."""
        found = {id for ids in self._tree.search(key_of(value)[1]) for id in ids.tolist()}
        self._n_reported += len(found)
        return found


WORKLOADS: Final = ("points", "half-infinite")


def table_one(sizes: Sizes, seed: int, say: Say) -> list[Row]:
    """Count steps and entries of all structures: equalities, and `<` of which a search satisfies one in a hundred."""
    rows = []
    for workload in WORKLOADS:
        for name in _structures():
            say(f"Table 1, {workload}: {name}")
            is_square = workload == "half-infinite" and name == "time index"
            chosen = [n for n in sizes.small if not is_square or n <= _MOST_SQUARED]
            rows += [{"figure": "table 1", **measured_structure(workload, name, n, seed)} for n in chosen]
    return rows


def _structures() -> dict[str, type[Any]]:
    return {"PB+tree": _Paged, **STRUCTURES}


def measured_structure(workload: str, name: str, n: int, seed: int) -> Row:
    """Count steps and entries of one structure with n predicates."""
    structure = _structures()[name]()
    rng = random.Random(f"{seed} {workload} {n}")
    op = "=" if workload == "points" else "<"
    predicates = {id: Predicate(op, rng.random()) for id in range(n)}
    for id, predicate in predicates.items():
        structure.insert(predicate, id)
    row: Row = {"workload": workload, "structure": name, "n": n, "entries_each": structure.n_entries / n}
    values = [rng.choice(predicates).constant if op == "=" else rng.uniform(0.985, 0.995) for _ in range(20)]
    before, n_found, begin = structure.steps, 0, time.perf_counter()
    for value in values:
        found = structure.search(value)
        n_found += len(found)
        if found != {id for id, predicate in predicates.items() if predicate.holds(value)}:
            raise WrongIdsError(f"{name} found other predicates for {value} than a scan")
    row |= {"search_steps": (structure.steps - before) / len(values), "L": n_found / len(values)}
    row["search_us"] = round((time.perf_counter() - begin) / len(values) * 1e6, 1)
    extra = {n + i: Predicate(op, rng.random()) for i in range(50)}
    for figure in ("insert", "delete"):
        before = structure.steps
        for id, predicate in extra.items():
            getattr(structure, figure)(predicate, id)
        row[f"{figure}_steps"] = (structure.steps - before) / len(extra)
    return row


def table_one_lines(rows: list[Row], workload: str) -> list[list[str]]:
    """Return a table: for each structure steps and entries at each n, and the paper's claim."""
    chosen = [row for row in rows if row.get("workload") == workload]
    sizes = sorted({row["n"] for row in chosen})
    figures = ("search_steps", "insert_steps", "delete_steps", "entries_each")
    heading = f"{workload}, n = {', '.join(f'{n:,}' for n in sizes)}"
    columns = ("search steps", "of them results", "insert", "delete", "entries each", "paper: search, change, space")
    lines = [[heading, *columns]]
    for name, claims in _CLAIMED.items():
        mine = {row["n"]: row for row in chosen if row["structure"] == name}
        cells = [" / ".join(_shown(mine[n][figure]) if n in mine else "-" for n in sizes) for figure in figures]
        results = " / ".join(_shown(mine[n]["L"]) if n in mine else "-" for n in sizes)
        lines.append([name, cells[0], results, *cells[1:], ", ".join(claims)])
    return lines


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def search_lines(rows: list[Row]) -> list[list[str]]:
    """Return a table of page reads, by n and by how much a search finds."""
    lines = [["n", "file MB", "B", "height", "L", "log_B n + L/B", "page reads", "pool empty"]]
    for row in rows:
        if row["figure"] == "search":
            model = math.log(row["n"], row["per_page"]) + row["L"] / row["per_page"]
            shape = [f"{row['n']:,}", f"{row['file_bytes'] / 1e6:,.1f}", f"{row['per_page']:.0f}", str(row["height"])]
            figures = [f"{row['L']:,.0f}", f"{model:,.1f}", f"{row['page_reads']:,.1f}", f"{row['cold_reads']:,.1f}"]
            lines.append([*shape, *figures])
    return lines


def change_lines(rows: list[Row]) -> list[list[str]]:
    """Return a table of what insertions and deletions touch."""
    lines = [["n", "figure", "page accesses", "per log2 n", "page reads", "us"]]
    for row in rows:
        if row["figure"] in ("insert", "delete"):
            share = row["page_accesses"] / math.log2(row["n"])
            figures = [f"{row['page_accesses']:.1f}", f"{share:.2f}", f"{row['page_reads']:.2f}", f"{row['us']:,.0f}"]
            lines.append([f"{row['n']:,}", row["figure"], *figures])
    return lines


def lines_of(row: Row) -> list[list[str]]:
    """Return one row as a table of names and values."""
    return [[name, value if isinstance(value, str) else f"{value:,}"] for name, value in row.items()]
