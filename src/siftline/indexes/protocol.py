"""What every index offers to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.domains import Domains
    from siftline.encoding.events import EncodedEvents
    from siftline.encoding.growable import Growable
    from siftline.encoding.statistics import Statistics
    from siftline.model import Expression


# Bits of the slots that are live and followed by nobody; which slot follows a slot with the same expression; and which
# slots are live. None if no two slots have the same.
Sharing: TypeAlias = "tuple[Growable, Growable, Growable] | None"


class Batch(NamedTuple):
    """Subscriptions for consecutive new slots, in every form that an index may want."""

    first_slot: int
    n_slots: int
    clauses: Clauses
    domains: Domains
    expression: Callable[[int], Expression]  # by slot
    statistics: Statistics | None


class Candidates(NamedTuple):
    """Slots, each at most once: those that match, and those that only may match and need the exact check."""

    sure: NDArray[np.int32]
    possible: NDArray[np.int32]


class Many(NamedTuple):
    """The candidates of consecutive events: those of the i-th are at starts[i] : starts[i + 1]."""

    starts: NDArray[np.int64]
    sure: NDArray[np.int32]
    possible_starts: NDArray[np.int64]
    possible: NDArray[np.int32]

    @classmethod
    def of(cls, found: Sequence[Candidates]) -> Many:
        """Return the candidates of events that were matched one by one."""
        sure, possible = [each.sure for each in found], [each.possible for each in found]
        return cls(_starts(sure), _joined(sure), _starts(possible), _joined(possible))


def _starts(parts: Sequence[NDArray[np.int32]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)


def _joined(parts: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate([np.empty(0, dtype=np.int32), *parts])


class Finder(NamedTuple):
    """How one thread finds the ids of some subscriptions.

    `call(event.address, table_at)` writes them to `ids_found` and returns how many; a number that is not between 0 and
    MOST_FOUND if this way is not enough for the event.
    """

    call: Callable[[int, int], int]
    table_at: int
    ids_found: memoryview
    owner: object  # keeps alive what there are addresses of


MOST_FOUND: Final = 0xFFFFFFFF


class OneByOne:
    """How an index that knows no better way matches many events, and finds ids and the heaviest."""

    def finders(self, ids: Growable, sharing: Sharing) -> list[Finder] | None:
        """Leave it to `match`."""
        return None

    def match_many(self: Index, events: EncodedEvents, first: int, end: int) -> Many:
        """Match the events first .. end - 1, one after the other, but for those that could not be read."""
        nothing = Candidates(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))
        errors = events.errors
        return Many.of(
            [nothing if position in errors else self.match(events, position) for position in range(first, end)]
        )

    def match_top(
        self: Index, events: EncodedEvents, position: int, top: int, weights: NDArray[np.float64]
    ) -> Candidates:
        """Return all candidates."""
        return self.match(events, position)


class Merge(Protocol):
    """A reorganisation that an index chose: it runs while others match and change, and then takes effect."""

    n_clauses: int

    def run(self) -> None:
        """Lay out what is new."""

    def finish(self) -> None:
        """Put it in its place; nobody changes the index meanwhile."""

    def give_up(self) -> None:
        """Leave everything as it is; nobody changes the index meanwhile."""


class Index(Protocol):
    """A way to find the subscriptions that an event satisfies.

    Threads match while one thread changes the index. So arrays that a running `match` may hold change only by growing
    behind its view, or by clearing a live flag; whatever else changes goes into new arrays.
    """

    name: ClassVar[str]
    # Whether literals may be alternatives to each other: the index then gets short CNFs as they are.
    takes_alternatives: ClassVar[bool]
    # Whether it decides patterns (`contains` and its like) itself. Otherwise an encoded event says which ones it
    # satisfies, and literals ask for that as for any attribute.
    takes_patterns: ClassVar[bool]
    # Whether the engine may keep the newest subscriptions beside the index, in a tail, and bring them in many at a
    # time. An index that may refuse a subscription must see it at once.
    has_write_buffer: ClassVar[bool]
    # Whether subscriptions with the same expression may be one to the index, which then never hears of the others.
    shares: ClassVar[bool]

    def __init__(self, **options: Any) -> None:
        """Make an empty index; unknown options raise TypeError."""

    def build(self, batch: Batch) -> None:
        """Replace everything by these subscriptions, whose slots start at 0."""

    def build_in_parts(self, batch: Batch) -> None:
        """Do the same, but in pieces, after `build` raised TooLargeError; an index without limits never does."""

    def prepare(self, batch: Batch) -> Any:
        """Lay out new subscriptions, for `add`; their slots are higher than all before. Nothing changes yet.

        For an index with a write buffer, others may match, remove and merge meanwhile.
        """

    def add(self, prepared: Any, domains: Domains) -> None:
        """Add what `prepare` returned, in a moment; nothing was added in between. The engine goes on with `domains`."""

    def remove(self, slots: NDArray[np.int32]) -> None:
        """Forget these slots: they never match again."""

    def merge(self) -> Merge | None:
        """Choose what to reorganise next, if anything, without changing what matches."""

    def match(self, events: EncodedEvents, position: int) -> Candidates:
        """Return the slots that one event matches or may match."""

    def finders(self, ids: Growable, sharing: Sharing) -> list[Finder] | None:
        """Return how this thread finds the ids of all that match an event, by a shorter way than `match`, or None.

        They hold until somebody changes the index. `ids` has those of all slots; they never change. If slots share
        entries, `sharing` says who shares them.
        """

    def match_top(self, events: EncodedEvents, position: int, top: int, weights: NDArray[np.float64]) -> Candidates:
        """Return the slots that one event matches or may match, but for some that are lighter than `top` sure ones.

        `weights` is by slot. All sure slots as heavy as the last of the best must be there: the engine chooses by id.
        """

    def match_many(self, events: EncodedEvents, first: int, end: int) -> Many:
        """Match each of the events first .. end - 1; of those that could not be read, anything may be returned."""

    def stats(self) -> dict[str, Any]:
        """Return sizes in bytes by structure, and what matching has cost so far.

        Every index counts `candidates_examined`, `predicates_evaluated` and `lists_scanned`.
        """

    def describe(self) -> str:
        """Return a few lines that show the structure."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the index as flat arrays for a snapshot."""

    def restore(self, arrays: Mapping[str, NDArray[Any]], batch: Batch) -> None:
        """Take over the arrays of a snapshot, which may be maps of files."""

    def _check(self) -> None:
        """Assert every invariant."""
