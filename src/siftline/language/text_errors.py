"""Errors of the text language: where a text is wrong, what was expected, and what to write instead.

Nearly all of this is far from the fast path: it runs when a text cannot be accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from siftline.errors import SubscriptionError
from siftline.language import tokens as lexical
from siftline.language.text_hints import (
    ALL_HINT,
    CASE_WORDS,
    COMMENT_HINT,
    CONNECTIVES,
    CONSTANT_SYMBOL_HINTS,
    CURRENCIES,
    LEADING_WORDS,
    NEGATED_HINTS,
    NETWORK,
    OPERATOR_HINTS,
    SET_WORDS,
    SYMBOL_HINTS,
    TEST_HINTS,
    TEST_PHRASES,
    TRAILING_WORDS,
    TRUTH_HINTS,
    case_hint,
    comma_hint,
    function_hint,
    is_function,
    json_hint,
    leading_hint,
    method_hint,
    name_hint,
    raw_word,
    string_hint,
    unquoted_hint,
    word_hint,
)
from siftline.language.tokens import (
    COMPARISONS,
    KEYWORDS,
    MOMENTS,
    NAME,
    NOT_FINITE,
    NULL_WORDS,
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

_TWO_COMPARISONS: Final = "two comparisons are joined by 'and': a > 1 and a < 5"
_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


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
        hint = hint or self._context_hint(token) or SYMBOL_HINTS.get(token) or word_hint(token, CONNECTIVES)
        if not hint and kind(self.tokens[self.index - 1]) == STRING and kind(token) in (NAME, STRING):
            hint = "a quote inside a string is doubled: 'it''s'"
        self._error(f"expected {what}, found {_shown(token)}", self.index, hint)

    def _context_hint(self, token: str) -> str | None:
        """Return a hint that depends on what stands around the current token."""
        before, following = self.tokens[self.index - 1], self.tokens[self.index + 1]
        if not self.index and token in ("{", "["):
            return json_hint(self.text)
        if kind(before) in (NUMBER, STRING):
            return self._after_constant_hint(before, token, following)
        if token == "[" and kind(before) == NAME and before.lower() not in OPERATOR_WORDS:
            return self._bracket_hint(shortened(before))
        if self.tokens[self.index - 2] in COMPARISONS and kind(before) == NAME:
            return self._after_attribute_hint(before, token, following)
        if token == "/" and following == "/":
            return COMMENT_HINT
        if token in COMPARISONS and before == ")":
            name = self._called(self.index - 1)
            if name is not None and name.lower() == "now":
                return "now() stands on the right: turn the comparison round"
            return (name and method_hint(read_path(name))) or "a call, or a condition in parentheses, is not compared"
        if kind(token) == NAME and self.tokens[self.index - 2].lower() == "exists":
            return self._blanks_hint(self.index - 1)
        return None

    def _after_constant_hint(self, before: str, token: str, following: str) -> str | None:
        """Return a hint for what stands behind a constant."""
        word = token.lower()
        unquoted = self._unquoted_hint(self.index - 1) if kind(before) == NUMBER else None
        if unquoted is not None:
            return unquoted
        if token == "," and kind(before) == NUMBER and kind(following) == NUMBER:
            return comma_hint(before, following)
        if token == "," and kind(following) == STRING:
            return "several constants are a list: in ('x', 'y')"
        if token == "/" and following == "/":
            return COMMENT_HINT
        if word == "escape":
            return "there is no escape clause: the escape character is \\, as in '100\\%'"
        if word == "collate":
            name = self._compared()
            return OPERATOR_HINTS[word].format(name or "name")
        if word == "xor":
            return "there is no 'xor': write (… and not (…)) or (not (…) and …)"
        if token in COMPARISONS:
            return _TWO_COMPARISONS
        if word in CASE_WORDS and kind(before) == STRING:
            return "to ignore case, write 'ignoring case'"
        if word in TRAILING_WORDS:
            return f"{leading_hint(token)} and what follows"
        return None

    def _after_attribute_hint(self, before: str, token: str, following: str) -> str | None:
        """Return a hint for what stands behind an attribute on the right: it may be a string without quotes."""
        unquoted = self._unquoted_hint(self.index - 1)
        if unquoted is not None:
            return unquoted
        if token in COMPARISONS:
            return _TWO_COMPARISONS
        if token == "," and kind(following) == NAME:
            return f"several strings are a list: in ('{shortened(before)}', '{shortened(following)}')"
        if token.lower() == "ignoring":
            return f"two attributes are compared as they are; a string needs quotes: '{shortened(before)}'"
        if kind(token) not in (NAME, NUMBER) or following in COMPARISONS or word_hint(token, CONNECTIVES):
            return None
        return f"a string needs quotes: '{shortened(f'{before} {token}')}'"

    def _compared(self) -> str | None:
        """Return the attribute of the comparison that ends before the current token, if it is a simple one."""
        name = self.tokens[self.index - 3] if self.index >= 3 else ""
        return shortened(name) if kind(name) == NAME and self.tokens[self.index - 2] in COMPARISONS else None

    def _unquoted_hint(self, index: int) -> str | None:
        """Return how to write what stands at a token, if it is a date, an address or the like without quotes."""
        return unquoted_hint(raw_word(self.text, lexical.position_of(self.text, index)))

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
            self._refused(error, self.index)

    def _refused(self, error: SubscriptionError, index: int) -> NoReturn:
        """Report a constant that cannot be read."""
        self._error(error.reason, index, self._unquoted_hint(index) or error.hint)

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
        if word == "now" and self.tokens[self.index + 1] == "(":
            return
        if word == "null" or self.tokens[self.index + 1] == "(":
            self._no_constant(name)
        constant = " ".join(self.tokens[start : self.index - 1])
        if "?" in constant:
            hint = "a variable is compared with variables and constants, not with attributes"
            self._expected(f"a variable or a constant after '{op}'", hint)
        hint = f"turn it round: {shortened(name)} {_MIRRORED[op]} {shortened(constant.replace('- ', '-'))}"
        second, bound = self.tokens[self.index + 1 : self.index + 3]
        if second in COMPARISONS:  # 1 < a < 5
            hint += f" and {shortened(name)} {second} {shortened(bound)}"
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
            is_called = kind(argument) == NAME and is_function(name)
            hint = function_hint(name, argument) if is_called else "as in: price between 1 and 2"
            self._error(f"the attribute before '{name}' is missing", at, hint)
        if name.lower() in ("date", "timestamp") and kind(token) == STRING:
            self._error("a constant stands on the right of its operator", self.index - 1, "turn the comparison round")
        self._expected(
            f"an operator after {_shown('not' if negated else name)}", self._operator_hint(name, token, negated)
        )

    def _operator_hint(self, name: str, token: str, negated: bool) -> str | None:
        word = token.lower()
        if name.lower() == "string" and self.tokens[max(self.index - 2 - negated, 0)].lower() == "any":
            return (negated and NEGATED_HINTS.get(word)) or "as in: any string contains 'x'"
        if name.lower() in LEADING_WORDS and self.index == 1 + negated:
            return leading_hint(name)
        if negated:
            return NEGATED_HINTS.get(word) or word_hint(token, TEST_PHRASES)
        if name == ")":
            return "as in: length(name) > 5"
        if word in ("and", "or", ")", ""):
            unquoted = self._unquoted_alternative(name)
            if unquoted is not None:
                return unquoted
            return f"to test a boolean, write {shortened(name)} = true"
        following = self.tokens[self.index + 1]
        if word == "any" or (following == "(" and word in ("exists", "has", "having", "some", "where", "with")):
            return f"write any {shortened(name)} (…)"
        if word == "exists":
            return f"write exists {shortened(name)}"
        if kind(token) in (NUMBER, STRING):
            return "write = before the constant"
        if token == "(" and is_function(name) and kind(following) == NAME:
            return function_hint(name, following)
        if kind(token) == NAME and word not in RESERVED:
            hint = self._two_names_hint(name.lower(), token)
            if hint:
                return hint
        hint = self._symbols_hint(name, token, following) or OPERATOR_HINTS.get(word)
        return hint.format(shortened(name)) if hint else word_hint(token, TEST_PHRASES)

    def _unquoted_alternative(self, name: str) -> str | None:
        """Return how to write `color = red or blue`, if a name follows that."""
        if self.index < 5:
            return None
        attribute, op, first, connective = self.tokens[self.index - 5 : self.index - 1]
        if connective.lower() != "or" or op not in COMPARISONS or kind(first) != NAME:
            return None
        return f"strings need quotes: {shortened(attribute)} in ('{shortened(first)}', '{shortened(name)}')"

    def _symbols_hint(self, name: str, token: str, following: str) -> str | None:
        """Return what two symbols after a name may mean, such as `a->b`, `a::int` or `a !~ 'x'`."""
        match token, following:
            case "-", ">" | ">=":
                return "nested attributes are written with dots: a.b"
            case ":", ":":
                return "values keep the kind that they have in the event: leave out '::' and the type"
            case "!", "~":
                return "write 'not matches' before a regular expression"
            case "!", _ if following.lower() in OPERATOR_WORDS:
                return f"write 'not {following.lower()}'"
        return None

    def _two_names_hint(self, word: str, name: str) -> str | None:
        """Return what two names in a row may mean, such as `all items (…)` or `first name = 'x'`."""
        following = self.tokens[self.index + 1]
        if following == "(":
            hint = {"all": ALL_HINT, "every": ALL_HINT, "some": "write any {} (…)"}.get(word)
            return hint and hint.format(shortened(name))
        if name.lower() in OPERATOR_HINTS and following.lower() == "with":  # a begins with 'x'
            return None
        is_test = following in COMPARISONS or following.lower() in OPERATOR_WORDS or following.lower() == "not"
        return self._blanks_hint(self.index - 1) if is_test else None

    def _no_list(self, op: str) -> NoReturn:
        """Report that no list follows `in`."""
        token, word = self.tokens[self.index], self.tokens[self.index].lower()
        hint = None
        if kind(token) == STRING and NETWORK.fullmatch(read_string(token)):
            hint = f"write {op.replace('in', 'cidr')} {token}"
        elif kind(token) in (NUMBER, STRING):
            hint = f"the list stands in parentheses: {op} ({shortened(token)})"
        elif word in ("all", "any", "cidr"):
            hint = f"write {op.replace('in', 'cidr')} '10.0.0.0/8'" if word == "cidr" else f"leave out '{token}'"
        self._expected(f"'(' after '{op}'", hint)

    def _no_path(self, example: str) -> NoReturn:
        """Report that no attribute follows `any` or `exists`."""
        word, token = self.tokens[self.index - 1], self.tokens[self.index]
        name, closing = self.tokens[self.index + 1 : self.index + 3] if token else ("", "")
        hint = f"write: {example}"
        if token in COMPARISONS:
            hint = self._quote_hint(self.index - 1)
        elif token == "(" and kind(name) == NAME and closing == ")":
            hint = f"leave out the parentheses: {word} {shortened(name)}"
        elif token == "(" and kind(name) == NAME and closing == ",":
            hint = f"write {word} {shortened(name)} (…)"
        self._expected("an attribute", hint)

    def _no_condition(self, name: str) -> NoReturn:
        """Report that no parenthesis follows `any name`."""
        token = self.tokens[self.index]
        hint = f"the condition stands in parentheses: any {shortened(name)} (…)"
        if token in COMPARISONS:
            hint = f"write any {shortened(name)} (this {token} …), or leave out 'any', which means the same"
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
        elif word in NULL_WORDS:
            hint = f"write is{' not' * negated} null"
        elif word in SET_WORDS:
            hint = f"write is{'' if negated else ' not'} null"
        elif word in OPERATOR_WORDS:
            hint = f"leave out 'is': write {'not ' * negated}{word}"
        elif not negated:
            hint = TEST_HINTS.get(word)
        self._expected(f"'null' after 'is{' not' * negated}'", hint)

    def _not_true(self) -> NoReturn:
        """Report what follows `condition is`, which is not `true`."""
        self._expected("'true' after 'is'", TRUTH_HINTS.get(self.tokens[self.index].lower()))

    def _no_constant(self, token: str) -> NoReturn:
        """Report that no constant stands where the operator needs one."""
        word = token.lower()
        before = self.tokens[self.index - 1]
        if word == "null":
            self._error("null cannot be compared", self.index, "write 'is null' or 'is not null'")
        self._expected(f"a constant after {_shown(before)}", self._constant_hint(token, word))

    def _constant_hint(self, token: str, word: str) -> str | None:
        following = self.tokens[self.index + 1]
        if word in NOT_FINITE or (word in ("+", "-") and following.lower() in NOT_FINITE):
            return "NaN and the infinities never occur: in events they count as null"
        if token[:1] in CURRENCIES and (token[1:2].isdigit() or (len(token) == 1 and kind(following) == NUMBER)):
            return f"leave out '{token[0]}'"
        if token[:1] == '"' and len(token) > 1:
            return string_hint(read_path(token))
        if word in NULL_WORDS:
            return "write 'is null' or 'is not null'"
        if kind(token) == NAME and word not in RESERVED:
            return self._name_hint(token, word, following)
        if word == "this":
            return "'this' stands on the left, and is compared with constants only"
        if kind(token) == VARIABLE:
            return "variables stand in operator calls, and in comparisons with variables and numbers"
        if token == "(":
            return self._list_hint(self.tokens[self.index - 1].lower())
        if word == "any" and following == "(":
            return self._list_hint("contains")
        return CONSTANT_SYMBOL_HINTS.get(token)

    def _list_hint(self, before: str) -> str:
        """Return what to write instead of a list."""
        if before == "between":
            return "write between 1 and 2"
        hint = "a list of constants follows only 'in' and 'not in'"
        return hint + (", which also look for elements of an array" if before == "contains" else "")

    def _name_hint(self, token: str, word: str, following: str) -> str:
        """Return what to write instead of a name where a constant is needed."""
        if word in ("date", "timestamp"):
            return f"what follows '{word}' stands in quotes: {word} '2026-01-31'"
        if word in MOMENTS:
            return "for the moment of the match, write now()"
        if following == "(":
            return "on the right stands a constant or an attribute: there are no functions"
        function = self._called(self.index - 1) if self.tokens[self.index - 1] in ("(", ",") else None
        if function is None:
            unquoted = self._unquoted_hint(self.index)
            if unquoted is not None:
                return unquoted
            return f"a string needs quotes: '{shortened(token)}'; {self._right_hint(token)}"
        if function.lower() in LEADING_WORDS and function is self.tokens[0]:
            return leading_hint(function)
        return function_hint(function, token)

    def _right_hint(self, token: str) -> str:
        """Return why a name is no attribute where a constant is needed."""
        before, op = self.tokens[self.index - 2], self.tokens[self.index - 1]
        if op not in COMPARISONS:
            return "only = != < <= > >= compare two attributes"
        if before.lower() in ("this", "string", ")"):
            return "this, lengths and 'any string' are compared with constants only"
        name, _, number = shortened(token).rpartition("-")
        if number.isdecimal():
            return f"a difference needs spaces: {name} - {number}"
        return f"an attribute of that name is quoted: {lexical.quoted(shortened(token), chr(34))}"

    def _no_offset(self) -> NoReturn:
        """Report that no number follows the sign behind an attribute."""
        name, sign = self.tokens[self.index - 2 : self.index]
        self._expected(
            f"a number after '{shortened(name)} {sign}'", f"an offset is a number: {shortened(name)} {sign} 5"
        )

    def _no_case(self, op: str, index: int) -> NoReturn:
        """Report `ignoring case` behind an operator that does not take it, or an `ignoring` without `case`."""
        if self.tokens[index + 1].lower() != "case":
            self.index = index + 1
            self._expected("'case' after 'ignoring'")
        self._error(f"'{op}' does not take 'ignoring case'", index, case_hint(op))

    def _no_length(self) -> NoReturn:
        """Report that no attribute follows `length(`."""
        self._expected(
            "an attribute after 'length('", 'as in: length(name) > 5; an operator of that name is quoted: "length"(…)'
        )

    def _no_comparison(self, start: int) -> NoReturn:
        """Report that no comparison follows a term."""
        if any(token[:1] == "?" for token in self.tokens[start : self.index]):
            self._expected(f"a comparison after {_shown(self.tokens[self.index - 1])}")
        if self.tokens[self.index].lower() in OPERATOR_WORDS | {"not"}:
            self._error("a constant stands on the right of its operator", start, self._attribute_hint(start))
        self._check_token(self.tokens[self.index])
        hint = "a condition begins with an attribute, as in: price <= 580"
        if start and self.tokens[start - 1].lower() in CONNECTIVES:
            hint = "each condition names its attribute: a = 'x' or a = 'y', which is a in ('x', 'y')"
        self._error(f"expected a condition, found {_shown(self.tokens[start])}", start, hint)

    def _attribute_hint(self, start: int) -> str:
        """Return what to write where a constant stands before an operator word, as in `'x' in tags`."""
        constant, (opening, name) = self.tokens[start], self.tokens[self.index + 1 : self.index + 3]
        listed = name if opening == "(" else opening
        if self.tokens[self.index].lower() == "in" and kind(listed) == NAME:
            return f"write the attribute first: {shortened(listed)} = {shortened(constant)}"
        return name_hint(read_string(constant)) if kind(constant) == STRING else "write the attribute first"

    def _two_constants(self, start: int) -> NoReturn:
        """Report a comparison of two constants, one of which may be meant as a name."""
        token = self.tokens[start]
        hint = name_hint(read_string(token)) if kind(token) == STRING else "write 'true' or 'false'"
        self._error("both sides are constants", start, hint)


def _shown(token: str) -> str:
    """Return a token in quotes, for a message."""
    if not token:
        return "the end"
    return shortened(token) if token[0] == "'" else f"'{shortened(token)}'"
