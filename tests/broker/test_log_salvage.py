"""Damaged logs, of this version and of 0.1.0: all readable rows are kept, the others are a gap."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from broker.test_log import HOUR, OLD, Fast, due, everything, payloads
from siftline.broker.log_file import verify
from siftline.broker.losses import DAMAGED, DROPPED
from siftline.broker.notifications import Gap, Position
from siftline.broker.salvage import Salvage, open_damaged

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 4096


def text_of(n: int) -> bytes:
    return json.dumps({"n": n, "pad": "x" * 600}).encode()


def old_log(path: Path, n_events: int = 200) -> list[bytes]:
    """Write a log of version 0.1.0; return its events."""
    expected = [text_of(n) for n in range(1, n_events + 1)]
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        for statement in OLD:
            old.execute(statement)
        old.execute("INSERT INTO deliveries VALUES ('hook', ?, 1, 3, 77)", (n_events,))
        old.execute("INSERT INTO dead_letters VALUES (6, 'hook', '2-1', 5, 8, 'no answer', ?)", (expected[1],))
        rows = [(n, n, text, json.dumps(["a", "hook"])) for n, text in enumerate(expected, 1)]
        old.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
    return expected


def new_log(path: Path, n_events: int = 200) -> list[bytes]:
    """Write a log of this version; return its events."""
    expected = [text_of(n) for n in range(n_events)]
    with Fast(path) as log:
        log.put(*((text, ["a"]) for text in expected))
    return expected


def leaves(path: Path, table: str) -> list[int]:
    """Return the pages of a table that have rows, in the order of these."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path"
        return [page for (page,) in connection.execute(query, (table,))]


def overwrite(path: Path, *pages: int) -> None:
    content = bytearray(path.read_bytes())
    for page in pages:
        content[PAGE * (page - 1) : PAGE * page] = b"x" * PAGE
    path.write_bytes(content)


def is_in_order(given: list[Any], expected: list[bytes]) -> bool:
    rest = iter(expected)
    return all(each in rest for each in given)


def test_an_old_log_with_bad_pages(tmp_path: Path) -> None:
    path = tmp_path / "log"
    expected = old_log(path)
    pages = leaves(path, "events")
    assert len(pages) > 25
    overwrite(path, pages[10], pages[15], pages[20])
    assert verify(str(path))
    with Fast(path, now=2 * HOUR) as log:
        assert any("kept as" in each for each in log.problems)
        found = payloads(log, Position(1, 5), {"a"})
        given = [each for each in found if isinstance(each, bytes)]
        assert is_in_order(given, expected)
        assert found.count(DAMAGED) == 3 == len(found) - len(given)
        assert len(given) >= 199 - 3 * 6  # six of them are in a page
        [delivery] = due(log, 100)
        assert (delivery.notification.position, delivery.attempts) == (Position(200, 1), 3)
        [letter] = log.deliveries.dead_letters()
        assert (letter.notification, letter.payload) == ("2-1", expected[1])
        log.put((b"new", ["a"]))
        assert payloads(log, Position(200, 0), {"a"}) == [b"new"]
    assert verify(str(path)) == []
    assert (tmp_path / "log-damaged").exists()
    with Fast(path, now=3 * HOUR) as log:  # and so it stays
        assert log.problems == [f"{path}: notifications are missing; those who go on before them are told"]
        assert payloads(log, Position(1, 5), {"a"}) == [*found, b"new"]


