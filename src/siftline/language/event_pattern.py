"""Event patterns (Amazon EventBridge) and SNS filter policies: JSON → model.

A pattern is read into conditions, one a field, each a disjunction of tests of *one value*, and choices (`$or`):

{"detail": {"state": ["on", {"prefix": "of"}], "$or": [{"n": [1]}, {"m": [2]}]}}

detail.state: this = 'on' or this starts with 'of'        choice: detail.n: this = 1 | detail.m: this = 2

Then the conditions are put where they belong. Fields below a common path must be met by the same array element
(the engine picks one value a field, and no two of them from different elements of one array), so they go into one
`any detail ( ... )`; a field alone below its path is a plain predicate. `exists: false` is the odd one: see `_ways`.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from siftline.errors import SubscriptionError
from siftline.model import (
    MAX_DEPTH,
    THIS,
    TRUE,
    And,
    AnyElement,
    Expression,
    IsTrue,
    Not,
    Or,
    Predicate,
    check_size,
)

OR: Final = "$or"

# A pattern may not stand for more alternatives than this: the product of the lengths of its `$or` arrays.
MAX_COMBINATIONS: Final = 1000

# So many beginnings of wildcards may fit one value at the same time. A public re-implementation of EventBridge names
# this limit; it agrees with the patterns that the service is known to accept and to refuse.
MAX_WILDCARD_COMPLEXITY: Final = 10
# Finding that number takes a search, which gives up (and refuses) after this many steps.
_MAX_WILDCARD_STEPS: Final = 10_000

# An object in `$or` with one of these names is a matcher, so `$or` is no operator there but a field of that name.
_RESERVED: Final = frozenset(
    {"exactly", "equals-ignore-case", "prefix", "suffix", "anything-but", "exists", "wildcard", "numeric", "cidr"}
    | {"=", "<", "<=", ">", ">=", "regex", "not-wildcard", "not-equals-ignore-case"}
    | {"date-after", "date-on-or-after", "date-before", "date-on-or-before", "in-date-range"}
    | {"ip-address-in-range", "ip-address-not-in-range"}
)

_WILDCARD_TOKEN: Final = re.compile(r"\\[*\\]|[*\\]|[^*\\]+")
_IPV4: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){3}")
_IPV6: Final = re.compile(r"[0-9a-fA-F:]*:[0-9a-fA-F:]*")
_STRING: Final = "a string"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a service accepts: matchers, those that `anything-but` may negate, and the reach of `numeric`."""

    matchers: frozenset[str]
    negatable: frozenset[str]
    has_lists: bool  # anything-but: {"prefix": [...]}, prefix: {"equals-ignore-case": ...}
    existing: str  # what `exists: true` asks of a value
    limit: int
    decimals: int


_COMMON: Final = frozenset({"exists", "anything-but", "prefix", "suffix", "equals-ignore-case", "numeric", "cidr"})
_NEGATABLE: Final = frozenset({"prefix", "suffix", "equals-ignore-case", "wildcard"})

