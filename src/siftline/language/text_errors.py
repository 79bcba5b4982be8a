"""Errors of the text language: where a text is wrong, what was expected, and what to write instead.

Nearly all of this is far from the fast path: it runs when a text cannot be accepted.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, NoReturn

from siftline.errors import SubscriptionError
from siftline.language import tokens as lexical
from siftline.language.tokens import (
    COMPARISONS,
    KEYWORDS,
    NAME,
    NUMBER,
    OPERATOR_WORDS,
    RESERVED,
    STRING,
    VARIABLE,
    kind,
    read_number,
    read_path,
    read_string,
    shortened,
)
from siftline.model import MAX_DEPTH

if TYPE_CHECKING:
    from siftline.model import Term

_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

# What is tried by those who know another language.
_CONNECTIVES: Final = ("and", "or")
_TEST_PHRASES: Final = (
    *("between", "cidr", "contains", "ends with", "ilike", "in", "is null", "is not null", "like", "matches"),
    *("not between", "not in", "not like", "starts with"),
)
_SYMBOL_HINTS: Final = {
    "==": "write =",
    "===": "write =",
    "!==": "write !=",
    "!": "write 'not' before the condition, or !=",
    "=~": "write 'matches' before a regular expression",
    "~": "write 'matches' before a regular expression",
    "<=>": "write =, or 'is null'",
    "=<": "write <=",
    "=>": "write >=",
    "&&": "write 'and'",
    "||": "write 'or'",
    "&": "write 'and'",
    "|": "write 'or'",
    "≤": "write <=",
    "≥": "write >=",
    "≠": "write !=",
    "`": 'names are quoted with "…"',
    ";": "one condition is one expression: leave the semicolon out",
    "[": "lists are written in parentheses: in (1, 2)",
    ":": "a path is written with dots, and a comparison with =",
    "#": "a comment begins with --",
    **dict.fromkeys("+-*/", "constants are written out, and attributes take no arithmetic"),
    **dict.fromkeys("\u2018\u2019\u201c\u201d\u00b4", "write straight quotes: '…' for strings, \"…\" for names"),
}
_REGEX_HINTS: Final = dict.fromkeys(("regex", "regexp", "rlike", "similar", "~"), "write 'matches'")
_OPERATOR_HINTS: Final = {
    "eq": "write =",
    "equals": "write =",
    "has": "write 'contains' for a part of a string, or = for an element of an array",
    "includes": "write 'contains' for a part of a string, or = for an element of an array",
    **_REGEX_HINTS,
    "startswith": "did you mean 'starts with'?",
    "endswith": "did you mean 'ends with'?",
    "null": "write 'is null'",
    "(": "an operator call is written as name(…), and a list of constants follows 'in'",
}
_NEGATED_HINTS: Final = {"is": "write is not null", "null": "write is not null", "=": "write !=", **_REGEX_HINTS}
_TRUTH_HINTS: Final = {
    "false": "write 'not' before the condition, or 'is not true' to include unknown",
    "null": "'is null' tests an attribute; 'is not true' holds where a condition is false or unknown",
    "unknown": "'is not true' holds where a condition is false or unknown",
}
_NULL_WORDS: Final = frozenset({"absent", "missing", "nil", "none", "undefined"})
_LEADING_WORDS: Final = frozenset({"filter", "having", "if", "select", "when", "where"})
_NOT_FINITE: Final = frozenset({"inf", "infinity", "nan"})
_MOMENTS: Final = frozenset({"current_date", "current_timestamp", "getdate", "now", "sysdate", "today"})
_CURRENCIES: Final = frozenset("$€£¥")

_NO_FUNCTIONS: Final = "there are no functions on attributes"
# `not any a (not (…))` would pass over elements for which the condition is unknown.
_ALL_HINT: Final = "write not any {0} ((…) is not true): {0} has elements, and the condition is true for each"
# What stands for a function of an attribute; functions are looked up in lower case and without `_`.
_FUNCTION_HINTS: Final = {
    **dict.fromkeys(("lower", "upper", "lcase", "ucase", "tolower", "toupper"), "to ignore case, write {} ilike 'x'"),
    **dict.fromkeys(("startswith", "beginswith", "hasprefix"), "write {} starts with 'x'"),
    **dict.fromkeys(("endswith", "hassuffix"), "write {} ends with 'x'"),
    **dict.fromkeys(("contains", "includes"), "write {} contains 'x'"),
    **dict.fromkeys(("matches", "regexmatch", "regexplike"), "write {} matches 'x'"),
    **dict.fromkeys(("len", "length", "size", "count"), "lengths cannot be tested"),
    **dict.fromkeys(("all", "every"), _ALL_HINT),
}


class TextReader:
    """A text being read: `index` is the token to read next, and errors are about it."""

    __slots__ = ("elements", "index", "text", "tokens")

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = lexical.split(text)
        self.index = 0
        self.elements = 0  # how many `any` stand around the current token

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
        hint = hint or self._context_hint(token) or _SYMBOL_HINTS.get(token) or _word_hint(token, _CONNECTIVES)
        if not hint and kind(self.tokens[self.index - 1]) == STRING and kind(token) in (NAME, STRING):
            hint = "a quote inside a string is doubled: 'it''s'"
        self._error(f"expected {what}, found {_shown(token)}", self.index, hint)

    def _context_hint(self, token: str) -> str | None:
        """Return a hint that depends on what stands around the current token."""
        before, following = self.tokens[self.index - 1], self.tokens[self.index + 1]
        if token == "[" and kind(before) == NAME and before.lower() not in OPERATOR_WORDS:
            return self._bracket_hint(shortened(before))
        if token == "," and kind(before) == NUMBER:
            return _comma_hint(before, following)
        if token == "/" and following == "/":
            return _SYMBOL_HINTS["#"]
        if token.lower() == "escape" and kind(before) == STRING:
            return "there is no escape clause: the escape character is \\, as in '100\\%'"
        if token in COMPARISONS and before == ")":
            name = self._called(self.index - 1)
            return (name and method_hint(read_path(name))) or "a call, or a condition in parentheses, is not compared"
        if kind(token) == NAME and self.tokens[self.index - 2].lower() == "exists":
            return self._blanks_hint(self.index - 1)
        return None

    def _bracket_hint(self, name: str) -> str:
        """Return what to write instead of the bracket that follows a name."""
        key, closing = self.tokens[self.index + 1], self.tokens[self.index + 2]
        if closing == "]" and len(key) > 1 and key[0] in "'\"":
            return f"nested attributes are written with dots: {name}.{lexical.write_path(shortened(key[1:-1]))}"
        return f"there are no array positions: a test of {name} is true if it is true for any element"

    def _blanks_hint(self, index: int) -> str | None:
        """Return how to write two names in a row as one, unless one of them is a keyword."""
        names = self.tokens[index : index + 2]
        if any(name.lower() in KEYWORDS or '"' in name for name in names):
            return None
        return "a name with blanks is quoted: " + lexical.quoted(shortened(" ".join(names)), '"')

    def _called(self, index: int) -> str | None:
        """Return the name of the call whose list of arguments the token number `index` belongs to, if it is one."""
        while index > 0 and self.tokens[index] != "(":
            index -= 1
        name = self.tokens[index - 1] if index > 0 else ""
        return name if kind(name) == NAME and name.lower() not in KEYWORDS else None

    def _too_deep(self, index: int) -> NoReturn:
        self._error(f"the expression nests deeper than {MAX_DEPTH} levels", index)

    # -- tokens that are broken, or stand where they have no meaning --------------------------------------------------

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

    def _check_number(self, term: Term, index: int) -> None:
        if isinstance(term, (bool, str)):
            self._error("arithmetic takes numbers and variables only", index)

    def _check_right_side(self, start: int, op: str) -> None:
        """Report an attribute on the right, such as in `5 < price`."""
        name = self.tokens[self.index]
        word = name.lower()
        if kind(name) != NAME or word in ("true", "false") or kind(self.tokens[self.index + 1]) == STRING:
            return
        if word == "null" or self.tokens[self.index + 1] == "(":
            self._no_constant(name)
        constant = " ".join(self.tokens[start : self.index - 1])
        if "?" in constant:
            hint = "a variable is compared with variables and constants, not with attributes"
            self._expected(f"a variable or a constant after '{op}'", hint)
        hint = f"turn it round: {shortened(name)} {_MIRRORED[op]} {shortened(constant.replace('- ', '-'))}"
        self._error("a constant stands on the right of its operator", start, hint)

    # -- tokens that are missing --------------------------------------------------------------------------------------

    def _no_operand(self) -> NoReturn:
        """Report that no operand begins here."""
        token = self.tokens[self.index]
        if not token and not self.index:
            self._error("the expression is empty", 0, "write 'true' to match every event")
        before = self.tokens[self.index - 1] if self.index else ""
        what = "a condition" + (f" after {_shown(before)}" if before else "")
        is_attribute = token.lower() in RESERVED and self.tokens[self.index + 1] in COMPARISONS
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
            argument = self.tokens[self.index + 1] if token == "(" else ""
            is_function = kind(argument) == NAME and name.lower() in _FUNCTION_HINTS
            hint = _function_hint(name, argument) if is_function else "as in: price between 1 and 2"
            self._error(f"the attribute before '{name}' is missing", at, hint)
        if name.lower() in ("date", "timestamp") and kind(token) == STRING:
            self._error("a constant stands on the right of its operator", self.index - 1, "turn the comparison round")
        self._expected(
            f"an operator after {_shown('not' if negated else name)}", self._operator_hint(name, token, negated)
        )

    def _operator_hint(self, name: str, token: str, negated: bool) -> str | None:
        word = token.lower()
        if name.lower() in _LEADING_WORDS and self.index == 1 + negated:
            return _leading_hint(name)
        if negated:
            return _NEGATED_HINTS.get(word) or _word_hint(token, _TEST_PHRASES)
        if word in ("and", "or", ")", ""):
            return f"to test a boolean, write {shortened(name)} = true"
        if word == "exists":
            return f"write exists {shortened(name)}"
        if kind(token) in (NUMBER, STRING):
            return "write = before the constant"
        if kind(token) == NAME and word not in RESERVED:
            hint = self._two_names_hint(name.lower(), token)
            if hint:
                return hint
        if token == "!" and self.tokens[self.index + 1] == "~":
            return "write 'not matches' before a regular expression"
        return _OPERATOR_HINTS.get(word) or _word_hint(token, _TEST_PHRASES)

    def _two_names_hint(self, word: str, name: str) -> str | None:
        """Return what two names in a row may mean, such as `all items (…)` or `first name = 'x'`."""
        following = self.tokens[self.index + 1]
        if following == "(":
            hint = {"all": _ALL_HINT, "every": _ALL_HINT, "some": "write any {} (…)"}.get(word)
            return hint and hint.format(shortened(name))
        is_test = following in COMPARISONS or following.lower() in OPERATOR_WORDS or following.lower() == "not"
        return self._blanks_hint(self.index - 1) if is_test else None

    def _no_condition(self, name: str) -> NoReturn:
        """Report that no parenthesis follows `any name`."""
        token = self.tokens[self.index]
        hint = f"the condition stands in parentheses: any {shortened(name)} (…)"
        if token == "[" and self.tokens[self.index + 2] == "]":
            hint = self._bracket_hint(shortened(name))
        elif kind(token) == NAME and self.tokens[self.index + 1] == "(":
            hint = self._blanks_hint(self.index - 1) or hint
        self._expected(f"'(' after 'any {shortened(name)}'", hint)

    def _not_null(self, word: str, negated: bool) -> NoReturn:
        """Report what follows `attribute is`, which is not `null`."""
        hint = None
        if word in ("true", "false"):
            name = self.tokens[self.index - 2 - negated]
            hint = f"to test a boolean, write {shortened(name)} {'!=' if negated else '='} {word}"
        elif kind(word) in (NUMBER, STRING):
            hint = "'is' tests only for null; to compare, write " + ("!=" if negated else "=")
        elif word == "empty":
            hint = f"write is{' not' * negated} null, or {'!=' if negated else '='} '' for an empty string"
        elif word in _NULL_WORDS:
            hint = f"write is{' not' * negated} null"
        self._expected(f"'null' after 'is{' not' * negated}'", hint)

    def _not_true(self) -> NoReturn:
        """Report what follows `condition is`, which is not `true`."""
        self._expected("'true' after 'is'", _TRUTH_HINTS.get(self.tokens[self.index].lower()))

    def _no_constant(self, token: str) -> NoReturn:
        """Report that no constant stands where the operator needs one."""
        word = token.lower()
        before = self.tokens[self.index - 1]
        if word == "null":
            self._error("null cannot be compared", self.index, "write 'is null' or 'is not null'")
        self._expected(f"a constant after {_shown(before)}", self._constant_hint(token, word))

    def _constant_hint(self, token: str, word: str) -> str | None:
        following = self.tokens[self.index + 1]
        if word in _NOT_FINITE or (word in ("+", "-") and following.lower() in _NOT_FINITE):
            return "NaN and the infinities never occur: in events they count as null"
        if token[:1] in _CURRENCIES and (token[1:2].isdigit() or (len(token) == 1 and kind(following) == NUMBER)):
            return f"leave out '{token[0]}'"
        if token[:1] == '"' and len(token) > 1:
            return "strings are written in single quotes: " + lexical.quoted(shortened(read_path(token)), "'")
        if kind(token) == NAME and word not in RESERVED:
            return self._name_hint(token, word, following)
        if kind(token) == VARIABLE:
            return "variables stand in operator calls, and in comparisons with variables and numbers"
        return "a list of constants follows only 'in' and 'not in'" if token == "(" else None

    def _name_hint(self, token: str, word: str, following: str) -> str:
        """Return what to write instead of a name where a constant is needed."""
        if word in _MOMENTS:
            return "attributes are compared with constants only: write timestamp '2026-01-31T10:00:00Z'"
        if following == "(":
            return "attributes are compared with constants only: there are no functions"
        function = self._called(self.index - 1) if self.tokens[self.index - 1] in ("(", ",") else None
        if function is None:
            return f"a string needs quotes: '{shortened(token)}'; two attributes cannot be compared"
        if function.lower() in _LEADING_WORDS and function is self.tokens[0]:
            return _leading_hint(function)
        return _function_hint(function, token)

    def _no_comparison(self, start: int) -> NoReturn:
        """Report that no comparison follows a term."""
        if any(token[:1] == "?" for token in self.tokens[start : self.index]):
            self._expected(f"a comparison after {_shown(self.tokens[self.index - 1])}")
        if self.tokens[self.index].lower() in OPERATOR_WORDS | {"not"}:
            self._error("a constant stands on the right of its operator", start, "write the attribute first")
        self._check_token(self.tokens[self.index])
        self._error(
            f"expected a condition, found {_shown(self.tokens[start])}",
            start,
            "a condition begins with an attribute, as in: price <= 580",
        )


def _shown(token: str) -> str:
    """Return a token in quotes, for a message."""
    if not token:
        return "the end"
    return shortened(token) if token[0] == "'" else f"'{shortened(token)}'"


def method_hint(name: str) -> str | None:
    """Return a hint if a call looks like a method of an attribute.

    >>> method_hint("a.b.startsWith")
    "there are no functions on attributes; write a.b starts with 'x'"
    """
    path, _, method = name.rpartition(".")
    return _function_hint(method, path) if path and _plain(method) in _FUNCTION_HINTS else None


def _function_hint(function: str, argument: str) -> str:
    """Return what to write instead of a function of an attribute."""
    hint = _FUNCTION_HINTS.get(_plain(function), "a string needs quotes: '{}'")
    return f"{_NO_FUNCTIONS}; {hint.format(shortened(argument))}"


def _plain(function: str) -> str:
    return function.lower().replace("_", "")


def _leading_hint(word: str) -> str:
    return f"only the condition itself is written: leave out '{word}'"


def _comma_hint(before: str, following: str) -> str | None:
    """Return what to write instead of a comma after a number."""
    if kind(following) != NUMBER:
        return None
    first, second = shortened(before), shortened(following)
    thousands = f", thousands without a separator: {first}{second}" if len(second) == 3 else ""
    return f"decimals are written with a point: {first}.{second}{thousands}"


def _word_hint(token: str, phrases: tuple[str, ...]) -> str | None:
    """Return a hint if the token is nearly one of the phrases."""
    if kind(token) != NAME or len(token) > 30:
        return None
    near = difflib.get_close_matches(token.lower(), phrases, n=1, cutoff=0.65)
    return f"did you mean '{near[0]}'?" if near and near[0] != token.lower() else None
