"""Leases and time: an expired subscription never matches, and no jump of the clock ends a lease."""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from siftline import Store
from siftline.broker import live_engine
from siftline.broker.broker import Broker
from siftline.broker.clock import PATIENCE_SECONDS, SteadyClock
from siftline.broker.limits import Limits
from siftline.errors import BusyError, UnknownIdError
from siftline.storage.feed import catch_up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from siftline.broker.leases import Lease

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
NEVER = datetime.max.replace(tzinfo=UTC)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **time: float) -> None:
        self.now += timedelta(**time)


def test_a_replacement_that_is_followed_after_the_end_does_not_bring_it_back(tmp_path: Path) -> None:
    clock = Clock()
    with Broker(tmp_path / "store.db", clock=clock) as broker:
        lease = broker.subscribe("a = 1", 10)
        broker.store.replace(lease.id, "a > 0", expires=lease.expires)  # committed, not yet followed
        clock.forward(seconds=10)
        assert broker.match({"a": 1}) == []  # evicted
        broker.follow()
        assert lease.id not in broker.engine
        assert broker.engine.match({"a": 1}) == []
        assert broker.match({"a": 1}) == []


@pytest.mark.parametrize("change", ["replace", "renew"])
def test_a_change_in_the_midst_of_which_the_lease_ends(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock passes the end after the commit: the engine must not get it, unless it was renewed."""
    clock = Clock()
    with Broker(tmp_path / "store.db", clock=clock) as broker:
        lease = broker.subscribe("a = 1", 10)
        clock.forward(seconds=9)
        follow = broker.follow

        def late(sequence: int | None = None) -> None:
            clock.forward(seconds=5)
            assert broker.match({"a": 1}) == ([] if change == "replace" else [lease.id])
            follow(sequence)

        monkeypatch.setattr(broker, "follow", late)
        if change == "replace":
            assert broker.replace(lease.id, lease.ticket, "a > 0").written.text == "a > 0"
            assert broker.match({"a": 1}) == []
        else:
            broker.renew(lease.id, lease.ticket, 10)
            assert broker.match({"a": 1}) == [lease.id]


def test_an_unknown_subscription_is_not_replaced(tmp_path: Path) -> None:
    """Replacements race with the end of the lease: either it was there, and is replaced, or nothing has changed."""
    with Broker(tmp_path / "store.db") as broker:
        for n in range(6):
            lease = broker.subscribe("a = 0", 0.3)
            last, number = "a = 0", 0
            try:
                while True:
                    number += 1
                    last = broker.replace(lease.id, lease.ticket, f"a = {number}").written.text
            except UnknownIdError:
                rows = broker.store.select("SELECT text FROM changes WHERE id = ? AND text IS NOT NULL", (lease.id,))
                assert f"a = {number}" not in [text for (text,) in rows], n
                assert last == f"a = {number - 1}"


def test_the_time_of_the_next_end_is_known_before_the_engine_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A match that comes between the two would otherwise not know that it has to evict."""
    clock = Clock()
    with Broker(tmp_path / "store.db", clock=clock) as broker:
        other: list[list[Any]] = []

        def slow(engine: Any, changes: Any, **options: Any) -> int | None:
            last = catch_up(engine, changes, **options)
            clock.forward(seconds=20)
            thread = threading.Thread(target=lambda: other.append(broker.match({"a": 1})))
            thread.start()
            threads.append(thread)
            time.sleep(0.05)
            return last

        threads: list[threading.Thread] = []
        monkeypatch.setattr(live_engine, "catch_up", slow)
        broker.subscribe("a = 1", 10)
        for thread in threads:
            thread.join()
        assert [] in other
        assert all(found == [] for found in other)


def test_threads_and_time(tmp_path: Path) -> None:
    """Threads subscribe, renew, replace and match while a clock runs fast: no match of what was over before."""
    start = time.monotonic()

    def fast() -> datetime:
        return NOON + timedelta(seconds=100 * (time.monotonic() - start))

    limits = Limits(renewal_seconds=0)
    with Broker(tmp_path / "store.db", clock=fast, limits=limits) as broker:
        ends: dict[Any, datetime] = {}
        wrong: list[Any] = []
        is_over = threading.Event()

        def change(seed: int) -> None:
            draw, lease = random.Random(seed), None
            while not is_over.is_set():
                try:
                    if lease is None or draw.random() < 0.2:
                        lease = broker.subscribe("a = 1", draw.uniform(5, 60))
                        ends[lease.id] = lease.expires
                    elif draw.random() < 0.5:
                        broker.replace(lease.id, lease.ticket, draw.choice(["a = 1", "a > 0"]))
                    else:
                        ends[lease.id] = NEVER  # while it is being renewed, nobody knows
                        ends[lease.id] = broker.renew(lease.id, lease.ticket, draw.uniform(5, 60))
                except UnknownIdError:
                    lease = None

        def match() -> None:
            while not is_over.is_set():
                before = broker.now()
                known = dict(ends)
                wrong.extend(
                    id for id in broker.match({"a": 1}) if known.get(id, NEVER) <= before and ends[id] == known[id]
                )

        threads = [threading.Thread(target=change, args=(seed,)) for seed in range(3)]
        threads.append(threading.Thread(target=match))
        for thread in threads:
            thread.start()
        time.sleep(3)
        is_over.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert ends


class LeaseMachine(RuleBasedStateMachine):
    """A broker and a clock that may be set back far, side by side with a dict; guests change the store as well."""

    folder: Path
    n = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).n += 1
        self.clock = Clock()
        self.path = self.folder / f"{self.n}.db"
        self.broker = self.opened()
        self.ends: dict[Any, tuple[datetime, Lease, int]] = {}

    def opened(self) -> Broker:
        return Broker(self.path, clock=self.clock, limits=Limits(renewal_seconds=0))

    numbers = st.integers(1, 3)
    seconds = st.sampled_from([10, 20, 4000, 90_000])

    def live(self) -> dict[Any, tuple[datetime, Lease, int]]:
        return {id: kept for id, kept in self.ends.items() if kept[0] > self.broker.now()}

    @rule(number=numbers, seconds=seconds)
    def subscribe(self, number: int, seconds: int) -> None:
        lease = self.broker.subscribe(f"a = {number}", seconds)
        self.ends[lease.id] = lease.expires, lease, number

    def tried(self, draw: st.DataObject, change: Callable[[Lease], Any]) -> Lease | None:
        """Change one of all leases that ever were; it must be known if it is live."""
        if not self.ends:
            return None
        id = draw.draw(st.sampled_from(sorted(self.ends)))
        lease = self.ends[id][1]
        if id in self.live():
            change(lease)
            return lease
        with pytest.raises(UnknownIdError):
            change(lease)
        return None

    @rule(draw=st.data(), seconds=seconds)
    def renew(self, draw: st.DataObject, seconds: int) -> None:
        lease = self.tried(draw, lambda lease: self.broker.renew(lease.id, lease.ticket, seconds))
        if lease is not None:
            self.ends[lease.id] = self.broker.now() + timedelta(seconds=seconds), lease, self.ends[lease.id][2]

    @rule(draw=st.data(), number=numbers, is_followed=st.booleans())
    def replace(self, draw: st.DataObject, number: int, is_followed: bool) -> None:
        def change(lease: Lease) -> None:
            if is_followed:
                self.broker.replace(lease.id, lease.ticket, f"a = {number}")
                return
            self.broker.get(lease.id, None)
            self.broker.store.transact(
                lambda transaction, _: transaction.replace(lease.id, content(number)), self.broker.now()
            )

        lease = self.tried(draw, change)
        if lease is not None:
            self.ends[lease.id] = self.ends[lease.id][0], lease, number
            if not is_followed:
                self.clock.forward(seconds=15)  # and the engine hears of it when it may be over

    @rule(draw=st.data())
    def unsubscribe(self, draw: st.DataObject) -> None:
        lease = self.tried(draw, lambda lease: self.broker.unsubscribe(lease.id, lease.ticket))
        if lease is not None:
            del self.ends[lease.id]

    @rule(seconds=seconds)
    def forward(self, seconds: int) -> None:
        self.clock.forward(seconds=seconds)

    @rule()
    def is_set_back(self) -> None:
        self.clock.forward(hours=-2)

    @rule()
    def purge(self) -> None:
        self.broker.purge()
        self.ends = self.live()

    @rule()
    def follow(self) -> None:
        self.broker.follow()

    @rule()
    def reopen(self) -> None:
        self.broker.close()
        self.broker = self.opened()

    @invariant()
    def what_is_live_matches(self) -> None:
        self.broker.follow()
        for number in (1, 2, 3):
            expected = {id for id, (_, _, wanted) in self.live().items() if wanted == number}
            assert set(self.broker.match({"a": number})) == expected

    def teardown(self) -> None:
        self.broker.close()


