"""How far a command is: a bar on a terminal; nothing elsewhere, where nobody waits, or if told to be quiet."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from siftline.cli.problems import say

if TYPE_CHECKING:
    from types import TracebackType


class Progress:
    """Counts work done, as a context manager.

    Parameters
    ----------
    label : str
        What is being done.
    total : int, optional
        How much there is to do, if known.
    unit : str
        What is counted; "B" for bytes.
    is_quiet : bool
        Show nothing.
    """

    def __init__(self, label: str, total: int | None, unit: str, *, is_quiet: bool) -> None:
        self._bar: Any = None if is_quiet or not sys.stderr.isatty() else _bar(label, total, unit)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, amount: int) -> None:
        """Count some more work as done."""
        if self._bar is not None:
            self._bar.update(amount)


def announce(text: str, *, is_quiet: bool) -> None:
    """Say on a terminal that something takes a while now."""
    if not is_quiet and sys.stderr.isatty():
        say(text)


def _bar(label: str, total: int | None, unit: str) -> Any:
    from tqdm import tqdm

    is_bytes = unit == "B"
    return tqdm(desc=label, total=total, unit=unit, unit_scale=is_bytes, leave=False, file=sys.stderr)
