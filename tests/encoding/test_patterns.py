"""Patterns, all of an attribute at once: every answer must be that of the model."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import re2
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st

from siftline import Engine, Statistics, parse
from siftline.encoding import patterns as module
from siftline.encoding.clauses import constants_of, encode_covers, pattern_of
from siftline.encoding.domains import Domains, Pattern
from siftline.encoding.events import encode_dict
from siftline.encoding.patterns import Layer, Matcher, append_patterns, hits_of, literal_segments, matcher_of
from siftline.encoding.regex_automata import automaton_of
from siftline.encoding.regex_literals import literal_of
from siftline.encoding.regex_needs import needs_of
from siftline.encoding.selectivity import literal_shares
from siftline.errors import SubscriptionError
from siftline.kernels.text_search import NEVER_REMEMBERED
from siftline.language.normal_form import cover
from siftline.model import AnyElement, AnyString, Event, Expression, IsTrue, Not, Predicate, evaluate, matches
from siftline.model.predicate import compile_regex
from siftline.model.wildcard import fold, parse_like

if TYPE_CHECKING:
    from pathlib import Path

# Letters that fold oddly, line ends, wildcards and signs of regular expressions, a lone surrogate and its stand-in.
ALPHABET = "aAbBkK\u212asS\u017fßẞéÉİ\u0131\u03c3ςΣ \n.%_\\()[]{}?*+|^$10:/\x00\ud800\ufffd\U0010ffff"
LONG = "ab" * 300 + "\nKß" + "a" * 300

texts = st.one_of(
    st.text(alphabet=ALPHABET, max_size=8),
    st.sampled_from(["", LONG, "10.0.0.7", "10.1.2.3", "2001:db8::1", "fe80::1%eth0", "10.0.0.07", "::", "1.2.3"]),
    st.text(max_size=5),
)
REGEXES = [
    "", "^", "$", "^$", "a", "^a", "a$", "^a$", "ab", "a.b", "(?i)AB", "[^a]", r"\.", r"a\.b", "aab?", "ab*a", "ab+a",
    "ab{0}a", "aba{2}b", "(ab)?a", "(?:ab|ba)a", "aba|bab", "[]ab]", "[^]a]b", "[a[:space:]]b", r"\Qa.b\E", r"\x41",
    r"\bab\b", r"ab\dab", "\ufffd", "a\ufffd", "(?P<x>ab)ab", "(?s)a.b", "(?m)^b$", "aba$|^b", "(aba)", r"a\nb", "\\pL",
    "((a))|b", "abab(?:c|)", "aabb$$", "^^aba", "abaa??b", r"[\]a]bab", "K", "(?i)k", "é", "[éß]", "ab(?i)ab", "a|",
]  # fmt: skip
regexes = st.one_of(st.sampled_from(REGEXES), st.text(alphabet="ab.|*+?()[]^$\\{}1dbQé", max_size=8))
networks = st.sampled_from(
    ["10.0.0.0/8", "10.0.0.7", "10.0.0.7/16", "0.0.0.0/0", "2001:db8::/32", "::/0", "fe80::/10", "::1", "10.0.0.6/31"]
)
OPERANDS = {
    "ends with": texts,
    "contains": texts,
    "like": st.text(alphabet="aAbß%_\n\ud800", max_size=6),
    "ilike": st.text(alphabet="aAkK\u212aßẞİ\u0131s\u017fς%_", max_size=6),
    "matches": regexes,
    "cidr": networks,
}


def accepted(op: str, operand: str) -> bool:
    try:
        Predicate("a", op, operand)
    except SubscriptionError:
        return False
    return True


conditions = st.sampled_from(sorted(OPERANDS)).flatmap(
    lambda op: st.tuples(st.just(op), OPERANDS[op].filter(lambda operand: accepted(op, operand)))
)


def expected(asked: list[tuple[str, str]], tree: dict[str, Any], path: str = "a") -> set[int]:
    event = Event(tree)
    return {i for i, (op, operand) in enumerate(asked) if matches(Predicate(path, op, operand), event)}


def found_in(finder: Layer | Matcher, text: str) -> set[int]:
    starts, found = hits_of(finder, 0, [text])
    assert len(found) == starts[1] == len(set(found.tolist()))
    return set(found.tolist())


def check_layers(asked: list[tuple[str, str]], values: list[str]) -> None:
    entries = [(i, Pattern(0, op, operand)) for i, (op, operand) in enumerate(asked)]
    # With many more texts to look for, which no value has, they are looked for in another way.
    others = [
        (100 + i, Pattern(0, op, f"%nowhere {i}%" if op == "ilike" else f"nowhere {i}"))
        for i in range(20)
        for op in ("contains", "ilike")
    ]
    for layer in (Layer(entries), Layer([*entries, *others])):
        for value in values:
            assert found_in(layer, value) == expected(asked, {"a": value})


@settings(max_examples=4 * N_EXAMPLES)
@given(asked=st.lists(conditions, min_size=1, max_size=12), values=st.lists(texts, min_size=1, max_size=4))
def test_a_layer_finds_what_the_model_says(asked: list[tuple[str, str]], values: list[str]) -> None:
    check_layers(asked, values)


caseless_texts = st.text(alphabet="aAsS\u017f\u00df\u1e9e\u0130\u03c3\u03a3%_\\\ud800\udc00", max_size=3)
caseless = st.one_of(
    st.tuples(st.sampled_from(["=", "starts with", "ends with", "contains"]), caseless_texts),
    st.tuples(st.just("in"), st.lists(caseless_texts, min_size=1, max_size=4).map(tuple)),
).map(lambda pair: Predicate("a", f"{pair[0]} ignoring case", pair[1]))


@given(asked=st.lists(caseless, min_size=1, max_size=12), values=st.lists(caseless_texts, min_size=1, max_size=4))
def test_a_layer_finds_what_ignores_case(asked: list[Predicate], values: list[str]) -> None:
    found = [pattern_of(0, predicate) for predicate in asked]
    layer = Layer([(i, pattern) for i, pattern in enumerate(found) if pattern is not None])
    assert len(layer.entries) == len(asked)
    for value in values:
        event = Event({"a": value})
        assert found_in(layer, value) == {i for i, predicate in enumerate(asked) if matches(predicate, event)}


MIXED = [("contains", "ab"), ("ilike", "%AB%"), ("matches", "a[b]+"), ("cidr", "10.0.0.0/8"), ("cidr", "2001:db8::/32")]


@given(
    asked=st.lists(conditions, max_size=6).map(lambda drawn: [*MIXED, *drawn]),
    values=st.lists(st.lists(st.one_of(texts, st.sampled_from(["x" * 20 + "ab", LONG])), max_size=3), max_size=8),
    shortest=st.sampled_from([0, 16]),
)
def test_strings_are_searched_once_in_a_batch(
    asked: list[tuple[str, str]], values: list[list[str]], shortest: int
) -> None:
    layer = Layer([(i, Pattern(0, op, operand)) for i, (op, operand) in enumerate(asked)])
    everything = [text for event in values for text in event]
    data = [text.encode("utf-8", "surrogatepass") for text in everything] * 2
    leaves = module._as_leaves(np.zeros(len(data), dtype=np.int32), data, np.ones(len(data), dtype=np.bool_))
    starts = np.cumsum([0, *map(len, values), *map(len, values)])
    monkeypatch = pytest.MonkeyPatch()
    found = []
    for least in (shortest, NEVER_REMEMBERED):
        monkeypatch.setattr(module, "REMEMBERED_MIN_BYTES", least)
        layer.found_in(leaves, starts)  # makes what is missing, for which it may begin an event again
        ends, targets = layer.found_in(leaves, starts)
        n_strings, n_searched, _ = module._workspace().counts.tolist()
        assert n_strings == len(data)
        most = len({text for text in data if least <= len(text) <= 512})
        most += sum(not least <= len(text) <= 512 for text in data)
        assert n_searched == most if len(values) else n_searched == 0
        found.append([sorted(targets[ends[i] : ends[i + 1]].tolist()) for i in range(2 * len(values))])
    monkeypatch.undo()
    assert found[0] == found[1]
    assert found[0] == 2 * [sorted(expected(asked, {"a": event})) for event in values]


def test_more_strings_than_are_remembered() -> None:
    layer = Layer([(i, Pattern(0, "contains", f"{i:04}")) for i in range(0, 5_000, 7)])
    data = [f"a string that is long enough: {i % 4_000:04}".encode() for i in range(10_000)]
    leaves = module._as_leaves(np.zeros(len(data), dtype=np.int32), data, np.ones(len(data), dtype=np.bool_))
    starts, targets = layer.found_in(leaves, np.arange(len(data) + 1))
    assert targets.tolist() == [i % 4_000 for i in range(10_000) if i % 4_000 % 7 == 0]
    assert np.flatnonzero(np.diff(starts)).tolist() == [i for i in range(10_000) if i % 4_000 % 7 == 0]


def test_stats_count_strings() -> None:
    engine = Engine()
    engine.add("a contains 'x'", id=1)
    assert (engine.stats()["strings"], engine.stats()["strings_searched"]) == (0, 0)
    engine.match_batch(['{"a": "the same string, several times"}'] * 5)
    assert (engine.stats()["strings"], engine.stats()["strings_searched"]) == (5, 1)
    engine.match({"a": "one more string", "b": "nobody asks for it"})
    assert (engine.stats()["strings"], engine.stats()["strings_searched"]) == (6, 2)
    assert engine.stats()["strings_tested"] == 0
    engine.add(r"a matches 'several\b'", id=2)
    assert engine.match_batch(['{"a": "the same string, several times"}'] * 5).num_rows == 5
    assert engine.match({"a": "another string"}) == []
    assert engine.stats()["strings_tested"] == 1


@settings(max_examples=4 * N_EXAMPLES)
@given(pattern=st.text(alphabet="ab%_\\\00", max_size=10))
def test_segments_are_those_of_the_model(pattern: str) -> None:
    if not accepted("like", pattern):
        return
    segments = literal_segments(pattern)
    first, *others = parse_like(pattern)
    wanted = [first, *(segment for segment in others[:-1] if segment), *others[-1:]]
    assert not segments or [tuple(segment) for segment in segments] == wanted
    if "_" not in pattern and "\\" not in pattern:
        assert segments


def test_texts_without_letters_are_found_beside_folded_ones() -> None:
    asked = [("contains", "4-6"), ("contains", "aB"), ("ilike", "%Ab%"), ("starts with", "4"), ("ends with", ".%")]
    asked += [("like", "%4-6_x%"), ("ilike", "4-6"), ("contains", "k")]
    layer = Layer([(i, Pattern(0, op, operand)) for i, (op, operand) in enumerate(asked)])
    unlike = [(point, to) for point, to in enumerate(module.folded_characters().tolist()) if to != point and to < 128]
    assert all(chr(to).isalpha() for _, to in unlike)
    for text in ("4-6", "x4-6aB", "4-6 xAB", "4-6_X", "4-6_x.%", ".%", "\u212a", "k", "\u017f4-6", "4-6\ud800", ""):
        assert found_in(layer, text) == expected(asked, {"a": text})


LENGTHS = [
    [1],
    [2],
    [3],
    [4],
    [5, 9],
    [6],
    [7, 8],
    [1, 2, 3, 4, 12],
    [3, 30],
    [4, 5, 6, 20],
    [4] * 300,
    [3, *[5] * 300],
]


@pytest.mark.parametrize("lengths", LENGTHS)
def test_every_literal_is_found_wherever_it_stands(lengths: list[int]) -> None:
    rng = random.Random(5)
    literals = sorted({"".join(rng.choices("abcdefgh", k=length)) for length in lengths})
    layer = Layer([(i, Pattern(0, "contains", literal)) for i, literal in enumerate(literals)])
    for i, literal in enumerate(literals[:20]):
        for before in range(9):
            for behind in range(3):
                text = "-" * before + literal + "." * behind
                wanted = {k for k, each in enumerate(literals) if each in text}
                assert i in wanted
                assert found_in(layer, text) == wanted
                assert i not in found_in(layer, "-" * before + literal[:-1] + "." * behind)


octets = st.sampled_from(
    ["0", "1", "9", "10", "99", "255", "256", "00", "01", "007", "1000", "", "a", " 1", "\u0661", "-1"]
)
addresses = st.one_of(
    st.lists(octets, min_size=3, max_size=5).map(".".join),
    st.lists(st.integers(0, 255).map(str), min_size=4, max_size=4).map(".".join),
    st.tuples(st.sampled_from(["10.0.0.7", "2001:db8::1"]), st.sampled_from(["", " ", ".", "/8", "\n", "%1", ":"])).map(
        "".join
    ),
    st.sampled_from(
        ["::ffff:10.0.0.7", "::10.0.0.7", "1.2.3.4:80", "fe80::1%eth0.1.2.3", "2001:db8::", "....", "1..2.3"]
    ),
)


@given(values=st.lists(addresses, min_size=1, max_size=5))
def test_addresses_are_those_of_python(values: list[str]) -> None:
    asked = [("cidr", each) for each in ("0.0.0.0/0", "::/0", "10.0.0.0/8", "10.0.0.7", "2001:db8::/32", "0.0.0.0/1")]
    layer = Layer([(i, Pattern(0, op, operand)) for i, (op, operand) in enumerate(asked)])
    for value in values:
        assert found_in(layer, value) == expected(asked, {"a": value})


@pytest.mark.slow
@settings(max_examples=5_000, deadline=None)
@given(asked=st.lists(conditions, min_size=1, max_size=12), values=st.lists(texts, min_size=1, max_size=4))
def test_a_layer_finds_what_the_model_says_at_length(asked: list[tuple[str, str]], values: list[str]) -> None:
    check_layers(asked, values)


@settings(max_examples=4 * N_EXAMPLES)
@given(regex=regexes.filter(lambda regex: accepted("matches", regex)), text=st.text(alphabet="ab.Q{}é\n", max_size=8))
def test_a_match_contains_the_literal(regex: str, text: str) -> None:
    literal = literal_of(regex)
    if literal is None:
        return
    is_match = compile_regex(regex).search(text) is not None
    assert not is_match or literal.text in text
    if literal.is_all:
        shown = literal.text
        is_there = text.startswith(shown) if literal.is_at_start else text.endswith(shown)
        if literal.is_at_start == literal.is_at_end:
            is_there = text == shown if literal.is_at_start else shown in text
        assert is_match == is_there


nested_regexes = st.recursive(
    st.sampled_from(
        [
            "a",
            "b",
            "B",
            "k",
            "ß",
            "é",
            ".",
            "[aB]",
            "[^a]",
            r"\.",
            r"\s",
            r"\b",
            "^",
            "$",
            r"\n",
            "]",
            "}",
            "[kK]",
            r"\w",
        ]
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["?", "*", "+", "{2}", "{0}", "{0,2}", "{2,}", "{1,3}", "+?", "{3}?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        st.tuples(st.sampled_from(["(?i)", "(?i:", "(?P<x>", "(?ms)"]), inner).map(
            lambda pair: pair[0] + pair[1] + (")" if pair[0][-1] != ")" else "")
        ),
    ),
    max_leaves=8,
)


def test_letters_in_both_cases_are_what_re2_takes_them_for() -> None:
    """In alternatives, RE2 may take such a class for a letter that ignores case, which is like one more character."""
    branches = ["a", "[kK]", "[Ss]", "(?:k|K)", "[kK]a", "[ak]", "(?:[kK]|b)", "[kK]{2}"]
    for regex in ["|".join(pair) for pair in itertools.permutations(branches, 2)]:
        layer = Layer([(0, Pattern(0, "matches", regex))])
        for text in ("\u212a", "x\u017fy", "x\u212aa", "\u212ak", "K"):
            is_match = matches(Predicate("a", "matches", regex), Event({"a": text}))
            assert found_in(layer, text) == ({0} if is_match else set()), (regex, text)


@settings(max_examples=10 * N_EXAMPLES)
@given(
    regex=nested_regexes.filter(lambda regex: accepted("matches", regex)),
    texts=st.lists(st.text(alphabet="aAbBkK\u212a\u017fsßéÉ]}. 1\n\ud800", max_size=12), max_size=8),
)
def test_a_match_has_what_is_needed(regex: str, texts: list[str]) -> None:
    needs, layer = needs_of(regex), Layer([(0, Pattern(0, "matches", regex))])
    for text in texts:
        is_match = matches(Predicate("a", "matches", regex), Event({"a": text}))
        if is_match:
            assert len(text) >= needs.shortest
            assert not needs.texts or any(each in fold(text) for each in needs.texts)
        assert found_in(layer, text) == ({0} if is_match else set())


ATOMS = [
    "a",
    "b",
    "k",
    "S",
    ".",
    "[ab]",
    "[^a]",
    "[^k1]",
    "[a-c-]",
    "^",
    "$",
    r"\A",
    r"\z",
    r"\n",
    "-",
    r"[\w.]",
    r"[^\W_]",
    "é",
    "[^é]",
]
plain_regexes = st.tuples(
    st.sampled_from(["", "", "(?i)", "(?s)", "(?is)"]),
    st.recursive(
        st.sampled_from([*ATOMS, *(rf"\{letter}" for letter in "dDsSwW")]),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=4).map("".join),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
            st.tuples(inner, st.sampled_from(["?", "*", "+", "{2}", "{0,2}", "{2,}", "{1,3}", "*?"])).map(
                lambda pair: f"(?:{pair[0]}){pair[1]}"
            ),
        ),
        max_leaves=10,
    ),
).map("".join)


@settings(max_examples=20 * N_EXAMPLES)
@given(
    regex=plain_regexes.filter(lambda regex: accepted("matches", regex)),
    texts=st.lists(st.text(alphabet="abkK\u212asS\u017fé1_-. \n\ud800\U00010400", max_size=10), max_size=10),
)
def test_automata_match_what_re2_matches(regex: str, texts: list[str]) -> None:
    layer = Layer([(0, Pattern(0, "matches", regex))])
    for text in texts:
        is_match = matches(Predicate("a", "matches", regex), Event({"a": text}))
        assert found_in(layer, text) == ({0} if is_match else set())


def test_automata_take_the_class_of_each_character_that_re2_takes() -> None:
    everything = "".join(map(chr, [*range(0x2FFF), 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF]))
    for regex in (
        r"\w",
        r"\W",
        r"\s",
        r"\S",
        r"\d",
        r"\D",
        ".",
        "[^k]",
        "[^a-z]",
        r"[\W0]",
        "[S-a]",
        "k",
        "s",
        "[^é\u212a]",
    ):
        for flags in ("", "(?i)", "(?s)"):
            asked = f"^{flags}x{regex}$" if not flags else f"{flags}^x{regex}$"
            assert (automaton_of(asked) is not None) is (flags != "(?i)" or asked.isascii())
            layer, compiled = Layer([(0, Pattern(0, "matches", asked))]), compile_regex(asked)
            starts, _ = hits_of(layer, 0, [f"x{character}" for character in everything])
            assert np.diff(starts).tolist() == [compiled.search(f"x{c}") is not None for c in everything]


@pytest.mark.parametrize(
    ("regex", "is_made"),
    [
        ("[0-9]{1,3}(?:\\.[0-9]{1,3}){3}", True),
        ("(?i)echo.*clip.*&&.*(Clipboard|i`?n`?v`?o`?k`?e`?)", True),
        (r"a\b", False),
        ("(?m)^a", False),
        ("a(?i)b", False),
        ("é[éß]", True),
        ("[é-ß]", False),
        ("(?i)é", False),
        ("éßèàùòì", False),
        (".{300}x", False),
        ("(a|b)*a(a|b){14}", False),
        ("", False),
        ("a*", False),
        ("(?i:a)b", False),
    ],
)
def test_which_automata_are_made(regex: str, is_made: bool) -> None:
    assert (automaton_of(regex) is not None) is is_made


def test_letters_that_re2_takes_for_ascii_are_folded_to_it() -> None:
    for letter in "abcdefghijklmnopqrstuvwxyz":
        regex = compile_regex(f"(?i){letter}")
        for point in [*range(0xD800), *range(0xE000, 0x20000)]:
            if regex.search(chr(point)) is not None:
                assert fold(chr(point)) == letter


@pytest.mark.parametrize(
    ("regex", "texts", "shortest"),
    [
        ("(?i)power(shell|sploit)", ("powershell", "powersploit"), 10),
        ("[Rr][Uu]n+dll", ("ndll",), 6),
        ("a{3}b{2,}c?", ("aaabb",), 5),
        (".{200,}", (), 200),
        ("abc|[0-9]", (), 1),
        ("(abc|def)*ghi", ("ghi",), 3),
        ("(?i)\u017fab", ("ab",), 3),
        (r"\x41bcd", (), 0),
        ("(" * 200 + "a" + ")" * 200, (), 0),
        ("a\ufffd", (), 0),
    ],
)
def test_what_is_needed(regex: str, texts: tuple[str, ...], shortest: int) -> None:
    assert needs_of(regex) == (texts, shortest)


@pytest.mark.parametrize(
    ("regex", "text"),
    [
        ("error [0-9]+ on", "error "),
        ("x?ab*cd+e", "cd"),
        ("[]a[b]cde", None),
        (r"\d+ms(?:ec)?abc", "abc"),
        ("abc|def", None),
        ("(abc|def)gh", "gh"),
        ("(?i)abc", None),
        (r"\x41bcd", None),
        (r"\Qa\E", None),
        ("a{,3}bcd", None),
    ],
)
def test_literals(regex: str, text: str | None) -> None:
    literal = literal_of(regex)
    assert (literal and literal.text) == text


leaves = st.one_of(texts, st.none(), st.integers(0, 2), st.booleans())
values = st.one_of(leaves, st.lists(leaves, max_size=3), st.lists(st.lists(leaves, max_size=2), max_size=2))
inner = st.dictionaries(st.sampled_from(["b", "c", "b.c"]), values, max_size=2)
PATHS = ["a", "a.b", "a.b.c"]
trees = st.fixed_dictionaries(
    {}, optional={"a": st.one_of(values, inner, st.lists(inner, max_size=2)), "a.b": values, "a.b.c": values}
)


@settings(max_examples=2 * N_EXAMPLES)
@given(asked=st.lists(st.tuples(st.sampled_from(PATHS), conditions), min_size=1, max_size=8), tree=trees)
def test_every_way_in_gives_the_same(asked: list[tuple[str, tuple[str, str]]], tree: dict[str, Any]) -> None:
    predicates = [Predicate(path, op, operand) for path, (op, operand) in asked]
    engine = Engine()
    engine.add_many(enumerate(predicates))
    event = Event(tree)
    wanted = [i for i, predicate in enumerate(predicates) if matches(predicate, event)]
    assert sorted(engine.match(tree)) == wanted
    text = json.dumps(tree)
    assert sorted(engine.match(text)) == wanted
    found = engine.match_batch([text] * 3).to_pydict()
    assert sorted(zip(found["event"], found["subscription"], strict=True)) == [(e, i) for e in range(3) for i in wanted]
    engine._check()
    assert engine._state.clauses[0].is_exact.all()


whole_texts = st.one_of(st.text(alphabet="abKßé\n.", max_size=6), st.sampled_from(["10.0.0.7", "2001:db8::1"]))
cells = st.one_of(st.none(), whole_texts)
COLUMNS = {
    "a": (pa.string(), cells),
    "a.b": (pa.list_(pa.large_string()), st.one_of(st.none(), st.lists(cells, max_size=3))),
    "a.b.c": (pa.dictionary(pa.int32(), pa.string()), cells),
    "s": (pa.struct([("x", pa.string_view())]), st.one_of(st.none(), st.fixed_dictionaries({"x": cells}))),
    "m": (
        pa.map_(pa.string(), pa.string()),
        st.one_of(
            st.none(),
            st.dictionaries(st.sampled_from(["x", "y", "z"]), cells, max_size=3).map(lambda cell: list(cell.items())),
        ),
    ),
}
column_paths = st.sampled_from(["a", "a.b", "a.b.c", "s.x", "m.x", "m.y"])


@settings(max_examples=2 * N_EXAMPLES)
@given(asked=st.lists(st.tuples(column_paths, conditions), min_size=1, max_size=8), data=st.data())
def test_arrow_columns_give_the_same(asked: list[tuple[str, tuple[str, str]]], data: st.DataObject) -> None:
    n_rows = data.draw(st.integers(1, 5))
    columns: dict[str, Any] = {}
    for name, (type_, cell) in COLUMNS.items():
        drawn = data.draw(st.lists(cell, min_size=n_rows, max_size=n_rows))
        columns[name] = pa.array(drawn, type_)
    table = pa.table(columns)
    engine = Engine()
    engine.add_many(enumerate(Predicate(path, op, operand) for path, (op, operand) in asked))
    encoded = engine.encode(table)
    for position in range(n_rows):
        start, end = encoded.starts[position], encoded.starts[position + 1]
        tree = encoded.source.tree(position)
        _, attributes, codes = encode_dict(tree, engine._state.domains)
        pairs = zip(encoded.attributes[start:end].tolist(), encoded.codes[start:end].tolist(), strict=True)
        assert sorted(pairs) == sorted(zip(attributes.tolist(), codes.tolist(), strict=True))


WORDS = ["x", "any", "", "a", "abcd", "b.c"]
all_strings = st.one_of(
    st.builds(lambda pair: AnyString(*pair), conditions),
    st.builds(AnyString, st.sampled_from(["starts with", "contains", "="]), texts),
    st.builds(AnyString, st.sampled_from(["=", "contains", "ends with"]).map("{} ignoring case".format), texts),
    st.builds(AnyString, st.sampled_from(["in", "not in", "in ignoring case"]), st.lists(texts, max_size=3).map(tuple)),
    st.builds(AnyString, st.sampled_from(["!=", "<", "not contains", "not starts with", "not like"]), texts),
)
asked_of_all = st.builds(
    lambda test, wrap: wrap(test),
    all_strings,
    st.sampled_from([lambda t: t, Not, lambda t: Not(IsTrue(t)), lambda t: Not(IsTrue(Not(t)))]),
)
inner_trees = st.dictionaries(st.sampled_from(WORDS), values, max_size=3)
wide_trees = st.dictionaries(
    st.sampled_from([*WORDS, *PATHS]), st.one_of(values, inner_trees, st.lists(inner_trees, max_size=2)), max_size=4
)


@settings(max_examples=2 * N_EXAMPLES)
@given(
    asked=st.lists(asked_of_all, min_size=1, max_size=5),
    plain=st.lists(st.tuples(st.sampled_from(PATHS), conditions), max_size=3),
    trees=st.lists(wide_trees, min_size=1, max_size=3),
)
def test_all_strings_are_searched_every_way_in(
    asked: list[Expression], plain: list[tuple[str, tuple[str, str]]], trees: list[dict[str, Any]]
) -> None:
    expressions = [*asked, *(Predicate(path, op, operand) for path, (op, operand) in plain)]
    expressions += [AnyElement("a", each) for each in asked[:1]]
    engine = Engine()
    engine.add_many(enumerate(expressions))
    wanted = [[i for i, each in enumerate(expressions) if matches(each, Event(tree))] for tree in trees]
    lines = [json.dumps(tree) for tree in trees]
    for tree, line, expected in zip(trees, lines, wanted, strict=True):
        assert sorted(engine.match(tree)) == expected
        assert sorted(engine.match(line)) == expected
    pairs = [(i, j) for i, expected in enumerate(wanted) for j in expected]
    for batch in (trees, lines):
        found = engine.match_batch(batch).to_pydict()
        assert sorted(zip(found["event"], found["subscription"], strict=True)) == pairs
    engine._check()


@pytest.mark.parametrize(
    "text",
    [
        "any string contains 'x'",
        "(any string contains 'x') is not true",
        "not any string ends with 'x'",
        "any string in ('x', 'y') or any string = 'z'",
        "any string matches 'x+y' and any string like '%x_y'",
        "any string in ('x', 'y') ignoring case and any string starts with 'a'",
        "any string cidr '10.0.0.0/8'",
        "(any string cidr '10.0.0.0/8') is not true",
    ],
)
def test_the_index_decides_tests_of_all_strings(text: str) -> None:
    engine = Engine()
    engine.add(text, id=1)
    assert engine._state.clauses[0].is_exact.all()
    assert engine._state.table.n_slots == 1
    copy = pickle.loads(pickle.dumps(engine))
    for tree in ({}, {"b": "xxy"}, {"b": ["X", {"c": "aX_y"}]}, {"b": 5}, {"b": "10.0.0.1"}, {"b": "z"}):
        expected = [1] if matches(parse(text), Event(tree)) else []
        assert engine.match(tree) == copy.match(tree) == engine.match(json.dumps(tree)) == expected


def test_repeated_keys_count_where_all_strings_are_searched() -> None:
    engine = Engine()
    engine.add("any string contains 'x'", id=1)
    engine.add("any string contains 'y'", id=2)
    assert engine.match('{"unknown": "x", "unknown": "y"}') == [2]
    assert engine.match('{"u": {"v": "x"}, "u": 1}') == []
    assert engine.match_batch(['{"u": {"v": "x"}, "u": "y"}', '{"u": ["x", "y"]}']).to_pydict() == {
        "event": [0, 1, 1],
        "subscription": [2, 1, 2],
    }


def test_tests_of_all_strings_come_and_go(tmp_path: Path) -> None:
    engine = Engine()
    engine.add("a contains 'x'", id=1)
    engine.add("any string contains 'x' and b = 1", id=2)
    engine.add("not any string ends with 'q'", id=3)
    tree = {"c": "xq", "b": 1}
    assert sorted(engine.match(tree)) == [2]
    engine.save(tmp_path / "engine")
    other = Engine.open(tmp_path / "engine")
    assert sorted(other.match(tree)) == sorted(other.match(json.dumps(tree))) == [2]
    for each in (engine, other):
        each.remove(2)
        each._updates.sweep_all()
        each._check()
        assert sorted(each.match({"c": "x", "b": 1})) == [3]
        each.remove(3)
        each._updates.sweep_all()
        each._check()
        assert not each._state.domains.takes_all_strings
        assert each.match(json.dumps({"c": "x", "b": 1, "a": "xq"})) == [1]


def test_shares_of_patterns_that_any_string_may_satisfy() -> None:
    statistics = Statistics.from_events({"a": f"x{n}", "b": "y" if n % 2 else 5} for n in range(100))
    texts = ["any string contains 'x'", "any string = 'y'", "any string contains 'nowhere'", "any string ends with '7'"]
    covers = [cover(parse(text)) for text in texts]
    domains = Domains()
    domains.add(constants_of(covers))
    clauses = encode_covers(covers, 0, domains)
    # The one value that a pattern attribute has counts as one and a half of two samples.
    often, half, never, seldom = (literal_shares(clauses, domains, statistics) / 0.75).tolist()
    assert often == 1.0
    assert 0.3 < half < 0.7
    assert never < 0.02 < seldom < 0.3


@settings(max_examples=N_EXAMPLES)
@given(asked=st.lists(all_strings, min_size=1, max_size=5), paths=st.lists(column_paths, max_size=2), data=st.data())
def test_all_strings_of_arrow_columns(asked: list[AnyString], paths: list[str], data: st.DataObject) -> None:
    n_rows = data.draw(st.integers(1, 5))
    days = st.one_of(st.none(), st.sampled_from([0, 31, -(10**6), 10**6 * 3]))
    columns: dict[str, Any] = {}
    for name, (type_, cell) in {**COLUMNS, "day": (pa.date32(), days), "n": (pa.int64(), st.integers(0, 2))}.items():
        columns[name] = pa.array(data.draw(st.lists(cell, min_size=n_rows, max_size=n_rows)), type_)
    table = pa.table(columns)
    engine = Engine()
    engine.add_many(enumerate([*asked, *(Predicate(path, "contains", "b") for path in paths)]))
    encoded = engine.encode(table)
    found = engine.match_batch(table).to_pydict()
    pairs = sorted(zip(found["event"], found["subscription"], strict=True))
    trees = [encoded.source.tree(position) for position in range(n_rows)]
    events = [Event(tree) for tree in trees]
    expected = [(i, j) for i, event in enumerate(events) for j, each in enumerate(asked) if evaluate(each, event)]
    assert [pair for pair in pairs if pair[1] < len(asked)] == expected


def test_nulls_in_a_dictionary_satisfy_nothing() -> None:
    engine = Engine()
    engine.add("a contains ''", id=1)
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["x", None]))
    assert engine.match_batch(pa.table({"a": array}))["event"].to_pylist() == [0]


def test_text_that_is_not_utf8_is_read_as_the_exact_check_reads_it() -> None:
    engine = Engine()
    engine.add("a contains '\ufffd'", id=1)
    engine.add("a ends with 'b'", id=2)
    array = pa.array([b"a\xffb"], pa.binary()).view(pa.string())
    assert engine.match_batch(pa.table({"a": array}))["subscription"].to_pylist() == [1, 2]


def test_dates_are_strings() -> None:
    engine = Engine()
    engine.add("day like '%-02-%'", id=1)
    days = pa.array([31, 0, None], pa.date32())
    assert engine.match_batch(pa.table({"day": days}))["event"].to_pylist() == [0]
    assert engine.match({"day": days[0].as_py()}) == [1]


def test_no_key_of_an_event_is_a_pattern_attribute() -> None:
    engine = Engine()
    engine.add("a contains 'x'", id=1)
    (attribute,) = engine._state.domains.pattern_attributes
    name = engine._state.domains.names[attribute]
    assert name == "a contains 'x'"
    for event in ({name: True}, {name: "x"}, json.dumps({name: True})):
        assert engine.match(event) == []
    assert engine.match_batch(pa.table({name: [True]})).num_rows == 0
    engine.add(Predicate(name, "=", True), id=2)
    assert engine.match({name: True}) == [2]
    assert sorted(engine.match(json.dumps({name: True, "a": "x"}))) == [1, 2]
    engine._check()


def test_events_encoded_before_a_new_pattern_are_encoded_again() -> None:
    engine = Engine()
    engine.add("a contains 'x'", id=1)
    event = engine.encode({"a": "xy"})
    engine.add("a ends with 'y'", id=2)
    assert sorted(engine.match(event)) == [1, 2]
    version = engine._state.domains.version
    engine.add("a ends with 'y' and b = 1", id=3)
    assert engine._state.domains.version == version + 2  # `b` and its constant, but no new pattern


def test_patterns_added_one_by_one_are_merged_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    n_built = 0

    class Counted(Layer):
        __slots__ = ()

        def __init__(self, entries: Any) -> None:
            nonlocal n_built
            n_built += len(entries)
            super().__init__(entries)

    monkeypatch.setattr(module, "Layer", Counted)
    domains = Domains()
    domains.add({"a": ()})
    for n in range(1_000):
        domains.pattern_attribute(Pattern(0, "contains", f"{n:03}"))
        found = found_in(matcher_of(domains), "--007--")
        assert found == ({8} if n >= 7 else set())
    assert n_built < 1_000 * (64 + 10)
    assert len(matcher_of(domains).layers) < 10


def test_large_layers_are_merged_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 600)
    monkeypatch.setattr("siftline.engine.updates.PATTERNS_LEFT_TO_EVENT_MAX", 64)
    built: list[tuple[str, int]] = []

    class Counted(Layer):
        __slots__ = ()

        def __init__(self, entries: Any) -> None:
            built.append((threading.current_thread().name, len(entries)))
            super().__init__(entries)

    monkeypatch.setattr(module, "Layer", Counted)
    engine = Engine()
    for n in range(6_000):
        engine.add(f"a contains '{n:04}'", id=n)
        if n % 10 == 0 and n < 3_000:
            assert engine.match({"a": "--0007--"}) == ([7] if n >= 7 else [])
        while n % 400 == 0 and engine._state.compactor._thread is not None:
            time.sleep(0.001)  # a background thread that gets no processor leaves the work to the next event
    assert engine.match({"a": "--0007--5999"}) == [7, 5999]
    at_once = [n for name, n in built if name == "MainThread"]
    engine.settle()
    engine._check()
    assert sorted(engine.match({"a": "00075999"})) == [7, 75, 759, 5999]
    # 512 come between two looks at them.
    assert max(at_once) <= 600
    assert max(n for name, n in built if name == "siftline-compaction") > 1024
    sizes = [len(layer.entries) for layer in matcher_of(engine._state.domains).layers]
    assert sum(sizes) == 6_000
    assert len(sizes) < 12


def test_a_layer_that_was_merged_meanwhile_is_not_put_back() -> None:
    domains = Domains()
    domains.add({"a": ()})
    matcher = matcher_of(domains)
    for text in "xy":
        domains.pattern_attribute(Pattern(0, "contains", text))
        matcher = matcher_of(domains)
    layers = matcher.layers
    other = Layer([(1, Pattern(0, "contains", "x"))])
    assert matcher.merged([*layers, other], other) is matcher
    assert found_in(matcher.merged(layers, other), "xy") == {1}


def test_a_copy_of_domains_goes_its_own_way() -> None:
    domains = Domains()
    domains.add({"a": ()})
    domains.pattern_attribute(Pattern(0, "contains", "x"))
    before = matcher_of(domains)
    other = domains.copied()
    other.pattern_attribute(Pattern(0, "contains", "y"))
    other.check()
    assert found_in(matcher_of(other), "xy") == {1, 2}
    assert matcher_of(domains) is before
    assert found_in(before, "xy") == {1}


def test_a_snapshot_and_a_pickle_keep_patterns(tmp_path: Path) -> None:
    engine = Engine()
    rows = ["a contains 'x'", "b = 1", "not (b ends with '\ud800') and c matches '^[0-9]+$'", "a.b ilike 'ß%'"]
    engine.add_many(enumerate(map(parse, rows)))
    engine.save(tmp_path / "saved")
    events = [{"a": "xx"}, {"b": "\ud800", "c": "1"}, {"b": ["x"], "c": ["1", "a"]}, {"a": {"b": "ẞx"}}]
    for other in (Engine.open(tmp_path / "saved"), pickle.loads(pickle.dumps(engine))):
        other._check()
        assert [other.match(event) for event in events] == [engine.match(event) for event in events]
        other.add("a contains 'y'", id=9)
        assert sorted(other.match({"a": "xy"})) == [0, 9]


def test_sets_that_run_out_of_memory_are_tried_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SET_BYTES", 1)
    regexes = [(1, "a|b"), (2, "[xy]+z?"), (3, "")]
    layer = Layer([(number, Pattern(0, "matches", regex)) for number, regex in regexes])
    assert found_in(layer, "a") == {1, 3}
    assert found_in(layer, "\ud800y") == {2, 3}


def test_a_set_that_does_not_report_its_witness_is_not_believed() -> None:
    regexes = module._Regexes([(1, "a|b")])
    regexes._set = re2.Set.SearchSet()
    regexes._set.Add("never")
    regexes._set.Compile()
    assert regexes.found(b"b") == [1]


def test_many_regular_expressions_need_several_sets() -> None:
    asked = [("matches", f"[{chr(97 + n % 26)}]{n % 10}") for n in range(200)]
    layer = Layer([(n, Pattern(0, op, operand)) for n, (op, operand) in enumerate(asked)])
    for text in ("a0 b1 c2", "z9", ""):
        assert found_in(layer, text) == expected(asked, {"a": text})


def test_columns_of_subscriptions_give_pattern_attributes() -> None:
    table = pa.table(
        {
            "subscription": [1, 1, 2, 3],
            "clause": pa.array([0, 0, 0, 0], pa.int32()),
            "attribute": ["a", "b", "a", "a"],
            "op": ["contains", "=", "not contains", "like"],
            "number": [None, 1.0, None, None],
            "text": ["x", None, "x", "p%q"],
        }
    )
    engine = Engine()
    engine.add_many(table)
    engine._check()
    assert engine._state.clauses[0].is_exact.tolist() == [True, False, True]
    assert sorted(engine.match({"a": "x", "b": 1})) == [1]
    assert sorted(engine.match({"a": ["x", "pq"], "b": 1})) == [1, 2, 3]


def test_statistics_are_tried_with_the_patterns() -> None:
    statistics = Statistics.from_events({"a": f"{n:03}"} if n % 2 else {} for n in range(1_000))
    covers = [cover(parse(text)) for text in ("a contains '9'", "a ends with '0'", "a matches '[0-9]'", "a = '001'")]
    domains = Domains()
    domains.add(constants_of(covers))
    clauses = encode_covers(covers, 0, domains)
    nine, nought, digit, equal = literal_shares(clauses, domains, statistics).tolist()
    assert nought < equal < nine < digit <= 0.5
    few, *_ = literal_shares(clauses, domains, None).tolist()
    assert few == 0.25


def test_an_event_without_strings_has_no_pattern_attributes() -> None:
    domains = Domains()
    domains.add({"a": ()})
    domains.pattern_attribute(Pattern(0, "contains", ""))
    attributes: list[int] = []
    codes: list[int] = []
    append_patterns({"a": [1, None, True, {"b": "x"}], "b": "x"}, domains, attributes, codes)
    assert attributes == codes == []


def test_a_long_string_does_not_keep_its_memory() -> None:
    layer = Layer([(1, Pattern(0, "contains", "needle")), (2, Pattern(0, "ilike", "%NEEDLE%"))])
    assert found_in(layer, "x" * 3_000_000 + "needle") == {1, 2}
    assert len(module._workspace()._scratch.text) <= module._KEPT_TEXT_BYTES
    assert found_in(layer, "a Needle") == {2}
