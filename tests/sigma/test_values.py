from __future__ import annotations

from typing import Any

import pytest
from sigma.rule.detection import SigmaDetectionItem

from siftline.errors import SubscriptionError
from siftline.sigma.pieces import any_of, text_of
from siftline.sigma.values import field_piece, keyword_piece


def text(key: str, *values: Any) -> str:
    """Return the text of one item of a selection."""
    item = SigmaDetectionItem.from_mapping(key, list(values))
    pieces = [field_piece(item.field, each) if item.field else keyword_piece(each) for each in item.value]
    return text_of(any_of(pieces))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("Image", "cmd.exe", "Image = 'cmd.exe' ignoring case"),
        ("Image", "it's", "Image = 'it''s' ignoring case"),
        ("Image", "", "Image = ''"),
        ("Image", "-", "Image = '-'"),
        ("Image", "*", "Image is not null"),
        ("Image", "**", "Image is not null"),
        ("Image", None, "Image is null"),
        ("Image", "*\\cmd.exe", "Image ends with '\\cmd.exe' ignoring case"),
        ("Image", "C:\\*", "Image = 'C:*' ignoring case"),
        ("Image", "C:\\\\*", "Image starts with 'C:\\' ignoring case"),
        ("Image", "C:\\Win*", "Image starts with 'C:\\Win' ignoring case"),
        ("Image|endswith", "\\cmd.exe", "Image ends with '\\cmd.exe' ignoring case"),
        ("Image|startswith", "C:", "Image starts with 'C:' ignoring case"),
        ("Image|contains", "x", "Image contains 'x' ignoring case"),
        ("Image|contains", " -", "Image contains ' -'"),
        ("Image|contains", "é", "Image contains 'é' ignoring case"),
        ("Image|contains", "a*b", "Image ilike '%a%b%'"),
        ("Image", "a?c", "Image ilike 'a_c'"),
        ("Image", "100%_*\\\\?x", "Image ilike '100\\%\\_%\\\\_x'"),
        ("Image", "1?2", "Image like '1_2'"),
        ("Image|cased", "Cmd", "Image = 'Cmd'"),
        ("Image|contains|cased", "Cmd", "Image contains 'Cmd'"),
        ("Image|cased", "C?d", "Image like 'C_d'"),
        ("EventID", 4688, "EventID in (4688, '4688')"),
        ("EventID", "4688", "EventID in (4688, '4688')"),
        ("EventID", "007", "EventID = '007'"),
        ("EventID", -5, "EventID in (-5, '-5')"),
        ("Size", 1.5, "Size in (1.5, '1.5')"),
        ("Size", 10**30, "Size in (1e+30, '1e+30')"),
        ("Size", str(10**19), "Size = '10000000000000000000'"),
        ("Signed", "true", "Signed = 'true' ignoring case or Signed = true"),
        ("Signed", False, "Signed = false or Signed = 'false' ignoring case"),
        ("n|gt", 5, "n > 5"),
        ("n|gte", 5, "n >= 5"),
        ("n|lt", 5, "n < 5"),
        ("n|lte", 2.5, "n <= 2.5"),
        ("ip|cidr", "10.0.0.0/8", "ip cidr '10.0.0.0/8'"),
        ("a|exists", True, "exists a"),
        ("a|exists", False, "not exists a"),
        ("a|fieldref", "b c", 'a = "b c"'),
        ("a|re", "x.*'y\\d?", "a matches 'x.*''y\\d?'"),
        ("a|re|i|m|s", "x", "a matches '(?ims)x'"),
        ("user name", "x", "\"user name\" = 'x' ignoring case"),
        ("userIdentity.type", "x", "userIdentity.type = 'x' ignoring case"),
        ("not", "x", "\"not\" = 'x' ignoring case"),
        ("a|contains|windash", "-x", "a contains '-x' ignoring case or a contains '/x' ignoring case or"),
        ("a|base64offset|contains", "foo", "a contains 'Zm9v' ignoring case or a contains 'Zvb' ignoring case or"),
        ("a|wide|base64", "x", "a = 'eAA=' ignoring case"),
        ("|contains", "x y", "any string contains 'x y' ignoring case"),
        ("", "x", "any string contains 'x' ignoring case"),
        ("", "x*y", "any string ilike '%x%y%'"),
        ("", "*x*", "any string contains 'x' ignoring case"),
        ("", 4688, "any string contains '4688'"),
        ("|cased", "X", "any string contains 'X'"),
        ("|re", "a+", "any string matches 'a+'"),
    ],
)
def test_a_value(key: str, value: Any, expected: str) -> None:
    written = text(key, value)
    assert written.startswith(expected) if expected.endswith(" or") else written == expected


def test_constants_of_one_field_become_one_list() -> None:
    assert text("a", "x", "y", "X*") == "a in ('x', 'y') ignoring case or a starts with 'X' ignoring case"
    assert text("a", 1, "z", 2) == "a in (1, '1', 2, '2') or a = 'z' ignoring case"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("a|hour", 5, "parts of a time"),
        ("a|fieldref|endswith", "b", "fieldref compares whole values"),
        ("a|expand", "%who%", "the placeholder %who% has no values"),
        ("", None, "needs a field"),
        ("", "*", "an empty keyword"),
    ],
)
def test_what_siftline_does_not_have_is_refused(key: str, value: Any, reason: str) -> None:
    with pytest.raises(SubscriptionError, match=reason):
        text(key, value)
