"""Settings of Spark that suit Siftline, with the reason for each."""

from __future__ import annotations

from typing import Final

# For any session with Siftline, local or on a cluster.
SETTINGS: Final = {
    # Workers are forked from a process that has loaded the kernels, so they are ready at once instead of after 2 s.
    "spark.python.daemon.module": "siftline.spark.daemon",
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
LOCAL_SETTINGS: Final = {
    # The name of a laptop may have no address, or one that changes with the network.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Over TCP a small micro-batch takes 40 ms longer, a third of its time.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A timestamp without a zone has the same meaning on every machine.
    "spark.sql.session.timeZone": "UTC",
}
# Options of the JVM that halve the start-up time; a long job would need the better compiler.
SHORT_LIVED_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
