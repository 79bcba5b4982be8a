"""A folder imports only folders below it, and the documents show the folders as they are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "siftline"

# From the ground up: each may import those before it. Imports inside functions and for type checking count as well.
FOLDERS = (
    "errors",
    "ids",
    "model",
    "language",
    "kernels",
    "encoding",
    "operators",
    "files",
    "sigma",
    "storage",
    "indexes",
    "engine",
    "broker",
    "client",
    "server",
    "spark",
    "demo",
    "cli",
)
# Of those before it, what a folder must do without: the specification and the kernels stand on their own, and what is
# below the engine does not look at the services above the subscriptions.
WITHOUT = {
    "kernels": {"ids", "language"},
    "language": {"ids"},
    "broker": {"kernels", "indexes", "files"},
    "client": {"kernels", "encoding", "operators", "indexes", "storage"},
    "server": {"kernels", "indexes", "client"},
}

MODULES = sorted(SOURCE.rglob("*.py"))

_SPEC = importlib.util.spec_from_file_location("structure", ROOT / "tools" / "structure.py")
assert _SPEC is not None
assert _SPEC.loader is not None
structure = importlib.util.module_from_spec(_SPEC)
sys.modules["structure"] = structure
_SPEC.loader.exec_module(structure)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_only_from_below(path: Path) -> None:
    folder = structure.folder_of(path)
    if folder not in structure.FRONT_DOOR:
        below = FOLDERS[: FOLDERS.index(folder)]
        assert structure.imported(path) <= {*below, folder} - WITHOUT.get(folder, set())


def test_no_folders_reach_each_other() -> None:
    assert structure.cycles(structure.imports()) == []


def test_the_map_of_folders_is_true() -> None:
    """`python tools/structure.py --map` prints what must stand there."""
    indented = "\n".join(f"    {line}" for line in structure.folder_map(structure.imports()).splitlines())
    assert indented in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_what_is_limited_stays_within_its_limits() -> None:
    assert [each for each in structure.functions() if each.n_parameters > structure.MOST_PARAMETERS] == []
    loose = [path.stem for path in SOURCE.glob("*.py") if path.stem not in structure.FRONT_DOOR]
    assert len(loose) <= 4
    words = {"README.md": 900, "ARCHITECTURE.md": 1_800, "PERFORMANCE.md": 2_500}
    assert {name: structure.n_words(name) for name, most in words.items() if structure.n_words(name) > most} == {}


def test_the_product_does_not_name_the_laboratory() -> None:
    """Commands of other distributions are found by their entry points."""
    assert [path for path in MODULES if "siftline_bench" in path.read_text(encoding="utf-8")] == []


def test_the_oracle_shares_no_code_with_other_indexes() -> None:
    assert structure.imported(SOURCE / "indexes" / "scan.py") <= {"indexes", "model", "encoding"}


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
