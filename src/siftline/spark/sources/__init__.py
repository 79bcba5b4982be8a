"""Sources of streams besides those of Spark: a broker, the feed of a store, and Kafka.

from siftline.spark import sources
sources.register(spark)
changes = spark.readStream.format("siftline-store").option("path", "subscriptions.db").load()
events = spark.readStream.format("siftline-kafka").option("subscribe", "events")...
events = spark.readStream.format("siftline-broker").option("url", "http://localhost:8080").load()
"""

from __future__ import annotations

from typing import Any

from siftline.spark.sources.broker import BrokerSource
from siftline.spark.sources.kafka import KafkaSource
from siftline.spark.sources.store import StoreSource, applier

__all__ = ["BrokerSource", "KafkaSource", "StoreSource", "applier", "register"]


def register(spark: Any) -> None:
    """Register the sources in a session."""
    for source in (StoreSource, KafkaSource, BrokerSource):
        spark.dataSource.register(source)
