"""Constants, operator calls and constraints of the text language: what stands below its conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from siftline.errors import SubscriptionError
from siftline.language.text_errors import TextReader
from siftline.language.tokens import (
    ARITHMETIC,
    COMPARISONS,
    END,
    NUMBER,
    STRING,
    SYMBOL,
    VARIABLE,
    kind,
    read_moment,
    read_number,
    read_path,
    read_string,
)
from siftline.model import MAX_DEPTH, Arithmetic, Call, Constraint, Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.model import Constant, Term

Item = TypeVar("Item")


class TermReader(TextReader):
    """Reads all that needs no condition inside."""

    __slots__ = ()

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
            self._refused(error, index)

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

    def _listed(self, read: Callable[[], Item]) -> list[Item]:
        """Read a list, of which the opening parenthesis is read, to its end."""
        items: list[Item] = []
        if self.tokens[self.index] != ")":
            items.append(read())
            while self.tokens[self.index] == ",":
                self.index += 1
                items.append(read())
        self._take(")", " or ','")
        return items

    # -- operator calls and constraints -------------------------------------------------------------------------------

    def _call(self, name: str) -> Call:
        self.index += 1
        return Call(name, self._listed(self._argument))

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
        op = COMPARISONS.get(self.tokens[self.index])
        if op is None:
            self._no_comparison(start)
        self.index += 1
        self._check_right_side(start, op)
        right, _ = self._term(1, 1)
        if not any(token[:1] == "?" for token in self.tokens[start : self.index]):
            self._two_constants(start)
        return Constraint(op, left, right)

    def _term(self, precedence: int, depth: int) -> tuple[Term, int]:
        """Read a term of operators that bind at least so tightly; return it with its depth."""
        left, height = self._factor(depth)
        while (strength := ARITHMETIC.get(self.tokens[self.index], 0)) >= precedence:
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
        return tokens[index] in COMPARISONS or tokens[index] in ARITHMETIC
