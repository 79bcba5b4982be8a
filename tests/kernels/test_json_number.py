"""Numbers against Python's own `float()` and `int()`, bit by bit."""

from __future__ import annotations

import math
import random
import struct
from fractions import Fraction

import numpy as np
import pytest
from numba.core import config

from siftline.encoding.json_leaves import NULL, OK, SLOW, parse_json
from siftline.encoding.path_hash import Paths
from siftline.kernels.json_number import multiply_high, powers_of_five

N_RANDOM = 300 if config.DISABLE_JIT else 100_000
PATH_HASH = Paths(["a"])


def check(decimals: list[str]) -> int:
    """Compare decimals with `float()`; return how many were left to Python."""
    events = [f'{{"a":{text}}}'.encode() for text in decimals]
    lengths = np.array([len(event) for event in events])
    ends = np.cumsum(lengths)
    leaves = parse_json(b"".join(events), ends - lengths, ends, PATH_HASH)
    assert np.isin(leaves.statuses, [OK, SLOW]).all()
    done = leaves.statuses == OK
    expected = np.array([float(text) for text, is_done in zip(decimals, done, strict=True) if is_done])
    is_finite = np.isfinite(expected)
    np.testing.assert_array_equal(leaves.kinds == NULL, ~is_finite)
    # Adding 0.0 makes -0.0 positive and changes nothing else.
    wanted = np.where(is_finite, expected, 0.0) + 0.0
    different = np.flatnonzero(wanted.view(np.uint64) != leaves.numbers.view(np.uint64))
    assert different.size == 0, [decimals[np.flatnonzero(done)[i]] for i in different[:5]]
    assert not leaves.residuals.any()
    return int(np.count_nonzero(~done))


