"""A local Spark session that suits Siftline, with the reason for each setting."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from siftline.spark.runtime.java import find_java

if TYPE_CHECKING:
    from collections.abc import Mapping

# For any session that runs Siftline, local or on a cluster.
SETTINGS: Final = {
    # Workers are forked from a process that has loaded and used the kernels: ready at once, instead of after 2 s.
    "spark.python.daemon.module": "siftline.spark.worker.daemon",
    # Rows go to Python in larger batches: a third more JSON events a second than with 10,000.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # Unless rows are large, as packed subscriptions and giant events are: the JVM holds a whole batch.
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
    # A local checkpoint needs no `readlink` process for every file: a third of the time of an empty micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
# For a session on this machine alone.
_LOCAL: Final = {
    # The name of a laptop may mean no address, or one that changes with the network.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Over TCP a small micro-batch takes 40 ms longer, a third of its time.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Timestamps of events mean the same everywhere.
    "spark.sql.session.timeZone": "UTC",
}
# Half the start-up time; a long job would miss the better compiler.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def is_connect(spark: Any) -> bool:
    """Return whether a session is one of Spark Connect, which has no SparkContext and no JVM of its own."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def tasks_at_a_time(spark: Any) -> int:
    """Return how many tasks may run at the same time; where nobody knows, how many Spark would make of a shuffle."""
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
    """Return a Spark session on this machine, starting one if there is none yet.

    Parameters
    ----------
    cores : int, optional
        How many tasks run at a time; all cores if left out.
    memory : str
        For the JVM alone. Indexes are mapped files, shared by the workers.
    name : str
        Of the application.
    short_lived : bool
        Start quickly, for tests and jobs of a few seconds.
    settings : mapping, optional
        More settings of Spark; they go before ours.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if SparkContext._active_spark_context is not None:
        # One of another thread: without settings it is returned as it is.
        return SparkSession.builder.getOrCreate()
    java_home = find_java()
    if java_home is not None:
        os.environ["JAVA_HOME"] = java_home
    # The workers must be this Python, and not whichever `python3` the PATH has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    n_cores = cores or os.cpu_count() or 1
    chosen: dict[str, Any] = {
        **SETTINGS,
        **_LOCAL,
        "spark.driver.memory": memory,
        # Two hundred, the default, is for a cluster.
        "spark.sql.shuffle.partitions": n_cores,
        **({"spark.driver.extraJavaOptions": _SHORT_LIVED} if short_lived else {}),
        **(settings or {}),
    }
    builder = SparkSession.builder.master(f"local[{n_cores}]").appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, str(value))
    return builder.getOrCreate()
