"""The results of the demo: plain numbers and texts, which are shown in the report and stored in `figures.json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Stage:
    """A step of the pipeline: its time, and the amount of work."""

    name: str
    seconds: float
    amount: int
    unit: str

    @property
    def rate(self) -> float | None:
        """The amount per second."""
        return self.amount / self.seconds if self.amount and self.seconds else None


@dataclass
class Batch:
    """A micro-batch of the stream, with the number of changes just before it."""

    events: int
    seconds: float
    matches: int
    changes: int


@dataclass
class Kind:
    """One kind of change during the stream: how many, and how many of them took effect in the next micro-batch."""

    name: str
    meaning: str
    changes: int
    followed: int


@dataclass
class Sample:
    """A pair of event and subscription, and the explanation of the engine."""

    title: str
    event: int
    tree: dict[str, Any]
    subscription: int
    expression: str
    was_told: bool
    matched: bool
    explanation: str


@dataclass
class Figures:
    """All results.

    Attributes
    ----------
    machine : dict
        Names and values of properties of the machine.
    stages : list of Stage
        The stages in order.
    shares : list of (str, float)
        The attributes of the profile, most common first, and the share of events that have each.
    index_bytes, refused : int
        The size of the index, and the number of refused subscriptions.
    matches, events_told, subscriptions_told : int
        Pairs of event and subscription, events with any, subscriptions with any, without the stream.
    planted : int
        Each event was generated to satisfy one subscription; this is the number of these pairs that were found.
    histogram : list of (int, int, int)
        A range of numbers of matches, and how many subscriptions are in it.
    top : list of (int, str, int)
        The subscriptions with the most matches.
    batches, kinds, samples : list
        The micro-batches of the stream, its kinds of changes, and sample notifications.
    compact_seconds : float
        How long merging the changes took during the stream.
    """

    n_subscriptions: int
    n_events: int
    n_streamed: int
    seed: int
    machine: dict[str, str] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    shares: list[tuple[str, float]] = field(default_factory=list)
    index_bytes: int = 0
    refused: int = 0
    matches: int = 0
    events_told: int = 0
    subscriptions_told: int = 0
    planted: int = 0
    histogram: list[tuple[int, int, int]] = field(default_factory=list)
    top: list[tuple[int, str, int]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    compact_seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The time of all stages."""
        return sum(stage.seconds for stage in self.stages)

    def save(self, path: Path) -> None:
        """Write the results as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
