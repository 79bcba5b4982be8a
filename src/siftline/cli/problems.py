"""Exit statuses of commands, and how they report invalid input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from siftline.files.problems import Problem

OK: Final = 0
BAD_INPUT: Final = 1
CANNOT_RUN: Final = 2

# How many problems of one kind commands print that need valid input.
MAX_REPORTED: Final = 20


class CannotRunError(Exception):
    """The command cannot run; the message says why. Exit status 2."""


class Reporter:
    """Prints problems, up to MAX_REPORTED, and counts all of them."""

    def __init__(self) -> None:
        self.n_problems = 0

    def report(self, problem: Problem) -> None:
        """Count a problem, and print it unless there were too many."""
        self.n_problems += 1
        if self.n_problems <= MAX_REPORTED:
            say(str(problem))
        elif self.n_problems == MAX_REPORTED + 1:
            say("... more problems are only counted")


def counted(n: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "event"), counted(1200, "event")
    ('1 event', '1,200 events')
    """
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def say(text: str) -> None:
    """Print to standard error; characters that it cannot encode are escaped."""
    _print(text, sys.stderr)


def show(text: str) -> None:
    """Print to standard output; characters that it cannot encode are escaped."""
    _print(text, sys.stdout)


def _print(text: str, stream: TextIO) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)
