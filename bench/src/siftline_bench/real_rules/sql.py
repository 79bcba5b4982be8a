r"""Expressions as conditions of SQL, and the columns that they ask for.

SQL has the three-valued logic of the language: NULL is unknown. An attribute becomes several columns, because a column
has one type: its text, its folded text, its number, its boolean, its address, and whether it is there. Folding and
reading addresses are done once, before the table is loaded, so that a database compares plain strings.

    EventID in (1, '1') and Image ends with '\CMD.EXE' ignoring case

    coalesce(c0 IN (1e0), c1 IN ('1')) AND ends_with(c2, '\cmd.exe')
"""

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from siftline.model.derived import AnyString, AttributeComparison
from siftline.model.expression import And, Expression, IsTrue, Not, Or
from siftline.model.predicate import (
    COMPARISONS,
    IGNORING_CASE,
    POSITIVE_OF,
    PRESENCES,
    Predicate,
    compile_regex,
    parse_network,
)
from siftline.model.wildcard import fold, parse_like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from siftline.model import Event

# What a column has of an attribute. Presence is NULL where it is absent, false where it is null.
TEXT, FOLDED, NUMBER, BOOLEAN, ADDRESS, PRESENCE = "text", "folded", "number", "boolean", "address", "presence"
# All strings of an event, under no attribute.
TEXTS, FOLDED_TEXTS = "texts", "folded texts"
# A list without constants: nothing can be compared with it, and databases do not agree about it.
_UNKNOWN: Final = "CAST(NULL AS BOOLEAN)"
_FORM_OF: Final[dict[type, str]] = {str: TEXT, int: NUMBER, float: NUMBER, bool: BOOLEAN}


class UntranslatableError(Exception):
    """An expression that the columns or the database cannot express."""


class Columns:
    """The columns that conditions have asked for."""

    def __init__(self) -> None:
        self.names: dict[tuple[str | None, str], str] = {}

    def name(self, attribute: str | None, form: str) -> str:
        """Return the name of a column, which from now on is in the table."""
        return self.names.setdefault((attribute, form), f"c{len(self.names)}")

    @property
    def attributes(self) -> set[str]:
        """The attributes of which there are columns."""
        return {attribute for attribute, _ in self.names if attribute is not None}

    def has(self, event: Event) -> bool:
        """Return whether the columns have all that conditions can ask for: no arrays, no string beyond SQL's."""
        if any(attribute is None for attribute, _ in self.names) and not all(map(_is_text, event.strings())):
            return False
        return all(_has_cell(event.leaves.get(attribute, [])) for attribute in self.attributes)

    def cells(self, events: Sequence[Event]) -> dict[str, list[Any]]:
        """Return the values of all columns for some events."""
        return {name: [cell(event, *key) for event in events] for key, name in self.names.items()}


def _has_cell(leaves: Sequence[Any]) -> bool:
    if len(leaves) > 1:
        return False
    return all(_is_text(leaf) if isinstance(leaf, str) else is_exact(leaf) for leaf in leaves)


def _is_text(text: str) -> bool:
    return (text.isascii() and "\0" not in text) or not any(_is_beyond_sql(c) for c in text)


def _is_beyond_sql(character: str) -> bool:
    return character == "\0" or "\ud800" <= character <= "\udfff"


def is_exact(value: float | None) -> bool:
    """Return whether a number, if it is one, is a double."""
    try:
        return value is None or float(value) == value
    except OverflowError:
        return False


def cell(event: Event, attribute: str | None, form: str) -> Any:
    """Return the value of one column for an event."""
    if attribute is None:
        texts = event.strings()
        return [fold(text) for text in texts] if form == FOLDED_TEXTS else texts
    leaves = event.leaves.get(attribute)
    if not leaves:
        return None
    (leaf,) = leaves
    if form == PRESENCE:
        return leaf is not None
    if isinstance(leaf, str):
        return _of_text(leaf, form)
    if isinstance(leaf, bool):
        return leaf if form == BOOLEAN else None
    return float(leaf) if leaf is not None and form == NUMBER else None


def _of_text(text: str, form: str) -> str | None:
    if form == ADDRESS:
        return _address(text)
    return {TEXT: text, FOLDED: fold(text)}.get(form)


def _address(text: str) -> str | None:
    try:
        return _sortable(ipaddress.ip_address(text))
    except ValueError:
        return None


