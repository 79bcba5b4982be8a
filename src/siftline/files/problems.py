"""Problems in files: what is wrong with a line or row, and where it is."""

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
    """One problem in a file.

    Attributes
    ----------
    file : str
        The name of the file as the user wrote it.
    line, column : int or None
        The position, counted from 1. `line` counts rows where `unit` is "row", as in Parquet files.
    reason : str
        One sentence without a full stop.
    details : tuple of str
        The invalid text with a caret below, and a hint.
    raw : str or None
        The whole line, record or row, for callers that keep invalid ones.
    id : int, str or None
        The id of the invalid subscription, if it is known.
    position : int or None
        The position of the subscription among all of the file, counted from 0.
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
        """The hint of what to write instead, if there is one."""
        return next((line.removeprefix("  hint: ") for line in self.details if line.startswith("  hint: ")), None)

    @property
    def place(self) -> str:
        """The position as file:line:column, as far as it is known."""
        if self.line is None:
            return self.file
        if self.unit != "line":
            return f"{self.file}: {self.unit} {self.line}"
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column is not None else "")

    def __str__(self) -> str:
        return "\n".join([f"{self.place}: {self.reason}", *self.details])

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as a JSON document."""
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
    """Return the problem of an invalid subscription.

    Parameters
    ----------
    locate : function, optional
        From the position in the expression to the line and column in the file.
    about : str
        A prefix of the reason, such as "subscription 'ann': ".
    """
    column = error.column
    if locate is not None and error.position is not None:
        line, column = locate(error.position)
    where = f"at {error.path}: " if error.path else ""
    details = tuple(str(error).split("\n")[1:])
    return Problem(file, line, column, f"{about}{where}{error.reason}", details, unit)


def event_problem(error: EventError, file: str, line: int, text: bytes = b"") -> Problem:
    """Return the problem of a line that is not an event; the byte position of the error becomes a column."""
    reason = str(error)
    found = _AT_BYTE.search(reason)
    if found is None:
        return Problem(file, line, 1, reason)
    before = text[: int(found[1])].decode("utf-8", "replace")
    return Problem(file, line, len(before) + 1, reason[: found.start()])
