"""`op-index` against the examples, lemmas and figures of its paper."""

from __future__ import annotations

import pickle
import random
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, subscriptions

from siftline import Engine, Statistics
from siftline.errors import TooLargeError
from siftline.indexes.op_index import index as op_index
from siftline.indexes.op_index.index import OpIndex
from siftline.indexes.op_index.kernels import signature_bit
from siftline.indexes.op_index.lists import PrefixTrie, RegexSet, SuffixTrie, _automaton

if TYPE_CHECKING:
    from pathlib import Path

TABLE_1 = {
    1: "A = 2 and B in (3, 6, 9)",
    2: "A <= 8 and C >= 2",
    3: "C = 6 and B <= 4 and E between 3 and 12",
    4: "A = 2",
    5: "D >= 12 and E <= 9",
    6: "B in (3, 6) and C <= 4 and D >= 10 and E <= 7",
}
OPERATORS = ("=", "<=", ">=")


def table_1(**options: Any) -> Engine:
    """Return the subscriptions of Table 1, with the attributes numbered from A to E."""
    engine = Engine("op-index", **options)
    engine.add("A = 0 and B = 0 and C = 0 and D = 0 and E = 0", id=0)
    engine.add_many(TABLE_1.items())
    engine.remove(0)
    engine.rebuild()
    engine._check()
    assert engine._state.domains.names == ["A", "B", "C", "D", "E"]
    return engine


def index_of(engine: Engine) -> OpIndex:
    assert isinstance(engine._state.index, OpIndex)
    return engine._state.index


def only_part(engine: Engine) -> Any:
    (part,) = index_of(engine)._parts
    return part


def pivots(engine: Engine) -> dict[Any, list[str]]:
    """Return the pivots of each subscription of the first part."""
    part, names = index_of(engine)._parts[0], engine._state.domains.names
    arrays = part.arrays
    found: dict[Any, list[str]] = {}
    for attribute, p in enumerate(arrays.pivots.tolist()):
        if p >= 0:
            counted = arrays.counter_clauses[arrays.counter_starts[p] : arrays.counter_starts[p + 1]]
            mapped = arrays.bitmap_clauses[arrays.bitmap_starts[p] : arrays.bitmap_starts[p + 1]]
            for id in engine._state.table.ids(part.clauses.slots[np.concatenate([counted, mapped])]):
                found.setdefault(id, []).append(names[attribute])
    return found


def segments(engine: Engine) -> dict[tuple[str, str], list[list[tuple[str, Any, Any]]]]:
    """Return the segments of each list of a pivot and an operator: attribute, operand, subscription of each entry."""
    arrays, b = only_part(engine).arrays, index_of(engine)._n_segments
    lists = {}
    for attribute, p in enumerate(arrays.pivots.tolist()):
        for operator, sign in enumerate(OPERATORS if p >= 0 else ()):
            first = (p * 3 + operator) * b
            lists[engine._state.domains.names[attribute], sign] = [
                entries(engine, p, slice(arrays.directory[cell], arrays.directory[cell + 1]))
                for cell in range(first, first + b)
            ]
    return lists


def entries(engine: Engine, pivot: int, chosen: slice) -> list[tuple[str, Any, Any]]:
    part = only_part(engine)
    counters = part.arrays.counter_starts[pivot] + part.arrays.targets[chosen]
    ids = engine._state.table.ids(part.clauses.slots[part.arrays.counter_clauses[counters]])
    keys = part.arrays.keys[chosen].tolist()
    return [
        (engine._state.domains.names[key >> 32], value_of(engine, key >> 32, key & 0xFFFFFFFF), id)
        for key, id in zip(keys, ids, strict=True)
    ]


def value_of(engine: Engine, attribute: int, code: int) -> Any:
    numbers = engine._state.domains.domains[attribute].numbers
    return numbers.keys[numbers.labels.index(code)]


def work(engine: Engine, event: dict[str, Any]) -> dict[str, int]:
    """Return what matching one event adds to the counters."""
    before = engine.stats()
    engine.match(event)
    return {name: n - before[name] for name, n in engine.stats().items() if isinstance(n, (int, np.integer))}


# the paper's example


def test_pivots_of_figure_4() -> None:
    assert pivots(table_1()) == {1: ["A"], 2: ["A"], 3: ["C"], 4: ["A"], 5: ["D"], 6: ["D"]}


