"""Real words that come with Python: those of the names of Unicode characters.

`unicodedata.ucd_3_2_0` is the database of Unicode 3.2, which Python ships for internationalised domain names. It never
changes, so the words are the same for every version of Python: "umbrella", "mountain" and "telephone" beside the names
of letters of many scripts ("alef", "berkanan").
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np

_WORD = re.compile("[A-Z]{4,}")
# Beyond the Basic Multilingual Plane there are musical and mathematical symbols; then only ideographs.
_PLANES = (range(0x20, 0xAC00), range(0xF900, 0x10000), range(0x10300, 0x10450), range(0x1D000, 0x1D800))


@cache
def words() -> tuple[str, ...]:
    """Return all words of at least four letters, in lower case and in an order that mixes them.

    >>> len(words()) > 1_000, words()[:3]
    (True, ('section', 'stone', 'megali'))
    """
    import unicodedata

    name = unicodedata.ucd_3_2_0.name
    lines = [name(chr(code), "") for plane in _PLANES for code in plane]
    # Syllables are a thousand artificial words like "ggurx".
    found = sorted({word for line in lines if "SYLLAB" not in line for word in _WORD.findall(line)})
    order = np.random.default_rng(0).permutation(len(found))
    return tuple(found[i].lower() for i in order)


def names(n: int) -> list[str]:
    """Return `n` different names: words, then two words each.

    >>> len(set(names(20_000)))
    20000
    """
    single = words()
    pairs = (f"{one}_{other}" for other in single for one in single)
    return [*single, *(next(pairs) for _ in range(n - len(single)))][:n]
