"""The text language: an SQL-like condition becomes an Expression. LANGUAGE.md specifies it and holds the grammar.

The parser is a recursive descent of three steps: `_expression` reads a chain of and / or, `_operand` one operand of it,
and one method per operator reads the constants. Errors are made far from the fast path, in the second half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from siftline.errors import SubscriptionError
from siftline.language import tokens as lexical
from siftline.language.tokens import (
    CONNECTIVES,
    END,
    KEYWORDS,
    MAX_TEXT,
    NAME,
    NEGATED_HINTS,
    NUMBER,
    OPERATOR_HINTS,
    OPERATOR_WORDS,
    RESERVED,
    STRING,
    SYMBOL,
    SYMBOL_HINTS,
    TEST_PHRASES,
    TRUTH_HINTS,
    VARIABLE,
    kind,
    read_moment,
    read_number,
    read_path,
    read_string,
    shortened,
    shown,
    word_hint,
)
from siftline.model import (
    FALSE,
    MAX_DEPTH,
    MAX_LEAVES,
    THIS,
    TRUE,
    And,
    AnyElement,
    Arithmetic,
    Call,
    Constraint,
    Expression,
    IsTrue,
    Not,
    Or,
    Predicate,
    Variable,
    check_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.model import Constant, Operand, Term

__all__ = ["MAX_TEXT", "parse"]

_COMPARISONS: Final = {op: op for op in ("=", "!=", "<", "<=", ">", ">=")} | {"<>": "!="}
_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC: Final = {"+": 1, "-": 1, "*": 2, "/": 2}

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
    return _Parser(text).parse()


class _Parser:
    """One text being parsed: `index` is the token to read next."""

    __slots__ = ("deepest", "deepest_index", "depth", "elements", "index", "text", "tokens")

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = lexical.split(text)
        self.index = 0
        self.depth = 0  # of parentheses, `any` and `not` around the current token
        self.deepest = self.deepest_index = 0
        self.elements = 0  # how many `any` stand around the current token

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
            self._expected("'true' after 'is'", TRUTH_HINTS.get(self.tokens[self.index].lower()))
        self.index += 1
        return Not(IsTrue(expression)) if negated else IsTrue(expression)

    def _group(self) -> Expression:
        if self._is_term_group():
            return self._constraint()
        self._enter()
        self.index += 1
        expression = self._expression()
        self._take(")")
        self.depth -= 1
        return expression

    def _truth(self) -> Expression:
        if self.tokens[self.index + 1] in _COMPARISONS:
            return self._constraint()
        self.index += 1
        return TRUE if self.tokens[self.index - 1].lower() == "true" else FALSE

    def _any(self) -> Expression:
        self.index += 1
        path = self._path("any items (qty > 2)")
        if path is None:
            self._error("'any this' has no meaning: nested arrays count as one", self.index - 1)
        if self.tokens[self.index] != "(":
            self._expected(f"'(' after 'any {shortened(self.tokens[self.index - 1])}'")
        self._enter()
        self.elements += 1
        self.index += 1
        expression = self._expression()
        self._take(")")
        self.elements -= 1
        self.depth -= 1
        return AnyElement(path, expression)

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
        if self.tokens[self.index] == "(" and token.lower() not in KEYWORDS:
            return self._call(read_path(token))
        if self.elements:
            self._check_this(token)
        return self._predicate(read_path(token) if '"' in token else token)

    def _predicate(self, attribute: str | None) -> Predicate:
        op = _COMPARISONS.get(self.tokens[self.index])
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
        self._take("(", f" after '{op}'")
        constants: list[Constant] = []
        if self.tokens[self.index] != ")":
            constants.append(self._constant())
            while self.tokens[self.index] == ",":
                self.index += 1
                constants.append(self._constant())
        self._take(")", " or ','")
        return self._made(attribute, op, tuple(constants), at)

    def _between_test(self, attribute: str | None, op: str) -> Predicate:
        at = self.index
        low = self._constant()
        if self.tokens[self.index].lower() != "and":
            self._expected(f"'and' and the upper bound of '{op}'")
        self.index += 1
        # The upper bound is the one that does not suit the lower, unless the lower one suits nothing.
        at = at if type(low) is bool else self.index
        return self._made(attribute, op, (low, self._constant()), at)

    def _text_test(self, attribute: str | None, op: str) -> Predicate:
        at = self.index
        return self._made(attribute, op, self._constant(), at)

    def _with_test(self, attribute: str | None, op: str) -> Predicate:
        if self.tokens[self.index].lower() != "with":
            self._expected(f"'with' after '{op}'")
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
        try:
            return Predicate(attribute, op, operand)
        except SubscriptionError as error:
            self._error(error.reason, at, error.hint)

    def _path(self, example: str) -> str | None:
        """Read the attribute after `any` or `exists`."""
        token = self.tokens[self.index]
        word = token.lower()
        if kind(token) != NAME or (word in RESERVED and word != "this"):
            is_attribute = token in _COMPARISONS
            self._expected("an attribute", self._quote_hint(self.index - 1) if is_attribute else f"write: {example}")
        self._check_this(token)
        self.index += 1
        return THIS if word == "this" else read_path(token)

    # -- constants ----------------------------------------------------------------------------------------------------

    def _constant(self) -> Constant:
        index = self.index
        token = self.tokens[index]
        sort = kind(token)
        self.index = index + 1
        try:
            if sort == NUMBER:
                return read_number(token)
            if sort == STRING:
                return read_string(token)
            return self._rare_constant(token)
        except SubscriptionError as error:
            if error.position is not None:
                raise
            self._error(error.reason, index, error.hint)

    def _rare_constant(self, token: str) -> Constant:
        """Read a boolean, a signed number or a date, of which the first token is read."""
        word = token.lower()
        following = self.tokens[self.index]
        if word in ("true", "false"):
            return word == "true"
        if word in ("+", "-") and kind(following) == NUMBER:
            self.index += 1
            return read_number(following, -1 if word == "-" else 1)
        if word in ("date", "timestamp") and kind(following) == STRING:
            self.index += 1
            return read_moment(word, read_string(following))
        self.index -= 1
        return self._no_constant(token)

    # -- operator calls and constraints -------------------------------------------------------------------------------

    def _call(self, name: str) -> Call:
        self.index += 1
        arguments: list[Variable | Constant] = []
        if self.tokens[self.index] != ")":
            arguments.append(self._argument())
            while self.tokens[self.index] == ",":
                self.index += 1
                arguments.append(self._argument())
        self._take(")", " or ','")
        return Call(name, arguments)

    def _argument(self) -> Variable | Constant:
        if kind(self.tokens[self.index]) == VARIABLE:
            return self._variable()
        return self._constant()

    def _variable(self) -> Variable:
        token = self.tokens[self.index]
        self.index += 1
        return Variable(read_path(token[1:]))

    def _constraint(self) -> Constraint:
        """Read a comparison of two terms, one of them with a variable."""
        start = self.index
        if kind(self.tokens[start]) in (SYMBOL, END) and self.tokens[start] not in ("(", "+", "-"):
            self._no_operand()
        left, _ = self._term(1, 1)
        op = _COMPARISONS.get(self.tokens[self.index])
        if op is None:
            self._no_comparison(start)
        self.index += 1
        self._check_right_side(start, op)
        right, _ = self._term(1, 1)
        if not any(token[:1] == "?" for token in self.tokens[start : self.index]):
            self._error("both sides are constants", start, "write 'true' or 'false'")
        return Constraint(op, left, right)

    def _term(self, precedence: int, depth: int) -> tuple[Term, int]:
        """Read a term of operators that bind at least so tightly; return it with its depth."""
        left, height = self._factor(depth)
        while (strength := _ARITHMETIC.get(self.tokens[self.index], 0)) >= precedence:
            at = self.index
            self._check_number(left, at - 1)
            self.index += 1
            right, right_height = self._term(strength + 1, depth)
            self._check_number(right, self.index - 1)
            left = Arithmetic(self.tokens[at], left, right)
            height = max(height, right_height) + 1
            if height > MAX_DEPTH:
                self._too_deep(at)
        return left, height

    def _factor(self, depth: int) -> tuple[Term, int]:
        token = self.tokens[self.index]
        if kind(token) == VARIABLE:
            return self._variable(), 1
        if token == "(":
            if depth >= MAX_DEPTH:
                self._too_deep(self.index)
            self.index += 1
            inner = self._term(1, depth + 1)
            self._take(")")
            return inner
        if token in ("+", "-") and kind(self.tokens[self.index + 1]) != NUMBER:
            return self._signed(token, depth)
        return self._constant(), 1

    def _signed(self, sign: str, depth: int) -> tuple[Term, int]:
        """Read a sign before a variable or parentheses; the model has no unary minus, so -x is 0 - x."""
        if depth >= MAX_DEPTH:
            self._too_deep(self.index)
        self.index += 1
        factor, height = self._factor(depth + 1)
        self._check_number(factor, self.index - 1)
        return (factor, height) if sign == "+" else (Arithmetic("-", 0, factor), height + 1)

    def _is_term_group(self) -> bool:
        """Return whether the parenthesis that opens here holds a term and not a condition."""
        tokens, index = self.tokens, self.index
        while tokens[index] in ("(", "+", "-"):
            index += 1
        if kind(tokens[index]) not in (NUMBER, VARIABLE):
            return False
        index, open_groups = self.index, 0
        while tokens[index]:
            open_groups += (tokens[index] == "(") - (tokens[index] == ")")
            index += 1
            if not open_groups:
                break
        return tokens[index] in _COMPARISONS or tokens[index] in _ARITHMETIC

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

    def _too_deep(self, index: int) -> NoReturn:
        self._error(f"the expression nests deeper than {MAX_DEPTH} levels", index)

    # -- errors -------------------------------------------------------------------------------------------------------

    def _take(self, symbol: str, remark: str = "") -> None:
        if self.tokens[self.index] != symbol:
            self._expected(f"'{symbol}'{remark}")
        self.index += 1

    def _error(self, reason: str, index: int | None, hint: str | None = None) -> NoReturn:
        position = None if index is None else lexical.position_of(self.text, index)
        raise SubscriptionError(reason, text=self.text, position=position, hint=hint) from None

    def _expected(self, what: str, hint: str | None = None) -> NoReturn:
        """Report the current token, which is not `what` should stand here."""
        token = self.tokens[self.index]
        self._check_token(token)
        hint = hint or SYMBOL_HINTS.get(token) or word_hint(token, CONNECTIVES)
        if not hint and kind(self.tokens[self.index - 1]) == STRING and kind(token) in (NAME, STRING):
            hint = "a quote inside a string is doubled: 'it''s'"
        self._error(f"expected {what}, found {shown(token)}", self.index, hint)

    def _check_token(self, token: str) -> None:
        """Report a token that is broken in itself."""
        if token == '"':
            self._error("this name has no closing quote", self.index, 'a quote inside a name is doubled: "5"" disk"')
        if token.startswith("/*"):
            self._error("this comment has no end", self.index, "close it with */")
        try:
            if kind(token) == STRING:
                read_string(token)
            elif kind(token) == NUMBER:
                read_number(token)
        except SubscriptionError as error:
            self._error(error.reason, self.index, error.hint)

    def _check_this(self, token: str) -> None:
        word = token.lower()
        if word == "this" and not self.elements:
            self._error("'this' stands only inside 'any ... ( ... )'", self.index, 'an attribute so named is "this"')
        if word.startswith("this.") and self.elements:
            at = self.index if self.tokens[self.index] == token else self.index - 1
            hint = f"inside 'any', paths begin at the element: write {shortened(token[5:])}"
            self._error(f"'{shortened(token)}' is not an attribute of the element", at, hint)

    def _no_operand(self) -> NoReturn:
        """Report that no operand begins here."""
        token = self.tokens[self.index]
        if not token and not self.index:
            self._error("the expression is empty", 0, "write 'true' to match every event")
        before = self.tokens[self.index - 1] if self.index else ""
        what = "a condition" + (f" after {shown(before)}" if before else "")
        is_attribute = token.lower() in RESERVED and self.tokens[self.index + 1] in _COMPARISONS
        self._expected(what, self._quote_hint(self.index) if is_attribute else None)

    def _quote_hint(self, index: int) -> str:
        return f'an attribute of that name is quoted: "{self.tokens[index]}"'

    def _no_operator(self, negated: bool) -> NoReturn:
        """Report that no operator follows the attribute."""
        name = self.tokens[self.index - 1]
        self.index += negated
        token = self.tokens[self.index]
        self._check_token(token)
        if name.lower() in OPERATOR_WORDS:
            at = self.index - 1 - negated
            self._error(f"the attribute before '{name}' is missing", at, "as in: price between 1 and 2")
        if name.lower() in ("date", "timestamp") and kind(token) == STRING:
            self.index -= 1
            self._error("a constant stands on the right of its operator", self.index, "turn the comparison round")
        self._expected(
            f"an operator after {shown('not' if negated else name)}", self._operator_hint(name, token, negated)
        )

    def _operator_hint(self, name: str, token: str, negated: bool) -> str | None:
        word = token.lower()
        if negated:
            return NEGATED_HINTS.get(word) or word_hint(token, TEST_PHRASES)
        if word in ("and", "or", ")", ""):
            return f"to test a boolean, write {shortened(name)} = true"
        if word == "exists":
            return f"write exists {shortened(name)}"
        if kind(token) in (NUMBER, STRING):
            return "write = before the constant"
        return OPERATOR_HINTS.get(word) or SYMBOL_HINTS.get(token) or word_hint(token, TEST_PHRASES)

    def _not_null(self, word: str, negated: bool) -> NoReturn:
        """Report what follows `attribute is`, which is not `null`."""
        hint = None
        if word in ("true", "false"):
            name = self.tokens[self.index - 2 - negated]
            hint = f"to test a boolean, write {shortened(name)} {'!=' if negated else '='} {word}"
        elif kind(word) in (NUMBER, STRING):
            hint = "'is' tests only for null; to compare, write " + ("!=" if negated else "=")
        self._expected(f"'null' after 'is{' not' * negated}'", hint)

    def _no_constant(self, token: str) -> NoReturn:
        """Report that no constant stands where the operator needs one."""
        word = token.lower()
        before = self.tokens[self.index - 1]
        if word == "null":
            self._error("null cannot be compared", self.index, "write 'is null' or 'is not null'")
        hint = None
        if token[:1] == '"' and len(token) > 1:
            hint = "strings are written in single quotes: " + lexical.quoted(shortened(read_path(token)), "'")
        elif kind(token) == NAME and word not in RESERVED:
            hint = f"a string needs quotes: '{shortened(token)}'; two attributes cannot be compared"
        elif kind(token) == VARIABLE:
            hint = "variables stand in operator calls, and in comparisons with variables and numbers"
        elif token == "(":
            hint = "a list of constants follows only 'in' and 'not in'"
        self._expected(f"a constant after {shown(before)}", hint)

    def _no_comparison(self, start: int) -> NoReturn:
        """Report that no comparison follows a term."""
        if any(token[:1] == "?" for token in self.tokens[start : self.index]):
            self._expected(f"a comparison after {shown(self.tokens[self.index - 1])}")
        if self.tokens[self.index].lower() in OPERATOR_WORDS | {"not"}:
            self._error("a constant stands on the right of its operator", start, "write the attribute first")
        self._check_token(self.tokens[self.index])
        self._error(
            f"expected a condition, found {shown(self.tokens[start])}",
            start,
            "a condition begins with an attribute, as in: price <= 580",
        )

    def _check_right_side(self, start: int, op: str) -> None:
        """Report an attribute on the right, such as in `5 < price`."""
        name = self.tokens[self.index]
        word = name.lower()
        if kind(name) != NAME or word in ("true", "false") or kind(self.tokens[self.index + 1]) == STRING:
            return
        if word == "null":
            self._no_constant(name)
        constant = " ".join(self.tokens[start : self.index - 1])
        if "?" in constant:
            hint = "a variable is compared with variables and constants, not with attributes"
            self._expected(f"a variable or a constant after '{op}'", hint)
        hint = f"turn it round: {shortened(name)} {_MIRRORED[op]} {shortened(constant.replace('- ', '-'))}"
        self._error("a constant stands on the right of its operator", start, hint)

    def _check_number(self, term: Term, index: int) -> None:
        if isinstance(term, (bool, str)):
            self._error("arithmetic takes numbers and variables only", index)


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
