from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run_fixture, write_fixture  # noqa: F401

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import Run, Write

EVENTS: list[Any] = [
    {"colour": "red", "price": 10, "brand": "acme", "zip": "8001", "items": [{"sku": "x", "qty": 1}], "nothing": None},
    {"colour": "blue", "price": 500, "brand": "globex", "zip": "8002", "ship": {"city": "oslo"}},
]


def findings(run: Run, write: Write, *expressions: str) -> dict[int, list[dict[str, Any]]]:
    rules = write("s.sift", "\n".join(expressions))
    outcome = run("check", rules, "--against", write("e.jsonl", EVENTS), "--json")
    document = json.loads(outcome.out)
    assert document["broken"] == []
    return {row["id"]: row["findings"] for row in document["subscriptions"]}


def test_good_subscriptions(run: Run, write: Write) -> None:
    outcome = run("check", write("s.sift", "a = 1\nb = 2\n"))
    assert outcome.status == 0
    assert outcome.out.endswith("s.sift: 2 good, 0 broken\n")
    assert run("check", write("s.sift", "a = 1\n"), "--quiet").out == ""


@pytest.mark.parametrize(("options", "n_shown"), [((), 50), (("--limit", "7"), 7), (("--limit", "100"), 60)])
def test_so_many_findings_are_printed(run: Run, write: Write, options: tuple[str, ...], n_shown: int) -> None:
    outcome = run("check", write("s.sift", "a =\n" * 60), *options)
    assert outcome.status == 1
    assert outcome.out.count(": subscription ") == n_shown
    assert (f"... and {60 - n_shown} more" in outcome.out) is (n_shown < 60)
    assert "0 good, 60 broken" in outcome.out
    assert len(json.loads(run("check", write("s.sift", "a =\n" * 60), "--json").out)["broken"]) == 60


def test_json(run: Run, write: Write) -> None:
    outcome = run("check", write("s.sift", "a betwen 1 and 2\nb = 1"), "--json")
    assert outcome.status == 1
    document = json.loads(outcome.out)
    assert document["good"] == 1
    (broken,) = document["broken"]
    assert (broken["line"], broken["column"], broken["hint"]) == (1, 3, "did you mean 'between'?")


@pytest.mark.parametrize(
    ("expression", "kind", "reason", "hint"),
    [
        ("color = 'red'", "unseen-attribute", "no event has the attribute color", "did you mean 'colour'?"),
        ("Price < 5", "unseen-attribute", "no event has the attribute Price", "did you mean 'price'?"),
        ("ship = 'x'", "unseen-attribute", "ship is an object in these events", "did you mean 'ship.city'?"),
        ("whatever = 'red'", "unseen-attribute", "no event has the attribute whatever", None),
        ("not (whatever = 'red')", "unseen-attribute", "no event has the attribute whatever", None),
        ("brand = acme", "unseen-attribute", "no event has the attribute acme", "a string needs quotes: 'acme'"),
        ("price < limit + 5", "unseen-attribute", "no event has the attribute limit", "a string needs quotes"),
        ("length(whatever) > 5", "unseen-attribute", "no event has the attribute whatever", None),
        ("brand = 'X' ignoring case", "never-true", "no event satisfies brand = 'X' ignoring case", None),
        ("price = '5' ignoring case", "wrong-kind", "price is always a number, never a string", "constants without"),
        ("price = 'cheap'", "wrong-kind", "price is always a number, never a string", "constants without quotes"),
        (
            "zip > timestamp '2026-01-31'",
            "wrong-kind",
            "zip is never a time",
            "a time is written as 2026-01-31T10:00:00Z",
        ),
        ("price > now()", "wrong-kind", "price is always a number, never a timestamp", None),
        ("zip = 8001", "wrong-kind", "zip is always a string, never a number", "constants in quotes are strings"),
        ("not (zip = 8001)", "wrong-kind", "zip is always a string, never a number", "constants in quotes are strings"),
        ("nothing = 1", "unseen-attribute", "nothing has no value in any event", None),
        ("brand = 'acmee'", "likely-typo", "brand is never 'acmee'", "did you mean 'acme'?"),
        ("brand in ('zzz', 'Globex')", "likely-typo", "brand is never 'Globex'", "did you mean 'globex'?"),
        ("price > 1000", "never-true", "no event satisfies price > 1000: price is seen from 10 to 500", None),
        ("brand starts with 'q'", "never-true", "no event satisfies brand starts with 'q'", None),
        ("price is null", "never-true", "no event satisfies price is null", None),
        ("not (price > 0)", "never-true", "no event satisfies not price > 0", None),
        ("any items (sku = 'y' and qty = 1)", "never-true", "no event satisfies items.sku = 'y'", None),
        ("brand = 'acme' and color = 'red'", "unseen-attribute", "no event has the attribute color", "did you mean"),
        ("any items (this = 1)", "unseen-attribute", "items is an object in these events", "did you mean 'items.sku'?"),
        ("false", "never-true", "it is false by its form", None),
    ],
)
def test_subscriptions_that_can_never_match(
    run: Run, write: Write, expression: str, kind: str, reason: str, hint: str | None
) -> None:
    (finding,) = findings(run, write, expression)[1]
    assert finding["kind"] == kind
    assert finding["reason"].startswith(reason)
    assert (finding["hint"] or "").startswith(hint or "")
    assert (finding["hint"] is None) is (hint is None)


