"""The log of notifications: its bounds, its reports of missing events, and its repair of a damaged file."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from siftline.broker import log_file
from siftline.broker.limits import Limits
from siftline.broker.log import NotificationLog
from siftline.broker.log_file import verify
from siftline.broker.losses import _MOST_LOSSES, DAMAGED, DROPPED, UNKNOWN, Losses, Run
from siftline.broker.names import Names
from siftline.broker.notifications import LAST_PLACE, START, Everybody, Gap, Position
from siftline.broker.recent import Snapshot
from siftline.broker.remembered import Done, Name
from siftline.broker.waiting import Waiting
from siftline.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from siftline.broker.deliveries import Delivery
    from siftline.broker.logged import LoggedEvent
    from siftline.broker.notifications import Notification
    from siftline.broker.recent import Found

HOUR = 3_600_000_000


class Fast(NotificationLog):
    """A log that takes ids, and whose clock the test sets."""

    def __init__(self, path: Path, now: int = HOUR, **limits: Any) -> None:
        super().__init__(str(path), Limits(**limits), now)

    def put(self, *events: tuple[bytes, list[Any]], webhooks: tuple[str, ...] = ()) -> list[LoggedEvent]:
        return self.append([(payload, self.numbered(ids)) for payload, ids in events], 5, webhooks)

    def __enter__(self) -> Fast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def everything(log: NotificationLog, after: Position = START, wanted: Any = None) -> list[Notification | Gap]:
    """Read to the end, gaps included."""
    found: list[Notification | Gap] = []
    while True:
        page = log.read(Everybody() if wanted is None else wanted, after, 7)
        if page.gap is not None:
            found.append(page.gap)
            after = page.gap.resume
        elif page:
            found += page
            after = page[-1].position
        else:
            return found


def payloads(log: NotificationLog, after: Position = START, wanted: Any = None) -> list[Any]:
    """Return payloads, and the reasons of gaps."""
    return [each.reason if isinstance(each, Gap) else each.payload for each in everything(log, after, wanted)]


def notifications(log: NotificationLog) -> list[Notification]:
    return [each for each in everything(log) if not isinstance(each, Gap)]


def in_time(call: Callable[[], list[Any]]) -> list[Any]:
    """Return what a call returns, if it returns."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(call()), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it spins"
    return found


def due(log: NotificationLog, now: int) -> list[Delivery]:
    return log.deliveries.due(now, 10, (), lambda _: True, 1 << 20)


def size(path: Path) -> int:
    return sum(os.path.getsize(f"{path}{suffix}") for suffix in ("", "-wal") if os.path.exists(f"{path}{suffix}"))


# bounds


