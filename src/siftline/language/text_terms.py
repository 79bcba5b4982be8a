"""Constants, operator calls and constraints of the text language: what stands below its conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from siftline.errors import SubscriptionError
from siftline.language.text_errors import TextReader
from siftline.language.text_hints import unquoted_hint
from siftline.language.tokens import (
    AMOUNT,
    ARITHMETIC,
    COMPARISONS,
    END,
    NAME,
    NOT_ON_THE_RIGHT,
    NUMBER,
    RESERVED,
    STRING,
    SYMBOL,
    VARIABLE,
    is_doubtful,
    kind,
    read_date,
    read_interval,
    read_number,
    read_path,
    read_string,
    read_timestamp,
    write_right_path,
)
from siftline.model import MAX_DEPTH, Arithmetic, Call, Constraint, Now, Timestamp, Variable, iso_text_of_instant

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.model import Constant, Moment, Term

Item = TypeVar("Item")


class TermReader(TextReader):
    """Reads all that needs no condition inside."""

    __slots__ = ()

    # -- constants ----------------------------------------------------------------------------------------------------

    def _constant(self) -> Constant | Moment:
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

    def _rare_constant(self, token: str) -> Constant | Moment:
        """Read a boolean, a signed number or a moment, of which the first token is read."""
        word = token.lower()
        following = self.tokens[self.index]
        if word in ("true", "false"):
            return word == "true"
        if word in ("+", "-") and kind(following) == NUMBER:
            self.index += 1
            return read_number(following, -1 if word == "-" else 1)
        if word in ("date", "timestamp") and kind(following) == STRING:
            self.index += 1
            return (read_date if word == "date" else read_timestamp)(read_string(following))
        if word == "now" and following == "(":
            return self._now()
        self.index -= 1
        return self._no_constant(token)

    def _offset(self) -> int | float | None:
        """Read the number that is added to an attribute, or subtracted, if there is one."""
        sign = self.tokens[self.index]
        if sign not in ("+", "-"):
            return None
        self.index += 1
        if kind(self.tokens[self.index]) != NUMBER:
            self._no_offset()
        self.index += 1
        try:
            return read_number(self.tokens[self.index - 1], -1 if sign == "-" else 1)
        except SubscriptionError as error:
            self._refused(error, self.index - 1)

    def _now(self) -> Now:
        """Read what follows `now`: parentheses, and intervals that are added or subtracted."""
        self.index += 1
        self._take(")", " after 'now('")
        offset = 0
        while (sign := self.tokens[self.index]) in ("+", "-"):
            self.index += 1
            if self.tokens[self.index].lower() != "interval" or kind(self.tokens[self.index + 1]) != STRING:
                self._expected(f"an interval after 'now() {sign}'", f"write now() {sign} interval '1 day'")
            self.index += 1
            offset += self._interval() * (-1 if sign == "-" else 1)
        return Now(offset)

    def _interval(self) -> int:
        """Read the string behind `interval`, and a unit behind a number alone: interval '1 day', interval '1' day."""
        value, unit = read_string(self.tokens[self.index]), self.tokens[self.index + 1]
        self.index += 1
        if kind(unit) == NAME and unit.lower() not in RESERVED and AMOUNT.fullmatch(value.strip()):
            self.index += 1
            return read_interval(f"{value} {unit}")
        return read_interval(value)

    def _plain_constant(self) -> Constant:
        """Read a constant of a call or a constraint: they have values of events, in which a timestamp is a string."""
        at = self.index
        constant = self._constant()
        if isinstance(constant, Timestamp):
            return iso_text_of_instant(constant.instant)
        if isinstance(constant, Now):
            self._error(
                "now() is compared with attributes only", at, "write it on the right of an attribute: at > now()"
            )
        return constant

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
        return self._plain_constant()

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
        return self._plain_constant(), 1

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


def is_right_attribute(token: str, following: str) -> bool:
    """Return whether a name on the right of a comparison is an attribute.

    Words that others write for constants are not, nor is what may be meant as something else: names that need no quotes
    have none, because `color = "red"` is nearly always meant as `color = 'red'`.

    >>> is_right_attribute("limit", "and"), is_right_attribute('"limit"', "and"), is_right_attribute("now", "(")
    (True, False, False)
    """
    if token[0] == '"':
        return write_right_path(read_path(token))[0] == '"'
    if following == "(" or token.lower() in NOT_ON_THE_RIGHT:
        return False
    return not is_doubtful(token) and unquoted_hint(token) is None
