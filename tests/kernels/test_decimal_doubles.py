"""Decimals of Arrow become the doubles that Python makes of the same digits."""

from __future__ import annotations

import decimal
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numba.core import config

from siftline.encoding.json_leaves import powers
from siftline.kernels.decimals import nearest_doubles

N_RANDOM = 50 if config.DISABLE_JIT else 5_000


def limbs_of(integers: list[int], n_bytes: int) -> Any:
    data = b"".join(integer.to_bytes(n_bytes, "little", signed=True) for integer in integers)
    return np.frombuffer(bytearray(data), dtype="<u4").reshape(-1, n_bytes // 4)


def check(integers: list[int], scale: int, n_bytes: int) -> int:
    """Compare with `float()`; return how many are left to Python."""
    found = nearest_doubles(limbs_of(integers, n_bytes), np.ones(len(integers), np.bool_), scale, powers())
    is_open = np.isnan(found)
    expected = np.array([float(f"{integer}e{-scale}") for integer in integers])
    assert found[~is_open].tobytes() == expected[~is_open].tobytes()
    return int(is_open.sum())


@pytest.mark.parametrize(("n_bytes", "n_digits"), [(16, 38), (32, 76)])
@pytest.mark.parametrize("scale", [-310, -30, -5, 1, 2, 5, 18, 22, 30, 38, 320, 400])
def test_random_decimals(n_bytes: int, n_digits: int, scale: int) -> None:
    rng = random.Random(scale)
    integers = [rng.choice((-1, 1)) * rng.randrange(10 ** rng.randint(1, n_digits)) for _ in range(N_RANDOM)]
    assert check([0, *integers], scale, n_bytes) < 0.05 * len(integers) + 5


@pytest.mark.parametrize("n_bytes", [16, 32])
def test_halves_between_two_doubles(n_bytes: int) -> None:
    """Between 2**53 and 2**54 every odd integer is a tie, and one unit behind the point breaks it."""
    ties = [2**53 + odd for odd in range(1, 41, 2)] + [2**60 + 2**7, 2**60 + 3 * 2**7]
    for scale in (0, 1, 2, 10):
        integers = [sign * (tie * 10**scale + more) for tie in ties for more in (-1, 0, 1) for sign in (1, -1)]
        check(integers, scale, n_bytes)
    assert check([2**53 * 10 + 10, 2**53 * 10 + 30], 1, n_bytes) == 0


@pytest.mark.parametrize("n_bytes", [16, 32])
def test_the_ends_of_the_words(n_bytes: int) -> None:
    edges = [2**k + more for k in (31, 32, 63, 64, 95, 96, 8 * n_bytes - 2) for more in (-1, 0, 1)]
    edges += [10**19 - 1, 10**19, 10**19 + 1, 2 ** (8 * n_bytes - 1) - 1]
    edges += [-edge for edge in edges] + [-(2 ** (8 * n_bytes - 1))]
    for scale in (-1, 1, 2, 9):
        check(edges, scale, n_bytes)


def test_what_is_not_there_is_not_looked_at() -> None:
    found = nearest_doubles(limbs_of([5, 2**100], 16), np.array([False, True]), -300, powers())
    assert found.tolist() == [0.0, np.inf]


def test_prices_are_never_left_to_python() -> None:
    prices = random.Random(5).sample(range(10**10), N_RANDOM)
    assert check(prices, 2, 16) == 0
    column = pa.array([decimal.Decimal("19.99")], pa.decimal128(10, 2))
    assert float(column[0].as_py()) == 19.99
