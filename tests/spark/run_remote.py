"""A job on a cluster of two executors that share no folder: `python run_remote.py FOLDER`.

Compiles into viewfs://cluster/data, matches by both plans, and writes what it finds into FOLDER.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from siftline.spark import compile, match, session
from spark.test_remote import events, subscriptions


def main(folder: Path) -> None:
    settings: dict[str, Any] = {
        "spark.master": "local-cluster[2,1,1024]",
        "spark.executor.memory": "512m",
        "spark.local.dir": folder / "spark",
        "spark.sql.warehouse.dir": folder / "warehouse",
        # In the folder that each executor works in.
        "spark.executorEnv.SIFTLINE_MIRRORS": "mirrors",
        "spark.hadoop.fs.viewfs.mounttable.cluster.link./data": (folder / "store").as_uri(),
    }
    spark = session(2, memory="512m", short_lived=True, settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    uri = "viewfs://cluster/data/index"
    compile(subscriptions(spark), uri, shards=3)
    for plan in ("replicated", "sharded"):
        match(events(spark), uri, plan=plan, dead_letters="ignore").write.parquet(str(folder / plan))
    mirrors = {Path(row.folder) for row in spark.range(8, numPartitions=8).mapInArrow(asked, "folder string").collect()}
    assert len(mirrors) == 2
    used = [mirror for mirror in mirrors if mirror.exists()]  # an executor may have had nothing to do
    assert used
    for mirror in used:
        assert len(list(mirror.glob("siftline-index-*/versions/1/version.json"))) == 1
        shutil.rmtree(mirror)
    spark.stop()


def asked(batches: Any) -> Any:
    """Tell where the mirrors of this executor are."""
    for _ in batches:
        time.sleep(0.2)  # let the other executor have some tasks too
        yield pa.RecordBatch.from_pydict({"folder": [str(Path("mirrors").absolute())]})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