@pytest.mark.parametrize(
    "expression",
    ["price > 100", "brand = 'acme'", "color = 'red' or price = 10", "color is null", "not (brand = 'acme')", "true",
     "brand = 'acme' and price = 500", "(color = 'red') is not true"],
)  # fmt: skip
def test_subscriptions_that_may_match(run: Run, write: Write, expression: str) -> None:
    assert findings(run, write, expression) == {1: []}


def test_what_an_index_leaves_to_the_check_still_counts(run: Run, write: Write) -> None:
    many = " or ".join(f"brand contains '{n}cm'" for n in ["a", *range(40)])
    required = " and ".join(f"price > {-n}" for n in range(1, 9))
    others = many.replace("cm", "x")
    assert findings(run, write, f"({many}) and {required} and not ({others})") == {1: []}
    dead = f"({many}) and {required} and color = 'red' and not ({others})"
    assert {finding["kind"] for finding in findings(run, write, dead)[1]} == {"unseen-attribute"}
    dead = f"({many}) and {required} and ({others})"
    assert {finding["kind"] for finding in findings(run, write, dead)[1]} == {"never-true"}


def test_costs(run: Run, write: Write) -> None:
    rules = write(
        "s.sift", "price > 0\nbrand = 'acme' and price > 0\nany items (sku = 'x' and qty = 1)\nbrand contains 'lob'"
    )
    outcome = run("check", rules, "--against", write("e.jsonl", EVENTS), "--json")
    assert outcome.status == 0
    costs = [
        (row["matches"], row["share"], row["clauses"], row["needs_check"])
        for row in json.loads(outcome.out)["subscriptions"]
    ]
    assert costs == [(2, 1.0, 1, False), (1, 0.5, 1, False), (1, 0.5, 1, True), (1, 0.5, 1, False)]


def test_text_report(run: Run, write: Write) -> None:
    outcome = run("check", write("s.sift", "price > 0\ncolor = 'red'\na ="), "--against", write("e.jsonl", EVENTS))
    assert outcome.status == 1
    assert (
        "s.sift:2: subscription 2 can never match on these events\n  no event has the attribute color;" in outcome.out
    )
    assert " 100.0%          2        1  no     1\n" in outcome.out
    assert "s.sift: 2 good, 1 broken; on 2 events 1 subscription matched, 1 can never match" in outcome.out


