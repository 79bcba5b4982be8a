"""A figure or table of a paper: which runs it needs, and the axes it is drawn in.

    paper: opindex                       # see PAPERS in registry.py
    where: Fig. 8(a)
    title: Memory against the number of subscriptions
    kind: matching                       # a module of kinds/: what is measured, and how
    workload: dense                      # a recipe of the folder workloads, or what the kind calls so
    set: {n_attributes: 1000}            # parameters of the workload, for all runs
    x: {label: subscriptions, log: true}
    y: {measure: memory_mb, log: true}   # or a list of these: one panel each, of the same rows
    vary: n_subscriptions                # one parameter, or several that get the same value, or option:NAME
    series:
      OpIndex: op-index                  # NAME[:OPTION=VALUE,...] as `bench run --index` reads it
      ranges only: {index: op-index, set: {equal_share: 0}}
    scales:
      small: {values: [10000, 30000], set: {n_events: 50}, seconds: 20}
      paper: {values: [1000000, 10000000], seconds: 3600}

Where one value does not say it all, `points` stand in place of `values`: a list of {x, set, workload, options}; x may
be text. A scale may also have passes, least_s, pass_box_s, check_box_s, limit_s and memory_mb, see `Settings`.

A series may have a kind and a workload of its own, `only: [x, ...]` for some of the scale's x, or values of its own by
scale, which no other series has to run at; without any at a scale, it is not there:

    sift on Spark: {index: sift, kind: on-spark, values: {paper: [1000000, 40000000]}, limit_s: 14400}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.figures.kinds import kind
from siftline_bench.figures.measures import Measure, measure
from siftline_bench.runner import Choice
from siftline_bench.workloads import make_parameters, recipe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCALES: Final = ("small", "paper")
_OPTION: Final = "option:"
# Settings that a series may have of its own, because they do not change what is measured.
_LIMITS: Final = frozenset({"limit_s", "memory_mb"})


@dataclass(frozen=True)
class Settings:
    """How a run is measured, and what it may cost.

    Attributes
    ----------
    passes : int
        Passes over the events, at least.
    least_s, pass_box_s, check_box_s : float
        See `Plan`.
    limit_s, memory_mb : float
        A run that takes longer, or whose processes take more, is ended, and that is its row.
    seconds : float
        What the runs of the figure should take together.
    """

    passes: int = 5
    least_s: float = 0.3
    pass_box_s: float = 0.1
    check_box_s: float = 2.0
    limit_s: float = 20.0
    memory_mb: float = 6_000.0
    seconds: float = 20.0


_DEFAULTS: Final = {
    "small": Settings(),
    "paper": Settings(pass_box_s=0.3, check_box_s=5.0, limit_s=3_600.0, memory_mb=22_000.0, seconds=7_200.0),
}


@dataclass(frozen=True)
class Axis:
    """How an axis is drawn; a y axis has a measure."""

    label: str
    is_log: bool = False
    measure: Measure | None = None


@dataclass(frozen=True)
class Run:
    """One row of results: what is measured, without where it is drawn."""

    figure: str
    series: str
    x: Any
    kind: str
    workload: str
    parameters: dict[str, Any]
    version: int
    seed: int
    choice: Choice
    settings: Settings = field(compare=False)

    @cached_property
    def ground(self) -> str:
        """Names everything but the index: runs of the same ground share their workload."""
        return _digest([self.kind, self.workload, self.parameters, self.version, self.seed, *self._boxes])

    @cached_property
    def key(self) -> str:
        """Names what is measured: equal runs of several figures are measured once."""
        return _digest([self.ground, self.choice.index, dict(self.choice.options)])

    @property
    def _boxes(self) -> tuple[float, ...]:
        settings = self.settings
        return (settings.passes, settings.least_s, settings.pass_box_s, settings.check_box_s)

    @property
    def identity(self) -> dict[str, Any]:
        """The columns that every row begins with."""
        return {
            "run": self.key,
            "ground": self.ground,
            "figure": self.figure,
            "series": self.series,
            "x": self.x,
            "kind": self.kind,
            "workload": self.workload,
            "parameters": self.parameters,
            "seed": self.seed,
            "version": self.version,
            "n_passes": self.settings.passes,
            "index": self.choice.index,
            "options": dict(self.choice.options),
        }


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Figure:
    """What a file in `figures/` says."""

    name: str
    paper: str
    where: str
    title: str
    kind: str
    workload: str
    x: Axis
    y: tuple[Axis, ...]
    series: Mapping[str, Mapping[str, Any]]
    scales: Mapping[str, Mapping[str, Any]]
    changes: Mapping[str, Any]
    vary: tuple[str, ...]
    note: str = ""

    def settings(self, scale: str) -> Settings:
        """Return how runs are measured at a scale."""
        given = {each.name for each in fields(Settings)} & self.scales[scale].keys()
        return replace(_DEFAULTS[scale], **{name: self.scales[scale][name] for name in given})

    def runs(self, scale: str, seed: int = 0) -> list[Run]:
        """Return the runs at a scale, the series of each x together, because they share a workload."""
        if scale not in self.scales:
            return []
        return [run for point in self._points(scale) for run in self._runs_at(point, scale, seed)]

    def _points(self, scale: str) -> list[dict[str, Any]]:
        said = self.scales[scale]
        if "points" in said:
            return list(said["points"])
        points = []
        own = (value for line in self.series.values() for value in line.get("values", {}).get(scale, []))
        for value in dict.fromkeys([*said["values"], *own]):
            options = {name.removeprefix(_OPTION): value for name in self.vary if name.startswith(_OPTION)}
            changes = {name: value for name in self.vary if not name.startswith(_OPTION)}
            points.append({"x": value, "set": changes, "options": options})
        return points

    def _xs(self, line: Mapping[str, Any], scale: str) -> list[Any]:
        """Return where a series is measured."""
        said = self.scales[scale]
        if "values" in line:
            return list(line["values"].get(scale, []))
        every = [point["x"] for point in said["points"]] if "points" in said else said["values"]
        return [x for x in every if x in line.get("only", every)]

    def _runs_at(self, point: Mapping[str, Any], scale: str, seed: int) -> Iterator[Run]:
        for label, line in self.series.items():
            if point["x"] not in self._xs(line, scale):
                continue
            named = kind(line.get("kind", self.kind))
            workload = line.get("workload") or point.get("workload") or self.workload
            parts = (self.changes, self.scales[scale].get("set", {}), point.get("set", {}), line.get("set", {}))
            changes = {name: value for part in parts for name, value in part.items()}
            choice = Choice.parse(line["index"])
            yield Run(
                figure=self.name,
                series=label,
                x=point["x"],
                kind=named.name,
                workload=workload,
                parameters=asdict(make_parameters(workload, **changes)) if named.is_drawn else changes,
                version=recipe(workload).version if named.is_drawn else named.version,
                seed=seed,
                choice=replace(choice, options={**choice.options, **point.get("options", {})}),
                settings=replace(self.settings(scale), **{name: line[name] for name in _LIMITS & line.keys()}),
            )


# reading

_REQUIRED: Final = {"paper", "where", "title", "kind", "x", "y", "series", "scales"}
_OPTIONAL: Final = {"workload", "set", "vary", "note"}
_OF_SERIES: Final = {"index", "set", "workload", "kind", "only", "values", *_LIMITS}
_OF_SCALES: Final = {"values", "points", "set", *(each.name for each in fields(Settings))}
_OF_POINTS: Final = {"x", "set", "workload", "options"}


def read(path: Path) -> Figure:
    """Read a figure from its file; a mistake in it is a ValueError that names the file.

    What depends on other files, that is, names of workloads and parameters, shows when `runs` is called.
    """
    said = loaded(path)
    try:
        return _figure(path.stem, said)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def loaded(path: Path) -> Any:
    """Return what a YAML file says."""
    try:
        import yaml
    except ImportError:
        raise ValueError("figures need PyYAML: pip install 'siftline[bench]'") from None
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {error}") from None


def _figure(name: str, said: Any) -> Figure:
    check_keys("a figure", said, _REQUIRED, _OPTIONAL)
    scales = said["scales"]
    check_keys("scales", scales, {"small"}, set(SCALES))
    for scale in scales.values():
        check_keys("a scale", scale, set(), _OF_SCALES)
        for point in scale.get("points", []):
            check_keys("a point", point, {"x"}, _OF_POINTS)
        if ("values" in scale) == ("points" in scale) or ("values" in scale and "vary" not in said):
            raise ValueError("a scale has either values of what varies, or points")
    lines = {label: {"index": line} if isinstance(line, str) else line for label, line in said["series"].items()}
    for line in lines.values():
        check_keys("a series", line, {"index"}, _OF_SERIES)
        check_keys("values of a series", line.get("values", {}), set(), set(SCALES))
        if "values" in line and ("only" in line or "vary" not in said):
            raise ValueError("a series has either values of what varies, or only some of its scale's")
    vary = said.get("vary", [])
    return Figure(
        name=name,
        paper=said["paper"],
        where=said["where"],
        title=said["title"],
        kind=kind(said["kind"]).name,
        workload=said.get("workload", said["kind"]),
        x=_axis(said["x"]),
        y=tuple(_axis(each) for each in (said["y"] if isinstance(said["y"], list) else [said["y"]])),
        series=lines,
        scales=scales,
        changes=said.get("set", {}),
        vary=(vary,) if isinstance(vary, str) else tuple(vary),
        note=said.get("note", ""),
    )


def _axis(said: Any) -> Axis:
    check_keys("an axis", said, set(), {"label", "log", "measure"})
    found = measure(said["measure"]) if "measure" in said else None
    label = said.get("label") or (found.label if found else None)
    if not label:
        raise ValueError("an axis has a label, or a measure that has one")
    return Axis(label, said.get("log", False), found)


def check_keys(what: str, said: Any, required: set[str], optional: set[str]) -> None:
    """Raise unless a mapping has what it must have and nothing else than it may have."""
    if not isinstance(said, Mapping):
        raise ValueError(f"{what} is a mapping, not {said!r}")
    missing, unknown = required - said.keys(), said.keys() - required - optional
    if missing or unknown:
        words = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        words += [f"cannot have {', '.join(sorted(map(str, unknown)))}"] if unknown else []
        raise ValueError(f"{what} {' and '.join(words)}")
