"""What the demo has found out: plain numbers and texts, which the report shows and `figures.json` holds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Stage:
    """A step of the pipeline: how long it took, and how much of what it did in that time."""

    name: str
    seconds: float
    amount: int
    unit: str

    @property
    def rate(self) -> float | None:
        """How many a second."""
        return self.amount / self.seconds if self.amount and self.seconds else None


@dataclass
class Batch:
    """A micro-batch of the stream, with the changes that were made just before it."""

    events: int
    seconds: float
    matches: int
    changes: int


@dataclass
class Kind:
    """One kind of change while the stream ran: how many, and how many of them the next micro-batch followed."""

    name: str
    meaning: str
    changes: int
    followed: int


@dataclass
class Sample:
    """A pair of event and subscription, and what the engine says about it."""

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
    """Everything.

    Attributes
    ----------
    machine : dict
        Name of a thing and what it is here.
    stages : list of Stage
        In order.
    shares : list of (str, float)
        The attributes that were seen, commonest first, and the share of events that have each.
    index_bytes, refused : int
        Of the compiled subscriptions.
    matches, events_told, subscriptions_told : int
        Pairs of event and subscription, events with any, subscriptions with any, without the stream.
    planted : int
        Each event was made to satisfy one subscription; this many of these pairs were found.
    histogram : list of (int, int, int)
        From and to this many matches, and how many subscriptions have as many.
    top : list of (int, str, int)
        The subscriptions with the most matches.
    batches, kinds, samples : list
        Of the stream, of its changes, and of notifications.
    compact_seconds : float
        How long merging the changes took, while the stream ran.
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
        """All stages together."""
        return sum(stage.seconds for stage in self.stages)

    def save(self, path: Path) -> None:
        """Write them as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
