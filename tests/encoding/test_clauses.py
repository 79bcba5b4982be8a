"""Clauses as arrays: alternatives and patterns."""

from __future__ import annotations

import numpy as np

from siftline import parse
from siftline.encoding.clauses import VETO, Clauses, constants_of, encode_covers, select, swept
from siftline.encoding.domains import Domains, Pattern
from siftline.language.normal_form import cover, cover_with_alternatives


def encoded(*texts: str, alternatives: bool = False, takes_patterns: bool = False) -> tuple[Clauses, Domains]:
    covering = cover_with_alternatives if alternatives else cover
    covers = [covering(parse(text)) for text in texts]
    domains = Domains()
    domains.add(constants_of(covers))
    clauses = encode_covers(covers, 0, domains, takes_patterns=takes_patterns)
    clauses.check()
    domains.check()
    return clauses, domains


def test_alternatives_follow_each_other() -> None:
    clauses, _ = encoded("(a = 1 or b = 2 or c = 3) and (d = 4 or e = 5)", alternatives=True)
    assert clauses.is_alternative.tolist() == [False, True, True, False, True]
    assert clauses.is_exact.tolist() == [True]


def test_a_negation_among_alternatives_is_not_exact() -> None:
    # On arrays, "comparable and no element equal" is more than one literal can say.
    clauses, _ = encoded("(not a = 1 or b = 2 or c = 3) and (d = 4 or e = 5)", alternatives=True)
    assert clauses.is_exact.tolist() == [False]


def test_patterns_are_kept_once() -> None:
    texts = ("a contains 'x' and b = 1", "a contains 'x'", "a like 'p%' and a like '%p'")
    clauses, domains = encoded(*texts, takes_patterns=True)
    assert domains.patterns == [Pattern(0, "contains", "x"), Pattern(0, "starts with", "p"), Pattern(0, "like", "%p")]
    assert clauses.patterns.tolist() == [0, -1, 0, 1, 2]
    assert clauses.is_exact.tolist() == [False, False, False]
    assert clauses.is_exact_by_patterns.tolist() == [True, True, True]


def test_negative_forms_name_no_pattern() -> None:
    texts = ("a not contains 'x'", "not (a contains 'x')", "a starts with 'x'")
    clauses, domains = encoded(*texts, takes_patterns=True)
    assert domains.patterns == [Pattern(0, "starts with", "x")]
    assert clauses.is_exact.tolist() == [False, False, True]
    assert clauses.is_exact_by_patterns.tolist() == [False, False, True]


def test_sweeping_drops_patterns() -> None:
    clauses, domains = encoded("a contains 'x'", "b ends with 'y'", takes_patterns=True)
    kept_domains, kept = swept(domains, select(clauses, np.array([-1, 0], dtype=np.int32)))
    assert kept_domains.patterns == [Pattern(0, "ends with", "y")]
    assert kept_domains.names == ["b"]
    assert kept.patterns.tolist() == [0]


def test_a_pattern_has_an_attribute_of_its_own() -> None:
    clauses, domains = encoded("a contains 'x' and b = 1", "a contains 'x'", "a like 'p%' and a like '%p'")
    assert domains.patterns == []
    assert domains.ids == {"a": 0, "b": 1}
    assert domains.pattern_attributes == {2: Pattern(0, "contains", "x"), 3: Pattern(0, "like", "%p")}
    assert clauses.attributes.tolist() == [2, 1, 2, 0, 3]
    assert clauses.patterns.tolist() == [-1] * 5
    assert clauses.is_exact.all()


def test_negations_of_patterns_are_exact() -> None:
    clauses, domains = encoded("not (a contains 'x')", "not ((a contains 'x') is true)", "not (a cidr '10.0.0.0/8')")
    assert clauses.attributes.tolist() == [0, 1, 1, 0, 2]
    assert (clauses.kinds >= VETO).tolist() == [False, True, True, False, True]
    assert clauses.is_exact.tolist() == [True, True, False]
    assert list(domains.pattern_attributes.values()) == [Pattern(0, "contains", "x"), Pattern(0, "cidr", "10.0.0.0/8")]


def test_a_negated_pattern_among_alternatives_asks_for_a_string() -> None:
    text = "(not (a contains 'x') or b = 2 or c = 3) and (d = 4 or e = 5)"
    clauses, _ = encoded(text, alternatives=True)
    assert clauses.attributes.tolist() == [0, 1, 2, 3, 4]
    assert clauses.is_exact.tolist() == [False]


def test_sweeping_keeps_what_pattern_attributes_look_at() -> None:
    clauses, domains = encoded("a contains 'x'", "b ends with 'y'", "c = 1")
    kept_domains, kept = swept(domains, select(clauses, np.array([-1, 0, 1], dtype=np.int32)))
    kept_domains.check()
    assert kept_domains.ids == {"b": 0, "c": 1}
    assert kept_domains.pattern_attributes == {2: Pattern(0, "ends with", "y")}
    assert kept.attributes.tolist() == [2, 1]
