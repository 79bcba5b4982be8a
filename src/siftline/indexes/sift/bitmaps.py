"""Bitmaps of 1,024 events, 16 words each, and the operations on whole bitmaps.

Numba generates no vector instructions for a loop over 16 words, because it cannot know that the arrays do not overlap,
and scalar code takes three times as long. So these operations are written as LLVM vectors, and in NumPy for
interpreted kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic

from siftline.indexes.sift.vectors import first_bit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

WORDS = 16
EVENTS = 64 * WORDS

_LINE = 64  # bytes of a cache line; a bitmap that starts on a line does not cross one more


def empty_bitmaps(n: int) -> NDArray[np.uint64]:
    """Return n bitmaps without any bits, each at the start of a cache line."""
    words = np.zeros(n * WORDS + _LINE // 8, dtype=np.uint64)
    first = -words.ctypes.data % _LINE // 8
    return words[first : first + n * WORDS].reshape(n, WORDS)


class _Vectors:
    """The bitmaps in the arguments of an intrinsic: arrays of bitmaps, and numbers of rows in them."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.context, self.builder, self.signature, self.arguments = context, builder, signature, arguments
        self.word = ir.IntType(64)
        self.type = ir.VectorType(self.word, WORDS)
        self.zero = ir.Constant(self.type, [0] * WORDS)
        self.n_words = ir.Constant(self.word, WORDS)

    def _address(self, place: int, row: int) -> Any:
        array = self.context.make_array(self.signature.args[place])(self.context, self.builder, self.arguments[place])
        first = self.builder.gep(array.data, [self.builder.mul(self.arguments[row], self.n_words)])
        return self.builder.bitcast(first, self.type.as_pointer())

    def load(self, place: int, row: int) -> Any:
        """Return a bitmap: `place` is the argument with the array, `row` the argument with its number there."""
        return self.builder.load(self._address(place, row), align=8)

    def first(self, place: int) -> Any:
        """Return the only bitmap of an array."""
        array = self.context.make_array(self.signature.args[place])(self.context, self.builder, self.arguments[place])
        return self.builder.load(self.builder.bitcast(array.data, self.type.as_pointer()), align=8)

    def between(self, place: int, low: int, high: int) -> Any:
        """Return the events in bitmap `high` of an array that are not in bitmap `low`."""
        return self.builder.and_(self.load(place, high), self.builder.not_(self.load(place, low)))

    def store(self, value: Any, place: int, row: int) -> Any:
        """Write a bitmap; return a word with a bit for each of its words that is not empty."""
        self.builder.store(value, self._address(place, row), align=8)
        is_filled = self.builder.icmp_unsigned("!=", value, self.zero)
        return self.builder.zext(self.builder.bitcast(is_filled, ir.IntType(WORDS)), self.word)


def _vector_code(compute: Callable[[_Vectors], Any]) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return compute(_Vectors(context, builder, signature, arguments))

    return code


_row = types.uint64


@intrinsic  # type: ignore[untyped-decorator]
def _chosen(typing_context: Any, target: Any, at: Any, bitmaps: Any, low: Any, high: Any) -> Any:
    def compute(of: _Vectors) -> Any:
        return of.store(of.between(2, 3, 4), 0, 1)

    return types.uint64(target, _row, bitmaps, _row, _row), _vector_code(compute)


@intrinsic  # type: ignore[untyped-decorator]
def _narrowed(typing_context: Any, target: Any, at: Any, bitmaps: Any, low: Any, high: Any) -> Any:
    def compute(of: _Vectors) -> Any:
        return of.store(of.builder.and_(of.load(0, 1), of.between(2, 3, 4)), 0, 1)

    return types.uint64(target, _row, bitmaps, _row, _row), _vector_code(compute)


@intrinsic  # type: ignore[untyped-decorator]
def _widened(typing_context: Any, target: Any, at: Any, bitmaps: Any, low: Any, high: Any) -> Any:
    def compute(of: _Vectors) -> Any:
        return of.store(of.builder.or_(of.load(0, 1), of.between(2, 3, 4)), 0, 1)

    return types.uint64(target, _row, bitmaps, _row, _row), _vector_code(compute)


@intrinsic  # type: ignore[untyped-decorator]
def _joined(
    typing_context: Any, target: Any, at: Any, source: Any, bitmaps: Any, low: Any, high: Any, low2: Any, high2: Any
) -> Any:
    def compute(of: _Vectors) -> Any:
        both = of.builder.and_(of.between(3, 4, 5), of.between(3, 6, 7))
        return of.store(of.builder.and_(of.first(2), both), 0, 1)

    return types.uint64(target, _row, source, bitmaps, _row, _row, _row, _row), _vector_code(compute)


@intrinsic  # type: ignore[untyped-decorator]
def _both(typing_context: Any, target: Any, at: Any, other: Any) -> Any:
    def compute(of: _Vectors) -> Any:
        return of.store(of.builder.and_(of.load(0, 1), of.first(2)), 0, 1)

    return types.uint64(target, _row, other), _vector_code(compute)


def _filled(target: NDArray[np.uint64], at: Any, value: NDArray[np.uint64]) -> np.uint64:
    target[at] = value
    return np.uint64(sum(1 << w for w in range(WORDS) if value[w]))


def _between(bitmaps: NDArray[np.uint64], low: Any, high: Any) -> Any:
    return bitmaps[high] & ~bitmaps[low]


def _chosen_interpreted(target: Any, at: Any, bitmaps: Any, low: Any, high: Any) -> Any:
    return _filled(target, at, _between(bitmaps, low, high))


def _narrowed_interpreted(target: Any, at: Any, bitmaps: Any, low: Any, high: Any) -> Any:
    return _filled(target, at, target[at] & _between(bitmaps, low, high))


def _widened_interpreted(target: Any, at: Any, bitmaps: Any, low: Any, high: Any) -> Any:
    return _filled(target, at, target[at] | _between(bitmaps, low, high))


def _joined_interpreted(
    target: Any, at: Any, source: Any, bitmaps: Any, low: Any, high: Any, low2: Any, high2: Any
) -> Any:
    return _filled(target, at, source[0] & _between(bitmaps, low, high) & _between(bitmaps, low2, high2))


def _both_interpreted(target: Any, at: Any, other: Any) -> Any:
    return _filled(target, at, target[at] & other[0])


def _lowest_interpreted(word: Any) -> Any:
    return np.uint64((int(word) & -int(word)).bit_length() - 1)


_IS_COMPILED = not config.DISABLE_JIT

# Each of these writes the bitmap target[at], and returns a word with a bit for each of its words that is not empty. The
# pair (low, high) means the events in bitmaps[high] that are not in bitmaps[low]; a single bitmap is an array of one.
# chosen(target, at, bitmaps, low, high): the events of the pair.
chosen: Any = _chosen if _IS_COMPILED else _chosen_interpreted
# narrowed(target, at, bitmaps, low, high): the events of target[at] that are also in the pair.
narrowed: Any = _narrowed if _IS_COMPILED else _narrowed_interpreted
# widened(target, at, bitmaps, low, high): the events of target[at] and those of the pair.
widened: Any = _widened if _IS_COMPILED else _widened_interpreted
# joined(target, at, source, bitmaps, low, high, low2, high2): the events of the source that are in both pairs.
joined: Any = _joined if _IS_COMPILED else _joined_interpreted
# both(target, at, other): the events of target[at] that are also in the other bitmap.
both: Any = _both if _IS_COMPILED else _both_interpreted
# lowest(word): the number of the lowest bit that is set; the word must not be 0.
lowest: Any = first_bit if _IS_COMPILED else _lowest_interpreted