_DIALECTS: Final = {
    "eventbridge": Dialect(_COMMON | {"exactly", "wildcard"}, _NEGATABLE, True, "exists", 5_000_000_000, 6),
    "sns": Dialect(_COMMON, frozenset({"prefix"}), False, "is not null", 1_000_000_000, 5),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """What one field must be: absent, or have a value (`this`) that meets one of the tests."""

    path: str
    tests: tuple[Expression, ...]
    may_be_absent: bool
    wildcards: tuple[tuple[str, ...], ...]
    n_values: int


@dataclass(frozen=True, slots=True)
class Choice:
    """An `$or`: the conditions of at least one branch must hold."""

    branches: tuple[Items, ...]


Items = tuple[Condition | Choice, ...]


class Members(tuple[tuple[str, Any], ...]):
    """A JSON object read from text: all its members in order, a repeated key included."""

    __slots__ = ()


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
    rules = _DIALECTS.get(dialect)
    if rules is None:
        raise SubscriptionError(f"unknown dialect {dialect!r}", hint="write 'eventbridge' or 'sns'")
    members = members_of(read_json(pattern))
    if members is None:
        raise SubscriptionError("an event pattern must be a JSON object")
    if dialect == "sns":
        from siftline.language.sns import check_limits

        if not members:  # an empty policy is how SNS removes a filter
            return TRUE
        items = _read(members, rules)
        check_limits(members, items)
    else:
        items = _read(members, rules)
    _check_wildcards(items)
    if _overrides(items):
        expression = any_of(_together(tuple(alternative.values())) for alternative in _alternatives(items))
    else:
        expression = _together(items)
    check_size(expression)
    return expression


# --- reading JSON ----------------------------------------------------------------------------------------------------


def read_json(source: object) -> Any:
    """Return parsed JSON: text is parsed, anything else is taken as it is."""
    if isinstance(source, (bytes, bytearray)):
        try:
            source = source.decode()
        except UnicodeDecodeError as error:
            raise SubscriptionError(f"the JSON is not UTF-8: {error.reason} at byte {error.start}") from None
    if not isinstance(source, str):
        return source
    try:
        return json.loads(source, object_pairs_hook=Members, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise SubscriptionError(f"invalid JSON: {reason}", text=source, position=error.pos) from None
    except RecursionError:
        raise SubscriptionError("the JSON nests too deeply") from None
    except SubscriptionError:
        raise
    except ValueError:  # Python reads integers of at most 4,300 digits
        raise SubscriptionError("invalid JSON: an integer has thousands of digits") from None


def _refuse_constant(name: str) -> None:
    raise SubscriptionError(f"invalid JSON: {name} is not a JSON number")


def members_of(value: object) -> Sequence[tuple[str, Any]] | None:
    """Return the members of a JSON object, None for anything else."""
    if isinstance(value, Members):
        return value
    return list(value.items()) if isinstance(value, Mapping) else None


def elements_of(value: object) -> Sequence[Any] | None:
    """Return the elements of a JSON array, None for anything else."""
    return value if isinstance(value, (list, tuple)) and not isinstance(value, Members) else None


def describe(value: object) -> str:
    """Return what kind of JSON a value is."""
    if members_of(value) is not None:
        return "an object"
    if elements_of(value) is not None:
        return "an array"
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: _STRING, type(None): "null"}
    return kinds.get(type(value), f"a {type(value).__name__}")


def expected(what: str, found: object, where: str, hint: str | None = None) -> SubscriptionError:
    """Return the error for JSON of the wrong kind."""
    return SubscriptionError(f"expected {what}, found {describe(found)}", path=where, hint=hint)


def close_to(name: str, names: Iterable[str]) -> str:
    """Return a hint that names what was probably meant, or else all there is."""
    names = sorted(names)
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"did you mean '{close[0]}'?" if close else "one of " + ", ".join(names)


# --- conditions and choices ------------------------------------------------------------------------------------------


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
        """Read one object; `path` is its attribute, `where` its place in the JSON."""
        if not members:
            raise SubscriptionError("an object must not be empty", path=where)
        if level > MAX_DEPTH:
            raise SubscriptionError(f"the pattern nests deeper than {MAX_DEPTH} levels", path=where[:100])
        items: list[Condition | Choice] = []
        for key, value in members:
            if not isinstance(key, str):
                raise SubscriptionError(f"a key must be a string, not {key!r}", path=where)
            place = f"{where}.{key}" if where else key
            if key == OR and self.or_is_operator:
                items.append(self._choice(value, path, place, level))
                continue
            if in_choice and key in _RESERVED:
                raise SubscriptionError(f"a field inside '$or' must not be named '{key}'", path=place)
            items += self._field(value, path + key, place, level, in_choice)
        return tuple(items)

    def _field(self, value: Any, path: str, where: str, level: int, in_choice: bool) -> Items:
        members = members_of(value)
        if members is not None:
            return self.fields(members, path + ".", where, level + 1, in_choice=in_choice)
        values = elements_of(value)
        if values is None:
            raise expected("an array or an object", value, where, "put the value into an array")
        return (self._condition(values, path, where),)

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

    def _condition(self, values: Sequence[Any], path: str, where: str) -> Condition:
        if not values:
            raise SubscriptionError("an array must not be empty", path=where)
        if path.count(".") >= MAX_DEPTH:
            raise SubscriptionError(f"the path of a field has more than {MAX_DEPTH} keys", path=where[:100])
        tests: list[Expression] = []
        wildcards: list[tuple[str, ...]] = []
        may_be_absent = False
        for i, value in enumerate(values):
            place = f"{where}[{i}]"
            name, operand = _matcher_of(value, place)
            if name == "exists" and operand is False:
                may_be_absent = True
                continue
            tests.append(self._test(name, operand, place))
            wildcards += _wildcards(name, operand)
        return Condition(path, tuple(tests), may_be_absent, tuple(wildcards), len(values))

    def _test(self, name: str, operand: Any, where: str) -> Expression:
        if name != "" and name not in self.dialect.matchers:
            raise SubscriptionError(f"unknown matcher '{name}'", path=where, hint=close_to(name, self.dialect.matchers))
        try:
            return _TESTS[name](operand, where, self.dialect)
        except SubscriptionError as error:
            if error.path is not None:
                raise
            # The model refused a constant; it does not know where that stands.
            raise SubscriptionError(error.reason, path=where, hint=error.hint) from None


def _matcher_of(value: Any, where: str) -> tuple[str, Any]:
    """Return the name and operand of a matcher; a bare value has the empty name."""
    members = members_of(value)
    return ("", value) if members is None else only_member(members, where)


def only_member(members: Sequence[tuple[str, Any]], where: str) -> tuple[str, Any]:
    """Return the one member that an object must have."""
    if len(members) != 1:
        raise SubscriptionError(f"expected an object with one key, found {len(members)} keys", path=where)
    return members[0]


def _wildcards(name: str, operand: Any) -> list[tuple[str, ...]]:
    """Return the wildcards of a matcher that has been found valid; a negated list counts as one."""
    if name == "wildcard":
        return [(operand,)]
    members = members_of(operand) if name == "anything-but" else None
    if members and members[0][0] == "wildcard":
        return [tuple(elements_of(members[0][1]) or (members[0][1],))]
    return []


# --- matchers: each returns a test of one value, `this` --------------------------------------------------------------


def _exact(value: Any, where: str, dialect: Dialect) -> Expression:
    if value is None:
        return And((Predicate(THIS, "exists"), Predicate(THIS, "is null")))
    if not isinstance(value, (str, bool, int, float)):
        raise expected("a string, number, boolean, null or matcher", value, where)
    if isinstance(value, str) and (address := _ipv6(value)):
        return Predicate(THIS, "cidr", f"{address}/128")  # however the event spells it, as the engine does
    return Predicate(THIS, "=", value)


def _ipv6(text: str) -> ipaddress.IPv6Address | None:
    try:
        return ipaddress.IPv6Address(text) if _IPV6.fullmatch(text) else None
    except ValueError:
        return None


def _exists(value: Any, where: str, dialect: Dialect) -> Expression:
    if value is not True:  # false was dealt with before
        raise expected("true or false", value, where)
    return Predicate(THIS, dialect.existing)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise expected(_STRING, value, where)
    return value


def _exactly(value: Any, where: str, dialect: Dialect) -> Expression:
    return Predicate(THIS, "=", _text(value, where))


def _ignore_case(value: Any, where: str, dialect: Dialect) -> Expression:
    return Predicate(THIS, "ilike", _like(_text(value, where)))


def _prefix(value: Any, where: str, dialect: Dialect) -> Expression:
    if (folded := _ignoring_case(value, where, dialect)) is not None:
        return Predicate(THIS, "ilike", _like(folded) + "%")
    return Predicate(THIS, "starts with", _text(value, where))


def _suffix(value: Any, where: str, dialect: Dialect) -> Expression:
    if (folded := _ignoring_case(value, where, dialect)) is not None:
        return Predicate(THIS, "ilike", "%" + _like(folded))
    return Predicate(THIS, "ends with", _text(value, where))


def _ignoring_case(value: Any, where: str, dialect: Dialect) -> str | None:
    """Return the text of {"equals-ignore-case": text}, None if the operand is no object."""
    members = members_of(value)
    if members is None or not dialect.has_lists:
        return None
    name, operand = only_member(members, where)
    if name != "equals-ignore-case":
        raise SubscriptionError(
            f"unknown matcher '{name}' here", path=where, hint="only 'equals-ignore-case' is allowed"
        )
    return _text(operand, where)


def _like(text: str) -> str:
    """Return a `like` pattern for the text itself."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def _wildcard(value: Any, where: str, dialect: Dialect) -> Expression:
    pieces = _pieces(_text(value, where), where)
    match pieces:
        case [text]:
            return Predicate(THIS, "=", text)
        case [text, ""]:
            return Predicate(THIS, "starts with", text)
        case ["", text]:
            return Predicate(THIS, "ends with", text)
        case ["", text, ""]:
            return Predicate(THIS, "contains", text)
    return Predicate(THIS, "like", "%".join(map(_like, pieces)))


def _pieces(pattern: str, where: str) -> list[str]:
    """Split a wildcard pattern at `*` into the texts between, without escapes."""
    pieces: list[list[str]] = [[]]
    previous = ""
    for token in _WILDCARD_TOKEN.findall(pattern):
        if token == "*" == previous:
            raise SubscriptionError(f"the wildcard {pattern!r} has two '*' in a row", path=where)
        if token == "\\":
            raise SubscriptionError(
                f"the wildcard {pattern!r} has a '\\' that escapes nothing", path=where, hint=r"write \\ or \*"
            )
        if token == "*":
            pieces.append([])
        else:
            pieces[-1].append(token[1] if token[0] == "\\" else token)
        previous = token
    return ["".join(piece) for piece in pieces]


def _cidr(value: Any, where: str, dialect: Dialect) -> Expression:
    address, _, bits = _text(value, where).partition("/")
    if not re.fullmatch(r"[0-9]{1,9}", bits, re.ASCII):
        raise SubscriptionError(f"{value!r} is not a network", path=where, hint="write it as 10.0.0.0/8")
    if _IPV4.fullmatch(address):  # the engine reads 010 as 10, Python refuses it
        address = ".".join(str(int(part)) for part in address.split("."))
    elif not _IPV6.fullmatch(address):
        raise SubscriptionError(f"{address!r} is not an IP address", path=where)
    if int(bits) >= (128 if ":" in address else 32):
        raise SubscriptionError(
            f"the mask /{bits} is too long", path=where, hint="at most /31 and /127; write a single address as a value"
        )
    return Predicate(THIS, "cidr", f"{address}/{int(bits)}")


def _numeric(value: Any, where: str, dialect: Dialect) -> Expression:
    terms = elements_of(value)
    if terms is None or len(terms) not in (2, 4):
        raise SubscriptionError("'numeric' needs an operator and a number, or two of each", path=where)
    pairs = [(terms[i], _number(terms[i + 1], where, dialect)) for i in range(0, len(terms), 2)]
    allowed = [("=", "<", "<=", ">", ">=")] if len(pairs) == 1 else [(">", ">="), ("<", "<=")]
    for (op, _), ops in zip(pairs, allowed, strict=True):
        if op not in ops:
            raise SubscriptionError(
                f"{op!r} is not an operator of 'numeric' here",
                path=where,
                hint='one of = < <= > >=; a range has its lower bound first, such as [">", 0, "<=", 5]',
            )
    if len(pairs) == 1:
        return Predicate(THIS, *pairs[0])
    (low_op, low), (high_op, high) = pairs
    if not low < high:
        raise SubscriptionError("the lower bound of a range must be less than the upper one", path=where)
    if (low_op, high_op) == (">=", "<="):
        return Predicate(THIS, "between", (low, high))
    return And((Predicate(THIS, low_op, low), Predicate(THIS, high_op, high)))


def _number(value: Any, where: str, dialect: Dialect) -> int | float:
    """Return a number that the service can order, or raise."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise expected("a number", value, where)
    limit, decimals = dialect.limit, dialect.decimals
    if not (math.isfinite(value) and -limit <= value <= limit):
        raise SubscriptionError(f"the number lies outside -{limit:,} to {limit:,}", path=where)
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    if isinstance(exponent, int) and exponent < -decimals:
        raise SubscriptionError(f"the number {value} has more than {decimals} decimals", path=where)
    return value


def _anything_but(value: Any, where: str, dialect: Dialect) -> Expression:
    """Ask for a value, null and other kinds included, that is none of these."""
    members = members_of(value)
    if members is None:
        excluded = _excluded_values(value, where, dialect)
    else:
        name, operand = only_member(members, where)
        if name not in dialect.negatable:
            hint = close_to(name, dialect.negatable)
            raise SubscriptionError(f"'anything-but' cannot negate '{name}'", path=where, hint=hint)
        excluded = any_of(_excluded(name, text, where, dialect) for text in _texts(operand, where, dialect))
    return And((Predicate(THIS, "exists"), Not(IsTrue(excluded))))


def _excluded_values(value: Any, where: str, dialect: Dialect) -> Expression:
    values = elements_of(value)
    values = [value] if values is None else values
    if not values:
        raise SubscriptionError("an array must not be empty", path=where)
    if not all(isinstance(one, str) for one in values):
        for one in values:
            if isinstance(one, bool) or not isinstance(one, (str, int, float)):
                raise expected("strings or numbers", one, where)
            if isinstance(one, str):
                raise SubscriptionError("'anything-but' takes strings or numbers, not both", path=where)
            _number(one, where, dialect)
    return Predicate(THIS, "=", values[0]) if len(values) == 1 else Predicate(THIS, "in", tuple(values))


def _texts(operand: Any, where: str, dialect: Dialect) -> Sequence[str]:
    values = elements_of(operand) if dialect.has_lists else None
    if values is not None and not values:
        raise SubscriptionError("an array must not be empty", path=where)
    return [_text(value, where) for value in ([operand] if values is None else values)]


def _excluded(name: str, text: str, where: str, dialect: Dialect) -> Expression:
    if not text and name in ("prefix", "suffix"):
        raise SubscriptionError(f"the {name} must not be empty", path=where)
    return _TESTS[name](text, where, dialect)


_TESTS: Final[dict[str, Callable[[Any, str, Dialect], Expression]]] = {
    "": _exact,
    "exactly": _exactly,
    "exists": _exists,
    "prefix": _prefix,
    "suffix": _suffix,
    "equals-ignore-case": _ignore_case,
    "wildcard": _wildcard,
    "cidr": _cidr,
    "numeric": _numeric,
    "anything-but": _anything_but,
}


# --- and, or, any: conditions to an expression -----------------------------------------------------------------------


def all_of(operands: Iterable[Expression]) -> Expression:
    """Return the conjunction, flat and without needless nodes."""
    flat: list[Expression] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, And) else (operand,)
    return flat[0] if len(flat) == 1 else And(flat)


