"""Operators on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from command_line import run_fixture, write_fixture  # noqa: F401

if TYPE_CHECKING:
    from command_line import Run, Write

MODULE = """
import siftline

@siftline.operator("cli_values", binds=["v"])
def cli_values(event, name: str):
    return event.get(name)
"""
SUBSCRIPTION = "cli_values('a', ?v) and ?v > 3"


def test_match_and_check_and_explain(run: Run, write: Write) -> None:
    module = write("cli_operators.py", MODULE)
    subscriptions = write("rules.sift", SUBSCRIPTION + "\nb = 1\n")
    events = write("events.jsonl", [{"a": 5}, {"a": 1, "b": 1}, {}])
    for schedule in ("adaptive", "sub-order"):
        outcome = run(
            "match",
            *("--subscriptions", subscriptions, "--events", events),
            *("--operators", module, "--schedule", schedule),
        )
        assert outcome.status == 0
        assert outcome.pairs() == {(0, 1), (1, 2)}
    assert run("check", subscriptions, "--operators", module, "--against", events).status == 0
    outcome = run("explain", "--subscription", SUBSCRIPTION, "--event", '{"a": 1}', "--operators", module)
    assert outcome.out.splitlines()[-2].endswith("?v is 1")
    assert outcome.out.splitlines()[-1].startswith("calls of the event: 1 made in ")


def test_modules_that_cannot_be_loaded(run: Run, write: Write) -> None:
    subscriptions, events = write("rules.sift", "a = 1\n"), write("events.jsonl", [{}])
    arguments = ("match", "--subscriptions", subscriptions, "--events", events)
    outcome = run(*arguments, "--operators", "no_such_module_anywhere")
    assert outcome.status == 2
    assert "--operators no_such_module_anywhere: cannot be loaded" in outcome.err
    outcome = run(*arguments, "--schedule", "suborder")
    assert outcome.status == 2
    assert "did you mean 'sub-order'?" in outcome.err