def test_matches_count(tmp_path: Path) -> None:
    """Tiny events that match thousands stay within the bound, on the disk and in memory, also after a restart."""
    path, ids = tmp_path / "log", [f"x{n:019d}" for n in range(5000)]
    bound = 4 << 20
    with Fast(path, log_bytes=bound) as log:
        for n in range(400):
            log.put((b'{"n":%d}' % n, ids))
            if n % 100 == 0:
                log.tend()
        stats = log.stats()
        assert stats["log_bytes"] <= bound
        assert 150 < stats["log_events"] < 220
        assert log._recent._numbers._array.nbytes + log._names._counts.nbytes < 2 * bound
        log.tend()
        assert size(path) < 2 * bound + (40 << 20)  # with what SQLite has in its own log
        first, last = log.first, log.last
        assert log.read({ids[77]}, START, 3)[0].payload == b'{"n":%d}' % (400 - stats["log_events"])
    assert size(path) < 2 * bound
    with Fast(path, log_bytes=bound) as log:
        assert (log.first, log.stats()["log_events"]) == (first, stats["log_events"])
        assert payloads(log, wanted={ids[9]})[-1] == b'{"n":399}'
        assert log.last >= last
    with Fast(path, log_bytes=bound // 4) as log:
        assert log.stats()["log_bytes"] <= bound // 4
        for _ in range(20):
            log.tend()
    assert size(path) < bound + (16 << 20)


def test_names_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Fast(path, log_events=10) as log:
        for n in range(300):
            log.put((b"{}", [f"a{n}", f"b{n // 2}", "c"]), (b"{}", [f"d{n}"]))
        log.numbered(["refused"])
        log.put((b"{}", ["c"]))
        assert len(log._names) == len({each.subscription for each in notifications(log)})
        assert len(log._names._ids) < 60
        kept = everything(log)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM names").fetchone() == (len(log._names),)
    with Fast(path, log_events=10) as log:
        assert everything(log) == kept
        assert log._names.number("refused") is None


def test_names_against_a_dict() -> None:
    rng = random.Random(5)
    names, events = Names(), []
    for _ in range(2000):
        ids = rng.sample(range(100), rng.randrange(1, 5))
        numbers = names.numbered(ids)
        freed = []
        if rng.random() < 0.8:
            names.hold(numbers)
            events.append((ids, numbers))
        while len(events) > rng.randrange(5, 9):
            _, old = events.pop(0)
            freed += names.release(old)
        names.settle([*freed, *names.unheld()])
        for ids, numbers in events:
            assert names.ids(numbers.tolist()) == ids
    assert len(names) == len({id for ids, _ in events for id in ids})
    assert not names.unused()


def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Fast(tmp_path / "log", log_events=3) as log:
        log.put((b"1", ["a", "b"]), (b"2", ["a"]), (b"3", ["c"]))
        before = everything(log)
        with monkeypatch.context() as patch:
            patch.setattr(log.remembered, "add", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                log.append([(b"4", log.numbered(["d", "a"]))], 1, (), done=[Done(Name(b"k", b"d"), 1, 1)])
        assert everything(log) == before
        log.put((b"5", ["e", "a"]))
        assert [(each.subscription, each.payload) for each in notifications(log)] == [
            ("a", b"2"), ("c", b"3"), ("e", b"5"), ("a", b"5"),
        ]  # fmt: skip


def test_readers_beside_the_one_who_appends(tmp_path: Path) -> None:
    """Numbers are freed and given again while others read: nobody ever gets what was for somebody else."""
    wrong: list[Any] = []
    is_over = threading.Event()

    def read(wanted: Any) -> None:
        after = START
        try:
            while not is_over.is_set():
                page = log.read(wanted, after, 20)
                for each in page:
                    if each.subscription not in json.loads(each.payload) or each.subscription not in wanted:
                        wrong.append(each)
                    if each.position <= after:
                        wrong.append((after, each))
                    after = each.position
                if page.gap is not None:
                    after = page.gap.resume
        except BaseException as error:
            wrong.append(error)

    rng = random.Random(8)
    with Fast(tmp_path / "log", log_events=8) as log:
        wanted: list[Any] = [{"c1"}, {f"c{n}" for n in range(5)}, Everybody()]
        threads = [threading.Thread(target=read, args=(each,)) for each in wanted]
        for thread in threads:
            thread.start()
        for n in range(400):
            ids = [f"c{k}" for k in range(5) if rng.random() < 0.5] + [f"x{n}", f"y{n // 3}"]
            log.put((json.dumps(ids).encode(), ids))
        is_over.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_search_in_the_log_delays_nobody(tmp_path: Path) -> None:
    """What somebody looks for is looked for without the guard, and what is dropped meanwhile is told, or left out."""

    class Slow(list[str]):
        def __iter__(self) -> Iterator[str]:
            is_looking.set()
            assert may_go_on.wait(60)
            return super().__iter__()

    for after, expected in ((Position(HOUR, 0), DROPPED), (START, None)):
        is_looking, may_go_on = threading.Event(), threading.Event()
        path = tmp_path / f"log {after}"
        with Fast(path, log_events=3) as log, ThreadPoolExecutor() as threads:
            log.put((b"1", ["a", "b"]), (b"2", ["a"]))
            reading = threads.submit(log.read, Slow(["a", "b"]), after, 10)
            try:
                assert is_looking.wait(60)
                # All of it is dropped, and the numbers of a and b are given to others and back.
                putting = threads.submit(lambda: [log.put((b"x", [f"x{n}", "y"])) for n in range(9)])
                putting.result(timeout=60)
                log.put((b"new", ["b"]))
            finally:
                may_go_on.set()
            page = reading.result(timeout=60)
            assert (None if page.gap is None else page.gap.reason) == expected
            assert page == []
            assert payloads(log, after, {"a", "b"}) == [each for each in (expected, b"new") if each is not None]


def test_a_poll_looks_no_further_than_the_last_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int | None] = []
    find = Snapshot.find

    def counted(self: Snapshot, after: Position, wanted: Any, *, limit: int, until: int | None = None) -> Found:
        looked.append(until)
        return find(self, after, wanted, limit=limit, until=until)

    with Fast(tmp_path / "log") as log:
        log.put((b"1", ["rare", "often"]))
        log.put(*((b"%d" % n, ["often", f"x{n}"]) for n in range(2000)))
    for start in (2, 3):
        with Fast(tmp_path / "log", now=start * HOUR) as log:
            matches = log.read({"rare"}, START, 10)
            first, last = matches[0], matches[-1]
            monkeypatch.setattr(Snapshot, "find", counted)
            looked.clear()
            assert len(log.read({"rare"}, first.position, 10)) == start - 2
            assert looked == [last.position.sequence]
            looked.clear()
            assert log.read({"rare"}, Position(log.last, LAST_PLACE), 10) == []
            assert log.read({"nobody"}, START, 10) == []
            assert looked == []
            [new] = log.put((b"new", ["often", "rare"]))
            assert [each.payload for each in log.read({"rare"}, Position(new.sequence, 0), 10)] == [b"new"]
            assert log.read({"rare"}, Position(new.sequence, 1), 10) == []
            monkeypatch.undo()


# gaps


def test_dropped_events_are_reported(tmp_path: Path) -> None:
    with Fast(tmp_path / "log", log_events=2) as log:
        [first] = log.put((b"1", ["a", "b"]))
        for n in (2, 3, 4):
            log.put((b"%d" % n, ["a"]))
        assert payloads(log, Position(first.sequence, 0)) == [DROPPED, b"3", b"4"]
        assert payloads(log, Position(first.sequence, 1)) == [DROPPED, b"3", b"4"]
        assert payloads(log, Position(first.sequence + 1, 0)) == [b"3", b"4"]
        assert payloads(log) == [b"3", b"4"]  # who begins at the beginning wants what there is
    with Fast(tmp_path / "log", log_events=2, now=2 * HOUR) as log:
        assert payloads(log, Position(first.sequence, 0)) == [DROPPED, b"3", b"4"]
        log.put((b"5", ["b"]))
        assert payloads(log, Position(first.sequence + 1, 0)) == [DROPPED, b"4", b"5"]


def test_a_partly_read_event_that_was_dropped_is_reported(tmp_path: Path) -> None:
    with Fast(tmp_path / "log", log_events=1) as log:
        [first] = log.put((b"1", ["a", "b"]))
        log.put((b"2", ["a"]))
        assert payloads(log, Position(first.sequence, 0)) == [DROPPED, b"2"]
        assert payloads(log, Position(first.sequence, 1)) == [b"2"]


def test_restarts_are_no_gap(tmp_path: Path) -> None:
    positions = []
    for start in range(1, 6):
        with Fast(tmp_path / "log", now=start * HOUR) as log:
            positions.append(Position(log.last, 999_999_999))  # where a stream begins
            if start % 2:
                [event] = log.put((b"%d" % start, ["a"]))
                positions.append(Position(event.sequence, 0))
            for n, position in enumerate(positions):
                assert not any(isinstance(each, Gap) for each in everything(log, position)), (start, n)


def test_a_lost_file_is_reported(tmp_path: Path) -> None:
    with Fast(tmp_path / "log") as log:
        events = log.put(*[(b"%d" % n, ["a"]) for n in range(50)])
    for name in tmp_path.iterdir():
        name.unlink()
    with Fast(tmp_path / "log", now=2 * HOUR) as log:
        assert payloads(log, Position(events[-1].sequence, 0)) == [UNKNOWN]
        log.put(*[(b"new %d" % n, ["a"]) for n in range(90)])
        for event in events[0], events[-1]:
            assert payloads(log, Position(event.sequence, 0)) == [UNKNOWN, *[b"new %d" % n for n in range(90)]]


@pytest.mark.parametrize("is_marked", [True, False])
def test_an_older_copy_is_reported(tmp_path: Path, is_marked: bool, caplog: pytest.LogCaptureFixture) -> None:
    path, copy = tmp_path / "log", tmp_path / "copy"
    with Fast(path) as log:
        [old] = log.put((b"old", ["a"]))
    shutil.copy(path, copy)
    with Fast(path, now=2 * HOUR) as log:
        [tail, last] = log.put((b"tail", ["a"]), (b"last", ["a"]))
    shutil.copy(copy, path)
    if not is_marked:
        (tmp_path / "log-mark").unlink()
    with Fast(path, now=3 * HOUR) as log:
        log.put((b"new", ["a"]))
        # Without the mark nobody can know that there was more, but those who have seen it are told.
        assert payloads(log, Position(old.sequence, 0)) == [*([DAMAGED] if is_marked else []), b"new"]
        assert payloads(log, Position(tail.sequence, 0)) == [DAMAGED if is_marked else UNKNOWN, b"new"]
        assert payloads(log, Position(last.sequence, 0)) == [*([] if is_marked else [UNKNOWN]), b"new"]
        assert bool(log.problems) == is_marked == ("missing" in caplog.text)


def test_a_clock_that_went_back(tmp_path: Path) -> None:
    with Fast(tmp_path / "log", now=9 * HOUR) as log:
        [old] = log.put((b"old", ["a"]))
    with Fast(tmp_path / "log", now=HOUR) as log:
        [new] = log.put((b"new", ["a"]))
        assert new.sequence > old.sequence
        assert payloads(log, Position(old.sequence, 0)) == [b"new"]
        assert payloads(log, Position(new.sequence + 5, 0)) == [UNKNOWN, b"new"]


def test_a_page_has_its_gap(tmp_path: Path) -> None:
    with Fast(tmp_path / "log", log_events=2) as log:
        [first] = log.put((b"1", ["a"]))
        for n in (2, 3, 4):
            log.put((b"%d" % n, ["a"]))
        page = log.page({"a"}, Position(first.sequence, 0), 10)
        assert [each.payload for each in page] == [b"3", b"4"]
        assert page.gap is not None
        assert page.gap.reason == DROPPED
        assert log.page({"a"}, START, 1).gap is None


# webhooks


def test_a_dead_webhook_keeps_nothing(tmp_path: Path) -> None:
    path, big = tmp_path / "log", b'{"pad": "%b"}' % (b"x" * 100_000)
    with Fast(path, log_bytes=2_000_000, letter_bytes=500_000) as log:
        for _ in range(60):
            log.put((big, ["dead", "slow", "other"]), webhooks=("dead", "slow"))
        stats = log.stats()
        assert stats["log_bytes"] <= 2_000_000
        assert stats["webhooks_waiting"] == 2 * stats["log_events"]
        assert stats["webhooks_given_up"] == 2 * (60 - stats["log_events"])
        letters = log.deliveries.dead_letters()
        assert {letter.subscription for letter in letters} == {"dead", "slow"}
        assert 6 <= len(letters) <= 10
        assert all(letter.payload == big for letter in letters)
        [first] = [each for each in due(log, 9) if each.notification.subscription == "dead"]
        assert first.notification.position.sequence == log.first
        log.tend()
    assert size(path) < 4_000_000
    with Fast(path, log_bytes=2_000_000) as log:
        assert log.stats()["webhooks_waiting"] == stats["webhooks_waiting"]
        assert log.deliveries.dead_letters() == letters


def test_cursors_survive(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Fast(path) as log:
        log.put((b"1", ["a", "b"]), (b"2", ["b", "a"]), (b"3", ["a"]), webhooks=("a", "b"))
        first = {each.notification.subscription: each.notification for each in due(log, 9)}
        assert {id: each.payload for id, each in first.items()} == {"a": b"1", "b": b"1"}
        log.deliveries.delivered(first["b"])
        log.deliveries.delivered(first["b"])  # twice is once
        log.deliveries.postpone(first["a"], 3, 50)
        assert log.deliveries.n_waiting() == 4
    with Fast(path) as log:
        assert log.deliveries.n_waiting() == 4
        [delivery] = due(log, 9)
        assert (delivery.notification.subscription, delivery.notification.payload, delivery.attempts) == ("b", b"2", 0)
        late = {each.notification.subscription: each for each in due(log, 60)}
        assert (late["a"].notification.payload, late["a"].attempts) == (b"1", 3)
        log.deliveries.bury(late["a"].notification, 4, "no", 70)
        assert [(each.subscription, each.payload) for each in log.deliveries.dead_letters()] == [("a", b"1")]
        log.deliveries.forget("b")
        assert log.deliveries.n_waiting() == 2
    with Fast(path) as log:
        assert log.deliveries.n_waiting() == 2


# damage


def whole_log(path: Path, n: int = 200) -> list[Any]:
    with Fast(path) as log:
        for number in range(n):
            log.put((b'{"n": %d, "pad": "%b"}' % (number, b"x" * 300), ["a", f"b{number % 7}"]), webhooks=("a",))
        return payloads(log, wanted={"a"})


def test_a_whole_log_is_whole(tmp_path: Path) -> None:
    expected = whole_log(tmp_path / "log")
    assert verify(str(tmp_path / "log")) == []
    with Fast(tmp_path / "log", now=2 * HOUR) as log:
        assert log.problems == []
        assert payloads(log, wanted={"a"}) == expected
        assert verify(str(tmp_path / "log")) == []  # beside the one who writes


def test_a_row_that_does_not_fit_its_checksum_is_a_gap(tmp_path: Path) -> None:
    expected = whole_log(tmp_path / "log", 10)
    with closing(sqlite3.connect(tmp_path / "log", isolation_level=None)) as connection:
        query = "UPDATE logged SET payload = ? WHERE sequence = (SELECT min(sequence) + ? FROM logged)"
        connection.execute(query, (b'{"n": "other"}', 3))
        connection.execute(query, (b'{"n": "other"}', 4))
    [problem] = verify(str(tmp_path / "log"))
    assert "2 rows of logged" in problem
    with Fast(tmp_path / "log", now=2 * HOUR) as log:
        assert payloads(log, wanted={"a"}) == [*expected[:3], DAMAGED, *expected[5:]]
        assert any("2 rows of logged" in problem for problem in log.problems)
        assert log.stats()["log_losses"] == 1
        assert log.deliveries.n_waiting() == 8
        log.put((b"new", ["a"]))
        assert payloads(log, wanted={"a"})[-1] == b"new"
    assert verify(str(tmp_path / "log")) == []
    assert (tmp_path / "log-damaged").exists()


def test_damage_while_it_runs_is_a_gap(tmp_path: Path) -> None:
    expected = whole_log(tmp_path / "log", 10)
    with Fast(tmp_path / "log", now=2 * HOUR) as log:
        with closing(sqlite3.connect(tmp_path / "log", isolation_level=None)) as connection:
            query = "UPDATE logged SET payload = ? WHERE sequence = ?"
            connection.execute(query, (b"bad", log.first + 5))
            connection.execute("DELETE FROM logged WHERE sequence = ?", (log.first + 7,))
        assert payloads(log, wanted={"a"}) == [*expected[:5], DAMAGED, expected[6], DAMAGED, *expected[8:]]


def test_losses_beyond_the_bound_are_merged(tmp_path: Path) -> None:
    """However many events are damaged, and in whatever order that is found out, whoever reads gets to the end."""
    n = 2 * _MOST_LOSSES + 500
    with Fast(tmp_path / "log") as log:
        log.put(*((b"%d" % number, ["a"]) for number in range(n)))
        log.put((b"whole", ["a"]))
        first = log.first
        with closing(sqlite3.connect(tmp_path / "log", isolation_level=None)) as connection:
            connection.execute("DELETE FROM logged WHERE sequence % 2 = 0 AND sequence < ?", (first + n,))
        # The newest are found out first; those before them must not hide behind them.
        for sequence in range(first + n - 1, first + n // 2, -1):
            log._fetched([sequence])
        found = in_time(lambda: payloads(log, wanted={"a"}))
        assert found[-1] == b"whole"
        assert DAMAGED in found
        assert len(log._losses) == _MOST_LOSSES
        told = [each for each in everything(log, wanted={"a"}) if isinstance(each, Gap)]
        assert [gap.resume for gap in told] == sorted({gap.resume for gap in told})
    with Fast(tmp_path / "log", now=2 * HOUR) as log:
        assert len(log._losses) == _MOST_LOSSES
        assert in_time(lambda: payloads(log, wanted={"a"}))[-1] == b"whole"


def test_losses_against_a_set() -> None:
    """What is lost is told as lost, whatever is joined; nothing else is, as long as few are noted."""
    for seed in range(20):
        rng = random.Random(seed)
        losses, lost = Losses(Position(5, LAST_PLACE), [Run(1, 5000)]), set()
        most = rng.choice((30, 1200))
        for _ in range(most):
            after = rng.randrange(1, 4990)
            until = after + rng.choice((1, 1, 1, 9))
            losses.add(after, until)
            lost |= set(range(after + 1, until + 1)) - set(range(6))
        told: set[int] = set()
        position = Position(5, LAST_PLACE)
        while (ahead := losses.ahead(position)) is not None:
            told |= set(range(ahead[0] + 1, ahead[1].resume.sequence + 1))
            assert ahead[1].resume > position
            position = ahead[1].resume
        assert lost <= told
        assert len(losses) <= _MOST_LOSSES
        if most == 30:
            assert told - set(range(6)) == lost


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_file_opens_with_its_intact_rows(tmp_path: Path, seed: int) -> None:
    """Bytes flipped, zeroed, cut off: what comes out was written, in order, and everything missing is a gap."""
    path, rng = tmp_path / "log", random.Random(seed)
    expected = whole_log(path)
    data = bytearray(path.read_bytes())
    how = ("flip", "flip", "zero", "cut")[seed % 4]
    if how == "flip":
        for _ in range(rng.choice((1, 3, 20))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "zero":
        start = rng.randrange(len(data))
        data[start : start + 4096] = bytes(len(data[start : start + 4096]))
    else:
        del data[rng.randrange(len(data)) :]
    path.write_bytes(data)
    with Fast(path, now=2 * HOUR) as log:
        log.put((b"new", ["a"]))
        found = payloads(log, Position(HOUR - 1, 0), wanted={"a"})
        # Where something is missing there is a gap, and nowhere else is a row out of place.
        told = [each for each in found if isinstance(each, str)]
        given = [each for each in found if isinstance(each, bytes)]
        assert given[-1] == b"new"
        assert [each for each in expected if each in given] == given[:-1]
        assert bool(told) == (len(given) - 1 < len(expected)), (how, log.problems)
        assert log.problems or len(given) - 1 == len(expected)
    assert verify(str(path)) == []


def test_a_file_that_is_not_a_log_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"nothing of the kind" * 500)
    with Fast(tmp_path / "log") as log:
        assert log.problems
        log.put((b"new", ["a"]))
        assert payloads(log) == [b"new"]
    assert (tmp_path / "log-damaged").read_bytes().startswith(b"nothing")


# version 0.1.0

OLD = (
    "CREATE TABLE events (sequence INTEGER PRIMARY KEY, at INTEGER NOT NULL, payload BLOB NOT NULL,"
    " subscriptions TEXT NOT NULL)",
    "CREATE TABLE deliveries (subscription NOT NULL, sequence INTEGER NOT NULL, place INTEGER NOT NULL,"
    " attempts INTEGER NOT NULL, due INTEGER NOT NULL, PRIMARY KEY (subscription, sequence)) WITHOUT ROWID",
    "CREATE TABLE dead_letters (number INTEGER PRIMARY KEY AUTOINCREMENT, subscription NOT NULL,"
    " notification TEXT NOT NULL, at INTEGER NOT NULL, attempts INTEGER NOT NULL, reason TEXT NOT NULL,"
    " payload BLOB NOT NULL)",
    "CREATE TABLE matched (event INTEGER NOT NULL, subscription NOT NULL,"
    " PRIMARY KEY (event, subscription)) WITHOUT ROWID",
    "CREATE TABLE published (sequence INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, payload BLOB NOT NULL)",
)


def test_a_log_of_version_0_1_is_copied(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        for statement in OLD:
            old.execute(statement)
        # Event 3 was kept for a webhook alone; 4 to 17 were dropped.
        for n in (3, *range(18, 31)):
            old.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (n, n, b"%d" % n, json.dumps(["a", "hook"])))
        for n, attempts in ((3, 4), (20, 0)):
            old.execute("INSERT INTO deliveries VALUES ('hook', ?, 1, ?, 77)", (n, attempts))
        old.execute("INSERT INTO dead_letters VALUES (6, 'hook', '2-1', 5, 8, 'no answer', ?)", (b"2",))
        old.execute("INSERT INTO published VALUES (9, 5, ?)", (b"{}",))
    with Fast(path) as log:
        assert log.problems == []
        assert payloads(log, Position(17, 0), {"a"}) == [b"%d" % n for n in range(18, 31)]
        assert payloads(log, Position(5, 0), {"a"}) == [DROPPED, *[b"%d" % n for n in range(18, 31)]]
        assert everything(log, Position(29, 1))[0].position == Position(30, 0)  # type: ignore[union-attr]
        [delivery] = due(log, 100)
        assert delivery.notification.position == Position(3, 1)
        [letter] = log.deliveries.dead_letters()
        assert (letter.notification, letter.payload) == ("2-1", b"2")
        log.put((b"new", ["a"]))
        assert payloads(log, Position(30, 0), {"a"}) == [b"new"]
    assert verify(str(path)) == []


def old_log(path: Path, n_events: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        for statement in OLD:
            old.execute(statement)
        rows = [(n, n, b"%d" % n + b" " * 1000, json.dumps(["a"])) for n in range(1, n_events + 1)]
        old.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)


def test_a_full_disk_leaves_a_log_of_version_0_1_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_log(tmp_path / "log", 200)
    create = log_file._create

    def small(connection: sqlite3.Connection) -> None:
        create(connection)
        connection.execute("PRAGMA max_page_count = 30")

    with monkeypatch.context() as patch:
        patch.setattr(log_file, "_create", small)
        with pytest.raises(StoreError, match="full"):
            Fast(tmp_path / "log")
    with Fast(tmp_path / "log") as log:
        assert log.problems == []
        assert len(notifications(log)) == 200


def test_a_log_of_version_0_1_that_cannot_be_read_is_kept(tmp_path: Path) -> None:
    old_log(tmp_path / "log", 200)
    content = bytearray((tmp_path / "log").read_bytes())
    content[4096 * 20 : 4096 * 24] = b"x" * (4096 * 4)
    (tmp_path / "log").write_bytes(content)
    (tmp_path / "log-damaged").write_bytes(b"of another time")
    with Fast(tmp_path / "log") as log:
        assert log.problems
    assert (tmp_path / "log-damaged").read_bytes() == b"of another time"
    assert len((tmp_path / "log-damaged-2").read_bytes()) == len(content)


def test_a_kill_while_a_new_file_takes_the_place_of_an_old_one(tmp_path: Path) -> None:
    with Fast(tmp_path / "whole") as log:
        log.put((b"new", ["a"]))
    old_log(tmp_path / "log", 5)
    (tmp_path / "log-wal").write_bytes(b"of the old one")
    os.replace(tmp_path / "whole", tmp_path / "log-whole")
    (tmp_path / "log-new").write_bytes(b"not finished")
    with Fast(tmp_path / "log", now=2 * HOUR) as log:
        assert log.problems == []
        assert payloads(log)[-1] == b"new"
    assert not (tmp_path / "log-whole").exists()
    assert not (tmp_path / "log-new").exists()


def test_a_delivery_that_is_given_up_meanwhile_counts_once() -> None:
    waiting = Waiting()
    waiting.added({"hook": 3}, 1)
    waiting.moved("hook", 1)
    waiting.moved("hook", 1)
    assert (waiting.known("hook"), len(waiting)) == ((1, 2), 2)


def test_notifications_that_arrive_during_an_empty_search_stay() -> None:
    waiting = Waiting()
    waiting.added({"hook": 1}, 1)
    known = waiting.known("hook")
    waiting.added({"hook": 1}, 2)
    waiting.emptied("hook", *known)
    assert waiting.known("hook") == (0, 2)
    waiting.emptied("hook", 0, 2)
    assert (waiting.known("hook"), len(waiting)) == ((None, 0), 0)
