"""How far a command is: a bar on a terminal, a line every few seconds elsewhere, nothing if told to be quiet."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

from siftline.cli.problems import say

if TYPE_CHECKING:
    from types import TracebackType

_SECONDS_BETWEEN_LINES: Final = 5.0


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
        self._label = label
        self._total = total
        self._unit = unit
        self._done = 0
        self._next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
        self._is_quiet = is_quiet
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
        self._done += amount
        if self._bar is not None:
            self._bar.update(amount)
        elif not self._is_quiet and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
            say(self._line())

    def _line(self) -> str:
        if self._total:
            return f"{self._label}: {min(100 * self._done // self._total, 100)} %"
        return f"{self._label}: {self._done:,} {self._unit}"


def _bar(label: str, total: int | None, unit: str) -> Any:
    from tqdm import tqdm

    is_bytes = unit == "B"
    return tqdm(desc=label, total=total, unit=unit, unit_scale=is_bytes, leave=False, file=sys.stderr)