def test_example_2_only_lists_of_pivots_in_the_event() -> None:
    engine = table_1()
    assert sorted(engine.match({"A": 2, "B": 6})) == [1, 4]
    done = work(engine, {"A": 2, "B": 6})
    assert done["candidates_examined"] == 3  # S1, S2, S4
    assert done["lists_scanned"] == 3


def test_segments_of_figure_5() -> None:
    engine = table_1(segments=2, signature_bits=4)
    assert segments(engine) == {
        ("A", "="): [[("A", 2, 1), ("A", 2, 4)], [("B", 3, 1), ("B", 6, 1), ("B", 9, 1)]],
        ("A", "<="): [[("A", 8, 2)], []],
        ("A", ">="): [[("C", 2, 2)], []],
        ("C", "="): [[("C", 6, 3)], []],
        ("C", "<="): [[("E", 12, 3)], [("B", 4, 3)]],
        ("C", ">="): [[("E", 3, 3)], []],
        ("D", "="): [[], [("B", 3, 6), ("B", 6, 6)]],
        ("D", "<="): [[("C", 4, 6), ("E", 7, 6), ("E", 9, 5)], []],
        ("D", ">="): [[], [("D", 10, 6), ("D", 12, 5)]],
    }
    arrays = only_part(engine).arrays
    # `in` shares one count; `between` takes two.
    assert arrays.needs.tolist() == [2, 2, 1, 4, 2, 4]


@pytest.mark.parametrize("bits", [1, 4, 7, 64])
def test_signatures(bits: int) -> None:
    engine = table_1(segments=2, signature_bits=bits)
    arrays = only_part(engine).arrays
    for cell, signature in enumerate(arrays.signatures.tolist()):
        operator = cell // 2 % 3
        expected = 0
        for key in arrays.keys[arrays.directory[cell] : arrays.directory[cell + 1]]:
            hashed = key if operator == 0 else key & np.uint64(0xFFFFFFFF << 32)
            with np.errstate(over="ignore"):
                expected |= int(signature_bit(hashed, operator, np.uint64(bits)))
        assert signature == expected < 2**bits
        assert (signature == 0) == (arrays.directory[cell] == arrays.directory[cell + 1])


def test_example_3_a_search_ends_at_the_signature() -> None:
    engine = table_1()
    done = work(engine, {"A": 1000})
    # Nothing is `=` 1000 and the `>=` list of A holds C alone; the `<=` list has A.
    assert done["segments_probed"] == 3
    assert done["segments_pruned"] >= 1
    assert done["entries_reached"] - done["entries_matched"] <= 3


def test_examples_4_and_5_partly_matching_subscriptions_are_not_touched() -> None:
    engine = table_1()
    event = {"B": 6, "C": 3, "E": 9}
    assert engine.match(event) == []
    done = work(engine, event)
    assert done["candidates_examined"] == 1  # S3; not S2, although C >= 2, nor S5, although E <= 9
    assert done["lists_scanned"] == 3  # (C, =), (C, <=), (C, >=)
    assert done["entries_matched"] == 2  # E >= 3 and E <= 12


def test_pivots_follow_the_event_log() -> None:
    statistics = Statistics.from_events([{"A": 1}] * 9 + [{"B": 1}, {"B": 1}, {"C": 1, "E": 1, "D": 1}])
    engine = Engine("op-index", statistics=statistics)
    engine.add_many(TABLE_1.items())
    assert pivots(engine) == {1: ["B"], 2: ["C"], 3: ["C"], 4: ["A"], 5: ["E"], 6: ["C"]}


# lemmas


@given(
    st.lists(st.sets(st.sampled_from("ABCD"), min_size=1), min_size=1, max_size=4),
    st.lists(st.sets(st.sampled_from("ABCDE")), min_size=1, max_size=8),
)
def test_lemma_2_no_choice_of_pivots_accesses_fewer_candidates(
    subscriptions: list[set[str]], events: list[set[str]]
) -> None:
    log = [dict.fromkeys(event, 1) for event in events]
    engine = Engine("op-index", statistics=Statistics.from_events(log))
    engine.add_many((n, " and ".join(f"{name} = 1" for name in sorted(names))) for n, names in enumerate(subscriptions))
    for event in log:
        engine.match(event)
    fewest = min(sum(pivot in event for event in events for pivot in choice) for choice in product(*subscriptions))
    assert engine.stats()["candidates_examined"] == fewest


