"""Notifications: one event for one subscription, with an id by which receivers drop repeats.

    417-0    event 417 of the log, for the first of the subscriptions that it matched
    417-1    the same event for the second one

The ids of one stream ascend, and a stream goes on after any of them.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Container

    from siftline.subscriptions import Id

TYPE: Final = "siftline.match"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ID: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,9})", re.ASCII)


class Position(NamedTuple):
    """A place in the log: what comes after it is new."""

    sequence: int
    place: int

    @classmethod
    def of(cls, text: str) -> Position:
        """Return the position that the id of a notification names."""
        found = _ID.fullmatch(text)
        if found is None:
            raise LimitError(f"{text[:40]!r} is not the id of a notification; those look like 417-0")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.sequence}-{self.place}"


# Before everything.
START: Final = Position(0, 0)
# After everything that an event has for anybody.
LAST_PLACE: Final = 10**9 - 1


class Notification(NamedTuple):
    """One event for one subscription."""

    position: Position
    subscription: Id
    at: int
    payload: bytes

    @property
    def id(self) -> str:
        """By which receivers drop repeats, and after which a stream goes on."""
        return str(self.position)

    @property
    def event(self) -> Any:
        """The event, parsed."""
        return json.loads(self.payload)

    @classmethod
    def of(cls, envelope: dict[str, Any]) -> Notification:
        """Return what an envelope holds; the id of the subscription is a text there."""
        at = (datetime.fromisoformat(envelope["time"]) - _EPOCH) // _MICROSECOND
        return cls(Position.of(envelope["id"]), envelope["subject"], at, json.dumps(envelope["data"]).encode())

    def envelope(self) -> bytes:
        """Return the notification as a CloudEvent in JSON; the event is its data, byte for byte."""
        time = (_EPOCH + timedelta(microseconds=self.at)).isoformat().replace("+00:00", "Z")
        subject = json.dumps(str(self.subscription))
        head = (
            f'{{"specversion":"1.0","id":"{self.position}","source":"siftline","type":"{TYPE}","subject":{subject},'
            f'"time":"{time}","datacontenttype":"application/json","data":'
        )
        return b"%b%b}" % (head.encode(), self.payload)


class LoggedEvent(NamedTuple):
    """An event with everybody whom it matched, as the log keeps it; `payload` is JSON on one line."""

    sequence: int
    at: int
    payload: bytes
    subscriptions: list[Id]

    def notification(self, place: int) -> Notification:
        """Return what one of the subscriptions gets."""
        return Notification(Position(self.sequence, place), self.subscriptions[place], self.at, self.payload)

    def for_some(self, wanted: Container[Id], after: Position) -> list[Notification]:
        """Return what some subscriptions get, as far as it comes after a position."""
        first = after.place + 1 if after.sequence == self.sequence else 0
        places = range(first, len(self.subscriptions)) if after.sequence <= self.sequence else ()
        return [self.notification(place) for place in places if self.subscriptions[place] in wanted]


class Everybody:
    """Contains every subscription: what an admin's stream wants."""

    def __contains__(self, id: object) -> bool:
        return True
