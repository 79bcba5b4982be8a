"""A client of Spark Connect, with a server on this machine: `python run_connect.py FOLDER`.

Profiles, compiles and matches by all plans, and writes what it finds into FOLDER.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from siftline.errors import EventError, SparkError
from siftline.spark import Counts, compile, match, match_files, profile, session
from siftline.spark.runtime.failures import own_error
from siftline.spark.runtime.sessions import is_connect
from siftline.spark.session import SETTINGS
from spark.test_remote import events, subscriptions


def main(folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        **SETTINGS,
        "spark.sql.shuffle.partitions": 2,
        "spark.local.dir": folder / "spark",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    builder = SparkSession.builder.remote("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    spark = builder.getOrCreate()
    assert is_connect(spark)
    assert session() is spark
    index = str(folder / "index")
    made = compile(subscriptions(spark), index, profile(events(spark)), shards=3)
    assert (made.subscriptions, made.quarantined) == (62, 1)
    for plan in ("replicated", "sharded"):
        counts = Counts(spark, str(folder / f"counts-{plan}"))
        found = match(events(spark), index, plan=plan, counts=counts, dead_letters=str(folder / f"dead-{plan}"))
        found.write.parquet(str(folder / plan))
        n_matches = spark.read.parquet(str(folder / plan)).count()
        assert (counts.events, counts.matches, counts.dead_letters) == (40, n_matches, 1)
        assert spark.read.parquet(str(folder / f"dead-{plan}")).first().id == 40
    events(spark).write.parquet(str(folder / "events"))
    match_files(str(folder / "events"), index, folder / "files", dead_letters="ignore")
    for limit in (0, 0.01):
        try:
            match(events(spark), index, dead_letters=str(folder / "dead"), fail_above=limit).collect()
        except PySparkException as error:
            assert f"more than fail_above={limit} allows" in str(own_error(error))  # noqa: PT017
        else:
            raise AssertionError
    try:
        match_files(str(folder / "events"), index, folder / "no files")
    except EventError as error:
        assert "cannot be read; the first: id=40" in str(error)  # noqa: PT017
    else:
        raise AssertionError
    for refused in (lambda: Counts(spark), lambda: compile(subscriptions(spark), "hdfs://cluster/index")):
        try:
            refused()
        except SparkError as error:
            assert "Spark Connect" in str(error)  # noqa: PT017
        else:
            raise AssertionError
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
