"""Streams that Spark does not have: a broker, the changes of a store, and Kafka through a client library.

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
    """Make the sources known to a session."""
    for source in (StoreSource, KafkaSource, BrokerSource):
        spark.dataSource.register(source)