def random_engine(n: int, *, n_attributes: int = 50, sigma: int = 20, **options: Any) -> tuple[Engine, list[Any]]:
    """Return subscriptions as the paper's model has them (4.4), and events of 12 values."""
    rng = random.Random(7)
    names = [f"a{n}" for n in range(n_attributes)]

    def expression() -> str:
        chosen = rng.sample(names, rng.randint(1, 5))
        return " and ".join(f"{name} {rng.choice(OPERATORS)} {rng.randint(1, sigma)}" for name in chosen)

    engine = Engine("op-index", **options)
    engine.add_many((n, expression()) for n in range(n))
    events = [{name: rng.randint(1, sigma) for name in rng.sample(names, 12)} for _ in range(60)]
    return engine, events


def test_lemmas_3_6_and_7_predict_what_is_measured() -> None:
    engine, events = random_engine(3000, segments=0)
    for event in events:
        engine.match(event)
    stats = engine.stats()
    model = op_index._Model.of(only_part(engine))
    assert model.n_clauses == 3000
    assert model.n_attributes == 50
    assert model.segment_length(1) == pytest.approx(stats["entries"] / (3 * stats["pivots"]), rel=0.01)
    assert stats["entries_matched"] / stats["entries_reached"] == pytest.approx(model.match_chance, rel=0.1)
    # The rarest attribute as the pivot makes it fewer than the lemma's even spread.
    assert stats["entries_matched"] / stats["events"] == pytest.approx(model.n_matching(12), rel=0.25)
    shown = engine.describe()
    assert all(lemma in shown for lemma in ("by Lemma 3", "by Lemma 6", "by Lemma 7", "no segments"))


def test_describe_before_any_event() -> None:
    assert "by Lemma 7" not in table_1().describe()
    assert "3 pivots, 3 lists each, 32 segments of 64 bits; 18 entries" in table_1().describe()
    assert Engine("op-index").describe().endswith("op-index: 0 subscriptions in 0 parts")


# options


def test_segments_and_signatures_change_the_work_and_nothing_else() -> None:
    options = [{}, {"segments": 0}, {"segments": 1}, {"segments": 7, "signature_bits": 1}, {"signature_bits": 3}]
    engines = [random_engine(800, **chosen)[0] for chosen in options]
    events = random_engine(1)[1]
    for event in events:
        assert len({tuple(sorted(engine.match(event))) for engine in engines}) == 1
    stats = [engine.stats() for engine in engines]
    assert len({s["entries_matched"] for s in stats}) == 1
    pruned = [s["segments_pruned"] for s in stats]
    assert pruned[1] == 0 < pruned[2] < pruned[0]
    assert stats[1]["bytes"]["signatures"] == 0
    for engine in engines:
        engine._check()


@pytest.mark.parametrize("options", [{"segments": 0}, {"segments": 3, "signature_bits": 2}, {"lists": ()}])
@settings(max_examples=N_EXAMPLES // 4)
@given(rows=st.lists(subscriptions, min_size=1, max_size=8), trees=st.lists(events, min_size=1, max_size=4))
def test_options_give_the_ids_of_scan(options: dict[str, Any], rows: list[Any], trees: list[Any]) -> None:
    oracle, engine = Engine("scan"), Engine("op-index", **options)
    for one in (oracle, engine):
        one.add_many(enumerate(rows))
    for tree in trees:
        assert sorted(engine.match(tree)) == sorted(oracle.match(tree))
    engine._check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"segments": -1}, "segments must be a whole number from 0 to 4096, not -1"),
        ({"segments": 2.0}, "segments must be"),
        ({"segments": True}, "segments must be"),
        ({"signature_bits": 0}, "signature_bits must be a whole number from 1 to 64, not 0"),
        ({"signature_bits": 65}, "signature_bits must be"),
        ({"lists": ["contains"]}, "lists must be a list of some of 'starts with', 'ends with', 'matches', not"),
        ({"lists": "matches"}, "lists must be a list of some of"),
    ],
)
def test_refused_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Engine("op-index", **options)