def content(number: int) -> Any:
    from siftline.storage.transaction import KEPT, Content
    from siftline.storage.written import Written

    return Content(Written.of(f"a = {number}"), None, None, None, KEPT)


def test_state_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_engine, "PATIENCE_SECONDS", 1e9)  # the machine purges itself
    machine = type("Machine", (LeaseMachine,), {"folder": tmp_path})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_clock_that_jumps_for_a_moment_deletes_nothing(tmp_path: Path) -> None:
    """Also one that the caller brings, and whose jumps are believed as long as they last."""
    off = [timedelta(0)]
    path = tmp_path / "store.db"
    with Broker(path, clock=lambda: NOON + off[0]) as broker:
        leases = [broker.subscribe("n >= 0", "7d") for _ in range(20)]
        off[0] = timedelta(days=400)
        assert broker.match({"n": 1}) == []
        time.sleep(1.5)  # the broker has looked meanwhile
        assert len(broker.store.select("SELECT id FROM subscriptions")) == 20
        off[0] = timedelta(0)
        assert sorted(broker.match({"n": 1})) == sorted(lease.id for lease in leases)
        assert broker.now() == NOON
        assert broker.subscribe("n >= 0", "1h").expires == NOON + timedelta(hours=1)
        off[0] = timedelta(days=400)
        assert broker.match({"n": 1}) == []
    off[0] = timedelta(0)
    with Broker(path, clock=lambda: NOON + off[0]) as broker:  # the snapshot was written while the clock was wrong
        assert len(broker.match({"n": 1})) == 21
    off[0] = timedelta(days=400)
    with Broker(path, clock=lambda: NOON + off[0]) as broker:  # and one that starts while it is
        assert broker.match({"n": 1}) == []
        off[0] = timedelta(0)
        assert len(broker.match({"n": 1})) == 21


