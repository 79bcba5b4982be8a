from __future__ import annotations

from typing import TYPE_CHECKING

from command_line import run_fixture  # noqa: F401

if TYPE_CHECKING:
    from command_line import Run


def test_demo(run: Run) -> None:
    outcome = run("demo", "--subscriptions", "500", "--events", "50", "--seed", "3", "--quiet")
    assert outcome.status == 0
    assert "500 subscriptions added" in outcome.out
    assert "events/s" in outcome.out
    assert "  match: s" in outcome.out
    assert "  no match: s" in outcome.out


def test_demo_is_seeded(run: Run) -> None:
    shown = [run("demo", "--subscriptions", "100", "--events", "20", "--quiet").out for _ in range(2)]
    kept = [[line for line in text.splitlines() if " s:" not in line and " s," not in line] for text in shown]
    assert kept[0] == kept[1]