def test_too_many_segments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_index, "_MOST_CELLS", 300)
    engine = Engine("op-index")
    engine.add("a = 1 and b = 2", id=1)
    with pytest.raises(TooLargeError, match="op-index holds at most 300 segments"):
        engine.add_many([(2, "b = 1"), (3, "c = 1"), (4, "d = 1")])
    assert engine.match({"a": 1, "b": 2}) == [1]


# literals of all kinds


@pytest.mark.parametrize(
    ("expression", "matching", "others"),
    [
        ("x != 3 and y = 1", [2, 4, 2.5], [3, "3", None]),
        ("x not between 3 and 5 and y = 1", [2, 6], [3, 4, 5, "4"]),
        ("x not in (3, 5) and y = 1", [2, 4, 6], [3, 5, "4"]),
        ("x not in (3, 5, 'a') and y = 1", [2, 4, 6, "b", ""], [3, 5, "a", True]),
        ("x in (3, 'a', true) and y = 1", [3, "a", True], [2, "b", False, None]),
        ("x <= 3 and x <= 3 and x >= 1 and y = 1", [1, 2, 3], [0, 4, "2", True]),
        ("x between 2 and 4 and x between 3 and 5 and y = 1", [3, 4], [2, 5]),
        ("x > 'b' and x < 'd' and y = 1", ["c", "bb"], ["b", "d", 3]),
        ("x is not null and y = 1", [0, "", False], [None]),
        ("exists x and y = 1", [0, "", False, None], []),
        ("x is null and y = 1", [None], [0, ""]),
        ("not (x = 3) and y = 1", [2], [3, "3"]),
    ],
)
def test_literals(expression: str, matching: list[Any], others: list[Any]) -> None:
    engine = Engine("op-index")
    engine.add(expression, id=1)
    engine._check()
    for value in matching:
        assert engine.match({"x": value, "y": 1}) == [1], value
    for value in others:
        assert engine.match({"x": value, "y": 1}) == [], value
    assert engine.match({"x": matching[0], "y": 2}) == []


def test_several_values_may_count_too_much() -> None:
    engine = Engine("op-index")
    engine.add("x between 3 and 12 and y = 1", id=1)
    engine.add("x >= 3 and y >= 1", id=2)
    assert engine.match({"x": [1, 100], "y": 1}) == [2]
    assert engine.match({"x": [4, 5], "y": 0}) == []
    assert sorted(engine.match({"x": [4, 5, 6], "y": [1, 2]})) == [1, 2]


def test_a_veto_is_never_the_pivot() -> None:
    engine = Engine("op-index")
    engine.add_many([(1, "a = 1 and b is null"), (2, "a = 2"), (3, "a = 3")])
    assert pivots(engine)[1] == ["a"]
    assert engine.match({"a": 1}) == [1]
    assert engine.match({"a": 1, "b": 0}) == []
    assert engine.stats()["verified_clauses"] == 1


def test_more_counts_than_a_counter_holds() -> None:
    engine = Engine("op-index")
    engine.add(" and ".join(f"a{n} between 1 and 3" for n in range(200)), id=1)
    engine.add(" and ".join(f"a{n} = 2" for n in range(300)), id=2)
    engine._check()
    event = {f"a{n}": 2 for n in range(300)}
    assert sorted(engine.match(event)) == [1, 2]
    assert engine.match(event | {"a199": 4}) == []
    assert engine.match(event | {"a199": 3}) == [1]
    assert engine.match(event | {"a299": 4}) == [1]


# conjunctions of disjunctions


def test_several_pivots_report_a_subscription_once() -> None:
    engine = Engine("op-index")
    engine.add("(a = 1 or b = 2 or a = 3) and (c = 1 or d = 1 or e = 1 or f = 1)", id=1)
    engine.add("a = 1 and b = 2", id=2)
    assert engine.stats()["cnf_copies"] == 2
    assert pivots(engine)[1] == ["a", "b"]
    assert sorted(engine.match({"a": 1, "b": 2, "c": 1, "f": 1})) == [1, 2]
    assert index_of(engine).match(engine.encode({"a": 1, "b": 2, "c": 1}), 0).sure.tolist() in ([0, 1], [1, 0])
    assert engine.match({"a": 3, "e": 1}) == [1]
    assert engine.match({"a": 1, "b": 2}) == [2]
    assert engine.match({"c": 1, "d": 1, "e": 1, "f": 1}) == []


