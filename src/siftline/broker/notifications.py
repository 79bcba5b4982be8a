"""Notifications: one event for one subscription, with an id by which receivers recognise repeats.

    417-0    event 417 of the log, for the first of the subscriptions that it matched
    417-1    the same event for the second one

The ids of one stream ascend, and a stream can resume after any of them.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.broker.raw_json import raw_members
from siftline.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline.ids import Id

TYPE: Final = "siftline.match"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ID: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,9})", re.ASCII)


class Position(NamedTuple):
    """A position in the log, after which a reader resumes."""

    sequence: int
    place: int

    @classmethod
    def of(cls, text: str) -> Position:
        """Return the position of the id of a notification."""
        found = _ID.fullmatch(text)
        if found is None:
            raise LimitError(f"{text[:40]!r} is not the id of a notification; those look like 417-0")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.sequence}-{self.place}"


# The position before all events.
START: Final = Position(0, 0)
# The place after all notifications of an event.
LAST_PLACE: Final = 10**9 - 1


class Notification(NamedTuple):
    """One event for one subscription."""

    position: Position
    subscription: Id
    at: int
    payload: bytes

    @property
    def id(self) -> str:
        """The id by which receivers recognise repeats, and after which a stream resumes."""
        return str(self.position)

    @property
    def event(self) -> Any:
        """The event, parsed."""
        return json.loads(self.payload)

    @classmethod
    def of(cls, text: str) -> Notification:
        """Parse an envelope: the event is kept byte for byte, and the id of the subscription is a string."""
        members = raw_members(text)
        id, subject, time = (json.loads(members[name]) for name in ("id", "subject", "time"))
        at = (datetime.fromisoformat(time) - _EPOCH) // _MICROSECOND
        return cls(Position.of(id), subject, at, members["data"].encode("utf-8", "surrogatepass"))

    def envelope(self) -> bytes:
        """Return the notification as a CloudEvent in JSON; its data is the event, byte for byte."""
        time = (_EPOCH + timedelta(microseconds=self.at)).isoformat().replace("+00:00", "Z")
        subject = json.dumps(str(self.subscription))
        head = (
            f'{{"specversion":"1.0","id":"{self.position}","source":"siftline","type":"{TYPE}","subject":{subject},'
            f'"time":"{time}","datacontenttype":"application/json","data":'
        )
        return b"%b%b}" % (head.encode(), self.payload)


class Gap(NamedTuple):
    """Notifications after a position that are missing.

    Attributes
    ----------
    after : Position
        The position of the reader.
    resume : Position
        The position at which it resumes: later notifications are in the log.
    reason : str
        Why they are missing.
    """

    after: Position
    resume: Position
    reason: str

    @property
    def document(self) -> dict[str, str]:
        """The gap as JSON, as streams send it."""
        return {"after": str(self.after), "resume": str(self.resume), "reason": self.reason}

    @classmethod
    def of(cls, document: dict[str, str]) -> Gap:
        """Return the gap of a document."""
        return cls(Position.of(document["after"]), Position.of(document["resume"]), document["reason"])


class Page(list[Notification]):
    """Some notifications in order, and the gap before or between them, if there is one."""

    def __init__(self, notifications: Iterable[Notification], gap: Gap | None = None) -> None:
        super().__init__(notifications)
        self.gap = gap


class Delivered(NamedTuple):
    """How many matches of a cluster were new, were repeated, or had an unknown subscription or event."""

    delivered: int
    repeated: int
    unknown: int


class Everybody:
    """Contains every subscription: the choice of an admin's stream."""

    def __contains__(self, id: object) -> bool:
        return True
