"""Clauses as arrays: alternatives and patterns."""

from __future__ import annotations

import numpy as np

from siftline import parse
from siftline.encoding.clauses import Clauses, constants_of, encode_covers, select, swept
from siftline.encoding.domains import Domains, Pattern
from siftline.language.normal_form import cover, cover_with_alternatives


def encoded(*texts: str, alternatives: bool = False) -> tuple[Clauses, Domains]:
    covering = cover_with_alternatives if alternatives else cover
    covers = [covering(parse(text)) for text in texts]
    domains = Domains()
    domains.add(constants_of(covers))
    clauses = encode_covers(covers, 0, domains)
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
    clauses, domains = encoded("a contains 'x' and b = 1", "a contains 'x'", "a like 'p%' and a like '%p'")
    assert domains.patterns == [Pattern(0, "contains", "x"), Pattern(0, "starts with", "p"), Pattern(0, "like", "%p")]
    assert clauses.patterns.tolist() == [0, -1, 0, 1, 2]
    assert clauses.is_exact.tolist() == [False, False, False]
    assert clauses.is_exact_by_patterns.tolist() == [True, True, True]


def test_negative_forms_name_no_pattern() -> None:
    clauses, domains = encoded("a not contains 'x'", "not (a contains 'x')", "a starts with 'x'")
    assert domains.patterns == [Pattern(0, "starts with", "x")]
    assert clauses.is_exact.tolist() == [False, False, True]
    assert clauses.is_exact_by_patterns.tolist() == [False, False, True]


def test_sweeping_drops_patterns() -> None:
    clauses, domains = encoded("a contains 'x'", "b ends with 'y'")
    kept_domains, kept = swept(domains, select(clauses, np.array([-1, 0], dtype=np.int32)))
    assert kept_domains.patterns == [Pattern(0, "ends with", "y")]
    assert kept_domains.names == ["b"]
    assert kept.patterns.tolist() == [0]
