r"""A value of a Sigma rule becomes a test of an attribute: the cheapest operator that says exactly what Sigma means.

| value | test |
|---|---|
| `x` | `= 'x' ignoring case` |
| `*x*`, `x*`, `*x` | `contains`, `starts with`, `ends with 'x' ignoring case` |
| `x*y`, `x?` | `ilike 'x%y'`, `ilike 'x_'` |
| `*` | `is not null` |
| `5`, `'5'` | `in (5, '5')`: logs have numbers as numbers and as text |
| `true`, `'true'` | `= true or ... = 'true' ignoring case` |

Text without letters, and all text under the modifier `cased`, is compared as it is: `= '-'`, `like '1%2'`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sigma.types import (
    CompareOperators,
    Placeholder,
    SigmaBool,
    SigmaCasedString,
    SigmaCIDRExpression,
    SigmaCompareExpression,
    SigmaExists,
    SigmaExpansion,
    SigmaFieldReference,
    SigmaNull,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaString,
    SigmaTimestampPart,
    SpecialChars,
)

from siftline.errors import SubscriptionError
from siftline.language.tokens import quoted, write_path
from siftline.model.predicate import INT64_MAX, INT64_MIN
from siftline.sigma.pieces import Equality, Negation, Piece, any_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sigma.types import SigmaType

_COMPARISONS: Final = {
    CompareOperators.LT: "<",
    CompareOperators.LTE: "<=",
    CompareOperators.GT: ">",
    CompareOperators.GTE: ">=",
}
_ANY_STRING: Final = "any string"
_INTEGER: Final = re.compile(r"-?[1-9][0-9]{0,18}|0")
_LETTER: Final = re.compile(r"[a-zA-Z]")

Part = str | SpecialChars
_MANY: Final = SpecialChars.WILDCARD_MULTI
_ONE: Final = SpecialChars.WILDCARD_SINGLE


def field_piece(field: str, value: SigmaType) -> Piece:
    """Return the test that a field has a value; raise SubscriptionError for what Siftline does not have."""
    path = write_path(field)
    match value:
        case SigmaString():
            return _string_piece(path, value)
        case SigmaTimestampPart():
            raise SubscriptionError("parts of a time (minute, hour, day, week, month, year) are not supported")
        case SigmaNumber():
            return _number_piece(path, value.number)
        case SigmaBool():
            return _boolean_piece(path, value.boolean)
        case SigmaRegularExpression():
            return f"{path} matches {_regular_expression(value)}"
        case SigmaCIDRExpression():
            return f"{path} cidr {_string(str(value.network))}"
        case SigmaCompareExpression():
            return _comparison_piece(path, value)
        case SigmaFieldReference():
            return _reference_piece(path, value)
        case SigmaNull():
            return f"{path} is null"
        case SigmaExists():
            return f"exists {path}" if value.exists else f"not exists {path}"
        case SigmaExpansion():
            return any_of([field_piece(field, each) for each in value.values])
    raise SubscriptionError(f"values of the kind {type(value).__name__} are not supported")


def keyword_piece(value: SigmaType) -> Piece:
    """Return the search for a value in all strings of an event."""
    match value:
        case SigmaString():
            return f"{_ANY_STRING} {_keyword_test(_parts_of(value), isinstance(value, SigmaCasedString))}"
        case SigmaNumber():
            return f"{_ANY_STRING} contains {_string(str(value))}"
        case SigmaRegularExpression():
            return f"{_ANY_STRING} matches {_regular_expression(value)}"
        case SigmaExpansion():
            return any_of([keyword_piece(each) for each in value.values])
    raise SubscriptionError(f"a value of the kind {type(value).__name__} needs a field")


# strings


def _string_piece(path: str, value: SigmaString) -> Piece:
    parts = _parts_of(value)
    is_cased = isinstance(value, SigmaCasedString)
    if all(isinstance(part, str) for part in parts):
        return _equal_piece(path, "".join(map(str, parts)), is_cased)
    if parts == [_MANY]:
        return f"{path} is not null"
    return f"{path} {_pattern_test(parts, is_cased)}"


def _parts_of(value: SigmaString) -> list[Part]:
    """Return texts and wildcards; of several `*` in a row one is left."""
    parts: list[Part] = []
    for part in value.s:
        if isinstance(part, Placeholder):
            hint = "give its values as placeholders, or by a pipeline"
            raise SubscriptionError(f"the placeholder %{part.name}% has no values", hint=hint)
        if part is not _MANY or parts[-1:] != [_MANY]:
            parts.append(part)
    return parts


def _equal_piece(path: str, text: str, is_cased: bool) -> Piece:
    if _INTEGER.fullmatch(text) and INT64_MIN <= int(text) <= INT64_MAX:
        return Equality(path, (text, _string(text)))
    ignores_case = not is_cased and _has_case(text)
    equality = Equality(path, (_string(text),), ignores_case)
    boolean = text.lower()
    if boolean in ("true", "false") and ignores_case:
        return any_of([equality, Equality(path, (boolean,))])
    return equality


def _pattern_test(parts: Sequence[Part], is_cased: bool) -> str:
    match parts:
        case [SpecialChars.WILDCARD_MULTI, str(text), SpecialChars.WILDCARD_MULTI]:
            return _text_test("contains", text, is_cased)
        case [SpecialChars.WILDCARD_MULTI, str(text)]:
            return _text_test("ends with", text, is_cased)
        case [str(text), SpecialChars.WILDCARD_MULTI]:
            return _text_test("starts with", text, is_cased)
    pattern = "".join(map(_in_pattern, parts))
    return f"{'like' if is_cased or not _has_case(pattern) else 'ilike'} {_string(pattern)}"


def _keyword_test(parts: Sequence[Part], is_cased: bool) -> str:
    """Return the test that a string holds a keyword, wherever."""
    inner = [part for i, part in enumerate(parts) if part is not _MANY or 0 < i < len(parts) - 1]
    if not inner:
        raise SubscriptionError("an empty keyword would be found in every event")
    return _pattern_test([_MANY, *inner, _MANY], is_cased)


def _text_test(operator: str, text: str, is_cased: bool) -> str:
    ending = "" if is_cased or not _has_case(text) else " ignoring case"
    return f"{operator} {_string(text)}{ending}"


def _in_pattern(part: Part) -> str:
    if isinstance(part, str):
        return re.sub(r"([\\%_])", r"\\\1", part)
    return "%" if part is _MANY else "_"


def _has_case(text: str) -> bool:
    """Return whether case folding may matter: of ASCII only letters have a case."""
    return not text.isascii() or _LETTER.search(text) is not None


def _string(text: str) -> str:
    return quoted(text, "'")


# other values


def _number_piece(path: str, number: int | float) -> Piece:
    spelled = _string(str(number))
    if isinstance(number, int) and not INT64_MIN <= number <= INT64_MAX:
        return Equality(path, (spelled,))
    return Equality(path, (repr(number), spelled))


def _boolean_piece(path: str, boolean: bool) -> Piece:
    word = "true" if boolean else "false"
    return any_of([Equality(path, (word,)), Equality(path, (_string(word),), ignores_case=True)])


def _comparison_piece(path: str, value: SigmaCompareExpression) -> Piece:
    if value.op is CompareOperators.NEQ:
        return Negation(_number_piece(path, value.number.number))
    return f"{path} {_COMPARISONS[value.op]} {value.number.number!r}"


def _reference_piece(path: str, value: SigmaFieldReference) -> Piece:
    if getattr(value, "starts_with", False) or getattr(value, "ends_with", False):
        raise SubscriptionError("fieldref compares whole values: startswith, endswith and contains are not supported")
    return f"{path} = {write_path(value.field)}"


def _regular_expression(value: SigmaRegularExpression) -> str:
    for part in value.regexp.s:
        if isinstance(part, Placeholder):
            raise SubscriptionError(f"the placeholder %{part.name}% has no values")
    flags = "".join(sorted(value.sigma_to_re_flag[flag] for flag in value.flags))
    return _string((f"(?{flags})" if flags else "") + str(value.regexp))
