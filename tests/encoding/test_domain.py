"""Domains: codes keep the order of values, and encoded predicates follow labels that move."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from strategies import NUMBERS, TEXTS, leaves

from siftline.encoding import domain as codes
from siftline.encoding.domain import NUMBERS as NUMBER_SECTION
from siftline.encoding.domain import Line, after_prefix
from siftline.encoding.domains import Domains
from siftline.encoding.events import DictSource
from siftline.model import Event

constants = st.lists(st.one_of(st.integers(-50, 50), st.floats(-5, 5)), max_size=30)


@given(batches=st.lists(constants, max_size=8), values=constants)
def test_codes_are_in_the_order_of_values(batches: list[list[Any]], values: list[Any]) -> None:
    line = Line(NUMBER_SECTION)
    for batch in batches:
        labels = dict(zip(line.keys, line.labels, strict=True))
        relabelling = line.insert(batch)
        line.check()
        now = dict(zip(line.keys, line.labels, strict=True))
        if relabelling is None:
            assert all(now[key] == label for key, label in labels.items())
        else:
            assert [now[key] for key in labels] == relabelling[1].tolist()
    for a in values:
        for key, label in zip(line.keys, line.labels, strict=True):
            assert (line.code(a) < label) is (a < key)
            assert (line.code(a) == label) is (a == key)


@given(first=constants, values=constants, more=constants)
def test_a_constant_without_room_lies_among_the_codes_around_it(
    first: list[Any], values: list[Any], more: list[Any]
) -> None:
    line = Line(NUMBER_SECTION)
    line.insert(first)
    without = [value for value in values if not line.has(value) and not _place(line, value)]
    around = [line.codes_within(line.gap(value)) for value in without]
    heir, (old, new) = line.dealt(line.unknown(without), without)
    line.check()
    heir.check()
    assert set(heir.keys) == {*line.keys, *without}
    assert old.tolist() == line.labels
    assert new.tolist() == [heir.label(key) for key in line.keys]
    for value in more:
        if not line.has(value):
            _place(line, value)
    for value, (low, high) in zip(without, around, strict=True):
        assert low <= line.code(value) <= high  # also when others came to lie there
        assert all(line.code(other) > high for other in first if other > value)
        assert all(line.code(other) < low for other in first if other < value)


def _place(line: Line, value: Any) -> bool:
    """Place a constant, but leave out what happens to be odd: as if there was no room."""
    if int(value * 7) % 2 or not line.has_room(line.gap(value)):
        return False
    assert line.place(value) == line.label(value)
    return True


def test_ends_of_a_line_have_room_for_long_runs() -> None:
    for sign in (1, -1):
        line = Line(NUMBER_SECTION)
        moves = [line.insert([sign * i]) for i in range(20_000)]
        line.check()
        assert moves.count(None) >= len(moves) - 5


@given(trees=st.lists(st.dictionaries(st.sampled_from("ab"), leaves, max_size=2), max_size=5))
def test_the_quick_path_of_dicts_locates_as_the_line_does(trees: list[dict[str, Any]]) -> None:
    domains = Domains()
    domains.add({"a": [*NUMBERS, *TEXTS], "b": TEXTS})
    starts, attributes, located = DictSource(trees).encode(domains)
    for i, tree in enumerate(trees):
        found = list(zip(attributes[starts[i] : starts[i + 1]], located[starts[i] : starts[i + 1]], strict=True))
        paths = Event(tree).leaves.items()
        assert found == [
            (domains.ids[path], domains.domains[domains.ids[path]].code(leaf))
            for path, values in paths
            for leaf in values
        ]


mixed = st.one_of(
    st.integers(-9, 9),
    st.floats(-5, 5),
    st.sampled_from([2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**63 - 1, -(2**63), 2.0**63, 1e300, -0.0]),
    st.text("ab\0\ud800\U0010ffff", max_size=12),
)


@given(
    batches=st.lists(st.tuples(st.dictionaries(st.sampled_from("abc"), st.sets(mixed, max_size=25)), st.booleans())),
    values=st.lists(mixed, max_size=20),
)
def test_merging_changes_no_code(batches: list[tuple[dict[str, set[Any]], bool]], values: list[Any]) -> None:
    domains = Domains()
    lists = [codes.Domain() for _ in "abc"]
    for constants, is_merged in batches:
        domains.add(constants)
        for path, given_constants in constants.items():
            domain = lists[domains.ids[path]]
            domain.numbers.insert([value for value in given_constants if not isinstance(value, str)])
            domain.strings.insert([value for value in given_constants if isinstance(value, str)])
        before = [[domain.code(value) for value in values] for domain in domains.domains]
        if is_merged:
            domains.merge()
        domains.check()
        copy = domains.copied()
        for attribute, domain in enumerate(domains.domains):
            assert [domain.code(value) for value in values] == before[attribute]
            assert [copy.domains[attribute].code(value) for value in values] == before[attribute]
            assert domain.numbers.keys == lists[attribute].numbers.keys
            assert domain.strings.keys == lists[attribute].strings.keys
            for key in [*domain.numbers.keys, *domain.strings.keys]:
                assert domains.label(attribute, key) == domain.code(key)
        trees = [{path: value} for path in domains.ids for value in values]
        found = DictSource(trees).encode(domains)[2].tolist()
        assert found == [code for group in before for code in group]
        assert [int(DictSource([tree]).encode(domains)[2][0]) for tree in trees] == found


def test_odd_keys_of_dicts_are_found() -> None:
    domains = Domains()
    paths = ["", "a", "a\0b", "\ud800", "ä" * 9, "12345678", "123456789abcdef", "b"]
    domains.add({path: {1} for path in paths})
    for path in paths:
        for tree in ({path: 1}, {path: 1, "b": 1}, {"nobody": 2, path: 1}, {path: 10**400, "a": 1}):
            _, attributes, _ = DictSource([tree]).encode(domains)
            assert attributes.tolist() == [domains.ids[key] for key in tree if key in domains.ids]


def test_prefixes_end_before_the_next_string() -> None:
    for prefix in ("a", "ab", "a\U0010ffff", "\ud7ff"):
        end = after_prefix(prefix)
        assert end is not None
        assert prefix < prefix + "\U0010ffff" * 3 < end
    assert after_prefix("\U0010ffff") is None
