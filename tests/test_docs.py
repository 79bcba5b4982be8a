"""The code blocks of the documents run as printed."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [path for folder in (ROOT, ROOT / "bench", ROOT / "docs") for path in sorted(folder.glob("*.md"))]
WITH_CODE = [path for path in DOCUMENTS if "```python" in path.read_text(encoding="utf-8")]


def test_the_documents_that_must_have_examples_have_some() -> None:
    assert {"README.md", "LANGUAGE.md"} <= {path.name for path in WITH_CODE}


# The guide to Spark is run where there is a session: tests/spark/test_guide.py.
@pytest.mark.parametrize(
    "path", [path for path in WITH_CODE if path.name != "spark.md"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_examples_run(path: Path) -> None:
    results = doctest.testfile(str(path), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("path", WITH_CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_blocks_are_sessions(path: Path) -> None:
    # A block without a prompt would look like an example and never be run.
    for block in re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
        assert block.lstrip().startswith(">>>"), block


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