def test_expired_subscriptions_are_purged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_engine, "PATIENCE_SECONDS", 0.5)
    clock = Clock()
    with Broker(tmp_path / "store.db", clock=clock) as broker:
        lease = broker.subscribe("a = 1", 10, owner="ann")
        listener = broker.listen(lease.id, wake=lambda: None)
        clock.forward(seconds=10)
        end = time.monotonic() + 30
        while broker.store.select("SELECT id FROM subscriptions UNION SELECT id FROM leases"):
            assert time.monotonic() < end
            time.sleep(0.05)
        while not listener.is_ended:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_renewals_are_limited_in_rate(tmp_path: Path) -> None:
    clock = Clock()
    with Broker(tmp_path / "store.db", clock=clock, limits=Limits(renewal_seconds=2)) as broker:
        lease, other = broker.subscribe("a = 1", "1h"), broker.subscribe("a = 1", "1h")
        for _ in range(4):
            broker.renew(lease.id, lease.ticket)
        for _ in range(3):
            assert broker.renew(lease.id, lease.ticket, "1h") == clock.now + timedelta(hours=1)
            clock.forward(seconds=1)
            with pytest.raises(BusyError, match=r"wait 1\.0 seconds"):
                broker.renew(lease.id, lease.ticket, "2h")
            broker.renew(other.id, other.ticket, "1h")  # each has its own
            clock.forward(seconds=1)
        assert broker.get(lease.id, None).expires == clock.now + timedelta(hours=1, seconds=-2)
        broker.renew(lease.id, lease.ticket, 4)
        for _ in range(9):  # what is about to end may be renewed ten times as often
            clock.forward(seconds=0.2)
            broker.renew(lease.id, lease.ticket, 4)
            with pytest.raises(BusyError, match=r"wait 0\.2 seconds"):
                broker.renew(lease.id, lease.ticket, 4)
        clock.forward(seconds=0.2)
        broker.renew(lease.id, lease.ticket, "1h")


@pytest.mark.parametrize("seconds", [0.001, 0.5, 2.0])
def test_short_leases_are_limited_in_rate(tmp_path: Path, seconds: float) -> None:
    """A thousand attempts within a second, by a lease that is about to end all the time."""
    clock, n_renewed = Clock(), 0
    with Broker(tmp_path / "store.db", clock=clock) as broker:
        lease = broker.subscribe("a = 1", seconds)
        for _ in range(1000):
            try:
                broker.renew(lease.id, lease.ticket, seconds)
            except BusyError:
                continue
            n_renewed += 1
        assert n_renewed == 5


def test_a_short_lease_can_be_kept(tmp_path: Path) -> None:
    clock = Clock()
    with Broker(tmp_path / "store.db", clock=clock) as broker:
        lease = broker.subscribe("a = 1", 0.5)
        for _ in range(50):
            clock.forward(seconds=0.25)
            broker.renew(lease.id, lease.ticket, 0.5)
        assert broker.match({"a": 1}) == [lease.id]


@pytest.mark.parametrize("end", ["removed", "expired"])
def test_a_new_subscription_does_not_inherit_a_limit(tmp_path: Path, end: str) -> None:
    clock = Clock()
    with Broker(tmp_path / "store.db", clock=clock, limits=Limits(renewal_seconds=100)) as broker:
        for _ in range(2):
            broker.store.add("a = 1", "x", expires=clock.now + timedelta(days=1))
            broker.follow()
            for _ in range(5):
                broker.renew("x", None, "1d")
            with pytest.raises(BusyError):
                broker.renew("x", None, "1d")
            if end == "removed":
                broker.unsubscribe("x", None)
            else:
                clock.forward(days=1)
                assert broker.purge() == 1
                clock.now = NOON  # what is forgotten is not merely a bucket that has filled
        assert not broker._renewals._buckets


