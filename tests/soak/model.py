"""What a broker was asked for, what it answered, and so which notifications must, may and must not exist.

Requests overlap, and the server is killed in the midst of them. So nothing here is a point in time: a change is asked
for at one moment and known at a later one, and in between it may be in force or not.

    change    asked ───────── known
                   either way       in force, until a later change is asked for
    event          asked ─────── known
                        matched at some moment in between

A notification must exist if the subscription was in force, and its condition true, whatever happened when. It must not
exist if that was impossible. Everything else may be either way.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

Value = TypeVar("Value")

# Two clocks of one machine are compared, the server's and ours, and the server reads its own a little earlier.
CLOCK_SECONDS = 0.005


class Change(NamedTuple, Generic[Value]):
    """A value that something was given; `known` is infinite until there is an answer."""

    asked: float
    known: float
    value: Value


class Timeline(Generic[Value]):
    """The values that something had, as far as can be told from outside.

    >>> name = Timeline[str]()
    >>> name.ask(1.0, "ann")
    >>> name.settle(2.0)
    >>> name.ask(5.0, "bob")
    >>> name.possible(3.0, 4.0), name.possible(4.0, 6.0)
    (['ann'], ['ann', 'bob'])
    """

    def __init__(self) -> None:
        self._changes: list[Change[Value]] = []

    def ask(self, asked: float, value: Value) -> None:
        """Ask for a value, which is in force sooner or later, or never."""
        self._changes.append(Change(asked, math.inf, value))

    def settle(self, known: float, value: Value | None = None) -> None:
        """Note that the last change is in force from now on; with the value that the answer has, if it has one."""
        last = self._changes[-1]
        self._changes[-1] = Change(last.asked, known, last.value if value is None else value)

    def withdraw(self) -> None:
        """Note that the last change was not made."""
        self._changes.pop()

    @property
    def latest(self) -> Value:
        """The value that was asked for last."""
        return self._changes[-1].value

    @property
    def asked(self) -> float:
        """When the first value was asked for."""
        return self._changes[0].asked if self._changes else math.inf

    @property
    def known(self) -> float:
        """When some value was in force for sure; never, if none was."""
        return min((change.known for change in self._changes), default=math.inf)

    def values(self) -> list[Value]:
        """Return all values that were asked for."""
        return [change.value for change in self._changes]

    def possible(self, start: float, end: float) -> list[Value]:
        """Return the values that may have been in force at some moment of a time."""
        before = [change for change in self._changes if change.known <= start]
        during = [change for change in self._changes if change.known > start and change.asked <= end]
        return [change.value for change in before[-1:] + during]

    def is_sure(self, start: float) -> bool:
        """Return whether some value was in force for sure by then."""
        return any(change.known <= start for change in self._changes)


class Condition(NamedTuple):
    """An expression of the language, and the same as a Python function, written apart from it."""

    text: str
    holds: Callable[[dict[str, int]], bool]


def draw_condition(chance: Random) -> Condition:
    """Draw a condition on events like those of `draw_event`."""
    kind, low = chance.randrange(6), chance.randrange(100)
    high = low + chance.randrange(60)
    other = (kind + 1) % 6
    return chance.choice(
        (
            Condition(f"k = {kind}", lambda event: event["k"] == kind),
            Condition(f"v between {low} and {high}", lambda event: low <= event["v"] <= high),
            Condition(
                f"k in ({kind}, {other}) and not (v < {low})",
                lambda event: event["k"] in (kind, other) and not event["v"] < low,
            ),
        )
    )


def draw_event(chance: Random, number: int) -> dict[str, int]:
    """Draw an event; its number tells it from all others."""
    return {"n": number, "k": chance.randrange(6), "v": chance.randrange(150)}


@dataclass
class Subscription:
    """What is known of one subscription: its conditions, when it expires, when it was ended."""

    id: str
    ticket: str
    has_webhook: bool
    conditions: Timeline[Condition] = field(default_factory=Timeline)
    expiries: Timeline[float] = field(default_factory=Timeline)
    end: Timeline[bool] = field(default_factory=Timeline)

    def expected(self, event: dict[str, int], start: float, end: float) -> bool | None:
        """Return whether an event that was matched between two moments must (True) or must not (False) be notified."""
        is_alive, truths = self._life(start, end), {each.holds(event) for each in self.conditions.possible(start, end)}
        if is_alive is False or truths == {False} or not truths:
            return False
        return True if is_alive and truths == {True} else None

    def _life(self, start: float, end: float) -> bool | None:
        ends, is_surely_ended = self.end.possible(start, end), self.end.is_sure(start)
        expiries = self.expiries.possible(start, end)
        if is_surely_ended or not expiries or all(expiry < start - CLOCK_SECONDS for expiry in expiries):
            return False
        is_surely_there = self.expiries.is_sure(start) and self.conditions.is_sure(start)
        if is_surely_there and not ends and all(expiry > end + CLOCK_SECONDS for expiry in expiries):
            return True
        return None

    def span(self) -> tuple[float, float]:
        """Return two moments outside of which it is not there for sure."""
        gone = max(self.expiries.values(), default=-math.inf) + CLOCK_SECONDS
        return self.expiries.asked, min(gone, self.end.known)

    def may_exist(self, start: float, end: float) -> bool:
        """Return whether it may be there at some moment of a time."""
        return self._life(start, end) is not False

    def must_exist(self, start: float, end: float) -> bool:
        """Return whether it is there all the time for sure."""
        return self._life(start, end) is True


class Published(NamedTuple):
    """An event that was acknowledged, and between which moments it was matched."""

    event: dict[str, int]
    start: float
    end: float


class Orphan(NamedTuple):
    """A subscription that was asked for without an answer: it may be there, under an id that nobody was told."""

    condition: Condition
    asked: float


class _Settled(NamedTuple):
    """The subscriptions of one slice of time: those about which nothing changes in it by condition, and the others."""

    part: int
    by_condition: dict[str, tuple[Condition, set[str]]]
    others: set[str]

    def expected(self, event: dict[str, int]) -> set[str]:
        """Return those about which nothing changes that an event must be notified to."""
        return set().union(*(ids for condition, ids in self.by_condition.values() if condition.holds(event)))


@dataclass
class Model:
    """All of it, and what is wrong with notifications that came."""

    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    published: dict[int, Published] = field(default_factory=dict)
    orphans: list[Orphan] = field(default_factory=list)

    def problems(self, notified: dict[int, list[str]], n_excused: int = 0) -> Iterator[str]:
        """Compare notifications, the subscriptions by the number of an event, with what must and must not be.

        Parameters
        ----------
        notified : dict
            What a stream of everybody's notifications gave.
        n_excused : int
            Notifications that the stream said it misses.
        """
        n_missed, by_time, settled = 0, self._by_time(), _Settled(-1, {}, set())
        for number, (event, start, end) in sorted(self.published.items(), key=lambda each: each[1].start):
            ids = notified.get(number, [])
            got = set(ids)
            if len(got) < len(ids):
                yield f"event {number}: notified twice of {sorted(id for id in got if ids.count(id) > 1)[:3]}"
            for id in got - self.subscriptions.keys():
                if not any(each.condition.holds(event) and each.asked <= end for each in self.orphans):
                    yield f"event {number}: {id} was notified, and nobody made it"
            if _slice(start) != settled.part:
                settled = self._settled(_slice(start), by_time)
            if _slice(end) == settled.part:
                must, others = settled.expected(event), settled.others
            else:
                must, others = set(), set().union(*(by_time[part] for part in range(settled.part, _slice(end) + 1)))
            for id in (must - got) | others | ((got - must) & self.subscriptions.keys()):
                expected = self.subscriptions[id].expected(event, start, end)
                if expected is False and id in got:
                    yield f"event {number} {event}: {id} was notified, and must not be: {self._story(id, start, end)}"
                elif expected is True and id not in got:
                    n_missed += 1
                    if n_missed > n_excused:
                        yield f"event {number} {event}: {id} must be notified: {self._story(id, start, end)}"
        for number in notified.keys() - self.published.keys():
            yield f"event {number} was notified, and never acknowledged nor refused"

    def _by_time(self) -> dict[int, set[str]]:
        """Return the subscriptions that may be there in each slice of time: few of all that there ever were."""
        last = max((each.end for each in self.published.values()), default=0.0)
        found: dict[int, set[str]] = defaultdict(set)
        for id, subscription in self.subscriptions.items():
            first, gone = subscription.span()
            if first < math.inf:
                for part in range(_slice(first), _slice(min(gone, last)) + 1):
                    found[part].add(id)
        return found

    def _settled(self, part: int, by_time: dict[int, set[str]]) -> _Settled:
        """Tell those that are there for all of a slice with one condition from the others that may be there."""
        by_condition: dict[str, tuple[Condition, set[str]]] = {}
        others = set()
        for id in by_time[part]:
            conditions = self.subscriptions[id].conditions.possible(part, part + 1)
            if len(conditions) == 1 and self.subscriptions[id].must_exist(part, part + 1):
                by_condition.setdefault(conditions[0].text, (conditions[0], set()))[1].add(id)
            else:
                others.add(id)
        return _Settled(part, by_condition, others)

    def _story(self, id: str, start: float, end: float) -> str:
        subscription = self.subscriptions[id]
        conditions = [each.text for each in subscription.conditions.possible(start, end)]
        expiries = [round(each - start, 3) for each in subscription.expiries.possible(start, end)]
        return f"matched within {end - start:.3f} s, conditions {conditions}, expires after {expiries} s"


def _slice(moment: float) -> int:
    """Return the number of the second that a moment lies in."""
    return math.floor(moment)