def _sortable(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return an address so that the order of texts is that of addresses, and networks are ranges."""
    return f"{address.version}{int(address):032x}"


class Dialect(Protocol):
    """What databases write differently: tests of a value, which is an expression of SQL, against a text."""

    def contains(self, value: str, text: str) -> str:
        """Return the test that a value holds a text."""

    def starts_with(self, value: str, text: str) -> str:
        """Return the test that a value begins with a text."""

    def ends_with(self, value: str, text: str) -> str:
        """Return the test that a value ends with a text."""

    def like(self, value: str, pattern: str) -> str:
        """Return the test that a value fits a pattern, in which a backslash escapes."""

    def matches(self, value: str, pattern: str) -> str:
        """Return the test that RE2 finds a regular expression."""

    def any_text(self, column: str, test: Callable[[str], str]) -> str:
        """Return the test that some text of a list passes; unknown where it has none."""


class DuckDbDialect:
    """DuckDB has functions for everything, RE2 and lists included."""

    def contains(self, value: str, text: str) -> str:
        """Return the test that a value holds a text."""
        return f"contains({value}, {literal(text)})"

    def starts_with(self, value: str, text: str) -> str:
        """Return the test that a value begins with a text."""
        return f"starts_with({value}, {literal(text)})"

    def ends_with(self, value: str, text: str) -> str:
        """Return the test that a value ends with a text."""
        return f"ends_with({value}, {literal(text)})"

    def like(self, value: str, pattern: str) -> str:
        """Return the test that a value fits a pattern."""
        ending = r" ESCAPE '\'" if "\\" in pattern else ""
        return f"{value} LIKE {literal(pattern)}{ending}"

    def matches(self, value: str, pattern: str) -> str:
        """Return the test that RE2 finds a regular expression."""
        return f"regexp_matches({value}, {literal(pattern)})"

    def any_text(self, column: str, test: Callable[[str], str]) -> str:
        """Return the test that some text of a list passes."""
        found = f"len([x FOR x IN {column} IF {test('x')}]) > 0"
        return f"CASE WHEN len({column}) = 0 THEN NULL ELSE {found} END"


class SqliteDialect:
    """SQLite has no RE2, which a function brings, and lists as JSON."""

    def contains(self, value: str, text: str) -> str:
        """Return the test that a value holds a text."""
        return f"instr({value}, {literal(text)}) > 0" if text else f"{value} = {value}"

    def starts_with(self, value: str, text: str) -> str:
        """Return the test that a value begins with a text."""
        return f"substr({value}, 1, {len(text)}) = {literal(text)}"

    def ends_with(self, value: str, text: str) -> str:
        """Return the test that a value ends with a text."""
        return f"substr({value}, -{len(text)}) = {literal(text)}" if text else f"{value} = {value}"

    def like(self, value: str, pattern: str) -> str:
        """Return the test that a value fits a pattern."""
        return rf"{value} LIKE {literal(pattern)} ESCAPE '\'"

    def matches(self, value: str, pattern: str) -> str:
        """Return the test that RE2 finds a regular expression."""
        return f"re2_finds({literal(pattern)}, {value})"

    def any_text(self, column: str, test: Callable[[str], str]) -> str:
        """Return the test that some text of a list passes."""
        found = f"EXISTS (SELECT 1 FROM json_each({column}) AS item WHERE {test('item.value')})"
        return f"CASE WHEN {column} = '[]' THEN NULL ELSE {found} END"

    @staticmethod
    def re2_finds(pattern: str, value: str | None) -> bool | None:
        """Return whether RE2 finds a regular expression: the function that SQLite calls."""
        return None if value is None else compile_regex(pattern).search(value) is not None

    @staticmethod
    def stored(value: Any) -> Any:
        """Return the value of a column as SQLite has it."""
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, list) else value


def literal(text: str) -> str:
    """Return a string of SQL.

    >>> print(literal("it's"))
    'it''s'
    """
    if not _is_text(text):
        raise UntranslatableError("SQL has no NUL and no surrogates in strings")
    return "'" + text.replace("'", "''") + "'"


class Translator:
    """Writes conditions, and notes the columns that they ask for."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.columns = Columns()

    def condition(self, expression: Expression) -> str:
        """Return the condition; raise UntranslatableError."""
        match expression:
            case Predicate():
                return self._predicate(expression)
            case And(operands):
                return _joined("AND", "TRUE", [self.condition(operand) for operand in operands])
            case Or(operands):
                return _joined("OR", "FALSE", [self.condition(operand) for operand in operands])
            case Not(operand):
                return f"(NOT {self.condition(operand)})"
            case IsTrue(operand):
                return f"({self.condition(operand)} IS TRUE)"
            case AttributeComparison():
                return self._attribute_comparison(expression)
            case AnyString():
                return self._any_string(expression)
        raise UntranslatableError(f"{type(expression).__name__} has no translation")

    def _predicate(self, predicate: Predicate) -> str:
        attribute, op, operand = predicate.attribute, predicate.op, predicate.operand
        if operand == ():
            return _UNKNOWN
        if attribute is None:
            raise UntranslatableError("elements of arrays have no columns")
        if op in PRESENCES:
            test = {"exists": "IS NOT NULL", "is null": "IS NOT TRUE", "is not null": "IS TRUE"}[op]
            return f"({self.columns.name(attribute, PRESENCE)} {test})"
        positive = POSITIVE_OF.get(op, op)
        test = self._test(attribute, positive, operand)
        return f"({test})" if positive == op else f"(NOT ({test}))"

    def _test(self, attribute: str, op: str, operand: Any) -> str:
        if op in COMPARISONS or op in ("in", "between"):
            return self._values_test(attribute, op, operand)
        if op == "cidr":
            network = parse_network(operand)
            column = self.columns.name(attribute, ADDRESS)
            return f"{column} BETWEEN '{_sortable(network[0])}' AND '{_sortable(network[-1])}'"
        folds = op == "ilike" or op.endswith(IGNORING_CASE)
        return self._text_test(self.columns.name(attribute, FOLDED if folds else TEXT), op, operand)

    def _values_test(self, attribute: str, op: str, operand: Any) -> str:
        """Return a test of a value of any kind; constants of other kinds than its own make it unknown."""
        by_form: dict[str, list[Any]] = {}
        for constant in operand if isinstance(operand, tuple) else [operand]:
            by_form.setdefault(_form_of(constant), []).append(constant)
        tests = []
        for form, constants in by_form.items():
            column, texts = self.columns.name(attribute, form), list(map(_constant, constants))
            tests.append(_written(column, op, texts))
        return tests[0] if len(tests) == 1 else f"coalesce({', '.join(tests)})"

    def _text_test(self, value: str, op: str, operand: Any) -> str:
        """Return a test of a text, which is folded already if need be."""
        if op == "ilike" or op.endswith(IGNORING_CASE):
            op = op.removesuffix(IGNORING_CASE).replace("ilike", "like")
            operand = tuple(map(fold, operand)) if isinstance(operand, tuple) else fold(operand)
        match op:
            case "contains":
                return self._dialect.contains(value, operand)
            case "starts with":
                return self._dialect.starts_with(value, operand)
            case "ends with":
                return self._dialect.ends_with(value, operand)
            case "like":
                return self._dialect.like(value, _plain_pattern(operand))
            case "matches":
                return self._dialect.matches(value, operand)
            case "=" | "in" | "<" | "<=" | ">" | ">=" | "between":
                constants = operand if isinstance(operand, tuple) else (operand,)
                return _written(value, op, [_constant(constant) for constant in constants])
        raise UntranslatableError(f"'{op}' has no translation here")

    def _any_string(self, searched: AnyString) -> str:
        positive = POSITIVE_OF.get(searched.op, searched.op)
        if searched.operand == ():
            return _UNKNOWN
        folds = positive == "ilike" or positive.endswith(IGNORING_CASE)
        column = self.columns.name(None, FOLDED_TEXTS if folds else TEXTS)

        def test(value: str) -> str:
            found = self._text_test(value, positive, searched.operand)
            return found if positive == searched.op else f"NOT ({found})"

        return f"({self._dialect.any_text(column, test)})"

    def _attribute_comparison(self, comparison: AttributeComparison) -> str:
        op = comparison.op
        if comparison.offset is not None:
            raise UntranslatableError("the arithmetic of SQL is not exact")
        forms = (NUMBER, TEXT, BOOLEAN) if op in ("=", "!=") else (NUMBER, TEXT)
        pairs = [[self.columns.name(each, form) for each in (comparison.attribute, comparison.other)] for form in forms]
        sign = "<>" if op == "!=" else op
        return f"coalesce({', '.join(f'{left} {sign} {right}' for left, right in pairs)})"


def _form_of(constant: Any) -> str:
    form = _FORM_OF.get(type(constant))
    if form is None:
        raise UntranslatableError("timestamps have no columns")
    return form


def _constant(constant: Any) -> str:
    if isinstance(constant, str):
        return literal(constant)
    if isinstance(constant, bool):
        return str(constant).upper()
    if not isinstance(constant, (int, float)) or not is_exact(constant):
        raise UntranslatableError("a constant is no double")
    text = repr(float(constant))
    return text if "e" in text else f"{text}e0"


def _written(column: str, op: str, constants: Sequence[str]) -> str:
    if op == "in":
        return f"{column} IN ({', '.join(constants)})"
    if op == "between":
        return f"{column} BETWEEN {constants[0]} AND {constants[1]}"
    return f"{column} {op} {constants[0]}"


def _plain_pattern(pattern: str) -> str:
    r"""Return an equal pattern that escapes nothing but its signs.

    >>> print(_plain_pattern(r"\a\%%"))
    a\%%
    """
    return "%".join("".join(map(_spelled, segment)) for segment in parse_like(pattern))


def _spelled(character: str | None) -> str:
    if character is None:
        return "_"
    return f"\\{character}" if character in "\\%_" else character


def _joined(connective: str, empty: str, conditions: Sequence[str]) -> str:
    """Join conditions as a balanced tree: databases bound the depth, and read `a OR b OR c` as (a OR b) OR c."""
    if len(conditions) <= 1:
        return next(iter(conditions), empty)
    middle = len(conditions) // 2
    halves: Iterable[str] = (_joined(connective, empty, part) for part in (conditions[:middle], conditions[middle:]))
    return f"({f' {connective} '.join(halves)})"
