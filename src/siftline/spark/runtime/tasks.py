"""The information that Spark gives to a task, and the conversion of an object to a function of a task."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from siftline.errors import SparkError

# Properties that Spark sets for every task of a stream. The jobs of a query are a group, named after its start.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_START: Final = "spark.jobGroup.id"


class MicroBatch(NamedTuple):
    """The micro-batch of a task: its query, its number, and the start of the query that it belongs to."""

    query: str
    number: int
    start: str


def partition() -> int:
    """Return the number of this task's partition, 0 outside of Spark."""
    return task_numbers()[0]


def task_numbers() -> tuple[int, int]:
    """Return the numbers of this task's partition and of the attempt at it, zeros outside of Spark."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return (int(task.partitionId()), int(task.taskAttemptId())) if task is not None else (0, 0)


def micro_batch() -> MicroBatch:
    """Return the micro-batch that this task belongs to; raise SparkError if it belongs to none."""
    from pyspark import TaskContext

    task = TaskContext.get()
    properties = (_QUERY, _BATCH, _START)
    query, batch, start = (None if task is None else task.getLocalProperty(name) for name in properties)
    if query is None or batch is None:
        raise SparkError("this is not a micro-batch: the result of `stream` must be written by writeStream")
    return MicroBatch(query, int(batch), start or "")


def function_of(stage: Any) -> Any:
    """Return a plain function that calls a stage, because Spark inspects the signature."""

    def run(batches: Any) -> Any:
        return stage(batches)

    return run