def test_the_store_of_a_running_broker_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewals, replacements and short leases of long expressions, many times what the store has at any moment."""
    monkeypatch.setattr(live_engine, "KEPT_CHANGES", 10)
    path = tmp_path / "store.db"
    text = f"a = 1 and t != '{'x' * 20_000}'"
    with Broker(path, limits=Limits(renewal_seconds=0)) as broker:
        kept = [broker.subscribe(text) for _ in range(5)]
        for n in range(150):
            lease = kept[n % 5]
            broker.replace(lease.id, lease.ticket, text + " " * n)
            broker.renew(lease.id, lease.ticket, "2d")
            passing = broker.subscribe(text)
            broker.unsubscribe(passing.id, passing.ticket)
        end = time.monotonic() + 60
        while broker.store.select("SELECT count(*) FROM changes")[0][0] > 30:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert sorted(broker.match({"a": 1, "t": ""})) == sorted(each.id for each in kept)
        assert broker.store.verify() == []
        assert broker.store.select("SELECT sum(length(text)) FROM changes")[0][0] < 10 * 21_000
    with Broker(path) as broker:
        assert sorted(broker.match({"a": 1, "t": ""})) == sorted(each.id for each in kept)
        assert path.stat().st_size < 8 << 20  # the texts that were written are 6 MB in all


def test_a_snapshot_that_is_far_behind_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_engine, "KEPT_CHANGES", 10)
    path = tmp_path / "store.db"
    with Broker(path) as broker:
        gone = [broker.subscribe("a = 1") for _ in range(20)]
    with Broker(path) as broker:
        for lease in gone[1:]:
            broker.unsubscribe(lease.id, lease.ticket)
        end = time.monotonic() + 60
        while broker.store.readers():
            assert time.monotonic() < end
            time.sleep(0.05)
        broker._live.compact()
        assert broker.match({"a": 1}) == [gone[0].id]
        broker._live.save = lambda: None  # type: ignore[method-assign]  # as if it were killed
    with Broker(path) as broker:  # the old snapshot no longer fits: everything is loaded anew
        assert broker.match({"a": 1}) == [gone[0].id]


def test_a_ticket_goes_with_its_subscription(tmp_path: Path) -> None:
    with Broker(tmp_path / "store.db") as broker:
        lease = broker.subscribe("a = 1")
        with Store(broker.store.path, is_guest=True) as guest, guest.batch() as batch:
            batch.remove(lease.id)
            batch.add("a = 2", lease.id, owner="bob")
        broker.follow()
        assert broker.store.select("SELECT id FROM leases") == []


class Clocks:
    """A wall clock that may be set, and a steady one."""

    def __init__(self) -> None:
        self.off, self.seconds = timedelta(0), 0.0
        self.clock = SteadyClock(lambda: NOON + timedelta(seconds=self.seconds) + self.off, lambda: self.seconds)

    def after(self, seconds: float) -> float:
        """Let time go on, with a look every second; return by how many seconds the clock differs from the true time."""
        end = self.seconds + seconds
        while self.seconds < end:
            self.seconds += 1
            now = self.clock()
        return (now - NOON).total_seconds() - self.seconds


def test_a_steady_clock_does_not_take_part_in_jumps() -> None:
    clocks = Clocks()
    assert clocks.after(5) == 0
    for jump in (timedelta(days=400), timedelta(days=-400), timedelta(seconds=2)):
        clocks.off = jump
        assert clocks.after(PATIENCE_SECONDS - 2) == 0
        clocks.off = timedelta(0)
        assert clocks.after(5) == 0
    clocks.off = timedelta(hours=1)
    assert clocks.after(PATIENCE_SECONDS - 2) == 0
    clocks.off = timedelta(hours=2)  # another jump: it has to wait again
    assert clocks.after(PATIENCE_SECONDS - 2) == 0
    assert clocks.after(5) == 7200
    clocks.off = timedelta(0)  # it was wrong, and is right again for good
    assert clocks.after(PATIENCE_SECONDS + 2) == 0


def test_a_steady_clock_follows_small_corrections_and_never_runs_backwards() -> None:
    clocks, draw = Clocks(), random.Random(1)
    last = clocks.clock()
    for _ in range(2000):
        clocks.off += timedelta(seconds=draw.uniform(-0.4, 0.3))
        clocks.seconds += 0.1
        now = clocks.clock()
        assert now >= last
        last = now
    for _ in range(100):
        clocks.seconds += 10
        last = clocks.clock()
    assert abs(last - (NOON + timedelta(seconds=clocks.seconds) + clocks.off)) <= timedelta(seconds=1)
