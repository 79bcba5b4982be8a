"""Spark sessions: starts a local one, and queries the properties of any session."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from siftline.spark.runtime.java import find_java
from siftline.spark.runtime.settings import LOCAL_SETTINGS, SETTINGS, SHORT_LIVED_JAVA_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_connect(spark: Any) -> bool:
    """Return whether a session is one of Spark Connect, which has no SparkContext and no JVM of its own."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def tasks_at_a_time(spark: Any) -> int:
    """Return how many tasks can run at the same time.

    With dynamic allocation and with Spark Connect this is unknown. The number of partitions that Spark makes in a
    shuffle is returned instead.
    """
    is_fixed = not is_connect(spark) and spark.conf.get("spark.dynamicAllocation.enabled", "false") != "true"
    return int(spark.sparkContext.defaultParallelism if is_fixed else spark.conf.get("spark.sql.shuffle.partitions"))


def session(
    cores: int | None = None,
    *,
    memory: str = "2g",
    name: str = "siftline",
    short_lived: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Any:
    """Return the Spark session that is running, or start one on this machine.

    Parameters
    ----------
    cores : int, optional
        How many tasks run at a time; by default all cores.
    memory : str
        The memory of the JVM only. Indexes are mapped files, which the workers share.
    name : str
        The name of the application.
    short_lived : bool
        Start quickly, for tests and jobs of a few seconds.
    settings : mapping, optional
        More settings of Spark; they override those of Siftline (`SETTINGS`).
    """
    running = _running_session()
    if running is not None:
        return running
    _prepare_environment()
    n_cores = cores or os.cpu_count() or 1
    chosen: dict[str, Any] = {
        **SETTINGS,
        **LOCAL_SETTINGS,
        "spark.driver.memory": memory,
        # The default of 200 is meant for a cluster.
        "spark.sql.shuffle.partitions": n_cores,
        **({"spark.driver.extraJavaOptions": SHORT_LIVED_JAVA_OPTIONS} if short_lived else {}),
        **(settings or {}),
    }
    return _started(n_cores, name, chosen)


def _running_session() -> Any:
    """Return the session of this process, None if there is none."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        # Another thread has started it. The builder returns it unchanged, as long as it is given no settings.
        return SparkSession.builder.getOrCreate()
    return active


def _prepare_environment() -> None:
    java_home = find_java()
    if java_home is not None:
        os.environ["JAVA_HOME"] = java_home
    # The workers must run this Python, and not whichever `python3` the PATH has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _started(n_cores: int, name: str, settings: Mapping[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{n_cores}]").appName(name)
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    return builder.getOrCreate()
