"""The short way of single additions: the same codes as the long one, for all that is plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import conjunctions

from siftline import Engine, parse
from siftline.encoding.clauses import Clauses, encode_covers
from siftline.encoding.domains import Domains
from siftline.encoding.flat_domains import flatten
from siftline.encoding.plain import PlainRows, known_rows, placed_rows
from siftline.engine.updates import Updates
from siftline.engine.write_buffer import WriteBuffer
from siftline.language.normal_form import cover

if TYPE_CHECKING:
    from siftline.model import Expression

lists_of_conjunctions = st.lists(conjunctions, min_size=1, max_size=8)


def literals(clauses: Clauses) -> list[tuple[bool, list[Any]]]:
    """Return each clause as its exactness and its literals, in any order."""
    found = []
    for c in range(clauses.n_clauses):
        rows = []
        for i in range(clauses.starts[c], clauses.starts[c + 1]):
            chosen, ranges = clauses.sets[i], []
            if chosen >= 0:
                span = slice(clauses.set_starts[chosen], clauses.set_starts[chosen + 1])
                ranges = list(zip(clauses.set_lows[span].tolist(), clauses.set_highs[span].tolist(), strict=True))
            rows.append((*(int(each[i]) for each in (clauses.attributes, clauses.lows, clauses.highs)), ranges))
        found.append((bool(clauses.is_exact[c]), sorted(rows)))
    return found


def coded(rows: PlainRows) -> list[tuple[bool, list[Any]]]:
    tail = WriteBuffer(4)
    tail.add_plain(0, rows)
    tail.check()
    return literals(tail.clauses())


def check(expressions: list[Expression]) -> None:
    domains = Domains()
    for expression in expressions:
        rows = placed_rows(expression, domains)
        if rows is None:
            continue
        long = literals(encode_covers([cover(expression)], 0, domains))
        assert coded(rows) == long
        known = known_rows(expression, domains)
        assert known is not None
        if not rows.wide:
            assert coded(PlainRows(known)) == long
        domains.check()


@given(expressions=lists_of_conjunctions)
def test_codes_are_those_of_the_long_way(expressions: list[Expression]) -> None:
    check(expressions)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expressions=lists_of_conjunctions)
def test_codes_are_those_of_the_long_way_where_there_is_no_room(
    expressions: list[Expression], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_WIDEST_GAP", 4), ("_STEP_OF_RUN", 2), ("_FIRST_BEYOND", 0)):
        monkeypatch.setattr(f"siftline.encoding.domain.{name}", value)
    monkeypatch.setattr("siftline.encoding.domain._NARROWEST_GAP", 2**29)
    check(expressions)


NEW = [
    "a > {n}.5",
    "s > 'x{n}'",
    "s = 'x{n}' and a between {n} and 5000.25 and t <= 'y{n}'",
    "s contains 'x{n}'",
    "s ends with 'x{n}'",
    "s like 'x%{n}'",
    "s like 'x{n}%'",
    "s ilike '%X{n}%'",
    "s = 'X{n}' ignoring case and s contains 'x' ignoring case",
    "s starts with 'X{n}' ignoring case and a in ({n}, 7)",
    "s matches 'x+{n}$'",
    "s cidr '10.0.{n}.0/24'",
    "s starts with 'x{n}'",
    "s in ('x{n}', 'y{n}', 'z') and a in ({n}, 0.25)",
    "at > timestamp '2026-01-31T10:00:00.000000{n:03}Z'",
    "at in (timestamp '2026-01-31T10:00:00.000000{n:03}Z', timestamp '2026-01-31')",
    "at > now() - interval '{n} seconds'",
    "at between now() - interval '{n} seconds' and now()",
]


@pytest.mark.parametrize("text", NEW)
def test_new_constants_of_every_kind_take_the_short_way(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.add("a = 1 and s = 'x'", id=1000)
    monkeypatch.setattr(Updates, "_add_coded", None)
    for n in range(3):
        engine.add(text.format(n=n), id=n)
    engine._check()
    monkeypatch.undo()
    oracle = Engine("scan")
    oracle.add_many((id, engine.expression(id)) for id in engine.ids())
    now = "2026-01-31T10:00:01Z"
    for event in (
        {"a": 2, "s": "x1", "t": "a", "at": "2026-01-31T10:00:00.000000001Z"},
        {"a": [0.25, 1.75], "s": ["ax2", "10.0.2.7"], "at": ["2026-01-31", "2026-01-31T10:00:00Z"]},
        {"a": 1, "s": "x", "t": "x1", "at": "no time"},
    ):
        assert sorted(engine.match(event, now=now)) == sorted(oracle.match(event, now=now))


@given(keys=st.lists(st.text(max_size=12), max_size=20), value=st.text(max_size=12))
def test_places_among_texts_by_their_heads(keys: list[str], value: str) -> None:
    domains = Domains()
    domains.add({"s": ["", *keys]})
    line = flatten([domains.domains[0]]).domain(0).strings
    keys = sorted({"", *keys})
    assert line.keys == keys
    for each in (value, value + "\0", *keys):
        assert line.gap(each)[0] == sum(key < each for key in keys)
        assert line.has(each) is (each in keys)


def test_what_is_not_plain_takes_the_long_way() -> None:
    for text in ("a != 1", "a = true", "a in (1, true)", "a between 2 and 1", "a in (timestamp '2026-01-31', 'x')"):
        assert placed_rows(parse(text), Domains()) is None
