"""The module of the daemon for the settings of a cluster: `spark.python.daemon.module siftline.spark.daemon`."""

from siftline.spark.worker.daemon import serve as serve
from siftline.spark.worker.daemon import warm_up as warm_up

if __name__ == "__main__":
    serve()
