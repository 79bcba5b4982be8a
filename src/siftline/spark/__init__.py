"""The data pipeline on Spark: tables of subscriptions and events in, a table of matches out.

`session` gives a local Spark that is set up well; any other session will do too. `profile` collects statistics of
events, `compile` makes an index directory of a table of subscriptions, and `match` a table of what events match.
`stream` does so for a stream of events, while `apply` changes subscriptions and `compact` merges the changes.

The functions are imported at once, because their modules have the same names: loaded later, a module would take the
place of its function.
"""

from __future__ import annotations

try:
    import pyspark as _pyspark
except ImportError as error:
    raise ImportError("siftline.spark needs PySpark: pip install 'siftline[spark]'") from error

from siftline.spark.changes import apply
from siftline.spark.compile import compile
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.match import match
from siftline.spark.profile import profile
from siftline.spark.session import session
from siftline.spark.sharding.compaction import compact
from siftline.spark.stream import stream
from siftline.spark.worker.counts import Counts
from siftline.spark.worker.file_matching import match_files

__all__ = [
    "Counts",
    "IndexDirectory",
    "apply",
    "compact",
    "compile",
    "match",
    "match_files",
    "profile",
    "session",
    "stream",
]

del _pyspark
