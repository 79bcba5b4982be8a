"""What is wrong with an input, where it stands, and how that is told."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.errors import EventError, SubscriptionError

OK: Final = 0
BAD_INPUT: Final = 1
CANNOT_RUN: Final = 2

# So many problems of one kind are printed one by one by commands that only want good input.
MAX_REPORTED: Final = 20

_AT_BYTE = re.compile(r" at byte (\d+)$")


class CannotRunError(Exception):
    """The command cannot do its work at all; the message says why. Exit status 2."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a file.

    Attributes
    ----------
    file : str
        As the user wrote it.
    line, column : int or None
        1-based. `line` counts rows where `unit` is "row", as in Parquet files.
    reason : str
        One sentence without a full stop.
    details : tuple of str
        The offending text with a caret below, and a hint.
    raw : str or None
        The whole line, record or row, where a bad one has to be kept.
    """

    file: str
    line: int | None
    column: int | None
    reason: str
    details: tuple[str, ...] = ()
    unit: str = "line"
    raw: str | None = None

    @property
    def place(self) -> str:
        """Return file:line:column, as far as known."""
        if self.line is None:
            return self.file
        if self.unit != "line":
            return f"{self.file}: {self.unit} {self.line}"
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column is not None else "")

    def __str__(self) -> str:
        return "\n".join([f"{self.place}: {self.reason}", *self.details])

    def to_dict(self) -> dict[str, Any]:
        """Return the problem for JSON."""
        hint = [line.removeprefix("  hint: ") for line in self.details if line.startswith("  hint: ")]
        document: dict[str, Any] = {"file": self.file, self.unit: self.line, "column": self.column}
        return document | {"reason": self.reason, "hint": hint[0] if hint else None}


def problem_of(
    error: SubscriptionError,
    file: str,
    line: int | None,
    locate: Callable[[int], tuple[int, int]] | None = None,
    *,
    about: str = "",
    unit: str = "line",
) -> Problem:
    """Return the problem for a refused subscription.

    Parameters
    ----------
    locate : function, optional
        From the position in the expression to line and column in the file.
    about : str
        Goes before the reason, such as "subscription 'ann': ".
    """
    column = error.column
    if locate is not None and error.position is not None:
        line, column = locate(error.position)
    where = f"at {error.path}: " if error.path else ""
    details = tuple(str(error).split("\n")[1:])
    return Problem(file, line, column, f"{about}{where}{error.reason}", details, unit)


def event_problem(error: EventError, file: str, line: int, text: bytes = b"") -> Problem:
    """Return the problem for a line that is no event; where the error knows a byte, it becomes a column."""
    reason = str(error)
    found = _AT_BYTE.search(reason)
    if found is None:
        return Problem(file, line, 1, reason)
    before = text[: int(found[1])].decode("utf-8", "replace")
    return Problem(file, line, len(before) + 1, reason[: found.start()])


class Reporter:
    """Prints problems as they come, up to a limit, and counts them all."""

    def __init__(self, *, limit: int | None = MAX_REPORTED) -> None:
        self.limit = limit
        self.n_problems = 0

    def report(self, problem: Problem) -> None:
        """Count a problem, and print it if there were not too many."""
        self.n_problems += 1
        if self.limit is None or self.n_problems <= self.limit:
            say(str(problem))
        elif self.n_problems == self.limit + 1:
            say("... further ones are only counted")


def counted(n: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "event"), counted(1200, "event")
    ('1 event', '1,200 events')
    """
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def say(text: str) -> None:
    """Print to standard error, whatever characters it can show."""
    _print(text, sys.stderr)


def show(text: str) -> None:
    """Print to standard output, whatever characters it can show."""
    _print(text, sys.stdout)


def _print(text: str, stream: TextIO) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)