def test_an_old_log_whose_end_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    expected = old_log(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with Fast(path, now=2 * HOUR) as log:
        assert log.problems
        log.put((b"new", ["a"]))
        *given, gap, new = payloads(log, Position(1, 5), {"a"})
        assert (gap, new) == (DAMAGED, b"new")
        given = [each for each in given if each != DAMAGED]  # pages are not quite in the order of rows
        assert is_in_order(given, expected)
        assert len(given) > 60
        for sequence in (150, 200, 10_000):  # who has got more than is there may lack something, too
            assert payloads(log, Position(sequence, 5), {"a"}) == [DAMAGED, b"new"]


def test_a_payload_that_is_no_event_is_lost(tmp_path: Path) -> None:
    """Without checksums a page of zeros inside of an event looks well to SQLite; it must not end streams."""
    path = tmp_path / "log"
    old_log(path, 3)
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        long = b'{"n": "' + b"x" * 20_000 + b'"}'
        old.execute("INSERT INTO events VALUES (4, 4, ?, '[\"a\"]')", (long,))
        old.execute("INSERT INTO events VALUES (5, 5, ?, '[\"a\"]')", (text_of(5),))
    content = path.read_bytes()
    place = content.index(b"x" * 4000, content.index(b"x" * 4000) + PAGE)
    page = place // PAGE + 1
    zeros = bytearray(content)
    zeros[PAGE * page + 4 : PAGE * (page + 1)] = bytes(PAGE - 4)  # but for the number of the next page
    bad_page = leaves(path, "dead_letters")[0]
    path.write_bytes(zeros)
    overwrite(path, bad_page)
    with Fast(path, now=2 * HOUR) as log:
        found = payloads(log, Position(1, 5), {"a"})
        assert found == [text_of(2), text_of(3), DAMAGED, text_of(5)]


@pytest.mark.parametrize("seed", range(16))
def test_old_logs_with_any_damage(tmp_path: Path, seed: int) -> None:
    """Bytes flipped, zeroed, cut off: it opens, what comes out was written, in order, and what is missing is told.

    Without checksums a flipped bit in an event cannot be seen; so bytes are flipped in the heads of pages.
    """
    path, rng = tmp_path / "log", random.Random(seed)
    expected = old_log(path)
    data = bytearray(path.read_bytes())
    how = ("flip", "zero", "cut", "several")[seed % 4]
    if how == "flip":
        data[PAGE * rng.randrange(1, len(data) // PAGE) + rng.randrange(12)] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del data[rng.randrange(len(data)) :]
    else:
        for _ in range(1 if how == "zero" else 6):
            start = PAGE * rng.randrange(1, len(data) // PAGE)
            data[start : start + PAGE] = bytes(PAGE)
    path.write_bytes(data)
    with Fast(path, now=2 * HOUR) as log:
        log.put((b"new", ["a"]))
        found = payloads(log, Position(1, 5), {"a"})
        told = [each for each in found if isinstance(each, str)]
        given = [each for each in found if isinstance(each, bytes)]
        assert given[-1] == b"new"
        assert is_in_order(given[:-1], expected)
        assert told or given[:-1] == expected[1:], (how, log.problems)
    assert verify(str(path)) == []


def test_rows_between_bad_pages_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    expected = new_log(path)
    pages = leaves(path, "logged")
    overwrite(path, *pages[3::6])
    n_bad = len(pages[3::6])
    assert n_bad > 3
    with Fast(path, now=2 * HOUR) as log:
        found = payloads(log, Position(HOUR - 1, 0), {"a"})
        given = [each for each in found if isinstance(each, bytes)]
        assert is_in_order(given, expected)
        assert found.count(DAMAGED) == n_bad == len(found) - len(given)
        assert len(given) >= 200 - 6 * n_bad


def test_a_log_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log"
    expected = new_log(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 3 // 4])
    with Fast(path, now=2 * HOUR) as log:
        log.put((b"new", ["a"]))
        found = everything(log, Position(HOUR - 1, 0), {"a"})
        assert [each.reason for each in found if isinstance(each, Gap)] == [DAMAGED]
        given = [each.payload for each in found if not isinstance(each, Gap)]
        assert len(given) > 100
        assert given == [*expected[: len(given) - 1], b"new"]
        assert DROPPED not in log.problems


def test_damage_everywhere_ends(tmp_path: Path) -> None:
    """Row ids that are far apart: the ranges that fail are not followed down to single numbers."""
    path = tmp_path / "far"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE far (number INTEGER PRIMARY KEY, text)")
        rows = [(n * 10**12, "x" * 900) for n in range(1000)]
        connection.executemany("INSERT INTO far VALUES (?, ?)", rows)
    overwrite(path, *leaves(path, "far")[::3])
    with closing(open_damaged(str(path), 1.0)) as connection:
        salvage = Salvage(connection, "far")
        found = sorted(salvage)
    assert 400 <= len(found) <= 680
    assert set(found) <= set(rows)
    assert salvage.lost
