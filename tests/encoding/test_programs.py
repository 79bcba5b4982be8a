"""Programs give exactly the truths of the model, whatever they ask and wherever the values come from."""

from __future__ import annotations

import json
import pickle
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CASED, NOW, TEXTS, derived, events, expressions, predicates

from siftline.encoding.domains import Domains
from siftline.encoding.events import DictSource, EncodedEvents
from siftline.encoding.json_events import JsonSource
from siftline.encoding.program_checks import one_check
from siftline.encoding.program_runs import PER_SECOND, Run
from siftline.encoding.program_values import values_of, values_of_leaves
from siftline.encoding.programs import Programs
from siftline.kernels.program_table import FAILS, HOLDS
from siftline.language.text import parse
from siftline.model import AnyString, AttributeComparison, Event, Predicate, instant_of_text, matches
from siftline.model.wildcard import literal_like

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.encoding.events import Source
    from siftline.model import Expression

NOW_NS = int(instant_of_text(NOW) or 0)

# Long strings, in which other strings stand in several places, and which need more than one word.
LONG = ["C:\\Windows\\System32\\cmd.exe /c echo ünïcödé", "C:\\WINDOWS\\system32\\CMD.EXE", "ab" * 20 + "c", "ß" * 9]
PARTS = [text[first:end] for text in LONG for first, end in [(0, 3), (5, 14), (2, 40), (-4, None), (-9, None), (7, 8)]]
WORDS = ["starts with", "ends with", "contains", "=", "!=", "<", ">=", "not contains", "in"]


def source_of_json(trees: Sequence[dict[str, Any]]) -> JsonSource:
    texts = [json.dumps(tree).encode() for tree in trees]
    ends = np.cumsum([len(text) for text in texts])
    return JsonSource(b"".join(texts), np.concatenate([[0], ends[:-1]]), ends)


def held(
    programs: Programs, subscriptions: Sequence[Expression], source: Source, kept: Sequence[int]
) -> list[list[bool]]:
    """Return for some events of a source which subscriptions hold; an odd event has none."""
    encoded = EncodedEvents(source, Domains(), NOW_NS)
    slots = np.arange(len(subscriptions))
    view, places = programs.ready(slots, subscriptions.__getitem__)
    values = values_of(encoded, np.array(kept), view)
    run = Run(programs, view, values, lambda event: encoded.event(kept[event]), NOW_NS)
    found = run.holds(np.repeat(np.arange(len(kept)), len(slots)), np.tile(places, len(kept)))
    return found.reshape(len(kept), -1).tolist()


def held_by_one(programs: Programs, subscriptions: Sequence[Expression], source: JsonSource) -> list[bool] | None:
    """Return which subscriptions hold for the only event of a source, by the short way; None if it does not fit."""
    slots = np.arange(len(subscriptions))
    view, places = programs.ready(slots, subscriptions.__getitem__)
    checker = one_check()
    n_waiting = checker.run(source.one_text(), view, places, divmod(NOW_NS, PER_SECOND))
    if n_waiting < 0:
        return None
    run = Run(programs, view, checker.values(), lambda event: Event(source.tree(event), NOW_NS), NOW_NS)
    holds: list[bool] = run.holds(np.zeros(len(slots), dtype=np.int64), places).tolist()
    return holds


def check(subscriptions: Sequence[Expression], trees: Sequence[dict[str, Any]]) -> None:
    """Compare with the model, for dicts and JSON; events that do not fit are told."""
    expected = [[matches(each, Event(tree, NOW_NS)) for each in subscriptions] for tree in trees]
    programs = Programs()
    for source in DictSource(trees), source_of_json(trees):
        encoded = EncodedEvents(source, Domains(), NOW_NS)
        view, _ = programs.ready(np.arange(len(subscriptions)), subscriptions.__getitem__)
        odd = set(values_of(encoded, np.arange(len(trees)), view).odd.tolist())
        kept = [position for position in range(len(trees)) if position not in odd]
        if kept:
            assert held(programs, subscriptions, source, kept) == [expected[position] for position in kept]
    for position, tree in enumerate(trees):
        # The events that do not fit are those that did not before.
        found = held_by_one(programs, subscriptions, source_of_json([tree]))
        assert found == (None if position in odd else expected[position])


@settings(max_examples=2 * N_EXAMPLES)
@given(st.lists(st.one_of(predicates, derived, expressions), min_size=1, max_size=12), st.lists(events, min_size=1))
def test_random_expressions(subscriptions: list[Expression], trees: list[dict[str, Any]]) -> None:
    check(subscriptions, trees)


