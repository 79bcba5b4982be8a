"""Why an event matches a subscription, or why not, condition by condition.

Every truth that is shown comes from `model.evaluate`, so an explanation cannot disagree with matching. This module only
selects the conditions that decide, and shows the values that they were compared with.

>>> from siftline.language.text import parse
>>> print(explain(parse("price <= 580 and not (tags = 'used')"), {"price": "5", "tags": ["new", "boxed"]}, "ann"))
no match: ann
  unknown  and
  unknown    price <= 580       price is '5', a string: not comparable with a number
  yes        not
  no           tags = 'used'    tags is 'new', 'boxed' (any may satisfy)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from siftline.language.printer import to_text
from siftline.language.tokens import quoted, write_path
from siftline.model import (
    And,
    AnyElement,
    AnyString,
    AttributeComparison,
    Call,
    Constraint,
    Event,
    Expression,
    IsTrue,
    Length,
    Not,
    Now,
    Or,
    Predicate,
    best_substitution,
    children,
    compare,
    evaluate,
    has_calls,
    kind_of,
    text_of_instant,
    truth_under,
    variables_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from siftline.model import Element, Leaf, Substitution, Truth
    from siftline.operators.explained import ExplainedCalls
    from siftline.operators.trace import Trace

    Record = Event | Element

__all__ = ["Condition", "Explanation", "explain"]

# How many conditions are shown in all and below one `and` or `or`, and how many elements of one array.
_MAX_SHOWN: Final = 200
_MAX_OPERANDS: Final = 20
_MAX_ELEMENTS: Final = 5
# How many values of an attribute are shown as text and as JSON.
_MAX_VALUES: Final = 5
_MAX_JSON_VALUES: Final = 50
# How many characters of a condition and of a value are shown as text, and of both as JSON.
_MAX_TEXT: Final = 72
_MAX_VALUE: Final = 60
_MAX_JSON_TEXT: Final = 10_000
# Reasons are aligned in a column after conditions of at most this width.
_MAX_COLUMN: Final = 60

_WORDS: Final = {True: "yes", False: "no", None: "unknown"}
_NAMES: Final = {True: "true", False: "false", None: "unknown"}


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a subscription and its outcome.

    Attributes
    ----------
    text : str
        The condition in the language; of a group only its connective.
    truth : True, False or None
        None is unknown.
    values : list or None
        The values of the event that the condition was compared with, including nulls; None for groups.
    reason : str
        The values in words.
    children : list of Condition
        The members of a group, or the elements of an array.
    omitted : dict
        How many children are not shown, by truth.
    """

    text: str
    truth: Truth
    values: Sequence[Leaf] | None = None
    reason: str = ""
    children: list[Condition] = field(default_factory=list)
    omitted: dict[Truth, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the condition as JSON-ready dicts and lists."""
        document: dict[str, Any] = {"text": _shortened(self.text, _MAX_JSON_TEXT), "truth": _NAMES[self.truth]}
        if self.values is not None:
            document["values"] = [_json_value(value) for value in self.values[:_MAX_JSON_VALUES]]
            document["n_values"] = len(self.values)
        if self.reason:
            document["reason"] = self.reason
        if self.children:
            document["children"] = [child.to_dict() for child in self.children]
        if self.omitted:
            document["omitted"] = {_NAMES[truth]: count for truth, count in self.omitted.items()}
        return document


class Explanation:
    """Why an event matches a subscription, or why not; `print` it, or take `to_dict()`.

    Attributes
    ----------
    matched : bool
        Whether the event satisfies the subscription.
    id : int, str or None
        The subscription.
    condition : Condition
        The whole expression.
    calls : Trace or None
        The calls that matching the event against all subscriptions of an engine took.
    """

    __slots__ = ("calls", "condition", "id")

    def __init__(self, id: int | str | None, condition: Condition, calls: Trace | None = None) -> None:
        self.id = id
        self.condition = condition
        self.calls = calls

    @property
    def matched(self) -> bool:
        """Whether the event satisfies the subscription: unknown does not match."""
        return self.condition.truth is True

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON-ready dicts and lists."""
        calls = {} if self.calls is None else {"calls": self.calls.to_dict()}
        return {"subscription": self.id, "matched": self.matched, "condition": self.condition.to_dict(), **calls}

    def __str__(self) -> str:
        title = "match" if self.matched else "no match"
        if self.id is not None:
            title += f": {_printable(str(self.id))}"
        calls = [] if self.calls is None else [f"calls of the event: {self.calls}"]
        return "\n".join([title, *_layout(list(_rows(self.condition, 0))), *calls])

    def __repr__(self) -> str:
        return f"<Explanation of {self.id!r}: {'match' if self.matched else 'no match'}>"


class _CalledEvent(Event):
    """An event with the results of calls, and values for the variables of the condition."""

    __slots__ = ("calls", "substitution")

    def __init__(self, tree: Mapping[str, Any], now: int, calls: ExplainedCalls, substitution: Substitution) -> None:
        super().__init__(tree, now)
        self.calls = calls
        self.substitution = substitution


def explain(
    expression: Expression,
    tree: Mapping[str, Any],
    id: int | str | None = None,
    trace: Trace | None = None,
    *,
    now: int | None = None,
) -> Explanation:
    """Explain condition by condition why an event matches an expression, or why not.

    Parameters
    ----------
    expression : Expression
        The subscription's condition.
    tree : dict
        The event.
    id : int or str, optional
        The subscription's id, for the title.
    trace : Trace, optional
        The calls that matching the event took.
    now : int, optional
        The instant that `now()` means; the current time if left out.

    All operators of the condition are called. Its variables are shown with one substitution that satisfies the
    condition, or else with one that satisfies as much of it as possible.

    Raises
    ------
    EventError
        If `tree` is not an event.
    """
    event = Event(tree, now)
    if not has_calls(expression):
        return Explanation(id, _condition(expression, event, _MAX_SHOWN))
    from siftline.operators.explained import ExplainedCalls

    calls = ExplainedCalls(tree, trace)
    substitution = best_substitution(expression, event, calls.solve, {})
    return Explanation(
        id, _condition(expression, _CalledEvent(tree, event.now, calls, substitution), _MAX_SHOWN), trace
    )


# From expressions to conditions. `room` is how many conditions may be shown, including the node itself.


def _condition(expression: Expression, record: Record, room: int) -> Condition:
    while isinstance(expression, (And, Or)) and len(expression.operands) == 1:
        expression = expression.operands[0]
    truth = _truth(expression, record)
    match expression:
        case Predicate():
            values = record.values(expression.attribute)
            return Condition(to_text(expression), truth, values, _reason(expression, record, truth))
        case AttributeComparison(attribute, _, other):
            values = [*record.values(attribute), *record.values(other)]
            return Condition(to_text(expression), truth, values, _comparison_reason(expression, record, truth))
        case AnyString():
            reason = _strings_reason(expression, record, truth)
            return Condition(to_text(expression), truth, record.strings(), reason)
        case Length(attribute):
            return Condition(to_text(expression), truth, record.values(attribute), _length_reason(expression, record))
        case AnyElement():
            return _any_condition(expression, record, truth, room)
        case Not(IsTrue(operand)):
            return _group("is not true", truth, (operand,), _inside_not(operand, record), room)
        case Not(operand):
            return _group("not", truth, (operand,), _inside_not(operand, record), room)
        case And() | Or() | IsTrue():
            return _group(_connective(expression), truth, children(expression), record, room)
        case Call() if isinstance(record, _CalledEvent):
            return Condition(to_text(expression), truth, reason=record.calls.note(expression))
        case Constraint() if isinstance(record, _CalledEvent):
            return Condition(to_text(expression), truth, reason=_taken(expression, record))
    return Condition(to_text(expression), truth)


def _truth(expression: Expression, record: Record) -> Truth:
    if isinstance(record, _CalledEvent):
        return truth_under(expression, record, record.calls.solve, record.substitution)
    return evaluate(expression, record)


def _inside_not(operand: Expression, record: Record) -> Record:
    """Return the event with values for the variables inside a negation."""
    if not isinstance(record, _CalledEvent):
        return record
    inner = best_substitution(operand, record, record.calls.solve, record.substitution)
    return _CalledEvent(record.tree, record.now, record.calls, inner)


def _taken(constraint: Constraint, record: _CalledEvent) -> str:
    """Return the values of a constraint's variables, in words."""
    parts = [(name, record.substitution[name]) for name in variables_of(constraint)]
    return ", ".join(f"?{name} is {'unbound' if value is None else _shown(value)}" for name, value in parts)


def _connective(expression: Expression) -> str:
    match expression:
        case And(operands):
            return "and" if operands else "true"
        case Or(operands):
            return "or" if operands else "false"
    return "is true"


def _group(text: str, truth: Truth, operands: Sequence[Expression], record: Record, room: int) -> Condition:
    truths = [_truth(operand, record) for operand in operands]
    shown = _chosen(truths, truth, min(_MAX_OPERANDS, room - 1))
    below = []
    left = room - 1
    for n_done, position in enumerate(shown):
        # Room that one operand does not use is left to the others.
        child = _condition(operands[position], record, left // (len(shown) - n_done))
        left -= _size(child)
        below.append(child)
    return Condition(text, truth, children=below, omitted=_counts(truths, shown))


def _chosen(truths: Sequence[Truth], outcome: Truth, limit: int) -> Sequence[int]:
    """Return the positions of the operands to show; if they are too many, first those with the outcome's truth."""
    if len(truths) <= limit:
        return range(len(truths))
    by_weight = sorted(range(len(truths)), key=lambda position: truths[position] is not outcome)
    return sorted(by_weight[: max(limit, 0)])


def _counts(truths: Sequence[Truth], shown: Sequence[int]) -> dict[Truth, int]:
    """Return how many operands are not shown, by truth."""
    hidden = set(range(len(truths))).difference(shown)
    counts: dict[Truth, int] = {}
    for position in sorted(hidden):
        counts[truths[position]] = counts.get(truths[position], 0) + 1
    return counts


def _size(condition: Condition) -> int:
    return 1 + sum(_size(child) for child in condition.children)


def _any_condition(expression: AnyElement, record: Record, truth: Truth, room: int) -> Condition:
    name = write_path(expression.attribute)
    elements = record.elements(expression.attribute)
    truths = [evaluate(expression.operand, element) for element in elements]
    shown = _chosen(truths, truth, min(_MAX_ELEMENTS, (room - 1) // 2))
    below = []
    left = room - 1
    for n_done, position in enumerate(shown):
        share = left // (len(shown) - n_done)
        child = _condition(expression.operand, elements[position], share - 1)
        element = Condition(f"element {position + 1} of {len(elements)}", truths[position], children=[child])
        left -= _size(element)
        below.append(element)
    text = f"any {name} ({_inside(expression.operand)})"
    reason = "" if elements else f"{name} {_absence(expression.attribute, record)}"
    return Condition(text, truth, reason=reason, children=below, omitted=_counts(truths, shown))


def _inside(operand: Expression) -> str:
    return to_text(operand) if isinstance(operand, (Predicate, AttributeComparison, AnyString, Length)) else "..."


# Reasons


def _reason(predicate: Predicate, record: Record, truth: Truth) -> str:
    """Return the values that a predicate was compared with, in words."""
    leaves = record.values(predicate.attribute)
    text = _found(predicate.attribute, record)
    values = [leaf for leaf in leaves if leaf is not None]
    if predicate.operand is None or not values:
        return text
    if truth is None:
        return text + _mismatch(predicate, values)
    remarks = ["any may satisfy"] if len(values) > 1 else []
    if any(isinstance(constant, Now) for constant in predicate.constants()):
        remarks.append(f"now() is {text_of_instant(record.now)}")
    return text + (f" ({'; '.join(remarks)})" if remarks else "")


def _found(path: str | None, record: Record) -> str:
    """Say what the event has at a path."""
    leaves = record.values(path)
    return f"{_name(path)} {f'is {_listed(leaves)}' if leaves else _absence(path, record)}"


def _name(path: str | None) -> str:
    return "the element" if path is None else _shortened(write_path(path), _MAX_VALUE)


def _comparison_reason(comparison: AttributeComparison, record: Record, truth: Truth) -> str:
    """Say what the event has at two paths; the one on the right may be a string without its quotes."""
    left, right = record.values(comparison.attribute), record.values(comparison.other)
    text = f"{_found(comparison.attribute, record)}; {_found(comparison.other, record)}"
    if truth is None and any(leaf is not None for leaf in left) and any(leaf is not None for leaf in right):
        return f"{text}: not comparable"
    if not right and comparison.offset is None and any(isinstance(leaf, str) for leaf in left):
        return f"{text}: a string is written {_shown(comparison.other)}"
    return text


def _strings_reason(test: AnyString, record: Record, truth: Truth) -> str:
    """Say which string of the event satisfies a test, or how many do not."""
    texts = record.strings()
    if truth is True:
        return f"one is {_shown(next(text for text in texts if compare(text, test.op, test.operand)))}"
    if truth is None and texts:
        return f"not comparable: {_listed(texts)}"
    return f"none of {len(texts):,} strings" if texts else "there is no string"


def _length_reason(test: Length, record: Record) -> str:
    """Say how long the strings of an attribute are."""
    lengths = [len(leaf) for leaf in record.values(test.attribute) if isinstance(leaf, str)]
    if not lengths:
        text = _found(test.attribute, record)
        return f"{text}: not a string" if any(leaf is not None for leaf in record.values(test.attribute)) else text
    return f"the length of {_name(test.attribute)} is {_listed(lengths)}"


def _absence(path: str | None, record: Record) -> str:
    """Return why an attribute has no value, in words."""
    if path is None or not isinstance(record, Event):
        return "is absent"
    if any(other.startswith(f"{path}.") for other in record.leaves):
        return "is an array of objects" if path in record.leaves else "is an object"
    if path in record.leaves:
        return "is an empty array"
    same = [other for other in record.leaves if other.casefold() == path.casefold()]
    return f"is absent (there is {write_path(same[0])})" if same else "is absent"


def _mismatch(predicate: Predicate, values: Sequence[Leaf]) -> str:
    """Return why none of the values can be compared, in words."""
    kinds = sorted({kind_of(value) for value in values})
    wanted = sorted({kind_of(constant) for constant in predicate.constants()})
    if wanted == ["timestamp"] and kinds == ["string"]:
        return ": not a time" if len(values) == 1 else ": not times"
    if kinds == wanted:  # only `cidr` is unknown for a value of the right kind
        return ": not an IP address" if len(values) == 1 else ": not IP addresses"
    found = f"a {kinds[0]}" if len(values) == 1 else " and ".join(f"{kind}s" for kind in kinds)
    return f", {found}: not comparable with {' or '.join(f'a {kind}' for kind in wanted) or 'an empty list'}"


def _listed(leaves: Sequence[Leaf]) -> str:
    shown = ", ".join(_shown(leaf) for leaf in leaves[:_MAX_VALUES])
    return shown if len(leaves) <= _MAX_VALUES else f"{shown}, ... ({len(leaves)} values)"


def _shown(leaf: Leaf) -> str:
    """Return a value as the language writes it, shortened and safe to print."""
    if leaf is None:
        return "null"
    if isinstance(leaf, bool):
        return "true" if leaf else "false"
    if isinstance(leaf, int):
        return _integer(leaf)
    if isinstance(leaf, float):
        return repr(leaf)
    return quoted(_printable(_shortened(leaf, _MAX_VALUE)), "'")


def _integer(value: int) -> str:
    # Thousands of digits would not help a reader.
    bits = value.bit_length()
    return str(value) if bits <= 256 else f"an integer of {bits:,} bits"


def _json_value(value: Leaf) -> Leaf:
    if isinstance(value, str):
        return _shortened(value, _MAX_JSON_TEXT)
    if type(value) is int and value.bit_length() > 256:
        return _integer(value)
    return value


def _printable(text: str) -> str:
    """Escape characters that would move the cursor or break the line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _shortened(text: str, width: int) -> str:
    """Cut the middle out of a long text."""
    if len(text) <= width:
        return text
    tail = width // 4
    return f"{text[: width - tail - 3]}...{text[-tail:]}"


# Layout: three columns, the truth, the condition indented by its depth, and the reason.

_Row = tuple[str, str, str]


def _rows(condition: Condition, depth: int) -> Iterator[_Row]:
    indent = "  " * depth
    yield _WORDS[condition.truth], indent + _printable(_shortened(condition.text, _MAX_TEXT)), condition.reason
    for child in condition.children:
        yield from _rows(child, depth + 1)
    if condition.omitted:
        counts = ", ".join(f"{count:,} {_WORDS[truth]}" for truth, count in condition.omitted.items())
        yield "", f"{indent}  ... and {sum(condition.omitted.values()):,} more: {counts}", ""


def _layout(rows: list[_Row]) -> list[str]:
    first = max(len("yes"), *(len(word) for word, _, _ in rows)) + 2
    widths = [len(text) for _, text, reason in rows if reason and len(text) <= _MAX_COLUMN]
    second = max(widths, default=0) + 4
    lines = []
    for word, text, reason in rows:
        gap = max(second, len(text) + 4) if reason else 0
        lines.append(f"  {word:<{first}}{text:<{gap}}{reason}".rstrip())
    return lines
