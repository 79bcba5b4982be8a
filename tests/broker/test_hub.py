"""The hub: which listeners get an event, what it costs, and which bytes count until they are sent."""

from __future__ import annotations

import random
import tracemalloc
from typing import TYPE_CHECKING, Any

from siftline.broker.hub import Hub, Listener
from siftline.broker.logged import LoggedEvent
from siftline.broker.names import Names
from siftline.broker.notifications import START, Everybody, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from siftline.broker.notifications import Notification

NAMES = Names()


def event(sequence: int, ids: Iterable[Any], payload: bytes = b"{}") -> LoggedEvent:
    return LoggedEvent(sequence, 5, payload, NAMES.numbered(list(ids)), NAMES)


def joined(
    hub: Hub, wanted: Any, owner: str | None = None, wake: Callable[[], None] = lambda: None, **limits: int
) -> Listener:
    bounds = {"most_items": 1000, "most_bytes": 1 << 20} | limits
    listener = Listener(wanted, owner=owner, wake=wake, **bounds)
    hub.join(listener)
    listener.listen()
    return listener


def taken(listener: Listener) -> list[Notification]:
    return [each for message in listener.take(1000) for each in message.after(START)]


def test_streams_of_an_owner_share_one_set_of_subscriptions() -> None:
    hub, ids = Hub(1 << 20), [f"subscription {n}" for n in range(10_000)]
    tracemalloc.start()
    try:
        listeners = [joined(hub, set(ids), "ann") for _ in range(50)]
        n_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n_bytes < 5_000_000
    assert len(hub) == 50
    assert len({id(listener.wanted) for listener in listeners}) == 1
    hub.added("new", "ann")
    hub.removed(ids[:9_000])
    assert {len(listener.wanted) for listener in listeners} == {1001}  # type: ignore[arg-type]
    hub.tell([event(1, ["new", *ids[8_990:9_010]])])
    assert {len(taken(listener)) for listener in listeners} == {11}
    for listener in listeners:
        hub.leave(listener)
        hub.leave(listener)
    assert (len(hub), hub._audiences, hub._owners, hub._load._n) == (0, {}, {}, 0)


def test_listeners_against_a_model() -> None:
    rng = random.Random(3)
    for _ in range(30):
        hub = Hub(1 << 30)
        owners: dict[int, str] = {n: rng.choice("abc") for n in range(20)}
        next_id = 20
        open_: list[tuple[Listener, Any, str | None]] = []
        for sequence in range(1, 80):
            what = rng.randrange(6)
            if what == 0 and owners:
                kind = rng.randrange(3)
                chosen, owner = rng.choice(list(owners)), rng.choice("abc")
                theirs = {id for id, whose in owners.items() if whose == owner}
                if kind == 0:
                    open_.append((joined(hub, {chosen}), chosen, None))
                elif kind == 1:
                    open_.append((joined(hub, theirs, owner), None, owner))
                else:
                    open_.append((joined(hub, Everybody()), None, None))
            elif what == 1 and open_:
                hub.leave(open_.pop(rng.randrange(len(open_)))[0])
            elif what == 2:
                owners[next_id] = rng.choice("abc")
                hub.added(next_id, owners[next_id])
                hub.added(next_id, owners[next_id])  # a renewal
                next_id += 1
            elif what == 3 and owners:
                gone = rng.sample(sorted(owners), min(3, len(owners)))
                hub.removed(gone)
                for id in gone:
                    del owners[id]
                for listener, chosen, _ in open_:
                    assert listener.is_ended == (chosen is not None and chosen not in owners)
            elif owners:
                ids = rng.sample(sorted(owners), rng.randrange(1, len(owners) + 1))
                hub.tell([event(sequence, ids)])
                for listener, chosen, of in open_:
                    wanted = [
                        (Position(sequence, place), id)
                        for place, id in enumerate(ids)
                        if id == chosen or (chosen is None and of in (None, owners[id]))
                    ]
                    assert [(each.position, each.subscription) for each in taken(listener)] == wanted
            assert len(hub) == len(open_)


def test_a_listener_is_woken_once_for_events_of_one_call() -> None:
    hub, woken = Hub(1 << 20), []
    listeners = [joined(hub, Everybody(), wake=lambda n=n: woken.append(n)) for n in range(2)]  # type: ignore[misc]
    joined(hub, {"nobody"}, wake=lambda: woken.append(9))
    hub.tell([event(n, range(100)) for n in range(1, 6)])
    assert sorted(woken) == [0, 1]
    first, second = (listener.take(1000) for listener in listeners)
    # Both have the same messages, and no notification was made for anybody who has not asked for it.
    assert [id(message) for message in first] == [id(message) for message in second]
    assert len(first) == 5
    assert [each.position for each in first[0].after(Position(1, 97))] == [Position(1, 98), Position(1, 99)]
    assert list(first[0].after(Position(2, 0))) == []
    assert len(list(first[0].after(Position(0, 5)))) == 100


def test_an_event_for_many_is_one_item_of_a_queue() -> None:
    hub = Hub(1 << 20)
    listener = joined(hub, Everybody(), most_items=2, most_bytes=200_000)
    hub.tell([event(1, range(1400)), event(2, range(1400))])
    assert not listener.is_behind
    assert len(taken(listener)) == 2800
    hub.tell([event(n, [1]) for n in (3, 4, 5)])
    assert listener.is_behind
    assert listener.listen() == Position(2, 999_999_999)
    hub.tell([event(6, range(10_000))])  # more than it takes in bytes
    assert listener.is_behind


def test_taken_messages_count_until_they_are_sent() -> None:
    hub = Hub(10_000)
    slow, other = joined(hub, Everybody()), joined(hub, {"a"})
    hub.tell([event(1, ["b"], b"x" * 6000)])
    [message] = slow.take(9)
    assert hub._load._n >= 6000
    hub.tell([event(2, ["a"], b"x" * 6000)])
    assert other.is_behind  # there is no room while the other one is being sent
    assert slow.is_behind
    slow.hold(7000)
    assert hub._load._n == 7000
    assert slow.is_short
    assert slow.take(9) == []
    assert hub._load._n == 0
    assert message.n_bytes >= 6000
    slow.hold(50_000)  # what was read from the log is there in any case
    assert hub._load._n == 50_000
    hub.leave(slow)
    slow.hold(60_000)
    slow.listen()
    assert (hub._load._n, slow.is_behind) == (0, True)


def test_nothing_is_done_for_those_who_are_behind() -> None:
    hub = Hub(1 << 20)
    listeners = [joined(hub, Everybody()), joined(hub, {"a", "b"}, "ann"), joined(hub, {"a"})]
    for listener in listeners:
        listener.is_behind = True
    untouched = event(1, ["a", "b"])._replace(names=None)  # type: ignore[arg-type]
    hub.tell([untouched])
    assert hub.told == 1
    listeners[1].listen()
    hub.tell([event(2, ["a", "b", "c"])])
    assert [len(taken(listener)) for listener in listeners] == [0, 2, 0]
