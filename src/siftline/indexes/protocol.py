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


# Three columns by slot: bits of the live slots without duplicates, the next slot with the same expression, and which
# slots are live. None if no two slots have the same expression.
Sharing: TypeAlias = "tuple[Growable, Growable, Growable] | None"


class Batch(NamedTuple):
    """Subscriptions for consecutive new slots, in every form that an index may need."""

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

    @classmethod
    def of(cls, found: Sequence[Candidates]) -> Candidates:
        """Return the candidates of one event from several parts of an index."""
        return cls(_joined([each.sure for each in found]), _joined([each.possible for each in found]))


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
    """How one thread finds the ids of some subscriptions on the fast path.

    `call(event.address, table_at)` writes ids to `ids_found` and returns how many there are. A return value
    outside 0 .. MOST_FOUND means that the event needs the full pipeline.
    """

    call: Callable[[int, int], int]
    table_at: int
    ids_found: memoryview
    owner: object  # keeps the arrays alive whose addresses are in the table


MOST_FOUND: Final = 0xFFFFFFFF


class OneByOne:
    """Defaults for an index that matches events one by one, and has neither limits nor anything to reorganise."""

    takes_alternatives: ClassVar[bool] = False
    takes_patterns: ClassVar[bool] = False
    has_write_buffer: ClassVar[bool] = False
    shares: ClassVar[bool] = False

    def build_in_parts(self: Index, batch: Batch) -> None:
        """Build as usual: there is no limit."""
        self.build(batch)

    def merge(self) -> Merge | None:
        """Choose nothing: there is nothing to reorganise."""
        return None

    def finders(self, ids: Growable, sharing: Sharing) -> list[Finder] | None:
        """Return None: there is no fast path, so the engine calls `match`."""
        return None

    def match_many(self: Index, events: EncodedEvents, first: int, end: int) -> Many:
        """Match the events first .. end - 1, one after the other, except those that could not be read."""
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
    """A reorganisation that an index chose: it runs while other threads match and change, and then takes effect."""

    n_clauses: int

    def run(self) -> None:
        """Lay out the new structure."""

    def finish(self) -> None:
        """Replace the old structure by the new one; no other thread changes the index meanwhile."""

    def give_up(self) -> None:
        """Leave everything as it is; no other thread changes the index meanwhile."""


class Index(Protocol):
    """A way to find the subscriptions that an event satisfies.

    Threads match while one thread changes the index. So an array that a running `match` may read changes in two ways
    only: it grows behind the view of the match, or a live flag is cleared. All other changes go to new arrays.
    """

    name: ClassVar[str]
    # Whether literals may be alternatives to each other: the index then gets short CNFs unchanged.
    takes_alternatives: ClassVar[bool]
    # Whether the index decides patterns (`contains`, `like`, ...) itself. Otherwise an encoded event lists the patterns
    # that it satisfies, and a literal tests a pattern like any attribute.
    takes_patterns: ClassVar[bool]
    # Whether the engine may keep the newest subscriptions in its write buffer and add them to the index in bulk. An
    # index that may refuse a subscription must see it at once.
    has_write_buffer: ClassVar[bool]
    # Whether the engine may give the index only the first of several subscriptions with the same expression.
    shares: ClassVar[bool]

    def __init__(self, **options: Any) -> None:
        """Make an empty index; unknown options raise TypeError."""

    def build(self, batch: Batch) -> None:
        """Replace everything by these subscriptions, whose slots start at 0."""

    def build_in_parts(self, batch: Batch) -> None:
        """Do the same in several structures, after `build` raised TooLargeError."""

    def prepare(self, batch: Batch) -> Any:
        """Lay out new subscriptions, for `add`; their slots are higher than all earlier ones. Nothing changes yet.

        For an index with a write buffer, other threads may match, remove and merge meanwhile.
        """

    def add(self, prepared: Any, domains: Domains) -> None:
        """Add what `prepare` returned, quickly; nothing was added in between. From now on, `domains` are in use."""

    def remove(self, slots: NDArray[np.int32]) -> None:
        """Forget these slots: they never match again."""

    def merge(self) -> Merge | None:
        """Choose what to reorganise next, if anything; the set of matches does not change."""

    def match(self, events: EncodedEvents, position: int) -> Candidates:
        """Return the slots that one event matches or may match."""

    def finders(self, ids: Growable, sharing: Sharing) -> list[Finder] | None:
        """Return how this thread finds the ids of all matches on the fast path, or None if it cannot.

        Finders are valid until the index changes. `ids` has the ids of all slots; they never change. `sharing` tells
        which slots are duplicates of others.
        """

    def match_top(self, events: EncodedEvents, position: int, top: int, weights: NDArray[np.float64]) -> Candidates:
        """Return the slots that one event matches or may match; it may omit slots lighter than `top` sure ones.

        `weights` is by slot. Among slots of equal weight the engine chooses by id, so all sure slots that are as heavy
        as the last of the best must be returned.
        """

    def match_many(self, events: EncodedEvents, first: int, end: int) -> Many:
        """Match each of the events first .. end - 1; results of events that could not be read are ignored."""

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
