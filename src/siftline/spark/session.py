"""session: a local Spark session that suits Siftline."""

from siftline.spark.runtime.sessions import session as session
from siftline.spark.runtime.settings import SETTINGS as SETTINGS
