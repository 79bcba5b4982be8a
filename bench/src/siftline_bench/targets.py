"""Targets and verdicts: what a figure must reach, what was measured, and whether that is enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Target:
    """What one index must reach on one workload: at least this, or at most that; with neither it is only shown."""

    workload: str
    index: str
    what: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def shown(self) -> str:
        """The bound as people write it."""
        if self.at_least is not None:
            return f">= {shown(self.at_least)}"
        return "" if self.at_most is None else f"<= {shown(self.at_most)}"

    def is_met_by(self, value: float) -> bool:
        """Return whether a figure is good enough."""
        is_enough = self.at_least is None or value >= self.at_least
        return is_enough and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True)
class Verdict:
    """A target and what was measured."""

    target: Target
    measured: float | None

    @property
    def word(self) -> str:
        """`met`, `missed`, nothing without a bound, or `refused` if the index did not take the workload.

        >>> Verdict(Target("dense", "sift", "x fast-scan", 40), 39.0).word
        'missed'
        """
        if self.measured is None:
            return "refused"
        if not self.target.shown:
            return ""
        return "met" if self.target.is_met_by(self.measured) else "missed"

    @property
    def is_bad(self) -> bool:
        """Whether `--fail` should fail."""
        return self.word in ("missed", "refused")


def table(found: Sequence[Verdict]) -> list[list[str]]:
    """Return the lines of a table, heading first."""
    lines = [
        [f"{v.target.workload}: {v.target.index}", v.target.what, shown(v.measured), v.target.shown, v.word]
        for v in found
    ]
    return [["index", "figure", "measured", "target", ""], *lines]


def shown(value: float | None) -> str:
    """Return a number with three digits or as a whole.

    >>> shown(1234567.0), shown(0.12345), shown(None)
    ('1,234,567', '0.123', '-')
    """
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
