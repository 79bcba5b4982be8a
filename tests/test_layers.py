"""No layer reaches up or sideways."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "siftline"

# What each folder or module may import of ours, besides itself. Order: from the ground up.
ALLOWED = {
    "errors": set(),
    "ids": {"errors"},
    "model": {"errors"},
    "language": {"errors", "model"},
    "kernels": {"errors", "model"},
    "encoding": {"errors", "model", "language", "kernels"},
    "indexes": {"errors", "model", "kernels", "encoding", "storage"},
    "operators": {"errors", "model", "language", "encoding", "kernels"},
    "explanation": {"errors", "model", "language", "operators"},
    "subscriptions": {"errors", "ids", "model", "language", "encoding", "kernels", "operators"},
    "storage": {"errors", "ids", "model", "language", "kernels", "subscriptions"},
    "files": {"errors", "ids", "model", "language", "encoding", "subscriptions"},
    "additions": {"errors", "ids", "encoding", "files", "subscriptions"},
    "saved": {"errors", "model", "encoding", "indexes", "subscriptions", "storage"},
    "batches": {"model", "encoding", "indexes", "kernels", "subscriptions"},
    "tail": {"encoding", "indexes", "kernels"},
    "tidying": {"errors"},
    "renewing": {"encoding", "indexes", "tail"},
    "sweeping": {"encoding", "indexes"},
    "shortcuts": {"indexes", "kernels"},
    "subsets": {"encoding", "ids", "subscriptions", "tail"},
    "changes": {
        "errors",
        "model",
        "language",
        "encoding",
        "indexes",
        "kernels",
        "subscriptions",
        "shortcuts",
        "renewing",
        "sweeping",
        "tail",
        "tidying",
    },
    "tuning": {"encoding", "indexes"},
    "matching": {"errors", "model", "encoding", "indexes", "subscriptions", "shortcuts", "changes", "batches"},
    "engine": {
        "additions",
        "errors",
        "ids",
        "model",
        "language",
        "encoding",
        "indexes",
        "explanation",
        "subscriptions",
        "saved",
        "batches",
        "matching",
        "shortcuts",
        "subsets",
        "tuning",
        "paged_engine",
        "operators",
    },
    "paged_engine": {
        "additions",
        "batches",
        "operators",
        "errors",
        "ids",
        "model",
        "language",
        "encoding",
        "indexes",
        "subscriptions",
        "subsets",
        "tuning",
        "engine",
        "saved",
    },
    "spark": {
        "errors",
        "ids",
        "model",
        "language",
        "encoding",
        "indexes",
        "kernels",
        "storage",
        "subscriptions",
        "operators",
        "engine",
        "client",
        "",
    },
    "bench": {
        "errors",
        "model",
        "language",
        "encoding",
        "indexes",
        "kernels",
        "storage",
        "operators",
        "engine",
        "spark",
        "",
        "cli",
    },
    "demo": {"errors", "language", "engine", "spark", "bench", ""},
    "broker": {"errors", "model", "encoding", "engine", "storage"},
    "server": {"errors", "language", "model", "encoding", "engine", "explanation", "storage", "broker", ""},
    "client": {"errors", "model", "language", "broker"},
    "cli": {
        "files",
        "ids",
        "operators",
        "errors",
        "model",
        "language",
        "encoding",
        "indexes",
        "engine",
        "explanation",
        "bench",
        "spark",
        "demo",
        "storage",
        "subscriptions",
        "broker",
        "server",
        "",
    },
    "__main__": {"cli"},
    "__init__": set(),  # lists names; loads their homes only when asked
}

MODULES = sorted(SOURCE.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Return the layers that a module imports, at its top or inside a function; for type checking does not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.update([node.module] if node.module != "siftline" else [f"siftline.{a.name}" for a in node.names])
    ours = [name.split(".") for name in names if name.split(".")[0] == "siftline"]
    return {parts[1] if len(parts) > 1 and is_layer(parts[1]) else "" for parts in ours}


def is_layer(name: str) -> bool:
    return (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_only_from_below(path: Path) -> None:
    layer = layer_of(path)
    assert imported(path) - {layer} <= ALLOWED[layer]


def test_the_oracle_shares_no_code_with_other_indexes() -> None:
    assert imported(SOURCE / "indexes" / "scan.py") <= {"indexes", "model"}


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return {name.split(".")[0] for name in output.split()}


def test_the_front_door_loads_nothing_heavy() -> None:
    assert not loaded_by("import siftline") & {
        "numba",
        "llvmlite",
        "pyarrow",
        "pyspark",
        "pandas",
        "starlette",
        "numpy",
        "httpx",
    }


def test_the_client_needs_no_engine() -> None:
    assert not loaded_by("import siftline; siftline.Client") & {"numba", "numpy", "pyarrow", "starlette"}


def test_parsing_needs_no_compiler() -> None:
    assert not loaded_by("import siftline; siftline.parse('a = 1')") & {"numba", "numpy", "pyarrow"}
