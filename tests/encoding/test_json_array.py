"""Arrays split into their elements, as Python's parser sees them."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from siftline.encoding.json_array import array_elements
from siftline.errors import EventError, LimitError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.text('"\\[]{},: \n', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\[]{},', max_size=3), inner, max_size=4),
    max_leaves=12,
)
SEPARATORS = st.tuples(st.sampled_from([",", ", ", " ,\n\t"]), st.sampled_from([":", " : "]))


@given(values=st.lists(VALUES, max_size=8), separators=SEPARATORS, is_ascii=st.booleans())
@example(values=["\\"], separators=(",", ":"), is_ascii=True)
def test_elements_are_those_of_python(values: list[Any], separators: tuple[str, str], is_ascii: bool) -> None:
    text = json.dumps(values, separators=separators, ensure_ascii=is_ascii).encode()
    found = array_elements(b" \r\n" + text + b"\t", most=8)
    assert [json.loads(each) for each in found] == values
    assert all(each.strip() == each for each in found)


@given(text=st.text('[]{},"\\ 1', max_size=12))
def test_what_is_no_array_is_refused_here_or_by_who_parses(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    try:
        found: Any = [json.loads(each) for each in array_elements(text.encode(), most=12)]
    except (EventError, ValueError):
        found = None
    assert found == (expected if isinstance(expected, list) else None)


@pytest.mark.parametrize("text", [b"", b" ", b"{}", b"[", b"[1", b'["', b'["\\', b"[1,]", b"[,1]", b"[1] 2", b"[1}"])
def test_errors_say_where(text: bytes) -> None:
    with pytest.raises(EventError, match=r"not a JSON array: .* at byte \d+"):
        array_elements(text, most=5)


def test_as_many_as_may_be() -> None:
    assert array_elements(b"[]", most=0) == []
    assert len(array_elements(b"[" + b",".join([b"{}"] * 100) + b"]", most=100)) == 100
    with pytest.raises(LimitError, match="more than 99 "):
        array_elements(b"[" + b",".join([b"{}"] * 100) + b"]", most=99)
