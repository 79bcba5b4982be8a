"""Event patterns (Amazon EventBridge) and SNS filter policies: JSON → model.

A pattern is read into conditions, one a field, each a disjunction of tests of *one value*, and choices (`$or`):

{"detail": {"state": ["on", {"prefix": "of"}], "$or": [{"n": [1]}, {"m": [2]}]}}

detail.state: this = 'on' or this starts with 'of'        choice: detail.n: this = 1 | detail.m: this = 2

`pattern_matchers` makes the tests, `pattern_conditions` puts the conditions together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from siftline.errors import SubscriptionError
from siftline.language.json_source import elements_of, expected, members_of, place_of, read_json
from siftline.language.pattern_conditions import Choice, Condition, Items, expression_of
from siftline.language.pattern_matchers import DIALECTS, RESERVED, Dialect, name_and_operand, value_test, wildcards_of
from siftline.language.pattern_wildcards import check_wildcards
from siftline.language.sns import check_limits
from siftline.model import MAX_DEPTH, TRUE, Expression, check_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["parse_pattern"]

OR: Final = "$or"

# A pattern may not stand for more alternatives than this: the product of the lengths of its `$or` arrays.
MAX_COMBINATIONS: Final = 1000


def parse_pattern(
    pattern: Mapping[str, Any] | str | bytes, dialect: Literal["eventbridge", "sns"] = "eventbridge"
) -> Expression:
    """Translate an event pattern, or an SNS filter policy, into an expression.

    Parameters
    ----------
    pattern : dict, str or bytes
        The pattern, as JSON text or parsed.
    dialect : {'eventbridge', 'sns'}
        Whose rules hold; see LANGUAGE.md.

    Returns
    -------
    Expression
        Matches the events that the service would match.

    Raises
    ------
    SubscriptionError
        If the service would refuse the pattern, with the place in it.

    Examples
    --------
    >>> parse_pattern({"source": ["aws.ec2", "aws.s3"], "detail": {"size": [{"numeric": [">", 100]}]}})
    And((Predicate('source', 'in', ('aws.ec2', 'aws.s3')), Predicate('detail.size', '>', 100)))
    >>> parse_pattern('{"detail": {"state": "on"}}')
    Traceback (most recent call last):
        ...
    siftline.errors.SubscriptionError: at detail.state: expected an array or an object, found a string
      hint: put the value into an array
    """
    if dialect not in DIALECTS:
        raise SubscriptionError(f"unknown dialect {dialect!r}", hint="write 'eventbridge' or 'sns'")
    members = members_of(read_json(pattern))
    if members is None:
        raise SubscriptionError("an event pattern must be a JSON object")
    if dialect == "sns" and not members:  # an empty policy is how SNS removes a filter
        return TRUE
    items = _read(members, DIALECTS[dialect])
    if dialect == "sns":
        check_limits(members, items)
    check_wildcards(items)
    expression = expression_of(items)
    check_size(expression)
    return expression


def _read(members: Sequence[tuple[str, Any]], dialect: Dialect) -> Items:
    """Read a pattern; if it makes no sense with `$or` as an operator, `$or` is a field like any other."""
    reader = _Reader(dialect, or_is_operator=True)
    try:
        items = reader.fields(members, "", "", 1, in_choice=False)
    except SubscriptionError:
        try:
            return _Reader(dialect, or_is_operator=False).fields(members, "", "", 1, in_choice=False)
        except SubscriptionError:
            pass
        raise  # the first error tells more
    if reader.n_combinations > MAX_COMBINATIONS:
        raise SubscriptionError(
            f"the pattern stands for more than {MAX_COMBINATIONS:,} combinations",
            hint="the lengths of the '$or' arrays multiply",
        )
    return items


class _Reader:
    """Reads the objects of one pattern into conditions and choices."""

    def __init__(self, dialect: Dialect, *, or_is_operator: bool) -> None:
        self.dialect = dialect
        self.or_is_operator = or_is_operator
        self.n_combinations = 1

    def fields(
        self, members: Sequence[tuple[str, Any]], path: str, where: str, level: int, *, in_choice: bool
    ) -> Items:
        """Read one object; `path` is its attribute with a dot after it, `where` its place in the JSON."""
        if not members:
            raise SubscriptionError("an object must not be empty", path=where)
        if level > MAX_DEPTH:
            raise SubscriptionError(f"the pattern nests deeper than {MAX_DEPTH} levels", path=where[:100])
        items: list[Condition | Choice] = []
        for key, value in members:
            if not isinstance(key, str):
                raise SubscriptionError(f"a key must be a string, not {key!r}", path=where)
            place = place_of(key, where)
            if key == OR and self.or_is_operator:
                items.append(self._choice(value, path, place, level))
                continue
            if in_choice and key in RESERVED:
                raise SubscriptionError(f"a field inside '$or' must not be named '{key}'", path=place)
            items += self._field(value, path + key, place, level, in_choice)
        return tuple(items)

    def _field(self, value: Any, path: str, where: str, level: int, in_choice: bool) -> Items:
        members = members_of(value)
        if members is not None:
            return self.fields(members, path + ".", where, level + 1, in_choice=in_choice)
        matchers = elements_of(value)
        if matchers is None:
            raise expected("an array or an object", value, where, "put the value into an array")
        return (self._condition(matchers, path, where),)

    def _choice(self, value: Any, path: str, where: str, level: int) -> Choice:
        branches = elements_of(value)
        if branches is None or len(branches) < 2:
            raise SubscriptionError("'$or' needs an array of at least two objects", path=where)
        self.n_combinations *= len(branches)
        read = []
        for i, branch in enumerate(branches):
            members = members_of(branch)
            if members is None:
                raise expected("an object", branch, f"{where}[{i}]")
            read.append(self.fields(members, path, f"{where}[{i}]", level + 1, in_choice=True))
        return Choice(tuple(read))

    def _condition(self, matchers: Sequence[Any], path: str, where: str) -> Condition:
        if not matchers:
            raise SubscriptionError("an array must not be empty", path=where)
        if path.count(".") >= MAX_DEPTH:
            raise SubscriptionError(f"the path of a field has more than {MAX_DEPTH} keys", path=where[:100])
        tests: list[Expression] = []
        wildcards: list[tuple[str, ...]] = []
        may_be_absent = False
        for i, matcher in enumerate(matchers):
            try:
                name, operand = name_and_operand(matcher)
                if name == "exists" and operand is False:
                    may_be_absent = True
                    continue
                tests.append(value_test(name, operand, self.dialect))
                wildcards += wildcards_of(name, operand)
            except SubscriptionError as error:
                raise SubscriptionError(error.reason, path=f"{where}[{i}]", hint=error.hint) from None
        return Condition(path, tuple(tests), may_be_absent, tuple(wildcards), len(matchers))
