"""What a Sigma rule means, evaluated directly on pySigma's parsed condition: it shares no code with the translation."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from sigma.conditions import ConditionAND, ConditionFieldEqualsValueExpression, ConditionNOT, ConditionOR
from sigma.types import (
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
    SpecialChars,
)

if TYPE_CHECKING:
    from sigma.rule import SigmaRule

SIGNS = {"LT": lambda a, b: a < b, "LTE": lambda a, b: a <= b, "GT": lambda a, b: a > b, "GTE": lambda a, b: a >= b}


def fires(rule: SigmaRule, event: dict[str, Any]) -> bool:
    """Return whether one of the conditions of a rule holds for a flat event."""
    return any(holds(condition, event) for condition in conditions_of(rule))


def conditions_of(rule: SigmaRule) -> list[Any]:
    """Return the parsed conditions of a rule; pySigma parses anew at every access."""
    return [condition.parsed for condition in rule.detection.parsed_condition]


def holds(condition: Any, event: dict[str, Any]) -> bool:
    if isinstance(condition, ConditionAND):
        return all(holds(each, event) for each in condition.args)
    if isinstance(condition, ConditionOR):
        return any(holds(each, event) for each in condition.args)
    if isinstance(condition, ConditionNOT):
        return not holds(condition.args[0], event)
    if isinstance(condition, ConditionFieldEqualsValueExpression):
        return field_holds(condition.field, condition.value, event)
    return keyword_holds(condition.value, event)


def values_of(field: str, event: dict[str, Any]) -> list[Any]:
    value = event.get(field)
    return [each for each in (value if isinstance(value, list) else [value]) if each is not None]


def field_holds(field: str, value: Any, event: dict[str, Any]) -> bool:
    if isinstance(value, SigmaExpansion):
        return any(field_holds(field, each, event) for each in value.values)
    if isinstance(value, SigmaNull):
        return not values_of(field, event)
    if isinstance(value, SigmaExists):
        return (field in event and event[field] != []) is value.exists
    if isinstance(value, SigmaFieldReference):
        others = values_of(value.field, event)
        return any(
            a == b and isinstance(a, bool) is isinstance(b, bool) for a in values_of(field, event) for b in others
        )
    return any(value_holds(value, each) for each in values_of(field, event))


def value_holds(value: Any, found: Any) -> bool:
    if isinstance(value, SigmaString):
        return string_holds(value, found)
    if isinstance(value, SigmaCompareExpression):
        return type(found) in (int, float) and SIGNS[value.op.name](found, value.number.number)
    if isinstance(value, SigmaBool):
        return (found.lower() if isinstance(found, str) else found) in (value.boolean, str(value.boolean).lower())
    if isinstance(value, SigmaNumber):
        return found == str(value.number) or (type(found) in (int, float) and found == value.number)
    if not isinstance(found, str):
        return False
    if isinstance(value, SigmaRegularExpression):
        return regular_expression(value).search(found) is not None
    assert isinstance(value, SigmaCIDRExpression)
    try:
        return ipaddress.ip_address(found) in value.network
    except ValueError:
        return False


def string_holds(value: SigmaString, found: Any) -> bool:
    if list(value.s) == [SpecialChars.WILDCARD_MULTI]:
        return True
    if isinstance(found, bool):
        same = str(found) if isinstance(value, SigmaCasedString) else str(found).lower()
        return not isinstance(value, SigmaCasedString) and plain(value).lower() == same
    if isinstance(found, int):
        return plain(value) == str(found)
    return isinstance(found, str) and pattern(value).fullmatch(found) is not None


def plain(value: SigmaString) -> str:
    return "".join(part if isinstance(part, str) else "\0" for part in value.s)


def pattern(value: SigmaString) -> re.Pattern[str]:
    signs: dict[object, str] = {SpecialChars.WILDCARD_MULTI: ".*", SpecialChars.WILDCARD_SINGLE: "."}
    text = "".join(re.escape(part) if isinstance(part, str) else signs[part] for part in value.s)
    return re.compile(text, re.DOTALL | (0 if isinstance(value, SigmaCasedString) else re.IGNORECASE))


def regular_expression(value: SigmaRegularExpression) -> re.Pattern[str]:
    flags = 0
    for flag in value.flags:
        flags |= value.sigma_to_python_flags[flag]
    return re.compile(str(value.regexp), flags)


def keyword_holds(value: Any, event: dict[str, Any]) -> bool:
    if isinstance(value, SigmaExpansion):
        return any(keyword_holds(each, event) for each in value.values)
    texts = [each for field in event for each in values_of(field, event) if isinstance(each, str)]
    if isinstance(value, SigmaRegularExpression):
        return any(regular_expression(value).search(text) for text in texts)
    if isinstance(value, SigmaNumber):
        return any(str(value.number) in text for text in texts)
    return any(pattern(value).search(text) for text in texts)
