"""Metrics for Prometheus and for the charts of the console."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from siftline.broker.broker import Broker

_FRESH_SECONDS: Final = 0.25
_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


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
        return counted | {"latency_bounds": list(_BOUNDS)} | self._looked_at()

    def _looked_at(self) -> dict[str, Any]:
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
        lines = [
            *_metric("events_total", "counter", "Events published.", stats["events"]),
            *_metric(
                "matches_total", "counter", "Pairs of an event and a subscription that it matched.", stats["matches"]
            ),
            *_metric("subscriptions", "gauge", "Subscriptions that can match.", stats["subscriptions"]),
            *_metric(
                "unreadable",
                "gauge",
                "Subscriptions that cannot be parsed any more, and never match.",
                stats["unreadable"],
            ),
            *_metric("streams", "gauge", "Streams that are connected.", stats["streams"]),
            *_metric("events_waiting", "gauge", "Events that wait for being matched.", stats["events_waiting"]),
            *_metric(
                "lag_changes", "gauge", "Changes of the store that are not yet matched by.", stats["changes_waiting"]
            ),
            *_metric("webhooks_waiting", "gauge", "Notifications that wait for webhooks.", stats["webhooks_waiting"]),
            *_metric(
                "webhooks_given_up_total",
                "counter",
                "Notifications that webhooks did not take.",
                stats["webhooks_given_up"],
            ),
            *_metric("log_bytes", "gauge", "What the log of notifications takes.", stats["log_bytes"]),
            *_metric("log_losses", "gauge", "Places where the log of notifications is damaged.", stats["log_losses"]),
            *_metric("index_bytes", "gauge", "Memory of the index.", stats["index_bytes"]),
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


def _metric(name: str, kind: str, text: str, value: int) -> list[str]:
    return [f"# HELP siftline_{name} {text}", f"# TYPE siftline_{name} {kind}", f"siftline_{name} {value}"]
