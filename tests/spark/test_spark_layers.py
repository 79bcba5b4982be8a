"""The folders of `siftline.spark` import only downwards, lazy imports and imports for type checking included."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import siftline

SPARK = Path(siftline.__file__).parent / "spark"
VERBS = {"session", "profile", "compile", "match", "stream", "changes"}
# The settings of clusters name this module.
NAMED_BY_SETTINGS = {"daemon"}

# What each folder may import of the others, from the ground up. "verbs" are the modules beside the folders.
ALLOWED: dict[str, set[str]] = {
    "runtime": set(),
    "directory": {"runtime"},
    "sharding": {"runtime", "directory"},
    "worker": {"runtime", "directory", "sharding"},
    "verbs": {"runtime", "directory", "sharding", "worker"},
    "sources": {"verbs"},
}

MODULES = sorted(SPARK.rglob("*.py"))


def layer_of(name: str) -> str:
    """Return the layer of what a dotted name below `siftline.spark` begins with."""
    return name if name in ALLOWED else "verbs"


def imported(path: Path) -> set[str]:
    """Return the layers that a module imports: at its top, in a function, or for type checking."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide their layer"
            module = node.module or ""
            is_package = module in ("siftline", "siftline.spark")
            names = [f"{module}.{alias.name}" for alias in node.names] if is_package else [module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        parts = [name.split(".") for name in names]
        found.update(layer_of("".join(part[2:3])) for part in parts if part[:2] == ["siftline", "spark"])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SPARK)))
def test_imports_only_from_below(path: Path) -> None:
    folder = path.relative_to(SPARK).parts[0] if path.parent != SPARK else "verbs"
    assert imported(path) - {folder} <= ALLOWED[folder]


def test_the_arrows_have_no_cycle() -> None:
    order = list(ALLOWED)
    for number, folder in enumerate(order):
        assert ALLOWED[folder] <= set(order[:number])


def test_only_verbs_stand_beside_the_folders() -> None:
    assert {path.stem for path in SPARK.glob("*.py")} == {"__init__", *VERBS, *NAMED_BY_SETTINGS}
    assert {path.name for path in SPARK.iterdir() if (path / "__init__.py").exists()} == {*ALLOWED} - {"verbs"}
