"""Until the language has `ignoring case`, `any string` and comparisons of attributes, they are mapped to what it has.

Tests import the fixture. Once `parse` takes the new words, it does nothing and can go.
"""

from __future__ import annotations

import re

import pytest

import siftline
from siftline.language.tokens import unquoted

STRING = r"'(?:[^']|'')*'"
PATH = r"(?:\"(?:[^\"]|\"\")*\"|[\w@$][\w.@$-]*)"
FOLDED = re.compile(
    rf"({STRING})|({PATH}) (=|in|contains|starts with|ends with) (\(?)((?:{STRING}(?:, )?)+)\)? ignoring case"
)
REFERENCE = re.compile(rf"({STRING})|({PATH}) = ((?!true\b|false\b)[A-Za-z_][\w.]*)")
SHAPES = {"=": "{}", "in": "{}", "contains": "%{}%", "starts with": "{}%", "ends with": "%{}"}


def has_new_words() -> bool:
    try:
        siftline.parse("a = 'x' ignoring case and any string contains 'x' and a = b")
    except siftline.SubscriptionError:
        return False
    return True


def older(text: str) -> str:
    """Return a condition without the new words; keywords and references never hold in it."""
    text = re.sub(rf"({STRING})|\bany string\b", lambda found: found[1] or '"any string"', text)
    text = FOLDED.sub(_folded, text)
    return REFERENCE.sub(lambda found: found[1] or f"({found[2]} is null and {found[3]} is not null)", text)


def _folded(found: re.Match[str]) -> str:
    if found[1]:
        return found[1]
    tests = []
    for literal in re.findall(STRING, found[5]):
        escaped = re.sub(r"([\\%_])", r"\\\1", unquoted(literal, "'"))
        pattern = SHAPES[found[3]].format(escaped).replace("'", "''")
        tests.append(f"{found[2]} ilike '{pattern}'")
    return f"({' or '.join(tests)})"


@pytest.fixture(name="older_language", autouse=True)
def older_language_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_new_words():
        monkeypatch.setattr("siftline.sigma.pieces.parse", lambda text: siftline.parse(older(text)))
