"""A job on a cluster of two executors that have no folder in common: `python run_remote.py FOLDER`.

Compiles into viewfs://cluster/data, matches by both plans, and writes what it finds into FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

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
        match(events(spark), uri, plan=plan).write.parquet(str(folder / plan))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
