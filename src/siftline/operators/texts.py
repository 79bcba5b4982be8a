"""Operators on the texts of events.

    keywords(attribute, word, ...)                all words are there, in any case
    similar_to(attribute, text, ?score)           how alike the texts are, from 0 to 1, by groups of three characters
    log_pattern(attribute, template, ?x, ...)     the parts of the text at the {} of a template

>>> log_pattern({"line": "login of ann failed 3 times"}, "line", "login of {} failed {} times")
[('ann', 3)]
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from functools import lru_cache
from typing import Any, Final

from siftline.operators.events import texts_of
from siftline.operators.operator import operator

_WORD: Final = re.compile(r"\w+")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


@operator("keywords", cost=0.01)
def keywords(event: Any, attribute: str, *words: str) -> bool | None:
    """Return whether all words are in one text of an attribute."""
    texts = texts_of(event, attribute)
    wanted = {word.casefold() for word in words}
    return any(wanted <= set(_WORD.findall(text.casefold())) for text in texts) if texts else None


@operator("similar_to", cost=0.05, binds=["score"])
def similar_to(event: Any, attribute: str, text: str) -> Any:
    """Return the cosine of the counts of groups of three characters, for each text of an attribute."""
    return [_cosine(_trigrams(found), _trigrams(text)) for found in texts_of(event, attribute)]


@lru_cache(maxsize=4096)
def _trigrams(text: str) -> Counter[str]:
    padded = f"  {' '.join(text.casefold().split())} "
    return Counter(padded[i : i + 3] for i in range(len(padded) - 2))


def _cosine(one: Counter[str], two: Counter[str]) -> float:
    shared = sum(n * two[part] for part, n in one.items())
    norm = math.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in two.values()))
    return min(1.0, shared / norm) if norm else 0.0


@operator("log_pattern", cost=0.01, binds=...)
def log_pattern(event: Any, attribute: str, template: str) -> Any:
    """Return the part of the text at each {} of a template that fits the whole text; numbers as numbers."""
    found = (_compiled(template).fullmatch(text) for text in texts_of(event, attribute))
    return [tuple(map(_value, match.groups())) for match in found if match is not None]


@lru_cache(maxsize=4096)
def _compiled(template: str) -> re.Pattern[str]:
    return re.compile("(.+?)".join(map(re.escape, template.split("{}"))), re.DOTALL)


def _value(text: str) -> str | int | float:
    if _NUMBER.fullmatch(text) is None:
        return text
    number: int | float = json.loads(text)
    return number if math.isfinite(number) else text