def test_the_pivot_group_is_the_shortest_and_then_the_rarest() -> None:
    engine = Engine("op-index")
    engine.add_many([(n, f"a = {n}") for n in range(5)])
    engine.add("(a = 1 or b = 1) and (c = 1 or d = 1) and (e = 1 or f = 1 or g = 1)", id=10)
    engine.add("(h = 1 or b is null) and (e = 1 or f = 1 or g = 1) and (a = 1 or b = 1 or c = 1)", id=11)
    engine.rebuild()
    found = pivots(engine)
    assert found[10] == ["c", "d"]
    assert found[11] == ["e", "f", "g"]  # a veto may satisfy the first; the third has `a`
    assert engine.match({"e": 1, "c": 1}) == [11]


def test_half_of_a_between_does_not_clear_a_bit() -> None:
    engine = Engine("op-index")
    engine.add("(a between 3 and 5 or b = 1 or c = 1) and (d = 1 or e = 1 or f = 1)", id=1)
    engine.add("g between 3 and 5 and (d = 1 or e between 1 and 2) and (b = 1 or f = 1)", id=2)
    assert engine.stats()["cnf_copies"] > 0
    assert engine.match({"a": 7, "d": 1}) == []
    assert engine.match({"a": 2, "d": 1}) == []
    assert engine.match({"a": 4, "d": 1}) == [1]
    assert engine.match({"g": 4, "e": 3, "f": 1}) == []
    assert engine.match({"g": 4, "e": 2, "f": 1}) == [2]
    assert engine.match({"g": 6, "e": 2, "f": 1}) == []


def test_more_disjunctions_than_a_bitmap_holds() -> None:
    engine = Engine("op-index")
    engine.add(" and ".join(f"(a{n} = 1 or b{n} = 1)" for n in range(70)), id=1)
    engine._check()
    assert engine.stats()["cnf_copies"] == 2
    event = {f"{'ab'[n % 2]}{n}": 1 for n in range(70)}
    assert engine.match(event) == [1]
    for n in range(70):
        assert engine.match(event | {f"{'ab'[n % 2]}{n}": 2}) == []


# lists for strings


def strings(op: str, operands: list[str]) -> Engine:
    engine = Engine("op-index")
    engine.add_many((operand, f"x {op} '{operand}' and y = 1") for operand in operands)
    engine._check()
    return engine


@pytest.mark.parametrize(
    ("op", "operands", "text", "expected"),
    [
        ("starts with", ["so", "sony", "", "on"], "sony", ["", "so", "sony"]),
        ("ends with", ["ny", "sony", "", "on"], "sony", ["", "ny", "sony"]),
        ("matches", ["^s", "n+y$", "", "^o", "(?i)SON"], "sonny", ["", "(?i)SON", "^s", "n+y$"]),
    ],
)
def test_strings_are_decided_by_lists(op: str, operands: list[str], text: str, expected: list[str]) -> None:
    engine = strings(op, operands)
    assert sorted(engine.match({"x": text, "y": 1})) == expected
    assert engine.match({"x": text, "y": 2}) == []
    assert engine.match({"x": 5, "y": 1}) == []
    candidates = index_of(engine).match(engine.encode({"x": text, "y": 1}), 0)
    assert len(candidates.sure) == len(expected)
    assert len(candidates.possible) == 0
    several = index_of(engine).match(engine.encode({"x": [text, "zzz"], "y": 1}), 0)
    assert len(several.sure) + len(several.possible) == len(expected)
    assert sorted(engine.match({"x": ["zzz", text], "y": 1})) == sorted(engine.match({"x": [text, "zzz"], "y": 1}))


def test_operators_choose_their_lists() -> None:
    rows = [(1, "x starts with 'so' and y = 1"), (2, "x ends with 'ny' and y = 1"), (3, "x matches '^.o' and y = 1")]
    expected = {("starts with", "matches"): 2, ("ends with",): 2, (): 1}
    for lists, n_sure in expected.items():
        engine = Engine("op-index", lists=lists)
        engine.add_many(rows)
        candidates = index_of(engine).match(engine.encode({"x": "sony", "y": 1}), 0)
        assert (len(candidates.sure), len(candidates.possible)) == (n_sure, 3 - n_sure)
        assert sorted(engine.match({"x": "sony", "y": 1})) == [1, 2, 3]
        assert engine.match({"x": "song", "y": 1}) == [1, 3]


