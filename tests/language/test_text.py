"""The text language: what every form means in the model, what is refused, and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siftline.errors import SubscriptionError
from siftline.language.cloudevents import parse_filters
from siftline.language.event_pattern import parse_pattern
from siftline.language.printer import to_text
from siftline.language.text import MAX_TEXT, parse
from siftline.language.text_hints import method_hint
from siftline.language.tokens import position_of, split
from siftline.model import (
    FALSE,
    MAX_DEPTH,
    MAX_LEAVES,
    OPERATORS,
    THIS,
    TRUE,
    And,
    AnyElement,
    AnyString,
    Arithmetic,
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
    Timestamp,
    Variable,
    evaluate,
    walk,
)
from siftline.model.predicate import CASELESS

A = Predicate("a", "=", 1)
B = Predicate("b", "=", 2)
C = Predicate("c", "=", 3)


def refusal(text: str) -> SubscriptionError:
    with pytest.raises(SubscriptionError) as caught:
        parse(text)
    return caught.value


def one(text: str) -> Predicate:
    predicate = parse(text)
    assert isinstance(predicate, Predicate)
    return predicate


def constant(text: str) -> object:
    return one(f"a = {text}").operand


class TestConnectives:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a = 1 and b = 2 and c = 3", And((A, B, C))),
            ("a = 1 or b = 2 or c = 3", Or((A, B, C))),
            ("a = 1 and b = 2 or c = 3", Or((And((A, B)), C))),
            ("a = 1 or b = 2 and c = 3", Or((A, And((B, C))))),
            ("a = 1 and (b = 2 or c = 3)", And((A, Or((B, C))))),
            ("(a = 1 and b = 2) and c = 3", And((And((A, B)), C))),
            ("a = 1 or (b = 2 or c = 3)", Or((A, Or((B, C))))),
            ("((a = 1))", A),
            ("not a = 1 and b = 2", And((Not(A), B))),
            ("not (a = 1 and b = 2)", Not(And((A, B)))),
            ("not not a = 1", Not(Not(A))),
            ("not a = 1 or not b = 2", Or((Not(A), Not(B)))),
            ("true", TRUE),
            ("FALSE", FALSE),
            ("true and a = 1", And((TRUE, A))),
            ("not false", Not(FALSE)),
        ],
    )
    def test_precedence_and_shape(self, text: str, expected: Expression) -> None:
        assert parse(text) == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a = 1 is true", IsTrue(A)),
            ("(a = 1) is true", IsTrue(A)),
            ("a = 1 is not true", Not(IsTrue(A))),
            ("not a = 1 is true", Not(IsTrue(A))),
            ("not a = 1 is not true", Not(Not(IsTrue(A)))),
            ("a = 1 and b = 2 is true", And((A, IsTrue(B)))),
            ("(a = 1 and b = 2) is true", IsTrue(And((A, B)))),
            ("((a = 1) is true) is not true", Not(IsTrue(IsTrue(A)))),
            ("a is null is true", IsTrue(Predicate("a", "is null"))),
            ("true is true", IsTrue(TRUE)),
            ("any x (a = 1) is true", IsTrue(AnyElement("x", A))),
            ("f() is true", IsTrue(Call("f", ()))),
            ("?x > 1 is true", IsTrue(Constraint(">", Variable("x"), 1))),
            ("exists a is not true", Not(IsTrue(Predicate("a", "exists")))),
        ],
    )
    def test_is_true(self, text: str, expected: Expression) -> None:
        assert parse(text) == expected

    def test_keywords_ignore_case(self) -> None:
        text = "Not A = 1 AND b IN (1) oR c Between 1 aNd 2 Or d STARTS With 'x' or e IS Not NULL or f = TRUE"
        assert parse(text) == parse(
            "not A = 1 and b in (1) or c between 1 and 2 or d starts with 'x' or e is not null or f = true"
        )


class TestPredicates:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a = 1", A),
            ("a != 1", Predicate("a", "!=", 1)),
            ("a <> 1", Predicate("a", "!=", 1)),
            ("a < 1", Predicate("a", "<", 1)),
            ("a <= 1", Predicate("a", "<=", 1)),
            ("a > 1", Predicate("a", ">", 1)),
            ("a >= 1", Predicate("a", ">=", 1)),
            ("a in (1, 'x', true)", Predicate("a", "in", (1, "x", True))),
            ("a in ()", Predicate("a", "in", ())),
            ("a not in (1)", Predicate("a", "not in", (1,))),
            ("a between 1 and 2.5", Predicate("a", "between", (1, 2.5))),
            ("a not between 'a' and 'b'", Predicate("a", "not between", ("a", "b"))),
            ("a between 1 and 2 and b = 2", And((Predicate("a", "between", (1, 2)), B))),
            ("a is null", Predicate("a", "is null")),
            ("a is not null", Predicate("a", "is not null")),
            ("exists a", Predicate("a", "exists")),
            ("not exists a.b", Not(Predicate("a.b", "exists"))),
        ],
    )
    def test_forms(self, text: str, expected: Expression) -> None:
        assert parse(text) == expected

    @pytest.mark.parametrize("word", ["starts with", "ends with", "contains", "like", "ilike", "matches", "cidr"])
    @pytest.mark.parametrize("negation", ["", "not "])
    def test_words_take_a_string(self, word: str, negation: str) -> None:
        assert one(f"a {negation}{word} '10.0.0.0/8'") == Predicate("a", negation + word, "10.0.0.0/8")

    def test_every_operator_has_a_form(self) -> None:
        constants = {"in": "(1)", "between": "1 and 2", "null": "", "cidr": "'10.0.0.0/8'"}
        for op in OPERATORS - {"exists"} - CASELESS:
            default = "'x'" if op[-1].isalpha() else "1"
            assert one(f"a {op} {constants.get(op.split()[-1], default)}").op == op
        for op in CASELESS:
            plain = op.removesuffix(" ignoring case")
            operand = "('x')" if plain.endswith("in") else "'x'"
            assert one(f"a {plain} {operand} IGNORING Case").op == op

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a > b", AttributeComparison("a", ">", "b")),
            ("a <> b.c", AttributeComparison("a", "!=", "b.c")),
            ("a>=b+5", AttributeComparison("a", ">=", "b", 5)),
            ("a = b - 2.5", AttributeComparison("a", "=", "b", -2.5)),
            ("a = b -9223372036854775808", AttributeComparison("a", "=", "b", -(2**63))),
            ("a = b + 0", AttributeComparison("a", "=", "b", 0)),
            ('"a b" < "c d"', AttributeComparison("a b", "<", "c d")),
            ('a = "now"', AttributeComparison("a", "=", "now")),
            ('a = "b-5" - 5', AttributeComparison("a", "=", "b-5", -5)),
            ('a = "$b"."c d"', AttributeComparison("a", "=", "$b.c d")),
            ("a = detail-type", AttributeComparison("a", "=", "detail-type")),
            (
                "a = length and b = string",
                AttributeComparison("a", "=", "length") & AttributeComparison("b", "=", "string"),
            ),
            ("any x (a < b + 1)", AnyElement("x", AttributeComparison("a", "<", "b", 1))),
            ("a = b is not true", Not(IsTrue(AttributeComparison("a", "=", "b")))),
            ("any string contains 'x'", AnyString("contains", "x")),
            ("ANY String != 'x'", AnyString("!=", "x")),
            ("any string not in ('x') ignoring case", AnyString("not in ignoring case", ("x",))),
            ("any string between 'a' and 'b'", AnyString("between", ("a", "b"))),
            ("any string cidr '10.0.0.0/8'", AnyString("cidr", "10.0.0.0/8")),
            ("any string (this = 1)", AnyElement("string", Predicate(THIS, "=", 1))),
            ('any "string" (this = 1)', AnyElement("string", Predicate(THIS, "=", 1))),
            ("any string.x (this = 1)", AnyElement("string.x", Predicate(THIS, "=", 1))),
            ("any x (any string = 'y')", AnyElement("x", AnyString("=", "y"))),
            ("length(a) > 5", Length("a", ">", 5)),
            ("LENGTH ( a.b ) not between 1 and 2.5", Length("a.b", "not between", (1, 2.5))),
            ('length("a b") in ()', Length("a b", "in", ())),
            ("any x (length(this) = 1)", AnyElement("x", Length(THIS, "=", 1))),
            ("length > 5", Predicate("length", ">", 5)),
            ("\"length\"('x')", Call("length", ("x",))),
            ("length.of('x')", Call("length.of", ("x",))),
            ("string = 'x' and ignoring = 'x' ignoring case and case = 1", None),
        ],
    )
    def test_more_than_one_attribute(self, text: str, expected: Expression | None) -> None:
        assert expected is None or parse(text) == expected
        assert parse(to_text(parse(text))) == parse(text)

    def test_any(self) -> None:
        inner = And((Predicate("sku", "=", "x"), Predicate("qty", ">", 2)))
        assert parse("any items (sku = 'x' and qty > 2)") == AnyElement("items", inner)
        assert parse("not any a.b(any c(d = 1))") == Not(
            AnyElement("a.b", AnyElement("c", Predicate("d", "=", 1))),
        )

    def test_this_is_the_element(self) -> None:
        assert parse("any tags (this > 2 and exists this)") == AnyElement(
            "tags", And((Predicate(THIS, ">", 2), Predicate(THIS, "exists")))
        )

    def test_white_space_is_optional_where_unambiguous(self) -> None:
        assert parse("a='x'and(b<=-2)or c in(1,2)") == Or(
            (And((Predicate("a", "=", "x"), Predicate("b", "<=", -2))), Predicate("c", "in", (1, 2)))
        )

    def test_comments_and_white_space(self) -> None:
        text = "/* one\n ** / */a-- the name\n\t=\u00a01 -- no end of line"
        assert parse(text) == A
        assert constant("'-- no /* comment */'") == "-- no /* comment */"
        assert parse("a--b\n= 1") == A


class TestConstants:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("0", 0),
            ("-0", 0),
            ("007", 7),
            ("+5", 5),
            ("- 5", -5),
            ("9223372036854775807", 2**63 - 1),
            ("-9223372036854775808", -(2**63)),
            ("0000000000000000000000000000001", 1),
            ("1.", 1.0),
            (".5", 0.5),
            ("-.5", -0.5),
            ("1e3", 1000.0),
            ("1E+3", 1000.0),
            ("1.5e-3", 0.0015),
            ("5e-324", 5e-324),
            ("1e-999", 0.0),
            ("1.7976931348623157e308", 1.7976931348623157e308),
            ("0.1", 0.1),
            ("9007199254740993.0", 9007199254740992.0),
            ("true", True),
            ("FALSE", False),
            ("''", ""),
            ("''''", "'"),
            ("'it''s'", "it's"),
            (r"'a\nb\'", "a\\nb\\"),
            ("'\x00\n\x1b\ud800'", "\x00\n\x1b\ud800"),
            ("'\"'", '"'),
        ],
    )
    def test_values(self, text: str, expected: object) -> None:
        value = constant(text)
        assert value == expected
        assert type(value) is type(expected)

    def test_negative_zero_keeps_its_sign(self) -> None:
        assert str(constant("-0.0")) == "-0.0"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("date '2026-01-31'", "2026-01-31"),
            ("date'2024-02-29'", "2024-02-29"),
        ],
    )
    def test_dates(self, text: str, expected: str) -> None:
        assert constant(text) == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("timestamp '2026-01-31T10:00Z'", "2026-01-31T10:00:00Z"),
            ("timestamp '2026-01-31 10:00'", "2026-01-31T10:00:00Z"),
            ("timestamp '2026-01-31'", "2026-01-31T00:00:00Z"),
            ("TIMESTAMP '2026-01-31T10:00:59.123456789z'", "2026-01-31T10:00:59.123456789Z"),
            ("timestamp '2026-01-31T10:00:59.5+01:30'", "2026-01-31T08:30:59.5Z"),
            ("timestamp'2026-01-01T00:00:00-00:30'", "2026-01-01T00:30:00Z"),
        ],
    )
    def test_timestamps(self, text: str, expected: str) -> None:
        found = constant(text)
        assert isinstance(found, Timestamp)
        assert str(found) == f"timestamp '{expected}'"

    @pytest.mark.parametrize(
        ("text", "days"),
        [
            ("now()", 0),
            ("NOW ( )", 0),
            ("now() - interval '1 day'", -1),
            ("now() + interval '1 week'", 7),
            ("now()-interval'36 hours'", -1.5),
            ("now() - Interval '1 DAY 12 hours'", -1.5),
            ("now() - interval '1 day' + interval '12 hours' - interval '0 seconds'", -0.5),
            ("now() + interval '1' day", 1),
            ("now() + interval '0.5' Days", 0.5),
            ("now() + interval '1440 minutes 86400.0 seconds'", 2),
        ],
    )
    def test_now(self, text: str, days: float) -> None:
        assert constant(text) == Now(int(days * 86_400) * 10**9)
        assert parse(f"a between {text} and now() and b = 1").operands[1] == parse("b = 1")  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("text", "position", "hint"),
        [
            ("a > now", 4, "write now()"),
            ("a > now(5)", 8, None),
            ("a > now() - 5", 12, "interval '1 day'"),
            ("a > now() - interval", 12, "interval '1 day'"),
            ("a > now() - interval '1 month'", 4, "months and years differ in length"),
            ("a > now() - interval '1 fortnight'", 4, "weeks, days, hours"),
            ("a > now() - interval '-1 day'", 4, "interval '1 day 2 hours'"),
            ("a > now() - interval '1'", 4, "interval '1 day 2 hours'"),
            ("a > now() - interval ''", 4, "interval '1 day 2 hours'"),
            ("a > now() - interval '1 day and 2 hours'", 4, "interval '1 day 2 hours'"),
            ("a > now() - interval '0.1234567890 seconds'", 4, "interval '1 day 2 hours'"),
            ("a > now() + interval '1000001 days'", 4, None),
            (f"a > now() + interval '{'9' * 5000} days'", 4, None),
            ("a like now()", 7, None),
            ("a between now() and 5", 20, None),
            ("f(now())", 2, "on the right of an attribute"),
            ("?x > now() and f(?x)", 5, "on the right of an attribute"),
            ("now() < a", 6, "turn the comparison round"),
        ],
    )
    def test_what_now_is_not(self, text: str, position: int, hint: str | None) -> None:
        error = refusal(text)
        assert error.position == position
        assert hint is None or hint in str(error.hint)

    def test_calls_and_constraints_take_timestamps_as_strings(self) -> None:
        text = "2026-01-31T10:00:00.000000000Z"
        assert parse("f(timestamp '2026-01-31T10:00Z')") == parse(f"f('{text}')")
        assert parse("f(?x) and ?x > timestamp '2026-01-31T10:00Z'") == parse(f"f(?x) and ?x > '{text}'")

    @pytest.mark.parametrize(
        "text",
        [
            "date '2026-02-30'",
            "date '20260131'",
            "date '2026-W01-1'",
            "date '2026-01-31T10:00Z'",
            "date ''",
            "timestamp '2026-01-31T25:00Z'",
            "timestamp '2026-01-31T10Z'",
            "timestamp '2026-01-31T10:00:00.Z'",
            "timestamp '2026-01-31T10:00.5Z'",
            "timestamp '2026-01-31T10:00:00.1234567890Z'",
            "timestamp '0001-01-01T00:00+01:00'",
            "timestamp '9999-12-31T23:59-01:00'",
            "timestamp '٢٠٢٦-01-31T10:00Z'",
            "timestamp '2026-01-31T10:00Z\n'",
        ],
    )
    def test_impossible_dates_are_refused_in_place(self, text: str) -> None:
        assert refusal(f"a > {text}").position == 4

    @pytest.mark.parametrize(
        "text",
        ["9223372036854775808", "-9223372036854775809", "1" * 6000, "1e309", "-1e309", "9" * 400 + ".0"],
    )
    def test_numbers_out_of_range_are_refused(self, text: str) -> None:
        assert refusal(f"a in (1, {text})").position == 9

    @pytest.mark.parametrize(
        "text", ["1_000", "0x1F", "12abc", "1.2.3", "1e", "1..2", "\u0661", "1²", "nan", "infinity", "1e+"]
    )
    def test_what_is_no_number(self, text: str) -> None:
        assert refusal(f"a = {text}").position == 4


class TestNames:
    @pytest.mark.parametrize(
        ("text", "attribute"),
        [
            ("price", "price"),
            ("product.price", "product.price"),
            ("detail-type", "detail-type"),
            ("x-2.y", "x-2.y"),
            ("@timestamp", "@timestamp"),
            ("$type", "$type"),
            ("a.$ref.@id", "a.$ref.@id"),
            ("_", "_"),
            ("größe", "größe"),
            ("цена.名前", "цена.名前"),
            ("हिन्दी", "हिन्दी"),
            ("counts.2024", "counts.2024"),
            ("a.0.b", "a.0.b"),
            ('"a b".c', "a b.c"),
            ('a."b c"', "a.b c"),
            ('"a.b"', "a.b"),
            ('""', ""),
            ('a.""', "a."),
            ('"5"" disk"', '5" disk'),
            ('"it\'s"', "it's"),
            ('"line\nbreak"', "line\nbreak"),
            ('"-- no comment"', "-- no comment"),
            ("a.and.not", "a.and.not"),
            ("true.x", "true.x"),
            ("this.x", "this.x"),
            ('"this"', "this"),
            ('"NOT"', "NOT"),
            ("Price", "Price"),
        ],
    )
    def test_paths(self, text: str, attribute: str) -> None:
        assert one(f"{text} = 1").attribute == attribute

    @pytest.mark.parametrize(
        "word",
        ["between", "cidr", "contains", "date", "ends", "ilike", "in", "is", "like", "matches", "starts", "timestamp"],
    )
    def test_contextual_keywords_are_names_too(self, word: str) -> None:
        for test in ("= 1", "in (1)", "is null", "between 1 and 2", "starts with 'x'", "not like 'x'"):
            assert one(f"{word} {test}").attribute == word
        assert parse(f"any {word} (exists {word})") == AnyElement(word, Predicate(word, "exists"))

    @pytest.mark.parametrize("word", ["and", "any", "exists", "not", "null", "or", "this", "NOT"])
    def test_reserved_words_need_quotes(self, word: str) -> None:
        refusal(f"{word} = 1")
        assert one(f'"{word}" = 1').attribute == word

    def test_the_hint_says_to_quote(self) -> None:
        assert '"any"' in (refusal("any = 1").hint or "")
        assert '"or"' in (refusal("or = 1").hint or "")


class TestOperatorLayer:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("loc_in('Bronx', 5, ?x)", Call("loc_in", ("Bronx", 5, Variable("x")))),
            ("f()", Call("f", ())),
            ("geo.near(-1.5, true)", Call("geo.near", (-1.5, True))),
            ('"in"(1)', Call("in", (1,))),
            ("?people > 50", Constraint(">", Variable("people"), 50)),
            ("50 < ?people", Constraint("<", 50, Variable("people"))),
            ("?x = 'abc'", Constraint("=", Variable("x"), "abc")),
            ("true = ?x", Constraint("=", True, Variable("x"))),
            ('?"a b" <> ?c', Constraint("!=", Variable("a b"), Variable("c"))),
        ],
    )
    def test_calls_and_constraints(self, text: str, expected: Expression) -> None:
        assert parse(text) == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2 * ?z + 1", Arithmetic("+", Arithmetic("*", 2, Variable("z")), 1)),
            ("1 + 2 * ?z", Arithmetic("+", 1, Arithmetic("*", 2, Variable("z")))),
            ("(1 + 2) * ?z", Arithmetic("*", Arithmetic("+", 1, 2), Variable("z"))),
            ("?z - 1 - 2", Arithmetic("-", Arithmetic("-", Variable("z"), 1), 2)),
            ("?z-1", Arithmetic("-", Variable("z"), 1)),
            ("?z - (1 - 2)", Arithmetic("-", Variable("z"), Arithmetic("-", 1, 2))),
            ("-?z", Arithmetic("-", 0, Variable("z"))),
            ("+?z", Variable("z")),
            ("-(?z)", Arithmetic("-", 0, Variable("z"))),
            ("-5 * ?z", Arithmetic("*", -5, Variable("z"))),
            ("?z * -5", Arithmetic("*", Variable("z"), -5)),
            ("?z / 2 / 3", Arithmetic("/", Arithmetic("/", Variable("z"), 2), 3)),
        ],
    )
    def test_arithmetic(self, text: str, expected: Arithmetic) -> None:
        assert parse(f"?y > {text}") == Constraint(">", Variable("y"), expected)
        assert parse(f"{text} < ?y") == Constraint("<", expected, Variable("y"))
        assert parse(f"({text}) < ?y") == Constraint("<", expected, Variable("y"))
        assert parse(f"(({text} < ?y))") == Constraint("<", expected, Variable("y"))

    def test_together(self) -> None:
        assert parse("loc_in('Bronx') and mob(?p) and (?p > 50 or ?p < 2)") == And(
            (
                Call("loc_in", ("Bronx",)),
                Call("mob", (Variable("p"),)),
                Or((Constraint(">", Variable("p"), 50), Constraint("<", Variable("p"), 2))),
            )
        )

    @pytest.mark.parametrize(
        "text",
        [
            *("?x", "?x + 1", "?x in (1)", "?x > price", "price > ?x", "1 = 1", "f(price)", "f(1,)", "f(1", "?"),
            *("? x > 1", "date '2026-01-01' < ?x", "('a') = ?x", "(true) = ?x"),
            *("?x > 'a' + 1", "true * ?x > 1", "?x + > 1", "?x > (1 + 2", "-'a' < ?x", "f(-?x)", "?1 > 2", "?x > ?x.y"),
        ],
    )
    def test_refused(self, text: str) -> None:
        refusal(text)


class TestLimits:
    def test_long_texts_are_refused_at_once(self) -> None:
        assert parse("a = 1" + " " * (MAX_TEXT - 5)) == A
        assert "262,145" in refusal("a = 1" + " " * (MAX_TEXT - 4)).reason

    @pytest.mark.parametrize(
        ("opening", "closing"),
        [("(", ")"), ("not ", ""), ("any a (", ")"), ("not (", ")"), ("?x > (", ")"), ("?x > -", ""), ("?x + (", ")")],
    )
    def test_deep_nesting_is_refused_with_its_place(self, opening: str, closing: str) -> None:
        error = refusal(opening * 5000 + "a = 1" + closing * 5000)
        assert error.position is not None
        assert refusal(opening * 5000).position is not None

    def test_the_deepest_that_is_accepted(self) -> None:
        assert parse("(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH) == A
        assert refusal("(" * (MAX_DEPTH + 1) + "a = 1" + ")" * (MAX_DEPTH + 1)).position == MAX_DEPTH
        parse("not " * (MAX_DEPTH - 1) + "a = 1")
        assert refusal("not " * MAX_DEPTH + "a = 1").position == 4 * (MAX_DEPTH - 1)

    def test_nodes_count_and_not_only_parentheses(self) -> None:
        # Each level is an Or of an And: 60 pairs of parentheses are 120 levels.
        error = refusal("a = 1 or b = 2 and (" * 60 + "c = 3" + ")" * 60)
        assert "deeper" in error.reason
        assert error.position == len("a = 1 or b = 2 and (") * 60 - 1

    def test_arithmetic_has_the_same_depth(self) -> None:
        parse("?x > 1" + " + 1" * (MAX_DEPTH - 1))
        assert "deeper" in refusal("?x > 1" + " + 1" * MAX_DEPTH).reason
        assert "deeper" in refusal("?x > 1" + " + 1" * 50_000).reason
        assert "deeper" in refusal("?x > " + "- " * 5000 + "?x").reason
        assert "deeper" in refusal("?x > " + "(" * 5000 + "?x").reason
        assert "deeper" in refusal("(" * 5000 + "?x + 1" + ")" * 5000 + "> 2").reason

    def test_long_chains(self) -> None:
        chain = parse(" and ".join(["a=1"] * 32_000))
        assert isinstance(chain, And)
        assert len(chain.operands) == 32_000
        either = parse(" or ".join(["a=1"] * 32_000))
        assert isinstance(either, Or)
        assert len(either.operands) == 32_000

    def test_the_number_of_leaves(self) -> None:
        assert len(one(f"a in ({','.join(['1'] * MAX_LEAVES)})").operand or ()) == MAX_LEAVES  # type: ignore[arg-type]
        assert "100,000" in refusal(f"a in ({','.join(['1'] * (MAX_LEAVES + 1))})").reason

    @pytest.mark.parametrize(
        "piece", ["/*", "'", '"', "'\"", "a.", "(1", "?", "--", "''\"\"", "/* *", "-(", "1e", "a-", "\t"]
    )
    def test_hostile_texts_take_linear_time(self, piece: str) -> None:
        # Anything quadratic would take minutes here.
        accepts_or_refuses(piece * (MAX_TEXT // len(piece)))
        accepts_or_refuses("a = 1 " + piece * (MAX_TEXT // len(piece) - 7) + "!")

    def test_not_a_string(self) -> None:
        with pytest.raises(TypeError, match="not bytes"):
            parse(b"a = 1")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a condition is a string, not int"):
            parse(5)  # type: ignore[arg-type]


class TestErrors:
    def test_the_whole_message(self) -> None:
        assert str(refusal("price betwen 1 and 2")) == (
            "line 1, column 7: expected an operator after 'price', found 'betwen'\n"
            "  price betwen 1 and 2\n"
            "        ^\n"
            "  hint: did you mean 'between'?"
        )

    def test_line_and_column(self) -> None:
        error = refusal("a = 1\nand b == 2")
        assert (error.line, error.column, error.position) == (2, 7, 12)

    @pytest.mark.parametrize(
        ("text", "position", "reason", "hint"),
        [
            ("", 0, "the expression is empty", "'true'"),
            (" -- nothing", 0, "the expression is empty", "'true'"),
            ("price == 5", 6, "expected an operator", "write ="),
            ("a = 1 && b = 2", 6, "expected 'and', 'or' or the end, found '&&'", "'and'"),
            ("a = 1 || b = 2", 6, "found '||'", "'or'"),
            ("!(a = 1)", 0, "expected a condition, found '!'", "'not'"),
            ("a =~ 'x'", 2, "found '=~'", "'matches'"),
            ("a <=> 5", 2, "found '<=>'", "is null"),
            ("a =< 5", 2, "found '=<'", "<="),
            ("a => 5", 2, "found '=>'", ">="),
            ("a ≤ 5", 2, "found '≤'", "<="),
            ('a = "red"', 4, "expected a constant after '='", "'red'"),
            ("a contains red", 11, "expected a constant after 'contains'", "a string needs quotes: 'red'; only = !="),
            ("a = red wine", 8, "expected 'and', 'or' or the end, found 'wine'", "a string needs quotes: 'red wine'"),
            ("a = red, blue", 7, "expected 'and'", "several strings are a list: in ('red', 'blue')"),
            ("a = red or blue", 15, "expected an operator after 'blue'", "strings need quotes: a in ('red', 'blue')"),
            ("a = b-5", 4, "expected a constant after '='", "a difference needs spaces: b - 5"),
            ("a = $b", 4, "expected a constant", 'an attribute of that name is quoted: "$b"'),
            ("a = like", 4, "expected a constant", 'an attribute of that name is quoted: "like"'),
            ("a = none", 4, "expected a constant", "write 'is null'"),
            ("a = x@y.z", 5, "expected 'and'", "a string needs quotes: 'x@y.z'"),
            ("a = b[0]", 5, "expected 'and'", "there are no array positions"),
            ("a = b > c", 6, "expected 'and'", "two comparisons are joined by 'and'"),
            ("a = b ignoring case", 6, "expected 'and'", "two attributes are compared as they are"),
            ("a > b + c", 8, "expected a number after 'b +'", "an offset is a number: b + 5"),
            ("a > b - -5", 8, "expected a number after 'b -'", "an offset is a number: b - 5"),
            ("a > b + 1e999", 8, "too large for a double", None),
            ("a > b * 2", 6, "expected 'and'", "takes one number: a > b + 5"),
            ("a + 5 > b", 2, "expected an operator", "takes one number: a > b + 5"),
            ("a between b and c", 10, "expected a constant after 'between'", "compare two attributes"),
            ("a in (b)", 6, "expected a constant", "compare two attributes"),
            ("any n (this > b)", 14, "expected a constant", "compared with constants only"),
            ("any n (b > this)", 11, "expected a constant", "'this' stands on the left"),
            ("any n (b > this.c)", 11, "'this.c' is not an attribute of the element", "write c"),
            ("a like 'x' ignoring case", 11, "'like' does not take 'ignoring case'", "write ilike"),
            ("a not like 'x' ignoring case", 15, "'not like' does not take", "write not ilike"),
            ("a matches 'x' ignoring case", 14, "'matches' does not take", "write matches '(?i)"),
            ("a < 'x' ignoring case", 8, "'<' does not take 'ignoring case'", "=, in, starts with"),
            ("a = 5 ignoring case", 4, "'ignoring case' is about strings, not about a number", None),
            ("a = 'x' ignoring", 16, "expected 'case' after 'ignoring'", None),
            ("a = 'x' nocase", 8, "expected 'and'", "to ignore case, write 'ignoring case'"),
            ("any string", 10, "expected an operator after 'string'", "any string contains 'x'"),
            ("any string = 5", 11, "'any string' is compared with strings, not with a number", None),
            ("any string is null", 11, "'is null' tests an attribute, not all strings", None),
            ("any string > b", 13, "expected a constant", "compared with constants only"),
            ("any \"string\" = 'x'", 13, "expected '('", 'write any "string" (this = '),
            ("length('a') > 5", 7, "expected an attribute after 'length('", 'is quoted: "length"('),
            ("length()", 7, "expected an attribute after 'length('", "as in: length(name) > 5"),
            ("length(a)", 9, "expected an operator", "as in: length(name) > 5"),
            ("length(a) > 'x'", 10, "a length is compared with numbers, not with a string", None),
            ("length(a) like 'x'", 10, "a length is a number, which 'like' does not test", None),
            ("length(this) > 5", 7, "'this' stands only inside 'any", "an attribute so named"),
            ("a = \u2018red\u2019", 4, "expected a constant", "straight quotes"),
            ("a = null", 4, "null cannot be compared", "write 'is null'"),
            ("a != NULL", 5, "null cannot be compared", "write 'is null'"),
            ("a in (1, null)", 9, "null cannot be compared", "write 'is null'"),
            ("a null", 2, "expected an operator", "write 'is null'"),
            ("5 < price", 0, "a constant stands on the right", "price > 5"),
            ("a = 1 and -5 >= price", 10, "a constant stands on the right", "price <= -5"),
            ("'red' = color", 0, "a constant stands on the right", "color = 'red'"),
            ("5 between a and b", 0, "a constant stands on the right", "attribute first"),
            ("date '2026-01-01' < a", 0, "a constant stands on the right", "round"),
            ("active", 6, "expected an operator after 'active', found the end", "active = true"),
            ("active and a = 1", 7, "expected an operator", "active = true"),
            ("active is true", 10, "expected 'null' after 'is'", "active = true"),
            ("active is not true", 14, "expected 'null' after 'is not'", "active != true"),
            ("a is 5", 5, "expected 'null'", "="),
            ("a = 1 is false", 9, "expected 'true' after 'is'", "not"),
            ("a = 1 is unknown", 9, "expected 'true' after 'is'", "is not true"),
            ("a = 1 is true is true", 14, "expected 'and', 'or' or the end", None),
            ("a in 1, 2", 5, "expected '(' after 'in'", "in parentheses: in (1)"),
            ("a in (1, 2", 10, "expected ')' or ',', found the end", None),
            ("a in (1 2)", 8, "expected ')' or ','", None),
            ("a in (1,)", 8, "expected a constant after ','", None),
            ("a = (1)", 4, "expected a constant", "'in'"),
            ("a = [1]", 4, "expected a constant", "parentheses"),
            ("a between 1, 2", 11, "expected 'and'", "write between 1 and 2"),
            ("a not = 5", 6, "expected an operator after 'not'", "!="),
            ("a not is null", 6, "expected an operator after 'not'", "is not null"),
            ("a not betwen 1 and 2", 6, "expected an operator after 'not'", "'between'"),
            ("a startswith 'x'", 2, "expected an operator", "'starts with'"),
            ("a starts 'x'", 9, "expected 'with' after 'starts'", "starts with 'x'"),
            ("a contain 'x'", 2, "expected an operator", "'contains'"),
            ("a exists", 2, "expected an operator", "exists a"),
            ("exists(a)", 6, "expected an attribute", "leave out the parentheses: exists a"),
            ("in (1, 2)", 0, "the attribute before 'in' is missing", "price"),
            ("a = 1 and like 'x'", 10, "the attribute before 'like' is missing", "price"),
            ("a = 5 + 3", 6, "found '+'", "constants are written out"),
            ("a = 1 and", 9, "expected a condition after 'and', found the end", None),
            ("and a = 1", 0, "expected a condition, found 'and'", None),
            ("a = 1 or or b = 2", 9, "expected a condition after 'or', found 'or'", None),
            ("()", 1, "expected a condition after '('", None),
            ("(a = 1", 6, "expected ')', found the end", None),
            ("a = 1)", 5, "expected 'and', 'or' or the end, found ')'", None),
            ("a = 1 b = 2", 6, "expected 'and', 'or' or the end, found 'b'", None),
            ("a = 1 adn b = 2", 6, "found 'adn'", "'and'"),
            ("a = 1;", 5, "found ';'", "semicolon"),
            ("a =", 3, "expected a constant after '=', found the end", None),
            ("a = 'it's'", 8, "found 's'", "doubled"),
            ("a = 'abc", 4, "this string has no closing quote", "doubled"),
            ("a = 1 and 'abc", 10, "this string has no closing quote", "doubled"),
            ('"abc = 1', 0, "this name has no closing quote", "doubled"),
            ("a = 1 /* b", 6, "this comment has no end", "*/"),
            ("this = 1", 0, "'this' stands only inside", '"this"'),
            ("any a (b = 1) and exists this", 25, "'this' stands only inside", '"this"'),
            ("any a (this.b = 1)", 7, "'this.b' is not an attribute of the element", "write b"),
            ("any a (any this (b = 1))", 11, "'any this' has no meaning", None),
            ("any (a = 1)", 4, "expected an attribute", "any items"),
            ("any a b = 1", 6, "expected '(' after 'any a'", "in parentheses: any a (…)"),
            ("any a [b = 1]", 6, "expected '(' after 'any a'", "in parentheses: any a (…)"),
            ("any a[0] (b = 1)", 5, "expected '(' after 'any a'", "no array positions"),
            ("any first name (b = 1)", 10, "expected '(' after 'any first'", '"first name"'),
            ("$.a = 1", 0, "expected a condition, found '$'", "leave out '$'"),
            ("a\x00 = 1", 1, r"found '\x00'", None),
        ],
    )
    def test_mistakes(self, text: str, position: int, reason: str, hint: str | None) -> None:
        error = refusal(text)
        assert error.position == position
        assert reason in error.reason
        assert (hint is None) == (error.hint is None)
        assert (hint or "") in (error.hint or "")
        assert error.text == text

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("UPPER(a.b) like 'x%'", "no functions but length; to ignore case, write a.b = 'x' ignoring case"),
            ("b = 1 and len(tags) > 3", "no functions but length; write length(tags) > 5"),
            ("starts_with(a, 'x')", "write a starts with 'x'"),
            ("endsWith(a, 'x')", "write a ends with 'x'"),
            ("contains(a, 'x')", "write a contains 'x'"),
            ("loc_in(Bronx)", "takes it in quotes: 'Bronx'"),
            ("a.lower() = 'x'", "no functions but length; to ignore case, write a = 'x' ignoring case"),
            ("f(1) = 2", "is not compared"),
            ("(a = 1) = true", "is not compared"),
            ("a = lower('X')", "there are no functions"),
            ("5 < lower(a)", "there are no functions"),
            ("at > current_timestamp", "write now()"),
            ('a["b c"] = 1', 'with dots: a."b c"'),
            ("items[*].sku = 'x'", "no array positions"),
            ("exists a['b']", "with dots: a.b"),
            ("exists first name", '"first name"'),
            ("first line not like 'x'", '"first line"'),
            ("a in [1, 2]", "lists are written in parentheses"),
            (r"a ilike 'x' escape '\'", "no escape clause"),
            ("a = NaN", "never occur"),
            ("a > -Infinity", "never occur"),
            ("price <= $5", "leave out '$'"),
            ("price <= €5", "leave out '€'"),
            ("price <= $price", "a string needs quotes"),
            ("a regex 'x'", "'matches'"),
            ("a ~ 'x'", "'matches'"),
            ("a not regex 'x'", "'not matches'"),
            ("a !~ 'x'", "'not matches'"),
            ("WHERE not a = 1", "leave out 'WHERE'"),
            ("where (a = 1)", "leave out 'where'"),
            ("where exists a", "leave out 'where'"),
            ("select * from t", "leave out 'select'"),
            ("a is not empty", "write is not null, or != ''"),
            ("a is missing", "write is null"),
            ("some items (b = 1)", "write any items (…)"),
            ("all(items, 1)", "write not any items"),
            ("price <= 1,000", "1.000, thousands without a separator: 1000"),
            ("# remark", "--"),
            ("a = 1 # remark", "--"),
            ("a = 1 // remark", "--"),
            ("at > 2026-01-31T10:00:00Z", "timestamp '2026-01-31T10:00:00Z'"),
            ("at > timestamp '2026-01-31T10:00:00 CET'", "as its offset"),
            ("at > timestamp '2026-01-31 10:00 +01'", "timestamp '2026-01-31 10:00+01:00'"),
            ("at > timestamp 1700000000", "stands in quotes"),
            ("id = 550e8400-e29b-41d4-a716-446655440000", "quotes: '550e8400-e29b-41d4-a716-446655440000'"),
            ("version = 1.2.3 and a = 1", "quotes: '1.2.3'"),
            ("mail = ann@example.com", "quotes: 'ann@example.com'"),
            ("url = https://x.y/z", "quotes: 'https://x.y/z'"),
            ("price > 1_000", "not grouped: 1000"),
            ("price > 0x1F", "numbers are decimal: 31"),
            ("price > 5€", "leave out '€'"),
            ("price > 5-3", "constants are written out"),
            ("round(price) = 5", "price >= 4.5 and price < 5.5"),
            ("year(at) = 2026", "at >= timestamp '2026-01-01'"),
            ("date(at) = '2026-01-31'", "at >= timestamp '2026-01-01'"),
            ("has(a)", "write a is not null"),
            ("'price' > 5", "the attribute is written price"),
            ("'first name' like 'x%'", 'is written "first name"'),
            ("items any sku = 'x'", "write any items (…)"),
            ("items has (sku = 'x')", "write any items (…)"),
            ("items exists (sku = 'x')", "write any items (…)"),
            ("any(items, sku = 'x')", "write any items (…)"),
            ("any items.sku = 'x'", "any items.sku (this = …)"),
            ("a starting with 'x'", "'starts with'"),
            ("a beginswith 'x'", "'starts with'"),
            ("a not begins with 'x'", "'not starts with'"),
            ("a finishes with 'x'", "'ends with'"),
            ("name collate nocase = 'x'", "name = 'x' ignoring case"),
            ('[{"exact": {"type": "x"}}]', "parse_filters"),
            ('{"any": [{"exact": {"type": "x"}}]}', "parse_filters"),
            ('{"exact": {"type": "x"}}', "parse_filters"),
            ('{"id": 1, "expression": "a = 1"}', "its expression alone"),
            ("a in cidr '10.0.0.0/8'", "write cidr"),
            ("a = 'x', 'y'", "in ('x', 'y')"),
            ("a between (1, 2)", "between 1 and 2"),
            ("a gt 5", "write >"),
            ("a greater than 5", "write >"),
            ("a is less than 5", "write <"),
            ("a is not in (1, 2)", "write not in"),
            ("a is one of ('x', 'y')", "write in"),
            ("a is defined", "is not null"),
            ("a !in (1)", "'not in'"),
            ("a = 'x' xor b = 'y'", "no 'xor'"),
            ("a = 'x' limit 5", "leave out 'limit'"),
            ("a->b = 1", "with dots"),
            ("a::int = 1", "leave out '::'"),
            ("a matches /x/", "is a string"),
            ("a like *x*", "is a string"),
            ("tags contains ('a', 'b')", "elements of an array"),
            ("tags contains 5", "an element of an array"),
            ("a glob 'x*'", "'like'"),
            ("at > now() - 3d", "interval '3 days'"),
            ("at within 1 hour", "now() - interval"),
        ],
    )
    def test_hints_for_habits_from_other_languages(self, text: str, hint: str) -> None:
        assert hint in (refusal(text).hint or "")

    @pytest.mark.parametrize("text", ["where = 1", "all = 1", "first = 1", "lower('x')", "a.startswith('x')", "$5 = 1"])
    def test_what_only_looks_like_them_is_accepted(self, text: str) -> None:
        parse(text)

    def test_calls_that_look_like_methods(self) -> None:
        assert "write a.b starts with 'x'" in (method_hint("a.b.startsWith") or "")
        assert method_hint("geo.near") is None
        assert method_hint("startsWith") is None

    @pytest.mark.parametrize(
        ("events", "expected"),
        [
            ([], None),
            ([{"b": 2}, {"b": 3}], True),
            ([{"b": 2}, {"b": 0}], False),
            ([{"b": 2}, {}], False),
            ([{"b": 2}, None], False),
        ],
    )
    def test_the_hint_for_all_means_all(self, events: list[object], expected: bool | None) -> None:
        hint = refusal("all items (b > 1)").hint or ""
        written = hint.removeprefix("write ").partition(":")[0].replace("…", "b > 1")
        assert evaluate(parse(written), Event({"items": events})) is expected

    @pytest.mark.parametrize("regex", ["(?=x)", "(?!x)", "(?<=x)y", "(?<!x)y", r"(a)\1", "(?P<n>a)(?P=n)", r"\\\1"])
    def test_look_around_and_references_have_a_hint(self, regex: str) -> None:
        assert "no look-around" in (refusal(f"a matches '{regex}'").hint or "")

    @pytest.mark.parametrize("regex", ["[", "(", "*", r"\\1[", "(?<n>a"])
    def test_other_regular_expressions_have_not(self, regex: str) -> None:
        assert refusal(f"a matches '{regex}'").hint is None

    def test_patterns_are_shown_as_they_were_written(self) -> None:
        assert r"the pattern '%\a\' ends with" in refusal(r"a like '%\a\'").reason
        assert refusal("a like '\x1b\\'").reason.isprintable()

    @pytest.mark.parametrize(
        ("text", "position", "reason"),
        [
            ("b = 1 and a < true", 14, "a boolean cannot be compared with '<'"),
            ("a between 1 and 'x'", 16, "are of two kinds"),
            ("a between true and 2", 10, "a boolean cannot be compared"),
            ("a between 1 and false", 16, "a boolean cannot be compared"),
            ("a matches '(?=x)'", 10, "RE2 cannot run"),
            (r"a like 'abc\'", 7, "ends with the escape character"),
            ("ip not cidr '10.0.0.0/99'", 12, "is not a network"),
            ("a like 5", 7, "needs a string"),
            ("a not starts with true", 18, "needs a string"),
        ],
    )
    def test_what_the_model_refuses_is_reported_in_place(self, text: str, position: int, reason: str) -> None:
        error = refusal(text)
        assert error.position == position
        assert reason in error.reason


class TestSpecification:
    """The tables of LANGUAGE.md say what happens."""

    def test_operators_in_one_table(self) -> None:
        header, *rows = table_under("All operators in one table")
        events = [json.loads("{}" if cell == "absent" else f'{{"a": {cell}}}') for cell in header[1:]]
        names = {True: "true", False: "false", None: "\u2013"}
        for condition, *cells in rows:
            assert [names[evaluate(parse(condition), Event(event))] for event in events] == cells
        operators = {node.op for row in rows for node in walk(parse(row[0])) if isinstance(node, Predicate)}
        assert operators == OPERATORS

    def test_hints(self) -> None:
        for written, hint in table_under("Errors")[1:]:
            assert refusal(written).hint == hint

    def test_truth(self) -> None:
        event = Event({"t": True, "f": False})
        conditions = {"true": "t = true", "false": "f = true", "unknown": "u = true"}
        names = {True: "true", False: "false", None: "unknown"}
        header, *rows = table_under("Truth")
        for row in rows:
            a, b = (conditions[cell] for cell in row[:2])
            for form, expected in zip(header[2:], row[2:], strict=True):
                words = [{"a": a, "b": b}.get(word, word) for word in form.split()]
                assert names[evaluate(parse(" ".join(words)), event)] == expected

    def test_matchers_of_event_patterns(self) -> None:
        for matcher, _, condition in table_under("Event patterns")[1:]:
            assert parse_pattern({"a": [json.loads(first_code(matcher))]}) == parse(first_code(condition))

    def test_cloudevents_filters(self) -> None:
        for one_filter, _, condition in table_under("CloudEvents filters")[1:]:
            assert parse_filters(first_code(one_filter)) == parse(first_code(condition))


def table_under(heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading of LANGUAGE.md."""
    text = Path(__file__).parents[2].joinpath("LANGUAGE.md").read_text(encoding="utf-8")
    section = text.split(f"# {heading}\n")[1]
    rows = [line for line in section.split("\n\n|")[1].split("\n\n")[0].split("\n") if not line.startswith("|---")]
    return [[cell.strip().strip("`") for cell in row.strip("|").split(" | ")] for row in rows]


