"""Workloads: seeded subscriptions and events, the same for every index.

A new workload is a frozen dataclass of parameters, a function that draws from them, and a `Recipe` of both in the
`RECIPES` of a file that `registry.py` names.
"""

from siftline_bench.workloads.registry import generate, make_parameters, recipe, workloads
from siftline_bench.workloads.stored import Drawing, cached, load, save
from siftline_bench.workloads.workload import CHUNK, Parameters, Recipe, Workload

__all__ = [
    "CHUNK",
    "Drawing",
    "Parameters",
    "Recipe",
    "Workload",
    "cached",
    "generate",
    "load",
    "make_parameters",
    "recipe",
    "save",
    "workloads",
]