@given(
    st.lists(st.tuples(st.sampled_from(WORDS), st.booleans(), st.sampled_from(PARTS + CASED)), min_size=1, max_size=8),
    st.lists(st.lists(st.sampled_from(LONG + PARTS + CASED), max_size=3), min_size=1, max_size=4),
)
def test_texts_in_long_strings(asked: list[tuple[str, bool, str]], values: list[list[str]]) -> None:
    subscriptions: list[Expression] = []
    for op, is_folded, text in asked:
        name = f"{op} ignoring case" if is_folded and op not in ("<", ">=") else op
        subscriptions.append(Predicate("a", name, (text, "b", "é") if op == "in" else text))
    check(subscriptions, [{"a": each} for each in values])


@given(
    st.lists(
        st.tuples(st.sampled_from(["contains", "not contains", "like"]), st.booleans(), st.sampled_from(PARTS + CASED)),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.lists(st.sampled_from(LONG + PARTS + CASED), max_size=3), min_size=1, max_size=4),
)
def test_texts_in_any_string(asked: list[tuple[str, bool, str]], values: list[list[str]]) -> None:
    subscriptions: list[Expression] = []
    for op, is_folded, text in asked:
        name = "ilike" if op == "like" else f"{op} ignoring case"
        operand = f"%{literal_like(text[:5])}%{literal_like(text[5:])}%" if op == "like" else text
        subscriptions.append(AnyString(name if is_folded else op, operand))
    check(subscriptions, [{"a": each, "b": {"c": 1, "d": values[0][:1]}} for each in values])


@given(st.text(alphabet="aAbé%_", max_size=8), st.lists(st.text(alphabet="aAbBéÉ", max_size=9), max_size=4))
def test_wildcards(pattern: str, values: list[str]) -> None:
    check([Predicate("a", op, pattern) for op in ("like", "ilike", "not like", "not ilike")], [{"a": values}])


numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.sampled_from([2**53, 0.1, -0.3]))


@given(
    st.lists(numbers, max_size=3),
    st.lists(numbers, max_size=3),
    st.none() | st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(-1e308, 1e308), st.sampled_from([0.1, 0, 0.25])),
)
def test_comparisons_of_numbers(left: list[float], right: list[float], offset: float | None) -> None:
    subscriptions = [AttributeComparison("a", op, "b", offset) for op in ("=", "!=", "<", "<=", ">", ">=")]
    check(subscriptions, [{"a": left, "b": right}, {"a": left, "b": left}])


def test_an_event_with_a_key_twice_is_left_to_the_model() -> None:
    programs, subscriptions = Programs(), [parse("any string contains 'x'"), parse("a = 1")]
    for text in b'{"b": "x", "b": 1}', b'{"c": {"a": "x", "\\u0061": 2}}', b'{"a": 1, "a": 2}':
        assert held_by_one(programs, subscriptions, JsonSource(text, np.array([0]), np.array([len(text)]))) is None
    for text in b'{"b": {"c": 1}, "c": [{"c": "x"}, {"c": 3}]}', b'{"a": 1, "b.c": {"b.c": "x"}}':
        source = JsonSource(text, np.array([0]), np.array([len(text)]))
        assert held_by_one(programs, subscriptions, source) == [True, b'"a"' in text]


def test_large_events_take_the_way_of_batches() -> None:
    subscriptions = [parse("a contains 'needle'"), parse("any string ends with 'z' ignoring case"), parse("b = 300")]
    trees: list[dict[str, Any]] = [{"a": "é" * 20_000 + "needle"}, {"b": list(range(20_000)), "c": ["Z"] * 9_000}]
    for tree, expected in zip(trees, ([True, False, False], [False, True, True]), strict=True):
        source = source_of_json([tree])
        assert held_by_one(Programs(), subscriptions, source) is None
        assert held(Programs(), subscriptions, source, [0]) == [expected]
    small = source_of_json([{"a": "é" * 1_000 + "needle", "c": {str(n): "İ" for n in range(1_000)}}])
    assert held_by_one(Programs(), subscriptions, small) == [True, False, False]


def test_a_comparison_of_many_values_is_left_to_the_model() -> None:
    subscriptions = [parse("a > b"), parse("a = b")]
    check(subscriptions, [{"a": list(range(100)), "b": [*range(200, 300), 99]}, {"a": [1] * 70, "b": [2] * 70}])


def test_constants_of_a_long_list() -> None:
    listed = ", ".join([*map(str, range(0, 2000, 2)), *(f"'word {n}'" for n in range(500)), "true"])
    subscriptions = [parse(f"a in ({listed})"), parse(f"a not in ({listed})"), parse("a in ('X', 'yz') ignoring case")]
    values = [4, 5, 1998, -2, 4.0, 4.5, "word 7", "word 500", "", True, False, None, "x", "YZ", "zy"]
    check(subscriptions, [{"a": value} for value in values] + [{"a": values}, {}])