def test_strings_that_have_no_list_are_checked_by_the_engine() -> None:
    engine = Engine("op-index")
    engine.add_many([(1, "x contains 'on'"), (2, "x contains 'on' and x ends with 'y'"), (3, "x like 's%y'")])
    candidates = index_of(engine).match(engine.encode({"x": "sony"}), 0)
    assert (len(candidates.sure), len(candidates.possible)) == (0, 3)
    assert sorted(engine.match({"x": "sony"})) == [1, 2, 3]
    assert engine.match({"x": "song"}) == [1]


def test_a_pattern_among_alternatives() -> None:
    engine = Engine("op-index")
    engine.add("(x ends with 'y' or a between 3 and 5 or b = 1) and (c = 1 or d matches '^q' or e = 1)", id=1)
    assert engine.match({"x": "sony", "d": "qq"}) == [1]
    assert engine.match({"x": "song", "a": 7, "d": "qq"}) == []
    assert engine.match({"x": "song", "a": 4, "d": "qq"}) == [1]
    assert engine.match({"x": "sony", "d": "xq"}) == []


def test_lone_surrogates() -> None:
    engine = strings("matches", ["a.c", "\ufffd"])
    assert sorted(engine.match({"x": "a\ud800c", "y": 1})) == sorted(["a.c", "\ufffd"])
    assert strings("ends with", ["\ufffd"]).match({"x": "a\ud800", "y": 1}) == []


def test_an_automaton_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siftline.indexes.op_index.lists._MOST_BYTES", 1 << 12)
    operands = [f"(?:a{{0,{n}}}[b-z]+){{5}}$" for n in range(1, 20)]
    assert _automaton(operands) is None or not _automaton(operands).Match("abc")
    regexes = RegexSet()
    for number, operand in enumerate(["^a", *operands]):
        regexes.insert(0, operand, number)
    assert regexes.match(0, "a-") == [0]
    assert regexes.match(1, "a-") == []


def test_tries_know_attributes_apart() -> None:
    prefixes, suffixes = PrefixTrie(), SuffixTrie()
    for trie in (prefixes, suffixes):
        trie.insert(3, "ab", 1)
        trie.insert(4, "ab", 2)
    assert (prefixes.match(3, "abc"), suffixes.match(4, "cab")) == ([1], [2])
    assert (prefixes.match(3, "cab"), suffixes.match(3, "abc")) == ([], [])


# changes


def test_counters_are_as_new_after_many_events() -> None:
    engine, events = random_engine(500)
    engine.add("(a1 = 1 or a2 = 2) and (a3 > 3 or a4 < 10 or a5 != 4)", id=1000)
    first = [sorted(engine.match(event)) for event in events]
    for _ in range(5):
        assert [sorted(engine.match(event)) for event in events] == first
        engine._check()


def test_adding_removing_and_merging() -> None:
    engine, events = random_engine(300)
    oracle = Engine("scan")
    oracle.add_many((id, engine.expression(id)) for id in range(300))
    rng = random.Random(3)
    for n in range(300, 450):
        for one in (engine, oracle):
            one.add(f"a{n % 50} >= {n % 20} and (a{n % 7} = 3 or a{n % 11} = 4)", id=n)
        gone = rng.choice(sorted(engine.ids()))
        for one in (engine, oracle):
            one.remove(gone)
        engine._check()
    for event in events:
        assert sorted(engine.match(event)) == sorted(oracle.match(event))


def test_saved_and_pickled(tmp_path: Path) -> None:
    engine = strings("ends with", ["ny", "on"])
    engine.add("(a = 1 or b = 1 or c = 1) and (d = 1 or e = 1 or f = 1)", id="cnf")
    event = {"x": "sony", "y": 1, "a": 1, "b": 1, "d": 1}
    expected = ["cnf", "ny"]
    assert sorted(engine.match(event)) == expected
    engine.save(tmp_path / "saved")
    for copy in (Engine.open(tmp_path / "saved"), pickle.loads(pickle.dumps(engine))):
        copy._check()
        assert sorted(copy.match(event)) == expected
        copy.add("x starts with 'so'", id="so")
        assert sorted(copy.match(event)) == [*expected, "so"]
        copy.remove("ny")
        assert sorted(copy.match(event)) == ["cnf", "so"]