def any_of(operands: Iterable[Expression]) -> Expression:
    """Return the disjunction, flat and without needless nodes."""
    flat: list[Expression] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, Or) else (operand,)
    return flat[0] if len(flat) == 1 else Or(flat)


def _below(path: str, expression: Expression) -> Expression:
    """Return `any path (expression)`, as plain predicates on the longer path where that is the same."""
    match expression:
        case Predicate(str(attribute), op, operand):
            return Predicate(f"{path}.{attribute}", op, operand)
        case AnyElement(attribute, inner):
            return AnyElement(f"{path}.{attribute}", inner)
        case Or(operands) if all(isinstance(operand, (Predicate, AnyElement)) for operand in operands):
            return Or([_below(path, operand) for operand in operands])
    return AnyElement(path, expression)


def _has_value(condition: Condition) -> Expression:
    """Return that some value of the field meets one of the tests."""
    constants = [test.operand for test in condition.tests if isinstance(test, Predicate) and test.op == "="]
    result: list[Expression] = []
    for test in condition.tests:
        if not isinstance(test, Predicate):
            result.append(AnyElement(condition.path, test))
        elif test.op != "=" or len(constants) == 1:
            result.append(Predicate(condition.path, test.op, test.operand))
    if len(constants) > 1:
        result.insert(0, Predicate(condition.path, "in", tuple(constants)))  # type: ignore[arg-type]
    return any_of(result)


