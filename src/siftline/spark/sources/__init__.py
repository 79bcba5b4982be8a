"""Sources of streams that Spark does not have: the changes of a store, and Kafka through a client library.

from siftline.spark import sources
sources.register(spark)
changes = spark.readStream.format("siftline-store").option("path", "subscriptions.db").load()
events = spark.readStream.format("siftline-kafka").option("subscribe", "events")...
"""

from __future__ import annotations

from typing import Any

from siftline.spark.sources.kafka import KafkaSource
from siftline.spark.sources.store import StoreSource, applier

__all__ = ["KafkaSource", "StoreSource", "applier", "register"]


def register(spark: Any) -> None:
    """Make the sources known to a session."""
    for source in (StoreSource, KafkaSource):
        spark.dataSource.register(source)