def test_sample_and_bad_events(run: Run, write: Write) -> None:
    rules, events = write("s.sift", "brand = 'globex'"), write("e.jsonl", [EVENTS[0], [], EVENTS[1]])
    first = run("check", rules, "--against", events, "--sample", "1")
    assert first.status == 1
    assert "brand is never 'globex'" not in first.out  # nothing close to it was seen
    assert "on 1 event 0 subscriptions matched, 1 can never match" in first.out
    both = run("check", rules, "--against", events)
    assert both.status == 1
    assert "e.jsonl:2:1: " in both.err
    assert "on 2 events 1 subscription matched, 0 can never match; skipped 1 bad event" in both.out


def test_no_events_say_nothing(run: Run, write: Write) -> None:
    outcome = run("check", write("s.sift", "a = 1"), "--against", write("e.jsonl", ""))
    assert outcome.status == 0
    assert "nothing can be said" in outcome.out


def test_predicate_table(run: Run, write: Write, tmp_path: Path) -> None:
    path = str(tmp_path / "s.parquet")
    rows = [{"subscription": name, "attribute": name, "op": ">", "number": 1.0} for name in ("price", "prise")]
    pq.write_table(pa.Table.from_pylist(rows), path)
    outcome = run("check", path, "--against", write("e.jsonl", EVENTS))
    assert outcome.status == 1
    assert "s.parquet: subscription 'prise' can never match" in outcome.out
    assert "did you mean 'price'?" in outcome.out


@pytest.mark.parametrize(
    ("expression", "attribute", "hint"),
    [
        ("brnad is null", "brnad", "brand"),
        ("brnad != 'x' or price > 10", "brnad", "brand"),
        ("(brnad = 'x') is not true", "brnad", "brand"),
        ("price > 1 and (city = 'oslo' or brand = 'acme')", "city", "ship.city"),
        ("any items (skew = 'x' or qty = 1)", "items.skew", None),
        ("price > 0 or whatever = 1", "whatever", None),
    ],
)
def test_attributes_that_no_event_has(
    run: Run, write: Write, expression: str, attribute: str, hint: str | None
) -> None:
    rules, events = write("s.sift", expression), write("e.jsonl", EVENTS)
    outcome = run("check", rules, "--against", events)
    assert outcome.status == 1
    expected = f"s.sift:1: warning: subscription 1: no event has the attribute {attribute}"
    assert expected + (f"; did you mean '{hint}'?" if hint else "") in outcome.out
    assert "0 can never match, 1 can, but with attributes that no event has" in outcome.out
    (row,) = json.loads(run("check", rules, "--against", events, "--json").out)["subscriptions"]
    assert [warning["kind"] for warning in row["warnings"]] == ["unseen-attribute"]


def test_patterns_with_attributes_that_no_event_has(run: Run, write: Write) -> None:
    rules = write("s.jsonl", [{"id": "x", "pattern": {"brnad": [{"exists": False}], "price": [10]}}])
    outcome = run("check", rules, "--against", write("e.jsonl", EVENTS))
    assert outcome.status == 1
    assert "subscription 'x': no event has the attribute brnad; did you mean 'brand'?" in outcome.out


def test_attributes_that_are_there_are_no_finding(run: Run, write: Write) -> None:
    rules = write("s.sift", "price > 0 or nothing = 1\nany items (sku = 'x')\nship.city is null\ntrue")
    assert run("check", rules, "--against", write("e.jsonl", EVENTS)).status == 0


def test_sample_needs_events(run: Run, write: Write) -> None:
    outcome = run("check", write("s.sift", "a = 1"), "--sample", "3")
    assert outcome.status == 2
    assert "--sample needs --against" in outcome.err


def test_no_subscriptions(run: Run, write: Write) -> None:
    outcome = run("check", write("s.sift", "-- nothing yet"))
    assert outcome.status == 1
    assert outcome.out.endswith("s.sift: no subscriptions\n")
