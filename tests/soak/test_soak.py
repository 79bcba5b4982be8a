"""The model of the soak by itself, and five minutes of the soak."""

from __future__ import annotations

import math
from random import Random

import pytest

from soak.model import Condition, Model, Published, Subscription
from soak.run import soak

CHEAP = Condition("v < 10", lambda event: event["v"] < 10)
DEAR = Condition("v >= 10", lambda event: event["v"] >= 10)


def made(id: str = "ann", expires: float = 100.0) -> Subscription:
    subscription = Subscription(id, "ticket", False)
    subscription.conditions.ask(1.0, CHEAP)
    subscription.conditions.settle(2.0)
    subscription.expiries.ask(1.0, expires)
    subscription.expiries.settle(2.0)
    return subscription


def test_what_must_and_must_not_be_notified() -> None:
    subscription = made()
    cheap, dear = {"v": 5}, {"v": 50}
    assert subscription.expected(cheap, 3.0, 4.0) is True
    assert subscription.expected(dear, 3.0, 4.0) is False
    assert subscription.expected(cheap, 0.1, 0.5) is False
    assert subscription.expected(cheap, 1.5, 4.0) is None
    assert subscription.expected(cheap, 99.0, 101.0) is None
    assert subscription.expected(cheap, 101.0, 102.0) is False


def test_a_change_without_an_answer_is_either_way() -> None:
    subscription = made()
    subscription.conditions.ask(5.0, DEAR)
    assert subscription.expected({"v": 5}, 4.0, 6.0) is None
    assert subscription.expected({"v": 5}, 3.0, 4.0) is True
    subscription.conditions.withdraw()
    assert subscription.expected({"v": 5}, 4.0, 6.0) is True
    subscription.end.ask(7.0, True)
    assert subscription.expected({"v": 5}, 8.0, 9.0) is None
    subscription.end.settle(8.0)
    assert subscription.expected({"v": 5}, 8.0, 9.0) is False


def test_the_model_finds_what_is_lost_doubled_and_wrong() -> None:
    model = Model({"ann": made("ann"), "bob": made("bob")}, {1: Published({"n": 1, "v": 5}, 3.0, 4.0)})
    assert list(model.problems({1: ["ann", "bob"]})) == []
    assert "must be notified" in next(model.problems({1: ["ann"]}))
    assert list(model.problems({1: ["ann"]}, n_excused=1)) == []
    assert "twice" in next(model.problems({1: ["ann", "bob", "bob"]}))
    assert "nobody made it" in next(model.problems({1: ["ann", "bob", "eve"]}))
    assert "never acknowledged" in next(model.problems({1: ["ann", "bob"], 2: ["ann"]}))


def test_only_those_that_may_be_there_are_looked_at() -> None:
    """Outside of its span, nothing is expected of a subscription, whatever became of it."""
    chance = Random(3)
    for _ in range(300):
        subscription = made(expires=chance.uniform(1, 12))
        if chance.random() < 0.5:
            subscription.expiries.ask(chance.uniform(2, 9), chance.uniform(2, 15))
        if chance.random() < 0.5:
            subscription.end.ask(chance.uniform(2, 9), True)
            if chance.random() < 0.5:
                subscription.end.settle(chance.uniform(9, 10))
        first, gone = subscription.span()
        for start in (first - 0.2, gone + 0.001):
            if start < math.inf:
                assert subscription.expected({"v": 5}, start, start + 0.1) is False


def test_slices_of_time_find_what_a_look_at_everything_finds() -> None:
    chance = Random(4)
    subscriptions = {}
    for i in range(30):
        each = made(str(i), expires=chance.uniform(2, 12))
        for _ in range(chance.randrange(3)):
            each.conditions.ask(chance.uniform(2, 9), chance.choice((CHEAP, DEAR)))
        if chance.random() < 0.5:
            each.end.ask(chance.uniform(2, 9), True)
            each.end.settle(9.5)
        subscriptions[each.id] = each
    published, notified = {}, {}
    for number in range(200):
        start = chance.uniform(0, 12)
        published[number] = Published({"n": number, "v": chance.randrange(20)}, start, start + chance.uniform(0, 1.5))
        notified[number] = [id for id in subscriptions if chance.random() < 0.5]
    wrong = set()
    for number, (event, start, end) in published.items():
        for id, each in subscriptions.items():
            expected = each.expected(event, start, end)
            if expected is not None and expected is not (id in notified[number]):
                wrong.add((number, id))
    found = list(Model(subscriptions, published).problems(notified))
    assert len(wrong) > 100
    assert len(found) == len(wrong)


@pytest.mark.slow
def test_five_minutes() -> None:
    outcome = soak(300.0, seed=23)
    assert outcome.problems == [], outcome.summary
