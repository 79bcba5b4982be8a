"""What is wrong with a line or row of a file, and where it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.errors import EventError, SubscriptionError

_AT_BYTE = re.compile(r" at byte (\d+)$")


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
    id : int, str or None
        Of the subscription that is bad, as far as it is known.
    position : int or None
        Of the subscription among all of the file, from 0.
    """

    file: str
    line: int | None
    column: int | None
    reason: str
    details: tuple[str, ...] = ()
    unit: str = "line"
    raw: str | None = None
    id: Any = None
    position: int | None = None

    @property
    def hint(self) -> str | None:
        """What to write instead, if the error knows."""
        return next((line.removeprefix("  hint: ") for line in self.details if line.startswith("  hint: ")), None)

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
        document: dict[str, Any] = {"file": self.file, self.unit: self.line, "column": self.column}
        return document | {"reason": self.reason, "hint": self.hint}


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
