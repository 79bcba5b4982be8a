"""What all plots share: SVG files that are the same for the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def prepare(folder: Path) -> None:
    """Make the folder, and set matplotlib up."""
    set_up()
    folder.mkdir(parents=True, exist_ok=True)


def set_up(salt: str = "siftline") -> None:
    """Set matplotlib up; it is an extra. Names inside of a file are made from its content and the salt."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise ValueError("plots need matplotlib: pip install 'siftline[bench]'") from None
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = salt  # the same rows give the same file
    mpl.rcParams["svg.fonttype"] = "none"


def saved(figure: Any, path: Path) -> Path:
    """Write a figure, without a date."""
    figure.savefig(path, metadata={"Date": None})
    return path
