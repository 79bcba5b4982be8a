"""The figures that there are: the files of the folder `figures/`."""

from __future__ import annotations

import difflib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from siftline_bench.figures.figure import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline_bench.figures.figure import Figure

# Of each paper, the name that the command line takes and that its files begin with.
PAPERS: Final = {
    "opindex": "OpIndex (Zhang, Chan, Tan 2014)",
    "pstree": "PS-Tree (Ji, Jacobsen 2018)",
    "pbtree": "PB+tree (Wang, Zhang, Kitsuregawa)",
    "topss": "ToPSS predicate tables and DBMS matching (Toronto)",
    "operators": "Expensive operators",
}
CLAIMS: Final = "claims.yaml"


def folder() -> Path:
    """Return the folder of the figures: in a checkout beside `src`, else where the package was installed."""
    beside = Path(__file__).parents[3] / "figures"
    return beside if (beside / CLAIMS).exists() else Path(__file__).parent / "files"


@cache
def figures() -> dict[str, Figure]:
    """Return all figures by name, in the order of the papers."""
    found = [read(path) for path in sorted(folder().glob("*.yaml"), key=_order) if path.name != CLAIMS]
    for each in found:
        if each.paper not in PAPERS or not each.name.startswith(f"{each.paper}-"):
            raise ValueError(f"the file {each.name} does not begin with its paper, one of {', '.join(PAPERS)}")
    return {each.name: each for each in found}


def _order(path: Path) -> tuple[int, list[tuple[int, str]]]:
    """Sort by paper, then as people count: 8a before 10a."""
    paper, _, rest = path.stem.partition("-")
    parts = re.findall(r"\d+|\D+", rest)
    place = list(PAPERS).index(paper) if paper in PAPERS else len(PAPERS)
    return place, [(int(part), "") if part.isdigit() else (10**6, part) for part in parts]


def is_figure(name: str) -> bool:
    """Return whether a name on the command line is a figure or a paper."""
    return name in PAPERS or name in figures()


def chosen(names: Sequence[str]) -> list[Figure]:
    """Return figures by their names and those of papers, each once; all of them if there are no names."""
    known = figures()
    wanted: dict[str, Figure] = {}
    for name in names or PAPERS:
        if name not in PAPERS and name not in known:
            close = difflib.get_close_matches(name, [*known, *PAPERS], n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"there is no figure {name!r}{hint}")
        wanted |= {each.name: each for each in known.values() if name in (each.name, each.paper)}
    return list(wanted.values())
