"""Deltas: the changes since a version was compiled, in small numbered files beside it.

    deltas/7.json   {"time": ..., "changes": [["put", "ann", "price <= 600", 1.0, null],
                                              ["remove", "bob"],
                                              ["end", "eve", 1794824320000000]]}

A version contains all deltas up to a number. The later ones are applied on top, in order, so that (version, delta)
always names the same state of the subscriptions. A delta is written in one step; the next micro-batch of a stream sees
it.

A `put` sets the whole content of a subscription, whether it existed or not, so the same change may come twice. An `end`
sets the time at which a subscription ends (microseconds since 1970) and does not change its content. A subscription
that has ended by the time of the delta stays ended, so it makes no difference whether `compact` has dropped it already.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.errors import SnapshotError, SparkError
from siftline.spark.directory.documents import read_document, write_document
from siftline.spark.directory.layout import LOCK, delta_file, delta_folder, delta_numbers
from siftline.spark.directory.locks import held
from siftline.spark.directory.versions import IndexDirectory
from siftline.storage.files import named_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PUT, REMOVE, END = "put", "remove", "end"
# How long to wait for other writers; writing a delta takes milliseconds.
_WAIT_SECONDS: Final = 30.0


class Refused(NamedTuple):
    """A change that was not made, and why."""

    id: Any
    expression: str | None
    reason: str


class Delta(NamedTuple):
    """Changes that take effect together.

    Attributes
    ----------
    number : int
        The number of the delta; the state of an index is a version with all deltas up to a number.
    time : int
        When it was written, in microseconds since 1970.
    changes : list of list
        The changes, as shown above.
    refused : list of Refused
        The changes that were left out.
    marks : dict
        The last change that was applied of each source.
    """

    number: int
    time: int
    changes: list[list[Any]]
    refused: list[Refused]
    marks: dict[str, int]


def read_delta(folder: Path, number: int) -> Delta:
    """Return a delta that was written."""
    file = delta_file(folder, number)
    if not file.is_file():
        raise SnapshotError(f"the index {folder} lacks its delta {number}: there is no {file}")
    document = read_document(file)
    try:
        refused = [Refused(*row) for row in document["refused"]]
        return Delta(number, document["time"], document["changes"], refused, document["marks"])
    except (KeyError, TypeError) as error:
        raise SnapshotError(f"{file} is damaged: {error!r}") from None


def write_delta(folder: Path, delta: Delta) -> None:
    """Write a delta, in one step; the caller holds `delta_lock`."""
    write_document(delta_file(folder, delta.number), {k: v for k, v in delta._asdict().items() if k != "number"})


def last_delta(folder: Path) -> tuple[int, dict[str, int]]:
    """Return the number of the last delta, which a version may already contain, and its marks of the sources."""
    directory = IndexDirectory.open(folder)
    last = delta_numbers(folder)[-1:]
    if not last or last[0] <= directory.delta:
        return directory.delta, directory.marks
    return last[0], read_document(delta_file(folder, last[0]))["marks"]


def has_changes(folder: Path, first: int, last: int) -> bool:
    """Return whether deltas after one number, up to another, change anything."""
    return any(read_document(delta_file(folder, number))["changes"] for number in range(first + 1, last + 1))


@contextmanager
def delta_lock(folder: Path) -> Iterator[None]:
    """Hold the lock that allows one writer of deltas at a time."""
    with named_errors(delta_folder(folder), "written"):
        delta_folder(folder).mkdir(exist_ok=True)
    with held(delta_folder(folder) / LOCK, _WAIT_SECONDS) as is_held:
        if not is_held:
            raise SparkError(f"{folder}: others have been writing deltas for {_WAIT_SECONDS:.0f} s")
        yield
