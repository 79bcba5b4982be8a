"""Conditions on the fields of an event pattern, choices between them (`$or`), and the expression that asks for all.

Fields below a common path must be met by the same array element (the engine picks one value a field, and no two of
them from different elements of one array), so they go into one `any`; a field alone below its path is a plain
predicate:

items.sku: this = 'x'      items.qty: this > 2      source: this = 'shop'

any items (qty > 2 and sku = 'x') and source = 'shop'

`exists: false` is the odd one: see `_ways`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from siftline.language.connectives import all_of, any_of
from siftline.model import AnyElement, Expression, Not, Or, Predicate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


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


def expression_of(items: Items) -> Expression:
    """Return that all items hold."""
    if _overrides(items):
        return any_of(_together(tuple(alternative.values())) for alternative in alternatives(items))
    return _together(items)


def conditions_in(items: Items) -> Iterator[Condition]:
    """Yield all conditions, those of all branches included."""
    for item in items:
        if isinstance(item, Condition):
            yield item
        else:
            for branch in item.branches:
                yield from conditions_in(branch)


def alternatives(items: Items, before: Sequence[dict[str, Condition]] = ({},)) -> Sequence[dict[str, Condition]]:
    """Return the conjunctions that a pattern stands for; of two conditions on one field the later one counts."""
    for item in items:
        if isinstance(item, Condition):
            before = [{**alternative, item.path: item} for alternative in before]
        else:
            before = [one for branch in item.branches for one in alternatives(branch, before)]
    return before


def engine_order(condition: Condition) -> bytes:
    """Return the key by which the engine sorts fields: Java compares strings by UTF-16 units."""
    return condition.path.encode("utf-16-be", "surrogatepass")


def _overrides(items: Items) -> bool:
    """Return whether some alternative has two conditions on one field."""
    seen: set[str] = set()
    for item in items:
        if isinstance(item, Choice) and any(_overrides(branch) for branch in item.branches):
            return True
        paths = {condition.path for condition in conditions_in((item,))}
        if not seen.isdisjoint(paths):
            return True
        seen |= paths
    return False


# --- fields that may lie in the same array ---------------------------------------------------------------------------


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
    """Return that items hold whose fields may lie in the same array; a choice is kept whole where that is the same."""
    choice = next((item for item in items if isinstance(item, Choice)), None)
    if choice is None:
        return _scoped([item for item in items if isinstance(item, Condition)])
    if len(items) == 1:
        return any_of(_together(branch) for branch in choice.branches)
    conditions = list(conditions_in(items))
    head = conditions[0].path.partition(".")[0] + "."
    if all(one.path.startswith(head) and not one.may_be_absent for one in conditions):
        return _below(head[:-1], _together(tuple(_shortened(item, len(head)) for item in items)))
    rest = tuple(item for item in items if item is not choice)
    return any_of(_together(rest + branch) for branch in choice.branches)


def _shortened(item: Condition | Choice, n: int) -> Condition | Choice:
    """Return the item without the first `n` characters of its paths."""
    if isinstance(item, Condition):
        return replace(item, path=item.path[n:])
    return Choice(tuple(tuple(_shortened(inner, n) for inner in branch) for branch in item.branches))


# --- fields of the same element --------------------------------------------------------------------------------------


def _scoped(conditions: Sequence[Condition]) -> Expression:
    """Return that all conditions hold, for elements of the same arrays."""
    return all_of(_in_sight(part) for part in _parts(conditions))


def _parts(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """Split conditions into single fields and fields with the same first key, in the order of the engine."""
    parts: dict[str, list[Condition]] = {}
    for condition in sorted(conditions, key=engine_order):
        head, dot, _ = condition.path.partition(".")
        parts.setdefault(head + dot, []).append(condition)
    return list(parts.values())


class _Way(NamedTuple):
    """A way to meet conditions: fields that are absent from all that is in sight, and what one element satisfies."""

    absent: tuple[str, ...]
    holds: Expression


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
