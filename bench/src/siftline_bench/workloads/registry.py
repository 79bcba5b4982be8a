"""The names of all workloads."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from siftline_bench.workloads.workload import Parameters, Recipe, Workload

# The files of this package that define recipes, in a tuple `RECIPES`.
_MODULES: Final = tuple(
    f"siftline_bench.workloads.{name}"
    for name in (
        "synthetic",
        "wide",
        "ads",
        "keywords",
        "products",
        "rules",
        "strings",
        "normal_forms",
        "prefixes",
        "documents",
        "be_gen",
        "topss",
        "intervals",
        "operator_graph",
    )
)


@cache
def _recipes() -> dict[str, Recipe]:
    found = [recipe for module in _MODULES for recipe in importlib.import_module(module).RECIPES]
    return {recipe.name: recipe for recipe in found}


def workloads() -> list[str]:
    """Return the names that `siftline bench run` takes.

    >>> workloads()[:4]
    ['dense', 'sparse', 'equality', 'zipf']
    """
    return list(_recipes())


def recipe(name: str) -> Recipe:
    """Return how a workload is drawn."""
    found = _recipes().get(name)
    if found is None:
        close = difflib.get_close_matches(name, _recipes(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no workload {name!r}{hint} (there are: {', '.join(_recipes())})")
    return found


def make_parameters(name: str, **changes: Any) -> Parameters:
    """Return the parameters of a workload, with changes.

    >>> make_parameters("dense", n_subscriptions=10).n_subscriptions
    10
    """
    defaults = recipe(name).parameters
    known = {field.name: getattr(defaults, field.name) for field in dataclasses.fields(defaults)}
    for key, value in changes.items():
        if key not in known:
            raise ValueError(f"workload {name!r} has no parameter {key!r} (it has: {', '.join(known)})")
        if not isinstance(value, (int, float)) or (isinstance(known[key], int) and not isinstance(value, int)):
            raise ValueError(f"{key} of workload {name!r} is a number like {known[key]!r}, not {value!r}")
    return dataclasses.replace(defaults, **changes)


def generate(name: str, *, seed: int = 0, **changes: Any) -> Workload:
    """Draw a workload.

    >>> workload = generate("dense", n_subscriptions=10, n_events=2, seed=1)
    >>> workload.predicates.num_rows, len(workload.dicts[0])
    (48, 30)
    """
    return recipe(name).generate(make_parameters(name, **changes), seed)
