"""Likelihoods put literals in the right order, whatever the statistics hold; results never depend on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import NOW, events, large_disjunctions, predicates, subscriptions

from siftline import Engine, Statistics
from siftline.encoding.likelihoods import Likelihoods
from siftline.language.likelihood import NOT_WORTH_FINDING
from siftline.language.text import parse

if TYPE_CHECKING:
    from siftline.model import Expression

FORMS = Likelihoods(None)


@given(leaf=predicates, trees=st.lists(events, max_size=5))
def test_every_leaf_has_a_likelihood(leaf: Expression, trees: list[dict[str, Any]]) -> None:
    for likelihood in (FORMS, Likelihoods(Statistics.from_events(trees))):
        assert 0 <= likelihood(leaf) <= NOT_WORTH_FINDING


@pytest.mark.parametrize(
    "texts",
    [
        ["a = 1", "a in (1, 2, 3)", "a between 1 and 2", "a != 1"],
        ["a contains 'powershell'", "a contains 'cmd'", "a contains 'a'", "a contains ''"],
        ["a = 'x' ignoring case", "a in ('x', 'y') ignoring case", "a contains 'x' ignoring case", "a is not null"],
        ["a matches '(?:x|y)powershell'", "a matches '(?:x|y)'"],
    ],
)
def test_forms_are_ordered(texts: list[str]) -> None:
    found = [FORMS(parse(text)) for text in texts]
    assert found == sorted(found)


def test_samples_know_better() -> None:
    trees = [{"path": rf"C:\Windows\system32\{name}.exe", "n": n} for n, name in enumerate("abcdefghij")]
    likelihood = Likelihoods(Statistics.from_events(trees * 10))
    common, rare = r"path contains '\WINDOWS\System32' ignoring case", "path contains 'z'"
    assert FORMS(parse(common)) < FORMS(parse(rare))
    assert likelihood(parse(rare)) < likelihood(parse(common))
    assert likelihood(parse("n < 2")) < likelihood(parse("n < 9"))
    assert likelihood(parse("path starts with 'D'")) < likelihood(parse("path starts with 'C'"))
    assert likelihood(parse("path ends with 'a.exe'")) < likelihood(parse("path ends with '.exe'"))


def test_rare_attributes_are_preferred() -> None:
    trees = ({"often": n, **({} if n % 10 else {"rarely": n})} for n in range(1000))
    likelihood = Likelihoods(Statistics.from_events(trees))
    assert likelihood(parse("rarely contains 'abc'")) < likelihood(parse("often contains 'abc'"))


def test_long_values_are_sampled_in_part() -> None:
    likelihood = Likelihoods(Statistics.from_events({"text": "x" * 100_000 + str(n)} for n in range(3)))
    assert likelihood(parse("text contains 'xxx'")) > likelihood(parse("text contains 'yyy'"))


@settings(max_examples=max(1, N_EXAMPLES // 2))
@given(
    expressions=st.lists(large_disjunctions | subscriptions, min_size=1, max_size=5),
    trees=st.lists(events, min_size=1, max_size=4),
)
def test_ids_do_not_depend_on_statistics(expressions: list[Expression], trees: list[dict[str, Any]]) -> None:
    oracle, engine = Engine("scan"), Engine(statistics=Statistics.from_events(trees))
    for each in (oracle, engine):
        each.add_many(enumerate(expressions))
    for tree in trees:
        assert sorted(engine.match(tree, now=NOW)) == sorted(oracle.match(tree, now=NOW))
    engine._check()