def first_code(cell: str) -> str:
    """Return the first piece of code in a cell that may hold several."""
    return cell.split("`")[0]


# -- fuzzing: whatever the text, the parser accepts it or says what is wrong ------------------------------------------

PIECES = [
    *("a", "b.c", '"q r"', "this", "and", "or", "not", "in", "between", "like", "is", "null", "true", "any", "exists"),
    *("starts", "with", "matches", "date", "(", ")", ",", "=", "<=", "<>", "==", "+", "-", "*", "?x", "f(", "1", "2.5"),
    *("1e5", "'s'", "''", "'", '"', "--", "/*", "*/", "\n", ".", "@", "$", "\x00", "\ud800", "é", "≤", "12ab"),
    *("[", "]", "#", "~", "where", "all", "lower(", "nan", "now", "escape", "empty", "/", "$5"),
    "9" * 25,
]


def accepts_or_refuses(text: str) -> None:
    try:
        parse(text)
        return
    except SubscriptionError as caught:
        error = caught
    assert error.reason
    assert error.position is not None
    assert 0 <= error.position <= len(text)


@given(st.lists(st.sampled_from(PIECES), max_size=25), st.sampled_from([" ", "", "\n"]))
def test_random_tokens(pieces: list[str], separator: str) -> None:
    accepts_or_refuses(separator.join(pieces))


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_random_text(text: str) -> None:
    accepts_or_refuses(text)
    accepts_or_refuses("a = 1 and " + text)


@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_tokens_leave_nothing_out(text: str) -> None:
    tokens = split(text)
    assert tokens[-2:] == ["", ""]
    for index, token in enumerate(tokens):
        start = position_of(text, index)
        assert text[start : start + len(token)] == token


VALID = (
    "not (a = 1 or b.c between -2 and 3.5) and any items (this like 'x%' is true and d in (1, 'y', true)) "
    "or loc_in('Bronx', ?x) and ?x > 2 * (?y + 1) and e not starts with 'z' and exists f and g is not null"
)


@given(st.data())
def test_damaged_text(data: st.DataObject) -> None:
    tokens = [token for token in split(VALID) if token]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(tokens) - 1))
        replacement = data.draw(st.lists(st.sampled_from(PIECES), max_size=2))
        tokens[place : place + data.draw(st.integers(0, 2))] = replacement
        tokens = tokens or ["a"]
    accepts_or_refuses(" ".join(tokens))
