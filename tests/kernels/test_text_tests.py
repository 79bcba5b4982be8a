"""Tests of strings by strings give what Python gives, for parts of a buffer between other text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from siftline.kernels.text_tests import (
    GRAM_SET_BITS,
    LARGE_SET_BITS,
    clear_grams,
    compare_texts,
    contains,
    count_characters,
    enter_grams,
    has_screen,
    may_contain,
    screen_of,
    set_words,
    stands_at,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

texts = st.text(alphabet="abé\U0001f600", max_size=40).map(lambda text: text.encode())
around = st.binary(max_size=12)


def in_buffer(before: bytes, text: bytes, behind: bytes) -> tuple[NDArray[np.uint8], int, int]:
    buffer = np.frombuffer(bytearray(before + text + behind), dtype=np.uint8)
    return buffer, len(before), len(before) + len(text)


@given(texts, texts, around, around, st.integers(0, 40), st.integers(0, 40))
def test_like_python(text: bytes, other: bytes, before: bytes, behind: bytes, first: int, size: int) -> None:
    with np.errstate(over="ignore"):
        here = in_buffer(before, text, behind)
        for part in (other, text[first : first + size], text[first:] + behind[:3], before[-2:] + text[:3]):
            there = in_buffer(behind, part, before)
            assert contains(*here, *there) == (part in text)
            assert compare_texts(*here, *there) == (text > part) - (text < part)
            if len(part) <= len(text):
                assert stands_at(here[0], here[1], *there) == text.startswith(part)
        assert count_characters(*here) == len(text.decode())


@given(texts, texts, around, st.integers(0, 40), st.integers(0, 40))
def test_grams_rule_out_only_what_is_not_there(text: bytes, other: bytes, before: bytes, first: int, size: int) -> None:
    with np.errstate(over="ignore"):
        small = np.full(2 * set_words(GRAM_SET_BITS), -1, dtype=np.int64).view(np.uint64)
        large = np.zeros(set_words(LARGE_SET_BITS), dtype=np.uint64)
        here = in_buffer(before, text, b"")
        start = set_words(GRAM_SET_BITS)
        clear_grams(small, start, GRAM_SET_BITS)
        enter_grams(*here, small, start, GRAM_SET_BITS)
        enter_grams(*here, large, 0, LARGE_SET_BITS)
        for part in (other, text[first : first + size]):
            there = in_buffer(b"", part, before)
            screen = screen_of(part, is_folded=False)
            assert (screen == 0) == (len(part) < 3)
            if part in text:
                assert may_contain(small, start, GRAM_SET_BITS, *there)
                assert screen == 0 or has_screen(large, 0, np.uint64(screen))
        assert not may_contain(small, start, GRAM_SET_BITS, *in_buffer(b"", b"xyz", b""))
        assert not has_screen(large, 0, np.uint64(screen_of(b"xyz", is_folded=True)))