def test_true_and_false_are_no_programs() -> None:
    programs = Programs()
    _, places = programs.ready(np.arange(2), [parse("true"), parse("false")].__getitem__)
    assert places.tolist() == [HOLDS, FAILS]
    check([parse("true"), parse("not true"), parse("not not (true and true)")], [{}, {"a": 1}])


def test_an_integer_beyond_64_bits_makes_an_event_odd() -> None:
    values = values_of_leaves([{"a": [1]}, {"a": [-(2**63) - 1]}, {"b": [2**70], "a": [2**63 - 1]}], {"a": 0})
    assert values.odd.tolist() == [1]
    assert values.starts.tolist() == [0, 1, 1, 2]


def test_cheap_tests_come_first() -> None:
    programs = Programs()
    slow = parse("a matches 'x.*y' and (b contains 'longer' or c = 1) and d = 2")
    view, places = programs.ready(np.array([0]), [slow].__getitem__)
    place, order = int(places[0]), []
    while place >= 0:
        order.append(view.leaves[view.table.asked_tests[place]].attribute)
        place = int(view.table.otherwise[place] if order[-1] in "bc" and len(order) == 2 else view.table.if_so[place])
    assert order == ["d", "c", "b", "a"]


def test_a_regular_expression_is_run_only_where_its_literal_stands() -> None:
    programs = Programs()
    subscriptions = [parse("a matches 'needles\\b.*x'"), parse("a not matches 'needles\\b.*x' and b = 1")]
    trees: list[dict[str, Any]] = [{"a": "hay"}, {"a": ["hay", "stack"], "b": 1}]
    assert held(programs, subscriptions, DictSource(trees), [0, 1]) == [[False, False], [False, True]]
    assert programs.regex_calls == 0
    trees = [{"a": ["hay", "needles x"], "b": 1}, {"a": "needles \ud800x"}]
    assert held(programs, subscriptions, DictSource(trees), [0, 1]) == [[True, True], [True, False]]
    # `hay` alone tells that some value does not match.
    assert programs.regex_calls == 2


def test_tests_are_shared_and_added_later() -> None:
    programs = Programs()
    texts = ["a = 1 and b contains 'x'", "b contains 'x' or a = 1", "c.d > 5 and a = 1"]
    subscriptions = [parse(text) for text in texts]
    first, _ = programs.ready(np.array([1]), subscriptions.__getitem__)
    assert programs.stats()["program_tests"] == 2
    view, _ = programs.ready(np.array([0, 1, 2]), subscriptions.__getitem__)
    assert (programs.stats()["programs"], programs.stats()["program_tests"]) == (3, 3)
    assert len(first.table.tests) == 2
    assert list(view.names) == ["b", "a", "c.d"]
    check(subscriptions, [{"a": 1, "b": "x"}, {"a": 1, "c.d": 6}, {"c": {"d": [6, 7]}}])


def test_programs_are_made_again_after_an_interrupt_and_in_another_process() -> None:
    programs = Programs()
    subscriptions = [parse("a = 1"), parse("b = 2")]
    programs.ready(np.array([0]), subscriptions.__getitem__)

    def interrupted(slot: int) -> Expression:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        programs.ready(np.array([1]), interrupted)
    assert held(programs, subscriptions, DictSource([{"a": 1}]), [0]) == [[True, False]]
    assert pickle.loads(pickle.dumps(programs)).stats()["programs"] == 0


def test_threads_compile_and_run_at_the_same_time() -> None:
    subscriptions = [parse(f"a{n % 7} = {n} and b contains 'x{n}' ") for n in range(300)]
    trees = [{f"a{n % 7}": n, "b": f"-x{n}-"} for n in range(300)]
    expected = [[i == k for k in range(300)] for i in range(300)]
    for _ in range(5):
        programs, results = Programs(), list[list[list[bool]]]()
        order = np.random.default_rng(3).permutation(300)

        def work(first: int, order: Any = order, programs: Any = programs, results: Any = results) -> None:
            for some in np.array_split(np.roll(order, first), 20):
                programs.ready(some, subscriptions.__getitem__)
            results.append(held(programs, subscriptions, DictSource(trees), list(range(300))))

        threads = [threading.Thread(target=work, args=(100 * k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [expected] * 3


def test_folding_beyond_ascii() -> None:
    subscriptions = [parse(f"a {op} '{text}' ignoring case") for op in ("=", "contains") for text in CASED[:14]]
    check(subscriptions, [{"a": text} for text in CASED + TEXTS] + [{"a": CASED}])
