"""Progress bars of commands, shown only on a terminal and without --quiet."""

from __future__ import annotations

import sys
from typing import Any

from siftline.cli.problems import say


class Progress:
    """A progress bar, as a context manager.

    Parameters
    ----------
    label : str
        The text before the bar.
    total : int, optional
        The amount of work, if it is known.
    unit : str
        The unit of work; "B" for bytes.
    is_quiet : bool
        Whether to show nothing.
    """

    def __init__(self, label: str, total: int | None, unit: str, *, is_quiet: bool) -> None:
        self._bar: Any = None if is_quiet or not sys.stderr.isatty() else _bar(label, total, unit)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, amount: int) -> None:
        """Add to the amount of work that is done."""
        if self._bar is not None:
            self._bar.update(amount)


def announce(text: str, *, is_quiet: bool) -> None:
    """Print on a terminal that something takes a while."""
    if not is_quiet and sys.stderr.isatty():
        say(text)


def _bar(label: str, total: int | None, unit: str) -> Any:
    from tqdm import tqdm

    is_bytes = unit == "B"
    return tqdm(desc=label, total=total, unit=unit, unit_scale=is_bytes, leave=False, file=sys.stderr)