def _together(items: Items) -> Expression:
    """Return that all items hold; those that share no path cannot disturb each other."""
    return all_of(_component(component) for component in _components(items))


def _components(items: Items) -> list[Items]:
    """Group the items whose fields begin with the same key, and so may lie in the same array."""
    groups: dict[int, list[Condition | Choice]] = {}
    group_of: dict[str, int] = {}
    for number, item in enumerate(items):
        heads = _heads(item)
        joined = sorted({group_of[head] for head in heads if head in group_of})
        group = groups.setdefault(joined[0] if joined else number, [])
        for other in joined[1:]:
            group += groups.pop(other)
        group.append(item)
        if len(joined) > 1:  # rare: the keys of the groups that went into the first one
            group_of = {head: joined[0] if owner in joined else owner for head, owner in group_of.items()}
        group_of.update(dict.fromkeys(heads, joined[0] if joined else number))
    return [tuple(group) for group in groups.values()]


def _heads(item: Condition | Choice) -> set[str]:
    """Return the first keys of the item's paths; a path of one key lies in no array that others could share."""
    if isinstance(item, Condition):
        head, dot, _ = item.path.partition(".")
        return {head} if dot else set()
    return {head for branch in item.branches for inner in branch for head in _heads(inner)}


def _component(items: Items) -> Expression:
    choice = next((item for item in items if isinstance(item, Choice)), None)
    if choice is None:
        return _scoped([item for item in items if isinstance(item, Condition)])
    if len(items) == 1:
        return any_of(_together(branch) for branch in choice.branches)
    conditions = list(_conditions(items))
    head = conditions[0].path.partition(".")[0] + "."
    if all(one.path.startswith(head) and not one.may_be_absent for one in conditions):
        return _below(head[:-1], _together(tuple(_shortened(item, len(head)) for item in items)))
    rest = tuple(item for item in items if item is not choice)
    return any_of(_together(rest + branch) for branch in choice.branches)


