"""What to write instead: hints for mistakes that people make who know another language.

The tables are looked up by a token or a word in lower case; `{}` in a hint is the attribute that it is about. Nothing
here knows where a reader is: `text_errors.py` looks around in the text and asks.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

from siftline.language.tokens import NAME, NUMBER, kind, quoted, shortened, write_path

CONNECTIVES: Final = ("and", "or")
TEST_PHRASES: Final = (
    *("between", "cidr", "contains", "ends with", "ilike", "in", "is null", "is not null", "like", "matches"),
    *("not between", "not in", "not like", "starts with"),
)
COMMENT_HINT: Final = "a comment begins with --"
ELEMENT_HINT: Final = "'contains' looks into strings; for an element of an array, write ="
PLACEHOLDER_HINT: Final = (
    "there are no placeholders: siftline.attr('price') <= limit makes a condition of a Python value"
)
SYMBOL_HINTS: Final = {
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
    "#": COMMENT_HINT,
    "$": "paths begin at the event: leave out '$' and the dot",
    **dict.fromkeys("+-*/", "constants are written out; an attribute on the right takes one number: a > b + 5"),
    **dict.fromkeys("\u2018\u2019\u201c\u201d\u00b4", "write straight quotes: '…' for strings, \"…\" for names"),
}
# What stands where a constant is needed.
CONSTANT_SYMBOL_HINTS: Final = {
    **dict.fromkeys("?:%{", PLACEHOLDER_HINT),
    "/": "a regular expression is a string after 'matches': a matches '^x'",
    "*": "a pattern is a string: like '%x%', where % stands for any text",
}
_STARTS: Final = "did you mean 'starts with'?"
_ENDS: Final = "did you mean 'ends with'?"
_NO_COLLATION: Final = "there are no collations: to ignore case, write {} = 'x' ignoring case"
_REGEX_HINTS: Final = dict.fromkeys(("regex", "regexp", "rlike", "similar", "~"), "write 'matches'")
# Words that stand where an operator does, also after `is`.
TEST_HINTS: Final = {
    **dict.fromkeys(("eq", "equal", "equals"), "write ="),
    **dict.fromkeys(("ne", "neq", "differs"), "write !="),
    **dict.fromkeys(("gt", "greater", "more", "above", "after", "exceeds"), "write >, or >= to include the constant"),
    **dict.fromkeys(("lt", "less", "fewer", "below", "before", "under"), "write <, or <= to include the constant"),
    **dict.fromkeys(("ge", "gte"), "write >="),
    **dict.fromkeys(("le", "lte"), "write <="),
    "one": "write in (…)",
    "within": "write 'between', for an address 'cidr', for a time > now() - interval '1 hour'",
}
OPERATOR_HINTS: Final = {
    "has": "write 'contains' for a part of a string, or = for an element of an array",
    "includes": "write 'contains' for a part of a string, or = for an element of an array",
    **TEST_HINTS,
    **_REGEX_HINTS,
    **dict.fromkeys(("begins", "beginswith", "beginning", "startswith", "starting", "startingwith"), _STARTS),
    **dict.fromkeys(("endswith", "ending", "endingwith", "finishes", "finishing"), _ENDS),
    "glob": "write 'like', where % stands for any text and _ for one character",
    "collate": _NO_COLLATION,
    "null": "write 'is null'",
    "(": "an operator call is written as name(…), and a list of constants follows 'in'",
}
NEGATED_HINTS: Final = {
    "is": "write is not null",
    "null": "write is not null",
    "=": "write !=",
    **{
        word: hint.replace("'", "'not ", 1)
        for word, hint in OPERATOR_HINTS.items()
        if hint.startswith(("write 'matches", "write 'like", _STARTS, _ENDS))
    },
}
TRUTH_HINTS: Final = {
    "false": "write 'not' before the condition, or 'is not true' to include unknown",
    "null": "'is null' tests an attribute; 'is not true' holds where a condition is false or unknown",
    "unknown": "'is not true' holds where a condition is false or unknown",
}
SET_WORDS: Final = frozenset({"defined", "present", "set"})
CURRENCIES: Final = frozenset("$€£¥")
# Clauses of queries: those that stand before a condition, and those that stand behind it.
LEADING_WORDS: Final = frozenset({"filter", "having", "if", "select", "when", "where"})
TRAILING_WORDS: Final = frozenset({"group", "having", "limit", "offset", "order", "then"})

# What may be meant by `ignoring case`, and what to write where that is not taken.
CASE_WORDS: Final = frozenset({"case", "caseless", "ignore", "ignorecase", "ignores", "insensitive", "nocase"})
_CASE_HINTS: Final = {"like": "write ilike", "matches": "write matches '(?i)…'"}
_NO_FUNCTIONS: Final = "attributes have no functions but length"
# `not any a (not (…))` would pass over elements for which the condition is unknown.
ALL_HINT: Final = "write not any {0} ((…) is not true): {0} has elements, and the condition is true for each"
_NO_CONVERSION: Final = "values keep the kind that they have in the event: compare {0} itself"
# What stands for a function of an attribute; functions are looked up in lower case and without `_`.
_FUNCTION_HINTS: Final = {
    **dict.fromkeys(
        ("lower", "upper", "lcase", "ucase", "tolower", "toupper"), "to ignore case, write {0} = 'x' ignoring case"
    ),
    **dict.fromkeys(("startswith", "beginswith", "hasprefix"), "write {0} starts with 'x'"),
    **dict.fromkeys(("endswith", "hassuffix"), "write {0} ends with 'x'"),
    **dict.fromkeys(("contains", "includes", "instr", "position", "strpos"), "write {0} contains 'x'"),
    **dict.fromkeys(("matches", "regexmatch", "regexplike"), "write {0} matches 'x'"),
    **dict.fromkeys(("substr", "substring", "left"), "write {0} starts with 'x', or {0} like '__x%'"),
    **dict.fromkeys(("len", "length", "charlength", "characterlength"), "write length({0}) > 5"),
    **dict.fromkeys(("size", "count"), "write length({0}) > 5 for strings; elements of an array cannot be counted"),
    **dict.fromkeys(("all", "every"), ALL_HINT),
    "abs": "write {0} between -5 and 5 for abs({0}) <= 5, {0} not between -5 and 5 for abs({0}) > 5",
    **dict.fromkeys(("round", "floor", "ceil", "ceiling", "trunc"), "write a range: {0} >= 4.5 and {0} < 5.5"),
    **dict.fromkeys(("coalesce", "ifnull", "isnull", "nvl"), "write {0} is null, as in: {0} = 'x' or {0} is null"),
    **dict.fromkeys(("defined", "exists", "has", "isset", "notnull"), "write {0} is not null"),
    **dict.fromkeys(("cast", "convert", "int", "float", "str", "tonumber", "tostring"), _NO_CONVERSION),
    **dict.fromkeys(
        ("date", "datetrunc", "day", "extract", "hour", "month", "timestamp", "todate", "unixtimestamp", "year"),
        "write a range of times: {0} >= timestamp '2026-01-01' and {0} < timestamp '2027-01-01'",
    ),
}
_STRING_ARGUMENT: Final = "an operator that takes a string takes it in quotes: '{}'"

NETWORK: Final = re.compile(r"[0-9]+(\.[0-9]+){3}(/[0-9]+)?|[0-9a-fA-F:]*:[0-9a-fA-F:]*(/[0-9]+)?")
_RAW_WORD: Final = re.compile(r"""[^\s,()'"]*""")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9:.]+([Zz]|[+-][0-9:]+)?")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION: Final = re.compile(r"([0-9]+)([smhdw])")
_GROUPED: Final = re.compile(r"[0-9]+(_[0-9]+)+")
_HEXADECIMAL: Final = re.compile(r"0[xX][0-9a-fA-F]{1,15}")
_WITH_UNIT: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?([%€£¥$])")
# Addresses, versions, UUIDs, e-mail addresses and URLs: none of them could be a name or arithmetic.
_TEXT: Final = re.compile(
    r"[0-9]+(\.[0-9]+){2,}(/[0-9]+|[-+][\w.]+)?|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|[\w.+-]+@[\w.-]+|[A-Za-z][\w+.-]*://\S*|[A-Za-z]+:[\w.:/-]+"
)


def raw_word(text: str, position: int) -> str:
    """Return what stands at a place as it is written, up to the next blank, comma, parenthesis or quote.

    >>> raw_word("at > 2026-01-31 and b = 1", 5)
    '2026-01-31'
    """
    found = _RAW_WORD.match(text, position)
    return found[0] if found else ""


def unquoted_hint(word: str) -> str | None:
    """Return how to write a constant that stands there without the quotes that it needs.

    >>> unquoted_hint("10.0.0.0/8")
    "a string needs quotes: '10.0.0.0/8'"
    """
    if _DAY.fullmatch(word):
        return f"write date '{word}', or timestamp '{word}' to compare times"
    if _TIME.fullmatch(word):
        return f"a time is written with its quotes: timestamp '{word}'"
    unit = _DURATION.fullmatch(word)
    if unit:
        return f"write interval '{unit[1]} {_UNITS[unit[2]]}'"
    if _GROUPED.fullmatch(word):
        return f"digits are not grouped: {word.replace('_', '')}"
    if _HEXADECIMAL.fullmatch(word):
        return f"numbers are decimal: {int(word, 16)}"
    unit = _WITH_UNIT.fullmatch(word)
    if unit:
        return f"leave out '{unit[1]}'"
    return f"a string needs quotes: '{shortened(word)}'" if _TEXT.fullmatch(word) else None


def name_hint(string: str) -> str:
    """Return how to write an attribute whose name stands in single quotes.

    >>> name_hint("first name")
    'single quotes make a string; the attribute is written "first name"'
    """
    return f"single quotes make a string; the attribute is written {write_path(shortened(string))}"


def json_hint(text: str) -> str:
    """Return who reads a text that is JSON and no condition."""
    begins = text.lstrip()
    if re.match(r'\{\s*"(expression|id|subscription)"', begins):
        return "this is a row of a subscription file: give its expression alone, or the file to add_many"
    if re.match(r'\[|\{\s*"(exact|prefix|suffix|all|any|not|sql)"\s*:\s*[\[{]\s*[\[{"]', begins):
        return (
            "this is JSON: give CloudEvents filters to siftline.parse_filters, event patterns to siftline.parse_pattern"
        )
    return "this is JSON: give an event pattern to siftline.parse_pattern, and add what it returns"


def method_hint(name: str) -> str | None:
    """Return a hint if a call looks like a method of an attribute.

    >>> method_hint("a.b.startsWith")
    "attributes have no functions but length; write a.b starts with 'x'"
    """
    path, _, method = name.rpartition(".")
    return function_hint(method, path) if path and _plain(method) in _FUNCTION_HINTS else None


def function_hint(function: str, argument: str) -> str:
    """Return what to write instead of a function of an attribute.

    >>> function_hint("near", "home")
    "attributes have no functions but length; an operator that takes a string takes it in quotes: 'home'"
    """
    hint = _FUNCTION_HINTS.get(_plain(function), _STRING_ARGUMENT)
    return f"{_NO_FUNCTIONS}; {hint.format(shortened(argument))}"


def is_function(word: str) -> bool:
    """Return whether a function of this name has a hint of its own."""
    return _plain(word) in _FUNCTION_HINTS


def _plain(function: str) -> str:
    return function.lower().replace("_", "")


def leading_hint(word: str) -> str:
    """Return a hint for the first word of a query."""
    return f"only the condition itself is written: leave out '{word}'"


def comma_hint(before: str, following: str) -> str | None:
    """Return what to write instead of a comma after a number."""
    if kind(following) != NUMBER:
        return None
    first, second = shortened(before), shortened(following)
    thousands = f", thousands without a separator: {first}{second}" if len(second) == 3 else ""
    return f"decimals are written with a point: {first}.{second}{thousands}"


def word_hint(token: str, phrases: tuple[str, ...]) -> str | None:
    """Return a hint if the token is nearly one of the phrases."""
    if kind(token) != NAME or len(token) > 30:
        return None
    near = difflib.get_close_matches(token.lower(), phrases, n=1, cutoff=0.65)
    return f"did you mean '{near[0]}'?" if near and near[0] != token.lower() else None


def case_hint(op: str) -> str:
    """Return what to write instead of `ignoring case` behind an operator that does not take it.

    >>> case_hint("not like")
    'write not ilike'
    """
    *negation, word = op.split()
    hint = _CASE_HINTS.get(word, "=, in, starts with, ends with and contains take it")
    return hint.replace("write", f"write {' '.join(negation)}".rstrip())


def string_hint(name: str) -> str:
    """Return how to write a string that stands in double quotes."""
    return "strings are written in single quotes: " + quoted(shortened(name), "'")
