"""Domains: codes keep the order of values, and encoded predicates follow labels that move."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import NUMBERS, TEXTS, leaves

from siftline.encoding import domain as codes
from siftline.encoding.domain import NUMBERS as NUMBER_SECTION
from siftline.encoding.domain import Line, after_prefix
from siftline.encoding.domains import Domains
from siftline.encoding.events import DictSource
from siftline.kernels import arrange, locate, selectivity
from siftline.model import Event

constants = st.lists(st.one_of(st.integers(-50, 50), st.floats(-5, 5)), max_size=30)


@given(batches=st.lists(constants, max_size=8), values=constants)
def test_codes_are_in_the_order_of_values(batches: list[list[Any]], values: list[Any]) -> None:
    line = Line(NUMBER_SECTION)
    for batch in batches:
        labels = dict(zip(line.keys, line.labels, strict=True))
        is_roomy = line.has_room(batch)
        relabelling = line.insert(batch)
        line.check()
        now = dict(zip(line.keys, line.labels, strict=True))
        if relabelling is None:
            assert all(now[key] == label for key, label in labels.items())
        else:
            assert not is_roomy
            assert [now[key] for key in labels] == relabelling[1]
    for a in values:
        for key, label in zip(line.keys, line.labels, strict=True):
            assert (line.code(a) < label) is (a < key)
            assert (line.code(a) == label) is (a == key)


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


def test_prefixes_end_before_the_next_string() -> None:
    for prefix in ("a", "ab", "a\U0010ffff", "\ud7ff"):
        end = after_prefix(prefix)
        assert end is not None
        assert prefix < prefix + "\U0010ffff" * 3 < end
    assert after_prefix("\U0010ffff") is None


def test_kernels_know_the_same_sections() -> None:
    # Kernels are below the encoding and cannot import these.
    assert locate._NULL == arrange._NULL == codes.NULL
    assert locate._FIRST_NUMBER == arrange._FIRST_NUMBER == codes.FIRST_NUMBER
    assert locate._FIRST_STRING == selectivity._FIRST_STRING == codes.FIRST_STRING
    assert np.iinfo(np.int32).max > codes.LAST_STRING