def _conditions(items: Items) -> Iterable[Condition]:
    for item in items:
        if isinstance(item, Condition):
            yield item
        else:
            for branch in item.branches:
                yield from _conditions(branch)


def _shortened(item: Condition | Choice, n: int) -> Condition | Choice:
    """Return the item without the first `n` characters of its paths."""
    if isinstance(item, Condition):
        return replace(item, path=item.path[n:])
    return Choice(tuple(tuple(_shortened(inner, n) for inner in branch) for branch in item.branches))


class _Way(NamedTuple):
    """A way to meet conditions: fields that are absent from all that is in sight, and what one element satisfies."""

    absent: tuple[str, ...]
    holds: Expression


def _scoped(conditions: Sequence[Condition]) -> Expression:
    """Return that all conditions hold, for elements of the same arrays."""
    return all_of(_in_sight(part) for part in _parts(conditions))


def _parts(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """Split conditions into single fields and fields with the same first key, in the order of the engine."""
    parts: dict[str, list[Condition]] = {}
    for condition in sorted(conditions, key=_engine_order):
        head, dot, _ = condition.path.partition(".")
        parts.setdefault(head + dot, []).append(condition)
    return list(parts.values())


def _engine_order(condition: Condition) -> bytes:
    return condition.path.encode("utf-16-be", "surrogatepass")  # Java compares strings so


def _ways(part: Sequence[Condition]) -> list[_Way]:
    """Return the ways to meet conditions below one key that find at least one value.

    The engine goes through the fields in order. With the first value that it picks it has chosen array elements:
    from there on `exists: false` looks only at what is consistent with them. Before, it looks at everything. So a
    way is told by the field that finds the first value: the fields before it are absent from everything in sight,
    the fields after it hold, or are absent, in the chosen element.
    """
    first = part[0]
    if len(part) == 1:
        return [_Way((), _has_value(first))] if first.tests else []
    head = first.path.partition(".")[0]
    parts = _parts([replace(condition, path=condition.path[len(head) + 1 :]) for condition in part])
    later = [_in_sight(inner) for inner in parts]
    ways: list[_Way] = []
    absent: tuple[str, ...] = ()
    for i, inner in enumerate(parts):
        for way in _ways(inner):
            outside = tuple(f"{head}.{path}" for path in absent + way.absent)
            ways.append(_Way(outside, _below(head, all_of([way.holds, *later[i + 1 :]]))))
        if not all(condition.may_be_absent for condition in inner):
            break
        absent += tuple(condition.path for condition in inner)
    return ways


def _in_sight(part: Sequence[Condition]) -> Expression:
    """Return that the conditions hold in the element (or event) that has been chosen."""
    options = [all_of([*_absent(way.absent), way.holds]) for way in _ways(part)]
    if all(condition.may_be_absent for condition in part):
        options.append(all_of(_absent(condition.path for condition in part)))
    return any_of(options)


def _absent(paths: Iterable[str]) -> list[Expression]:
    return [Not(Predicate(path, "exists")) for path in paths]


# --- `$or` multiplied out, as the engine does ------------------------------------------------------------------------


def _alternatives(items: Items, before: Sequence[dict[str, Condition]] = ({},)) -> Sequence[dict[str, Condition]]:
    """Return the conjunctions that a pattern stands for; of two conditions on one field the later one counts."""
    for item in items:
        if isinstance(item, Condition):
            before = [{**alternative, item.path: item} for alternative in before]
        else:
            before = [one for branch in item.branches for one in _alternatives(branch, before)]
    return before


def _overrides(items: Items) -> bool:
    """Return whether some alternative has two conditions on one field."""
    seen: set[str] = set()
    for item in items:
        if isinstance(item, Choice) and any(_overrides(branch) for branch in item.branches):
            return True
        paths = {condition.path for condition in _conditions((item,))}
        if not seen.isdisjoint(paths):
            return True
        seen |= paths
    return False


# --- how complex wildcards may be ------------------------------------------------------------------------------------


def _check_wildcards(items: Items) -> None:
    """Refuse wildcards that the service refuses: too many of their beginnings could fit one value at once."""
    if not any(condition.wildcards for condition in _conditions(items)):
        return
    fields: dict[tuple[int, str], dict[tuple[str, ...], None]] = {}
    for alternative in _alternatives(items):
        before = 0  # alternatives share a state of the engine as long as they are the same
        for condition in sorted(alternative.values(), key=_engine_order):
            if condition.wildcards:
                fields.setdefault((before, condition.path), {}).update(dict.fromkeys(condition.wildcards))
            before = hash((before, condition))
    for (_, path), wildcards in fields.items():
        if _is_too_complex(tuple(wildcards)):
            raise SubscriptionError(
                "the wildcards are too complex", path=path, hint="use fewer '*', or fewer repetitions after a '*'"
            )


_STAR: Final = None
_END: Final = ""


@lru_cache(maxsize=1024)
def _is_too_complex(wildcards: tuple[tuple[str, ...], ...]) -> bool:
    """Return whether some value is met by too many beginnings of these wildcards at the same time."""
    symbols, names = _machine(wildcards)
    start = frozenset(state for state, name in enumerate(names) if name == 0)
    pending, seen = [start], {start}
    while pending:
        active = pending.pop()
        # All symbols on which nothing advances lead to the same states: '' stands for them.
        for symbol in {symbols[state] or _END for state in active} | {_END}:
            following = _step(active, symbol, symbols)
            if len({names[state] for state in following}) > MAX_WILDCARD_COMPLEXITY or len(seen) > _MAX_WILDCARD_STEPS:
                return True
            if following not in seen:
                seen.add(following)
                pending.append(following)
    return False


def _machine(wildcards: tuple[tuple[str, ...], ...]) -> tuple[list[str | None], list[int]]:
    """Return for each state (a beginning of a wildcard) the symbol it waits for, and a number that names it.

    The engine stores the beginnings of one matcher up to and with the first `*` only once, and also their end.
    """
    symbols: list[str | None] = []
    names: list[int] = []
    known: dict[object, int] = {None: 0}
    for matcher, patterns in enumerate(wildcards):
        for pattern in patterns:
            text: list[str | None] = ['"', *_symbols(pattern), '"']
            name = 0
            for i, symbol in enumerate(text):
                symbols.append(symbol)
                names.append(name)
                shared = (matcher, name, symbol) if _STAR not in text[:i] else (len(names), symbol)
                name = known.setdefault((matcher, _END) if i == len(text) - 1 else shared, len(known))
            symbols.append(_END)
            names.append(name)
    return symbols, names


def _symbols(pattern: str) -> list[str | None]:
    symbols: list[str | None] = []
    for token in _WILDCARD_TOKEN.findall(pattern):
        symbols += [_STAR] if token == "*" else token[1] if token[0] == "\\" else token
    return symbols


def _step(active: frozenset[int], symbol: str, symbols: Sequence[str | None]) -> frozenset[int]:
    following = {state + 1 for state in active if symbol and symbols[state] == symbol}
    following |= {state for state in active if state and symbols[state - 1] is _STAR}
    return frozenset(following | {state + 1 for state in following if symbols[state] is _STAR})
