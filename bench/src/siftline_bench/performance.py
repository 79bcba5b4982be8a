"""The tables of PERFORMANCE.md, made from the rows that are kept in `results`.

A table stands between `<!--NAME-->` and `<!--end-->`, below a line that says when, where and how rows were measured.
`siftline bench report --performance FILE` makes all tables of a file anew, and a test compares.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline_bench import operator_tables, results, sift_tables, spark, storage_dbms, storage_store
from siftline_bench import server as server_bench
from siftline_bench.figures import chosen, harness, summary
from siftline_bench.figures.claims import NOT_MEASURED, VERDICTS, claims, verdicts
from siftline_bench.figures.speed import steadied
from siftline_bench.real_rules import figures as real_rules
from siftline_bench.tables import markdown
from siftline_bench.targets import Target, Verdict, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from siftline_bench.results import Row

Lines = list[list[str]]

_TABLE: Final = re.compile(r"(<!--(\S+)-->\n).*?(<!--end-->)", re.DOTALL)
_OURS: Final = "sift"
# Figures of `siftline bench sift` that are not the same for every workload.
_SINGLE: Final = ("all workloads", "from", "add", "remove", "dict", "change", "copying", "as long as dense")
_FIGURE: Final = ["figure", "measured", "target"]
# What is shown of Spark, beside the figures that have targets.
_OF_SPARK: Final = ("bytes a subscription",)
# These are ratios of the lines of another table.
_NOT_OF_SPARK: Final = (spark.OF_SPARK, spark.OF_DUCKDB)
# Of the foundation, what no reader asks for: how fast the machine was, and whether Numba was loaded.
_BESIDE: Final = ("yardstick", "numba imported")
# The sizes of the comparison with databases that are shown.
_DBMS_SIZES: Final = (10_000, 1_000_000, 5_000_000)


def renewed(text: str, folder: Path) -> str:
    """Return a document with its tables made anew from the rows in a folder."""
    return _TABLE.sub(lambda found: f"{found[1]}{_made(found[2], folder)}\n{found[3]}", text)


def _made(name: str, folder: Path) -> str:
    if name not in _TABLES:
        raise ValueError(f"there is no table {name!r} (there are: {', '.join(_TABLES)})")
    files, command, lines_of = _TABLES[name]
    rows, lines = lines_of([row for file in files.split() for row in results.read(folder / f"{file}.jsonl")])
    return f"{_circumstances(rows)}: `{command}`.\n\n{markdown(lines)}"


def _circumstances(rows: Sequence[Row]) -> str:
    """Say when and where rows were measured; those of a table come from one machine."""
    dates = sorted({row["date"][:10] for row in rows})
    machine = rows[-1]["machine"]
    return f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {machine['processor']}, {machine['cores']} cores"


# one function for each table: the rows that it shows, and its lines


class _Shown(NamedTuple):
    rows: Sequence[Row]
    lines: Lines


def _sift(rows: Sequence[Row]) -> _Shown:
    return _Shown(rows, sift_tables.times(rows, _OURS))


def _sift_figures(rows: Sequence[Row]) -> _Shown:
    _, *lines = sift_tables.figures(rows, _OURS)
    single = [line for line in lines if any(word in " ".join(line[:2]) for word in _SINGLE)]
    return _Shown(
        rows, [_FIGURE, *([f"{name}: {what}", value, f"{bound}, {word}"] for name, what, value, bound, word in single)]
    )


def _indexes(rows: Sequence[Row]) -> _Shown:
    """Return a line for each index of the papers: its median on each workload, and what it costs on the first."""
    rows = [row for row in rows if row["index"] != _OURS]
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    found = {(row["workload"], row["index"]): row for row in rows if row["status"] == "ok"}
    heading = ["index", *(f"`{name}` µs" for name in workloads), "built s", "MB"]
    lines = []
    for index in dict.fromkeys(row["index"] for row in rows):
        measured = [found[name, index] for name in workloads]
        costs = (measured[0]["index_s"], measured[0]["index_bytes"] / 1e6)
        lines.append([f"`{index}`", *(shown(row["match_us"]["median"]) for row in measured), *map(shown, costs)])
    return _Shown(rows, [heading, *lines])


def _growth(rows: Sequence[Row]) -> _Shown:
    found = {(_size(row), row["workload"], row["index"]): row["match_us"]["median"] for row in rows}
    return _Shown(rows, _by_size(found))


def _size(row: Row) -> int:
    return int(row["parameters"]["n_subscriptions"])


def _by_size(found: Mapping[tuple[Any, ...], float]) -> Lines:
    """Return a column for each size, the first part of a key, and a line for what else they differ by."""
    sizes = sorted({size for size, *_ in found})
    names = dict.fromkeys(tuple(rest) for _, *rest in found)
    lines = [[", ".join(f"`{word}`" for word in name), *(shown(found[n, *name]) for n in sizes)] for name in names]
    return [["subscriptions", *(f"{n:,}" for n in sizes)], *lines]


def _foundation(rows: Sequence[Row]) -> _Shown:
    lines = [
        [row["index"], f"{shown(row['median'])} {row['unit']}", _with_verdict(_bound(row), row["verdict"])]
        for row in rows
        if not row["index"].startswith(_BESIDE)
    ]
    return _Shown(rows, [_FIGURE, *lines])


def _bound(row: Row) -> str:
    return Target("", "", "", **{"at_least" if row["is_rate"] else "at_most": row["target"]}).shown


def _with_verdict(bound: str, word: str) -> str:
    return f"{bound}, {word}" if word else bound


def _server(rows: Sequence[Row]) -> _Shown:
    """Return the figures of the last run with each number of subscriptions."""
    last = {row["n"]: row for row in rows}
    found = {n: server_bench.verdicts([row]) for n, row in last.items()}
    heading = ["subscriptions", *(f"{n:,}" for n in found), "target"]
    lines = [
        [verdicts[0].target.what, *(shown(each.measured) for each in verdicts), verdicts[0].target.shown]
        for verdicts in zip(*found.values(), strict=True)
    ]
    cost = ["µs of processor time: a publish, an event in a batch"]
    cost += [f"{row['publish_processor_us']:.0f}, {row['batched_event_processor_us']:.1f}" for row in last.values()]
    return _Shown(list(last.values()), [heading, *lines, [*cost, ""]])


def _store(rows: Sequence[Row]) -> _Shown:
    row = _last(rows, "store")
    lines = [
        [each.target.what, shown(each.measured), _with_verdict(each.target.shown, each.word)]
        for each in storage_store.verdicts([row])
    ]
    lines += [
        ["single durable adds/s, 1 thread", shown(row["adds_per_s_1"]), ""],
        [f"s to load {row['n_loaded']:,} into `sift`", shown(row["load_s"]), ""],
        ["µs to follow a change", shown(row["follow_us_a_change"]), ""],
        ["ms to open", shown(row["open_ms"]), ""],
    ]
    return _Shown([row], [_FIGURE, *lines])


def _pb_tree(rows: Sequence[Row]) -> _Shown:
    large, changes = _last(rows, "large"), _last(rows, "changes")
    names = f"{large['subscriptions']:,} subscriptions of 5 predicates"
    lines = [
        [f"{names}: MB of the file", shown(large["file_bytes"] / 1e6)],
        [f"MB of the process, with a pool of {large['pool_mb']}", shown(large["peak_mb"])],
        ["pages that an event reads", shown(large["reads_per_match"])],
        ["adds, removes/s in a temporary file", _pair(changes, "temporary")],
        ["adds, removes/s, each on the disk before it returns", _pair(changes, "durable")],
    ]
    return _Shown([large, changes], [["figure", "measured"], *lines])


def _pair(row: Row, kind: str) -> str:
    return ", ".join(f"{row[f'{kind}_{word}_per_s']:,.0f}" for word in ("adds", "removes"))


def _last(rows: Sequence[Row], figure: str) -> Row:
    return [row for row in rows if row.get("figure") == figure][-1]


def _dbms(rows: Sequence[Row]) -> _Shown:
    mine = [row for row in rows if row["figure"] == "dbms" and row["n"] in _DBMS_SIZES]
    return _Shown(mine, storage_dbms.tables(mine)[0])


def _operators(rows: Sequence[Row]) -> _Shown:
    return _Shown(rows, operator_tables.tables(rows)[0])


def _spark(rows: Sequence[Row]) -> _Shown:
    """Return the last figure of each kind that has a target, or is wanted beside these."""
    targets = {(target.workload, target.what): target for target in spark.TARGETS}
    last = {(row["workload"], row["mode"]): row for row in rows if "median" in row}
    mine = {
        key: row for key, row in last.items() if key[1] in _OF_SPARK or (key in targets and key[1] not in _NOT_OF_SPARK)
    }
    found = [Verdict(targets.get(key, Target(*key, "")), row["median"]) for key, row in mine.items()]
    lines = [
        [f"`{name}`: {what}", shown(each.measured), _with_verdict(each.target.shown, each.word)]
        for (name, what), each in zip(mine, found, strict=True)
    ]
    return _Shown(list(mine.values()), [_FIGURE, *lines])


def _spark_rivals(rows: Sequence[Row]) -> _Shown:
    mine = [row for row in rows if str(row.get("mode", "")).endswith(": us an event")]
    lines = [[row["mode"].partition(":")[0], shown(row["median"])] for row in mine]
    return _Shown(mine, [["plan", "µs of processor time an event"], *lines])


def _spark_growth(rows: Sequence[Row]) -> _Shown:
    mine = [row for row in rows if str(row.get("mode", "")).startswith(f"{spark.COST}, ") and "n_subscriptions" in row]
    return _Shown(mine, _by_size({(row["n_subscriptions"], row["workload"]): row["median"] for row in mine}))


def _rules(rows: Sequence[Row]) -> _Shown:
    """Return the last of each figure of real rules that has a target, and what others took for the same events."""
    last = {(row["workload"], row["index"], row["mode"]): row for row in rows}
    mine = [row for row in last.values() if row["target"] is not None or row["mode"] == real_rules.ELSEWHERE]
    return _Shown(mine, real_rules.table(mine))


def _claims(rows: Sequence[Row]) -> _Shown:
    """Return how many claims have which verdict at which scale."""
    counts = {}
    for scale in dict.fromkeys(row["scale"] for row in rows):
        mine = steadied(harness.by_run(row for row in rows if row["scale"] == scale))
        counts[scale] = Counter(each.word for each in verdicts(claims(), scale, mine))
    lines = [[word, *(str(found[word]) for found in counts.values())] for word in VERDICTS if word != NOT_MEASURED]
    return _Shown(rows, [["verdict", *(f"--scale {scale}" for scale in counts)], *lines])


def _slow(rows: Sequence[Row]) -> _Shown:
    tables = {each.name: each for each in summary.tables(chosen([]), "paper", steadied(harness.by_run(rows)))}
    heading, *lines = ([line[0], *line[2:]] for line in (tables["slow"].heading, *tables["slow"].lines))
    return _Shown(rows, [heading, *lines])


class _Source(NamedTuple):
    files: str
    command: str
    lines_of: Callable[[Sequence[Row]], _Shown]


_TABLES: Final = {
    "sift": _Source("sift", "siftline bench sift", _sift),
    "sift-figures": _Source("sift", "siftline bench sift", _sift_figures),
    "indexes": _Source("indexes", "siftline bench indexes", _indexes),
    "growth": _Source("growth", "siftline bench growth", _growth),
    "foundation": _Source("foundation", "siftline bench foundation", _foundation),
    "server": _Source("server", "siftline bench server", _server),
    "store": _Source("storage", "siftline bench storage --only store", _store),
    "pb-tree": _Source("storage", "siftline bench storage --only large --only changes", _pb_tree),
    "dbms": _Source("storage", "siftline bench storage --only dbms", _dbms),
    "operators": _Source("operators", "siftline bench operators", _operators),
    "spark": _Source("spark", "siftline bench spark", _spark),
    "spark-rivals": _Source("spark", "siftline bench spark --only baselines", _spark_rivals),
    "spark-growth": _Source("spark", "siftline bench spark --only growth", _spark_growth),
    "rules": _Source("rules", "siftline bench rules --copies 27", _rules),
    "claims": _Source("figures-small figures-paper", "siftline bench run --all", _claims),
    "slow": _Source("figures-paper", "siftline bench run --all --scale paper", _slow),
}
