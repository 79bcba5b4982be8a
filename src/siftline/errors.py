"""Every exception that a caller of Siftline can meet.

>>> import siftline
>>> siftline.parse("price betwen 1 and 2")
Traceback (most recent call last):
    ...
siftline.errors.SubscriptionError: line 1, column 7: expected an operator after 'price', found 'betwen'
  price betwen 1 and 2
        ^
  hint: did you mean 'between'?
"""

from __future__ import annotations

__all__ = [
    "AccessError",
    "BusyError",
    "DuplicateIdError",
    "EventError",
    "FileError",
    "GoneError",
    "IdempotencyError",
    "LimitError",
    "OperatorError",
    "ServerError",
    "SiftlineError",
    "SnapshotError",
    "SparkError",
    "StorageError",
    "StoreError",
    "StoreLockedError",
    "SubscriptionError",
    "TableError",
    "TooLargeError",
    "UnknownIdError",
    "UnknownIndexError",
    "UnknownPipelineError",
    "WrongTicketError",
]

# Of a very long line the error shows only this many characters around the position.
_EXCERPT_WIDTH = 100


class SiftlineError(Exception):
    """Any error that Siftline raises on purpose."""


class SubscriptionError(SiftlineError, ValueError):
    """A subscription that cannot be accepted, with where and why.

    Parameters
    ----------
    reason : str
        What is wrong, in one sentence without a full stop.
    text : str, optional
        The expression as the user wrote it.
    position : int, optional
        0-based offset of the offending place in `text`.
    hint : str, optional
        What to write instead.
    path : str, optional
        For JSON front ends: where in the JSON document, such as ``detail.state[0]``.

    Attributes
    ----------
    line, column : int or None
        1-based place of `position` in `text`.
    """

    def __init__(
        self,
        reason: str,
        *,
        text: str | None = None,
        position: int | None = None,
        hint: str | None = None,
        path: str | None = None,
    ) -> None:
        self.reason = reason
        self.text = text
        self.position = position
        self.hint = hint
        self.path = path
        self.line: int | None = None
        self.column: int | None = None
        if text is not None and position is not None:
            self.line = text.count("\n", 0, position) + 1
            self.column = position - (text.rfind("\n", 0, position) + 1) + 1
        super().__init__(self._message())

    def _message(self) -> str:
        lines = [self._where() + self.reason]
        if self.text is not None and self.position is not None and self.column is not None:
            lines += _excerpt(self.text, self.position, self.column)
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def _where(self) -> str:
        if self.path is not None:
            return f"at {self.path}: " if self.path else ""
        if self.line is not None:
            return f"line {self.line}, column {self.column}: "
        return ""

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by positional arguments; ours are keyword-only.
        return _rebuild, (self.reason, self.text, self.position, self.hint, self.path)


def _rebuild(
    reason: str, text: str | None, position: int | None, hint: str | None, path: str | None
) -> SubscriptionError:
    return SubscriptionError(reason, text=text, position=position, hint=hint, path=path)


def _excerpt(text: str, position: int, column: int) -> list[str]:
    """Return the offending line and a caret below the offending column."""
    start = position - (column - 1)
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else len(text)]
    first = max(0, column - 1 - _EXCERPT_WIDTH // 2)
    # One visible character for each, so that the caret fits and nothing odd reaches the terminal.
    shown = "".join(_visible(character) for character in line[first : first + _EXCERPT_WIDTH])
    before = "..." if first else ""
    after = "..." if first + _EXCERPT_WIDTH < len(line) else ""
    return [f"  {before}{shown}{after}", "  " + " " * (len(before) + column - 1 - first) + "^"]


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else "\ufffd"


class EventError(SiftlineError, ValueError):
    """An event that is not one: not a JSON object, nested too deeply, or with a value of no known kind."""


class OperatorError(SiftlineError, ValueError):
    """An operator that cannot be made: its name is taken, or its function takes or returns what no call could."""


class TableError(SiftlineError, ValueError):
    """An Arrow table or file that lacks a column or has one of an unusable type."""


class FileError(SiftlineError, ValueError):
    """A file of subscriptions or events that cannot be read; the message begins with its name."""


class DuplicateIdError(SiftlineError, ValueError):
    """An id that is already in use."""


class UnknownIdError(SiftlineError, KeyError):
    """An id that no subscription has."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the message in quotes


class UnknownIndexError(SiftlineError, ValueError):
    """An index name, or an option of an index, that does not exist."""


class UnknownPipelineError(SiftlineError, ValueError):
    """A pipeline of pySigma that is not installed, or a file that is none."""


class TooLargeError(SiftlineError):
    """A structure that would take more memory than it may; nothing was added.

    What is already there is never refused later: if an index cannot be laid out in one piece, it stays in several.
    """


class SnapshotError(SiftlineError):
    """A saved engine that is damaged, truncated, or of another version."""


class StorageError(SiftlineError):
    """A file of pages, or a store, that is damaged, truncated, of another version, in use, or cannot be written.

    What was acknowledged before is never lost by the error itself: the file stays as it is.

    Attributes
    ----------
    public : str or None
        What may be said to strangers, who need not know where the files are; None if that is nothing in particular.
    """

    def __init__(self, message: str = "", *, public: str | None = None) -> None:
        super().__init__(message)
        self.public = public


class StoreError(StorageError):
    """A store of subscriptions that cannot be opened, read or written; what was acknowledged is still there."""


class StoreLockedError(StoreError):
    """Another process owns the store, or has been writing into it for longer than one wants to wait."""


class GoneError(StoreError):
    """Changes that a reader of the feed needs, and that the store no longer has, or never had.

    Attributes
    ----------
    first, last : int
        From 0, which gives everything that there is, and from any number of these a reader can go on.
    """

    def __init__(self, message: str, *, first: int = 0, last: int = 0, public: str | None = None) -> None:
        super().__init__(message, public=public)
        self.first, self.last = first, last


class SparkError(SiftlineError):
    """A pipeline on Spark that cannot run: no Java, another job in the way, a place that cannot be written."""


class WrongTicketError(SiftlineError):
    """A ticket that does not belong to the subscription; nothing has changed."""


class LimitError(SiftlineError):
    """Something larger, longer or more than the broker takes; nothing has changed."""


class IdempotencyError(SiftlineError, ValueError):
    """An idempotency key that was used for other events before; nothing was published."""


class BusyError(SiftlineError):
    """More than the broker can take at the moment: try again later; nothing has changed.

    Attributes
    ----------
    retry_after : float or None
        In how many seconds, if that is known.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class AccessError(SiftlineError):
    """A request that needs an API key or a ticket that it does not have; nothing has changed."""


class ServerError(SiftlineError):
    """A server that cannot be reached, takes too long, or does not answer as a broker does.

    What was asked for may have happened, or not.

    Attributes
    ----------
    status : int or None
        Of the answer, if there was one.
    retry_after : float or None
        In how many seconds to try again, if the server said so.
    """

    def __init__(self, reason: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.status, self.retry_after = status, retry_after
