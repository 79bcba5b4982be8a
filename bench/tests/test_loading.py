"""A table is loaded once, and several engines take it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import siftline
from siftline import Engine
from siftline.encoding.columns import load_columns
from siftline.encoding.domains import Domains
from siftline.indexes.registry import PAGED, make_index
from siftline_bench.loading import add_loaded


@pytest.mark.parametrize("index", [name for name in siftline.indexes() if name not in PAGED])
def test_several_engines_take_what_was_loaded_once(index: str) -> None:
    columns = {"subscription": [1, 2, 3], "attribute": ["a"] * 3, "op": ["<=", "<=", "contains"]}
    table = pa.table({**columns, "number": [5, 7, None], "text": [None, None, "x"]})
    loaded = load_columns(table, Domains(), takes_patterns=make_index(index, {}).takes_patterns)
    names = list(loaded.domains.names)
    one, other = Engine(index), Engine(index)
    assert (add_loaded(one, loaded), add_loaded(other, loaded)) == (3, 3)
    one.add("a >= 2.5 and b = 'x'", id=4)
    one.remove(2)
    other.add("a = 6", id=5)
    third = Engine(index)
    add_loaded(third, loaded)
    assert sorted(one.match({"a": 4, "b": "x"})) == [1, 4]
    assert sorted(other.match({"a": 6, "b": "x"})) == [2, 5]
    assert sorted(third.match({"a": 4, "b": "x"})) == [1, 2]
    assert one.match({"a": "axe"}) == third.match({"a": "axe"}) == [3]
    assert loaded.domains.names == names
    for each in (one, other, third):
        each._check()
    assert one.stats()["laid_out_s"] > 0
    with pytest.raises(ValueError, match="new engine"):
        add_loaded(other, loaded)
