"""The compiled reader of times gives what the model gives, for times and for what is nearly one."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config
from strategies import TIMES

from siftline.encoding.flat_domains import read_only, split_numbers
from siftline.kernels.moments import read_instants, split_nanoseconds
from siftline.model import instant_of_text, iso_text_of_instant
from siftline.model.timestamp import FIRST_INSTANT, LAST_INSTANT

N_RANDOM = 200 if config.DISABLE_JIT else 20_000


def check(texts: list[str]) -> int:
    """Compare with the model; return how many are times."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    bounds = np.cumsum([0, *map(len, encoded)])
    data = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    seconds, nanoseconds, are_times = read_instants(data, *map(read_only, (bounds[:-1], bounds[1:])))
    found = [
        second * 10**9 + nanosecond if is_time else None
        for second, nanosecond, is_time in zip(seconds.tolist(), nanoseconds.tolist(), are_times.tolist(), strict=True)
    ]
    assert found == [instant_of_text(text) for text in texts]
    return int(are_times.sum())


def test_known_times() -> None:
    assert check([*TIMES, "", "2026-01-31T10:00:00,5", "x" * 40]) == 10


def test_random_times_in_random_spellings() -> None:
    rng = random.Random(3)
    texts = []
    for _ in range(N_RANDOM):
        text = iso_text_of_instant(rng.randint(FIRST_INSTANT, LAST_INSTANT))
        fraction = rng.choice(["", ".5", text[19:29], f".{rng.randrange(10**15)}"])
        offset = f"{rng.choice('+-')}{rng.randrange(24):02d}:{rng.randrange(60):02d}"
        texts.append(text[:10] + rng.choice("Tt ") + text[11:19] + fraction + rng.choice(["", "Z", "z", offset]))
        texts.append(text[: rng.choice([10, 16, 19])])
    assert check(texts) > 1.9 * N_RANDOM


def test_every_day_of_four_centuries() -> None:
    days = np.arange(-146_100, 146_100, 997 if config.DISABLE_JIT else 1).astype("datetime64[D]")
    assert check([str(day) for day in days]) == len(days)
    years = [f"{year:04d}-02-{day}" for year in range(10_000) for day in (28, 29, 30)]
    check(years[:: 100 if config.DISABLE_JIT else 1])


def test_times_with_one_character_changed() -> None:
    rng = random.Random(4)
    texts = []
    for text in TIMES:
        for position in range(len(text)):
            texts += [text[:position] + c + text[position + 1 :] for c in "09aZ:-+. /\x00é"]
            texts += [text[:position] + text[position + 1 :], text[:position] + rng.choice("059") + text[position:]]
    check(texts)


@settings(max_examples=50 if config.DISABLE_JIT else 500, deadline=None)
@given(st.lists(st.text("0123456789-:. TtZz+é", max_size=36) | st.from_regex(r"[0-9]{4}-[0-1][0-9]-[0-3][0-9].{0,20}")))
def test_anything(texts: list[str]) -> None:
    check(texts)


def test_nanoseconds_are_split_as_python_splits_them() -> None:
    rng = random.Random(5)
    values = [rng.randint(FIRST_INSTANT, LAST_INSTANT) for _ in range(N_RANDOM)]
    values += [rng.choice((1, -1)) * (2 ** rng.randint(40, 67) + rng.randint(-(2**16), 2**16)) for _ in range(N_RANDOM)]
    values += [sign * (2**power + more) for power in (53, 62, 63, 64, 67) for more in range(-3, 4) for sign in (1, -1)]
    values += [(FIRST_INSTANT - LAST_INSTANT), LAST_INSTANT - FIRST_INSTANT, 0, -1, 1]
    seconds, nanoseconds = (
        np.array(part, dtype=np.int64) for part in zip(*(divmod(v, 10**9) for v in values), strict=True)
    )
    found, expected = split_nanoseconds(seconds, nanoseconds), split_numbers(values)
    assert found[0].tobytes() == expected[0].tobytes()
    assert found[1].tolist() == expected[1].tolist()
    negative = split_nanoseconds(-seconds, -nanoseconds)
    assert negative[0].tolist() == (-found[0]).tolist()
