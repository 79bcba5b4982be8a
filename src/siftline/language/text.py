"""The text language: an SQL-like condition becomes an Expression. LANGUAGE.md specifies it and holds the grammar.

The parser is a recursive descent of three steps: `_expression` reads a chain of and / or, `_operand` one operand of it,
and one method per operator reads the constants. What needs no condition inside is read in `text_terms`, and errors are
made far from the fast path, in `text_errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from siftline.errors import SubscriptionError
from siftline.language.text_hints import ELEMENT_HINT
from siftline.language.text_terms import TermReader, is_right_attribute
from siftline.language.tokens import COMPARISONS, KEYWORDS, MAX_TEXT, NAME, RESERVED, kind, read_path
from siftline.model import (
    FALSE,
    MAX_DEPTH,
    MAX_LEAVES,
    THIS,
    TRUE,
    And,
    AnyElement,
    AnyString,
    AttributeComparison,
    Expression,
    IsTrue,
    Length,
    Not,
    Or,
    Predicate,
    check_size,
)
from siftline.model.predicate import CASELESS, IGNORING_CASE

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.model import Operand

__all__ = ["MAX_TEXT", "parse", "parse_stored"]

# A pair of parentheses, or `any (...)`, holds at most Or, And, Not, IsTrue and AnyElement before the next pair.
_NODES_PER_LEVEL: Final = 5


def parse(text: str) -> Expression:
    """Parse a condition in the text language.

    Parameters
    ----------
    text : str
        The condition, at most `MAX_TEXT` characters.

    Returns
    -------
    Expression

    Raises
    ------
    SubscriptionError
        If the text is no condition; it says where, why, and what to write instead.

    Examples
    --------
    >>> parse("model = 'iphone5s' and price <= 580")
    And((Predicate('model', '=', 'iphone5s'), Predicate('price', '<=', 580)))
    """
    if not isinstance(text, str):
        raise TypeError(f"a condition is a string, not {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise SubscriptionError(f"the text has {len(text):,} characters, and at most {MAX_TEXT:,} are accepted")
    return parse_stored(text)


def parse_stored(text: str) -> Expression:
    """Parse what the printer made of an accepted expression, however long it has become."""
    return _Parser(text).parse()


class _Parser(TermReader):
    """Reads conditions."""

    __slots__ = ("deepest", "deepest_index", "depth")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0  # of parentheses, `any` and `not` around the current token
        self.deepest = self.deepest_index = 0

    def parse(self) -> Expression:
        """Return the expression of the whole text."""
        expression = self._expression()
        if self.tokens[self.index]:
            self._expected("'and', 'or' or the end")
        # Anything smaller cannot break a limit: the check would cost an eighth of the time.
        if (self.deepest + 1) * _NODES_PER_LEVEL >= MAX_DEPTH or len(self.tokens) > MAX_LEAVES:
            self._check_size(expression)
        return expression

    # -- and, or, not, parentheses ------------------------------------------------------------------------------------

    def _expression(self) -> Expression:
        """Read a chain of and / or; each run of `and` is one node, and so is each run of `or`."""
        tokens = self.tokens
        alternatives: list[Expression] = []
        operands = [self._operand()]
        while True:
            word = tokens[self.index].lower()
            if word == "and":
                self.index += 1
                operands.append(self._operand())
            elif word == "or":
                self.index += 1
                alternatives.append(_conjunction(operands))
                operands = [self._operand()]
            else:
                break
        last = _conjunction(operands)
        return Or([*alternatives, last]) if alternatives else last

    def _operand(self) -> Expression:
        """Read one operand of a chain, with the `is true` that may follow it."""
        token = self.tokens[self.index]
        word = token.lower()
        if word == "not":
            return self._negation()
        opener = _OPENERS.get(word)
        if opener is not None:
            expression = opener(self)
        elif kind(token) == NAME:
            expression = self._named(token)
        else:
            expression = self._constraint()
        return self._truth_test(expression) if self.tokens[self.index].lower() == "is" else expression

    def _negation(self) -> Expression:
        # A loop, so that 5,000 times `not` meets the limit and not Python's.
        negations = 0
        while self.tokens[self.index].lower() == "not":
            self._enter()
            self.index += 1
            negations += 1
        expression = self._operand()
        for _ in range(negations):
            expression = Not(expression)
        self.depth -= negations
        return expression

    def _truth_test(self, expression: Expression) -> Expression:
        negated = self.tokens[self.index + 1].lower() == "not"
        self.index += 1 + negated
        if self.tokens[self.index].lower() != "true":
            self._not_true()
        self.index += 1
        return Not(IsTrue(expression)) if negated else IsTrue(expression)

    def _group(self) -> Expression:
        if self._is_term_group():
            return self._constraint()
        return self._in_parentheses()

    def _in_parentheses(self) -> Expression:
        self._enter()
        self.index += 1
        expression = self._expression()
        self._take(")")
        self.depth -= 1
        return expression

    def _truth(self) -> Expression:
        if self.tokens[self.index + 1] in COMPARISONS:
            return self._constraint()
        self.index += 1
        return TRUE if self.tokens[self.index - 1].lower() == "true" else FALSE

    def _any(self) -> Expression:
        self.index += 1
        if self.tokens[self.index].lower() == "string" and self.tokens[self.index + 1] != "(":
            return self._any_string()
        path = self._path("any items (qty > 2)")
        if path is None:
            self._error("'any this' has no meaning: nested arrays count as one", self.index - 1)
        if self.tokens[self.index] != "(":
            self._no_condition(self.tokens[self.index - 1])
        self.elements += 1
        expression = self._in_parentheses()
        self.elements -= 1
        return AnyElement(path, expression)

    def _any_string(self) -> Expression:
        self.index += 1
        at = self.index
        test = self._predicate(THIS)
        return self._checked(at, lambda: AnyString(test.op, test.operand))

    def _length(self) -> Expression:
        """Read what follows `length`: an attribute in parentheses, and a test of a number."""
        self.index += 1
        if kind(self.tokens[self.index]) != NAME or self.tokens[self.index + 1] != ")":
            self._no_length()
        path = self._path("length(name) > 5")
        self.index += 1
        at = self.index
        test = self._predicate(THIS)
        return self._checked(at, lambda: Length(path, test.op, test.operand))

    def _exists(self) -> Expression:
        self.index += 1
        return Predicate(self._path("exists price"), "exists")

    def _this(self) -> Expression:
        self._check_this(self.tokens[self.index])
        self.index += 1
        return self._predicate(THIS)

    # -- predicates ---------------------------------------------------------------------------------------------------

    def _named(self, token: str) -> Expression:
        """Read what begins with a name: a predicate, or an operator call."""
        self.index += 1
        if self.tokens[self.index] == "(":
            if token.lower() not in KEYWORDS:
                return self._call(read_path(token))
            if token.lower() == "length":
                return self._length()
        if self.elements:
            self._check_this(token)
        attribute = read_path(token) if '"' in token else token
        if kind(self.tokens[self.index + 1]) == NAME and self.tokens[self.index] in COMPARISONS:
            return self._comparison_with_word(attribute)
        return self._predicate(attribute)

    def _comparison_with_word(self, attribute: str) -> Expression:
        """Read a comparison with another attribute, or with a constant that begins with a word."""
        symbol, other, following = self.tokens[self.index : self.index + 3]
        if not is_right_attribute(other, following):
            return self._predicate(attribute)
        self.index += 1
        if self.elements:
            self._check_this(other)
        self.index += 1
        return AttributeComparison(attribute, COMPARISONS[symbol], read_path(other), self._offset())

    def _predicate(self, attribute: str | None) -> Predicate:
        op = COMPARISONS.get(self.tokens[self.index])
        if op is not None:
            self.index += 1
            at = self.index
            return self._made(attribute, op, self._constant(), at)
        word = self.tokens[self.index].lower()
        negated = word == "not"
        if negated:
            word = self.tokens[self.index + 1].lower()
        test = _TESTS.get(word)
        if test is None or (negated and word == "is"):
            self._no_operator(negated)
        self.index += 1 + negated
        return test(self, attribute, f"not {word}" if negated else word)

    def _in_test(self, attribute: str | None, op: str) -> Predicate:
        at = self.index
        if self.tokens[at] != "(":
            self._no_list(op)
        self.index += 1
        return self._made(attribute, op, tuple(self._listed(self._constant)), at)

    def _between_test(self, attribute: str | None, op: str) -> Predicate:
        at = self.index
        low = self._constant()
        if self.tokens[self.index].lower() != "and":
            is_list = self.tokens[self.index] == ","
            self._expected(f"'and' and the upper bound of '{op}'", f"write {op} 1 and 2" if is_list else None)
        self.index += 1
        # The upper bound is the one that does not suit the lower, unless the lower one suits nothing.
        at = at if type(low) is bool else self.index
        return self._made(attribute, op, (low, self._constant()), at)

    def _text_test(self, attribute: str | None, op: str) -> Predicate:
        at = self.index
        return self._made(attribute, op, self._constant(), at)

    def _with_test(self, attribute: str | None, op: str) -> Predicate:
        if self.tokens[self.index].lower() != "with":
            self._expected(f"'with' after '{op}'", f"write {op} with 'x'")
        self.index += 1
        return self._text_test(attribute, f"{op} with")

    def _null_test(self, attribute: str | None, op: str) -> Predicate:
        negated = self.tokens[self.index].lower() == "not"
        self.index += negated
        word = self.tokens[self.index].lower()
        if word != "null":
            self._not_null(word, negated)
        self.index += 1
        return Predicate(attribute, "is not null" if negated else "is null")

    def _made(self, attribute: str | None, op: str, operand: Operand, at: int) -> Predicate:
        """Make a predicate; what the model refuses is reported at token number `at`."""
        if self.tokens[self.index].lower() == "ignoring":
            op = self._ignoring_case(op)
        try:
            return Predicate(attribute, op, operand)
        except SubscriptionError as error:
            is_element = op.endswith("contains") and not error.hint
            self._error(error.reason, at, ELEMENT_HINT if is_element else error.hint)

    def _ignoring_case(self, op: str) -> str:
        """Return an operator that ignores case, which stands behind its constants."""
        if self.tokens[self.index + 1].lower() != "case" or op + IGNORING_CASE not in CASELESS:
            self._no_case(op, self.index)
        self.index += 2
        return op + IGNORING_CASE

    def _checked(self, at: int, make: Callable[[], Expression]) -> Expression:
        """Make a leaf; what the model refuses is reported at token number `at`."""
        try:
            return make()
        except SubscriptionError as error:
            self._error(error.reason, at, error.hint)

    def _path(self, example: str) -> str | None:
        """Read the attribute after `any` or `exists`."""
        token = self.tokens[self.index]
        word = token.lower()
        if kind(token) != NAME or (word in RESERVED and word != "this"):
            self._no_path(example)
        self._check_this(token)
        self.index += 1
        return THIS if word == "this" else read_path(token)

    # -- limits -------------------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._too_deep(self.index)
        if self.depth > self.deepest:
            self.deepest, self.deepest_index = self.depth, self.index

    def _check_size(self, expression: Expression) -> None:
        try:
            check_size(expression)
        except SubscriptionError as error:
            self._error(error.reason, self.deepest_index if "deeper" in error.reason else None, error.hint)


def _conjunction(operands: list[Expression]) -> Expression:
    return operands[0] if len(operands) == 1 else And(operands)


_OPENERS: Final[dict[str, Callable[[_Parser], Expression]]] = {
    "(": _Parser._group,
    "any": _Parser._any,
    "exists": _Parser._exists,
    "this": _Parser._this,
    "true": _Parser._truth,
    "false": _Parser._truth,
    "null": _Parser._no_operand,
    "and": _Parser._no_operand,
    "or": _Parser._no_operand,
}

_TESTS: Final[dict[str, Callable[[_Parser, str | None, str], Predicate]]] = {
    "in": _Parser._in_test,
    "between": _Parser._between_test,
    "starts": _Parser._with_test,
    "ends": _Parser._with_test,
    "contains": _Parser._text_test,
    "like": _Parser._text_test,
    "ilike": _Parser._text_test,
    "matches": _Parser._text_test,
    "cidr": _Parser._text_test,
    "is": _Parser._null_test,
}
