"""CloudEvents subscription filters (CloudEvents Subscriptions API, "Filters"): JSON → model.

[{"prefix": {"type": "com.example."}}, {"not": {"exact": {"source": "/test"}}}]

type starts with 'com.example.' and (source = '/test') is not true
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import SubscriptionError
from siftline.language.connectives import all_of, any_of
from siftline.language.json_source import close_to, elements_of, expected, members_of, only_member, place_of, read_json
from siftline.model import MAX_DEPTH, TRUE, Expression, IsTrue, Not, Predicate, check_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from siftline.model import Constant

_NAME: Final = re.compile("[a-z0-9]+")
# An attribute of type Integer has at most 32 bits; larger numbers are accepted as long as the model takes them.
_INTEGER: Final = re.compile("0|-?[1-9][0-9]{0,17}")
_BOOLEANS: Final = {"true": True, "false": False}


def parse_filters(filters: Sequence[Mapping[str, Any]] | Mapping[str, Any] | str | bytes) -> Expression:
    """Translate CloudEvents filters into an expression.

    Parameters
    ----------
    filters : list, dict, str or bytes
        A list of filters, all of which must hold (none at all: every event matches), or one filter; as JSON text or
        parsed.

    Returns
    -------
    Expression
        Matches the events, in the JSON format of CloudEvents, that pass the filters.

    Raises
    ------
    SubscriptionError
        If a filter is malformed or of a dialect that is not supported, with the place.

    Examples
    --------
    >>> parse_filters([{"prefix": {"type": "com.example."}}, {"exact": {"priority": "5"}}])
    And((Predicate('type', 'starts with', 'com.example.'), Predicate('priority', 'in', ('5', 5))))
    >>> parse_filters('[{"exact": {"Type": "com.example.created"}}]')
    Traceback (most recent call last):
        ...
    siftline.errors.SubscriptionError: at [0].exact: 'Type' is not the name of an attribute
      hint: names have lower-case letters and digits only
    """
    tree = read_json(filters)
    listed = elements_of(tree)
    if listed is None and members_of(tree) is None:
        raise SubscriptionError("CloudEvents filters must be a JSON array of objects")
    if listed is None:
        expression = _filter(tree, "", 1)
    else:
        expression = all_of(_filter(one, f"[{i}]", 1) for i, one in enumerate(listed)) if listed else TRUE
    check_size(expression)
    return expression


def _filter(value: Any, where: str, depth: int) -> Expression:
    """Translate one filter: an object whose only key is its dialect."""
    if depth > MAX_DEPTH:
        raise SubscriptionError(f"the filters nest deeper than {MAX_DEPTH} levels", path=where[:100])
    members = members_of(value)
    if members is None:
        raise expected("a filter (an object)", value, where)
    dialect, operand = only_member(members, where)
    if dialect in ("sql", "cesql"):
        raise SubscriptionError(
            "the dialect 'sql' is not supported",
            path=where,
            hint="write the condition in Siftline's own language, which is close to SQL",
        )
    translate = _DIALECTS.get(dialect)
    if translate is None:
        hint = close_to(dialect, _DIALECTS)
        raise SubscriptionError(f"unknown filter dialect {dialect!r}", path=where, hint=hint)
    return translate(operand, place_of(dialect, where), depth)


def _all(operand: Any, where: str, depth: int) -> Expression:
    return all_of(_nested(operand, where, depth))


def _any(operand: Any, where: str, depth: int) -> Expression:
    return any_of(_nested(operand, where, depth))


def _not(operand: Any, where: str, depth: int) -> Expression:
    return Not(IsTrue(_filter(operand, where, depth + 1)))


def _nested(operand: Any, where: str, depth: int) -> list[Expression]:
    filters = elements_of(operand)
    if not filters:
        raise SubscriptionError("expected an array of at least one filter", path=where)
    return [_filter(one, f"{where}[{i}]", depth + 1) for i, one in enumerate(filters)]


def _exact(operand: Any, where: str, depth: int) -> Expression:
    return all_of(_equals(name, text) for name, text in _attributes(operand, where))


def _prefix(operand: Any, where: str, depth: int) -> Expression:
    return all_of(Predicate(name, "starts with", text) for name, text in _attributes(operand, where))


def _suffix(operand: Any, where: str, depth: int) -> Expression:
    return all_of(Predicate(name, "ends with", text) for name, text in _attributes(operand, where))


def _equals(name: str, text: str) -> Predicate:
    """Compare with the canonical text of the attribute, which may be an integer or a boolean in the event."""
    other: Constant | None = _BOOLEANS.get(text)
    if _INTEGER.fullmatch(text):
        other = int(text)
    return Predicate(name, "=", text) if other is None else Predicate(name, "in", (text, other))


def _attributes(operand: Any, where: str) -> list[tuple[str, str]]:
    """Check and return the attribute names and texts of exact, prefix and suffix."""
    members = members_of(operand)
    if not members:
        raise SubscriptionError("expected an object of attributes and their texts", path=where)
    if len({name for name, _ in members}) < len(members):
        raise SubscriptionError("an attribute is named twice", path=where, hint="use two filters under 'all'")
    for name, text in members:
        if not _NAME.fullmatch(str(name)):
            hint = "names have lower-case letters and digits only"
            raise SubscriptionError(f"{name!r} is not the name of an attribute", path=where, hint=hint)
        if name == "data":
            raise SubscriptionError("'data' is not an attribute", path=where, hint="filters see the attributes only")
        if not isinstance(text, str) or not text:
            raise expected("a non-empty string", text, f"{where}.{name}")
    return list(members)


_DIALECTS: Final[dict[str, Callable[[Any, str, int], Expression]]] = {
    "all": _all,
    "any": _any,
    "exact": _exact,
    "not": _not,
    "prefix": _prefix,
    "suffix": _suffix,
}
