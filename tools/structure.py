"""Measures the structure of the product, and draws the map of its folders from the imports.

    python tools/structure.py          prints the table of what is limited and how far we are
    python tools/structure.py --map    prints the map of folders that ARCHITECTURE.md shows

Everything is read from the sources; nothing of the product is imported. Imports inside functions and imports for type
checking count as well, because a reader has to follow them all.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "src" / "siftline"
# Where `make check` and `make test` note how many seconds they took.
TIMES: Final = ROOT / ".venv" / "times.json"
MOST_PARAMETERS: Final = 12
# The front door names every folder, and nothing imports it but what a user would write; it is no part of the map.
FRONT_DOOR: Final = ("__init__", "__main__")


class Function(NamedTuple):
    """A function and how many parameters it takes, `self` and `cls` left out."""

    name: str
    place: str
    n_parameters: int


def modules(source: Path = SOURCE) -> list[Path]:
    """Return all files of the package."""
    return sorted(source.rglob("*.py"))


def folder_of(path: Path, source: Path = SOURCE) -> str:
    """Return the folder of a module, or the name of a module that stands beside the folders."""
    return path.relative_to(source).parts[0].removesuffix(".py")


def imports(source: Path = SOURCE) -> dict[str, set[str]]:
    """Return for each folder the other folders that it imports, in whatever way."""
    found: dict[str, set[str]] = {}
    for path in modules(source):
        own = folder_of(path, source)
        found.setdefault(own, set()).update(imported(path, source) - {own})
    return found


def imported(path: Path, source: Path = SOURCE) -> set[str]:
    """Return the folders that a module imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == source.name:
            names.update(f"{source.name}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
    parts = [name.split(".") for name in names if name.startswith(f"{source.name}.")]
    return {each[1] for each in parts if (source / each[1]).is_dir() or (source / f"{each[1]}.py").exists()}


def cycles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of folders that reach each other."""
    reached = {folder: _reached(folder, arrows) for folder in arrows}
    groups = {frozenset(other for other in reached[each] if each in reached.get(other, ())) for each in arrows}
    return sorted(sorted(group) for group in groups if group)


def _reached(start: str, arrows: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(arrows[start])
    while waiting:
        folder = waiting.pop()
        if folder not in found:
            found.add(folder)
            waiting += arrows.get(folder, ())
    return found


def functions(source: Path = SOURCE) -> list[Function]:
    """Return the kernels and private functions; a public function may have any number of keyword options."""
    found = []
    for path in modules(source):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _is_inside(node):
                named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                n_parameters = len(named) - (bool(named) and named[0].arg in ("self", "cls"))
                found.append(Function(node.name, f"{path.relative_to(source)}:{node.lineno}", n_parameters))
    return found


def _is_inside(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is a kernel, private, or has more parameters than its keyword options."""
    is_kernel = any("kernel" in ast.unparse(decorator) for decorator in node.decorator_list)
    is_private = node.name.startswith("_") and not node.name.startswith("__")
    return is_kernel or is_private or len(node.args.args) > MOST_PARAMETERS


def folder_map(arrows: dict[str, set[str]]) -> str:
    """Return the map of folders, each with what it imports and does not reach by another of these."""
    ranked = [name for name in _from_the_ground(arrows) if name not in FRONT_DOOR]
    width, order = max(map(len, ranked)), {name: rank for rank, name in enumerate(ranked)}
    targets = {name: sorted(_needed(name, arrows) - set(FRONT_DOOR), key=order.__getitem__) for name in ranked}
    return "\n".join(f"{name:{width}}  ->  {' '.join(targets[name]) or '(nothing)'}" for name in ranked)


def _needed(name: str, arrows: dict[str, set[str]]) -> set[str]:
    """Return what a folder imports, without what it reaches by one of the others anyway."""
    direct = arrows[name]
    return {each for each in direct if not any(each in _reached(other, arrows) for other in direct - {each})}


def _from_the_ground(arrows: dict[str, set[str]]) -> list[str]:
    """Return the folders so that each comes after all that it imports."""
    depth: dict[str, int] = {}

    def measure(name: str, above: tuple[str, ...] = ()) -> int:
        if name in above:
            return 0  # a cycle; the table shows it
        if name not in depth:
            depth[name] = 1 + max((measure(each, (*above, name)) for each in arrows.get(name, ())), default=0)
        return depth[name]

    return sorted(arrows, key=lambda name: (measure(name), name))


def n_lines(source: Path = SOURCE) -> int:
    """Return how many lines the package has."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules(source))


def n_words(document: str) -> int:
    """Return how many words a document has; code blocks and tables count as well."""
    return len((ROOT / document).read_text(encoding="utf-8").split())


def table() -> str:
    """Return what is limited, and how far we are."""
    arrows, inside = imports(), functions()
    too_many = [each for each in inside if each.n_parameters > MOST_PARAMETERS]
    loose = [name for name in arrows if name not in FRONT_DOOR and not (SOURCE / name).is_dir()]
    times = json.loads(TIMES.read_text(encoding="utf-8")) if TIMES.exists() else {}
    documents = {"README": 900, "ARCHITECTURE": 1_800, "PERFORMANCE": 2_500}
    rows = [
        ("lines in the package", f"{n_lines():,}", "55,000"),
        ("loose modules beside folders", str(len(loose)), "4"),
        ("most parameters of a kernel or private function", str(max(each.n_parameters for each in inside)), "12"),
        ("such functions with more than 12", str(len(too_many)), "0"),
        *((f"words in {name}", f"{n_words(f'{name}.md'):,}", f"{most:,}") for name, most in documents.items()),
        *((f"seconds of `make {name}`", str(times.get(name, "not run")), most) for name, most in _MAKE.items()),
        ("folder cycles by imports", str(len(cycles(arrows))), "0"),
    ]
    width = max(len(row[0]) for row in rows)
    lines = [f"{'':{width}}  {'today':>8}  {'at most':>8}", *(f"{a:{width}}  {b:>8}  {c:>8}" for a, b, c in rows)]
    lines += [f"  {each.n_parameters} parameters: {each.place} {each.name}" for each in too_many]
    lines += [f"  cycle: {' '.join(group)}" for group in cycles(arrows)]
    return "\n".join(lines)


_MAKE: Final = {"check": "120", "test": "600"}


def main() -> None:
    """Print the table or the map."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--map", action="store_true", help="the map of folders that ARCHITECTURE.md shows")
    print(folder_map(imports()) if parser.parse_args().map else table())


if __name__ == "__main__":
    main()
