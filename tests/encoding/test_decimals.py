"""A price is the same price in a condition, a builder, a dict, JSON and a column."""

from __future__ import annotations

import decimal
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siftline import Engine
from siftline.language.builder import attr
from siftline.language.text import parse

PRICES = ["19.99", "0.10", "0.07", "1234567.89", "20.00", "9007199254740993.00", "99999999999999999999.99"]
prices = st.sampled_from(PRICES) | st.decimals(min_value=-(10**20), max_value=10**20, places=2).map(str)


@given(st.lists(prices, min_size=1, max_size=8, unique_by=float))
def test_a_price_is_equal_to_itself_however_it_is_written(texts: list[str]) -> None:
    decimals = [decimal.Decimal(text) for text in texts]
    engine = Engine()
    for i, (text, value) in enumerate(zip(texts, decimals, strict=True)):
        built = attr("price") == value
        assert built == parse(f"price = {text}")
        engine.add(built, id=i)
    expected = [[i] for i in range(len(texts))]
    assert [engine.match({"price": value}) for value in decimals] == expected
    assert [engine.match(f'{{"price": {text}}}') for text in texts] == expected
    column = pa.array(decimals, pa.decimal128(38, 2))
    lines = "\n".join(f'{{"price": {text}}}' for text in texts).encode()
    for batch in (pa.table({"price": column}), [{"price": value} for value in decimals], lines):
        found = engine.match_batch(batch)
        assert found["event"].to_pylist() == found["subscription"].to_pylist() == [*range(len(texts))]


@pytest.mark.parametrize("text", ["1E2", "100", "100.0", "1E+2"])
def test_exponents_are_read_as_in_json(text: str) -> None:
    engine = Engine()
    engine.add("n = 100", id=1)
    assert engine.match({"n": decimal.Decimal(text)}) == [1]
    assert engine.match(f'{{"n": {text}}}') == [1]
    assert json.loads(text) == 100
