"""match: a table of events and an index in, a table of matches out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import TableError
from siftline.spark.dead_letters import Counts, DeadLetters
from siftline.spark.directory import IndexDirectory
from siftline.spark.events import EVENT, MOST_EVENT_BYTES, selected, shape_of
from siftline.spark.worker import COUNTS, HOW, LISTS, PAIRS, TOP, Matcher

if TYPE_CHECKING:
    from collections.abc import Sequence

PLANS: Final = ("auto", "replicated", "sharded")
