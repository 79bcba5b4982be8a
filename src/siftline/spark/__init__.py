"""The data pipeline on Spark: tables of subscriptions and events in, a table of matches out.

`session` starts a local Spark with suitable settings; any other session works too. `profile` collects statistics of
events, `compile` makes an index directory of a table of subscriptions, and `match` returns a table of the matches of
events. `stream` does the same for a stream of events, while `apply` changes subscriptions and `compact` merges the
changes.

The modules here are those of the verbs. `sources` is built on them; below them are the folders `worker`, `sharding`,
`directory` and `runtime`, each of which imports only those that follow it.

The functions are imported at once, because their modules have the same names: if a module were loaded later, it would
replace its function.
"""

from __future__ import annotations

try:
    import pyspark as _pyspark
except ImportError as error:
    raise ImportError("siftline.spark needs PySpark: pip install 'siftline[spark]'") from error

from siftline.spark.changes import apply, compact
from siftline.spark.compile import compile
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.match import match, match_files
from siftline.spark.profile import profile
from siftline.spark.session import session
from siftline.spark.stream import stream
from siftline.spark.worker.counts import Counts

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