def double(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def random_doubles(n: int, seed: int) -> list[float]:
    rng = random.Random(seed)
    return [x for x in (double(rng.getrandbits(64)) for _ in range(n)) if math.isfinite(x)]


def with_point(value: float) -> str:
    """Spell a double so that it is no integer."""
    text = repr(value)
    return text if "." in text or "e" in text else text + ".0"


def test_shortest_decimals_come_back() -> None:
    assert check([with_point(x) for x in random_doubles(N_RANDOM, 1)]) == 0


def test_seventeen_and_more_digits() -> None:
    for digits in (15, 16, 17):
        assert check([f"{x:.{digits}e}" for x in random_doubles(N_RANDOM, digits)]) == 0
    # Digits that were cut off are seldom needed.
    assert check([f"{x:.30e}" for x in random_doubles(N_RANDOM, 30)]) < N_RANDOM // 50 + 5


def test_random_digits_and_exponents() -> None:
    rng = random.Random(2)
    decimals = []
    for _ in range(N_RANDOM):
        digits = str(rng.randrange(10 ** rng.randint(1, 19)))
        point = rng.randint(1, len(digits))
        whole = str(int(digits[:point]))
        fraction = f".{digits[point:]}" if point < len(digits) else ""
        decimals.append(f"{rng.choice(['', '-'])}{whole}{fraction}{rng.choice('eE')}{rng.randint(-345, 312)}")
    assert check(decimals) == 0


def test_prices_and_other_short_decimals() -> None:
    rng = random.Random(3)
    decimals = [f"{rng.randrange(10 ** rng.randint(1, 9))}.{rng.randrange(100):02d}" for _ in range(N_RANDOM)]
    assert check([*decimals, *(f"{i / 100:.2f}" for i in range(min(N_RANDOM, 10_000)))]) == 0


def test_between_two_doubles() -> None:
    """Exactly half way, and next to it: the hardest cases there are."""
    rng = random.Random(4)
    decimals = []
    for _ in range(N_RANDOM // 20):
        whole = (1 << 53) + 2 * rng.getrandbits(52) + 1  # 54 bits: half way between two doubles
        shift = rng.randint(0, 9)
        half = Fraction(whole, 1 << shift)
        digits = str(half.numerator * 10**shift // half.denominator)
        decimals.append(f"{digits}e-{shift}")
        decimals += [f"{int(digits) - 1}e-{shift}", f"{int(digits) + 1}e-{shift}"]
    for power in range(-30, 31):
        for mantissa in ((1 << 53) + 1, (1 << 53) + 3, (1 << 54) + 2, (1 << 54) + 6):
            decimals.append(f"{mantissa}e{power}")
    check(decimals)


def test_edges() -> None:
    edges = [
        "0.0", "-0.0", "0e0", "0e999999999999999999999", "-0.000e-5", "1e22", "1e23", "1e-22", "9007199254740992e22",
        "9007199254740993.0", "9007199254740991.0e22", "4.9e-324", "5e-324", "2.47e-324", "2.4703282292062327e-324",
        "2.4703282292062328e-324", "1e-323", "1e-400", "1e-99999999999999999999", "2.2250738585072011e-308",
        "2.2250738585072012e-308", "2.2250738585072014e-308", "1.7976931348623157e308", "1.7976931348623158e308",
        "1.7976931348623159e308", "17976931348623157e292", "1e308", "1e309", "2e308", "-1e309",
        "1e99999999999999999999", "0.1", "0.3", "1.0000000000000002", "123456789012345678.5", "9999999999999999999e0",
        "9999999999999999999e-19", "0." + "0" * 400 + "1", "0." + "0" * 300 + "123456789", "0." + "0" * 400 + "1e401",
        "1" + "0" * 400 + "e-400", "1." + "0" * 50, "100000000000000000000000.0",
        "0.10000000000000000000000000000000000000000", "12345678901234567890123456789.0e-10", "8.5", "12345678.5",
        "1234567.12345678", "12345678.12345678", "1E5", "1E+5", "1E-5", "1e05", "1e-05",
        "1e+0000000000000000000000005", "6.02214076e23", "1.602176634e-19", "7.2057594037927933e16",
        "9.2233720368547758e18", "1448997445238699e0",
    ]  # fmt: skip
    assert check(edges) == 0


def test_integers_are_exact() -> None:
    rng = random.Random(5)
    integers = [0, 1, 7, 9999999, 10000000, 99999999, 100000000, 2**53, 2**53 + 1, 2**53 + 3, 2**63 - 1, 2**62 + 1]
    integers += [10**k + d for k in range(1, 19) for d in (-1, 0, 1)]
    integers += [rng.getrandbits(rng.randint(1, 63)) for _ in range(N_RANDOM // 10)]
    integers += [-i for i in integers] + [-(2**63)]
    events = [f'{{"a":{i}}}'.encode() for i in integers]
    lengths = np.array([len(event) for event in events])
    ends = np.cumsum(lengths)
    leaves = parse_json(b"".join(events), ends - lengths, ends, PATH_HASH)
    assert not leaves.statuses.any()
    for integer, number, residual in zip(integers, leaves.numbers, leaves.residuals, strict=True):
        assert number == float(integer)
        assert int(number) + int(residual) == integer
        assert math.copysign(1.0, number) == 1.0 or integer < 0
    pairs = list(zip(leaves.numbers.tolist(), leaves.residuals.tolist(), strict=True))
    assert [integers[i] for i in sorted(range(len(pairs)), key=pairs.__getitem__)] == sorted(integers)


def test_powers_of_five_are_the_closest_from_their_side() -> None:
    table = powers_of_five()
    assert table.size == 2 * 651
    assert not table.flags.writeable
    for entry, q in enumerate(range(-342, 309)):
        value = int(table[2 * entry]) << 64 | int(table[2 * entry + 1])
        assert 1 << 127 <= value < 1 << 128
        scale = Fraction(value) / Fraction(5) ** q
        two = Fraction(2) ** round(math.log2(scale))
        error = Fraction(value) - Fraction(5) ** q * two
        assert -1 < error <= 0 if q >= 0 else 0 < error <= 1


def test_upper_word_of_a_product() -> None:
    rng = random.Random(6)
    numbers = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, *(rng.getrandbits(64) for _ in range(20))]
    with np.errstate(over="ignore"):
        for a in numbers:
            for b in numbers:
                assert int(multiply_high(np.uint64(a), np.uint64(b))) == a * b >> 64


@pytest.mark.slow
def test_a_million_doubles() -> None:
    for seed in range(10 if config.DISABLE_JIT else 10 * N_RANDOM // 100_000):
        doubles = random_doubles(N_RANDOM, 100 + seed)
        assert check([with_point(x) for x in doubles]) == 0
        assert check([f"{x:.16e}" for x in doubles]) == 0
