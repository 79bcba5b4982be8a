"""Metrics for Prometheus and for the charts of the console."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from siftline.broker.broker import Broker

# How long collected values are used.
_FRESH_SECONDS: Final = 0.25
# Upper bounds of the buckets of the histogram, in seconds.
_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
# For each metric of Prometheus its type, its description, and the member of `stats` with its value.
_METRICS: Final = {
    "events_total": ("counter", "Events published.", "events"),
    "matches_total": ("counter", "Pairs of an event and a subscription that it matched.", "matches"),
    "subscriptions": ("gauge", "Subscriptions that can match.", "subscriptions"),
    "unreadable": ("gauge", "Subscriptions that can no longer be parsed, and never match.", "unreadable"),
    "streams": ("gauge", "Open streams.", "streams"),
    "events_waiting": ("gauge", "Events that wait to be matched.", "events_waiting"),
    "lag_changes": ("gauge", "Changes of the store that the engine has not applied yet.", "changes_waiting"),
    "webhooks_waiting": ("gauge", "Notifications that wait for webhooks.", "webhooks_waiting"),
    "webhooks_given_up_total": ("counter", "Notifications that became dead letters.", "webhooks_given_up"),
    "log_bytes": ("gauge", "Size of the log of notifications.", "log_bytes"),
    "log_losses": ("gauge", "Places where the log of notifications is damaged.", "log_losses"),
    "index_bytes": ("gauge", "Memory of the index.", "index_bytes"),
}


class Metrics:
    """Counts the publishes of a broker as one of its observers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._guard = threading.Lock()
        self._n_events = self._n_matches = self._n_publishes = 0
        self._seconds = 0.0
        self._seen: tuple[float, dict[str, Any]] = (-_FRESH_SECONDS, {})
        self._counts = [0] * (len(_BOUNDS) + 1)
        broker.observers.append(self._observe)

    def _observe(self, n_events: int, n_matches: int, seconds: float) -> None:
        with self._guard:
            self._n_events += n_events
            self._n_matches += n_matches
            self._n_publishes += 1
            self._seconds += seconds
            self._counts[bisect_left(_BOUNDS, seconds)] += 1

    def stats(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        with self._guard:
            counted = {
                "events": self._n_events,
                "matches": self._n_matches,
                "publishes": self._n_publishes,
                "publish_seconds": self._seconds,
                "latency_counts": list(self._counts),
            }
        return counted | {"latency_bounds": list(_BOUNDS)} | self._collected()

    def _collected(self) -> dict[str, Any]:
        """Return the values that have to be collected; they are cached, so that frequent requests cost little."""
        now, broker = time.monotonic(), self._broker
        then, found = self._seen
        if now - then < _FRESH_SECONDS:
            return found
        found = {
            "subscriptions": len(broker.engine),
            "unreadable": len(broker.unreadable),
            "streams": len(broker.hub),
            "events_waiting": broker.n_waiting,
            "changes_waiting": broker.lag,
            "index_bytes": broker.engine.stats().get("index_bytes", 0),
            **broker.log.stats(),
        }
        self._seen = now, found
        return found

    def text(self) -> str:
        """Return everything in the text format of Prometheus."""
        stats = self.stats()
        lines = []
        for name, (kind, text, member) in _METRICS.items():
            name = f"siftline_{name}"
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {stats[member]}"]
        lines += [
            "# HELP siftline_publish_seconds From a publish to its acknowledgement.",
            "# TYPE siftline_publish_seconds histogram",
        ]
        total = 0
        for bound, count in zip([*map(str, _BOUNDS), "+Inf"], stats["latency_counts"], strict=True):
            total += count
            lines.append(f'siftline_publish_seconds_bucket{{le="{bound}"}} {total}')
        lines += [
            f"siftline_publish_seconds_sum {stats['publish_seconds']:.6f}",
            f"siftline_publish_seconds_count {total}",
        ]
        return "\n".join(lines) + "\n"
